//! A server that answers anything, and keys of any kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tower_sentinel::store::{RedisStore, StoreErrorKind, StoreState};
use tower_sentinel::{Call, FlowRule, KeyedRule};

use crate::redis::Server;
use crate::{asked, passed, started, store, until};

/// A server that answers beats and draws with these lines.
struct Fake {
    address: String,
    /// How many scripts it was to run.
    asked: Arc<AtomicU64>,
}

impl Fake {
    async fn start(beat: &'static str, draw: &'static str) -> Self {
        Self::on(
            TcpListener::bind(("127.0.0.1", 0)).await.unwrap(),
            beat,
            draw,
        )
    }

    fn on(listener: TcpListener, beat: &'static str, draw: &'static str) -> Self {
        let port = listener.local_addr().unwrap().port();
        let fake = Self {
            address: format!("127.0.0.1:{port}"),
            asked: Arc::default(),
        };
        let asked = fake.asked.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, port, beat, draw, asked.clone()));
            }
        });
        fake
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    fn store(&self) -> RedisStore {
        RedisStore::new(&self.url())
            .unwrap()
            .with_prefix("ts")
            .unwrap()
    }
}

/// Answers until the client leaves.
async fn serve(
    client: TcpStream,
    port: u16,
    beat: &str,
    draw: &str,
    asked: Arc<AtomicU64>,
) -> Option<()> {
    // A Cluster of one.
    let slots = format!("*1|*3|:0|:16383|*3|$9|127.0.0.1|:{port}|$1|a");
    let mut client = BufReader::new(client);
    loop {
        let words = read_command(&mut client).await?;
        if words[0] == "EVALSHA" {
            asked.fetch_add(1, Ordering::Relaxed);
        }
        let answer = match (words[0].as_str(), words.get(2).map(String::as_str)) {
            ("EVALSHA", Some("4")) => beat,
            ("EVALSHA", _) => draw,
            ("CLUSTER", _) => &slots,
            ("PING", _) => "+PONG",
            _ => "+OK",
        };
        // Lines of an array are told apart by bars.
        let answer = answer.replace('|', "\r\n") + "\r\n";
        let answer = answer.replace("ITSELF", &format!("127.0.0.1:{port}"));
        client.write_all(answer.as_bytes()).await.ok()?;
    }
}

async fn read_command(client: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let count = read_number(client, '*').await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = read_number(client, '$').await?;
        let mut word = vec![0; length + 2];
        client.read_exact(&mut word).await.ok()?;
        word.truncate(length);
        words.push(String::from_utf8(word).ok()?);
    }
    Some(words)
}

/// The number of a line that begins with `sign`.
async fn read_number(client: &mut BufReader<TcpStream>, sign: char) -> Option<usize> {
    let mut line = String::new();
    client.read_line(&mut line).await.ok()?;
    line.trim_end().strip_prefix(sign)?.parse().ok()
}

const WAIT: Duration = Duration::from_secs(1);

const ALIVE: &str = "*7|:1|:0|:5|:1|:0|:0|:0";

/// What a fake server answers to draws, and then to beats.
const ANSWERS: [&str; 28] = [
    "$-1",
    "+OK",
    ":7",
    "*0",
    "*-1",
    "$2|ok",
    "*5|:1|:2|:3|:4|:5",
    "*8|:1|:2|:3|:4|:5|:6|:7|:8",
    "*6|$1|1|:2|:3|:4|:5|:6",
    "*6|$-1|:2|:3|:4|:5|:6",
    "*6|*1|:1|:2|:3|:4|:5|:6",
    "*6|:-2|:0|:0|:0|:0|:0",
    "*6|:1|:-1|:0|:0|:0|:0",
    "*6|:1|:0|:-9223372036854775808|:0|:0|:0",
    "*6|:9223372036854775807|:0|:0|:0|:0|:0",
    "*6|:9223372036854775808|:0|:0|:0|:0|:0",
    "*6|:0|:0|:9223372036854775807|:9223372036854775807|:9223372036854775807|\
     :9223372036854775807",
    "*6|:-1|:0|:9223372036854775807|:9223372036854775807|:1|:0",
    // A clock that stands at its start, or where a float counts whole microseconds no more.
    "*6|:0|:0|:0|:0|:0|:0",
    "*6|:0|:0|:60000000|:150119987579016|:9007199254740992|:0",
    "-WRONGTYPE Operation against a key holding the wrong kind of value",
    "-ERR a user wrote this",
    "-a:secret@127.0.0.1 is no code",
    "-MOVED 1 127.0.0.1:1",
    "-MOVED 1 ITSELF",
    "-ASK 1 ITSELF",
    "-NOSCRIPT never heard of it",
    "what is this?",
];

