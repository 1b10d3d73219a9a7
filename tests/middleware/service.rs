//! The layers as tower services: readiness, errors, hooks, and the properties
//! of their types.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{Future, Ready};
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::Body as _;
use http_body::Frame;
use http_body_util::BodyExt;
use tower::limit::ConcurrencyLimitLayer;
use tower::util::ServiceFn;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::clock::Tick;
use tower_sentinel::hook::{BlockEvent, ExitEvent, Hook, PassEvent};
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::middleware::{
    AsError, ByStatus, CallLayer, Classify, Judgement, Respond, ResponseBody, ResponseFuture,
    ResponseHead, ServiceError,
};
use tower_sentinel::read::BreakerState;
use tower_sentinel::stat::{NodeBucket, Outcome};
use tower_sentinel::{
    AdaptiveRule, BlockKind, Blocked, BoxError, Call, CircuitBreakerRule, Clock, FlowRule,
    IsolationRule, KeyedRule, Rule, Rules, Sentinel, SentinelLayer, SystemRule, Verdict,
};
use tower_test::mock;

use crate::support::{assert_at_rest, engine, get, ms, poll_now, ready};

// === readiness and errors ===

fn poll_ready<S: Service<Request<Body>>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn readiness_is_that_of_the_inner_service_and_counts_nothing() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 1));
    let (mock, mut upstream) = mock::pair::<_, Response<Body>>();
    let layer = SentinelLayer::with(sentinel.clone());
    let call = CallLayer::with(sentinel.clone(), |_: &Request<Body>| Call::new("/x"));
    let mut respond = layer.layer(mock.clone());
    let mut fail = layer.refusals_as_errors().layer(mock.clone());
    let mut call = call.layer(mock);
    let mut poll_all = || {
        [
            poll_ready(&mut respond),
            poll_ready(&mut fail),
            poll_ready(&mut call),
        ]
    };

    upstream.allow(0);
    assert!(poll_all().iter().all(Poll::is_pending));
    upstream.allow(1);
    for _ in 0..10 {
        let is_ready = |poll: &Poll<_>| matches!(poll, Poll::Ready(Ok(())));
        assert!(poll_all().iter().all(is_ready));
    }
    for service in 0..3 {
        upstream.send_error("broken");
        // The error comes out of whichever is asked first.
        let polls = match service {
            0 => poll_ready(&mut respond),
            1 => poll_ready(&mut fail),
            _ => poll_ready(&mut call),
        };
        assert!(matches!(polls, Poll::Ready(Err(error)) if error.to_string() == "broken"));
    }
    assert!(sentinel.node("/x").is_none());
}

#[test]
fn in_fail_mode_a_refusal_is_an_error_that_can_be_told_from_the_services() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 2));
    let layer = SentinelLayer::with(sentinel.clone()).refusals_as_errors();
    let service = layer.layer(service_fn(|request: Request<Body>| async move {
        match request.uri().query() {
            None => Ok(Response::new(Body::empty())),
            Some(_) => Err(std::fmt::Error),
        }
    }));
    let answer = |path| ready(service.clone().oneshot(get(path)));
    assert_eq!(answer("/x").unwrap().status(), StatusCode::OK);
    assert!(answer("/x?broken").unwrap_err().is::<std::fmt::Error>());
    let refused = answer("/x").unwrap_err();
    let blocked = refused.downcast_ref::<Blocked>().unwrap();
    assert_eq!(
        (blocked.kind(), blocked.resource()),
        (BlockKind::Flow, "/x")
    );

    let totals = assert_at_rest(&sentinel, "/x");
    assert_eq!((totals.complete(), totals.error()), (2, 1));
    assert_eq!(totals.block(), 1);
}

