//! The quotas of each value by one rule.

use std::collections::HashMap;
use std::sync::{Arc as StdArc, OnceLock};

use crate::base::sync::shared_size;
use crate::call::{Key, OwnedKey};
use crate::clock::Tick;
use crate::keyed::{Digest, HotKeys, KeyLimit, RatesInUse};
use crate::rule::KeyedRule;

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
    /// Infinite without a limit.
    pub(super) threshold: f64,
    pub(super) prepared: KeyLimit,
}

impl ValueQuota {
    pub(super) const UNLIMITED: Self = Self {
        threshold: f64::INFINITY,
        prepared: KeyLimit::Unlimited,
    };

    pub(super) const fn is_unlimited(&self) -> bool {
        matches!(self.prepared, KeyLimit::Unlimited)
    }
}

// === impl QuotasByValue ===

impl QuotasByValue {
    /// Those of `rule`, whose values are counted in `keys`, from now on, beside `rates` that are in
    /// use. They are as `before` if the rule has not changed.
    pub(super) fn new(
        rule: &KeyedRule,
        (keys, now): (&HotKeys, Tick),
        rates: &mut RatesInUse,
        before: Option<&Self>,
    ) -> Self {
        // The keys may be those of a rule with another longest wait.
        let mut quota = |threshold| {
            let prepared = keys.limit_beside(threshold, rule.beside(), now, rates);
            ValueQuota {
                threshold,
                prepared: prepared.waiting(rule.max_wait()),
            }
        };
        // Those of many values first: a table does not know any number of rates.
        let limit = quota(rule.threshold());
        let mut tiers = Vec::new();
        for (tier, threshold) in rule.tiers.iter().rev() {
            let quota = quota(*threshold);
            for key in Key::spellings(tier) {
                tiers.push((OwnedKey::from(key), quota));
            }
        }
        for tier in &rule.unlimited_tiers {
            for key in Key::spellings(tier) {
                tiers.push((OwnedKey::from(key), ValueQuota::UNLIMITED));
            }
        }
        let exceptions = match before {
            // There may be many, and calls wait for them.
            Some(before) => before.exceptions.clone(),
            None => {
                let mut exceptions = Exceptions::default();
                // A limit counts if a value is spelled in another way there.
                for value in &rule.unlimited_values {
                    for key in Key::spellings(value) {
                        exceptions.insert(keys.digest(&key), ValueQuota::UNLIMITED);
                    }
                }
                for (value, threshold) in rule.exceptions.iter() {
                    let quota = quota(*threshold);
                    for key in Key::spellings(value) {
                        exceptions.insert(keys.digest(&key), quota);
                    }
                }
                StdArc::new(exceptions)
            }
        };
        Self {
            limit,
            exceptions,
            tiers: tiers.into(),
        }
    }

    /// Adds the rates of all quotas to `rates`.
    pub(super) fn note_rates(&self, rates: &mut RatesInUse) {
        rates.note(&self.limit.prepared);
        for (_, quota) in self.tiers.iter() {
            rates.note(&quota.prepared);
        }
        for quota in self.exceptions.values() {
            rates.note(&quota.prepared);
        }
    }

    /// Bytes that they occupy on the heap.
    pub(super) fn heap(&self) -> usize {
        let exception = size_of::<(Digest, ValueQuota)>() + 1;
        let mut names = 0;
        for (tier, _) in self.tiers.iter() {
            names += match tier {
                OwnedKey::Str(text) => {
                    shared_size::<()>() + text.len().next_multiple_of(align_of::<usize>())
                }
                OwnedKey::Ip(_)
                | OwnedKey::Int(_)
                | OwnedKey::Digest(..)
                | OwnedKey::Agreed(..)
                | OwnedKey::Reserved(_) => 0,
            };
        }
        shared_size::<Exceptions>()
            + self.exceptions.capacity() * exception
            + shared_size::<()>()
            + size_of_val(&*self.tiers)
            + names
    }

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
