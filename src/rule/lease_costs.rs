//! Costs of calls under a shared rule: a reservation consists of permits that the store has
//! counted.
//!
//! A call draws permits for what it reserves, and at least one, as a call under a rule on calls
//! draws permits for its weight. While its cost stays within these permits, nothing more has to be
//! reported. When it ends, unused permits are given back, and a cost beyond the permits is booked:
//! the [counter](SharedQuota) reports both to the store with the next draw.

use crate::base::sync::{Arc, AtomicBool, AtomicU64, Bug, Ordering, planted};
use crate::budget::{Account, BudgetCounts, BudgetFigures, CostLedger, Posting};
use crate::clock::Tick;
use crate::store::{SharedQuota, Validity};

/// The totals of the budget of one shared rule on one resource. Kept over reloads.
#[derive(Debug)]
pub(crate) struct LeaseCosts {
    unit: Box<str>,
    /// Units that running calls have reserved.
    reserved: AtomicU64,
    counts: BudgetCounts,
}

/// A shared rule on costs, for reading its figures.
#[derive(Debug)]
pub(crate) struct SharedCostRule {
    pub(crate) index: u32,
    pub(crate) limit: u32,
    pub(crate) costs: Arc<LeaseCosts>,
    /// The counter of all calls; `None` if each key has a counter.
    pub(crate) quota: Option<Arc<SharedQuota>>,
}

/// The account of one call under one shared rule, with the permits that the call has drawn.
#[derive(Debug)]
pub(crate) struct LeaseAccount {
    account: Account,
    costs: Arc<LeaseCosts>,
    quota: Arc<SharedQuota>,
    /// The period for which the permits are valid; `None` for a call that passes without permits.
    valid: Option<Validity>,
    /// Whether the call still holds the one permit that a call draws if it reserves nothing.
    has_spare: AtomicBool,
}

// === impl LeaseCosts ===

impl LeaseCosts {
    pub(crate) fn new(unit: &str) -> Self {
        Self {
            unit: unit.into(),
            reserved: AtomicU64::new(0),
            counts: BudgetCounts::default(),
        }
    }
}

// === impl SharedCostRule ===

impl SharedCostRule {
    pub(super) const fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn unit(&self) -> &str {
        &self.costs.unit
    }

    pub(super) const fn is_by_key(&self) -> bool {
        self.quota.is_none()
    }

    /// The figures of the rule. `used` is what all processes have drawn by the last answer of the
    /// store, less what calls of this process have reserved. It is 0 if each key has a counter.
    pub(super) fn figures(&self, now: Tick) -> BudgetFigures {
        let reserved = self.costs.reserved.load(Ordering::Relaxed);
        let reserved = u32::try_from(reserved).unwrap_or(u32::MAX);
        let left = self.quota.as_ref().and_then(|quota| quota.left(now));
        let (limit, left) = left.map_or((self.limit, self.limit), |(limit, left, _)| (limit, left));
        BudgetFigures {
            limit,
            used: (limit - left).saturating_sub(reserved),
            reserved,
            ..self.costs.counts.totals()
        }
    }
}

// === impl LeaseAccount ===

impl LeaseAccount {
    /// Creates the account of a call that has `reserved` units and holds permits of `quota` for
    /// them, or one permit if it reserves nothing.
    pub(crate) fn new(
        costs: Arc<LeaseCosts>,
        reserved: u32,
        quota: Arc<SharedQuota>,
        valid: Option<Validity>,
    ) -> Self {
        Self {
            account: Account::new(reserved),
            costs,
            quota,
            valid,
            has_spare: AtomicBool::new(reserved == 0 && valid.is_some()),
        }
    }

    pub(super) fn unit(&self) -> &str {
        &self.costs.unit
    }

    pub(super) const fn account(&self) -> &Account {
        &self.account
    }

    /// Takes the one permit of a call that reserved nothing. Returns 1, or 0 if the permit is taken
    /// already.
    fn take_spare(&self) -> u32 {
        if planted(Bug::SpareTakenTwice) {
            let has_spare = self.has_spare.load(Ordering::Relaxed);
            self.has_spare.store(false, Ordering::Relaxed);
            return has_spare.into();
        }
        self.has_spare.swap(false, Ordering::Relaxed).into()
    }

    /// Gives `units` permits that the call did not use back to the counter.
    fn give_back(&self, units: u32, now: Tick) {
        if let Some(valid) = self.valid {
            SharedQuota::give_back(&self.quota, valid, units, now);
        }
    }
}

impl CostLedger for LeaseAccount {
    /// Charges `units` that the call has no permits for.
    fn book(&self, now: Tick, units: u32) -> Option<u32> {
        let over = SharedQuota::book_excess(&self.quota, units, now);
        self.costs.counts.charged(units, over);
        None
    }

