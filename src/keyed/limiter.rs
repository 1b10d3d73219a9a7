//! `KeyedLimiter`, a quota for each key without an engine.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::burst::Burst;
use super::digest::Digest;
use super::keys::{Counting, HotKeys, KeyLimit, KeySpec};
use super::{MOST_IN_WINDOW, MOST_KEYS, SHORTEST_REFILL, most_in_window};
use crate::base::invalid::InvalidSetting;
use crate::base::number::{Number, WholeNumber};
use crate::call::Key;
use crate::clock::timekeeper::{Timekeeper, never_panicking};
use crate::clock::{Clock, LONGEST_INTERVAL, SHORTEST_INTERVAL, Tick};
use crate::stat::{MAX_TOKENS, Refusal};

/// Limits *each* key, such as an address, a user or an API key, by a separate quota. This is the
/// table behind a [`KeyedRule`](crate::KeyedRule), for use without an engine.
///
/// A quota is refilled continuously, by the generic cell rate algorithm (GCRA): a key at
/// rest may spend the threshold and the [burst](LimiterBuilder::burst) at once, and from then on
/// gets one more token every `interval / threshold`. Alternatively, the threshold limits
/// a [sliding window](LimiterBuilder::window).
///
/// A limiter that was built [with a clock](LimiterBuilder::build_with) is used through
/// [`check`](Self::check). By default it has no clock, and the caller, which often has read a clock
/// anyway, passes the time of each call.
///
/// Any number of threads may use a limiter at the same time. Taking a token of a known key
/// costs a keyed hash and one compare-and-swap: no lock, and no allocation.
///
/// # Memory
///
/// All memory is allocated when the limiter is built: 32 bytes for each of
/// [`max_keys`](LimiterBuilder::max_keys). The length of keys does not matter, because a key is
/// identified by a keyed hash (SipHash with random keys) and is not stored. No cleanup is needed. A
/// key is *at rest* when it has spent nothing for so long that it has its whole quota again. It can
/// then be evicted without losing anything, when another key needs its place.
///
/// Keys that are not at rest are never evicted. The table has places for at least `max_keys` of
/// them, and at most for twice as many, rounded up to a multiple of eight. All keys that find no
/// place share a single quota, which is as large as that of one key. So a client that fills the
/// table gains no fresh quota, and no key that has a place loses a token. The price is paid by new
/// keys: while a client fills the table with made-up keys, honest new keys share a quota with them.
/// [How many](crate::KeyedRule::max_keys) made-up keys fill the table depends on how soon a key is
/// at rest. [`overflows`](Self::overflows) counts the calls that were judged on the shared quota;
/// if it grows, the limiter is too small, or a client makes up keys.
///
/// # Examples
///
/// ```
/// use std::net::IpAddr;
/// use tower_sentinel::clock::MonotonicClock;
/// use tower_sentinel::keyed::KeyedLimiter;
///
/// // Five per second and client, seven at once.
/// let limiter = KeyedLimiter::per_second(5).burst(2).build_with(MonotonicClock::new())?;
/// let client: IpAddr = [192, 0, 2, 7].into();
/// let passed = (0..100).filter(|_| limiter.check(client).is_ok()).count();
/// assert!((7..100).contains(&passed));
/// let refused = limiter.check(client).unwrap_err();
/// assert!(refused.retry_after().is_some());
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
///
/// With the time of the caller:
///
/// ```
/// use std::net::IpAddr;
/// use std::time::Duration;
/// use tower_sentinel::clock::MonotonicClock;
/// use tower_sentinel::keyed::KeyedLimiter;
/// use tower_sentinel::Clock;
///
/// let clock = MonotonicClock::new();
/// let now = clock.now();
/// // Five per second and client, seven at once.
/// let limiter = KeyedLimiter::per_second(5).burst(2).build(now)?;
/// let client: IpAddr = [192, 0, 2, 7].into();
///
/// assert!(limiter.try_acquire(now, client, 7).is_ok());
/// let refused = limiter.try_acquire(now, client, 1).unwrap_err();
/// assert_eq!(refused.available_at(), Some(now + Duration::from_millis(200)));
/// assert_eq!(limiter.left(now + Duration::from_millis(400), client), 2);
///
/// // Others have their own quota. Nobody ever has eight.
/// assert!(limiter.try_acquire(now, "ann", 1).is_ok());
/// let refused = limiter.try_acquire(now, "ann", 8).unwrap_err();
/// assert_eq!(refused.available_at(), None);
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
///
/// # Accuracy
///
/// The amount that a refilled quota admits at one moment is exact. In any time `t` it admits at
/// most the sum of the threshold, the burst and `t * threshold / interval`. At a million tokens per
/// second, it refills at most 0.006 % more slowly; at lower rates the error is smaller. No aligned
/// window holds more than the threshold. These statements hold under any interleaving of threads
/// (`keyed::models`), with these limits:
///
/// * among a million keys, the probability that two keys have the same hash, and so share a quota,
///   is 3 in 10⁸;
/// * a key that found no place and later gets one starts with a whole quota, so it can spend that
///   quota in addition to its part of the shared quota;
/// * a call is judged by the `now` that the caller passes. With an old `now`, a call can pass
///   wrongly in two cases. In the first, its key was not at rest at that time, but has come to rest
///   since and been evicted. In the second, the window of its key is already more than 1 024
///   buckets and more than four seconds ahead; then up to a whole limit can pass again;
/// * times are distinguished for 18 years from the creation of the limiter, and a quota that takes
///   longer than nine years to earn is reduced to the tokens earned in nine years;
/// * a window is exact for keys whose calls are less than 2²³ intervals apart.
#[doc(alias("RateLimiter", "keyed"))]
pub struct KeyedLimiter<C = ()> {
    keys: HotKeys,
    limit: KeyLimit,
    /// The clock of the limiter, if it was built with a clock.
    time: Option<Timekeeper>,
    clock: PhantomData<fn() -> C>,
}

