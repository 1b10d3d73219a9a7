//! The ring of aligned time buckets on which every count and every limit is based.
//!
//! # The structure
//!
//! Time is cut into buckets of one length; bucket number `b` is `[b × len, (b + 1) × len)`. The
//! array keeps **one** counter of everything that it ever granted. For each of the last buckets, it
//! remembers the value of that counter when the bucket opened (its *checkpoint*; in code, a *cut*):
//!
//! ```text
//! head   [ granted | newest bucket | frozen | sealed ]          one word, one CAS decides
//! cut    [ 118 ][ 119 ][ 120 ][ 117 ]                           ring: bucket b at b mod 4
//! loan   [ 122 ][ 121 ]                                         ring: tokens held for later
//!
//! granted = 57, cut(119) = 40, cut(120) = 52
//! taken in 120             = 57 − 52 =  5
//! taken in the window 119… = 57 − 40 = 17     (two buckets, one subtraction)
//! ```
//!
//! Nothing is ever reset and nothing is ever summed up, so nothing can be lost in a reset, and a
//! window of a hundred buckets costs as much as a window of two. Any number of windows of different
//! lengths are judged against the same word, so one compare-and-swap admits under all of them.
//!
//! # Opening a bucket
//!
//! The first caller whose clock is past the newest bucket opens the next one, and any other thread
//! may help: *seal* the head (takers can no longer take in the old bucket), seal the loan cells,
//! *publish* the checkpoint of the new bucket, move the head. Each step is one compare-and-swap
//! that succeeds once, so a caller that sleeps between two steps delays no other.
//!
//! After an idle time, if no tokens are held for the buckets in between, the head *steps over*
//! them: it stays sealed, and only their checkpoints are published. No thread can write the loan
//! cells meanwhile, so they are sealed twice and not once for each bucket. If the idle time is
//! longer than the ring, the head jumps first and then steps over the last buckets, so that no
//! outdated checkpoint is left in the ring.
//!
//! # Why it is exact
//!
//! Let `R` be the number of tokens taken so far, and `start(b)` the first bucket of the window that
//! ends with bucket `b`. Then `B(b) = cut(start(b)) + limit` is the maximum of `R` that a rule
//! allows while `b` is the newest bucket. The array keeps `R ≤ B(newest)` for every rule at all
//! times:
//!
//! * A take is the compare-and-swap on the head. It confirms at once the count *and* the bucket
//!   that were judged; checkpoints never change. So there is no gap between the check and the
//!   count, and the swap of a thread that judged an older head fails.
//! * A [loan](super::occupy) for bucket `f` adds its tokens to `granted` at once, under the
//!   condition `granted ≤ B(f)`, but they are not yet taken. When a bucket opens, its checkpoint is
//!   `granted − held`, where `held` are the tokens held for it and for later buckets. So held
//!   tokens always count as used in the newest bucket, from the loan on, and are taken when `f`
//!   opens.
//! * Consider the latest grant whose tokens are taken by now. It was made because `granted ≤ B(b)`,
//!   for a bucket `b` that is not after the newest one. Every other token taken by now was granted
//!   earlier and is counted in this `granted`. `B` never falls, so `R ≤ B(newest)`.
//!
//! (A loan whose whole window lies in the future needs a second check of the held tokens; see
//! [`occupy`](super::occupy).)
//!
//! A loan whose bucket closes before its cell is written fails, and its tokens stay spent, which
//! errs on the side of refusing. A refund that comes after its bucket has closed fails too, with
//! the same effect.
//!
//! The models in `stat/models` run these claims through every interleaving of up to three threads,
//! and each has a twin with a planted bug that must fail. `stat/tests/stress.rs` runs them with
//! real threads, late clocks and jumps.
//!
//! # Orderings
//!
//! Every word contains a stamp of its bucket, and a value is used only if the stamp matches. So
//! safety does not depend on the order in which words become visible. Acquire and release make sure
//! that a thread that sees a head also sees the checkpoints that were published before it, and so
//! makes progress.

