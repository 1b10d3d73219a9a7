//! Calls that wait: no rule is exceeded, whatever becomes of them, and who does not run
//! leaves nothing behind.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::check::{check, saw};
use crate::generator::{Op, all_kinds, edit, reload, wait_op, windows};
use crate::oracle::{Asks, BEGIN, Count, Flow, NS, Oracle, RESOURCES, RuleSet, Stage};
use crate::side::{Side, Told};

/// An engine, and the calls that it lets pass or wait, as a naive one remembers them.
struct Record {
    side: Side,
    oracle: Oracle,
    rules: RuleSet,
    /// The calls of the side, in the order of its entries and of those that wait.
    entries: Vec<usize>,
    waiting: Vec<usize>,
    now: u64,
}

impl Record {
    fn new(rules: RuleSet, max_wait: u64) -> Self {
        let rules = rules.waiting(max_wait);
        Self {
            side: Side::new(rules.rules(), max_wait.max(1)),
            oracle: Oracle::new(&rules),
            rules,
            entries: Vec::new(),
            waiting: Vec::new(),
            now: BEGIN * NS,
        }
    }

    /// The side was told that.
    fn note(&mut self, op: &Op, told: Option<&Told>) {
        let place = |index: usize, of: &[usize]| index.checked_rem(of.len());
        match *op {
            Op::Advance(ns) => self.now += ns,
            Op::Call(asks) => match told.unwrap() {
                Told::Pass => {
                    let call = self.oracle.note(asks, self.now, self.now);
                    self.runs(call);
                }
                Told::Wait(start) => {
                    let call = self.oracle.note(asks, self.now, start.as_nanos());
                    self.waiting.push(call);
                }
                Told::Block(_) => {}
            },
            Op::End(index, how) => {
                if let Some(index) = place(index, &self.entries) {
                    let call = self.entries.swap_remove(index);
                    self.oracle.end(call, self.now, how);
                }
            }
            Op::Admit(index) => {
                if let Some(index) = place(index, &self.waiting) {
                    let call = self.waiting.swap_remove(index);
                    match told.unwrap() {
                        Told::Pass => self.runs(call),
                        Told::Wait(_) => self.waiting.push(call),
                        Told::Block(_) => self.oracle.forget(call),
                    }
                }
            }
            Op::Drop(index) => {
                if let Some(index) = place(index, &self.waiting) {
                    let call = self.waiting.swap_remove(index);
                    self.oracle.forget(call);
                    saw("leaves");
                }
            }
            _ => {}
        }
    }

    fn runs(&mut self, call: usize) {
        self.oracle.calls[call].stage = Stage::Runs;
        self.entries.push(call);
    }

    /// No window that ends with a bucket holds more than its rule lets, and in a queue
    /// calls keep their distance: if it is the only one of its resource, and nobody
    /// waits for anything else.
    fn assert_kept(&self, with_loans: bool) -> Result<(), TestCaseError> {
        let flows = &self.rules.flows;
        for flow in flows.iter().filter(|flow| !flow.is_related()) {
            let queues = flows.iter().filter(|other| other.queue.is_some());
            let own = queues.filter(|other| other.resource == flow.resource);
            let is_alone = own.count() == 1;
            for passed in self.counted_by(flow) {
                if flow.queue.is_none() {
                    assert_within(flow, &passed)?;
                } else if is_alone && !with_loans {
                    assert_apart(flow, &passed)?;
                }
            }
        }
        Ok(())
    }

    /// The times and weights of the calls that `flow` counts, of each key apart.
    fn counted_by(&self, flow: &Flow) -> Vec<Vec<(u64, u32)>> {
        let mut by_key: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for seen in &self.oracle.calls {
            let has_run = matches!(seen.stage, Stage::Runs | Stage::Ended(_));
            if let Some(key) = self.rules.key(flow, &seen.asks) {
                if has_run && seen.asks.weight > 0 {
                    let at = if flow.is_table() { seen.came } else { seen.at };
                    by_key.entry(key).or_default().push((at, seen.asks.weight));
                }
            }
        }
        by_key.into_values().collect()
    }

    /// Whether a call finds room for its values where all that is kept has been paid.
    fn assert_room(&self, asks: &Asks) -> Result<(), TestCaseError> {
        for ledger in self.oracle.ledgers(asks.resource) {
            let at = ledger.available_at(asks, self.now);
            let is_queue = matches!(ledger.keyed.count, Count::Queue(_));
            prop_assert!(is_queue || at == Some(self.now), "{:?}", ledger);
        }
        Ok(())
    }
}

