//! What a beat tells, and what comes of answers to it.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::net::TcpSocket;
use tower_sentinel::observe::dashboard::Dashboard;
use tower_sentinel::{Rules, Sentinel};

use super::{Fake, Line, WELCOME, json, until};

fn shop() -> Dashboard {
    Dashboard::new(&Sentinel::new(Rules::new()), "shop").bind(([127, 0, 0, 1], 0))
}

#[tokio::test]
async fn a_beat_has_the_fields_of_sentinels() {
    let fake = Fake::new().await;
    let handle = shop().connect(fake.name()).spawn().await.unwrap();
    let beat = fake.beat(&json(WELCOME)).await;

    let head: Vec<_> = beat.head.lines().collect();
    assert_eq!(head[0], "POST /registry/machine HTTP/1.1");
    let has = |line: &str| assert!(head.contains(&line), "{head:?} lacks {line}");
    has(&format!("Host: {}", fake.name()));
    has("Content-Type: application/x-www-form-urlencoded; charset=UTF-8");

    for (name, value) in [
        ("app", "shop"),
        ("app_type", "0"),
        ("v", "1.8.9"),
        ("ip", "127.0.0.1"),
        ("port", &*handle.addr().port().to_string()),
        ("pid", &*std::process::id().to_string()),
    ] {
        assert_eq!(beat.get(name), value, "{name}");
    }
    let host = beat.get("hostname");
    assert!((1..=256).contains(&host.len()), "{host}");
    #[expect(
        clippy::disallowed_methods,
        reason = "the beat tells the time of people"
    )]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let told = Duration::from_millis(beat.get("version").parse().unwrap());
    assert!(told <= now && now - told < Duration::from_secs(60));

    until(|| handle.beats() == 1).await;
    assert_eq!(handle.last_problem(), None);
    // The dashboard may send commands now.
    let mut line = Line::to(handle.addr()).await;
    assert_eq!(line.get("version").await.text, "1.8.9");
}

#[tokio::test]
async fn names_are_encoded_and_addresses_told_as_they_were_set() {
    let fake = Fake::new().await;
    let app = "caf\u{e9} & b=1";
    let sentinel = Sentinel::new(Rules::new());
    let dashboard = Dashboard::new(&sentinel, app).bind(([127, 0, 0, 1], 0));
    let ip: IpAddr = "10.1.2.3".parse().unwrap();
    let handle = dashboard.connect(fake.name()).advertise(ip);
    let handle = handle.spawn().await.unwrap();
    let beat = fake.beat(&json(WELCOME)).await;
    assert_eq!(beat.get("app"), "caf%C3%A9%20%26%20b%3D1");
    assert_eq!(beat.get("ip"), "10.1.2.3");
    // It cannot be reached there.
    until(|| handle.beats() == 1).await;
    let expected = format!(
        "{}: knows this program at 10.1.2.3, and commands are taken at {}: bind it to an address \
         that the dashboard reaches",
        fake.name(),
        handle.addr(),
    );
    assert_eq!(handle.last_problem(), Some(expected));
}

#[tokio::test]
async fn the_next_beat_comes_after_ten_seconds() {
    let fake = Fake::new().await;
    let handle = shop().connect(fake.name()).spawn().await.unwrap();
    fake.beat(&json(
        r#"{"success":false,"code":-1,"msg":"ip can't be\nnull","data":null}"#,
    ))
    .await;
    until(|| handle.last_problem().is_some()).await;
    let refused = format!(
        "{}: refuses this program: \"ip can't be\\nnull\"",
        fake.name()
    );
    assert_eq!((handle.beats(), handle.last_problem()), (0, Some(refused)));

    for beats in 1..=2 {
        // The fake answers in real time.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(10)).await;
        tokio::time::resume();
        fake.beat(&json(WELCOME)).await;
        until(|| handle.beats() == beats).await;
        assert_eq!(handle.last_problem(), None);
    }
}

