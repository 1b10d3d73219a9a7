//! The [`RuleInfo`] of a system rule: its kind, its limit and its needs.

use super::SystemRule;
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
#[cfg(feature = "serde")]
use crate::rule::info::JUDGES_THIS_PROCESS;
use crate::rule::info::{RuleInfo, RuleKind, own_answers};

impl RuleKind for SystemRule {
    const NAME: &'static str = "system";
}

impl RuleInfo for SystemRule {
    fn refuses(&self) -> BlockKind {
        BlockKind::System
    }

    own_answers!();

    fn limit(&self) -> Option<f64> {
        None
    }

    #[cfg(feature = "serde")]
    fn never_shared(&self) -> Option<&'static str> {
        Some(JUDGES_THIS_PROCESS)
    }

    fn may_be_default(&self) -> bool {
        false
    }

    fn needs(&self) -> Vec<Need<'_>> {
        Vec::new()
    }

    fn looks_at_machine(&self) -> bool {
        self.load.is_some() || self.cpu.is_some()
    }
}
