//! Exhausted counters: the store has no permits left, and calls are refused for some time without
//! asking it.

use std::time::Duration;

use super::{Grant, OnTheWay, SharedQuota};
use crate::base::sync::Ordering;
use crate::clock::Tick;
use crate::store::cell::LeaseFound;
use crate::store::ledger::Ledger;
use crate::store::ticket::{Answer, Asker};

/// The time after which an exhausted counter of a rule without keys asks the store again. Applies
/// to busy counters and counters of costs, as other processes may return permits to them.
const HOT_RETRY: Duration = Duration::from_millis(20);
/// The time after which an exhausted counter of costs of one key asks the store again. It is longer
/// than [`HOT_RETRY`], because every exhausted key asks at this interval.
const KEY_RETRY: Duration = Duration::from_millis(100);

impl SharedQuota {
    /// Takes `weight` permits from the cell, if it has them. Otherwise, if the store has refused
    /// permits to the key of this counter, marks the cell as exhausted until the time at which the
    /// store expects room.
    pub(super) fn look(&self, ledger: Option<&mut Ledger>, now: Tick, weight: u32) -> LeaseFound {
        let found = self.cell.take(now, weight);
        if self.rule.is_by_cost() {
            return self.look_for_units(found, ledger, now, weight);
        }
        match ledger.and_then(|ledger| self.none_before(ledger, now)) {
            Some(at) if found == LeaseFound::Nothing => {
                self.cell.exhaust(at);
                LeaseFound::Exhausted(at)
            }
            _ => found,
        }
    }

    /// Returns the time before which no call of the key asks the store again, if a refusal of the
    /// store is remembered.
    pub(super) fn none_before(&self, ledger: &Ledger, now: Tick) -> Option<Tick> {
        let at = Tick::from_nanos(self.available_at.load(Ordering::Relaxed));
        (is_remembered(ledger) && ledger.has_none && now < at).then_some(at)
    }

    /// Does the work of [`look`](Self::look) for a rule on costs. A call does not ask the store if
    /// it wants more units than the store had at its last recent answer.
    fn look_for_units(
        &self,
        found: LeaseFound,
        ledger: Option<&mut Ledger>,
        now: Tick,
        weight: u32,
    ) -> LeaseFound {
        let free = ledger.and_then(|ledger| {
            let free = ledger.fresh_free(now, Self::retry(ledger))?;
            Some((free, ledger.here(now).next))
        });
        match free {
            Some((free, next)) if found == LeaseFound::Nothing && free < weight => {
                let at = Tick::from_nanos(self.available_at.load(Ordering::Relaxed));
                LeaseFound::Exhausted(if at > now { at } else { next })
            }
            _ => found,
        }
    }

    /// Returns the time after which an exhausted counter of costs asks the store again.
    fn retry(ledger: &Ledger) -> Duration {
        if ledger.terms.by_key {
            KEY_RETRY
        } else {
            HOT_RETRY
        }
    }

    /// Notes that, by the answer to a request that was sent at `sent`, the store has room again
    /// from the time `at`.
    pub(super) fn note_none(&self, ledger: &mut Ledger, sent: Tick, at: Tick) {
        if self.is_doubted(ledger, sent) {
            return;
        }
        self.available_at.store(at.as_nanos(), Ordering::Relaxed);
        ledger.has_none = true;
    }

    /// Returns whether the store may have answered the request that was sent at `sent` before the
    /// key was reset. If so, its refusal is not remembered.
    pub(super) fn is_doubted(&self, ledger: &Ledger, sent: Tick) -> bool {
        is_remembered(ledger) && self.rule.hub.may_precede_reset(sent)
    }

    /// Forgets a refusal of the store, so that the next call asks it again. Called when some key
    /// was reset, which may be the key of this counter.
    pub(in crate::store) fn doubt(&self) {
        let mut books = self.books.lock();
        let Some(ledger) = books.ledger().filter(|ledger| is_remembered(ledger)) else {
            return;
        };
        if ledger.has_none {
            self.forget_refusal(ledger);
        }
    }

