//! Runtimes without a timer, or that are gone: what the process's hook for panics is told.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::clock::Tick;
use tower_sentinel::middleware::CallLayer;
use tower_sentinel::{
    BlockKind, Blocked, BoxError, Call, FlowRule, ManualClock, Sentinel, SentinelLayer, Verdict,
};

use support::{assert_at_rest, get, ms};

static REPORTS: AtomicU32 = AtomicU32::new(0);

fn prioritized() -> Call<'static> {
    Call::new("/").prioritized(true)
}

/// An engine whose window is full until later.
fn full() -> Sentinel {
    let clock = ManualClock::starting_at(Tick::from_millis(700));
    let rule = FlowRule::per_second("/", 100);
    let sentinel = Sentinel::builder().rules(rule).clock(clock.clone()).build();
    let all = sentinel.try_enter(Call::new("/").batch(100));
    assert!(matches!(all, Verdict::Pass(_)));
    clock.advance(ms(500));
    sentinel
}

/// A call in every way in which one may wait.
async fn all_ways(sentinel: &Sentinel) {
    let layer = SentinelLayer::with(sentinel.clone()).prioritize(|_| true);
    let answer = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let response = layer.layer(answer).oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);

    let error = layer
        .refusals_as_errors()
        .layer(answer)
        .oneshot(get("/"))
        .await;
    let error = error.unwrap_err().downcast::<Blocked>().unwrap();
    assert_eq!(error.kind(), BlockKind::NoTimer);

    let calls = CallLayer::with(sentinel.clone(), |_: &()| prioritized());
    let service = service_fn(|()| async { Ok::<_, Infallible>(()) });
    let error = calls.layer(service).oneshot(()).await.unwrap_err();
    let error = error.downcast::<Blocked>().unwrap();
    assert_eq!(error.kind(), BlockKind::NoTimer);

    let error = sentinel.enter(prioritized()).await.unwrap_err();
    assert_eq!(error.kind(), BlockKind::NoTimer);
    let ran = sentinel.run(prioritized(), async { Ok::<_, BoxError>(()) });
    assert!(ran.await.is_err());
}

/// How many panics the hook is told of while `work` runs.
fn reports(work: impl FnOnce()) -> u32 {
    let before = REPORTS.load(Relaxed);
    work();
    REPORTS.load(Relaxed) - before
}

fn of_many_threads(runtime: &Runtime) {
    let sentinel = full();
    runtime.block_on(async {
        let tasks = (0..40).map(|_| {
            let sentinel = sentinel.clone();
            tokio::spawn(async move { all_ways(&sentinel).await })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    assert_at_rest(&sentinel, "/");
}

fn whose_runtime_goes() {
    let sentinel = full();
    let old = Builder::new_current_thread().enable_time().build().unwrap();
    let mut entering: Vec<_> = (0..10)
        .map(|_| Box::pin(sentinel.enter(prioritized())))
        .collect();
    old.block_on(poll_fn(|cx| {
        for entering in &mut entering {
            assert!(entering.as_mut().poll(cx).is_pending());
        }
        Poll::Ready(())
    }));
    drop(old);
    let new = Builder::new_current_thread().enable_time().build().unwrap();
    new.block_on(async {
        for entering in entering {
            assert_eq!(entering.await.unwrap_err().kind(), BlockKind::NoTimer);
        }
    });
    assert_at_rest(&sentinel, "/");
}

// One test, as a process has one hook.
#[test]
fn the_hook_for_panics_is_told_once_of_a_runtime_without_a_timer() {
    let sentinel = full();
    panic::set_hook(Box::new(move |_| {
        REPORTS.fetch_add(1, Relaxed);
        // One that waits itself: neither for a lock nor with another panic.
        let mut entering = pin!(sentinel.enter(prioritized()));
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(entering.as_mut().poll(cx).is_ready());
    }));
    let single = || Builder::new_current_thread().build().unwrap();
    let many = || {
        Builder::new_multi_thread()
            .worker_threads(4)
            .build()
            .unwrap()
    };
    let told = [
        reports(|| {
            let runtime = single();
            for _ in 0..20 {
                runtime.block_on(all_ways(&full()));
            }
        }),
        reports(|| of_many_threads(&many())),
        reports(|| of_many_threads(&single())),
        reports(whose_runtime_goes),
        // Without a runtime there is nothing to ask.
        reports(|| {
            assert!(support::ready(full().enter(prioritized())).is_err());
        }),
        // With a timer nobody panics.
        reports(|| {
            let runtime = Builder::new_current_thread().enable_time().build().unwrap();
            drop(runtime.block_on(full().enter(prioritized())).unwrap());
        }),
    ];
    drop(panic::take_hook());
    assert_eq!(told, [1, 1, 1, 1, 0, 0]);
}
