//! The flow and isolation rules of one resource for single origins, and the flow rules for
//! contexts.

use super::named::Named;
use super::{FlowRule, SlotLimit, Who};
use crate::call::Key;

/// The flow rules of one resource for single contexts.
#[derive(Debug, Default)]
pub(crate) struct ContextRules(Named<Vec<u32>>);

/// The flow and isolation rules of one resource for single origins, and for all other origins.
#[derive(Debug, Default)]
pub(crate) struct OriginRules {
    /// The rules for `other`: they apply separately to each origin that no rule names.
    other: RulesOfOrigin,
    /// The rules for `other` that have a queue: all origins that no rule names share it.
    queued: Vec<u32>,
    /// The rules for each origin that is named.
    only: Named<RulesOfOrigin>,
}

/// The rules of one resource for one origin.
#[derive(Debug, Default)]
pub(crate) struct RulesOfOrigin {
    /// The indices of flow rules.
    pub(crate) flows: Vec<u32>,
    /// The limit of the tightest isolation rule.
    pub(crate) slots: Option<SlotLimit>,
}

impl ContextRules {
    /// Adds the flow rule at `index`, which is for `context`.
    pub(super) fn add(&mut self, index: u32, context: &str) {
        self.0.change(context, |rules| rules.push(index));
    }

    /// Returns whether any rule is for `context`.
    #[inline]
    pub(crate) fn names(&self, context: &Key<'_>) -> bool {
        self.0.has(context)
    }

    /// The rules for `context`.
    pub(crate) fn of(&self, context: &Key<'_>) -> &[u32] {
        self.0.get(context).map_or(&[], Vec::as_slice)
    }
}

impl OriginRules {
    /// Adds the flow rule at `index`, if it is for single origins.
    pub(super) fn add(&mut self, index: u32, rule: &FlowRule) {
        match &rule.who {
            // `Anyone` does not distinguish origins, and `Each` counts them in a table.
            Who::Anyone | Who::Each => {}
            Who::Other if rule.shaping.max_wait.is_some() => self.queued.push(index),
            Who::Other => self.other.flows.push(index),
            Who::Only(origin) => self.only.change(origin, |rules| rules.flows.push(index)),
        }
    }

    /// Adds the limit of an isolation rule for single origins.
    pub(super) fn add_slots(&mut self, slots: SlotLimit, who: &Who) {
        match who {
            // No isolation rule counts each origin separately in a table.
            Who::Anyone | Who::Each => {}
            Who::Other => slots.tighten(&mut self.other.slots),
            Who::Only(origin) => {
                self.only
                    .change(origin, |rules| slots.tighten(&mut rules.slots));
            }
        }
    }

    /// Returns whether any rule limits how many calls of an origin run at once.
    pub(super) fn have_slots(&self) -> bool {
        let mut all = self.only.values().chain([&self.other]);
        all.any(|rules| rules.slots.is_some())
    }

    /// Returns whether any rule counts the calls of `origin` separately.
    #[inline]
    pub(crate) fn applies_to(&self, origin: &Key<'_>) -> bool {
        // A rule for "other" does not apply to an origin that another rule names, but then the
        // other rule applies.
        let applies_to_others = !(self.other.flows.is_empty() && self.queued.is_empty());
        applies_to_others || self.other.slots.is_some() || self.names(origin)
    }

    /// Returns whether any rule names `origin`.
    #[inline]
    pub(crate) fn names(&self, origin: &Key<'_>) -> bool {
        self.only.has(origin)
    }

    /// The rules that count the calls of `origin` separately.
    pub(crate) fn of(&self, origin: &Key<'_>) -> &RulesOfOrigin {
        self.only.get(origin).unwrap_or(&self.other)
    }

    /// The rules for other origins with a queue: each has one queue, which all other origins share.
    pub(crate) fn queued(&self) -> &[u32] {
        &self.queued
    }

    /// The rules for the origins that share one node. No rule names any of them, as a named origin
    /// always has a separate node.
    pub(crate) const fn of_unnamed(&self) -> &RulesOfOrigin {
        &self.other
    }
}