/// A builder for a [`KeyedLimiter`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::keyed::KeyedLimiter;
///
/// let now = Tick::from_millis(10_000);
/// let limiter = KeyedLimiter::per(3, Duration::from_secs(60)).window().max_keys(1_000);
/// let limiter = limiter.build(now)?;
/// assert!(limiter.try_acquire(now, "ann", 3).is_ok());
/// assert!(limiter.try_acquire(now, "ann", 1).is_err());
///
/// let refused = KeyedLimiter::per_second(5).burst(2).window().build(now).unwrap_err();
/// assert_eq!(refused.to_string(), "burst is 2, must be 0 for a window");
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LimiterBuilder {
    threshold: f64,
    burst: Burst,
    count: Counting,
    interval: Duration,
    max_keys: WholeNumber,
}

// === impl KeyedLimiter ===

impl KeyedLimiter {
    /// Starts a limiter of `threshold` tokens per second for each key.
    pub fn per_second(threshold: impl Into<Number>) -> LimiterBuilder {
        Self::per(threshold, Duration::from_secs(1))
    }

    /// Starts a limiter of `threshold` tokens per minute for each key.
    pub fn per_minute(threshold: impl Into<Number>) -> LimiterBuilder {
        Self::per(threshold, Duration::from_secs(60))
    }

    /// Starts a limiter of `threshold` tokens per hour for each key.
    pub fn per_hour(threshold: impl Into<Number>) -> LimiterBuilder {
        Self::per(threshold, Duration::from_secs(3_600))
    }

    /// Starts a limiter of `threshold` tokens per `interval` for each key. The threshold may have a
    /// fraction. A threshold below 1 without a burst lets no call pass. A threshold of 0 lets no
    /// call pass, whatever the burst.
    pub fn per(threshold: impl Into<Number>, interval: Duration) -> LimiterBuilder {
        LimiterBuilder {
            threshold: threshold.into().get(),
            burst: Burst::NONE,
            count: Counting::Refill,
            interval,
            max_keys: WholeNumber::new(65_536),
        }
    }
}

