//! Calls that are judged before the service inside is ready.

use std::convert::Infallible;
use std::future::{Future, Ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::Semaphore;
use tower::limit::{ConcurrencyLimit, ConcurrencyLimitLayer};
use tower::load_shed::LoadShedLayer;
use tower::util::{BoxCloneService, ServiceFn};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_sentinel::middleware::{CallLayer, ClassifyAnswer};
use tower_sentinel::read::BreakerState;
use tower_sentinel::stat::Outcome;
use tower_sentinel::{
    BlockKind, Blocked, BoxError, Call, CircuitBreakerRule, FlowRule, IsolationRule, Rules,
    Sentinel, SentinelLayer,
};
use tower_test::mock;

use crate::support::stage::{RESOURCE, is_prioritized, prioritized};
use crate::support::{assert_at_rest, engine, get, ms, poll_now, ready};

/// What every kind of layer makes of a service, in one type.
type Any = BoxCloneService<Request<Body>, StatusCode, BoxError>;

type Inside<R> = Result<Response<R>, BoxError>;

/// `service` behind each kind of layer, over an engine each with the `rules`. A refusal is a
/// status with the first kind, and an error with the others.
fn of_all_kinds<S>(rules: &Rules, service: &S) -> [(&'static str, Sentinel, Any); 3]
where
    S: Service<Request<Body>, Response = Response<Body>, Error = BoxError, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let [respond, fail, calls] = std::array::from_fn(|_| engine(rules.clone()).0);
    let layer = |sentinel: &Sentinel| {
        let layer = SentinelLayer::with(sentinel.clone()).prioritize(is_prioritized);
        layer
            .skip(|head| head.uri().path() == "/skipped")
            .judge_first()
    };
    let status = |response: Response<_>| response.status();
    let respond_service = layer(&respond).layer(service.clone()).map_response(status);
    let fail_service = layer(&fail).refusals_as_errors().layer(service.clone());
    let call_layer = CallLayer::with(calls.clone(), |request: &Request<Body>| {
        Call::new(request.uri().path())
    });
    let calls_service = call_layer.judge_first().layer(service.clone());
    [
        ("responds", respond, BoxCloneService::new(respond_service)),
        (
            "fails",
            fail,
            BoxCloneService::new(fail_service.map_response(|response| response.status())),
        ),
        (
            "calls",
            calls,
            BoxCloneService::new(calls_service.map_response(|response| response.status())),
        ),
    ]
}

/// The kind of rule that refused a call, as its status or its error says.
fn refused_by(answer: Result<StatusCode, BoxError>) -> Option<&'static str> {
    match answer {
        Ok(StatusCode::OK) => None,
        Ok(StatusCode::TOO_MANY_REQUESTS) => Some("limit"),
        Ok(StatusCode::SERVICE_UNAVAILABLE) => Some("breaker"),
        Ok(other) => panic!("{other}"),
        Err(error) => match error.downcast_ref::<Blocked>().expect("a refusal").kind() {
            BlockKind::Flow | BlockKind::Isolation => Some("limit"),
            BlockKind::CircuitBreaker => Some("breaker"),
            other => panic!("{other}"),
        },
    }
}

/// A call of `service`, which says that it is ready.
fn call(service: &mut Any, path: &str) -> BoxFuture<'static, Result<StatusCode, BoxError>> {
    ready(service.ready()).unwrap().call(get(path))
}

/// A service of which one call runs at a time, and how many run. Each answers when it gets a
/// permit.
fn one_at_a_time() -> (ConcurrencyLimit<Held>, Arc<Semaphore>) {
    let answers = Arc::new(Semaphore::new(0));
    let held = Held(answers.clone());
    (ConcurrencyLimitLayer::new(1).layer(held), answers)
}

#[derive(Clone)]
struct Held(Arc<Semaphore>);

impl Service<Request<Body>> for Held {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Inside<Body>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answers = self.0.clone();
        Box::pin(async move {
            answers.acquire().await?.forget();
            assert_ne!(request.uri().query(), Some("panic"));
            Ok(Response::new(Body::empty()))
        })
    }
}

// === refusals ===

