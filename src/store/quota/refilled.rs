//! The refiller's side of a counter: prepares draws and applies their answers.

use std::time::Duration;

use super::on_the_way::DrawNeed;
use super::{BUSY, OnTheWay, SharedQuota};
use crate::base::sync::Arc;
use crate::clock::Tick;
use crate::store::cell::{BucketEnd, LeaseFound, MOST_LEASED};
use crate::store::demand::Demand;
use crate::store::draw::{Booking, Draw, Epoch};
use crate::store::ledger::{Ledger, Report};
use crate::store::seen::Seen;
use crate::store::terms::Nodes;
use crate::store::ticket::{Answer, Validity};

/// The conditions under which the refiller draws.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Conditions {
    pub(in crate::store) now: Tick,
    /// The processes among which the limit is divided.
    pub(in crate::store) nodes: Nodes,
    /// The time ahead for which the refiller draws permits.
    pub(in crate::store) horizon: Duration,
    /// The mean length of a trip.
    pub(in crate::store) trip: Duration,
    /// The length of a slow trip.
    pub(in crate::store) slow_trip: Duration,
    /// Whether no more than this process's share may be drawn, because processes still report
    /// permits that they took without the store.
    pub(in crate::store) is_recovering: bool,
}

/// The work that a counter needs.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(in crate::store) enum Prepared {
    /// No draw is needed.
    Nothing,
    /// A draw to send.
    Sends(Draw, OnTheWay),
    /// No draw yet. The refiller looks again at this time, or when an answer comes before.
    Waits(Tick),
}

/// The next step of the refiller after a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum After {
    Nothing,
    /// The counter needs another draw in the next trip.
    AskAgain,
    /// The store has lost its data.
    Lost,
}

/// The answer to a draw that was applied: the fields of
/// [`Drawn::Granted`](crate::store::Drawn::Granted), with the times of the trip.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Grant {
    pub(in crate::store) permits: u32,
    pub(in crate::store) free: u32,
    pub(in crate::store) rest: Duration,
    pub(in crate::store) bucket: u64,
    pub(in crate::store) epoch: Epoch,
    pub(in crate::store) wait: Duration,
    /// When the draw was sent.
    pub(in crate::store) sent: Tick,
    /// When its answer came.
    pub(in crate::store) received: Tick,
}

impl SharedQuota {
    /// Removes the unused permits of a lease that is over from the cell, and schedules their
    /// return.
    pub(super) fn close(&self, ledger: &mut Ledger, now: Tick) {
        self.count(ledger);
        if let Some((end, left)) = self.cell.close(now) {
            ledger.uncounted.permits = 0;
            let bucket = ledger.bucket_of(end);
            let lost = ledger.return_later(bucket, left);
            self.rule.figures.counts().lost.add(lost.into());
            ledger.note_taken(ledger.last_held.saturating_sub(left));
            ledger.last_held = 0;
        }
    }

    /// Adds the permits that calls have taken out of the cell to the demand. Returns how many the
    /// cell holds.
    fn observe(&self, ledger: &mut Ledger, now: Tick) -> u32 {
        self.close(ledger, now);
        let held = self.in_hand(now);
        let used = ledger.last_held.saturating_sub(held);
        ledger.note_taken(used);
        ledger.last_held = held;
        ledger.demand.observe(now);
        held
    }

