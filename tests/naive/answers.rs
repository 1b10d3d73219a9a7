//! Who passes, by which rule who does not, and when it will.

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::stat::Event;
use tower_sentinel::{BlockKind, Blocked, Entry, Verdict};

use crate::oracle::{Naive, Refusal};
use crate::setup::{Asks, BEGIN, NS, Op, RESOURCES, Setup, op, setup};
use crate::support::bench::Bench;

fn enter(bench: &Bench, call: Asks) -> Result<Entry, Blocked> {
    match bench.sentinel.try_enter(call.asked()) {
        Verdict::Pass(entry) => Ok(entry),
        Verdict::Block(blocked) => Err(blocked),
        other => panic!("nobody asked to wait: {other:?}"),
    }
}

/// Both engines, which hear the same.
struct Both {
    bench: Bench,
    naive: Naive,
    entries: Vec<Entry>,
    now: u64,
}

impl Both {
    fn new(setup: Setup) -> Self {
        Self {
            bench: Bench::new(setup.rules()),
            naive: Naive::new(setup),
            entries: Vec::new(),
            now: BEGIN * NS,
        }
    }

    fn run(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Advance(ns) => {
                self.now += ns;
                self.bench.clock.advance(Duration::from_nanos(ns));
            }
            Op::End(index) if !self.entries.is_empty() => {
                let index = index % self.entries.len();
                self.naive.running.swap_remove(index);
                drop(self.entries.swap_remove(index));
            }
            Op::End(_) => {}
            Op::Call(call) => self.call(call)?,
        }
        self.compare_figures()
    }

    fn call(&mut self, call: Asks) -> Result<(), TestCaseError> {
        let expected = self.naive.enter(call, self.now);
        match (enter(&self.bench, call), expected) {
            (Ok(entry), Ok(())) => self.entries.push(entry),
            (Err(blocked), Err(expected)) => {
                let is_right = self.is_right(&call, &blocked, &expected);
                prop_assert!(
                    is_right,
                    "{:?}: {:?}, and not {:?}",
                    call,
                    blocked,
                    expected
                );
            }
            (found, expected) => {
                let now = self.now;
                prop_assert!(
                    false,
                    "{:?} at {}: {:?}, and not {:?}",
                    call,
                    now,
                    found,
                    expected
                );
            }
        }
        Ok(())
    }

    fn is_right(&self, call: &Asks, blocked: &Blocked, expected: &Refusal) -> bool {
        let after = blocked.retry_after();
        let until = after.map(|after| self.now + after.as_nanos() as u64);
        let rule = || blocked.rule().parse::<usize>().unwrap();
        match (blocked.kind(), expected) {
            (BlockKind::Authority, Refusal::Authority)
            | (BlockKind::Isolation, Refusal::Isolation) => until.is_none(),
            (BlockKind::Flow, Refusal::Flow(full, at)) => full.contains(&rule()) && until == *at,
            (BlockKind::MissingKey, Refusal::Flow(..)) => {
                self.naive.setup.flows[rule()].misses_key(call) && until.is_none()
            }
            _ => false,
        }
    }

    fn compare_figures(&self) -> Result<(), TestCaseError> {
        let naive = &self.naive;
        for resource in RESOURCES {
            let Some(node) = self.bench.sentinel.node(resource) else {
                prop_assert!(!naive.called.contains(resource));
                continue;
            };
            let half = 500 * NS;
            let window = (self.now / half).saturating_sub(1) * half;
            prop_assert_eq!(node.sum(Event::Pass), naive.tokens(resource, window));
            prop_assert_eq!(node.totals().pass(), naive.tokens(resource, 0));
            let blocked = naive.blocked.get(resource).copied().unwrap_or_default();
            prop_assert_eq!(node.totals().block(), blocked);
            let by_kind = node.totals().blocks().map(|(_, count)| count);
            prop_assert_eq!(by_kind.sum::<u64>(), node.totals().block());
            let running = naive.running.iter().filter(|running| **running == resource);
            prop_assert_eq!(node.concurrency() as usize, running.count());
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn the_engine_answers_as_the_naive_one(
        setup in setup(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut both = Both::new(setup);
        for op in ops {
            both.run(op)?;
        }
    }

    #[test]
    fn after_a_reload_of_limits_it_goes_on_from_what_was_counted(
        setup in setup(),
        rounds in prop::collection::vec((prop::collection::vec(0_u32..8, 6), prop::collection::vec(op(), 1..40)), 1..5),
    ) {
        let mut both = Both::new(setup);
        for (limits, ops) in rounds {
            let setup = &mut both.naive.setup;
            for (flow, limit) in setup.flows.iter_mut().zip(&limits) {
                flow.limit = *limit;
            }
            if let Some((_, most)) = &mut setup.isolation {
                *most = limits[5];
            }
            both.bench.sentinel.reload(setup.rules());
            for op in ops {
                both.run(op)?;
            }
        }
    }
}
