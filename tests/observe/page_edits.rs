//! Changing rules and breakers from the live page: who may, and that nothing is half-done.

use std::sync::{Arc, RwLock};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_sentinel::clock::TokioClock;
use tower_sentinel::key::ClientAddr;
use tower_sentinel::observe::Body;
use tower_sentinel::observe::page::{EditablePage, Page};
use tower_sentinel::source::{
    InMemory, RuleFile, RuleSink, RuleSource, SourceError, Watch, from_fn,
};
use tower_sentinel::store::{Fault, MemoryStore, StoreErrorKind};
use tower_sentinel::{
    Call, CircuitBreakerRule, FlowRule, Key, KeyedRule, ManualClock, Rules, Sentinel, SystemRule,
    Verdict,
};

const TOKEN: &str = "correct-horse-battery";

/// A sink that notes what it is given, or fails.
#[derive(Clone, Default)]
struct Noted {
    stored: Arc<RwLock<Vec<Rules>>>,
    fails: bool,
}

impl RuleSink for Noted {
    fn store(&self, _: &Rules, after: &Rules) -> Result<(), SourceError> {
        if self.fails {
            return Err(SourceError::new("the disk is full"));
        }
        self.stored.write().unwrap().push(after.clone());
        Ok(())
    }
}

/// A sink that panics.
struct Broken;

impl RuleSink for Broken {
    fn store(&self, _: &Rules, _: &Rules) -> Result<(), SourceError> {
        panic!("broken")
    }
}

fn five() -> Rules {
    Rules::new()
        .with(FlowRule::per_second("/search", 5).id("search"))
        .with(CircuitBreakerRule::consecutive_errors("/pay", 3).id("pay"))
        .with(KeyedRule::per_second("/search", 5).id("each"))
}

fn document(limit: i64) -> String {
    json!({ "rules": [{ "kind": "flow", "resource": "/search", "threshold": limit }] }).to_string()
}

fn editable(sentinel: &Sentinel, sink: impl RuleSink) -> EditablePage {
    let page = Page::new(sentinel).token(TOKEN).unwrap();
    page.edits(sink).unwrap()
}

fn post(query: &str) -> http::request::Builder {
    Request::post(format!("/sentinel?{query}"))
        .header("host", "localhost:3000")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {TOKEN}"))
        .extension(ClientAddr("127.0.0.1:4000".parse().unwrap()))
}

async fn send(
    page: &EditablePage,
    request: http::request::Builder,
    body: impl Into<String>,
) -> Response<Body> {
    let request = request.body(Body::from(body.into())).unwrap();
    page.clone().oneshot(request).await.unwrap()
}

