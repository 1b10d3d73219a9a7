//! Tasks that come through `enter` and through the layers, and sleep until their turn:
//! they are told what calls are that are admitted by hand, and start when a naive engine
//! says, in which calls wait in queues.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::clock::Tick;
use tower_sentinel::{Blocked, FlowRule, Rule, Rules, Sentinel};

use crate::check;
use crate::generator::{Asked, Manner, all_kinds, asked, manner, mild, queues, task_op};
use crate::oracle::{End, Oracle, RESOURCES, RuleSet, Why};
use crate::side::{All, Side, Told, touch};
use crate::support::bench::Bench;
use crate::tasks::{Other, run};

// === by hand ===

struct ByHand {
    /// Its calls are known by their ids.
    side: Side<usize>,
    rules: Vec<Rules>,
}

impl ByHand {
    fn new(rules: Vec<Rules>, manner: Manner) -> Self {
        let side = Side::new(rules[0].clone(), |builder| manner.configure(builder));
        touch(&side.bench.sentinel);
        Self { side, rules }
    }

    fn waiting(&self, id: usize) -> usize {
        let mut waiting = self.side.waiting.iter();
        waiting.position(|(_, known)| *known == id).unwrap()
    }
}

impl Other for ByHand {
    type Refusal = Blocked;

    fn is_right(&self, refusal: &Blocked, found: &Blocked) -> bool {
        refusal == found
    }

    fn set(&mut self, now: u64) {
        self.side.bench.clock.set(Tick::from_nanos(now));
    }

    fn comes(&mut self, id: usize, asked: &Asked) -> Told<Blocked> {
        self.side.call(&asked.asks, id)
    }

    fn begins(&mut self, id: usize) -> Told<Blocked> {
        self.side.admit(self.waiting(id))
    }

    fn goes(&mut self, id: usize) {
        drop(self.side.waiting.swap_remove(self.waiting(id)));
    }

    fn ends(&mut self, id: usize, how: End) {
        let mut entries = self.side.entries.iter();
        let place = entries.position(|(_, known)| *known == id);
        self.side.end(place.unwrap(), how);
    }

    fn reload(&mut self, index: Index) -> Rules {
        let rules = index.get(&self.rules).clone();
        self.side.bench.sentinel.reload(rules.clone());
        rules
    }

    fn agrees(&mut self, sentinel: &Sentinel) -> Result<(), TestCaseError> {
        prop_assert_eq!(All::of(sentinel), self.side.all());
        Ok(())
    }

    fn rests(&mut self, sentinel: &Sentinel) -> Result<(), TestCaseError> {
        prop_assert_eq!(nodes(sentinel), nodes(&self.side.bench.sentinel));
        Ok(())
    }
}

/// All nodes, in some order.
fn nodes(sentinel: &Sentinel) -> Vec<String> {
    let snapshot = sentinel.snapshot();
    let nodes = snapshot.nodes().iter();
    let mut nodes: Vec<_> = nodes.map(|node| format!("{node:?}")).collect();
    nodes.sort();
    nodes
}

/// Whether `sentinel` answers as one that has never been called. Breakers do not
/// forget by themselves.
fn is_whole(
    sentinel: &Sentinel,
    mut rules: RuleSet,
    manner: Manner,
    calls: &[Asked],
    now: u64,
) -> Result<(), TestCaseError> {
    rules.breakers.clear();
    let rules = rules.waiting(manner.max_wait).rules();
    sentinel.reload(rules.clone());
    let fresh = Bench::with(rules, |builder| manner.configure(builder));
    touch(&fresh.sentinel);
    fresh.clock.set(Tick::from_nanos(now));
    let mut kept = Vec::new();
    for asked in calls {
        let [one, other] = [sentinel, &fresh.sentinel].map(|sentinel| {
            let verdict = sentinel.try_enter(asked.asks.call(&asked.asks.params()));
            let told = format!("{verdict:?}");
            kept.push(verdict);
            told
        });
        prop_assert_eq!(one, other, "{:?}", asked);
    }
    Ok(())
}

// === a naive engine ===

struct Naive {
    oracle: Oracle,
    rules: Vec<Rule>,
    reloads: u32,
    /// Which of its calls each task has.
    calls: BTreeMap<usize, usize>,
    now: u64,
}