#[tokio::test]
async fn every_other_answer_is_a_problem_and_no_redirect_is_followed() {
    let chunked = "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n\
                   10\r\n{\"success\":true,\r\nb\r\n\"msg\":null}\r\n0\r\n\r\n";
    let long = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(100_000));
    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let cases = [
        (chunked, None),
        ("HTTP/1.0 200 OK\r\n\r\n{\"success\":true}", None),
        (
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            Some("answers with the status 302, must be 200"),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            Some("answers with something that is not JSON, must be a dashboard of Sentinel"),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            Some("refuses this program: \"no reason\""),
        ),
        (
            "SSH-2.0-x\r\n\r\n",
            Some("answers with something that is not HTTP"),
        ),
        ("", Some("closes the connection without an answer")),
        (&*long, Some("answers with more than 65536 bytes")),
        (&*head, Some("a head has at most 16384 bytes")),
    ];
    for (answer, expected) in cases {
        let fake = Fake::new().await;
        let handle = shop().connect(fake.name()).spawn().await.unwrap();
        fake.beat(answer).await;
        until(|| handle.beats() == 1 || handle.last_problem().is_some()).await;
        let expected = expected.map(|text| format!("{}: {text}", fake.name()));
        assert_eq!(handle.last_problem(), expected);
        handle.stop().await;
    }
}

#[tokio::test]
async fn a_dashboard_that_is_not_there_is_no_error_of_the_start() {
    // It has the port, and does not listen.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let name = socket.local_addr().unwrap().to_string();
    let handle = shop().connect(&*name).spawn().await.unwrap();
    until(|| handle.last_problem().is_some()).await;
    assert!(
        handle
            .last_problem()
            .unwrap()
            .starts_with(&format!("{name}: "))
    );
}

#[tokio::test]
async fn a_dashboard_that_is_silent_is_given_up_after_three_seconds() {
    let fake = Fake::new().await;
    let handle = shop().connect(fake.name()).spawn().await.unwrap();
    let (stream, _) = fake.listener.accept().await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3)).await;
    tokio::time::resume();
    until(|| handle.last_problem().is_some()).await;
    let expected = format!("{}: does not answer within 3 s", fake.name());
    assert_eq!(handle.last_problem(), Some(expected));
    drop(stream);
}

#[tokio::test]
async fn settings_out_of_range_are_errors_that_name_them() {
    let sentinel = Sentinel::new(Rules::new());
    let long = "x".repeat(257);
    let name = |app: &str| Dashboard::new(&sentinel, app).bind(([127, 0, 0, 1], 0));
    let app = |length: usize| {
        format!("app has {length} characters, must have between 1 and 256, and not only blanks")
    };
    let at = |text: &str| {
        format!(
            "dashboard is {text:?}, must be a name or an address with a port, such as \
             \"10.0.0.5:8080\""
        )
    };
    let mut cases = vec![
        (name(""), app(0)),
        (name("  "), app(2)),
        (name(&long), app(257)),
    ];
    for text in [
        "",
        "10.0.0.5",
        "http://10.0.0.5:8080",
        "10.0.0.5:8080/",
        "10.0.0.5:0",
        "10.0.0.5:x",
        ":8080",
        "a b:8080",
        "a\r\nb:8080",
    ] {
        cases.push((name("shop").connect(text), at(text)));
    }
    for (dashboard, expected) in cases {
        let error = dashboard.spawn().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_passed_over() {
    let sentinel = Sentinel::new(Rules::new());
    let at = |addr| Dashboard::new(&sentinel, "shop").bind(addr).spawn();
    let first = at(([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr: std::net::SocketAddr = first.addr();
    let second = at(addr).await.unwrap();
    let ahead = second.addr().port() - addr.port();
    assert!((1..16).contains(&ahead), "{ahead}");
}

#[test]
fn a_runtime_without_io_or_timer_is_an_error() {
    let sentinel = Sentinel::new(Rules::new());
    let spawn = |runtime: &tokio::runtime::Runtime| {
        let dashboard = Dashboard::new(&sentinel, "shop").bind(([127, 0, 0, 1], 0));
        runtime.block_on(dashboard.spawn()).unwrap_err().to_string()
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let plain = builder.build().unwrap();
    assert_eq!(spawn(&plain), "the tokio runtime has no timer");
    let timer = builder.enable_time().build().unwrap();
    assert_eq!(spawn(&timer), "the tokio runtime has no I/O");
}
