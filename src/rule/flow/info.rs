//! The [`RuleInfo`] of a flow rule: its kind, its limit and its needs.

use std::time::Duration;

use super::{Basis, FlowRule, MissingKey, Who};
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
use crate::rule::default::{ANY_RESOURCE, MOST_DEFAULTS};
use crate::rule::info::{RuleInfo, RuleKind, own_answers};

impl RuleKind for FlowRule {
    const NAME: &'static str = "flow";
}

impl RuleInfo for FlowRule {
    fn refuses(&self) -> BlockKind {
        BlockKind::Flow
    }

    own_answers!();

    fn limit(&self) -> Option<f64> {
        Some(self.threshold)
    }

    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    #[cfg(feature = "serde")]
    fn never_shared(&self) -> Option<&'static str> {
        None
    }

    fn may_be_default(&self) -> bool {
        let is_of_all = matches!((&self.basis, &self.who), (Basis::Own, Who::Anyone));
        is_of_all && self.calendar.is_none()
    }

    fn unit(&self) -> Option<&str> {
        self.get_cost()
    }

    fn needs(&self) -> Vec<Need<'_>> {
        let mut needs = Vec::new();
        if let Basis::Context(_) = self.basis {
            needs.push(Need::Context);
        }
        if self.who != Who::Anyone {
            needs.push(Need::Origin);
        }
        needs
    }

    fn is_shared(&self) -> bool {
        self.sharing.is_shared
    }

    fn bound(&self) -> Option<(&'static str, usize)> {
        (self.resource == ANY_RESOURCE).then_some(("flow and isolation rules", MOST_DEFAULTS))
    }

    fn related(&self) -> Option<&str> {
        Self::related(self)
    }

    fn missing_key(&self) -> Option<MissingKey> {
        (self.who == Who::Each).then_some(self.missing.unwrap_or_default())
    }

    fn has_queue(&self) -> bool {
        self.most_waiting().is_some_and(|most| most > 0)
    }

    fn limits_all_calls(&self) -> bool {
        self.may_be_default() && self.shaping.memory.is_none() && self.cost.is_none()
    }

    fn looks_at_machine(&self) -> bool {
        self.shaping.memory.is_some()
    }
}
