//! Limits on what calls turn out to cost, through layers: what the service and the client are handed,
//! and what is charged however a call ends.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get as on_get;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::middleware::{CallLayer, Completion, ResponseBody};
use tower_sentinel::read::BudgetSnapshot;
use tower_sentinel::stat::Outcome;
use tower_sentinel::{
    BoxError, Call, FlowRule, IsolationRule, Meter, Rules, Sentinel, SentinelLayer,
};

use crate::support::{
    Rng, Server, assert_at_rest, collect, engine, eventually, get, poll_now, send,
};

const CHAT: &str = "/chat";

fn tokens() -> FlowRule {
    FlowRule::per_minute(CHAT, 1_000).cost("tokens").id("tpm")
}

/// The layer of an engine, which reserves 40 tokens for each request.
fn layer(sentinel: &Sentinel) -> SentinelLayer {
    SentinelLayer::with(sentinel.clone()).reserve("tokens", |_| 40)
}

#[track_caller]
fn budget(sentinel: &Sentinel) -> BudgetSnapshot {
    let budgets = sentinel.node(CHAT).expect("it has been called").budgets();
    budgets.into_iter().next().expect("a rule limits costs")
}

/// What is charged, what is reserved, and how many calls told no cost.
#[track_caller]
fn state(sentinel: &Sentinel) -> (u32, u32, u64) {
    let budget = budget(sentinel);
    (budget.used(), budget.reserved(), budget.untold_total())
}

fn meter_of<B>(request: &Request<B>) -> Meter {
    let meter = request.extensions().get().expect("a rule limits costs");
    Meter::clone(meter)
}

/// A body of these parts, of which only `None` fails.
fn parts(parts: Vec<Option<&'static str>>) -> Body {
    let frame = |part: Option<&'static str>| match part {
        Some(text) => Ok(Frame::data(Bytes::from_static(text.as_bytes()))),
        None => Err(BoxError::from("it broke off")),
    };
    Body::new(StreamBody::new(stream::iter(parts.into_iter().map(frame))))
}

fn counted(meter: Meter, body: Body) -> Body {
    Body::new(body.map_frame(move |frame| {
        if frame.is_data() {
            meter.charge("tokens", 3);
        }
        frame
    }))
}

// === what is handed on ===

#[tokio::test]
async fn a_service_gets_a_meter_where_a_rule_limits_costs_and_nowhere_else() {
    let rules = Rules::new()
        .with(tokens())
        .with(FlowRule::per_minute("/plain", 9));
    let (sentinel, _clock) = engine(rules);
    let service = layer(&sentinel).layer(service_fn(|request: Request<Body>| async move {
        let has_meter = request.extensions().get::<Meter>().is_some();
        Ok::<_, Infallible>(Response::new(Body::from(has_meter.to_string())))
    }));
    for (path, expected) in [(CHAT, "true"), ("/plain", "false"), ("/other", "false")] {
        let response = collect(service.clone().oneshot(get(path)).await.unwrap()).await;
        assert!(response.extensions().get::<Meter>().is_none());
        assert_eq!(response.into_body(), expected, "{path}");
    }
    // It is gone with the request, although nobody has told anything.
    assert_eq!(state(&sentinel), (40, 0, 1));
}

#[tokio::test]
async fn a_handler_of_axum_always_gets_a_meter() {
    let (sentinel, _clock) = engine(tokens());
    let handler = async |meter: Meter| {
        assert!(meter.charge("tokens", 7));
        meter.settle("tokens", 9);
    };
    let app = Router::new()
        .route(CHAT, on_get(handler))
        .route("/free", on_get(handler))
        .layer(layer(&sentinel))
        .route("/bare", on_get(handler));
    for path in [CHAT, "/free", "/bare"] {
        let response = app.clone().oneshot(get(path)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
    }
    assert_eq!(state(&sentinel), (9, 0, 0));
}

#[tokio::test]
async fn what_each_unit_may_cost_is_read_from_the_request() {
    let rules = Rules::new()
        .with(tokens())
        .with(FlowRule::per_minute(CHAT, 10).cost("rows").id("rows"));
    let (sentinel, _clock) = engine(rules);
    let number = |head: tower_sentinel::key::Head<'_>, name: &str| {
        let value = head
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok());
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    let layer = SentinelLayer::with(sentinel.clone())
        .reserve("tokens", |_| 1_001)
        .reserve("rows", move |head| number(head, "x-rows"))
        // The last one counts.
        .reserve("tokens", move |head| number(head, "x-tokens"))
        .param(tower_sentinel::key::Path)
        .param(tower_sentinel::key::Path);
    let service = layer.layer(service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    }));
    let request = |tokens: &str, rows: &str| {
        let request = Request::get(CHAT)
            .header("x-tokens", tokens)
            .header("x-rows", rows);
        service
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
    };
    let running = request("900", "7").await.unwrap();
    let budgets = sentinel.node(CHAT).unwrap().budgets();
    let reserved: Vec<_> = budgets.iter().map(BudgetSnapshot::reserved).collect();
    assert_eq!(reserved, [900, 7]);
    for (tokens, rows, status) in [("101", "0", 429), ("0", "4", 429), ("100", "3", 200)] {
        let response = request(tokens, rows).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{tokens} {rows}");
    }
    drop(running);
    assert_at_rest(&sentinel, CHAT);
}