#[test]
fn a_refused_call_does_not_hold_the_permit_of_an_inner_limit() {
    async fn answer<T>(_: T) -> Result<Response<Body>, BoxError> {
        Ok(Response::new(Body::empty()))
    }
    /// Makes a call that is refused, and asks whether another handle is ready.
    fn is_free_after_a_refusal<S, Req>(mut service: S, request: Req) -> bool
    where
        S: Service<Req, Error = BoxError> + Clone,
    {
        drop(ready(ready(service.ready()).unwrap().call(request)));
        let mut other = service.clone();
        let is_free = poll_now(pin!(other.ready())).is_ready();
        drop(service);
        is_free
    }
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 0));
    let layer = SentinelLayer::with(sentinel.clone());
    let calls = CallLayer::with(sentinel.clone(), |_: &()| Call::new("/x"));
    let limit = ConcurrencyLimitLayer::new(1);
    let http = || limit.layer(service_fn(answer));
    assert!(is_free_after_a_refusal(layer.layer(http()), get("/x")));
    assert!(is_free_after_a_refusal(
        layer.refusals_as_errors().layer(http()),
        get("/x")
    ));
    let other = limit.layer(service_fn(answer::<()>));
    assert!(is_free_after_a_refusal(calls.layer(other), ()));
    assert_eq!(assert_at_rest(&sentinel, "/x").block(), 3);
}

#[test]
fn a_refusal_of_another_layer_says_nothing_about_the_service() {
    fn call<T>(_: &T) -> Call<'_> {
        Call::new("/x")
    }
    async fn answer<T>(_: T) -> Result<Response<Body>, BoxError> {
        Ok(Response::new(Body::empty()))
    }
    let breaker = CircuitBreakerRule::error_count("/x", 1).min_calls(1);
    let (outer, _clock) = engine(breaker);
    let (inner, _clock) = engine(FlowRule::per_second("/x", 0));
    let fail = SentinelLayer::with(outer.clone()).refusals_as_errors();
    let fail = fail.layer(
        SentinelLayer::with(inner.clone())
            .refusals_as_errors()
            .layer(service_fn(answer)),
    );
    let calls = CallLayer::with(outer.clone(), call as fn(&()) -> Call<'_>);
    // Whatever the classifier makes of it.
    let calls = calls.classify(|_: Result<&Response<Body>, &BoxError>| Outcome::Failure);
    let calls = calls.layer(CallLayer::with(inner, call).layer(service_fn(answer::<()>)));
    for _ in 0..3 {
        let errors = [
            ready(fail.clone().oneshot(get("/x"))).unwrap_err(),
            ready(calls.clone().oneshot(())).unwrap_err(),
        ];
        for error in errors {
            // The breaker would refuse the next one if it took this for a failure.
            let blocked = error.downcast_ref::<Blocked>().unwrap();
            assert_eq!(blocked.kind(), BlockKind::Flow);
        }
    }
    // Nor where errors are not made boxes by this layer, but are some.
    let respond = SentinelLayer::with(outer.clone());
    let respond = respond.layer(
        SentinelLayer::with(engine(FlowRule::per_second("/x", 0)).0)
            .refusals_as_errors()
            .layer(service_fn(answer)),
    );
    ready(respond.oneshot(get("/x"))).unwrap_err();
    let totals = assert_at_rest(&outer, "/x");
    assert_eq!((totals.complete(), totals.error()), (7, 0));
}

#[test]
fn a_service_whose_error_is_a_refusal_has_not_failed() {
    let (inside, _clock) = engine(FlowRule::per_second("inside", 0));
    let (around, _clock) = engine(CircuitBreakerRule::error_count("/x", 1).min_calls(1));
    let layer = SentinelLayer::with(around.clone());
    let service = layer.layer(service_fn(move |_: Request<Body>| {
        let Verdict::Block(blocked) = inside.try_enter(Call::new("inside")) else {
            panic!("nobody passes");
        };
        std::future::ready(Err::<Response<Body>, Blocked>(blocked))
    }));
    for _ in 0..3 {
        // The breaker would refuse the next one if it took this for a failure.
        let error = ready(service.clone().oneshot(get("/x"))).unwrap_err();
        assert_eq!(error.resource(), "inside");
    }
    let totals = assert_at_rest(&around, "/x");
    assert_eq!((totals.complete(), totals.error()), (3, 0));
}

