//! The permits that the shared rules of a resource have in hand, for readers.

use super::leases::{LeaseCounters, Leases};
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