async fn read(answer: Response<Body>) -> Value {
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

/// The rules in force as they are written, and their version.
async fn rules(page: &EditablePage) -> (String, String) {
    let answer = send(page, post("rules").method("GET"), "").await;
    assert_eq!(answer.status(), StatusCode::OK);
    let version = answer.headers()["etag"].to_str().unwrap().to_owned();
    (read(answer).await.to_string(), version)
}

#[test]
fn nothing_can_be_changed_without_a_token() {
    let sentinel = Sentinel::new(five());
    let error = Page::new(&sentinel).open().edits(InMemory).unwrap_err();
    assert_eq!(error.to_string(), "edits need a token, and there is none");
}

#[tokio::test]
async fn rules_are_loaded_checked_and_replaced() {
    let sentinel = Sentinel::new(five());
    let sink = Noted::default();
    let page = editable(&sentinel, sink.clone());
    let (text, version) = rules(&page).await;

    let checked = read(send(&page, post("rules&check"), text.clone()).await).await;
    assert_eq!(checked["diff"], json!([]));
    let checked = read(send(&page, post("rules&check"), document(6)).await).await;
    assert_eq!(
        (&checked["count"], &checked["changes"]),
        (&json!(0), &json!(4))
    );
    assert_eq!(checked["diff"][0]["rule"], "search");
    assert_eq!(checked["diff"][0]["after"], Value::Null);
    assert_eq!(checked["diff"][3]["after"], "threshold = 6, interval = 1 s");
    assert_eq!(
        (sentinel.rules(), sink.stored.write().unwrap().len()),
        (five(), 0)
    );

    let answer = send(
        &page,
        post("rules").header("if-match", &version),
        document(6),
    )
    .await;
    assert_eq!(answer.status(), StatusCode::OK);
    let second = answer.headers()["etag"].to_str().unwrap().to_owned();
    assert_ne!(second, version);
    let six = Rules::from(FlowRule::per_second("/search", 6));
    assert_eq!(sentinel.rules(), six);
    assert_eq!(*sink.stored.write().unwrap(), [six]);
    assert_eq!(rules(&page).await.1, second);
    // The same again changes nothing, and nothing is kept.
    let answer = send(
        &page,
        post("rules").header("if-match", &second),
        document(6),
    )
    .await;
    assert_eq!(read(answer).await["diff"], json!([]));
    assert_eq!(sink.stored.write().unwrap().len(), 1);
    // Back again, the version is the first one: the rules are the same.
    let answer = send(&page, post("rules").header("if-match", &second), text).await;
    assert_eq!(answer.headers()["etag"], version);
    assert_eq!(sentinel.rules(), five());
}

#[tokio::test]
async fn whatever_is_wrong_the_old_rules_stay() {
    let sentinel = Sentinel::new(five());
    let sink = Noted::default();
    let page = editable(&sentinel, sink.clone());
    let (_, version) = rules(&page).await;
    let good = || post("rules").header("if-match", &version);
    let two = json!({ "rules": [
        { "kind": "flow", "resource": "/a", "threshold": 5 },
        { "kind": "flow", "resource": "", "threshold": -5 },
    ] });
    let cases: Vec<(http::request::Builder, String, u16, &str)> = vec![
        (good(), "{".to_owned(), 400, "line 1"),
        (good(), String::new(), 400, ""),
        (good(), "{}".to_owned(), 400, "rules"),
        (
            good(),
            document(-1),
            400,
            "threshold is -1, must be between 0 and 2147483647",
        ),
        (good(), two.to_string(), 400, "rules[1].resource"),
        (
            good(),
            document(6).replace("threshold", "treshold"),
            400,
            "did you mean `threshold`?",
        ),
        (post("rules"), document(6), 428, "If-Match is missing"),
        (
            good().header("if-match", "\"x\""),
            document(6),
            428,
            "If-Match",
        ),
        (
            post("rules").header("if-match", "\"old\""),
            document(6),
            412,
            "by now",
        ),
        (
            post("rules").header("if-match", "*"),
            document(6),
            412,
            "by now",
        ),
    ];
    for (request, body, status, why) in cases {
        let answer = send(&page, request, body.clone()).await;
        assert_eq!(answer.status().as_u16(), status, "{body}");
        let told = read(answer).await.to_string();
        assert!(told.contains(why), "{told} lacks {why}");
        assert_eq!(sentinel.rules(), five(), "{body}");
    }
    let bytes = good().body(Body::from(&b"\xff"[..])).unwrap();
    assert_eq!(
        page.clone().oneshot(bytes).await.unwrap().status(),
        StatusCode::BAD_REQUEST
    );
    // One megabyte is too much, as a whole or in parts.
    let big = " ".repeat((1 << 20) + 1);
    assert_eq!(
        send(&page, good(), big.clone()).await.status(),
        StatusCode::PAYLOAD_TOO_LARGE
    );
    let parts = futures_util::stream::iter((0..20).map(|_| {
        Ok::<_, std::io::Error>(http_body::Frame::data(bytes::Bytes::from(vec![
            b' ';
            1 << 16
        ])))
    }));
    let parts = good().body(http_body_util::StreamBody::new(parts)).unwrap();
    let answer = page.clone().oneshot(parts).await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let broken = futures_util::stream::iter([Err::<http_body::Frame<bytes::Bytes>, _>("reset")]);
    let broken = good()
        .body(http_body_util::StreamBody::new(broken))
        .unwrap();
    assert_eq!(
        page.clone().oneshot(broken).await.unwrap().status(),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        (sentinel.rules(), sink.stored.write().unwrap().len()),
        (five(), 0)
    );
}

#[tokio::test]
async fn a_rule_that_needs_a_store_changes_nothing_where_there_is_none() {
    let rule = json!({ "kind": "flow", "resource": "/search", "threshold": 5, "shared": true });
    let document = |store: bool| {
        let mut document = json!({ "rules": [rule] });
        if store {
            document["store"] = json!({});
        }
        document.to_string()
    };
    let sentinel = Sentinel::new(five());
    let page = editable(&sentinel, Noted::default());
    let (_, version) = rules(&page).await;
    for (store, why) in [
        (
            true,
            "shared is true, must be left out where the engine has no store",
        ),
        (false, "must be left out where the document has no `store`"),
    ] {
        for query in ["rules&check", "rules"] {
            let request = post(query).header("if-match", &version);
            let answer = send(&page, request, document(store)).await;
            let expected = if query == "rules" { 400 } else { 200 };
            assert_eq!(answer.status(), expected);
            let told = read(answer).await.to_string();
            assert!(told.contains(why), "{told}");
        }
        assert_eq!(sentinel.rules(), five());
    }
    // Where there is one, the rules are written as they are read.
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("/search", 5).shared())
        .store(MemoryStore::new())
        .build();
    let page = editable(&sentinel, Noted::default());
    let (text, version) = rules(&page).await;
    let request = post("rules").header("if-match", &version);
    let answer = send(
        &page,
        request,
        text.replace("\"threshold\":5", "\"threshold\":6"),
    )
    .await;
    assert_eq!(answer.status(), 200);
    assert_eq!(
        sentinel.rules(),
        FlowRule::per_second("/search", 6).shared().into()
    );
}

