//! `KeyedLimiter`, a quota for each key without an engine.

use std::fmt;
use std::time::Duration;

use super::digest::Digest;
use super::keys::{Count, HotKeys, Limit, Spec};
use super::{MOST_IN_WINDOW, MOST_KEYS};
use crate::call::Key;
use crate::clock::{LONGEST_INTERVAL, SHORTEST_INTERVAL, Tick};
use crate::stat::MAX_TOKENS;

/// A limiter that cannot be built, with the reason.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{KeyedLimiter, Tick};
///
/// let error = KeyedLimiter::per_second(-1).build(Tick::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "threshold is -1, must be between 0 and 2147483647");
/// let error = KeyedLimiter::per_second(5).max_keys(0).build(Tick::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "max_keys is 0, must be between 1 and 67108864");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLimiter(String);

impl fmt::Display for InvalidLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidLimiter {}

/// A key has no room for what it asked.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{KeyedLimiter, Tick};
///
/// let now = Tick::from_millis(10_000);
/// let limiter = KeyedLimiter::per_second(5).build(now)?;
/// assert!(limiter.try_acquire(now, "ann", 5).is_ok());
///
/// let refused = limiter.try_acquire(now, "ann", 1).unwrap_err();
/// assert_eq!(refused.to_string(), "the key has spent its quota");
/// let retry_after = refused.room_at().map(|at| at - now);
/// assert_eq!(retry_after, Some(Duration::from_millis(200)));
///
/// let never = limiter.try_acquire(now, "bob", 6).unwrap_err();
/// assert_eq!(never.to_string(), "more than the key may ever spend at once");
/// assert_eq!(never.room_at(), None);
/// # Ok::<(), tower_sentinel::hot::InvalidLimiter>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom(Option<Tick>);

impl NoRoom {
    /// From when on there is room, if the key spends nothing until then; `None`
    /// if there never is, because more was asked than the key may ever have.
    #[must_use]
    pub const fn room_at(&self) -> Option<Tick> {
        self.0
    }
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "the key has spent its quota",
            None => "more than the key may ever spend at once",
        })
    }
}

impl std::error::Error for NoRoom {}

