//! An axum server whose rules come from a file, which may be edited at any time.
//!
//! ```text
//! echo '/search 5/s' > rules.txt
//! cargo run --example rules_file rules.txt
//! PORT=8080 cargo run --example rules_file rules.txt
//! ```

use std::time::Duration;

use axum::Router;
use axum::http::Uri;
use tokio::net::TcpListener;
use tower_sentinel::source::{FileSource, RuleSource, Watch};
use tower_sentinel::{BoxError, FlowRule, Rules, Sentinel, SentinelLayer};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let path = std::env::args().nth(1).ok_or("name a file of rules")?;
    let mut source = FileSource::new(&path, parse);
    // At the start there are no rules to keep, so a bad file ends the program.
    let rules = source.poll()?.unwrap_or_default();
    let sentinel = Sentinel::new(rules);

    let app = Router::new()
        .fallback(|uri: Uri| async move { format!("this is {}\n", uri.path()) })
        .layer(SentinelLayer::with(sentinel.clone()));
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let addr = listener.local_addr()?;
    println!(
        "listening on http://{addr}

Five calls a second pass, or as many as the file says:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' http://{addr}/search; done; echo

Edit the file, and see here what becomes of it:
  echo '/search 2/s' > {path}

A mistake changes nothing:
  echo '/search two' > {path}
"
    );

    // It looks at the file until it is dropped.
    let _watch = Watch::new(sentinel, source)
        .on_event(|event| println!("{event}"))
        .spawn(Duration::from_millis(500))?;
    axum::serve(listener, app).await?;
    Ok(())
}

/// One rule a line, such as `/search 5/s`. Lines that begin with `#` are
/// comments.
fn parse(text: &str) -> Result<Rules, BoxError> {
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let rule = line.strip_suffix("/s").and_then(|line| {
            let (path, limit) = line.split_once(' ')?;
            Some(FlowRule::per_second(path, limit.parse::<u32>().ok()?))
        });
        rules.push(rule.ok_or_else(|| format!("line {number} is not like \"/path 5/s\": {line}"))?);
    }
    Ok(Rules::build(rules)?)
}
