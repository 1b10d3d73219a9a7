//! Tests of what a limiter learns from ended calls, and which calls it refuses.

use std::time::Duration;

use proptest::prelude::*;

use super::bounds::CLASSES;
use super::claims::of_class;
use super::estimate::{LimiterSettings, Phase};
use super::limiter::{CallEnd, Limiter};
use super::window::WindowTerms;
use crate::call::Cohort;
use crate::clock::Tick;
use crate::stat::{Ends, Outcome};

/// The index of the default class.
const CLASS: usize = 1;

/// Creates settings without a burst.
fn settings(floor: u32, start: u32, ceiling: u32) -> LimiterSettings {
    LimiterSettings {
        floor,
        ceiling,
        start,
        burst: Duration::ZERO,
    }
}

/// A limiter, and a sequence of calls that end at it.
struct CallsInTurn {
    limiter: Limiter,
    now: Tick,
    ended: u64,
}

impl CallsInTurn {
    fn new(settings: LimiterSettings, now: Tick) -> Self {
        Self {
            limiter: Limiter::new(settings, now),
            now,
            ended: 0,
        }
    }

    fn end(&mut self, rt: Duration, in_flight: u32, outcome: Option<Outcome>) {
        self.ended += 1;
        let (now, ended) = (self.now, self.ended);
        let call = CallEnd { now, rt, outcome };
        self.limiter.ended(call, || in_flight, || Ends::of(ended));
    }

    /// Ends one call every 5 ms for `millis`, each after `rt` and with as many calls in flight as
    /// the limit allows.
    fn end_for(&mut self, millis: u64, rt: Duration, outcome: Option<Outcome>) {
        for _ in 0..millis / 5 {
            self.now = self.now + Duration::from_millis(5);
            self.limiter.bound(of_class(CLASS));
            self.end(rt, self.limiter.bounds()[CLASS], outcome);
        }
    }

    fn long_term_rt_ns(&self) -> f64 {
        self.limiter.learned.lock().estimate.long
    }
}

/// Creates a duration of this many milliseconds.
const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn a_quick_failure_or_cancellation_is_no_sample() {
    for outcome in [Some(Outcome::Failure), None] {
        let mut calls = CallsInTurn::new(settings(1, 20, 200), Tick::ZERO);
        // The long response time is not yet known, so not even slow failures and cancellations
        // count.
        calls.end_for(500, MS(900), outcome);
        assert_eq!(
            (calls.limiter.estimate(), calls.long_term_rt_ns()),
            (20.0, 0.0)
        );
        calls.end_for(3_000, MS(50), Some(Outcome::Success));
        assert_eq!(calls.long_term_rt_ns(), 50e6);
        let before = calls
            .limiter
            .window
            .close(&WindowTerms::ALWAYS, calls.now, 1);
        assert!(before.is_some());
        calls.end_for(200, MS(1), outcome);
        let after = calls
            .limiter
            .window
            .close(&WindowTerms::ALWAYS, calls.now, 1);
        assert_eq!(after, None, "there are no samples");
    }
}

#[test]
fn slow_failures_and_cancellations_raise_the_long_term_response_time() {
    for outcome in [Some(Outcome::Failure), None] {
        let mut calls = CallsInTurn::new(settings(1, 20, 200), Tick::ZERO);
        calls.end_for(3_000, MS(100), Some(Outcome::Success));
        assert_eq!(calls.long_term_rt_ns(), 100e6);
        calls.end_for(4_000, MS(300), outcome);
        assert!(calls.long_term_rt_ns() > 120e6, "{calls:?}");
    }
}

