//! An engine and a naive one, which hear the same: each answer is that of the other.

mod reloads;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::hook::BreakerEvent;
use tower_sentinel::system::{ManualProbe, Sampler};
use tower_sentinel::{
    BlockKind, BreakerView, Direction, Entry, Hook, NodeView, NotAdmitted, Verdict, Waiting,
};

use self::reloads::Found;
use crate::check::saw;
use crate::generator::Op;
use crate::oracle::{Asks, BEGIN, Change, End, NS, Oracle, RESOURCES, RuleSet};
use crate::support::bench::Bench;
use crate::support::ms;

/// What breakers tell.
#[derive(Debug, Default)]
struct Changes(Mutex<Vec<Change>>);

impl Hook for Changes {
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let told = (event.rule().to_owned(), event.from(), event.to());
        self.0.lock().unwrap().push(told);
    }
}

pub(crate) struct Pair {
    bench: Bench,
    probe: ManualProbe,
    /// For inbound calls and for outbound ones: they know nothing of each other.
    oracles: [Oracle; 2],
    changes: Arc<Changes>,
    /// The calls that run or wait, and which they are.
    entries: Vec<(Entry, Id)>,
    waiting: Vec<(Waiting, Id)>,
    /// The breakers that an operator has looked at, each with the number of its circuit.
    views: Vec<(BreakerView, usize)>,
    found: BTreeMap<(usize, &'static str), Found>,
    now: u64,
    /// What times are multiples of, in ns.
    step: u64,
    /// The rules in force; they are stale until every resource has taken them over.
    rules: RuleSet,
    is_stale: bool,
    /// How many there have been.
    reloads: u32,
}

/// In which naive engine, and which of its calls.
type Id = (usize, usize);

/// Whether both engines answer alike where that happens. Breakers know times to 8 µs:
/// `step` is that where there are any.
pub(crate) fn play(
    rules: RuleSet,
    longest_loan: u64,
    step: u64,
    ops: Vec<Op>,
) -> Result<(), TestCaseError> {
    let mut pair = Pair::new(rules, longest_loan, step);
    for op in ops {
        // In half of the cases a call is the first to meet new rules, and not a look.
        let is_first = matches!(&op, Op::Reload(edits) if edits.len() == 1);
        pair.run(op)?;
        if !is_first {
            pair.compare()?;
        }
    }
    pair.rest()
}

impl Pair {
    fn new(rules: RuleSet, longest_loan: u64, step: u64) -> Self {
        let (changes, probe) = (Arc::new(Changes::default()), ManualProbe::new());
        let bench = Bench::with(rules.rules(), |builder| {
            builder
                .hook("changes", changes.clone())
                .sampler(Sampler::new(probe.clone()))
                .occupy_timeout(ms(longest_loan))
        });
        let mut oracles = [Oracle::new(&rules), Oracle::outbound(&rules)];
        for oracle in &mut oracles {
            oracle.longest_loan = longest_loan;
        }
        Self {
            bench,
            probe,
            oracles,
            changes,
            entries: Vec::new(),
            waiting: Vec::new(),
            views: Vec::new(),
            found: BTreeMap::new(),
            now: BEGIN * NS,
            step,
            rules,
            is_stale: false,
            reloads: 0,
        }
    }

    fn node(&self, way: usize, resource: &str) -> Option<NodeView> {
        match way {
            0 => self.bench.sentinel.node(resource),
            _ => self.bench.sentinel.outbound_node(resource),
        }
    }

    fn run(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Advance(ns) => self.advance(ns),
            Op::Rest => {
                let (oracle, now) = (&mut self.oracles[0], self.now);
                let opens = RESOURCES.map(|resource| oracle.opens(resource, now).unwrap_or(now));
                self.advance(opens.into_iter().max().unwrap() - now);
            }
            Op::Machine(says) => {
                self.oracles[0].system.says = says;
                self.probe.set_load(says.load);
                self.probe.set_cpu(says.cpu);
            }
            Op::Call(asks) => self.call(asks)?,
            Op::End(index, how) => {
                if let Some(index) = index.checked_rem(self.entries.len()) {
                    let (entry, id) = self.entries.swap_remove(index);
                    self.end(entry, id, how);
                }
            }
            Op::Admit(index) => {
                if let Some(index) = index.checked_rem(self.waiting.len()) {
                    let (waiting, id) = self.waiting.swap_remove(index);
                    self.admit(waiting, id)?;
                }
            }
            Op::Drop(index) => {
                if let Some(index) = index.checked_rem(self.waiting.len()) {
                    self.leave(index);
                }
            }
            Op::Reload(edits) => {
                for edit in edits {
                    self.reload(edit)?;
                }
            }
            Op::View(index) => self.look(index),
            Op::Force(index, opens) => {
                if !self.views.is_empty() {
                    let (view, number) = &self.views[index.index(self.views.len())];
                    if opens {
                        view.force_open();
                    } else {
                        view.force_close();
                    }
                    self.oracles[0].circuit(*number).force(opens);
                    saw("forced");
                }
            }
        }
        Ok(())
    }

