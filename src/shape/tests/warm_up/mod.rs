//! Tests of the warm-up, with the figures of its sources and under load.

use std::cell::Cell;
use std::collections::VecDeque;

use super::super::throttle::{Throttle, cost};
use super::*;
use crate::clock::nanos;

mod formulas;
mod oracle;
mod room;

const SECOND: Duration = Duration::from_secs(1);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn at(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

fn secs_at(secs: u64) -> Tick {
    at(secs * 1_000)
}

/// Creates a rule of `threshold` tokens per second that warms up in `period` seconds.
fn per_second(threshold: f64, period: u64, cold_factor: f64) -> WarmUp {
    WarmUp::new(threshold, SECOND, secs(period), cold_factor)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b.abs()
}

#[test]
fn a_warm_rule_stays_warm_when_its_count_wraps() {
    let rule = per_second(100.0, 1, 3.0);
    let mut passed = u32::MAX - 1_000;
    for second in 0..20 {
        let limit = rule.limit(secs_at(second), None, || passed.into());
        assert!(second < 4 || limit == 100.0, "{limit} at {second}");
        passed = passed.wrapping_add(limit as u32);
    }
    assert!(passed < 1_000);
}

#[test]
fn the_curve_has_the_figures_of_guava() {
    let rule = per_second(100.0, 10, 3.0);
    let ramp = rule.curve.ramp.unwrap();
    assert_eq!((ramp.warning, ramp.max), (500.0, 1000.0));
    assert_eq!(rule.stored(), 1000.0);
    let cases = [
        (1000.0, 100.0 / 3.0),
        (750.0, 50.0),
        (500.0, 100.0),
        (499.0, 100.0),
        (0.0, 100.0),
    ];
    for (stored, limit) in cases {
        let found = rule.curve.at(stored);
        assert!(found >= limit && close(found, limit), "{found} at {stored}");
    }
    // Between the ends, the inverse of the limit is the straight line of the sources.
    for stored in 501..1000 {
        let inverse = f64::from(stored - 500) * 4e-5 + 0.01;
        assert!(close(rule.curve.at(stored.into()), 1.0 / inverse));
    }
}

#[test]
fn the_curve_has_the_figures_that_sentinel_derives() {
    // The threshold, the period, the cold factor, and the warning line and maximum of Alibaba
    // Sentinel, which cuts both to whole tokens.
    let cases = [
        (100.0, 10, 2.0, 1000.0, 1666.0),
        (100.0, 10, 5.0, 250.0, 583.0),
        (33.3, 8, 3.0, 133.0, 266.0),
        (5.0, 6, 5.0, 7.0, 17.0),
        (3.0, 7, 3.0, 10.0, 20.0),
    ];
    for (threshold, period, cold_factor, warning, max) in cases {
        let ramp = per_second(threshold, period, cold_factor)
            .curve
            .ramp
            .unwrap();
        assert_eq!(ramp.warning.floor(), warning);
        // Alibaba Sentinel cuts two numbers to compute the maximum, so the difference can be up to
        // two tokens.
        assert!((max..max + 2.0).contains(&ramp.max), "{}", ramp.max);
    }
}

#[test]
fn a_ramp_of_less_than_a_token_is_ignored() {
    // If tokens were whole numbers, the first of these rules would block for ever.
    let none = [
        (1.0, 1, 3.0),
        (0.3, 1, 3.0),
        (0.0, 10, 3.0),
        (-1.0, 10, 3.0),
        (10.0, 0, 3.0),
        (10.0, 10, 1.0),
        (10.0, 10, 0.0),
        (10.0, 10, -3.0),
        (10.0, 10, f64::NAN),
        (10.0, 10, f64::INFINITY),
        (f64::INFINITY, 10, 3.0),
        (f64::MAX, 10, 3.0),
        (1e-9, 10, 3.0),
    ];
    for (threshold, period, cold_factor) in none {
        let rule = per_second(threshold, period, cold_factor);
        for now in [0, 1_000, u64::MAX] {
            let limit = rule.limit(at(now), None, || panic!("nothing to refill"));
            assert_eq!(limit, threshold);
        }
    }
    assert!(
        WarmUp::new(5.0, Duration::ZERO, SECOND, 3.0)
            .curve
            .ramp
            .is_none()
    );
    assert!(per_second(2.0, 1, 3.0).curve.ramp.is_some());
}

#[test]
fn a_new_rule_is_cold_from_the_first_call_on() {
    let rule = per_second(90.0, 10, 3.0);
    for now in [0, 500, 999] {
        let limit = rule.limit(at(now), None, || 1_000_000);
        assert!((30.0..30.1).contains(&limit));
        assert_eq!(rule.whole(limit), 30);
        assert_eq!(rule.stored(), 900.0);
    }
}

#[test]
fn tokens_come_back_up_to_the_warning_line_and_beyond_when_idle() {
    let rule = per_second(10.0, 10, 3.0);
    let mut passed = 0;
    let mut step = |second: u64, n: u64| {
        passed += n;
        rule.limit(at(second * 1_000), None, || passed);
        rule.stored()
    };
    assert_eq!(step(100, 0), 100.0);
    // Three tokens are the limit of a cold rule, so the rule is not refilled.
    assert_eq!(step(101, 3), 97.0);
    // Two tokens are less than this limit, so the rule is refilled to the maximum, less the tokens
    // that passed.
    assert_eq!(step(102, 2), 98.0);
    assert_eq!(step(103, 48), 50.0);
    // Exactly at the warning line, tokens come back.
    assert_eq!(step(104, 0), 60.0);
    assert_eq!(step(105, 30), 30.0);
    assert_eq!(step(106, 10), 30.0);
    assert_eq!(step(107, 1_000), 0.0);
    // No call came for three seconds, so no tokens passed in the last second.
    assert_eq!(step(111, 7), 40.0);
    assert_eq!(step(110, 7), 40.0, "a late clock changes nothing");
    assert_eq!(step(1_000, 0), 100.0);
}

#[test]
fn passes_are_read_once_a_step() {
    let rule = per_second(10.0, 10, 3.0);
    let asked = Cell::new(0);
    for now in (5_000..8_000).step_by(10) {
        rule.limit(at(now), None, || {
            asked.set(asked.get() + 1);
            0
        });
    }
    assert_eq!(asked.get(), 3);
}

#[test]
fn limits_stay_between_the_cold_and_the_full_threshold() {
    let thresholds = [1e-9, 0.2, 1.0, 3.0, 100.0, 2147483647.0, 1e15, f64::MAX];
    let factors = [1.0 + f64::EPSILON, 1.1, 2.0, 3.0, 7.3, 1e6, f64::MAX];
    let periods = [
        Duration::ZERO,
        SECOND,
        secs(10),
        secs(1 << 40),
        Duration::MAX,
    ];
    let intervals = [
        Duration::from_millis(1),
        SECOND,
        secs(60),
        secs(366 * 86_400),
    ];
    let idle = [0, 1, 999, 1_000, 10_000, 86_400_000, 1 << 44];
    for threshold in thresholds {
        for cold_factor in factors {
            for (period, interval) in periods.into_iter().flat_map(|p| intervals.map(|i| (p, i))) {
                let rule = WarmUp::new(threshold, interval, period, cold_factor);
                let mut now = 0_u64;
                let mut passed = 0_u64;
                for gap in idle.into_iter().cycle().take(3 * idle.len()) {
                    now = now.saturating_add(gap);
                    passed = passed.wrapping_add(now * 7);
                    let limit = rule.limit(at(now), None, || passed);
                    let least = threshold / cold_factor;
                    assert!(limit >= least && limit <= threshold, "{rule:?}: {limit}");
                    assert!(rule.stored() >= 0.0, "{rule:?}");
                }
                let limits = [0.0, 0.5, 1.0, 1e3, 1e9, 1e300].map(|stored| rule.curve.at(stored));
                assert!(limits.is_sorted_by(|a, b| a >= b), "{rule:?}: {limits:?}");
            }
        }
    }
}

/// How a rule enforces its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Enforcement {
    /// A window of two buckets, which counts whole calls.
    Window,
    /// A queue of calls.
    Queue,
}

