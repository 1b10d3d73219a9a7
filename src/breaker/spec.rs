//! The settings of a rule, in the form that its breaker uses.

use std::sync::Arc;
use std::time::Duration;

use super::counts::Sum;
use super::fraction::Fraction;
use super::packed::StateWord;

/// The maximum number of concurrent probes: six bits in the word of a breaker.
pub(crate) const MAX_PROBES: u32 = 63;

/// The maximum number of buckets of one window: few, because the end of each call reads all of
/// them.
pub(crate) const MAX_BUCKETS: u32 = 64;

/// The largest number of calls that a rule can set. A bucket can count about four times as many.
pub(crate) const MAX_COUNT: u32 = 1_000_000;

/// The settings of one breaker. Its rule has checked the ranges of all fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BreakerSpec {
    /// The criterion for bad calls.
    pub(crate) strategy: Strategy,
    /// The limit of bad calls.
    pub(crate) limit: BadLimit,
    /// Whether the breaker opens only above the limit, and not when the limit is reached.
    pub(crate) exceeds: bool,
    /// The number of counted calls below which the breaker does not open.
    pub(crate) min_calls: u32,
    /// The open time, until the first call may probe.
    pub(crate) open_for: Duration,
    /// The longest open time, to which `open_for` grows while probes fail; `None` if it does not
    /// grow.
    pub(crate) open_up_to: Option<Duration>,
    /// The number of last calls that count, regardless of their age. `None` if the calls of an
    /// interval count, or the bad calls in a row.
    pub(crate) last_calls: Option<u32>,
    /// The length of the window. Used, like `buckets`, only if the calls of an interval count.
    pub(crate) interval: Duration,
    /// The number of buckets of the interval. It divides the interval.
    pub(crate) buckets: u32,
    /// The number of good probes that close the breaker. At most as many probes hold a place.
    pub(crate) probes: u32,
    /// Whether a cancelled call that was already too slow counts as bad.
    pub(crate) cancelled_as_slow: bool,
    /// The name that the user gave to the rule.
    pub(crate) id: Option<Arc<str>>,
}

/// The criterion for bad calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Calls that take longer than this are bad.
    Slow(Duration),
    /// Calls that fail are bad.
    Error,
    /// No end of a call is bad: the breaker opens when the callee asks for it.
    Pushback,
}

/// The limit of bad calls at which a breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadLimit {
    /// A fraction of all calls.
    Ratio(Fraction),
    /// A number of bad calls.
    Count(u32),
    /// A number of bad calls without a good call in between, regardless of when they ended.
    Consecutive(u32),
}

/// The calls that a breaker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// The calls of an interval, in this number of buckets.
    Window(Duration, u32),
    /// The last calls, up to this number.
    LastCalls(u32),
    /// The bad calls since the last good call.
    Row,
    /// No calls: the callee decides.
    Nothing,
}

// === impl BreakerSpec ===

impl BreakerSpec {
    /// Returns whether a call that ended after `rt` is bad.
    pub(super) fn is_bad(&self, rt: Duration, is_error: bool) -> bool {
        match self.strategy {
            Strategy::Slow(max) => rt > max,
            Strategy::Error => is_error,
            Strategy::Pushback => false,
        }
    }

    /// Returns whether a call that was cancelled after `elapsed` is bad. The call is bad if it was
    /// already too slow, because any later end would have been too slow as well.
    pub(super) fn is_bad_cancelled(&self, elapsed: Duration) -> bool {
        self.cancelled_as_slow && self.is_bad(elapsed, false)
    }

    /// Returns whether a breaker that counted `sum` opens.
    pub(super) fn is_met(&self, sum: Sum) -> bool {
        let Sum { total, bad } = sum;
        total >= u64::from(self.min_calls)
            && match (self.limit, self.exceeds) {
                (BadLimit::Ratio(limit), false) => limit.is_reached(bad, total),
                (BadLimit::Ratio(limit), true) => limit.is_exceeded(bad, total),
                (BadLimit::Count(limit) | BadLimit::Consecutive(limit), false) => {
                    bad >= u64::from(limit)
                }
                (BadLimit::Count(limit) | BadLimit::Consecutive(limit), true) => {
                    bad > u64::from(limit)
                }
            }
    }

    /// The value that is compared with the limit, for reports.
    pub(super) fn value(&self, sum: Sum) -> f64 {
        match self.limit {
            BadLimit::Ratio(_) => sum.bad as f64 / sum.total as f64,
            BadLimit::Count(_) | BadLimit::Consecutive(_) => sum.bad as f64,
        }
    }

    /// Returns the time for which a breaker stays open in the state `word`. It doubles with each
    /// failed probe in a row.
    pub(super) fn open_time(&self, word: StateWord) -> Duration {
        let grown = self.open_for.saturating_mul(1 << word.failed());
        grown.min(self.longest_open())
    }

    /// The longest time that a breaker is open before it can be probed.
    pub(super) fn longest_open(&self) -> Duration {
        self.open_up_to.unwrap_or(self.open_for)
    }

    /// Returns the time for which a probe that does not end holds its place. After that, another
    /// call can probe.
    pub(super) fn lease(&self) -> Duration {
        match self.strategy {
            Strategy::Slow(max) => self.open_for.max(max),
            Strategy::Error | Strategy::Pushback => self.open_for,
        }
    }

    /// Returns whether the breaker opens when, and for as long as, the callee asks for it.
    pub(super) fn is_pushback(&self) -> bool {
        self.strategy == Strategy::Pushback
    }

    /// Returns whether this breaker counts the same calls in the same way as `other`.
    pub(super) fn counts_like(&self, other: &Self) -> bool {
        (self.strategy, self.span()) == (other.strategy, other.span())
    }

    /// Returns which calls the breaker counts.
    pub(super) fn span(&self) -> Span {
        if self.is_pushback() {
            return Span::Nothing;
        }
        match (self.limit, self.last_calls) {
            (BadLimit::Consecutive(_), _) => Span::Row,
            (_, Some(calls)) => Span::LastCalls(calls),
            (_, None) => Span::Window(self.interval, self.buckets),
        }
    }
}

// === impl BadLimit ===

impl BadLimit {
    /// A limit on the fraction of bad calls, between 0 and 1.
    pub(crate) fn ratio(ratio: f64) -> Self {
        Self::Ratio(Fraction::nearest(ratio))
    }
}
