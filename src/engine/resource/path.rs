//! The path that the calls of a resource take, which depends on the checks that judge them.

use super::OptionalChecks;
use crate::call::Direction;
use crate::engine::context::EngineContext;
use crate::rule::{CompiledRules, RuleSet};

/// The path that a resource's calls take through the [pipeline](crate::engine::pipeline), from the
/// fewest checks to all of them. It is determined once, when the resource is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathKind {
    /// Only the resource's own ring and slots judge and count its calls.
    Fast,
    /// The checks of `Fast`, and a second ring, which is dedicated to one rule whose interval does
    /// not fit the buckets of the resource's own ring.
    FastBesideRing,
    /// The checks of `Fast`, after taking a local permit of the single shared rule.
    FastAfterLease,
    /// The checks of `Fast`, after circuit breakers, while all of them are closed.
    FastAfterBreakers,
    /// The checks of `Fast`, after taking a share of the quota of one value, which a call gets at
    /// once or not at all.
    FastAfterParam,
    /// The checks of `Fast`, with the slots of an adaptive limit.
    FastAdaptive,
    /// All other cases: all checks are made.
    Full,
}

impl PathKind {
    /// Determines the path of calls in this `direction` to a resource with these `compiled` rules
    /// and `extras`, under `rules`.
    pub(super) fn new(
        direction: Direction,
        compiled: &CompiledRules,
        extras: Option<&OptionalChecks>,
        rules: &RuleSet,
        shared: &EngineContext,
    ) -> Self {
        let none = OptionalChecks::default();
        // All fields are named, so that a new one must be considered below.
        let OptionalChecks {
            origins,
            others: _,
            contexts,
            related,
            guards,
            adaptive,
            params,
            costs,
            breakers,
            leases,
            seen_keys: _,
        } = extras.unwrap_or(&none);

        // A rule can have a dedicated ring or a queue, in addition to the resource's ring.
        let has_side = compiled.has_one_dedicated();
        let has_more_rings = !(compiled.has_one_ring() || has_side);
        // Rules of an origin or a context judge on a scope node.
        let has_scope_rules = origins.is_some() || contexts.is_some();
        // Origins and contexts can have nodes even if no rule needs them.
        let has_scopes = shared.config.origins || shared.config.contexts;
        // Rules on related resources check the ring or the concurrent calls of another resource.
        let looks_elsewhere = related.is_some();
        // Rules in shadow mode judge the calls that enforced rules let pass.
        let has_shadows = rules.has_shadows();
        // With several shared rules, or a rule by key, the counters must be found for each call.
        let has_many_leases = leases.as_ref().is_some_and(|it| it.only_one().is_none());
        if has_more_rings
            || has_many_leases
            || has_scope_rules
            || has_scopes
            || looks_elsewhere
            || has_shadows
            // A reservation must be settled at the end of the call.
            || costs.is_some()
        {
            return Self::Full;
        }

        // Guards refuse calls before anything is taken.
        let is_guarded = guards.is_some();
        // An adaptive limit must learn how calls end.
        let is_adaptive = adaptive.is_some();
        // Once there was a system rule, all inbound calls count on a common node, and limits on
        // this node can refuse a call. Resources are created again when the first system rule comes
        // into force.
        let counts_inbound = shared.counts_together(direction);
        if is_guarded || counts_inbound {
            return Self::Full;
        }
        if is_adaptive {
            // The other fast paths do not ask an adaptive limit.
            let is_alone = breakers.is_none() && params.is_none() && leases.is_none() && !has_side;
            return if is_alone {
                Self::FastAdaptive
            } else {
                Self::Full
            };
        }

        if leases.is_some() {
            // The other fast paths do not refund permits.
            let is_alone = breakers.is_none() && params.is_none() && !has_side;
            return if is_alone {
                Self::FastAfterLease
            } else {
                Self::Full
            };
        }

        match (breakers, params) {
            (None, None) if has_side => Self::FastBesideRing,
            (None, None) => Self::Fast,
            // With two rings, probes and shares would have to be returned after a refusal by one of
            // the rings.
            _ if has_side => Self::Full,
            (Some(_), None) => Self::FastAfterBreakers,
            // Several shares would have to be refunded one by one, and a rule with a queue or a
            // concurrency limit needs more than a share.
            (None, Some(params)) if params.are_simple() => Self::FastAfterParam,
            (_, Some(_)) => Self::Full,
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::call::Call;
    use crate::rule::{
        AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, Rules,
        SystemRule,
    };
    use crate::sentinel::{Builder, Sentinel};
    use crate::store::MemoryStore;

    fn path_of(builder: Builder) -> PathKind {
        let sentinel = builder.build();
        drop(sentinel.try_enter(Call::new("r")));
        let registry = sentinel.registry();
        let now = registry.shared().time.read();
        registry
            .known(Direction::Inbound, "r", now)
            .unwrap()
            .path_kind()
    }

    #[test]
    fn each_kind_of_rule_has_its_path() {
        let second = Duration::from_secs(1);
        let flow = || FlowRule::per_second("r", 9);
        let param = || KeyedRule::per_second("r", 9);
        let errors = || CircuitBreakerRule::error_ratio("r", 0.5);
        let hour = || FlowRule::per("r", 9, second * 3_600);
        let at_once = || IsolationRule::new("r", 9);
        let cases: [(PathKind, Rules); 28] = [
            (PathKind::Fast, Rules::new()),
            (PathKind::Fast, flow().into()),
            (PathKind::FastBesideRing, hour().into()),
            (
                PathKind::FastBesideRing,
                Rules::new()
                    .with(flow())
                    .with(hour())
                    .with(IsolationRule::new("r", 9)),
            ),
            (
                PathKind::Full,
                Rules::new()
                    .with(hour())
                    .with(FlowRule::per("r", 9, second * 86_400)),
            ),
            (
                PathKind::Full,
                Rules::new().with(hour()).with(flow().throttle(second)),
            ),
            (PathKind::Full, Rules::new().with(hour()).with(errors())),
            (PathKind::Full, Rules::new().with(hour()).with(param())),
            (
                PathKind::Fast,
                Rules::new().with(flow()).with(IsolationRule::new("r", 9)),
            ),
            (
                PathKind::FastAfterParam,
                Rules::new().with(flow()).with(param()),
            ),
            (PathKind::FastAfterBreakers, errors().into()),
            (
                PathKind::Full,
                Rules::new().with(errors()).with(AdaptiveRule::new("r")),
            ),
            (PathKind::Full, AuthorityRule::deny("r", ["a"]).into()),
            (PathKind::FastAdaptive, AdaptiveRule::new("r").into()),
            (PathKind::Full, SystemRule::new().qps(9).into()),
            (
                PathKind::Full,
                Rules::new()
                    .with(param())
                    .with(KeyedRule::per_second("r", 8)),
            ),
            (PathKind::Full, param().throttle(second).into()),
            (PathKind::Full, Rules::new().with(param()).with(errors())),
            (
                PathKind::Full,
                Rules::new().with(param()).with(SystemRule::new().qps(9)),
            ),
            (PathKind::Full, flow().warm_up(second).into()),
            (PathKind::Full, flow().throttle(second).into()),
            // Judged like a keyed rule on the origin.
            (PathKind::FastAfterParam, flow().by_origin().into()),
            (PathKind::Full, flow().for_origin("other").strict().into()),
            (PathKind::Full, flow().when("other").into()),
            (PathKind::Full, at_once().for_origin("a").into()),
            (PathKind::Full, at_once().when("other").into()),
            (PathKind::Full, flow().shadow().into()),
            (PathKind::Full, flow().cost("tokens").into()),
        ];
        for (path, rules) in cases {
            let name = format!("{rules:?}");
            assert_eq!(path_of(Sentinel::builder().rules(rules)), path, "{name}");
        }
    }

    #[test]
    fn calls_of_one_shared_rule_take_a_local_permit_first() {
        let second = Duration::from_secs(1);
        let shared = || FlowRule::per_second("r", 9).shared();
        let local = FlowRule::per_second("r", 9);
        let cases: [(PathKind, Rules); 9] = [
            (PathKind::FastAfterLease, shared().into()),
            (
                PathKind::FastAfterLease,
                Rules::new()
                    .with(shared().exact())
                    .with(local.clone())
                    .with(IsolationRule::new("r", 9)),
            ),
            (PathKind::Full, shared().by_origin().into()),
            (PathKind::Full, shared().for_origin("a").into()),
            (
                PathKind::Full,
                Rules::new().with(shared()).with(shared().id("b")),
            ),
            (
                PathKind::Full,
                Rules::new()
                    .with(shared())
                    .with(FlowRule::per("r", 9, second * 3_600)),
            ),
            (
                PathKind::Full,
                Rules::new()
                    .with(shared())
                    .with(CircuitBreakerRule::error_ratio("r", 0.5)),
            ),
            (
                PathKind::Full,
                Rules::new()
                    .with(shared())
                    .with(KeyedRule::per_second("r", 9)),
            ),
            (PathKind::Full, shared().shadow().into()),
        ];
        for (path, rules) in cases {
            let name = format!("{rules:?}");
            let builder = Sentinel::builder().rules(rules);
            assert_eq!(path_of(builder.store(MemoryStore::new())), path, "{name}");
        }
    }

    #[test]
    fn a_limit_on_inbound_calls_does_not_affect_outbound_calls() {
        let sentinel = Sentinel::new(SystemRule::new().qps(9));
        drop(sentinel.try_enter(Call::new("r").outbound()));
        let registry = sentinel.registry();
        let now = registry.shared().time.read();
        let resource = registry.known(Direction::Outbound, "r", now).unwrap();
        assert_eq!(resource.path_kind(), PathKind::Fast);
    }

    #[test]
    fn calls_counted_on_scope_nodes_take_the_full_path() {
        assert_eq!(path_of(Sentinel::builder().origins(true)), PathKind::Full);
        assert_eq!(path_of(Sentinel::builder().contexts(true)), PathKind::Full);
    }
}