use std::num::NonZeroU32;
use std::time::Duration;

use super::packed::{Checkpoint, HeadWord, LoanCell, bucket_of, distance, stamp};
use super::quota::{Lending, MAX_TOKENS, Quota};
use super::refusal::Refusal;
use crate::base::invalid::InvalidSetting;
use crate::base::sync::{AtomicU64, Bug, Ordering, planted, words};
use crate::clock::{Tick, nanos};

/// The shortest bucket: 1 ms.
pub(super) const MIN_BUCKET_NS: u64 = 1_000_000;
/// The maximum number of buckets of one array. Its checkpoints then take up to 1 MiB.
pub(super) const MAX_BUCKETS: u32 = 1 << 16;
/// The maximum number of buckets ahead for which a call can wait. A loan reads the cells of all
/// these buckets into sums on the stack.
pub(crate) const MOST_AHEAD: u64 = 512;
/// The number of checkpoints of a window of two buckets. With the head and `SMALL_LOANS` loan cells
/// they fit into one cache line.
const SMALL_CUTS: usize = 4;
/// The number of loan cells of a window of two buckets.
const SMALL_LOANS: usize = 2;

/// A lock-free sliding window: a ring of aligned buckets with exact counts and
/// exact, all-or-nothing admission.
///
/// It is an exact version of the structure of this name in Alibaba Sentinel: counts are never lost,
/// reset or put into another bucket. Under any interleaving of threads, no bucket-aligned window
/// ever holds more than its limit.
///
/// Every method takes the current time as a [`Tick`] and divides it by the bucket length; all calls
/// on one array must use one clock. A reading that is behind the newest bucket counts in the newest
/// bucket. So after a reading that was far ahead, nothing leaves a window until the clock has
/// caught up. An [engine](crate::Sentinel) reads the clock again if a reading is implausible; an
/// array does not.
///
/// # Examples
///
/// How a bucket is found for a time, with five buckets of 200 ms:
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::stat::LeapArray;
///
/// let at = Tick::from_millis;
/// let array = LeapArray::new(Duration::from_secs(1), 5)?;
///
/// // Bucket 5 starts at 1000 and is at index 0 of five.
/// assert_eq!(array.bucket_start(at(1_188)), at(1_000));
/// assert_eq!(array.bucket_number(at(1_188)) % 5, 0);
/// assert_eq!(array.bucket_start(at(888)), at(800));
/// assert_eq!(array.bucket_number(at(888)) % 5, 4);
///
/// array.add(at(676), 3);                    // bucket 3, [600, 800)
/// assert_eq!(array.sum(at(1_599)), 3);      // still among the last five
/// // Bucket 8 takes the place of bucket 3 and starts empty.
/// array.add(at(1_676), 1);
/// assert_eq!(array.sum(at(1_676)), 1);
/// // A caller whose clock is behind counts in the newest bucket.
/// array.add(at(900), 1);
/// assert_eq!(array.sum(at(1_676)), 2);
///
/// // One bucket: a late writer's count goes into the bucket that is there.
/// let one = LeapArray::new(Duration::from_secs(1), 1)?;
/// one.add(at(1_000), 1);
/// one.add(at(999), 1);
/// assert_eq!(one.sum(at(1_000)), 2);
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
///
/// Admission and refusal:
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::stat::LeapArray;
///
/// let at = Tick::from_millis;
/// let array = LeapArray::new(Duration::from_secs(60), 120)?;
/// // Two windows over one array, one decision.
/// let quotas = [
///     array.quota(Duration::from_secs(1), 10)?,
///     array.quota(Duration::from_secs(60), 12)?,
/// ];
///
/// assert!(array.try_acquire(at(700), 9, &quotas).is_ok());
/// assert_eq!(array.try_acquire(at(700), 2, &quotas).unwrap_err().index(), 0);
/// assert!(array.try_acquire(at(700), 1, &quotas).is_ok());
/// assert!(array.try_acquire(at(1_700), 2, &quotas).is_ok());
/// assert_eq!(array.try_acquire(at(2_700), 1, &quotas).unwrap_err().index(), 1);
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
///
/// # Accuracy
///
/// * For any number of threads and any interleaving: a window that ends at the end of a
///   bucket never holds more than its limit (`stat::models`, `stat::tests::stress`).
/// * An interval of the window's length that does *not* end at the end of a bucket may hold up to
///   twice the limit: with `n` buckets, `2 × limit` can pass within little more than `(n − 1) / n`
///   of the interval. More buckets spread these tokens further apart. They cost a call nothing,
///   except the first call after an idle time. That call writes three words for each bucket that
///   has passed: at most for one ring of buckets, or for one ring for each 2²⁸ buckets. A
///   [strict](crate::FlowRule::strict) rule excludes this case.
/// * Counts are kept modulo 2³²: one window must stay below 2³¹ tokens. No loan is made that would
///   bring a window, together with all tokens held for later ones, to 2³².
///
/// # Source
///
/// `LeapArray` and `OccupiableBucketLeapArray` of Alibaba Sentinel, whose bucket addressing and
/// lending rule this type keeps. The cumulative counter with checkpoints, the sealing and the held
/// loans are new here.
#[derive(Debug)]
pub struct LeapArray {
    pub(super) words: Words,
    /// The checkpoints and then the loan cells, if they do not fit into `words`.
    more: Option<Box<[AtomicU64]>>,
    /// The length of one bucket, in ns.
    pub(super) bucket_ns: u64,
    /// The number of buckets with which the array was created.
    buckets: NonZeroU32,
    /// The number of checkpoints less 1, which masks their indices.
    pub(super) cut_mask: u32,
    /// The number of loan cells less 1, which masks their indices.
    pub(super) loan_mask: u32,
}

