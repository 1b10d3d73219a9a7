//! The [`RuleInfo`] of a circuit breaker: its kind, its limit and its needs.

use std::time::Duration;

use super::CircuitBreakerRule;
use crate::blocked::BlockKind;
use crate::breaker::MAX_BREAKERS;
use crate::hook::finding::Need;
#[cfg(feature = "serde")]
use crate::rule::info::JUDGES_THIS_PROCESS;
use crate::rule::info::{RuleInfo, RuleKind, own_answers};

impl RuleKind for CircuitBreakerRule {
    const NAME: &'static str = "circuit-breaker";
}

impl RuleInfo for CircuitBreakerRule {
    fn refuses(&self) -> BlockKind {
        BlockKind::CircuitBreaker
    }

    own_answers!();

    fn limit(&self) -> Option<f64> {
        Self::limit(self)
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
