//! One of two engines that hear nearly the same, and what can be seen of it.

use std::collections::BTreeMap;
use std::time::Duration;

use tower_sentinel::stat::Event;
use tower_sentinel::{
    BreakerState, Builder, Call, Entry, NodeView, NotAdmitted, Rules, Sentinel, Tick, Verdict,
    Waiting,
};

use crate::check::saw;
use crate::generator::Op;
use crate::oracle::RESOURCES;
use crate::support::bench::Bench;
use crate::support::ms;

/// What a call is told, apart from its entry.
#[derive(Debug, PartialEq)]
pub(crate) enum Told {
    Pass,
    Wait(Tick),
    /// Of several rules that refuse, the first one tells: in another order, another.
    Block(Option<Duration>),
}

/// An engine, and what its calls hold.
pub(crate) struct Side {
    pub(crate) bench: Bench,
    pub(crate) entries: Vec<Entry>,
    pub(crate) waiting: Vec<Waiting>,
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
    pub(crate) fn of(sentinel: &Sentinel) -> Self {
        let nodes = RESOURCES.iter().filter_map(|name| sentinel.node(*name));
        let nodes: Vec<_> = nodes.collect();
        let figures = |node: &NodeView| {
            // In this order: the sum opens the bucket in which calls may run that wait.
            let passed = node.sum(Event::Pass);
            (passed, node.concurrency(), node.waiting(), node.held())
        };
        let breakers = nodes.iter().flat_map(|node| {
            let views = node.breakers().into_iter();
            views.map(|view| (format!("{} {}", node.resource(), view.rule()), view.state()))
        });
        let values = nodes.iter().flat_map(NodeView::keyed_rules);
        Self {
            figures: nodes.iter().map(figures).collect(),
            breakers: breakers.collect(),
            values: values
                .map(|view| (view.rule().to_owned(), view.left("ann")))
                .collect(),
        }
    }
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

    pub(crate) fn run(&mut self, op: &Op) -> Option<Told> {
        match *op {
            Op::Advance(ns) => self.bench.clock.advance(Duration::from_nanos(ns)),
            Op::Call(asks) => return Some(asks.asked(|call| self.call(call))),
            Op::Admit(index) => return self.admit(index),
            Op::End(index, how) => {
                let index = index.checked_rem(self.entries.len())?;
                how.of(self.entries.swap_remove(index));
            }
            Op::Drop(index) => {
                let index = index.checked_rem(self.waiting.len())?;
                drop(self.waiting.swap_remove(index));
            }
            _ => panic!("{op:?} is nothing that a call does"),
        }
        None
    }

    pub(crate) fn call(&mut self, call: Call<'_>) -> Told {
        match self.bench.sentinel.try_enter(call) {
            Verdict::Pass(entry) => {
                self.entries.push(entry);
                saw("passes");
                Told::Pass
            }
            Verdict::Wait(waiting) => {
                let start = waiting.start();
                self.waiting.push(waiting);
                saw("waits");
                Told::Wait(start)
            }
            Verdict::Block(blocked) => {
                saw("is refused");
                Told::Block(blocked.retry_after())
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn admit(&mut self, index: usize) -> Option<Told> {
        let index = index.checked_rem(self.waiting.len())?;
        Some(match self.waiting.swap_remove(index).admit() {
            Ok(entry) => {
                self.entries.push(entry);
                saw("begins");
                Told::Pass
            }
            Err(NotAdmitted::TooEarly(waiting)) => {
                let start = waiting.start();
                self.waiting.push(waiting);
                Told::Wait(start)
            }
            Err(NotAdmitted::Blocked(blocked)) => Told::Block(blocked.retry_after()),
            other => panic!("{other:?}"),
        })
    }

    /// All calls that run end, and have said nothing.
    pub(crate) fn cancel_all(&mut self) {
        self.entries.drain(..).for_each(Entry::cancel);
    }

    /// The resources are known, and nothing is counted.
    pub(crate) fn touch(&mut self) {
        for resource in RESOURCES {
            self.call(Call::new(resource).batch(0));
            self.cancel_all();
        }
    }

    pub(crate) fn all(&self) -> All {
        All::of(&self.bench.sentinel)
    }

    /// What has passed and was refused of each resource that is known.
    pub(crate) fn totals(&self) -> Vec<(u64, u64)> {
        let nodes = RESOURCES.iter();
        let nodes = nodes.filter_map(|name| self.bench.sentinel.node(*name));
        let totals = nodes.map(|node| node.totals());
        totals
            .map(|totals| (totals.pass(), totals.block()))
            .collect()
    }
}
