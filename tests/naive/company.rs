//! Rules of all kinds together: who passes, which of them refuses, when a call will
//! pass, and what a refusal leaves behind.

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::{Entry, Rules, Verdict};

use crate::breakers::{Breaker, End, Part, breaker};
use crate::crowd::Crowd;
use crate::hot::{Count, Hot, hot};
use crate::setup::{BEGIN, NS, RESOURCES, Setup, advance, setup};
use crate::support::bench::Bench;
use crate::wants::{Wants, wants};

#[derive(Clone, Debug)]
pub(crate) struct Company {
    pub(crate) setup: Setup,
    pub(crate) hots: Vec<Hot>,
    pub(crate) breakers: Vec<Breaker>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Advance(u64),
    Call(Wants),
    End(usize, End),
}

impl Company {
    pub(crate) fn rules(&self) -> Rules {
        let hots = self.hots.iter().enumerate();
        let rules = hots.fold(self.setup.rules(), |rules, (index, hot)| {
            rules.with(hot.rule(index))
        });
        let breakers = self.breakers.iter().enumerate();
        breakers.fold(rules, |rules, (index, breaker)| {
            rules.with(breaker.rule(index))
        })
    }
}

pub(crate) fn company() -> impl Strategy<Value = Company> {
    let hots = prop::collection::vec(hot(), 0..4);
    let breakers = prop::collection::vec(breaker(), 0..3);
    (setup(), hots, breakers).prop_map(|(setup, mut hots, breakers)| {
        for resource in RESOURCES {
            let mut at_once = 0;
            hots.retain(|hot| {
                at_once += usize::from(hot.resource == resource && hot.count == Count::Running);
                at_once <= 2 || hot.resource != resource || hot.count != Count::Running
            });
        }
        Company {
            setup,
            hots,
            breakers,
        }
    })
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let end = prop_oneof![
        4 => Just(End::Good),
        4 => Just(End::Failed),
        1 => Just(End::Ignored),
        1 => Just(End::Cancelled),
    ];
    prop_oneof![
        4 => advance().prop_map(Op::Advance),
        8 => wants().prop_map(Op::Call),
        5 => (any::<usize>(), end).prop_map(|(index, end)| Op::End(index, end)),
    ]
}

pub(crate) fn end(mut entry: Entry, end: End) {
    match end {
        End::Good => drop(entry),
        End::Failed => entry.fail(),
        End::Ignored => entry.ignore(),
        End::Cancelled => entry.cancel(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn rules_of_all_kinds_answer_as_naive_ones(
        company in company(),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let bench = Bench::new(company.rules());
        // Breakers know times to 8 µs.
        let step = if company.breakers.is_empty() { 1 } else { 8_000 };
        let mut crowd = Crowd::new(company);
        let mut entries: Vec<(Entry, usize, Vec<Part>)> = Vec::new();
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                Op::Advance(ns) => {
                    let ns = ns / step * step;
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Op::End(index, how) => if let Some(index) = index.checked_rem(entries.len()) {
                    let (entry, seen, parts) = entries.swap_remove(index);
                    crowd.end(seen, parts, now, how);
                    end(entry, how);
                },
                Op::Call(wants) => {
                    let expected = crowd.enter(wants, now);
                    match (wants.asked(|call| bench.sentinel.try_enter(call)), expected) {
                        (Verdict::Pass(entry), Ok(parts)) => {
                            entries.push((entry, crowd.seen.len() - 1, parts));
                        }
                        (Verdict::Block(blocked), Err(why)) => {
                            let is_right = why.is_told(&blocked, now);
                            prop_assert!(is_right, "{:?} at {}: {:?}, and not {:?}", wants, now, blocked, why);
                        }
                        (found, expected) => {
                            prop_assert!(false, "{:?} at {}: {:?}, and not {:?}", wants, now, found, expected);
                        }
                    }
                }
            }
            for resource in RESOURCES {
                if let Some(node) = bench.sentinel.node(resource) {
                    crowd.agrees(resource, &node, now)?;
                }
            }
        }
    }
}
