//! Permits of the next bucket, for calls that wait until it begins.
//!
//! A call that may [borrow](crate::FlowRule::lend) and finds the present bucket exhausted asks for
//! the next one. The store counts the grant in the next bucket, so no window that contains this
//! bucket admits too much, whichever process borrows. A call gets its permits with a time at which
//! the bucket has certainly begun, and must not start earlier. If the call leaves before that time,
//! its permits go back to the store and not into the [cell](crate::store::cell), where other calls
//! would take them too early.
//!
//! Nothing is borrowed without the store, nor while processes still report to it the permits that
//! they took without it.

use super::on_the_way::DrawNeed;
use super::{After, Conditions, Grant, OnTheWay, SharedQuota};
use crate::base::sync::{Arc, Ordering};
use crate::clock::Tick;
use crate::store::hub::HubMode;
use crate::store::ledger::Ledger;
use crate::store::seen::Seen;
use crate::store::ticket::Answer;

impl SharedQuota {
    /// Returns the estimated time at which a call of `weight` could start with permits of the next
    /// bucket. Returns `None` if the call would get no permits, or if it could not start before
    /// `latest`.
    pub(crate) fn lends_at(&self, now: Tick, weight: u32, latest: Tick) -> Option<Tick> {
        let mut books = self.books.lock();
        self.lends(books.ledger()?, now, weight, latest)
    }

    /// Does the work of [`lends_at`](Self::lends_at), with the ledger of the counter.
    pub(super) fn lends(
        &self,
        ledger: &Ledger,
        now: Tick,
        weight: u32,
        latest: Tick,
    ) -> Option<Tick> {
        let (here, next) = ledger.next_bucket(now)?;
        // By its last answer, the store may have no permits for the next bucket either.
        let room_at = Tick::from_nanos(self.available_at.load(Ordering::Relaxed));
        let short_in = ledger.ahead().and_then(|ahead| ahead.short_in);
        let is_short = short_in == Some(here) || room_at > next.from + self.rule.window.bucket / 2;
        let lends = weight <= Self::left_ahead(ledger, here) && !is_short && next.from < latest;
        let is_live = self.rule.hub.mode() == HubMode::Live && !self.is_recovering(ledger, now);
        (lends && is_live).then_some(next.from)
    }

    /// Returns how many more permits of the bucket after `here` the process may borrow.
    fn left_ahead(ledger: &Ledger, here: u64) -> u32 {
        let held = ledger.drawn(here.saturating_add(1));
        ledger.terms.ahead.saturating_sub(held)
    }

    /// Prepares the next draw for calls that ask for the next bucket, if it is their turn. Refuses
    /// calls whose weight exceeds what the process may still borrow.
    pub(super) fn prepare_ahead(
        this: &Arc<Self>,
        ledger: &mut Ledger,
        by: &Conditions,
    ) -> Option<OnTheWay> {
        let here = ledger.here(by.now);
        // If a draw is in flight, the amount that can still be borrowed depends on its answer.
        let has_draw_out = ledger.is_out();
        let pending = ledger.pending.as_deref_mut()?;
        let ahead = pending.ahead.as_deref_mut()?;
        let has_others = !pending.tickets.is_empty();
        if has_draw_out
            || ahead.tickets.is_empty()
            || (std::mem::take(&mut ahead.was_last) && has_others)
        {
            return None;
        }
        ahead.was_last = true;
        let asked = std::mem::take(&mut ahead.tickets);
        let refused = Answer::Refused(Some(here.next));
        let mut left = Self::left_ahead(ledger, here.number);
        if by.is_recovering || this.is_recovering(ledger, by.now) {
            left = 0;
        }
        let (mut kept, mut firm) = (Vec::new(), 0);
        for asker in asked {
            if asker.weight <= left {
                left -= asker.weight;
                firm += asker.weight;
                kept.push(asker);
            } else {
                asker.slot.answer(refused);
            }
        }
        let need = DrawNeed {
            askers: kept,
            firm,
            soft: 0,
        };
        (firm > 0).then(|| OnTheWay::of(this, ledger, by.now, need, Some(here.number)))
    }

    /// Applies the answer to a draw for the bucket after `asked_in`.
    pub(super) fn granted_ahead(
        &self,
        ledger: &mut Ledger,
        sent: &mut OnTheWay,
        grant: &Grant,
        (seen, asked_in): (Seen, u64),
    ) -> After {
        let of = grant.bucket.saturating_add(1);
        let mut asked = std::mem::take(&mut sent.askers);
        let mut left = grant.permits;
        if grant.bucket == asked_in {
            let room_at = grant.received + grant.wait;
            if grant.permits < sent.firm && !sent.is_late {
                if !self.is_doubted(ledger, grant.sent) {
                    ledger.ahead_or_new().short_in = Some(asked_in);
                }
                self.note_none(ledger, grant.sent, room_at);
            }
            let valid = seen.next_bucket(self.rule.window.bucket);
            let refused = Answer::Refused(Some(room_at.max(valid.from)));
            for asker in asked {
                let weight = asker.weight;
                let is_soon = asker.latest.is_some_and(|latest| valid.from < latest);
                if weight > left || !is_soon || valid.end.is_over(valid.from) {
                    asker.slot.answer(refused);
                } else if asker.slot.answer(Answer::Granted(valid)) {
                    left -= weight;
                    self.rule.figures.counts().granted.add(weight.into());
                }
            }
        } else {
            // The bucket for which the calls asked has begun, so the calls now ask for the present
            // bucket.
            ledger.pending_mut().tickets.append(&mut asked);
        }
        self.return_now(ledger, of, left);
        let returns = ledger.returns_ahead(grant.bucket);
        Self::after(ledger, grant.received, returns)
    }
}
