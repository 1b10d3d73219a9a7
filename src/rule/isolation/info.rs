//! The [`RuleInfo`] of an isolation rule: its kind, its limit and its needs.

use super::{IsolationRule, Who};
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
use crate::rule::default::{ANY_RESOURCE, MOST_DEFAULTS};
use crate::rule::info::{RuleInfo, RuleKind, own_answers};

impl RuleKind for IsolationRule {
    const NAME: &'static str = "isolation";
}

impl RuleInfo for IsolationRule {
    fn refuses(&self) -> BlockKind {
        BlockKind::Isolation
    }

    own_answers!();

    fn limit(&self) -> Option<f64> {
        Some(self.max().into())
    }

    #[cfg(feature = "serde")]
    fn never_shared(&self) -> Option<&'static str> {
        Some("left out: the permit of a call that runs would need an owner and an expiry")
    }

    fn may_be_default(&self) -> bool {
        self.is_for_all_calls()
    }

    fn needs(&self) -> Vec<Need<'_>> {
        match self.who {
            Who::Anyone => Vec::new(),
            _ => vec![Need::Origin],
        }
    }

    fn bound(&self) -> Option<(&'static str, usize)> {
        (self.resource == ANY_RESOURCE).then_some(("flow and isolation rules", MOST_DEFAULTS))
    }

    fn related(&self) -> Option<&str> {
        self.related.as_deref()
    }

    fn has_queue(&self) -> bool {
        self.slot_queue().is_some()
    }
}
