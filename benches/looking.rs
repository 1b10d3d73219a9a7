//! What looking costs: how many requests are answered beside those that look without a pause, and
//! how long one look holds a worker.
//!
//! ```text
//! cargo bench --bench looking
//! ```
//!
//! The server has two workers, and requests come over loopback on 32 connections that are kept. A
//! script is a thread with a connection of its own, which asks for `?state` again as soon as it has
//! the answer. Clients and server share the processors.

#![allow(
    clippy::disallowed_methods,
    reason = "a bench measures with the real clock, and waits"
)]

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::Service;
use tower_sentinel::key::ClientAddr;
use tower_sentinel::observe::dashboard::Dashboard;
use tower_sentinel::observe::page::Page;
use tower_sentinel::observe::{Body, Metrics};
use tower_sentinel::{Call, CircuitBreakerRule, FlowRule, Rules, Sentinel, SentinelLayer};

const WORKERS: usize = 2;
const CONNECTIONS: usize = 32;
const SCRIPTS: usize = 4;
/// What Sentinel's dashboard asks for.
const COMMANDS: [&str; 5] = [
    "metric?startTime=0",
    "clusterNode",
    "jsonTree",
    "getRules?type=flow",
    "systemStatus",
];
const TIME: Duration = Duration::from_secs(2);
const PAIRS: usize = 7;

fn main() {
    for resources in [500, 10_000] {
        let sentinel = engine(resources);
        println!("{resources} resources");
        let page = Page::new(&sentinel);
        for what in ["?state", "?state&n=500"] {
            print_polls(what, || polls(page.clone(), what));
        }
        let metrics = Metrics::new(&sentinel).max_resources(resources);
        print_polls("/metrics", || polls(metrics.clone(), "/"));
        for command in COMMANDS {
            print_gaps(&sentinel, command);
        }
        print_shares(&sentinel);
    }
}

/// Prints how many requests are answered beside scripts, as a share of those without, in runs of
/// either kind in turn: the median, as others have the processor now and then.
fn print_shares(sentinel: &Sentinel) {
    let mut shares = Vec::new();
    let (mut before, mut all_states) = (requests(sentinel, 0).0, 0);
    for _ in 0..PAIRS {
        let (beside, states) = requests(sentinel, SCRIPTS);
        let after = requests(sentinel, 0).0;
        shares.push(2.0 * beside as f64 / (before + after) as f64);
        (before, all_states) = (after, all_states + states);
    }
    shares.sort_by(f64::total_cmp);
    let rate = before as f64 / TIME.as_secs_f64();
    println!(
        "  {rate:.0} requests a second; beside {SCRIPTS} scripts {:.2} of it ({shares:.2?}), and \
         {all_states} states",
        shares[PAIRS / 2]
    );
}

/// An engine with so many resources that rules name, each called in this second.
fn engine(resources: usize) -> Sentinel {
    let name = |number| format!("/resource/number/{number}");
    let rules = (0..resources).map(|number| FlowRule::per_second(name(number), 1_000));
    let rules = Rules::build(rules).expect("they are good");
    let sentinel = Sentinel::builder()
        .rules(rules.with(CircuitBreakerRule::error_ratio("*", 0.5)))
        .max_resources(2 * resources)
        .build();
    for number in 0..resources {
        drop(sentinel.try_enter(Call::new(&*name(number))));
    }
    sentinel
}

/// Prints those of the fastest of a few: others have the processor now and then.
fn print_polls(what: &str, mut polls: impl FnMut() -> Vec<Duration>) {
    let runs = (0..5).map(|_| {
        // What was kept is old by the next one.
        thread::sleep(Duration::from_millis(1_600));
        let polls = polls();
        let sum: Duration = polls.iter().sum();
        let longest = polls.iter().enumerate().max_by_key(|(_, took)| **took);
        let (place, longest) = longest.expect("there are some");
        (*longest, place + 1, sum, polls.len())
    });
    let (longest, place, sum, polls) = runs.min().expect("there are some");
    println!("  {what}: {sum:.1?} in {polls} polls, the longest, {longest:.1?}, is number {place}");
}

/// How long each poll of one answer takes.
fn polls<S>(mut service: S, query: &str) -> Vec<Duration>
where
    S: Service<Request<()>, Response = Response<Body>, Error = Infallible>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("it builds");
    let _inside = runtime.enter();
    let peer = ClientAddr("127.0.0.1:4000".parse().expect("it is one"));
    let request = Request::get(query.replace('?', "/?"))
        .header("host", "localhost")
        .extension(peer);
    let request = request.body(()).expect("it is good");
    let mut took = Vec::new();
    let began = Instant::now();
    let mut answer = pin!(service.call(request));
    took.push(began.elapsed());
    let mut cx = Context::from_waker(Waker::noop());
    let answer = loop {
        let began = Instant::now();
        let polled = answer.as_mut().poll(&mut cx);
        took.push(began.elapsed());
        if let Poll::Ready(answer) = polled {
            break answer;
        }
    };
    let Ok(answer) = answer;
    assert!(answer.status().is_success(), "{}", answer.status());
    let began = Instant::now();
    let mut body = pin!(answer.into_body().collect());
    let body = loop {
        if let Poll::Ready(body) = body.as_mut().poll(&mut cx) {
            break body;
        }
    };
    took.push(began.elapsed());
    assert!(body.is_ok_and(|body| body.to_bytes().len() > 1_000));
    took
}

