//! The [`RuleInfo`] of a keyed rule: its kind, its limit and its needs.

use std::time::Duration;

use super::{Counting, KeyedRule, MissingKey, ParamOf};
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
use crate::rule::info::{RuleInfo, RuleKind, own_answers};
use crate::rule::params::MOST_RUNNING;

impl RuleKind for KeyedRule {
    const NAME: &'static str = "keyed";
}

impl RuleInfo for KeyedRule {
    fn refuses(&self) -> BlockKind {
        BlockKind::Keyed
    }

    own_answers!();

    fn limit(&self) -> Option<f64> {
        Some(self.threshold)
    }

    fn interval(&self) -> Option<Duration> {
        (self.count != Counting::Running).then_some(self.interval)
    }

    #[cfg(feature = "serde")]
    fn never_shared(&self) -> Option<&'static str> {
        None
    }

    fn may_be_default(&self) -> bool {
        false
    }

    fn unit(&self) -> Option<&str> {
        self.get_cost()
    }

    fn needs(&self) -> Vec<Need<'_>> {
        let mut needs = Vec::new();
        match &self.of {
            ParamOf::Index(index) => needs.push(Need::ParamAt(*index)),
            ParamOf::Named(name) => needs.push(Need::ParamNamed(name)),
            ParamOf::Origin => needs.push(Need::Origin),
            ParamOf::Anyone => {}
        }
        if !self.tiers.is_empty() || !self.unlimited_tiers.is_empty() {
            needs.push(Need::Tier);
        }
        needs
    }

    fn is_shared(&self) -> bool {
        self.sharing.is_shared
    }

    fn bound(&self) -> Option<(&'static str, usize)> {
        let what = "rules that count calls at once for each value";
        (self.count == Counting::Running).then_some((what, MOST_RUNNING))
    }

    fn tiers(&self) -> Vec<&str> {
        let limited = self.tiers.iter().map(|(tier, _)| &**tier);
        let unlimited = self.unlimited_tiers.iter().map(|tier| &**tier);
        limited.chain(unlimited).collect()
    }

    fn missing_key(&self) -> Option<MissingKey> {
        Some(self.missing)
    }

    fn has_queue(&self) -> bool {
        !self.max_wait().is_zero() || self.place_queue().is_some()
    }
}