#[test]
fn a_limiter_takes_over_the_learned_values_of_its_predecessor() {
    let mut old = CallsInTurn::new(settings(1, 20, 200), Tick::ZERO);
    old.end_for(10_000, MS(100), Some(Outcome::Success));
    let limit = old.limiter.estimate();
    assert!(limit > 20.0, "{old:?}");
    for (floor, ceiling) in [(1, 200), (1, 10), (150, 200)] {
        let new = Limiter::new(settings(floor, floor, ceiling), old.now);
        new.take_over(&old.limiter, old.now);
        let expected = limit.clamp(floor.into(), ceiling.into());
        assert_eq!(new.estimate(), expected);
        assert_eq!(new.bounds()[CLASS], expected as u32);
        assert_eq!(new.learned.lock().estimate.long, old.long_term_rt_ns());
        assert_eq!(new.counts(), old.limiter.counts());
    }
}

#[test]
fn a_clock_that_steps_back_an_hour_does_not_stop_learning() {
    let mut calls = CallsInTurn::new(settings(1, 20, 200), Tick::from_millis(3_600_000));
    calls.end_for(3_000, MS(50), Some(Outcome::Success));
    calls.now = Tick::ZERO;
    calls.end_for(10_000, MS(100), Some(Outcome::Success));
    assert!(calls.long_term_rt_ns() > 75e6, "it has learned since");
}

#[test]
fn a_probe_that_a_pause_interrupts_ends_and_restores_the_limit() {
    let mut calls = CallsInTurn::new(settings(1, 20, 200), Tick::ZERO);
    let is_measuring = |calls: &CallsInTurn| {
        let phase = calls.limiter.learned.lock().estimate.phase;
        phase == Phase::Measuring
    };
    calls.end_for(5, MS(50), Some(Outcome::Success));
    calls.limiter.refused(of_class(CLASS), || 20);
    while !is_measuring(&calls) {
        calls.end_for(5, MS(50), Some(Outcome::Success));
    }
    assert!(calls.limiter.bounds()[CLASS] < 20);
    calls.now = calls.now + Duration::from_secs(3_600);
    calls.end(MS(50), 1, Some(Outcome::Success));
    let limit = calls.limiter.estimate();
    assert_eq!(calls.limiter.bounds()[CLASS], limit as u32);
}

/// Creates a limiter that has learned a long response time of 50 ms.
fn trained_limiter(burst: Duration) -> CallsInTurn {
    let settings = LimiterSettings {
        burst,
        ..settings(1, 20, 10_000)
    };
    let mut calls = CallsInTurn::new(settings, Tick::ZERO);
    for _ in 0..400 {
        calls.now = calls.now + MS(5);
        calls.limiter.bound(of_class(CLASS));
        calls.limiter.bound(of_class(3));
        calls.end(MS(50), 10, Some(Outcome::Success));
    }
    calls
}

#[test]
fn a_refusal_of_an_open_class_shuts_the_least_important_class() {
    let calls = trained_limiter(MS(500));
    let limiter = &calls.limiter;
    let before = limiter.bounds();
    assert!(before.is_sorted_by(|more, less| more > less), "{before:?}");
    assert_eq!(limiter.shut(), 0);
    // A refusal shuts a class only if the calls in flight are still at its bound.
    assert_eq!(limiter.refused(of_class(1), || before[1] - 1), None);
    assert_eq!(limiter.shut(), 0);
    assert_eq!(limiter.refused(of_class(3), || before[3]), None);
    assert_eq!(limiter.shut(), 1);
    // The next refusal of that class shuts no further class.
    assert_eq!(limiter.refused(of_class(3), || before[3]), None);
    assert_eq!(limiter.shut(), 1);
    let after = limiter.bounds();
    assert_eq!(after[..3], before[..3]);
    assert_eq!(after[3], limiter.estimate() as u32);
    // No calls of the class `SheddablePlus` arrive, so this class is shut as well.
    limiter.refused(of_class(1), || after[1]);
    assert_eq!(limiter.shut(), 3);
    let waits = [(); 5].map(|()| limiter.refused(of_class(3), || 0).unwrap().as_secs());
    assert_eq!(waits, [2, 3, 4, 5, 2]);
    assert_eq!(limiter.refused(of_class(1), || 0), None);
}

