//! Draws, the requests of a process to a store, and the answers to them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::StoreKey;

/// A request for one counter: permits to draw, permits to give back, and permits that were spent
/// without the store. A store applies the whole request or nothing.
///
/// The engine creates draws. A store calls [`apply`](Self::apply), or passes the
/// [`arguments`](Self::arguments) to a script that computes the same result.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
/// use tower_sentinel::store::{Alive, Beat, Draw, Drawn, QuotaStore, StoreError, StoreFuture};
/// use tower_sentinel::{Call, FlowRule, Sentinel};
///
/// /// A store that keeps nothing but what it was asked.
/// #[derive(Clone, Debug, Default)]
/// struct Asked(Arc<Mutex<Vec<Draw>>>);
///
/// impl QuotaStore for Asked {
///     fn draw<'a>(&'a self, all: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
///         self.0.lock().unwrap().extend_from_slice(all);
///         let now = Duration::from_secs(1_000);
///         Box::pin(async move { Ok(all.iter().map(|draw| Ok(draw.apply(&[], now).0)).collect()) })
///     }
///
///     fn beat(&self, _: Alive) -> StoreFuture<'_, Beat> {
///         Box::pin(async { Ok(Beat::new(1, 0, Default::default())) })
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let store = Asked::default();
/// let rule = FlowRule::per_second("/search", 9).shared().exact();
/// let sentinel = Sentinel::builder().rules(rule).store(store.clone()).build();
/// let handle = sentinel.start_store().unwrap();
/// tokio::time::sleep(Duration::from_millis(20)).await;
/// assert!(sentinel.enter(Call::new("/search")).await.is_ok());
/// let draw = store.0.lock().unwrap()[0].clone();
/// // One permit of nine, in one of two buckets of 500 ms.
/// assert_eq!(draw.arguments()[..4], [500_000, 2, 9, 1]);
/// assert!(draw.key().starts_with("ts:1:{"));
/// assert_eq!(draw.lifetime(), Duration::from_secs(2));
/// assert_eq!(draw.wait(), Duration::from_millis(200)); // `StoreSettings::store_wait`
/// # drop(handle);
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    pub(crate) key: StoreKey,
    /// The length of a bucket.
    pub(crate) bucket: Duration,
    /// The number of buckets of the window.
    pub(crate) buckets: u32,
    /// The maximum number of permits in a window, over all processes.
    pub(crate) limit: u32,
    /// Permits that calls wait for.
    pub(crate) firm: u32,
    /// Permits to draw ahead of calls, if any are left after the firm ones.
    pub(crate) soft: u32,
    /// Limits the permits drawn ahead: to the free permits divided by this number.
    pub(crate) divisor: u32,
    /// Whether the permits are for the bucket after the present one.
    pub(crate) next: bool,
    /// Permits to give back.
    pub(crate) back: Option<Booking>,
    /// The epoch of the value in which this process's permits are counted; the default if the
    /// process has no counted permits. If the value has another epoch, the draw is not applied.
    pub(crate) known: Epoch,
    /// Permits that were spent without the store, which the store now counts.
    pub(crate) add: Vec<Booking>,
    /// The time for which the value is kept, if it differs from the default: its window and two
    /// more buckets.
    pub(crate) kept: Option<Duration>,
    /// How long the engine waits for the answer.
    pub(crate) wait: Duration,
}

/// A number of permits of one bucket. Buckets are numbered from the start of the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Booking {
    pub(crate) bucket: u64,
    pub(crate) permits: u32,
}

/// The creation time of a counter, or of all data of a store. If the epoch has changed, earlier
/// counts are lost. The default stands for no epoch.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::Epoch;
///
/// assert_eq!(Epoch::default(), Epoch::from_micros(0));
/// assert_ne!(Epoch::from_micros(1), Epoch::from_micros(2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epoch(pub(crate) u64);

/// The answer to one [`Draw`].
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::Drawn;
///
/// // What a script returns: three permits, seven left, and 90 ms of bucket 10.
/// let drawn = Drawn::read(&[3, 7, 90_000, 10, 5, 0]).unwrap();
/// assert!(matches!(drawn, Drawn::Granted { permits: 3, free: 7, .. }));
/// assert_eq!(Drawn::read(&[3]), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drawn {
    /// The draw was applied.
    #[non_exhaustive]
    Granted {
        /// How many permits were drawn: fewer than requested if too few were free.
        permits: u32,
        /// How many permits are left in the counter.
        free: u32,
        /// How long the present bucket lasts by the store's clock.
        rest: Duration,
        /// The number of the present bucket.
        bucket: u64,
        /// The epoch of the value.
        epoch: Epoch,
        /// The time until one more permit is free, if none is left or fewer were granted than calls
        /// wait for; otherwise zero.
        wait: Duration,
    },
    /// The draw was not applied, because the value has another epoch than the draw expects.
    #[non_exhaustive]
    Lost {
        /// How long the present bucket lasts by the store's clock.
        rest: Duration,
        /// The number of the present bucket.
        bucket: u64,
        /// The epoch of the current value.
        epoch: Epoch,
    },
}

