//! The account of one call at one rule on costs: the units charged so far, and the rest of the
//! reservation.
//!
//! ```text
//! [ reported : 1 | charged : 31 | rest of the reservation : 32 ]
//! ```
//!
//! Several threads can charge and settle at once. Each thread first swaps the word. So the units
//! that it has taken out of the rest belong to this thread alone. The thread gets a [`Posting`]:
//! units to book in the window, and units to release from the gauge after that.

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};
use crate::stat::MAX_TOKENS;

/// The maximum cost that is booked at once, unless more is reserved. It equals the maximum weight
/// of a call, so that a few calls cannot fill a window.
const MOST_AT_ONCE: u32 = crate::call::Call::MAX_WEIGHT;

/// The bit that is set once the call has reported a cost.
const REPORTED: u64 = 1 << 63;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Account(AtomicU64);

/// The effect of a charge on the window and the gauge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Posting {
    /// The units to book in the window, first.
    pub(crate) book: u32,
    /// The units to release from the gauge, second.
    pub(crate) release: u32,
    /// The rest of the reservation after the charge.
    pub(super) rest: u32,
    /// The reported units beyond [`MOST_AT_ONCE`], which are not charged.
    pub(crate) cut: u32,
}

/// The cost that an ended call has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportedCost {
    /// The call has reported costs, whose sum is this.
    Cost(u32),
    /// The call has reported no cost, and has failed.
    Failure,
    /// The call has reported no cost.
    Nothing,
}

/// The content of an account's word.
#[derive(Clone, Copy)]
struct AccountState(u64);

// === impl Account ===

impl Account {
    pub(crate) fn new(reserved: u32) -> Self {
        Self(AtomicU64::new(reserved.into()))
    }

    /// Returns the rest of the reservation.
    pub(crate) fn rest(&self) -> u32 {
        self.load().rest()
    }

    /// Returns whether nothing is reserved.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest() == 0
    }

    /// Charges `units` more. Zero units do not count as a report.
    pub(super) fn charge(&self, units: u32) -> Posting {
        if units == 0 {
            return Posting {
                rest: self.rest(),
                ..Posting::default()
            };
        }
        self.change(|found| {
            let book = units.min(MOST_AT_ONCE.max(found.rest()));
            let next = found.with(book, found.rest().saturating_sub(book));
            (next, book, units - book)
        })
    }

    /// Settles the call at `total`, or at the units already charged if these are more. Nothing
    /// stays reserved.
    pub(super) fn settle(&self, total: u32) -> Posting {
        self.change(|found| {
            let due = total.saturating_sub(found.charged());
            let book = due.min(MOST_AT_ONCE.max(found.rest()));
            (found.with(book, 0), book, due - book)
        })
    }

    /// Closes the account of a call that has ended and can no longer be charged. A call that
    /// reported no cost is charged its reservation, unless it `has_failed`. Returns the posting,
    /// and the cost that the call has reported.
    pub(super) fn close(&self, has_failed: bool) -> (Posting, ReportedCost) {
        let found = self.load();
        let (reported, due) = if found.has_reported() {
            let reported = ReportedCost::Cost(found.charged());
            if found.rest() == 0 {
                return (Posting::default(), reported);
            }
            (reported, 0)
        } else if has_failed {
            (ReportedCost::Failure, 0)
        } else {
            (ReportedCost::Nothing, found.rest())
        };
        (self.settle(found.charged() + due), reported)
    }

    /// Changes the state atomically by `next`, which returns the new state, the units to book, and
    /// the units beyond the maximum.
    #[inline]
    fn change(&self, next: impl Fn(AccountState) -> (AccountState, u32, u32)) -> Posting {
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

    /// Relaxed suffices, as no other data depends on this word. The last owner of a call sees all
    /// changes, as the other owners have already dropped their references.
    fn load(&self) -> AccountState {
        AccountState(self.0.load(Ordering::Relaxed))
    }

    /// Replaces the state `from` by `to`. Returns false if the state has changed since it was read.
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
    /// Returns whether the call has reported a cost.
    fn has_reported(self) -> bool {
        self.0 & REPORTED != 0
    }

    fn charged(self) -> u32 {
        (self.0 >> 32) as u32 & MAX_TOKENS
    }

    fn rest(self) -> u32 {
        self.0 as u32
    }

    /// Returns the state after a charge of `more` units, with this `rest`. The call counts as
    /// having reported a cost.
    fn with(self, more: u32, rest: u32) -> Self {
        let charged = self.charged().saturating_add(more).min(MAX_TOKENS);
        Self(REPORTED | u64::from(charged) << 32 | u64::from(rest))
    }
}
