//! The draws of one counter that are on their way.
//!
//! Calls that come meanwhile wait for the answer, which may bring more than was asked for, and then
//! ask together. Where that would be too late for one of them, it asks at once, beside the draw
//! that is on its way.

use std::time::Duration;

use super::Ledger;
use crate::clock::Tick;
use crate::store::ticket::Asker;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Out {
    /// Draws whose answer is awaited.
    draws: u16,
    /// Draws whose answer is late, and may still come.
    late: u16,
    /// Whether one of the former tells the store what it does not know: no other tells it twice.
    tells: bool,
    /// When the last one was sent.
    sent: Tick,
}

impl Out {
    pub(super) const fn is_empty(&self) -> bool {
        self.draws == 0 && self.late == 0
    }
}

impl Ledger {
    fn out(&self) -> Option<&Out> {
        self.pending.as_ref().map(|pending| &pending.out)
    }

    /// Returns whether the answer of a draw is awaited.
    pub(in crate::store) fn is_out(&self) -> bool {
        self.out().is_some_and(|out| out.draws > 0)
    }

    /// Returns whether a late answer may still come.
    pub(in crate::store) fn is_late(&self) -> bool {
        self.out().is_some_and(|out| out.late > 0)
    }

    /// Returns whether a draw on its way tells the store what it does not know.
    pub(in crate::store) fn tells(&self) -> bool {
        self.out().is_some_and(|out| out.tells)
    }

    /// A draw sets off.
    pub(in crate::store) fn note_sent(&mut self, now: Tick, tells: bool) {
        let out = &mut self.pending_mut().out;
        out.draws = out.draws.saturating_add(1);
        out.tells |= tells;
        out.sent = now;
    }

    /// A draw is answered, or has failed.
    pub(in crate::store) fn note_back(&mut self, tells: bool, is_late: bool) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        let out = &mut pending.out;
        if is_late {
            out.late = out.late.saturating_sub(1);
        } else {
            out.draws = out.draws.saturating_sub(1);
            out.tells &= !tells;
        }
    }

    /// The answer of a draw is late.
    pub(in crate::store) fn note_late(&mut self, tells: bool) {
        self.note_back(tells, false);
        let out = &mut self.pending_mut().out;
        out.late = out.late.saturating_add(1);
    }

    /// Returns whether no answer was taken yet to a request after the one that was `sent` by then.
    pub(in crate::store) fn is_news(&mut self, sent: Tick) -> bool {
        let is_news = sent >= self.heard;
        self.heard = self.heard.max(sent);
        is_news
    }

    /// Until when calls that wait are not asked for, as a draw is on its way: that takes a `trip`,
    /// and theirs takes another one. `None` if they are asked for now.
    pub(in crate::store) fn put_off(&self, now: Tick, trip: Duration) -> Option<Tick> {
        let out = self.out().filter(|out| out.draws > 0)?;
        let back = out.sent + trip;
        let asks = |asker: &Asker| asker.asked + self.terms.wait() < back + trip;
        let must_ask = now >= back || self.tickets().first().is_some_and(asks);
        (!must_ask).then_some(back)
    }
}