fn assert_within(flow: &Flow, passed: &[(u64, u32)]) -> Result<(), TestCaseError> {
    let (length, counted) = flow.window();
    for last in passed.iter().map(|(at, _)| at / length) {
        let window = last + 1 - counted..=last;
        let inside = passed
            .iter()
            .filter(|(at, _)| window.contains(&(at / length)));
        let sum: u32 = inside.map(|(_, weight)| weight).sum();
        prop_assert!(sum <= flow.limit, "{:?}: {} in {:?}", flow, sum, passed);
        saw("a window");
    }
    Ok(())
}

fn assert_apart(flow: &Flow, passed: &[(u64, u32)]) -> Result<(), TestCaseError> {
    let mut passed = passed.to_vec();
    passed.sort_unstable();
    for pair in passed.windows(2) {
        let cost = flow.cost(pair[1].1).unwrap();
        prop_assert!(pair[1].0 >= pair[0].0 + cost, "{:?}: {:?}", flow, passed);
        saw("a queue");
    }
    Ok(())
}

#[test]
fn with_calls_that_wait_no_rule_is_exceeded() {
    let inputs = (
        windows(),
        0_u64..3_000,
        any::<bool>(),
        vec(wait_op(), 1..120),
    );
    let events = ["passes", "waits", "begins", "leaves", "a window", "a queue"];
    check(
        1_000,
        inputs,
        &events,
        |(rules, max_wait, with_loans, ops)| {
            let isolation = rules.isolation;
            let mut record = Record::new(rules, max_wait);
            for op in ops {
                let op = op.waiting(with_loans, None);
                let told = record.side.run(&op);
                record.note(&op, told.as_ref());
                if let Some((resource, most)) = isolation {
                    prop_assert!(record.oracle.running(resource) <= most as usize);
                }
            }
            record.assert_kept(with_loans)
        },
    );
}

#[test]
fn with_calls_that_wait_no_value_gets_more_than_its_quota() {
    let op = prop_oneof![20 => wait_op(), 1 => reload(edit(3, 0))];
    let inputs = (all_kinds(), 0_u64..3_000, any::<bool>(), vec(op, 1..150));
    let events = [
        "passes",
        "waits",
        "begins",
        "leaves",
        "reloaded",
        "is refused",
    ];
    check(
        500,
        inputs,
        &events,
        |(rules, max_wait, with_loans, ops)| {
            let mut record = Record::new(rules, max_wait);
            record.side.touch();
            for op in ops {
                let op = op.waiting(with_loans, None);
                let before = record.side.all();
                match &op {
                    Op::Reload(edits) => {
                        edits
                            .iter()
                            .for_each(|edit| record.rules.edit(edit.clone()));
                        record.rules = record.rules.clone().waiting(max_wait);
                        record.side.bench.sentinel.reload(record.rules.rules());
                        // Who looks has the resources take the new rules over.
                        record.side.all();
                        record.oracle.take_over_all(&record.rules);
                        saw("reloaded");
                    }
                    Op::Call(asks) => {
                        let told = record.side.run(&op);
                        if told != Some(Told::Pass) {
                            if let Some(Told::Wait(_)) = told {
                                // Who goes at once was never there.
                                drop(record.side.waiting.pop());
                            }
                            prop_assert_eq!(record.side.all(), before, "{:?}", asks);
                            if let Some(Told::Block(_)) = told {
                                continue;
                            }
                            prop_assert_eq!(&record.side.run(&op), &told);
                        }
                        record.assert_room(asks)?;
                        record.note(&op, told.as_ref());
                    }
                    _ => {
                        let told = record.side.run(&op);
                        record.note(&op, told.as_ref());
                    }
                }
            }
            // At rest nobody is counted as one of those at once.
            record.side.waiting.clear();
            record.side.cancel_all();
            for resource in RESOURCES {
                let node = record.side.bench.sentinel.node(resource).unwrap();
                let views = node.keyed_rules();
                let ledgers = record.oracle.ledgers(resource);
                for ledger in ledgers.filter(|ledger| ledger.keyed.count == Count::Running) {
                    let mut views = views.iter();
                    let view = views.find(|view| view.rule() == ledger.name).unwrap();
                    prop_assert_eq!(view.values(), 0);
                    saw("at rest");
                }
            }
            Ok(())
        },
    );
}
