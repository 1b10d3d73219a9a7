//! Limits the draws of a counter with keys to the number of calls.
//!
//! A rule by key has as many counters as there are users. So that the counters cause no more draws
//! than there are calls, each draw is paid for by a call. A call that waits for the store pays for
//! its own draw. No call waits for permits that are drawn ahead or returned. Such permits are part
//! of a draw for waiting calls, or their draw is paid for by calls that needed no draw.
//!
//! If an answer arrives after its bucket has ended, its calls ask once more. The second draw is
//! sent in any case and paid for later. The same holds for a report to a store that was unavailable
//! or has lost its data.

use super::Ledger;

impl Ledger {
    /// Counts a call that found no permits in the cell.
    pub(in crate::store) fn note_call(&mut self) {
        self.paid = self.paid.saturating_add(1);
    }

    /// Counts `weight` permits that were taken out of the cell. They count as a single call, as one
    /// call may have taken them all.
    pub(in crate::store) fn note_taken(&mut self, weight: u32) {
        self.demand.add(weight);
        if weight > 0 {
            self.note_call();
        }
    }

    /// Counts a draw that is sent.
    pub(in crate::store) fn note_draw(&mut self) {
        self.paid = self.paid.saturating_sub(1);
    }

    /// Ensures that the counter can afford one more draw.
    pub(in crate::store) fn afford_one(&mut self) {
        self.paid = self.paid.max(1);
    }

    /// Returns whether a draw for which no call waits may be sent. A rule without keys always
    /// affords one, as it has a single counter.
    pub(in crate::store) fn affords(&self) -> bool {
        !self.terms.by_key || self.paid > 0
    }
}
