//! The limiters, each as something that one thread may call.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use governor::{Quota, RateLimiter};
use sentinel_core::base::TrafficType;
use sentinel_core::{EntryBuilder, flow};
use tower::{Layer, Service, service_fn};
use tower_resilience_ratelimiter::{RateLimiterLayer, WindowType};
use tower_sentinel::clock::MonotonicClock;
use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};

use crate::count::Grid;
use crate::{LIMIT, SECOND_NS, turns};

const SECOND: Duration = Duration::from_secs(1);

/// Windows that follow each other, from when on we cannot know.
const WHOLE_SECONDS: Grid = Grid {
    bucket_ns: SECOND_NS,
    phase_ns: None,
};

/// Tells whether a call passes.
type Passes = Box<dyn FnMut() -> bool + Send>;

/// A fresh limiter of 100 per second.
pub(crate) struct Limiter {
    pub(crate) name: &'static str,
    pub(crate) grid: Grid,
    /// How long it is called.
    pub(crate) length: Duration,
    /// A caller for one thread.
    pub(crate) caller: Box<dyn Fn() -> Passes>,
}

/// All limiters; `run` tells those of different runs apart that are global.
pub(crate) fn all(run: usize) -> Vec<Limiter> {
    let rule = || FlowRule::per_second("r", LIMIT);
    vec![
        ours("ours, window", rule(), 2, turns(SECOND, 5)),
        ours(
            "ours, strict, ten buckets",
            rule().buckets(10).strict(),
            10,
            turns(Duration::from_millis(1_100), 5),
        ),
        governor(),
        resilience("tower-resilience, fixed", WindowType::Fixed),
        resilience("tower-resilience, sliding log", WindowType::SlidingLog),
        resilience(
            "tower-resilience, sliding counter",
            WindowType::SlidingCounter,
        ),
        sentinel_core(run),
    ]
}

fn ours(name: &'static str, rule: FlowRule, buckets: u64, length: Duration) -> Limiter {
    let sentinel = Sentinel::builder()
        .rules(rule)
        .clock(MonotonicClock::new())
        .build();
    Limiter {
        name,
        grid: Grid {
            bucket_ns: SECOND_NS / buckets,
            phase_ns: Some(0),
        },
        length,
        caller: Box::new(move || {
            let sentinel = sentinel.clone();
            Box::new(move || matches!(sentinel.try_enter(Call::new("r")), Verdict::Pass(_)))
        }),
    }
}

fn governor() -> Limiter {
    let limit = std::num::NonZeroU32::new(LIMIT).expect("above 0");
    let limiter = Arc::new(RateLimiter::direct(Quota::per_second(limit)));
    Limiter {
        name: "governor",
        grid: WHOLE_SECONDS,
        length: turns(SECOND, 5),
        caller: Box::new(move || {
            let limiter = limiter.clone();
            Box::new(move || limiter.check().is_ok())
        }),
    }
}

fn resilience(name: &'static str, window: WindowType) -> Limiter {
    let layer = RateLimiterLayer::builder()
        .limit_for_period(LIMIT as usize)
        .refresh_period(SECOND)
        .timeout_duration(Duration::ZERO)
        .window_type(window)
        .build()
        .expect("a limit");
    let inner = service_fn(|()| std::future::ready(Ok::<(), Infallible>(())));
    // One service: each that such a layer makes has a limit of its own.
    let service = layer.layer(inner);
    Limiter {
        name,
        grid: WHOLE_SECONDS,
        length: turns(SECOND, 5),
        caller: Box::new(move || {
            let mut service = service.clone();
            Box::new(move || {
                let mut context = Context::from_waker(Waker::noop());
                assert!(service.poll_ready(&mut context).is_ready());
                match pin!(service.call(())).poll(&mut context) {
                    Poll::Ready(outcome) => outcome.is_ok(),
                    Poll::Pending => panic!("it waits"),
                }
            })
        }),
    }
}

/// What sentinel-tower stands on: its layer adds nothing to the decision.
fn sentinel_core(run: usize) -> Limiter {
    let resource = format!("over-{run}");
    flow::append_rule(Arc::new(flow::Rule {
        resource: resource.clone(),
        threshold: f64::from(LIMIT),
        ..flow::Rule::default()
    }));
    Limiter {
        name: "sentinel-core",
        grid: Grid {
            bucket_ns: SECOND_NS / 2,
            phase_ns: None,
        },
        length: turns(SECOND, 5),
        caller: Box::new(move || {
            let resource = resource.clone();
            Box::new(move || {
                let entry =
                    EntryBuilder::new(resource.clone()).with_traffic_type(TrafficType::Inbound);
                entry.build().map(|entry| entry.exit()).is_ok()
            })
        }),
    }
}
