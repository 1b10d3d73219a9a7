//! The quotas of the values under one rule.

use std::collections::HashMap;
use std::sync::{Arc as StdArc, OnceLock};

use crate::base::sync::shared_size;
use crate::call::{Key, OwnedKey};
use crate::clock::Tick;
use crate::keyed::{Digest, HotKeys, KeyLimit, RatesInUse};
use crate::rule::KeyedRule;

/// The quotas of one rule: the general quota, and the quotas of exceptions and tiers.
#[derive(Clone, Debug)]
pub(super) struct QuotasByValue {
    pub(super) limit: ValueQuota,
    pub(super) exceptions: StdArc<Exceptions>,
    /// The quota of each tier. In reverse order of the settings, so that the last of two settings
    /// for one name is found first.
    pub(super) tiers: StdArc<[(OwnedKey, ValueQuota)]>,
}

/// The quotas of exceptional values, by the digests of the values.
pub(super) type Exceptions = HashMap<Digest, ValueQuota, foldhash::fast::RandomState>;

/// The longest unknown tier that is kept, in bytes: a longer text is hardly a misspelled name.
const LONGEST_TIER: usize = 64;

/// The first few tiers of calls that a rule does not name, to find misspelled names. Further tiers
/// are not kept: calls can have any number of tiers without a quota.
#[derive(Debug, Default)]
pub(super) struct UnknownTiers([OnceLock<OwnedKey>; 4]);

/// The quota of one value, or of the values of one tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueQuota {
    /// Tokens per interval, or calls at once; infinite if there is no limit.
    pub(super) threshold: f64,
    pub(super) prepared: KeyLimit,
}

impl ValueQuota {
    /// The quota of a value or tier without a limit.
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
    /// Prepares the quotas of `rule` for counting in `keys` from `now` on, in addition to the
    /// `rates` in use. `before` has the quotas of an equal rule of the previous set, if there was
    /// one; its exceptions are reused.
    pub(super) fn new(
        rule: &KeyedRule,
        (keys, now): (&HotKeys, Tick),
        rates: &mut RatesInUse,
        before: Option<&Self>,
    ) -> Self {
        // The wait is set here, as the table may be inherited from a rule with another longest
        // wait.
        let mut quota = |threshold| {
            let prepared = keys.limit_among(threshold, rule.extra_calls(), now, rates);
            ValueQuota {
                threshold,
                prepared: prepared.waiting(rule.max_wait()),
            }
        };
        // Quotas that apply to many values come first: a table can track only a few rates.
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
            // Creating the exceptions again would take long if there are many, and calls wait for
            // the new rules.
            Some(before) => before.exceptions.clone(),
            None => {
                let mut exceptions = Exceptions::default();
                // Inserted first, so that a threshold for another spelling of the same value
                // replaces it.
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

    /// Bytes that the quotas occupy on the heap.
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

    /// The quota of a value, for calls of `tier`.
    pub(super) fn of(&self, key: Digest, tier: Option<&Key<'_>>) -> &ValueQuota {
        if let Some(own) = self.exceptions.get(&key) {
            return own;
        }
        let tier = tier.and_then(|tier| self.tiers.iter().find(|(name, _)| tier.is_kept_as(name)));
        tier.map_or(&self.limit, |(_, quota)| quota)
    }

    /// Returns whether the rule names tiers, but not `tier`.
    #[inline]
    pub(super) fn is_unknown(&self, tier: &Key<'_>) -> bool {
        !self.tiers.is_empty() && !self.tiers.iter().any(|(name, _)| tier.is_kept_as(name))
    }
}

// === impl UnknownTiers ===

impl UnknownTiers {
    /// Notes `tier`, and returns true if it is new. Tiers beyond the first few are not noted.
    pub(super) fn note(&self, tier: &Key<'_>) -> bool {
        if matches!(tier, Key::Str(text) if text.len() > LONGEST_TIER) {
            return false;
        }
        for place in &self.0 {
            let mut is_new = false;
            let stored = place.get_or_init(|| {
                is_new = true;
                OwnedKey::from(*tier)
            });
            if tier.is_kept_as(stored) {
                return is_new;
            }
        }
        false
    }

    /// Calls `f` with each tier that was noted.
    pub(super) fn each(&self, f: &mut dyn FnMut(&Key<'_>)) {
        for stored in self.0.iter().filter_map(OnceLock::get) {
            f(&stored.as_key());
        }
    }
}
