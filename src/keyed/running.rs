//! The word of a key with limited concurrency: the number of its running calls, and an epoch that
//! identifies the owner of the slot.
//!
//! ```text
//! bit 63          32   31    30           0
//!     [    epoch    ][ waits ][   running   ]
//! ```
//!
//! A key that has calls in flight is not at rest and keeps its slot, so a call that ends finds its
//! own count. A count of 0 looks the same for every owner, so each new owner increments the epoch:
//! a call that has read the 0 of one owner cannot count itself with the next owner. The epoch wraps
//! after 2³² owners of one slot. A thread could be misled only if it slept within one call until
//! the epoch has wrapped to exactly the same value.
//!
//! While calls [wait](super::line), `waits` is set. It makes the low half larger than every limit,
//! so that no new call overtakes the line, and the key is not at rest.

use super::Judge;
use super::table::WordPlace;
use crate::base::sync::{Bug, planted};

/// The low half: the count and the mark `waits`.
const LOW: u64 = u32::MAX as u64;
/// The mark that calls wait.
const WAITS: u64 = 1 << 31;
/// The bits of the count, which is also the largest limit.
const COUNT: u64 = WAITS - 1;

/// The judge of a call by the count of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningCall {
    /// The maximum number of places in use.
    limit: u32,
    /// The number of places that the call takes.
    weight: u32,
}

impl RunningCall {
    /// Creates a call that takes `weight` of the `limit` places of a key.
    pub(super) const fn new(limit: u32, weight: u32) -> Self {
        Self { limit, weight }
    }
}

/// The judge of a call that is about to wait: it marks the word, and takes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark;

/// The judge of a call that takes a place ahead of the waiting calls, unless as many calls run as
/// this limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct AheadOfLine(pub(super) u32);

/// The place of the word that counts a call in flight. The call needs nothing else to release its
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinned(u32);

/// Returns the word less the `weight` places of a call that ends.
pub(super) fn release(word: u64, weight: u32) -> Option<u64> {
    let is_running = word & COUNT >= u64::from(weight);
    debug_assert!(is_running, "a call in flight pins its slot");
    is_running.then(|| word - u64::from(weight))
}

/// Returns whether calls of the key wait.
#[inline]
pub(super) const fn is_marked(word: u64) -> bool {
    word & WAITS != 0
}

/// Returns `word` with the mark that calls wait.
pub(super) const fn marked(word: u64) -> u64 {
    word | WAITS
}

/// Returns `word` without the mark that calls wait.
pub(super) const fn unmarked(word: u64) -> u64 {
    word & !WAITS
}

/// Returns the word with one more place taken, for a call that has waited; `None` if `limit` places
/// are taken.
pub(super) fn let_in(word: u64, limit: u32) -> Option<u64> {
    (word & COUNT < u64::from(limit)).then(|| word + 1)
}

impl Pinned {
    pub(crate) const NONE: Self = Self(Self::NOTHING);

    // The numbers that stand for no place and for the shared word. No slot has one of them, because
    // there are at most 2^27 slots.
    const NOTHING: u32 = u32::MAX;
    const OVERFLOW: u32 = u32::MAX - 1;

    /// Packs `place` into a number.
    pub(super) const fn at(place: Option<WordPlace>) -> Self {
        Self(match place {
            None => Self::NOTHING,
            Some(WordPlace::Overflow) => Self::OVERFLOW,
            Some(WordPlace::Slot(slot)) => slot,
        })
    }

    /// Returns the place; `None` if there is none.
    pub(super) const fn place(self) -> Option<WordPlace> {
        match self.0 {
            Self::NOTHING => None,
            Self::OVERFLOW => Some(WordPlace::Overflow),
            slot => Some(WordPlace::Slot(slot)),
        }
    }
}

/// See [`Judge::rest`].
fn rest(word: u64) -> Option<u64> {
    // A key with calls in flight is not at rest. The word holds no time, so all ages at rest are 0.
    (word & LOW == 0).then_some(0)
}

/// Returns the word of a new owner: no call runs, and the epoch is incremented.
fn fresh(last: u64) -> u64 {
    let epoch = if planted(Bug::OwnersWithoutEpoch) {
        last >> 32
    } else {
        (last >> 32) + 1
    };
    epoch << 32
}

impl Judge for Mark {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        Ok(marked(word))
    }

    fn rest(&self, word: u64) -> Option<u64> {
        rest(word)
    }

    fn fresh(&self, last: u64) -> u64 {
        fresh(last)
    }

    fn left(&self, _: u64) -> u32 {
        0
    }
}

impl Judge for AheadOfLine {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        let_in(word, self.0).ok_or(Some(0))
    }

    fn rest(&self, word: u64) -> Option<u64> {
        rest(word)
    }

    fn fresh(&self, last: u64) -> u64 {
        fresh(last)
    }

    fn left(&self, word: u64) -> u32 {
        self.0.saturating_sub((word & COUNT) as u32)
    }
}

impl Judge for RunningCall {
    #[inline]
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        if self.weight > self.limit {
            return Err(None);
        }
        let counted = if planted(Bug::OvertakeLine) {
            COUNT
        } else {
            LOW
        };
        if (word & counted) + u64::from(self.weight) > u64::from(self.limit) {
            // There is room as soon as a call ends, which can happen immediately.
            return Err(Some(0));
        }
        Ok(word + u64::from(self.weight))
    }

    fn rest(&self, word: u64) -> Option<u64> {
        rest(word)
    }

    fn fresh(&self, last: u64) -> u64 {
        fresh(last)
    }

    fn left(&self, word: u64) -> u32 {
        // While calls wait, no place is left, because the mark makes the low half larger than every
        // limit.
        self.limit.saturating_sub(word as u32)
    }
}
