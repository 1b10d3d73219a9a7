//! A proxy in front of a made-up model provider, which limits each client by its plan: in requests
//! and in tokens.
//!
//! ```text
//! cargo run --example llm              a few clients, and a table of what they were charged
//! PORT=8080 cargo run --example llm    a server, with a live page under /sentinel
//! curl -iN -H 'x-user: ann' -H 'x-max-tokens: 200' localhost:8080/chat
//! ```

use std::convert::Infallible;
use std::net::SocketAddr;

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
use tower_sentinel::key::Header;
use tower_sentinel::middleware::rejection::{Http, RateLimitFields};
use tower_sentinel::observe::page::Page;
use tower_sentinel::{BoxError, FlowRule, KeyedRule, Meter, Rules, Sentinel, SentinelLayer};

/// What a client may do in a minute: requests, and tokens.
const FREE: (u32, u32) = (6, 1_000);
const PRO: (u32, u32) = (100, 20_000);
/// What the provider sells to all clients together.
const TOKENS: u32 = 200_000;

/// What a request may cost that does not say how long its answer may be.
const USUAL: u32 = 300;

fn rules() -> Rules {
    // A client that has used its tokens up gets them back a minute later, and not bit by bit.
    let by_client = |free, pro| {
        let rule = KeyedRule::per_minute("/chat", free).param("user").window();
        rule.tier("pro", pro)
    };
    Rules::new()
        .with(by_client(FREE.0, PRO.0).id("requests"))
        .with(by_client(FREE.1, PRO.1).cost("tokens").id("tokens"))
        .with(
            FlowRule::per_minute("/chat", TOKENS)
                .cost("tokens")
                .id("provider"),
        )
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
        // A real server would look both up by an API key.
        .param_named("user", Header::from_static("x-user"))
        .tier(Header::from_static("x-plan"))
        .reserve("tokens", |head| {
            number(head.headers(), "x-max-tokens").unwrap_or(USUAL)
        })
        .fields(RateLimitFields::PerUnit)
        .reject(Http::new().fields(RateLimitFields::PerUnit));
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

/// The tokens that were charged so far, and how many calls told no cost.
fn state(sentinel: &Sentinel) -> (u64, u64) {
    let budgets = sentinel.node("/chat").map(|node| node.budgets());
    let budgets = budgets.unwrap_or_default();
    let budget = budgets.iter().find(|budget| budget.rule() == "tokens");
    budget.map_or((0, 0), |it| (it.charged_total(), it.untold_total()))
}

async fn run(app: &Router, sentinel: &Sentinel, client: &Client) -> Result<(), BoxError> {
    let (before, untold_before) = state(sentinel);
    let mut refused = 0;
    for _ in 0..client.requests {
        let mut request = Request::get("/chat")
            .header("x-user", client.name)
            .header("x-plan", client.plan);
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
    let (after, untold) = state(sentinel);
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
        // The page answers callers on this machine: it has to know where they come from.
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        return Ok(axum::serve(listener, app).await?);
    }
    println!("client                 requests  charged   untold  refused");
    for client in &CLIENTS {
        run(&app, &sentinel, client).await?;
    }
    Ok(())
}
