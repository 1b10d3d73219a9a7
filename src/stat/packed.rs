//! The packed words of a [`LeapArray`](super::LeapArray). Each has 64 bits, so that one
//! compare-and-swap can change all its fields.
//!
//! ```text
//! Head         [ granted:32 | stamp:30 | frozen:1 | sealed:1 ]
//! Checkpoint   [ value:32   | stamp:30 | used:1   | –        ]
//! LoanCell     [ count:32   | stamp:30 | –        | sealed:1 ]
//! ```
//!
//! `granted` is the high half, so that a `fetch_add` can wrap without touching the rest. A stamp is
//! the low 30 bits of a bucket's number; two stamps are only compared for equality or by their
//! signed distance, never by size.

use crate::base::sync::{AtomicU64, Ordering};
use crate::clock::Tick;

/// Set in a sealed head or loan cell.
const SEALED: u64 = 1;
/// Set in the head of an array that has been replaced.
const FROZEN: u64 = 2;
/// Set in the checkpoint of a bucket that was not just stepped over.
const USED: u64 = 2;
/// The bits of a stamp.
const STAMP_BITS: u32 = 30;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

/// The low bits of bucket number `bucket`, as stamped into words.
pub(super) const fn stamp(bucket: u64) -> u32 {
    (bucket & STAMP_MASK) as u32
}

/// Returns how far the stamp `a` is ahead of the stamp `b`, within half their range.
pub(super) const fn distance(a: u32, b: u32) -> i64 {
    ((a.wrapping_sub(b) << (32 - STAMP_BITS)) as i32 >> (32 - STAMP_BITS)) as i64
}

