//! Requests that are not the dashboard's.

use std::time::Duration;

use tower_sentinel::observe::dashboard::Dashboard;
use tower_sentinel::source::InMemory;
use tower_sentinel::{FlowRule, Rules, Sentinel};

use super::{Answer, Line, connected, local};

const BODY: &str = "type=flow&data=%5B%5D";

fn five() -> Rules {
    FlowRule::per_second("/search", 5).into()
}

#[tokio::test]
async fn a_peer_that_is_not_the_dashboard_is_refused_unheard() {
    let sentinel = Sentinel::new(five());
    // One that nobody has: an address for documentation.
    let dashboard = Dashboard::new(&sentinel, "shop").bind(([127, 0, 0, 1], 0));
    let handle = dashboard.connect("192.0.2.1:8080").push(InMemory);
    let handle = handle.spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let answer = line.answer().await.unwrap();
    let text = "127.0.0.1 is not the dashboard: allow it with Dashboard::allow";
    assert_eq!((answer.status, &*answer.text), (403, text));
    assert_eq!(line.answer().await, None);
}

#[tokio::test]
async fn what_a_browser_may_have_sent_is_refused() {
    let sentinel = Sentinel::new(five());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let cases = [
        "Host: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n",
        "Host: 127.0.0.1\r\norigin: null\r\n",
        "Host: 127.0.0.1\r\nReferer: http://evil.example/\r\n",
        "Host: 127.0.0.1\r\nSec-Fetch-Site: same-origin\r\n",
        "Host: 127.0.0.1\r\nsec-fetch-mode: no-cors\r\n",
        "Host: evil.example\r\n",
        "Host: localhost:8719\r\n",
        "Host: 127.0.0.1.evil.example\r\n",
        "Host: 127.0.0.1\r\nHost: evil.example\r\n",
        "Host: \r\n",
        "",
    ];
    for fields in cases {
        for start in ["GET /setRules?type=flow&data=%5B%5D", "POST /setRules"] {
            let mut line = connected(&handle).await;
            let request = format!(
                "{start} HTTP/1.1\r\n{fields}Content-Length: {}\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\n\r\n{BODY}",
                BODY.len(),
            );
            line.send(request).await;
            assert_eq!(line.answer().await.unwrap().status, 403, "{start} {fields}");
            assert_eq!(line.answer().await, None);
        }
    }
    assert_eq!(sentinel.rules(), five());
    // Addresses are no names.
    for host in ["127.0.0.1", "127.0.0.1:8719", "[::1]", "[::1]:8719"] {
        let mut line = connected(&handle).await;
        let request = format!("GET /version HTTP/1.1\r\nHost: {host}\r\n\r\n");
        line.send(request).await;
        assert_eq!(line.answer().await, Some(Answer::ok("1.8.9")), "{host}");
    }
}

/// Sends `request` and returns the status of the answer, after which the connection ends.
async fn refused(addr: std::net::SocketAddr, request: &str) -> u16 {
    let mut line = Line::to(addr).await;
    line.send(request).await;
    let answer = line.answer().await.unwrap();
    assert_eq!(line.answer().await, None);
    answer.status
}

#[tokio::test]
async fn heads_and_bodies_are_bounded() {
    let sentinel = Sentinel::new(five());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let post = |fields: &str| {
        format!(
            "POST /setRules HTTP/1.1\r\nHost: 127.0.0.1\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n{fields}\r\n"
        )
    };
    let cases = [
        (413, post("Content-Length: 1048577\r\n")),
        (413, post("Content-Length: 99999999999999999999999\r\n")),
        (400, post("Content-Length: 1\r\nContent-Length: 1\r\n")),
        (400, post("Content-Length: -1\r\n")),
        (411, post("")),
        (411, post("Transfer-Encoding: chunked\r\n")),
        (
            411,
            post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        ),
        (400, "hello\r\n\r\n".to_owned()),
        (400, "GET /version HTTP/2\r\n\r\n".to_owned()),
        (
            400,
            format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101)),
        ),
        (431, "x".repeat((16 << 10) + 1)),
    ];
    for (status, request) in cases {
        let found = refused(handle.addr(), &request).await;
        assert_eq!(found, status, "{}", &request[..request.len().min(200)]);
    }
    // As much as there may be.
    let mut line = connected(&handle).await;
    let rest = "x".repeat((1 << 20) - BODY.len() - 3);
    let body = format!("{BODY}&z={rest}");
    line.send(post("Content-Length: 1048576\r\n")).await;
    line.send(body).await;
    assert_eq!(line.answer().await, Some(Answer::ok("success")));
    assert_eq!(sentinel.rules(), Rules::new());
}

#[tokio::test]
async fn other_methods_and_content_types_are_refused() {
    let sentinel = Sentinel::new(five());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let request = |method: &str, kind: &str| {
        format!(
            "{method} /setRules HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{BODY}",
            BODY.len(),
        )
    };
    let form = "application/x-www-form-urlencoded";
    let cases = [
        (405, "PUT", form),
        (405, "DELETE", form),
        (415, "POST", "text/plain"),
        (415, "POST", "application/json"),
        (415, "POST", "multipart/form-data; boundary=x"),
        (
            415,
            "POST",
            "application/x-www-form-urlencoded; charset=GBK",
        ),
    ];
    for (status, method, kind) in cases {
        let found = refused(handle.addr(), &request(method, kind)).await;
        assert_eq!(found, status, "{method} {kind}");
    }
    assert_eq!(sentinel.rules(), five());
}

#[tokio::test]
async fn a_head_that_takes_too_long_ends_the_connection() {
    let sentinel = Sentinel::new(five());
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    // From this answer on, the next request has ten seconds.
    line.get("version").await;
    line.send("GET /version HTTP/1.1\r\nHost: 127.0").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(5)).await;
    tokio::time::resume();
    line.send(".0.1\r\n\r\n").await;
    assert_eq!(line.answer().await, Some(Answer::ok("1.8.9")));

    line.send("GET /version HTTP/1.1\r\nHost: 127.0").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    assert_eq!(line.answer().await, None);
}

#[tokio::test]
async fn the_seventeenth_connection_is_closed() {
    let sentinel = Sentinel::new(five());
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut open = Vec::new();
    for _ in 0..16 {
        let mut line = connected(&handle).await;
        assert_eq!(line.get("version").await.text, "1.8.9");
        open.push(line);
    }
    assert_eq!(connected(&handle).await.answer().await, None);
    // One that ends makes room; the server hears of it when the next one comes.
    open.pop();
    let mut last = None;
    while last.is_none() {
        let mut line = connected(&handle).await;
        line.send("GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            .await;
        last = line.answer().await;
    }
    assert_eq!(last, Some(Answer::ok("1.8.9")));
}

#[tokio::test]
async fn dropping_the_handle_closes_all_connections() {
    let sentinel = Sentinel::new(five());
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    line.get("version").await;
    drop(handle);
    assert_eq!(line.answer().await, None);
}