impl<C: Clock> KeyedLimiter<C> {
    /// Takes a token of `key` at the current time of the limiter's clock.
    ///
    /// The clock is read once. If the reading is behind an earlier reading, or more than a second
    /// ahead of it, the clock is read again, as an engine does.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if the key has no token left.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::keyed::KeyedLimiter;
    /// use tower_sentinel::ManualClock;
    ///
    /// let clock = ManualClock::new();
    /// let limiter = KeyedLimiter::per_second(2).build_with(clock.clone())?;
    /// assert!(limiter.check("ann").is_ok());
    /// assert!(limiter.check("ann").is_ok());
    /// let refused = limiter.check("ann").unwrap_err();
    /// assert_eq!(refused.retry_after(), Some(Duration::from_millis(500)));
    /// clock.advance(Duration::from_millis(500));
    /// assert!(limiter.check("ann").is_ok());
    /// # Ok::<(), tower_sentinel::InvalidSetting>(())
    /// ```
    #[doc(alias("check_key"))]
    #[inline]
    pub fn check<'a>(&self, key: impl Into<Key<'a>>) -> Result<(), Refusal> {
        self.try_acquire(self.now(), key, 1)
    }

    /// Returns the current time of the limiter's clock, for the methods that take a time.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_sentinel::keyed::KeyedLimiter;
    /// use tower_sentinel::ManualClock;
    ///
    /// let limiter = KeyedLimiter::per_second(5).build_with(ManualClock::new())?;
    /// assert!(limiter.try_acquire(limiter.now(), "ann", 3).is_ok());
    /// assert_eq!(limiter.left(limiter.now(), "ann"), 2);
    /// # Ok::<(), tower_sentinel::InvalidSetting>(())
    /// ```
    #[must_use]
    pub fn now(&self) -> Tick {
        let time = self.time.as_ref();
        time.expect("it was built with a clock").now()
    }
}

impl<C> KeyedLimiter<C> {
    /// Takes `weight` tokens of `key`. A `weight` of 0 takes nothing and never fails.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if the key has fewer tokens; then nothing was taken.
    #[inline]
    pub fn try_acquire<'a>(
        &self,
        now: Tick,
        key: impl Into<Key<'a>>,
        weight: u32,
    ) -> Result<(), Refusal> {
        // Only this part is inlined, so that the compiler knows the kind of the key when it hashes
        // the key.
        self.acquire(now, self.keys.digest(&key.into()), weight)
    }

    fn acquire(&self, now: Tick, key: Digest, weight: u32) -> Result<(), Refusal> {
        self.keys.take(now, key, &self.limit, weight).map(|_| ())
    }

    /// Returns how many tokens `key` could take now, one by one.
    #[must_use]
    pub fn left<'a>(&self, now: Tick, key: impl Into<Key<'a>>) -> u32 {
        let key = self.keys.digest(&key.into());
        self.keys.left(now, key, &self.limit)
    }

    /// Returns the number of calls that were judged by the quota that keys without a place share.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.keys.overflows()
    }

    /// Returns the bytes that the limiter occupies, including the heap, but without its clock.
    /// The number is constant from the start.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.keys.footprint() + size_of::<Self>() - size_of::<HotKeys>()
    }
}

impl<C> fmt::Debug for KeyedLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimiter")
            .field("keys", &self.keys)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

// === impl LimiterBuilder ===

impl LimiterBuilder {
    /// Sets how many tokens more than the threshold a key at rest may spend at once.
    /// Default 0. Not for a [window](Self::window).
    pub fn burst(mut self, burst: impl Into<WholeNumber>) -> Self {
        self.burst = Burst::AboveThreshold(burst.into());
        self
    }

    /// Sets how many tokens a key at rest may spend at once, including those of the threshold:
    /// between the threshold and 2³¹ − 1. This has the same effect as a [burst](Self::burst) of the
    /// capacity minus the integer part of the threshold. If both capacity and burst are set, the
    /// last setting counts. Only for a refilled quota.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::clock::Tick;
    /// use tower_sentinel::keyed::KeyedLimiter;
    ///
    /// let now = Tick::from_millis(1_000);
    /// let limiter = KeyedLimiter::per_second(2).capacity(10).build(now)?;
    /// assert!(limiter.try_acquire(now, "ann", 10).is_ok());
    /// let refused = limiter.try_acquire(now, "ann", 1).unwrap_err();
    /// assert_eq!(refused.available_at(), Some(now + Duration::from_millis(500)));
    /// # Ok::<(), tower_sentinel::InvalidSetting>(())
    /// ```
    #[doc(alias("burst_size"))]
    pub fn capacity(mut self, capacity: impl Into<WholeNumber>) -> Self {
        self.burst = Burst::Capacity(capacity.into());
        self
    }

    /// Counts in a sliding window of two buckets, aligned to the clock, instead of refilling the
    /// quota continuously. No aligned window holds more than the threshold, whose fraction is
    /// ignored. With a threshold above 1 048 575 each key takes twice the memory.
    pub fn window(mut self) -> Self {
        self.count = Counting::Window;
        self
    }

