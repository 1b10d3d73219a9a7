//! Estimates how many permits a process will need soon, from a decaying peak of its consumption.

use std::time::Duration;

use crate::clock::Tick;

/// The time constant with which the peak rises to a higher rate. It is short, because calls wait
/// for the store while the peak is too low.
const UP: Duration = Duration::from_millis(20);
/// The time constant with which the peak falls to a lower rate. It is long, so that a counter is
/// still refilled during a short pause of its calls.
const DOWN: Duration = Duration::from_millis(500);
/// The minimum time over which a rate is measured. Over a shorter time, a single permit would look
/// like a high rate.
const STEP: Duration = Duration::from_millis(1);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// The estimated peak rate, in permits per second.
    peak: f64,
    /// The time of the last update of the peak. Meaningless before the first observation.
    since: Tick,
    /// Permits that calls have taken since `since`.
    used: u32,
    /// Whether `since` is set, which the first observation does.
    has_looked: bool,
}

impl Demand {
    /// Counts `n` permits that calls have taken.
    pub(crate) fn add(&mut self, n: u32) {
        self.used = self.used.saturating_add(n);
    }

    /// Updates the peak with the permits that were taken since the last update.
    pub(crate) fn observe(&mut self, now: Tick) {
        if !self.has_looked {
            (self.since, self.has_looked) = (now, true);
        }
        let time = now - self.since;
        if time < STEP {
            return;
        }
        let rate = f64::from(self.used) / time.as_secs_f64();
        let follow = if rate > self.peak { UP } else { DOWN };
        // The difference between the peak and the new rate decays exponentially.
        let stays = (-time.as_secs_f64() / follow.as_secs_f64()).exp();
        self.peak = rate + (self.peak - rate) * stays;
        self.used = 0;
        self.since = now;
    }

    /// Returns how many permits calls will need in the next `time` at the rate of the peak, rounded
    /// up; 0 if that is less than one.
    pub(crate) fn within(&self, time: Duration) -> u32 {
        let needed = self.peak * time.as_secs_f64();
        if needed < 1.0 {
            0
        } else {
            needed.ceil() as u32
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_follows_up_soon_and_down_slowly() {
        let mut demand = Demand::default();
        let horizon = Duration::from_millis(20);
        let mut now = Tick::ZERO;
        let mut pass = |demand: &mut Demand, used, ms| {
            demand.observe(now);
            demand.add(used);
            now = now + Duration::from_millis(ms);
            demand.observe(now);
            demand.within(horizon)
        };
        assert_eq!(pass(&mut demand, 0, 5), 0);
        // A rate of 1 000 permits per second is 20 permits in 20 ms.
        for _ in 0..40 {
            pass(&mut demand, 5, 5);
        }
        assert_eq!(pass(&mut demand, 5, 5), 20);
        assert!((19..=20).contains(&pass(&mut demand, 0, 20)));
        assert!((7..9).contains(&pass(&mut demand, 0, 480)));
        for _ in 0..10 {
            pass(&mut demand, 0, 500);
        }
        assert_eq!(pass(&mut demand, 0, 500), 0, "less than one is none");
    }
}
