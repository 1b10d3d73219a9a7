//! The counts of a rule on the last calls: which of them were bad, regardless of when they ended.
//!
//! Each call is one bit, and the newest call replaces the oldest:
//!
//! ```text
//! [ –:2 | calls:6 | one bit for each of the last 40, the newest last:40 ]
//!           7       …0110010      seven calls, three of them bad
//! ```
//!
//! All bits are in one [stamped](super::stamped) word. So calls have a total order, and each call
//! sees the last calls as of its end. Once the word has as many calls as the rule counts, and all
//! of them are good, further good calls write nothing. The limit of 40 calls follows from the size
//! of the word.
//!
//! # Source
//!
//! The sliding window by count of resilience4j, with a bit for each call.

use super::counts::{Ended, Sum};
use super::stamped::{COUNT_BITS, Stamped};

/// The maximum number of calls that a rule can count: their bits, their number and a version fit
/// into one word.
pub(crate) const MAX_LAST_CALLS: u32 = 40;

// The number of calls has six bits.
const _: () = assert!(MAX_LAST_CALLS < 1 << 6 && MAX_LAST_CALLS + 6 <= COUNT_BITS);

/// The last calls of one breaker: see the [module](self).
#[derive(Debug)]
pub(super) struct LastCalls {
    /// The [`Calls`], stamped with the version of the breaker.
    word: Stamped,
    /// The number of last calls that count.
    most: u32,
}

/// The fields of the word.
#[derive(Clone, Copy)]
struct Calls(u64);

// === impl Calls ===

impl Calls {
    /// The number of calls in the word.
    const fn total(self) -> u32 {
        (self.0 >> MAX_LAST_CALLS) as u32
    }

    /// A bit for each call, set if the call was bad.
    const fn bits(self) -> u64 {
        self.0 & ((1 << MAX_LAST_CALLS) - 1)
    }

    /// Adds a call, and keeps the last `most` calls.
    fn with(self, is_bad: bool, most: u32) -> Self {
        let total = most.min(self.total() + 1);
        let bits = (self.bits() << 1 | u64::from(is_bad)) & ((1 << most) - 1);
        Self(u64::from(total) << MAX_LAST_CALLS | bits)
    }

    /// The number of calls and of bad calls in the word.
    fn sum(self) -> Sum {
        Sum {
            total: self.total().into(),
            bad: self.bits().count_ones().into(),
        }
    }
}

// === impl LastCalls ===

impl LastCalls {
    /// Creates the counts of a rule on the last `most` calls, between 1 and [`MAX_LAST_CALLS`].
    pub(super) fn new(most: u32) -> Self {
        Self {
            word: Stamped::new(),
            most,
        }
    }

    /// Counts a call that ended. Returns the counts of the last calls, including this one. If
    /// `is_over` reports a newer version, returns `None` and does not count the call.
    pub(super) fn count(&self, ended: Ended, is_over: impl Fn() -> bool) -> Option<Sum> {
        let next = |calls| Calls(calls).with(ended.is_bad, self.most).0;
        let calls = self.word.update(ended.version, is_over, next)?;
        Some(Calls(calls).sum())
    }

    /// The number of bad calls among the last calls of `version`.
    pub(super) fn bad(&self, version: u16) -> u64 {
        Calls(self.word.count(version)).sum().bad
    }

    /// See [`Stamped::forget`].
    pub(super) fn forget(&self, version: u16, is_over: impl Fn() -> bool) {
        self.word.forget(version, is_over);
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// Returns the numbers of calls and of bad calls after each of `ends`.
    fn sums(most: u32, ends: &[bool]) -> Vec<(u64, u64)> {
        let calls = LastCalls::new(most);
        let count = |&is_bad| {
            let ended = Ended {
                version: 7,
                is_bad,
                keeps_ratio: true,
            };
            let sum = calls.count(ended, || false).unwrap();
            (sum.total, sum.bad)
        };
        ends.iter().map(count).collect()
    }

    #[test]
    fn the_newest_call_replaces_the_oldest() {
        let ends = [true, false, true, true, false, false, false];
        let expected = [(1, 1), (2, 1), (3, 2), (3, 2), (3, 2), (3, 1), (3, 0)];
        assert_eq!(sums(3, &ends), expected);
        assert_eq!(sums(1, &[true, false, true]), [(1, 1), (1, 0), (1, 1)]);
    }

    #[test]
    fn the_counts_match_a_list_for_any_number_of_calls() {
        let mut rng = crate::breaker::tests::stage::Rng(17);
        for most in [1, 2, 3, 7, 20, 39, MAX_LAST_CALLS] {
            let ends: Vec<_> = (0..200).map(|_| rng.below(3) == 0).collect();
            let expected = (1..=ends.len()).map(|end| {
                let last = &ends[end.saturating_sub(most as usize)..end];
                let bad = last.iter().filter(|is_bad| **is_bad).count();
                (last.len() as u64, bad as u64)
            });
            assert_eq!(sums(most, &ends), expected.collect::<Vec<_>>(), "of {most}");
        }
        let all = u64::from(MAX_LAST_CALLS);
        assert_eq!(sums(MAX_LAST_CALLS, &[true; 50])[49], (all, all));
    }
}
