//! Notifies hooks of the events of a resource: its calls, breakers and findings.
//!
//! For a call that has waited, hooks get neither origin nor parameter, as these were borrowed from
//! a request that may be gone.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::Resource;
use crate::blocked::Blocked;
use crate::breaker::{Breakers, Change};
use crate::call::{Call, Criticality, Direction};
use crate::engine::context::EngineContext;
use crate::hook::finding::{Finding, FindingKind, Need, is_meant};
use crate::hook::{BlockEvent, BreakerEvent, ExitEvent, Interest, PassEvent, Subject};
use crate::rule::{MissingKey, OnSuspicion, Rule, RuleSet, Suspicion};
use crate::stat::Outcome;

// === impl Resource ===

/// The number of calls of one class, without calls of other classes, from which they are a finding.
const MANY_CALLS: u64 = 1_000;
/// The number of calls without a reported cost from which they are a finding. Fewer calls can be an
/// accident.
const MANY_UNTOLD: u64 = 8;
/// The number of refused calls without a key from which they are a finding.
const MANY_BLOCKED: u64 = 8;

impl Resource {
    /// Notifies hooks that a call of `weight` has passed, after it has `waited`.
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
            hooks.notify(Interest::PASS, &|hook| hook.on_pass(&event));
        }
    }

    /// Counts a refused call of `weight` for its rule, and notifies hooks.
    pub(crate) fn note_blocked(&self, weight: u32, call: Option<&Call<'_>>, blocked: &Blocked) {
        if !self.shared.part.is_shadow() {
            blocked.count(weight);
        }
        if let (Some(class), Some((_, limiter))) = (blocked.criticality(), self.limiter()) {
            limiter.count_refused(class.index(), weight);
        }
        let hooks = &self.shared.hooks;
        if hooks.want(Interest::BLOCK) {
            let event = BlockEvent {
                subject: self.subject(weight),
                origin: call.and_then(|call| call.origin),
                param: call.and_then(|call| call.param_at(0).copied()),
                blocked,
            };
            hooks.notify(Interest::BLOCK, &|hook| hook.on_block(&event));
        }
    }

    /// Notifies hooks that a call of `weight` has ended.
    #[cold]
    pub(crate) fn notify_ended(&self, weight: u32, outcome: Option<Outcome>, rt: Duration) {
        let event = ExitEvent {
            subject: self.subject(weight),
            outcome,
            rt,
        };
        let hooks = &self.shared.hooks;
        hooks.notify(Interest::EXIT, &|hook| hook.on_exit(&event));
    }

    /// Notifies hooks that one of `breakers` has changed its state, unless the breaker no longer
    /// belongs to a rule.
    pub(super) fn notify_breaker(&self, breakers: &Breakers, change: Change) {
        // The event names the breaker's current rule, although a call that began before a reload
        // may have caused the change.
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
        hooks.notify(Interest::BREAKER, &|hook| hook.on_breaker(&event));
    }

    /// Returns the finding that all calls that the keyed rule at `rule` has judged lacked its key.
    /// `calls` is their number.
    #[cold]
    pub(crate) fn missing_key(&self, rule: u32, calls: u64) -> Option<Finding> {
        missing_key(&self.rules, rule, (&self.text, self.direction()), calls)
    }

    /// Returns the finding that the keyed rule at `rule` has blocked many calls without its key,
    /// which share one quota. `calls` is their number.
    #[cold]
    pub(crate) fn blocked_together(&self, rule: u32, calls: u64) -> Option<Finding> {
        let cause = format!(
            "{calls} calls; one of them beyond the limit of one value keeps all of them out: \
             `KeyedRule::missing` skips or refuses them"
        );
        let (id, kind) = (self.rules.id(rule), FindingKind::BlockedTogether);
        (calls >= MANY_BLOCKED).then(|| Finding::new(kind, id, self.text.clone(), cause))
    }

    /// Returns the finding that calls have a `tier` that the keyed rule at `rule` does not know, if
    /// the tier resembles a known one.
    #[cold]
    pub(crate) fn unknown_tier(&self, rule: u32, tier: &str) -> Option<Finding> {
        unknown_tier(&self.rules, rule, &self.text, tier)
    }

    /// Returns the findings on the adaptive rule. `has_criticality` means that a layer sets the
    /// classes of calls.
    #[cold]
    pub(crate) fn class_findings(&self, has_criticality: bool) -> Vec<Finding> {
        let mut found = Vec::new();
        let Some((rule, limiter)) = self.limiter() else {
            return found;
        };
        let mut tell = |kind, cause: String| {
            found.push(Finding::new(
                kind,
                self.rules.id(rule),
                self.text.clone(),
                cause,
            ));
        };
        let (mut calls, mut met) = (0_u64, Vec::new());
        for (class, (admitted, refused)) in Criticality::ALL.into_iter().zip(limiter.counts()) {
            let of_class = admitted.saturating_add(refused);
            calls = calls.saturating_add(of_class);
            if of_class > 0 {
                met.push(class);
            }
        }
        if let ([class], true) = (&met[..], has_criticality && calls >= MANY_CALLS) {
            let cause = format!(
                "all are {class}; rules compare the calls of one resource, so give those that \
                 compete one name by `.named(…)`"
            );
            tell(FindingKind::OneCriticality, cause);
        }
        if limiter.was_at_ceiling() {
            let cause = "the limit was at its ceiling while calls were not slower than without a \
                         queue; raise it by `AdaptiveRule::ceiling`";
            tell(FindingKind::CeilingReached, cause.to_owned());
        }
        found
    }

    /// Returns the findings on the rules on costs.
    #[cold]
    pub(crate) fn cost_findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let Some(costs) = self.costs() else {
            return found;
        };
        for (rule, unit, _, figures) in costs.figures(self.now()) {
            let most = self.rules.rule(rule).map_or(0, Rule::largest_limit);
            let (kind, cause) = match (figures.largest, costs.stray()) {
                (Some(cost), _) if cost > most => {
                    let cause = format!("{cost} {unit:?}, of {most}: is the unit right?");
                    (FindingKind::CostTooLarge, cause)
                }
                (Some(_), _) => continue,
                (None, _) if figures.untold_total < MANY_UNTOLD => continue,
                (None, Some(stray)) => {
                    let cause = format!("it counts {unit:?}, and calls name {stray:?}");
                    (FindingKind::CostUnit, cause)
                }
                (None, None) => {
                    let effect = match figures.reserved_total {
                        0 => "it limits nobody",
                        _ => "it limits what they reserve",
                    };
                    let cause = format!(
                        "{effect}; tell {unit:?} by `Meter::settle`, or by `SentinelLayer::cost`"
                    );
                    (FindingKind::CostNotTold, cause)
                }
            };
            found.push(Finding::new(
                kind,
                self.rules.id(rule),
                self.text.clone(),
                cause,
            ));
        }
        found
    }

    fn subject(&self, weight: u32) -> Subject<'_> {
        Subject {
            resource: &self.text,
            direction: self.key.direction,
            weight,
        }
    }
}

