//! The sliding window of a breaker: counts of ended calls and of bad calls.
//!
//! ```text
//! head    bucket 8
//! cells   [ bucket 6: 40, 3 bad ][ bucket 7: 38, 1 ][ bucket 8: 9, 2 ]
//! counted 87, 6 bad
//! ```
//!
//! A cell is one word with its counts, their bucket, and the generation of the breaker in which
//! they were made. One compare-and-swap adds to the counts or, if they belong to another bucket or
//! generation, replaces them. So counts are never mixed, and a bucket is never half cleared.
//!
//! A call *first* reads a cell, and then checks that the head and the generation are still those
//! for which it counts. If they are, the value that it read is not of a newer bucket or generation:
//! the writer of a newer value has seen the new head or generation before it wrote, and the call
//! loads both after it has read that value (acquire, pairing with the release of the writer), so
//! its check would fail. If the head or the generation changes after the check, there are two
//! cases. If another call has used the cell since, the swap fails. Otherwise the swap only changes
//! counts that are no longer read.
//!
//! The stamp of a cell, its round of the ring and its generation, distinguishes 2¹² rounds and 2⁸
//! generations. The thread that moves the head rewrites the cells that it skips. The thread that
//! begins a generation empties the cells that still have the stamp of this generation from 2⁸
//! versions ago. So old stamps never look new. A call with a late clock reading counts in the
//! newest bucket. If two calls end at the same time in neighbouring buckets, each can miss the
//! other in its sum; the next call sees both.

use super::counts::{Ended, Sum};
use crate::base::sync::{AtomicU64, Bug, Ordering, planted, words};
use crate::clock::Tick;
use crate::stat::bucket_of;

/// The bits of a count: enough for four times [`MAX_COUNT`](super::spec::MAX_COUNT) calls.
const COUNT_BITS: u32 = 22;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// The bits of a stamp: the round and the generation of a cell.
const TAG_BITS: u32 = 20;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
/// The bits of a round in a stamp.
const ROUND_BITS: u32 = 12;
const ROUND_MASK: u64 = (1 << ROUND_BITS) - 1;
/// The maximum number of rounds of the ring that the head skips at once: fewer than there are
/// stamps of rounds.
const FARTHEST: u64 = ROUND_MASK - 1;

/// The window of one breaker: see the [module](self).
#[derive(Debug)]
pub(super) struct CountWindow {
    /// The newest bucket in which a call has ended.
    head: AtomicU64,
    /// The bucket after the newest bucket with a bad call of any generation; 0 if there was no bad
    /// call.
    after_bad: AtomicU64,
    /// The counts, in a ring of buckets.
    cells: Box<[AtomicU64]>,
    /// The length of one bucket.
    bucket_ns: u64,
}

/// The position of a bucket in the ring.
#[derive(Clone, Copy)]
struct Spot {
    /// The number of the round of the ring.
    round: u64,
    /// The index of the cell.
    place: usize,
}

/// The word of a cell: `[ total:22 | bad:22 | round:12 | generation:8 ]`.
#[derive(Clone, Copy)]
struct WindowCell(u64);

/// Returns the generation with which counts are stamped in this version of the breaker's word.
const fn generation(version: u16) -> u8 {
    version as u8
}

// === impl WindowCell ===

impl WindowCell {
    /// Returns a cell of `round` and `generation` without calls.
    const fn empty(round: u64, generation: u8) -> Self {
        Self((round & ROUND_MASK) << 8 | generation as u64)
    }

    const fn generation(self) -> u8 {
        self.0 as u8
    }

    /// Returns this cell without its counts.
    const fn emptied(self) -> Self {
        Self(self.0 & TAG_MASK)
    }

    /// Returns whether both cells have the same round and generation.
    const fn is_like(self, other: Self) -> bool {
        (self.0 ^ other.0) & TAG_MASK == 0
    }

    /// The counts of the cell.
    const fn sum(self) -> Sum {
        Sum {
            total: self.0 >> (TAG_BITS + COUNT_BITS),
            bad: self.0 >> TAG_BITS & COUNT_MASK,
        }
    }

    /// Returns this cell with another call. If the cell is full, halves both counts to keep the
    /// ratio, or leaves the total unchanged.
    const fn with(self, ended: Ended) -> Self {
        let Sum { mut total, mut bad } = self.sum();
        if total == COUNT_MASK {
            if ended.keeps_ratio {
                (total, bad) = (total / 2, bad / 2);
            } else {
                total -= 1;
            }
        }
        total += 1;
        if ended.is_bad && bad < COUNT_MASK {
            bad += 1;
        }
        Self(total << (TAG_BITS + COUNT_BITS) | bad << TAG_BITS | self.0 & TAG_MASK)
    }
}