#[test]
fn a_spent_quota_refuses_although_the_service_is_not_ready() {
    let (service, _answers) = one_at_a_time();
    let rules = FlowRule::per_second("/x", 1).into();
    for (kind, sentinel, mut service) in of_all_kinds(&rules, &service) {
        let mut runs = call(&mut service, "/x");
        assert!(poll_now(runs.as_mut()).is_pending());
        for _ in 0..3 {
            let answer = ready(call(&mut service, "/x"));
            assert_eq!(refused_by(answer), Some("limit"), "{kind}");
        }
        drop(runs);
        let totals = assert_at_rest(&sentinel, "/x");
        assert_eq!((totals.cancelled(), totals.block()), (1, 3), "{kind}");
    }
}

#[test]
fn an_open_breaker_refuses_although_the_service_is_not_ready() {
    let (mock, mut upstream) = mock::pair::<_, Response<Body>>();
    upstream.allow(0);
    let rules = CircuitBreakerRule::error_ratio("/x", 0.5).into();
    for (kind, sentinel, mut service) in of_all_kinds(&rules, &mock) {
        drop(sentinel.try_enter(Call::new("/x")));
        sentinel.node("/x").unwrap().breakers()[0].force_open();
        let answer = ready(call(&mut service, "/x"));
        assert_eq!(refused_by(answer), Some("breaker"), "{kind}");
        assert_at_rest(&sentinel, "/x");
    }
}

#[tokio::test]
async fn of_two_hundred_calls_before_a_busy_service_two_pass() {
    let rules = IsolationRule::new("/x", 2).into();
    let (service, answers) = one_at_a_time();
    for (kind, sentinel, service) in of_all_kinds(&rules, &service) {
        let calls = (0..200).map(|_| service.clone().oneshot(get("/x")));
        let mut calls = pin!(join_all(calls));
        assert!(poll_now(calls.as_mut()).is_pending());
        answers.add_permits(2);
        let answers = calls.await.into_iter().map(refused_by);
        let refused = answers.filter(|by| *by == Some("limit")).count();
        assert_eq!(refused, 198, "{kind}");
        assert_eq!(assert_at_rest(&sentinel, "/x").complete(), 2, "{kind}");
    }
}

#[tokio::test]
async fn without_it_all_two_hundred_calls_wait_and_none_is_refused() {
    let (service, answers) = one_at_a_time();
    answers.add_permits(200);
    let (sentinel, _clock) = engine(IsolationRule::new("/x", 2));
    let service = SentinelLayer::with(sentinel.clone()).layer(service);
    let calls = join_all((0..200).map(|_| service.clone().oneshot(get("/x"))));
    for answer in calls.await {
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(assert_at_rest(&sentinel, "/x").complete(), 200);
}

#[tokio::test]
async fn in_an_axum_router_calls_are_judged_first_anyway() {
    let (sentinel, _clock) = engine(IsolationRule::new("/x", 2));
    let answers = Arc::new(Semaphore::new(0));
    let held = answers.clone();
    let handler = move || async move { held.acquire().await.unwrap().forget() };
    let app = axum::Router::new()
        .route("/x", axum::routing::get(handler))
        .layer(ConcurrencyLimitLayer::new(1))
        .layer(SentinelLayer::with(sentinel.clone()));
    let calls = (0..200).map(|_| app.clone().oneshot(get("/x")));
    let mut calls = pin!(join_all(calls));
    assert!(poll_now(calls.as_mut()).is_pending());
    answers.add_permits(2);
    let statuses = calls
        .await
        .into_iter()
        .map(|answer| answer.unwrap().status());
    let passed = statuses.filter(|status| *status == StatusCode::OK).count();
    assert_eq!(passed, 2);
}

#[tokio::test]
async fn with_load_shed_inside_a_busy_service_fails_the_calls_that_pass() {
    let (service, _answers) = one_at_a_time();
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 2));
    let mut service = ServiceBuilder::new()
        .layer(SentinelLayer::with(sentinel.clone()))
        .layer(LoadShedLayer::new())
        .service(service);
    let mut runs = pin!(ready(service.ready()).unwrap().call(get("/x")));
    assert!(poll_now(runs.as_mut()).is_pending());
    let shed = ready(ready(service.ready()).unwrap().call(get("/x")));
    assert!(
        shed.unwrap_err()
            .is::<tower::load_shed::error::Overloaded>()
    );
    let refused = ready(ready(service.ready()).unwrap().call(get("/x"))).unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    // Such a call has run, and failed.
    assert_eq!(sentinel.node("/x").unwrap().totals().error(), 1);
}

