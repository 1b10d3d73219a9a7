//! The quotas of each value by one rule.

use std::collections::HashMap;
use std::sync::Arc as StdArc;

use crate::call::{Key, OwnedKey};
use crate::keyed::{Digest, KeyLimit};

/// The quotas of the calls of each value.
#[derive(Clone, Debug)]
pub(super) struct QuotasByValue {
    pub(super) limit: ValueQuota,
    pub(super) exceptions: StdArc<Exceptions>,
    /// Of two for one name, the last one is found first.
    pub(super) tiers: StdArc<[(OwnedKey, ValueQuota)]>,
}

/// The quotas of single values, each under a keyed hash already.
pub(super) type Exceptions = HashMap<Digest, ValueQuota, foldhash::fast::RandomState>;

/// The quota of the calls of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueQuota {
    pub(super) threshold: f64,
    pub(super) prepared: KeyLimit,
}

// === impl Quotas ===

impl QuotasByValue {
    /// That of a value, for calls of a tier.
    pub(super) fn of(&self, key: Digest, tier: Option<&Key<'_>>) -> &ValueQuota {
        if let Some(own) = self.exceptions.get(&key) {
            return own;
        }
        let tier = tier.and_then(|tier| self.tiers.iter().find(|(name, _)| tier.is_kept_as(name)));
        tier.map_or(&self.limit, |(_, quota)| quota)
    }
}
