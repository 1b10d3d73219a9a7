//! The settings of a flow rule by name.

use super::{Basis, FlowRule, OTHER_ORIGIN, Who};
use crate::rule::setting::Settings;
use crate::rule::shaping::{Marks, Shaping};

impl FlowRule {
    pub(in crate::rule) fn list(&self, settings: &mut Settings) {
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
            id,
        } = self;
        let Shaping {
            max_wait,
            warm_up,
            cold_factor,
            memory,
        } = shaping;
        let plain = Self::per_second("", 0);
        settings.text("resource", resource);
        settings.number("threshold", *threshold);
        settings.time("interval", *interval);
        if *buckets != plain.buckets {
            settings.count("buckets", *buckets);
        }
        if *strict {
            settings.flag("strict", true);
        }
        match who {
            Who::Anyone => {}
            Who::Each => settings.flag("by_origin", true),
            Who::Only(origin) => settings.text("for_origin", origin),
            Who::Other => settings.text("for_origin", OTHER_ORIGIN),
        }
        settings.missing(*missing);
        match basis {
            Basis::Own => {}
            Basis::Related(related) => settings.text("when", related),
            Basis::Context(context) => settings.text("in_context", context),
        }
        if let Some(max_wait) = max_wait {
            settings.time("throttle", *max_wait);
        }
        if let Some(period) = warm_up {
            settings.time("warm_up", *period);
        }
        if let Some(factor) = cold_factor {
            settings.number("cold_factor", *factor);
        }
        if let Some(memory) = memory {
            let (name, marks) = match memory.marks {
                Marks::Shares(from, to) => ("memory", format!("{from}..{to}")),
                Marks::Bytes(from, to) => ("memory_bytes", format!("{from}..{to}")),
            };
            settings.text(name, &marks);
            settings.number("memory_threshold", memory.threshold);
        }
        if let Some(lend) = lend {
            settings.flag("lend", *lend);
        }
        if *max_occupy_ratio != plain.max_occupy_ratio {
            settings.number("max_occupy_ratio", *max_occupy_ratio);
        }
        if *max_waiting != plain.max_waiting {
            settings.count("max_waiting", *max_waiting);
        }
        settings.id(id.as_ref());
    }
}