#[test]
#[should_panic(expected = "a layer reserves of at most 8 units")]
fn a_ninth_unit_is_one_too_many() {
    let mut layer = SentinelLayer::new(Rules::new());
    for n in 0..9 {
        layer = layer.reserve(format!("unit-{n}"), |_| 1);
    }
}

#[tokio::test]
async fn layers_within_each_other_are_told_by_one_meter() {
    let rules = Rules::new()
        .with(tokens())
        .with(FlowRule::per_minute("api", 1_000).cost("tokens"));
    let (sentinel, _clock) = engine(rules);
    let service = service_fn(|request: Request<Body>| async move {
        let meter = meter_of(&request);
        assert!(meter.charge("tokens", 5));
        Ok::<_, Infallible>(Response::new(counted(
            meter,
            parts(vec![Some("a"), Some("b")]),
        )))
    });
    let outbound = |name| layer(&sentinel).named(name).outbound();
    let inside = layer(&sentinel).named(CHAT).layer(service);
    let outside = layer(&sentinel).named("api").layer(inside);
    let response = collect(outside.oneshot(get("/")).await.unwrap()).await;
    assert!(response.extensions().get::<Meter>().is_none());
    let used = |name| sentinel.node(name).unwrap().budgets()[0].used();
    assert_eq!((used(CHAT), used("api")), (11, 11));
    // Outbound: the client's meter, which comes with the response, tells both as well.
    let plain = service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    });
    let client = outbound("api").layer(outbound(CHAT).layer(plain));
    let mut response = client.oneshot(get("/")).await.unwrap();
    let meter = response
        .extensions_mut()
        .remove::<Meter>()
        .expect("it is outbound");
    meter.settle("tokens", 4);
    meter.left("tokens", 9, Duration::from_secs(1));
    drop((meter, response));
    for name in [CHAT, "api"] {
        let budgets = sentinel.outbound_node(name).unwrap().budgets();
        assert_eq!((budgets[0].used(), budgets[0].reserved()), (4, 0), "{name}");
        assert_eq!(budgets[0].left(), 9, "{name}");
    }
}

