//! Signs of a mistake in the set-up that a keyed rule sees in calls: no value for the rule, or a
//! tier that the rule does not name.

use std::fmt;

use super::quotas::ValueQuota;
use super::{KeyedState, NoShare};
use crate::base::sync::Ordering;
use crate::call::{Call, Key};
use crate::keyed::Digest;

/// [`OnSuspicion`] is called after this many calls without a value, if no call had a value. A few
/// calls without a value are no sign of a mistake.
const SUSPICIOUS: u64 = 8;

/// Something about calls that looks like a mistake in the set-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Suspicion<'a> {
    /// The number of calls that the rule has met, if none of them had the value that it counts by.
    NoKey(u64),
    /// A call has a tier that the rule does not name.
    UnknownTier(&'a str),
}

/// Called with each suspicion, sometimes repeatedly.
pub(crate) struct OnSuspicion(pub(crate) Box<dyn Fn(Suspicion<'_>) + Send + Sync>);

impl fmt::Debug for OnSuspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnSuspicion(..)")
    }
}

impl KeyedState {
    /// The value by which a call that asks to pass is judged. A call without a value is counted,
    /// and judged as the rule's `missing` says.
    // Always inlined: see `quota_to_take`.
    #[inline(always)]
    pub(super) fn value_to_take<'c>(
        &self,
        call: &'c Call<'_>,
    ) -> Result<Option<&'c Key<'c>>, NoShare> {
        match self.carried_value(call) {
            Some(value) => Ok(Some(value)),
            None => self.count_missing(),
        }
    }

    /// Counts a call that asks to pass without a value. Returns the key by which it is judged
    /// instead.
    #[cold]
    fn count_missing(&self) -> Result<Option<&'static Key<'static>>, NoShare> {
        let missing = self.missing.fetch_add(1, Ordering::Relaxed) + 1;
        if missing == SUSPICIOUS {
            self.suspect(missing);
        }
        self.fallback_key()
    }

    /// Reports that `missing` calls had no value, unless some call had a value.
    #[inline(never)]
    fn suspect(&self, missing: u64) {
        if self.has_met_no_key() {
            (self.on_suspicion.0)(Suspicion::NoKey(missing));
        }
    }

    /// Returns whether calls came without a value, and no call with a value has passed. Searches
    /// the whole table if any call came without a value.
    pub(super) fn has_met_no_key(&self) -> bool {
        self.missing.load(Ordering::Relaxed) > 0 && !self.keys.has_met_key()
    }

    /// The quota of a call that asks to pass. Notes the call's tier if the rule does not name it.
    // Always inlined: as it has two callers, the compiler would not inline it, which would slow
    // down each call with a key.
    #[inline(always)]
    pub(super) fn quota_to_take(&self, key: Digest, call: &Call<'_>) -> &ValueQuota {
        if let Some(tier) = &call.tier {
            if self.quotas.is_unknown(tier) && self.unknown_tiers.note(tier) {
                (self.on_suspicion.0)(Suspicion::UnknownTier(&tier.to_string()));
            }
        }
        self.quota(key, call)
    }
}
