//! What changes nothing: two engines hear the same calls, and one of them more that
//! must not matter. Rules of all kinds, and calls that wait.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::{Call, FlowRule, Rule, Rules};

use crate::check::{check, saw};
use crate::generator::{Op, all_kinds, asks, wait_op, windows};
use crate::oracle::{Asks, RESOURCES};
use crate::side::{Side, Told};

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

struct Both {
    rules: Vec<Rule>,
    refuses: bool,
    /// Whether one of both is looked at, or called, more often than the other.
    looks: bool,
    one: Side,
    other: Side,
    number: u32,
}

impl Both {
    fn new(rules: Rules, max_wait: u64, refuses: bool, looks: bool) -> Self {
        let resources = RESOURCES.into_iter().filter(|_| refuses);
        let rules = resources.fold(rules, |rules, resource| rules.with(refusing(resource)));
        Self {
            rules: rules.iter().cloned().collect(),
            refuses,
            looks,
            one: Side::new(rules.clone(), max_wait.max(1)),
            other: Side::new(rules, max_wait.max(1)),
            number: 0,
        }
    }

    fn run(&mut self, op: &Op, twist: Twist) -> Result<(), TestCaseError> {
        self.number += 1;
        let sentinel = &self.other.bench.sentinel;
        let mut rest = op.clone();
        match twist {
            Twist::Nothing => {}
            Twist::Split => {
                if let Op::Advance(ns) = *op {
                    self.other.bench.clock.advance(Duration::from_nanos(ns / 3));
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
        let (one, other) = (self.one.all(), self.other.all());
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
    let events = ["reloaded", "passes", "waits", "begins", "is refused"];
    check(
        400,
        inputs,
        &events,
        |(rules, max_wait, with_loans, ops)| {
            let rules = rules.waiting(max_wait).rules();
            let mut both = Both::new(rules, max_wait, false, false);
            for (op, twist) in ops {
                both.run(&op.waiting(with_loans, None), twist)?;
                prop_assert_eq!(both.one.totals(), both.other.totals());
            }
            Ok(())
        },
    );
}

#[test]
fn what_is_refused_or_called_elsewhere_or_reloaded_is_seen_by_nobody() {
    let wishes = (any::<bool>(), prop::option::of(0_u64..2_000));
    let ops = vec((wait_op(), twist()), 1..150);
    let inputs = (all_kinds(), 0_u64..3_000, wishes, any::<bool>(), ops);
    let events = [
        "time in two steps",
        "one refused more",
        "reloaded",
        "passes",
        "waits",
        "begins",
        "is refused",
    ];
    check(
        300,
        inputs,
        &events,
        |(rules, max_wait, wishes, refuses, ops)| {
            let (with_loans, patience) = wishes;
            let rules = rules.waiting(max_wait).rules();
            let mut both = Both::new(rules, max_wait, refuses, true);
            both.one.touch();
            both.other.touch();
            for (op, twist) in ops {
                both.run(&op.waiting(with_loans, patience), twist)?;
            }
            Ok(())
        },
    );
}