#[tokio::test]
async fn no_answer_to_a_draw_or_beat_admits_more_than_a_share() {
    let cases = ANSWERS.map(async |answer| {
        // A beat has one number more.
        let seven = answer.replacen("*6|", "*7|", 1) + "|:0";
        let longer = if answer.starts_with("*6") {
            &*seven.leak()
        } else {
            answer
        };
        for (beat, draw) in [(ALIVE, answer), (answer, answer), (longer, answer)] {
            let store = Fake::start(beat, draw).await.store();
            let (sentinel, handle) =
                asked(store, FlowRule::per_minute("/v1", 8).shared(), WAIT).await;
            let passed = passed(&sentinel, Call::new("/v1"), 12).await;
            assert!(passed <= 3, "{answer}: {passed}, and the share is 2");
            let status = sentinel.store().unwrap();
            let shown = format!("{:?} {:?}", status.last_error(), sentinel.findings());
            let is_quiet = !["127.0.0.1", "secret", "user wrote"]
                .iter()
                .any(|word| shown.contains(word));
            assert!(is_quiet, "{answer}: {shown}");
            handle.shutdown().await;
        }
    });
    join_all(cases).await;
}

#[tokio::test]
async fn no_answer_to_a_beat_alone_admits_more_than_a_share() {
    for beat in [
        "*7|:0|:0|:0|:1|:0|:0|:0",
        "*7|:1|:0|:0|:1|:0|:0|:0",
        "*7|:1|:5|:5|:1|:0|:0|:0",
        "*7|:-1|:0|:5|:1|:0|:0|:0",
        "*7|:4294967295|:4294967295|:9223372036854775807|:1|:0|:0|:0",
        "*7|:4294967296|:0|:5|:1|:0|:0|:0",
        "*2|:1|:0",
        "*4|:1|:0|:5|:5",
        "*7|:1|:0|:5|:-1|:0|:0|:0",
        "*7|:1|:0|:5|:9223372036854775807|:4294967296|:0|:0",
        "*7|:1|:0|:5|:9223372036854775807|:4294967295|:7|:0",
        "*7|$1|1|:0|:5|:1|:0|:0|:0",
        "*7|:1|:0|:5|:1|:0|:0|:-1",
        "*6|:1|:0|:5|:1|:0|:0",
    ] {
        let store = Fake::start(beat, "$-1").await.store();
        let (sentinel, handle) = asked(store, FlowRule::per_minute("/v1", 8).shared(), WAIT).await;
        let passed = passed(&sentinel, Call::new("/v1"), 12).await;
        assert!(passed <= 3, "{beat}: {passed}, and the share is 2 or less");
        let refused = sentinel.store().unwrap().errors(StoreErrorKind::Refused);
        assert!(refused > 0, "{beat}: {:?}", sentinel.store());
        handle.shutdown().await;
    }
}

#[tokio::test]
async fn a_slot_that_moves_to_where_it_was_is_given_up() {
    for draw in ["-MOVED 1 ITSELF", "-ASK 1 ITSELF", "-TRYAGAIN later", "$-1"] {
        let fake = Fake::start(ALIVE, draw).await;
        let store = RedisStore::cluster([fake.url()])
            .unwrap()
            .with_prefix("ts")
            .unwrap();
        let rule = FlowRule::per_minute("/v1", 8).shared().exact();
        let (sentinel, handle) = asked(store, rule, Duration::from_secs(1)).await;
        let passed = passed(&sentinel, Call::new("/v1"), 4).await;
        assert_eq!(passed, 2, "{draw}: the share is 2");
        let status = sentinel.store().unwrap();
        assert!(status.last_error().is_some(), "{draw}: {status:?}");
        // Each call asks at the most twice, and the beats of a second and a half ask as well.
        let asked = fake.asked.load(Ordering::Relaxed);
        assert!(asked < 8 + 8, "{draw}: {asked}");
        handle.shutdown().await;
    }
}

