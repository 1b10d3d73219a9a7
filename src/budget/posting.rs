//! Posts the costs of calls to a window and a gauge, which belong to a rule or to one of its keys.

use std::time::Duration;

use super::account::{Account, Posting, ReportedCost};
use super::counts::BudgetCounts;
use crate::base::sync::{Bug, planted};
use crate::clock::Tick;

/// The `Retry-After` of a call that is refused only because of reservations, whose end is unknown.
const RETRY: Duration = Duration::from_secs(1);

/// A window of charged units, and a gauge of reserved units.
pub(crate) trait CostLedger {
    /// Charges `units` in the window. Returns the units that the window then has left, if known.
    fn book(&self, now: Tick, units: u32) -> Option<u32>;

    /// Releases `units` from the gauge.
    fn release(&self, units: u32);

    /// Returns the totals.
    fn counts(&self) -> &BudgetCounts;

    /// Returns the units that a new call may still cost.
    fn left(&self, now: Tick) -> u32;

    /// Returns whether any units are left for a new call. `booked` is the result of a booking at
    /// `now`, which saves another reading of the window.
    fn has_left(&self, now: Tick, booked: Option<u32>) -> bool {
        let _ = booked;
        self.left(now) > 0
    }

    /// Notes that a provider has a number of units left until its reset. Only a budget for all
    /// callers of this process uses it: a budget for each key has no field for the numbers, and a
    /// shared budget has no field that all processes see.
    fn note_provider_left(&self, _: Tick, _: u32, _: Duration) {}

    /// Returns the time at which the window has room for `wanted` units, regardless of the gauge;
    /// `None` if never.
    fn window_room_at(&self, now: Tick, wanted: u32) -> Option<Tick>;

    /// Counts the reservation of a call that starts and was not charged yet.
    #[inline]
    fn start(&self, account: &Account) {
        self.counts().reserved(account.rest());
    }

    /// Releases the reservation of a call that does not start.
    fn cancel(&self, account: &Account) {
        let Posting { release, .. } = account.settle(0);
        self.release(release);
    }

    /// Charges `units` more to the call of `account`. Returns whether anything is left of its
    /// reservation or of the limit.
    #[inline]
    fn charge(&self, account: &Account, now: Tick, units: u32) -> bool {
        let posting = account.charge(units);
        let booked = self.post(now, posting);
        posting.rest > 0 || self.has_left(now, booked)
    }

    /// Charges `units` more to the call of `account`, without computing whether anything is left.
    #[inline]
    fn add(&self, account: &Account, now: Tick, units: u32) {
        self.post(now, account.charge(units));
    }

    /// Settles the call of `account` at `total`.
    #[inline]
    fn settle(&self, account: &Account, now: Tick, total: u32) {
        self.post(now, account.settle(total));
    }

    /// Closes the account of a call that has ended and can no longer be charged.
    #[inline]
    fn close(&self, account: &Account, now: Tick, has_failed: bool) {
        let (posting, reported) = account.close(has_failed);
        self.post(now, posting);
        match reported {
            ReportedCost::Cost(units) => self.counts().note_reported(units),
            ReportedCost::Nothing => self.counts().note_unreported(),
            ReportedCost::Failure => {}
        }
    }

    /// Applies a posting. Books first and releases second: see the [module](super). Returns the
    /// result of the booking.
    #[inline]
    fn post(&self, now: Tick, posting: Posting) -> Option<u32> {
        if planted(Bug::ReleaseBeforeBook) {
            self.release(posting.release);
            return self.book(now, posting.book);
        }
        let mut left = None;
        if posting.book > 0 {
            left = self.book(now, posting.book);
        }
        if posting.release > 0 {
            self.release(posting.release);
        }
        if posting.cut > 0 {
            self.counts().cut(posting.cut);
        }
        left
    }

    /// Returns the time at which a call that wants to reserve `wanted` units may be admitted, if no
    /// other call arrives: now, or when the window has room for them. Returns `None` if never.
    fn room_at(&self, now: Tick, wanted: u32) -> Option<Tick> {
        let wanted = wanted.max(1);
        if wanted <= self.left(now) {
            return Some(now);
        }
        let at = self.window_room_at(now, wanted)?;
        Some(if at <= now { now + RETRY } else { at })
    }
}
