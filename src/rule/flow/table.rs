//! Flow rules that count in a table of values: rules by origin, and rules by the calendar.

use super::{FlowRule, KeyedRule, Who};
use crate::keyed::most_in_window;
use crate::rule::problem::Inspector;
use crate::stat::MAX_TOKENS;

impl FlowRule {
    /// Reports the settings that a table cannot implement. The message for a queue is `queue`, and
    /// for any other setting `allowed`. The pattern names every field, so that a new field does not
    /// compile until it is handled here.
    pub(super) fn inspect_in_table(&self, inspector: &mut Inspector, [allowed, queue]: [&str; 2]) {
        let Self {
            resource: _,
            threshold: _,
            interval: _,
            buckets,
            strict,
            who: _,
            missing: _,
            // Refused with any selection of origins.
            basis: _,
            shaping,
            lend,
            // Without effect: with a table no call waits.
            max_waiting: _,
            max_occupy_ratio: _,
            sharing: _,
            calendar: _,
            utc_offset: _,
            // Refused with any selection of callers.
            cost: _,
            id: _,
        } = self;
        if *strict {
            inspector.refuse("strict", true, allowed);
        }
        if *lend == Some(true) {
            inspector.refuse("lend", true, allowed);
        }
        if buckets.get() != 2 {
            inspector.refuse("buckets", buckets.get(), allowed);
        }
        let is_queue = shaping.max_wait.is_some();
        shaping.inspect_absent(inspector, if is_queue { queue } else { allowed });
    }

    /// Reports the settings that a table of origins cannot implement.
    pub(super) fn inspect_by_origin(&self, inspector: &mut Inspector) {
        let allowed = "left out with `by_origin`: `for_origin(\"other\")` has it for each origin";
        // `for_origin("other")` has only one queue for all of its origins.
        let queue = "left out with `by_origin`: a `KeyedRule` has a queue for each origin, by \
                     `.by_origin().throttle(…)`";
        self.inspect_in_table(inspector, [allowed, queue]);
        // A threshold above `MAX_TOKENS` has been reported already.
        let most = most_in_window(self.interval);
        if most < MAX_TOKENS && self.threshold > f64::from(most) {
            inspector.number("threshold", self.threshold, 0..=most);
        }
    }

    /// Returns whether the rule counts in a table, as a [keyed rule](Self::as_keyed_rule).
    pub(in crate::rule) fn is_in_table(&self) -> bool {
        self.is_by_origin() || self.calendar.is_some()
    }

    /// Converts this rule, which counts by origin or by the calendar, into a keyed rule.
    pub(in crate::rule) fn as_keyed_rule(&self, most_origins: u32) -> KeyedRule {
        let mut rule = match self.calendar {
            Some(period) => {
                KeyedRule::by_calendar(self.resource.clone(), self.threshold.into(), period)
                    .utc_offset(self.get_utc_offset())
            }
            None => KeyedRule::per(&self.resource, self.threshold, self.interval).window(),
        };
        rule = match self.who {
            Who::Each => rule.by_origin().max_keys(most_origins),
            _ => rule.of_all(),
        };
        rule = rule.missing(self.missing.unwrap_or_default());
        rule.cost.clone_from(&self.cost);
        rule.id.clone_from(&self.id);
        rule
    }
}
