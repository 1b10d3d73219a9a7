//! Settles the reservations of calls at a counter of costs: gives the unused part back, and books
//! an excess.
//!
//! A call draws its reservation as permits. It nearly always costs less. The rest goes back to its
//! bucket, as long as that is in the window, so that other calls can reserve it. It goes to the
//! store, since another process may need it. Only while the counter is busy does it go into the
//! [cell](super::super::cell) instead, as calls of this process will take it from there. What a
//! call costs beyond its reservation is booked in the present bucket, like permits that were taken
//! without the store, and the next draw reports it.

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
        // Without a ledger, the window of the permits is over.
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
        // The call that has cost less than it reserved pays for the draw.
        ledger.note_call();
        this.return_now(ledger, bucket, n);
        ledger.add_free(n);
        this.cell.reopen();
        drop(books);
        if !is_too_early {
            this.rule.hub.look_at(this);
        }
    }

    /// Books `n` units that calls have cost beyond their reservations. Returns how many of them
    /// exceed the limit, as far as the process knows.
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

    /// After a draw of costs that has `left` some permits of `bucket`, schedules the return of
    /// those that were not drawn ahead, so that smaller calls can use them, in this process or
    /// another. Returns how many go back.
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