#[tokio::test]
async fn an_outbound_call_that_an_inbound_one_makes_does_not_charge_that() {
    let rules = Rules::new()
        .with(tokens())
        .with(FlowRule::per_minute("provider", 1_000).cost("tokens"));
    let (sentinel, _clock) = engine(rules);
    let provider = service_fn(|request: Request<Body>| async move {
        meter_of(&request).settle("tokens", 30);
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let client = layer(&sentinel)
        .named("provider")
        .outbound()
        .layer(provider);
    // A proxy that passes its request on as it is.
    let proxy = layer(&sentinel).layer(service_fn(move |request: Request<Body>| {
        let (meter, client) = (meter_of(&request), client.clone());
        async move {
            let response = client.oneshot(request).await?;
            meter.settle("tokens", 33);
            Ok::<_, Infallible>(response.map(Body::new))
        }
    }));
    drop(proxy.oneshot(get(CHAT)).await.unwrap());
    assert_eq!(state(&sentinel), (33, 0, 0));
    let outbound = sentinel.outbound_node("provider").unwrap().budgets();
    assert_eq!((outbound[0].used(), outbound[0].reserved()), (30, 0));
}

// === what heads and bodies say ===

#[tokio::test]
async fn the_head_of_a_response_says_what_it_cost() {
    let (sentinel, _clock) = engine(tokens());
    let read = |name: &'static str| {
        move |head: tower_sentinel::middleware::ResponseHead<'_>| {
            head.headers().get(name)?.to_str().ok()?.parse().ok()
        }
    };
    let used = || {
        let node = sentinel.node(CHAT);
        node.map_or(0, |node| node.budgets()[0].used())
    };
    for at_head in [false, true] {
        let layer = layer(&sentinel)
            .cost("tokens", read("x-input"))
            .cost("tokens", read("x-total"))
            .cost("rows", read("x-total"))
            .completion(if at_head {
                Completion::Head
            } else {
                Completion::Body
            });
        let service = layer.layer(service_fn(|request: Request<Body>| async move {
            let mut response = Response::new(Body::from("hello"));
            *response.headers_mut() = request.headers().clone();
            Ok::<_, Infallible>(response)
        }));
        for (input, total, charged) in [
            (Some("3"), Some("17"), 17),
            (Some("3"), None, 3),
            (Some("9"), Some("4"), 9),
            (None, Some("0"), 0),
            (None, Some("x"), 40),
        ] {
            let before = used();
            let mut request = get(CHAT);
            for (name, value) in [("x-input", input), ("x-total", total)] {
                if let Some(value) = value {
                    request.headers_mut().insert(name, value.parse().unwrap());
                }
            }
            drop(service.clone().oneshot(request).await.unwrap());
            assert_eq!(used() - before, charged, "{input:?} {total:?}");
        }
    }
    assert_at_rest(&sentinel, CHAT);
}

fn status(status: StatusCode) -> Response<Body> {
    let response = Response::builder().status(status);
    response.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_body_is_charged_by_its_bytes() {
    let each = |bytes| NonZeroU32::new(bytes).unwrap();
    // How far the body is read, of its parts; what is charged; what is untold.
    for (read, whole, charged, untold) in [
        (9, vec![Some("0123456789"), Some("01234"), Some("")], 4, 0),
        (1, vec![Some("0123456789"), Some("01234")], 3, 0),
        (2, vec![Some("0123"), Some("4567")], 2, 0),
        (0, vec![Some("0123")], 40, 1),
        (9, vec![], 0, 0),
        (9, vec![Some("0123456789"), None], 3, 0),
        // A body that fails before its first byte costs nothing.
        (9, vec![None], 0, 0),
        (
            9,
            vec![Some("012345678901234567890123456789012345678901234567890")],
            13,
            0,
        ),
    ] {
        let name = format!("{read} of {whole:?}");
        let (sentinel, _clock) = engine(tokens());
        let layer = layer(&sentinel)
            .cost_of_body("tokens", each(100))
            .cost_of_body("tokens", each(4))
            .cost_of_body("other", each(1));
        let service = layer.layer(service_fn(move |_: Request<Body>| {
            let body = parts(whole.clone());
            async { Ok::<_, Infallible>(Response::new(body)) }
        }));
        let mut body = service.oneshot(get(CHAT)).await.unwrap().into_body();
        for _ in 0..read {
            if !matches!(body.frame().await, Some(Ok(_))) {
                break;
            }
        }
        drop(body);
        assert_eq!(state(&sentinel), (charged, 0, untold), "{name}");
        assert_at_rest(&sentinel, CHAT);
    }
}

#[tokio::test]
async fn nobody_follows_the_bytes_behind_an_upgrade_or_a_head_that_ends_the_call() {
    let four = NonZeroU32::new(4).unwrap();
    for (code, completion, used) in [
        (200, Completion::Body, 0),
        (101, Completion::Body, 40),
        (200, Completion::Head, 40),
    ] {
        let (sentinel, _clock) = engine(tokens());
        let layer = layer(&sentinel)
            .cost_of_body("tokens", four)
            .completion(completion);
        let service = layer.layer(service_fn(move |_: Request<Body>| async move {
            Ok::<_, Infallible>(status(StatusCode::from_u16(code).unwrap()))
        }));
        drop(service.oneshot(get(CHAT)).await.unwrap());
        assert_eq!(budget(&sentinel).used(), used, "{code} {completion:?}");
    }
}

#[tokio::test]
async fn answers_of_any_type_say_what_they_cost() {
    let (sentinel, _clock) = engine(tokens());
    let layer = CallLayer::with(sentinel.clone(), |_: &Result<u32, &'static str>| {
        Call::new(CHAT).reserve("tokens", 40)
    })
    .cost("tokens", |n: &u32| n.checked_sub(1))
    .classify(|answer: Result<&u32, &BoxError>| match answer {
        Ok(7) | Err(_) => Outcome::Failure,
        Ok(_) => Outcome::Success,
    })
    .cost("tokens", |n: &u32| Some(n / 2).filter(|_| *n > 0));
    let service = layer.layer(service_fn(async |answer: Result<u32, &'static str>| {
        answer.map_err(BoxError::from)
    }));
    let mut used = 0;
    for (answer, cost) in [
        (Ok(10), 9),
        (Ok(1), 0),
        (Ok(0), 40),
        (Ok(7), 6),
        (Err("down"), 0),
    ] {
        assert_eq!(service.clone().oneshot(answer).await.ok(), answer.ok());
        used += cost;
        assert_eq!(budget(&sentinel).used(), used, "{answer:?}");
    }
    assert_at_rest(&sentinel, CHAT);
}

