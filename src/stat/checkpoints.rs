//! A ring of checkpoints: the values of cumulative counters when each bucket began.
//!
//! ```text
//! counter  block = 912                      only ever added to
//! cuts     [ 7: 900 ][ 8: 905 ][ 6: 897 ]   bucket b at b mod 3
//!
//! counted in bucket 7        = 905 − 900 = 5
//! counted in bucket 8 so far = 912 − 905 = 7
//! ```
//!
//! The first thread that needs a bucket takes its checkpoint (a *cut*, in code), *before* the head
//! moves there. If several threads take it, the first value written is kept. So the checkpoint of
//! bucket `w` never contains an event of `w`: the event adds only after it has seen the head at `w`
//! or beyond, and the checkpoint was read before the head got there. A late event counts in the
//! newest bucket. Counters are never reset, so no event is lost.
//!
//! A checkpoint is `[ value:40 | stamp:24 ]`. Values are the low 40 bits of a counter; their
//! difference is exact as long as one ring of buckets counts less than 2⁴⁰. Two buckets with equal
//! stamps cannot be confused: the head passes through every slot of the ring, and so overwrites a
//! stamp long before it repeats.

use crate::base::sync::{AtomicU64, Bug, Ordering, planted, words};

const STAMP_BITS: u32 = 24;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
/// Checkpoint values are kept modulo 2⁴⁰: this mask selects their bits.
const VALUE_MASK: u64 = (1 << (64 - STAMP_BITS)) - 1;
/// The number of buckets after which stamps repeat. The 16-bit stamps of
/// [extremes](super::extremes) also repeat after this number, because their period divides it.
pub(super) const ROUND: u64 = 1 << STAMP_BITS;
/// The maximum number of buckets that a head skips at once: a quarter of the range that stamps
/// distinguish.
pub(super) const MAX_JUMP: u64 = 1 << (STAMP_BITS - 2);

/// The newest step: a bucket or a second, whichever is shorter. Every event so far counts in this
/// step or in an earlier step.
#[derive(Debug)]
pub(super) struct StepHead(AtomicU64);

impl StepHead {
    pub(super) fn new(step: u64) -> Self {
        Self(AtomicU64::new(step))
    }

    /// The newest step. Acquire: a thread that sees the step sees the checkpoints that were taken
    /// before the head moved there.
    #[inline]
    pub(super) fn step(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Moves from `step` to the next step, once `cut` has taken the checkpoints of the next step.
    /// `cut` gets a function that returns whether the head is still at `step`, and itself returns
    /// false if the head has moved.
    pub(super) fn advance(&self, step: u64, cut: impl FnOnce(u64, &dyn Fn() -> bool) -> bool) {
        if planted(Bug::HeadBeforeCut) {
            self.jump(step, step + 1);
        }
        let stands = || planted(Bug::HeadBeforeCut) || self.step() == step;
        if cut(step + 1, &stands) {
            self.jump(step, step + 1);
        }
    }

    /// Moves from step `from` to step `to` without checkpoints in between.
    pub(super) fn jump(&self, from: u64, to: u64) {
        // On failure a faster thread has moved the head at least as far.
        let _ = self
            .0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Checkpoints of `WORDS` counters at the beginning of the last buckets.
#[derive(Debug)]
pub(super) struct Checkpoints<const WORDS: usize>(Box<[AtomicU64]>);

impl<const WORDS: usize> Checkpoints<WORDS> {
    /// Creates checkpoints of zero at `newest` and at the `slots` − 1 buckets before it.
    pub(super) fn new(slots: u32, newest: u64) -> Self {
        let wide = u64::from(slots);
        Self(words(slots as usize * WORDS, &mut |index| {
            let place = (index / WORDS) as u64;
            let back = (newest % wide + wide - place) % wide;
            newest.wrapping_sub(back) & STAMP_MASK
        }))
    }

    /// The number of buckets whose checkpoints fit into the ring.
    pub(super) const fn slots(&self) -> u64 {
        (self.0.len() / WORDS) as u64
    }

    /// Returns whether all checkpoints have been rewritten since the head, now at `newest`, last
    /// jumped.
    pub(super) fn is_whole(&self, newest: u64) -> bool {
        self.get(newest.wrapping_sub(self.slots() - 1), 0).is_some()
    }

    /// Bytes on the heap.
    pub(super) fn footprint(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Writes the checkpoints of `bucket`. Only for a ring that no other thread can see yet.
    pub(super) fn replace(&self, bucket: u64, value: impl Fn(u32) -> u64) {
        for word in 0..WORDS as u32 {
            let cut = value(word) << STAMP_BITS | bucket & STAMP_MASK;
            self.cell(bucket, word).store(cut, Ordering::Relaxed);
        }
    }

    /// The checkpoint of counter `word` at `bucket`, if it is in its slot.
    pub(super) fn get(&self, bucket: u64, word: u32) -> Option<u64> {
        let cell = self.cell(bucket, word).load(Ordering::Acquire);
        (cell & STAMP_MASK == bucket & STAMP_MASK).then_some(cell >> STAMP_BITS)
    }

    /// The checkpoints of all counters at `bucket`, if they are in their slots.
    pub(super) fn get_all(&self, bucket: u64) -> Option<[u64; WORDS]> {
        let first = (bucket % self.slots()) as usize * WORDS;
        let mut values = [0; WORDS];
        for (value, cell) in values.iter_mut().zip(&self.0[first..]) {
            let cell = cell.load(Ordering::Acquire);
            if cell & STAMP_MASK != bucket & STAMP_MASK {
                return None;
            }
            *value = cell >> STAMP_BITS;
        }
        Some(values)
    }

    /// Writes `value` as the checkpoint of counter `word` at `bucket`, unless there is one already.
    /// `stands` returns whether the head is still where it was when the value was read. Returns
    /// false if the head has moved on.
    pub(super) fn publish(
        &self,
        bucket: u64,
        word: u32,
        value: u64,
        stands: &dyn Fn() -> bool,
    ) -> bool {
        let cell = self.cell(bucket, word);
        let cut = value << STAMP_BITS | bucket & STAMP_MASK;
        loop {
            let found = cell.load(Ordering::Acquire);
            if found & STAMP_MASK == bucket & STAMP_MASK {
                return true;
            }
            // As long as the head is still before `bucket`, the found word belongs to an older
            // bucket.
            if !stands() {
                return false;
            }
            if cell
                .compare_exchange(found, cut, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }

    /// The slot of counter `word` at `bucket`.
    fn cell(&self, bucket: u64, word: u32) -> &AtomicU64 {
        let place = (bucket % self.slots()) as usize;
        &self.0[place * WORDS + word as usize]
    }
}

/// `later − earlier`, both modulo 2⁴⁰.
pub(super) const fn difference(later: u64, earlier: u64) -> u64 {
    later.wrapping_sub(earlier) & VALUE_MASK
}
