//! The check of a keyed rule before it comes into force.

use std::collections::HashSet;
use std::time::Duration;

use super::{Counting, KeyedRule, LONGEST_SHOWN, ParamOf};
use crate::clock::SHORTEST_INTERVAL;
use crate::keyed::{MOST_KEYS, SHORTEST_REFILL};
use crate::rule::isolation::LONGEST_QUEUE;
use crate::rule::problem::{Inspector, brief};
use crate::rule::sharing::{inspect_window, refuse_shared};

/// The longest valid wait of a call in the queue of its value.
const LONGEST_WAIT: Duration = Duration::from_secs(256);

impl KeyedRule {
    /// The advice, in a problem, that makes a threshold below one call valid; `None` if the rule
    /// counts fractions.
    fn advice_for_fractions(&self) -> Option<&'static str> {
        match self.count {
            Counting::Refill if self.extra_calls() == 0 => Some("add a `burst` of 1"),
            Counting::Window => Some("leave out `window` and add a `burst` of 1"),
            Counting::Calendar(_) => Some("use `per` with a `burst` of 1"),
            Counting::Refill | Counting::Queue(_) | Counting::Running => None,
        }
    }

    /// Reports every setting that is out of its range, or that does not go with the others.
    pub(in crate::rule) fn inspect(&self, inspector: &mut Inspector) {
        inspector.name("resource", &self.resource);
        if let ParamOf::Named(name) = &self.of {
            inspector.name("param", name);
        }
        if let Some(unit) = &self.cost {
            self.inspect_cost(unit, inspector);
        }
        let most = self.most();
        inspector.number("threshold", self.threshold, 0..=most);
        if let Some(cure) = self.advice_for_fractions() {
            inspector.whole_call("threshold", self.threshold, self.interval, cure);
        }
        let exceptions = self.exceptions.iter().map(|own| ("except", own));
        let tiers = self.tiers.iter().map(|own| ("tier", own));
        for (field, (name, threshold)) in exceptions.chain(tiers) {
            inspector.name(field, name);
            if !(0.0..=f64::from(most)).contains(threshold) {
                // The message quotes the entry, as a rule can have many.
                let start: String = name.chars().take(LONGEST_SHOWN).collect();
                let value = format!("{} for {start:?}", brief(*threshold));
                inspector.refuse(field, value, format_args!("between 0 and {most}"));
            } else if let Some(cure) = self.advice_for_fractions() {
                inspector.whole_call(field, *threshold, self.interval, cure);
            }
        }
        self.inspect_unlimited(inspector);
        let shortest = match self.count {
            Counting::Refill => SHORTEST_REFILL,
            _ => SHORTEST_INTERVAL,
        };
        let is_valid = inspector.time("interval", self.interval, shortest);
        if is_valid && self.count == Counting::Window && self.interval.as_nanos() % 2 != 0 {
            let value = format!("{:?}", self.interval);
            inspector.refuse("interval", value, "a multiple of 2 ns for a window");
        }
        let elsewhere = match self.count {
            Counting::Calendar(_) => "for a day or month of the calendar",
            _ => "with `window`, `throttle` or `concurrency`",
        };
        let is_refilled = self.count == Counting::Refill;
        let burst = self.burst.check(self.threshold, is_refilled, elsewhere);
        if let Err((field, value, allowed)) = burst {
            inspector.refuse(field, value, allowed);
        }
        if let Counting::Queue(wait) = self.count {
            if wait > LONGEST_WAIT {
                let value = format!("{wait:?}");
                inspector.refuse("max_wait", value, format!("at most {LONGEST_WAIT:?}"));
            }
        }
        inspector.number("max_keys", self.max_keys, 1..=MOST_KEYS);
        self.inspect_calendar(inspector);
        self.inspect_queue(inspector);
        self.inspect_block(inspector);
        if self.sharing.inspect(inspector) {
            self.inspect_shared(inspector);
        }
    }

    /// Reports the names that are listed as unlimited although they have a threshold.
    fn inspect_unlimited(&self, inspector: &mut Inspector) {
        let mut check = |field, unlimited: &[String], limited: &[(String, f64)], allowed| {
            let limited: HashSet<&str> = limited.iter().map(|(name, _)| &**name).collect();
            for name in unlimited {
                inspector.name(field, name);
                if limited.contains(&**name) {
                    let start: String = name.chars().take(LONGEST_SHOWN).collect();
                    inspector.refuse(field, format_args!("{start:?}"), allowed);
                }
            }
        };
        let allowed = "a value without a threshold of its own in `except`";
        check(
            "except_unlimited",
            &self.unlimited_values,
            &self.exceptions,
            allowed,
        );
        let allowed = "a tier without a threshold in `tier`";
        check(
            "tier_unlimited",
            &self.unlimited_tiers,
            &self.tiers,
            allowed,
        );
    }

    /// Reports the settings that a shared rule cannot have.
    fn inspect_shared(&self, inspector: &mut Inspector) {
        match self.count {
            Counting::Window => inspect_window(inspector, self.interval, 2),
            Counting::Refill => {
                let why = "used with `window`: a refilled quota has no buckets to lease from";
                refuse_shared(inspector, why);
            }
            Counting::Calendar(_) => {}
            Counting::Queue(_) => {
                let why = "left out with `throttle`: one queue and one clock cannot be shared";
                refuse_shared(inspector, why);
            }
            Counting::Running => {
                let why = "left out with `concurrency`: the permit of a call that runs would \
                     need an owner and an expiry";
                refuse_shared(inspector, why);
            }
        }
    }

    /// Reports settings of the queue that are out of range, or that the rule has without a limit on
    /// concurrency.
    fn inspect_queue(&self, inspector: &mut Inspector) {
        const UNLIMITED: &str = "left out without `concurrency`";
        let is_limit = self.count == Counting::Running;
        match self.queue {
            Some(queue) if !is_limit => inspector.refuse("queue", format!("{queue:?}"), UNLIMITED),
            Some(queue) if queue > LONGEST_QUEUE => {
                inspector.refuse("queue", format!("{queue:?}"), "at most 1 day");
            }
            _ => {}
        }
        match self.max_waiting {
            Some(most) if !is_limit => inspector.refuse("max_waiting", most, UNLIMITED),
            Some(most) => _ = inspector.number("max_waiting", most, 0..=u32::MAX),
            None => {}
        }
    }
}