// === impl CountWindow ===

impl CountWindow {
    /// Bytes that the window occupies on the heap.
    pub(super) fn heap(&self) -> usize {
        size_of_val(&*self.cells)
    }

    pub(super) fn new(bucket_ns: u64, buckets: u32, now: Tick) -> Self {
        Self {
            head: AtomicU64::new(now.as_nanos() / bucket_ns),
            after_bad: AtomicU64::new(0),
            cells: words(buckets as usize, &mut |_| 0),
            bucket_ns,
        }
    }

    /// Counts a call that ended at `now`, and returns the counts of its generation in the window.
    /// If the window has no bad call, returns zeros without computing the sum. If `is_over` reports
    /// a newer generation, returns `None` and does not count the call.
    pub(super) fn count(&self, now: Tick, ended: Ended, is_over: impl Fn() -> bool) -> Option<Sum> {
        let generation = generation(ended.version);
        // Relaxed: `bucket_of` uses the head only as a guess.
        let newest = self.head.load(Ordering::Relaxed);
        let bucket = bucket_of(now, self.bucket_ns, newest);
        loop {
            let newest = self.reach(bucket);
            let spot = self.spot(newest);
            let empty = WindowCell::empty(spot.round, generation);
            let cell = &self.cells[spot.place];
            let found = WindowCell(cell.load(Ordering::Acquire));
            if is_over() && !planted(Bug::CountInAnyGeneration) {
                return None;
            }
            if self.head() != newest && !planted(Bug::CountBehindHead) {
                continue;
            }
            if ended.is_bad && !planted(Bug::NoteBadAfter) {
                self.note_bad(newest);
            }
            let is_mine = found.is_like(empty) || planted(Bug::CountInAnyGeneration);
            let counted = (if is_mine { found } else { empty }).with(ended);
            // Release: pairs with the load above in a thread that reads this value.
            if cell
                .compare_exchange(found.0, counted.0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                if ended.is_bad && planted(Bug::NoteBadAfter) {
                    self.note_bad(newest);
                }
                return Some(if ended.is_bad || self.may_have_bad(newest) {
                    self.sum(spot, generation)
                } else {
                    Sum::default()
                });
            }
        }
    }

    /// Returns the number of bad calls of the generation of `version` in the window that ends at
    /// `now`. Changes nothing.
    pub(super) fn bad(&self, now: Tick, version: u16) -> u64 {
        let newest = self.head();
        let bucket = bucket_of(now, self.bucket_ns, newest).max(newest);
        if bucket - newest >= self.buckets() {
            // All counts have left the window, even counts whose stamps repeat.
            return 0;
        }
        self.sum(self.spot(bucket), generation(version)).bad
    }

    /// Notes that a bad call is about to be counted in `bucket`.
    fn note_bad(&self, bucket: u64) {
        let after = bucket + 1;
        // Relaxed: the swap that counts the call also publishes this value.
        if self.after_bad.load(Ordering::Relaxed) < after {
            self.after_bad.fetch_max(after, Ordering::Relaxed);
        }
    }

    /// Returns false if the window that ends with the bucket `newest` has no bad call. Then no sum
    /// is needed, because no limit is met without a bad call.
    fn may_have_bad(&self, newest: u64) -> bool {
        self.after_bad.load(Ordering::Relaxed) + self.buckets() > newest + 1
    }

    /// Empties the cells with the stamp of `version`, before the generation of that version begins.
    /// Stops once `is_over` reports that another change of state was faster, because a cell with
    /// this stamp can then belong to the current generation.
    pub(super) fn forget(&self, version: u16, is_over: impl Fn() -> bool) {
        let generation = generation(version);
        for cell in &self.cells {
            loop {
                let found = WindowCell(cell.load(Ordering::Acquire));
                let is_empty = found.emptied().0 == found.0;
                if found.generation() != generation || is_empty {
                    break;
                }
                // `is_over` is called after the cell was read, as in `count`.
                if is_over() && !planted(Bug::ForgetLate) {
                    return;
                }
                let (old, new) = (found.0, found.emptied().0);
                if cell
                    .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
                {
                    break;
                }
            }
        }
    }