// === waiting for the service ===

#[tokio::test]
async fn a_call_that_waits_for_the_service_runs_and_holds_its_slot() {
    let rules = IsolationRule::new("/x", 2).into();
    let (service, answers) = one_at_a_time();
    for (kind, sentinel, mut service) in of_all_kinds(&rules, &service) {
        let runs = tokio::spawn(call(&mut service, "/x"));
        let waits = tokio::spawn(call(&mut service, "/x"));
        tokio::task::yield_now().await;
        let node = sentinel.node("/x").unwrap();
        assert_eq!((node.concurrency(), node.waiting()), (2, 0), "{kind}");
        let answer = call(&mut service, "/x").await;
        assert_eq!(refused_by(answer), Some("limit"), "{kind}");
        answers.add_permits(2);
        for call in [runs, waits] {
            assert_eq!(refused_by(call.await.unwrap()), None, "{kind}");
        }
        let totals = assert_at_rest(&sentinel, "/x");
        assert_eq!((totals.complete(), totals.waited()), (2, ms(0)), "{kind}");
    }
}

#[tokio::test]
async fn a_skipped_call_waits_for_the_service_and_is_not_counted() {
    let (service, answers) = one_at_a_time();
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 0));
    let layer = SentinelLayer::with(sentinel.clone()).judge_first();
    let mut service = layer.skip(|_| true).layer(service);
    let runs = ready(service.ready()).unwrap().call(get("/x"));
    let mut waits = pin!(ready(service.ready()).unwrap().call(get("/x")));
    assert!(poll_now(waits.as_mut()).is_pending());
    answers.add_permits(2);
    assert_eq!(runs.await.unwrap().status(), StatusCode::OK);
    assert_eq!(waits.await.unwrap().status(), StatusCode::OK);
    assert!(sentinel.node("/x").is_none());
}

#[tokio::test]
async fn a_call_keeps_the_place_in_the_queue_of_the_service() {
    let rules = Rules::new();
    let (service, answers) = one_at_a_time();
    for (kind, sentinel, mut service) in of_all_kinds(&rules, &service) {
        let first = call(&mut service, "/1");
        let mut second = call(&mut service, "/2");
        let mut third = call(&mut service, "/3");
        // The third asks first, but its turn was given away before.
        assert!(poll_now(third.as_mut()).is_pending());
        assert!(poll_now(second.as_mut()).is_pending());
        answers.add_permits(1);
        assert_eq!(refused_by(first.await), None, "{kind}");
        answers.add_permits(1);
        assert!(poll_now(third.as_mut()).is_pending(), "{kind}");
        assert_eq!(refused_by(second.await), None, "{kind}");
        answers.add_permits(1);
        assert_eq!(refused_by(third.await), None, "{kind}");
        assert_at_rest(&sentinel, "/3");
    }
}

#[test]
fn a_call_dropped_while_it_waits_for_the_service_gives_all_back() {
    let rules = IsolationRule::new("/x", 2).into();
    let (limited, _answers) = one_at_a_time();
    for (kind, sentinel, mut service) in of_all_kinds(&rules, &limited) {
        let runs = call(&mut service, "/x");
        for polls in 0..3 {
            let mut waits = call(&mut service, "/x");
            for _ in 0..polls {
                assert!(poll_now(waits.as_mut()).is_pending());
            }
            assert_eq!(sentinel.node("/x").unwrap().slots_in_use(), 2, "{kind}");
            drop(waits);
            assert_eq!(sentinel.node("/x").unwrap().slots_in_use(), 1, "{kind}");
        }
        drop(runs);
        assert_eq!(assert_at_rest(&sentinel, "/x").cancelled(), 4, "{kind}");
        // The permit is free, also for one that asks only now.
        assert!(poll_now(pin!(limited.clone().ready())).is_ready(), "{kind}");
    }
}

