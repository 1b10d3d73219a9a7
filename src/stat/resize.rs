//! Moves the counts of an array into an array of another shape.
//!
//! A reload may need different buckets or a longer window. The old array is *frozen* first: one
//! compare-and-swap marks the head. From then on the swaps of takers, refunders and helpers fail,
//! and these report that the array has been replaced. The tokens granted up to that instant are in
//! the marked word, so none are lost, and no call passes on the old array without being counted in
//! the new one.
//!
//! The new array continues the counts of the old one. A token of the old bucket `b` counts in the
//! newest of the new buckets that overlap `b`, which errs on the side of refusing:
//!
//! ```text
//! old  |  3  |  4  |  1  |  0  |  2  |      500 ms each
//! new  |      7    |      1    |   2        1 s each
//! ```
//!
//! Counts beyond the reach of the old array are lost: a rule with a longer window than all earlier
//! ones starts with the counts that are left. Held tokens stay held for their start time, even if
//! it is further ahead than the new shape allows. In that case earlier tokens leave the window
//! before the waiting call starts.

use super::leap_array::{Grid, LeapArray, Reloaded};
use super::packed::{Checkpoint, HeadWord, LoanCell, swap};
use crate::base::sync::{Bug, Ordering, planted};
use crate::clock::Tick;

/// The maximum number of buckets ahead for which a new array takes over held tokens. Each costs
/// memory, and time whenever a bucket opens. Tokens held for a bucket further ahead are moved to
/// the last bucket in this range.
const MOST_HELD: u64 = 4_096;

/// The counts of an array as of the moment when it was frozen.
#[derive(Debug)]
struct Image<'a> {
    old: &'a LeapArray,
    newest: u64,
    granted: u32,
    /// The tokens held, each number with its bucket of the old array.
    held: Vec<(u64, u32)>,
}

impl LeapArray {
    /// Freezes this array and returns an array of another shape that continues its counts. Only one
    /// caller at a time may move an array. Moving a frozen array again gives the same counts.
    pub(crate) fn move_to(&self, grid: Grid, now: Tick) -> LeapArray {
        // Advance the array first, so that held tokens that are due count in their buckets.
        let _: Result<u64, Reloaded> = self.bring_to(now);
        let image = self.freeze();
        image.cast(grid, now)
    }

    /// Freezes the array, and returns its counts as of that moment.
    fn freeze(&self) -> Image<'_> {
        let head = loop {
            let head = self.load_head();
            if planted(Bug::FreezeWithoutMark) || self.swap_head(head, head.frozen()) {
                break head;
            }
        };
        let newest = self.number(head);
        let mut held = Vec::new();
        for ahead in 1..=self.ahead() {
            let target = newest.wrapping_add(ahead);
            let count = self.seal_for_good(newest, target);
            if count > 0 {
                held.push((target, count));
            }
        }
        Image {
            old: self,
            newest,
            granted: head.granted(),
            held,
        }
    }

    /// Seals the cell of `target`, so that a loan in progress fails. Returns the tokens that the
    /// cell holds.
    fn seal_for_good(&self, newest: u64, target: u64) -> u32 {
        let cell = self.loan_cell(target);
        loop {
            let found = LoanCell(cell.load(Ordering::Acquire));
            let count = self.count_in(found, newest, target);
            if swap(cell, found.0, LoanCell::open(count, newest).sealed().0) {
                return count;
            }
        }
    }
}

