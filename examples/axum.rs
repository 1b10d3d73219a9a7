//! An axum server whose routes are limited in different ways.
//!
//! ```text
//! cargo run --example axum
//! PORT=8080 cargo run --example axum
//! ```

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use futures_util::Stream;
use tokio::net::TcpListener;
use tower_sentinel::key::PeerIp;
use tower_sentinel::observe::Metrics;
use tower_sentinel::observe::page::Page;
use tower_sentinel::{
    BoxError, FlowRule, IsolationRule, KeyedRule, MissingKey, Rules, Sentinel, SentinelLayer,
};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Rules name resources. With axum, these are the routes of the router below.
    let rules = Rules::new()
        .with(FlowRule::per_second("/limited", 5))
        .with(FlowRule::per_second("/users/{id}", 5))
        .with(IsolationRule::new("/stream", 2))
        .with(FlowRule::per_second("/priority", 5))
        // Each address by itself; 403 for one that is unknown.
        .with(KeyedRule::per_second("/per-ip", 3).missing(MissingKey::Refuse));
    let sentinel = Sentinel::builder()
        .rules(rules)
        // A prioritized call may wait, but for less than a second.
        .occupy_timeout(Duration::from_secs(1))
        // Response times in ranges, for Prometheus.
        .histograms()
        .build();

    let layer = SentinelLayer::with(sentinel.clone())
        // What tells callers apart: the peer's address. It is known because the
        // server below is started with connect info.
        .param(PeerIp)
        // These calls may wait for the next free place instead of being refused.
        // A real server decides this by something that clients cannot choose.
        .prioritize(|head| head.headers().get("x-vip").is_some_and(|vip| vip == "1"));

    let app = Router::new()
        .route("/limited", get(|| async { "one of five in this second\n" }))
        .route(
            "/users/{id}",
            get(|Path(id): Path<u32>| async move { format!("user {id}\n") }),
        )
        .route("/stream", get(stream))
        .route("/priority", get(|| async { "here you are\n" }))
        .route(
            "/per-ip",
            get(|| async { "one of your three in this second\n" }),
        )
        .route("/stats", get(stats))
        .with_state(sentinel.clone())
        .layer(layer)
        // What is routed below the layer is not limited by it. By default the page is for
        // callers on this machine alone, who are known by connect info.
        .route_service("/metrics", Metrics::new(&sentinel))
        .route_service("/sentinel", Page::new(&sentinel).title("examples/axum"));

    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener =
        listener.map_err(|error| format!("port {port}: {error}; set PORT to another"))?;
    print_what_to_try(listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}

/// Sends events: the call runs until the client disconnects.
async fn stream() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let ticks = futures_util::stream::unfold(0_u64, |tick| async move {
        if tick > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Some((Ok(Event::default().data(format!("tick {tick}"))), tick + 1))
    });
    Sse::new(ticks)
}

/// Returns everything that the engine has counted.
async fn stats(State(sentinel): State<Sentinel>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "application/json")],
        sentinel.snapshot().to_json(),
    )
}

fn print_what_to_try(addr: SocketAddr) {
    println!(
        "listening on http://{addr}

The live page of the engine, to have open beside all that follows:
  http://{addr}/sentinel

The same figures for Prometheus:
  curl -s http://{addr}/metrics | grep -v '^#'

Five calls a second pass; then 429 with Retry-After:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' http://{addr}/limited; done; echo; curl -si http://{addr}/limited; echo

The same limit, for all ids of a route together:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' http://{addr}/users/$i; done; echo

Two streams at once; a third one is refused until one of them ends:
  curl -sN http://{addr}/stream & curl -sN http://{addr}/stream & sleep 1; curl -si http://{addr}/stream; echo; kill %1 %2

Callers with x-vip: 1 wait for the next free place (see the times):
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} %{{time_total}}s\\n' -H 'x-vip: 1' http://{addr}/priority; done

Three calls a second for each client address:
  for i in $(seq 5); do curl -s -o /dev/null -w '%{{http_code}} ' http://{addr}/per-ip; done; echo

What the engine has counted:
  curl -s http://{addr}/stats
"
    );
}