    /// Prepares the next draw, if one is due.
    pub(in crate::store) fn prepare(this: &Arc<Self>, by: &Conditions) -> Prepared {
        let mut books = this.books.lock();
        let Some(ledger) = books.ledger() else {
            return Prepared::Nothing;
        };
        let now = by.now;
        this.answer_old(ledger, by);
        let has_draw_out = ledger.is_out();
        if let Some(at) = ledger.put_off(now, by.slow_trip) {
            let is_any = !ledger.tickets().is_empty();
            return if is_any {
                Prepared::Waits(at)
            } else {
                Prepared::Nothing
            };
        }
        let held = this.observe(ledger, now);
        let lost = ledger.forget_stale_back(now);
        this.rule.figures.counts().lost.add(lost.into());
        ledger.arrive(now);
        if let Some(at) = this.none_before(ledger, now) {
            // The store has no permits before `at`. Calls can still be waiting: they came before
            // this answer arrived, or they had asked ahead before the present bucket began.
            this.refuse_or_lend(ledger, now, at);
        }
        if let Some(sent) = Self::prepare_ahead(this, ledger, by) {
            return this.send(ledger, by, sent);
        }
        let limit = ledger.terms.limit_of(by.nodes);
        let here = ledger.here(now);
        let firm = ledger
            .tickets()
            .iter()
            .fold(0, |sum: u32, asker| sum.saturating_add(asker.weight));
        let target = this.target(ledger, by, here.end - now).min(limit);
        let affords = ledger.affords();
        // While a draw is in flight, nothing more is drawn ahead, as its grant refills the cell.
        let is_due = !has_draw_out && (firm > 0 || (affords && held < target.div_ceil(2)));
        // While the store has no permits, nothing is drawn ahead. Draws for waiting calls are still
        // sent.
        let is_exhausted = matches!(this.cell.take(now, 0), LeaseFound::Exhausted(_))
            || this.none_before(ledger, now).is_some();
        let soft = if is_due && !is_exhausted {
            target.saturating_sub(held)
        } else {
            0
        };
        if ledger.is_hot && affords && !has_draw_out {
            // A busy counter keeps up to four times its target. A counter that is no longer busy
            // keeps nothing.
            let most = if this.is_busy(ledger) {
                target.saturating_mul(4).max(4)
            } else {
                0
            };
            if held > most {
                this.withdraw(ledger, held - target);
            }
        }
        let (mut firm_now, mut soft) = (firm, soft);
        if by.is_recovering || this.is_recovering(ledger, now) {
            if has_draw_out {
                // How much of the share is left depends on the answer to the draw in flight.
                return Prepared::Nothing;
            }
            let left = ledger.share_left(here.number, by.nodes);
            firm_now = firm.min(left);
            soft = soft.min(left - firm_now);
        }
        // In a calendar window, a draw names the store's day. Before the first answer, this day is
        // unknown, so an empty draw is sent to learn it.
        let lacks_date = this.rule.window.calendar.is_some() && !ledger.has_seen();
        if lacks_date {
            if has_draw_out {
                return Prepared::Nothing;
            }
            (firm_now, soft) = (0, 0);
        }
        // While a late answer can still arrive, no report is sent: its grant may cover the permits
        // to report.
        let can_report = !ledger.is_reporting() && !ledger.is_late();
        let has_news = (affords && ledger.returns())
            || (can_report && !ledger.to_report(now + by.trip).is_empty());
        // Permits from before the first answer can be reported only once the store's bucket numbers
        // are known. So an empty draw is sent to learn them, and waiting calls are answered by the
        // next draw.
        let must_learn_time = firm_now == 0
            && (lacks_date || ledger.has_unreported_past())
            && !has_draw_out
            && !ledger.is_late();
        if firm_now == 0 && soft == 0 && !has_news && !must_learn_time {
            if firm > 0 {
                this.refuse_all(ledger, here.next);
                ledger.tidy(now);
            }
            return Prepared::Nothing;
        }
        if lacks_date {
            // Pays for this empty draw. The waiting calls have paid only for the next one.
            ledger.note_call();
        }
        let most = if must_learn_time { 0 } else { usize::MAX };
        let need = DrawNeed {
            askers: ledger.take_tickets(most),
            firm: firm_now,
            soft,
        };
        let sent = OnTheWay::of(this, ledger, now, need, None);
        this.send(ledger, by, sent)
    }

