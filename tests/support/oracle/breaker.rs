//! Rules of circuit breakers.

use tower_sentinel::{CircuitBreakerRule, Rule};

use super::call::NS;
use super::rules::Kind;
use crate::support::ms;

/// One rule. Times are in ms.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    pub(crate) resource: &'static str,
    /// What is slow; `None`: what fails is bad.
    pub(crate) slow: Option<u64>,
    pub(crate) limit: Limit,
    pub(crate) exceeds: bool,
    pub(crate) min_calls: usize,
    /// Instead of the interval.
    pub(crate) last_calls: Option<usize>,
    pub(crate) open_for: u64,
    pub(crate) open_up_to: Option<u64>,
    pub(crate) interval: u64,
    pub(crate) buckets: u64,
    pub(crate) probes: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// Of so many calls so many.
    Ratio(usize, usize),
    Count(usize),
    /// One after the other.
    Consecutive(usize),
}

impl Breaker {
    /// It has no id yet.
    pub(crate) fn rule(&self) -> CircuitBreakerRule {
        let rule = match (self.slow, self.limit) {
            (Some(slow), Limit::Ratio(bad, all)) => {
                CircuitBreakerRule::slow_ratio(self.resource, ms(slow), bad as f64 / all as f64)
            }
            (_, Limit::Ratio(bad, all)) => {
                CircuitBreakerRule::error_ratio(self.resource, bad as f64 / all as f64)
            }
            (_, Limit::Count(most)) => CircuitBreakerRule::error_count(self.resource, most as u32),
            (_, Limit::Consecutive(most)) => {
                CircuitBreakerRule::consecutive_errors(self.resource, most as u32)
            }
        };
        let rule = if self.exceeds { rule.exceeds() } else { rule };
        let rule = rule.open_for(ms(self.open_for)).probes(self.probes);
        let rule = match self.open_up_to {
            Some(longest) => rule.open_up_to(ms(longest)),
            None => rule,
        };
        if self.is_consecutive() {
            return rule;
        }
        let rule = rule.min_calls(self.min_calls as u32);
        match self.last_calls {
            Some(calls) => rule.last_calls(calls as u32),
            None => rule
                .interval(ms(self.interval))
                .buckets(self.buckets as u32),
        }
    }

    pub(crate) fn is_consecutive(&self) -> bool {
        matches!(self.limit, Limit::Consecutive(_))
    }

    /// The same for another resource.
    pub(crate) fn of(self, resource: &'static str) -> Self {
        Self { resource, ..self }
    }

    /// For how long it is open after so many bad probes.
    pub(crate) fn open_after(&self, failed: u32) -> u64 {
        let longest = self.open_up_to.unwrap_or(self.open_for);
        (self.open_for << failed.min(7)).min(longest) * NS
    }

    pub(crate) fn lease(&self) -> u64 {
        self.open_for.max(self.slow.unwrap_or(0)) * NS
    }
}

impl Kind for Breaker {
    const NAME: &'static str = "breaker";
    const OWN_NAME: &'static str = "circuit-breaker";

    fn build(&self, id: Option<String>) -> Rule {
        match id {
            Some(id) => self.rule().id(id).into(),
            None => self.rule().into(),
        }
    }

    fn counts_like(&self, other: &Self) -> bool {
        let is_alike = (self.resource, self.slow, self.is_consecutive())
            == (other.resource, other.slow, other.is_consecutive());
        let window = |breaker: &Self| match breaker.last_calls {
            Some(calls) => (Some(calls), 0, 0),
            None => (None, breaker.interval, breaker.buckets),
        };
        is_alike && (self.is_consecutive() || window(self) == window(other))
    }

    fn blend(&self, other: &Self, mask: u8) -> Self {
        let mut blend = self.clone();
        let has = |bit: u8| mask >> bit & 1 == 1;
        if has(0) {
            blend.min_calls = other.min_calls;
            blend.exceeds = other.exceeds;
            if blend.slow.is_none() || matches!(other.limit, Limit::Ratio(..)) {
                blend.limit = other.limit;
            }
        }
        if has(1) {
            (blend.open_for, blend.open_up_to) = (other.open_for, other.open_up_to);
        }
        if has(2) {
            blend.probes = other.probes;
        }
        if has(3) {
            (blend.slow, blend.limit) = (other.slow, other.limit);
        }
        if has(4) {
            (blend.interval, blend.buckets) = (other.interval, other.buckets);
            blend.last_calls = other.last_calls;
        }
        blend
    }
}
