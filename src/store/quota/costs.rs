//! What calls reserve of a counter of costs and do not use, and what they cost beyond that.
//!
//! A call draws what it reserves as permits. Nearly always it costs less: the rest goes back to the
//! bucket that it is of, as long as that is in the window, so that others may reserve it. It goes to
//! the store, since another process may need it, and into the [cell](super::super::cell) only while
//! this process takes permits from there all the time. What a call costs beyond its reservation is
//! booked in the present bucket, as permits that were taken without the store are, and the next draw
//! tells the store.

use super::{OnTheWay, SharedQuota};
use crate::base::sync::{Arc, Bug, planted};
use crate::clock::Tick;
use crate::store::ledger::Ledger;
use crate::store::ticket::Validity;

impl SharedQuota {
    /// Gives back `n` permits that were reserved and not used.
    pub(crate) fn give_back(this: &Arc<Self>, valid: Validity, n: u32, now: Tick) {
        if n == 0 {
            return;
        }
        let is_too_early = planted(Bug::LookBeforeBack);
        if is_too_early {
            this.rule.hub.look_at(this);
        }
        let length = this.rule.window.bucket;
        let mut books = this.books.lock();
        // Without a ledger, their bucket counts no more.
        let Some(ledger) = books.ledger() else {
            return;
        };
        if ledger.is_hot && this.cell.refund(valid.end, n, now, length) {
            return;
        }
        let bucket = if planted(Bug::BackToPresent) {
            ledger.here(now).number
        } else {
            ledger.bucket_of(valid.end)
        };
        // The call that has cost less pays for the draw.
        ledger.note_call();
        this.return_now(ledger, bucket, n);
        ledger.add_free(n);
        this.cell.reopen();
        drop(books);
        if !is_too_early {
            this.rule.hub.look_at(this);
        }
    }

    /// Books `n` units that calls have cost beyond their reservations. Returns how many of them are
    /// beyond the limit, as far as the process knows.
    pub(crate) fn book_excess(this: &Arc<Self>, n: u32, now: Tick) -> u32 {
        if n == 0 {
            return 0;
        }
        let nodes = this.rule.hub.nodes();
        let mut books = this.books.lock();
        let ledger = books.open(&this.rule);
        let here = ledger.here(now).number;
        let free = ledger.free_at(here, ledger.terms.limit_of(nodes));
        ledger.book_local(here, n);
        ledger.lessen_free(n);
        drop(books);
        this.rule.hub.look_at(this);
        n.saturating_sub(free)
    }

    /// Of the permits of `bucket` that are `left` after a draw of costs, returns those to the store
    /// that were not drawn ahead: calls that want less may use them, here or elsewhere. Returns how
    /// many.
    pub(super) fn return_units(
        &self,
        ledger: &mut Ledger,
        sent: &OnTheWay,
        is_short: bool,
        (bucket, left): (u64, u32),
    ) -> u32 {
        if !ledger.terms.by_cost {
            return 0;
        }
        let keeps = if is_short { 0 } else { sent.soft };
        let returned = left.saturating_sub(keeps);
        if returned > 0 {
            self.return_now(ledger, bucket, returned);
            ledger.add_free(returned);
            ledger.afford_one();
        }
        returned
    }
}
