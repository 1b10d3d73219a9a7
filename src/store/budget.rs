//! How many refills a process asks a store for: above a budget, it draws for longer ahead.
//!
//! Calls that wait are always asked for. Refills are only there to make that rare, so where
//! many counters are busy, each is refilled less often and by more.

use std::time::Duration;

use crate::clock::Tick;

/// Most refills a second. At the shortest horizon this is what about 20 busy counters need.
const BUDGET: f64 = 2_000.0;
/// How often the horizon is looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// More than any counter can be drawn ahead for: that is a tenth of its bucket.
const MOST_STRETCH: f64 = 10_000.0;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Budget {
    refills: u32,
    since: Tick,
    /// By how much the horizon is longer; at least 1.
    stretch: f64,
}

impl Budget {
    pub(super) const fn new(now: Tick) -> Self {
        Self {
            refills: 0,
            since: now,
            stretch: 1.0,
        }
    }

    /// Counts refills that are asked for at `now`.
    pub(super) fn note(&mut self, refills: usize, now: Tick) {
        let time = now - self.since;
        if time >= PERIOD {
            let rate = f64::from(self.refills) / time.as_secs_f64();
            // So much longer, it would have been the budget. Half of the way there, as counters
            // follow only with their next refill.
            let enough = self.stretch * rate / BUDGET;
            self.stretch = f64::midpoint(self.stretch, enough).clamp(1.0, MOST_STRETCH);
            self.refills = 0;
            self.since = now;
        }
        self.refills = self.refills.saturating_add(refills as u32);
    }

    /// For how long counters are refilled that are to be refilled for `horizon`.
    pub(super) fn stretched(&self, horizon: Duration) -> Duration {
        horizon.mul_f64(self.stretch)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    const HORIZON: Duration = Duration::from_millis(20);

    /// The horizon after a second in which `counters` have each been refilled once in half a
    /// horizon.
    fn after_a_second(budget: &mut Budget, from: u64, counters: usize) -> Duration {
        let mut owed = 0.0;
        for ms in from..from + 1_000 {
            owed += counters as f64 / (budget.stretched(HORIZON).as_secs_f64() * 500.0);
            budget.note(owed as usize, Tick::from_millis(ms));
            owed -= owed.floor();
        }
        budget.stretched(HORIZON)
    }

    #[test]
    fn the_horizon_is_longer_as_long_as_the_budget_is_spent() {
        let mut budget = Budget::new(Tick::ZERO);
        assert_eq!(after_a_second(&mut budget, 0, 10), HORIZON);
        let long = after_a_second(&mut budget, 1_000, 200).as_millis();
        assert!((195..=205).contains(&long), "ten times as long: {long} ms");
        assert_eq!(after_a_second(&mut budget, 2_000, 10), HORIZON);
    }
}
