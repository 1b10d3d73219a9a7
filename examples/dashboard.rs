//! A small shop that Sentinel's dashboard shows, and whose rules it changes.
//!
//! ```text
//! cargo run --example dashboard
//! DASHBOARD=127.0.0.1:8080 PORT=3000 cargo run --example dashboard rules.toml
//! ```
//!
//! The dashboard is a program of its own, such as `java -jar sentinel-dashboard-1.8.9.jar`. Without
//! one, the commands that it would send can be sent by curl. A file that is missing is created.
//! Customers call the four routes all the time; with `LOAD=none` there are none but you.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tower::ServiceExt;
use tower_sentinel::key::Header;
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

    // Forms may name a caller, such as `app`, and a value of the first parameter, such as `ann`.
    let layer = SentinelLayer::with(sentinel.clone())
        .origin(Header::from_static("x-app"))
        .param(Header::from_static("x-user"));
    let shop = Router::new()
        .route("/search", get("found\n"))
        .route("/cart", get(cart))
        .route("/users/{id}", get("a user\n"))
        .route("/pay", get(pay))
        .layer(layer);
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

The dashboard at http://{at} shows \"shop\" within a minute. Click first:
  簇点链路 (the tree): four routes, of which /search refuses some calls already
  + 流控 beside /cart, which is slow: 线程数 (threads), 单机阈值 (count) 1
  + 熔断 beside /pay, which fails one call in three: 异常比例 (ratio), 0.2, 熔断时长 (s) 5
  + 热点 beside /users/{{id}}: 参数索引 (index) 0, 单机阈值 (count) 1: each user by itself
  + 授权 beside /search: 流控应用 (origins) web, 白名单 (allow): that is not the caller app
  实时监控 (the curves): what each of these does

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
    if std::env::var("LOAD").as_deref() != Ok("none") {
        for path in ["/search", "/cart", "/users/7", "/pay"] {
            tokio::spawn(customers(shop.clone(), path));
        }
    }
    axum::serve(listener, shop).await?;
    Ok(())
}

/// The slow one.
async fn cart() -> &'static str {
    sleep(Duration::from_millis(300)).await;
    "a cart\n"
}

/// The one that fails at times.
async fn pay() -> StatusCode {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    if CALLS.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
        StatusCode::BAD_GATEWAY
    } else {
        StatusCode::OK
    }
}

/// Sends eight requests a second for `path`, as the callers `app` and `web` and some users.
async fn customers(shop: Router, path: &'static str) {
    for call in 0_usize.. {
        sleep(Duration::from_millis(125)).await;
        let request = Request::get(path)
            .header("x-app", ["app", "web"][call % 2])
            .header("x-user", ["ann", "bob", "cy", "ann"][call % 4]);
        let request = request.body(Body::empty()).expect("the path is valid");
        tokio::spawn(shop.clone().oneshot(request));
    }
}
