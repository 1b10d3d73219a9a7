//! Calls that wait in line for a concurrency slot inside layers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get as route;
use futures_util::future::join_all;
use tokio::sync::Barrier;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::Header;
use tower_sentinel::middleware::CallLayer;
use tower_sentinel::{
    BlockKind, Blocked, BoxError, Call, IsolationRule, KeyedRule, Rule, Rules, SentinelLayer,
};

use crate::support::{Server, assert_at_rest, engine, fetch, get, ms, poll_now};

/// What two calls do at once: each waits for the other one.
struct Work {
    both: Barrier,
    running: AtomicU32,
    most: AtomicU32,
}

impl Work {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            both: Barrier::new(2),
            running: AtomicU32::new(0),
            most: AtomicU32::new(0),
        })
    }

    async fn run(&self) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.both.wait().await;
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }
}

fn two_at_once(resource: &str) -> IsolationRule {
    IsolationRule::new(resource, 2).queue(Duration::from_secs(3_600))
}

#[tokio::test]
async fn in_axum_two_hundred_calls_pass_two_at_a_time() {
    let (sentinel, _clock) = engine(two_at_once("/x"));
    let work = Work::new();
    let app = Router::new()
        .route(
            "/x",
            route(async |State(work): State<Arc<Work>>| work.run().await),
        )
        .layer(SentinelLayer::with(sentinel.clone()))
        .with_state(work.clone());
    let calls = (0..200).map(|_| app.clone().oneshot(get("/x")));
    for answer in join_all(calls).await {
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(work.most(), 2);
    let totals = assert_at_rest(&sentinel, "/x");
    assert_eq!((totals.complete(), totals.block()), (200, 0));
}

#[tokio::test]
async fn in_axum_two_hundred_calls_of_each_user_pass_two_at_a_time() {
    const USERS: [&str; 2] = ["ann", "bob"];
    let rule = KeyedRule::concurrency("/x", 2).queue(Duration::from_secs(3_600));
    let (sentinel, _clock) = engine(rule);
    let works = USERS.map(|_| Work::new());
    let layer = SentinelLayer::with(sentinel.clone()).param(Header::from_static("x-user"));
    let run = async |State(works): State<[Arc<Work>; 2]>, headers: HeaderMap| {
        let index = usize::from(headers["x-user"] == USERS[1]);
        works[index].run().await;
    };
    let app = Router::new()
        .route("/x", route(run))
        .layer(layer)
        .with_state(works.clone());
    let calls = (0..400).map(|index| {
        let mut request = get("/x");
        let user = USERS[index % 2].parse().unwrap();
        request.headers_mut().insert("x-user", user);
        app.clone().oneshot(request)
    });
    for answer in join_all(calls).await {
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(works.map(|work| work.most()), [2, 2]);
    let totals = assert_at_rest(&sentinel, "/x");
    assert_eq!((totals.complete(), totals.block()), (400, 0));
}

#[tokio::test]
async fn over_connections_two_hundred_calls_pass_two_at_a_time() {
    let (sentinel, _clock) = engine(two_at_once("/x"));
    let work = Work::new();
    let app = Router::new()
        .route(
            "/x",
            route(async |State(work): State<Arc<Work>>| work.run().await),
        )
        .layer(SentinelLayer::with(sentinel.clone()))
        .with_state(work.clone());
    let server = Server::axum(app).await;
    let calls = (0..200).map(|_| async {
        let mut sender = server.connect().await;
        fetch(&mut sender, get("/x")).await.status()
    });
    for status in join_all(calls).await {
        assert_eq!(status, StatusCode::OK);
    }
    assert_eq!(work.most(), 2);
}

#[tokio::test]
async fn under_a_call_layer_two_hundred_calls_pass_two_at_a_time() {
    let (sentinel, _clock) = engine(two_at_once("job"));
    let work = Work::new();
    let held = work.clone();
    let service = service_fn(move |(): ()| {
        let work = held.clone();
        async move {
            work.run().await;
            Ok::<_, BoxError>(())
        }
    });
    let layer = CallLayer::with(sentinel.clone(), |_: &()| Call::new("job"));
    let service = layer.layer(service);
    for answer in join_all((0..200).map(|_| service.clone().oneshot(()))).await {
        answer.unwrap();
    }
    assert_eq!(work.most(), 2);
    assert_eq!(assert_at_rest(&sentinel, "job").complete(), 200);
}

#[tokio::test]
async fn under_a_call_layer_two_hundred_calls_of_a_value_pass_two_at_a_time() {
    let rule = KeyedRule::concurrency("job", 2).queue(Duration::from_secs(3_600));
    let (sentinel, _clock) = engine(rule);
    let work = Work::new();
    let held = work.clone();
    let service = service_fn(move |_: u64| {
        let work = held.clone();
        async move {
            work.run().await;
            Ok::<_, BoxError>(())
        }
    });
    let layer = CallLayer::with(sentinel.clone(), |tenant: &u64| {
        Call::new("job").param(*tenant)
    });
    let service = layer.layer(service);
    for answer in join_all((0..200).map(|_| service.clone().oneshot(7))).await {
        answer.unwrap();
    }
    assert_eq!(work.most(), 2);
    assert_eq!(assert_at_rest(&sentinel, "job").complete(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_in_line_is_over_gets_429() {
    time_in_line_is_over(IsolationRule::new("/x", 1).queue(ms(2_500)).into()).await;
    let of_value = KeyedRule::concurrency("/x", 1).queue(ms(2_500));
    time_in_line_is_over(of_value.into()).await;
}

async fn time_in_line_is_over(rule: Rules) {
    let kind = match rule.iter().next() {
        Some(Rule::Keyed(_)) => BlockKind::Keyed,
        _ => BlockKind::Isolation,
    };
    let (sentinel, _clock) = engine(rule);
    let work = Work::new();
    let app = Router::new()
        .route(
            "/x",
            route(async |State(work): State<Arc<Work>>| work.run().await),
        )
        .layer(SentinelLayer::with(sentinel.clone()))
        .with_state(work.clone());
    let mut runs = pin!(app.clone().oneshot(get("/x")));
    assert!(poll_now(runs.as_mut()).is_pending());
    let start = tokio::time::Instant::now();
    let refused = app.clone().oneshot(get("/x")).await.unwrap();
    assert_eq!(start.elapsed(), ms(2_500));
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    // One whose client is gone leaves the line.
    let mut gone = Box::pin(app.oneshot(get("/x")));
    assert!(poll_now(gone.as_mut()).is_pending());
    assert_eq!(sentinel.node("/x").unwrap().waiting(), 1);
    drop(gone);
    assert_eq!(sentinel.node("/x").unwrap().waiting(), 0);
    work.both.wait().await;
    assert_eq!(runs.await.unwrap().status(), StatusCode::OK);
    let totals = assert_at_rest(&sentinel, "/x");
    assert_eq!(totals.block_by(kind), 1);
}

#[tokio::test(start_paused = true)]
async fn under_a_call_layer_the_refusal_after_the_wait_is_an_error() {
    let (sentinel, _clock) = engine(IsolationRule::new("job", 1).queue(ms(2_500)));
    let service = service_fn(|(): ()| std::future::pending::<Result<(), BoxError>>());
    let layer = CallLayer::with(sentinel.clone(), |_: &()| Call::new("job"));
    let service = layer.layer(service);
    let mut runs = pin!(service.clone().oneshot(()));
    assert!(poll_now(runs.as_mut()).is_pending());
    let start = tokio::time::Instant::now();
    let error = service.oneshot(()).await.unwrap_err();
    assert_eq!(start.elapsed(), ms(2_500));
    let blocked = error.downcast_ref::<Blocked>().unwrap();
    assert_eq!(
        (blocked.kind(), blocked.limit()),
        (BlockKind::Isolation, Some(1))
    );
}