/// The state of a window of two buckets: one cache line.
#[derive(Debug)]
pub(super) struct Words {
    /// The [`HeadWord`]: the granted tokens, and the stamp of the newest bucket.
    pub(super) head: AtomicU64,
    /// The full number of the newest bucket. It can be one move of the head behind.
    pub(super) newest: AtomicU64,
    /// The loan cells, unless they are in `more`.
    loans: [AtomicU64; SMALL_LOANS],
    /// The checkpoints, unless they are in `more`.
    cuts: [AtomicU64; SMALL_CUTS],
}

/// Why an array gives no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The quota with this index is full. The engine replaces the index with that of the
    /// [rule](Self::by).
    Full(u32),
    /// A reload has replaced this array.
    Reloaded,
}

/// Tokens that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The bucket in which they count.
    pub(crate) bucket: u64,
    /// All tokens that the array has granted so far, including these, modulo 2³².
    pub(crate) granted: u32,
}

/// A reload has replaced the array, or the rules by which a call was judged: the call must be
/// judged again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reloaded;

impl Denied {
    /// Replaces the index of the quota with that of its rule: quota `i` belongs to `rules[i]`.
    #[cold]
    pub(crate) fn by(self, rules: &[u32]) -> Self {
        match self {
            // A call without rules can also find no bucket to wait for; its error has index 0.
            Self::Full(quota) => Self::Full(rules.get(quota as usize).copied().unwrap_or_default()),
            Self::Reloaded => Self::Reloaded,
        }
    }
}

impl From<Reloaded> for Denied {
    fn from(Reloaded: Reloaded) -> Self {
        Self::Reloaded
    }
}

/// The shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// The length of one bucket, in ns.
    pub(crate) bucket_ns: u64,
    /// The number of buckets, counted back from the newest, that must stay readable.
    pub(crate) buckets: u32,
    /// The number of buckets ahead for which tokens can be held.
    pub(crate) ahead: u32,
}

// === impl Words ===

impl Words {
    fn new(newest: u64) -> Self {
        Self {
            head: AtomicU64::new(HeadWord::open(0, newest).0),
            newest: AtomicU64::new(newest),
            loans: std::array::from_fn(|_| AtomicU64::new(LoanCell::open(0, newest).0)),
            cuts: std::array::from_fn(|place| AtomicU64::new(first_cut(place, SMALL_CUTS, newest))),
        }
    }
}

