//! The error of a refused call: which limit refused it, and when there will be room.

use std::fmt;
use std::time::Duration;

use crate::clock::Tick;

/// The error of a refused request for tokens: a quota has too few left.
///
/// [`LeapArray::try_acquire`](super::LeapArray::try_acquire) and
/// [`KeyedLimiter`](crate::keyed::KeyedLimiter) return it. A refusal takes nothing.
///
/// # Examples
///
/// A refusal by one of several windows over one array:
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::stat::LeapArray;
///
/// let at = Tick::from_millis;
/// let array = LeapArray::new(Duration::from_secs(60), 120)?;
/// let names = ["ten a second", "twelve a minute"];
/// let quotas = [
///     array.quota(Duration::from_secs(1), 10)?,
///     array.quota(Duration::from_secs(60), 12)?,
/// ];
/// assert!(array.try_acquire(at(700), 8, &quotas).is_ok());
/// let refusal = array.try_acquire(at(700), 3, &quotas).unwrap_err();
/// assert_eq!(names[refusal.index()], "ten a second");
/// assert_eq!(refusal.available_at(), Some(at(1_500)));
/// let refusal = array.try_acquire(at(2_700), 5, &quotas).unwrap_err();
/// assert_eq!(names[refusal.index()], "twelve a minute");
/// assert_eq!(refusal.to_string(), "the quota is spent, and has room again in 57.8s");
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
///
/// A refusal for one key:
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::keyed::KeyedLimiter;
///
/// let now = Tick::from_millis(10_000);
/// let limiter = KeyedLimiter::per_second(5).build(now)?;
/// assert!(limiter.try_acquire(now, "ann", 5).is_ok());
///
/// let refusal = limiter.try_acquire(now, "ann", 1).unwrap_err();
/// assert_eq!(refusal.to_string(), "the quota is spent, and has room again in 200ms");
/// assert_eq!(refusal.available_at(), Some(now + Duration::from_millis(200)));
/// assert_eq!(refusal.retry_after(), Some(Duration::from_millis(200)));
///
/// let never = limiter.try_acquire(now, "bob", 6).unwrap_err();
/// assert_eq!(never.to_string(), "more than the quota ever allows at once");
/// assert_eq!(never.available_at(), None);
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The index of the quota; within the engine, this can also be the index of a circuit breaker.
    index: u32,
    /// The time of the refused call.
    now: Tick,
    /// The time at which all quotas have room; `None` if they never have.
    available_at: Option<Tick>,
}

impl Refusal {
    /// Creates the refusal of a call at `now` by the limit with this index.
    pub(crate) const fn new(index: u32, now: Tick, available_at: Option<Tick>) -> Self {
        Self {
            index,
            now,
            available_at,
        }
    }

    /// Extends the refusal until another quota has room as well, at `other`; `None` means never.
    pub(crate) fn and_until(mut self, other: Option<Tick>) -> Self {
        self.available_at = self.available_at.zip(other).map(|(a, b)| a.max(b));
        self
    }

    /// Returns the index of the first quota without room, counted from 0. A
    /// [`KeyedLimiter`](crate::keyed::KeyedLimiter) has only one quota.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index as usize
    }

    /// Returns when there is room in all quotas, if no other call takes tokens until then. `None`
    /// if there never is, because more was requested than a quota ever allows at once.
    #[must_use]
    pub const fn available_at(&self) -> Option<Tick> {
        self.available_at
    }

    /// Returns the time from the call until [`available_at`](Self::available_at).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.available_at.map(|at| at - self.now)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_after() {
            Some(wait) => write!(f, "the quota is spent, and has room again in {wait:?}"),
            None => f.write_str("more than the quota ever allows at once"),
        }
    }
}

impl std::error::Error for Refusal {}
