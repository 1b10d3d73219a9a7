//! Which draws a counter can afford.
//!
//! By key there are as many counters as users, so a draw is paid for by a call. A call that waits
//! for the store pays for its own. Permits that are drawn ahead, or go back, are of no use to a
//! call that waits: they go along with other draws, or are paid for by calls that have cost none.
//!
//! An answer that comes when its bucket is over was of no use, and has its calls ask once more:
//! that draw, and what a store must be told that was away or has lost its data, are sent in any
//! case, and paid for later.

use super::Ledger;

impl Ledger {
    /// Counts a call that has come, and has not taken permits in hand.
    pub(in crate::store) fn note_call(&mut self) {
        self.paid = self.paid.saturating_add(1);
    }

    /// Counts `weight` permits in hand that calls have taken. They pay for one call only, as one
    /// call may have taken them all.
    pub(in crate::store) fn note_taken(&mut self, weight: u32) {
        self.demand.add(weight);
        if weight > 0 {
            self.note_call();
        }
    }

    pub(in crate::store) fn note_draw(&mut self) {
        self.paid = self.paid.saturating_sub(1);
    }

    /// Pays for one more draw.
    pub(in crate::store) fn afford_one(&mut self) {
        self.paid = self.paid.max(1);
    }

    /// Returns whether a draw may be sent for which no call has come: as many as there are without
    /// keys.
    pub(in crate::store) fn affords(&self) -> bool {
        !self.terms.by_key || self.paid > 0
    }
}