#[tokio::test]
async fn a_sink_that_fails_leaves_the_old_rules_in_force() {
    let sentinel = Sentinel::new(five());
    let failing = Noted {
        fails: true,
        ..Noted::default()
    };
    for (page, why) in [
        (editable(&sentinel, failing), "the disk is full"),
        (editable(&sentinel, Broken), "the sink panicked: broken"),
    ] {
        let (_, version) = rules(&page).await;
        let answer = send(
            &page,
            post("rules").header("if-match", version),
            document(6),
        )
        .await;
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(read(answer).await["error"], why);
        assert_eq!(sentinel.rules(), five());
    }
}

#[tokio::test]
async fn a_file_that_was_edited_meanwhile_wins() {
    let path = std::env::temp_dir().join(format!("sentinel-edits-{}.toml", std::process::id()));
    RuleFile::toml(&path).store(&Rules::new(), &five()).unwrap();
    let sentinel = Sentinel::new(five());
    let page = editable(&sentinel, RuleFile::toml(&path));
    let (_, version) = rules(&page).await;
    let theirs = "rules = []\n";
    std::fs::write(&path, theirs).unwrap();
    let change = || post("rules").header("if-match", &version);
    let answer = send(&page, change(), document(6)).await;
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), theirs);
    assert_eq!(sentinel.rules(), five());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        send(&page, change(), document(6)).await.status(),
        StatusCode::OK
    );
    let mut source = tower_sentinel::source::FileSource::toml(&path);
    assert_eq!(source.poll().unwrap(), Some(sentinel.rules()));
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn only_the_page_itself_and_who_is_no_browser_may_change_anything() {
    let sentinel = Sentinel::new(five());
    let page = editable(&sentinel, InMemory);
    let status = async |request| send(&page, request, document(6)).await.status().as_u16();
    let check = || post("rules&check");
    assert_eq!(status(check()).await, 200);
    assert_eq!(
        status(check().header("origin", "http://localhost:3000")).await,
        200
    );
    assert_eq!(
        status(check().header("origin", "https://LOCALHOST:3000")).await,
        200
    );
    assert_eq!(
        status(check().header("sec-fetch-site", "same-origin")).await,
        200
    );
    let foreign = [
        "http://evil.example",
        "http://localhost:3001",
        "http://localhost",
        "ftp://localhost:3000",
        "null",
        "",
    ];
    for origin in foreign {
        assert_eq!(
            status(check().header("origin", origin)).await,
            403,
            "{origin}"
        );
    }
    for site in ["cross-site", "same-site", "none"] {
        assert_eq!(
            status(check().header("sec-fetch-site", site)).await,
            403,
            "{site}"
        );
    }
    // What a form can send.
    for media in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
    ] {
        let request = Request::post("/?rules&check")
            .header("host", "localhost")
            .header("content-type", media)
            .header("authorization", format!("Bearer {TOKEN}"));
        assert_eq!(status(request).await, 415, "{media}");
    }
    let other = |host: &str, token: &str| {
        let request = Request::post("/?rules&check").header("host", host);
        request
            .header("content-type", "application/json; charset=utf-8")
            .header("authorization", format!("Bearer {token}"))
    };
    assert_eq!(status(other("localhost", TOKEN)).await, 200);
    assert_eq!(status(other("evil.example", TOKEN)).await, 403);
    for n in 0..20 {
        let wrong = format!("wrong-token-number-{n}");
        assert_eq!(status(other("localhost", &wrong)).await, 401);
    }
    // However many were wrong, the right one opens.
    assert_eq!(status(other("localhost", TOKEN)).await, 200);
}

