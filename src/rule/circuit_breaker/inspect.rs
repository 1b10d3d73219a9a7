//! Finds the problems of a circuit-breaker rule.

use std::time::Duration;

use super::{CircuitBreakerRule, DEFAULT_INTERVAL, DEFAULT_OPEN_FOR, Strategy, TripThreshold};
use crate::base::number::WholeNumber;
use crate::breaker::{MAX_BUCKETS, MAX_COUNT, MAX_LAST_CALLS, MAX_PROBES};
use crate::clock::{LONGEST_INTERVAL, SHORTEST_INTERVAL};
use crate::rule::problem::Inspector;

/// The allowed value, in a problem, of a setting that a pushback rule does not use.
const NOT_FOR_PUSHBACK: &str = "left out for a pushback";

impl CircuitBreakerRule {
    pub(in crate::rule) fn inspect(&self, inspector: &mut Inspector) {
        inspector.name("resource", &self.resource);
        if let Strategy::Slow(max_rt) = self.strategy {
            inspector.time("max_rt", max_rt, Duration::ZERO);
        }
        self.inspect_threshold(inspector);
        if self.is_pushback() {
            self.inspect_pushback(inspector);
        } else if inspector.time("open_for", self.open_for, SHORTEST_INTERVAL) {
            self.inspect_growth(inspector);
        }
        match self.last_calls {
            _ if self.is_consecutive() => {
                self.refuse_counting(inspector, "left out for consecutive errors");
            }
            _ if self.is_pushback() => self.refuse_counting(inspector, NOT_FOR_PUSHBACK),
            Some(calls) => self.inspect_last_calls(inspector, calls),
            None => self.inspect_window(inspector),
        }
        inspector.number("probes", self.probes, 1..=MAX_PROBES);
    }

    /// Inspects `open_up_to`, which is at least `open_for`: the time for which a breaker is open
    /// can only grow.
    fn inspect_growth(&self, inspector: &mut Inspector) {
        let Some(longest) = self.open_up_to else {
            return;
        };
        if !(self.open_for..=LONGEST_INTERVAL).contains(&longest) {
            let allowed = format!("between the open_for of {:?} and 366 days", self.open_for);
            inspector.refuse("open_up_to", format_args!("{longest:?}"), allowed);
        }
    }

    /// Inspects the settings of a rule that counts the calls of an interval.
    fn inspect_window(&self, inspector: &mut Inspector) {
        self.inspect_min_calls(inspector);
        if inspector.time("interval", self.interval, SHORTEST_INTERVAL) {
            if let Some(buckets) = self.buckets {
                inspector.buckets(self.interval, buckets, MAX_BUCKETS);
            }
        }
    }

    /// Refuses the settings that count calls, for a rule whose condition counts no calls in a
    /// window.
    fn refuse_counting(&self, inspector: &mut Inspector, allowed: &str) {
        if let Some(min_calls) = self.min_calls {
            inspector.refuse("min_calls", min_calls, allowed);
        }
        if let Some(calls) = self.last_calls {
            inspector.refuse("last_calls", calls, allowed);
        }
        self.refuse_window(inspector, allowed);
    }

    /// Inspects the settings of a pushback rule. The callee determines how long the breaker is
    /// open, so only the maximum can be set.
    fn inspect_pushback(&self, inspector: &mut Inspector) {
        if self.exceeds {
            inspector.refuse("exceeds", true, NOT_FOR_PUSHBACK);
        }
        if self.open_for != DEFAULT_OPEN_FOR {
            inspector.refuse(
                "open_for",
                format_args!("{:?}", self.open_for),
                NOT_FOR_PUSHBACK,
            );
        }
        if let Some(longest) = self.open_up_to {
            inspector.time("open_up_to", longest, SHORTEST_INTERVAL);
        }
    }

    /// Inspects the settings of a rule that counts the last `calls` calls.
    fn inspect_last_calls(&self, inspector: &mut Inspector, calls: WholeNumber) {
        inspector.number("last_calls", calls, 1..=MAX_LAST_CALLS);
        self.inspect_min_calls(inspector);
        self.refuse_window(inspector, "left out beside last_calls");
    }

    /// Inspects `min_calls`, which is at most the number of calls that the rule can count.
    fn inspect_min_calls(&self, inspector: &mut Inspector) {
        if let Some(min_calls) = self.min_calls {
            inspector.number("min_calls", min_calls, 1..=self.most_calls());
        }
    }

    /// The maximum number of calls that the rule can count at once.
    fn most_calls(&self) -> u32 {
        let most = self
            .last_calls
            .filter(|most| most.is_within(1, MAX_LAST_CALLS));
        most.map_or(MAX_COUNT, WholeNumber::get)
    }

    /// Refuses the settings of the interval, for a rule that does not count in an interval.
    fn refuse_window(&self, inspector: &mut Inspector, allowed: &str) {
        if self.interval != DEFAULT_INTERVAL {
            inspector.refuse("interval", format_args!("{:?}", self.interval), allowed);
        }
        if let Some(buckets) = self.buckets {
            inspector.refuse("buckets", buckets, allowed);
        }
    }

    /// Inspects the ratio or the count at which the breaker opens.
    fn inspect_threshold(&self, inspector: &mut Inspector) {
        // 0 can be exceeded, but is always reached.
        let least = u32::from(!self.exceeds);
        match self.threshold {
            TripThreshold::Count(count) => {
                // All of the last calls can be bad, but not more: a larger count would never be
                // exceeded.
                let is_last = self.last_calls.is_some();
                let most = self.most_calls() - u32::from(self.exceeds && is_last);
                inspector.number("count", count, least..=most);
            }
            TripThreshold::Consecutive(count) => {
                inspector.number("count", count, least..=MAX_COUNT);
            }
            TripThreshold::Ratio(ratio) if self.exceeds => {
                inspector.number("ratio", ratio, 0..=1);
            }
            TripThreshold::Ratio(ratio) => inspector.fraction("ratio", ratio),
            TripThreshold::Pushback => {}
        }
    }
}
