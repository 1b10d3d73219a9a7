//! The [`RuleInfo`] of an adaptive rule: its kind, its limit and its needs.

use super::AdaptiveRule;
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
#[cfg(feature = "serde")]
use crate::rule::info::JUDGES_THIS_PROCESS;
use crate::rule::info::{RuleInfo, RuleKind, own_answers};

impl RuleKind for AdaptiveRule {
    const NAME: &'static str = "adaptive";
}

impl RuleInfo for AdaptiveRule {
    fn refuses(&self) -> BlockKind {
        BlockKind::Isolation
    }

    own_answers!();

    fn limit(&self) -> Option<f64> {
        Some(self.most().into())
    }

    #[cfg(feature = "serde")]
    fn never_shared(&self) -> Option<&'static str> {
        Some(JUDGES_THIS_PROCESS)
    }

    fn may_be_default(&self) -> bool {
        true
    }

    fn needs(&self) -> Vec<Need<'_>> {
        Vec::new()
    }

    fn bound(&self) -> Option<(&'static str, usize)> {
        Some(("adaptive rule", 1))
    }
}
