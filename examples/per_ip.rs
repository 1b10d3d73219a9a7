//! Limits per client address behind a reverse proxy, on real sockets.
//!
//! ```text
//! cargo run --example per_ip
//! ```
//!
//! The requests below are those that a proxy on this machine would send: it appends
//! its client's address to the `X-Forwarded-For` that the client has sent.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower_sentinel::key::ForwardedIp;
use tower_sentinel::read::Scope;
use tower_sentinel::{BoxError, KeyedRule, MissingKey, Sentinel, SentinelLayer};

const CALLS: usize = 5;

/// Who calls, and the value of `X-Forwarded-For` that reaches the server.
const CLIENTS: &[(&str, &str)] = &[
    ("a client", "203.0.113.7"),
    ("another client", "198.51.100.20"),
    ("the first, forging one", "192.0.2.1, 203.0.113.7"),
    (
        "the first, forging many",
        "10.1.1.1, 127.0.0.1, 203.0.113.7",
    ),
    ("one over IPv6", "2001:db8:1:2::a"),
    ("the same /64", "2001:db8:1:2:ffff::b"),
    ("another /64", "2001:db8:1:3::a"),
    ("through two proxies", "192.0.2.99, 127.0.0.2"),
];

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Three calls an hour for each client.
    let rule = KeyedRule::per_hour("/login", 3).missing(MissingKey::Refuse);
    // Statistics of each address, for the second table.
    let sentinel = Sentinel::builder().rules(rule).origins(true).build();
    // A client is the address that the last trusted proxy has seen: the header is
    // read from the right, and everything to the left of that address is ignored.
    let client_ip = ForwardedIp::behind(["127.0.0.0/8".parse()?]);
    let app = Router::new()
        .route("/login", get(|| async { "welcome" }))
        .layer(
            SentinelLayer::with(sentinel.clone())
                .param(client_ip.clone())
                // For the statistics alone: the rule looks at the parameter.
                .origin(client_ip),
        );

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    // With connect info, the layer knows that the peer is the proxy.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, service).await });

    println!("Three calls an hour for each client address; {CALLS} calls from each client:\n");
    println!("client                   X-Forwarded-For                    200   429");
    let proxy = Client::builder(TokioExecutor::new()).build_http();
    for (name, forwarded) in CLIENTS {
        let passed = count_passed(&proxy, addr, forwarded).await?;
        let refused = CALLS - passed;
        println!("{name:<24} {forwarded:<33} {passed:>4}  {refused:>4}");
    }

    println!("\nWhat the engine has counted for each address:\n");
    println!("client                passed  refused");
    for node in sentinel.snapshot().nodes() {
        if let Scope::Origin(name) = node.scope() {
            let totals = node.totals();
            println!("{name:<20} {:>7} {:>8}", totals.pass(), totals.block());
        }
    }
    Ok(())
}

/// Sends the calls of one client, and returns how many passed.
async fn count_passed(
    proxy: &Client<HttpConnector, Body>,
    addr: SocketAddr,
    forwarded: &str,
) -> Result<usize, BoxError> {
    let mut passed = 0;
    for _ in 0..CALLS {
        let request = Request::get(format!("http://{addr}/login"))
            .header("x-forwarded-for", forwarded)
            .body(Body::empty())?;
        match proxy.request(request).await?.status() {
            StatusCode::OK => passed += 1,
            StatusCode::TOO_MANY_REQUESTS => {}
            status => return Err(format!("unexpected status {status}").into()),
        }
    }
    Ok(passed)
}
