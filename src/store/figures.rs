//! The counts of a store and of the rules that use it.

use crate::base::sync::{AtomicU64, Ordering};

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

/// The counts of one rule, over all its keys.
#[derive(Debug, Default)]
pub(crate) struct RuleFigures {
    /// Permits that calls were given, of those that the store has granted.
    pub(crate) granted: Count,
    /// Calls that waited for the store.
    pub(crate) waited: Count,
    /// Calls that were refused.
    pub(crate) refused: Count,
    /// Permits that calls were given without the store.
    pub(crate) local: Count,
    /// Permits that were drawn and could be neither used nor given back.
    pub(crate) lost: Count,
}

/// The counts of the store.
#[derive(Debug, Default)]
pub(crate) struct StoreFigures {
    pub(crate) trips: Count,
    pub(crate) draws: Count,
    /// By kind, in the order of their declaration.
    pub(crate) errors: [Count; 6],
}
