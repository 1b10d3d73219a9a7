//! The draws of one counter that are on their way.
//!
//! Calls that come while a draw is on its way wait for its answer, which may bring more than was
//! asked for. If it does not, they ask together in the next draw. If the answer to that draw would
//! come too late for one of them, it is sent at once.

use std::time::Duration;

use super::Ledger;
use crate::clock::Tick;
use crate::store::ticket::Asker;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Out {
    /// The number of draws whose answer is awaited.
    draws: u16,
    /// The number of draws whose answer is late and may still come.
    late: u16,
    /// Whether one of the awaited draws reports permits to the store. No other draw reports
    /// meanwhile, so nothing is counted twice.
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

    /// Returns whether a late answer may still come.
    pub(in crate::store) fn is_late(&self) -> bool {
        self.out().is_some_and(|out| out.late > 0)
    }

    /// Returns whether a draw on its way reports permits to the store.
    pub(in crate::store) fn is_reporting(&self) -> bool {
        self.out().is_some_and(|out| out.is_reporting)
    }

    /// Notes that a draw is sent; `is_reporting` says whether it reports permits.
    pub(in crate::store) fn note_sent(&mut self, now: Tick, is_reporting: bool) {
        let out = &mut self.pending_mut().out;
        out.draws = out.draws.saturating_add(1);
        out.is_reporting |= is_reporting;
        out.sent = now;
    }

    /// Notes that a draw is answered or has failed. `is_late` says whether it was [noted as
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

    /// Returns whether the answer to a request of the time `sent` brings news: no answer to a later
    /// request was taken before.
    pub(in crate::store) fn is_news(&mut self, sent: Tick) -> bool {
        let is_news = sent >= self.heard;
        self.heard = self.heard.max(sent);
        is_news
    }

    /// Returns until when the next draw is put off because another one is on its way, which takes a
    /// `trip`. `None` if the next draw is due now: the other answer is late, or the first waiting
    /// call could not wait for two trips.
    pub(in crate::store) fn put_off(&self, now: Tick, trip: Duration) -> Option<Tick> {
        let out = self.out().filter(|out| out.draws > 0)?;
        let back = out.sent + trip;
        let asks = |asker: &Asker| asker.asked + self.terms.wait() < back + trip;
        let must_ask = now >= back || self.tickets().first().is_some_and(asks);
        (!must_ask).then_some(back)
    }
}
