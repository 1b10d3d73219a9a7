//! What calls that wait take of the quotas of values: none gets more than its quota,
//! and who does not run leaves nothing behind.

use proptest::prelude::*;

use crate::company::{Op, company};
use crate::hot::{Count, Hot, Seen};
use crate::reloads::{Side, Told};
use crate::setup::{BEGIN, NS};
use crate::twists::{WaitOp, wait_op, waiting_rules};

/// The calls of a side, in the order of its entries and of those that wait.
#[derive(Default)]
struct Calls {
    /// When they came.
    seen: Vec<Seen>,
    entries: Vec<usize>,
    waiting: Vec<usize>,
    /// Those that never run.
    gone: Vec<usize>,
}

impl Calls {
    /// Whether the newest call found a place among those of its value at once.
    fn is_within(&self, hot: &Hot) -> bool {
        let (newest, others) = self.seen.split_last().unwrap();
        hot.room_at(&newest.wants, newest.at, others) == Some(newest.at)
    }

    /// Whether no call that ran, or waits, was one too many of those.
    fn are_within(&self, hot: &Hot) -> bool {
        let kept = self.seen.iter().enumerate();
        let kept = kept.filter(|(index, _)| !self.gone.contains(index));
        let kept: Vec<_> = kept.map(|(_, seen)| *seen).collect();
        (0..kept.len()).all(|index| {
            let (wants, now) = (&kept[index].wants, kept[index].at);
            hot.room_at(wants, now, &kept[..index]) == Some(now)
        })
    }

    fn end(&mut self, index: usize) {
        self.seen[index].is_running = false;
    }

    fn go(&mut self, index: usize) {
        self.end(index);
        self.gone.push(index);
    }
}

/// All that can be seen but breakers: a probe that does not run ends those whose lease
/// is over.
fn counted(side: &Side) -> impl PartialEq + std::fmt::Debug + use<> {
    let all = side.all();
    (all.figures, all.values)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn with_calls_that_wait_no_value_gets_more_than_its_quota(
        mut company in company(),
        max_wait in 0_u64..3_000,
        with_loans in any::<bool>(),
        ops in prop::collection::vec(wait_op(), 1..150),
    ) {
        let mut side = Side::new(waiting_rules(&mut company, max_wait), max_wait.max(1));
        side.touch();
        let (mut calls, mut now) = (Calls::default(), BEGIN * NS);
        for op in ops {
            let before = counted(&side);
            let place = |index: usize, of: &[usize]| index.checked_rem(of.len());
            let told = side.run(op, with_loans, None);
            match op {
                WaitOp::Run(Op::Advance(ns)) => now += ns,
                WaitOp::Run(Op::Call(wants)) => {
                    let told = told.unwrap();
                    if matches!(told, Told::Wait(_)) {
                        // Who goes at once was never there.
                        drop(side.waiting.pop());
                        prop_assert_eq!(counted(&side), before, "{:?}", wants);
                        prop_assert_eq!(side.run(op, with_loans, None), Some(told));
                        calls.waiting.push(calls.seen.len());
                    } else if told == Told::Pass {
                        calls.entries.push(calls.seen.len());
                    } else {
                        prop_assert_eq!(counted(&side), before, "{:?}", wants);
                        continue;
                    }
                    calls.seen.push(Seen { at: now, wants, is_running: true });
                    for hot in company.hots.iter().filter(|hot| hot.count == Count::Running) {
                        prop_assert!(calls.is_within(hot), "{:?}: {:?}", hot, calls.seen);
                    }
                }
                WaitOp::Run(Op::End(index, _)) => if let Some(index) = place(index, &calls.entries) {
                    let call = calls.entries.swap_remove(index);
                    calls.end(call);
                },
                WaitOp::Admit(index) => if let Some(index) = place(index, &calls.waiting) {
                    let call = calls.waiting.swap_remove(index);
                    match told.unwrap() {
                        Told::Pass => calls.entries.push(call),
                        Told::Wait(_) => calls.waiting.push(call),
                        Told::Block(_) => calls.go(call),
                    }
                },
                WaitOp::Drop(index) => if let Some(index) = place(index, &calls.waiting) {
                    let call = calls.waiting.swap_remove(index);
                    calls.go(call);
                },
            }
        }
        for hot in company.hots.iter().filter(|hot| matches!(hot.count, Count::Refill | Count::Window)) {
            prop_assert!(calls.are_within(hot), "{:?}: {:?}", hot, calls.seen);
        }
        // At rest nobody is counted as one of those at once.
        side.waiting.clear();
        side.cancel_all();
        let running = company.hots.iter().enumerate();
        for (index, hot) in running.filter(|(_, hot)| hot.count == Count::Running) {
            let views = side.bench.sentinel.node(hot.resource).unwrap().hot_params();
            let view = views.iter().find(|view| view.rule() == format!("hot-{index}")).unwrap();
            prop_assert_eq!(view.values(), 0);
        }
    }
}
