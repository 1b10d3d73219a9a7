//! Servers that are called as their users call them, first the axum example.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::{BUCKET, DEADLINE, most, path_of};

/// An example, running until it is dropped.
pub(crate) struct Server {
    child: Child,
    addr: SocketAddr,
    /// Kept open, so that it can print.
    _stdout: Option<BufReader<ChildStdout>>,
}

impl Server {
    pub(crate) async fn start(example: &str) -> Self {
        let mut child = Command::new(path_of(example))
            .env("PORT", "0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdout = child.stdout.take().expect("it is piped");
        // From here on it is killed, whatever happens.
        let mut server = Self {
            child,
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            _stdout: None,
        };
        let first_line = tokio::task::spawn_blocking(|| {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            stdout.read_line(&mut line).expect("it prints text");
            (line, stdout)
        });
        let (line, stdout) = timeout(DEADLINE, first_line)
            .await
            .expect("it prints its address")
            .expect("reading does not panic");
        let addr = line.trim().strip_prefix("listening on http://");
        server.addr = addr
            .and_then(|addr| addr.parse().ok())
            .unwrap_or_else(|| panic!("no address in {line:?}"));
        server._stdout = Some(stdout);
        server
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Bytes of it that are in memory; `None` where that is not known.
    pub(crate) fn resident(&self) -> Option<usize> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    }

    /// A client that has this address, or the usual one.
    pub(crate) fn caller(&self, from: Option<IpAddr>) -> Caller {
        let mut connector = HttpConnector::new();
        connector.set_local_address(from);
        Caller {
            http: Client::builder(TokioExecutor::new()).build(connector),
            addr: self.addr,
            header: ("x-vip", "0".to_owned()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended already there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of the server.
pub(crate) struct Caller {
    http: Client<HttpConnector, Empty<Bytes>>,
    addr: SocketAddr,
    /// What it sends with every request.
    pub(crate) header: (&'static str, String),
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What came back from several requests in a row.
struct Burst {
    answers: Vec<Answer>,
    elapsed: Duration,
}

impl Caller {
    async fn open(&self, path: &str) -> Response<Incoming> {
        let request = Request::get(format!("http://{}{path}", self.addr))
            .header(self.header.0, &self.header.1)
            .body(Empty::new())
            .expect("it is a request");
        timeout(DEADLINE, self.http.request(request))
            .await
            .expect("the server answers in time")
            .expect("the server answers")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let (head, body) = self.open(path).await.into_parts();
        let body = timeout(DEADLINE, body.collect())
            .await
            .expect("the body ends")
            .expect("the body is whole");
        Answer {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        }
    }

    /// Eight requests, one after the other, to `path` with the number of each in
    /// place of `{id}`.
    async fn burst(&self, path: &str) -> Burst {
        let start = Instant::now();
        let mut answers = Vec::new();
        for id in 1..=8 {
            answers.push(self.get(&path.replace("{id}", &id.to_string())).await);
        }
        Burst {
            answers,
            elapsed: start.elapsed(),
        }
    }

    /// Sends bursts until one was quick enough to touch only two buckets, so
    /// that what was too much must have been refused. Nobody else may have
    /// called `path` before. Returns the first burst.
    async fn meets_limit(&self, limit: usize, path: &str) -> Burst {
        let first = self.burst(path).await;
        assert!(first.answers[..limit].iter().all(Answer::has_passed));
        first.check(limit);
        let (start, mut elapsed) = (Instant::now(), first.elapsed);
        while elapsed >= BUCKET {
            assert!(start.elapsed() < DEADLINE, "no burst was quick enough");
            let burst = self.burst(path).await;
            burst.check(limit);
            elapsed = burst.elapsed;
        }
        first
    }
}

impl Answer {
    pub(crate) fn has_passed(&self) -> bool {
        self.status == StatusCode::OK
    }

    /// A refusal by flow or isolation looks like this.
    fn check_refusal(&self) {
        assert_eq!(self.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(self.headers[RETRY_AFTER], "1");
        assert_eq!(self.body, "Too Many Requests");
    }
}

impl Burst {
    fn passed(&self) -> usize {
        let answers = self.answers.iter();
        answers.filter(|answer| answer.has_passed()).count()
    }

    fn check(&self, limit: usize) {
        let (passed, elapsed) = (self.passed(), self.elapsed);
        assert!(passed <= most(limit, elapsed), "{passed} in {elapsed:?}");
        let answers = self.answers.iter();
        answers
            .filter(|answer| !answer.has_passed())
            .for_each(Answer::check_refusal);
    }
}

#[tokio::test]
async fn axum_five_calls_pass_and_the_rest_is_told_when_to_come_back() {
    let server = Server::start("axum").await;
    server.caller(None).meets_limit(5, "/limited").await;
}

#[tokio::test]
async fn axum_all_ids_of_a_route_share_one_limit() {
    let server = Server::start("axum").await;
    let burst = server.caller(None).meets_limit(5, "/users/{id}").await;
    for (index, answer) in burst.answers.iter().enumerate() {
        if answer.has_passed() {
            assert_eq!(answer.body, format!("user {}\n", index + 1));
        }
    }
}

#[tokio::test]
async fn axum_each_address_has_a_limit_of_its_own() {
    let server = Server::start("axum").await;
    server.caller(None).meets_limit(3, "/per-ip").await;
    // Only there is the whole of 127.0.0.0/8 this machine's own.
    if cfg!(target_os = "linux") {
        let other = Ipv4Addr::new(127, 0, 0, 2).into();
        server.caller(Some(other)).meets_limit(3, "/per-ip").await;
    }
}

#[tokio::test]
async fn axum_prioritized_calls_wait_and_all_of_them_pass() {
    let server = Server::start("axum").await;
    let vip = Caller {
        header: ("x-vip", "1".to_owned()),
        ..server.caller(None)
    };
    let burst = vip.burst("/priority").await;
    assert_eq!(burst.passed(), 8);
    // Eight are more than fit into two buckets, so some have waited.
    assert!(burst.elapsed >= BUCKET, "{:?}", burst.elapsed);
    // Others do not wait.
    server.caller(None).burst("/priority").await.check(5);
}

#[tokio::test]
async fn axum_two_streams_run_at_once_and_one_that_ends_makes_room() {
    let server = Server::start("axum").await;
    let caller = server.caller(None);
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = caller.open("/stream").await;
        assert_eq!(stream.status(), StatusCode::OK);
        let frame = timeout(DEADLINE, stream.frame()).await.expect("it begins");
        let frame = frame.expect("it goes on").expect("it is whole");
        assert_eq!(frame.into_data().expect("no trailers"), "data: tick 0\n\n");
        streams.push(stream);
    }
    caller.get("/stream").await.check_refusal();

    streams.pop();
    // The server learns of it when it next looks at the connection.
    let start = Instant::now();
    let third = loop {
        let stream = caller.open("/stream").await;
        if stream.status() == StatusCode::OK {
            break stream;
        }
        assert!(start.elapsed() < DEADLINE, "no slot was given back");
    };
    caller.get("/stream").await.check_refusal();
    drop((streams, third));
}

#[tokio::test]
async fn axum_stats_tell_what_was_sent() {
    let server = Server::start("axum").await;
    let caller = server.caller(None);
    let burst = caller.burst("/limited").await;

    let stats = json_of(&caller.get("/stats").await);
    let own = node_of(&stats, "/stats");
    assert_eq!(own["concurrency"], 1, "{stats}");
    assert_eq!(own["totals"]["pass"], 1, "{stats}");
    assert_eq!(own["totals"]["complete"], 0, "{stats}");
    let limited = node_of(&stats, "/limited");
    assert_eq!(limited["totals"]["pass"], burst.passed(), "{stats}");
    assert_eq!(limited["totals"]["block"], 8 - burst.passed(), "{stats}");

    // The last call ends a moment after its client has all of it.
    let start = Instant::now();
    loop {
        let stats = json_of(&caller.get("/stats").await);
        let limited = node_of(&stats, "/limited");
        if limited["totals"]["complete"] == burst.passed() {
            assert_eq!(limited["concurrency"], 0, "{stats}");
            break;
        }
        assert!(start.elapsed() < DEADLINE, "{stats}");
    }
}

pub(crate) fn json_of(answer: &Answer) -> Value {
    assert_eq!(answer.headers[CONTENT_TYPE], "application/json");
    serde_json::from_slice(&answer.body).expect("it is JSON")
}

pub(crate) fn node_of<'a>(stats: &'a Value, resource: &str) -> &'a Value {
    let nodes = stats["nodes"].as_array().expect("there are nodes");
    nodes
        .iter()
        .find(|node| node["resource"] == resource && node["scope"] == "resource")
        .unwrap_or_else(|| panic!("no {resource} in {stats}"))
}
