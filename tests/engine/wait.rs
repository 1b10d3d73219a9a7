//! Calls that wait for a borrowed place: how long, on what, and what comes of
//! them.

use std::convert::Infallible;
use std::future::{self, Future, Ready, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode, Version};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::clock::{Tick, TokioClock};
use tower_sentinel::middleware::CallLayer;
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::{
    BlockKind, Blocked, BoxError, Call, FlowRule, IsolationRule, KeyedRule, ManualClock,
    NotAdmitted, Rules, Sentinel, SentinelLayer, Verdict,
};

use crate::support::stage::{RESOURCE, Stage, is_prioritized, prioritized};
use crate::support::{assert_at_rest, get, ms, poll_now, ready};

/// A stage at 1200 ms: ten passes at 700 ms have filled the window of ten, and
/// leave it at 1500 ms.
async fn full_at_1200() -> Stage {
    let stage = Stage::new(FlowRule::per_second(RESOURCE, 10));
    stage.at(700).await;
    stage.take(10);
    stage.at(1_200).await;
    stage
}

/// A service that answers at once.
fn upstream()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone
{
    service_fn(|_| async { Ok(Response::new(Body::empty())) })
}

// === waiting ===

#[tokio::test(start_paused = true)]
async fn waiting_calls_run_at_exactly_the_instant_of_their_bucket() {
    let mut stage = full_at_1200().await;
    let mut calls = Vec::new();
    for _ in 0..10 {
        let call = stage.call_prioritized().await;
        calls.push(tokio::spawn(call));
    }
    assert_eq!(stage.node().waiting(), 10);
    assert_eq!(stage.node().concurrency(), 0);
    // Nobody moves the clock but the timers themselves.
    for _ in 0..10 {
        let answer = stage.arrived().await;
        assert_eq!(stage.now(), 1_500);
        answer.send_response(Response::new(Body::empty()));
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    let totals = stage.assert_at_rest();
    assert_eq!((totals.waits(), totals.occupied()), (10, 10));
    assert_eq!(totals.waited(), 10 * ms(300));
    // They are the ten of this window.
    assert_eq!(stage.admits(5).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_is_woken_once_by_its_one_timer() {
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second(RESOURCE, 1))
        .clock(TokioClock::new())
        .build();
    let mut service = SentinelLayer::with(sentinel.clone())
        .prioritize(|_| true)
        .layer(upstream());
    tokio::time::advance(ms(700)).await;
    ready(service.ready().await.unwrap().call(get(RESOURCE))).unwrap();
    tokio::time::advance(ms(500)).await;

    let mut call = Box::pin(service.ready().await.unwrap().call(get(RESOURCE)));
    let mut polls = 0;
    let response = poll_fn(|cx| {
        polls += 1;
        call.as_mut().poll(cx)
    });
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    assert_eq!(polls, 2, "to set the timer, and when it fired");
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_no_response_time() {
    let mut stage = full_at_1200().await;
    let call = tokio::spawn(stage.call_prioritized().await);
    let answer = stage.arrived().await;
    stage.at(1_520).await;
    answer.send_response(Response::new(Body::empty()));
    call.await.unwrap().unwrap();
    assert_eq!(stage.node().average_rt(), Some(ms(20)));
    assert_eq!(stage.assert_at_rest().waited(), ms(300));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_deadline_ends_before_its_turn_is_refused_at_once() {
    // Its turn is in 300 ms.
    for (timeout, waits) in [("301m", true), ("300m", false), ("299999u", false)] {
        let mut stage = full_at_1200().await;
        let mut request = prioritized(get(RESOURCE));
        let value = timeout.parse().unwrap();
        request.headers_mut().insert("grpc-timeout", value);
        let mut call = stage.call_with(request).await;
        assert_eq!(poll_now(call.as_mut()).is_pending(), waits, "{timeout}");
        assert_eq!(stage.node().waiting(), u32::from(waits), "{timeout}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_wait_in_a_queue_too() {
    let rule = FlowRule::per_second(RESOURCE, 1).throttle(Duration::from_secs(9));
    let sentinel = Sentinel::builder()
        .rules(rule)
        .clock(TokioClock::new())
        .build();
    let service = SentinelLayer::with(sentinel).layer(service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let start = Instant::now();
    let (http_1, http_2) = (Version::HTTP_11, Version::HTTP_2);
    // The first starts at once, and the next turns are a second apart.
    for (version, timeout, status, ms) in [
        (http_2, "1S", 200, 0),
        (http_2, "1S", 429, 0),
        (http_2, "1001m", 200, 1_000),
        // No gRPC, which has no HTTP/1.
        (http_1, "1S", 200, 2_000),
    ] {
        let mut request = get(RESOURCE);
        *request.version_mut() = version;
        let value = timeout.parse().unwrap();
        request.headers_mut().insert("grpc-timeout", value);
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), start.elapsed().as_millis()),
            (status, ms)
        );
    }
}

// === giving up ===

#[tokio::test(start_paused = true)]
async fn a_waiting_call_that_is_dropped_gives_its_place_up() {
    for is_polled in [false, true] {
        let mut stage = full_at_1200().await;
        let mut calls = Vec::new();
        for _ in 0..10 {
            let mut call = stage.call_prioritized().await;
            assert!(!is_polled || poll_now(call.as_mut()).is_pending());
            calls.push(call);
        }
        assert_eq!((stage.node().waiting(), stage.node().held()), (10, 10));
        // All that leaves the window is lent.
        let refused = stage.call_prioritized().await.await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);

        stage.at(1_300).await;
        drop(calls.pop());
        assert_eq!((stage.node().waiting(), stage.node().held()), (9, 9));
        calls.push(stage.call_prioritized().await);
        assert_eq!((stage.node().waiting(), stage.node().held()), (10, 10));

        drop(calls);
        let totals = stage.assert_at_rest();
        assert_eq!(totals.waiting_dropped(), 11);
        assert_eq!((totals.pass(), totals.cancelled()), (10, 0));
        assert_eq!((totals.block(), totals.waits()), (1, 0));
        stage.at(1_500).await;
        assert_eq!(stage.admits(20).await, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_given_up_late_is_refunded_while_its_bucket_is_open() {
    // Until 2000 ms; from then on the token stays spent.
    for (dropped_at, refunded) in [(1_500, 1), (1_999, 1), (2_000, 0), (2_499, 0)] {
        let mut stage = full_at_1200().await;
        let mut call = stage.call_prioritized().await;
        assert!(poll_now(call.as_mut()).is_pending());
        stage.at(dropped_at).await;
        drop(call);

        let totals = stage.assert_at_rest();
        assert_eq!(totals.waiting_dropped(), 1, "{dropped_at}");
        assert_eq!(totals.cancelled(), 1 - refunded, "{dropped_at}");
        assert_eq!(stage.admits(20).await as u64, 9 + refunded, "{dropped_at}");
        stage.assert_at_rest();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_and_is_dropped_while_it_runs_is_cancelled() {
    let mut stage = full_at_1200().await;
    let mut call = stage.call_prioritized().await;
    assert!(poll_now(call.as_mut()).is_pending());
    stage.at(1_500).await;
    assert!(poll_now(call.as_mut()).is_pending());
    let _answer = stage.arrived().await;
    assert_eq!((stage.node().waiting(), stage.node().concurrency()), (0, 1));

    drop(call);
    let totals = stage.assert_at_rest();
    assert_eq!((totals.waits(), totals.cancelled()), (1, 1));
    assert_eq!(totals.waiting_dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_after_the_wait_gives_the_place_back() {
    let mut stage = full_at_1200().await;
    let mut call = stage.call_prioritized().await;
    assert!(poll_now(call.as_mut()).is_pending());
    stage.at(1_500).await;
    stage.upstream.send_error("gone");
    // Also if its future lives on.
    let answer = call.as_mut().await;
    assert_eq!(answer.unwrap_err().to_string(), "gone");

    let totals = stage.assert_at_rest();
    assert_eq!((totals.pass(), totals.complete()), (10, 10));
    assert_eq!((totals.error(), totals.cancelled()), (0, 0));
    assert_eq!(stage.admits(20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_finds_no_slot_after_its_wait_is_refused_and_gives_the_place_back() {
    let rules = Rules::new()
        .with(FlowRule::per_second(RESOURCE, 10))
        .with(IsolationRule::new(RESOURCE, 1));
    let mut stage = Stage::new(rules);
    stage.at(700).await;
    stage.take(10);
    stage.at(1_200).await;
    let mut call = stage.call_prioritized().await;
    assert!(poll_now(call.as_mut()).is_pending());
    stage.at(1_500).await;
    let running = stage.sentinel.try_enter(Call::new(RESOURCE));
    assert!(matches!(running, Verdict::Pass(_)));

    let refused = call.await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let blocked = refused.extensions().get::<Blocked>().unwrap();
    assert_eq!(blocked.kind(), BlockKind::Isolation);
    drop(running);
    let totals = stage.assert_at_rest();
    assert_eq!((totals.pass(), totals.block()), (11, 1));
    assert_eq!(stage.admits(20).await, 9);
}

#[test]
fn a_refusal_after_a_wait_counts_the_weight_of_the_call() {
    let (clock, sentinel) = full_by_hand();
    let only_one = IsolationRule::new(RESOURCE, 1);
    sentinel.reload(sentinel.rules().with(only_one));
    let call = Call::new(RESOURCE);
    let Verdict::Wait(waiting) = sentinel.try_enter(call.batch(3).prioritized(true)) else {
        panic!("ten leave the window in 300 ms");
    };
    clock.advance(ms(300));
    let Verdict::Pass(running) = sentinel.try_enter(call) else {
        panic!("it takes the only slot");
    };
    let Err(NotAdmitted::Blocked(blocked)) = waiting.admit() else {
        panic!("no slot is left");
    };
    assert_eq!(blocked.kind(), BlockKind::Isolation);
    drop(running);
    assert_eq!(assert_at_rest(&sentinel, RESOURCE).block(), 3);
    let snapshot = sentinel.snapshot();
    let by_rule: Vec<_> = snapshot.rules().map(|rule| rule.blocked()).collect();
    assert_eq!(by_rule, [0, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_refused_after_its_wait_holds_no_permit_of_an_inner_limit() {
    let rules = Rules::new()
        .with(FlowRule::per_second(RESOURCE, 10).throttle(ms(1_000)))
        .with(IsolationRule::new(RESOURCE, 1));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(TokioClock::new())
        .build();
    let mut service = SentinelLayer::with(sentinel.clone())
        .layer(ConcurrencyLimitLayer::new(1).layer(upstream()));
    drop(sentinel.try_enter(Call::new(RESOURCE)));
    let mut call = Box::pin(service.ready().await.unwrap().call(get(RESOURCE)));
    assert!(poll_now(call.as_mut()).is_pending());
    let Verdict::Wait(turn) = sentinel.try_enter(Call::new(RESOURCE)) else {
        panic!("it stands behind the other one");
    };
    tokio::time::advance(ms(200)).await;
    let _running = turn.admit().unwrap();
    let refused = call.as_mut().await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    // The future is over and still there.
    assert!(poll_now(pin!(service.ready())).is_ready());
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_is_told_what_is_left_as_well() {
    let sentinel = Sentinel::builder()
        .rules(KeyedRule::per_second(RESOURCE, 10).throttle(ms(1_000)))
        .clock(TokioClock::new())
        .build();
    let mut service = SentinelLayer::with(sentinel)
        .fields(RateLimitFields::Legacy)
        .layer(upstream());
    let calls = [(); 3].map(|()| ready(service.ready()).unwrap().call(get(RESOURCE)));
    let mut left = Vec::new();
    for call in calls {
        let response = call.await.unwrap();
        left.push(response.headers()["x-ratelimit-remaining"].clone());
    }
    // Ten more would have their turn within a second, then nine, then eight.
    assert_eq!(left, ["10", "9", "8"]);
}

#[tokio::test(start_paused = true)]
async fn who_has_waited_is_told_the_time_from_then_on() {
    let rules = Rules::new()
        .with(FlowRule::per_second(RESOURCE, 1).throttle(ms(5_000)))
        .with(KeyedRule::per(RESOURCE, 9, ms(10_000)).window());
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(TokioClock::new())
        .build();
    let mut service = SentinelLayer::with(sentinel)
        .fields(RateLimitFields::Legacy)
        .layer(upstream());
    let calls = [(); 4].map(|()| ready(service.ready()).unwrap().call(get(RESOURCE)));
    let mut resets = Vec::new();
    for call in calls {
        let response = call.await.unwrap();
        resets.push(response.headers()["x-ratelimit-reset"].clone());
    }
    // All took their share at once. They ran a second after each other.
    assert_eq!(resets, ["10", "9", "8", "7"]);
}

#[tokio::test(start_paused = true)]
async fn who_finds_the_service_not_ready_at_its_turn_starts_when_it_is() {
    let mut stage = Stage::new(FlowRule::per_second(RESOURCE, 10).throttle(ms(1_000)));
    stage.take(1);
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(stage.call().await);
    }
    stage.upstream.allow(0);
    stage.at(1_000).await;
    for call in &mut calls {
        assert!(poll_now(call.as_mut()).is_pending());
    }
    assert_eq!(stage.node().waiting(), 3);
    stage.upstream.allow(3);
    let calls: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
    for _ in 0..3 {
        let answer = stage.arrived().await;
        assert_eq!(stage.now(), 1_000);
        answer.send_response(Response::new(Body::empty()));
    }
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    let totals = stage.assert_at_rest();
    assert_eq!((totals.complete(), totals.waits()), (4, 3));
}

/// Where a service panics around a wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Clone = 1,
    Ready,
    Call,
}

/// A service that panics at the place whose number is in it.
struct Trap(Arc<AtomicU8>);

impl Trap {
    fn pass(&self, place: Place) {
        let found = self.0.load(Ordering::Relaxed);
        assert_ne!(found, place as u8, "the trap");
    }
}

impl Clone for Trap {
    fn clone(&self) -> Self {
        self.pass(Place::Clone);
        Self(self.0.clone())
    }
}

impl Service<Request<Body>> for Trap {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.pass(Place::Ready);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.pass(Place::Call);
        future::ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_panics_around_a_wait_keeps_no_place() {
    for place in [Place::Clone, Place::Ready, Place::Call] {
        let rules = Rules::new()
            .with(FlowRule::per_second(RESOURCE, 10).throttle(ms(500)))
            .with(IsolationRule::new(RESOURCE, 1));
        let sentinel = Sentinel::builder()
            .rules(rules)
            .clock(TokioClock::new())
            .build();
        let trap = Arc::default();
        let mut service = SentinelLayer::with(sentinel.clone()).layer(Trap(Arc::clone(&trap)));
        ready(service.call(get(RESOURCE))).unwrap();
        let mut waiting = None;
        if place != Place::Clone {
            waiting = Some(Box::pin(service.call(get(RESOURCE))));
        }
        trap.store(place as u8, Ordering::Relaxed);
        tokio::time::advance(ms(if place == Place::Clone { 0 } else { 100 })).await;
        let caught = catch_unwind(AssertUnwindSafe(|| match &mut waiting {
            Some(waiting) => drop(poll_now(waiting.as_mut())),
            None => drop(service.call(get(RESOURCE))),
        }));
        assert!(caught.is_err(), "{place:?}");
        drop(waiting);

        let totals = assert_at_rest(&sentinel, RESOURCE);
        let has_run = u64::from(place == Place::Call);
        assert_eq!(
            (totals.error(), totals.panicked()),
            (has_run, has_run),
            "{place:?}"
        );
        assert_eq!(totals.waits(), has_run, "{place:?}");
        assert_eq!(totals.waiting_dropped(), 1 - has_run, "{place:?}");
        // The turn is still there for the next call, unless it was used.
        let wait = match sentinel.try_enter(Call::new(RESOURCE)) {
            Verdict::Pass(_) => 0,
            Verdict::Wait(turn) => turn.delay().as_millis(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            wait,
            if place == Place::Ready { 0 } else { 100 },
            "{place:?}"
        );
    }
}

// === what an inner limit sees ===

#[tokio::test(start_paused = true)]
async fn a_waiting_call_does_not_hold_the_permit_of_an_inner_limit() {
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second(RESOURCE, 1))
        .clock(TokioClock::new())
        .build();
    let release = Arc::new(Notify::new());
    let handler = {
        let release = release.clone();
        service_fn(move |request: Request<Body>| {
            let release = release.clone();
            async move {
                if request.uri().path() == "/slow" {
                    release.notified().await;
                }
                Ok::<_, BoxError>(Response::new(Body::empty()))
            }
        })
    };
    let mut service = SentinelLayer::with(sentinel.clone())
        .prioritize(is_prioritized)
        .layer(ConcurrencyLimitLayer::new(1).layer(handler));

    tokio::time::advance(ms(700)).await;
    service
        .ready()
        .await
        .unwrap()
        .call(get(RESOURCE))
        .await
        .unwrap();
    tokio::time::advance(ms(500)).await;
    let start = Instant::now();
    let mut waiting = Box::pin(
        service
            .ready()
            .await
            .unwrap()
            .call(prioritized(get(RESOURCE))),
    );
    assert!(poll_now(waiting.as_mut()).is_pending());
    let node = sentinel.node(RESOURCE).unwrap();
    assert_eq!(node.waiting(), 1);

    // Neither the handle that made the call holds the permit, nor the call.
    let mut clone = service.clone();
    ready(ready(clone.ready()).unwrap().call(get("/free"))).unwrap();
    ready(ready(service.ready()).unwrap().call(get("/free"))).unwrap();
    let slow = ready(clone.ready()).unwrap().call(get("/slow"));
    let slow = tokio::spawn(slow);

    // It is due, and now waits for the permit: that is still no running time.
    let waiting = tokio::spawn(waiting);
    tokio::time::advance(ms(400)).await;
    assert_eq!(node.waiting(), 1);
    release.notify_one();
    slow.await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);

    let totals = assert_at_rest(&sentinel, RESOURCE);
    assert_eq!(totals.waited(), start.elapsed());
    assert_eq!((start.elapsed(), totals.rt()), (ms(400), ms(0)));
}

// === no timer ===

/// An engine at 1200 ms whose window is full until 1500 ms.
fn full_by_hand() -> (ManualClock, Sentinel) {
    let clock = ManualClock::starting_at(Tick::from_millis(700));
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second(RESOURCE, 10))
        .clock(clock.clone())
        .build();
    assert!(matches!(
        sentinel.try_enter(Call::new(RESOURCE).batch(10)),
        Verdict::Pass(_)
    ));
    clock.advance(ms(500));
    (clock, sentinel)
}

#[test]
fn where_there_is_no_timer_a_call_is_refused_instead_of_waiting() {
    let (clock, sentinel) = full_by_hand();
    let layer = SentinelLayer::with(sentinel.clone())
        .prioritize(|_| true)
        .blocked_in_extensions();
    let calls = CallLayer::with(sentinel.clone(), |_: &()| {
        Call::new(RESOURCE).prioritized(true)
    })
    .layer(service_fn(|()| async { Ok::<_, Infallible>(()) }));

    let attempt = || {
        let refused = ready(layer.layer(upstream()).oneshot(get(RESOURCE))).unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["retry-after"], "1");
        let blocked = refused.extensions().get::<Blocked>().unwrap();
        assert_eq!(blocked.kind(), BlockKind::NoTimer);

        let errors = [
            ready(
                layer
                    .clone()
                    .refusals_as_errors()
                    .layer(upstream())
                    .oneshot(get(RESOURCE)),
            )
            .unwrap_err(),
            ready(calls.clone().oneshot(())).unwrap_err(),
            Box::new(ready(sentinel.enter(Call::new(RESOURCE).prioritized(true))).unwrap_err()),
        ];
        for error in errors {
            let blocked = error.downcast_ref::<Blocked>().unwrap();
            assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::NoTimer, ""));
        }
    };
    attempt();
    let bare = tokio::runtime::Builder::new_current_thread().build();
    bare.unwrap().block_on(async { attempt() });

    let totals = assert_at_rest(&sentinel, RESOURCE);
    assert_eq!((totals.block(), totals.pass()), (8, 10));
    // Nothing of the next window is lost.
    clock.advance(ms(300));
    let passes = (0..20)
        .filter(|_| matches!(sentinel.try_enter(Call::new(RESOURCE)), Verdict::Pass(_)))
        .count();
    assert_eq!(passes, 10);
}

#[test]
fn a_call_whose_runtime_is_gone_is_refused_where_it_is_polled_next() {
    let (clock, sentinel) = full_by_hand();
    let layer = SentinelLayer::with(sentinel.clone())
        .prioritize(|_| true)
        .blocked_in_extensions();
    let runtime = || {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    };
    let (old, new) = (runtime(), runtime());
    let mut response = Box::pin(layer.layer(upstream()).oneshot(get(RESOURCE)));
    let mut entering = Box::pin(sentinel.enter(Call::new(RESOURCE).prioritized(true)));
    old.block_on(async {
        let (mut response, mut entering) = (response.as_mut(), entering.as_mut());
        poll_fn(|cx| {
            assert!(response.as_mut().poll(cx).is_pending());
            assert!(entering.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    });
    drop(old);
    new.block_on(async {
        let refused = response.await.unwrap();
        let blocked = refused.extensions().get::<Blocked>().unwrap();
        assert_eq!(blocked.kind(), BlockKind::NoTimer);
        assert_eq!(entering.await.unwrap_err().kind(), BlockKind::NoTimer);
    });
    let totals = assert_at_rest(&sentinel, RESOURCE);
    assert_eq!((totals.block(), totals.pass()), (2, 10));
    // Their places are free again.
    clock.advance(ms(300));
    let passes = (0..20)
        .filter(|_| matches!(sentinel.try_enter(Call::new(RESOURCE)), Verdict::Pass(_)))
        .count();
    assert_eq!(passes, 10);
}

#[test]
fn a_call_whose_turn_has_come_before_its_first_poll_needs_no_timer() {
    let (clock, sentinel) = full_by_hand();
    let mut service = SentinelLayer::with(sentinel.clone())
        .prioritize(|_| true)
        .layer(upstream());
    let call = ready(service.ready()).unwrap().call(get(RESOURCE));
    assert_eq!(sentinel.node(RESOURCE).unwrap().waiting(), 1);
    clock.advance(ms(300));
    assert_eq!(ready(call).unwrap().status(), StatusCode::OK);
    assert_eq!(assert_at_rest(&sentinel, RESOURCE).waits(), 1);

    // Without a layer as well.
    let (clock, sentinel) = full_by_hand();
    let call = Call::new(RESOURCE).prioritized(true);
    let Verdict::Wait(waiting) = sentinel.try_enter(call) else {
        panic!("its turn is to come");
    };
    clock.advance(ms(300));
    drop(ready(waiting.ready()).unwrap());
    assert_eq!(assert_at_rest(&sentinel, RESOURCE).waits(), 1);
}
