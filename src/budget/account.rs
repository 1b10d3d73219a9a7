//! The cost of one call by one rule: what was charged, and what is left of its reservation.
//!
//! ```text
//! [ told : 1 | charged : 31 | rest of the reservation : 32 ]
//! ```
//!
//! Several threads may charge and settle at once. Each of them swaps the word first, so it alone has
//! what it took out of the rest, and returns it as a [`Posting`]: units to book in the window, and
//! units to release from the gauge after that.

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};
use crate::stat::MAX_TOKENS;

/// The largest cost that is booked at once, unless more is reserved: as the weight of a call.
const MOST_AT_ONCE: u32 = crate::call::Call::MAX_WEIGHT;

const TOLD: u64 = 1 << 63;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Account(AtomicU64);

/// The effect of a charge on the window and the gauge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Posting {
    /// To be booked in the window, first.
    pub(crate) book: u32,
    /// To be released from the gauge, second.
    pub(crate) release: u32,
    /// What is left of the reservation.
    pub(super) rest: u32,
    /// What was told beyond the largest cost that is booked at once.
    pub(crate) cut: u32,
}

/// What a call that has ended has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CostTold {
    /// That it cost this in all.
    Cost(u32),
    /// Nothing, as it has failed.
    Failure,
    Nothing,
}

#[derive(Clone, Copy)]
struct AccountState(u64);

// === impl Account ===

impl Account {
    pub(crate) fn new(reserved: u32) -> Self {
        Self(AtomicU64::new(reserved.into()))
    }

    /// What is left of the reservation.
    pub(crate) fn rest(&self) -> u32 {
        self.load().rest()
    }

    /// Returns whether nothing is reserved.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest() == 0
    }

    /// The call has cost `units` more. None say nothing.
    pub(super) fn charge(&self, units: u32) -> Posting {
        if units == 0 {
            return Posting {
                rest: self.rest(),
                ..Posting::default()
            };
        }
        self.change(&|found| {
            let book = units.min(MOST_AT_ONCE.max(found.rest()));
            let next = found.with(book, found.rest().saturating_sub(book));
            (next, book, units - book)
        })
    }

    /// The call costs `total` in all, or what was charged already if that is more. Nothing stays
    /// reserved.
    pub(super) fn settle(&self, total: u32) -> Posting {
        self.change(&|found| {
            let due = total.saturating_sub(found.charged());
            let book = due.min(MOST_AT_ONCE.max(found.rest()));
            (found.with(book, 0), book, due - book)
        })
    }

    /// The call has ended, and nobody can charge it any more. One that told no cost is charged its
    /// reservation, unless it `has_failed`. Returns what to post, and what was told.
    pub(super) fn close(&self, has_failed: bool) -> (Posting, CostTold) {
        let found = self.load();
        let (told, due) = if found.is_told() {
            (CostTold::Cost(found.charged()), 0)
        } else if has_failed {
            (CostTold::Failure, 0)
        } else {
            (CostTold::Nothing, found.rest())
        };
        (self.settle(found.charged() + due), told)
    }

    /// Takes the step that `next` finds for each state: the state after it, the units to book, and
    /// those that are cut off.
    fn change(&self, next: &dyn Fn(AccountState) -> (AccountState, u32, u32)) -> Posting {
        loop {
            let found = self.load();
            let (state, book, cut) = next(found);
            if self.swap(found, state) {
                return Posting {
                    book,
                    release: found.rest() - state.rest(),
                    rest: state.rest(),
                    cut,
                };
            }
        }
    }

    /// Nothing is published by this word: its own value is all that counts. The last owner of a call
    /// sees all changes, since the others have let go of it.
    fn load(&self) -> AccountState {
        AccountState(self.0.load(Ordering::Relaxed))
    }

    fn swap(&self, from: AccountState, to: AccountState) -> bool {
        if planted(Bug::RestReleasedTwice) {
            self.0.store(to.0, Ordering::Relaxed);
            return true;
        }
        let relaxed = Ordering::Relaxed;
        self.0
            .compare_exchange(from.0, to.0, relaxed, relaxed)
            .is_ok()
    }
}

// === impl AccountState ===

impl AccountState {
    fn is_told(self) -> bool {
        self.0 & TOLD != 0
    }

    fn charged(self) -> u32 {
        (self.0 >> 32) as u32 & MAX_TOKENS
    }

    fn rest(self) -> u32 {
        self.0 as u32
    }

    /// The state after a charge of `more` units, with this `rest`. It has been told.
    fn with(self, more: u32, rest: u32) -> Self {
        let charged = self.charged().saturating_add(more).min(MAX_TOKENS);
        Self(TOLD | u64::from(charged) << 32 | u64::from(rest))
    }
}