/// Makes as many calls as the rule lets pass. Returns the number of seconds until the rule is warm.
fn seconds_until_warm(rule: &WarmUp, enforcement: Enforcement) -> f64 {
    let Curve {
        threshold,
        interval,
        period,
        ..
    } = rule.curve;
    let start = secs(1_000);
    let end = start + period * 6 + secs(100);
    let every = (interval / 2).min(secs(1) / 2);
    let queue = Throttle::new();
    let mut window: VecDeque<(u128, u64)> = VecDeque::new();
    let (mut now, mut passed) = (start, 0);
    while now < end {
        let tick = Tick::from_nanos(nanos(now));
        let limit = rule.limit(tick, None, || passed);
        if limit >= threshold {
            return (now - start).as_secs_f64();
        }
        match enforcement {
            Enforcement::Window => {
                let bucket = now.as_nanos() / (interval / 2).as_nanos();
                window.retain(|&(taken, _)| taken + 1 >= bucket);
                let taken: u64 = window.iter().map(|&(_, n)| n).sum();
                let room = u64::from(rule.whole(limit)).saturating_sub(taken);
                window.push_back((bucket, room));
                passed += room;
                now += every;
            }
            Enforcement::Queue => {
                let cost_ns = cost(1, limit, interval).unwrap();
                match queue.join(tick, cost_ns, Duration::ZERO) {
                    Ok(_) => passed += 1,
                    Err(later) => now = Duration::from_nanos(later.unwrap().as_nanos()),
                }
            }
        }
    }
    panic!("{rule:?} is never warm")
}

