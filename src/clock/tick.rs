//! `Tick`: a reading of a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use super::nanos;

/// A reading of a [`Clock`](super::Clock): nanoseconds since that clock's start.
///
/// Ticks of different clocks must not be mixed. Arithmetic saturates at both
/// ends: the range is 584 years.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::clock::Tick;
///
/// let start = Tick::from_millis(1_000);
/// let later = start + Duration::from_millis(500);
/// assert_eq!(later - start, Duration::from_millis(500));
/// // Time never runs backwards: the difference saturates at zero.
/// assert_eq!(start - later, Duration::ZERO);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub(super) u64);

impl Tick {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// Creates the reading `nanos` nanoseconds after the start of the clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Creates the reading `millis` milliseconds after the start of the clock, or the last possible
    /// reading if that is out of range.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns the nanoseconds since the start of the clock.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the whole milliseconds since the start of the clock.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Returns the nanoseconds since `earlier`; 0 if `earlier` is later.
    #[must_use]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tick({:?})", Duration::from_nanos(self.0))
    }
}

impl Add<Duration> for Tick {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl Sub for Tick {
    type Output = Duration;

    fn sub(self, rhs: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(rhs))
    }
}
