//! An axum server with plans: each customer has a quota, whose size depends on the
//! customer's plan. API keys identify the customers.
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
use tower_sentinel::{BoxError, Key, KeyedRule, SentinelLayer};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The API keys that were issued.
const CUSTOMERS: &[Customer] = &[
    Customer::new("ann-4711", "ann", "free"),
    Customer::new("ann-0000", "ann", "free"),
    Customer::new("bob-0815", "bob", "free"),
    Customer::new("eve-1234", "eve", "pro"),
];

/// A real server would look customers up in its database.
struct Customer {
    key: &'static str,
    name: &'static str,
    plan: &'static str,
}

impl Customer {
    const fn new(key: &'static str, name: &'static str, plan: &'static str) -> Self {
        Self { key, name, plan }
    }

    /// The customer whose key the request has; `None` if no such key was issued.
    fn of(headers: &HeaderMap) -> Option<&'static Self> {
        let key = headers.get(API_KEY)?.to_str().ok()?;
        CUSTOMERS.iter().find(|customer| customer.key == key)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Five calls a minute for each customer, twenty on plan "pro". A full quota may be
    // spent at once; then it is refilled bit by bit.
    let rule = KeyedRule::per("api", 5, Duration::from_secs(60)).tier("pro", 20);
    let layer = SentinelLayer::new(rule)
        // All routes are one resource, so they share one quota.
        .named("api")
        // Calls are counted by customer: the API key, which is a secret, appears in no
        // statistics, and a second key gives no second quota. Calls without a valid key
        // have no value here, and all of them share one quota.
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
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener =
        listener.map_err(|error| format!("port {port}: {error}; set PORT to another"))?;
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

Ann, on plan free, has five calls a minute, on all routes and with both of her keys together:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-api-key: ann-4711' http://{addr}/search; done; echo
  curl -si -H 'x-api-key: ann-0000' http://{addr}/orders; echo

Bob has five calls a minute of his own:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-api-key: bob-0815' http://{addr}/search; done; echo

Eve, on plan pro, has twenty calls a minute:
  for i in $(seq 24); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-api-key: eve-1234' http://{addr}/search; done; echo

Calls with made-up keys share one quota with calls that have no key:
  for i in $(seq 8); do curl -s -o /dev/null -w '%{{http_code}} ' -H \"x-api-key: made-up-$i\" http://{addr}/search; done; echo
"
    );
}
