//! The needs of a rule, without which it has no effect: something of each call, or of the machine.

use super::keyed_rule::ParamOf;
use super::{Basis, MissingKey, Rule, Who};
use crate::hook::finding::Need;

impl Rule {
    /// The parts of calls that the rule looks at, beside their resource.
    pub(crate) fn needs(&self) -> Vec<Need<'_>> {
        match self.itself() {
            Rule::Flow(rule) => {
                let context = matches!(rule.basis(), Basis::Context(_)).then_some(Need::Context);
                let origin = !matches!(rule.who, Who::Anyone);
                context
                    .into_iter()
                    .chain(origin.then_some(Need::Origin))
                    .collect()
            }
            Rule::Keyed(rule) => {
                let value = match &rule.of {
                    ParamOf::Index(index) => Need::ParamAt(*index),
                    ParamOf::Named(name) => Need::ParamNamed(name),
                    ParamOf::Origin => Need::Origin,
                };
                let tier = (!rule.tiers.is_empty()).then_some(Need::Tier);
                [value].into_iter().chain(tier).collect()
            }
            Rule::Isolation(rule) if rule.who == Who::Anyone => Vec::new(),
            Rule::Isolation(_) | Rule::Authority(_) => vec![Need::Origin],
            _ => Vec::new(),
        }
    }

    /// The tiers that have quotas of their own.
    pub(crate) fn tiers(&self) -> Vec<&str> {
        match self.itself() {
            Rule::Keyed(rule) => rule.tiers.iter().map(|(tier, _)| &**tier).collect(),
            _ => Vec::new(),
        }
    }

    /// How the rule treats calls without its key; `None` for a rule without one.
    pub(crate) fn missing_key(&self) -> Option<MissingKey> {
        match self.itself() {
            Rule::Flow(rule) => {
                matches!(rule.who, Who::Each).then_some(rule.missing.unwrap_or_default())
            }
            Rule::Keyed(rule) => Some(rule.missing),
            _ => None,
        }
    }

    /// Returns whether a call may wait because of the rule: for its turn, a place, a loan or the
    /// store.
    pub(crate) fn lets_wait(&self) -> bool {
        let is_queue = match self.itself() {
            Rule::Flow(rule) => rule.most_waiting().is_some_and(|most| most > 0),
            Rule::Keyed(rule) => !rule.max_wait().is_zero() || rule.place_queue().is_some(),
            Rule::Isolation(rule) => rule.slot_queue().is_some(),
            _ => false,
        };
        is_queue || self.is_shared()
    }

    /// The resource that the rule looks at instead of its own.
    pub(crate) fn related(&self) -> Option<&str> {
        match self.itself() {
            Rule::Flow(rule) => rule.related(),
            Rule::Isolation(rule) => rule.get_when(),
            _ => None,
        }
    }

    /// Returns whether it is a flow rule that counts all calls to its resource together, against a
    /// threshold that does not change.
    pub(crate) fn limits_all_alike(&self) -> bool {
        match self.itself() {
            Rule::Flow(rule) => {
                matches!((&rule.who, rule.basis()), (Who::Anyone, Basis::Own))
                    && rule.shaping.memory.is_none()
            }
            _ => false,
        }
    }

    /// Returns whether both are rules of one kind.
    pub(crate) fn is_kind_of(&self, other: &Self) -> bool {
        self.kind() == other.kind()
    }

    /// Returns whether the rule looks at figures of the machine.
    pub(crate) fn looks_at_machine(&self) -> bool {
        match self.itself() {
            Rule::System(rule) => rule.looks_at_machine(),
            Rule::Flow(rule) => rule.shaping.memory.is_some(),
            _ => false,
        }
    }
}
