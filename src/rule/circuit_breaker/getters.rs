//! Reading the settings of a circuit breaker.

use std::time::Duration;

use super::{CircuitBreakerRule, Strategy, TripThreshold};

impl CircuitBreakerRule {
    /// Returns the response time above which calls count as [slow](Self::slow_ratio); `None` if the
    /// breaker does not count slow calls.
    #[must_use]
    pub const fn get_max_rt(&self) -> Option<Duration> {
        match self.strategy {
            Strategy::Slow(max_rt) => Some(max_rt),
            Strategy::Error | Strategy::Pushback => None,
        }
    }

    /// Returns the fraction of [slow calls](Self::slow_ratio) at which the breaker opens; `None` if
    /// it has another condition.
    #[must_use]
    pub const fn get_slow_ratio(&self) -> Option<f64> {
        match (self.strategy, self.threshold) {
            (Strategy::Slow(_), TripThreshold::Ratio(ratio)) => Some(ratio),
            _ => None,
        }
    }

    /// Returns the fraction of [failed calls](Self::error_ratio) at which the breaker opens; `None`
    /// if it has another condition.
    #[must_use]
    pub const fn get_error_ratio(&self) -> Option<f64> {
        match (self.strategy, self.threshold) {
            (Strategy::Error, TripThreshold::Ratio(ratio)) => Some(ratio),
            _ => None,
        }
    }

    /// Returns the number of [failed calls](Self::error_count) at which the breaker opens; `None`
    /// if it has another condition.
    #[must_use]
    pub const fn get_error_count(&self) -> Option<u32> {
        match self.threshold {
            TripThreshold::Count(count) => Some(count.get()),
            _ => None,
        }
    }

    /// Returns the number of failures [in a row](Self::consecutive_errors) at which the breaker
    /// opens; `None` if it has another condition.
    #[must_use]
    pub const fn get_consecutive_errors(&self) -> Option<u32> {
        match self.threshold {
            TripThreshold::Consecutive(count) => Some(count.get()),
            _ => None,
        }
    }

    /// Returns whether the breaker opens at a [pushback](Self::pushback).
    #[must_use]
    pub const fn is_pushback(&self) -> bool {
        matches!(self.strategy, Strategy::Pushback)
    }

    /// Returns how long the breaker [stays open](Self::open_for). A breaker that opens at a
    /// [pushback](Self::pushback) ignores this.
    #[must_use]
    pub const fn get_open_for(&self) -> Duration {
        self.open_for
    }

    /// Returns the [longest time](Self::open_up_to) that the breaker stays open. `None`: it is open
    /// for the same time whenever it opens, or for up to 60 s after a [pushback](Self::pushback).
    #[must_use]
    pub const fn get_open_up_to(&self) -> Option<Duration> {
        self.open_up_to
    }

    /// Returns the minimum number of [ended calls](Self::min_calls) before the breaker can open;
    /// `None` if it was not set.
    #[must_use]
    pub const fn get_min_calls(&self) -> Option<u32> {
        match self.min_calls {
            Some(number) => Some(number.get()),
            None => None,
        }
    }

    /// Returns the [interval](Self::interval) in which calls are counted. A breaker ignores it if
    /// it counts the [last calls](Self::last_calls) or failures [in a
    /// row](Self::consecutive_errors), or opens at a [pushback](Self::pushback).
    #[must_use]
    pub const fn get_interval(&self) -> Duration {
        self.interval
    }

    /// Returns the number of [last calls](Self::last_calls) that are counted; `None` if the calls
    /// of an interval are counted.
    #[must_use]
    pub const fn get_last_calls(&self) -> Option<u32> {
        match self.last_calls {
            Some(number) => Some(number.get()),
            None => None,
        }
    }

    /// Returns the number of [buckets](Self::buckets) in the interval, if that was set.
    #[must_use]
    pub const fn get_buckets(&self) -> Option<u32> {
        match self.buckets {
            Some(number) => Some(number.get()),
            None => None,
        }
    }

    /// Returns how many [probes](Self::probes) can run at once.
    #[must_use]
    pub const fn get_probes(&self) -> u32 {
        self.probes.get()
    }

    /// Returns whether the threshold must be [exceeded](Self::exceeds) instead of reached.
    #[must_use]
    pub const fn get_exceeds(&self) -> bool {
        self.exceeds
    }

    /// Returns whether cancelled calls [may count as slow](Self::count_cancelled_as_slow).
    #[must_use]
    pub const fn get_count_cancelled_as_slow(&self) -> bool {
        self.cancelled_as_slow
    }

    /// Returns the [name](Self::id) of the rule; `None` if it is named after its place in the set.
    #[must_use]
    pub fn get_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
