//! What the client of a refused call gets over HTTP, and what the service
//! behind the layer does not get.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, Method, Request, Response, StatusCode};
use axum::routing::any;
use bytes::Bytes;
use http_body::Frame;
use hyper::body::Incoming;
use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::{CriticalityHeader, Head, from_fn};
use tower_sentinel::middleware::rejection::{Auto, Http, RateLimitFields, is_refusal};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, BlockKind, Blocked, BoxError, Call, FlowRule, IsolationRule, Key,
    KeyedRule, ManualClock, MissingKey, Rules, SentinelLayer, SystemRule,
};

use crate::support::bench::Bench;
use crate::support::{collect, engine, enter, get, ms, ready};

/// A router that answers everything, behind a layer with `rules` that
/// `configure` completes.
fn app(
    rules: impl Into<Rules>,
    configure: impl FnOnce(SentinelLayer) -> SentinelLayer,
) -> (ManualClock, Router) {
    let Bench { sentinel, clock } = Bench::new(rules);
    let layer = configure(SentinelLayer::with(sentinel));
    let app = Router::new()
        .route("/x", any(|| async { "hello" }))
        .layer(layer);
    (clock, app)
}

async fn ask(app: &Router, request: Request<Body>) -> Response<Bytes> {
    collect(app.clone().oneshot(request).await.unwrap()).await
}

fn field<'a>(response: &'a Response<Bytes>, name: &str) -> Option<&'a str> {
    let value = response.headers().get(name)?;
    Some(value.to_str().unwrap())
}

// === the answer ===