#[tokio::test]
async fn servers_before_7_name_what_a_script_failed_of() {
    let script = "-ERR Error running script (call to f_a1): @user_script:64: @user_script: 64: ";
    for (word, kind) in [
        ("OOM", StoreErrorKind::Full),
        ("READONLY", StoreErrorKind::ReadOnly),
        ("MISCONF", StoreErrorKind::ReadOnly),
        ("WRONGTYPE", StoreErrorKind::Refused),
        ("NOPERM", StoreErrorKind::Refused),
    ] {
        let answer = format!("{script}-{word} it says why");
        let store = Fake::start(answer.leak(), "$-1").await.store();
        let (sentinel, handle) = asked(store, FlowRule::per_minute("/v1", 8).shared(), WAIT).await;
        assert!(passed(&sentinel, Call::new("/v1"), 4).await <= 2);
        let status = sentinel.store().unwrap();
        assert!(status.errors(kind) > 0, "{word}: {status:?}");
        let error = status.last_error().unwrap().to_string();
        assert!(error.ends_with(word), "{error}");
        handle.shutdown().await;
    }
}

#[tokio::test]
async fn keys_of_any_kind_are_names_of_one_length() {
    let Some(server) = Server::start("keys", &[]).await else {
        return;
    };
    let rule = KeyedRule::per_minute("/v1", 2).window().shared();
    let (sentinel, handle) = started(store(&server), rule, Duration::from_secs(5)).await;
    let long = "x".repeat(1 << 20);
    let other = "x".repeat((1 << 20) + 1);
    let keys = [
        "",
        "\0",
        "a\0b",
        "{a}b",
        "}{",
        "\r\nFLUSHALL\r\n",
        "ann",
        &long,
        &other,
    ];
    for key in keys {
        let passed = passed(&sentinel, Call::new("/v1").param(key), 4).await;
        assert_eq!(passed, 2, "{key:.20}");
    }
    assert_eq!(sentinel.store().unwrap().state(), StoreState::Live);
    let names = server.say("KEYS *");
    let names = names.split("\r\n").filter(|it| it.starts_with("ts:1:{"));
    let names: Vec<_> = names.collect();
    let digests = names.iter().filter(|name| name.len() == 39).count();
    assert_eq!(digests, keys.len(), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("ann")), "{names:?}");
    handle.shutdown().await;
}

#[tokio::test]
async fn a_user_who_is_exhausted_costs_the_store_nothing() {
    let Some(server) = Server::start("silent", &[]).await else {
        return;
    };
    let rule = KeyedRule::per_minute("/v1", 2).window().shared();
    let (sentinel, handle) = started(store(&server), rule, Duration::from_secs(5)).await;
    let ann = Call::new("/v1").param("ann");
    assert_eq!(passed(&sentinel, ann, 3).await, 2);
    let before = draws(&server);
    assert_eq!(before, 2, "the last one has said that none is left");
    assert_eq!(passed(&sentinel, ann, 10_000).await, 0);
    assert_eq!(draws(&server), before);
    handle.shutdown().await;
}

/// How many draws a server has run: scripts are draws and beats, and beats alone use a set.
fn draws(server: &Server) -> u64 {
    let stats = server.say("INFO commandstats");
    let calls = |name: &str| {
        let line = stats.lines().find(|line| line.starts_with(name)).unwrap();
        let calls = line.split([':', '=', ',']).nth(2).unwrap();
        calls.parse::<u64>().unwrap()
    };
    calls("cmdstat_evalsha:") - calls("cmdstat_zadd:")
}

#[test]
fn a_store_outlives_the_runtime_in_which_it_was_connecting() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let rule = || FlowRule::per_second("/v1", 4_000).shared().exact();
    // It takes connections, and says nothing yet.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let store = RedisStore::new(&url).unwrap().with_prefix("ts").unwrap();
    let first = runtime();
    first.block_on(async {
        let (sentinel, _handle) = asked(store.clone(), rule(), WAIT / 20).await;
        until(&sentinel, StoreState::Down).await;
    });
    drop(first);
    runtime().block_on(async {
        let _fake = Fake::on(TcpListener::from_std(listener).unwrap(), ALIVE, "$-1");
        let (sentinel, handle) = asked(store, rule(), WAIT).await;
        for _ in 0..200 {
            drop(sentinel.enter(Call::new("/v1")).await);
            if sentinel.store().unwrap().trips() > 0 {
                return handle.shutdown().await;
            }
            tokio::time::sleep(WAIT / 20).await;
        }
        panic!("{:?}", sentinel.store());
    });
}
