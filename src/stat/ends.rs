//! The number of ended calls, as a counter that wraps.

use super::counters::CALL_MASK;

/// The number of ended calls of a node, modulo 2²⁴. Cancelled calls count by weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends(u64);

impl Ends {
    pub(crate) const fn of(calls: u64) -> Self {
        Self(calls & CALL_MASK)
    }

    /// Returns how many calls have ended since `before`, if they are fewer than 2²⁴.
    pub(crate) const fn since(self, before: Self) -> u64 {
        self.0.wrapping_sub(before.0) & CALL_MASK
    }
}