/// Prints how long a command of Sentinel's dashboard takes, and how long it holds the only worker at
/// once: the best of a few.
fn print_gaps(sentinel: &Sentinel, command: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("it builds");
    let runs = (0..5).map(|_| runtime.block_on(longest_gap(sentinel, command)));
    let (longest, whole, bytes) = runs.min().expect("there are some");
    println!("  {command}: {bytes} bytes in {whole:.1?}, at most {longest:.1?} at once");
}

/// The longest time for which a task that is always ready did not run while `command` was answered,
/// how long that took, and how long the answer is.
async fn longest_gap(sentinel: &Sentinel, command: &str) -> (Duration, Duration, usize) {
    let dashboard = Dashboard::new(sentinel, "bench")
        .allow(["127.0.0.1/32".parse().expect("it is a network")])
        .bind(([127, 0, 0, 1], 0));
    let running = dashboard.spawn().await.expect("a port is free");
    let (addr, done) = (running.addr(), Arc::new(AtomicBool::new(false)));
    let ask = format!("GET /{command} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
    let client = thread::spawn({
        let done = done.clone();
        move || {
            let mut stream = TcpStream::connect(addr).expect("it listens");
            stream.write_all(ask.as_bytes()).expect("it is open");
            let mut answer = Vec::new();
            let read = stream.read_to_end(&mut answer);
            done.store(true, Ordering::Relaxed);
            read.map(|_| answer).expect("it answers")
        }
    });
    let begin = Instant::now();
    // A task has its turn after each poll of the other one; the future that the runtime blocks on
    // only after 61 of them, and so has one that uses tokio's own `yield_now`.
    let ticks = tokio::spawn(async move {
        let (mut last, mut longest) = (begin, Duration::ZERO);
        while !done.load(Ordering::Relaxed) {
            let mut has_paused = false;
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut has_paused, true) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        longest
    });
    let longest = ticks.await.expect("no panic");
    let answer = client.join().expect("no panic");
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    running.stop().await;
    (longest, begin.elapsed(), answer.len())
}

/// How many requests and how many states were answered.
fn requests(sentinel: &Sentinel, scripts: usize) -> (u64, u64) {
    let app = Router::new()
        .route("/resource/number/{number}", get(|| async { "an answer" }))
        .layer(SentinelLayer::with(sentinel.clone()))
        .route_service("/sentinel", Page::new(sentinel));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .expect("it builds");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("a port is free");
    let addr = listener.local_addr().expect("it is bound");
    runtime.spawn(async { axum::serve(listener, app).await });

    let stop = Arc::new(AtomicBool::new(false));
    let states = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..scripts)
        .map(|_| {
            let (stop, states) = (stop.clone(), states.clone());
            thread::spawn(move || script(addr, &stop, &states))
        })
        .collect();
    let answered = load(addr);
    stop.store(true, Ordering::Relaxed);
    threads
        .into_iter()
        .for_each(|it| it.join().expect("no panic"));
    (answered, states.load(Ordering::Relaxed))
}

/// Asks for states without a pause.
fn script(addr: SocketAddr, stop: &AtomicBool, states: &AtomicU64) {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_nodelay(true).expect("a socket has it");
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    while !stop.load(Ordering::Relaxed) {
        let ask = b"GET /sentinel?state HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(ask).expect("it is open");
        bytes.clear();
        let whole = loop {
            let more = stream.read(&mut chunk).expect("it answers");
            bytes.extend_from_slice(&chunk[..more]);
            if let Some(length) = length(&bytes) {
                break length;
            }
        };
        while bytes.len() < whole {
            let more = stream.read(&mut chunk).expect("it answers");
            bytes.extend_from_slice(&chunk[..more]);
        }
        assert!(bytes.starts_with(b"HTTP/1.1 200"));
        states.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long the answer is whose head is in `bytes`, with its head.
fn length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).expect("a head is text");
    let field = head.split("content-length: ").nth(1).expect("it has one");
    let body: usize = field.split('\r').next()?.parse().expect("it is a number");
    Some(end + body)
}

/// Sends requests for the time, and returns how many were answered.
fn load(addr: SocketAddr) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("it builds");
    let answered = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + TIME;
    runtime.block_on(async {
        let connections = (0..CONNECTIONS).map(|number| {
            let answered = answered.clone();
            tokio::spawn(async move {
                let stream = tokio::net::TcpStream::connect(addr).await;
                let mut stream = stream.expect("it listens");
                stream.set_nodelay(true).expect("a socket has it");
                let ask =
                    format!("GET /resource/number/{number} HTTP/1.1\r\nhost: localhost\r\n\r\n");
                let mut answer = [0; 1_024];
                while Instant::now() < end {
                    stream.write_all(ask.as_bytes()).await.expect("it is open");
                    let read = stream.read(&mut answer).await.expect("it answers");
                    assert!(read > 0);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let tasks: Vec<_> = connections.collect();
        let late = TIME + Duration::from_secs(2);
        let _ = tokio::time::timeout(late, async {
            for task in tasks {
                task.await.expect("no panic");
            }
        })
        .await;
    });
    answered.load(Ordering::Relaxed)
}
