//! The settings of a keyed rules by name.

use super::{Burst, Counting, KeyedRule, ParamOf};
use crate::rule::setting::WrittenSettings;

impl KeyedRule {
    pub(in crate::rule) fn list(self, settings: &mut WrittenSettings) {
        let Self {
            resource,
            of,
            count,
            threshold,
            interval,
            burst,
            exceptions,
            tiers,
            max_keys,
            queue,
            max_waiting,
            missing,
            sharing,
            id,
        } = self;
        let plain = Self::per_second("", 0);
        settings.add("resource", resource);
        match of {
            ParamOf::Index(0) => {}
            ParamOf::Index(index) => settings.add("param_at", f64::from(index)),
            ParamOf::Named(name) => settings.add("param", name),
            ParamOf::Origin => settings.add("by_origin", true),
        }
        if count == Counting::Running {
            settings.add("concurrency", threshold);
        } else {
            settings.add("threshold", threshold);
            settings.add("interval", interval);
        }
        match count {
            Counting::Refill | Counting::Running => {}
            Counting::Window => settings.add("window", true),
            Counting::Queue(max_wait) => settings.add("throttle", max_wait),
        }
        match burst {
            Burst::Beside(burst) if burst.get() == 0 => {}
            Burst::Beside(burst) => settings.add("burst", burst),
            Burst::Capacity(capacity) => settings.add("capacity", capacity),
        }
        settings.thresholds("except", "value", exceptions.to_vec());
        settings.thresholds("tier", "name", tiers);
        settings.add_changed("max_keys", max_keys, plain.max_keys);
        settings.add_given("queue", queue);
        settings.add_given("max_waiting", max_waiting);
        settings.missing(missing);
        settings.sharing(&sharing);
        settings.add_given("id", id);
    }
}
