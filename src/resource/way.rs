//! How much there is that judges the calls of a resource, and so which way they go.

use super::Extras;
use crate::rule::{Gate, RuleSet};
use crate::shared::Shared;

/// See the table in the [pipeline](crate::pipeline): narrow to wide. It is found out
/// once, when the resource is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The resource's own ring and slots are all that judges and counts its calls.
    AtOnce,
    /// The same, after circuit breakers, which all let it pass if they are closed.
    WithBreakers,
    /// As at once, after a share of one value's quota, which a call gets now or not at
    /// all.
    WithShare,
    /// Its own ring is all that judges the rate of its calls. Others may refuse them,
    /// limit how many run, or count them, but nobody else takes tokens or watches.
    Alone,
    /// Anything may judge them.
    Full,
}

impl Way {
    /// The way of calls to a resource with this `gate` and these `extras`, by `rules`.
    pub(super) fn new(
        gate: &Gate,
        extras: Option<&Extras>,
        rules: &RuleSet,
        shared: &Shared,
    ) -> Self {
        let none = Extras::default();
        // By all their names, so that a new one must find its place below.
        let Extras {
            origins,
            contexts,
            related,
            authorities,
            adaptive,
            params,
            breakers,
        } = extras.unwrap_or(&none);

        // Rules with rings or lines of their own judge beside the resource's ring.
        let has_more_lanes = !gate.is_one_lane();
        // Rules of an origin or a context judge on the ring of a branch.
        let has_branch_rules = origins.is_some() || contexts.is_some();
        // Origins and contexts may be counted though no rule asks for it.
        let has_branches = shared.origins || shared.contexts;
        // Rules on a relation judge by the ring of another resource.
        let looks_elsewhere = !related.is_empty();
        // Rules in shadow mode judge what the others let pass.
        let is_watched = rules.are_watching();
        if has_more_lanes || has_branch_rules || has_branches || looks_elsewhere || is_watched {
            return Self::Full;
        }

        // Authorities refuse calls before anything is taken.
        let is_guarded = authorities.is_some();
        // Breakers do too, give out probes, and learn how calls end.
        let has_breakers = breakers.is_some();
        // A limit that finds itself learns how calls end as well.
        let finds_its_limit = adaptive.is_some();
        // From the first system rule on all inbound calls are counted together, and
        // limits of all of them may refuse one. No rule begins that without a new resource.
        let counts_inbound = shared.inbound.get().is_some();
        let has_more_company = is_guarded || finds_its_limit || counts_inbound;
        let has_company = has_more_company || has_breakers;
        match params {
            None if has_more_company => Self::Alone,
            None if has_breakers => Self::WithBreakers,
            None => Self::AtOnce,
            // Several would have to be given back in turn; one that lets calls wait or
            // counts those that run keeps something of them.
            Some(params) if params.are_simple() && !has_company => Self::WithShare,
            Some(_) => Self::Full,
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::{Call, Direction};
    use crate::rule::{
        AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, HotParamRule, IsolationRule,
        Rules, SystemRule,
    };
    use crate::sentinel::{Builder, Sentinel};

    fn way_of(builder: Builder) -> Way {
        let sentinel = builder.build();
        drop(sentinel.try_enter(Call::new("r")));
        let engine = sentinel.engine();
        let now = engine.shared().time.now();
        engine.known(Direction::Inbound, "r", now).unwrap().way()
    }

    #[test]
    fn each_kind_of_rule_has_its_way() {
        let second = Duration::from_secs(1);
        let flow = || FlowRule::per_second("r", 9);
        let param = || HotParamRule::per_second("r", 9);
        let errors = || CircuitBreakerRule::error_ratio("r", 0.5);
        let cases: [(Way, Rules); 19] = [
            (Way::AtOnce, Rules::new()),
            (Way::AtOnce, flow().into()),
            (
                Way::AtOnce,
                Rules::new().with(flow()).with(IsolationRule::new("r", 9)),
            ),
            (Way::WithShare, Rules::new().with(flow()).with(param())),
            (Way::WithBreakers, errors().into()),
            (
                Way::Alone,
                Rules::new().with(errors()).with(AdaptiveRule::new("r")),
            ),
            (Way::Alone, AuthorityRule::deny("r", ["a"]).into()),
            (Way::Alone, AdaptiveRule::new("r").into()),
            (Way::Alone, SystemRule::new().qps(9).into()),
            (
                Way::Full,
                Rules::new()
                    .with(param())
                    .with(HotParamRule::per_second("r", 8)),
            ),
            (Way::Full, param().throttle(second).into()),
            (Way::Full, Rules::new().with(param()).with(errors())),
            (
                Way::Full,
                Rules::new().with(param()).with(SystemRule::new().qps(9)),
            ),
            (Way::Full, flow().warm_up(second).into()),
            (Way::Full, flow().throttle(second).into()),
            // Judged as one on the origin as a parameter.
            (Way::WithShare, flow().by_origin().into()),
            (Way::Full, flow().by_origin().strict().into()),
            (Way::Full, flow().when("other").into()),
            (Way::Full, flow().shadow().into()),
        ];
        for (way, rules) in cases {
            let name = format!("{rules:?}");
            assert_eq!(way_of(Sentinel::builder().rules(rules)), way, "{name}");
        }
    }

    #[test]
    fn who_is_counted_apart_goes_the_full_way() {
        assert_eq!(way_of(Sentinel::builder().origins(true)), Way::Full);
        assert_eq!(way_of(Sentinel::builder().contexts(true)), Way::Full);
    }
}
