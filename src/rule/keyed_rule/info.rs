//! What a keyed rule says of itself: its kind, its limit, its needs, and its settings by name.

use std::time::Duration;

#[cfg(any(feature = "page", feature = "serde"))]
use super::Burst;
use super::{Counting, KeyedRule, MissingKey, ParamOf};
#[cfg(feature = "observe")]
use crate::blocked::BlockKind;
use crate::hook::finding::Need;
use crate::rule::info::{RuleInfo, own_answers};
use crate::rule::params::MOST_RUNNING;
#[cfg(any(feature = "page", feature = "serde"))]
use crate::rule::setting::WrittenSettings;

impl RuleInfo for KeyedRule {
    fn kind(&self) -> &'static str {
        "keyed"
    }

    #[cfg(feature = "observe")]
    fn refuses(&self) -> BlockKind {
        BlockKind::Keyed
    }

    own_answers!();

    #[cfg(any(feature = "page", feature = "serde"))]
    fn list(&self, settings: &mut WrittenSettings) {
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
        } = self.clone();
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

    fn limit(&self) -> Option<f64> {
        Some(self.threshold)
    }

    fn interval(&self) -> Option<Duration> {
        (self.count != Counting::Running).then_some(self.interval)
    }

    #[cfg(feature = "serde")]
    fn never_shared(&self) -> Option<&'static str> {
        None
    }

    fn may_be_default(&self) -> bool {
        false
    }

    fn needs(&self) -> Vec<Need<'_>> {
        let mut needs = vec![match &self.of {
            ParamOf::Index(index) => Need::ParamAt(*index),
            ParamOf::Named(name) => Need::ParamNamed(name),
            ParamOf::Origin => Need::Origin,
        }];
        if !self.tiers.is_empty() {
            needs.push(Need::Tier);
        }
        needs
    }

    fn is_shared(&self) -> bool {
        self.sharing.is_shared
    }

    fn bound(&self) -> Option<(&'static str, usize)> {
        let what = "rules that count calls at once for each value";
        (self.count == Counting::Running).then_some((what, MOST_RUNNING))
    }

    fn tiers(&self) -> Vec<&str> {
        self.tiers.iter().map(|(tier, _)| &**tier).collect()
    }

    fn missing_key(&self) -> Option<MissingKey> {
        Some(self.missing)
    }

    fn has_queue(&self) -> bool {
        !self.max_wait().is_zero() || self.place_queue().is_some()
    }
}
