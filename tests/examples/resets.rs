//! Clients of the axum example that break off: streams that are reset by the
//! batch, and connections that end with a reset in the middle of an answer.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::DEADLINE;
use crate::server::{Caller, Server, json_of, node_of};

/// Streams of one batch to each path. Of those to `/stream` two run.
const BATCH: usize = 50;
/// Rounds before the server's memory is noted, and after that.
const WARM_UP: usize = 20;
const MEASURED: usize = 80;
/// What the server may grow by: 128 bytes for each of 8 000 streams.
const MOST_GROWTH: usize = 128 * MEASURED * 2 * BATCH;
/// How soon nothing may be left of who has broken off.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Sends `BATCH` streams each to `/stream` and `/priority`, where they run, wait or
/// are refused, and resets what has no answer yet.
async fn reset_streams(server: &Server) {
    let io = TokioIo::new(connect(server).await);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io)
        .await
        .expect("it speaks HTTP/2");
    let task = tokio::spawn(connection.map(drop));
    let paths = (0..BATCH).flat_map(|_| ["/stream", "/priority"]);
    let answers: Vec<_> = paths
        .map(|path| {
            let request = Request::get(format!("http://{}{path}", server.addr()))
                .header("x-vip", "1")
                .body(Empty::<Bytes>::new())
                .expect("it is a request");
            Box::pin(sender.send_request(request))
        })
        .collect();
    // The first of them to be answered shows that the batch has come.
    let (first, ..) = timeout(DEADLINE, futures_util::future::select_all(answers))
        .await
        .expect("the server answers in time");
    assert!(first.expect("the server answers").version() == http::Version::HTTP_2);
    drop(sender);
    // What it has not sent yet, a reset as well, is sent before it ends.
    timeout(DEADLINE, task)
        .await
        .expect("the connection ends")
        .expect("it does not panic");
}

/// Breaks a connection off in the middle of its stream.
async fn reset_connection(server: &Server) {
    let mut stream = connect(server).await;
    stream.set_zero_linger().expect("it is a socket");
    let request = "GET /stream HTTP/1.1\r\nhost: x\r\n\r\n";
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it is read");
    let mut head = [0; 12];
    let read = timeout(DEADLINE, stream.read_exact(&mut head)).await;
    read.expect("the server answers in time")
        .expect("it answers");
    assert!(head.starts_with(b"HTTP/1.1 "), "{head:?}");
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.addr()).await.expect("it listens")
}

/// How long it takes until no call runs or waits but the one that asks.
async fn rest(caller: &Caller) -> Duration {
    let start = Instant::now();
    loop {
        let stats = json_of(&caller.get("/stats").await);
        let in_flight = |path: &str| {
            let node = node_of(&stats, path);
            ["concurrency", "waiting"].map(|key| node[key].as_u64().expect("it is a number"))
        };
        if ["/stream", "/priority"]
            .into_iter()
            .flat_map(in_flight)
            .all(|calls| calls == 0)
        {
            return start.elapsed();
        }
        assert!(start.elapsed() < DEADLINE, "{stats}");
    }
}

#[tokio::test]
async fn axum_forgets_at_once_who_breaks_off() {
    let server = Server::start("axum").await;
    // This one is served all the time.
    let clean = server.caller(None);
    let mut before = None;
    let mut quickest = Duration::MAX;
    for round in 0..WARM_UP + MEASURED {
        if round == WARM_UP {
            before = server.resident();
        }
        reset_streams(&server).await;
        reset_connection(&server).await;
        reset_connection(&server).await;
        quickest = quickest.min(rest(&clean).await);
    }
    // On a busy machine some rounds take longer; none does by design.
    assert!(quickest < AT_ONCE, "{quickest:?}");
    let stats = json_of(&clean.get("/stats").await);
    let count = |path: &str, key: &str| {
        let count = &node_of(&stats, path)["totals"][key];
        count.as_u64().expect("it is a number")
    };
    for path in ["/stream", "/priority"] {
        let ended = count(path, "complete") + count(path, "cancelled");
        assert_eq!(count(path, "pass"), ended, "{path}: {stats}");
    }
    // Some were reset in the queue, and all streams that ran.
    assert!(count("/priority", "waiting_dropped") > 0, "{stats}");
    assert!(
        count("/stream", "pass") >= (WARM_UP + MEASURED) as u64,
        "{stats}"
    );
    // Only Linux tells.
    if let (Some(before), Some(after)) = (before, server.resident()) {
        let grown = after.saturating_sub(before);
        println!("rest after {quickest:?}, grown by {} KiB", grown >> 10);
        assert!(grown <= MOST_GROWTH, "grown by {grown} bytes");
    }
}