/// Creates the callback with which the keyed rule at `rule` on `resource` reports suspicions. It
/// notifies hooks of the findings.
pub(super) fn on_suspicion(
    rules: &StdArc<RuleSet>,
    rule: u32,
    (resource, direction): (&StdArc<str>, Direction),
    shared: &StdArc<EngineContext>,
) -> OnSuspicion {
    let (rules, resource, shared) = (rules.clone(), resource.clone(), shared.clone());
    OnSuspicion(Box::new(move |suspicion| {
        if !shared.hooks.want(Interest::FINDING) {
            return;
        }
        let finding = match suspicion {
            Suspicion::NoKey(calls) => missing_key(&rules, rule, (&resource, direction), calls),
            Suspicion::UnknownTier(tier) => unknown_tier(&rules, rule, &resource, tier),
        };
        if let Some(finding) = finding {
            shared.tell(&finding);
        }
    }))
}

/// Creates the finding that all calls judged by the keyed rule at `rule`, `calls` in number, lacked
/// its key. Returns `None` if the rule needs no key.
fn missing_key(
    rules: &RuleSet,
    rule: u32,
    (resource, direction): (&StdArc<str>, Direction),
    calls: u64,
) -> Option<Finding> {
    let effect = match rules.missing_key(rule)? {
        MissingKey::Share => "they share one quota",
        MissingKey::Refuse => "all of them were refused",
        MissingKey::Skip => "it has limited none of them",
    };
    let needs = rules.rule(rule)?.needs();
    let need = *needs.iter().find(|need| need.is_key())?;
    Some(key_missing(
        rules.id(rule),
        (resource, direction),
        need,
        calls,
        effect,
    ))
}

/// Creates the finding that all calls to `resource`, `calls` in number, lacked the key that the
/// rule `id` needs.
pub(super) fn key_missing(
    id: StdArc<str>,
    (resource, direction): (&StdArc<str>, Direction),
    need: Need<'_>,
    calls: u64,
    effect: &str,
) -> Finding {
    // Only inbound requests have a peer address.
    let advice = if need.is_key() && direction == Direction::Inbound {
        "; if the key is the address of the peer, is connect info on? \
         axum: `into_make_service_with_connect_info::<SocketAddr>()`, and the feature `axum`"
    } else {
        ""
    };
    let cause = format!("{calls} calls, and {effect}{advice}");
    Finding::new(FindingKind::KeyMissing, id, resource.clone(), cause).on(need)
}

/// Creates the finding that calls have an unknown `tier` that resembles a tier of the rule at
/// `rule`. Returns `None` if it resembles none, or if another rule knows it.
fn unknown_tier(rules: &RuleSet, rule: u32, resource: &StdArc<str>, tier: &str) -> Option<Finding> {
    let known = rules.rule(rule)?.tiers();
    let meant = known.iter().find(|known| is_meant(tier, known))?;
    let others = rules.rules().iter().flat_map(Rule::tiers);
    if others.into_iter().any(|known| known == tier) {
        return None;
    }
    let cause = format!("the rule has {meant:?}; calls of {tier:?} have the default quota");
    let id = rules.id(rule);
    Some(Finding::new(FindingKind::UnknownTier, id, resource.clone(), cause).on(Need::Tier))
}
