//! Opens buckets: how the head of a ring advances with time.
//!
//! The documentation of [`leap_array`](super::leap_array) describes the steps, and why any thread
//! can take them at any moment.

use super::leap_array::{LeapArray, Reloaded};
use super::packed::{Checkpoint, HeadWord, LoanCell, stamp, swap};
use super::quota::Quota;
use crate::base::sync::{Bug, Ordering, planted};
use crate::clock::Tick;

/// The maximum number of buckets that one move of the head skips: a quarter of the range in which
/// stamps can be distinguished.
const MAX_JUMP: u64 = 1 << 28;

// === impl LeapArray ===

impl LeapArray {
    /// Returns the head and the newest bucket, after opening buckets until the newest one is `now`
    /// or later.
    #[inline]
    pub(super) fn present(&self, now: u64) -> Result<(HeadWord, u64), Reloaded> {
        let head = self.load_head();
        if head.is_open_at(stamp(now)) && self.words.newest.load(Ordering::Relaxed) == now {
            return Ok((head, now));
        }
        self.catch_up(head, now)
    }

    /// Opens buckets until `now` is not ahead of the newest one.
    #[cold]
    fn catch_up(&self, head: HeadWord, now: u64) -> Result<(HeadWord, u64), Reloaded> {
        let mut state = self.with_bucket(head)?;
        loop {
            let (head, bucket) = state;
            if !head.is_sealed() && bucket >= now {
                return Ok(state);
            }
            state = match self.advance(head, bucket, now) {
                Some(state) => state,
                None => self.with_bucket(self.load_head())?,
            };
        }
    }

    /// Returns `head` with its bucket.
    fn with_bucket(&self, head: HeadWord) -> Result<(HeadWord, u64), Reloaded> {
        if head.is_frozen() {
            return Err(Reloaded);
        }
        Ok((head, self.number(head)))
    }

    /// Advances the array to `now`, so that held tokens that are due are taken. Returns its newest
    /// bucket.
    pub(crate) fn bring_to(&self, now: Tick) -> Result<u64, Reloaded> {
        let (_, bucket) = self.present(self.bucket_number(now))?;
        Ok(bucket)
    }

    /// Makes one attempt to open the bucket after `bucket`, the bucket of `head`, or to step or
    /// jump towards `now`. Returns the new head and its bucket; `None` if another thread moved the
    /// head, so that the caller must load it again.
    #[cold]
    pub(super) fn advance(&self, head: HeadWord, bucket: u64, now: u64) -> Option<(HeadWord, u64)> {
        let sealed = if head.is_sealed() || planted(Bug::OpenWithoutSeal) {
            head
        } else if self.swap_head(head, head.sealed()) {
            head.sealed()
        } else {
            return None;
        };
        let held = self.seal_loans(sealed, bucket)?;

        let ring = u64::from(self.cut_mask) + 1;
        let is_far = now.saturating_sub(bucket) > ring + self.ahead();
        // True if all checkpoints have been rewritten since the last jump, so that no slot has a
        // stamp from before it.
        let is_whole = || self.cut((bucket + 1).wrapping_sub(ring)).is_some();
        if is_far && held == 0 && is_whole() {
            // The array was idle for longer than the ring. The head jumps only to `now − ring`, so
            // that the ordinary steps from there rewrite every checkpoint.
            let target = (now - ring).min(bucket + MAX_JUMP);
            return self.move_head(sealed, sealed.sealed_at(target), target);
        }

        if held == 0 && bucket.wrapping_add(1) < now {
            return self.step_over(sealed, bucket, now);
        }
        let next = bucket.wrapping_add(1);
        let held = if planted(Bug::HeldStayBehind) {
            0
        } else {
            held
        };
        let cut = Checkpoint::new(sealed.granted().wrapping_sub(held), next, next >= now);
        if !self.publish(sealed, next, cut) {
            return None;
        }
        self.move_head(sealed, HeadWord::open(sealed.granted(), next), next)
    }

    /// Moves the head to `bucket`; `None` if another thread has moved it.
    fn move_head(&self, from: HeadWord, to: HeadWord, bucket: u64) -> Option<(HeadWord, u64)> {
        if !self.swap_head(from, to) {
            return None;
        }
        self.words.newest.fetch_max(bucket, Ordering::AcqRel);
        Some((to, bucket))
    }

