//! Flow control around a hyper client: calls over the limit are never sent.
//!
//! ```text
//! cargo run --example hyper_client
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use hyper::header::RETRY_AFTER;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt};
use tower_sentinel::key::Authority;
use tower_sentinel::middleware::{AsError, ResponseBody, SentinelService};
use tower_sentinel::{Blocked, BoxError, FlowRule, IsolationRule, Rules, Sentinel, SentinelLayer};

/// A client whose calls are limited by rules.
type Limited = SentinelService<Client<HttpConnector, Empty<Bytes>>, AsError>;
type Answer = Result<Response<ResponseBody<Incoming>>, BoxError>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arrived = Arc::new(AtomicU32::new(0));
    let addr = start_upstream(arrived.clone()).await?;

    // A resource is a host that is called.
    let rules = Rules::new()
        .with(FlowRule::per_second("127.0.0.1", 5).id("five-a-second"))
        .with(IsolationRule::new("127.0.0.1", 2).id("two-at-once"));
    let sentinel = Sentinel::new(rules);
    let client: Limited = SentinelLayer::with(sentinel.clone())
        .resource(Authority)
        .outbound()
        // Refusals are errors, as the upstream has sent no response.
        .refusals_as_errors()
        .layer(Client::builder(TokioExecutor::new()).build_http());
    println!("The upstream is {addr}. The limits: five requests a second, two at once.\n");

    let start = Instant::now();
    for number in 1..=8 {
        let answer = send(&client, addr, "/").await;
        println!("request {number}: {}", describe(&answer));
    }
    println!("These took {} ms.\n", start.elapsed().as_millis());

    println!("Two responses have arrived, but their bodies have not been read:");
    let first = send_in_time(&client, addr, "/").await?;
    let second = send_in_time(&client, addr, "/").await?;
    let third = send_in_time(&client, addr, "/").await;
    println!("a third request: {}", describe(&third));
    drop(first);
    let fourth = send_in_time(&client, addr, "/").await;
    println!("one is dropped, one more request: {}\n", describe(&fourth));
    drop((second, fourth));

    println!("An upstream may refuse as well. Then there is a response, with its status:");
    let busy = send_in_time(&client, addr, "/busy").await;
    println!("a request to /busy: {}\n", describe(&busy));

    let node = sentinel.outbound_node("127.0.0.1");
    let totals = node.ok_or("nothing was sent")?.totals();
    println!(
        "In all: {} sent, {} refused here; the upstream has seen {}.",
        totals.pass(),
        totals.block(),
        arrived.load(Ordering::Relaxed),
    );
    Ok(())
}

async fn send(client: &Limited, addr: SocketAddr, path: &str) -> Answer {
    let request = Request::get(format!("http://{addr}{path}")).body(Empty::new())?;
    client.clone().oneshot(request).await
}

/// Retries until the flow rule lets the request pass.
async fn send_in_time(client: &Limited, addr: SocketAddr, path: &str) -> Answer {
    loop {
        let answer = send(client, addr, path).await;
        // A refusal by the isolation rule has no retry time: nobody can tell when a
        // call will end.
        match refusal(&answer).and_then(Blocked::retry_after) {
            Some(after) => sleep(after).await,
            None => return answer,
        }
    }
}

/// Why the request was refused, if it was not sent.
fn refusal(answer: &Answer) -> Option<&Blocked> {
    answer.as_ref().err()?.downcast_ref()
}

fn describe(answer: &Answer) -> String {
    match answer {
        Ok(response) => {
            let status = response.status();
            match response.headers().get(RETRY_AFTER) {
                Some(after) => format!("{status} from the upstream, Retry-After: {after:?}"),
                None => format!("{status} from the upstream"),
            }
        }
        Err(error) => match refusal(answer).and_then(Blocked::retry_after) {
            Some(after) => format!("{error}, room in {} ms", after.as_millis()),
            None => error.to_string(),
        },
    }
}

/// Starts a server that counts the requests, and answers `/busy` with 429.
async fn start_upstream(arrived: Arc<AtomicU32>) -> Result<SocketAddr, BoxError> {
    let answer = move |request: Request<Incoming>| {
        arrived.fetch_add(1, Ordering::Relaxed);
        let mut response = Response::builder();
        if request.uri().path() == "/busy" {
            response = response.status(429).header(RETRY_AFTER, 7);
        }
        std::future::ready(response.body(Full::new(Bytes::from("hello"))))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let service = service_fn(answer.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    Ok(addr)
}