#[test]
fn under_full_load_a_rule_is_warm_after_its_period() {
    let rules = [
        // The threshold, the interval in ms, the period in s, and the cold factor.
        (100.0, 1_000, 10, 3.0),
        (10.0, 1_000, 10, 3.0),
        (33.3, 1_000, 8, 3.0),
        (7.5, 1_000, 20, 2.5),
        (3.0, 1_000, 60, 3.0),
        (5.0, 100, 10, 3.0),
        (10.0, 500, 30, 3.0),
        (10.0, 300, 30, 3.0),
        (20.0, 1_500, 30, 4.0),
        (1_000.0, 60_000, 600, 3.0),
        (5.0, 60_000, 3_600, 3.0),
        (100.0, 10_000, 300, 10.0),
        // A cold rule admits less than one call per interval.
        (1.0, 1_000, 30, 3.0),
        (2.0, 1_000, 60, 3.0),
        (1.0, 10_000, 600, 5.0),
        (0.5, 1_000, 300, 3.0),
    ];
    for (threshold, interval, period, cold_factor) in rules {
        let new = || {
            let interval = Duration::from_millis(interval);
            WarmUp::new(threshold, interval, secs(period), cold_factor)
        };
        let step = new().curve.ramp.unwrap().step_ns as f64 / 1e9;
        let turn = interval as f64 / 1e3 * cold_factor / threshold;
        let period = period as f64;
        let slack = 2.0 * (step + turn);
        let took = seconds_until_warm(&new(), Enforcement::Queue);
        assert!(
            (took - period).abs() <= slack,
            "{took} s in a queue: {:?}",
            new()
        );
        if threshold < 1.0 {
            continue;
        }
        let took = seconds_until_warm(&new(), Enforcement::Window);
        // If the curve allows less than one call per interval, the window admits one call, so the
        // rule warms up faster.
        let least = if threshold >= cold_factor {
            period - slack
        } else {
            0.0
        };
        let most = 2.0 * period + slack;
        assert!(
            (least..=most).contains(&took),
            "{took} s in a window: {:?}",
            new()
        );
    }
}

#[test]
fn a_warm_rule_under_full_load_stays_warm() {
    for interval in [SECOND, secs(60), Duration::from_millis(100)] {
        let rule = WarmUp::new(60.0, interval, secs(600), 3.0);
        let ramp = rule.curve.ramp.unwrap();
        seconds_until_warm(&rule, Enforcement::Queue);
        let mut passed = rule.passed.load(Ordering::Relaxed);
        let first = rule.due.load(Ordering::Relaxed);
        for step in 0..100 {
            passed += (ramp.per_second * ramp.step_ns as f64 / 1e9) as u64;
            let now = Tick::from_nanos(first + step * ramp.step_ns);
            assert_eq!(rule.limit(now, None, || passed), 60.0);
        }
        // The rule is cold again after an idle time in which all its tokens come back.
        let cold = secs(10) + Duration::from_secs_f64(ramp.max / ramp.per_second);
        let now = Tick::from_nanos(first + 100 * ramp.step_ns) + cold;
        assert!((20.0..20.1).contains(&rule.limit(now, None, || passed)));
    }
}