    /// Builds the request for the draw `sent`, with all permits to report, and the permits of one
    /// bucket to give back.
    fn send(&self, ledger: &mut Ledger, by: &Conditions, mut sent: OnTheWay) -> Prepared {
        let (window, here) = (&self.rule.window, ledger.here(by.now));
        sent.asked_in = here.number;
        let in_store = |booking: Booking| {
            let bucket = window.place(booking.bucket, here.number)?;
            Some(Booking { bucket, ..booking })
        };
        let add = if ledger.is_reporting() {
            Vec::new()
        } else {
            ledger.to_report(by.now)
        };
        ledger.note_sent(by.now, sent.is_reporting());
        ledger.note_draw();
        let known = ledger.known_epoch(by.now);
        let back = ledger.take_back().and_then(in_store);
        if let Some(back) = &back {
            self.rule.figures.counts().repaid.add(back.permits.into());
        }
        let draw = Draw {
            key: self.store_key_in(here.number),
            bucket: window.in_store().bucket,
            buckets: window.buckets,
            limit: ledger.terms.limit_of(by.nodes),
            firm: sent.firm,
            soft: sent.soft,
            divisor: ledger.divisor(by.now, by.nodes),
            next: sent.ahead_of.is_some(),
            back,
            known,
            add: add.into_iter().filter_map(in_store).collect(),
            kept: window.kept(here.next - by.now),
            wait: self.rule.hub.settings.store_wait,
        };
        Prepared::Sends(draw, sent)
    }

    /// Returns whether this counter must draw no more than its share, because processes still
    /// report permits that they took without the store.
    pub(super) fn is_recovering(&self, ledger: &Ledger, now: Tick) -> bool {
        ledger.was_down(now) || ledger.has_unreported_past()
    }

    /// Returns how many permits the cell should hold: the expected demand of the next horizon and
    /// trip, or of the `left` time of the bucket if that is shorter, but no more than it can hold.
    /// Returns 0 if the demand is too small for a lease.
    fn target(&self, ledger: &Ledger, by: &Conditions, left: Duration) -> u32 {
        let most = self.rule.window.bucket / 10;
        let shortest = self.rule.hub.settings.horizon.min(most);
        if ledger.terms.exact || ledger.demand.within(shortest) < self.rule.worth_a_lease() {
            return 0;
        }
        let horizon = by.horizon.min(most);
        let expected = ledger.demand.within((horizon + by.trip).min(left));
        expected.min(MOST_LEASED)
    }

    /// Returns whether the counter will need a lease within [`BUSY`] times the shortest horizon.
    /// The multiple compensates for an underestimate: counters that the refiller checks only when
    /// calls wait seem less busy than they are.
    fn is_busy(&self, ledger: &Ledger) -> bool {
        let time = self.rule.hub.settings.horizon * BUSY;
        let needed = ledger.demand.within(time.min(self.rule.window.bucket / 10));
        !ledger.terms.exact && needed >= self.rule.worth_a_lease()
    }

    /// Removes up to `weight` permits from the cell, and schedules their return.
    fn withdraw(&self, ledger: &mut Ledger, weight: u32) {
        if let Some((end, out)) = self.cell.withdraw(weight) {
            let bucket = ledger.bucket_of(end);
            ledger.uncounted.permits = ledger.uncounted.permits.saturating_sub(out);
            let lost = ledger.return_later(bucket, out);
            self.rule.figures.counts().lost.add(lost.into());
            ledger.last_held = ledger.last_held.saturating_sub(out);
        }
    }

    /// Refuses all waiting calls until `at`.
    fn refuse_all(&self, ledger: &mut Ledger, at: Tick) {
        for asker in ledger.take_tickets(usize::MAX) {
            asker.slot.answer(Answer::Refused(Some(at)));
        }
        self.rule.hub.late().note_answers();
    }

    /// Returns whether the counter has become busy, so that the refiller must check it often from
    /// now on.
    pub(in crate::store) fn is_newly_hot(&self) -> bool {
        let mut books = self.books.lock();
        books.ledger().is_some_and(|ledger| {
            let was_hot = ledger.is_hot;
            ledger.is_hot = was_hot || self.is_busy(ledger);
            ledger.is_hot && !was_hot
        })
    }

