//! What calls cost by a shared rule: a reservation is permits of the store, which it has counted.
//!
//! A call draws permits for what it reserves, as one on calls does for its weight, and at least one.
//! Within them it costs nothing more that anybody must be told. What it has not used at its end goes
//! back, and what it costs beyond that is booked: both by the [counter](SharedQuota), and with the
//! next draw.

use crate::base::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use crate::budget::{Account, BudgetCounts, BudgetFigures, CostLedger, Posting};
use crate::clock::Tick;
use crate::store::{SharedQuota, Validity};

/// What has gone through the budget of one shared rule on one resource. It outlasts a reload.
#[derive(Debug)]
pub(crate) struct LeaseCosts {
    unit: Box<str>,
    /// What running calls have reserved.
    reserved: AtomicU64,
    counts: BudgetCounts,
}

/// A shared rule on costs, for those who look at what it has counted.
#[derive(Debug)]
pub(crate) struct SharedCostRule {
    pub(crate) index: u32,
    pub(crate) limit: u32,
    pub(crate) costs: Arc<LeaseCosts>,
    /// The counter of all calls; `None` if each key has one.
    pub(crate) quota: Option<Arc<SharedQuota>>,
}

/// The account of one call by one shared rule, with the permits that it has drawn.
#[derive(Debug)]
pub(crate) struct LeaseAccount {
    account: Account,
    costs: Arc<LeaseCosts>,
    quota: Arc<SharedQuota>,
    /// `None` for a call that passes without permits.
    valid: Option<Validity>,
    /// Whether it has a permit beyond its reservation, as it reserves nothing.
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

    /// Its figures. What is used is what all processes have drawn by the last answer of the store,
    /// without what calls of this one have reserved; nothing, if each key has a counter.
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
    /// That of a call which has `reserved` so much and has permits of `quota` for that, or for one.
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

    /// Takes the permit beyond the reservation, once.
    fn take_spare(&self) -> u32 {
        self.has_spare.swap(false, Ordering::Relaxed).into()
    }

    fn give_back(&self, units: u32, now: Tick) {
        if let Some(valid) = self.valid {
            SharedQuota::give_back(&self.quota, valid, units, now);
        }
    }
}

impl CostLedger for LeaseAccount {
    /// Charges `units` that the call has no permits for.
    fn book(&self, now: Tick, units: u32) {
        let over = SharedQuota::book_excess(&self.quota, units, now);
        self.costs.counts.charged(units, over);
    }

    /// Only the call that runs has reserved anything.
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

    fn post(&self, now: Tick, posting: Posting) {
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
    }
}

impl Drop for LeaseAccount {
    fn drop(&mut self) {
        if let (Some(valid), 1) = (self.valid, self.take_spare()) {
            SharedQuota::refund_now(&self.quota, valid, 1);
        }
    }
}
