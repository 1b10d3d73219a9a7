//! What a circuit breaker says of itself: its kind, its limit, its needs, and its settings by name.

use std::time::Duration;

use super::CircuitBreakerRule;
#[cfg(any(feature = "page", feature = "serde"))]
use super::{Strategy, TripThreshold};
#[cfg(feature = "observe")]
use crate::blocked::BlockKind;
use crate::breaker::MAX_BREAKERS;
use crate::hook::finding::Need;
#[cfg(feature = "serde")]
use crate::rule::info::JUDGES_THIS_PROCESS;
use crate::rule::info::{RuleInfo, own_answers};
#[cfg(any(feature = "page", feature = "serde"))]
use crate::rule::setting::WrittenSettings;

impl RuleInfo for CircuitBreakerRule {
    fn kind(&self) -> &'static str {
        "circuit-breaker"
    }

    #[cfg(feature = "observe")]
    fn refuses(&self) -> BlockKind {
        BlockKind::CircuitBreaker
    }

    own_answers!();

    #[cfg(any(feature = "page", feature = "serde"))]
    fn list(&self, settings: &mut WrittenSettings) {
        let Self {
            resource,
            strategy,
            threshold,
            exceeds,
            min_calls,
            open_for,
            open_up_to,
            last_calls,
            interval,
            buckets,
            probes,
            cancelled_as_slow,
            id,
        } = self.clone();
        let plain = Self::error_count("", 1);
        let is_row = matches!(threshold, TripThreshold::Consecutive(_));
        settings.add("resource", resource);
        if let Strategy::Slow(max_rt) = strategy {
            settings.add("max_rt", max_rt);
        }
        match (strategy, threshold) {
            (Strategy::Slow(_), TripThreshold::Ratio(ratio)) => settings.add("slow_ratio", ratio),
            (_, TripThreshold::Ratio(ratio)) => settings.add("error_ratio", ratio),
            (_, TripThreshold::Count(count)) => settings.add("error_count", count),
            (_, TripThreshold::Consecutive(count)) => settings.add("consecutive_errors", count),
        }
        settings.add_changed("exceeds", exceeds, false);
        settings.add_given("min_calls", min_calls);
        settings.add("open_for", open_for);
        settings.add_given("open_up_to", open_up_to);
        settings.add_given("last_calls", last_calls);
        if !is_row && last_calls.is_none() {
            settings.add("interval", interval);
        }
        settings.add_given("buckets", buckets);
        settings.add_changed("probes", probes, plain.probes);
        settings.add_changed("count_cancelled_as_slow", cancelled_as_slow, true);
        settings.add_given("id", id);
    }

    fn limit(&self) -> Option<f64> {
        Some(Self::limit(self))
    }

    fn interval(&self) -> Option<Duration> {
        self.counted_interval()
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
        Some(("circuit breakers", MAX_BREAKERS))
    }
}
