//! Calls that are dropped, fail or panic: wherever it happens, every slot and
//! every token is accounted for, once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::clock::TokioClock;
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::middleware::{
    ByStatus, CallLayer, Classify, Completion, Judgement, ResponseHead,
};
use tower_sentinel::read::BreakerState;
use tower_sentinel::stat::Outcome;
use tower_sentinel::{
    BlockKind, Blocked, BoxError, Call, CircuitBreakerRule, FlowRule, IsolationRule, ManualClock,
    Rules, Sentinel, SentinelLayer,
};

use crate::support::stage::{RESOURCE, Stage};
use crate::support::{assert_at_rest, engine, get, ms, poll_now, ready};

/// Ten a second, and ten at once.
fn rules() -> Rules {
    Rules::new()
        .with(FlowRule::per_second(RESOURCE, 10))
        .with(IsolationRule::new(RESOURCE, 10))
}

/// One frame of a body, or its failure.
type Part = Result<Frame<Bytes>, BoxError>;

fn data(text: &'static str) -> Part {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn trailers() -> Part {
    Ok(Frame::trailers(HeaderMap::new()))
}

/// A body of `parts`, which does not know that it is over before it says so.
fn streamed(parts: Vec<Part>) -> Body {
    Body::new(StreamBody::new(stream::iter(parts)))
}

// === work without a layer ===

