//! The draws of one counter that are in flight.
//!
//! Calls that arrive while a draw is in flight wait for its answer, which can contain more permits
//! than requested. If it does not, the next draw asks for all these calls together. If the answer
//! to that draw would come too late for the first of these calls, the draw is sent at once.

use std::time::Duration;

use super::Ledger;
use crate::clock::Tick;
use crate::store::ticket::Asker;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Out {
    /// The number of draws whose answer is awaited.
    draws: u16,
    /// The number of draws whose answer is late and can still arrive.
    late: u16,
    /// Whether an awaited draw reports permits to the store. Until it is answered, no other draw
    /// reports permits, so none are counted twice.
    is_reporting: bool,
    /// When the last draw was sent.
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

    /// Returns whether a late answer can still arrive.
    pub(in crate::store) fn is_late(&self) -> bool {
        self.out().is_some_and(|out| out.late > 0)
    }

    /// Returns whether a draw in flight reports permits to the store.
    pub(in crate::store) fn is_reporting(&self) -> bool {
        self.out().is_some_and(|out| out.is_reporting)
    }

    /// Notes that a draw is sent; `is_reporting` means that it reports permits to the store.
    pub(in crate::store) fn note_sent(&mut self, now: Tick, is_reporting: bool) {
        let out = &mut self.pending_mut().out;
        out.draws = out.draws.saturating_add(1);
        out.is_reporting |= is_reporting;
        out.sent = now;
    }

    /// Notes that a draw is answered or has failed. `is_late` means that the draw was [noted as
    /// late](Self::note_late).
    pub(in crate::store) fn note_back(&mut self, is_reporting: bool, is_late: bool) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        let out = &mut pending.out;
        if is_late {
            out.late = out.late.saturating_sub(1);
        } else {
            out.draws = out.draws.saturating_sub(1);
            out.is_reporting &= !is_reporting;
        }
    }

    /// Notes that the answer of a draw is late.
    pub(in crate::store) fn note_late(&mut self, is_reporting: bool) {
        self.note_back(is_reporting, false);
        let out = &mut self.pending_mut().out;
        out.late = out.late.saturating_add(1);
    }

    /// Returns whether the answer to a request that was sent at `sent` is the newest so far. It is
    /// not if a later request was answered before.
    pub(in crate::store) fn is_news(&mut self, sent: Tick) -> bool {
        let is_news = sent >= self.heard;
        self.heard = self.heard.max(sent);
        is_news
    }

    /// Returns the time until which the next draw is postponed, because another draw is in flight
    /// and its answer takes a `trip`. Returns `None` if the next draw is due now: no draw is in
    /// flight, its answer is late, or the first waiting call could not wait for two trips.
    pub(in crate::store) fn put_off(&self, now: Tick, trip: Duration) -> Option<Tick> {
        let out = self.out().filter(|out| out.draws > 0)?;
        let back = out.sent + trip;
        let asks = |asker: &Asker| asker.asked + self.terms.wait() < back + trip;
        let must_ask = now >= back || self.tickets().first().is_some_and(asks);
        (!must_ask).then_some(back)
    }
}