// === however a call ends ===

/// What a service behind a layer does with a request.
type Work = Arc<dyn Fn(Request<Body>) -> Result<Response<Body>, BoxError> + Send + Sync>;

/// What comes of a call by `work` of which `end` does the rest, where 40 are reserved.
#[track_caller]
fn after(
    name: &str,
    work: Work,
    end: impl FnOnce(Response<ResponseBody<Body>>),
) -> (u32, u32, u64) {
    let (sentinel, _clock) = engine(tokens());
    let service = layer(&sentinel).layer(service_fn(move |request| {
        let answer = work(request);
        async { answer }
    }));
    let answer = catch_unwind(AssertUnwindSafe(|| {
        service.oneshot(get(CHAT)).now_or_never()
    }));
    if let Ok(Some(Ok(response))) = answer {
        end(response);
    }
    assert_at_rest(&sentinel, CHAT);
    assert_eq!(sentinel.node(CHAT).unwrap().totals().pass(), 1, "{name}");
    state(&sentinel)
}

fn whole(response: Response<ResponseBody<Body>>) {
    let _ = response
        .into_body()
        .collect()
        .now_or_never()
        .expect("it is there");
}

fn first_frame(response: Response<ResponseBody<Body>>) {
    let mut body = response.into_body();
    let frame = body.frame().now_or_never().expect("it is there");
    assert!(frame.is_some_and(|frame| frame.is_ok()));
}

type Ends = fn(Response<ResponseBody<Body>>);

#[test]
fn a_call_through_a_layer_is_charged_however_it_ends() {
    fn answers(work: impl Fn(Meter) -> Response<Body> + Send + Sync + 'static) -> Work {
        Arc::new(move |request| Ok(work(meter_of(&request))))
    }
    let settles = answers(|meter| {
        meter.settle("tokens", 7);
        Response::new(Body::from("hello"))
    });
    let settles_and_fails = answers(|meter| {
        meter.settle("tokens", 7);
        status(StatusCode::BAD_GATEWAY)
    });
    let charges = answers(|meter| Response::new(counted(meter, parts(vec![Some("a"), Some("b")]))));
    let breaks = answers(|meter| Response::new(counted(meter, parts(vec![Some("a"), None]))));
    let says_nothing = answers(|_| Response::new(parts(vec![Some("a"), Some("b")])));
    let breaks_silently = answers(|_| Response::new(parts(vec![None])));
    let is_broken = answers(|_| status(StatusCode::BAD_GATEWAY));
    let has_no_answer: Work = Arc::new(|_| Err("down".into()));
    let panics: Work = Arc::new(|_| std::panic::panic_any("a bug"));
    let panics_after: Work = Arc::new(|request| {
        meter_of(&request).charge("tokens", 5);
        std::panic::panic_any("a bug")
    });
    let cases: [(&str, &Work, Ends, u32, u64); 15] = [
        ("settled", &settles, whole, 7, 0),
        ("settled, and dropped", &settles, drop, 7, 0),
        ("settled, and failed", &settles_and_fails, whole, 7, 0),
        ("charged", &charges, whole, 6, 0),
        (
            "charged, and dropped on the way",
            &charges,
            first_frame,
            3,
            0,
        ),
        ("charged, and broken off", &breaks, whole, 3, 0),
        ("dropped before it was charged", &charges, drop, 40, 1),
        ("untold", &says_nothing, whole, 40, 1),
        (
            "untold, and dropped on the way",
            &says_nothing,
            first_frame,
            40,
            1,
        ),
        ("untold, and dropped", &says_nothing, drop, 40, 1),
        ("untold, and broken off", &breaks_silently, whole, 0, 0),
        ("failed", &is_broken, whole, 0, 0),
        ("an error", &has_no_answer, drop, 0, 0),
        ("a panic", &panics, drop, 0, 0),
        ("a panic after a charge", &panics_after, drop, 5, 0),
    ];
    for (name, work, end, charged, untold) in cases {
        let found = after(name, work.clone(), end);
        assert_eq!(found, (charged, 0, untold), "{name}");
    }
}

