//! Time as the engine sees it: monotonic nanoseconds, from a clock that can be replaced.
//!
//! A [`Tick`] is a reading; a [`Clock`] gives readings. The engine reads the clock once
//! when a call starts and once when it ends, and passes the reading down; nothing below
//! it reads the time again. A layer reads it when a response arrives, and once more at the
//! end of a body that comes in pieces or that a rule counts until it is gone.
//!
//! Wall time is never used, because it jumps. If a clock nevertheless steps back or
//! jumps, that does no harm to the counts: a window never goes back, a late reading
//! counts in the newest bucket, and every subtraction saturates.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tower_sentinel::clock::{ManualClock, Tick};
//! use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};
//!
//! let clock = ManualClock::starting_at(Tick::from_millis(10_000));
//! let sentinel = Sentinel::builder()
//!     .rules(FlowRule::per_second("job", 1))
//!     .clock(clock.clone())
//!     .build();
//! let passes = || matches!(sentinel.try_enter(Call::new("job")), Verdict::Pass(_));
//! assert!(passes());
//! // A clock that steps back opens no new window.
//! clock.set(Tick::from_millis(8_000));
//! assert!(!passes());
//! clock.set(Tick::from_millis(10_000));
//! assert!(!passes());
//! clock.advance(Duration::from_secs(1));
//! assert!(passes());
//! ```

mod calendar;
#[cfg(feature = "quanta")]
mod counter;
mod manual;
mod tick;
pub(crate) mod timekeeper;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use crate::base::wall::wall_time;

pub use calendar::CalendarPeriod;
use calendar::epoch_at;
pub(crate) use calendar::{MOST_OFFSET, Periods};
#[cfg(feature = "quanta")]
pub use counter::QuantaClock;
pub use manual::ManualClock;
pub use tick::Tick;

/// The shortest interval of a limit, and the shortest bucket.
pub(crate) const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
/// The longest interval of a limit: a leap year.
pub(crate) const LONGEST_INTERVAL: Duration = Duration::from_secs(366 * 86_400);

/// How far the reading of one thread can be behind the newest reading of all threads: a thread can
/// be suspended between reading the clock and using the reading. A reading further behind means
/// that the clock has stepped back. One second is long for a thread that is ready to run, and short
/// compared to the steps of a clock that is set.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
pub(crate) const SLACK_NS: u64 = SLACK.as_nanos() as u64;

/// `duration` in nanoseconds, saturating at 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A source of [`Tick`]s.
///
/// An implementation must be cheap, must not block and should not panic: a panic is caught, and
/// time stands still at the last reading until the clock answers again. It should be monotonic
/// across all threads; where it steps back, the engine's time stands still for up to a second and
/// then continues. The [guarantees](crate::guide::engine_in_detail#clocks) list the other effects
/// of a bad clock.
///
/// A call that [waits](crate::Sentinel::enter) sleeps on tokio's timer, by tokio's clock. If
/// tokio's clock runs ahead of this clock, the call sleeps again, until its turn has come by this
/// clock. But if this clock has run at less than half the speed of tokio's, or has stepped back,
/// the call does not wait for it, and starts before its turn.
///
/// Do not use wall time. Apart from its steps, there is another reason: on a machine that learns
/// the date only after the program has started, it jumps ahead by decades. Windows cope with that.
/// But the time of a table of values stands still 18 years after the table was made: a refilled
/// quota that a value of a [`KeyedRule`](crate::KeyedRule) has spent does not come back, and
/// a queue accepts no more calls.
///
/// # Examples
///
/// ```
/// use tower_sentinel::clock::{MonotonicClock, Tick};
/// use tower_sentinel::{Clock, Sentinel};
///
/// /// A clock that counts whole milliseconds only.
/// #[derive(Debug)]
/// struct Coarse(MonotonicClock);
///
/// impl Clock for Coarse {
///     fn now(&self) -> Tick {
///         Tick::from_millis(self.0.now().as_nanos() / 1_000_000)
///     }
/// }
///
/// let clock = Coarse(MonotonicClock::new());
/// assert_eq!(clock.now().as_nanos() % 1_000_000, 0);
/// let sentinel = Sentinel::builder().clock(clock).build();
/// # let _ = sentinel;
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the current reading.
    fn now(&self) -> Tick;

    /// Returns how long after the beginning of 1970 by UTC the reading [`Tick::ZERO`] is.
    ///
    /// Rules that count [by the calendar](crate::KeyedRule::per_calendar_month) need it to find the
    /// day and month of a reading; nothing else does. An engine calls it when it loads a rule by
    /// the calendar, and once for each table of values. A clock that wraps another clock should
    /// return the other clock's value. Default: zero, so that the readings themselves are times
    /// since 1970. For a [`TokioClock`], the beginning of 1970 is the time at which it was created.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::clock::{Clock, MonotonicClock};
    /// use tower_sentinel::ManualClock;
    ///
    /// assert_eq!(ManualClock::new().epoch(), Duration::ZERO);
    /// let clock = MonotonicClock::new();
    /// let day = clock.epoch() + Duration::from_nanos(clock.now().as_nanos());
    /// assert!(day > Duration::from_secs(365 * 86_400), "the machine knows the year");
    /// ```
    fn epoch(&self) -> Duration {
        Duration::ZERO
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Tick {
        (**self).now()
    }

    fn epoch(&self) -> Duration {
        (**self).epoch()
    }
}