#[test]
fn a_refusal_among_the_sources_of_an_error_says_nothing_about_the_service() {
    /// What a program makes of the errors of a layer inside.
    #[derive(Debug)]
    struct Wrapped(BoxError);

    impl std::fmt::Display for Wrapped {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("it could not be asked")
        }
    }

    impl std::error::Error for Wrapped {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&*self.0)
        }
    }

    fn wrap(error: BoxError) -> Wrapped {
        Wrapped(Wrapped(error).into())
    }
    async fn answer(_: Request<Body>) -> Result<Response<Body>, BoxError> {
        Err(io::Error::from(ErrorKind::ConnectionRefused).into())
    }
    let breaker = CircuitBreakerRule::error_count("/x", 1).min_calls(1);
    let (outer, _clock) = engine(breaker);
    let layer = SentinelLayer::with(outer.clone());
    let calls = CallLayer::with(outer.clone(), |_: &Request<Body>| Call::new("/x"));
    let inside = |limit| {
        let (inner, _clock) = engine(FlowRule::per_second("/x", limit));
        let service = SentinelLayer::with(inner)
            .refusals_as_errors()
            .layer(service_fn(answer));
        service.map_err(wrap)
    };
    for _ in 0..3 {
        let errors = [
            ready(
                layer
                    .clone()
                    .refusals_as_errors()
                    .layer(inside(0))
                    .oneshot(get("/x")),
            ),
            ready(
                layer
                    .layer(inside(0).map_err(BoxError::from))
                    .oneshot(get("/x")),
            ),
        ];
        for error in errors {
            // The breaker would refuse the next one if it took this for a failure.
            assert!(error.unwrap_err().is::<Wrapped>());
        }
        let error = ready(calls.layer(inside(0)).oneshot(get("/x"))).unwrap_err();
        assert!(error.is::<Wrapped>());
    }
    assert_eq!(assert_at_rest(&outer, "/x").error(), 0);
    // What failed inside fails.
    ready(calls.layer(inside(1)).oneshot(get("/x"))).unwrap_err();
    let refused = ready(
        layer
            .refusals_as_errors()
            .layer(inside(1))
            .oneshot(get("/x")),
    )
    .unwrap_err();
    assert!(refused.is::<Blocked>());
    let totals = assert_at_rest(&outer, "/x");
    assert_eq!((totals.complete(), totals.error()), (10, 1));
}

#[test]
fn a_refusal_inside_of_an_io_error_says_nothing_about_the_service() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/inner", 0));
    let layer = |name| CallLayer::with(sentinel.clone(), move |(): &()| Call::new(name));
    let inner = layer("/inner").layer(service_fn(|()| async { Ok::<_, BoxError>(()) }));
    let inner = inner.map_err(io::Error::other).map_err(io::Error::other);
    ready(layer("/x").layer(inner).oneshot(())).unwrap_err();
    assert_eq!(assert_at_rest(&sentinel, "/x").error(), 0);
}

#[test]
fn an_error_that_is_its_own_source_ends_like_any_other() {
    #[derive(Debug)]
    struct Endless;

    impl std::fmt::Display for Endless {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("it goes on and on")
        }
    }

    impl std::error::Error for Endless {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(self)
        }
    }

    let (sentinel, _clock) = engine(Rules::new());
    let layer = CallLayer::with(sentinel.clone(), |(): &()| Call::new("/x"));
    let service = layer.layer(service_fn(|()| async { Err::<(), _>(Endless) }));
    ready(service.oneshot(())).unwrap_err();
    assert_eq!(assert_at_rest(&sentinel, "/x").error(), 1);
}

#[test]
fn an_error_of_any_service_is_a_failure_and_an_answer_is_none() {
    let (sentinel, _clock) = engine(Rules::new());
    let layer = CallLayer::with(sentinel.clone(), |_: &bool| Call::new("job"));
    let service = layer.layer(service_fn(|is_good: bool| async move {
        let error = || io::Error::from(ErrorKind::ConnectionRefused);
        is_good.then_some(503).ok_or_else(error)
    }));
    assert_eq!(ready(service.clone().oneshot(true)).unwrap(), 503);
    let error = ready(service.oneshot(false)).unwrap_err();
    assert!(error.is::<io::Error>());
    let totals = assert_at_rest(&sentinel, "job");
    assert_eq!((totals.complete(), totals.error()), (2, 1));
}