    fn forget_refusal(&self, ledger: &mut Ledger) {
        ledger.forget_refusal();
        self.available_at.store(0, Ordering::Relaxed);
        self.cell.reopen();
    }

    /// Forgets all permits of this process after its key was reset: permits that calls have taken,
    /// permits in the cell, and permits to report or to return. Returns whether calls had taken
    /// any.
    pub(in crate::store) fn start_anew(&self) -> bool {
        let mut books = self.books.lock();
        let Some(ledger) = books.ledger() else {
            return false;
        };
        self.count(ledger);
        // The permits in the cell are dropped, as the store no longer counts them.
        let in_hand = self
            .cell
            .withdraw(u32::MAX)
            .map_or(0, |(_, in_hand)| in_hand);
        ledger.uncounted.permits = ledger.uncounted.permits.saturating_sub(in_hand);
        ledger.last_held = 0;
        self.forget_refusal(ledger);
        ledger.forget_own()
    }

    /// Refuses all waiting calls until `at`, or makes them ask for the next bucket.
    pub(super) fn refuse_or_lend(&self, ledger: &mut Ledger, now: Tick, at: Tick) {
        for asker in ledger.take_tickets(usize::MAX) {
            if self.may_ask_ahead(ledger, &asker, now) {
                ledger.ask_ahead(asker, now);
            } else {
                asker.slot.answer(Answer::Refused(Some(at)));
            }
        }
        self.rule.hub.late().note_answers();
    }

    /// Returns whether a call that gets no permits of the present bucket may ask for permits of the
    /// next bucket.
    pub(super) fn may_ask_ahead(&self, ledger: &Ledger, asker: &Asker, now: Tick) -> bool {
        let lends = |latest| self.lends(ledger, now, asker.weight, latest).is_some();
        ledger.affords() && asker.latest.is_some_and(lends)
    }

    /// Marks the cell as exhausted after a draw that was granted too few permits, or none. Calls
    /// are then refused without asking the store.
    ///
    /// A counter of a key stays exhausted until the store has room, or until `next` if the store
    /// has not named a time. Other counters ask again after [`HOT_RETRY`] if they are busy, or if
    /// the draw was only ahead of calls.
    pub(super) fn note_exhausted(
        &self,
        ledger: &mut Ledger,
        sent: &OnTheWay,
        grant: &Grant,
        next: Tick,
    ) {
        let retry_at = grant.received + HOT_RETRY;
        let available_at = grant.received + grant.wait;
        let is_short = grant.permits < sent.firm;
        let is_in_vain = grant.permits == 0 && sent.soft > 0;
        if ledger.terms.by_cost {
            // If some units are left, calls that want less can take them, so the cell is not
            // marked.
            if (is_short || is_in_vain) && grant.permits == 0 && grant.free == 0 {
                let retry_at = grant.received + Self::retry(ledger);
                self.cell.exhaust(available_at.min(retry_at));
            }
            return;
        }
        if self.is_doubted(ledger, grant.sent) {
            return;
        }
        let until = if ledger.terms.by_key && !grant.wait.is_zero() {
            available_at
        } else if is_short && ledger.is_hot {
            available_at.min(retry_at)
        } else if is_short {
            available_at
        } else if is_in_vain && ledger.terms.by_key {
            next
        } else if is_in_vain {
            next.min(retry_at)
        } else {
            return;
        };
        if ledger.terms.by_key {
            self.note_none(ledger, grant.sent, until);
        }
        self.cell.exhaust(until);
    }
}

/// Returns whether a refusal of the store is remembered until the time that the store has named.
/// Only refusals of keys are remembered. Refusals by rules on costs are not, as other calls return
/// unused units all the time.
fn is_remembered(ledger: &Ledger) -> bool {
    ledger.terms.by_key && !ledger.terms.by_cost
}
