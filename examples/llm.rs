//! A proxy in front of a made-up model provider, which limits requests and tokens of each plan.
//!
//! ```text
//! cargo run --example llm              a few clients, and a table of what they were charged
//! PORT=8080 cargo run --example llm    a server, with a live page under /sentinel
//! curl -N -H 'x-plan: free' -H 'x-max-tokens: 200' localhost:8080/chat
//! ```

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::net::TcpListener;
use tower::ServiceExt;
use tower_sentinel::key::from_fn;
use tower_sentinel::observe::page::Page;
use tower_sentinel::{BoxError, FlowRule, Key, Meter, Rules, Sentinel, SentinelLayer};

/// The plans: requests and tokens a minute.
const PLANS: [(&str, u32, u32); 2] = [("free", 6, 1_000), ("pro", 100, 20_000)];

/// What a request may cost that does not say how long its answer may be.
const USUAL: u32 = 300;

fn rules() -> Rules {
    let mut rules = Rules::new();
    for (plan, requests, tokens) in PLANS {
        let requests = FlowRule::per_minute(plan, requests).id(format!("{plan}-requests"));
        let tokens = FlowRule::per_minute(plan, tokens).cost("tokens");
        rules = rules
            .with(requests)
            .with(tokens.id(format!("{plan}-tokens")));
    }
    rules
}

/// The plan of a caller. A real server would look it up by an API key.
fn plan(headers: &HeaderMap) -> &'static str {
    let wanted = headers.get("x-plan").map(http::HeaderValue::as_bytes);
    match wanted {
        Some(b"pro") => "pro",
        _ => "free",
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u32> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

// === the provider ===

/// Streams an answer in events. The last one says what it cost, if the client wants to know.
fn provider(headers: &HeaderMap) -> Body {
    let mut events = vec![
        "data: {\"delta\":\"A made-up answer\"}\n\n".to_owned(),
        "data: {\"delta\":\" of a few words.\"}\n\n".to_owned(),
    ];
    if !headers.contains_key("x-no-usage") {
        events.push("data: {\"usage\":{\"total_tokens\":120}}\n\n".to_owned());
    }
    events.push("data: [DONE]\n\n".to_owned());
    let frames = events
        .into_iter()
        .map(|event| Ok::<_, Infallible>(Frame::data(event.into())));
    Body::new(StreamBody::new(stream::iter(frames)))
}

// === the proxy ===

/// What a chunk says of the whole cost.
fn usage(chunk: &Bytes) -> Option<u32> {
    let text = std::str::from_utf8(chunk).ok()?;
    let (_, number) = text.split_once("\"total_tokens\":")?;
    number
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Settles at the event with the usage. Where none will come, four bytes are a token.
fn follow(meter: Meter, has_usage: bool, body: Body) -> Body {
    Body::new(body.map_frame(move |frame| {
        let chunk = frame.data_ref();
        match chunk.and_then(usage) {
            Some(total) => meter.settle("tokens", total),
            None if has_usage => {}
            None => {
                let bytes = chunk.map_or(0, Bytes::len);
                meter.charge("tokens", u32::try_from(bytes / 4).unwrap_or(u32::MAX));
            }
        }
        frame
    }))
}

async fn chat(meter: Meter, headers: HeaderMap) -> Body {
    let has_usage = !headers.contains_key("x-no-usage");
    follow(meter, has_usage, provider(&headers))
}

fn app(sentinel: &Sentinel) -> Router {
    let layer = SentinelLayer::with(sentinel.clone())
        .resource(from_fn(|head| Some(Key::Str(plan(head.headers())))))
        .reserve("tokens", |head| {
            number(head.headers(), "x-max-tokens").unwrap_or(USUAL)
        });
    Router::new()
        .route("/chat", get(chat))
        .layer(layer)
        .route_service("/sentinel", Page::new(sentinel).title("examples/llm"))
}

// === clients ===

/// A client makes so many requests, and reads so many events of each answer.
struct Client {
    name: &'static str,
    plan: &'static str,
    header: Option<&'static str>,
    requests: u32,
    events: usize,
}

const CLIENTS: [Client; 4] = [
    client("ann", "free", None, 2, 9),
    client("bob, who leaves early", "free", None, 6, 1),
    client("eve", "pro", None, 20, 9),
    client("joe, without usage", "pro", Some("x-no-usage"), 5, 9),
];

const fn client(
    name: &'static str,
    plan: &'static str,
    header: Option<&'static str>,
    requests: u32,
    events: usize,
) -> Client {
    Client {
        name,
        plan,
        header,
        requests,
        events,
    }
}

/// What is charged under a plan, and how many of its calls told no cost.
fn state(sentinel: &Sentinel, plan: &str) -> (u32, u64) {
    let budgets = sentinel.node(plan).map(|node| node.budgets());
    let budget = budgets.as_ref().and_then(|budgets| budgets.first());
    budget.map_or((0, 0), |budget| (budget.used(), budget.untold_total()))
}

async fn run(app: &Router, sentinel: &Sentinel, client: &Client) -> Result<(), BoxError> {
    let (before, untold_before) = state(sentinel, client.plan);
    let mut refused = 0;
    for _ in 0..client.requests {
        let mut request = Request::get("/chat").header("x-plan", client.plan);
        if let Some(name) = client.header {
            request = request.header(name, "1");
        }
        let response: Response<Body> = app.clone().oneshot(request.body(Body::empty())?).await?;
        if !response.status().is_success() {
            refused += 1;
            continue;
        }
        let mut body = response.into_body();
        for _ in 0..client.events {
            if body.frame().await.is_none() {
                break;
            }
        }
    }
    let (after, untold) = state(sentinel, client.plan);
    println!(
        "{:<22} {:>8} {:>8} {:>8} {:>8}",
        client.name,
        client.requests,
        after - before,
        untold - untold_before,
        refused,
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let sentinel = Sentinel::new(rules());
    let app = app(&sentinel);
    if let Ok(port) = std::env::var("PORT") {
        let listener = TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
        println!("listening on {}", listener.local_addr()?);
        return Ok(axum::serve(listener, app).await?);
    }
    println!("client                 requests  charged   untold  refused");
    for client in &CLIENTS {
        run(&app, &sentinel, client).await?;
    }
    Ok(())
}
