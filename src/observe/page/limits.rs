//! The limits of a rule as figures, for plots and the cells of tables.

use super::words::RuleSettings;
use crate::rule::Rule;

/// The limits of a rule or a resource, in figures; `None` without a limit of that kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LimitFigures {
    /// The number of calls per second, if all calls of a resource are counted together.
    pub(super) per_second: Option<f64>,
    /// The number of concurrent calls.
    pub(super) at_once: Option<f64>,
}

/// Returns the limits of `rule` that a plot or a cell can show: none if the rule counts only some
/// calls, or the costs of calls.
pub(super) fn limits(rule: &Rule) -> LimitFigures {
    let settings = RuleSettings::of(rule);
    let partial = [
        "by_origin",
        "for_origin",
        "when",
        "in_context",
        "memory",
        "cost",
    ];
    let is_whole = partial.iter().all(|name| settings.find(name).is_none());
    let mut limits = LimitFigures::default();
    match rule {
        Rule::Flow(_) if is_whole => {
            let interval = settings.time("interval").map(|time| time.as_secs_f64());
            let rate = settings.number("threshold").zip(interval);
            limits.per_second = rate.map(|(threshold, interval)| threshold / interval);
        }
        Rule::Isolation(_) if is_whole => limits.at_once = settings.number("max"),
        _ => {}
    }
    limits
}

// === impl LimitFigures ===

impl LimitFigures {
    /// Returns, for each figure, the tighter limit of `self` and `other`.
    pub(super) fn and(self, other: Self) -> Self {
        let tighter = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            per_second: tighter(self.per_second, other.per_second),
            at_once: tighter(self.at_once, other.at_once),
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::{FlowRule, IsolationRule};

    #[test]
    fn only_limits_of_all_calls_together_are_figures() {
        let of = |rule: Rule| {
            let limits = limits(&rule);
            (limits.per_second, limits.at_once)
        };
        assert_eq!(of(FlowRule::per_minute("a", 30).into()), (Some(0.5), None));
        assert_eq!(
            of(FlowRule::per_second("a", 5).by_origin().into()),
            (None, None)
        );
        assert_eq!(of(FlowRule::per_second("a", 5).shadow()), (None, None));
        let tokens = FlowRule::per_minute("a", 9_000).cost("tokens");
        assert_eq!(of(tokens.into()), (None, None));
        assert_eq!(of(IsolationRule::new("a", 5).into()), (None, Some(5.0)));
        assert_eq!(
            of(IsolationRule::new("a", 5).for_origin("b").into()),
            (None, None)
        );
        assert_eq!(
            of(IsolationRule::new("a", 5).when("b").into()),
            (None, None)
        );
        let [few, many] = [2, 3].map(|n| limits(&FlowRule::per_second("a", n).into()));
        assert_eq!(
            (many.and(few).per_second, few.and(many).per_second),
            (Some(2.0), Some(2.0))
        );
        assert_eq!(few.and(LimitFigures::default()), few);
    }
}