#[test]
fn only_cohorts_of_a_partly_refused_class_have_different_bounds() {
    let calls = trained_limiter(MS(500));
    let limiter = &calls.limiter;
    let bound =
        |class: usize, number: u8| limiter.bound(of_class(class).with_cohort(Cohort::new(number)));
    for class in 0..CLASSES {
        assert_eq!(bound(class, 127), limiter.bounds()[class], "all are open");
    }
    let full = limiter.bounds()[3];
    limiter.refused(of_class(3), || full);
    let (bounds, spread) = (limiter.bounds(), limiter.estimate().sqrt() as u32);
    assert!(spread >= 2, "{spread}");
    assert_eq!(bound(3, 0), bounds[3]);
    assert_eq!(bound(3, 64), bounds[3] - spread / 2);
    assert_eq!(bound(3, 127), bounds[3] - (spread - 1));
    assert_eq!(bound(2, 127), bounds[2]);
    // Excess calls of one cohort get the same retry time.
    limiter.refused(of_class(1), || bounds[1]);
    let wait = |number| {
        let importance = of_class(3).with_cohort(Cohort::new(number));
        limiter.refused(importance, || 0).unwrap().as_secs()
    };
    assert_eq!([0, 1, 2, 3, 4, 37, 37].map(wait), [2, 3, 4, 5, 2, 3, 3]);
}

#[test]
fn without_a_burst_all_open_classes_have_the_limit() {
    let calls = trained_limiter(Duration::ZERO);
    let limit = calls.limiter.estimate() as u32;
    assert_eq!(calls.limiter.bounds(), [limit; CLASSES]);
}

impl std::fmt::Debug for CallsInTurn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.limiter.learned.lock().fmt(f)
    }
}

/// Generates ends of calls: a clock reading, a response time, the calls in flight, and the kind of
/// the outcome.
fn ends() -> impl Strategy<Value = Vec<(u64, u64, u32, u8)>> {
    let number = || {
        prop_oneof![
            Just(0),
            0..200_000_000_u64,
            0..100_000_000_000_u64,
            any::<u64>(),
            Just(u64::MAX)
        ]
    };
    let in_flight = prop_oneof![Just(0), 0..300_u32, any::<u32>()];
    proptest::collection::vec((number(), number(), in_flight, 0..3_u8), 1..400)
}

proptest! {
    /// Ends calls with arbitrary clock readings, response times and calls in flight.
    #[test]
    fn the_limit_is_always_a_number_within_its_bounds(
        floor in 1..50_u32,
        more in 0..500_u32,
        start in 0..500_u32,
        burst in 0..10_000_u64,
        is_clock_right in any::<bool>(),
        ends in ends(),
    ) {
        let ceiling = floor + more;
        let settings = LimiterSettings {
            burst: MS(burst),
            ..settings(floor, start.clamp(floor, ceiling), ceiling)
        };
        let mut calls = CallsInTurn::new(settings, Tick::ZERO);
        for (time, rt, in_flight, end) in ends {
            calls.now = if is_clock_right {
                calls.now + Duration::from_nanos(time % 1_000_000_000)
            } else {
                Tick::from_nanos(time)
            };
            let class = in_flight as usize % CLASSES;
            if in_flight >= calls.limiter.bound(of_class(class)) {
                calls.limiter.refused(of_class(class), || in_flight);
            }
            let outcome = [Some(Outcome::Success), Some(Outcome::Failure), None][end as usize];
            calls.end(Duration::from_nanos(rt), in_flight, outcome);
            let limit = calls.limiter.estimate();
            prop_assert!((f64::from(floor)..=f64::from(ceiling)).contains(&limit));
            let long = calls.long_term_rt_ns();
            prop_assert!(long.is_finite() && long >= 0.0);
            let bounds = calls.limiter.bounds();
            let marginal = CLASSES - usize::from(calls.limiter.shut());
            prop_assert!(bounds.iter().all(|&bound| bound <= ceiling));
            prop_assert!(bounds.is_sorted_by(|more, less| more >= less), "{bounds:?}");
            prop_assert!(bounds.iter().take(marginal + 1).all(|&bound| bound >= 1));
        }
    }
}