/// The operating system's monotonic clock ([`std::time::Instant`]). This is the default.
///
/// All values of this type share one start, a leap year or more before the first value was created
/// or read. So the clock moves on even if the system's clock is set back to before that time, as
/// can happen to a virtual machine that is restored elsewhere.
///
/// The start is a midnight of UTC, by the wall time of that first reading. So a window of a day
/// begins at midnight, and a window of an hour at the full hour: see [windows and the
/// calendar](crate::stat#windows-and-the-calendar). The wall time is read only once: later
/// corrections, and sleep of the machine, move the windows against it.
///
/// # Examples
///
/// ```
/// use tower_sentinel::clock::MonotonicClock;
/// use tower_sentinel::Clock;
///
/// let first = MonotonicClock::new().now();
/// assert!(MonotonicClock::new().now() >= first);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl MonotonicClock {
    /// Creates the clock. Does not allocate.
    #[must_use]
    pub fn new() -> Self {
        LazyLock::force(&MONOTONIC_START);
        Self
    }
}

/// How far a clock can go back behind its first reading.
const LEAST_FIRST: u64 = LONGEST_INTERVAL.as_nanos() as u64;
/// Clocks agree with the wall time modulo this: a multiple of all buckets of 1 to 7, 10, 12, 14,
/// 15, 20, 21, 28 or 30 days, and of their parts. They do not start with the whole wall time, since
/// ticks of 54 years would leave less room for numbers that are packed into words.
const CALENDAR: u64 = 420 * 86_400 * 1_000_000_000;

/// The first reading of the system's clock, and the tick at that time.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
static MONOTONIC_START: LazyLock<(std::time::Instant, Tick)> = LazyLock::new(|| {
    let now = std::time::Instant::now();
    (now, aligned(Tick(LEAST_FIRST), wall_time()))
});

impl Clock for MonotonicClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Tick {
        let (first, tick) = *MONOTONIC_START;
        reading(first, tick, std::time::Instant::now())
    }

    fn epoch(&self) -> Duration {
        epoch_at(self.now(), wall_time())
    }
}

/// Returns the reading at `now` of a clock whose reading was `tick` at `first`.
fn reading(first: std::time::Instant, tick: Tick, now: std::time::Instant) -> Tick {
    match now.checked_duration_since(first) {
        Some(since) => tick + since,
        None => Tick(tick.nanos_since(Tick(nanos(first.saturating_duration_since(now))))),
    }
}

