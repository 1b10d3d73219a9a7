//! The window of a breaker: ended calls and bad ones, counted while time slides on.
//!
//! ```text
//! head    bucket 8
//! cells   [ bucket 6: 40, 3 bad ][ bucket 7: 38, 1 ][ bucket 8: 9, 2 ]
//! counted 87, 6 bad
//! ```
//!
//! A cell is one word with its counts, the bucket that they are of, and the breaker's generation in
//! which they were made. It is changed by one compare-and-swap that adds to the counts that it
//! finds or, if those are of another bucket or generation, starts anew. So counts are never mixed,
//! and there is no moment at which a bucket is half cleared.
//!
//! A call reads a cell *first*, and then checks that the head and the generation are still those
//! that it counts for. If so, the value that it read is not of a newer bucket or generation: a
//! thread that writes such a value has seen the head or the breaker move before, and both are read
//! after the cell (acquire, pairing with the release of the writer). If they move later, the swap
//! fails if another call has used the cell since; otherwise it only changes counts that are read no
//! more.
//!
//! A cell distinguishes buckets of 2¹² rounds of the ring and generations of 2⁸ versions. The
//! thread that moves the head rewrites the cells that it skips, and the thread that begins a
//! generation empties those that have its stamp, from 2⁸ versions ago: no stamp comes back. A late
//! clock counts in the newest bucket. Calls that end at the same instant in two neighbouring
//! buckets may each miss the other one when they add up; the next call sees both.

use super::counts::{Ended, Sum};
use crate::base::sync::{AtomicU64, Bug, Ordering, planted, words};
use crate::clock::Tick;
use crate::stat::bucket_of;

/// Enough for four times [`MAX_COUNT`](super::spec::MAX_COUNT) calls.
const COUNT_BITS: u32 = 22;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const TAG_BITS: u32 = 20;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const ROUND_BITS: u32 = 12;
const ROUND_MASK: u64 = (1 << ROUND_BITS) - 1;
/// Most rounds of the ring that the head may skip at once: fewer than there are stamps of rounds.
const FARTHEST: u64 = ROUND_MASK - 1;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct CountWindow {
    /// The newest bucket that a call has ended in.
    head: AtomicU64,
    /// The bucket after the newest one with a bad call of any generation; 0 for none.
    after_bad: AtomicU64,
    cells: Box<[AtomicU64]>,
    bucket_ns: u64,
}

/// Where a bucket has its cell, and in which round of the ring.
#[derive(Clone, Copy)]
struct Spot {
    round: u64,
    place: usize,
}

/// `[ total:22 | bad:22 | round:12 | generation:8 ]`
#[derive(Clone, Copy)]
struct WindowCell(u64);

/// The stamp of counts that are made in a version of the breaker's word.
const fn generation(version: u16) -> u8 {
    version as u8
}

// === impl WindowCell ===

impl WindowCell {
    const fn empty(round: u64, generation: u8) -> Self {
        Self((round & ROUND_MASK) << 8 | generation as u64)
    }

    const fn generation(self) -> u8 {
        self.0 as u8
    }

    /// Returns this bucket without its counts.
    const fn emptied(self) -> Self {
        Self(self.0 & TAG_MASK)
    }

    const fn is_like(self, other: Self) -> bool {
        (self.0 ^ other.0) & TAG_MASK == 0
    }

    const fn sum(self) -> Sum {
        Sum {
            total: self.0 >> (TAG_BITS + COUNT_BITS),
            bad: self.0 >> TAG_BITS & COUNT_MASK,
        }
    }

