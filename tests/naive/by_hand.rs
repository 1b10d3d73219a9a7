//! Tasks against an engine whose calls are admitted by hand.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::{Blocked, Entry, NotAdmitted, Rules, Sentinel, Tick, Verdict, Waiting};

use crate::asked::{Asked, Manner, asked, manner, mild, task_op, touch};
use crate::breakers::End;
use crate::company::{Company, company, end};
use crate::support::bench::Bench;
use crate::table::{Other, Told};
use crate::tasks::run;
use crate::twists::{All, waiting_rules};

struct ByHand {
    bench: Bench,
    rules: Vec<Rules>,
    entries: BTreeMap<usize, Entry>,
    waiting: BTreeMap<usize, Waiting>,
}

impl ByHand {
    fn new(rules: Vec<Rules>, manner: Manner) -> Self {
        let bench = Bench::with(rules[0].clone(), |builder| manner.configure(builder));
        touch(&bench.sentinel);
        Self {
            bench,
            rules,
            entries: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }
}

impl Other for ByHand {
    type Refusal = Blocked;

    fn is_right(&self, refusal: &Blocked, found: &Blocked) -> bool {
        refusal == found
    }

    fn set(&mut self, now: u64) {
        self.bench.clock.set(Tick::from_nanos(now));
    }

    fn comes(&mut self, id: usize, asked: &Asked) -> Told<Blocked> {
        match self
            .bench
            .sentinel
            .try_enter(asked.call(&asked.wants.params()))
        {
            Verdict::Pass(entry) => {
                self.entries.insert(id, entry);
                Told::Pass
            }
            Verdict::Wait(waiting) => {
                let start = waiting.start().as_nanos();
                self.waiting.insert(id, waiting);
                Told::Wait(start)
            }
            Verdict::Block(blocked) => Told::Block(blocked),
            other => panic!("{other:?}"),
        }
    }

    fn begins(&mut self, id: usize) -> Told<Blocked> {
        match self.waiting.remove(&id).unwrap().admit() {
            Ok(entry) => {
                self.entries.insert(id, entry);
                Told::Pass
            }
            Err(NotAdmitted::Blocked(blocked)) => Told::Block(blocked),
            other => panic!("{other:?}"),
        }
    }

    fn goes(&mut self, id: usize) {
        self.waiting.remove(&id);
    }

    fn ends(&mut self, id: usize, how: End) {
        end(self.entries.remove(&id).unwrap(), how);
    }

    fn reload(&mut self, index: Index) -> Rules {
        let rules = index.get(&self.rules).clone();
        self.bench.sentinel.reload(rules.clone());
        rules
    }

    fn agrees(&mut self, sentinel: &Sentinel) -> Result<(), TestCaseError> {
        prop_assert_eq!(All::of(sentinel), All::of(&self.bench.sentinel));
        Ok(())
    }

    fn rests(&mut self, sentinel: &Sentinel) -> Result<(), TestCaseError> {
        prop_assert_eq!(nodes(sentinel), nodes(&self.bench.sentinel));
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
    mut company: Company,
    manner: Manner,
    calls: &[Asked],
    now: u64,
) -> Result<(), TestCaseError> {
    company.breakers.clear();
    let rules = waiting_rules(&mut company, manner.max_wait);
    sentinel.reload(rules.clone());
    let fresh = Bench::with(rules, |builder| manner.configure(builder));
    touch(&fresh.sentinel);
    fresh.clock.set(Tick::from_nanos(now));
    let mut kept = Vec::new();
    for asked in calls {
        let [one, other] = [sentinel, &fresh.sentinel].map(|sentinel| {
            let verdict = sentinel.try_enter(asked.call(&asked.wants.params()));
            let told = format!("{verdict:?}");
            kept.push(verdict);
            told
        });
        prop_assert_eq!(one, other, "{:?}", asked);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn tasks_are_told_what_calls_are_that_are_admitted_by_hand(
        mut companies in prop::collection::vec(prop_oneof![company(), mild()], 1..4),
        manner in manner(),
        delay in prop_oneof![2 => Just(0_u64), 1 => 0_u64..50],
        ops in prop::collection::vec(task_op(false), 1..100),
        are_aborted in any::<bool>(),
        last in prop::collection::vec(asked(), 1..20),
    ) {
        let rules: Vec<_> = companies
            .iter_mut()
            .map(|company| waiting_rules(company, manner.max_wait))
            .collect();
        let first = (rules[0].clone(), manner);
        let other = ByHand::new(rules, manner);
        let company = companies.swap_remove(0);
        run(other, first, delay, ops, are_aborted, |sentinel, now| {
            is_whole(sentinel, company, manner, &last, now)
        })?;
    }
}