#[test]
fn a_panic_while_the_head_is_read_leaves_nothing_reserved() {
    let (sentinel, _clock) = engine(tokens());
    let layer = layer(&sentinel).cost("tokens", |_| std::panic::panic_any("a bug"));
    let service = layer.layer(service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(Body::from("hello")))
    }));
    let call = AssertUnwindSafe(|| service.oneshot(get(CHAT)).now_or_never());
    assert!(catch_unwind(call).is_err());
    assert_eq!(state(&sentinel), (0, 0, 0));
    assert_eq!(assert_at_rest(&sentinel, CHAT).panicked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_charged_only_where_it_runs() {
    let rules = Rules::new()
        .with(tokens())
        .with(IsolationRule::new(CHAT, 1).queue(Duration::from_secs(9)));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(tower_sentinel::clock::TokioClock::new())
        .build();
    let mut service = layer(&sentinel).layer(service_fn(|request: Request<Body>| async move {
        let _meter = meter_of(&request);
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    }));
    let mut running = Box::pin(service.call(get(CHAT)));
    let mut waiting = Box::pin(service.call(get(CHAT)));
    let mut next = Box::pin(service.call(get(CHAT)));
    for future in [&mut running, &mut waiting, &mut next] {
        assert!(poll_now(future.as_mut()).is_pending());
    }
    assert_eq!(state(&sentinel), (0, 40, 0));
    drop(waiting);
    assert_eq!(state(&sentinel), (0, 40, 0));
    // Its head never came, and its turn is that of the next one, which gets a meter as well.
    drop(running);
    tokio::task::yield_now().await;
    assert!(poll_now(next.as_mut()).is_pending());
    assert_eq!(state(&sentinel), (40, 40, 1));
    drop(next);
    assert_eq!(state(&sentinel), (80, 0, 2));
    assert_at_rest(&sentinel, CHAT);
}

#[tokio::test]
async fn a_refused_call_costs_nothing_also_outside_of_the_layer_that_refuses() {
    let rules = Rules::new()
        .with(tokens())
        .with(FlowRule::per_minute("inside", 0));
    let (sentinel, _clock) = engine(rules);
    let upstream =
        service_fn(async |_: Request<Body>| Ok::<Response<Body>, BoxError>(status(StatusCode::OK)));
    let refuses = SentinelLayer::with(sentinel.clone())
        .named("inside")
        .refusals_as_errors();
    let service = layer(&sentinel).layer(refuses.layer(upstream));
    assert!(service.oneshot(get(CHAT)).await.is_err());
    assert_eq!(state(&sentinel), (0, 0, 0));
    // Nor does one that the limit itself refuses.
    let large = SentinelLayer::with(sentinel.clone()).reserve("tokens", |_| 1_001);
    let response = large.layer(upstream).oneshot(get(CHAT)).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(state(&sentinel), (0, 0, 0));
}

#[tokio::test]
async fn a_cost_may_be_told_after_the_call_and_after_a_reload() {
    let (sentinel, _clock) = engine(tokens());
    let (keep, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let service = layer(&sentinel).layer(service_fn(move |request: Request<Body>| {
        keep.send(meter_of(&request)).unwrap();
        async { Ok::<_, Infallible>(Response::new(Body::from("hello"))) }
    }));
    let mut next = async || {
        collect(service.clone().oneshot(get(CHAT)).await.unwrap()).await;
        kept.try_recv().expect("the service keeps it")
    };
    let late = next().await;
    assert_at_rest(&sentinel, CHAT);
    assert_eq!(state(&sentinel), (0, 40, 0));
    late.settle("tokens", 12);
    drop(late);
    assert_eq!(state(&sentinel), (12, 0, 0));
    // The rule that takes over goes on; a rule that is gone counts nowhere.
    let late = next().await;
    let wider = FlowRule::per_minute(CHAT, 2_000).cost("tokens").id("tpm");
    sentinel.reload(wider.into());
    late.settle("tokens", 5);
    drop(late);
    assert_eq!(state(&sentinel), (17, 0, 0));
    let late = next().await;
    sentinel.reload(FlowRule::per_minute(CHAT, 9).cost("rows").into());
    late.settle("tokens", 5);
    drop(late);
    collect(service.clone().oneshot(get(CHAT)).await.unwrap()).await;
    assert_eq!(state(&sentinel).0, 0);
}

#[test]
fn work_without_a_layer_is_charged_however_it_ends() {
    let (sentinel, _clock) = engine(tokens());
    let call = || Call::new(CHAT).reserve("tokens", 40);
    let by_number = |answer: &u32| match answer {
        0 => Outcome::Failure,
        _ => Outcome::Success,
    };
    let run = |answer: u32| {
        sentinel
            .run_with(call(), async move { answer }, by_number)
            .now_or_never()
    };
    assert_eq!(run(1).unwrap().unwrap(), 1);
    assert_eq!(state(&sentinel), (40, 0, 1));
    assert_eq!(run(0).unwrap().unwrap(), 0);
    assert_eq!(state(&sentinel), (40, 0, 1));
    let panics = sentinel.run_with(call(), async { std::panic::panic_any("a bug") }, by_number);
    assert!(catch_unwind(AssertUnwindSafe(|| panics.now_or_never())).is_err());
    assert_eq!(state(&sentinel), (40, 0, 1));
    // Never polled, and polled once.
    drop(sentinel.run_with(call(), async { 1 }, by_number));
    assert_eq!(state(&sentinel), (40, 0, 1));
    let mut running = Box::pin(sentinel.run_with(call(), std::future::pending(), by_number));
    assert!(poll_now(running.as_mut()).is_pending());
    assert_eq!(state(&sentinel), (40, 40, 1));
    drop(running);
    assert_eq!(state(&sentinel), (80, 0, 2));
    let large = Call::new(CHAT).reserve("tokens", 921);
    let refused = sentinel
        .run_with(large, async { 1 }, by_number)
        .now_or_never();
    assert!(refused.expect("it does not wait").is_err());
    assert_eq!(state(&sentinel), (80, 0, 2));
    assert_at_rest(&sentinel, CHAT);
}

#[test]
fn whatever_is_dropped_at_random_nothing_stays_reserved() {
    let mut rng = Rng::seeded();
    for _ in 0..20 {
        let (sentinel, clock) = engine(tokens());
        let mut service = layer(&sentinel)
            .cost_of_body("tokens", NonZeroU32::new(2).unwrap())
            .layer(service_fn(|request: Request<Body>| async move {
                tokio::task::yield_now().await;
                let meter = meter_of(&request);
                Ok::<_, Infallible>(Response::new(counted(
                    meter,
                    parts(vec![Some("abc"), Some("d")]),
                )))
            }));
        let (mut running, mut bodies, mut meters) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..400 {
            match rng.below(8) {
                0 | 1 => running.push(Box::pin(service.call(get(CHAT)))),
                2 | 3 if !running.is_empty() => {
                    let at = rng.below(running.len());
                    if let std::task::Poll::Ready(Ok(response)) = poll_now(running[at].as_mut()) {
                        drop(running.swap_remove(at));
                        bodies.push(response.into_body());
                    }
                }
                4 if !running.is_empty() => drop(running.swap_remove(rng.below(running.len()))),
                5 if !bodies.is_empty() => {
                    let at = rng.below(bodies.len());
                    let _ = bodies[at].frame().now_or_never();
                }
                6 if !bodies.is_empty() => drop(bodies.swap_remove(rng.below(bodies.len()))),
                7 => match sentinel.try_enter(Call::new(CHAT).reserve("tokens", 9)) {
                    tower_sentinel::Verdict::Pass(entry) => meters.push(entry.meter()),
                    _ => clock.advance(Duration::from_secs(7)),
                },
                _ => drop(meters.pop()),
            }
        }
        drop((running, bodies, meters));
        assert_at_rest(&sentinel, CHAT);
        assert_eq!(budget(&sentinel).reserved(), 0);
    }
}

// === over real connections ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_a_server_early_is_charged_what_it_got() {
    let (sentinel, _clock) = engine(tokens());
    let handler = |meter: Meter| async move {
        // The first chunk, and then nothing.
        let first = stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b"hello")) });
        let body = Body::from_stream(first.chain(stream::pending()));
        Response::new(counted(meter, body))
    };
    let app = Router::new()
        .route(CHAT, on_get(handler))
        .layer(layer(&sentinel));
    let server = Server::axum(app).await;
    let mut connection = server.connect().await;
    let mut response = send(&mut connection, get(CHAT)).await;
    assert!(response.frame().await.is_some_and(|frame| frame.is_ok()));
    assert_eq!(state(&sentinel), (3, 37, 0));
    drop((response, connection));
    eventually("the call has ended", || state(&sentinel) == (3, 0, 0)).await;
    assert_at_rest(&sentinel, CHAT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_before_the_head_is_charged_what_it_reserved() {
    let (sentinel, _clock) = engine(tokens());
    let handler = |_: Meter| async { std::future::pending::<()>().await };
    let app = Router::new()
        .route(CHAT, on_get(handler))
        .layer(layer(&sentinel));
    let server = Server::axum(app).await;
    let mut connection = server.connect().await;
    let mut request = Box::pin(connection.send_request(get(CHAT)));
    assert!(poll_now(request.as_mut()).is_pending());
    eventually("the call runs", || {
        let node = sentinel.node(CHAT);
        node.is_some_and(|node| node.budgets()[0].reserved() == 40)
    })
    .await;
    drop(request);
    drop(connection);
    eventually("the call has ended", || state(&sentinel) == (40, 0, 1)).await;
    assert_at_rest(&sentinel, CHAT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_settles_by_the_meter_that_comes_with_the_response() {
    let app = Router::new()
        .route("/whole", on_get(|| async { "hello" }))
        .route("/broken", on_get(|| async { StatusCode::BAD_GATEWAY }))
        .route(
            "/slow",
            on_get(|| async { std::future::pending::<()>().await }),
        );
    let server = Server::axum(app).await;
    let (sentinel, _clock) = engine(tokens());
    let client = layer(&sentinel)
        .named(CHAT)
        .outbound()
        .refusals_as_errors()
        .layer(Client::builder(TokioExecutor::new()).build_http::<Body>());
    let state = || {
        let budget = &sentinel.outbound_node(CHAT).unwrap().budgets()[0];
        (budget.used(), budget.reserved(), budget.untold_total())
    };
    let request = |path: &str| get(&format!("http://{}{path}", server.addr));
    let ask = async |path| client.clone().oneshot(request(path)).await.unwrap();

    let mut response = ask("/whole").await;
    let meter = response
        .extensions_mut()
        .remove::<Meter>()
        .expect("it is outbound");
    assert_eq!(state(), (0, 40, 0));
    collect(response).await;
    // The body has ended, and its meter has not.
    assert_eq!(state(), (0, 40, 0));
    meter.settle("tokens", 11);
    assert_eq!(state(), (11, 0, 0));
    drop(meter);
    // A client that takes no meter out, and reads or drops the body.
    collect(ask("/whole").await).await;
    assert_eq!(state(), (51, 0, 1));
    drop(ask("/whole").await);
    assert_eq!(state(), (91, 0, 2));
    drop(ask("/broken").await);
    assert_eq!(state(), (91, 0, 2));
    // Nobody is there.
    let nowhere = get("http://127.0.0.1:1/");
    assert!(client.clone().oneshot(nowhere).await.is_err());
    assert_eq!(state(), (91, 0, 2));
    let mut waits = Box::pin(client.clone().oneshot(request("/slow")));
    assert!(poll_now(waits.as_mut()).is_pending());
    assert_eq!(state(), (91, 40, 2));
    drop(waits);
    eventually("the request is gone", || state() == (131, 0, 3)).await;
}