#[tokio::test(start_paused = true)]
async fn work_is_recorded_once_however_it_ends() {
    let (sentinel, clock) = engine(rules());
    let call = Call::new(RESOURCE);
    let started = AtomicU32::new(0);
    let work = |result: Result<u32, BoxError>| async {
        started.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        clock.advance(ms(5));
        result
    };

    assert_eq!(sentinel.run(call, work(Ok(7))).await.unwrap(), 7);
    let failed = sentinel.run(call, work(Err("down".into()))).await;
    assert_eq!(failed.unwrap_err().to_string(), "down");

    // Dropped before its first poll: nothing was asked for. Dropped while it runs: cancelled.
    drop(sentinel.run(call, work(Ok(7))));
    let mut running = Box::pin(sentinel.run(call, work(Ok(7))));
    assert!(poll_now(running.as_mut()).is_pending());
    assert_eq!(sentinel.node(RESOURCE).unwrap().slots_in_use(), 1);
    drop(running);

    let panics = async {
        started.fetch_add(1, Ordering::Relaxed);
        std::panic::panic_any("a bug") as Result<u32, BoxError>
    };
    let mut panics = Box::pin(sentinel.run(call, panics));
    assert!(catch_unwind(AssertUnwindSafe(|| poll_now(panics.as_mut()))).is_err());
    let in_use = sentinel.node(RESOURCE).unwrap().slots_in_use();
    assert_eq!(in_use, 0, "it ends at once");
    drop(panics);

    let totals = assert_at_rest(&sentinel, RESOURCE);
    assert_eq!((totals.pass(), totals.complete()), (4, 3));
    let [panicked, cancelled] = [totals.panicked(), totals.cancelled()];
    assert_eq!((totals.error(), panicked, cancelled), (2, 1, 1));
    assert_eq!((totals.calls(), totals.rt()), (3, ms(10)));
    assert_eq!(started.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_refused_never_starts() {
    let (sentinel, _clock) = engine(IsolationRule::new(RESOURCE, 0));
    let never = async { panic!("it has started") };
    let refused = sentinel.run(Call::new(RESOURCE), never).await;
    let blocked: Result<(), Blocked> = refused;
    assert_eq!(blocked.unwrap_err().kind(), BlockKind::Isolation);
    assert_eq!(assert_at_rest(&sentinel, RESOURCE).block(), 1);
}

/// Neither does it know of refusals, nor can it be cloned or compared.
#[derive(Debug)]
struct Foreign(u16);

#[tokio::test]
async fn what_the_result_of_work_means_can_be_told_whatever_its_type() {
    let classify = |answer: &Result<u16, Foreign>| match answer {
        Ok(500..) | Err(Foreign(0)) => Outcome::Failure,
        Ok(400..) | Err(_) => Outcome::Ignore,
        Ok(_) => Outcome::Success,
    };
    let (sentinel, _clock) = engine(CircuitBreakerRule::consecutive_errors(RESOURCE, 2));
    let call = Call::new(RESOURCE);
    for answer in [
        Ok(500),
        Ok(404),
        Err(Foreign(7)),
        Ok(200),
        Ok(503),
        Err(Foreign(0)),
    ] {
        let text = format!("{answer:?}");
        let result = sentinel.run_with(call, async { answer }, classify).await;
        assert_eq!(format!("{:?}", result.unwrap()), text);
    }
    let refused = sentinel.run_with(call, async { Ok(200) }, classify).await;
    assert_eq!(refused.unwrap_err().kind(), BlockKind::CircuitBreaker);
    let totals = assert_at_rest(&sentinel, RESOURCE);
    assert_eq!((totals.complete(), totals.error()), (6, 3));

    // A result need be no `Result`.
    let classify = |rows: &Vec<u32>| {
        if rows.is_empty() {
            Outcome::Failure
        } else {
            Outcome::Success
        }
    };
    let query = async { Vec::new() };
    let rows = sentinel.run_with(Call::new("query"), query, classify).await;
    assert_eq!(rows.unwrap(), [] as [u32; 0]);
    assert_eq!(assert_at_rest(&sentinel, "query").error(), 1);
}

#[test]
fn a_classifier_that_panics_makes_it_a_panic_of_the_work() {
    let (sentinel, _clock) = engine(IsolationRule::new(RESOURCE, 1));
    let classify = |(): &()| -> Outcome { panic!("a bug") };
    let mut work = Box::pin(sentinel.run_with(Call::new(RESOURCE), async {}, classify));
    assert!(catch_unwind(AssertUnwindSafe(|| poll_now(work.as_mut()))).is_err());
    // Also while the future lives on.
    let totals = assert_at_rest(&sentinel, RESOURCE);
    assert_eq!((totals.panicked(), totals.error()), (1, 1));
    drop(work);
}

#[tokio::test(start_paused = true)]
async fn work_is_kept_once_and_not_polled_after_a_refusal() {
    let (sentinel, _clock) = engine(IsolationRule::new(RESOURCE, 0));
    let work = async {
        let large = [1_u8; 4_096];
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(large.len())
    };
    let size = size_of_val(&work);
    let mut refused = Box::pin(sentinel.run(Call::new(RESOURCE), work));
    assert!(size_of_val(&*refused) < size + 1_024);
    assert!(poll_now(refused.as_mut()).is_ready());
    assert!(catch_unwind(AssertUnwindSafe(|| poll_now(refused.as_mut()))).is_err());
}

#[test]
fn work_that_is_dropped_is_gone_before_its_slot_is_free() {
    struct OnDrop(Sentinel);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            assert_eq!(self.0.node(RESOURCE).unwrap().slots_in_use(), 1);
        }
    }
    let (sentinel, _clock) = engine(IsolationRule::new(RESOURCE, 1));
    let held = OnDrop(sentinel.clone());
    let work = async move {
        let _held = held;
        std::future::pending::<Result<(), BoxError>>().await
    };
    let mut running = Box::pin(sentinel.run(Call::new(RESOURCE), work));
    assert!(poll_now(running.as_mut()).is_pending());
    drop(running);
    assert_eq!(assert_at_rest(&sentinel, RESOURCE).cancelled(), 1);
}