/// Returns the initial checkpoint in slot `place` of `len`, in an array whose first bucket is
/// `newest`. It belongs to the last bucket up to `newest` that falls into this slot.
fn first_cut(place: usize, len: usize, newest: u64) -> u64 {
    let back = newest.wrapping_sub(place as u64) & (len as u64 - 1);
    Checkpoint::new(0, newest.wrapping_sub(back), back == 0).0
}

// === impl LeapArray ===

impl LeapArray {
    /// Creates an empty array of `buckets` buckets that together cover `interval`.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidSetting`] unless `buckets` is between 1 and 65 536 and divides
    /// `interval` into buckets of at least 1 ms.
    pub fn new(interval: Duration, buckets: u32) -> Result<Self, InvalidSetting> {
        let bucket_ns = InvalidSetting::check(interval, buckets)?;
        let grid = Grid {
            bucket_ns,
            buckets,
            ahead: buckets.min(64),
        };
        Ok(Self::with_grid(grid, Tick::ZERO))
    }

    /// Creates an empty array whose first bucket is that of `now`.
    pub(crate) fn with_grid(grid: Grid, now: Tick) -> Self {
        let newest = now.as_nanos() / grid.bucket_ns;
        // Two more slots: for the bucket before the window, and for the bucket that is being
        // opened.
        let cuts = (grid.buckets as usize + 2)
            .next_power_of_two()
            .max(SMALL_CUTS);
        let loans = (grid.ahead as usize).next_power_of_two();
        let more = (cuts > SMALL_CUTS || loans > SMALL_LOANS).then(|| {
            words(cuts + loans, &mut |place| {
                if place < cuts {
                    first_cut(place, cuts, newest)
                } else {
                    LoanCell::open(0, newest).0
                }
            })
        });
        Self {
            words: Words::new(newest),
            more,
            bucket_ns: grid.bucket_ns,
            buckets: NonZeroU32::new(grid.buckets).expect("a window has a bucket"),
            cut_mask: cuts as u32 - 1,
            loan_mask: loans as u32 - 1,
        }
    }

    /// The shape that the array was made with.
    pub(crate) fn grid(&self) -> Grid {
        Grid {
            bucket_ns: self.bucket_ns,
            buckets: self.buckets.get(),
            ahead: self.loan_mask + 1,
        }
    }

    /// Returns the bytes that the array occupies, including the heap.
    #[must_use]
    pub fn footprint(&self) -> usize {
        size_of::<Self>() + self.more.as_deref().map_or(0, size_of_val)
    }

    /// Returns the length of one bucket.
    #[must_use]
    pub const fn bucket_length(&self) -> Duration {
        Duration::from_nanos(self.bucket_ns)
    }

    /// Returns the number of buckets with which the array was created.
    #[must_use]
    pub const fn buckets_per_window(&self) -> u32 {
        self.buckets.get()
    }

