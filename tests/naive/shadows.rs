//! Rules of all kinds in shadow mode: each refuses what a naive engine with it alone
//! would, of the calls that the enforced rules let pass; also in the middle of reloads.

use proptest::collection::vec;
use proptest::prelude::*;
use tower_sentinel::read::ShadowView;
use tower_sentinel::{Rule, Rules};

use crate::generator::{Op, all_kinds, asks, edit, forces, mild, op, reload, shadows, windows};
use crate::oracle::{Alone, Asks, End, Oracle, RuleSet};
use crate::pair::STEP;
use crate::side::{Side, Told, place};
use crate::{check, saw};

/// A rule in shadow mode, and the naive engine in which it is the only one.
struct Shadow {
    number: usize,
    rule: Alone,
    oracle: Oracle,
}

/// What one shadow let pass: where, and as which call.
type Passed = (usize, usize);

struct Scene {
    side: Side<Vec<Passed>>,
    enforced: RuleSet,
    rules: RuleSet,
    shadows: Vec<Shadow>,
    made: usize,
    step: u64,
}

impl Scene {
    fn new(enforced: RuleSet, rules: RuleSet, step: u64) -> Self {
        let mut scene = Self {
            side: Side::new(Self::built(&enforced, &rules), |builder| builder),
            enforced,
            rules,
            shadows: Vec::new(),
            made: 0,
            step,
        };
        scene.take_over();
        scene
    }

    fn built(enforced: &RuleSet, rules: &RuleSet) -> Rules {
        let shadows = rules.rules().into_iter().map(Rule::shadow);
        shadows.fold(enforced.rules(), |rules, rule| rules.with(rule))
    }

    /// Each rule of the set goes on from the shadow of an equal one, else from one
    /// of the same id and resource.
    fn take_over(&mut self) {
        let rules = self.rules.each(self.enforced.rules().len());
        let mut found: Vec<_> = rules.iter().map(|_| None).collect();
        let is_equal = |new: &Alone, old: &Alone| new.rules.rules() == old.rules.rules();
        let is_named =
            |new: &Alone, old: &Alone| (&new.name, new.resource) == (&old.name, old.resource);
        for is_partner in [&is_equal as &dyn Fn(&Alone, &Alone) -> bool, &is_named] {
            for (new, found) in rules.iter().zip(&mut found).filter(|(_, it)| it.is_none()) {
                let mut shadows = self.shadows.iter();
                let place = shadows.position(|old| is_partner(new, &old.rule));
                *found = place.map(|place| self.shadows.remove(place));
            }
        }
        let shadows = rules.into_iter().zip(found).map(|(rule, old)| {
            self.made += 1;
            let (number, oracle) = match old {
                Some(old) => (old.number, old.oracle),
                None => (self.made, Oracle::new(&rule.rules)),
            };
            Shadow {
                number,
                rule,
                oracle,
            }
        });
        self.shadows = shadows.collect();
    }

    fn call(&mut self, asks: Asks) {
        let told = self.side.call(&asks, Vec::new());
        if let Told::Block(_) = told {
            return;
        }
        let (mut passed, now) = (Vec::new(), self.side.now());
        for shadow in &mut self.shadows {
            let oracle = &mut shadow.oracle;
            // Sets that no call has met have never been in force for it.
            oracle.take_over(&shadow.rule.rules, asks.resource);
            match oracle.enter(asks, now) {
                Ok(call) => passed.push((shadow.number, call)),
                Err(_) => saw("would block"),
            }
        }
        if told == Told::Pass {
            self.side.entries.last_mut().unwrap().1 = passed;
        } else {
            // Nobody knows how it will end.
            self.end(passed, End::Cancelled);
            drop(self.side.waiting.pop());
        }
    }

    fn end(&mut self, passed: Vec<Passed>, how: End) {
        for (number, call) in passed {
            let mut shadows = self.shadows.iter_mut();
            if let Some(shadow) = shadows.find(|it| it.number == number) {
                shadow.oracle.end(call, self.side.now(), how);
            }
        }
    }

    fn force(&mut self, index: usize, opens: bool) {
        let Shadow { rule, oracle, .. } = &mut self.shadows[index];
        // Who looks has the resource take new rules over, as a call does.
        let view = &self.side.bench.sentinel.shadows()[index];
        let Some((resource, node)) = rule
            .resource
            .and_then(|name| Some((name, view.node(name)?)))
        else {
            return;
        };
        oracle.take_over(&rule.rules, resource);
        for (circuit, view) in oracle.circuits(resource).zip(node.breakers()) {
            circuit.force(opens);
            if opens {
                view.force_open();
            } else {
                view.force_close();
            }
            saw("forced");
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Advance(ns) => self.side.advance(ns / self.step * self.step),
            Op::Call(asks) => self.call(asks),
            Op::End(index, how) => {
                if let Some(place) = place(index, &self.side.entries) {
                    let passed = self.side.end(place, how);
                    self.end(passed, how);
                }
            }
            Op::Force(index, opens) => {
                if !self.shadows.is_empty() {
                    self.force(index.index(self.shadows.len()), opens);
                }
            }
            Op::Reload(edits) => {
                for edit in edits {
                    self.rules.edit(edit);
                }
                let rules = Self::built(&self.enforced, &self.rules);
                self.side.bench.sentinel.reload(rules);
                self.take_over();
                saw("reloaded");
            }
            _ => panic!("{op:?} is nothing for shadows"),
        }
    }
}

/// Whether each of `rules` in shadow mode counts what it would have refused.
fn play(enforced: RuleSet, rules: RuleSet, ops: Vec<Op>, step: u64) -> Result<(), TestCaseError> {
    let mut scene = Scene::new(enforced, rules, step);
    for op in ops {
        scene.run(op);
        let views = scene.side.bench.sentinel.shadows();
        let found: Vec<_> = views.iter().map(ShadowView::would_block).collect();
        let shadows = scene.shadows.iter();
        let blocked = shadows.map(|it| it.oracle.blocked.values().sum::<u64>());
        prop_assert_eq!(found, blocked.collect::<Vec<_>>());
        let names: Vec<_> = scene.shadows.iter().map(|it| &*it.rule.name).collect();
        let found: Vec<_> = views.iter().map(ShadowView::rule).collect();
        prop_assert_eq!(found, names);
    }
    Ok(())
}

#[test]
fn a_rule_in_shadow_mode_sees_what_it_would_if_it_were_enforced() {
    let enforced = prop_oneof![2 => windows(), 1 => all_kinds(), 1 => mild()];
    let inputs = (enforced, 0_u64..1_000, shadows(), vec(op(asks()), 1..120));
    check(
        800,
        inputs,
        "would block",
        |(enforced, max_wait, shadows, ops)| {
            let breakers = enforced.breakers.len() + shadows.breakers.len();
            let step = if breakers == 0 { 1 } else { STEP };
            play(enforced.waiting(max_wait), shadows, ops, step)
        },
    );
}

#[test]
fn after_any_reload_a_rule_in_shadow_mode_counts_what_it_would_refuse() {
    let op = prop_oneof![20 => op(asks()), 2 => reload(edit(2, 2)), 1 => forces()];
    let inputs = (windows(), all_kinds(), vec(op, 1..150));
    let events = "would block, reloaded, forced";
    check(300, inputs, events, |(enforced, shadows, ops)| {
        let shadows = RuleSet {
            keyed: shadows.keyed,
            breakers: shadows.breakers,
            ..RuleSet::default()
        };
        play(enforced, shadows, ops, STEP)
    });
}
