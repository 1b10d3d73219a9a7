//! A threshold that starts low after idle times and grows with the load.
//!
//! ```text
//! threshold T, cold factor f, stored tokens S
//!
//! limit
//!   T ├───────────────╮                 f = 3, T = 100 per second, period 10 s:
//!     │                ╲                warning 500, max 1000
//!     │                 ╲____           S  499   500   750   1000
//! T/f ├                      ╲___       →  100   100    50   33.3
//!     └───────────────┼──────────┼─▶ S
//!     0            warning      max
//! ```
//!
//! Stored tokens are a measure of cold. A new rule has all of them, and the
//! limit is `T/f`. What passes uses them up; at the warning line the rule is
//! warm, and the limit is `T`. While less passes than a cold rule admits, they
//! come back with `T` per interval. With `q` tokens per second and a period `p`:
//!
//! ```text
//! warning = p·q / (f − 1)      max = warning + 2·p·q / (1 + f)
//! limit   = T / (1 + (f − 1)·(S − warning) / (max − warning))     above warning
//! ```
//!
//! The time from max to warning at the limit is then exactly the period. (In the
//! terms of the sources, `1 / limit` is a straight line of slope
//! `(f − 1) / q / (max − warning)`.)
//!
//! Once per *step* the first caller refills: it adds `q` times the time since the
//! last refill if the rule is warm, or if what passed in the step before is less
//! than a cold rule admits; then it takes off what passed. A step is a whole
//! second. Where a second tells too little it is longer: at least the interval,
//! for a window may admit everything in one second of it; and at least the time
//! of one token at the cold rate. What a cold rule admits is counted in whole
//! tokens, as a window does: otherwise the 3 per second that fit into a limit of
//! 3.33 would look like too little load, and the rule would stay cold for ever.
//!
//! Tokens are `f64`. A ramp of less than one token, or of more than are told
//! apart (2⁵³), is none: the limit is `T`. That includes a period of 0, a cold
//! factor of 1 and a threshold of 0. Under whole limits a rule with `T < f`
//! would admit nothing for ever; [`WarmUp::whole`] admits one call.
//!
//! The refill is claimed by a compare-and-swap of the time when it is due; those
//! who lose it, or come before it is done, use the tokens of the step before. The
//! winner changes the tokens by compare-and-swap, so that two winners of
//! successive steps both count. A late clock refills nothing. All words are
//! relaxed: each is right alone, and none says anything about other memory.
//!
//! # Accuracy
//!
//! Under full load, paced calls are warm after the period, give or take two
//! steps and two calls. Through a window the limit is cut to whole calls, and it
//! can take up to twice as long (from a limit of 1.9, one call passes).
//!
//! # Source
//!
//! `SmoothWarmingUp` of Guava's `RateLimiter`, in the form of Sentinel's warm-up
//! controller. That one cuts tokens to whole numbers (so that short ramps block
//! for ever), never refills exactly at the warning line, and knows only seconds.

use std::time::Duration;

use crate::clock::Tick;
use crate::sync::{AtomicU64, Bug, Ordering, planted};

/// From here on whole tokens are not told apart.
const MOST_TOKENS: f64 = 9_007_199_254_740_992.0;
/// "Never refilled": every refill that was done is due again later than at 0.
const NEVER: u64 = 0;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct WarmUp {
    curve: Curve,
    /// The stored tokens, as bits of an `f64`.
    stored: AtomicU64,
    /// The time, in ns, when the next refill is due.
    due: AtomicU64,
    /// The tokens that had ever passed at the last refill.
    passed: AtomicU64,
}

/// What the limit is at how many tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Curve {
    threshold: f64,
    interval: Duration,
    period: Duration,
    cold_factor: f64,
    /// `None`: always the threshold.
    ramp: Option<Ramp>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ramp {
    per_second: f64,
    warning: f64,
    max: f64,
    step_ns: u64,
    /// What a cold rule admits in one step, at least 1: less is no load.
    cold: u64,
}

// === impl Ramp ===

