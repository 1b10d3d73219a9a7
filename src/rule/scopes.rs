//! The rules of one resource for single origins and contexts.

use super::named::Named;
use super::{FlowRule, SlotLimit, Who};
use crate::call::Key;

/// The flow rules of one resource for single contexts.
#[derive(Debug, Default)]
pub(crate) struct ContextRules(Named<Vec<u32>>);

/// The flow and isolation rules of one resource for single origins, and for each of the others.
#[derive(Debug, Default)]
pub(crate) struct OriginRules {
    /// Those that each of the others has for itself.
    other: RulesOfOrigin,
    /// Those with a queue, in which all others stand.
    queued: Vec<u32>,
    only: Named<RulesOfOrigin>,
}

/// The rules of one resource for one origin.
#[derive(Debug, Default)]
pub(crate) struct RulesOfOrigin {
    /// Flow rules.
    pub(crate) flows: Vec<u32>,
    /// By the tightest isolation rule.
    pub(crate) slots: Option<SlotLimit>,
}

impl ContextRules {
    pub(super) fn add(&mut self, index: u32, context: &str) {
        self.0.change(context, |rules| rules.push(index));
    }

    /// Returns whether a rule is for `context`.
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
    pub(super) fn add(&mut self, index: u32, rule: &FlowRule) {
        match &rule.who {
            // One counts no origins apart, the other in a table.
            Who::Anyone | Who::Each => {}
            Who::Other if rule.shaping.max_wait.is_some() => self.queued.push(index),
            Who::Other => self.other.flows.push(index),
            Who::Only(origin) => self.only.change(origin, |rules| rules.flows.push(index)),
        }
    }

    pub(super) fn add_slots(&mut self, slots: SlotLimit, who: &Who) {
        match who {
            // No isolation rule counts each origin apart in a table.
            Who::Anyone | Who::Each => {}
            Who::Other => slots.tighten(&mut self.other.slots),
            Who::Only(origin) => {
                self.only
                    .change(origin, |rules| slots.tighten(&mut rules.slots));
            }
        }
    }

    /// Returns whether any rule limits the calls at once of an origin.
    pub(super) fn have_slots(&self) -> bool {
        let mut all = self.only.values().chain([&self.other]);
        all.any(|rules| rules.slots.is_some())
    }

    /// Returns whether any rule counts the calls of `origin` apart.
    #[inline]
    pub(crate) fn applies_to(&self, origin: &Key<'_>) -> bool {
        // A rule for "other" does not apply to an origin that a rule names, but
        // that rule does.
        let applies_to_others = !(self.other.flows.is_empty() && self.queued.is_empty());
        applies_to_others || self.other.slots.is_some() || self.names(origin)
    }

    /// Returns whether a rule is for `origin` alone.
    #[inline]
    pub(crate) fn names(&self, origin: &Key<'_>) -> bool {
        self.only.has(origin)
    }

    /// The rules that count the calls of `origin` apart.
    pub(crate) fn of(&self, origin: &Key<'_>) -> &RulesOfOrigin {
        self.only.get(origin).unwrap_or(&self.other)
    }

    /// The rules for other origins in whose queue all of these stand one after the other: each is
    /// one queue, and not one of each origin.
    pub(crate) fn queued(&self) -> &[u32] {
        &self.queued
    }

    /// The rules that all origins without a place of their own share: none of
    /// them is one that a rule names, for that one has a place.
    pub(crate) const fn of_unnamed(&self) -> &RulesOfOrigin {
        &self.other
    }
}
