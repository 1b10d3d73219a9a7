//! A small shop under load, the live page of its engine, and its figures for Prometheus.
//!
//! ```text
//! cargo run --example observe
//! PORT=8080 cargo run --example observe
//! ```
//!
//! Customers order, search and pay all the time. Every 40 seconds the payments fail for 10, so
//! that the page has something to show. With `LOAD=none` there are no customers but you; with
//! `TOKEN=…` the page asks for that token, and can change rules; with `ALL=1` it also shows names
//! that callers make up.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower_sentinel::key::{Header, KeyExtractor, PeerIp};
use tower_sentinel::observe::Metrics;
use tower_sentinel::observe::page::Page;
use tower_sentinel::source::InMemory;
use tower_sentinel::system::{Sampler, SystemProbe};
use tower_sentinel::{
    BoxError, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, Rules, Sentinel,
    SentinelLayer, SystemRule,
};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let rules = Rules::new()
        .with(FlowRule::per_second("/orders/{id}", 60).id("orders"))
        .with(FlowRule::per_second("/search", 25).id("search"))
        .with(
            KeyedRule::per_second("/search", 5)
                .param("user")
                .id("search-per-user"),
        )
        .with(IsolationRule::new("/report", 4).id("reports"))
        .with(
            CircuitBreakerRule::error_ratio("/pay", 0.5)
                .open_for(SECOND * 5)
                .id("pay-errors"),
        )
        .with(FlowRule::per_second("/pay", 8).id("pay-trial").shadow())
        .with(SystemRule::new().concurrency(200).id("machine"));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .sampler(Sampler::new(SystemProbe::new()))
        .build();
    let layer = SentinelLayer::with(sentinel.clone())
        .param_named("user", Header::from_static("x-user").or(PeerIp));
    let shop = Router::new()
        .route("/orders/{id}", get(async || sleep(SECOND / 60).await))
        .route("/search", get(async || sleep(SECOND / 20).await))
        .route("/pay", get(pay))
        .route("/report", get(async || sleep(SECOND / 4).await))
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(layer)
        // What is routed below the layer is not limited by it.
        .route_service("/metrics", Metrics::new(&sentinel));

    let set = |name: &str| std::env::var(name).ok();
    let page = Page::new(&sentinel)
        .title("the shop")
        .all_resources(set("ALL").is_some());
    let app = match set("TOKEN") {
        Some(token) => {
            let page = page.token(token)?.edits(InMemory)?;
            shop.clone().route_service("/sentinel", page)
        }
        None => shop.clone().route_service("/sentinel", page),
    };

    let port = set("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener =
        listener.map_err(|error| format!("port {port}: {error}; set PORT to another"))?;
    println!("the live page: http://{}/sentinel", listener.local_addr()?);
    if set("LOAD").as_deref() != Some("none") {
        for (n, (path, rate)) in CUSTOMERS.into_iter().enumerate() {
            tokio::spawn(customers(shop.clone(), path, rate, n));
        }
    }
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

const SECOND: Duration = Duration::from_secs(1);

/// What customers ask for, and how often in a second.
const CUSTOMERS: [(&str, f64); 4] = [
    ("/orders/7", 55.0),
    ("/search", 22.0),
    ("/pay", 12.0),
    ("/report", 9.0),
];

async fn pay(headers: HeaderMap) -> StatusCode {
    sleep(SECOND / 12).await;
    if headers.contains_key("x-fail") {
        StatusCode::BAD_GATEWAY
    } else {
        StatusCode::OK
    }
}

/// Sends requests for `path`, about `rate` in a second, more and fewer in turn.
async fn customers(shop: Router, path: &'static str, rate: f64, n: usize) {
    let begin = Instant::now();
    for call in 0_u64.. {
        let passed = begin.elapsed().as_secs_f64();
        let wave = 1.0 + 0.35 * (passed / 6.0 + n as f64).sin();
        sleep(Duration::from_secs_f64(1.0 / (rate * wave))).await;
        let mut request = Request::get(path).header("x-user", format!("user-{}", call % 5));
        if passed % 40.0 > 25.0 && passed % 40.0 < 35.0 {
            request = request.header("x-fail", "1");
        }
        let request = request.body(Body::empty()).expect("the path is valid");
        tokio::spawn(shop.clone().oneshot(request));
    }
}