/// A quota for *each* key: an address, a user, an API key. The table behind a
/// [`HotParamRule`](crate::HotParamRule), to be used alone.
///
/// A quota is refilled all the time, by the generic cell rate algorithm: a key
/// that has rested may spend the threshold and the [burst](Builder::burst) at
/// once, and from then on has one more token each `interval / threshold`. Or the
/// threshold is that of a [sliding window](Builder::window).
///
/// Any number of threads may use one limiter at once. A token of a known key
/// costs a keyed hash and one compare-and-swap: no lock, and no allocation.
///
/// # Memory
///
/// All of it is taken when the limiter is built: 32 bytes for each of
/// [`max_keys`](Builder::max_keys), however long the keys are, as a key is known
/// by a keyed hash (SipHash with random keys) and kept nowhere. Nothing has to
/// be cleaned up. A key that has spent nothing for so long that it has its whole
/// quota again is *at rest*: it is forgotten, without a trace, when another one
/// needs its place.
///
/// Keys that are not at rest are never forgotten. At least `max_keys` of them have a
/// place, and up to twice as many. All keys that find no place share a single quota,
/// which is that of one key: nobody gets a fresh quota by filling the table, and no key
/// that has a place loses a token by it. The price is paid by new keys: while somebody
/// fills the table with made-up keys, honest new ones share that quota with them.
/// [How many](crate::HotParamRule::max_keys) made-up keys that takes, depends on how soon
/// a key is at rest. [`overflows`](Self::overflows) counts the calls that were judged on
/// the shared quota; if it grows, the limiter is too small, or somebody makes keys up.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use std::time::Duration;
/// use tower_sentinel::{Clock, KeyedLimiter, MonotonicClock};
///
/// let clock = MonotonicClock::new();
/// let now = clock.now();
/// // Five per second and client, seven at once.
/// let limiter = KeyedLimiter::per_second(5).burst(2).build(now)?;
/// let client: IpAddr = [192, 0, 2, 7].into();
///
/// assert!(limiter.try_acquire(now, client, 7).is_ok());
/// let refused = limiter.try_acquire(now, client, 1).unwrap_err();
/// assert_eq!(refused.room_at(), Some(now + Duration::from_millis(200)));
/// assert_eq!(limiter.left(now + Duration::from_millis(400), client), 2);
///
/// // Others have their own quota. Nobody ever has eight.
/// assert!(limiter.try_acquire(now, "ann", 1).is_ok());
/// let refused = limiter.try_acquire(now, "ann", 8).unwrap_err();
/// assert_eq!(refused.room_at(), None);
/// # Ok::<(), tower_sentinel::hot::InvalidLimiter>(())
/// ```
///
/// # Accuracy
///
/// The refilled quota is exact in what may pass at one moment, and gives at most
/// the threshold and the burst and `t * threshold / interval` in any `t`; it
/// refills at most 0.006 % slower than that at a million tokens per second, and
/// less so below. No aligned window holds more than the threshold. Both hold
/// under any interleaving of threads (`hot::models`), with these limits:
///
/// * two of a million keys have the same hash, and so one quota, with a chance
///   of 3 in 10⁸;
/// * a key that found no place and later gets one starts with a whole quota: the
///   keys that share one may so spend one quota more;
/// * a call is judged by the `now` that it brings, and one that brings an old one
///   may pass where it should not: if its key had not come to rest by then, but has
///   since and was pushed out, or if a window is more than 1 024 buckets ahead,
///   which up to a whole limit may then pass again;
/// * times are told apart for 18 years from when the limiter was built, and a
///   quota that takes longer than nine years to earn is cut to what they give;
/// * a window is right for keys that come again within 2²³ intervals.
#[derive(Debug)]
pub struct KeyedLimiter {
    keys: HotKeys,
    limit: Limit,
}

/// Builds a [`KeyedLimiter`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{KeyedLimiter, Tick};
///
/// let now = Tick::from_millis(10_000);
/// let limiter = KeyedLimiter::per(3, Duration::from_secs(60)).window().max_keys(1_000);
/// let limiter = limiter.build(now)?;
/// assert!(limiter.try_acquire(now, "ann", 3).is_ok());
/// assert!(limiter.try_acquire(now, "ann", 1).is_err());
///
/// let refused = KeyedLimiter::per_second(5).burst(2).window().build(now).unwrap_err();
/// assert_eq!(refused.to_string(), "burst is 2, must be 0 for a window");
/// # Ok::<(), tower_sentinel::hot::InvalidLimiter>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    threshold: f64,
    burst: u32,
    spec: Spec,
}

// === impl KeyedLimiter ===

impl KeyedLimiter {
    /// A limiter of `threshold` tokens per second for each key.
    pub fn per_second(threshold: impl Into<f64>) -> Builder {
        Self::per(threshold, Duration::from_secs(1))
    }

    /// A limiter of `threshold` tokens per `interval` for each key. The
    /// threshold may have a fraction; below 1, without a burst, nothing passes, and at
    /// 0 nothing does whatever the burst.
    pub fn per(threshold: impl Into<f64>, interval: Duration) -> Builder {
        Builder {
            threshold: threshold.into(),
            burst: 0,
            spec: Spec {
                count: Count::Refill,
                interval,
                max_keys: 65_536,
            },
        }
    }

