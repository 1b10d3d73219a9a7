//! When a refused call is told to come again, where a rule has room only for a while, and where
//! calls may wait.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;
mod waits;

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::{
    Blocked, Call, CircuitBreakerRule, FlowRule, KeyedRule, MissingKey, Rules, Verdict,
};

use support::bench::Bench;
use support::ms;

const NANO: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
/// More than are called by: tables are made for each engine, of which there are thousands.
const KEYS: u32 = 64;

impl Bench {
    /// A call that fails if it passes; the error is the time that it is told.
    fn call(&self, weight: u32) -> Result<(), Option<Duration>> {
        let call = Call::new("r").origin("app").param("p").batch(weight);
        match self.sentinel.try_enter(call) {
            Verdict::Pass(mut entry) => {
                entry.fail();
                Ok(())
            }
            Verdict::Block(blocked) => Err(Blocked::retry_after(&blocked)),
            other => panic!("{other:?}"),
        }
    }
}

/// Calls in turn: how long after the one before, and their weights.
type History = [(Duration, u32)];

/// An engine that these calls came to, and which of them passed.
fn with_history(rules: &Rules, history: &History) -> (Bench, Vec<bool>) {
    let bench = Bench::new(rules.clone());
    let called = history.iter().map(|&(gap, weight)| {
        bench.clock.advance(gap);
        drop(bench.sentinel.try_enter(Call::new("other")));
        bench.call(weight).is_ok()
    });
    let passed = called.collect();
    (bench, passed)
}

/// What the last call of a history is told if it comes again after `wait`, and nobody in
/// between: each time on an engine of its own, as calls that are refused warm a rule up too.
fn after(rules: &Rules, history: &History, wait: Duration) -> Result<(), Option<Duration>> {
    let (bench, _) = with_history(rules, history);
    bench.clock.advance(wait);
    bench.call(history.last().unwrap().1)
}

fn warm_up() -> impl Strategy<Value = (FlowRule, u32)> {
    let intervals = proptest::sample::select(&[100_u64, 500, 700, 1_000, 1_500, 2_500, 30_000]);
    let factors = 1.1..8.0_f64;
    (2_u32..60, intervals, 1_u32..15, factors, any::<bool>()).prop_map(
        |(threshold, interval, period, factor, is_queue)| {
            let rule = FlowRule::per("r", threshold, ms(interval))
                .warm_up(SECOND * period)
                .cold_factor(factor);
            let rule = if is_queue {
                rule.throttle(Duration::ZERO)
            } else {
                rule
            };
            (rule, threshold)
        },
    )
}

/// A rule that has room again some time, and then keeps it.
#[derive(Clone, Copy, Debug)]
struct Other {
    kind: u32,
    interval: Duration,
    /// How much it admits, of what comes.
    part: f64,
}

impl Other {
    /// The rule, where so many `calls` come in `time`, of which pass so many `tokens`.
    fn rule(self, calls: u32, tokens: u32, time: Duration) -> Rules {
        let interval = self.interval;
        let part = self.part * (interval.as_secs_f64() / time.as_secs_f64()).min(1.0);
        let limit = |all: u32| (f64::from(all) * part).ceil().max(1.0) as u32;
        let window = FlowRule::per("r", limit(tokens), interval);
        let values = KeyedRule::per("r", limit(tokens), interval).max_keys(KEYS);
        match self.kind {
            0 => window.into(),
            1 => window.strict().into(),
            2 => window.buckets(1).into(),
            3 => window.by_origin().into(),
            4 => window.for_origin("other").buckets(5).into(),
            5 => window.throttle(Duration::ZERO).into(),
            6 => FlowRule::per("r", limit(calls), interval)
                .when("other")
                .into(),
            7 => values.into(),
            8 => values.window().into(),
            9 => values.throttle(Duration::ZERO).into(),
            _ => CircuitBreakerRule::error_count("r", limit(calls))
                .min_calls(1)
                .interval(interval)
                .open_for(interval)
                .into(),
        }
    }
}

fn other() -> impl Strategy<Value = Other> {
    let intervals = proptest::sample::select(&[500_u64, 1_000, 3_000, 10_000, 60_000]);
    (0_u32..11, intervals, 0.5..1.5_f64).prop_map(|(kind, interval, part)| Other {
        kind,
        interval: ms(interval),
        part,
    })
}