#[tokio::test]
async fn retry_after_is_the_time_at_which_a_call_passes_again() {
    let (clock, app) = app(FlowRule::per("/x", 2, ms(4_000)), |layer| layer);
    clock.advance(ms(2_500)); // 12.5 s
    for _ in 0..2 {
        assert_eq!(ask(&app, get("/x")).await.status(), StatusCode::OK);
    }
    // The bucket from 12 to 14 s leaves the window at 16 s.
    for (elapsed, seconds) in [(0, "4"), (499, "4"), (1, "3"), (2_999, "1")] {
        clock.advance(ms(elapsed));
        let refused = ask(&app, get("/x")).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&refused, "retry-after"), Some(seconds));
    }
    clock.advance(ms(1));
    assert_eq!(ask(&app, get("/x")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_client_is_told_to_retry_only_where_that_can_help() {
    let heavy = |layer: SentinelLayer| layer.weight(|_| 3);
    let plain = |layer: SentinelLayer| layer;
    let refusing = FlowRule::per_second("/x", 5).by_origin();
    let cases = [
        (app(FlowRule::per_second("/x", 0), plain), 429, None),
        (app(FlowRule::per_second("/x", 2), heavy), 429, None),
        (app(IsolationRule::new("/x", 0), plain), 429, None),
        (app(refusing.missing(MissingKey::Refuse), plain), 403, None),
    ];
    for ((_clock, app), status, retry_after) in cases {
        let refused = ask(&app, get("/x")).await;
        assert_eq!(refused.status().as_u16(), status);
        assert_eq!(field(&refused, "retry-after"), retry_after);
    }

    let (_clock, app) = app(IsolationRule::new("/x", 1), plain);
    let _running = app.clone().oneshot(get("/x")).await.unwrap();
    let refused = ask(&app, get("/x")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&refused, "retry-after"), Some("1"));
}

#[tokio::test]
async fn clients_of_a_class_that_gets_idle_workers_only_are_told_different_times() {
    let (seconds, millis) = ("retry-after", "grpc-retry-pushback-ms");
    let Bench { sentinel, clock } = Bench::new(AdaptiveRule::new("/x").burst(Duration::ZERO));
    // The rule learns how long a call takes.
    for _ in 0..500 {
        let running = enter(&sentinel, Call::new("/x")).unwrap();
        clock.advance(ms(20));
        drop(running);
    }
    // Then critical calls alone are too many.
    let mut running = Vec::new();
    while let Ok(entry) = enter(&sentinel, Call::new("/x")) {
        running.push(entry);
    }
    let header = CriticalityHeader::new();
    let layer = SentinelLayer::with(sentinel).criticality(move |head| header.read(head));
    let app = Router::new()
        .route("/x", any(|| async { "hello" }))
        .layer(layer.blocked_in_extensions());
    let cases = [
        ("critical", "text/plain", seconds, "1"),
        ("sheddable", "text/plain", seconds, "2"),
        ("sheddable-plus", "text/plain", seconds, "3"),
        ("sheddable", "text/plain", seconds, "4"),
        ("sheddable", "application/grpc", millis, "5000"),
        ("sheddable-plus", "application/grpc", millis, "2000"),
        ("critical", "application/grpc", millis, "1000"),
    ];
    for (class, media, name, told) in cases {
        let request = Request::get("/x").header("x-criticality", class);
        let request = request.header("content-type", media);
        let refused = ask(&app, request.body(Body::empty()).unwrap()).await;
        assert_eq!(field(&refused, name), Some(told), "{class}");
        // The program is told the same, where the time is known.
        let blocked = refused.extensions().get::<Blocked>().unwrap();
        let known = blocked.retry_after().map(|after| match name {
            "retry-after" => after.as_secs().to_string(),
            _ => after.as_millis().to_string(),
        });
        let is_known = class != "critical";
        assert_eq!(known.as_deref(), is_known.then_some(told), "{blocked:?}");
    }
}

#[tokio::test]
async fn the_body_is_text_or_a_problem_document_as_the_client_accepts() {
    let (_clock, app) = app(FlowRule::per_second("/x", 0), |layer| layer);
    let refused = ask(&app, get("/x")).await;
    assert_eq!(
        field(&refused, "content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(refused.body(), "Too Many Requests");

    let request = Request::get("/x").header("accept", "text/html, application/problem+json");
    let refused = ask(&app, request.body(Body::empty()).unwrap()).await;
    assert_eq!(
        field(&refused, "content-type"),
        Some("application/problem+json")
    );
    let problem: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
    assert_eq!(problem["status"], 429);
    assert_eq!(
        problem["type"],
        "https://iana.org/assignments/http-problem-types#quota-exceeded"
    );
}

/// The answers to GET and to HEAD of a service behind `layer`, over HTTP/2, with no
/// router around that takes bodies away.
async fn get_and_head(layer: &SentinelLayer) -> [Response<Bytes>; 2] {
    let service = layer.layer(service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let (near, far) = tokio::io::duplex(1 << 16);
    let mut server = server::Builder::new(TokioExecutor::new());
    server.auto_date_header(false);
    tokio::spawn(server.serve_connection(TokioIo::new(far), TowerToHyperService::new(service)));
    let client = client::handshake(TokioExecutor::new(), TokioIo::new(near));
    let (mut sender, connection) = client.await.unwrap();
    tokio::spawn(connection);
    let mut ask = async |method| {
        let request = Request::builder().method(method).uri("http://a.example/x");
        let request = request.body(Body::empty()).unwrap();
        collect(sender.send_request(request).await.unwrap()).await
    };
    [ask(Method::GET).await, ask(Method::HEAD).await]
}

#[tokio::test]
async fn who_asks_for_the_head_of_a_refusal_gets_no_more() {
    let layer = SentinelLayer::new(FlowRule::per_second("/x", 0));
    let of_ones_own = |_: Head<'_>, _: &Blocked| Response::new(Bytes::from("no"));
    for (layer, length) in [
        (layer.clone(), "17"),
        (layer.clone().reject(of_ones_own), "2"),
    ] {
        let [whole, head] = get_and_head(&layer).await;
        assert_eq!(whole.body().len().to_string(), length);
        assert_eq!(field(&whole, "content-length"), Some(length));
        assert_eq!(head.status(), whole.status());
        assert_eq!(head.headers(), whole.headers());
        assert!(head.body().is_empty());
    }
}

#[tokio::test]
async fn a_status_without_content_has_none() {
    let layer = SentinelLayer::new(FlowRule::per_second("/x", 0));
    for status in [204, 205, 304].map(|code| StatusCode::from_u16(code).unwrap()) {
        let rejection = Http::new().status(BlockKind::Flow, status);
        for response in get_and_head(&layer.clone().reject(rejection)).await {
            assert_eq!(response.status(), status);
            assert!(response.body().is_empty());
            assert_eq!(field(&response, "content-type"), None);
            assert_eq!(field(&response, "content-length"), None);
        }
    }
}

#[tokio::test]
async fn a_refusal_can_be_answered_by_a_function() {
    let rules = FlowRule::per_second("/x", 0).id("none-at-all");
    let (_clock, app) = app(rules, |layer| {
        layer.reject(|head: Head<'_>, blocked: &Blocked| {
            let text = format!("{} {}: {}", head.method(), head.uri(), blocked.rule());
            let mut response = Response::new(Bytes::from(text));
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response
        })
    });
    let refused = ask(&app, get("/x?y")).await;
    assert_eq!(refused.status(), StatusCode::IM_A_TEAPOT);
    assert_eq!(refused.body(), "GET /x?y: none-at-all");
    assert_eq!(field(&refused, "content-length"), Some("21"));
}

#[tokio::test]
async fn who_answers_an_outbound_refusal_sees_the_name_that_the_call_had() {
    let layer = SentinelLayer::with(engine(FlowRule::per_second("*", 0)).0).outbound();
    let layer = layer.reject(|head: Head<'_>, blocked: &Blocked| {
        assert_eq!(head.resource(), Key::Str(blocked.resource()));
        Response::new(Bytes::from(head.route().to_owned()))
    });
    let app = Router::new()
        .route("/users/{id}", any(|| async { "hello" }))
        .layer(layer);
    // The route is where the request came in, and not where it goes.
    assert_eq!(ask(&app, get("/users/7")).await.body(), "/users/7");
}

#[tokio::test]
async fn the_cause_of_a_refusal_is_in_the_extensions_of_the_response() {
    let (_clock, app) = app(
        FlowRule::per_second("/x", 1).id("one"),
        SentinelLayer::blocked_in_extensions,
    );
    let passed = ask(&app, get("/x")).await;
    assert!(passed.extensions().get::<Blocked>().is_none());
    let refused = ask(&app, get("/x")).await;
    let blocked = refused.extensions().get::<Blocked>().unwrap();
    assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::Flow, "one"));
    assert_eq!((blocked.resource(), blocked.limit()), ("/x", Some(1)));
    assert_eq!(blocked.retry_after(), Some(ms(1_000)));
}