#[test]
fn what_an_answer_means_can_be_told_of_any_service() {
    // Who is down says so in its answers, and errors are the caller's own.
    let classify = |answer: Result<&u16, &io::Error>| match answer {
        Ok(500..) => Outcome::Failure,
        Ok(400..) | Err(_) => Outcome::Ignore,
        Ok(_) => Outcome::Success,
    };
    let breaker = CircuitBreakerRule::error_ratio("job", 0.5)
        .min_calls(2)
        .open_for(ms(5_000));
    let (sentinel, clock) = engine(breaker);
    let layer = CallLayer::with(sentinel.clone(), |_: &u16| Call::new("job")).classify(classify);
    let service = layer.layer(service_fn(|status| async move {
        if status == 0 {
            return Err(io::Error::from(ErrorKind::InvalidInput));
        }
        Ok(status)
    }));
    let send = |status| ready(service.clone().oneshot(status));
    for status in [404, 404, 404, 0, 0, 503] {
        assert!(!send(status).is_err_and(|error| error.is::<Blocked>()));
    }
    // One of one has failed, which is too few.
    let state = || sentinel.node("job").unwrap().breakers()[0].state();
    assert_eq!(state(), BreakerState::Closed);
    send(200).unwrap();
    assert_eq!(state(), BreakerState::Open);
    assert!(send(200).unwrap_err().is::<Blocked>());

    // An answer that says nothing leaves the way free for another probe.
    clock.advance(ms(5_000));
    send(404).unwrap();
    assert_eq!(state(), BreakerState::Open);
    send(200).unwrap();
    assert_eq!(state(), BreakerState::Closed);
    let totals = assert_at_rest(&sentinel, "job");
    assert_eq!((totals.complete(), totals.error()), (9, 1));
}

#[test]
fn what_an_error_means_can_be_told_by_what_it_is() {
    /// What did not leave the client is no failure of the server.
    struct Unsent;

    impl Classify for Unsent {
        fn head(&self, head: ResponseHead<'_>) -> Judgement {
            ByStatus.head(head)
        }

        fn error(&self, error: ServiceError<'_>) -> Outcome {
            match error.downcast_ref::<io::Error>() {
                Some(error) if error.kind() == ErrorKind::InvalidInput => Outcome::Ignore,
                _ => ByStatus.error(error),
            }
        }
    }

    let kind = |request: &Request<Body>| match request.uri().path() {
        "/bad" => ErrorKind::InvalidInput,
        _ => ErrorKind::ConnectionRefused,
    };
    let plain = service_fn(move |request| {
        std::future::ready(Err::<Response<Body>, _>(io::Error::from(kind(&request))))
    });
    let boxed = plain.map_err(BoxError::from);
    let (sentinel, _clock) = engine(Rules::new());
    let layer = SentinelLayer::with(sentinel.clone()).classify(Unsent);
    for path in ["/bad", "/away"] {
        ready(layer.layer(plain).oneshot(get(path))).unwrap_err();
        ready(layer.layer(boxed.clone()).oneshot(get(path))).unwrap_err();
        ready(
            layer
                .clone()
                .refusals_as_errors()
                .layer(plain)
                .oneshot(get(path)),
        )
        .unwrap_err();
        let error = ready(
            layer
                .clone()
                .refusals_as_errors()
                .layer(boxed.clone())
                .oneshot(get(path)),
        );
        // It comes out as it went in, in no box of a box.
        assert!(error.unwrap_err().is::<io::Error>());
    }
    let errors = |path| {
        let totals = assert_at_rest(&sentinel, path);
        (totals.complete(), totals.error())
    };
    assert_eq!((errors("/bad"), errors("/away")), ((4, 0), (4, 4)));
}

// === hooks ===

type Answer = Ready<Result<Response<Body>, Infallible>>;

/// Answers at once, or panics at `/x?panic`.
fn answer(request: Request<Body>) -> Answer {
    let (head, _) = request.into_parts();
    assert_ne!(head.uri.query(), Some("panic"));
    std::future::ready(Ok(Response::new(Body::empty())))
}

/// The status that a request for `path` gets.
fn status(sentinel: &Sentinel, path: &str) -> StatusCode {
    let service = SentinelLayer::with(sentinel.clone()).layer(service_fn(answer));
    ready(service.oneshot(get(path))).unwrap().status()
}

/// Does the same whatever it is told.
struct Always<F>(F);

impl<F> Debug for Always<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Always")
    }
}

