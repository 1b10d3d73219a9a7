//! What a breaker counts for a rule on consecutive errors: bad calls since the
//! last good one.
//!
//! A good call that follows a good one writes nothing, see [`stamped`](super::stamped).
//! What a bad call is told is the length of the row that ends with it.

use super::counts::{Ended, Sum};
use super::stamped::Stamped;

/// A row counts no further.
const MOST: u64 = u32::MAX as u64;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Streak(Stamped);

impl Streak {
    pub(super) fn new() -> Self {
        Self(Stamped::new())
    }

    /// Counts a call that ended, and tells how long the row is that it ends. `None`
    /// if `is_over` says that there is a newer version: then it is counted nowhere.
    pub(super) fn count(&self, ended: Ended, is_over: impl Fn() -> bool) -> Option<Sum> {
        let next = |row: u64| match ended.is_bad {
            true => MOST.min(row + 1),
            false => 0,
        };
        let row = self.0.update(ended.version, is_over, next)?;
        Some(Sum {
            total: row,
            bad: row,
        })
    }

    /// See [`Stamped::forget`].
    pub(super) fn forget(&self, version: u16, is_over: impl Fn() -> bool) {
        self.0.forget(version, is_over);
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn ends(streak: &Streak, is_bad: bool) -> Option<u64> {
        let ended = Ended {
            version: 7,
            is_bad,
            keeps_ratio: false,
        };
        streak.count(ended, || false).map(|sum| sum.bad)
    }

    #[test]
    fn a_good_call_ends_the_row() {
        let streak = Streak::new();
        let told = [true, true, false, true, false, false, true, true, true]
            .map(|is_bad| ends(&streak, is_bad).unwrap());
        assert_eq!(told, [1, 2, 0, 1, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn a_full_count_stays() {
        let streak = Streak::new();
        streak.0.update(7, || false, |_| MOST - 1);
        for is_bad in [true, true] {
            assert_eq!(ends(&streak, is_bad), Some(MOST));
        }
        assert_eq!(ends(&streak, false), Some(0));
    }
}