/// Packs a word from the upper half, the stamp of `bucket`, and the two flag bits.
const fn pack(high: u32, bucket: u64, flags: u64) -> u64 {
    (high as u64) << 32 | (stamp(bucket) as u64) << 2 | flags
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn stamp_of(word: u64) -> u32 {
    (word as u32) >> 2
}

/// A division in a function that is not inlined, to keep it out of the fast paths of its callers.
#[cold]
#[inline(never)]
pub(super) const fn divide(number: u64, by: u64) -> u64 {
    number / by
}

/// Returns whether `at` lies in bucket `number`, if each bucket is `bucket_ns` long.
#[inline]
pub(super) const fn holds(number: u64, bucket_ns: u64, at: Tick) -> bool {
    let start = number.wrapping_mul(bucket_ns);
    at.as_nanos().wrapping_sub(start) < bucket_ns
}

/// Returns the number of the bucket that `at` lies in. `guess` should be the newest bucket, which
/// is nearly always right: checking it costs a multiplication, and computing the number a division.
#[inline]
pub(crate) const fn bucket_of(at: Tick, bucket_ns: u64, guess: u64) -> u64 {
    if holds(guess, bucket_ns, at) {
        guess
    } else {
        divide(at.as_nanos(), bucket_ns)
    }
}

/// The word by which admission is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadWord(pub(super) u64);

impl HeadWord {
    /// `weight` tokens as the operand of a `fetch_add` on the word.
    pub(super) const fn tokens(weight: u32) -> u64 {
        (weight as u64) << 32
    }

    pub(super) const fn open(granted: u32, bucket: u64) -> Self {
        Self(pack(granted, bucket, 0))
    }

    /// The tokens granted since creation, modulo 2³²: tokens that have been taken, and tokens that
    /// are held for a later bucket.
    pub(super) const fn granted(self) -> u32 {
        high(self.0)
    }

    /// The stamp of the newest bucket.
    pub(super) const fn stamp(self) -> u32 {
        stamp_of(self.0)
    }

    /// Returns whether calls can take tokens: the word is neither sealed nor frozen.
    pub(super) const fn is_open(self) -> bool {
        self.0 & (SEALED | FROZEN) == 0
    }

    /// Returns whether calls can take tokens in the bucket with this stamp.
    pub(super) const fn is_open_at(self, stamp: u32) -> bool {
        self.0 as u32 == stamp << 2
    }

    /// Returns whether the newest bucket is closed and the next one is being opened.
    pub(super) const fn is_sealed(self) -> bool {
        self.0 & SEALED != 0
    }

    /// Returns whether the array has been replaced by another one.
    pub(super) const fn is_frozen(self) -> bool {
        self.0 & FROZEN != 0
    }

    /// Returns this word with `weight` more granted tokens.
    pub(super) const fn plus(self, weight: u32) -> Self {
        Self(self.0.wrapping_add(Self::tokens(weight)))
    }

    /// Returns this word with `weight` fewer granted tokens.
    pub(super) const fn minus(self, weight: u32) -> Self {
        Self(self.0.wrapping_sub(Self::tokens(weight)))
    }

    pub(super) const fn sealed(self) -> Self {
        Self(self.0 | SEALED)
    }

    /// Returns this word with the mark that the array has been replaced.
    pub(super) const fn frozen(self) -> Self {
        Self(self.0 | FROZEN | SEALED)
    }

    /// Returns this word at another bucket, still sealed.
    pub(super) const fn sealed_at(self, bucket: u64) -> Self {
        Self(pack(self.granted(), bucket, SEALED))
    }
}

/// The tokens granted before a bucket opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint(pub(super) u64);

impl Checkpoint {
    pub(super) const fn new(value: u32, bucket: u64, used: bool) -> Self {
        Self(pack(value, bucket, if used { USED } else { 0 }))
    }

    /// The number of tokens granted before the bucket.
    pub(super) const fn value(self) -> u32 {
        high(self.0)
    }

    pub(super) const fn stamp(self) -> u32 {
        stamp_of(self.0)
    }

    /// Returns whether the bucket was opened by a caller whose time lies in it or before it, and
    /// not just stepped over.
    pub(super) const fn is_used(self) -> bool {
        self.0 & USED != 0
    }
}

/// The tokens held for one future bucket. The stamp is that of the newest bucket when they were
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoanCell(pub(super) u64);

impl LoanCell {
    pub(super) const fn open(count: u32, bucket: u64) -> Self {
        Self(pack(count, bucket, 0))
    }

    /// The number of tokens held.
    pub(super) const fn count(self) -> u32 {
        high(self.0)
    }

    pub(super) const fn stamp(self) -> u32 {
        stamp_of(self.0)
    }

    pub(super) const fn is_sealed(self) -> bool {
        self.0 & SEALED != 0
    }

    pub(super) const fn sealed(self) -> Self {
        Self(self.0 | SEALED)
    }
}

/// Returns whether `weight` more tokens fit under `limit` when `granted − cut` are used.
#[inline]
pub(super) fn fits(granted: u32, cut: u32, weight: u32, limit: u32) -> bool {
    match limit.checked_sub(weight) {
        Some(most) => granted.wrapping_sub(cut) <= most,
        None => false,
    }
}

/// Replaces the word of `cell` if it is still `from`. Returns whether it was replaced.
#[inline]
pub(super) fn swap(cell: &AtomicU64, from: u64, to: u64) -> bool {
    cell.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn distance_is_signed_and_wraps() {
        assert_eq!(distance(5, 3), 2);
        assert_eq!(distance(3, 5), -2);
        assert_eq!(distance(stamp(1 << 30), stamp((1 << 30) - 1)), 1);
        assert_eq!(distance(stamp(0), stamp(u64::MAX)), 1);
    }

    #[test]
    fn tokens_wrap_without_touching_the_rest() {
        let head = HeadWord::open(u32::MAX, 77).sealed();
        let next = head.plus(3);
        assert_eq!(next.granted(), 2);
        assert_eq!(next.stamp(), 77);
        assert!(next.is_sealed() && !next.is_frozen());
        assert_eq!(next.minus(3), head);
    }
}
