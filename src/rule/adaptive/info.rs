//! What an adaptive rule says of itself: its kind, its limit, its needs, and its settings by name.

use super::AdaptiveRule;
#[cfg(feature = "observe")]
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
#[cfg(feature = "serde")]
use crate::rule::info::JUDGES_THIS_PROCESS;
use crate::rule::info::{RuleInfo, own_answers};
#[cfg(any(feature = "page", feature = "serde"))]
use crate::rule::setting::WrittenSettings;

impl RuleInfo for AdaptiveRule {
    fn kind(&self) -> &'static str {
        "adaptive"
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
            floor,
            ceiling,
            start,
            tolerance,
            smoothing,
            id,
        } = self.clone();
        let plain = Self::new("");
        settings.add("resource", resource);
        settings.add_changed("floor", floor, plain.floor);
        settings.add_changed("ceiling", ceiling, plain.ceiling);
        settings.add_given("start", start);
        settings.add_changed("tolerance", tolerance, plain.tolerance);
        settings.add_changed("smoothing", smoothing, plain.smoothing);
        settings.add_given("id", id);
    }

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