    /// Takes `n` tokens of `key`. With 0 it takes nothing, and never fails.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the key has less; nothing was taken then.
    #[inline]
    pub fn try_acquire<'a>(
        &self,
        now: Tick,
        key: impl Into<Key<'a>>,
        n: u32,
    ) -> Result<(), NoRoom> {
        // Inlined up to here, where the compiler knows the kind of the key.
        self.acquire(now, self.keys.digest(&key.into()), n)
    }

    fn acquire(&self, now: Tick, key: Digest, n: u32) -> Result<(), NoRoom> {
        let taken = self.keys.take(now, key, &self.limit, n);
        taken.map(|_| ()).map_err(|full| NoRoom(full.room_at))
    }

    /// How many tokens `key` could take now, one by one.
    #[must_use]
    pub fn left<'a>(&self, now: Tick, key: impl Into<Key<'a>>) -> u32 {
        let key = self.keys.digest(&key.into());
        self.keys.left(now, key, &self.limit)
    }

    /// How many calls were judged on the quota that keys without a place share.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.keys.overflows()
    }

    /// The bytes that the limiter occupies, on the heap and in itself: the same
    /// from the start.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.keys.footprint() + size_of::<Self>() - size_of::<HotKeys>()
    }
}

// === impl Builder ===

impl Builder {
    /// How many tokens more than the threshold a key that has rested may spend
    /// at once. Default 0. Not for a [window](Self::window).
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// Counts in a sliding window of two buckets, aligned to the clock, instead
    /// of a quota that is refilled: no aligned window holds more than the
    /// threshold, of which a fraction counts for nothing.
    pub fn window(mut self) -> Self {
        self.spec.count = Count::Window;
        self
    }

    /// For how many keys that are not at rest the limiter has places, at least. Default
    /// 65 536, which takes 2 MiB. For how many are enough see
    /// [`HotParamRule::max_keys`](crate::HotParamRule::max_keys).
    pub fn max_keys(mut self, max_keys: u32) -> Self {
        self.spec.max_keys = max_keys;
        self
    }

    /// The limiter, in which no time before `now` is told apart.
    ///
    /// # Errors
    ///
    /// [`InvalidLimiter`] unless the threshold is between 0 and 2 147 483 647, or
    /// 1 048 575 for a window; the burst at most 2 147 483 647, or 0 for a window;
    /// the interval between 1 ms and 366 days, and a multiple of 2 ns for a
    /// window; and `max_keys` between 1 and 2^26.
    pub fn build(self, now: Tick) -> Result<KeyedLimiter, InvalidLimiter> {
        self.check()?;
        let keys = HotKeys::new(self.spec, now);
        let limit = keys.limit(self.threshold, self.burst);
        Ok(KeyedLimiter { keys, limit })
    }

    fn check(&self) -> Result<(), InvalidLimiter> {
        let (threshold, burst) = (self.threshold, self.burst);
        let (interval, max_keys) = (self.spec.interval, self.spec.max_keys);
        let is_window = self.spec.count == Count::Window;
        let most = if is_window {
            MOST_IN_WINDOW
        } else {
            MAX_TOKENS
        };
        if !(0.0..=f64::from(most)).contains(&threshold) {
            return refuse("threshold", threshold, &format!("between 0 and {most}"));
        }
        if is_window && burst > 0 {
            return refuse("burst", burst, "0 for a window");
        }
        if burst > MAX_TOKENS {
            return refuse("burst", burst, &format!("between 0 and {MAX_TOKENS}"));
        }
        if !(SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(&interval) {
            return refuse(
                "interval",
                format_args!("{interval:?}"),
                "between 1 ms and 366 days",
            );
        }
        if is_window && interval.as_nanos() % 2 != 0 {
            return refuse(
                "interval",
                format_args!("{interval:?}"),
                "a multiple of 2 ns for a window",
            );
        }
        if !(1..=MOST_KEYS).contains(&max_keys) {
            return refuse("max_keys", max_keys, &format!("between 1 and {MOST_KEYS}"));
        }
        Ok(())
    }
}

/// `field` has a `value` which is not `allowed`.
fn refuse(field: &str, value: impl fmt::Display, allowed: &str) -> Result<(), InvalidLimiter> {
    let text = format!("{field} is {value}, must be {allowed}");
    Err(InvalidLimiter(text))
}