    /// Does nothing: a call that does not start has added nothing to `reserved`.
    fn release(&self, _: u32) {}

    fn counts(&self) -> &BudgetCounts {
        &self.costs.counts
    }

    fn left(&self, now: Tick) -> u32 {
        self.quota.left(now).map_or(u32::MAX, |(_, left, _)| left)
    }

    fn window_room_at(&self, now: Tick, wanted: u32) -> Option<Tick> {
        self.quota.room_at(now, wanted)
    }

    fn start(&self, account: &Account) {
        let units = account.rest();
        self.costs
            .reserved
            .fetch_add(units.into(), Ordering::Relaxed);
        self.costs.counts.reserved(units);
    }

    fn post(&self, now: Tick, posting: Posting) -> Option<u32> {
        let Posting {
            book, release, cut, ..
        } = posting;
        let mut paid = if self.valid.is_some() { release } else { 0 };
        if book > paid {
            paid += self.take_spare();
        }
        self.costs.counts.charged(book.min(paid), 0);
        if book > paid {
            self.book(now, book - paid);
        }
        self.give_back(paid.saturating_sub(book), now);
        if release > 0 {
            self.costs
                .reserved
                .fetch_sub(release.into(), Ordering::Relaxed);
        }
        if cut > 0 {
            self.costs.counts.cut(cut);
        }
        None
    }
}

impl Drop for LeaseAccount {
    fn drop(&mut self) {
        if let (Some(valid), 1) = (self.valid, self.take_spare()) {
            SharedQuota::refund_now(&self.quota, valid, 1);
        }
    }
}

#[cfg(all(test, sentinel_loom))]
mod models {
    //! Every interleaving of two threads that report the cost of one call under a shared rule.

    use loom::thread;

    use super::*;
    use crate::base::sync::fault::model;
    use crate::store::models::{COSTS, cost_counter, hub};
    use crate::store::{Answer, Terms, WhenDown};

    const LIMIT: u32 = COSTS.limit;
    const NOW: Tick = Tick::from_millis(10);

    /// A counter without a store. The process's share is the whole limit, so the unused share is
    /// what is left of the limit.
    fn quota() -> Arc<SharedQuota> {
        let terms = Terms {
            when_down: WhenDown::LocalShare,
            local_limit: Some(LIMIT),
            ..COSTS
        };
        cost_counter(&hub(), terms, 1)
    }

    /// The account of a running call that has `reserved` units.
    fn running(quota: &Arc<SharedQuota>, reserved: u32) -> Arc<LeaseAccount> {
        let answer = SharedQuota::without_store(quota, NOW, reserved.max(1));
        let Answer::Granted(valid) = answer else {
            panic!("the share has it: {answer:?}");
        };
        let costs = Arc::new(LeaseCosts::new("tokens"));
        let account = LeaseAccount::new(costs, reserved, quota.clone(), Some(valid));
        account.start(account.account());
        Arc::new(account)
    }

    /// Charges one unit on another thread, while `f` runs on this thread. Returns what the call was
    /// charged in all, and the part of the charge that exceeds the limit.
    fn charge_meanwhile(account: Arc<LeaseAccount>, f: fn(&LeaseAccount)) -> (u64, u64) {
        let charging = {
            let account = account.clone();
            thread::spawn(move || _ = account.charge(account.account(), NOW, 1))
        };
        f(&account);
        charging.join().unwrap();
        account.close(account.account(), NOW, false);
        let totals = account.costs.counts.totals();
        (totals.charged_total, totals.over_total)
    }

    fn left(quota: &SharedQuota) -> u32 {
        let (_, left, _) = quota.left(NOW).expect("it has a limit");
        left
    }

    model! {
        two_charges_beside_the_spare_permit at 3 fails with
            a_spare_permit_that_pays_twice: SpareTakenTwice;
        || {
            let quota = quota();
            let (charged, over) = charge_meanwhile(running(&quota, 0), |account| {
                account.charge(account.account(), NOW, 1);
            });
            // The process already holds the rest of its share, so nothing is free for the excess.
            assert_eq!((charged, over), (2, 1));
        }
    }

    model! {
        a_charge_beside_a_settlement_of_permits at 3 fails with
            a_rest_that_goes_back_twice: RestReleasedTwice;
        || {
            let quota = quota();
            let (charged, _) = charge_meanwhile(running(&quota, 3), |account| {
                account.settle(account.account(), NOW, 2);
            });
            // The settlement includes the charge, or the charge is added to it.
            assert!(charged == 2 || charged == 3, "{charged}");
            assert_eq!(u64::from(left(&quota)), u64::from(LIMIT) - charged);
        }
    }
}