/// Creates a rule with `stored` tokens that was last refilled at 7 s.
fn used(threshold: f64, period: u64, stored: f64) -> WarmUp {
    let rule = per_second(threshold, period, 3.0);
    rule.limit(at(7_000), None, || 5);
    rule.stored.store(stored.to_bits(), Ordering::Relaxed);
    rule
}

#[test]
fn a_whole_limit_is_at_least_one_if_the_threshold_is_at_least_one() {
    for (threshold, limit, whole) in [(2.0, 0.7, 1), (1.0, 0.4, 1), (0.9, 0.4, 0), (9.0, 3.9, 3)] {
        assert_eq!(per_second(threshold, 60, 3.0).whole(limit), whole);
    }
}

#[test]
fn a_count_that_restarts_removes_no_tokens() {
    let rule = used(10.0, 10, 80.0);
    rule.limit(at(8_000), None, || 2);
    assert_eq!(rule.stored(), 90.0);
    rule.limit(at(9_000), None, || 6);
    assert_eq!(rule.stored(), 86.0, "and is told on from there");
}

#[test]
fn an_equal_rule_continues_from_the_old_one() {
    let (old, new) = (used(10.0, 10, 62.5), per_second(10.0, 10, 3.0));
    new.take_over(&old);
    assert_eq!(new.stored(), 62.5);
    // This second has already had its refill. The refill of the next second removes the passes.
    new.limit(at(7_500), None, || panic!("filled"));
    new.limit(at(8_000), None, || 9);
    assert_eq!(new.stored(), 58.5);
}

#[test]
fn tokens_are_scaled_when_only_the_threshold_changed() {
    for (threshold, stored) in [(20.0, 125.0), (5.0, 31.25), (0.5, 3.125)] {
        let new = per_second(threshold, 10, 3.0);
        new.take_over(&used(10.0, 10, 62.5));
        assert_eq!(new.stored(), stored);
        let share = new.curve.at(stored) / threshold;
        assert!(close(
            share,
            per_second(10.0, 10, 3.0).curve.at(62.5) / 10.0
        ));
    }
    // A slow rule has longer steps: its last refill counts as the refill of the step at 6 s.
    let slow = per_second(0.5, 10, 3.0);
    slow.take_over(&used(10.0, 10, 100.0));
    slow.limit(at(11_999), None, || panic!("filled"));
    slow.limit(at(12_000), None, || 6);
    assert_eq!(slow.stored(), 4.0);
}

#[test]
fn a_reload_makes_a_cold_rule_no_colder_than_a_new_one() {
    for (threshold, cold_factor) in (3..60).flat_map(|n| [(n, 1.1), (n, 3.0), (n, 7.3)]) {
        let old = per_second(2.0, 10, cold_factor);
        old.limit(at(7_000), None, || 0);
        let new = per_second(threshold.into(), 10, cold_factor);
        let cold = new.stored();
        new.take_over(&old);
        assert!(new.stored() <= cold, "{new:?}");
    }
}

#[test]
fn a_rule_that_differs_in_more_than_the_threshold_is_cold() {
    let others = [
        per_second(10.0, 20, 3.0),
        per_second(10.0, 10, 4.0),
        WarmUp::new(10.0, secs(2), secs(10), 3.0),
        per_second(10.0, 0, 3.0),
        per_second(0.0, 10, 3.0),
    ];
    let warm = used(10.0, 10, 0.0);
    for new in others {
        let cold = new.stored();
        new.take_over(&warm);
        assert_eq!(new.stored(), cold);
    }
    // A rule without a ramp, or without calls, has nothing to inherit.
    let new = per_second(10.0, 10, 3.0);
    new.take_over(&per_second(0.1, 10, 3.0));
    new.take_over(&per_second(10.0, 10, 3.0));
    assert_eq!(new.stored(), 100.0);
    assert!((3.3..3.4).contains(&new.limit(at(0), None, || 0)));
}

#[test]
fn an_equal_rule_loses_no_refill_in_progress() {
    let old = Arc::new(per_second(10.0, 10, 3.0));
    old.limit(at(1_000), None, || 0);
    let mut new = None;
    old.limit(at(2_000), None, || {
        // A reload happens during the refill.
        new = Some(per_second(10.0, 10, 3.0).inheriting(&old));
        40
    });
    let new = new.unwrap();
    assert_eq!(new.stored(), 60.0);
    new.limit(at(2_000), None, || panic!("it has been refilled"));
}
