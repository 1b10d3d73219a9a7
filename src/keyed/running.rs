//! Calls at once: how many of a key run, and under which owner of the slot.
//!
//! ```text
//! bit 63          32 31           0
//!     [    epoch    ][   running   ]
//! ```
//!
//! A key that has calls in flight is not at rest and keeps its slot, so a call
//! that ends finds its own count. A count of 0 looks the same for every owner;
//! the epoch, one more for each, tells them apart: a call that has read the 0 of
//! one owner cannot count itself in with the next. It comes round after 2³²
//! owners of one slot, which a thread would have to sleep through within one
//! call.

use super::Judge;
use crate::base::sync::{Bug, planted};

const COUNT: u64 = u32::MAX as u64;

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    limit: u32,
    n: u32,
}

impl Running {
    /// A call that takes `n` places of a key that has `limit`.
    pub(super) const fn new(limit: u32, n: u32) -> Self {
        Self { limit, n }
    }
}

/// The word without the `n` places of a call that ends.
pub(super) fn free(word: u64, n: u32) -> Option<u64> {
    let is_running = word & COUNT >= u64::from(n);
    debug_assert!(is_running, "a call in flight pins its slot");
    is_running.then(|| word - u64::from(n))
}

impl Judge for Running {
    #[inline]
    fn take(self, word: u64) -> Result<u64, Option<u64>> {
        if self.n > self.limit {
            return Err(None);
        }
        if (word & COUNT) + u64::from(self.n) > u64::from(self.limit) {
            // As soon as a call ends.
            return Err(Some(0));
        }
        Ok(word + u64::from(self.n))
    }

    fn rest(self, word: u64) -> Option<u64> {
        // Nobody knows for how long.
        (word & COUNT == 0).then_some(0)
    }

    fn fresh(self, last: u64) -> u64 {
        let epoch = if planted(Bug::OwnersWithoutEpoch) {
            last >> 32
        } else {
            (last >> 32) + 1
        };
        epoch << 32
    }

    fn left(self, word: u64) -> u32 {
        // The count is in the low half.
        self.limit.saturating_sub(word as u32)
    }
}
