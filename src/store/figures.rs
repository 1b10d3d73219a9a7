//! The counts of a store and of the rules that use it.

use crate::base::sync::{Arc, AtomicU64, Lock, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        if n > 0 {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of the shared rules of one id, over all their keys and through all reloads.
#[derive(Debug, Default)]
pub(crate) struct RuleCounts {
    /// Permits that calls were given, of those that the store has granted.
    pub(crate) granted: Count,
    /// Calls that waited for the store.
    pub(crate) waited: Count,
    /// Calls that were refused.
    pub(crate) refused: Count,
    /// Permits that calls were given without the store.
    pub(crate) local: Count,
    /// Permits that were drawn, not used, and sent back.
    pub(crate) repaid: Count,
    /// Permits that were drawn and could be neither used nor given back.
    pub(crate) lost: Count,
}

/// Where the counters of one rule note what they do: a reload may give the rule another id.
#[derive(Debug)]
pub(crate) struct RuleFigures(Lock<Arc<RuleCounts>>);

impl RuleCounts {
    /// Granted, waited, refused, local, repaid and lost.
    pub(crate) fn read(&self) -> [u64; 6] {
        let all = [
            &self.granted,
            &self.waited,
            &self.refused,
            &self.local,
            &self.repaid,
            &self.lost,
        ];
        all.map(Count::get)
    }
}

impl RuleFigures {
    pub(crate) fn new(counts: &Arc<RuleCounts>) -> Self {
        Self(Lock::new(counts.clone()))
    }

    /// Counts in `counts` from here on.
    pub(crate) fn note_successor(&self, counts: &Arc<RuleCounts>) {
        *self.0.lock() = counts.clone();
    }

    /// The counts under the present id.
    pub(super) fn counts(&self) -> Arc<RuleCounts> {
        self.0.lock().clone()
    }
}

/// The counts that are kept of the store.
#[derive(Debug, Default)]
pub(crate) struct StoreFigures {
    pub(crate) trips: Count,
    pub(crate) draws: Count,
    /// By kind, in the order of their declaration.
    pub(crate) errors: [Count; 6],
}
