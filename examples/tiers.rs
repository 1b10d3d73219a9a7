//! An axum server with plans: each API key has a quota, and what it pays for
//! says how large that is.
//!
//! ```text
//! cargo run --example tiers
//! PORT=8080 cargo run --example tiers
//! ```

use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, HeaderName};
use axum::routing::get;
use tokio::net::TcpListener;
use tower_sentinel::key::from_fn;
use tower_sentinel::{BoxError, HotParamRule, Key, SentinelLayer};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The keys that were given out, and the plan of each. A real server would look
/// them up where it keeps its customers.
const KEYS: &[(&str, &str)] = &[
    ("ann-4711", "free"),
    ("bob-0815", "free"),
    ("eve-1234", "pro"),
];

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Five a minute for each key, twenty for one whose plan is "pro". A key that
    // has rested may spend all of it at once; then it is refilled bit by bit.
    let rule = HotParamRule::per("api", 5, Duration::from_secs(60)).tier("pro", 20);
    let layer = SentinelLayer::new(rule)
        // One quota over all routes: they are one resource.
        .resource(from_fn(|_| Some(Key::Str("api"))))
        // Whoever makes a key up has none. Callers without a key share one quota.
        .param(from_fn(|head| {
            let (key, _) = customer(head.headers())?;
            Some(Key::Str(key))
        }))
        .tier(from_fn(|head| {
            let (_, plan) = customer(head.headers())?;
            Some(Key::Str(plan))
        }));

    let app = Router::new()
        .route("/search", get(|headers| answer("results", headers)))
        .route("/orders", get(|headers| answer("orders", headers)))
        .layer(layer);
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    print_what_to_try(&listener.local_addr()?.to_string());
    axum::serve(listener, app).await?;
    Ok(())
}

/// The key that a request brings, and its plan; none, if it was not given out.
fn customer(headers: &HeaderMap) -> Option<(&'static str, &'static str)> {
    let key = headers.get(API_KEY)?.to_str().ok()?;
    KEYS.iter().find(|(known, _)| *known == key).copied()
}

async fn answer(what: &str, headers: HeaderMap) -> String {
    match customer(&headers) {
        Some((key, plan)) => format!("{what} for {key}, who is on plan {plan}\n"),
        None => format!("{what} for anybody\n"),
    }
}

fn print_what_to_try(addr: &str) {
    println!(
        "listening on http://{addr}

A key on plan free has five calls a minute, over all routes:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-api-key: ann-4711' http://{addr}/search; done; echo
  curl -si -H 'x-api-key: ann-4711' http://{addr}/orders; echo

Another key has five of its own:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-api-key: bob-0815' http://{addr}/search; done; echo

One on plan pro has twenty:
  for i in $(seq 24); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-api-key: eve-1234' http://{addr}/search; done; echo

Made-up keys have no quota of their own, but share one with calls without a key:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H \"x-api-key: made-up-$i\" http://{addr}/search; done; echo
"
    );
}
