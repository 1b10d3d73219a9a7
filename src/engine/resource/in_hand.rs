//! The permits that the shared rules of a resource have in hand, for readers.

use super::leases::{LeaseCounters, Leases};
use crate::call::Key;
use crate::clock::Tick;
use crate::store::StoreKey;

/// The permits that a rule has in hand on one resource.
#[derive(Debug)]
pub(crate) struct InHand {
    /// LeaseCounters of the store that are known here.
    pub(crate) cells: usize,
    pub(crate) permits: u64,
    /// The key of the counter, if there is but one.
    pub(crate) key: Option<StoreKey>,
}

impl Leases {
    /// The permits of each rule, by its index.
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

    /// The rules that count each key apart, by their index.
    pub(crate) fn by_key(&self) -> Vec<u32> {
        let by_key = self.rules.iter().filter(|leased| leased.rule.is_by_key());
        by_key.map(|leased| leased.index).collect()
    }

    /// The limit of `key` by the rule at `index`, which counts each key apart, and how many permits
    /// of it this process may still get, as far as it knows; `None` while the key has no limit.
    pub(crate) fn left(&self, index: u32, key: &Key<'_>, now: Tick) -> Option<(u32, u32)> {
        let leased = self.rules.iter().find(|leased| leased.index == index)?;
        let LeaseCounters::ByKey(quotas) = &leased.counters else {
            return None;
        };
        let limit = leased.rule.limit_of(key, None)?;
        let (limit, left, _) = quotas.left(key, self.terms(leased, limit), now)?;
        Some((limit, left))
    }

    /// Counts the permits that calls have taken so far. Permits of a rule by key are counted by the
    /// task of the store, at its next turn.
    pub(crate) fn count_taken(&self) {
        for leased in &self.rules {
            if let LeaseCounters::One(quota) = &leased.counters {
                quota.count_taken();
            }
        }
    }
}
