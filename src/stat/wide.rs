//! The full totals of a node: from narrow counters, and from the totals that were noted last.
//!
//! The counters that each call moves are narrow, as they share words with others. A total is the
//! value nearest to the last noted total that has the low bits of the counter. This is right while
//! the counter moves by less than half of its range from one note to the next. So a thread notes all
//! totals in each second, and those of ended calls also at each 2²⁰th call. Response times only
//! grow, so their total is right for almost the whole range.

use super::counters::{CALL_BITS, CALL_MASK, Counters, RT_BITS};
use super::leap_array::LeapArray;
use crate::base::sync::Ordering;

/// The number of ended calls after which their full number is noted: a sixteenth of the range. The
/// number that is computed from a note is right for half of the range, 2²³ calls. So even if seven
/// threads in a row are held up before they note it, nothing is lost.
pub(super) const CALLS_PER_NOTE: u64 = 1 << (CALL_BITS - 4);

// === impl Counters ===

impl Counters {
    /// Returns `done`, and the full number of the calls in it: `done` has only its low 24 bits, and
    /// more calls than that can end in a bucket.
    ///
    /// The full number is computed from the last one that was noted. If another is noted meanwhile,
    /// both are read again: a thread that is held up between the two reads would otherwise compute
    /// the number from a note that is many calls away.
    pub(super) fn done_and_calls(&self) -> (u64, u64) {
        let mut before = self.calls_before.load(Ordering::Acquire);
        loop {
            // Acquire, for `totals` as well: pairs with the fence in `complete`, so that for each
            // call of weight 0 in `done` its −1 in `extra` is read afterwards.
            let done = self.done.load(Ordering::Acquire);
            let noted = self.calls_before.load(Ordering::Acquire);
            if noted == before {
                return (done, widen(before, done & CALL_MASK, CALL_BITS));
            }
            before = noted;
        }
    }

    /// Returns the calls that ended since the node was created, and the sum of their response times
    /// in µs.
    pub(super) fn ended(&self) -> (u64, u64) {
        let (done, calls) = self.done_and_calls();
        let before = self.rt_before.load(Ordering::Relaxed);
        (calls, widen_up(before, narrow_rt(done, calls), RT_BITS))
    }

    /// Returns the tokens of `ring` that passed since the node was created.
    pub(super) fn passed_in_all(&self, ring: &LeapArray) -> u64 {
        let before = self.passed_before.load(Ordering::Relaxed);
        widen(before, u64::from(ring.taken_now()), 32)
    }

    /// Stores the wide totals. Called once a second, before the narrow counters can wrap.
    pub(super) fn note_totals(&self, ring: &LeapArray) {
        let passed = self.passed_in_all(ring);
        self.passed_before.fetch_max(passed, Ordering::Relaxed);
        self.note_ended();
    }

    /// Stores the wide totals of the calls that ended and of their response times.
    #[cold]
    pub(super) fn note_ended(&self) {
        let (calls, rt_us) = self.ended();
        self.calls_before.fetch_max(calls, Ordering::Relaxed);
        self.rt_before.fetch_max(rt_us, Ordering::Relaxed);
    }
}

/// The response times in `done`, modulo 2⁴⁰, without the carry of its `calls` into them.
pub(super) const fn narrow_rt(done: u64, calls: u64) -> u64 {
    (done >> CALL_BITS).wrapping_sub(calls >> CALL_BITS) & (u64::MAX >> CALL_BITS)
}

/// The wide value nearest to `before` whose low `bits` bits are `narrow`.
const fn widen(before: u64, narrow: u64, bits: u32) -> u64 {
    let shift = 64 - bits;
    let ahead = (narrow.wrapping_sub(before) << shift) as i64 >> shift;
    before.wrapping_add_signed(ahead)
}

/// Like [`widen`], for a total that only grows. It can be ahead of `before` by up to 31/32 of its
/// range. It can be behind by at most 1/32, if another thread has noted a newer total meanwhile.
const fn widen_up(before: u64, narrow: u64, bits: u32) -> u64 {
    let behind = 1 << (bits - 5);
    let ahead = narrow.wrapping_sub(before).wrapping_add(behind) & (u64::MAX >> (64 - bits));
    before.wrapping_add(ahead).wrapping_sub(behind)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn widen_follows_a_narrow_counter_over_its_wrap() {
        let mut wide = 0;
        let mut truth = 0_u64;
        for step in [1, 100, CALL_MASK / 2, 7, CALL_MASK / 2, 3, 0] {
            truth += step;
            wide = widen(wide, truth & CALL_MASK, CALL_BITS);
            assert_eq!(wide, truth);
        }
        // A refund makes the counter smaller.
        assert_eq!(widen(1 << 32, u64::from(u32::MAX), 32), (1 << 32) - 1);
    }

    #[test]
    fn widen_up_follows_growth_by_more_than_half_of_the_range() {
        let mut wide = 0;
        let mut truth = 0_u64;
        for step in [1, (31 << 35) - 1, 7, 20 << 35, 0] {
            truth += step;
            wide = widen_up(wide, truth & (u64::MAX >> CALL_BITS), RT_BITS);
            assert_eq!(wide, truth);
        }
        // A value that was read before another thread noted a newer total.
        assert_eq!(widen_up(1 << 40, (1 << 40) - 5, RT_BITS), (1 << 40) - 5);
    }
}