/// Bursts that may warm a rule up, and calls at any time, by their share of its threshold.
#[derive(Clone, Debug)]
struct Calls {
    bursts: usize,
    gap: Duration,
    shares: Vec<f64>,
    then: Vec<(u64, f64)>,
}

impl Calls {
    fn load(&self, threshold: u32) -> Vec<(Duration, u32)> {
        let burst = self.shares.iter().enumerate().map(|(place, &share)| {
            let gap = if place == 0 { self.gap } else { Duration::ZERO };
            (gap, weight(share, threshold))
        });
        let burst: Vec<_> = burst.collect();
        burst.repeat(self.bursts)
    }
}

fn weight(share: f64, threshold: u32) -> u32 {
    (f64::from(threshold) * share).ceil().max(1.0) as u32
}

fn calls() -> impl Strategy<Value = Calls> {
    let bursts = (1_usize..40, 50_u64..1_200);
    let shares = proptest::collection::vec(0.01..0.4_f64, 1..6);
    let then = proptest::collection::vec((0_u64..2_000_000_000, 0.0..1.0_f64), 1..6);
    (bursts, shares, then).prop_map(|((bursts, gap), shares, then)| Calls {
        bursts,
        gap: ms(gap),
        shares,
        then,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_call_that_meets_a_warm_up_and_others_passes_at_the_time_it_was_told(
        (warm_up, threshold) in warm_up(),
        second in proptest::option::weighted(0.2, warm_up()),
        others in proptest::collection::vec(other(), 0..3),
        calls in calls(),
    ) {
        let mut rules = Rules::new().with(warm_up);
        if let Some((second, _)) = second {
            rules = rules.with(second);
        }
        let mut history = calls.load(threshold);
        let (_, passed) = with_history(&rules, &history);
        let passed = history.iter().zip(passed).filter(|(_, passed)| *passed);
        let tokens = passed.map(|((_, weight), _)| weight).sum();
        for other in others {
            let time = calls.gap * calls.bursts as u32;
            let rule = other.rule(history.len() as u32, tokens, time);
            rules = rule.into_iter().fold(rules, Rules::with);
        }
        let (bench, _) = with_history(&rules, &history);
        for (gap, share) in calls.then {
            let (gap, weight) = (Duration::from_nanos(gap), weight(share, threshold));
            bench.clock.advance(gap);
            history.push((gap, weight));
            drop(bench.sentinel.try_enter(Call::new("other")));
            let Err(told) = bench.call(weight) else { continue };
            let Some(wait) = told else {
                for seconds in [0, 1, 2, 5, 10, 30, 100] {
                    let found = after(&rules, &history, SECOND * seconds);
                    prop_assert!(found.is_err(), "passes after {} s", seconds);
                }
                continue;
            };
            prop_assert_eq!(after(&rules, &history, wait), Ok(()), "after {:?}", wait);
            let early = after(&rules, &history, wait - NANO);
            prop_assert!(early.is_err(), "before {:?}", wait);
            for quarter in 1..4 {
                let found = after(&rules, &history, wait * quarter / 4);
                prop_assert!(found.is_err(), "{}/4 of {:?}", quarter, wait);
            }
        }
    }
}

#[test]
fn who_is_too_heavy_for_a_rule_that_cools_meanwhile_is_told_no_time() {
    let warm_up = FlowRule::per_second("r", 30).warm_up(SECOND * 2);
    let window = || FlowRule::per("r", 20, SECOND * 5).buckets(1);
    let values = || {
        let rule = KeyedRule::per("r", 20, SECOND * 5).max_keys(KEYS);
        rule.missing(MissingKey::Skip)
    };
    let breaker = CircuitBreakerRule::error_count("r", 1)
        .min_calls(1)
        .open_for(SECOND * 4);
    // After how many milliseconds five may pass.
    let others: [(Rules, u64); 7] = [
        (window().for_origin("app").into(), 4_000),
        (
            window().for_origin("app").throttle(Duration::ZERO).into(),
            1_250,
        ),
        (window().when("other").into(), 4_000),
        (values().into(), 1_250),
        (values().window().into(), 4_000),
        (values().throttle(Duration::ZERO).into(), 1_250),
        (breaker.into(), 4_000),
    ];
    for (other, light_ms) in others {
        let rules = other
            .clone()
            .into_iter()
            .fold(warm_up.clone().into(), Rules::with);
        let bench = Bench::new(rules);
        for second in 0..6 {
            bench.at(second * 1_000);
            while bench.enter(Call::new("r")).is_ok() {}
        }
        bench.at(6_000);
        let heavy = Call::new("r").origin("app").param("p").batch(20);
        let mut entry = bench.enter(heavy).unwrap();
        entry.fail();
        drop(entry);
        drop(bench.enter(Call::new("other").batch(20)));
        let told = |weight| bench.enter(heavy.batch(weight)).unwrap_err().retry_after();
        assert_eq!(told(5), Some(ms(light_ms)), "{other:?}");
        // The warm-up has room in a second, and none when the others have some.
        assert_eq!(told(20), None, "{other:?}");
        bench.clock.advance(ms(light_ms));
        assert_eq!(told(20), None, "{other:?}");
        assert!(bench.enter(heavy.batch(5)).is_ok(), "{other:?}");
    }
}

#[test]
fn a_rule_that_cools_is_asked_again_for_the_time_of_those_after_it() {
    let warm_up = FlowRule::per_second("r", 30).warm_up(SECOND * 2);
    let window = FlowRule::per("r", 1_000, SECOND * 5).buckets(1);
    let bench = Bench::new(Rules::new().with(warm_up.for_origin("app")).with(window));
    let call = Call::new("r").origin("app");
    for second in 0..6 {
        bench.at(second * 1_000);
        while bench.enter(call).is_ok() {}
    }
    drop(bench.at(6_000).enter(call.batch(20)).unwrap());
    while bench.enter(Call::new("r")).is_ok() {}
    let told = |weight| bench.enter(call.batch(weight)).unwrap_err().retry_after();
    // The warm-up has room for 20 in a second; the window has some in four, and by
    // then it has cooled.
    assert_eq!((told(5), told(20)), (Some(ms(4_000)), None));
    bench.at(10_000);
    assert_eq!(told(20), None);
    assert!(bench.enter(call.batch(5)).is_ok());
}

#[test]
fn a_queue_that_cools_meanwhile_has_a_turn_at_the_time_that_is_told() {
    let queue = |max_wait| {
        FlowRule::per_second("r", 30)
            .warm_up(SECOND * 2)
            .throttle(max_wait)
    };
    let breaker = CircuitBreakerRule::error_count("r", 1)
        .min_calls(1)
        .open_for(ms(2_100));
    let nobody_waits = queue(SECOND * 60).max_waiting(0);
    // What a call weighs, and how many milliseconds a cold queue needs for it. A warm one
    // needs a third.
    let cases: [(Rules, u32, u64); 2] = [
        (
            Rules::new().with(queue(Duration::ZERO)).with(breaker),
            25,
            2_500,
        ),
        (nobody_waits.into(), 75, 7_500),
    ];
    for (rules, weight, cold_ms) in cases {
        let bench = Bench::new(rules.clone());
        for at in 0..6_000 {
            drop(bench.at(at).enter(Call::new("r")));
        }
        bench.at(6_040).enter(Call::new("r")).unwrap().fail();
        let call = Call::new("r").batch(weight);
        let wait = bench.enter(call).unwrap_err().retry_after().unwrap();
        assert_eq!(wait, ms(cold_ms), "{rules:?}");
        bench.clock.advance(wait - NANO);
        let early = bench.enter(call).unwrap_err();
        assert_eq!(early.retry_after(), Some(NANO), "{rules:?}");
        bench.clock.advance(NANO);
        assert!(bench.enter(call).is_ok(), "{rules:?}");
    }
}

#[test]
fn what_a_warm_up_learns_late_of_a_bucket_is_foreseen() {
    // Buckets of 750 ms: one lies across 14 s, where the next step of two seconds begins.
    // What passes in it is known from 15 s on, and is what makes a cold rule warm.
    let rule = FlowRule::per("r", 8, ms(1_500))
        .warm_up(SECOND)
        .cold_factor(4.0);
    let rules = Rules::from(rule);
    let mut history = vec![(ms(3_900), 1), (Duration::ZERO, 1)];
    let (bench, passed) = with_history(&rules, &history);
    assert_eq!(passed, [true; 2]);
    let wait = ms(1_100);
    assert_eq!(bench.call(4), Err(Some(wait)));
    history.push((Duration::ZERO, 4));
    assert!(after(&rules, &history, wait - NANO).is_err());
    assert_eq!(after(&rules, &history, wait), Ok(()));
}