#[tokio::test(start_paused = true)]
async fn work_that_waits_starts_at_its_turn_and_gives_it_up_if_it_is_dropped() {
    let queue = FlowRule::per_second(RESOURCE, 10).throttle(ms(500));
    let sentinel = Sentinel::builder()
        .rules(queue)
        .clock(TokioClock::new())
        .build();
    let started = tokio::time::Instant::now();
    let work = || async { Ok::<_, BoxError>(started.elapsed()) };
    let call = Call::new(RESOURCE);
    assert_eq!(sentinel.run(call, work()).await.unwrap(), ms(0));
    let mut dropped = Box::pin(sentinel.run(call, work()));
    assert!(poll_now(dropped.as_mut()).is_pending());
    drop(dropped);
    assert_eq!(sentinel.run(call, work()).await.unwrap(), ms(100));
    let totals = assert_at_rest(&sentinel, RESOURCE);
    assert_eq!((totals.complete(), totals.cancelled()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_a_timeout_drops_does_not_close_its_breaker() {
    let rule = CircuitBreakerRule::consecutive_errors(RESOURCE, 1).open_for(ms(10));
    let sentinel = Sentinel::builder()
        .rules(rule)
        .clock(TokioClock::new())
        .build();
    let call = Call::new(RESOURCE);
    let work = |time, result: Result<(), BoxError>| async move {
        tokio::time::sleep(time).await;
        result
    };
    let breaker = || sentinel.node(RESOURCE).unwrap().breakers()[0].state();
    assert!(
        sentinel
            .run(call, work(ms(0), Err("down".into())))
            .await
            .is_err()
    );
    assert_eq!(breaker(), BreakerState::Open);
    tokio::time::sleep(ms(10)).await;
    let probe = sentinel.run(call, work(ms(1_000), Ok(())));
    assert!(tokio::time::timeout(ms(5), probe).await.is_err());
    assert_ne!(breaker(), BreakerState::Closed);
    assert!(sentinel.run(call, work(ms(1), Ok(()))).await.is_ok());
    assert_eq!(breaker(), BreakerState::Closed);
}

// === the response future ===

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_its_first_poll_is_cancelled_and_its_token_stays_spent() {
    let mut stage = Stage::new(rules());
    let call = stage.call().await;
    assert_eq!(stage.node().concurrency(), 1);
    assert_eq!(stage.node().slots_in_use(), 1);

    drop(call);
    let totals = stage.assert_at_rest();
    assert_eq!((totals.pass(), totals.cancelled()), (1, 1));
    assert_eq!((totals.complete(), totals.calls()), (0, 0));
    // The service was called.
    assert_eq!(stage.admits(20).await, 9);
}

/// Drops three calls to `service` that are under way. The first one to a resource
/// is judged at length, the others are not.
fn drop_three<S, R>(sentinel: &Sentinel, mut service: S, mut request: impl FnMut() -> R)
where
    S: Service<R>,
{
    for cancelled in 1..=3 {
        let mut call = Box::pin(service.call(request()));
        assert!(poll_now(call.as_mut()).is_pending());
        drop(call);
        let totals = sentinel.node(RESOURCE).unwrap().totals();
        assert_eq!((totals.pass(), totals.cancelled()), (cancelled, cancelled));
        assert_eq!((totals.calls(), totals.error()), (0, 0));
    }
    assert_at_rest(sentinel, RESOURCE);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_cancelled_in_every_kind_of_layer() {
    type Answer = Result<Response<Body>, BoxError>;
    let engine = || Sentinel::new(rules());
    let hang = || service_fn(|_: Request<Body>| std::future::pending::<Answer>());

    let sentinel = engine();
    let layer = SentinelLayer::with(sentinel.clone());
    drop_three(&sentinel, layer.layer(hang()), || get(RESOURCE));

    let sentinel = engine();
    let layer = SentinelLayer::with(sentinel.clone()).refusals_as_errors();
    drop_three(&sentinel, layer.layer(hang()), || get(RESOURCE));

    let sentinel = engine();
    let layer = CallLayer::with(sentinel.clone(), |_: &Request<Body>| Call::new(RESOURCE));
    drop_three(&sentinel, layer.layer(hang()), || get(RESOURCE));
}

#[tokio::test(start_paused = true)]
async fn a_running_call_that_is_dropped_is_cancelled_and_has_no_response_time() {
    let mut stage = Stage::new(rules());
    let mut call = stage.call().await;
    assert!(poll_now(call.as_mut()).is_pending());
    let answer = stage.arrived().await;
    stage.at(300).await;
    assert_eq!(stage.node().concurrency(), 1);

    drop(call);
    let totals = stage.assert_at_rest();
    assert_eq!((totals.pass(), totals.cancelled()), (1, 1));
    assert_eq!((totals.complete(), totals.error()), (0, 0));
    assert_eq!(stage.node().average_rt(), None);
    // The answer comes too late to change that.
    answer.send_response(Response::new(Body::empty()));
    assert_eq!(stage.assert_at_rest(), totals);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_service_is_no_cancellation() {
    let mut stage = Stage::new(rules());
    let answer = stage.answered(|answer| answer.send_error("broken")).await;
    assert_eq!(answer.unwrap_err().to_string(), "broken");

    let totals = stage.assert_at_rest();
    assert_eq!((totals.complete(), totals.error()), (1, 1));
    assert_eq!(totals.cancelled(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_dropped_between_readiness_and_call_has_reserved_nothing() {
    let mut stage = Stage::new(rules());
    for _ in 0..100 {
        let mut service = stage.service.clone();
        service.ready().await.unwrap();
        drop(service);
    }
    assert!(stage.sentinel.node(RESOURCE).is_none());
    assert_eq!(stage.admits(20).await, 10);
}

// === the body ===

#[tokio::test(start_paused = true)]
async fn a_body_dropped_half_way_ends_the_call_with_the_time_of_its_head() {
    for frames in [0, 1] {
        let mut stage = Stage::new(rules());
        let call = stage.call().await;
        let answer = stage.arrived().await;
        stage.at(40).await;
        answer.send_response(Response::new(streamed(vec![data("one"), data("two")])));
        let mut response = call.await.unwrap();
        for _ in 0..frames {
            response.body_mut().frame().await.unwrap().unwrap();
        }
        stage.at(300).await;
        // Delivered, and still holding what it needs.
        assert_eq!(stage.node().concurrency(), 1);
        assert_eq!(stage.node().slots_in_use(), 1);
        assert_eq!(stage.node().totals().complete(), 0);

        drop(response);
        let totals = stage.assert_at_rest();
        assert_eq!((totals.complete(), totals.cancelled()), (1, 0));
        assert_eq!(totals.error(), 0);
        assert_eq!(stage.node().average_rt(), Some(ms(40)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_ends_the_call_once_and_as_soon_as_it_is_over() {
    // How many frames until it is over, and how many errors that makes.
    let broken = || Err(BoxError::from("broken"));
    let cases = [
        ("a known length", Body::from("whole"), 1, 0),
        ("trailers", streamed(vec![data("one"), trailers()]), 2, 0),
        ("an end", streamed(vec![data("one"), data("two")]), 3, 0),
        ("an error", streamed(vec![data("one"), broken()]), 2, 1),
    ];
    for (name, body, frames, errors) in cases {
        let mut stage = Stage::new(rules());
        let answer = stage
            .answered(|answer| answer.send_response(Response::new(body)))
            .await;
        let mut response = answer.unwrap();
        for _ in 0..frames {
            assert_eq!(stage.node().concurrency(), 1, "{name}");
            let _ = response.body_mut().frame().await;
        }
        // The body is still there.
        let totals = stage.assert_at_rest();
        assert_eq!((totals.pass(), totals.complete()), (1, 1), "{name}");
        assert_eq!((totals.error(), totals.cancelled()), (errors, 0), "{name}");
        drop(response);
        assert_eq!(stage.assert_at_rest(), totals, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_over_from_the_start_ends_the_call_with_its_head() {
    // The server never polls such a body: the answers to HEAD, 204, 304.
    let mut stage = Stage::new(rules());
    let answer = stage
        .answered(|answer| answer.send_response(Response::new(Body::empty())))
        .await;
    let totals = stage.assert_at_rest();
    assert_eq!((totals.complete(), totals.cancelled()), (1, 0));
    drop(answer);
    assert_eq!(stage.assert_at_rest(), totals);
}

#[test]
fn whatever_else_a_layer_does_its_calls_end_with_their_bodies() {
    type Set = fn(SentinelLayer) -> SentinelLayer;
    let settings: [(Set, u32); 5] = [
        (|layer| layer, 1),
        (|layer| layer.classify(ByStatus), 1),
        (|layer| layer.fields(RateLimitFields::Ietf), 1),
        (|layer| layer.completion(Completion::Body), 1),
        (|layer| layer.completion(Completion::Head), 0),
    ];
    for (index, (set, running)) in settings.into_iter().enumerate() {
        let (sentinel, _clock) = engine(rules());
        let layer = set(SentinelLayer::with(sentinel.clone()));
        let service = layer.layer(service_fn(async |_: Request<Body>| {
            Ok::<_, BoxError>(Response::new(streamed(vec![data("one"), data("two")])))
        }));
        let response = ready(service.oneshot(get(RESOURCE))).unwrap();
        let node = sentinel.node(RESOURCE).unwrap();
        let found = [node.concurrency(), node.slots_in_use()];
        assert_eq!(found, [running; 2], "{index}");
        drop(response);
        assert_eq!(assert_at_rest(&sentinel, RESOURCE).complete(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgraded_connection_ends_the_call_with_its_head() {
    let mut stage = Stage::new(rules());
    let mut response = Response::new(streamed(vec![data("not of the service")]));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = stage
        .answered(|answer| answer.send_response(response))
        .await;
    assert_eq!(stage.assert_at_rest().complete(), 1);
    drop(answer);
}

// === panics ===

/// Where a handler panics.
#[derive(Clone, Copy, Debug)]
enum Place {
    Call,
    Future,
    Body,
}

/// A body that panics when it is polled.
struct Trap;

impl http_body::Body for Trap {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Part>> {
        panic!("in the body")
    }
}

/// An engine, and a service behind its layer that panics at `place`.
fn panicking(
    place: Place,
) -> (
    Sentinel,
    impl Service<
        Request<Body>,
        Response = Response<impl http_body::Body<Data = Bytes, Error = axum::Error> + Unpin + Send>,
        Error = BoxError,
        Future: Send,
    > + Send,
) {
    let sentinel = Sentinel::builder()
        .rules(rules())
        .clock(ManualClock::new())
        .build();
    // The first request to a resource is marked, and takes a longer way than most.
    let first =
        SentinelLayer::with(sentinel.clone()).layer(service_fn(async |_: Request<Body>| {
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }));
    drop(ready(first.oneshot(get(RESOURCE))));
    let service =
        SentinelLayer::with(sentinel.clone()).layer(service_fn(move |_: Request<Body>| {
            assert!(!matches!(place, Place::Call), "in the call");
            async move {
                assert!(!matches!(place, Place::Future), "in the future");
                Ok::<_, BoxError>(Response::new(Body::new(Trap)))
            }
        }));
    (sentinel, service)
}

fn assert_panicked_once(sentinel: &Sentinel, place: Place) {
    let totals = assert_at_rest(sentinel, RESOURCE);
    assert_eq!((totals.pass(), totals.complete()), (2, 2), "{place:?}");
    assert_eq!((totals.error(), totals.panicked()), (1, 1), "{place:?}");
    assert_eq!(totals.cancelled(), 0, "{place:?}");
}

#[tokio::test]
async fn a_panic_that_takes_the_task_along_is_an_error() {
    for place in [Place::Call, Place::Future, Place::Body] {
        let (sentinel, mut service) = panicking(place);
        let task = tokio::spawn(async move {
            let response = service.ready().await.unwrap().call(get(RESOURCE)).await;
            response.unwrap().collect().await.unwrap();
        });
        assert!(task.await.unwrap_err().is_panic());
        assert_panicked_once(&sentinel, place);
    }
}

#[test]
fn a_panic_that_an_outer_layer_catches_is_an_error() {
    for place in [Place::Call, Place::Future, Place::Body] {
        let (sentinel, mut service) = panicking(place);
        ready(service.ready()).unwrap();
        let (mut call, mut body) = (None, None);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let call = call.insert(Box::pin(service.call(get(RESOURCE))));
            let response = ready(call.as_mut()).unwrap();
            let _ = ready(body.insert(response.into_body()).frame());
        }));
        assert!(caught.is_err());
        // What is left of the call is dropped when nothing unwinds any more.
        drop((call, body));
        assert_panicked_once(&sentinel, place);
    }
}

/// Drops `held` while the thread unwinds from a panic of other code.
fn drop_by_a_panic<T>(held: T) {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _held = held;
        panic!("in a handler that waits for an upstream, or reads its answer");
    }));
    assert!(caught.is_err());
}

#[test]
fn a_panic_of_other_code_that_drops_a_call_is_none_of_the_call() {
    let breaker = CircuitBreakerRule::error_count(RESOURCE, 1).min_calls(1);
    let rules = || {
        let shadow = breaker.clone().id("shadow").shadow();
        rules().with(breaker.clone()).with(shadow)
    };
    let assert_no_failure = |sentinel: &Sentinel, answered, cancelled, place| {
        let totals = assert_at_rest(sentinel, RESOURCE);
        assert_eq!((totals.error(), totals.panicked()), (0, 0), "{place}");
        let found = (totals.complete(), totals.cancelled());
        assert_eq!(found, (answered, cancelled), "{place}");
        let breakers = sentinel.node(RESOURCE).unwrap().breakers();
        assert_eq!(breakers[0].state(), BreakerState::Closed, "{place}");
        drop(ready(sentinel.enter(Call::new(RESOURCE))).unwrap());
        assert_eq!(sentinel.shadows()[0].would_block(), 0, "{place}");
    };

    let (sentinel, _clock) = engine(rules());
    let service = SentinelLayer::with(sentinel.clone()).layer(service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, BoxError>>()
    }));
    let mut call = Box::pin(service.oneshot(get(RESOURCE)));
    assert!(poll_now(call.as_mut()).is_pending());
    drop_by_a_panic(call);
    assert_no_failure(&sentinel, 0, 1, "in flight");

    let (sentinel, _clock) = engine(rules());
    let layer = CallLayer::with(sentinel.clone(), |_: &()| Call::new(RESOURCE));
    let service = layer.layer(service_fn(|()| {
        std::future::pending::<Result<(), BoxError>>()
    }));
    let mut call = Box::pin(service.oneshot(()));
    assert!(poll_now(call.as_mut()).is_pending());
    drop_by_a_panic(call);
    assert_no_failure(&sentinel, 0, 1, "in flight, of any kind");

    let (sentinel, _clock) = engine(rules());
    let work = std::future::pending::<Result<(), BoxError>>();
    let mut call = Box::pin(sentinel.run(Call::new(RESOURCE), work));
    assert!(poll_now(call.as_mut()).is_pending());
    drop_by_a_panic(call);
    assert_no_failure(&sentinel, 0, 1, "in flight, without a layer");

    for content_type in ["text/plain", "application/grpc"] {
        let (sentinel, _clock) = engine(rules());
        let service = SentinelLayer::with(sentinel.clone()).layer(service_fn(
            move |_: Request<Body>| async move {
                let mut response = Response::new(streamed(vec![data("one"), data("two")]));
                let value = axum::http::HeaderValue::from_static(content_type);
                response.headers_mut().insert("content-type", value);
                Ok::<_, BoxError>(response)
            },
        ));
        let mut response = ready(service.oneshot(get(RESOURCE))).unwrap();
        ready(response.body_mut().frame()).unwrap().unwrap();
        drop_by_a_panic(response);
        assert_no_failure(&sentinel, 1, 0, content_type);
    }
}

/// Whatever says how a call ended must not panic.
struct Panicking;

impl Classify for Panicking {
    fn head(&self, head: ResponseHead<'_>) -> Judgement {
        assert_eq!(head.status(), StatusCode::OK, "in the head");
        Judgement::AtTrailers
    }

    fn trailers(&self, trailers: Option<&HeaderMap>) -> Outcome {
        assert!(trailers.is_none(), "in the trailers");
        Outcome::Success
    }
}

#[test]
fn who_panics_instead_of_saying_how_a_call_ended_makes_it_a_panic_of_the_service() {
    let caught = |call: &mut dyn FnMut()| assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    let assert_panicked = |sentinel: &Sentinel| {
        let totals = assert_at_rest(sentinel, RESOURCE);
        assert_eq!((totals.complete(), totals.cancelled()), (1, 0));
        assert_eq!((totals.error(), totals.panicked()), (1, 1));
    };

    for status in [StatusCode::NOT_FOUND, StatusCode::OK] {
        let (sentinel, _clock) = engine(rules());
        let layer = SentinelLayer::with(sentinel.clone()).classify(Panicking);
        let service = layer.layer(service_fn(move |_: Request<Body>| async move {
            let mut response = Response::new(streamed(vec![data("one"), trailers()]));
            *response.status_mut() = status;
            Ok::<_, BoxError>(response)
        }));
        // It lives on when the panic has been caught.
        let mut response = None;
        let mut call = Box::pin(service.oneshot(get(RESOURCE)));
        caught(&mut || {
            let response = response.insert(ready(call.as_mut()).unwrap());
            while ready(response.body_mut().frame()).is_some() {}
        });
        assert_panicked(&sentinel);
    }

    let (sentinel, _clock) = engine(rules());
    let layer = CallLayer::with(sentinel.clone(), |_: &()| Call::new(RESOURCE));
    let layer = layer.classify(|answer: Result<&(), &BoxError>| {
        assert!(answer.is_err(), "there is nothing to say");
        Outcome::Success
    });
    let mut call = Box::pin(
        layer
            .layer(service_fn(|()| async { Ok::<_, BoxError>(()) }))
            .oneshot(()),
    );
    caught(&mut || drop(ready(call.as_mut())));
    assert_panicked(&sentinel);
}
