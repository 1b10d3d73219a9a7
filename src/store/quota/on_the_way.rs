//! A draw in flight to the store, and the calls that wait for its answer.

use super::{Conditions, SharedQuota};
use crate::base::sync::Arc;
use crate::clock::Tick;
use crate::store::cell::BucketEnd;
use crate::store::draw::Booking;
use crate::store::ledger::{Ledger, Report};
use crate::store::ticket::{Answer, Asker, Validity};

/// See the [module](self).
#[derive(Debug)]
pub(in crate::store) struct OnTheWay {
    pub(in crate::store) quota: Arc<SharedQuota>,
    /// The calls that wait for the answer. Empty once the answer is late.
    pub(super) askers: Vec<Asker>,
    /// The permits that the calls need.
    pub(super) firm: u32,
    /// The permits that are drawn ahead of calls.
    pub(super) soft: u32,
    /// For a draw ahead, the bucket in which it was made: it asks for permits of the bucket after
    /// this one. `None` for a draw from the present bucket.
    pub(super) ahead_of: Option<u64>,
    /// The bucket that was the present one for the process when the draw was made.
    pub(super) asked_in: u64,
    /// Which of this process's permits the draw reports.
    pub(super) report: Report,
    /// Permits taken without the store that the draw reports to it.
    pub(super) unknown: Vec<Booking>,
    /// Whether the answer is late. Its calls were then answered without the store.
    pub(super) is_late: bool,
}

/// The permits for which a draw asks: `firm` permits, which `askers` need, and `soft` permits ahead
/// of calls.
#[derive(Debug)]
pub(super) struct DrawNeed {
    pub(super) askers: Vec<Asker>,
    pub(super) firm: u32,
    pub(super) soft: u32,
}

impl OnTheWay {
    /// Creates a draw of the permits in `need`: for the bucket after `ahead_of`, or for the present
    /// bucket if `ahead_of` is `None`. The draw also reports permits that the store does not
    /// know, unless another draw in flight reports them.
    pub(super) fn of(
        quota: &Arc<SharedQuota>,
        ledger: &Ledger,
        now: Tick,
        need: DrawNeed,
        ahead_of: Option<u64>,
    ) -> Self {
        let (report, unknown) = if ledger.is_reporting() {
            (Report::Nothing, Vec::new())
        } else {
            (ledger.report, ledger.unknown(now))
        };
        Self {
            quota: quota.clone(),
            askers: need.askers,
            firm: need.firm,
            soft: need.soft,
            ahead_of,
            asked_in: 0,
            report,
            unknown,
            is_late: false,
        }
    }

    /// Returns whether the draw is only a refill, for which no call waits.
    pub(in crate::store) const fn is_refill(&self) -> bool {
        self.firm == 0
    }

    /// Returns whether the draw reports permits to the store.
    pub(super) fn is_reporting(&self) -> bool {
        self.report != Report::Nothing
    }

    /// Notes that the answer is late, and answers the calls that wait for it without the store. If
    /// the answer still arrives, its grant is booked all the same.
    pub(in crate::store) fn note_late(&mut self, now: Tick) {
        let mut books = self.quota.books.lock();
        let ledger = books.open(&self.quota.rule);
        ledger.note_late(self.is_reporting());
        self.is_late = true;
        let askers = std::mem::take(&mut self.askers);
        self.quota.serve_all(ledger, now, askers);
        drop(books);
        self.quota.rule.hub.late().note_answers();
    }

    /// Stops waiting for the answer of a late draw.
    pub(in crate::store) fn give_up(self) {
        let mut books = self.quota.books.lock();
        if let Some(ledger) = books.ledger() {
            ledger.note_back(self.is_reporting(), self.is_late);
        }
        drop(books);
        self.quota.rule.hub.look_at(&self.quota);
    }
}

impl SharedQuota {
    /// Handles a failed draw, and answers its calls without the store. If the draw failed `alone`,
    /// while other draws of its trip were answered, the counter is served without the store for a
    /// while.
    pub(in crate::store) fn failed(mut sent: OnTheWay, now: Tick, alone: bool) {
        let this = &sent.quota;
        let mut books = this.books.lock();
        let ledger = books.open(&this.rule);
        ledger.note_back(sent.is_reporting(), sent.is_late);
        if alone {
            ledger.note_down(now);
        }
        let askers = std::mem::take(&mut sent.askers);
        this.serve_all(ledger, now, askers);
        drop(books);
        this.answer_without_store(now);
    }

    /// Answers all waiting calls of the counter without the store.
    pub(in crate::store) fn answer_without_store(&self, now: Tick) {
        let mut books = self.books.lock();
        let Some(ledger) = books.ledger() else {
            return;
        };
        // Permits cannot be returned to a store that is unavailable, so they are dropped.
        ledger.forget_back();
        let mut askers = ledger.take_tickets(usize::MAX);
        askers.append(&mut ledger.take_ahead());
        self.serve_all(ledger, now, askers);
        ledger.tidy(now);
        drop(books);
        self.rule.hub.late().note_answers();
    }

    /// Answers the oldest waiting calls without the store, if they would leave before a draw that
    /// is sent now is answered.
    pub(super) fn answer_old(&self, ledger: &mut Ledger, by: &Conditions) {
        let (now, wait) = (by.now, ledger.terms.wait());
        // The expected trip is limited to half of the wait. Otherwise, after slow trips, calls
        // would be answered without the store at once.
        let trip = by.trip.min(wait / 2);
        let is_old = |asker: &Asker| asker.asked + wait < now + trip;
        let old = ledger.tickets().iter().take_while(|it| is_old(it)).count();
        if old > 0 {
            let askers = ledger.take_tickets(old);
            self.serve_all(ledger, now, askers);
            self.rule.hub.late().note_answers();
        }
    }

    /// Answers `askers` without the store.
    fn serve_all(&self, ledger: &mut Ledger, now: Tick, askers: Vec<Asker>) {
        for Asker { weight, slot, .. } in askers {
            if slot.is_gone() {
                continue;
            }
            let answer = self.serve(ledger, now, weight);
            if !slot.answer(answer) {
                if let Answer::Granted(Validity { end, .. }) = answer {
                    self.unserve(ledger, now, end, weight);
                }
            }
        }
    }

    /// Takes back permits that were granted to a call which has left.
    fn unserve(&self, ledger: &mut Ledger, now: Tick, end: BucketEnd, weight: u32) {
        let bucket = ledger.bucket_of(end);
        if !self.cell.refund(end, weight, now, self.rule.window.bucket) {
            ledger.unbook(bucket, weight);
        }
    }
}
