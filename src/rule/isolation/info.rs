//! What an isolation rule says of itself: its kind, its limit, its needs, and its settings by name.

use super::{IsolationRule, Who};
#[cfg(feature = "observe")]
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
use crate::rule::default::{ANY_RESOURCE, MOST_DEFAULTS};
use crate::rule::info::{RuleInfo, own_answers};
#[cfg(any(feature = "page", feature = "serde"))]
use crate::rule::setting::WrittenSettings;

impl RuleInfo for IsolationRule {
    fn kind(&self) -> &'static str {
        "isolation"
    }

    #[cfg(feature = "observe")]
    fn refuses(&self) -> BlockKind {
        BlockKind::Isolation
    }

    own_answers!();

    #[cfg(any(feature = "page", feature = "serde"))]
    fn list(&self, settings: &mut WrittenSettings) {
        let Self {
            resource,
            max,
            who,
            related,
            queue,
            max_waiting,
            id,
        } = self.clone();
        let plain = Self::new("", 0);
        settings.add("resource", resource);
        settings.add("max", max);
        settings.add_given("for_origin", who.origin().map(str::to_owned));
        settings.add_given("when", related);
        settings.add_given("queue", queue);
        settings.add_changed("max_waiting", max_waiting, plain.max_waiting);
        settings.add_given("id", id);
    }

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