    /// Returns the time that all buckets of the array cover together.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        Duration::from_nanos(self.bucket_ns * self.buckets.get() as u64)
    }

    /// Returns the number of the bucket that `at` lies in, counted from the clock's start.
    #[must_use]
    #[inline]
    pub fn bucket_number(&self, at: Tick) -> u64 {
        // Relaxed: `bucket_of` uses the newest number only as a guess.
        let newest = self.words.newest.load(Ordering::Relaxed);
        bucket_of(at, self.bucket_ns, newest)
    }

    /// Returns the start of the bucket that `at` lies in.
    #[must_use]
    pub fn bucket_start(&self, at: Tick) -> Tick {
        self.start_of(self.bucket_number(at))
    }

    /// The start of bucket `number`, saturating at the latest tick.
    pub(crate) const fn start_of(&self, number: u64) -> Tick {
        Tick::from_nanos(number.saturating_mul(self.bucket_ns))
    }

    /// Creates a limit for [`try_acquire`](Self::try_acquire): at most `limit` tokens in
    /// `interval`.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidSetting`] unless `interval` is a whole number of buckets, at least
    /// one and at most as many as the array has, and `limit` is below 2³¹.
    pub fn quota(&self, interval: Duration, limit: u32) -> Result<Quota, InvalidSetting> {
        let buckets = nanos(interval) / self.bucket_ns;
        self.quota_in(interval, u32::try_from(buckets).unwrap_or(u32::MAX), limit)
    }

    /// Creates a limit with coarser buckets than the array: at most `limit` tokens in `interval`,
    /// which is divided into `buckets` parts. Each part consists of whole buckets of the array.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidSetting`] in the same cases as [`quota`](Self::quota), and also unless
    /// `buckets` divides `interval` into whole buckets of the array.
    pub fn quota_in(
        &self,
        interval: Duration,
        buckets: u32,
        limit: u32,
    ) -> Result<Quota, InvalidSetting> {
        let length = nanos(interval);
        let span = length / self.bucket_ns;
        if length % self.bucket_ns != 0 || span == 0 || span > u64::from(self.buckets.get()) {
            return Err(InvalidSetting::not_on_grid(interval, self));
        }
        if buckets == 0 || span % u64::from(buckets) != 0 {
            return Err(InvalidSetting::not_in_grid_buckets(interval, buckets, self));
        }
        if limit > MAX_TOKENS {
            return Err(InvalidSetting::limit(limit));
        }
        Ok(Quota::new(
            buckets,
            span as u32 / buckets,
            limit,
            Lending::All,
        ))
    }

    /// Adds `weight` without checking any quota, to count tokens that have been spent already.
    ///
    /// Costs one atomic addition. An addition that coincides with the closing of a bucket
    /// counts in that bucket or in the next one.
    pub fn add(&self, now: Tick, weight: u32) {
        // A public array is never replaced.
        let _ = self.add_at(self.bucket_number(now), weight);
    }

    /// Takes `weight` tokens if every quota has room for them, and none otherwise.
    ///
    /// Costs one load per quota and one compare-and-swap. A refusal takes nothing, and computes the
    /// time at which there is room. `weight` = 0 passes while no quota is exceeded, and counts
    /// nothing.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] by the first quota that has no room.
    ///
    /// # Panics
    ///
    /// Panics if a quota spans more buckets than this array keeps, because another array created
    /// it.
    #[inline]
    pub fn try_acquire(&self, now: Tick, weight: u32, quotas: &[Quota]) -> Result<(), Refusal> {
        match self.acquire(now, weight, quotas) {
            Ok(_) => Ok(()),
            Err(Denied::Full(index)) => Err(self.refusal(now, weight, quotas, index)),
            // A public array is never replaced.
            Err(Denied::Reloaded) => Err(Refusal::new(0, now, None)),
        }
    }

    /// Panics if a quota spans more buckets than this array keeps.
    pub(super) fn check(&self, quotas: &[Quota]) {
        let reach = self.reach();
        for quota in quotas {
            assert!(
                quota.span() <= reach,
                "a quota over {} buckets was made for another array: this one has {reach}",
                quota.span(),
            );
        }
    }

    /// The maximum number of buckets that a quota on this array can span.
    pub(crate) const fn reach(&self) -> u32 {
        self.cut_mask
    }

    // --- reading words ---

    /// Returns whether a reload has replaced this array with another one.
    pub(super) fn has_moved(&self) -> bool {
        self.load_head().is_frozen()
    }

    /// Loads the head. Acquire: a thread that sees a head also sees the checkpoints published
    /// before it.
    #[inline]
    pub(super) fn load_head(&self) -> HeadWord {
        HeadWord(self.words.head.load(Ordering::Acquire))
    }

    /// Replaces the head with `to`, unless it has changed since `from` was read. Returns whether it
    /// was replaced.
    #[inline]
    pub(super) fn swap_head(&self, from: HeadWord, to: HeadWord) -> bool {
        if planted(Bug::BlindTake) && from.is_open() && to.is_open() {
            let more = HeadWord::tokens(to.granted().wrapping_sub(from.granted()));
            self.words.head.fetch_add(more, Ordering::AcqRel);
            return true;
        }
        let (from, to) = (from.0, to.0);
        // The acquire pairs with the release of the thread that opened the bucket. The release
        // pairs with the loads in `load_head`.
        let swapped =
            (self.words.head).compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        swapped.is_ok()
    }

    /// The full number of the bucket of `head`.
    ///
    /// Invariant: before the head leaves a bucket, `newest` is at least that bucket. So `newest` is
    /// at most one move behind, and the distance of the stamps gives the difference.
    pub(super) fn number(&self, head: HeadWord) -> u64 {
        let newest = self.words.newest.load(Ordering::Acquire);
        let bucket = newest.wrapping_add_signed(distance(head.stamp(), stamp(newest)));
        if newest < bucket {
            self.words.newest.fetch_max(bucket, Ordering::AcqRel);
        }
        bucket
    }

    /// The tokens granted before `bucket` opened; `None` if that is not known, because the bucket
    /// is too old or has not opened yet.
    #[inline]
    pub(super) fn cut(&self, bucket: u64) -> Option<u32> {
        self.whole_cut(bucket).map(Checkpoint::value)
    }

    /// Like [`cut`](Self::cut), but returns the checkpoint with its flags.
    #[inline]
    pub(super) fn whole_cut(&self, bucket: u64) -> Option<Checkpoint> {
        let cut = Checkpoint(self.cut_cell(bucket).load(Ordering::Acquire));
        (cut.stamp() == stamp(bucket)).then_some(cut)
    }

    /// Returns the slot of the checkpoint of `bucket`. Other buckets share this slot.
    #[inline]
    pub(super) fn cut_cell(&self, bucket: u64) -> &AtomicU64 {
        match &self.more {
            None => &self.words.cuts[bucket as usize % SMALL_CUTS],
            Some(more) => &more[(bucket as u32 & self.cut_mask) as usize],
        }
    }

    /// Returns the cell of the tokens held for `bucket`. Other buckets share this cell.
    pub(super) fn loan_cell(&self, bucket: u64) -> &AtomicU64 {
        let place = (bucket as u32 & self.loan_mask) as usize;
        match &self.more {
            None => &self.words.loans[place % SMALL_LOANS],
            Some(more) => &more[self.cut_mask as usize + 1 + place],
        }
    }

    /// Iterates over the buckets ahead of `bucket`, nearest first, with their loan cells.
    pub(super) fn loan_cells(
        &self,
        bucket: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, &AtomicU64)> {
        let cells = match &self.more {
            None => &self.words.loans[..],
            Some(more) => &more[self.cut_mask as usize + 1..],
        };
        (1..=self.ahead()).map(move |ahead| {
            let target = bucket.wrapping_add(ahead);
            (target, &cells[(target as u32 & self.loan_mask) as usize])
        })
    }

    /// The number of buckets ahead for which tokens can be held.
    pub(super) const fn ahead(&self) -> u64 {
        self.loan_mask as u64 + 1
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_two_buckets_is_one_cache_line() {
        assert_eq!(size_of::<Words>(), 64);
        let array = LeapArray::new(Duration::from_secs(1), 2).unwrap();
        assert!(array.more.is_none());
        assert_eq!(array.footprint(), 64 + 40);
    }

    #[test]
    fn tokens_of_a_closed_bucket_stay_spent() {
        let at = Tick::from_millis;
        let array = LeapArray::new(Duration::from_secs(1), 2).unwrap();
        let limit = [array.quota(Duration::from_secs(1), 10).unwrap()];
        let first = array.acquire(at(700), 4, &limit).unwrap();
        assert_eq!(first.bucket, 1); // [500, 1000)
        assert!(array.refund_at(first.bucket, 4));
        let second = array.acquire(at(900), 4, &limit).unwrap();
        assert_eq!(array.sum(at(1_000)), 4);
        assert!(!array.refund_at(second.bucket, 4));
    }
}