    /// Returns whether the counter is still busy, so that the refiller must check it often.
    pub(in crate::store) fn is_still_hot(&self) -> bool {
        let mut books = self.books.lock();
        books.ledger().is_some_and(|ledger| {
            ledger.is_hot = self.is_busy(ledger);
            ledger.is_hot
        })
    }

    /// Applies the answer to a draw.
    pub(in crate::store) fn granted(mut sent: OnTheWay, grant: &Grant) -> After {
        let this = sent.quota.clone();
        let mut books = this.books.lock();
        let ledger = books.open(&this.rule);
        let is_of_another = this.rule.window.calendar.is_some() && sent.asked_in != grant.bucket;
        if is_of_another {
            return this.drop_grant(ledger, sent, grant);
        }
        this.take_grant(ledger, &mut sent, grant)
    }

    fn take_grant(&self, ledger: &mut Ledger, sent: &mut OnTheWay, grant: &Grant) -> After {
        ledger.note_back(sent.is_reporting(), sent.is_late);
        // Read before the grant is applied, as permits of this grant that are returned can wait for
        // the next draw.
        let returns = ledger.returns_ahead(grant.bucket);
        let now = grant.received;
        let seen = Seen::new(grant.bucket, grant.rest, grant.sent, now);
        ledger.see_time(seen);
        let of = grant.bucket.saturating_add(sent.ahead_of.is_some().into());
        ledger.book_drawn(of, grant.permits);
        // If a later draw was answered first, this answer is outdated.
        if !sent.is_late && ledger.is_news(grant.sent) {
            self.rule.note_seen(seen);
            if sent.ahead_of.is_none() {
                ledger.see(seen, grant.free);
            } else {
                ledger.see_ahead(seen);
            }
        }
        ledger.reported(&sent.unknown, sent.report, now);
        if grant.permits > 0 || sent.report != Report::Nothing {
            ledger.set_epoch(grant.epoch);
        }
        if let Some(asked_in) = sent.ahead_of {
            return self.granted_ahead(ledger, sent, grant, (seen, asked_in));
        }
        if now >= seen.end && grant.permits > 0 {
            let paid = ledger.pay_local(grant.bucket, grant.permits);
            self.return_now(ledger, grant.bucket, grant.permits - paid);
            // The bucket of the permits is over, so the calls ask again.
            let askers = std::mem::take(&mut sent.askers);
            ledger.ask_again(askers, None);
            return Self::after(ledger, now, returns);
        }
        // Updates the demand, as calls have taken permits out of the cell during the trip.
        self.observe(ledger, now);
        let end = BucketEnd::at(seen.end);
        let available_at = now + grant.wait;
        let is_short = grant.permits < sent.firm && !sent.is_late;
        let mut left = grant.permits;
        let mut next_at = None;
        if is_short {
            self.note_none(ledger, grant.sent, available_at);
            next_at = Some(available_at);
        }
        for asker in std::mem::take(&mut sent.askers) {
            let weight = asker.weight;
            if weight <= left {
                if asker.slot.answer(Answer::Granted(Validity::until(end))) {
                    left -= weight;
                    ledger.demand.add(weight);
                    self.rule.figures.counts().granted.add(weight.into());
                }
            } else if self.may_ask_ahead(ledger, &asker, now) {
                ledger.ask_ahead(asker, now);
            } else {
                let at = next_at.unwrap_or(seen.next);
                asker.slot.answer(Answer::Refused(Some(at)));
            }
        }
        // Calls that arrived during the trip get the remaining permits before these go into the
        // cell.
        ledger.answer_tickets(|ledger, asker| {
            let is_answered =
                asker.weight <= left && asker.slot.answer(Answer::Granted(Validity::until(end)));
            if is_answered {
                left -= asker.weight;
                ledger.demand.add(asker.weight);
                self.rule.figures.counts().granted.add(asker.weight.into());
            }
            is_answered
        });
        self.rule.hub.late().note_answers();
        // The remaining permits cover those that calls have taken from the local share because
        // their answers were late.
        left -= ledger.pay_local(grant.bucket, left);
        left -= self.return_units(ledger, sent, is_short, (grant.bucket, left));
        let out = self.put(ledger, end, left, false);
        self.return_now(ledger, grant.bucket, out.new);
        if out.old > 0 {
            let before = grant.bucket.saturating_sub(1);
            self.return_now(ledger, before, out.old);
        }
        ledger.last_held = self.in_hand(now);
        if !sent.is_late {
            self.note_exhausted(ledger, sent, grant, seen.next);
        }
        Self::after(ledger, now, returns)
    }

