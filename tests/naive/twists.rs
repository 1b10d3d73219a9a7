//! What changes nothing: two engines hear the same calls, and one of them more that
//! must not matter. Rules of all kinds, and calls that wait.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::{BreakerState, Call, FlowRule, NodeView, Rule, Rules, Sentinel};

use crate::company::{Company, Op, company, end, op};
use crate::hot::Count;
use crate::reloads::{Side, Told, figures};
use crate::setup::RESOURCES;
use crate::support::ms;
use crate::wants::{Wants, wants};

/// What happens where calls may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitOp {
    Run(Op),
    Admit(usize),
    Drop(usize),
}

/// What the other engine hears before that.
#[derive(Clone, Copy, Debug)]
enum Twist {
    Nothing,
    /// Time passes in two steps.
    Split,
    /// Another resource is called.
    Elsewhere,
    /// A call that one rule always refuses.
    Refused(Wants),
    Look,
    /// The same rules in another order.
    Reload(Index),
}

fn twist() -> impl Strategy<Value = Twist> {
    prop_oneof![
        2 => Just(Twist::Nothing),
        1 => Just(Twist::Split),
        1 => Just(Twist::Elsewhere),
        2 => wants().prop_map(Twist::Refused),
        1 => Just(Twist::Look),
        1 => any::<Index>().prop_map(Twist::Reload),
    ]
}

pub(crate) fn wait_op() -> impl Strategy<Value = WaitOp> {
    prop_oneof![
        12 => op().prop_map(WaitOp::Run),
        4 => any::<usize>().prop_map(WaitOp::Admit),
        1 => any::<usize>().prop_map(WaitOp::Drop),
    ]
}

/// The rules, whose queues let calls wait.
pub(crate) fn waiting_rules(company: &mut Company, max_wait: u64) -> Rules {
    for flow in &mut company.setup.flows {
        flow.queue = flow.queue.map(|_| max_wait);
    }
    for hot in &mut company.hots {
        if let Count::Queue(most) = &mut hot.count {
            *most = max_wait;
        }
    }
    company.rules()
}

/// A rule that refuses all calls in a context.
fn refusing(resource: &str) -> FlowRule {
    FlowRule::per_second(resource, 0).in_context("never")
}

/// What can be seen, by the rules. Of the totals, refusals are told apart, and what
/// passed counts who waits when the next one comes.
#[derive(Debug, PartialEq)]
pub(crate) struct All {
    pub(crate) figures: Vec<(u64, u32, u32, u32)>,
    pub(crate) breakers: BTreeMap<String, BreakerState>,
    pub(crate) values: BTreeMap<String, u32>,
}

impl All {
    /// Both resources have been called.
    pub(crate) fn of(sentinel: &Sentinel) -> Self {
        let nodes = RESOURCES.map(|resource| sentinel.node(resource).unwrap());
        let figures = figures(sentinel).into_iter();
        let breakers = nodes.iter().flat_map(|node| {
            let views = node.breakers().into_iter();
            views.map(|view| (format!("{} {}", node.resource(), view.rule()), view.state()))
        });
        let values = nodes.iter().flat_map(NodeView::keyed_rules);
        Self {
            figures: figures
                .map(|(_, _, sum, run, wait, held)| (sum, run, wait, held))
                .collect(),
            breakers: breakers.collect(),
            values: values
                .map(|view| (view.rule().to_owned(), view.left("ann")))
                .collect(),
        }
    }
}

impl Side {
    pub(crate) fn run(
        &mut self,
        op: WaitOp,
        with_loans: bool,
        patience: Option<u64>,
    ) -> Option<Told> {
        match op {
            WaitOp::Run(Op::Advance(ns)) => self.bench.clock.advance(Duration::from_nanos(ns)),
            WaitOp::Run(Op::Call(wants)) => {
                return Some(wants.asked(|call| {
                    let call = call.prioritized(with_loans);
                    self.call(patience.map_or(call, |most| call.patience(ms(most))))
                }));
            }
            WaitOp::Run(Op::End(index, how)) => {
                let index = index.checked_rem(self.entries.len())?;
                end(self.entries.swap_remove(index), how);
            }
            WaitOp::Admit(index) => return self.admit(index),
            WaitOp::Drop(index) => {
                let index = index.checked_rem(self.waiting.len())?;
                drop(self.waiting.swap_remove(index));
            }
        }
        None
    }

    pub(crate) fn all(&self) -> All {
        All::of(&self.bench.sentinel)
    }

    /// The resources are known, and nothing is counted.
    pub(crate) fn touch(&mut self) {
        for resource in RESOURCES {
            self.call(Call::new(resource).batch(0));
            self.cancel_all();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_is_refused_or_called_elsewhere_or_reloaded_is_seen_by_nobody(
        mut company in company(),
        max_wait in 0_u64..3_000,
        with_loans in any::<bool>(),
        patience in prop::option::of(0_u64..2_000),
        refuses in any::<bool>(),
        ops in prop::collection::vec((wait_op(), twist()), 1..150),
    ) {
        let mut rules = waiting_rules(&mut company, max_wait);
        for resource in RESOURCES.into_iter().filter(|_| refuses) {
            rules = rules.with(refusing(resource));
        }
        let list: Vec<Rule> = rules.iter().cloned().collect();
        let [mut one, mut other] = [(); 2].map(|()| Side::new(rules.clone(), max_wait.max(1)));
        one.touch();
        other.touch();
        for (number, (op, twist)) in ops.into_iter().enumerate() {
            let sentinel = &other.bench.sentinel;
            let mut rest = op;
            match twist {
                Twist::Nothing => {}
                Twist::Split => if let WaitOp::Run(Op::Advance(ns)) = op {
                    other.bench.clock.advance(Duration::from_nanos(ns / 3));
                    rest = WaitOp::Run(Op::Advance(ns - ns / 3));
                },
                Twist::Elsewhere => drop(sentinel.try_enter(Call::new("else"))),
                Twist::Refused(wants) => if refuses {
                    let told = wants.asked(|call| other.call(call.context("never").batch(wants.call.n.max(1))));
                    prop_assert_eq!(told, Told::Block(None));
                },
                Twist::Look => drop(sentinel.snapshot()),
                Twist::Reload(index) => {
                    let mut turned = list.clone();
                    turned.rotate_left(index.index(list.len().max(1)));
                    turned.push(FlowRule::per_second("else", number as u32).into());
                    prop_assert!(sentinel.reload(Rules::build(turned).unwrap()));
                }
            }
            if matches!(op, WaitOp::Admit(_) | WaitOp::Drop(_)) {
                // Who goes gives back to the newest bucket that anybody has opened, be
                // it by a look.
                drop((one.bench.sentinel.snapshot(), other.bench.sentinel.snapshot()));
            }
            let told = one.run(op, with_loans, patience);
            prop_assert_eq!(told, other.run(rest, with_loans, patience), "{:?} after {:?}", op, twist);
            prop_assert_eq!(one.all(), other.all(), "{:?} after {:?}", op, twist);
        }
    }
}