impl Naive {
    fn new(rules: &RuleSet) -> Self {
        let mut oracle = Oracle::new(rules);
        let found = rules.adaptives.iter();
        oracle.found = found
            .map(|(resource, adaptive)| (*resource, adaptive.floor))
            .collect();
        Self {
            oracle,
            rules: rules.rules().iter().cloned().collect(),
            reloads: 0,
            calls: BTreeMap::new(),
            now: 0,
        }
    }

    fn told(&mut self, id: usize, call: Result<usize, Why>) -> Told<Why> {
        match call {
            Ok(call) => {
                self.calls.insert(id, call);
                match self.oracle.start_of(call) {
                    start if start > self.now => Told::Wait(start),
                    _ => Told::Pass,
                }
            }
            Err(why) => Told::Block(why),
        }
    }
}

impl Other for Naive {
    type Refusal = Why;

    fn is_right(&self, refusal: &Why, found: &Blocked) -> bool {
        match refusal {
            // Of two with one limit, the one that stands first in its set.
            Why::System(reason, _) => found.system_reason() == Some(*reason),
            // Rules on parameters come first.
            Why::Rules(_, keyed, _) if !keyed.is_empty() => {
                keyed.iter().any(|rule| rule == found.rule())
            }
            _ => refusal.is_kind_of(found),
        }
    }

    fn set(&mut self, now: u64) {
        self.now = now;
    }

    fn comes(&mut self, id: usize, asked: &Asked) -> Told<Why> {
        let call = self.oracle.enter(asked.asks, self.now);
        self.told(id, call)
    }

    fn begins(&mut self, id: usize) -> Told<Why> {
        let call = self.calls[&id];
        let begins = match self.oracle.start_of(call) {
            start if start > self.now => Ok(()),
            _ => self.oracle.begin(call, self.now),
        };
        self.told(id, begins.map(|()| call))
    }

    fn goes(&mut self, id: usize) {
        self.oracle.forget(self.calls[&id]);
    }

    fn responds(&mut self, id: usize, end: End) {
        self.oracle.responds(self.calls[&id], self.now, end);
    }

    fn ends(&mut self, id: usize, end: End) {
        self.oracle.end(self.calls[&id], self.now, end);
    }

    fn reload(&mut self, index: Index) -> Rules {
        // The same rules in another order, with one more for another resource.
        self.reloads += 1;
        let mut turned = self.rules.clone();
        turned.rotate_left(index.index(self.rules.len().max(1)));
        turned.push(FlowRule::per_second("else", self.reloads).into());
        Rules::build(turned).unwrap()
    }

    fn agrees(&mut self, sentinel: &Sentinel) -> Result<(), TestCaseError> {
        for resource in RESOURCES {
            let node = sentinel.node(resource).unwrap();
            self.oracle.agrees_on_calls(resource, &node, self.now)?;
        }
        self.oracle.agrees_on_all(sentinel, self.now)
    }
}

/// Each must occur to tasks in some runs.
const EVENTS: &str = "starts, starts after a wait, is refused, is aborted, reloaded";

#[test]
fn tasks_are_told_what_calls_are_that_are_admitted_by_hand() {
    let rules = vec(prop_oneof![all_kinds(), mild()], 1..4);
    let delay = prop_oneof![2 => Just(0_u64), 1 => 0_u64..50];
    let ops = (vec(task_op(false), 1..100), any::<bool>());
    let inputs = (rules, manner(), delay, ops, vec(asked(), 1..20));
    check(
        600,
        inputs,
        EVENTS,
        |(mut rules, manner, delay, ops, last)| {
            let all = rules.iter().cloned();
            let all: Vec<_> = all
                .map(|rules| rules.waiting(manner.max_wait).rules())
                .collect();
            let first = (all[0].clone(), manner);
            let other = ByHand::new(all, manner);
            let rules = rules.swap_remove(0);
            run(other, first, delay, ops, |sentinel, now| {
                is_whole(sentinel, rules, manner, &last, now)
            })
        },
    );
}

#[test]
fn tasks_start_at_the_turn_that_a_naive_queue_gives_them() {
    let delay = prop_oneof![2 => Just(0_u64), 1 => 0_u64..50];
    let ops = (vec(task_op(true), 1..100), any::<bool>());
    let inputs = (queues(), manner(), delay, ops);
    check(400, inputs, EVENTS, |(rules, manner, delay, ops)| {
        let other = Naive::new(&rules.waiting(manner.max_wait));
        let rules = Rules::build(other.rules.clone()).unwrap();
        run(other, (rules, manner), delay, ops, |_, _| Ok(()))
    });
}
