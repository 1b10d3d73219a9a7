//! Two engines hear nearly the same, and answer alike: one has its default rules written out
//! for each resource, or hears more that must not matter.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tower_sentinel::{Call, FlowRule, IsolationRule, Rule, Rules};

use crate::generator::{Op, all_kinds, asks, breaker, flow, wait_op, windows};
use crate::oracle::{Asks, Breaker, Flow, RESOURCES, RuleSet, Whose, named};
use crate::side::{Side, Told, touch};
use crate::support::ms;
use crate::{check, saw};

// === default rules ===

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
    let ops = vec(wait_op(), 1..120);
    let inputs = (all_kinds(), defaults(), without, waits, ops);
    let events = "a default, passes, waits, begins, is refused";
    check(
        300,
        inputs,
        events,
        |(mut rules, defaults, without, waits, ops)| {
            let (max_wait, with_loans) = waits;
            rules.flows.retain(|flow| !without.contains(&flow.resource));
            let isolation = rules.isolation;
            rules.isolation = isolation.filter(|(resource, _)| !without.contains(resource));
            let breakers = rules.breakers.into_iter().map(|rule| rule.rule);
            let breakers = breakers.filter(|rule| !without.contains(&rule.resource));
            rules.breakers = named(breakers.collect(), 0);
            let lacks = |has: &dyn Fn(&str) -> bool| -> Vec<_> {
                RESOURCES.into_iter().filter(|name| !has(name)).collect()
            };
            let flows = lacks(&|name| rules.flows.iter().any(|flow| flow.resource == name));
            let isolation = lacks(&|name| rules.isolation.is_some_and(|(own, _)| own == name));
            let breakers = lacks(&|name| rules.breakers.iter().any(|rule| rule.resource == name));
            let named = defaults.beside(&rules, max_wait, [&flows, &isolation, &breakers]);
            let default = defaults.beside(&rules, max_wait, [&[ALL]; 3]);
            let mut both = Both::new([named, default], max_wait);
            both.touch();
            for op in ops {
                both.run(&op.waiting(with_loans, None), Twist::Nothing)?;
            }
            Ok(())
        },
    );
}

// === what changes nothing ===

/// What the other engine hears before that.
#[derive(Clone, Copy, Debug)]
enum Twist {
    Nothing,
    /// Time passes in two steps.
    Split,
    /// Another resource is called.
    Elsewhere,
    /// A call that one rule always refuses, if there is one.
    Refused(Asks),
    Look,
    /// The same rules in another order, with one more for another resource.
    Reload(Index),
}

fn twist() -> impl Strategy<Value = Twist> {
    prop_oneof![
        2 => Just(Twist::Nothing),
        1 => Just(Twist::Split),
        1 => Just(Twist::Elsewhere),
        2 => asks().prop_map(Twist::Refused),
        1 => Just(Twist::Look),
        1 => any::<Index>().prop_map(Twist::Reload),
    ]
}

/// A rule that refuses all calls in a context.
fn refusing(resource: &str) -> FlowRule {
    FlowRule::per_second(resource, 0).in_context("never")
}

/// Two engines.
struct Both {
    one: Side,
    other: Side,
    /// Those of the other one.
    rules: Vec<Rule>,
    /// Whether the other one has default rules instead, whose ids are others.
    has_defaults: bool,
    refuses: bool,
    /// Whether one of both is looked at, or called, more often than the other.
    looks: bool,
    number: u32,
}

impl Both {
    fn new([own, other]: [Rules; 2], max_wait: u64) -> Self {
        let has_defaults = own != other;
        if has_defaults {
            saw("a default");
        }
        let rules = other.iter().cloned().collect();
        let [one, other] = [own, other]
            .map(|rules| Side::new(rules, |builder| builder.occupy_timeout(ms(max_wait.max(1)))));
        Self {
            one,
            other,
            rules,
            has_defaults,
            refuses: false,
            looks: false,
            number: 0,
        }
    }