    /// With one more call. In a full cell both counts are halved, or the total
    /// stays where it is.
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
    /// Bytes that it occupies on the heap.
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
    /// If the window has no bad call, returns zeros without adding up. `None` if `is_over` says
    /// that there is a newer generation: then the call is counted nowhere.
    pub(super) fn count(&self, now: Tick, ended: Ended, is_over: impl Fn() -> bool) -> Option<Sum> {
        let generation = generation(ended.version);
        // Only a guess, so any order will do.
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
            // Release: pairs with the load above in the thread that finds it.
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

    /// The bad calls of the generation of `version` in the window that ends at `now`. It
    /// changes nothing.
    pub(super) fn bad(&self, now: Tick, version: u16) -> u64 {
        let newest = self.head();
        let bucket = bucket_of(now, self.bucket_ns, newest).max(newest);
        if bucket - newest >= self.buckets() {
            // All counts have left it, even if a stamp comes round again.
            return 0;
        }
        self.sum(self.spot(bucket), generation(version)).bad
    }

    /// Notes that a bad call is about to be counted in `bucket`.
    fn note_bad(&self, bucket: u64) {
        let after = bucket + 1;
        // Relaxed: a thread that sees the count of the call sees this as well.
        if self.after_bad.load(Ordering::Relaxed) < after {
            self.after_bad.fetch_max(after, Ordering::Relaxed);
        }
    }

    /// False if there is no bad call in the window that ends with the bucket `newest`:
    /// then nothing has to be added up, as no limit is met without one.
    fn may_have_bad(&self, newest: u64) -> bool {
        self.after_bad.load(Ordering::Relaxed) + self.buckets() > newest + 1
    }

    /// Empties the cells with the stamp of `version`, before the generation of that version begins.
    /// Stops once `is_over` says that another change of state was faster: then a cell with that
    /// stamp may be of the present generation.
    pub(super) fn forget(&self, version: u16, is_over: impl Fn() -> bool) {
        let generation = generation(version);
        for cell in &self.cells {
            loop {
                let found = WindowCell(cell.load(Ordering::Acquire));
                let is_empty = found.emptied().0 == found.0;
                if found.generation() != generation || is_empty {
                    break;
                }
                // After the look at the cell, as in `count`.
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

    /// The counts of `generation` in the window that ends with the bucket at `newest`: in its round
    /// up to there, and behind it in the round before.
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

    /// Moves the head to `bucket`, unless it is there or beyond, and empties the cells of the
    /// buckets that it skips. Returns the newest bucket.
    fn reach(&self, bucket: u64) -> u64 {
        let mut head = self.head();
        let mut is_clear = false;
        while head < bucket {
            // After a leap this far, old stamps would look new. So the head first moves on by one
            // round, and the whole ring is emptied.
            let is_far = bucket - head > self.buckets() * FARTHEST && !is_clear;
            let next = if is_far && !planted(Bug::LeapWithStamps) {
                self.skip(head + 1, head + self.buckets(), head);
                head + self.buckets()
            } else {
                bucket
            };
            // Release: a thread that sees the head sees the ring emptied.
            match self
                .head
                .compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) if is_far => is_clear = true,
                Ok(_) => {
                    let first = (head + 1).max((next + 1).saturating_sub(self.buckets()));
                    // The last one is stamped by the first call that counts there.
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
    /// head is not at `head` any more.
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
            // If this fails, a faster thread has stamped the cell already.
            let _ = cell.compare_exchange(found, empty.0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Acquire: a thread that sees the head counts in no older bucket.
    fn head(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    fn buckets(&self) -> u64 {
        self.cells.len() as u64
    }

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

    fn count(window: &CountWindow, bucket: u64, version: u16, is_bad: bool) -> (u64, u64) {
        let ended = Ended {
            version,
            is_bad,
            keeps_ratio: true,
        };
        let told = window.count(Tick::from_nanos(bucket), ended, || false);
        let sum = window.sum(window.spot(window.head()), version as u8);
        // Where no call was bad, it need not be added up.
        let is_told = told == Some(sum) || (sum.bad == 0 && told == Some(Sum::default()));
        assert!(is_told, "{told:?}, not {sum:?}");
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
        // A late clock counts in the newest bucket.
        assert_eq!(count(&window, 2, 1, true), (3, 1));
    }

    #[test]
    fn a_window_without_a_bad_call_is_not_added_up() {
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
        // The bad one has left it.
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
    fn stamps_that_come_round_again_are_not_confused() {
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
        // Only odd buckets are used until the stamp of bucket 0 comes round.
        let window = CountWindow::new(1, 2, Tick::ZERO);
        assert_eq!(count(&window, 0, 1, true), (1, 1));
        assert_eq!(count(&window, 1, 1, true), (2, 2));
        for round in 1..=ROUND_MASK + 1 {
            assert_eq!(count(&window, 2 * round + 1, 1, false), (1, 0), "{round}");
        }
    }

    #[test]
    fn only_what_has_the_stamp_is_forgotten() {
        let window = CountWindow::new(1, 3, Tick::from_nanos(10));
        assert_eq!(count(&window, 10, 5, true), (1, 1));
        assert_eq!(count(&window, 11, 5, true), (2, 2));
        for version in [0, 1, 4, 6] {
            window.forget(version, || false);
        }
        assert_eq!(count(&window, 11, 5, false), (3, 2));
        window.forget(5, || true);
        assert_eq!(count(&window, 11, 5, false), (4, 2), "another was faster");
        // Of the same stamp, 256 versions on.
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
