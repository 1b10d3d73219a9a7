//! Suspicions of a keyed rule about the set-up: calls without its key, or of a tier that is
//! unknown.

use std::fmt;

use super::KeyedState;
use super::quotas::ValueQuota;
use crate::call::Call;
use crate::keyed::Digest;

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
    /// The quota of a call that asks to pass. Notes the call's tier if the rule does not know it.
    pub(super) fn quota_to_take(&self, key: Digest, call: &Call<'_>) -> &ValueQuota {
        if let Some(tier) = &call.tier {
            if self.quotas.is_unknown(tier) && self.unknown_tiers.note(tier) {
                (self.on_suspicion.0)(Suspicion::UnknownTier(&tier.to_string()));
            }
        }
        self.quota(key, call)
    }
}
