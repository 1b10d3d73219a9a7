//! The number of units that a provider has reported as left for its callers.

use std::sync::Arc as StdArc;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::counts::BudgetCounts;
use crate::base::sync::{AtomicU64, Ordering};
use crate::clock::Tick;

/// The maximum time for which a number is in force. It ensures that a misread header, such as one
/// with seconds since 1970, does not block calls for years.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The number that was reported last.
#[derive(Debug, Default)]
pub(crate) struct ProviderNumber {
    last: ArcSwapOption<ProviderLeft>,
    /// The latest reset of all numbers so far, in ns. After it, calls need not read `last`.
    until: AtomicU64,
}

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
struct ProviderLeft {
    /// The total of charges that must not be exceeded before `until`.
    ceiling: u64,
    /// The reset, after which the number has no effect.
    until: Tick,
}

// === impl ProviderNumber ===

impl ProviderNumber {
    /// Notes that `left` more units may be charged from now on, until `reset` has passed.
    pub(crate) fn note(&self, counts: &BudgetCounts, now: Tick, left: u32, reset: Duration) {
        let until = ProviderLeft::until(now, reset);
        // `until` is set first, so that no reader misses the number. The release pairs with the
        // acquire in `may_be_in_force`.
        self.until.fetch_max(until.as_nanos(), Ordering::Release);
        self.last.rcu(|earlier| {
            let number = ProviderLeft::new(counts, now, left, reset);
            Some(StdArc::new(number.after(earlier.as_deref().copied(), now)))
        });
    }

    /// Returns whether a number can be in force, without reading it.
    #[inline]
    pub(crate) fn may_be_in_force(&self, now: Tick) -> bool {
        now.as_nanos() < self.until.load(Ordering::Acquire)
    }

    /// Returns the units that are left by the number; `None` if it is not in force.
    #[inline]
    pub(crate) fn left(&self, counts: &BudgetCounts, now: Tick) -> Option<u32> {
        self.in_force(now)?.left(counts, now)
    }

    /// Returns the later of `at` and the time at which the number leaves room for `wanted` units.
    pub(crate) fn after_reset(
        &self,
        counts: &BudgetCounts,
        now: Tick,
        wanted: u32,
        at: Tick,
    ) -> Tick {
        match self.in_force(now) {
            Some(number) => at.max(number.room_at(counts, now, wanted)),
            None => at,
        }
    }

    /// Returns the number, if it is in force.
    #[inline]
    fn in_force(&self, now: Tick) -> Option<ProviderLeft> {
        if self.may_be_in_force(now) {
            self.load(now)
        } else {
            None
        }
    }

    #[cold]
    fn load(&self, now: Tick) -> Option<ProviderLeft> {
        let last = self.last.load().as_deref().copied();
        last.filter(|number| number.is_in_force(now))
    }
}

// === impl ProviderLeft ===

impl ProviderLeft {
    /// Creates the ceiling that allows `left` more units to be charged from now on, until `reset`
    /// has passed.
    fn new(counts: &BudgetCounts, now: Tick, left: u32, reset: Duration) -> Self {
        Self {
            ceiling: counts.charged_so_far() + u64::from(left),
            until: Self::until(now, reset),
        }
    }

    /// Returns the time until which a number that is reported at `now` is in force.
    fn until(now: Tick, reset: Duration) -> Tick {
        now + reset.min(LONGEST)
    }

    /// Returns whether the number is in force.
    fn is_in_force(&self, now: Tick) -> bool {
        now < self.until
    }

    /// Combines this number with the `earlier` one. While the earlier number is in force, the
    /// smaller ceiling counts. If this number has the larger ceiling, it is dropped entirely,
    /// together with its reset.
    fn after(self, earlier: Option<Self>, now: Tick) -> Self {
        match earlier {
            Some(earlier) if earlier.is_in_force(now) => {
                if self.ceiling > earlier.ceiling {
                    return earlier;
                }
                let until = self.until.max(earlier.until);
                Self { until, ..self }
            }
            _ => self,
        }
    }

    /// Returns the rest of the number after the charges since it was reported; `None` if the number
    /// is no longer in force.
    fn left(&self, counts: &BudgetCounts, now: Tick) -> Option<u32> {
        let left = self.ceiling.saturating_sub(counts.charged_so_far());
        self.is_in_force(now)
            .then(|| u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Returns the time from which the number does not refuse a call of `wanted` units.
    fn room_at(&self, counts: &BudgetCounts, now: Tick, wanted: u32) -> Tick {
        match self.left(counts, now) {
            Some(left) if left < wanted => self.until,
            _ => now,
        }
    }
}
