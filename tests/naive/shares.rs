//! What calls that wait take of the quotas of values, in the middle of reloads: none
//! gets more than its quota, and who does not run leaves nothing behind.

use proptest::prelude::*;

use crate::company::{Op, company};
use crate::crowd::Crowd;
use crate::hot::Count;
use crate::reloads::{Side, Told};
use crate::setup::{BEGIN, NS, RESOURCES};
use crate::twists::{WaitOp, wait_op, waiting_rules};
use crate::versions::{Edit, Version, edit};
use crate::wants::Wants;

#[derive(Clone, Debug)]
enum Act {
    Run(WaitOp),
    Reload(Edit),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => wait_op().prop_map(Act::Run),
        1 => edit(3, 0).prop_map(Act::Reload),
    ]
}

/// The calls of a side, in the order of its entries and of those that wait, by their
/// places among all that rules have counted.
struct Calls {
    crowd: Crowd,
    entries: Vec<usize>,
    waiting: Vec<usize>,
}

impl Calls {
    /// Whether a call finds room for its values where all that is kept has been paid.
    fn assert_within(&self, wants: &Wants, now: u64) -> Result<(), TestCaseError> {
        let resource = wants.call.resource;
        let queues = |count| matches!(count, Count::Queue(_));
        for ledger in self.crowd.ledgers(resource) {
            let at = ledger.available_at(wants, now, &self.crowd.seen);
            let is_within = queues(ledger.hot.count) || at == Some(now);
            prop_assert!(is_within, "{:?}: {:?}", ledger, self.crowd.seen);
        }
        Ok(())
    }

    fn end(&mut self, call: usize) {
        self.crowd.seen[call].is_running = false;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn with_calls_that_wait_no_value_gets_more_than_its_quota(
        mut company in company(),
        max_wait in 0_u64..3_000,
        with_loans in any::<bool>(),
        acts in prop::collection::vec(act(), 1..150),
    ) {
        let mut side = Side::new(waiting_rules(&mut company, max_wait), max_wait.max(1));
        side.touch();
        let mut version = Version::from(company);
        let mut calls = Calls { crowd: Crowd::new(&version), entries: Vec::new(), waiting: Vec::new() };
        let mut now = BEGIN * NS;
        for act in acts {
            let op = match act {
                Act::Run(op) => op,
                Act::Reload(edit) => {
                    version.edit(edit);
                    version = version.waiting(max_wait);
                    side.bench.sentinel.reload(version.rules());
                    // Who looks has the resources take the new rules over.
                    side.all();
                    calls.crowd.take_over_all(&version);
                    continue;
                }
            };
            let before = side.all();
            let place = |index: usize, of: &[usize]| index.checked_rem(of.len());
            let told = side.run(op, with_loans, None);
            match op {
                WaitOp::Run(Op::Advance(ns)) => now += ns,
                WaitOp::Run(Op::Call(wants)) => {
                    let told = told.unwrap();
                    let is_waiting = matches!(told, Told::Wait(_));
                    if is_waiting {
                        // Who goes at once was never there.
                        drop(side.waiting.pop());
                        prop_assert_eq!(side.all(), before, "{:?}", wants);
                        prop_assert_eq!(side.run(op, with_loans, None), Some(told));
                    } else if told != Told::Pass {
                        prop_assert_eq!(side.all(), before, "{:?}", wants);
                        continue;
                    }
                    calls.assert_within(&wants, now)?;
                    let call = calls.crowd.count(wants, now);
                    if is_waiting {
                        calls.waiting.push(call);
                    } else {
                        calls.entries.push(call);
                    }
                },
                WaitOp::Run(Op::End(index, _)) => if let Some(index) = place(index, &calls.entries) {
                    let call = calls.entries.swap_remove(index);
                    calls.end(call);
                },
                WaitOp::Admit(index) => if let Some(index) = place(index, &calls.waiting) {
                    let call = calls.waiting.swap_remove(index);
                    match told.unwrap() {
                        Told::Pass => calls.entries.push(call),
                        Told::Wait(_) => calls.waiting.push(call),
                        Told::Block(_) => calls.crowd.forget(call),
                    }
                },
                WaitOp::Drop(index) => if let Some(index) = place(index, &calls.waiting) {
                    let call = calls.waiting.swap_remove(index);
                    calls.crowd.forget(call);
                },
            }
        }
        // At rest nobody is counted as one of those at once.
        side.waiting.clear();
        side.cancel_all();
        for resource in RESOURCES {
            let views = side.bench.sentinel.node(resource).unwrap().keyed_rules();
            let running = calls.crowd.ledgers(resource).filter(|ledger| ledger.hot.count == Count::Running);
            for ledger in running {
                let view = views.iter().find(|view| view.rule() == ledger.name).unwrap();
                prop_assert_eq!(view.values(), 0);
            }
        }
    }
}
