//! A lease: permits of one bucket that calls take without asking the store.
//!
//! ```text
//! bits  63 … 20                    19 … 0
//!       ┌──────────────────────────┬───────────────────────────────┐
//!       │ end, in units of 16 µs   │ permits; all ones: exhausted  │
//!       └──────────────────────────┴───────────────────────────────┘
//! ```
//!
//! One word holds the permits and the end of their bucket, so a permit cannot be taken without its
//! end. Every change is a compare-and-swap of the word from which it was computed. So a permit that
//! is taken while the lease is replaced belongs to exactly one of the two leases.
//!
//! Threads share no other data through the cell, so all accesses are relaxed.

use std::time::Duration;

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};
use crate::clock::Tick;

/// The length of a unit of time in nanoseconds. With this unit, 44 bits hold 8.9 years.
const UNIT_NS: u64 = 16_384;
/// The bits of a word that hold permits, which leave 44 bits for the end.
const PERMIT_BITS: u32 = 20;
/// The value of the permit bits that marks a cell as exhausted.
const EXHAUSTED: u32 = (1 << PERMIT_BITS) - 1;
/// The maximum number of permits that a lease can hold.
pub(crate) const MOST_LEASED: u32 = EXHAUSTED - 1;
/// The latest end that a word can hold, in units.
const LAST_UNIT: u64 = u64::MAX >> PERMIT_BITS;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Cell(AtomicU64);

/// The answer of a cell to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseFound {
    /// The call has its permits. They belong to the bucket with this end.
    Taken(BucketEnd),
    /// There are no permits before this time, as far as the process knows.
    Exhausted(Tick),
    /// The cell holds too few permits and is not exhausted, or its bucket is over: the store must
    /// be asked.
    Nothing,
}

/// The end of a bucket, in units of 16 µs. It identifies the bucket of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketEnd(u64);

/// Permits that a [`put`](Cell::put) has left outside of the cell. The caller returns them to the
/// store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PutRest {
    /// New permits that the cell did not accept.
    pub(crate) new: u32,
    /// Permits of an earlier bucket that the new permits have replaced.
    pub(crate) old: u32,
}

/// The content of a cell, unpacked.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word {
    /// The end of the bucket, in units of time.
    end: u64,
    permits: u32,
}

impl Default for BucketEnd {
    /// Returns an end that belongs to no bucket.
    fn default() -> Self {
        Self(u64::MAX)
    }
}

impl BucketEnd {
    /// Creates the end of a bucket that ends at `at`, rounded down to a unit, so that no permit
    /// outlives its bucket.
    pub(crate) fn at(at: Tick) -> Self {
        Self((at.as_nanos() / UNIT_NS).min(LAST_UNIT))
    }

    /// Returns whether the bucket is over at `now`.
    pub(crate) fn is_over(self, now: Tick) -> bool {
        now.as_nanos() / UNIT_NS >= self.0
    }

    pub(crate) const fn tick(self) -> Tick {
        Tick::from_nanos(self.0.saturating_mul(UNIT_NS))
    }

    /// Returns whether `self` and `other` are ends of the same bucket, whose length is `bucket`.
    /// Each trip to the store measures the end again, so the two can differ, by less than half a
    /// bucket.
    pub(crate) fn is_bucket_of(self, other: Self, bucket: Duration) -> bool {
        let bucket = bucket.as_nanos() / u128::from(UNIT_NS);
        u128::from(self.0.abs_diff(other.0)) * 2 < bucket
    }
}

impl Word {
    const fn of(bits: u64) -> Self {
        Self {
            end: bits >> PERMIT_BITS,
            permits: (bits & EXHAUSTED as u64) as u32,
        }
    }

    const fn bits(self) -> u64 {
        self.end << PERMIT_BITS | self.permits as u64
    }

    const fn is_lease(self) -> bool {
        self.permits != EXHAUSTED
    }

    const fn end(self) -> BucketEnd {
        BucketEnd(self.end)
    }
}

impl Cell {
    fn load(&self) -> Word {
        Word::of(self.0.load(Ordering::Relaxed))
    }

