//! What responses tell of quotas: of the rule that leaves the smallest part of its
//! limit, as a naive engine counts it.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use proptest::prelude::*;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::{Head, from_fn};
use tower_sentinel::rejection::RateLimitFields;
use tower_sentinel::{BoxError, Key, KeyedRule, SentinelLayer};

use crate::oracle::Naive;
use crate::setup::{Asks, BEGIN, Flow, NS, Op, Whose, op, setup};
use crate::support::bench::Bench;
use crate::support::{ms, ready};

/// The two fields that tell of what `flow` has left for `call`, and the part that this
/// is; `None` if it says nothing of it.
fn told(naive: &Naive, index: usize, call: &Asks, now: u64) -> Option<(f64, [String; 2])> {
    let flow: &Flow = &naive.setup.flows[index];
    if flow.queue.is_some() || matches!(flow.whose, Whose::Related(_)) {
        return None;
    }
    let passed = naive.counted_with(flow, call)?;
    let left = (0..=flow.limit).rfind(|n| flow.available_at(now, *n, &passed) == Some(now))?;
    let more = flow.available_at(now, left + 1, &passed).unwrap_or(now);
    let whole = |ns: u64| ns.div_ceil(1_000 * NS).max(1);
    let window = whole(flow.buckets * flow.bucket * NS);
    let fields = [
        format!("\"{index}\";q={};w={window}", flow.limit),
        format!("\"{index}\";r={left};t={}", whole(more - now)),
    ];
    Some((f64::from(left) / f64::from(flow.limit.max(1)), fields))
}

fn asks(head: Head<'_>) -> &Asks {
    head.extensions().get().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn responses_tell_of_the_tightest_quota(
        setup in setup(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let bench = Bench::new(setup.rules());
        let layer = SentinelLayer::with(bench.sentinel.clone())
            .fields(RateLimitFields::Ietf)
            .resource(from_fn(|head| Some(Key::Str(asks(head).resource))))
            .origin(from_fn(|head| asks(head).origin.map(Key::Str)))
            .context(from_fn(|head| asks(head).context.map(Key::Str)))
            .weight(|head| asks(head).n);
        let service = layer.layer(service_fn(|_: Request<Body>| async {
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }));
        let mut naive = Naive::new(setup);
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                Op::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Op::End(_) => {}
                Op::Call(call) => {
                    let request = Request::builder().extension(call).body(Body::empty()).unwrap();
                    let response = ready(service.clone().oneshot(request)).unwrap();
                    if naive.enter(call, now).is_err() {
                        continue;
                    }
                    // Each ends with its response.
                    naive.running.clear();
                    prop_assert_eq!(response.status(), StatusCode::OK);
                    let told: Vec<_> = (0..naive.setup.flows.len())
                        .filter_map(|index| told(&naive, index, &call, now))
                        .collect();
                    let least = told.iter().map(|(part, _)| *part).fold(f64::INFINITY, f64::min);
                    let found = ["ratelimit-policy", "ratelimit"].map(|name| {
                        let field = response.headers().get(name);
                        field.map_or("", |field| field.to_str().unwrap()).to_owned()
                    });
                    let is_right = if told.is_empty() {
                        found.iter().all(String::is_empty)
                    } else {
                        told.iter().any(|(part, fields)| *part <= least && *fields == found)
                    };
                    prop_assert!(is_right, "{:?} of {:?}", found, told);
                }
            }
        }
    }
}

// === one value ===

/// How the calls of a value are counted.
#[derive(Clone, Copy, Debug)]
enum Count {
    /// With a burst of so many.
    Refill(u64),
    Window,
    /// A call waits for so many others, at most.
    Queue(u64),
}

/// What one value has taken, and when.
#[derive(Debug)]
struct Value {
    count: Count,
    limit: u64,
    interval: u64,
    taken: Vec<(u64, u64)>,
}

impl Value {
    /// What a call of one token costs: a whole number of nanoseconds.
    fn cost(&self) -> u64 {
        self.interval / self.limit
    }

    /// When the costs of all calls are paid.
    fn paid(&self) -> u64 {
        let pay = |paid: u64, &(at, n): &(u64, u64)| paid.max(at) + n * self.cost();
        self.taken.iter().fold(0, pay)
    }

    fn left(&self, now: u64) -> u64 {
        let debt = self.paid().saturating_sub(now);
        match self.count {
            Count::Refill(burst) => ((self.limit + burst) * self.cost() - debt) / self.cost(),
            Count::Window => {
                let begun = |at: u64| at / (self.interval / 2);
                let is_in = |(at, _): &&(u64, u64)| begun(*at) + 2 > begun(now);
                let taken: u64 = self.taken.iter().filter(is_in).map(|(_, n)| n).sum();
                self.limit - taken
            }
            Count::Queue(others) => (others + 1) - debt.div_ceil(self.cost()),
        }
    }

    /// The first whole second after which more is left than `now`.
    fn reset(&self, now: u64) -> u64 {
        let left = self.left(now);
        let is_more = |seconds: &u64| self.left(now + seconds * 1_000 * NS) > left;
        (1..=self.interval / NS / 1_000 + 1).find(is_more).unwrap()
    }
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![
        (0..4_u64).prop_map(Count::Refill),
        Just(Count::Window),
        (0..4_u64).prop_map(Count::Queue),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn responses_tell_what_a_value_has_left_and_when_it_has_more(
        count in count(),
        limit in prop::sample::select(vec![1_u64, 2, 4, 5, 8, 10]),
        interval_ms in prop::sample::select(vec![1_000_u64, 8_000, 60_000]),
        calls in prop::collection::vec((0..20_000_000_000_u64, 1..4_u64), 1..60),
    ) {
        let mut value = Value { count, limit, interval: interval_ms * NS, taken: Vec::new() };
        let rule = KeyedRule::per("/x", limit as u32, ms(interval_ms)).id("v");
        let rule = match count {
            Count::Refill(burst) => rule.burst(burst as u32),
            Count::Window => rule.window(),
            Count::Queue(others) => rule.throttle(Duration::from_nanos(others * value.cost())),
        };
        let bench = Bench::new(rule);
        let layer = SentinelLayer::with(bench.sentinel.clone())
            .fields(RateLimitFields::Ietf)
            .weight(|head| *head.extensions().get().unwrap());
        let service = layer.layer(service_fn(|_: Request<Body>| async {
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }));
        let mut now = BEGIN * NS;
        for (pause, n) in calls {
            let mut pause = pause * interval_ms / 60_000;
            let mut n = n;
            if let Count::Queue(_) = count {
                // Nobody waits here.
                pause = pause.max(value.paid().saturating_sub(now));
                n = 1;
            }
            now += pause;
            bench.clock.advance(Duration::from_nanos(pause));
            let mut request = Request::get("/x").body(Body::empty()).unwrap();
            request.extensions_mut().insert(n as u32);
            let response = ready(service.clone().oneshot(request)).unwrap();
            let passes = n <= value.left(now);
            prop_assert_eq!(response.status() == StatusCode::OK, passes);
            if passes {
                value.taken.push((now, n));
                let left = value.left(now).min(limit);
                let told = format!("\"v\";r={left};t={}", value.reset(now));
                prop_assert_eq!(response.headers()["ratelimit"].to_str().unwrap(), told);
            }
        }
    }
}
