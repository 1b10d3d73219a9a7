//! Notifies hooks of the events of a resource's calls and breakers.
//!
//! Of a call that has waited hooks get neither origin nor parameter: they were borrowed from
//! a request that may be gone.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::Resource;
use crate::blocked::Blocked;
use crate::breaker::{Breakers, Change};
use crate::call::Call;
use crate::engine::context::EngineContext;
use crate::hook::finding::{Finding, FindingKind};
use crate::hook::{BlockEvent, BreakerEvent, ExitEvent, Interest, PassEvent, Subject};
use crate::rule::{MissingKey, OnMissing, RuleSet};
use crate::stat::Outcome;

// === impl Resource ===

impl Resource {
    /// A call of `weight` has passed, after it has `waited`.
    #[inline]
    pub(crate) fn notify_passed(&self, weight: u32, call: Option<&Call<'_>>, waited: Duration) {
        let hooks = &self.shared.hooks;
        if hooks.want(Interest::PASS) {
            let event = PassEvent {
                subject: self.subject(weight),
                origin: call.and_then(|call| call.origin),
                param: call.and_then(|call| call.param_at(0).copied()),
                waited,
            };
            hooks.notify(Interest::PASS, |hook| hook.on_pass(&event));
        }
    }

    /// A call of `weight` was refused: its rule counts it, and hooks are notified.
    pub(crate) fn note_blocked(&self, weight: u32, call: Option<&Call<'_>>, blocked: &Blocked) {
        if !self.shared.part.is_shadow() {
            blocked.count(weight);
        }
        let hooks = &self.shared.hooks;
        if hooks.want(Interest::BLOCK) {
            let event = BlockEvent {
                subject: self.subject(weight),
                origin: call.and_then(|call| call.origin),
                param: call.and_then(|call| call.param_at(0).copied()),
                blocked,
            };
            hooks.notify(Interest::BLOCK, |hook| hook.on_block(&event));
        }
    }

    /// A call of `weight` that had passed has ended.
    #[cold]
    pub(crate) fn notify_ended(&self, weight: u32, outcome: Option<Outcome>, rt: Duration) {
        let event = ExitEvent {
            subject: self.subject(weight),
            outcome,
            rt,
        };
        let hooks = &self.shared.hooks;
        hooks.notify(Interest::EXIT, |hook| hook.on_exit(&event));
    }

    /// One of its `breakers` has changed its state, unless it is of no rule any more.
    pub(super) fn notify_breaker(&self, breakers: &Breakers, change: Change) {
        // Not by these rules: a call of before a reload may have changed it.
        let Some(rule) = breakers.note_change(&change, self.now()) else {
            return;
        };
        let hooks = &self.shared.hooks;
        if !hooks.want(Interest::BREAKER) {
            return;
        }
        let event = BreakerEvent {
            resource: &self.text,
            direction: self.key.direction,
            rule: &rule,
            from: change.from,
            to: change.to,
            value: change.value,
        };
        hooks.notify(Interest::BREAKER, |hook| hook.on_breaker(&event));
    }

    /// The finding that the rule at `rule` has met only calls without its key, so many.
    #[cold]
    pub(crate) fn missing_key(&self, rule: u32, calls: u64) -> Option<Finding> {
        let missing = self.rules.missing_key(rule)?;
        let id = self.rules.id(rule);
        Some(missing_key(id, self.text.clone(), missing, calls))
    }

    fn subject(&self, weight: u32) -> Subject<'_> {
        Subject {
            resource: &self.text,
            direction: self.key.direction,
            weight,
        }
    }
}

/// Tells hooks when the rule at `rule` has met only calls to `resource` without its key.
pub(super) fn on_missing(
    rules: &RuleSet,
    rule: u32,
    resource: &StdArc<str>,
    shared: &StdArc<EngineContext>,
) -> OnMissing {
    let missing = rules.missing_key(rule).unwrap_or_default();
    let (id, resource, shared) = (rules.id(rule), resource.clone(), shared.clone());
    OnMissing(Box::new(move |calls| {
        if shared.hooks.want(Interest::FINDING) {
            shared.tell(&missing_key(id.clone(), resource.clone(), missing, calls));
        }
    }))
}

fn missing_key(
    rule: StdArc<str>,
    resource: StdArc<str>,
    missing: MissingKey,
    calls: u64,
) -> Finding {
    let effect = match missing {
        MissingKey::Share => "they share one quota",
        MissingKey::Refuse => "all of them were refused",
        MissingKey::Skip => "it has limited none of them",
    };
    let cause = format!(
        "{calls} calls, and {effect}; if the key is the address of the peer, is connect info on? \
         axum: `into_make_service_with_connect_info::<SocketAddr>()`, and the feature `axum`"
    );
    Finding::new(FindingKind::KeyMissing, rule, resource, cause)
}
