//! What tests share: engines, balanced books, polls by hand, real servers and
//! connections, and a generator of choices.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

pub(crate) mod bench;
pub(crate) mod caller;
pub(crate) mod line;
pub(crate) mod log;
#[path = "../../src/stat/tests/rng.rs"]
mod rng;
pub(crate) mod stage;

pub(crate) use rng::{Rng, attempts};

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower_sentinel::clock::Tick;
use tower_sentinel::read::NodeView;
use tower_sentinel::stat::Totals;
use tower_sentinel::{Blocked, Builder, Call, Entry, ManualClock, Rules, Sentinel, Verdict};

/// How long a test waits for something that must happen: far longer than it
/// takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn at(millis: u64) -> Tick {
    Tick::from_millis(millis)
}

// === engines ===

/// An engine with `rules`, over a clock that stands still.
pub(crate) fn engine(rules: impl Into<Rules>) -> (Sentinel, ManualClock) {
    configured(rules, |builder| builder)
}

/// The same, configured further by `configure`.
pub(crate) fn configured(
    rules: impl Into<Rules>,
    configure: impl FnOnce(Builder) -> Builder,
) -> (Sentinel, ManualClock) {
    let clock = ManualClock::new();
    let builder = Sentinel::builder().rules(rules).clock(clock.clone());
    (configure(builder).build(), clock)
}

/// A call that does not wait: it runs, or is refused.
#[track_caller]
pub(crate) fn enter(sentinel: &Sentinel, call: Call<'_>) -> Result<Entry, Blocked> {
    match sentinel.try_enter(call) {
        Verdict::Pass(entry) => Ok(entry),
        Verdict::Block(blocked) => Err(blocked),
        other => panic!("an ordinary call never waits: {other:?}"),
    }
}

/// A call that has to pass.
#[track_caller]
pub(crate) fn run(sentinel: &Sentinel, call: Call<'_>) -> Entry {
    enter(sentinel, call).expect("the call runs")
}

// === books ===

/// Asserts that every call which passed is accounted for, once. For calls of
/// weight 1, so that calls in flight are tokens in flight.
#[track_caller]
pub(crate) fn assert_balanced(node: &NodeView) {
    let totals = node.totals();
    let settled = totals.complete() + totals.cancelled();
    assert_eq!(
        totals.pass(),
        settled + u64::from(node.concurrency()),
        "{} in flight, {totals:?}",
        node.concurrency(),
    );
}

/// Asserts that no inbound call of `resource` runs or waits any more, and that
/// the books balance. Returns them.
#[track_caller]
pub(crate) fn assert_at_rest(sentinel: &Sentinel, resource: &str) -> Totals {
    let node = sentinel.node(resource).expect("it has been called");
    assert_eq!(node.concurrency(), 0, "in flight");
    assert_eq!(node.slots_in_use(), 0, "slots in use");
    assert_eq!(node.waiting(), 0, "waiting");
    assert_eq!(node.held(), 0, "tokens held");
    assert_balanced(&node);
    node.totals()
}

// === time ===

/// Polls `future` once; nobody is woken by it.
pub(crate) fn poll_now<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The output of `future`, which is there at its first poll.
#[track_caller]
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match poll_now(std::pin::pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is pending"),
    }
}

/// Lets other tasks run until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(PATIENCE, poll).await.is_err() {
        panic!("it never came true that {what}");
    }
}

// === real connections ===

/// A server that stops with the test.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves with `serve`, which gets a listener of its own.
    pub(crate) async fn start<F>(serve: impl FnOnce(TcpListener) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        Self {
            addr,
            task: tokio::spawn(serve(listener)),
        }
    }

    /// Serves `app`, which learns the addresses of its peers.
    pub(crate) async fn axum(app: Router) -> Self {
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        Self::start(|listener| async { axum::serve(listener, service).await.unwrap() }).await
    }

    /// A new connection over HTTP/1.1.
    pub(crate) async fn connect(&self) -> SendRequest<Body> {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        // It ends with the sender, or with an error that the sender sees too.
        tokio::spawn(connection);
        sender
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// Sends `request`, over a connection on which nothing runs.
pub(crate) async fn send(
    connection: &mut SendRequest<Body>,
    request: Request<Body>,
) -> Response<Incoming> {
    connection.ready().await.unwrap();
    connection.send_request(request).await.unwrap()
}

/// Sends `request` and reads the whole response.
pub(crate) async fn fetch(
    connection: &mut SendRequest<Body>,
    request: Request<Body>,
) -> Response<Bytes> {
    collect(send(connection, request).await).await
}

/// `response` with its whole body.
pub(crate) async fn collect<B>(response: Response<B>) -> Response<Bytes>
where
    B: http_body::Body,
    B::Error: std::fmt::Debug,
{
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, body)
}

// === runs ===

/// Bytes of this process that are in memory; `None` where that is not known.
pub(crate) fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
