//! Notes whether calls have the origins and contexts that rules on a resource need. If no call has
//! an origin or context, that is a finding: the rule probably limits nothing.

use super::Resource;
use super::notify::key_missing;
use crate::base::sync::{AtomicBool, AtomicU64, Ordering};
use crate::call::{Call, Key};
use crate::hook::Interest;
use crate::hook::finding::{Finding, Need};
use crate::rule::Rule;

/// The number of calls without a key after which hooks are notified, if no call had a key. It is
/// small, so that a mistake is noticed early, but above one, as a single call can lack its key for
/// a good reason.
const SUSPICIOUS: u64 = 8;
/// The maximum number of calls without a key that are counted. Counting more would only slow calls
/// down, as all calls write to one word.
const MOST_COUNTED: u64 = 1_024;
/// The maximum number of rules that are searched for the findings of one resource, as a call waits
/// for the search.
const MOST_RULES: usize = 256;

/// The origins and contexts that rules on a resource need. Keyed rules note missing keys in their
/// tables.
#[derive(Debug)]
pub(super) struct SeenKeys {
    /// Whether every key that rules need was seen on a call, so nothing is left to note.
    are_met: AtomicBool,
    origin: Option<SeenKey>,
    context: Option<SeenKey>,
}

/// Whether calls have had one kind of key.
#[derive(Debug, Default)]
struct SeenKey {
    /// Whether any call had the key. From then on, calls without it are no longer counted.
    is_met: AtomicBool,
    /// The number of calls without the key.
    without: AtomicU64,
}

// === impl SeenKeys ===

impl SeenKeys {
    pub(super) fn new(needs_origin: bool, needs_context: bool) -> Self {
        Self {
            are_met: AtomicBool::new(false),
            origin: needs_origin.then(SeenKey::default),
            context: needs_context.then(SeenKey::default),
        }
    }

    /// Returns each key with the number of calls that lacked it, or 0 if a call had it.
    fn unmet(&self) -> [(Need<'static>, u64); 2] {
        let calls = |key: &Option<SeenKey>| key.as_ref().map_or(0, SeenKey::calls_without_any);
        [
            (Need::Origin, calls(&self.origin)),
            (Need::Context, calls(&self.context)),
        ]
    }
}

impl SeenKey {
    /// Notes whether a call has the key. Returns true once: for the [`SUSPICIOUS`]th call without
    /// the key, if no call had it.
    #[inline]
    fn note(&self, key: Option<&Key<'_>>) -> bool {
        if self.is_met.load(Ordering::Relaxed) {
            return false;
        }
        // An empty name counts as no key.
        if key.is_some_and(|key| !key.is("")) {
            self.is_met.store(true, Ordering::Relaxed);
            return false;
        }
        self.without.load(Ordering::Relaxed) < MOST_COUNTED
            && self.without.fetch_add(1, Ordering::Relaxed) + 1 == SUSPICIOUS
    }

    fn is_met(&self) -> bool {
        self.is_met.load(Ordering::Relaxed)
    }

    fn calls_without_any(&self) -> u64 {
        if self.is_met() {
            0
        } else {
            self.without.load(Ordering::Relaxed)
        }
    }
}

impl Resource {
    /// Notes which of the keys that the resource's rules need are set on `call`. Notifies hooks
    /// when [`SUSPICIOUS`] calls have lacked a key and no call has had it.
    #[inline]
    pub(crate) fn note_keys(&self, call: &Call<'_>) {
        if let Some(seen) = self.seen_keys() {
            // Relaxed suffices: a call that does not yet see the flag only notes its keys once
            // more.
            if !seen.are_met.load(Ordering::Relaxed) {
                self.note_unmet_keys(seen, call);
            }
        }
    }

    /// Notes the keys of a call while not every needed key was seen.
    #[inline(never)]
    fn note_unmet_keys(&self, seen: &SeenKeys, call: &Call<'_>) {
        let note = |key: &Option<SeenKey>, value| key.as_ref().is_some_and(|key| key.note(value));
        let is_suspicious =
            note(&seen.origin, call.origin.as_ref()) | note(&seen.context, call.context.as_ref());
        if is_suspicious {
            self.report_missing_keys();
        }
        let is_met = |key: &Option<SeenKey>| key.as_ref().is_none_or(SeenKey::is_met);
        if is_met(&seen.origin) && is_met(&seen.context) {
            seen.are_met.store(true, Ordering::Relaxed);
        }
    }

    /// Notifies hooks of the rules whose keys all calls have lacked.
    #[cold]
    fn report_missing_keys(&self) {
        if self.shared.hooks.want(Interest::FINDING) {
            for finding in self.keys_without_calls() {
                self.shared.tell(&finding);
            }
        }
    }

    /// Returns a finding for each rule that needs an origin or context which all calls so far have
    /// lacked.
    pub(crate) fn keys_without_calls(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let Some(seen) = self.seen_keys() else {
            return found;
        };
        for (need, calls) in seen.unmet() {
            if calls == 0 {
                continue;
            }
            for (rule, id) in self.rules.with_ids().take(MOST_RULES) {
                let is_here = rule.is_default() || rule.resource() == &*self.text;
                let effect = effect_without(rule, need).filter(|_| is_here);
                if let Some(effect) = effect {
                    let on = (&self.text, self.direction());
                    found.push(key_missing(id, on, need, calls, effect));
                }
            }
        }
        found
    }
}

/// Describes the effect of `rule` on calls without `need`. `None` if the rule does not need it, or
/// if the rule has a table of keys, which notes calls without a key itself.
fn effect_without(rule: &Rule, need: Need<'_>) -> Option<&'static str> {
    if !rule.needs().contains(&need) || rule.missing_key().is_some() {
        return None;
    }
    Some(match rule.itself() {
        Rule::Authority(rule) if rule.get_deny_unknown() => "all of them were refused",
        Rule::Authority(_) => "it has refused none of them",
        _ => "it has limited none of them",
    })
}
