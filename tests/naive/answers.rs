//! Who passes, by which rule who does not, and when it will.

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::stat::Event;
use tower_sentinel::{BlockKind, Blocked, Entry, Verdict};

use crate::oracle::{Naive, Refusal};
use crate::setup::{Asks, BEGIN, NS, Op, RESOURCES, op, setup};
use crate::support::bench::Bench;

fn enter(bench: &Bench, call: Asks) -> Result<Entry, Blocked> {
    match bench.sentinel.try_enter(call.asked()) {
        Verdict::Pass(entry) => Ok(entry),
        Verdict::Block(blocked) => Err(blocked),
        other => panic!("nobody asked to wait: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn the_engine_answers_as_the_naive_one(
        setup in setup(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let bench = Bench::new(setup.rules());
        let mut naive = Naive::new(setup);
        let mut entries: Vec<Entry> = Vec::new();
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                Op::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Op::End(index) if !entries.is_empty() => {
                    let index = index % entries.len();
                    naive.running.swap_remove(index);
                    drop(entries.swap_remove(index));
                }
                Op::End(_) => {}
                Op::Call(call) => {
                    let expected = naive.enter(call, now);
                    match (enter(&bench, call), expected) {
                        (Ok(entry), Ok(())) => entries.push(entry),
                        (Err(blocked), Err(expected)) => {
                            let until = blocked.retry_after().map(|after| now + after.as_nanos() as u64);
                            let rule = || blocked.rule().parse::<usize>().unwrap();
                            let is_right = match (blocked.kind(), &expected) {
                                (BlockKind::Authority, Refusal::Authority)
                                | (BlockKind::Isolation, Refusal::Isolation) => until.is_none(),
                                (BlockKind::Flow, Refusal::Flow(full, at)) => {
                                    full.contains(&rule()) && until == *at
                                }
                                (BlockKind::MissingKey, Refusal::Flow(..)) => {
                                    naive.setup.flows[rule()].misses_key(&call) && until.is_none()
                                }
                                _ => false,
                            };
                            prop_assert!(is_right, "{:?}: {:?}, and not {:?}", call, blocked, expected);
                        }
                        (found, expected) => {
                            prop_assert!(false, "{:?} at {}: {:?}, and not {:?}", call, now, found, expected);
                        }
                    }
                }
            }
            for resource in RESOURCES {
                let Some(node) = bench.sentinel.node(resource) else {
                    prop_assert!(!naive.called.contains(resource));
                    continue;
                };
                let half = 500 * NS;
                let window = (now / half - 1) * half;
                prop_assert_eq!(node.sum(Event::Pass), naive.tokens(resource, window));
                prop_assert_eq!(node.totals().pass(), naive.tokens(resource, 0));
                let blocked = naive.blocked.get(resource).copied().unwrap_or_default();
                prop_assert_eq!(node.totals().block(), blocked);
                let running = naive.running.iter().filter(|running| **running == resource);
                prop_assert_eq!(node.concurrency() as usize, running.count());
            }
        }
        drop(entries);
    }
}
