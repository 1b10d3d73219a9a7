//! The settings of a system rule by name.

use super::SystemRule;
use crate::rule::setting::Settings;
use crate::system::Capacity;

impl SystemRule {
    pub(in crate::rule) fn list(&self, settings: &mut Settings) {
        let Self {
            load,
            cpu,
            qps,
            rt,
            concurrency,
            capacity,
            id,
        } = self;
        for (name, number) in [("qps", qps), ("load", load), ("cpu", cpu)] {
            if let Some(number) = number {
                settings.number(name, *number);
            }
        }
        if let Some(rt) = rt {
            settings.time("rt", *rt);
        }
        if let Some(concurrency) = concurrency {
            settings.count("concurrency", *concurrency);
        }
        match capacity {
            Capacity::Robust => {}
            Capacity::Sentinel => settings.text("capacity", "sentinel"),
        }
        settings.id(id.as_ref());
    }
}
