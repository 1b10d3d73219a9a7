//! The number of units that a provider has reported as left for its callers.

use std::time::Duration;

use super::counts::BudgetCounts;
use crate::clock::Tick;

/// The longest time for which such a number is in force, so that a field that was misread, such as
/// seconds since 1970, does not block calls for years.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct ProviderLeft {
    /// The total of charges that must not be exceeded before `until`.
    ceiling: u64,
    /// The reset, after which the number has no effect.
    until: Tick,
}

// === impl ProviderLeft ===

impl ProviderLeft {
    /// Creates the ceiling that allows `left` more units to be charged from now on, until `reset`
    /// has passed.
    pub(super) fn new(counts: &BudgetCounts, now: Tick, left: u32, reset: Duration) -> Self {
        Self {
            ceiling: counts.charged_so_far() + u64::from(left),
            until: now + reset.min(LONGEST),
        }
    }

    /// Returns whether the number is in force.
    pub(super) fn is_in_force(&self, now: Tick) -> bool {
        now < self.until
    }

    /// Combines this number with an `earlier` one. While the earlier one is in force, the smaller
    /// ceiling counts, and a larger number that is reported meanwhile is dropped entirely.
    pub(super) fn after(self, earlier: Option<Self>, now: Tick) -> Self {
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

    /// Returns what is left of the number after the charges since; `None` if it is not in force any
    /// more.
    pub(super) fn left(&self, counts: &BudgetCounts, now: Tick) -> Option<u32> {
        let left = self.ceiling.saturating_sub(counts.charged_so_far());
        self.is_in_force(now)
            .then(|| u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Returns from when on the number does not refuse a call of `wanted` units.
    pub(super) fn room_at(&self, counts: &BudgetCounts, now: Tick, wanted: u32) -> Tick {
        match self.left(counts, now) {
            Some(left) if left < wanted => self.until,
            _ => now,
        }
    }
}