// === by a handler ===

#[tokio::test]
async fn a_handler_that_asks_itself_refuses_as_the_layer_does() {
    let by_origin = FlowRule::per_second("/x", 5).by_origin();
    let cases: [Rules; 4] = [
        FlowRule::per_second("/x", 0).into(),
        FlowRule::per("/x", 0, ms(60_000)).into(),
        by_origin.missing(MissingKey::Refuse).into(),
        SystemRule::new().qps(0).into(),
    ];
    for rules in cases {
        let (_clock, of_layer) = app(rules.clone(), SentinelLayer::blocked_in_extensions);
        let (asked, _clock) = engine(rules);
        let outer = engine(Rules::new()).0;
        let handler = async move || match asked.enter(Call::new("/x")).await {
            Ok(_) => Ok("hello"),
            Err(blocked) => Err::<_, Blocked>(blocked),
        };
        let of_handler = Router::new()
            .route("/x", any(handler))
            .layer(SentinelLayer::with(outer.clone()));

        let expected = ask(&of_layer, get("/x")).await;
        let refused = ask(&of_handler, get("/x")).await;
        assert_ne!(refused.status(), StatusCode::OK);
        assert_eq!(refused.status(), expected.status());
        assert_eq!(refused.headers(), expected.headers());
        assert_eq!(refused.body(), expected.body());
        // So a layer around does not take it for a failure of the service.
        let cause = |response: &Response<Bytes>| response.extensions().get::<Blocked>().cloned();
        assert!(cause(&refused).is_some());
        assert_eq!(cause(&refused), cause(&expected));
        assert_eq!(crate::support::assert_at_rest(&outer, "/x").error(), 0);
    }
}

