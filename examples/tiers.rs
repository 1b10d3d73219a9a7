//! An axum server with plans: each customer has a quota, and what they pay for
//! says how large that is. Customers are known by their API keys.
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
/// The keys that were given out.
const CUSTOMERS: &[Customer] = &[
    Customer::new("ann-4711", "ann", "free"),
    Customer::new("ann-0000", "ann", "free"),
    Customer::new("bob-0815", "bob", "free"),
    Customer::new("eve-1234", "eve", "pro"),
];

/// A real server would look them up where it keeps its customers.
struct Customer {
    key: &'static str,
    name: &'static str,
    plan: &'static str,
}

impl Customer {
    const fn new(key: &'static str, name: &'static str, plan: &'static str) -> Self {
        Self { key, name, plan }
    }

    /// Whose key a request brings; nobody's, if it was not given out.
    fn of(headers: &HeaderMap) -> Option<&'static Self> {
        let key = headers.get(API_KEY)?.to_str().ok()?;
        CUSTOMERS.iter().find(|customer| customer.key == key)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Five a minute for each customer, twenty for one whose plan is "pro". Who has
    // rested may spend all of it at once; then it is refilled bit by bit.
    let rule = HotParamRule::per("api", 5, Duration::from_secs(60)).tier("pro", 20);
    let layer = SentinelLayer::new(rule)
        // One quota over all routes: they are one resource.
        .resource(from_fn(|_| Some(Key::Str("api"))))
        // Counted by customer: the key itself, which is a secret, gets into no
        // statistics, and a second key brings no second quota. Whoever makes a key
        // up is nobody, and all of those share one quota.
        .param(from_fn(|head| {
            let customer = Customer::of(head.headers())?;
            Some(Key::Str(customer.name))
        }))
        .tier(from_fn(|head| {
            let customer = Customer::of(head.headers())?;
            Some(Key::Str(customer.plan))
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

async fn answer(what: &str, headers: HeaderMap) -> String {
    match Customer::of(&headers) {
        Some(Customer { name, plan, .. }) => format!("{what} for {name}, who is on plan {plan}\n"),
        None => format!("{what} for anybody\n"),
    }
}

fn print_what_to_try(addr: &str) {
    println!(
        "listening on http://{addr}

Ann, on plan free, has five calls a minute, over all routes and with both of her keys:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-api-key: ann-4711' http://{addr}/search; done; echo
  curl -si -H 'x-api-key: ann-0000' http://{addr}/orders; echo

Bob has five of his own:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-api-key: bob-0815' http://{addr}/search; done; echo

Eve, on plan pro, has twenty:
  for i in $(seq 24); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-api-key: eve-1234' http://{addr}/search; done; echo

Made-up keys have no quota of their own, but share one with calls without a key:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H \"x-api-key: made-up-$i\" http://{addr}/search; done; echo
"
    );
}