impl<F: Fn() + Send + Sync + 'static> Hook for Always<F> {
    fn on_pass(&self, _: &PassEvent<'_>) {
        self.0();
    }

    fn on_block(&self, _: &BlockEvent<'_>) {
        self.0();
    }

    fn on_exit(&self, _: &ExitEvent<'_>) {
        self.0();
    }
}

#[test]
fn a_hook_that_panics_harms_neither_calls_nor_other_hooks() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/x", 2));
    let told = Arc::new(AtomicU32::new(0));
    let count = {
        let told = told.clone();
        move || {
            told.fetch_add(1, Ordering::Relaxed);
        }
    };
    let hooks = sentinel.hooks();
    hooks.register("nervous", Arc::new(Always(|| panic!("nervous"))));
    hooks.register("calm", Arc::new(Always(count)));

    assert_eq!(status(&sentinel, "/x"), StatusCode::OK);
    // Told of an exit while the thread unwinds, it panics once more.
    let panicking = AssertUnwindSafe(|| status(&sentinel, "/x?panic"));
    assert!(catch_unwind(panicking).is_err());
    assert_eq!(status(&sentinel, "/x"), StatusCode::TOO_MANY_REQUESTS);

    assert_eq!(told.load(Ordering::Relaxed), 5);
    assert_eq!(sentinel.hooks().panics(), 5);
    let totals = assert_at_rest(&sentinel, "/x");
    assert_eq!((totals.complete(), totals.panicked()), (2, 1));
    assert_eq!(totals.block(), 1);
}

// === types ===

/// An inner service whose future is `F`.
type Inner<F> = ServiceFn<fn(Request<Body>) -> F>;

/// As layers for CORS and timeouts do that answer on their own.
#[tokio::test]
async fn a_layer_around_can_answer_with_an_empty_body() {
    let (sentinel, _clock) = engine(IsolationRule::new("/x", 1));
    let layer = SentinelLayer::with(sentinel.clone());
    let service = layer.layer(service_fn(answer));
    let Ok(response) = service.oneshot(get("/x")).await;
    let empty = response.map(|_| ResponseBody::<Body>::default());
    assert_at_rest(&sentinel, "/x");
    assert!(empty.body().is_end_stream());
    assert_eq!(empty.body().size_hint().exact(), Some(0));
    let body = empty.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), Bytes::new());
}

/// A future as large as some are.
struct Large([u8; 1_024]);

impl Future for Large {
    type Output = Result<Response<Body>, BoxError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let byte = self.0[0];
        Poll::Ready(Err(byte.to_string().into()))
    }
}

#[test]
fn a_response_future_is_little_larger_than_the_one_inside() {
    type Of<S, M> = ResponseFuture<S, Request<Body>, M>;
    type Inside<S> = <S as Service<Request<Body>>>::Future;
    type Boxed = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn added<S: Service<Request<Body>>>() -> usize {
        let outside = size_of::<Of<S, Respond>>().max(size_of::<Of<S, AsError>>());
        outside - size_of::<Inside<S>>()
    }
    assert!(added::<Inner<Large>>() <= 104, "the entry and the class");
    assert!(added::<Inner<Answer>>() <= 256);
    assert!(added::<Router>() <= 256);
    // Where the future inside is small, a refused request is the largest.
    let request = size_of::<Request<Body>>();
    assert!(size_of::<Of<Inner<Boxed>, Respond>>() <= request + 96);

    // The large one works like any other.
    let (sentinel, _clock) = engine(Rules::new());
    let large = service_fn(|_: Request<Body>| Large([7; 1_024]));
    let answer = ready(SentinelLayer::with(sentinel).layer(large).call(get("/x")));
    assert_eq!(answer.unwrap_err().to_string(), "7");
}