impl Ramp {
    fn new(threshold: f64, interval: Duration, period: Duration, cold_factor: f64) -> Option<Self> {
        if !(threshold > 0.0 && cold_factor > 1.0) {
            return None;
        }
        let interval = interval.as_secs_f64();
        let per_second = threshold / interval;
        let tokens = period.as_secs_f64() * per_second;
        let warning = tokens / (cold_factor - 1.0);
        let max = warning + 2.0 * tokens / (1.0 + cold_factor);
        // Not a number, if they are infinite.
        if !(1.0..MOST_TOKENS).contains(&(max - warning)) {
            return None;
        }
        // The cold rule admits `whole` tokens in `span` seconds.
        let cold_limit = threshold / cold_factor;
        let (whole, span) = if cold_limit >= 1.0 {
            (cold_limit.floor(), interval)
        } else {
            (1.0, interval / cold_limit)
        };
        let step = span.ceil().max(1.0);
        // Conversions saturate.
        Some(Self {
            per_second,
            warning,
            max,
            step_ns: (step as u64).saturating_mul(1_000_000_000),
            cold: (whole * (step / span).floor()) as u64,
        })
    }

    /// `stored` after `elapsed` seconds, in whose last step `previous` tokens
    /// passed.
    fn refilled(&self, stored: f64, elapsed: f64, previous: u64) -> f64 {
        let is_idle = stored <= self.warning || previous < self.cold;
        let filled = if is_idle {
            (stored + elapsed * self.per_second).min(self.max)
        } else {
            stored
        };
        (filled - previous as f64).max(0.0)
    }
}

// === impl Curve ===

impl Curve {
    /// The limit with `stored` tokens: between `threshold / cold_factor` and
    /// `threshold`.
    fn at(&self, stored: f64) -> f64 {
        let Some(ramp) = &self.ramp else {
            return self.threshold;
        };
        if stored <= ramp.warning {
            return self.threshold;
        }
        // From 0 at the warning line to exactly 1 at the maximum.
        let coldness = (stored - ramp.warning) / (ramp.max - ramp.warning);
        let limit = self.threshold / (1.0 + (self.cold_factor - 1.0) * coldness);
        // A hair more: rounding must not keep it below a whole number.
        (limit * (1.0 + 4.0 * f64::EPSILON)).min(self.threshold)
    }

    /// By which factor tokens of `old` become tokens of this curve; `None` if
    /// they differ in more than the threshold.
    fn scale(&self, old: &Self) -> Option<f64> {
        let renamed = Self {
            threshold: self.threshold,
            ramp: self.ramp,
            ..*old
        };
        (renamed == *self && self.ramp.is_some() && old.ramp.is_some())
            .then(|| self.threshold / old.threshold)
    }
}

// === impl WarmUp ===

impl WarmUp {
    /// A cold rule of `threshold` tokens per `interval`, which is warm after
    /// `period` of full load and admits `threshold / cold_factor` before.
    pub(crate) fn new(
        threshold: f64,
        interval: Duration,
        period: Duration,
        cold_factor: f64,
    ) -> Self {
        let ramp = Ramp::new(threshold, interval, period, cold_factor);
        Self {
            curve: Curve {
                threshold,
                interval,
                period,
                cold_factor,
                ramp,
            },
            stored: AtomicU64::new(ramp.map_or(0.0, |ramp| ramp.max).to_bits()),
            due: AtomicU64::new(NEVER),
            passed: AtomicU64::new(0),
        }
    }

    /// The threshold per interval that holds at `now`.
    ///
    /// `passed` tells how many tokens have ever passed where the rule counts. It
    /// is asked once per step, by one caller. A count that starts anew does no
    /// harm.
    pub(crate) fn limit(&self, now: Tick, passed: impl FnOnce() -> u64) -> f64 {
        if let Some(ramp) = &self.curve.ramp {
            let due = self.due.load(Ordering::Relaxed);
            if now.as_nanos() >= due {
                self.refill(ramp, now, due, passed);
            }
        }
        self.curve.at(self.stored())
    }

    /// `limit` in whole calls: at least one, if the threshold admits one.
    pub(crate) fn whole(&self, limit: f64) -> u32 {
        // Conversions saturate.
        (limit as u32).max(u32::from(self.curve.threshold >= 1.0))
    }

    /// The stored tokens: the more, the colder.
    pub(crate) fn stored(&self) -> f64 {
        f64::from_bits(self.stored.load(Ordering::Relaxed))
    }

