//! What an authority rule says of itself: its kind, its limit, its needs, and its settings by name.

use super::AuthorityRule;
#[cfg(any(feature = "page", feature = "serde"))]
use super::Treatment;
#[cfg(feature = "observe")]
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
use crate::rule::info::{RuleInfo, own_answers};
#[cfg(any(feature = "page", feature = "serde"))]
use crate::rule::setting::WrittenSettings;

impl RuleInfo for AuthorityRule {
    fn kind(&self) -> &'static str {
        "authority"
    }

    #[cfg(feature = "observe")]
    fn refuses(&self) -> BlockKind {
        BlockKind::Authority
    }

    own_answers!();

    #[cfg(any(feature = "page", feature = "serde"))]
    fn list(&self, settings: &mut WrittenSettings) {
        let Self {
            resource,
            origins,
            strategy,
            deny_unknown,
            id,
        } = self.clone();
        settings.add("resource", resource);
        match strategy {
            Treatment::Allow => settings.add("allow", origins),
            Treatment::Deny => settings.add("deny", origins),
        }
        settings.add_changed("deny_unknown", deny_unknown, false);
        settings.add_given("id", id);
    }

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
}
