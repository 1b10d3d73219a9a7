//! An axum server whose rules come from a document that may be edited at any time.
//!
//! ```text
//! cargo run --example rules_file
//! cargo run --example rules_file rules.json
//! PORT=8080 cargo run --example rules_file rules.toml
//! ```
//!
//! A file that is missing is created. JSON may also be a list of Sentinel's rules.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::http::Uri;
use tokio::net::TcpListener;
use tower_sentinel::document::{Document, Format};
use tower_sentinel::source::{FileSource, RuleSource, Watch};
use tower_sentinel::{BoxError, FlowRule, Rules, Sentinel, SentinelLayer};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let path = PathBuf::from(std::env::args().nth(1).unwrap_or("rules.toml".to_owned()));
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let format = if is_json { Format::Json } else { Format::Toml };
    make_if_missing(&path, format)?;

    let mut source = if is_json {
        FileSource::json(&path)
    } else {
        FileSource::toml(&path)
    };
    // At the start there are no older rules to keep, so an invalid file ends the program.
    let rules = source.poll().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    });
    for warning in source.warnings() {
        println!("note: {warning}");
    }
    let sentinel = Sentinel::new(rules.unwrap_or_default());

    let app = Router::new()
        .fallback(|uri: Uri| async move { format!("this is {}\n", uri.path()) })
        .layer(SentinelLayer::with(sentinel.clone()));
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener =
        listener.map_err(|error| format!("port {port}: {error}; set PORT to another"))?;
    print_what_to_try(&listener.local_addr()?.to_string(), &path);

    // It checks the file for changes until it is dropped.
    let _watch = Watch::new(sentinel, source)
        // Several mistakes are reported on several lines.
        .on_event(|event| println!("{}", event.to_string().replace('\n', "\n    ")))
        .spawn(Duration::from_millis(500))?;
    axum::serve(listener, app).await?;
    Ok(())
}

/// Writes a document with one rule, unless the file exists.
fn make_if_missing(path: &Path, format: Format) -> Result<(), BoxError> {
    let rules = Rules::from(FlowRule::per_second("/search", 5));
    match File::create_new(path) {
        Ok(mut file) => {
            file.write_all(Document::from_rules(&rules).write(format).as_bytes())?;
            println!("{} was missing: created with one rule", path.display());
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}

fn print_what_to_try(addr: &str, path: &Path) {
    let path = path.display();
    println!(
        "listening on http://{addr}

{path} limits the calls per second, to five if it was just created:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' http://{addr}/search; done; echo

Edit the file while the server runs; the result is printed here:
  sed -i.bak 's/\\(threshold.*\\) [0-9.]*/\\1 2/' {path}

A mistake is reported with its position, and changes nothing:
  sed -i.bak 's/threshold/treshold/' {path}

Restore the file as it was before the mistake:
  mv {path}.bak {path}
"
    );
}