    /// Replaces `old` by `new`. Returns the current word if it is not `old`. Can fail spuriously.
    fn swap(&self, old: Word, new: Word) -> Result<(), Word> {
        let swapped = self.0.compare_exchange_weak(
            old.bits(),
            new.bits(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        swapped.map(|_| ()).map_err(Word::of)
    }

    /// Takes `n` permits.
    #[inline]
    pub(crate) fn take(&self, now: Tick, n: u32) -> LeaseFound {
        let mut word = self.load();
        loop {
            if word.end().is_over(now) {
                return LeaseFound::Nothing;
            }
            if !word.is_lease() {
                return LeaseFound::Exhausted(word.end().tick());
            }
            let Some(permits) = word.permits.checked_sub(n) else {
                return LeaseFound::Nothing;
            };
            if planted(Bug::LeaseBareTake) {
                self.0.fetch_sub(u64::from(n), Ordering::Relaxed);
                return LeaseFound::Taken(word.end());
            }
            match self.swap(word, Word { permits, ..word }) {
                Ok(()) => return LeaseFound::Taken(word.end()),
                Err(there) => word = there,
            }
        }
    }

    /// Adds `n` permits of the bucket that ends at `end`. Permits of the same bucket that are
    /// already in the cell are kept. Permits of an earlier bucket are removed. If the cell holds
    /// permits of a later bucket, it does not accept the new ones.
    pub(crate) fn put(&self, end: BucketEnd, n: u32, bucket: Duration) -> PutRest {
        if n == 0 {
            return PutRest::default();
        }
        let mut word = self.load();
        loop {
            let mut left = PutRest::default();
            let has_lease = word.is_lease() && word.permits > 0;
            let new = if has_lease && word.end().is_bucket_of(end, bucket) {
                let room = MOST_LEASED - word.permits;
                left.new = n.saturating_sub(room);
                Word {
                    end: word.end.min(end.0),
                    permits: word.permits + (n - left.new),
                }
            } else if has_lease && word.end > end.0 {
                return PutRest { new: n, old: 0 };
            } else {
                left.old = if has_lease { word.permits } else { 0 };
                left.new = n.saturating_sub(MOST_LEASED);
                Word {
                    end: end.0,
                    permits: n - left.new,
                }
            };
            if planted(Bug::LeaseBlindPut) {
                self.0.store(new.bits(), Ordering::Relaxed);
                return left;
            }
            match self.swap(word, new) {
                Ok(()) => return left,
                Err(there) => word = there,
            }
        }
    }

    /// Removes and returns the unused permits of a lease whose bucket is over.
    pub(crate) fn close(&self, now: Tick) -> Option<(BucketEnd, u32)> {
        let mut word = self.load();
        loop {
            if !word.is_lease() || word.permits == 0 || !word.end().is_over(now) {
                return None;
            }
            if planted(Bug::LeaseBlindClose) {
                self.0.store(0, Ordering::Relaxed);
                return Some((word.end(), word.permits));
            }
            match self.swap(word, Word { permits: 0, ..word }) {
                Ok(()) => return Some((word.end(), word.permits)),
                Err(there) => word = there,
            }
        }
    }

    /// Puts back `n` permits that were taken from the bucket that ends at `end`. Returns whether
    /// the cell has accepted them. It refuses them if their bucket is over, if it now holds permits
    /// of another bucket, or if it has no room.
    pub(crate) fn refund(&self, end: BucketEnd, n: u32, now: Tick, bucket: Duration) -> bool {
        let mut word = self.load();
        loop {
            if end.is_over(now) {
                return false;
            }
            let has_lease = word.is_lease() && word.permits > 0;
            let is_other = has_lease && !word.end().is_bucket_of(end, bucket);
            if is_other && !planted(Bug::LeaseBlindRefund) {
                return false;
            }
            let permits = if has_lease { word.permits } else { 0 };
            if n > MOST_LEASED - permits {
                return false;
            }
            let new = Word {
                end: if has_lease {
                    word.end.min(end.0)
                } else {
                    end.0
                },
                permits: permits + n,
            };
            if planted(Bug::LeaseBlindRefund) {
                self.0.fetch_add(u64::from(n), Ordering::Relaxed);
                return true;
            }
            match self.swap(word, new) {
                Ok(()) => return true,
                Err(there) => word = there,
            }
        }
    }

    /// Removes up to `n` permits of the present lease, and returns them with the end of their
    /// bucket. The caller gives them back to the store.
    pub(crate) fn withdraw(&self, n: u32) -> Option<(BucketEnd, u32)> {
        let mut word = self.load();
        loop {
            let out = word.permits.min(n);
            if !word.is_lease() || out == 0 {
                return None;
            }
            let permits = word.permits - out;
            match self.swap(word, Word { permits, ..word }) {
                Ok(()) => return Some((word.end(), out)),
                Err(there) => word = there,
            }
        }
    }

    /// Marks the cell as exhausted until `until`, unless it holds permits.
    pub(crate) fn exhaust(&self, until: Tick) {
        let new = Word {
            // Rounded up: the cell must not look open before `until`.
            end: (until.as_nanos() / UNIT_NS + 1).min(LAST_UNIT),
            permits: EXHAUSTED,
        };
        let mut word = self.load();
        loop {
            if word.is_lease() && word.permits > 0 && !planted(Bug::LeaseBlindExhaust) {
                return;
            }
            match self.swap(word, new) {
                Ok(()) => return,
                Err(there) => word = there,
            }
        }
    }

    /// Removes the mark that the cell is exhausted, so that the next call asks the store.
    pub(crate) fn reopen(&self) {
        let mut word = self.load();
        while !word.is_lease() {
            match self.swap(word, Word { end: 0, permits: 0 }) {
                Ok(()) => return,
                Err(there) => word = there,
            }
        }
    }

    /// Returns the number of permits in the cell, including permits of a bucket that is over.
    pub(crate) fn left(&self) -> u32 {
        let word = self.load();
        if word.is_lease() { word.permits } else { 0 }
    }

    /// Returns the number of permits that calls can take at `now`, and the end of their bucket.
    pub(crate) fn in_hand(&self, now: Tick) -> Option<(BucketEnd, u32)> {
        let word = self.load();
        let is_there = word.is_lease() && word.permits > 0 && !word.end().is_over(now);
        is_there.then_some((word.end(), word.permits))
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    const BUCKET: Duration = Duration::from_millis(100);

    fn ms(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    fn end(at: u64) -> BucketEnd {
        BucketEnd::at(ms(at))
    }

    #[test]
    fn permits_end_with_their_bucket_and_never_later() {
        let cell = Cell::default();
        assert_eq!(cell.take(ms(1), 1), LeaseFound::Nothing);
        assert_eq!(cell.put(end(100), 5, BUCKET), PutRest::default());
        assert_eq!(cell.take(ms(50), 2), LeaseFound::Taken(end(100)));
        assert_eq!(cell.take(ms(50), 4), LeaseFound::Nothing, "three are left");
        assert_eq!(cell.in_hand(ms(99)), Some((end(100), 3)));
        assert!(end(100).tick() <= ms(100));
        assert_eq!(cell.take(end(100).tick(), 1), LeaseFound::Nothing);
        assert_eq!(cell.close(ms(99)), None);
        assert_eq!(cell.close(ms(100)), Some((end(100), 3)));
        assert_eq!(cell.close(ms(100)), None);
    }

    #[test]
    fn permits_of_one_bucket_add_up_and_a_later_bucket_replaces_them() {
        let cell = Cell::default();
        cell.put(end(100), 5, BUCKET);
        // Another trip has measured the end of the same bucket a little earlier.
        assert_eq!(cell.put(end(98), 2, BUCKET), PutRest::default());
        assert_eq!(cell.in_hand(ms(1)), Some((end(98), 7)));
        assert_eq!(cell.put(end(200), 3, BUCKET), PutRest { new: 0, old: 7 });
        assert_eq!(cell.put(end(100), 4, BUCKET), PutRest { new: 4, old: 0 });
        assert_eq!(cell.in_hand(ms(1)), Some((end(200), 3)));
        assert_eq!(
            cell.put(end(200), u32::MAX - 3, BUCKET).new,
            u32::MAX - MOST_LEASED
        );
        assert_eq!(cell.withdraw(10), Some((end(200), 10)));
    }

    /// The word of an unused cell has an end of 0, which must not be taken for the end of a bucket.
    #[test]
    fn an_unused_cell_takes_permits_while_the_clock_is_near_zero() {
        let cell = Cell::default();
        cell.put(end(40), 5, BUCKET);
        assert_eq!(cell.take(ms(10), 1), LeaseFound::Taken(end(40)));
    }

    #[test]
    fn a_refund_goes_only_to_its_own_bucket() {
        let cell = Cell::default();
        cell.put(end(100), 2, BUCKET);
        let LeaseFound::Taken(of) = cell.take(ms(10), 2) else {
            panic!("there are two");
        };
        cell.exhaust(ms(100));
        assert!(cell.refund(of, 1, ms(20), BUCKET), "it is there again");
        assert_eq!(cell.take(ms(30), 1), LeaseFound::Taken(of));
        assert!(!cell.refund(of, 1, ms(100), BUCKET), "its bucket is over");
        cell.put(end(200), 1, BUCKET);
        assert!(
            !cell.refund(of, 1, ms(50), BUCKET),
            "the lease is of the next"
        );
    }

    #[test]
    fn a_cell_stays_exhausted_until_its_time_or_new_permits() {
        let cell = Cell::default();
        cell.exhaust(ms(100));
        let LeaseFound::Exhausted(until) = cell.take(ms(0), 1) else {
            panic!("there are none");
        };
        assert!(until >= ms(100) && until <= ms(100) + Duration::from_micros(17));
        assert_eq!(cell.take(ms(99), 1), LeaseFound::Exhausted(until));
        assert_eq!(cell.take(until, 1), LeaseFound::Nothing);
        cell.put(end(100), 1, BUCKET);
        cell.exhaust(ms(100));
        assert_eq!(cell.take(ms(99), 1), LeaseFound::Taken(end(100)));
        cell.exhaust(ms(100));
        cell.reopen();
        assert_eq!(cell.take(ms(99), 1), LeaseFound::Nothing);
    }

    #[test]
    fn times_at_the_ends_of_the_range_work() {
        let cell = Cell::default();
        let last = Tick::from_nanos(u64::MAX);
        cell.put(BucketEnd::at(last), 1, BUCKET);
        assert!(matches!(cell.take(ms(1), 1), LeaseFound::Taken(_)));
        cell.exhaust(last);
        assert!(matches!(cell.take(ms(1), 1), LeaseFound::Exhausted(_)));
        assert!(BucketEnd::at(Tick::ZERO).is_over(Tick::ZERO));
    }
}
