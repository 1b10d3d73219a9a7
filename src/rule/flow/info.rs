//! What a flow rule says of itself: its kind, its limit, its needs, and its settings by name.

use std::time::Duration;

use super::{Basis, FlowRule, MissingKey, Who};
#[cfg(feature = "observe")]
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
use crate::rule::default::{ANY_RESOURCE, MOST_DEFAULTS};
use crate::rule::info::{RuleInfo, own_answers};
#[cfg(any(feature = "page", feature = "serde"))]
use crate::rule::setting::WrittenSettings;
#[cfg(any(feature = "page", feature = "serde"))]
use crate::rule::shaping::{Marks, Shaping};
#[cfg(any(feature = "page", feature = "serde"))]
use crate::rule::whose::OTHER_ORIGIN;

impl RuleInfo for FlowRule {
    fn kind(&self) -> &'static str {
        "flow"
    }

    #[cfg(feature = "observe")]
    fn refuses(&self) -> BlockKind {
        BlockKind::Flow
    }

    own_answers!();

    #[cfg(any(feature = "page", feature = "serde"))]
    fn list(&self, settings: &mut WrittenSettings) {
        let Self {
            resource,
            threshold,
            interval,
            buckets,
            strict,
            who,
            basis,
            shaping,
            missing,
            lend,
            max_occupy_ratio,
            max_waiting,
            sharing,
            id,
        } = self.clone();
        let Shaping {
            max_wait,
            warm_up,
            cold_factor,
            memory,
        } = shaping;
        let plain = Self::per_second("", 0);
        settings.add("resource", resource);
        settings.add("threshold", threshold);
        settings.add("interval", interval);
        settings.add_changed("buckets", buckets, plain.buckets);
        settings.add_changed("strict", strict, false);
        match who {
            Who::Anyone => {}
            Who::Each => settings.add("by_origin", true),
            Who::Only(origin) => settings.add("for_origin", origin),
            Who::Other => settings.add("for_origin", OTHER_ORIGIN.to_owned()),
        }
        settings.add_given(
            "missing",
            missing.map(|missing| missing.as_str().to_owned()),
        );
        match basis {
            Basis::Own => {}
            Basis::Related(related) => settings.add("when", related),
            Basis::Context(context) => settings.add("in_context", context),
        }
        settings.add_given("throttle", max_wait);
        settings.add_given("warm_up", warm_up);
        settings.add_given("cold_factor", cold_factor);
        if let Some(memory) = memory {
            let (name, marks) = match memory.marks {
                Marks::Shares(from, to) => ("memory", format!("{from}..{to}")),
                Marks::Bytes(from, to) => ("memory_bytes", format!("{from}..{to}")),
            };
            settings.add(name, marks);
            settings.add("memory_threshold", memory.threshold);
        }
        settings.add_given("lend", lend);
        settings.add_changed("max_occupy_ratio", max_occupy_ratio, plain.max_occupy_ratio);
        settings.add_changed("max_waiting", max_waiting, plain.max_waiting);
        settings.sharing(&sharing);
        settings.add_given("id", id);
    }

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
        matches!((&self.basis, &self.who), (Basis::Own, Who::Anyone))
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

    fn limits_all_alike(&self) -> bool {
        self.may_be_default() && self.shaping.memory.is_none()
    }

    fn looks_at_machine(&self) -> bool {
        self.shaping.memory.is_some()
    }
}