/// The name of a process for its lifetime. It is random and reveals nothing about the machine.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tower_sentinel::store::{Alive, Beat, Draw, Drawn, QuotaStore, StoreError, StoreFuture};
/// use tower_sentinel::Sentinel;
///
/// #[derive(Clone, Debug, Default)]
/// struct Beats(Arc<Mutex<Vec<String>>>);
///
/// impl QuotaStore for Beats {
///     fn draw<'a>(&'a self, _: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
///         Box::pin(async { Ok(Vec::new()) })
///     }
///
///     fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
///         self.0.lock().unwrap().push(alive.node().to_string());
///         Box::pin(async { Ok(Beat::new(1, 0, Default::default())) })
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let store = Beats::default();
/// let sentinel = Sentinel::builder().store(store.clone()).build();
/// let handle = sentinel.start_store().unwrap();
/// handle.shutdown().await;
/// let names = store.0.lock().unwrap().clone();
/// assert!(names.iter().all(|name| name.len() == 32));
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub(crate) u128);

impl Draw {
    /// Returns the key of the counter: `{prefix}:1:{digest}`. The digest is 32 hexadecimal digits
    /// in literal braces. It reveals nothing about the rule or the user.
    ///
    /// The braces make the digest the hash tag of a Redis Cluster, so a prefix moves no key to
    /// another slot. 1 is the version of the format of the value.
    #[must_use]
    pub fn key(&self) -> String {
        self.key.to_text()
    }

    /// Returns how long the value must be kept after it was written.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.kept.unwrap_or(self.bucket * (self.buckets + 2))
    }

    /// Returns how long the engine waits for the answer before it decides without it.
    ///
    /// A store on several servers should answer before that time, with an error of kind
    /// [`Late`](super::StoreErrorKind::Late) for each draw whose server has not answered. The
    /// engine can then use the answers of the other servers.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// Applies the draw to the `value` of its counter, at the time `now` since the start of the
    /// store's clock. An empty `value` stands for a new counter. Returns the answer, and the new
    /// value if it has changed.
    ///
    /// A value in another format is treated as empty.
    #[must_use]
    pub fn apply(&self, value: &[u8], now: Duration) -> (Drawn, Option<Vec<u8>>) {
        super::counter::apply(self, value, now)
    }

    /// Returns the draw as the integers that a script takes, in the order `bucket in µs, number
    /// of buckets, limit, firm, soft, divisor, next, bucket to give back to, permits to give
    /// back, epoch`, and then `bucket, permits` for each addition.
    #[must_use]
    pub fn arguments(&self) -> Vec<u64> {
        let back = self.back.unwrap_or(Booking {
            bucket: 0,
            permits: 0,
        });
        let mut all = vec![
            self.bucket_us(),
            self.buckets.into(),
            self.limit.into(),
            self.firm.into(),
            self.soft.into(),
            self.divisor.max(1).into(),
            self.next.into(),
            back.bucket,
            back.permits.into(),
            self.known.0,
        ];
        let add = self.add.iter();
        all.extend(add.flat_map(|add| [add.bucket, add.permits.into()]));
        all
    }

    /// Returns whether the draw only takes firm permits: all [`arguments`](Self::arguments) after
    /// the fourth have no effect.
    #[cfg(feature = "redis")]
    pub(crate) fn is_plain(&self) -> bool {
        let has_state = self.known != Epoch::default() || !self.add.is_empty();
        !has_state && self.soft == 0 && !self.next && self.back.is_none()
    }

    pub(crate) fn bucket_us(&self) -> u64 {
        u64::try_from(self.bucket.as_micros()).map_or(u64::MAX, |us| us.max(1))
    }
}

impl Drawn {
    /// Reads the six integers that a script returns, in the order `permits, free, rest in µs,
    /// bucket, epoch, wait in µs`; -1 permits stand for a lost value. Returns `None` for anything
    /// else.
    #[must_use]
    pub fn read(answer: &[i64]) -> Option<Self> {
        let &[permits, free, rest, bucket, epoch, wait] = answer else {
            return None;
        };
        let rest = Duration::from_micros(u64::try_from(rest).ok()?);
        let bucket = u64::try_from(bucket).ok()?;
        let epoch = Epoch(u64::try_from(epoch).ok()?);
        if permits == -1 {
            return Some(Self::Lost {
                rest,
                bucket,
                epoch,
            });
        }
        Some(Self::Granted {
            permits: u32::try_from(permits).ok()?,
            free: u32::try_from(free).ok()?,
            rest,
            bucket,
            epoch,
            wait: Duration::from_micros(u64::try_from(wait).ok()?),
        })
    }
}

impl Epoch {
    /// Creates an epoch from the microseconds of the store's clock at which it began; 0 for
    /// none.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }
}

impl NodeId {
    pub(crate) fn random() -> Self {
        // The random keys of a `RandomState` cannot be read, but a hash made with them is as random
        // as they are.
        let half = || u128::from(RandomState::new().hash_one(0));
        Self(half() << 64 | half())
    }

    /// Derives the name of a forked process, which has inherited an engine of this name. `process`
    /// is the number of the process.
    pub(crate) fn of_process(self, process: u32) -> Self {
        Self(self.0 ^ u128::from(process))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
