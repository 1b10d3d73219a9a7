//! What a breaker counts for a rule on consecutive errors: bad calls since the
//! last good one.
//!
//! One word holds the count and the version of the breaker that it was made in.
//! A bad call adds to it by one compare-and-swap, or starts anew where it finds the
//! count of another version. A good one sets it to zero, and if it is zero writes
//! nothing: while all goes well, calls that end share no write here.
//!
//! So ends have an order, that of their swaps, and of a good call which found
//! nothing to end, that of its look. What a bad call is told is the length of the
//! row that ends with it in this order, whatever runs beside it.
//!
//! As in a [window](super::window), a call looks at the count first and then
//! whether its version is over: if not, what it saw is not newer.

use super::counts::{Ended, Sum};
use crate::sync::{AtomicU64, Bug, Ordering, planted};

const COUNT_SHIFT: u32 = 32;
const VERSION_MASK: u64 = 0xffff;

/// `[ count:32 | –:16 | version:16 ]`, see the [module](self).
#[derive(Debug)]
pub(super) struct Streak(AtomicU64);

#[derive(Clone, Copy)]
struct Row(u64);

// === impl Row ===

impl Row {
    /// Bad calls so far in this version, 0 if it was made in another one.
    const fn count(self, version: u16) -> u32 {
        if self.0 & VERSION_MASK == version as u64 {
            (self.0 >> COUNT_SHIFT) as u32
        } else {
            0
        }
    }

    const fn of(count: u32, version: u16) -> Self {
        Self((count as u64) << COUNT_SHIFT | version as u64)
    }
}

// === impl Streak ===

impl Streak {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts a call that ended, and tells how long the row is that it ends. `None`
    /// if `is_over` says that there is a newer version: then it is counted nowhere.
    pub(super) fn count(&self, ended: Ended, is_over: impl Fn() -> bool) -> Option<Sum> {
        let version = ended.version;
        loop {
            let found = self.look();
            if is_over() && !planted(Bug::CountInAnyGeneration) {
                return None;
            }
            let before = found.count(version);
            let count = if ended.is_bad {
                before.saturating_add(1)
            } else {
                0
            };
            let has_changed = count != before;
            if !has_changed || self.swap(found, Row::of(count, version)) {
                let (total, bad) = (u64::from(count), u64::from(count));
                return Some(Sum { total, bad });
            }
        }
    }

    /// Empties the count if it has the stamp of `version`, before that begins. If
    /// `is_over` says that another change was faster it stays as it is.
    pub(super) fn forget(&self, version: u16, is_over: impl Fn() -> bool) {
        loop {
            let found = self.look();
            // After the look at the count, as in `count`.
            if found.count(version) == 0 || is_over() || self.swap(found, Row::of(0, version)) {
                return;
            }
        }
    }

    fn look(&self) -> Row {
        Row(self.0.load(Ordering::Acquire))
    }

    /// Release: pairs with the look of who finds it.
    fn swap(&self, from: Row, to: Row) -> bool {
        if planted(Bug::BlindStreak) {
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

    fn ends(streak: &Streak, version: u16, is_bad: bool) -> Option<u64> {
        let ended = Ended {
            version,
            is_bad,
            keeps_ratio: false,
        };
        streak.count(ended, || false).map(|sum| sum.bad)
    }

    #[test]
    fn a_good_call_ends_the_row() {
        let streak = Streak::new();
        let told = [true, true, false, true, false, false, true, true, true]
            .map(|is_bad| ends(&streak, 7, is_bad).unwrap());
        assert_eq!(told, [1, 2, 0, 1, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn another_version_begins_with_no_row() {
        let streak = Streak::new();
        assert_eq!(ends(&streak, 0xffff, true), Some(1));
        assert_eq!(ends(&streak, 0xffff, true), Some(2));
        assert_eq!(ends(&streak, 0, true), Some(1));
        // A good call that is the first of its version leaves the old count alone.
        assert_eq!(ends(&streak, 1, false), Some(0));
        assert_eq!(ends(&streak, 1, true), Some(1));
        // A stamp that comes round again.
        streak.forget(1, || true);
        assert_eq!(ends(&streak, 1, true), Some(2), "another change was faster");
        streak.forget(1, || false);
        assert_eq!(ends(&streak, 1, true), Some(1));
    }

    #[test]
    fn a_call_whose_version_is_over_counts_nowhere() {
        let streak = Streak::new();
        assert_eq!(ends(&streak, 1, true), Some(1));
        for is_bad in [true, false] {
            let ended = Ended {
                version: 1,
                is_bad,
                keeps_ratio: false,
            };
            assert_eq!(streak.count(ended, || true), None);
        }
        assert_eq!(ends(&streak, 1, true), Some(2));
    }

    #[test]
    fn a_full_count_stays() {
        let streak = Streak(AtomicU64::new(Row::of(u32::MAX, 3).0));
        assert_eq!(ends(&streak, 3, true), Some(u64::from(u32::MAX)));
        assert_eq!(ends(&streak, 3, false), Some(0));
    }
}