/// Returns the first tick from `least` on that agrees with `wall`, the present time of the
/// operating system. A time before 1970 means that the machine does not know the date; it is taken
/// for 1970.
pub(crate) fn aligned(least: Tick, wall: SystemTime) -> Tick {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH);
    let wall = nanos(since.unwrap_or_default()) % CALENDAR;
    let ahead = (wall + CALENDAR - least.0 % CALENDAR) % CALENDAR;
    least + Duration::from_nanos(ahead)
}

/// tokio's clock ([`tokio::time::Instant`]). A test can pause and advance it together with
/// the timers that waiting calls sleep on.
///
/// It starts when it is created, and stands still while tokio's clock is behind that time. Engines
/// that share a [`Sampler`](crate::system::Sampler) must use clones of one clock. A test pauses
/// only the time of its runtime. On a thread outside any runtime this clock continues in real time,
/// so no call should start or end there.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::clock::{Clock, TokioClock};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let clock = TokioClock::new();
/// let before = clock.now();
/// tokio::time::advance(Duration::from_secs(3)).await;
/// assert_eq!(clock.now() - before, Duration::from_secs(3));
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokioClock(tokio::time::Instant);

impl TokioClock {
    /// Creates a clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Tick {
        Tick(nanos(
            tokio::time::Instant::now().saturating_duration_since(self.0),
        ))
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn tick_arithmetic_saturates() {
        let end = Tick::from_nanos(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Tick::ZERO - end, Duration::ZERO);
        assert_eq!(Tick::from_millis(u64::MAX), end);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn behind_its_start_a_monotonic_clock_moves_on() {
        let now = std::time::Instant::now();
        let tick = Tick(LEAST_FIRST);
        for seconds in [0, 1, 3_600] {
            let first = now + Duration::from_secs(seconds);
            let at = |ms| reading(first, tick, now + Duration::from_millis(ms));
            let [here, later] = [0, 1].map(at);
            assert_eq!(tick - here, Duration::from_secs(seconds));
            assert_eq!(later - here, Duration::from_millis(1));
        }
        // It stands still only where nothing is left of its range.
        let first = now + LONGEST_INTERVAL + Duration::from_secs(1);
        assert_eq!(reading(first, tick, now), Tick::ZERO);
    }

    #[test]
    fn a_clock_begins_at_the_time_of_day_and_leaves_room_to_go_back() {
        // 2026-03-01 13:37:05.25 UTC, and the same time in a year whose reading is smaller.
        for seconds in [1_772_372_225, 1_803_908_225, 0, 59] {
            let since = Duration::new(seconds, 250_000_000);
            for least in [Tick(LEAST_FIRST), Tick(1 << 56), Tick(1)] {
                let tick = aligned(least, SystemTime::UNIX_EPOCH + since);
                assert!(tick >= least && tick - least < Duration::from_nanos(CALENDAR));
                for days in [1, 2, 3, 4, 5, 6, 7, 10, 12, 14, 15, 20, 21, 28, 30] {
                    let bucket = u128::from(86_400_u64 * days) * 1_000_000_000;
                    let [clock, wall] = [u128::from(tick.0), since.as_nanos()];
                    assert_eq!(clock % bucket, wall % bucket, "{seconds} s, {days} days");
                }
            }
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(aligned(Tick(CALENDAR), before), Tick(CALENDAR));
    }

    #[test]
    fn the_monotonic_clock_agrees_with_the_wall_time_of_its_start() {
        let (_, first) = *MONOTONIC_START;
        assert!(first >= Tick(LEAST_FIRST));
        // The bound is the time that the program takes until now, and adjustments of the clock.
        let wall = wall_time().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let off = nanos(wall) % CALENDAR + CALENDAR - first.0 % CALENDAR;
        assert!(off % CALENDAR < 86_400 * 1_000_000_000, "{off}");
    }

    #[test]
    fn monotonic_clocks_share_their_start_and_never_go_back() {
        let (one, two) = (MonotonicClock::new(), MonotonicClock::new());
        let first = one.now();
        let second = two.now();
        assert!(second >= first);
    }
}
