//! The settings of a rule for hot parameters by name.

use super::{Count, HotParamRule, ParamOf};
use crate::rule::setting::Settings;

impl HotParamRule {
    pub(in crate::rule) fn list(&self, settings: &mut Settings) {
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
            missing,
            id,
        } = self;
        let plain = Self::per_second("", 0);
        settings.text("resource", resource);
        match of {
            ParamOf::Index(0) => {}
            ParamOf::Index(index) => settings.number("param_at", (*index).into()),
            ParamOf::Named(name) => settings.text("param", name),
            ParamOf::Origin => settings.flag("by_origin", true),
        }
        if *count == Count::Running {
            settings.number("concurrency", *threshold);
        } else {
            settings.number("threshold", *threshold);
            settings.time("interval", *interval);
        }
        match count {
            Count::Refill | Count::Running => {}
            Count::Window => settings.flag("window", true),
            Count::Line(max_wait) => settings.time("throttle", *max_wait),
        }
        if *burst != plain.burst {
            settings.count("burst", *burst);
        }
        settings.thresholds("except", "value", exceptions);
        settings.thresholds("tier", "name", tiers);
        if *max_keys != plain.max_keys {
            settings.count("max_keys", *max_keys);
        }
        settings.missing(*missing);
        settings.id(id.as_ref());
    }
}
