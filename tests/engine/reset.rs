//! Clients that break off: streams that are reset by the batch, and connections
//! that end with a reset in the middle of an answer.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::get as on_get;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tower_sentinel::{FlowRule, IsolationRule, ManualClock, Rules, Sentinel, SentinelLayer};

use crate::support::{Server, assert_at_rest, engine, eventually, fetch, get, resident};

/// How many streams of a batch go to each path, and how many run there at once.
const SHARE: u32 = 20;
/// In the order in which the tests use them.
const PATHS: [&str; 4] = ["/hang", "/stream", "/wait", "/endless"];
/// Connections before the resident memory is noted, and after that.
const WARM_UP: usize = 25;
const MEASURED: usize = 50;
/// What this process may grow by meanwhile: 64 bytes for each of 12 000 resets,
/// less than anything that a call could leave behind.
const MOST_GROWTH: usize = 64 * 12_000;
/// Longer than any test takes, so that nobody's turn comes.
const SPACING: Duration = Duration::from_secs(10);

/// One test measures the process, so all take turns.
static TURN: Mutex<()> = Mutex::const_new(());

/// A server whose answers never end, but for those of `/clean`.
struct Stage {
    clock: ManualClock,
    sentinel: Sentinel,
    server: Server,
    /// Held by each connection of the server while it is served.
    served: Arc<()>,
}

impl Stage {
    async fn new() -> Self {
        let queue = FlowRule::per("/wait", 1, SPACING).throttle(SPACING * SHARE);
        let at_once = |path| IsolationRule::new(path, SHARE);
        let rules = Rules::new()
            .with(queue)
            .with(at_once("/hang"))
            .with(at_once("/stream"))
            .with(at_once("/endless"))
            .with(at_once("/clean"));
        let (sentinel, clock) = engine(rules);
        let hang = || async { pending::<&str>().await };
        let first = || stream::iter([Ok::<_, Infallible>(Bytes::from("first"))]);
        let chunk = || Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1 << 16]));
        let app = Router::new()
            .route("/hang", on_get(hang))
            .route("/wait", on_get(hang))
            .route(
                "/stream",
                on_get(move || async move { Body::from_stream(first().chain(stream::pending())) }),
            )
            .route(
                "/endless",
                on_get(move || async move { Body::from_stream(stream::repeat_with(chunk)) }),
            )
            .route("/clean", on_get(|| async { "clean" }))
            .layer(SentinelLayer::with(sentinel.clone()));
        let served = Arc::new(());
        let server = Server::start(|listener| serve(listener, app, served.clone())).await;
        Self {
            clock,
            sentinel,
            server,
            served,
        }
    }

    /// A client that resets nothing, and is served.
    async fn clean_client(&self) -> hyper::client::conn::http1::SendRequest<Body> {
        let mut clean = self.server.connect().await;
        let answer = fetch(&mut clean, get("/clean")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        clean
    }

    fn in_flight(&self, path: &str) -> u32 {
        let node = self.sentinel.node(path);
        node.map_or(0, |node| node.concurrency() + node.waiting())
    }

    fn waiting(&self) -> u32 {
        self.sentinel.node("/wait").map_or(0, |node| node.waiting())
    }

    async fn at_rest(&self) {
        eventually("all calls have ended", || {
            PATHS.iter().all(|path| self.in_flight(path) == 0)
        })
        .await;
    }

    /// Connections that are served now.
    fn connections(&self) -> usize {
        // The test and the task that accepts hold one each.
        Arc::strong_count(&self.served) - 2
    }

    /// Nothing is left of calls that came in on connections other than the one
    /// of the clean client, nor of the tasks beyond the `tasks` at the start.
    async fn assert_clean(&self, tasks: usize) {
        eventually("their connections end", || self.connections() == 1).await;
        self.at_rest().await;
        eventually("their tasks end", || alive() == tasks).await;
        for path in PATHS.into_iter().chain(["/clean"]) {
            if self.sentinel.node(path).is_some() {
                assert_at_rest(&self.sentinel, path);
            }
        }
    }
}

/// Serves `app` over HTTP/1.1 and HTTP/2.
async fn serve(listener: TcpListener, app: Router, served: Arc<()>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (app, served) = (app.clone(), served.clone());
        tokio::spawn(async move {
            let answer = |request: Request<_>| app.clone().oneshot(request.map(Body::new));
            let server = auto::Builder::new(TokioExecutor::new());
            // That it broke off is the client's affair.
            let _ = server
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
            drop(served);
        });
    }
}

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// A connection over HTTP/2, and the task that drives it.
struct Connection {
    sender: SendRequest<Body>,
    task: JoinHandle<()>,
}

impl Connection {
    /// `breaks`: it ends with a reset, whatever is still to be sent.
    async fn new(addr: SocketAddr, breaks: bool) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        if breaks {
            stream.set_zero_linger().unwrap();
        }
        let io = TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
            .await
            .unwrap();
        let task = tokio::spawn(connection.map(drop));
        Self { sender, task }
    }
}

/// Sends one request for each of `SHARE` streams to each of `paths`. What is
/// returned are the answers to come: who drops them resets the streams.
fn open(sender: &mut SendRequest<Body>, paths: &[&str]) -> Vec<impl Future + use<>> {
    let all = paths.iter().flat_map(|path| (0..SHARE).map(move |_| path));
    // Hyper sends before it is polled; only a place in the queue needs `ready`.
    all.map(|path| sender.send_request(request(path))).collect()
}