    /// Returns the counts of `generation` in the window that ends with the bucket at `newest`. The
    /// cells up to `newest` belong to its round, and the cells after it to the previous round.
    fn sum(&self, newest: Spot, generation: u8) -> Sum {
        let (present, past) = self.cells.split_at(newest.place + 1);
        let mut sum = Sum::default();
        let mut add = |cells: &[AtomicU64], round| {
            let empty = WindowCell::empty(round, generation);
            for cell in cells {
                let found = WindowCell(cell.load(Ordering::Acquire));
                if found.is_like(empty) {
                    let Sum { total, bad } = found.sum();
                    sum.total += total;
                    sum.bad += bad;
                }
            }
        };
        if let Some(round) = newest.round.checked_sub(1) {
            add(past, round);
        }
        add(present, newest.round);
        sum
    }

    /// Moves the head to `bucket`, unless it is already at or beyond it, and empties the cells of
    /// the buckets that it skips. Returns the newest bucket.
    fn reach(&self, bucket: u64) -> u64 {
        let mut head = self.head();
        let mut is_clear = false;
        while head < bucket {
            // After a leap of more than `FARTHEST` rounds, old stamps would look new. So the whole
            // ring is emptied first, and the head moves by one round.
            let is_far = bucket - head > self.buckets() * FARTHEST && !is_clear;
            let next = if is_far && !planted(Bug::LeapWithStamps) {
                self.skip(head + 1, head + self.buckets(), head);
                head + self.buckets()
            } else {
                bucket
            };
            // Release: a thread that sees the new head sees the emptied ring.
            match self
                .head
                .compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) if is_far => is_clear = true,
                Ok(_) => {
                    let first = (head + 1).max((next + 1).saturating_sub(self.buckets()));
                    // The cell of the last bucket is stamped by the first call that counts there.
                    self.skip(first, next - 1, next);
                }
                Err(faster) => {
                    head = faster;
                    continue;
                }
            }
            head = next;
        }
        head
    }

    /// Resets the cells of the buckets from `first` to `last`, which the head skips. Stops once the
    /// head is no longer at `head`.
    fn skip(&self, first: u64, last: u64, head: u64) {
        for bucket in first..=last {
            let spot = self.spot(bucket);
            let (cell, empty) = (&self.cells[spot.place], WindowCell::empty(spot.round, 0));
            if planted(Bug::SkipBehindHead) {
                cell.swap(empty.0, Ordering::AcqRel);
                continue;
            }
            let found = cell.load(Ordering::Acquire);
            if self.head() != head {
                return;
            }
            // If the swap fails, a faster thread has already stamped the cell.
            let _ = cell.compare_exchange(found, empty.0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The newest bucket. Acquire: a thread that sees the head counts in no older bucket.
    fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// The number of buckets in the ring.
    fn buckets(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Returns the position of `bucket`.
    #[inline]
    fn spot(&self, bucket: u64) -> Spot {
        Spot {
            round: bucket / self.buckets(),
            place: (bucket % self.buckets()) as usize,
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// Counts a call, checks the returned sum, and returns the numbers of all calls and of bad
    /// calls in the window.
    fn count(window: &CountWindow, bucket: u64, version: u16, is_bad: bool) -> (u64, u64) {
        let ended = Ended {
            version,
            is_bad,
            keeps_ratio: true,
        };
        let counted = window.count(Tick::from_nanos(bucket), ended, || false);
        let sum = window.sum(window.spot(window.head()), version as u8);
        // If no call was bad, zeros are a valid answer too.
        let is_valid = counted == Some(sum) || (sum.bad == 0 && counted == Some(Sum::default()));
        assert!(is_valid, "{counted:?}, not {sum:?}");
        (sum.total, sum.bad)
    }

    #[test]
    fn buckets_leave_one_by_one() {
        let window = CountWindow::new(1, 3, Tick::from_nanos(10));
        assert_eq!(count(&window, 10, 1, true), (1, 1));
        assert_eq!(count(&window, 11, 1, false), (2, 1));
        assert_eq!(count(&window, 12, 1, true), (3, 2));
        assert_eq!(count(&window, 13, 1, false), (3, 1));
        assert_eq!(count(&window, 15, 1, false), (2, 0));
        // A call with a late clock reading counts in the newest bucket.
        assert_eq!(count(&window, 2, 1, true), (3, 1));
    }

    #[test]
    fn the_sum_is_not_computed_for_a_window_without_a_bad_call() {
        let window = CountWindow::new(1, 3, Tick::from_nanos(10));
        let end = |bucket, is_bad| {
            let ended = Ended {
                version: 1,
                is_bad,
                keeps_ratio: true,
            };
            let now = Tick::from_nanos(bucket);
            window.count(now, ended, || false).unwrap().total
        };
        assert_eq!((end(10, false), end(11, false)), (0, 0));
        assert_eq!((end(11, true), end(13, false)), (3, 3));
        // The bad call has left the window.
        assert_eq!(end(14, false), 0);
    }

    #[test]
    fn a_new_generation_starts_at_zero() {
        let window = CountWindow::new(1, 3, Tick::ZERO);
        assert_eq!(count(&window, 10, 1, true), (1, 1));
        assert_eq!(count(&window, 11, 1, true), (2, 2));
        assert_eq!(count(&window, 11, 2, false), (1, 0));
        assert_eq!(count(&window, 12, 2, false), (2, 0));
    }

    #[test]
    fn repeated_stamps_are_not_confused() {
        for buckets in [1, 2, 7] {
            for jump in [FARTHEST, FARTHEST + 1, ROUND_MASK + 1, 5 * (ROUND_MASK + 1)] {
                for slack in -2..=2_i64 {
                    let window = CountWindow::new(1, buckets, Tick::ZERO);
                    for bucket in 10..20 {
                        count(&window, bucket, 1, true);
                    }
                    let jump = u64::from(buckets) * jump;
                    let bucket = (19 + jump).saturating_add_signed(slack);
                    assert_eq!(count(&window, bucket, 1, false), (1, 0), "{jump} {slack}");
                }
            }
        }
    }

    #[test]
    fn cells_that_are_skipped_lose_their_stamps() {
        // Only odd buckets are used until the stamp of bucket 0 repeats.
        let window = CountWindow::new(1, 2, Tick::ZERO);
        assert_eq!(count(&window, 0, 1, true), (1, 1));
        assert_eq!(count(&window, 1, 1, true), (2, 2));
        for round in 1..=ROUND_MASK + 1 {
            assert_eq!(count(&window, 2 * round + 1, 1, false), (1, 0), "{round}");
        }
    }

    #[test]
    fn only_counts_with_the_stamp_are_forgotten() {
        let window = CountWindow::new(1, 3, Tick::from_nanos(10));
        assert_eq!(count(&window, 10, 5, true), (1, 1));
        assert_eq!(count(&window, 11, 5, true), (2, 2));
        for version in [0, 1, 4, 6] {
            window.forget(version, || false);
        }
        assert_eq!(count(&window, 11, 5, false), (3, 2));
        window.forget(5, || true);
        assert_eq!(count(&window, 11, 5, false), (4, 2), "another was faster");
        // The same stamp, 256 versions later.
        window.forget(256 + 5, || false);
        assert_eq!(count(&window, 11, 256 + 5, false), (1, 0));
    }

    #[test]
    fn a_full_cell_keeps_its_ratio_or_its_bad_calls() {
        for (keeps_ratio, total, bad) in [
            (true, COUNT_MASK / 2 + 1, COUNT_MASK / 8 + 1),
            (false, COUNT_MASK, COUNT_MASK / 4 + 1),
        ] {
            let ended = Ended {
                version: 3,
                is_bad: true,
                keeps_ratio,
            };
            let full = COUNT_MASK << (TAG_BITS + COUNT_BITS) | (COUNT_MASK / 4) << TAG_BITS | 3;
            let cell = WindowCell(full).with(ended);
            assert_eq!(cell.sum(), Sum { total, bad });
            assert!(cell.is_like(WindowCell::empty(0, 3)));
            let emptied = cell.emptied();
            assert_eq!(emptied.sum(), Sum::default());
            assert!(emptied.is_like(cell));
        }
    }

    #[test]
    fn a_cell_full_of_bad_calls_stays_full() {
        let ended = Ended {
            version: 3,
            is_bad: true,
            keeps_ratio: false,
        };
        let (total, bad) = (COUNT_MASK, COUNT_MASK);
        let full = WindowCell(total << (TAG_BITS + COUNT_BITS) | bad << TAG_BITS | 3);
        let cell = full.with(ended);
        assert_eq!(cell.sum(), Sum { total, bad });
        assert!(cell.is_like(full));
    }
}
