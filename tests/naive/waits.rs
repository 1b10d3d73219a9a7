//! Calls that wait: no rule is exceeded, whatever becomes of them.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::{BlockKind, Entry, NotAdmitted, Verdict, Waiting};

use crate::oracle::Naive;
use crate::setup::{Asks, BEGIN, Flow, NS, Op, Whose, op, setup};
use crate::support::bench::Bench;
use crate::support::ms;

/// What may happen where calls wait. An index is that of one that waits or runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitOp {
    Advance(u64),
    Call(Asks),
    /// It has its turn, or has not.
    Admit(usize),
    Drop(usize),
    End(usize),
}

pub(crate) fn wait_op() -> impl Strategy<Value = WaitOp> {
    prop_oneof![
        12 => op().prop_map(|op| match op {
            Op::Advance(ns) => WaitOp::Advance(ns),
            Op::Call(call) => WaitOp::Call(call),
            Op::End(index) => WaitOp::End(index),
        }),
        4 => any::<usize>().prop_map(WaitOp::Admit),
        1 => any::<usize>().prop_map(WaitOp::Drop),
    ]
}

impl Naive {
    /// No window that ends with a bucket holds more than its rule lets, and in a queue
    /// calls keep their distance: if it is the only one of its resource, and nobody
    /// waits for anything else.
    fn assert_kept(&self, with_loans: bool) -> Result<(), TestCaseError> {
        let flows = self.setup.flows.iter();
        for flow in flows.filter(|flow| !matches!(flow.whose, Whose::Related(_))) {
            let queues = self.setup.flows.iter();
            let queues = queues.filter(|other| other.queue.is_some());
            let is_alone = queues
                .filter(|other| other.resource == flow.resource)
                .count()
                == 1;
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
        let passed = if flow.is_table() {
            &self.came
        } else {
            &self.passed
        };
        let mut by_key: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (at, call) in passed.iter().filter(|(_, call)| call.n > 0) {
            if let Some(key) = self.key(flow, call) {
                by_key.entry(key).or_default().push((*at, call.n));
            }
        }
        by_key.into_values().collect()
    }
}

fn assert_within(flow: &Flow, passed: &[(u64, u32)]) -> Result<(), TestCaseError> {
    let (length, counted) = flow.window();
    for last in passed.iter().map(|(at, _)| at / length) {
        let window = last + 1 - counted..=last;
        let inside = passed
            .iter()
            .filter(|(at, _)| window.contains(&(at / length)));
        let sum: u32 = inside.map(|(_, n)| n).sum();
        prop_assert!(sum <= flow.limit, "{:?}: {} in {:?}", flow, sum, passed);
    }
    Ok(())
}

fn assert_apart(flow: &Flow, passed: &[(u64, u32)]) -> Result<(), TestCaseError> {
    let mut passed = passed.to_vec();
    passed.sort_unstable();
    for pair in passed.windows(2) {
        let cost = flow.cost(pair[1].1).unwrap();
        prop_assert!(pair[1].0 >= pair[0].0 + cost, "{:?}: {:?}", flow, passed);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn with_calls_that_wait_no_rule_is_exceeded(
        mut setup in setup(),
        max_wait in 0_u64..3_000,
        with_loans in any::<bool>(),
        ops in prop::collection::vec(wait_op(), 1..120),
    ) {
        for flow in &mut setup.flows {
            flow.queue = flow.queue.map(|_| max_wait);
        }
        let bench = Bench::with(setup.rules(), |builder| builder.occupy_timeout(ms(max_wait.max(1))));
        let mut naive = Naive::new(setup);
        let mut entries: Vec<Entry> = Vec::new();
        let mut waiting: Vec<(u64, Asks, Waiting)> = Vec::new();
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                WaitOp::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                WaitOp::End(index) if !entries.is_empty() => {
                    let index = index % entries.len();
                    naive.running.swap_remove(index);
                    drop(entries.swap_remove(index));
                }
                WaitOp::Drop(index) if !waiting.is_empty() => {
                    drop(waiting.swap_remove(index % waiting.len()));
                }
                WaitOp::Admit(index) if !waiting.is_empty() => {
                    let (came, call, its) = waiting.swap_remove(index % waiting.len());
                    let start = its.start().as_nanos();
                    match its.admit() {
                        Ok(entry) => {
                            prop_assert!(start <= now);
                            naive.passed.push((start, call));
                            naive.came.push((came, call));
                            naive.running.push(call.resource);
                            entries.push(entry);
                        }
                        Err(NotAdmitted::TooEarly(its)) => {
                            prop_assert!(start > now);
                            waiting.push((came, call, its));
                        }
                        Err(NotAdmitted::Blocked(blocked)) => {
                            prop_assert_eq!(blocked.kind(), BlockKind::Isolation);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                WaitOp::Call(call) => {
                    match bench.sentinel.try_enter(call.asked().prioritized(with_loans)) {
                        Verdict::Pass(entry) => {
                            naive.passed.push((now, call));
                            naive.came.push((now, call));
                            naive.running.push(call.resource);
                            entries.push(entry);
                        }
                        Verdict::Wait(its) => waiting.push((now, call, its)),
                        Verdict::Block(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
                _ => {}
            }
            if let Some((resource, most)) = naive.setup.isolation {
                let running = naive.running.iter().filter(|running| **running == resource);
                prop_assert!(running.count() <= most as usize);
            }
        }
        naive.assert_kept(with_loans)?;
        drop((waiting, entries));
    }
}
