//! Limits the rate of refills that a process requests from a store: above a budget, each refill
//! covers a longer time ahead.
//!
//! Draws for waiting calls are never limited. Refills only make such draws rare. So while many
//! counters are busy, each is refilled less often, and by more permits.

use std::time::Duration;

use crate::clock::Tick;

/// The target maximum of refills per second. It bounds the load that one process puts on the store.
/// About 20 busy counters reach it at the shortest horizon.
const BUDGET: f64 = 2_000.0;
/// The interval at which the horizon is adjusted to the rate of refills.
const PERIOD: Duration = Duration::from_millis(100);
/// The maximum horizon as a multiple of the configured horizon. It is never reached in effect, as a
/// counter is refilled for at most a tenth of its bucket.
const MOST_STRETCH: f64 = 10_000.0;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Budget {
    /// The number of refills requested since `since`.
    refills: u32,
    /// The start of the present period.
    since: Tick,
    /// The factor by which the horizon is lengthened; at least 1.
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

    /// Counts refills that are requested at `now`.
    pub(super) fn note(&mut self, refills: usize, now: Tick) {
        let time = now - self.since;
        if time >= PERIOD {
            let rate = f64::from(self.refills) / time.as_secs_f64();
            // With the horizon stretched to `enough`, the rate would have met the budget. Each
            // period goes half of the way there, as a counter adopts a new horizon only at its next
            // refill.
            let enough = self.stretch * rate / BUDGET;
            self.stretch = f64::midpoint(self.stretch, enough).clamp(1.0, MOST_STRETCH);
            self.refills = 0;
            self.since = now;
        }
        self.refills = self.refills.saturating_add(refills as u32);
    }

    /// Returns `horizon`, lengthened as the budget requires.
    pub(super) fn stretched(&self, horizon: Duration) -> Duration {
        horizon.mul_f64(self.stretch)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    const HORIZON: Duration = Duration::from_millis(20);

    /// Returns the horizon after a second in which each of `counters` counters was refilled once
    /// per half horizon.
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
    fn the_horizon_is_stretched_while_refills_exceed_the_budget() {
        let mut budget = Budget::new(Tick::ZERO);
        assert_eq!(after_a_second(&mut budget, 0, 10), HORIZON);
        let long = after_a_second(&mut budget, 1_000, 200).as_millis();
        assert!((195..=205).contains(&long), "ten times as long: {long} ms");
        assert_eq!(after_a_second(&mut budget, 2_000, 10), HORIZON);
    }
}
