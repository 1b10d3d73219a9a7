//! How the cost of a call is posted in a window and a gauge: of all callers, or of one key.

use std::time::Duration;

use super::account::{Account, CostTold, Posting};
use super::counts::BudgetCounts;
use crate::base::sync::{Bug, planted};
use crate::clock::Tick;

/// The `Retry-After` where only reservations are in the way: when they end is unknown.
const RETRY: Duration = Duration::from_secs(1);

/// A window of what was charged, and a gauge of what is reserved.
pub(crate) trait CostLedger {
    /// Charges `units` in the window.
    fn book(&self, now: Tick, units: u32);

    /// Releases `units` from the gauge.
    fn release(&self, units: u32);

    fn counts(&self) -> &BudgetCounts;

    /// What a new call may still cost.
    fn left(&self, now: Tick) -> u32;

    /// A provider has so much left until so much time is over. Only a budget of all callers of this
    /// process takes notice: a key has no word for it, and a shared budget none that all processes see.
    fn tell_left(&self, _: Tick, _: u32, _: Duration) {}

    /// When the window alone has room for `wanted` units; `None` if never.
    fn window_room_at(&self, now: Tick, wanted: u32) -> Option<Tick>;

    /// The call of `account`, which was charged nothing so far, runs: its reservation counts.
    fn start(&self, account: &Account) {
        self.counts().reserved(account.rest());
    }

    /// Takes back the reservation of a call that does not run.
    fn cancel(&self, account: &Account) {
        let Posting { release, .. } = account.settle(0);
        self.release(release);
    }

    /// The call of `account` has cost `units` more. Returns whether something is left, of its
    /// reservation or of the limit.
    fn charge(&self, account: &Account, now: Tick, units: u32) -> bool {
        let posting = account.charge(units);
        self.post(now, posting);
        posting.rest > 0 || self.left(now) > 0
    }

    /// The call of `account` has cost `units` more, and nobody asks what is left.
    fn add(&self, account: &Account, now: Tick, units: u32) {
        self.post(now, account.charge(units));
    }

    /// The call of `account` costs `total` in all.
    fn settle(&self, account: &Account, now: Tick, total: u32) {
        self.post(now, account.settle(total));
    }

    /// The call of `account` has ended, and nobody can charge it any more.
    fn close(&self, account: &Account, now: Tick, has_failed: bool) {
        let (posting, told) = account.close(has_failed);
        self.post(now, posting);
        match told {
            CostTold::Cost(units) => self.counts().told(units),
            CostTold::Nothing => self.counts().untold(),
            CostTold::Failure => {}
        }
    }

    /// Books first and releases second: see the [module](super).
    fn post(&self, now: Tick, posting: Posting) {
        if planted(Bug::ReleaseBeforeBook) {
            self.release(posting.release);
            self.book(now, posting.book);
            return;
        }
        if posting.book > 0 {
            self.book(now, posting.book);
        }
        self.release(posting.release);
        if posting.cut > 0 {
            self.counts().cut(posting.cut);
        }
    }

    /// When a call that wants to reserve `wanted` units may be let in, if no other one comes: now,
    /// or when the window alone has room for them. `None` if never.
    fn room_at(&self, now: Tick, wanted: u32) -> Option<Tick> {
        let wanted = wanted.max(1);
        if wanted <= self.left(now) {
            return Some(now);
        }
        let at = self.window_room_at(now, wanted)?;
        Some(if at <= now { now + RETRY } else { at })
    }
}