    /// Goes on where `old` is: as it is, if both are equal; in proportion, if
    /// only the thresholds differ; otherwise this one stays cold.
    ///
    /// For a rule that no call has seen yet, and that counts where `old` did.
    pub(crate) fn take_over(&self, old: &Self) {
        let (Some(scale), Some(ramp), Some(was)) = (
            self.curve.scale(&old.curve),
            self.curve.ramp,
            old.curve.ramp,
        ) else {
            return;
        };
        let due = old.due.load(Ordering::Relaxed);
        if due == NEVER {
            return;
        }
        // The last refill, which was at the start of a step of the old rule.
        let filled = due - was.step_ns;
        let due = (filled - filled % ramp.step_ns).saturating_add(ramp.step_ns);
        let stored = (old.stored() * scale).min(ramp.max);
        self.stored.store(stored.to_bits(), Ordering::Relaxed);
        self.due.store(due, Ordering::Relaxed);
        self.passed
            .store(old.passed.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    #[cold]
    fn refill(&self, ramp: &Ramp, now: Tick, due: u64, passed: impl FnOnce() -> u64) {
        let begun = now.as_nanos() - now.as_nanos() % ramp.step_ns;
        let next = begun.saturating_add(ramp.step_ns);
        let claimed = self
            .due
            .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err() && !planted(Bug::FillUnclaimed) {
            return;
        }
        let passed = passed();
        let before = self.passed.swap(passed, Ordering::Relaxed);
        if due == NEVER {
            // Nothing is known of the time before: it was cold.
            return;
        }
        // If nobody came in the step before, nothing passed in it.
        let previous = if begun == due {
            passed.saturating_sub(before)
        } else {
            0
        };
        let elapsed = Duration::from_nanos(begun.saturating_sub(due)).as_secs_f64()
            + Duration::from_nanos(ramp.step_ns).as_secs_f64();
        let mut found = self.stored.load(Ordering::Relaxed);
        loop {
            let stored = ramp.refilled(f64::from_bits(found), elapsed, previous);
            if planted(Bug::FillBlind) {
                return self.stored.store(stored.to_bits(), Ordering::Relaxed);
            }
            match self.stored.compare_exchange_weak(
                found,
                stored.to_bits(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => found = now,
            }
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::cell::Cell;
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::throttle::{Throttle, cost};
    use super::*;
    use crate::clock::nanos;

    const SECOND: Duration = Duration::from_secs(1);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    fn per_second(threshold: f64, period: u64, cold_factor: f64) -> WarmUp {
        WarmUp::new(threshold, SECOND, secs(period), cold_factor)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs()
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
        // The straight line that the sources draw, between the ends.
        for stored in 501..1000 {
            let inverse = f64::from(stored - 500) * 4e-5 + 0.01;
            assert!(close(rule.curve.at(stored.into()), 1.0 / inverse));
        }
    }

    #[test]
    fn the_curve_has_the_figures_that_sentinel_derives() {
        // Threshold, period, cold factor, warning and max, which Sentinel cuts to
        // whole tokens.
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
            // Two numbers are cut there.
            assert!((max..max + 2.0).contains(&ramp.max), "{}", ramp.max);
        }
    }

    #[test]
    fn a_ramp_of_less_than_a_token_is_none() {
        // The first is the one that blocks for ever when tokens are whole.
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
                let limit = rule.limit(at(now), || panic!("nothing to refill"));
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
            let limit = rule.limit(at(now), || 1_000_000);
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
            rule.limit(at(second * 1_000), || passed);
            rule.stored()
        };
        assert_eq!(step(100, 0), 100.0);
        // Three are what a cold rule admits: no refill.
        assert_eq!(step(101, 3), 97.0);
        // Two are less: refilled to the maximum, less what passed.
        assert_eq!(step(102, 2), 98.0);
        assert_eq!(step(103, 48), 50.0);
        // At the warning line exactly, tokens come back.
        assert_eq!(step(104, 0), 60.0);
        assert_eq!(step(105, 30), 30.0);
        assert_eq!(step(106, 10), 30.0);
        assert_eq!(step(107, 1_000), 0.0);
        // Nobody came for three seconds, so nothing passed in the last one.
        assert_eq!(step(111, 7), 40.0);
        assert_eq!(step(110, 7), 40.0, "a late clock changes nothing");
        assert_eq!(step(1_000, 0), 100.0);
    }

    #[test]
    fn passes_are_asked_for_once_a_step() {
        let rule = per_second(10.0, 10, 3.0);
        let asked = Cell::new(0);
        for now in (5_000..8_000).step_by(10) {
            rule.limit(at(now), || {
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
                for (period, interval) in
                    periods.into_iter().flat_map(|p| intervals.map(|i| (p, i)))
                {
                    let rule = WarmUp::new(threshold, interval, period, cold_factor);
                    let mut now = 0_u64;
                    let mut passed = 0_u64;
                    for gap in idle.into_iter().cycle().take(3 * idle.len()) {
                        now = now.saturating_add(gap);
                        passed = passed.wrapping_add(now * 7);
                        let limit = rule.limit(at(now), || passed);
                        let least = threshold / cold_factor;
                        assert!(limit >= least && limit <= threshold, "{rule:?}: {limit}");
                        assert!(rule.stored() >= 0.0, "{rule:?}");
                    }
                    let limits =
                        [0.0, 0.5, 1.0, 1e3, 1e9, 1e300].map(|stored| rule.curve.at(stored));
                    assert!(limits.is_sorted_by(|a, b| a >= b), "{rule:?}: {limits:?}");
                }
            }
        }
    }

    /// How a rule's limit is kept.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Way {
        /// A window of two buckets, of whole calls.
        Window,
        /// A line of calls.
        Line,
    }

    /// A rule under as many calls as it lets pass, after how many seconds it is
    /// warm.
    fn seconds_until_warm(rule: &WarmUp, way: Way) -> f64 {
        let Curve {
            threshold,
            interval,
            period,
            ..
        } = rule.curve;
        let start = secs(1_000);
        let end = start + period * 6 + secs(100);
        let every = (interval / 2).min(secs(1) / 2);
        let line = Throttle::new();
        let mut window: VecDeque<(u128, u64)> = VecDeque::new();
        let (mut now, mut passed) = (start, 0);
        while now < end {
            let tick = Tick::from_nanos(nanos(now));
            let limit = rule.limit(tick, || passed);
            if limit >= threshold {
                return (now - start).as_secs_f64();
            }
            match way {
                Way::Window => {
                    let bucket = now.as_nanos() / (interval / 2).as_nanos();
                    window.retain(|&(taken, _)| taken + 1 >= bucket);
                    let taken: u64 = window.iter().map(|&(_, n)| n).sum();
                    let room = u64::from(rule.whole(limit)).saturating_sub(taken);
                    window.push_back((bucket, room));
                    passed += room;
                    now += every;
                }
                Way::Line => {
                    let cost_ns = cost(1, limit, interval).unwrap();
                    match line.join(tick, cost_ns, Duration::ZERO) {
                        Ok(_) => passed += 1,
                        Err(later) => now = Duration::from_nanos(later.as_nanos()),
                    }
                }
            }
        }
        panic!("{rule:?} is never warm")
    }

    #[test]
    fn under_full_load_a_rule_is_warm_after_its_period() {
        let rules = [
            // Threshold, interval in ms, period in s, cold factor.
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
            let took = seconds_until_warm(&new(), Way::Line);
            assert!(
                (took - period).abs() <= slack,
                "{took} s on a line: {:?}",
                new()
            );
            if threshold < 1.0 {
                continue;
            }
            let took = seconds_until_warm(&new(), Way::Window);
            // With less than a call per interval, one is more than the curve.
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
            seconds_until_warm(&rule, Way::Line);
            let mut passed = rule.passed.load(Ordering::Relaxed);
            let first = rule.due.load(Ordering::Relaxed);
            for step in 0..100 {
                passed += (ramp.per_second * ramp.step_ns as f64 / 1e9) as u64;
                let now = Tick::from_nanos(first + step * ramp.step_ns);
                assert_eq!(rule.limit(now, || passed), 60.0);
            }
            // And is cold after it was idle for as long as its tokens take.
            let cold = secs(10) + Duration::from_secs_f64(ramp.max / ramp.per_second);
            let now = Tick::from_nanos(first + 100 * ramp.step_ns) + cold;
            assert!((20.0..20.1).contains(&rule.limit(now, || passed)));
        }
    }

    fn used(threshold: f64, period: u64, stored: f64) -> WarmUp {
        let rule = per_second(threshold, period, 3.0);
        rule.limit(at(7_000), || 5);
        rule.stored.store(stored.to_bits(), Ordering::Relaxed);
        rule
    }

    #[test]
    fn an_equal_rule_goes_on_where_the_old_one_was() {
        let (old, new) = (used(10.0, 10, 62.5), per_second(10.0, 10, 3.0));
        new.take_over(&old);
        assert_eq!(new.stored(), 62.5);
        // The second has its refill already; the next one takes off its passes.
        new.limit(at(7_500), || panic!("filled"));
        new.limit(at(8_000), || 9);
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
        // A slow rule has longer steps: its last refill was in that of 6 s.
        let slow = per_second(0.5, 10, 3.0);
        slow.take_over(&used(10.0, 10, 100.0));
        slow.limit(at(11_999), || panic!("filled"));
        slow.limit(at(12_000), || 6);
        assert_eq!(slow.stored(), 4.0);
    }

    #[test]
    fn a_rule_that_differs_in_more_is_cold() {
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
        // Nor is there anything to take from one that had no ramp, or no call.
        let new = per_second(10.0, 10, 3.0);
        new.take_over(&per_second(0.1, 10, 3.0));
        new.take_over(&per_second(10.0, 10, 3.0));
        assert_eq!(new.stored(), 100.0);
        assert!((3.3..3.4).contains(&new.limit(at(0), || 0)));
    }

    /// The rule as the sources write it, per second, and step by step.
    struct Oracle {
        q: f64,
        f: f64,
        warning: f64,
        max: f64,
        step: u64,
        stored: f64,
        /// The start of the step of the last refill, in s.
        filled: Option<u64>,
    }

    impl Oracle {
        fn new(q: f64, p: f64, f: f64) -> Self {
            let warning = p * q / (f - 1.0);
            let max = warning + 2.0 * (p * q) / (1.0 + f);
            // Long enough that a cold rule admits one token.
            let mut step = 1;
            while step as f64 * q / f < 1.0 - 1e-9 {
                step += 1;
            }
            Self {
                q,
                f,
                warning,
                max,
                step,
                stored: max,
                filled: None,
            }
        }

        /// The limit; `passes` by the step that they were in.
        fn limit(&mut self, now_ms: u64, passes: impl Fn(u64) -> u64) -> f64 {
            let step = now_ms / 1_000 / self.step;
            match self.filled {
                Some(filled) if step > filled => {
                    let previous = passes(step - 1);
                    let cold = if self.step == 1 {
                        (self.q / self.f).floor()
                    } else {
                        1.0
                    };
                    let idle = self.stored <= self.warning || (previous as f64) < cold;
                    if idle {
                        self.stored += ((step - filled) * self.step) as f64 * self.q;
                    }
                    self.stored = self.stored.min(self.max) - previous as f64;
                    self.stored = self.stored.max(0.0);
                    self.filled = Some(step);
                }
                None => self.filled = Some(step),
                _ => {}
            }
            if self.stored <= self.warning {
                return self.q;
            }
            let slope = (self.f - 1.0) / self.q / (self.max - self.warning);
            1.0 / ((self.stored - self.warning) * slope + 1.0 / self.q)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        #[test]
        fn limits_are_those_of_the_formulas(
            q in prop_oneof![1..200_u32, 1..20_u32].prop_map(|tenths| f64::from(tenths) / 10.0),
            p in 1..60_u32,
            f in prop_oneof![Just(3.0), Just(2.0), Just(5.0), 1.5..10.0],
            from in 0..100_000_u64,
            calls in prop::collection::vec((0..4_000_u64, 0.0..1.5), 1..60),
        ) {
            prop_assume!(2.0 * f64::from(p) * q / (1.0 + f) > 1.001);
            let rule = per_second(q, p.into(), f);
            let mut oracle = Oracle::new(q, p.into(), f);
            prop_assert_eq!(rule.curve.ramp.unwrap().step_ns, oracle.step * 1_000_000_000);
            let mut log: Vec<(u64, u64)> = Vec::new();
            let mut now = from;
            for (gap, demand) in calls {
                now += if gap < 2_000 { gap / 4 } else { gap };
                let total = log.iter().map(|&(_, n)| n).sum();
                let found = rule.limit(at(now), || total);
                let step = oracle.step;
                let passes = |number| {
                    log.iter()
                        .filter(|&&(ms, _)| ms / 1_000 / step == number)
                        .map(|&(_, n)| n)
                        .sum()
                };
                let expected = oracle.limit(now, passes);
                prop_assert_eq!(rule.stored(), oracle.stored);
                prop_assert!(close(found, expected), "{} {}", found, expected);
                log.push((now, (found * demand) as u64));
            }
        }
    }
}
