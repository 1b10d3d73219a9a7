//! What clients are told: when a refused call may come again, and what responses say of
//! quotas.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::key::{Head, from_fn};
use tower_sentinel::middleware::rejection::RateLimitFields;
use tower_sentinel::{BoxError, Clock, Key, MissingKey, SentinelLayer};

use crate::generator::{Op, all_kinds, asks, op, wait_op, windows};
use crate::oracle::{Asks, Count, End, Given, Keyed, NS, Named, Of, Oracle, RuleSet};
use crate::side::{Side, Told};
use crate::support::bench::Bench;
use crate::support::{ms, ready};
use crate::{check, saw};

const NANOSECOND: Duration = Duration::from_nanos(1);
/// The resource of one value.
const PATH: &str = "/x";
const SECOND: u64 = 1_000 * NS;

#[test]
fn who_is_refused_passes_or_waits_at_the_time_it_was_told() {
    let wishes = (0_u64..3_000, any::<bool>(), prop::option::of(0_u64..2_000));
    let ops = (vec(wait_op(), 1..100), vec(asks(), 1..20));
    let inputs = (all_kinds(), wishes, ops);
    check(
        500,
        inputs,
        "is told a time, waits",
        |(rules, wishes, (ops, last))| {
            let (max_wait, with_loans, patience) = wishes;
            let mut side = Side::new(rules.waiting(max_wait).rules(), |builder| {
                builder.occupy_timeout(ms(max_wait.max(1)))
            });
            for op in ops {
                side.run(&op.waiting(with_loans, patience));
            }
            // Nobody knows when calls end.
            side.cancel_all();
            for asks in last {
                let call = Op::Call(asks).waiting(with_loans, patience);
                let told = side.run(&call);
                let Some(Told::Block(Some(after))) = told else {
                    side.cancel_all();
                    continue;
                };
                // Whenever one ends that waits.
                if after.is_zero() {
                    continue;
                }
                saw("is told a time");
                side.bench.clock.advance(after - NANOSECOND);
                let early = side.run(&call);
                let is_refused = matches!(early, Some(Told::Block(Some(_))));
                prop_assert!(is_refused, "{:?}: {:?}", asks, early);
                side.bench.clock.advance(NANOSECOND);
                let then = side.run(&call);
                // A call that waits is one of those at once of its value.
                let is_kept = match then {
                    Some(Told::Block(after)) => after == Some(Duration::ZERO),
                    _ => true,
                };
                prop_assert!(is_kept, "{:?}: {:?} after {:?}", asks, then, after);
                side.cancel_all();
            }
            Ok(())
        },
    );
}

// === quotas ===

/// An engine behind a layer, and a naive one that hears the same.
struct Answers {
    bench: Bench,
    oracle: Oracle,
}

fn asked(head: Head<'_>) -> &Asks {
    head.extensions().get().unwrap()
}

fn whole_seconds(ns: u64) -> u64 {
    ns.div_ceil(SECOND).max(1)
}

impl Answers {
    fn new(rules: &RuleSet) -> Self {
        let mut oracle = Oracle::new(rules);
        oracle.take_over(rules, PATH);
        Self {
            bench: Bench::new(rules.rules()),
            oracle,
        }
    }

    fn now(&self) -> u64 {
        self.bench.clock.now().as_nanos()
    }

    fn advance(&self, ns: u64) {
        self.bench.clock.advance(Duration::from_nanos(ns));
    }

    /// The two fields of the response, if the call passes; it ends with that.
    fn answer(&mut self, asks: Asks) -> Result<Option<[String; 2]>, TestCaseError> {
        let layer = SentinelLayer::with(self.bench.sentinel.clone())
            .fields(RateLimitFields::Ietf)
            .resource(from_fn(|head| Some(Key::Str(asked(head).resource))))
            .origin(from_fn(|head| asked(head).origin.map(Key::Str)))
            .context(from_fn(|head| asked(head).context.map(Key::Str)))
            .weight(|head| asked(head).weight);
        let service = layer.layer(service_fn(|_: Request<Body>| async {
            Ok::<_, BoxError>(Response::new(Body::empty()))
        }));
        let request = Request::builder().extension(asks);
        let request = request.body(Body::empty()).unwrap();
        let response = ready(service.oneshot(request)).unwrap();
        let now = self.now();
        let passes = self.oracle.enter(asks, now);
        let passes = passes
            .map(|call| self.oracle.end(call, now, End::Good))
            .is_ok();
        prop_assert_eq!(response.status() == StatusCode::OK, passes, "{:?}", asks);
        let fields = ["ratelimit-policy", "ratelimit"].map(|name| {
            let field = response.headers().get(name);
            field.map_or("", |field| field.to_str().unwrap()).to_owned()
        });
        Ok(passes.then_some(fields))
    }

