//! A count of a breaker in one word, stamped with the version of the breaker to which it belongs.
//!
//! A call that ends changes the count by one compare-and-swap. In any other version, the count
//! reads as zero. A count that would not change is not written: as long as all calls are good,
//! their ends write nothing.
//!
//! So the ends of calls have a total order: the order of their swaps or, for a call that changes
//! nothing, of its load. Each call gets the count as of its position in this order.
//!
//! As in a [window](super::window), a call first reads the count and then checks whether its
//! version is over. If it is not over, the count that was read is not of a newer version.

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};

/// The bits of the version.
const VERSION_BITS: u32 = 16;
const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;

/// The number of bits of a count.
pub(super) const COUNT_BITS: u32 = u64::BITS - VERSION_BITS;

/// `[ count:48 | version:16 ]`, see the [module](self).
#[derive(Debug)]
pub(super) struct Stamped(AtomicU64);

/// The fields of the word.
#[derive(Clone, Copy)]
struct CountWord(u64);

// === impl CountWord ===

impl CountWord {
    const fn new(count: u64, version: u16) -> Self {
        Self(count << VERSION_BITS | version as u64)
    }

    /// The count of this version; 0 if the word was written in another version.
    const fn count(self, version: u16) -> u64 {
        if self.0 & VERSION_MASK == version as u64 {
            self.0 >> VERSION_BITS
        } else {
            0
        }
    }
}

// === impl Stamped ===

impl Stamped {
    /// Creates a count of 0.
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Changes the count of `version` to the result of `next`, and returns it. If `is_over` reports
    /// a newer version, returns `None` and changes nothing.
    pub(super) fn update(
        &self,
        version: u16,
        is_over: impl Fn() -> bool,
        next: impl Fn(u64) -> u64,
    ) -> Option<u64> {
        loop {
            let found = self.look();
            if is_over() && !planted(Bug::CountInAnyGeneration) {
                return None;
            }
            let before = found.count(version);
            let count = next(before);
            debug_assert!(count >> COUNT_BITS == 0, "{count} is too much for its bits");
            if count == before || self.swap(found, CountWord::new(count, version)) {
                return Some(count);
            }
        }
    }

    /// The count of `version`.
    pub(super) fn count(&self, version: u16) -> u64 {
        self.look().count(version)
    }

    /// Empties the count if it has the stamp of `version`, before that version begins. Leaves it
    /// unchanged if `is_over` reports that another change was faster.
    pub(super) fn forget(&self, version: u16, is_over: impl Fn() -> bool) {
        loop {
            let found = self.look();
            // `is_over` is called after the count was read, as in `update`.
            if found.count(version) == 0
                || is_over()
                || self.swap(found, CountWord::new(0, version))
            {
                return;
            }
        }
    }

    /// Reads the word. Acquire: pairs with the release in `swap`.
    fn look(&self) -> CountWord {
        CountWord(self.0.load(Ordering::Acquire))
    }

    /// Replaces the word with `to` if it is still `from`. Returns whether it was replaced. Release:
    /// pairs with the acquire of a thread that reads the new word.
    fn swap(&self, from: CountWord, to: CountWord) -> bool {
        if planted(Bug::BlindStamped) {
            self.0.store(to.0, Ordering::Release);
            return true;
        }
        self.0
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn add(word: &Stamped, version: u16, more: u64) -> Option<u64> {
        word.update(version, || false, |count| count + more)
    }

    #[test]
    fn another_version_begins_with_a_count_of_0() {
        let word = Stamped::new();
        assert_eq!(add(&word, 0xffff, 1), Some(1));
        assert_eq!(add(&word, 0xffff, 2), Some(3));
        assert_eq!(add(&word, 0, 1), Some(1));
        // Adding nothing leaves the count of another version alone.
        assert_eq!(add(&word, 1, 0), Some(0));
        assert_eq!(add(&word, 0, 1), Some(2));
    }

    #[test]
    fn a_repeated_stamp_is_emptied() {
        let word = Stamped::new();
        assert_eq!(add(&word, 1, 1), Some(1));
        word.forget(2, || false);
        assert_eq!(add(&word, 1, 1), Some(2), "another stamp");
        word.forget(1, || true);
        assert_eq!(add(&word, 1, 1), Some(3), "another change was faster");
        word.forget(1, || false);
        assert_eq!(add(&word, 1, 1), Some(1));
    }

    #[test]
    fn a_call_whose_version_is_over_changes_nothing() {
        let word = Stamped::new();
        assert_eq!(add(&word, 1, 1), Some(1));
        assert_eq!(word.update(1, || true, |_| 7), None);
        assert_eq!(word.update(2, || true, |_| 7), None);
        assert_eq!(add(&word, 1, 1), Some(2));
    }

    #[test]
    fn a_count_has_48_bits() {
        let word = Stamped::new();
        let most = (1 << COUNT_BITS) - 1;
        assert_eq!(add(&word, 0xffff, most), Some(most));
        assert_eq!(add(&word, 0xffff, 0), Some(most));
        assert_eq!(add(&word, 0xfffe, 0), Some(0));
    }
}