impl Image<'_> {
    /// Converts the counts to an array of the shape `grid`.
    fn cast(&self, grid: Grid, now: Tick) -> LeapArray {
        let bucket_of = |old: u64| self.old.start_of(old).as_nanos() / grid.bucket_ns;
        let newest = (now.as_nanos() / grid.bucket_ns).max(bucket_of(self.newest));
        let mut furthest = 0;
        for &(target, _) in &self.held {
            furthest = furthest.max(bucket_of(target).saturating_sub(newest));
        }
        let ahead = grid.ahead.max(furthest.min(MOST_HELD) as u32);
        let array = LeapArray::with_grid(Grid { ahead, ..grid }, now);

        // No other thread can see the new array yet, so relaxed stores suffice. Tokens whose new
        // bucket is not ahead of the newest one count as taken.
        let mut held = 0_u32;
        for &(target, count) in &self.held {
            let target = bucket_of(target);
            if target > newest {
                let target = target.min(newest + array.ahead());
                let cell = array.loan_cell(target);
                let sum = LoanCell(cell.load(Ordering::Relaxed))
                    .count()
                    .wrapping_add(count);
                cell.store(LoanCell::open(sum, newest).0, Ordering::Relaxed);
                held = held.wrapping_add(count);
            }
        }
        for back in 0..=u64::from(array.reach()) {
            let bucket = newest.wrapping_sub(back);
            let cut = Checkpoint::new(self.taken_before(bucket, grid), bucket, back == 0);
            array.cut_cell(bucket).store(cut.0, Ordering::Relaxed);
        }
        let head = HeadWord::open(self.granted, newest);
        array.words.head.store(head.0, Ordering::Relaxed);
        array.words.newest.store(newest, Ordering::Relaxed);
        array
    }

    /// Returns the tokens that were certainly taken before `bucket`, a bucket of the new array,
    /// began.
    fn taken_before(&self, bucket: u64, grid: Grid) -> u32 {
        // The numbers of buckets before the clock's start wrap. They are treated as starting at 0.
        let start = if (bucket as i64) < 0 {
            0
        } else {
            bucket.saturating_mul(grid.bucket_ns)
        };
        let oldest = self.newest.saturating_sub(u64::from(self.old.reach()));
        let first = (start / self.old.grid().bucket_ns).max(oldest);
        for bucket in first..=self.newest {
            if let Some(cut) = self.old.cut(bucket) {
                return cut;
            }
        }
        let mut held = 0;
        for (_, count) in &self.held {
            held += count;
        }
        self.granted.wrapping_sub(held)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::time::Duration;

    use super::super::quota::{Lending, Quota};
    use super::super::tests::oracle::reserve;
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    /// A shape of buckets of `ms` milliseconds.
    fn grid(ms: u64, buckets: u32) -> Grid {
        Grid {
            bucket_ns: ms * MS,
            buckets,
            ahead: 4,
        }
    }

    /// The counts of the window's buckets, oldest first.
    fn counts(array: &LeapArray, now: Tick) -> Vec<u32> {
        array.buckets(now).map(|(_, count)| count).collect()
    }

    #[test]
    fn counts_move_to_the_newest_coarser_bucket_that_overlaps_theirs() {
        let old = LeapArray::with_grid(grid(500, 5), at(0));
        for (ms, n) in [(0, 3), (500, 4), (1_000, 1), (2_000, 2)] {
            old.add(at(ms), n);
        }
        let new = old.move_to(grid(1_000, 3), at(2_100));
        assert_eq!(counts(&new, at(2_100)), [7, 1, 2]);
        assert_eq!(new.sum(at(3_000)), 3);
        // The old array is closed.
        assert_eq!(
            old.acquire_at(4, 1, &[]),
            Err(super::super::leap_array::Denied::Reloaded)
        );
        assert!(!old.refund_at(4, 1));
    }

    #[test]
    fn counts_move_to_the_newest_finer_bucket_that_overlaps_theirs() {
        let old = LeapArray::with_grid(grid(1_000, 2), at(0));
        old.add(at(900), 5);
        old.add(at(1_100), 2);
        let new = old.move_to(grid(500, 4), at(1_200));
        // The five tokens were taken at some time in [0, 1000), so they count in its newest new
        // bucket, [500, 1000). The two tokens were taken since 1000, so they count in [1000, 1500),
        // which is open.
        assert_eq!(counts(&new, at(1_200)), [0, 5, 2]);
        assert_eq!(new.sum(at(2_500)), 2);
    }

    #[test]
    fn loans_move_to_the_new_array_and_are_taken_when_their_bucket_opens() {
        let old = LeapArray::with_grid(grid(500, 2), at(0));
        let quota = [Quota::new(2, 1, 10, Lending::All)];
        assert!(old.acquire_at(1, 10, &quota).is_ok());
        assert!(
            reserve(&old, at(1_200), 4, &quota, Duration::from_millis(500))
                .0
                .is_ok()
        );
        let new = old.move_to(grid(100, 10), at(1_300));
        assert_eq!(new.waiting(at(1_300)), 4);
        assert_eq!(new.sum(at(1_499)), 10);
        assert_eq!(new.sum(at(1_500)), 14);
        assert_eq!(new.sum(at(2_000)), 4);
    }

    #[test]
    fn loans_move_to_the_longer_bucket_that_contains_their_start() {
        // The loan starts at 1100 ms, which lies in the newest bucket of the new array, or at 1500
        // ms, where the next bucket starts.
        for (taken, waiting) in [(1, 0), (5, 4)] {
            let old = LeapArray::with_grid(grid(100, 10), at(0));
            let quota = [Quota::new(10, 1, 10, Lending::All)];
            assert!(old.acquire_at(taken, 10, &quota).is_ok());
            let now = at(100 * taken + 950);
            let patience = Duration::from_millis(100);
            assert!(reserve(&old, now, 4, &quota, patience).0.is_ok());
            let new = old.move_to(grid(500, 2), now);
            assert_eq!(new.waiting(now), waiting);
            assert_eq!(new.sum(at(1_600)), 4);
            assert_eq!(new.sum(at(2_500)), 0);
        }
    }
}