#[test]
fn a_refused_call_leaves_the_queue_of_the_service() {
    let rules = FlowRule::per_second("/x", 0).into();
    let (limited, answers) = one_at_a_time();
    answers.add_permits(10);
    for (kind, _sentinel, mut service) in of_all_kinds(&rules, &limited) {
        let mut holder = limited.clone();
        ready(holder.ready()).unwrap();
        for _ in 0..3 {
            let answer = ready(call(&mut service, "/x"));
            assert_eq!(refused_by(answer), Some("limit"), "{kind}");
        }
        drop(holder);
        // While `service` lives: no instance of it waits for the permit.
        let mut other = limited.clone();
        assert!(poll_now(pin!(other.ready())).is_ready(), "{kind}");
        drop(other);
        drop(service);
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_turn_a_call_is_judged_before_the_service_is_ready() {
    for judge_first in [false, true] {
        let rules = Rules::new()
            .with(FlowRule::per_second(RESOURCE, 1))
            .with(CircuitBreakerRule::error_ratio(RESOURCE, 0.5));
        let sentinel = Sentinel::builder()
            .rules(rules)
            .clock(tower_sentinel::clock::TokioClock::new())
            .build();
        let (mock, mut upstream) = mock::pair::<Request<Body>, Response<Body>>();
        upstream.allow(1);
        let mut layer = SentinelLayer::with(sentinel.clone()).prioritize(is_prioritized);
        if judge_first {
            layer = layer.judge_first();
        }
        let mut service = layer.layer(mock);
        drop(sentinel.try_enter(Call::new(RESOURCE)));
        tokio::time::advance(ms(600)).await;
        upstream.allow(0);
        let mut waits = pin!(if judge_first {
            ready(service.ready())
                .unwrap()
                .call(prioritized(get(RESOURCE)))
        } else {
            // It was ready before.
            service.call(prioritized(get(RESOURCE)))
        });
        assert!(poll_now(waits.as_mut()).is_pending());
        let node = sentinel.node(RESOURCE).unwrap();
        assert_eq!((node.waiting(), node.concurrency()), (1, 0));
        node.breakers()[0].force_open();
        tokio::time::advance(ms(400)).await;
        let polled = poll_now(waits.as_mut());
        let Poll::Ready(refused) = polled else {
            assert!(!judge_first);
            continue;
        };
        assert!(judge_first);
        assert_eq!(refused.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_at_rest(&sentinel, RESOURCE);
    }
}

// === errors and panics ===

/// What a service answers when it is asked whether it is ready, in turn; the last for ever.
#[derive(Clone, Copy)]
enum Readiness {
    Pending,
    Error,
    Panic,
}

#[derive(Clone)]
struct Moody {
    moods: &'static [Readiness],
    asked: Arc<AtomicU32>,
}

fn moody(moods: &'static [Readiness]) -> Moody {
    Moody {
        moods,
        asked: Arc::default(),
    }
}

impl Service<Request<Body>> for Moody {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Ready<Inside<Body>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) as usize;
        match self.moods[asked.min(self.moods.len() - 1)] {
            Readiness::Pending => Poll::Pending,
            Readiness::Error => Poll::Ready(Err("out of order".into())),
            Readiness::Panic => panic!("out of order"),
        }
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        panic!("it is not ready");
    }
}

#[test]
fn an_error_that_ends_the_wait_for_the_service_is_its_failure() {
    for index in 0..3 {
        let service = moody(&[Readiness::Pending, Readiness::Error]);
        let rules = CircuitBreakerRule::consecutive_errors("/x", 1).into();
        let (kind, sentinel, mut service) = of_all_kinds(&rules, &service)
            .into_iter()
            .nth(index)
            .unwrap();
        let error = ready(call(&mut service, "/x")).unwrap_err();
        assert_eq!(error.to_string(), "out of order", "{kind}");
        let node = sentinel.node("/x").unwrap();
        assert_eq!(node.breakers()[0].state(), BreakerState::Open, "{kind}");
        let totals = assert_at_rest(&sentinel, "/x");
        assert_eq!((totals.complete(), totals.error()), (1, 1), "{kind}");
    }
}

#[test]
fn what_an_error_that_ends_the_wait_means_can_be_told() {
    let (sentinel, _clock) = engine(Rules::new());
    let classify = |_: Result<&Response<Body>, &BoxError>| Outcome::Ignore;
    assert_eq!(classify.outcome(Err(&"".into())), Outcome::Ignore);
    let layer = CallLayer::with(sentinel.clone(), |_: &Request<Body>| Call::new("/x"));
    let layer = layer.judge_first().classify(classify);
    let mut service = layer.layer(moody(&[Readiness::Pending, Readiness::Error]));
    ready(ready(service.ready()).unwrap().call(get("/x"))).unwrap_err();
    let totals = assert_at_rest(&sentinel, "/x");
    assert_eq!((totals.complete(), totals.error()), (1, 0));
}

#[test]
fn a_skipped_call_gets_the_error_of_the_service_too() {
    let service = moody(&[Readiness::Pending, Readiness::Error]);
    let [(_, sentinel, mut service), ..] = of_all_kinds(&Rules::new(), &service);
    let error = ready(call(&mut service, "/skipped")).unwrap_err();
    assert_eq!(error.to_string(), "out of order");
    assert!(sentinel.node("/skipped").is_none());
}

#[test]
fn an_error_of_a_service_that_is_asked_belongs_to_no_call() {
    let service = moody(&[Readiness::Error]);
    for (kind, sentinel, mut service) in of_all_kinds(&Rules::new(), &service) {
        let asked = poll_now(pin!(service.ready()));
        assert!(matches!(asked, Poll::Ready(Err(_))), "{kind}");
        assert!(sentinel.node("/x").is_none(), "{kind}");
    }
}

#[test]
fn a_panic_of_the_service_that_a_call_waits_for_is_one_of_the_call() {
    for index in 0..3 {
        let service = moody(&[Readiness::Pending, Readiness::Panic]);
        let all = of_all_kinds(&IsolationRule::new("/x", 1).into(), &service);
        let (kind, sentinel, mut service) = all.into_iter().nth(index).unwrap();
        let mut waits = call(&mut service, "/x");
        let poll = AssertUnwindSafe(|| poll_now(waits.as_mut()).is_ready());
        assert!(catch_unwind(poll).is_err(), "{kind}");
        // Also while the future lives on.
        let totals = assert_at_rest(&sentinel, "/x");
        assert_eq!((totals.panicked(), totals.error()), (1, 1), "{kind}");
        drop(waits);
    }
}

// === a service that is ready ===

#[test]
fn a_service_that_is_ready_is_neither_cloned_nor_asked_again() {
    #[derive(Debug, Default)]
    struct Counting {
        clones: Arc<AtomicU32>,
        asked: Arc<AtomicU32>,
    }
    impl Clone for Counting {
        fn clone(&self) -> Self {
            self.clones.fetch_add(1, Ordering::SeqCst);
            Self {
                clones: self.clones.clone(),
                asked: self.asked.clone(),
            }
        }
    }
    impl Service<Request<Body>> for Counting {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            std::future::ready(Ok(Response::new(Body::empty())))
        }
    }
    let counting = Counting::default();
    let (clones, asked) = (counting.clones.clone(), counting.asked.clone());
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 9));
    let mut service = SentinelLayer::with(sentinel).judge_first().layer(counting);
    for _ in 0..3 {
        let Ok(response) = ready(ready(service.ready()).unwrap().call(get("/x")));
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert_eq!(clones.load(Ordering::SeqCst), 0);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn a_service_that_became_ready_before_the_call_is_called_at_once() {
    let (mock, mut upstream) = mock::pair::<Request<Body>, Response<Body>>();
    let [(_, _, mut service), ..] = of_all_kinds(&Rules::new(), &mock);
    upstream.allow(0);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready());
    upstream.allow(1);
    assert!(service.poll_ready(&mut cx).is_ready());
    let _runs = service.call(get("/x"));
    // It has the request, although nobody has polled the call.
    assert!(poll_now(pin!(upstream.next_request())).is_ready());
}

/// The future of an inner service as large as most.
type Plain = ServiceFn<fn(Request<Body>) -> BoxFuture<'static, Inside<Body>>>;

#[test]
fn the_future_of_a_call_is_no_larger_for_it() {
    type Of = tower_sentinel::middleware::ResponseFuture<
        Plain,
        Request<Body>,
        tower_sentinel::middleware::Respond,
    >;
    fn is_future<F: Future>() {}
    is_future::<Of>();
    assert!(size_of::<Of>() <= size_of::<Request<Body>>() + 96);
}
