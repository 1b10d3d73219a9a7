//! An engine with the calls that run or wait in it, and what can be seen of it.

use std::collections::BTreeMap;
use std::time::Duration;

use tower_sentinel::read::{BreakerState, NodeView};
use tower_sentinel::stat::Event;
use tower_sentinel::{
    Blocked, Builder, Call, Clock, Entry, NotAdmitted, Rules, Sentinel, Verdict, Waiting,
};

use crate::generator::Op;
use crate::oracle::{Asks, End, RESOURCES};
use crate::saw;
use crate::support::bench::Bench;

/// What a call is told; times are in ns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told<R> {
    Pass,
    Wait(u64),
    Block(R),
}

/// An engine, and what its calls hold, each with what a test knows of it.
pub(crate) struct Side<T = ()> {
    pub(crate) bench: Bench,
    pub(crate) entries: Vec<(Entry, T)>,
    pub(crate) waiting: Vec<(Waiting, T)>,
}

/// What can be seen, by the rules. Of the totals, refusals are told apart, and what
/// passed counts who waits when the next one comes.
#[derive(Debug, PartialEq)]
pub(crate) struct All {
    figures: Vec<(u64, u32, u32, u32)>,
    breakers: BTreeMap<String, BreakerState>,
    values: BTreeMap<String, u32>,
}

/// The resources are known, and nothing is counted.
pub(crate) fn touch(sentinel: &Sentinel) {
    for resource in RESOURCES {
        if let Verdict::Pass(entry) = sentinel.try_enter(Call::new(resource).batch(0)) {
            entry.cancel();
        }
    }
}

/// Any index, as that of one of `all`.
pub(crate) fn place<T>(index: usize, all: &[T]) -> Option<usize> {
    index.checked_rem(all.len())
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

    /// The same, where only the order of breakers tells which is which.
    pub(crate) fn numbered(mut self) -> Self {
        let states = self.breakers.into_values().enumerate();
        self.breakers = states
            .map(|(index, state)| (format!("{index:3}"), state))
            .collect();
        self
    }
}

impl<T> Side<T> {
    pub(crate) fn new(rules: Rules, configure: impl FnOnce(Builder) -> Builder) -> Self {
        Self {
            bench: Bench::with(rules, configure),
            entries: Vec::new(),
            waiting: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.bench.clock.now().as_nanos()
    }

    pub(crate) fn advance(&self, ns: u64) {
        self.bench.clock.advance(Duration::from_nanos(ns));
    }

    /// A call comes, of which a test knows `known` if it is not refused.
    pub(crate) fn call(&mut self, asks: &Asks, known: T) -> Told<Blocked> {
        match asks.asked(|call| self.bench.sentinel.try_enter(call)) {
            Verdict::Pass(entry) => {
                self.entries.push((entry, known));
                saw("passes");
                Told::Pass
            }
            Verdict::Wait(waiting) => {
                let start = waiting.start().as_nanos();
                self.waiting.push((waiting, known));
                saw("waits");
                Told::Wait(start)
            }
            Verdict::Block(blocked) => {
                saw("is refused");
                Told::Block(blocked)
            }
            other => panic!("{other:?}"),
        }
    }

    /// A call that waits, by its place, is asked whether it has its turn.
    pub(crate) fn admit(&mut self, place: usize) -> Told<Blocked> {
        let (waiting, known) = self.waiting.swap_remove(place);
        match waiting.admit() {
            Ok(entry) => {
                self.entries.push((entry, known));
                saw("begins");
                Told::Pass
            }
            Err(NotAdmitted::TooEarly(waiting)) => {
                let start = waiting.start().as_nanos();
                self.waiting.push((waiting, known));
                Told::Wait(start)
            }
            Err(NotAdmitted::Blocked(blocked)) => Told::Block(blocked),
            other => panic!("{other:?}"),
        }
    }

    /// A call that runs, by its place, ends.
    pub(crate) fn end(&mut self, place: usize, how: End) -> T {
        let (entry, known) = self.entries.swap_remove(place);
        how.of(entry);
        known
    }

    /// All calls that run end, and have said nothing.
    pub(crate) fn cancel_all(&mut self) {
        let entries = self.entries.drain(..);
        entries.for_each(|(entry, _)| entry.cancel());
    }

    pub(crate) fn all(&self) -> All {
        All::of(&self.bench.sentinel)
    }
}

impl Side {
    /// What a call is told. Of several rules that refuse, the first one tells: in another order,
    /// another. So a refusal is no more than the time to retry.
    pub(crate) fn run(&mut self, op: &Op) -> Option<Told<Option<Duration>>> {
        let told = match *op {
            Op::Advance(ns) => {
                self.advance(ns);
                return None;
            }
            Op::Call(asks) => self.call(&asks, ()),
            Op::Admit(index) => self.admit(place(index, &self.waiting)?),
            Op::End(index, how) => {
                self.end(place(index, &self.entries)?, how);
                return None;
            }
            Op::Drop(index) => {
                drop(self.waiting.swap_remove(place(index, &self.waiting)?));
                return None;
            }
            _ => panic!("{op:?} is nothing that a call does"),
        };
        Some(match told {
            Told::Pass => Told::Pass,
            Told::Wait(start) => Told::Wait(start),
            Told::Block(blocked) => Told::Block(blocked.retry_after()),
        })
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
