//! A default rule is as one for each resource that no rule of its kind names.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::{BreakerState, IsolationRule, Rules};

use crate::check::{check, saw};
use crate::generator::{all_kinds, breaker, flow, wait_op};
use crate::oracle::{Breaker, Flow, RESOURCES, RuleSet, Whose, named};
use crate::side::Side;

const ALL: &str = "*";

/// Rules for any resource.
#[derive(Clone, Debug)]
struct Defaults {
    flows: Vec<Flow>,
    isolation: Option<u32>,
    breakers: Vec<Breaker>,
}

fn defaults() -> impl Strategy<Value = Defaults> {
    let flow = flow().prop_map(|flow| Flow {
        whose: Whose::All,
        ..flow
    });
    let isolation = prop::option::of(0_u32..4);
    (vec(flow, 0..3), isolation, vec(breaker(), 0..2)).prop_map(|(flows, isolation, breakers)| {
        Defaults {
            flows,
            isolation,
            breakers,
        }
    })
}

impl Defaults {
    /// `rules` with these, for the `names` of each kind.
    fn beside(&self, rules: &RuleSet, max_wait: u64, names: [&[&'static str]; 3]) -> Rules {
        let mut rules = rules.clone();
        let [flows, isolation, breakers] = names;
        for &resource in flows {
            let own = self.flows.iter().map(|flow| Flow { resource, ..*flow });
            rules.flows.extend(own);
        }
        for &resource in breakers {
            let own = self.breakers.iter().cloned();
            let own = own.map(|breaker| breaker.of(resource)).collect();
            rules.breakers.extend(named(own, rules.breakers.len()));
        }
        let rules = rules.waiting(max_wait).rules();
        let own = isolation
            .iter()
            .filter_map(|&resource| Some(IsolationRule::new(resource, self.isolation?)));
        own.fold(rules, |rules, rule| rules.with(rule))
    }
}

#[test]
fn a_default_rule_is_as_one_for_each_resource_that_has_none() {
    let without = vec(select(&RESOURCES[..]), 0..2);
    let waits = (0_u64..3_000, any::<bool>());
    let inputs = (
        all_kinds(),
        defaults(),
        without,
        waits,
        vec(wait_op(), 1..120),
    );
    let events = ["a default", "passes", "waits", "begins", "is refused"];
    check(
        300,
        inputs,
        &events,
        |(mut rules, defaults, without, waits, ops)| {
            let (max_wait, with_loans) = waits;
            rules.flows.retain(|flow| !without.contains(&flow.resource));
            let isolation = rules.isolation;
            rules.isolation = isolation.filter(|(resource, _)| !without.contains(resource));
            rules
                .breakers
                .retain(|rule| !without.contains(&rule.resource));
            rules.breakers = named(
                rules.breakers.into_iter().map(|rule| rule.rule).collect(),
                0,
            );
            let lacks = |has: &dyn Fn(&str) -> bool| -> Vec<_> {
                RESOURCES.into_iter().filter(|name| !has(name)).collect()
            };
            let flows = lacks(&|name| rules.flows.iter().any(|flow| flow.resource == name));
            let isolation = lacks(&|name| rules.isolation.is_some_and(|(own, _)| own == name));
            let breakers = lacks(&|name| rules.breakers.iter().any(|rule| rule.resource == name));
            let named = defaults.beside(&rules, max_wait, [&flows, &isolation, &breakers]);
            let default = defaults.beside(&rules, max_wait, [&[ALL]; 3]);
            if named != default {
                saw("a default");
            }
            let [mut one, mut other] =
                [named, default].map(|rules| Side::new(rules, max_wait.max(1)));
            one.touch();
            other.touch();
            for op in ops {
                let op = op.waiting(with_loans, None);
                let told = one.run(&op);
                prop_assert_eq!(told, other.run(&op), "{:?}", op);
                let (one, other) = (one.all(), other.all());
                prop_assert_eq!(one.figures, other.figures, "{:?}", op);
                // Their ids tell their places in the set.
                let states = |of: BTreeMap<_, BreakerState>| of.into_values().collect::<Vec<_>>();
                prop_assert_eq!(states(one.breakers), states(other.breakers), "{:?}", op);
                prop_assert_eq!(one.values, other.values, "{:?}", op);
            }
            Ok(())
        },
    );
}
