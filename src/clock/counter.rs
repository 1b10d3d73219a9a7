//! A clock over the processor's time-stamp counter.

use std::sync::LazyLock;
use std::time::Duration;

use super::{Clock, Tick, aligned, epoch_at};
use crate::base::wall::wall_time;

/// A clock that reads the processor's time-stamp counter through [`quanta`].
///
/// A reading costs about half as much as a reading of [`MonotonicClock`](super::MonotonicClock). If
/// the cores of a machine disagree about the counter, a reading can be late or early by the
/// difference: counts stay exact, but a window can then stand still for that long. Creating the
/// first clock calibrates the counter, which takes up to 200 ms: create it at start-up.
///
/// All values of this type share one start, half a year or more before the first value was created
/// (160 days for a counter of 5 GHz): the clock moves on even if the counter is set back to before
/// that time. The start is a midnight of UTC, as that of [`MonotonicClock`](super::MonotonicClock).
///
/// # Examples
///
/// ```
/// use tower_sentinel::clock::{Clock, QuantaClock};
///
/// let clock = QuantaClock::new();
/// let first = clock.now();
/// assert!(clock.now() >= first);
/// ```
#[derive(Clone, Debug)]
pub struct QuantaClock {
    clock: quanta::Clock,
    /// The count of the processor's counter at which the clock starts.
    start: u64,
    /// The duration of 2³² counts, in ns.
    scale: u64,
    /// The time that is added to a reading of the counter so that it agrees with the time of day,
    /// in ns.
    behind: u64,
}

/// quanta converts this power of two of counts to nanoseconds, once. The result is the factor for
/// all readings, which then need only a multiplication and a shift by a constant. The error is
/// below one nanosecond per second.
const SCALE_BITS: u32 = 32;

/// The counts that the first clock reads when it is created, which is how far the counter may be
/// set back: at 5 GHz, 160 days.
const FIRST: u64 = 1 << 56;

/// The first clock, which all others copy: objects that several engines share, such as a sampler,
/// need clocks with the same start.
static QUANTA_START: LazyLock<QuantaClock> = LazyLock::new(|| {
    let clock = quanta::Clock::new();
    let start = clock.raw().wrapping_sub(FIRST);
    let scale = clock.delta_as_nanos(0, 1 << SCALE_BITS);
    let mut first = QuantaClock {
        clock,
        start,
        scale,
        behind: 0,
    };
    let now = first.now();
    first.behind = aligned(now, wall_time()).nanos_since(now);
    first
});

impl QuantaClock {
    /// Creates the clock. Does not allocate.
    #[must_use]
    pub fn new() -> Self {
        QUANTA_START.clone()
    }

    /// Returns the reading at `count` of the processor's counter.
    #[inline]
    fn at(&self, count: u64) -> Tick {
        Tick(
            self.nanos(count.wrapping_sub(self.start))
                .wrapping_add(self.behind),
        )
    }

    /// Returns how many nanoseconds `counts` take.
    #[inline]
    fn nanos(&self, counts: u64) -> u64 {
        // The product of two 64-bit factors fits into 128 bits. After the shift it fits into 64
        // bits as long as the time fits into a tick.
        ((u128::from(counts) * u128::from(self.scale)) >> SCALE_BITS) as u64
    }
}

impl Default for QuantaClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for QuantaClock {
    fn now(&self) -> Tick {
        self.at(self.clock.raw())
    }

    fn epoch(&self) -> Duration {
        epoch_at(self.now(), wall_time())
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::clock::{CALENDAR, nanos};

    #[test]
    fn counter_clocks_share_their_start() {
        let one = QuantaClock::new();
        let begin = one.now();
        while one.now() < begin + Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        let first = one.now();
        // Cores may disagree about the counter, but not by so much.
        assert!(QuantaClock::new().now() + Duration::from_millis(1) >= first);
    }

    #[test]
    fn the_counter_clock_agrees_with_the_wall_time_of_its_start() {
        let clock = QuantaClock::new();
        let first = clock.clock.delta_as_nanos(0, FIRST) + clock.behind;
        let wall = wall_time().duration_since(std::time::UNIX_EPOCH).unwrap();
        let off = nanos(wall) % CALENDAR + CALENDAR - first % CALENDAR;
        // The bound is the time that the program takes until now, and adjustments of the clock.
        assert!(off % CALENDAR < 86_400 * 1_000_000_000, "{off}");
    }

    #[test]
    fn behind_its_start_a_counter_clock_moves_on() {
        let clock = QuantaClock::new();
        let first = clock.start.wrapping_add(FIRST);
        let at = |behind| clock.at(first.wrapping_sub(behind));
        for behind in [1 << 40, 1 << 55] {
            assert!(at(behind) < at(behind - (1 << 20)));
        }
        assert!(at(1) <= at(0));
    }

    #[test]
    fn counts_are_scaled_as_quanta_scales_them() {
        let clock = QuantaClock::new();
        // Up to some years, at three counts a nanosecond.
        for shift in 0..58 {
            let counts = (1 << shift) + (1 << shift >> 3) + 1;
            let exact = clock.clock.delta_as_nanos(0, counts);
            let off = clock.nanos(counts).abs_diff(exact);
            assert!(
                off <= 1 + exact / 1_000_000_000,
                "{counts}: {off} of {exact}"
            );
        }
    }

    #[test]
    fn the_counter_clock_does_not_go_back_on_one_thread() {
        let clock = QuantaClock::new();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
