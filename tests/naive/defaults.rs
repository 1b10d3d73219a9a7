//! A default rule is as one for each resource that no rule of its kind names.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tower_sentinel::{BreakerState, IsolationRule, Rules};

use crate::breakers::{Breaker, breaker};
use crate::company::{Company, company};
use crate::reloads::Side;
use crate::setup::{Flow, RESOURCES, Whose, flow};
use crate::twists::{wait_op, waiting_rules};

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
    let flows = prop::collection::vec(flow, 0..3);
    let breakers = prop::collection::vec(breaker(), 0..2);
    (flows, prop::option::of(0_u32..4), breakers).prop_map(|(flows, isolation, breakers)| {
        Defaults {
            flows,
            isolation,
            breakers,
        }
    })
}

impl Defaults {
    /// The rules of `company` with these, for the `names` of each kind.
    fn beside(&self, company: &Company, max_wait: u64, names: [&[&'static str]; 3]) -> Rules {
        let mut company = company.clone();
        let [flows, isolation, breakers] = names;
        for &resource in flows {
            let own = self.flows.iter().map(|flow| Flow { resource, ..*flow });
            company.setup.flows.extend(own);
        }
        for &resource in breakers {
            let own = self.breakers.iter().cloned();
            company
                .breakers
                .extend(own.map(|breaker| breaker.of(resource)));
        }
        let rules = waiting_rules(&mut company, max_wait);
        let own = isolation
            .iter()
            .filter_map(|&resource| Some(IsolationRule::new(resource, self.isolation?)));
        own.fold(rules, |rules, rule| rules.with(rule))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_default_rule_is_as_one_for_each_resource_that_has_none(
        mut company in company(),
        defaults in defaults(),
        without in prop::collection::vec(prop::sample::select(&RESOURCES[..]), 0..2),
        max_wait in 0_u64..3_000,
        with_loans in any::<bool>(),
        ops in prop::collection::vec(wait_op(), 1..120),
    ) {
        let Company { setup, breakers, .. } = &mut company;
        setup.flows.retain(|flow| !without.contains(&flow.resource));
        setup.isolation = setup.isolation.filter(|(resource, _)| !without.contains(resource));
        breakers.retain(|breaker| !without.contains(&breaker.resource));
        let flows = |name: &&str| !company.setup.flows.iter().any(|flow| flow.resource == *name);
        let isolation = |name: &&str| company.setup.isolation.is_none_or(|(own, _)| own != *name);
        let breakers = |name: &&str| !company.breakers.iter().any(|breaker| breaker.resource == *name);
        let flows: Vec<_> = RESOURCES.into_iter().filter(flows).collect();
        let isolation: Vec<_> = RESOURCES.into_iter().filter(isolation).collect();
        let breakers: Vec<_> = RESOURCES.into_iter().filter(breakers).collect();
        let named = defaults.beside(&company, max_wait, [&flows, &isolation, &breakers]);
        let default = defaults.beside(&company, max_wait, [&[ALL]; 3]);
        let [mut one, mut other] = [named, default].map(|rules| Side::new(rules, max_wait.max(1)));
        one.touch();
        other.touch();
        for op in ops {
            let told = one.run(op, with_loans, None);
            prop_assert_eq!(told, other.run(op, with_loans, None), "{:?}", op);
            let (one, other) = (one.all(), other.all());
            prop_assert_eq!(one.figures, other.figures, "{:?}", op);
            // Their ids tell their places in the set.
            let states = |of: BTreeMap<_, BreakerState>| of.into_values().collect::<Vec<_>>();
            prop_assert_eq!(states(one.breakers), states(other.breakers), "{:?}", op);
            prop_assert_eq!(one.values, other.values, "{:?}", op);
        }
    }
}