    /// Moves the head over the buckets between `bucket` and `now`, at most a whole ring. No tokens
    /// are held, and the head stays sealed: no call can take or borrow in these buckets, so each
    /// costs only its checkpoint and one move.
    ///
    /// The loan cells stay sealed as of `bucket`. Only a thread that opens a bucket needs the cells
    /// sealed as of the previous bucket, and [`advance`](Self::advance) does that.
    fn step_over(&self, mut sealed: HeadWord, bucket: u64, now: u64) -> Option<(HeadWord, u64)> {
        // After a whole ring the head can jump again. The bucket `now` is not stepped over, because
        // it must be opened.
        let ring = u64::from(self.cut_mask) + 1;
        let end = (now - 1).min(bucket + ring);
        for next in bucket + 1..=end {
            let cut = Checkpoint::new(sealed.granted(), next, false);
            if !self.publish(sealed, next, cut) {
                return None;
            }
            (sealed, _) = self.move_head(sealed, sealed.sealed_at(next), next)?;
        }
        Some((sealed, end))
    }

    /// Seals every loan cell as of `bucket` and returns the number of tokens that the cells hold;
    /// `None` if the head has moved on.
    ///
    /// From then until the head moves, the cells do not change: a loan or a cancellation in
    /// progress finds its cell sealed.
    fn seal_loans(&self, sealed: HeadWord, bucket: u64) -> Option<u32> {
        let mut held = 0_u32;
        for place in 0..=u64::from(self.loan_mask) {
            let cell = self.loan_cell(place);
            held = held.wrapping_add(loop {
                let loan = LoanCell(cell.load(Ordering::Acquire));
                if loan.stamp() == stamp(bucket) && loan.is_sealed() {
                    break loan.count();
                }
                // While the head is at `bucket`, any other stamp is older, even if its number is
                // higher.
                if loan.stamp() != stamp(bucket) && self.load_head() != sealed {
                    return None;
                }
                let count = self.count_in(loan, bucket, place);
                if swap(cell, loan.0, LoanCell::open(count, bucket).sealed().0) {
                    break count;
                }
            });
        }
        Some(held)
    }

    /// Puts `cut` into its slot as the checkpoint of `bucket`, unless a faster thread has already
    /// published one. Returns false if the head has moved on; the slot may then hold any
    /// checkpoint.
    fn publish(&self, sealed: HeadWord, bucket: u64, cut: Checkpoint) -> bool {
        let cell = self.cut_cell(bucket);
        loop {
            let found = Checkpoint(cell.load(Ordering::Acquire));
            if found.stamp() == stamp(bucket) {
                return true;
            }
            // The head never returns to an earlier value. So if it is unchanged, no thread has
            // published a later bucket, and the found word is old.
            if self.load_head() != sealed {
                return false;
            }
            // If the swap fails, a late helper may have written an older checkpoint, so try again.
            if swap(cell, found.0, cut.0) || planted(Bug::SkipPublish) {
                return true;
            }
        }
    }

    /// Advances the head if it is still at `bucket`, where a checkpoint is missing. The head is
    /// then in the middle of a jump by a thread whose clock is at least a ring ahead. This avoids
    /// waiting for that thread.
    #[cold]
    pub(super) fn leave_gap(&self, head: HeadWord, bucket: u64) {
        if self.load_head() == head && !planted(Bug::WaitInGap) {
            // The clock of the thread that jumps is ahead, so this bucket can be stepped over.
            self.advance(head, bucket, bucket.wrapping_add(2));
        }
    }

    /// Advances the head after a checkpoint that `quotas` need was missing. Panics if the quotas
    /// belong to an array with a longer reach, because their checkpoints would never appear.
    #[cold]
    pub(super) fn find_cut(&self, head: HeadWord, bucket: u64, quotas: &[Quota]) {
        self.check(quotas);
        self.leave_gap(head, bucket);
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::super::leap_array::Grid;
    use super::*;

    #[test]
    fn a_jump_costs_one_ring_of_steps() {
        let grid = Grid {
            bucket_ns: 1,
            buckets: 10,
            ahead: 4,
        };
        let array = LeapArray::with_grid(grid, Tick::ZERO);
        let (ring, now) = (u64::from(array.cut_mask) + 1, 2 * MAX_JUMP + 10);
        let expected = [
            MAX_JUMP,
            MAX_JUMP + ring,
            // The second jump leaves a ring to step over.
            now - ring,
            now - 1,
            now,
        ];
        for bucket in expected {
            let head = array.load_head();
            array.advance(head, array.number(head), now);
            assert_eq!(array.newest(), bucket);
        }
        assert!(array.load_head().is_open());
    }
}