    /// Returns the next step after a draw that was applied. `returns` says whether permits must be
    /// returned at once.
    pub(super) fn after(ledger: &mut Ledger, now: Tick, returns: bool) -> After {
        ledger.tidy(now);
        let asks = !ledger.tickets().is_empty() || ledger.asks_ahead();
        let returns = returns || (ledger.terms.by_cost && ledger.returns());
        let must_report = !ledger.is_reporting() && !ledger.unknown(now).is_empty();
        if asks || returns || must_report {
            After::AskAgain
        } else {
            After::Nothing
        }
    }

    /// Schedules the return of `weight` permits of `bucket`. Permits that cannot be returned are
    /// counted as lost.
    pub(super) fn return_now(&self, ledger: &mut Ledger, bucket: u64, weight: u32) {
        if weight > 0 {
            let lost = ledger.return_later(bucket, weight);
            self.rule.figures.counts().lost.add(lost.into());
        }
    }

    /// Handles a draw that was not applied because the store has lost its data: all permits of this
    /// process are reported anew, and the calls of the draw ask again.
    pub(in crate::store) fn lost(mut sent: OnTheWay, seen: Seen) -> After {
        let this = sent.quota.clone();
        let mut books = this.books.lock();
        let ledger = books.open(&this.rule);
        ledger.note_back(sent.is_reporting(), sent.is_late);
        ledger.see_time(seen);
        this.rule.note_seen(seen);
        ledger.report_all();
        let askers = std::mem::take(&mut sent.askers);
        ledger.ask_again(askers, sent.ahead_of);
        After::Lost
    }

    /// Schedules a report of this process's permits to a store that is available again. Returns
    /// whether there are any to report.
    pub(in crate::store) fn must_report(&self, report: Report, now: Tick) -> bool {
        let mut books = self.books.lock();
        let ledger = books.ledger();
        ledger.is_some_and(|ledger| ledger.must_report(report, now))
    }

    /// Empties the cell, so that the last draws return its permits.
    fn empty(&self, ledger: &mut Ledger, now: Tick) {
        self.close(ledger, now);
        self.withdraw(ledger, u32::MAX);
        ledger.demand = Demand::default();
        ledger.is_hot = false;
    }

    /// Prepares the last draws, which return all unused permits: one draw for each bucket with
    /// unused permits, and at most two.
    pub(in crate::store) fn prepare_last(this: &Arc<Self>, by: &Conditions) -> Vec<Draw> {
        let mut draws = Vec::new();
        if let Some(ledger) = this.books.lock().ledger() {
            this.empty(ledger, by.now);
            ledger.afford_one();
        }
        // Each draw returns the permits of one bucket.
        while let Prepared::Sends(draw, sent) = Self::prepare(this, by) {
            draws.push(draw);
            let mut books = this.books.lock();
            let Some(ledger) = books.ledger() else {
                break;
            };
            ledger.note_back(sent.is_reporting(), false);
            // The first draw has made the report.
            ledger.report = Report::Nothing;
            ledger.afford_one();
            if !ledger.returns() || draws.len() == 2 {
                break;
            }
        }
        this.answer_without_store(by.now);
        draws
    }
}