    /// Sets the number of keys not at rest for which the limiter must have places. The default is
    /// 65 536, which takes 2 MiB. [`KeyedRule::max_keys`](crate::KeyedRule::max_keys) says how many
    /// are enough.
    pub fn max_keys(mut self, max_keys: impl Into<WholeNumber>) -> Self {
        self.max_keys = max_keys.into();
        self
    }

    /// Builds the limiter. Times before `now` count as `now`.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidSetting`] unless:
    ///
    /// * the threshold is between 0 and 2 147 483 647; for a window shorter than a second, at most
    ///   1 048 575;
    /// * the burst is between 0 and 2 147 483 647; for a window, 0;
    /// * the capacity, if it is set, is between the threshold and 2 147 483 647; for a window, none
    ///   may be set;
    /// * the interval is between 1 µs and 366 days; for a window, at least 1 ms and a multiple of
    ///   2 ns;
    /// * `max_keys` is between 1 and 2^26.
    pub fn build(self, now: Tick) -> Result<KeyedLimiter, InvalidSetting> {
        self.build_at(now, None)
    }

    /// Builds the limiter with a `clock`, for [`KeyedLimiter::check`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`build`](Self::build).
    ///
    /// # Examples
    ///
    /// A field has the type `KeyedLimiter<MonotonicClock>`:
    ///
    /// ```
    /// use tower_sentinel::clock::MonotonicClock;
    /// use tower_sentinel::keyed::KeyedLimiter;
    ///
    /// struct Logins(KeyedLimiter<MonotonicClock>);
    ///
    /// let per_user = KeyedLimiter::per_minute(5).build_with(MonotonicClock::new())?;
    /// let logins = Logins(per_user);
    /// assert!(logins.0.check("ann").is_ok());
    /// # Ok::<(), tower_sentinel::InvalidSetting>(())
    /// ```
    pub fn build_with<C: Clock>(self, clock: C) -> Result<KeyedLimiter<C>, InvalidSetting> {
        let time = Timekeeper::new(never_panicking(clock));
        let now = time.check_for_creation(time.read());
        self.build_at(now, Some(time))
    }

    fn build_at<C>(
        self,
        now: Tick,
        time: Option<Timekeeper>,
    ) -> Result<KeyedLimiter<C>, InvalidSetting> {
        self.check()?;
        let spec = KeySpec {
            count: self.count,
            interval: self.interval,
            max_keys: self.max_keys.get(),
        };
        let mut keys = HotKeys::new(spec, now).of_one_limit();
        if self.count == Counting::Window && self.threshold > f64::from(MOST_IN_WINDOW) {
            keys = keys.with_wide_windows(spec.max_keys);
        }
        let limit = keys.limit(self.threshold, self.burst.above_threshold(self.threshold));
        Ok(KeyedLimiter {
            keys,
            limit,
            time,
            clock: PhantomData,
        })
    }

    /// Checks the settings as [`build`](Self::build) documents.
    fn check(&self) -> Result<(), InvalidSetting> {
        let (threshold, burst) = (self.threshold, self.burst);
        let (interval, max_keys) = (self.interval, self.max_keys);
        let is_window = self.count == Counting::Window;
        let most = if is_window {
            most_in_window(interval)
        } else {
            MAX_TOKENS
        };
        if !(0.0..=f64::from(most)).contains(&threshold) {
            return Err(InvalidSetting::new(
                "threshold",
                threshold,
                format_args!("between 0 and {most}"),
            ));
        }
        if let Err((field, value, allowed)) = burst.check(threshold, !is_window, "for a window") {
            return Err(InvalidSetting::new(field, value, allowed));
        }
        let (shortest, allowed) = if is_window {
            (SHORTEST_INTERVAL, "between 1 ms and 366 days")
        } else {
            (SHORTEST_REFILL, "between 1 µs and 366 days")
        };
        if !(shortest..=LONGEST_INTERVAL).contains(&interval) {
            return Err(InvalidSetting::new(
                "interval",
                format_args!("{interval:?}"),
                allowed,
            ));
        }
        if is_window && interval.as_nanos() % 2 != 0 {
            return Err(InvalidSetting::new(
                "interval",
                format_args!("{interval:?}"),
                "a multiple of 2 ns for a window",
            ));
        }
        if !max_keys.is_within(1, MOST_KEYS) {
            return Err(InvalidSetting::new(
                "max_keys",
                max_keys,
                format_args!("between 1 and {MOST_KEYS}"),
            ));
        }
        Ok(())
    }
}