// === the quota ===

/// Each form, and its field that tells what is left.
const FORMS: [(RateLimitFields, &str); 3] = [
    (RateLimitFields::Ietf, "ratelimit"),
    (RateLimitFields::IetfDraft06, "ratelimit-remaining"),
    (RateLimitFields::Legacy, "x-ratelimit-remaining"),
];

/// The forms of three fields, and how their names begin.
const TRIPLES: [(RateLimitFields, &str); 2] = [
    (RateLimitFields::IetfDraft06, "ratelimit-"),
    (RateLimitFields::Legacy, "x-ratelimit-"),
];

#[tokio::test]
async fn the_older_fields_tell_every_client_what_is_left() {
    for (fields, start) in TRIPLES {
        let (clock, app) = app(FlowRule::per("/x", 2, ms(4_000)), |layer| {
            let http = Http::new().fields(fields);
            layer.fields(fields).reject(Auto::new().http(http))
        });
        // From 10 s on, the start of a bucket of two seconds: what it holds leaves the
        // window at 14 s, and the refused call would pass then.
        let cases = [
            (0, 200, "1", "4"),
            (1_500, 200, "0", "3"),
            (0, 429, "0", "3"),
        ];
        for (elapsed, status, remaining, reset) in cases {
            clock.advance(ms(elapsed));
            let response = ask(&app, get("/x")).await;
            assert_eq!(response.status().as_u16(), status);
            let told = ["limit", "remaining", "reset"].map(|end| format!("{start}{end}"));
            let told = told.each_ref().map(|name| field(&response, name));
            assert_eq!(
                told,
                ["2", remaining, reset].map(Some),
                "{fields:?} {status}"
            );
            // Nothing in another form.
            let names = response.headers().keys().map(HeaderName::as_str);
            let names = names.filter(|name| name.contains("ratelimit"));
            assert_eq!(names.count(), 3, "{fields:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_waits_for_the_reset_of_a_response_passes() {
    let seconds = ms(10_000);
    let cases: [Rules; 8] = [
        KeyedRule::per_calendar_day("/x", 3).into(),
        FlowRule::per_calendar_day("/x", 3).into(),
        FlowRule::per("/x", 3, seconds).into(),
        FlowRule::per("/x", 3, seconds).buckets(5).into(),
        FlowRule::per("/x", 3, seconds).by_origin().into(),
        KeyedRule::per("/x", 3, seconds).window().into(),
        KeyedRule::per("/x", 3, seconds).into(),
        KeyedRule::per("/x", 3, seconds).throttle(ms(0)).into(),
    ];
    for rules in cases {
        let fields = RateLimitFields::IetfDraft06;
        let (clock, app) = app(rules.clone(), |layer| layer.fields(fields));
        clock.advance(ms(700));
        let mut waits = 0;
        for _ in 0..50 {
            let response = ask(&app, get("/x")).await;
            assert_eq!(response.status(), StatusCode::OK, "{rules:?}");
            let number = |name| field(&response, name).unwrap().parse::<u64>().unwrap();
            let is_empty = number("ratelimit-remaining") == 0;
            waits += usize::from(is_empty);
            // With something left, no call has to wait.
            let reset = ms(number("ratelimit-reset") * 1_000);
            clock.advance(if is_empty { reset } else { ms(900) });
        }
        assert!(waits > 5, "{rules:?}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the field is defined by wall time"
)]
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[tokio::test]
async fn a_reset_in_unix_time_is_never_early() {
    let fields = RateLimitFields::LegacyUnixTime;
    let (_clock, app) = app(FlowRule::per("/x", 1, ms(60_000)), |layer| {
        layer.fields(fields).reject(Http::new().fields(fields))
    });
    // The wait of 50 s ends with the second that is told, or within it.
    for status in [200, 429] {
        let before = unix_time();
        let response = ask(&app, get("/x")).await;
        let after = unix_time();
        assert_eq!(response.status().as_u16(), status);
        let told = field(&response, "x-ratelimit-reset").unwrap();
        let told = Duration::from_secs(told.parse().unwrap());
        let wait = Duration::from_secs(50);
        assert!(before + wait <= told, "{before:?} {told:?}");
        assert!(
            told < after + wait + Duration::from_secs(1),
            "{told:?} {after:?}"
        );
    }
}

#[tokio::test]
async fn nobody_is_told_more_than_the_limit() {
    let rule = KeyedRule::per_second("/x", 2).burst(2);
    let (_clock, app) = app(rule, |layer| layer.fields(RateLimitFields::Legacy));
    for left in ["2", "2", "1", "0"] {
        let response = ask(&app, get("/x")).await;
        assert_eq!(field(&response, "x-ratelimit-limit"), Some("2"));
        assert_eq!(field(&response, "x-ratelimit-remaining"), Some(left));
    }
}

#[tokio::test]
async fn a_rate_below_one_is_told_as_one_call_in_the_time_that_it_takes() {
    let of_values = |threshold| KeyedRule::per_second("/x", threshold).id("slow");
    let of_all = FlowRule::per_second("/x", 0.25).throttle(ms(0)).id("slow");
    let once = Some("\"slow\";r=0;t=2");
    let cases: [(Rules, _, [Option<&str>; 2]); 4] = [
        // It begins with one and a half.
        (
            of_values(0.5).burst(1).into(),
            "q=1;w=2",
            [Some("\"slow\";r=0;t=1"); 2],
        ),
        (of_values(0.5).throttle(ms(0)).into(), "q=1;w=2", [once; 2]),
        (
            of_values(7.0).throttle(ms(0)).except("-", 0.5).into(),
            "q=1;w=2",
            [once; 2],
        ),
        // A queue tells nothing to who passes.
        (of_all.into(), "q=1;w=4", [None, Some("\"slow\";r=0;t=4")]),
    ];
    for (rules, policy, told) in cases {
        let fields = RateLimitFields::Ietf;
        let (_clock, app) = app(rules.clone(), |layer| {
            layer.fields(fields).reject(Http::new().fields(fields))
        });
        for told in told {
            let response = ask(&app, get("/x")).await;
            assert_eq!(field(&response, "ratelimit"), told, "{rules:?}");
            let policy = told.map(|_| format!("\"slow\";{policy}"));
            assert_eq!(field(&response, "ratelimit-policy"), policy.as_deref());
        }
    }
}

#[tokio::test]
async fn a_limit_of_calls_at_once_is_not_told_as_a_rate() {
    let at_once = KeyedRule::concurrency("/x", 3).id("at once");
    let rate = FlowRule::per("/x", 10, ms(60_000)).id("rate");
    let fields = |layer: SentinelLayer| layer.fields(RateLimitFields::Ietf);
    let (_clock, alone) = app(at_once.clone(), fields);
    let response = ask(&alone, get("/x")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(field(&response, "ratelimit-policy"), None);
    // Nor does it stand before one that is a rate, which has more left. At 10 s: the
    // bucket leaves the window at 60 s.
    let (_clock, both) = app(Rules::new().with(at_once).with(rate), fields);
    let response = ask(&both, get("/x")).await;
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some("\"rate\";q=10;w=60")
    );
    assert_eq!(field(&response, "ratelimit"), Some("\"rate\";r=9;t=50"));
}

#[tokio::test]
async fn a_refusal_tells_that_nothing_is_left_and_when_the_call_passes() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/x", 3).id("short"))
        .with(FlowRule::per("/x", 4, ms(60_000)).id("long"));
    let fields = RateLimitFields::Ietf;
    let (_clock, app) = app(rules, |layer| {
        let layer = layer.weight(|head| head.uri().query().unwrap().parse().unwrap());
        layer.fields(fields).reject(Http::new().fields(fields))
    });
    // Each by the rule that refuses. At 10 s: of the long one a bucket leaves at 60 s.
    let cases = [
        ("2", 200, "\"short\";r=1;t=1", None),
        // One is left.
        ("2", 429, "\"short\";r=0;t=1", Some("1")),
        // The long one has no room either.
        ("3", 429, "\"short\";r=0;t=50", Some("50")),
        ("4", 429, "\"short\";r=0;t=1", None),
        ("1", 200, "\"short\";r=0;t=1", None),
    ];
    for (weight, status, told, retry_after) in cases {
        let response = ask(&app, get(&format!("/x?{weight}"))).await;
        assert_eq!(response.status().as_u16(), status, "{weight}");
        assert_eq!(field(&response, "ratelimit"), Some(told), "{weight}");
        assert_eq!(field(&response, "retry-after"), retry_after, "{weight}");
    }
}

#[tokio::test]
async fn of_a_queue_and_of_another_resource_nothing_is_told_to_who_passes() {
    let fields = RateLimitFields::Ietf;
    for rule in [
        FlowRule::per_second("/x", 1).throttle(ms(0)),
        FlowRule::per_second("/x", 2).when("/y"),
    ] {
        let Bench { sentinel, .. } = Bench::new(rule);
        drop(enter(&sentinel, Call::new("/y")).unwrap());
        let layer = SentinelLayer::with(sentinel.clone()).fields(fields);
        let app = Router::new()
            .route("/x", any(|| async { "hello" }))
            .layer(layer.reject(Http::new().fields(fields)));
        let response = ask(&app, get("/x")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(field(&response, "ratelimit"), None);
        // A refusal names the rule that refuses, whichever it is.
        drop(enter(&sentinel, Call::new("/y")));
        let response = ask(&app, get("/x")).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&response, "ratelimit"), Some("\"flow-0\";r=0;t=1"));
    }
}

/// One layer for each route within one for all routes, over the same engine.
#[tokio::test]
async fn of_two_layers_a_client_is_told_the_tightest_quota() {
    for (fields, name) in FORMS {
        let rules = Rules::new()
            .with(FlowRule::per("/x", 3, ms(60_000)).id("route"))
            .with(FlowRule::per("all", 6, ms(60_000)).id("all"));
        let Bench { sentinel, .. } = Bench::new(rules);
        let layer = || {
            let layer = SentinelLayer::with(sentinel.clone()).fields(fields);
            layer.reject(Http::new().fields(fields))
        };
        let app = Router::new()
            .route("/x", any(|| async { "hello" }))
            .route("/y", any(|| async { "hello" }))
            .layer(layer())
            .layer(layer().resource(from_fn(|_| Some(Key::Str("all")))));

        // At 10 s: the bucket leaves the window at 60 s.
        let cases = [
            ("/x", 200, "\"route\";r=2;t=50"),
            ("/x", 200, "\"route\";r=1;t=50"),
            ("/y", 200, "\"all\";r=3;t=50"),
            ("/x", 200, "\"route\";r=0;t=50"),
            // The inner layer refuses, and one is left of the outer one's.
            ("/x", 429, "\"route\";r=0;t=50"),
            ("/y", 200, "\"all\";r=0;t=50"),
            ("/y", 429, "\"all\";r=0;t=50"),
        ];
        for (path, status, told) in cases {
            let response = ask(&app, get(path)).await;
            assert_eq!(response.status().as_u16(), status, "{path}");
            let told = match fields {
                RateLimitFields::Ietf => told,
                _ => &told[told.find("r=").unwrap() + 2..][..1],
            };
            assert_eq!(field(&response, name), Some(told), "{path}");
            if status == 429 {
                assert_eq!(field(&response, "retry-after"), Some("50"), "{path}");
            }
        }
    }
}

#[tokio::test]
async fn of_two_layers_the_outer_one_tells_of_its_quota_if_the_inner_one_tells_of_none() {
    let rules = Rules::new()
        .with(FlowRule::per_second("/x", 0))
        .with(FlowRule::per("all", 6, ms(60_000)).id("all"));
    let Bench { sentinel, .. } = Bench::new(rules);
    let layer = || SentinelLayer::with(sentinel.clone());
    let outer = layer().fields(RateLimitFields::Ietf);
    let app = Router::new()
        .route("/x", any(|| async { "hello" }))
        .layer(layer())
        .layer(outer.resource(from_fn(|_| Some(Key::Str("all")))));
    let response = ask(&app, get("/x")).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&response, "ratelimit"), Some("\"all\";r=5;t=50"));
}

