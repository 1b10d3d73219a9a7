//! Rules that stay over a reload: nobody sees that there was one.

use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::stat::Event;
use tower_sentinel::{
    Blocked, Builder, Call, Entry, FlowRule, NotAdmitted, Rule, Rules, Sentinel, Tick, Verdict,
    Waiting,
};

use crate::setup::{RESOURCES, setup};
use crate::support::bench::Bench;
use crate::support::ms;
use crate::waits::{WaitOp, wait_op};

/// What a call is told, apart from its entry.
#[derive(Debug, PartialEq)]
pub(crate) enum Told {
    Pass,
    Wait(Tick),
    /// Of several rules that refuse, the first one tells: in another order, another.
    Block(Option<Duration>),
}

/// One of the two engines, and what its calls hold.
pub(crate) struct Side {
    pub(crate) bench: Bench,
    pub(crate) entries: Vec<Entry>,
    pub(crate) waiting: Vec<Waiting>,
}

impl Side {
    pub(crate) fn new(rules: Rules, timeout: u64) -> Self {
        let timeout = |builder: Builder| builder.occupy_timeout(ms(timeout));
        Self {
            bench: Bench::with(rules, timeout),
            entries: Vec::new(),
            waiting: Vec::new(),
        }
    }

    pub(crate) fn call(&mut self, call: Call<'_>) -> Told {
        match self.bench.sentinel.try_enter(call) {
            Verdict::Pass(entry) => {
                self.entries.push(entry);
                Told::Pass
            }
            Verdict::Wait(waiting) => {
                let start = waiting.start();
                self.waiting.push(waiting);
                Told::Wait(start)
            }
            Verdict::Block(blocked) => Self::blocked(&blocked),
            other => panic!("{other:?}"),
        }
    }

    /// All calls that run end, and have said nothing.
    pub(crate) fn cancel_all(&mut self) {
        self.entries.drain(..).for_each(Entry::cancel);
    }

    fn blocked(blocked: &Blocked) -> Told {
        Told::Block(blocked.retry_after())
    }

    pub(crate) fn admit(&mut self, index: usize) -> Option<Told> {
        let index = index.checked_rem(self.waiting.len())?;
        Some(match self.waiting.swap_remove(index).admit() {
            Ok(entry) => {
                self.entries.push(entry);
                Told::Pass
            }
            Err(NotAdmitted::TooEarly(waiting)) => {
                let start = waiting.start();
                self.waiting.push(waiting);
                Told::Wait(start)
            }
            Err(NotAdmitted::Blocked(blocked)) => Self::blocked(&blocked),
            other => panic!("{other:?}"),
        })
    }

    fn figures(&self) -> Vec<Figures> {
        figures(&self.bench.sentinel)
    }
}

/// Of one resource: what passed and was refused in all, what passed in the window, who
/// runs, who waits, and the tokens that are held.
type Figures = (u64, u64, u64, u32, u32, u32);

pub(crate) fn figures(sentinel: &Sentinel) -> Vec<Figures> {
    let nodes = RESOURCES.iter().filter_map(|name| sentinel.node(*name));
    nodes
        .map(|node| {
            let totals = node.totals();
            (
                totals.pass(),
                totals.block(),
                node.sum(Event::Pass),
                node.concurrency(),
                node.waiting(),
                node.held(),
            )
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn rules_that_stay_know_what_they_knew_after_any_reload(
        mut setup in setup(),
        max_wait in 0_u64..3_000,
        with_loans in any::<bool>(),
        ops in prop::collection::vec((wait_op(), any::<prop::sample::Index>()), 1..120),
    ) {
        for flow in &mut setup.flows {
            flow.queue = flow.queue.map(|_| max_wait);
        }
        let rules: Vec<Rule> = setup.rules().iter().cloned().collect();
        let [mut one, mut other] = [(); 2].map(|()| Side::new(setup.rules(), max_wait.max(1)));
        for (number, (op, reload)) in ops.into_iter().enumerate() {
            // The same rules in another order, with one more for another resource.
            if reload.index(4) == 0 {
                let mut turned = rules.clone();
                turned.rotate_left(reload.index(rules.len().max(1)));
                turned.push(FlowRule::per_second("else", number as u32).into());
                prop_assert!(other.bench.sentinel.reload(Rules::build(turned).unwrap()));
            }
            match op {
                WaitOp::Advance(ns) => {
                    for side in [&one, &other] {
                        side.bench.clock.advance(Duration::from_nanos(ns));
                    }
                }
                WaitOp::Call(call) => {
                    let call = call.asked().prioritized(with_loans);
                    prop_assert_eq!(one.call(call), other.call(call), "{:?}", call);
                }
                WaitOp::Admit(index) => prop_assert_eq!(one.admit(index), other.admit(index)),
                WaitOp::Drop(index) => {
                    for side in [&mut one, &mut other].into_iter().filter(|side| !side.waiting.is_empty()) {
                        drop(side.waiting.swap_remove(index % side.waiting.len()));
                    }
                }
                WaitOp::End(index) => {
                    for side in [&mut one, &mut other].into_iter().filter(|side| !side.entries.is_empty()) {
                        drop(side.entries.swap_remove(index % side.entries.len()));
                    }
                }
            }
            prop_assert_eq!(one.figures(), other.figures());
        }
    }
}
