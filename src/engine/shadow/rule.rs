//! One rule in shadow mode: it selects the calls to its resource and judges them.

use std::sync::Arc as StdArc;

use crate::blocked::Blocked;
#[cfg(feature = "shared")]
use crate::call::OwnedCall;
use crate::call::{Call, Key, OwnedKey};
use crate::engine::Engine;
use crate::engine::call::entry::Entry;
use crate::engine::call::verdict::Verdict;
#[cfg(feature = "shared")]
use crate::engine::call::waiting::Waiting;
use crate::engine::context::EngineContext;
use crate::engine::registry::Registry;
use crate::hook::{BlockEvent, Hooks, Interest, Subject};
use crate::rule::Rule;
#[cfg(feature = "shared")]
use crate::store::LateCall;

/// One rule in shadow mode, or all rules of the set together.
#[derive(Debug)]
pub(crate) struct Shadow {
    pub(super) id: StdArc<str>,
    /// The rule; `None` for all rules together.
    pub(super) rule: Option<Rule>,
    /// The resource of the rule; `None` if it is for all resources.
    pub(super) resource: Option<Target>,
    pub(super) engine: StdArc<Engine>,
}

/// An admitted call about which a shadow rule still asks the store.
#[cfg(feature = "shared")]
#[derive(Debug)]
struct Undecided {
    /// The context of the engine of the enforced rules.
    shared: StdArc<EngineContext>,
    /// The wait of the call for the store, in the engine of the shadow rule.
    waiting: Waiting,
    /// A copy of the call for hooks, if a hook wants events of shadow rules.
    call: Option<OwnedCall>,
}

/// The resource of a rule.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: String,
    /// The keys whose text is the name.
    keys: Box<[OwnedKey]>,
}

// === impl Target ===

impl Target {
    pub(super) fn new(name: &str) -> Self {
        // A key matches by its text, like for enforced rules. The exception is a text that equals a
        // reserved name.
        let mut keys = Vec::new();
        for key in Key::spellings(name) {
            if key.reserved().is_none() && key.to_string() == name {
                keys.push(OwnedKey::from(key));
            }
        }
        Self {
            name: name.to_owned(),
            keys: keys.into(),
        }
    }
}

// === impl Shadow ===

impl Shadow {
    /// Returns the id of the rule; empty for all rules together.
    pub(crate) const fn id(&self) -> &StdArc<str> {
        &self.id
    }

    pub(crate) fn registry(&self) -> &Registry {
        self.engine.registry()
    }

    /// Returns `call` as a call to the rule's resource, if the call is for that resource. A call
    /// that is counted on another `resource`, such as the overflow resource, also matches by its
    /// own name: an enforced rule would give that name a place in the table.
    pub(super) fn view<'a>(&'a self, resource: &str, call: &Call<'a>) -> Option<Call<'a>> {
        let Some(own) = &self.resource else {
            return Some(*call);
        };
        let is_named = || own.keys.iter().any(|key| call.resource.is_kept_as(key));
        (own.name == resource || is_named()).then(|| Call {
            resource: Key::Str(&own.name).meant(),
            ..*call
        })
    }

    /// Judges `call` by the rule. Returns the call's entry if the rule lets it pass now.
    pub(super) fn judge(&self, shared: &StdArc<EngineContext>, call: &Call<'_>) -> Option<Entry> {
        let verdict = match self.engine.try_enter(call) {
            Verdict::Wait(waiting) => waiting.begin_at_once(),
            verdict => verdict,
        };
        match verdict {
            Verdict::Pass(entry) => return Some(entry),
            Verdict::Block(blocked) => tell(&shared.hooks, call, &blocked),
            // A call that begins at once can only wait for a store.
            #[cfg(not(feature = "shared"))]
            Verdict::Wait(_) => {}
            #[cfg(feature = "shared")]
            Verdict::Wait(waiting) => {
                let is_wanted = shared.hooks.want(Interest::SHADOW_BLOCK);
                let undecided = Undecided {
                    shared: shared.clone(),
                    call: is_wanted.then(|| OwnedCall::from(call)),
                    waiting,
                };
                shared.hub().judge_late(Box::new(undecided));
            }
        }
        None
    }
}

/// Notifies hooks that a rule would have refused `call`.
fn tell(hooks: &Hooks, call: &Call<'_>, blocked: &Blocked) {
    if hooks.want(Interest::SHADOW_BLOCK) {
        let event = BlockEvent {
            subject: Subject {
                resource: blocked.resource(),
                direction: call.flags.direction(),
                weight: call.weight,
            },
            origin: call.origin,
            param: call.param_at(0).copied(),
            blocked,
        };
        hooks.notify(Interest::SHADOW_BLOCK, &|hook| hook.on_shadow_block(&event));
    }
}

// === impl Undecided ===

#[cfg(feature = "shared")]
impl LateCall for Undecided {
    fn is_answered(&self) -> bool {
        self.waiting.is_done_waiting()
    }

    fn settle(self: Box<Self>) {
        let Self {
            shared,
            waiting,
            call,
        } = *self;
        let verdict = match waiting.begin() {
            Verdict::Wait(waiting) => waiting.begin_at_once(),
            verdict => verdict,
        };
        match verdict {
            // The end of the call is not reported, as the call may have ended already.
            Verdict::Pass(entry) => entry.cancel(),
            Verdict::Block(blocked) => {
                if let Some(call) = call {
                    call.with(|call| tell(&shared.hooks, call, &blocked));
                }
            }
            Verdict::Wait(waiting) => {
                let again = Self {
                    shared: shared.clone(),
                    waiting,
                    call,
                };
                shared.hub().judge_late(Box::new(again));
            }
        }
    }
}
