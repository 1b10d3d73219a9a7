//! The settings of a flow rule by name.

use super::{Basis, FlowRule, Who};
use crate::rule::setting::WrittenSettings;
use crate::rule::shaping::{Marks, Shaping};
use crate::rule::whose::OTHER_ORIGIN;

impl FlowRule {
    pub(in crate::rule) fn list(self, settings: &mut WrittenSettings) {
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
        } = self;
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
}
