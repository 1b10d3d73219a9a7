//! What a provider has said that it has left for its callers.

use std::time::Duration;

use super::counts::BudgetCounts;
use crate::clock::Tick;

/// The longest time for which such a number counts. A field that was read wrongly, such as seconds
/// since 1970, keeps nobody out for years.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct ToldLeft {
    /// The most that may have been charged in all until then.
    ceiling: u64,
    until: Tick,
}

// === impl ToldLeft ===

impl ToldLeft {
    /// Of what is charged from now on, no more than `left` units until `reset` is over.
    pub(super) fn new(counts: &BudgetCounts, now: Tick, left: u32, reset: Duration) -> Self {
        Self {
            ceiling: counts.charged_so_far() + u64::from(left),
            until: now + reset.min(LONGEST),
        }
    }

    /// Returns whether it counts.
    pub(super) fn is_in_force(&self, now: Tick) -> bool {
        now < self.until
    }

    /// What counts if this is told after `earlier`: no more than either allows while it is in force.
    /// Of a larger number that is told meanwhile nothing remains.
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

    /// What is left of it without what was charged since; `None` where it counts no more.
    pub(super) fn left(&self, counts: &BudgetCounts, now: Tick) -> Option<u32> {
        let left = self.ceiling.saturating_sub(counts.charged_so_far());
        self.is_in_force(now)
            .then(|| u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// When it keeps out no call of `wanted` units.
    pub(super) fn room_at(&self, counts: &BudgetCounts, now: Tick, wanted: u32) -> Tick {
        match self.left(counts, now) {
            Some(left) if left < wanted => self.until,
            _ => now,
        }
    }
}