#[tokio::test]
async fn of_two_layers_the_outer_one_tells_of_no_larger_quota_in_other_fields() {
    let pairs = FORMS.map(|inner| FORMS.map(|outer| (inner, outer)));
    let pairs = pairs.as_flattened().iter();
    for ((inner, inner_name), (outer, outer_name)) in pairs.filter(|(one, other)| one != other) {
        let rules = Rules::new()
            .with(FlowRule::per_second("/x", 1))
            .with(FlowRule::per_second("all", 9));
        let Bench { sentinel, .. } = Bench::new(rules);
        let layer = |fields: &RateLimitFields| {
            let layer = SentinelLayer::with(sentinel.clone()).fields(*fields);
            layer.reject(Http::new().fields(*fields))
        };
        let app = Router::new()
            .route("/x", any(|| async { "hello" }))
            .layer(layer(inner))
            .layer(layer(outer).resource(from_fn(|_| Some(Key::Str("all")))));
        // The first takes the last token, and the second is refused.
        for status in [200, 429] {
            let response = ask(&app, get("/x")).await;
            assert_eq!(response.status(), status);
            assert!(field(&response, inner_name).is_some());
            assert_eq!(field(&response, outer_name), None, "{status}");
        }
    }
}

#[tokio::test]
async fn what_an_upstream_says_of_an_empty_quota_reaches_the_client() {
    let [ietf, draft, legacy] = FORMS;
    let own = "\"own\";r=99;t=50";
    let cases = [
        (ietf, "\"up\";r=0;t=60", "\"up\";r=0;t=60"),
        (
            ietf,
            "\"a\";r=7, \"up\";t=60; r=0",
            "\"a\";r=7, \"up\";t=60; r=0",
        ),
        (ietf, "\"up\";r=7;t=60", own),
        (ietf, "\"up\";r=01;t=60", own),
        (ietf, "\",;r=0;\";r=7;t=60", own),
        (draft, "0", "0"),
        (draft, "7", "99"),
        (legacy, "0", "0"),
        (legacy, "7", "99"),
    ];
    for ((fields, name), sent, told) in cases {
        let rule = FlowRule::per("/x", 100, ms(60_000)).id("own");
        // Of the layers of two engines the outer one replaces it no more than the inner one.
        let layer = || {
            let Bench { sentinel, .. } = Bench::new(rule.clone());
            SentinelLayer::with(sentinel).fields(fields)
        };
        let app = Router::new()
            .route("/x", any(async move || [(name, sent)]))
            .layer(layer())
            .layer(layer());
        let response = ask(&app, get("/x")).await;
        assert_eq!(field(&response, name), Some(told), "{sent}");
    }
}