#[tokio::test]
async fn templates_come_and_go_with_the_rules() {
    let sentinel = Sentinel::new(FlowRule::per_second("/login", 0));
    let service = SentinelLayer::with(sentinel.clone()).layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let status = async |path: &str| {
        let request = Request::builder().uri(path).body(()).unwrap();
        service.clone().oneshot(request).await.unwrap().status()
    };
    let refused = StatusCode::TOO_MANY_REQUESTS;
    // A template without braces is the path itself.
    assert_eq!(status("/login").await, refused);
    assert_eq!(status("/users/7").await, StatusCode::OK);
    for _ in 0..2 {
        assert!(sentinel.reload(FlowRule::per_second("/users/{id}", 0).into()));
        assert_eq!(status("/users/7").await, refused);
        assert_eq!(status("/login").await, StatusCode::OK);
        assert!(sentinel.reload(FlowRule::per_second("/users/8", 0).into()));
        assert_eq!(status("/users/7").await, StatusCode::OK);
        assert_eq!(status("/users/8").await, refused);
    }
    assert_eq!(sentinel.node("/users/{id}").unwrap().totals().block(), 2);
}

#[test]
fn a_resource_that_a_rule_looks_at_is_named_by_its_template() {
    let (sentinel, _clock) = engine(FlowRule::per_second("/search", 2).when("/orders/{id}"));
    let service = SentinelLayer::with(sentinel).layer(service_fn(answer));
    let status = |path| ready(service.clone().oneshot(get(path))).unwrap().status();
    for path in ["/orders/1", "/search", "/orders/2"] {
        assert_eq!(status(path), StatusCode::OK);
    }
    assert_eq!(status("/search"), StatusCode::TOO_MANY_REQUESTS);
}

/// An engine, and how often its clock has been read.
fn counting_readings(rules: impl Into<Rules>) -> (Sentinel, Arc<AtomicU32>) {
    #[derive(Debug)]
    struct Counting(Arc<AtomicU32>);
    impl Clock for Counting {
        fn now(&self) -> Tick {
            self.0.fetch_add(1, Ordering::Relaxed);
            Tick::from_millis(10_000)
        }
    }
    let readings = Arc::new(AtomicU32::new(0));
    let builder = Sentinel::builder().clock(Counting(readings.clone()));
    (builder.rules(rules).build(), readings)
}

