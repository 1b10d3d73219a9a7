//! The limit of a rule that warms up, as a function of its stored tokens: the formulas of
//! [`warm_up`](super::warm_up), without state.

use std::time::Duration;

use crate::clock::Tick;

/// The bound of stored tokens, 2⁵³: above it, an `f64` cannot distinguish whole tokens.
const MOST_TOKENS: f64 = 9_007_199_254_740_992.0;

/// The limit as a function of the stored tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Curve {
    pub(super) threshold: f64,
    pub(super) interval: Duration,
    pub(super) period: Duration,
    pub(super) cold_factor: f64,
    /// `None` if the limit is always the threshold.
    pub(super) ramp: Option<Ramp>,
}

/// The constants of the formulas of [`warm_up`](super::warm_up).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ramp {
    /// The threshold, converted to tokens per second.
    pub(super) per_second: f64,
    /// The number of stored tokens up to which the rule is warm.
    pub(super) warning: f64,
    /// The maximum number of stored tokens.
    pub(super) max: f64,
    /// The length of a step, in ns.
    pub(super) step_ns: u64,
    /// The tokens that a cold rule admits in one step, at least 1. A step in which fewer tokens
    /// pass counts as idle.
    pub(super) cold: u64,
}

// === impl Ramp ===

impl Ramp {
    /// Creates the constants; `None` if the limit is always the threshold.
    pub(super) fn new(
        threshold: f64,
        interval: Duration,
        period: Duration,
        cold_factor: f64,
    ) -> Option<Self> {
        if !(threshold > 0.0 && cold_factor > 1.0) {
            return None;
        }
        let interval = interval.as_secs_f64();
        let per_second = threshold / interval;
        let tokens = period.as_secs_f64() * per_second;
        let warning = tokens / (cold_factor - 1.0);
        let max = warning + 2.0 * tokens / (1.0 + cold_factor);
        // The difference is NaN if both are infinite.
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

    /// Returns the start of the step in which `now` lies, in ns.
    pub(super) const fn begin(&self, now: Tick) -> u64 {
        now.as_nanos() - now.as_nanos() % self.step_ns
    }

    /// Returns the tokens that count as passed in the steps that one refill covers. The current
    /// step has `begun`, and the refill was `due` then or before. `since_last` tokens have passed
    /// since the last refill. If no call came in the step before the current one, no tokens count,
    /// unless a queue still had turns in that step.
    pub(super) fn load(
        &self,
        begun: u64,
        due: u64,
        last_turn: Option<Tick>,
        since_last: u64,
    ) -> u64 {
        let was_busy = || {
            let before = begun.saturating_sub(self.step_ns);
            last_turn.is_some_and(|turn| turn.as_nanos() >= before)
        };
        if begun == due || was_busy() {
            since_last
        } else {
            0
        }
    }

    /// Returns the stored tokens after a refill, if `passed` tokens passed in the steps that it
    /// covers.
    pub(super) fn refilled(&self, stored: f64, begun: u64, due: u64, passed: u64) -> f64 {
        let steps = begun.saturating_sub(due) / self.step_ns + 1;
        let is_idle = stored <= self.warning || passed < self.cold.saturating_mul(steps);
        let filled = if is_idle {
            let seconds = steps as f64 * Duration::from_nanos(self.step_ns).as_secs_f64();
            (stored + seconds * self.per_second).min(self.max)
        } else {
            stored
        };
        (filled - passed as f64).max(0.0)
    }
}

// === impl Curve ===

impl Curve {
    /// Returns the limit with `stored` tokens, between `threshold / cold_factor` and `threshold`.
    pub(super) fn at(&self, stored: f64) -> f64 {
        let Some(ramp) = &self.ramp else {
            return self.threshold;
        };
        if stored <= ramp.warning {
            return self.threshold;
        }
        // The value is 0 at the warning line and exactly 1 at the maximum.
        let coldness = (stored - ramp.warning) / (ramp.max - ramp.warning);
        let limit = self.threshold / (1.0 + (self.cold_factor - 1.0) * coldness);
        // The limit is raised by a few units in the last place, because rounding must not leave it
        // just below a whole number.
        (limit * (1.0 + 4.0 * f64::EPSILON)).min(self.threshold)
    }

    /// Returns the factor that converts tokens of `old` to tokens of this curve; `None` if the two
    /// curves differ in more than the threshold.
    pub(super) fn scale(&self, old: &Self) -> Option<f64> {
        let with_own_threshold = Self {
            threshold: self.threshold,
            ramp: self.ramp,
            ..*old
        };
        (with_own_threshold == *self && self.ramp.is_some() && old.ramp.is_some())
            .then(|| self.threshold / old.threshold)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// Returns a ramp with a warning line at 50 tokens and a maximum of 100. When cold, it admits
    /// three tokens in a second.
    fn ramp() -> Ramp {
        let second = Duration::from_secs(1);
        Ramp::new(10.0, second, 10 * second, 3.0).unwrap()
    }

    const fn s(seconds: u64) -> u64 {
        seconds * 1_000_000_000
    }

    #[test]
    fn a_queue_with_a_last_turn_at_the_start_of_the_previous_step_is_busy() {
        let load = |turn| ramp().load(s(10), s(8), turn, 7);
        assert_eq!(load(Some(Tick::from_nanos(s(9)))), 7);
        assert_eq!(load(Some(Tick::from_nanos(s(9) - 1))), 0);
        assert_eq!(load(None), 0);
    }

    #[test]
    fn tokens_come_back_at_the_warning_line_under_any_load() {
        let refilled = |stored| ramp().refilled(stored, s(8), s(8), 5);
        assert_eq!(refilled(49.0), 54.0);
        assert_eq!(refilled(50.0), 55.0);
        assert_eq!(refilled(51.0), 46.0);
    }

    #[test]
    fn a_cold_rule_admits_whole_tokens_in_a_step() {
        // The threshold, its interval in ms, the length of a step in seconds, and the tokens
        // admitted in a step.
        for (threshold, interval_ms, seconds, cold) in [
            (10.0, 1_000, 1, 3),
            (10.0, 300, 1, 9),
            (10.0, 1_500, 2, 3),
            (1.0, 1_000, 3, 1),
        ] {
            let interval = Duration::from_millis(interval_ms);
            let ramp = Ramp::new(threshold, interval, Duration::from_secs(10), 3.0).unwrap();
            assert_eq!((ramp.step_ns, ramp.cold), (s(seconds), cold), "{ramp:?}");
        }
    }

    #[test]
    fn the_load_of_three_steps_is_compared_with_three_steps_of_a_cold_rule() {
        let refilled = |passed| ramp().refilled(80.0, s(10), s(8), passed);
        assert_eq!(refilled(8), 92.0);
        assert_eq!(refilled(9), 71.0);
    }
}