    fn advance(&mut self, ns: u64) {
        let ns = ns / self.step * self.step;
        self.now += ns;
        self.bench.clock.advance(Duration::from_nanos(ns));
    }

    // === calls ===

    fn call(&mut self, asks: Asks) -> Result<(), TestCaseError> {
        let (way, now) = (usize::from(asks.is_outbound), self.now);
        if self.is_stale {
            self.oracles[way].take_over(&self.rules, asks.resource);
        }
        let found = asks.asked(|call| self.bench.sentinel.try_enter(call));
        self.learn(way, asks.resource, &found)?;
        let oracle = &mut self.oracles[way];
        match (found, oracle.enter(asks, now)) {
            (Verdict::Pass(entry), Ok(call)) if oracle.start_of(call) <= now => {
                let direction = [Direction::Inbound, Direction::Outbound][way];
                prop_assert_eq!(entry.direction(), direction);
                let found = self.found.entry((way, asks.resource)).or_default();
                found.passed = oracle.running(asks.resource) as u32;
                self.entries.push((entry, (way, call)));
                saw("passes");
            }
            (Verdict::Wait(waiting), Ok(call))
                if waiting.start().as_nanos() == oracle.start_of(call) =>
            {
                self.waiting.push((waiting, (way, call)));
                saw("waits");
            }
            // A call is not told when it could borrow.
            (Verdict::Block(blocked), Err(why))
                if why.is_told(&blocked, now)
                    || asks.is_prioritized && why.is_kind_of(&blocked) =>
            {
                saw(match blocked.kind() {
                    BlockKind::Authority => "refused by authority",
                    BlockKind::System => "refused by the system",
                    BlockKind::CircuitBreaker => "refused by a breaker",
                    BlockKind::Isolation => "refused by slots",
                    BlockKind::Flow => "refused by flow",
                    BlockKind::Keyed => "refused by value",
                    _ => "refused without key",
                });
            }
            (found, Ok(call)) => {
                return Err(differ(asks, now, &found, &oracle.calls[call]));
            }
            (found, Err(why)) => return Err(differ(asks, now, &found, &why)),
        }
        Ok(())
    }

    fn admit(&mut self, waiting: Waiting, id: Id) -> Result<(), TestCaseError> {
        let ((way, call), now) = (id, self.now);
        let oracle = &mut self.oracles[way];
        let (start, asks) = (oracle.start_of(call), oracle.calls[call].asks);
        if now < start {
            match waiting.admit() {
                Err(NotAdmitted::TooEarly(waiting)) => {
                    prop_assert_eq!(waiting.start().as_nanos(), start);
                    self.waiting.push((waiting, id));
                    return Ok(());
                }
                other => return Err(differ(asks, now, &other, &start)),
            }
        }
        match (waiting.admit(), oracle.begin(call, now)) {
            (Ok(entry), Ok(())) => {
                self.entries.push((entry, id));
                saw("begins");
            }
            (Err(NotAdmitted::Blocked(blocked)), Err(why)) if why.is_told(&blocked, now) => {
                saw("refused at its turn");
            }
            (found, expected) => return Err(differ(asks, now, &found, &expected)),
        }
        Ok(())
    }

    /// One that waits goes.
    fn leave(&mut self, index: usize) {
        let (way, call) = self.waiting[index].1;
        let seen = &self.oracles[way].calls[call];
        // Tokens that are refunded after their time may be spent.
        if !seen.is_loan || seen.at > self.now {
            drop(self.waiting.swap_remove(index));
            self.oracles[way].forget(call);
            saw("leaves");
        }
    }

    fn end(&mut self, entry: Entry, (way, call): Id, how: End) {
        self.oracles[way].end(call, self.now, how);
        how.of(entry);
        self.found.clear();
    }

    /// All calls end, and nothing is left of them.
    fn rest(&mut self) -> Result<(), TestCaseError> {
        let step = self.waiting.iter().map(|(waiting, _)| waiting.start());
        let latest = step.max().map_or(self.now, tower_sentinel::Tick::as_nanos);
        self.advance(latest.saturating_sub(self.now) + self.step);
        for (waiting, id) in mem::take(&mut self.waiting) {
            self.admit(waiting, id)?;
        }
        for (entry, id) in mem::take(&mut self.entries) {
            self.end(entry, id, End::Good);
        }
        self.compare()?;
        let inbound = self.bench.sentinel.inbound();
        prop_assert_eq!((inbound.concurrency(), inbound.waiting()), (0, 0));
        Ok(())
    }
}

/// An engine and a naive one answer differently.
fn differ(asks: Asks, now: u64, found: &dyn Debug, expected: &dyn Debug) -> TestCaseError {
    TestCaseError::fail(format!(
        "{asks:?} at {now}: {found:?}, and not {expected:?}"
    ))
}
