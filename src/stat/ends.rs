//! How many calls have ended, as a number that comes round.

use super::counters::CALL_MASK;

/// How many calls of a node have ended, cancelled ones by their weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends(u64);

impl Ends {
    pub(crate) const fn of(calls: u64) -> Self {
        Self(calls & CALL_MASK)
    }

    /// How many calls have ended since `before`, if they were fewer than 2²⁴.
    pub(crate) const fn since(self, before: Self) -> u64 {
        self.0.wrapping_sub(before.0) & CALL_MASK
    }
}