fn request(path: &str) -> Request<Body> {
    let uri = format!("http://localhost{path}");
    Request::get(uri).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn streams_that_are_reset_leave_nothing_behind() {
    let _turn = TURN.lock().await;
    let stage = Stage::new().await;
    let mut clean = stage.clean_client().await;
    let tasks = alive();

    let paths = &PATHS[..3];
    let mut connection = Connection::new(stage.server.addr, false).await;
    for batch in 1..=30 {
        let answers = open(&mut connection.sender, paths);
        // All that were sent have arrived and, as no slot has leaked, are let in.
        eventually("a batch runs or waits", || {
            paths.iter().all(|path| stage.in_flight(path) == SHARE)
        })
        .await;
        assert_eq!(stage.waiting(), SHARE - 1, "batch {batch}");
        let answer = fetch(&mut clean, get("/clean")).await;
        assert_eq!(answer.status(), StatusCode::OK, "batch {batch}");
        drop(answers);
        stage.at_rest().await;
        stage.clock.advance(SPACING * SHARE);
    }
    for path in paths {
        let node = stage.sentinel.node(*path).unwrap();
        assert_eq!(node.totals().block(), 0, "{path}");
    }
    drop(connection);
    stage.assert_clean(tasks).await;
}

#[tokio::test]
async fn a_flood_of_resets_takes_no_memory() {
    let _turn = TURN.lock().await;
    let stage = Stage::new().await;
    let paths = &PATHS[..3];
    let mut before = None;
    let mut resets = 0;
    for batch in 0..WARM_UP + MEASURED {
        if batch == WARM_UP {
            before = resident();
        }
        // Few streams for each connection, as a server ends one with many resets.
        let mut connection = Connection::new(stage.server.addr, false).await;
        for _ in 0..4 {
            let answers = open(&mut connection.sender, paths);
            eventually("a batch runs or waits", || {
                paths.iter().all(|path| stage.in_flight(path) == SHARE)
            })
            .await;
            resets += answers.len();
            drop(answers);
            stage.at_rest().await;
            stage.clock.advance(SPACING * SHARE);
        }
        drop(connection);
        eventually("the connection ends", || stage.connections() == 0).await;
    }
    assert_eq!(resets, (WARM_UP + MEASURED) * 4 * 3 * SHARE as usize);
    let (Some(before), Some(after)) = (before, resident()) else {
        return;
    };
    let grown = after.saturating_sub(before);
    println!("grown by {} KiB in {resets} resets", grown >> 10);
    assert!(grown <= MOST_GROWTH, "grown by {grown} bytes");
}

#[tokio::test]
async fn streams_that_are_reset_at_once_leave_nothing_behind() {
    let _turn = TURN.lock().await;
    let stage = Stage::new().await;
    let mut clean = stage.clean_client().await;
    let tasks = alive();

    let mut connection = Connection::new(stage.server.addr, false).await;
    for batch in 1..=60 {
        let answers = open(&mut connection.sender, &PATHS[..3]);
        // So many of them are sent as the tasks get to between two answers.
        let answer = fetch(&mut clean, get("/clean")).await;
        assert_eq!(answer.status(), StatusCode::OK, "batch {batch}");
        drop(answers);
        // A server that has had enough of it says so, and its client comes back.
        if connection.sender.is_closed() {
            connection = Connection::new(stage.server.addr, false).await;
        }
    }
    drop(connection);
    stage.assert_clean(tasks).await;
    let reached = PATHS.map(|path| {
        let node = stage.sentinel.node(path);
        node.map_or(0, |node| node.totals().pass() + node.totals().block())
    });
    println!("{reached:?} calls have reached the layer");
    assert!(reached.iter().sum::<u64>() > 0);
}

#[tokio::test]
async fn connections_that_break_off_leave_nothing_behind() {
    let _turn = TURN.lock().await;
    let stage = Stage::new().await;
    let mut clean = stage.clean_client().await;
    let tasks = alive();

    for round in 1..=10 {
        // Over HTTP/1.1: before the answer, in the queue, and in the middle of it.
        let mut broken = Vec::new();
        for path in PATHS {
            for _ in 0..2 {
                let mut stream = TcpStream::connect(stage.server.addr).await.unwrap();
                stream.set_zero_linger().unwrap();
                let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
                stream.write_all(request.as_bytes()).await.unwrap();
                if ["/stream", "/endless"].contains(&path) {
                    let mut head = [0; 64];
                    stream.read_exact(&mut head).await.unwrap();
                    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"));
                }
                broken.push(stream);
            }
        }
        eventually("all of them run or wait", || {
            PATHS.iter().all(|path| stage.in_flight(path) == 2)
        })
        .await;
        assert_eq!(stage.waiting(), 1, "round {round}");
        drop(broken);
        stage.at_rest().await;
        stage.clock.advance(SPACING * SHARE);

        // Over HTTP/2, with a batch of streams on it.
        let mut connection = Connection::new(stage.server.addr, true).await;
        let answers = open(&mut connection.sender, &PATHS[..3]);
        eventually("a batch runs or waits", || {
            PATHS[..3].iter().all(|path| stage.in_flight(path) == SHARE)
        })
        .await;
        connection.task.abort();
        drop((connection, answers));
        stage.at_rest().await;
        stage.clock.advance(SPACING * SHARE);

        let answer = fetch(&mut clean, get("/clean")).await;
        assert_eq!(answer.status(), StatusCode::OK, "round {round}");
    }
    stage.assert_clean(tasks).await;
}
