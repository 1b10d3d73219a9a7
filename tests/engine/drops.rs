//! Thousands of calls of every kind, dropped at random points: afterwards the
//! books balance, and the next window has its whole limit again.
//!
//! `SENTINEL_SEED` sets the seed, which is printed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response};
use bytes::Bytes;
use futures_util::{StreamExt, future, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_sentinel::clock::TokioClock;
use tower_sentinel::hook::{BlockEvent, ExitEvent, Hook, PassEvent};
use tower_sentinel::middleware::ResponseBody;
use tower_sentinel::stat::Outcome;
use tower_sentinel::{BoxError, FlowRule, IsolationRule, Rules, Sentinel, SentinelLayer};

use crate::support::stage::{is_prioritized, prioritized};
use crate::support::{Rng, assert_at_rest, assert_balanced, get, ms, poll_now, ready};

const RESOURCE: &str = "/x";
const LIMIT: u32 = 100;
const ROUNDS: usize = 300;
const CALLS: usize = 1_000;

/// What a call does, chosen at random when it arrives.
#[derive(Clone, Debug)]
struct Plan {
    /// How often it is polled before it answers.
    delay: usize,
    is_error: bool,
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Data,
    Pause,
    Error,
    Trailers,
}

impl Plan {
    fn random(rng: &mut Rng) -> Self {
        const PARTS: [Part; 6] = [
            Part::Data,
            Part::Data,
            Part::Data,
            Part::Pause,
            Part::Error,
            Part::Trailers,
        ];
        Self {
            delay: rng.below(3),
            is_error: rng.one_in(10),
            parts: (0..rng.below(4)).map(|_| PARTS[rng.below(6)]).collect(),
        }
    }

    /// The answer of the service.
    async fn run(self) -> Result<Response<Body>, BoxError> {
        for _ in 0..self.delay {
            pause().await;
        }
        if self.is_error {
            return Err("broken".into());
        }
        if self.parts.is_empty() {
            return Ok(Response::new(Body::empty()));
        }
        let frames = stream::iter(self.parts).then(|part| async move {
            match part {
                Part::Data => Ok(Frame::data(Bytes::from_static(b"data"))),
                Part::Pause => {
                    pause().await;
                    Ok(Frame::data(Bytes::new()))
                }
                Part::Error => Err(BoxError::from("broken")),
                Part::Trailers => Ok(Frame::trailers(HeaderMap::new())),
            }
        });
        Ok(Response::new(Body::new(StreamBody::new(frames))))
    }
}

/// Pending once.
async fn pause() {
    let mut is_over = false;
    future::poll_fn(|_| {
        if std::mem::replace(&mut is_over, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Books that are kept apart from the engine's.
#[derive(Debug, Default)]
struct Ledger {
    passed: AtomicU64,
    blocked: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
}

impl Hook for Ledger {
    fn on_pass(&self, _: &PassEvent<'_>) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    fn on_block(&self, _: &BlockEvent<'_>) {
        self.blocked.fetch_add(1, Ordering::Relaxed);
    }

    fn on_exit(&self, event: &ExitEvent<'_>) {
        let ended = match event.outcome() {
            Some(_) => &self.completed,
            None => &self.cancelled,
        };
        ended.fetch_add(1, Ordering::Relaxed);
        if event.outcome() == Some(Outcome::Failure) {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Ledger {
    /// Calls that have started and not ended.
    fn running(&self) -> u64 {
        of(&self.passed) - of(&self.completed) - of(&self.cancelled)
    }
}

fn of(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// A call on its way: its future, then its body.
enum Alive<F> {
    Future(Pin<Box<F>>),
    Body(Pin<Box<ResponseBody<Body>>>),
}

impl<F> Alive<F>
where
    F: Future<Output = Result<Response<ResponseBody<Body>>, BoxError>>,
{
    /// Polls it once; `None` if there is nothing left of it.
    fn poll(self) -> Option<Self> {
        match self {
            Alive::Future(mut future) => match poll_now(future.as_mut()) {
                Poll::Pending => Some(Alive::Future(future)),
                Poll::Ready(Ok(response)) => Some(Alive::Body(Box::pin(response.into_body()))),
                Poll::Ready(Err(_)) => None,
            },
            Alive::Body(mut body) => match poll_now(Pin::new(&mut body.frame())) {
                // Trailers end the call; the body may be dropped later.
                Poll::Ready(Some(Ok(_))) | Poll::Pending => Some(Alive::Body(body)),
                Poll::Ready(Some(Err(_)) | None) => None,
            },
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_random_drops_the_books_balance_and_the_next_window_is_whole() {
    let mut rng = Rng::seeded();
    let ledger = Arc::new(Ledger::default());
    let rules = Rules::new()
        .with(FlowRule::per_second(RESOURCE, LIMIT))
        .with(IsolationRule::new(RESOURCE, 40));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(TokioClock::new())
        .hook("ledger", ledger.clone())
        .build();
    let mut service = SentinelLayer::with(sentinel.clone())
        .prioritize(is_prioritized)
        .layer(service_fn(|mut request: Request<Body>| {
            let plan: Plan = request.extensions_mut().remove().expect("a plan");
            plan.run()
        }));
    let mut call = |rng: &mut Rng, is_prioritized: bool| {
        let mut request = get(RESOURCE);
        request.extensions_mut().insert(Plan::random(rng));
        if is_prioritized {
            request = prioritized(request);
        }
        ready(service.ready()).unwrap().call(request)
    };

    for round in 0..ROUNDS {
        let mut alive = Vec::new();
        let mut made = 0;
        while made < CALLS {
            match rng.below(12) {
                0..3 => {
                    let is_prioritized = rng.one_in(3);
                    alive.push(Alive::Future(Box::pin(call(&mut rng, is_prioritized))));
                    made += 1;
                }
                3..9 if !alive.is_empty() => {
                    let index = rng.below(alive.len());
                    let left = alive.swap_remove(index).poll();
                    alive.extend(left);
                }
                9..11 if !alive.is_empty() => drop(alive.swap_remove(rng.below(alive.len()))),
                _ => {
                    tokio::time::advance(ms(rng.below(50) as u64)).await;
                    if let Some(node) = sentinel.node(RESOURCE) {
                        assert_balanced(&node);
                        assert_eq!(u64::from(node.slots_in_use()), ledger.running());
                    }
                }
            }
        }
        while !alive.is_empty() {
            drop(alive.swap_remove(rng.below(alive.len())));
        }

        let totals = assert_at_rest(&sentinel, RESOURCE);
        assert_eq!(ledger.running(), 0);
        assert_eq!(totals.complete(), of(&ledger.completed), "round {round}");
        assert_eq!(totals.error(), of(&ledger.failed), "round {round}");
        assert_eq!(totals.block(), of(&ledger.blocked), "round {round}");
        // Besides calls: places that were given up too late to be refunded.
        let spent = totals.cancelled() - of(&ledger.cancelled);
        assert!(
            spent <= totals.waiting_dropped(),
            "{spent} {totals:?} {ledger:?}"
        );

        tokio::time::advance(ms(1_000)).await;
        let before = of(&ledger.passed);
        for _ in 0..2 * LIMIT {
            drop(call(&mut rng, false));
        }
        let passed = of(&ledger.passed) - before;
        assert_eq!(passed, u64::from(LIMIT), "round {round}");
    }

    let totals = assert_at_rest(&sentinel, RESOURCE);
    println!("{totals:?}");
    let every_case = [
        totals.complete(),
        totals.error(),
        totals.cancelled() - of(&ledger.cancelled),
        of(&ledger.cancelled),
        totals.block(),
        totals.waits(),
        totals.waiting_dropped(),
    ];
    assert!(every_case.iter().all(|&count| count > 10), "{every_case:?}");
}