#[tokio::test]
async fn a_get_changes_nothing_and_needs_the_token_for_the_rules() {
    let sentinel = Sentinel::new(five());
    let page = editable(&sentinel, InMemory);
    for (query, method, expected) in [
        ("rules", "GET", 200),
        ("rules", "HEAD", 200),
        ("rules", "PUT", 405),
        ("rules", "DELETE", 405),
        ("rules&check", "GET", 404),
        ("breaker", "GET", 404),
        ("left", "GET", 404),
        ("reset", "GET", 404),
        ("state", "POST", 405),
        ("", "POST", 405),
        ("rules&force", "POST", 405),
        ("state", "GET", 200),
        ("page.js", "GET", 200),
    ] {
        let answer = send(&page, post(query).method(method), document(6)).await;
        assert_eq!(answer.status().as_u16(), expected, "{method} {query}");
        assert_eq!(answer.headers()["x-frame-options"], "DENY");
    }
    let without = Request::get("/?rules").header("host", "localhost");
    assert_eq!(
        send(&page, without, "").await.status(),
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(sentinel.rules(), five());
    // A page without edits does not have them.
    let plain = Page::new(&sentinel).token(TOKEN).unwrap();
    let request = post("rules").method("GET").body(()).unwrap();
    assert_eq!(
        plain.clone().oneshot(request).await.unwrap().status(),
        StatusCode::NOT_FOUND
    );
    let request = post("rules").body(()).unwrap();
    assert_eq!(
        plain.oneshot(request).await.unwrap().status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[tokio::test]
async fn a_breaker_is_opened_and_handed_back() {
    let sentinel = Sentinel::new(five());
    let page = editable(&sentinel, InMemory);
    let call = || sentinel.try_enter(Call::new("/pay"));
    // Before its first call, too.
    let body = |rule: &str, set: &str| json!({ "resource": "/pay", "rule": rule, "set": set });
    let set = async |body: Value| {
        let answer = send(&page, post("breaker"), body.to_string()).await;
        let status = answer.status().as_u16();
        (status, read(answer).await["state"].clone())
    };
    assert_eq!(set(body("pay", "open")).await, (200, json!("open")));
    assert!(matches!(call(), Verdict::Block(_)));
    assert_eq!(set(body("pay", "close")).await, (200, json!("closed")));
    assert!(matches!(call(), Verdict::Pass(_)));
    assert_eq!(set(body("pay", "half-open")).await.0, 400);
    assert_eq!(set(body("other", "open")).await.0, 404);
    assert_eq!(
        set(json!({ "resource": "/none", "rule": "pay", "set": "open" }))
            .await
            .0,
        404
    );
    assert_eq!(set(json!([])).await.0, 404);
    let outbound =
        json!({ "resource": "/pay", "direction": "outbound", "rule": "pay", "set": "open" });
    assert_eq!(set(outbound).await, (200, json!("open")));
    assert!(matches!(call(), Verdict::Pass(_)));
    let outbound = Call::new("/pay").outbound();
    assert!(matches!(sentinel.try_enter(outbound), Verdict::Block(_)));
}

#[tokio::test]
async fn a_caller_can_be_looked_up_by_who_knows_it() {
    let sentinel = Sentinel::new(five());
    let page = editable(&sentinel, InMemory);
    drop(sentinel.try_enter(Call::new("/search").param("ann").batch(3)));
    let ip: std::net::IpAddr = "192.0.2.7".parse().unwrap();
    drop(sentinel.try_enter(Call::new("/search").param(ip).batch(2)));
    for (value, left) in [
        ("ann", 2),
        ("bob", 5),
        ("192.0.2.7", 3),
        ("::ffff:192.0.2.7", 3),
    ] {
        let body = json!({ "resource": "/search", "rule": "each", "value": value }).to_string();
        let answer = send(&page, post("left"), body).await;
        assert_eq!(read(answer).await, json!({ "left": left }), "{value}");
    }
    let body = json!({ "resource": "/search", "rule": "each", "value": "192.0.2.7" }).to_string();
    for (query, key, value) in [
        ("reset", "reset", json!(true)),
        ("left", "left", json!(5)),
        ("reset", "reset", json!(false)),
    ] {
        let answer = send(&page, post(query), body.clone()).await;
        assert_eq!(read(answer).await, json!({ key: value }), "{query}");
    }
    let foreign = post("reset").header("origin", "https://evil.example");
    let refused = send(&page, foreign, body.clone()).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let without = Request::post("/?reset").header("host", "localhost");
    let without = without.header("content-type", "application/json");
    let refused = send(&page, without, body).await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let unlimited = KeyedRule::per_second("/search", 5)
        .except_unlimited("ann")
        .id("each");
    assert!(sentinel.reload(unlimited.into()));
    let body = json!({ "resource": "/search", "rule": "each", "value": "ann" }).to_string();
    assert_eq!(
        read(send(&page, post("left"), body).await).await,
        json!({ "left": null })
    );
    let body = json!({ "resource": "/search", "rule": "each" }).to_string();
    assert_eq!(
        send(&page, post("left"), body).await.status(),
        StatusCode::BAD_REQUEST
    );
    let body = json!({ "resource": "/search", "rule": "search", "value": "ann" }).to_string();
    assert_eq!(
        send(&page, post("left"), body).await.status(),
        StatusCode::NOT_FOUND
    );
}

/// What the page answers to `query` about `value` of the rule "each".
async fn told(page: &EditablePage, query: &str, value: &str) -> Value {
    let body = json!({ "resource": "/search", "rule": "each", "value": value }).to_string();
    let answer = send(page, post(query), body).await;
    assert_eq!(answer.status(), StatusCode::OK, "{value}");
    read(answer).await[query].take()
}

fn ip(address: &str) -> Key<'static> {
    Key::Ip(address.parse().unwrap())
}

#[tokio::test]
async fn a_value_is_found_as_the_text_number_or_address_by_which_it_calls() {
    let rules = [
        (KeyedRule::per_hour("/search", 5), 5),
        (KeyedRule::per_hour("/search", 5).window(), 5),
        (
            KeyedRule::per_hour("/search", 2_000_000).window(),
            2_000_000,
        ),
        (KeyedRule::per_calendar_day("/search", 5), 5),
        (KeyedRule::concurrency("/search", 5), 5),
    ];
    let values = [
        ("ann", Key::Str("ann"), true),
        ("7", Key::Str("7"), true),
        ("7", Key::Int(7), true),
        ("18446744073709551615", Key::Int(u64::MAX), true),
        ("007", Key::Int(7), false),
        ("+7", Key::Int(7), false),
        ("192.0.2.7", ip("192.0.2.7"), true),
        ("192.0.2.7", Key::Str("192.0.2.7"), true),
        ("2001:db8:1:2:3::4", ip("2001:db8:1:2::"), true),
        ("2001:db8:1:2:3::4", ip("2001:db8:1:2:3::4"), true),
        ("2001:db8:1::", ip("2001:db8:1::"), true),
        ("2001:db8:1:2:3::4", ip("2001:db8:1::"), false),
        ("-", Key::MISSING, true),
    ];
    for (rule, whole) in rules {
        for (value, key, is_found) in values {
            let what = format!("{rule:?}: {key:?} as {value}");
            let built = Sentinel::builder().rules(rule.clone().id("each"));
            let sentinel = built.clock(ManualClock::new()).build();
            let page = editable(&sentinel, InMemory);
            let _running = sentinel.try_enter(Call::new("/search").param(key));
            let left = whole - i32::from(is_found);
            assert_eq!(told(&page, "left", value).await, json!(left), "{what}");
            // A call that runs keeps its place.
            let is_reset = is_found && !rule.is_concurrency();
            assert_eq!(told(&page, "reset", value).await, json!(is_reset), "{what}");
            let left = if is_reset { whole } else { left };
            assert_eq!(told(&page, "left", value).await, json!(left), "{what}");
            assert_eq!(told(&page, "reset", value).await, json!(false), "{what}");
        }
    }
}

#[tokio::test]
async fn a_text_that_stands_for_several_values_is_reset_one_by_one() {
    let rule = KeyedRule::per_hour("/search", 5).except("2001:db8:1:2::", 9);
    let built = Sentinel::builder().rules(rule.id("each"));
    let sentinel = built.clock(ManualClock::new()).build();
    let page = editable(&sentinel, InMemory);
    drop(sentinel.try_enter(Call::new("/search").param(7_u64).batch(1)));
    drop(sentinel.try_enter(Call::new("/search").param("7").batch(2)));
    let left = || {
        let rule = &sentinel.node("/search").unwrap().keyed_rules()[0];
        (rule.left("7"), rule.left(7_u64))
    };
    assert_eq!(told(&page, "left", "7").await, json!(3));
    for (is_reset, after) in [(true, (5, 4)), (true, (5, 5)), (false, (5, 5))] {
        assert_eq!(told(&page, "reset", "7").await, json!(is_reset));
        assert_eq!(left(), after);
    }
    // Of an address that has not called, the quota is that of its network.
    assert_eq!(told(&page, "left", "2001:db8:1:2:3::4").await, json!(9));
}

#[tokio::test(start_paused = true)]
async fn a_number_is_looked_up_and_reset_over_all_replicas() {
    let clock = TokioClock::new();
    let rule = KeyedRule::per_hour("/search", 5).window().shared().exact();
    let built = Sentinel::builder().rules(rule.id("each")).clock(clock);
    let sentinel = built.store(MemoryStore::with_clock(clock)).build();
    let _handle = sentinel.start_store().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let page = editable(&sentinel, InMemory);
    let call = Call::new("/search").param(7_u64).batch(3);
    drop(sentinel.enter(call).await.unwrap());
    for (query, value) in [
        ("left", json!(2)),
        ("reset", json!(true)),
        ("left", json!(5)),
        ("reset", json!(false)),
    ] {
        assert_eq!(told(&page, query, "7").await, value, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_looked_up_and_reset_over_all_replicas() {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    let replica = || {
        let rule = KeyedRule::per_hour("/search", 5).window().shared().exact();
        let built = Sentinel::builder().rules(rule.id("each")).clock(clock);
        let built = built.store(store.clone()).build();
        let handle = built.start_store().unwrap();
        (built, handle)
    };
    let [(one, _here), (two, _there)] = [replica(), replica()];
    tokio::time::sleep(Duration::from_secs(1)).await;
    let page = editable(&one, InMemory);
    let passed = async |sentinel: &Sentinel| {
        let mut passed = 0;
        for _ in 0..10 {
            let call = Call::new("/search").param("ann");
            passed += usize::from(sentinel.enter(call).await.is_ok());
        }
        passed
    };
    let shown = async || {
        // What was read before is shown no more.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let request = post("state").method("GET");
        let state = read(send(&page, request, "").await).await;
        let rule = &state["rules"]["list"][0];
        [rule["resets"].clone(), rule["overflows"].clone()]
    };
    assert_eq!([passed(&one).await, passed(&two).await], [5, 0]);
    assert_eq!(shown().await, [json!(0), Value::Null]);
    let body = json!({ "resource": "/search", "rule": "each", "value": "ann" }).to_string();
    for (query, value) in [
        ("left", json!(0)),
        ("reset", json!(true)),
        ("left", json!(5)),
        ("reset", json!(false)),
    ] {
        let answer = send(&page, post(query), body.clone()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let key = query;
        assert_eq!(read(answer).await, json!({ key: value }), "{query}");
    }
    assert_eq!(shown().await, [json!(1), Value::Null]);
    assert_eq!([passed(&two).await, passed(&one).await], [5, 0]);
    store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answer = send(&page, post("reset"), body).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let why = "the store cannot be reached: it is away";
    assert_eq!(read(answer).await, json!({ "error": why }));
    assert_eq!(shown().await, [json!(1), Value::Null]);
}

#[tokio::test]
async fn the_page_says_where_changes_go_and_what_became_of_the_file() {
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder().rules(SystemRule::new().qps(5));
    let sentinel = sentinel.clock(clock.clone()).build();
    let mut answers = [Ok(Some(five())), Err(SourceError::new("no answer"))].into_iter();
    let watch = Watch::new(sentinel.clone(), from_fn(move || answers.next().unwrap()));
    let page = Page::new(&sentinel).watch("rules.toml", &watch);
    let page = page
        .token(TOKEN)
        .unwrap()
        .edits(RuleFile::toml("rules.toml"))
        .unwrap();
    let state = async || {
        // Past the time for which a state serves all viewers.
        clock.advance(Duration::from_secs(1));
        read(send(&page, post("state").method("GET"), "").await).await
    };
    let told = state().await;
    assert_eq!(told["sources"][0]["name"], "rules.toml");
    assert_eq!(told["sources"][0]["last_poll"], Value::Null);
    assert_eq!(
        told["edits"],
        "Changes are written to rules.toml, whose comments are lost."
    );
    watch.poll_once();
    let told = state().await;
    assert!(told["sources"][0]["last_poll"].as_f64().unwrap() > 1e12);
    assert_eq!(told["sources"][0]["error"], Value::Null);
    assert_eq!(
        (&told["sources"][0]["reloads"], &told["rules"]["version"]),
        (&json!(1), &json!(1))
    );
    assert!(told["rules"]["since"].as_f64().unwrap() > 1e12);
    watch.poll_once();
    assert_eq!(state().await["sources"][0]["error"], "no answer");
}