#[tokio::test]
async fn by_default_nobody_is_told_of_a_rule_a_limit_or_a_key() {
    let hour = ms(3_600_000);
    let rules: [Rules; 4] = [
        FlowRule::per("/x", 4_321, hour).id("secret rule").into(),
        FlowRule::per("/x", 4_321, hour)
            .by_origin()
            .id("secret rule")
            .into(),
        KeyedRule::per("/x", 4_321, hour)
            .by_origin()
            .id("secret rule")
            .into(),
        SystemRule::new().qps(4_321).id("secret rule").into(),
    ];
    let fields = [
        ("accept", "*/*"),
        ("accept", "application/problem+json"),
        ("content-type", "application/grpc"),
    ];
    for rules in rules {
        for (name, value) in fields {
            let (_clock, app) = app(rules.clone(), |layer| {
                let origin = from_fn(|_| Some(Key::Str("secret key")));
                layer
                    .origin(origin)
                    .weight(|_| 4_321)
                    .blocked_in_extensions()
            });
            for is_refused in [false, true] {
                let request = Request::get("/x").header(name, value);
                let response = ask(&app, request.body(Body::empty()).unwrap()).await;
                let blocked = response.extensions().get::<Blocked>();
                assert_eq!(blocked.is_some(), is_refused);
                let told = format!("{:?} {:?}", response.headers(), response.body());
                for secret in ["ratelimit", "secret", "4321"] {
                    assert!(!told.contains(secret), "{told}");
                }
            }
        }
    }
}

