//! An axum server that Sentinel's dashboard shows, and whose rules it changes.
//!
//! ```text
//! cargo run --example dashboard
//! DASHBOARD=127.0.0.1:8080 PORT=3000 cargo run --example dashboard rules.toml
//! ```
//!
//! The dashboard is a program of its own, such as `java -jar sentinel-dashboard-1.8.9.jar`. Without
//! one, the commands that it would send can be sent by curl. A file that is missing is created.

use std::io::ErrorKind;
use std::path::PathBuf;

use axum::Router;
use axum::http::Uri;
use tokio::net::TcpListener;
use tower_sentinel::observe::dashboard::Dashboard;
use tower_sentinel::source::{FileSource, RuleFile, RuleSource};
use tower_sentinel::{BoxError, Sentinel, SentinelLayer};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let path = PathBuf::from(std::env::args().nth(1).unwrap_or("rules.toml".to_owned()));
    let rule = "[[rules]]\nkind = \"flow\"\nresource = \"/search\"\nthreshold = 5\n";
    match std::fs::File::create_new(&path) {
        Ok(_) => std::fs::write(&path, rule)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(format!("{}: {error}", path.display()).into()),
    }
    let rules = FileSource::toml(&path).poll()?;
    let sentinel = Sentinel::new(rules.unwrap_or_default());

    let app = Router::new()
        .fallback(|uri: Uri| async move { format!("this is {}\n", uri.path()) })
        .layer(SentinelLayer::with(sentinel.clone()));
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener =
        listener.map_err(|error| format!("port {port}: {error}; set PORT to another"))?;

    let at = std::env::var("DASHBOARD").unwrap_or("127.0.0.1:8080".to_owned());
    // It beats, and takes commands, until it is dropped.
    let dashboard = Dashboard::new(&sentinel, "shop")
        .connect(&*at)
        // What the dashboard sends is here at the next start.
        .push(RuleFile::toml(&path))
        .spawn()
        .await?;
    let (addr, commands) = (listener.local_addr()?, dashboard.addr());
    println!(
        "listening on http://{addr}
commands are taken at {commands}

The dashboard at http://{at} shows \"shop\" after some calls:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' http://{addr}/search; done; echo

It reads, from this machine:
  curl 'http://{commands}/jsonTree?type=root'
  curl 'http://{commands}/metric?startTime=0'
  curl 'http://{commands}/getRules?type=flow'

It sends rules, which limit at once, and are in {path} afterwards:
  curl --data-urlencode 'data=[{{\"resource\": \"/search\", \"count\": 2}}]' -d type=flow \\
    http://{commands}/setRules
",
        path = path.display(),
    );
    axum::serve(listener, app).await?;
    Ok(())
}
