//! What a system rule says of itself: its kind, its limit, its needs, and its settings by name.

use super::SystemRule;
#[cfg(feature = "observe")]
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
#[cfg(feature = "serde")]
use crate::rule::info::JUDGES_THIS_PROCESS;
use crate::rule::info::{RuleInfo, own_answers};
#[cfg(any(feature = "page", feature = "serde"))]
use crate::rule::setting::WrittenSettings;
#[cfg(any(feature = "page", feature = "serde"))]
use crate::system::Capacity;

impl RuleInfo for SystemRule {
    fn kind(&self) -> &'static str {
        "system"
    }

    #[cfg(feature = "observe")]
    fn refuses(&self) -> BlockKind {
        BlockKind::System
    }

    own_answers!();

    #[cfg(any(feature = "page", feature = "serde"))]
    fn list(&self, settings: &mut WrittenSettings) {
        let Self {
            load,
            cpu,
            qps,
            rt,
            concurrency,
            capacity,
            id,
        } = self.clone();
        settings.add_given("qps", qps);
        settings.add_given("load", load);
        settings.add_given("cpu", cpu);
        settings.add_given("rt", rt);
        settings.add_given("concurrency", concurrency);
        if capacity != Capacity::default() {
            settings.add("capacity", capacity.as_str().to_owned());
        }
        settings.add_given("id", id);
    }

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