    /// The fields that tell of what flow rule `index` has left for `call`, and the part
    /// that this is; `None` if it says nothing of it.
    fn of_window(&self, index: usize, call: &Asks) -> Option<(f64, [String; 2])> {
        let (flow, now) = (&self.oracle.rules.flows[index], self.now());
        if flow.queue.is_some() || flow.is_related() {
            return None;
        }
        let passed = self.oracle.counted_with(flow, call)?;
        let fits = |weight: &u32| flow.available_at(now, *weight, &passed) == Some(now);
        let left = (0..=flow.limit).rfind(fits)?;
        let more = flow.available_at(now, left + 1, &passed).unwrap_or(now);
        let window = whole_seconds(flow.buckets * flow.bucket * NS);
        let fields = [
            format!("\"{index}\";q={};w={window}", flow.limit),
            format!("\"{index}\";r={left};t={}", whole_seconds(more - now)),
        ];
        Some((f64::from(left) / f64::from(flow.limit.max(1)), fields))
    }

    /// What the only rule on values has left for one of these, at `now`.
    fn left(&self, call: &Asks, now: u64) -> u32 {
        let ledger = &self.oracle.ledgers[0];
        (0..)
            .find(|left| ledger.has_left(call, *left, now))
            .unwrap()
    }
}

#[test]
fn responses_tell_of_the_tightest_quota() {
    let inputs = (windows(), vec(op(asks()), 1..120));
    check(400, inputs, "a quota, no quota", |(rules, ops)| {
        let mut answers = Answers::new(&rules);
        for op in ops {
            match op {
                Op::Advance(ns) => answers.advance(ns),
                Op::Call(asks) => {
                    let Some(found) = answers.answer(asks)? else {
                        continue;
                    };
                    let told =
                        (0..rules.flows.len()).filter_map(|index| answers.of_window(index, &asks));
                    let told: Vec<_> = told.collect();
                    let parts = told.iter().map(|(part, _)| *part);
                    let least = parts.fold(f64::INFINITY, f64::min);
                    let is_right = if told.is_empty() {
                        saw("no quota");
                        found.iter().all(String::is_empty)
                    } else {
                        saw("a quota");
                        told.iter()
                            .any(|(part, fields)| *part <= least && *fields == found)
                    };
                    prop_assert!(is_right, "{:?} of {:?}", found, told);
                }
                _ => {}
            }
        }
        Ok(())
    });
}

/// A rule for one value, whose cost of a call is a whole number of nanoseconds.
fn of_one_value() -> impl Strategy<Value = Keyed> {
    let count = prop_oneof![
        (0..4_u32).prop_map(|burst| (Count::Refill, burst)),
        Just((Count::Window, 0)),
        (0..4_u32).prop_map(|others| (Count::Queue(0), others)),
    ];
    let limit = select(vec![1_u32, 2, 4, 5, 8, 10]);
    let interval = select(vec![1_000_u64, 8_000, 60_000]);
    (count, limit, interval).prop_map(|((count, more), limit, interval)| Keyed {
        resource: PATH,
        of: Of::At(0),
        count: match count {
            // As long as so many others need.
            Count::Queue(_) => Count::Queue(interval / u64::from(limit) * u64::from(more)),
            count => count,
        },
        halves: 2 * limit,
        interval,
        burst: if count == Count::Refill { more } else { 0 },
        exception: None,
        tier: None,
        missing: MissingKey::Share,
        keys: 16,
    })
}

#[test]
fn responses_tell_what_a_value_has_left_and_when_it_has_more() {
    let calls = vec((0..20_000_000_000_u64, 1..4_u32), 1..60);
    let inputs = (of_one_value(), calls);
    check(
        400,
        inputs,
        "some left, nothing left, is refused",
        |(rule, calls)| {
            let (limit, interval, count) = (rule.halves / 2, rule.interval, rule.count);
            let rules = RuleSet {
                keyed: vec![Named { rule, id: Some(0) }],
                ..RuleSet::default()
            };
            let mut answers = Answers::new(&rules);
            for (pause, weight) in calls {
                let mut asks = Asks {
                    weight,
                    given: Given::Nothing,
                    ..Asks::with_all(PATH)
                };
                answers.advance(pause * interval / 60_000);
                if let Count::Queue(_) = count {
                    // Nobody waits here.
                    asks.weight = 1;
                    let turn = answers.oracle.ledgers[0].turn(&asks, answers.now());
                    answers.advance(turn.unwrap().1 - answers.now());
                }
                let Some([_, found]) = answers.answer(asks)? else {
                    saw("is refused");
                    continue;
                };
                let left = answers.left(&asks, answers.now());
                saw(if left > 0 {
                    "some left"
                } else {
                    "nothing left"
                });
                let is_more =
                    |seconds: &u64| answers.left(&asks, answers.now() + seconds * SECOND) > left;
                let reset = (1..=interval / 1_000 + 1).find(is_more).unwrap();
                prop_assert_eq!(found, format!("\"key-0\";r={};t={reset}", left.min(limit)));
            }
            Ok(())
        },
    );
}