    fn touch(&self) {
        touch(&self.one.bench.sentinel);
        touch(&self.other.bench.sentinel);
    }

    fn run(&mut self, op: &Op, twist: Twist) -> Result<(), TestCaseError> {
        self.number += 1;
        let sentinel = &self.other.bench.sentinel;
        let mut rest = op.clone();
        match twist {
            Twist::Nothing => {}
            Twist::Split => {
                if let Op::Advance(ns) = *op {
                    self.other.advance(ns / 3);
                    rest = Op::Advance(ns - ns / 3);
                    saw("time in two steps");
                }
            }
            Twist::Elsewhere => drop(sentinel.try_enter(Call::new("else"))),
            Twist::Refused(asks) => {
                if self.refuses {
                    let never = Asks {
                        context: Some("never"),
                        weight: asks.weight.max(1),
                        ..asks
                    };
                    let told = self.other.run(&Op::Call(never));
                    prop_assert_eq!(told, Some(Told::Block(None)));
                    saw("one refused more");
                }
            }
            Twist::Look => drop(sentinel.snapshot()),
            Twist::Reload(index) => {
                let mut turned = self.rules.clone();
                turned.rotate_left(index.index(self.rules.len().max(1)));
                turned.push(FlowRule::per_second("else", self.number).into());
                prop_assert!(sentinel.reload(Rules::build(turned).unwrap()));
                saw("reloaded");
            }
        }
        if self.looks && matches!(op, Op::Admit(_) | Op::Drop(_)) {
            // Who goes gives back to the newest bucket that anybody has opened, be it by
            // a look.
            for side in [&self.one, &self.other] {
                drop(side.bench.sentinel.snapshot());
            }
        }
        let told = self.one.run(op);
        prop_assert_eq!(told, self.other.run(&rest), "{:?} after {:?}", op, twist);
        let (mut one, mut other) = (self.one.all(), self.other.all());
        if self.has_defaults {
            (one, other) = (one.numbered(), other.numbered());
        }
        prop_assert_eq!(one, other, "{:?} after {:?}", op, twist);
        Ok(())
    }
}

#[test]
fn rules_that_stay_know_what_they_knew_after_any_reload() {
    let twist = any::<Index>().prop_map(|index| match index.index(4) {
        0 => Twist::Reload(index),
        _ => Twist::Nothing,
    });
    let ops = vec((wait_op(), twist), 1..120);
    let inputs = (windows(), 0_u64..3_000, any::<bool>(), ops);
    let events = "reloaded, passes, waits, begins, is refused";
    check(400, inputs, events, |(rules, max_wait, with_loans, ops)| {
        let rules = rules.waiting(max_wait).rules();
        let mut both = Both::new([rules.clone(), rules], max_wait);
        for (op, twist) in ops {
            both.run(&op.waiting(with_loans, None), twist)?;
            prop_assert_eq!(both.one.totals(), both.other.totals());
        }
        Ok(())
    });
}

#[test]
fn what_is_refused_or_called_elsewhere_or_reloaded_is_seen_by_nobody() {
    let wishes = (any::<bool>(), prop::option::of(0_u64..2_000));
    let ops = vec((wait_op(), twist()), 1..150);
    let inputs = (all_kinds(), 0_u64..3_000, wishes, any::<bool>(), ops);
    let events = "time in two steps, one refused more, reloaded, passes, waits, begins, is refused";
    check(
        300,
        inputs,
        events,
        |(rules, max_wait, wishes, refuses, ops)| {
            let (with_loans, patience) = wishes;
            let mut rules = rules.waiting(max_wait).rules();
            if refuses {
                let all = RESOURCES.into_iter().map(refusing);
                rules = all.fold(rules, Rules::with);
            }
            let mut both = Both::new([rules.clone(), rules], max_wait);
            (both.refuses, both.looks) = (refuses, true);
            both.touch();
            for (op, twist) in ops {
                both.run(&op.waiting(with_loans, patience), twist)?;
            }
            Ok(())
        },
    );
}