// === the service behind ===

/// A request body that must not be read.
struct Untouchable;

impl http_body::Body for Untouchable {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        panic!("the body of a refused request was read")
    }
}

async fn serve(_: Bytes) -> StatusCode {
    panic!("a refused request was served")
}

#[tokio::test]
async fn a_refused_request_reaches_no_service_and_its_body_is_not_read() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 0));
    let app = Router::new()
        .route("/x", any(serve))
        .layer(SentinelLayer::with(sentinel));
    let request = Request::post("/x").body(Body::new(Untouchable)).unwrap();
    let refused = ask(&app, request).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn an_outer_layer_does_not_count_a_refusal_as_a_failure() {
    // Refused for want of a key with 503, which from a service were a failure.
    let inner = FlowRule::per_second("/x", 5).by_origin();
    let (inner, _clock) = engine(inner.missing(MissingKey::Refuse));
    let status = Http::new().status(BlockKind::MissingKey, StatusCode::SERVICE_UNAVAILABLE);
    let inner = SentinelLayer::with(inner)
        .origin(from_fn(|head| head.uri().query().map(Key::Str)))
        .reject(Auto::new().http(status));
    let outer = engine(Rules::new()).0;
    let app = Router::new()
        .route("/x", any(|| async { StatusCode::SERVICE_UNAVAILABLE }))
        .layer(inner)
        .layer(SentinelLayer::with(outer.clone()));

    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    assert_eq!(ask(&app, get("/x")).await.status(), unavailable);
    let totals = crate::support::assert_at_rest(&outer, "/x");
    assert_eq!((totals.complete(), totals.error()), (1, 0));
    // The same answer from the service itself is one.
    assert_eq!(ask(&app, get("/x?me")).await.status(), unavailable);
    assert_eq!(crate::support::assert_at_rest(&outer, "/x").error(), 1);
}

#[test]
fn an_outer_layer_takes_no_refusal_of_an_inner_one_for_a_failure() {
    let outer = engine(Rules::new()).0;
    let inner = [
        Rules::from(FlowRule::per_second("/x", 0)),
        Rules::from(SystemRule::new().qps(0)),
        Rules::from(AuthorityRule::allow("/x", ["nobody"])),
    ];
    for (rules, status) in inner.into_iter().zip([429, 503, 403]) {
        let own = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let inner = SentinelLayer::with(engine(rules).0)
            .origin(from_fn(|_| Some(Key::Str("somebody"))))
            .layer(own);
        let around = SentinelLayer::with(outer.clone()).layer(inner);
        let request = Request::get("/x").body(()).unwrap();
        let refused = ready(around.oneshot(request)).unwrap();
        assert_eq!(refused.status().as_u16(), status);
        assert!(is_refusal(&refused) && refused.extensions().get::<Blocked>().is_none());
    }
    let totals = outer.node("/x").unwrap().totals();
    assert_eq!((totals.complete(), totals.error()), (3, 0));
}
