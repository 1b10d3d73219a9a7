//! The quotas of each value by one rule.

use std::collections::HashMap;
use std::sync::{Arc as StdArc, OnceLock};

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

/// A text that is longer is no misspelt name.
const LONGEST_TIER: usize = 64;

/// The first few tiers of calls that a rule does not know, to be compared with those that it knows.
/// A name without a quota of its own is no mistake, so there may be any number of them.
#[derive(Debug, Default)]
pub(super) struct UnknownTiers([OnceLock<OwnedKey>; 4]);

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

    /// Returns whether the rule has tiers, and `tier` is none of them.
    #[inline]
    pub(super) fn is_unknown(&self, tier: &Key<'_>) -> bool {
        !self.tiers.is_empty() && !self.tiers.iter().any(|(name, _)| tier.is_kept_as(name))
    }
}

// === impl UnknownTiers ===

impl UnknownTiers {
    /// Keeps `tier`, and returns true for the call that is the first with it. Tiers beyond the
    /// first few are not kept.
    pub(super) fn note(&self, tier: &Key<'_>) -> bool {
        if matches!(tier, Key::Str(text) if text.len() > LONGEST_TIER) {
            return false;
        }
        for place in &self.0 {
            let mut is_new = false;
            let known = place.get_or_init(|| {
                is_new = true;
                OwnedKey::from(*tier)
            });
            if tier.is_kept_as(known) {
                return is_new;
            }
        }
        false
    }

    pub(super) fn each(&self, f: &mut dyn FnMut(&Key<'_>)) {
        for known in self.0.iter().filter_map(OnceLock::get) {
            f(&known.as_key());
        }
    }
}
