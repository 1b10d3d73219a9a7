//! The settings of a circuit breaker by name.

use super::{CircuitBreakerRule, Strategy, Threshold};
use crate::rule::setting::Settings;

impl CircuitBreakerRule {
    pub(in crate::rule) fn list(&self, settings: &mut Settings) {
        let Self {
            resource,
            strategy,
            threshold,
            exceeds,
            min_calls,
            open_for,
            open_up_to,
            interval,
            buckets,
            probes,
            cancelled_as_slow,
            id,
        } = self;
        let plain = Self::error_count("", 1);
        settings.text("resource", resource);
        if let Strategy::Slow(max_rt) = strategy {
            settings.time("max_rt", *max_rt);
        }
        match (strategy, threshold) {
            (Strategy::Slow(_), Threshold::Ratio(ratio)) => settings.number("slow_ratio", *ratio),
            (_, Threshold::Ratio(ratio)) => settings.number("error_ratio", *ratio),
            (_, Threshold::Count(count)) => settings.count("error_count", *count),
            (_, Threshold::Consecutive(count)) => settings.count("consecutive_errors", *count),
        }
        if *exceeds {
            settings.flag("exceeds", true);
        }
        if let Some(min_calls) = min_calls {
            settings.count("min_calls", *min_calls);
        }
        settings.time("open_for", *open_for);
        if let Some(open_up_to) = open_up_to {
            settings.time("open_up_to", *open_up_to);
        }
        if !self.is_consecutive() {
            settings.time("interval", *interval);
        }
        if let Some(buckets) = buckets {
            settings.count("buckets", *buckets);
        }
        if *probes != plain.probes {
            settings.count("probes", *probes);
        }
        if !cancelled_as_slow {
            settings.flag("count_cancelled_as_slow", false);
        }
        settings.id(id.as_ref());
    }
}
