//! Settles the reservations of calls at a counter of costs: gives the unused part back, and books
//! an excess.
//!
//! A call draws its reservation as permits, and nearly always costs less. The unused part is
//! returned to its bucket, as long as the bucket is in the window, so that other calls can reserve
//! it. It is returned to the store, since another process may need it. But while the counter is
//! busy, the unused part is put into the [cell](super::super::cell), as calls of this process will
//! take it from there. The excess of a call over its reservation is booked in the present bucket,
//! like permits that were taken without the store. The next draw reports it.

use super::{OnTheWay, SharedQuota};
use crate::base::sync::{Arc, Bug, planted};
use crate::clock::Tick;
use crate::store::ledger::Ledger;
use crate::store::ticket::Validity;

impl SharedQuota {
    /// Gives back `n` permits that were reserved and not used: to the cell, or to the store.
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
        // The ledger is dropped once the window of the permits is over. They have then expired.
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
        // The call that returns permits pays for the draw that carries them.
        ledger.note_call();
        this.return_now(ledger, bucket, n);
        ledger.add_free(n);
        this.cell.reopen();
        drop(books);
        if !is_too_early {
            this.rule.hub.look_at(this);
        }
    }

    /// Books the `n` units by which calls have exceeded their reservations. Returns an estimate of
    /// how many of these units exceed the limit.
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

    /// Schedules the return of permits that a draw for costs has granted and its calls could not
    /// take. `left` permits of `bucket` remain. Unless the grant `is_short`, the permits drawn
    /// ahead are kept. Smaller calls can then use the returned permits, in this process or another.
    /// Returns how many are returned.
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
