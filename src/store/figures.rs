//! Statistics of a store and of the rules that use it.

use crate::base::sync::{Arc, AtomicU64, Lock, Ordering};

/// A counter that only grows.
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

/// The counts of the shared rules with one id. They include all keys and survive reloads.
#[derive(Debug, Default)]
pub(crate) struct RuleCounts {
    /// Permits that calls have taken from grants of the store.
    pub(crate) granted: Count,
    /// Calls that had to wait for the store.
    pub(crate) waited: Count,
    /// Calls that were refused.
    pub(crate) refused: Count,
    /// Permits that calls have taken from the process's local share.
    pub(crate) local: Count,
    /// Permits that were drawn, but given back to the store unused.
    pub(crate) repaid: Count,
    /// Permits that were drawn, but could not be used or given back.
    pub(crate) lost: Count,
    /// Resets of keys, which give a key its whole quota back.
    pub(crate) resets: Count,
}

/// The counts to which the counters of one rule add. They are replaced when a reload gives the rule
/// another id.
#[derive(Debug)]
pub(crate) struct RuleFigures(Lock<Arc<RuleCounts>>);

impl RuleCounts {
    /// Returns the counts in the order granted, waited, refused, local, repaid, lost, resets.
    pub(crate) fn read(&self) -> [u64; 7] {
        let all = [
            &self.granted,
            &self.waited,
            &self.refused,
            &self.local,
            &self.repaid,
            &self.lost,
            &self.resets,
        ];
        all.map(Count::get)
    }
}

impl RuleFigures {
    pub(crate) fn new(counts: &Arc<RuleCounts>) -> Self {
        Self(Lock::new(counts.clone()))
    }

    /// Makes the counters add to `counts` from now on.
    pub(crate) fn note_successor(&self, counts: &Arc<RuleCounts>) {
        *self.0.lock() = counts.clone();
    }

    /// Returns the number of resets of keys under the rule's present id.
    #[cfg(feature = "page")]
    pub(crate) fn resets(&self) -> u64 {
        self.counts().resets.get()
    }

    /// Returns the counts of the rule's present id.
    pub(super) fn counts(&self) -> Arc<RuleCounts> {
        self.0.lock().clone()
    }
}

/// The counts of requests to the store.
#[derive(Debug, Default)]
pub(crate) struct StoreFigures {
    /// Requests with draws.
    pub(crate) trips: Count,
    /// Draws in all requests.
    pub(crate) draws: Count,
    /// Errors by kind, at the [index](super::StoreErrorKind::index) of the kind.
    pub(crate) errors: [Count; 6],
}
