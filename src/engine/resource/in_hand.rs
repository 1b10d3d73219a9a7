//! Statistics of the shared rules of a resource: their local permits and their keys. Also resets
//! keys.

use super::leases::{LeaseCounters, Leases};
use crate::call::Key;
use crate::clock::Tick;
use crate::store::{StoreError, StoreKey};

/// The local permits of a rule on one resource.
#[derive(Debug)]
pub(crate) struct InHand {
    /// The number of counters that this process has for the rule.
    pub(crate) cells: usize,
    /// The number of local permits of all these counters.
    pub(crate) permits: u64,
    /// The key of the counter, if the rule has a single one.
    pub(crate) key: Option<StoreKey>,
}

impl Leases {
    /// Returns the local permits of each rule, with its index.
    pub(crate) fn in_hand(&self, now: Tick) -> impl Iterator<Item = (u32, InHand)> {
        self.rules.iter().map(move |leased| {
            let in_hand = match &leased.counters {
                LeaseCounters::One(quota) => InHand {
                    cells: 1,
                    permits: quota.in_hand(now).into(),
                    key: Some(quota.store_key()),
                },
                LeaseCounters::ByKey(quotas) => {
                    let (cells, permits) = quotas.in_hand(now);
                    InHand {
                        cells,
                        permits,
                        key: None,
                    }
                }
            };
            (leased.index, in_hand)
        })
    }

    /// Returns the indices of the rules that count each key separately.
    pub(crate) fn by_key(&self) -> Vec<u32> {
        let by_key = self.rules.iter().filter(|leased| leased.rule.is_by_key());
        by_key.map(|leased| leased.index).collect()
    }

    /// Returns the indices of the rules that count each key separately, each with its number of
    /// resets of keys.
    #[cfg(feature = "page")]
    pub(crate) fn resets(&self) -> Vec<(u32, u64)> {
        let mut resets = Vec::new();
        for leased in &self.rules {
            if let LeaseCounters::ByKey(quotas) = &leased.counters {
                resets.push((leased.index, quotas.rule().figures().resets()));
            }
        }
        resets
    }

    /// Returns the limit of `key` by the rule at `index`, which counts each key separately, and the
    /// estimated number of permits that this process can still get. Returns `None` while the key
    /// has no limit.
    pub(crate) fn left(&self, index: u32, key: &Key<'_>, now: Tick) -> Option<(u32, u32)> {
        let leased = self.rules.iter().find(|leased| leased.index == index)?;
        let LeaseCounters::ByKey(quotas) = &leased.counters else {
            return None;
        };
        let limit = leased.rule.limit_of(key, None)?;
        let (limit, left, _) = quotas.left(key, self.terms(leased, limit), now)?;
        Some((limit, left))
    }

    /// Gives `key` its whole quota back in all processes, for the rule at `index`, which counts
    /// each key separately. Returns whether the key had taken any permits.
    pub(crate) async fn reset(&self, index: u32, key: &Key<'_>) -> Result<bool, StoreError> {
        let mut rules = self.rules.iter();
        let leased = rules.find(|leased| leased.index == index);
        match leased.map(|leased| &leased.counters) {
            Some(LeaseCounters::ByKey(quotas)) => quotas.reset(key).await,
            _ => Ok(false),
        }
    }

    /// Adds the permits that calls have taken so far to the statistics. Permits of a rule by key
    /// are added by the store's task, at its next turn.
    pub(crate) fn count_taken(&self) {
        for leased in &self.rules {
            if let LeaseCounters::One(quota) = &leased.counters {
                quota.count_taken();
            }
        }
    }
}
