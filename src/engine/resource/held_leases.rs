//! The permits of shared rules that a call holds.

use std::mem;

use super::leases::{LeaseTarget, WantedUnits};
use crate::base::small_vec::SmallVec;
use crate::base::sync::Arc;
use crate::clock::Tick;
use crate::rule::LeaseAccount;
use crate::store::{SharedQuota, Validity};

/// The leases that a call has taken. Dropping them refunds the permits, unless they are spent.
#[derive(Debug, Default)]
pub(crate) struct HeldLeases(SmallVec<HeldLease, 2>);

/// The permits that a call holds from one counter.
#[derive(Debug)]
struct HeldLease {
    /// The counter that has drawn the permits.
    quota: Arc<SharedQuota>,
    /// The validity of the permits; `None` if the call passes without permits.
    valid: Option<Validity>,
    weight: u32,
    cost: Option<WantedUnits>,
}

// === impl HeldLeases ===

impl HeldLeases {
    pub(super) fn push(&mut self, target: &LeaseTarget, valid: Option<Validity>) {
        self.0.push(HeldLease {
            quota: target.quota.clone(),
            valid,
            weight: target.weight,
            cost: target.cost.clone(),
        });
    }

    pub(super) fn has(&self, quota: &SharedQuota) -> bool {
        self.0.iter().any(|held| held.quota.counts_as(quota))
    }

    /// Takes over the permits of `target` that the call `had` before, if the call still needs the
    /// same number. Returns whether there were such permits.
    ///
    /// The permits keep the counter object that has drawn them. The target can be another object
    /// for the same counter: the counter of a key without a place in its table is created at each
    /// lookup. This other object could not account for a refund of the permits.
    pub(super) fn take_over(&mut self, had: &mut Self, target: &LeaseTarget) -> bool {
        let is_it =
            |held: &HeldLease| held.quota.counts_as(&target.quota) && held.weight == target.weight;
        let Some(held) = had.0.remove(is_it) else {
            return false;
        };
        self.0.push(HeldLease {
            cost: target.cost.clone(),
            ..held
        });
        true
    }

    fn validities(&self) -> impl Iterator<Item = Validity> {
        self.0.iter().filter_map(|held| held.valid)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().next().is_none()
    }

    /// Returns whether any of the permits are borrowed.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.validities().any(Validity::is_borrowed)
    }

    /// Returns the time from which the call may use all permits.
    pub(crate) fn start(&self) -> Tick {
        let starts = self.validities().map(|valid| valid.from);
        starts.max().unwrap_or_default()
    }

    /// Returns whether all permits are still valid at `start`.
    pub(crate) fn last_until(&self, start: Tick) -> bool {
        self.validities().all(|valid| !valid.end.is_over(start))
    }

    /// Refunds the permits that will have expired at `start`, the time at which the call will run.
    pub(super) fn keep_for(&mut self, start: Tick) {
        let is_over = |held: &HeldLease| held.valid.is_some_and(|valid| valid.end.is_over(start));
        while let Some(over) = self.0.remove(is_over) {
            let mut refunded = Self::default();
            refunded.0.push(over);
        }
    }

    /// Spends the permits of a call that starts. Returns an account for the permits of each rule on
    /// costs.
    pub(crate) fn spend(&mut self) -> SmallVec<LeaseAccount, 1> {
        let mut accounts = SmallVec::default();
        for held in mem::take(&mut self.0).iter() {
            if let Some(WantedUnits { costs, units }) = &held.cost {
                let quota = held.quota.clone();
                let account = LeaseAccount::new(costs.clone(), *units, quota, held.valid);
                accounts.push(account);
            }
        }
        accounts
    }
}

impl Drop for HeldLeases {
    fn drop(&mut self) {
        for held in self.0.iter() {
            if let Some(valid) = held.valid {
                SharedQuota::refund_now(&held.quota, valid, held.weight);
            }
        }
    }
}