#[tokio::test]
async fn the_clock_is_read_once_at_each_end_of_a_call() {
    let (sentinel, readings) = counting_readings(FlowRule::per_second("/x", 1_000));
    drop(sentinel.try_enter(Call::new("/x")));
    let read = || readings.swap(0, Ordering::Relaxed);
    read();

    drop(sentinel.try_enter(Call::new("/x")));
    assert_eq!(read(), 2, "without a layer");

    let refused = sentinel.try_enter(Call::new("/x").batch(2_000));
    assert!(matches!(refused, Verdict::Block(_)));
    assert_eq!(read(), 1, "refused");

    let calls = CallLayer::with(sentinel.clone(), |_: &()| Call::new("/x"));
    let service = calls.layer(service_fn(async |()| Ok::<_, Infallible>(())));
    service.oneshot(()).await.unwrap();
    assert_eq!(read(), 2, "any service");

    // (what a body gives, how often it is polled, how often the clock is read)
    for (frames, polls, readings) in [
        ("", 0, 2),
        ("a", 0, 2),
        ("a", 1, 2),
        ("ab", 0, 2),
        ("ab", 1, 3),
        ("ab", 2, 3),
        (".a", 0, 2),
        (".a", 1, 3),
        (".a", 2, 3),
    ] {
        let mut body = body_of(&sentinel, frames).await;
        for _ in 0..polls {
            let _ = poll_now(pin!(body.frame()));
        }
        drop(body);
        assert_eq!(read(), readings, "{frames:?} after {polls} polls");
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_is_timed_once_unless_a_rule_wants_to_know_when_it_was_sent() {
    let rules: [(Rule, u32); 8] = [
        (FlowRule::per_second("/x", 9).into(), 2),
        (CircuitBreakerRule::error_ratio("/x", 0.5).into(), 2),
        (IsolationRule::new("/x", 9).into(), 2),
        (AdaptiveRule::new("/x").into(), 3),
        (KeyedRule::concurrency("/x", 9).into(), 3),
        (KeyedRule::per_second("/x", 9).into(), 2),
        (SystemRule::new().rt(ms(9)).concurrency(9).into(), 2),
        (FlowRule::per_second("/x", 9).for_origin("other").into(), 2),
    ];
    #[derive(Debug)]
    struct Told;
    impl Hook for Told {}
    for (rule, expected) in rules {
        let what = format!("{rule:?}");
        let (sentinel, readings) = counting_readings(rule);
        sentinel.hooks().register("any", Arc::new(Told));
        drop(body_of(&sentinel, "a").await);
        readings.store(0, Ordering::Relaxed);
        drop(body_of(&sentinel, "a").await);
        assert_eq!(readings.load(Ordering::Relaxed), expected, "{what}");
    }
}

#[tokio::test]
async fn who_is_told_what_is_left_costs_one_more_reading_of_the_clock() {
    let (sentinel, readings) = counting_readings(FlowRule::per_second("/x", 9));
    let layer = SentinelLayer::with(sentinel).fields(RateLimitFields::Ietf);
    let service = layer.layer(service_fn(answer));
    for expected in ["8", "7"] {
        readings.store(0, Ordering::Relaxed);
        let response = service.clone().oneshot(get("/x")).await.unwrap();
        let told = response.headers()["ratelimit"].to_str().unwrap();
        assert!(told.contains(&format!("r={expected};")), "{told}");
    }
    assert_eq!(readings.load(Ordering::Relaxed), 3);
}

/// The body of an answer to a call of "/x".
async fn body_of(sentinel: &Sentinel, frames: &'static str) -> ResponseBody<Frames> {
    let service =
        service_fn(async move |_: Request<()>| Ok::<_, Infallible>(Response::new(Frames(frames))));
    let service = SentinelLayer::with(sentinel.clone()).layer(service);
    let request = get("/x").map(|_| ());
    service.oneshot(request).await.unwrap().into_body()
}

#[tokio::test]
async fn an_answer_in_one_piece_counts_when_it_came_and_a_streamed_one_when_it_ends() {
    for (frames, completed) in [
        ("a", [1, 0]),
        ("ab", [0, 1]),
        (".a", [0, 1]),
        ("!", [0, 1]),
        ("*", [0, 1]),
    ] {
        let (sentinel, clock) = engine(FlowRule::per_second("/x", 1_000));
        let mut body = body_of(&sentinel, frames).await;
        clock.advance(ms(1_000));
        for _ in 0..2 {
            let _ = catch_unwind(AssertUnwindSafe(|| poll_now(pin!(body.frame()))));
        }
        let node = sentinel.node("/x").unwrap();
        let seconds = node.seconds().unwrap();
        let complete: Vec<_> = seconds.iter().map(NodeBucket::complete).collect();
        assert_eq!(complete, completed, "{frames:?}");
        assert_eq!((node.concurrency(), node.totals().complete()), (0, 1));
    }
}

/// Tells the response times that it is told.
#[derive(Debug)]
struct Times(mpsc::Sender<Duration>);

impl Hook for Times {
    fn on_exit(&self, event: &ExitEvent<'_>) {
        self.0.send(event.rt()).unwrap();
    }
}

#[tokio::test]
async fn the_response_time_that_hooks_are_told_ends_with_the_head() {
    for frames in ["a", "ab", ".a", "!", "*"] {
        let (sentinel, clock) = engine(FlowRule::per_second("/x", 1_000));
        let (sender, times) = mpsc::channel();
        sentinel.hooks().register("times", Arc::new(Times(sender)));
        let ticking = clock.clone();
        let service = service_fn(move |_: Request<()>| {
            ticking.advance(ms(10));
            std::future::ready(Ok::<_, Infallible>(Response::new(Frames(frames))))
        });
        let service = SentinelLayer::with(sentinel).layer(service);
        let response = service.oneshot(get("/x").map(|_| ())).await.unwrap();
        let mut body = response.into_body();
        clock.advance(ms(1_000));
        let _ = catch_unwind(AssertUnwindSafe(|| poll_now(pin!(body.frame()))));
        drop(body);
        assert_eq!(times.try_iter().collect::<Vec<_>>(), [ms(10)], "{frames:?}");
    }
}

/// A body that is pending for a dot, fails for `!`, panics for `*`, and gives a frame for
/// each other character.
struct Frames(&'static str);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some((now, rest)) = self.0.split_at_checked(1) else {
            return Poll::Ready(None);
        };
        self.0 = rest;
        match now {
            "." => Poll::Pending,
            "!" => Poll::Ready(Some(Err(ErrorKind::Other.into()))),
            "*" => panic!("a bad body"),
            now => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(now.as_bytes()))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}
