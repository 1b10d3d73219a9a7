//! The [`RuleInfo`] of an authority rule: its kind, its limit and its needs.

use super::{AuthorityRule, OriginList};
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
use crate::rule::guard::Guard;
use crate::rule::info::{RuleInfo, RuleKind, own_answers};

impl RuleKind for AuthorityRule {
    const NAME: &'static str = "authority";
}

impl RuleInfo for AuthorityRule {
    fn refuses(&self) -> BlockKind {
        BlockKind::Authority
    }

    own_answers!();

    fn limit(&self) -> Option<f64> {
        None
    }

    #[cfg(feature = "serde")]
    fn never_shared(&self) -> Option<&'static str> {
        Some("left out: such a rule counts nothing")
    }

    fn may_be_default(&self) -> bool {
        false
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::Origin]
    }

    fn guard(&self) -> Option<Guard> {
        Some(Guard::Origins(OriginList::new(self)))
    }
}
