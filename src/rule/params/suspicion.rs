//! Suspicions of a keyed rule about the set-up: calls without its key, or of a tier that is
//! unknown.

use std::fmt;

use super::quotas::ValueQuota;
use super::{KeyedState, NoShare};
use crate::base::sync::Ordering;
use crate::call::{Call, Key};
use crate::keyed::Digest;

/// [`OnSuspicion`] is called after this many calls without a value, if none had one.
const SUSPICIOUS: u64 = 8;

/// Something about calls that looks like a mistake in the set-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Suspicion<'a> {
    /// The rule has met this many calls, all of them without the value that it looks at.
    NoKey(u64),
    /// A call is of a tier that the rule does not know.
    UnknownTier(&'a str),
}

/// Called with each suspicion, some of them again.
pub(crate) struct OnSuspicion(pub(crate) Box<dyn Fn(Suspicion<'_>) + Send + Sync>);

impl fmt::Debug for OnSuspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnSuspicion(..)")
    }
}

impl KeyedState {
    /// The value of a call that asks to pass; one without is counted, and judged by the value for
    /// such calls, if by any.
    // Always inlined: see `quota_to_take`.
    #[inline(always)]
    pub(super) fn value_to_take<'c>(
        &self,
        call: &'c Call<'_>,
    ) -> Result<Option<&'c Key<'c>>, NoShare> {
        match self.given(call) {
            Some(value) => Ok(Some(value)),
            None => self.count_missing(),
        }
    }

    /// The value that judges a call without one, where the call asks to pass and so is counted.
    #[cold]
    fn count_missing(&self) -> Result<Option<&'static Key<'static>>, NoShare> {
        let missing = self.missing.fetch_add(1, Ordering::Relaxed) + 1;
        if missing == SUSPICIOUS {
            self.suspect(missing);
        }
        self.instead()
    }

    #[inline(never)]
    fn suspect(&self, missing: u64) {
        if self.has_met_no_key() {
            (self.on_suspicion.0)(Suspicion::NoKey(missing));
        }
    }

    /// Returns whether calls came without a value, and none with one that passed. Looks at
    /// the whole table if so.
    pub(super) fn has_met_no_key(&self) -> bool {
        self.missing.load(Ordering::Relaxed) > 0 && !self.keys.has_met_key()
    }

    /// The quota of a call that asks to pass. Notes the call's tier if the rule does not know it.
    // Always inlined: with two callers the compiler keeps it apart, which costs each call with a key.
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
