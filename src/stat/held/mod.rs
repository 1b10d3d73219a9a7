//! The tokens held for coming buckets, and the buckets that suit a loan, computed in one pass.
//!
//! Each cell is read once, so all sums agree on its value. A check of every coming window takes
//! time proportional to the number of buckets ahead, at most [`MOST_AHEAD`], and not to the square
//! of this number.

use std::ops::Range;

use super::leap_array::{LeapArray, MOST_AHEAD};

/// The maximum number of coming buckets, which is the size of the arrays below.
const MOST: usize = MOST_AHEAD as usize;
/// The number of words with a bit for each of these buckets.
const WORDS: usize = MOST.div_ceil(64);

/// The tokens held for coming buckets, as running sums.
#[derive(Debug)]
pub(super) struct HeldSums {
    /// The bucket after the newest one.
    first: u64,
    /// Element `i` is the sum of the tokens held for the first `i` buckets from `first` on,
    /// wrapping.
    sums: [u32; MOST + 1],
    /// The number of buckets ahead for which the array holds tokens.
    ahead: usize,
}

/// A set of coming buckets, as a bit for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Targets {
    /// The bucket after the newest one.
    first: u64,
    /// Bit `i` stands for the bucket `first + i`.
    bits: [u64; WORDS],
}

// === impl HeldSums ===

impl HeldSums {
    /// Reads the tokens held in `array` while `bucket` is its newest bucket.
    pub(super) fn of(array: &LeapArray, bucket: u64) -> Self {
        let first = bucket.wrapping_add(1);
        let mut all = Self {
            first,
            sums: [0; MOST + 1],
            ahead: array.ahead().min(MOST_AHEAD) as usize,
        };
        let mut sum = 0_u32;
        for (place, (_, count)) in all.sums[1..].iter_mut().zip(array.held_ahead(bucket)) {
            sum = sum.wrapping_add(count);
            *place = sum;
        }
        all
    }

    /// The tokens held for the buckets from `start` up to but not including `end`. `start` must be
    /// after the newest bucket.
    #[inline]
    pub(super) fn between(&self, start: u64, end: u64) -> u32 {
        self.before(end).wrapping_sub(self.before(start))
    }

    /// The tokens held for the buckets before `bucket`.
    #[inline]
    fn before(&self, bucket: u64) -> u32 {
        let ahead = bucket.saturating_sub(self.first);
        self.sums[ahead.min(self.ahead as u64) as usize]
    }
}

// === impl Targets ===

impl Targets {
    /// Creates the set of the buckets in `from..to` that are after `bucket`.
    pub(super) fn new(bucket: u64, from: u64, to: u64) -> Self {
        let mut all = Self {
            first: bucket + 1,
            bits: [u64::MAX; WORDS],
        };
        all.remove(all.first..from);
        all.remove(to..u64::MAX);
        all
    }

    /// Removes `targets` from the set.
    pub(super) fn remove(&mut self, targets: Range<u64>) {
        let place = |target: u64| target.saturating_sub(self.first).min(MOST_AHEAD) as usize;
        let (mut start, end) = (place(targets.start), place(targets.end));
        // Each round clears the bits of the range that are in one word.
        while start < end {
            let (word, low) = (start / 64, start % 64);
            let len = (64 - low).min(end - start);
            self.bits[word] &= !(u64::MAX >> (64 - len) << low);
            start += len;
        }
    }

    /// The first bucket of the set that is not before `bucket`.
    pub(super) fn next(&self, bucket: u64) -> Option<u64> {
        let from = bucket.saturating_sub(self.first).min(MOST_AHEAD) as usize;
        (from / 64..WORDS).find_map(|number| {
            let low = from.saturating_sub(64 * number);
            let word = self.bits[number] & (u64::MAX << low);
            let place = word.trailing_zeros() as usize;
            (word != 0).then(|| self.first + (64 * number + place) as u64)
        })
    }

    /// The last bucket of the set.
    pub(super) fn last(&self) -> Option<u64> {
        (0..WORDS).rev().find_map(|number| {
            let place = self.bits[number].checked_ilog2()? as usize;
            Some(self.first + (64 * number + place) as u64)
        })
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
