//! An engine and a naive one, which hear the same: each answer is that of the other.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::mem;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::call::Direction;
use tower_sentinel::hook::BreakerEvent;
use tower_sentinel::read::{BreakerView, NodeView};
use tower_sentinel::system::{ManualProbe, Sampler};
use tower_sentinel::{BlockKind, Blocked, Criticality, Hook};

use crate::generator::Op;
use crate::oracle::{Asks, Change, Edit, End, Oracle, RESOURCES, RuleSet, Stage};
use crate::saw;
use crate::side::{Side, Told, place};
use crate::support::ms;

/// Breakers know times to 8 µs: what times are multiples of where there are any.
pub(crate) const STEP: u64 = 8_000;
/// After more reloads, an engine may have all resources take the rules over at once: so
/// many older sets of rules may be held by calls, and no more.
const MANY: u32 = 8;

/// What breakers tell.
#[derive(Debug, Default)]
struct Changes(Mutex<Vec<Change>>);

impl Hook for Changes {
    fn on_breaker(&self, event: &BreakerEvent<'_>) {
        let told = (event.rule().to_owned(), event.from(), event.to());
        self.0.lock().unwrap().push(told);
    }
}

/// What is known of a limit that finds itself since a call ended last.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    limit: Option<u32>,
}

/// In which naive engine, and which of its calls.
type Id = (usize, usize);

pub(crate) struct Pair {
    pub(crate) side: Side<Id>,
    probe: ManualProbe,
    /// For inbound calls and for outbound ones: they know nothing of each other.
    pub(crate) oracles: [Oracle; 2],
    changes: Arc<Changes>,
    /// The breakers that an operator has looked at, each with the number of its circuit.
    views: Vec<(BreakerView, usize)>,
    found: BTreeMap<(usize, &'static str), Found>,
    /// What times are multiples of, in ns.
    step: u64,
    /// Where the naive engine cannot say what calls are told, it believes it; then calls wait for
    /// so long in all queues, in ms.
    believes: Option<u64>,
    /// The rules in force; they are stale until every resource has taken them over.
    pub(crate) rules: RuleSet,
    is_stale: bool,
    /// How many there have been.
    reloads: u32,
}

/// Whether both engines answer alike where that happens.
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

/// An engine and a naive one answer differently.
fn differ<T>(
    asks: Asks,
    now: u64,
    found: &dyn Debug,
    expected: &dyn Debug,
) -> Result<T, TestCaseError> {
    Err(TestCaseError::fail(format!(
        "{asks:?} at {now}: {found:?}, and not {expected:?}"
    )))
}

impl Pair {
    fn new(rules: RuleSet, longest_loan: u64, step: u64) -> Self {
        let (changes, probe) = (Arc::new(Changes::default()), ManualProbe::new());
        let side = Side::new(rules.rules(), |builder| {
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
            side,
            probe,
            oracles,
            changes,
            views: Vec::new(),
            found: BTreeMap::new(),
            step,
            believes: None,
            rules,
            is_stale: false,
            reloads: 0,
        }
    }

    /// One that believes what calls are told.
    pub(crate) fn believing(rules: RuleSet, max_wait: u64) -> Self {
        let mut pair = Self::new(rules.waiting(max_wait), max_wait.max(1), 1);
        pair.believes = Some(max_wait);
        pair
    }

    fn node(&self, way: usize, resource: &str) -> Option<NodeView> {
        match way {
            0 => self.side.bench.sentinel.node(resource),
            _ => self.side.bench.sentinel.outbound_node(resource),
        }
    }

    pub(crate) fn run(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Advance(ns) => self.advance(ns),
            Op::Rest => {
                let (oracle, now) = (&mut self.oracles[0], self.side.now());
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
                if let Some(place) = place(index, &self.side.entries) {
                    self.end(place, how);
                }
            }
            Op::Admit(index) => {
                if let Some(place) = place(index, &self.side.waiting) {
                    self.admit(place)?;
                }
            }
            Op::Drop(index) => {
                if let Some(place) = place(index, &self.side.waiting) {
                    self.leave(place);
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
        self.side.advance(ns / self.step * self.step);
    }

    // === calls ===

    fn call(&mut self, asks: Asks) -> Result<(), TestCaseError> {
        let (way, now) = (usize::from(asks.is_outbound), self.side.now());
        if self.is_stale {
            self.oracles[way].take_over(&self.rules, asks.resource);
        }
        let id = (way, self.oracles[way].calls.len());
        let found = self.side.call(&asks, id);
        if self.believes.is_some() {
            self.believe(asks, &found);
            return Ok(());
        }
        self.learn(way, asks.resource, &found)?;
        let oracle = &mut self.oracles[way];
        match (found, oracle.enter(asks, now)) {
            (Told::Pass, Ok(call)) if oracle.start_of(call) <= now => {
                let direction = [Direction::Inbound, Direction::Outbound][way];
                let entry = self.side.entries.last().map(|(entry, _)| entry);
                prop_assert_eq!(entry.unwrap().direction(), direction);
            }
            (Told::Wait(start), Ok(call)) if start == oracle.start_of(call) => {}
            // A call is not told when it could borrow.
            (Told::Block(blocked), Err(why))
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
            (found, Ok(call)) => return differ(asks, now, &found, &oracle.calls[call]),
            (found, Err(why)) => return differ(asks, now, &found, &why),
        }
        Ok(())
    }

    /// The naive engine has the call as it was told.
    pub(crate) fn believe(&mut self, asks: Asks, told: &Told<Blocked>) {
        let (oracle, now) = (&mut self.oracles[0], self.side.now());
        match told {
            Told::Pass => {
                let call = oracle.note(asks, now, now);
                oracle.calls[call].stage = Stage::Runs;
            }
            Told::Wait(start) => _ = oracle.note(asks, now, *start),
            Told::Block(_) => {}
        }
    }

    fn admit(&mut self, place: usize) -> Result<(), TestCaseError> {
        let ((way, call), now) = (self.side.waiting[place].1, self.side.now());
        let found = self.side.admit(place);
        let oracle = &mut self.oracles[way];
        if self.believes.is_some() {
            match found {
                Told::Pass => oracle.calls[call].stage = Stage::Runs,
                Told::Wait(_) => {}
                Told::Block(_) => oracle.forget(call),
            }
            return Ok(());
        }
        let (start, asks) = (oracle.start_of(call), oracle.calls[call].asks);
        if now < start {
            return match found {
                Told::Wait(found) if found == start => Ok(()),
                found => differ(asks, now, &found, &start),
            };
        }
        match (found, oracle.begin(call, now)) {
            (Told::Pass, Ok(())) => {}
            (Told::Block(blocked), Err(why)) if why.is_told(&blocked, now) => {
                saw("refused at its turn");
            }
            (found, expected) => return differ(asks, now, &found, &expected),
        }
        Ok(())
    }

    /// One that waits goes.
    fn leave(&mut self, place: usize) {
        let (way, call) = self.side.waiting[place].1;
        let seen = &self.oracles[way].calls[call];
        // Tokens that are refunded after their time may be spent.
        if !seen.is_loan || seen.at > self.side.now() {
            drop(self.side.waiting.swap_remove(place));
            self.oracles[way].forget(call);
            saw("leaves");
        }
    }

    fn end(&mut self, place: usize, how: End) {
        let (way, call) = self.side.entries[place].1;
        self.oracles[way].end(call, self.side.now(), how);
        self.side.end(place, how);
        self.found.clear();
    }

    /// All calls end, and nothing is left of them.
    fn rest(&mut self) -> Result<(), TestCaseError> {
        let starts = self.side.waiting.iter();
        let starts = starts.map(|(waiting, _)| waiting.start().as_nanos());
        let (latest, now) = (starts.max().unwrap_or(0), self.side.now());
        self.advance(latest.saturating_sub(now) + self.step);
        while !self.side.waiting.is_empty() {
            self.admit(0)?;
        }
        while !self.side.entries.is_empty() {
            self.end(0, End::Good);
        }
        self.compare()?;
        let inbound = self.side.bench.sentinel.inbound();
        prop_assert_eq!((inbound.concurrency(), inbound.waiting()), (0, 0));
        Ok(())
    }

    // === rules that change ===

    /// New rules come in force, for a resource when it is next called or looked at.
    fn reload(&mut self, edit: Edit) -> Result<(), TestCaseError> {
        let mut rules = self.rules.clone();
        rules.edit(edit);
        if let Some(max_wait) = self.believes {
            rules = rules.waiting(max_wait);
        }
        let is_new = rules.rules() != self.rules.rules();
        prop_assert_eq!(self.side.bench.sentinel.reload(rules.rules()), is_new);
        for oracle in &mut self.oracles {
            for resource in RESOURCES {
                // Nothing keeps a resource in its place that has lost all its rules.
                if self.rules.names(resource) && !rules.names(resource) {
                    oracle.take_over(&rules, resource);
                }
            }
            oracle.rules = rules.clone();
        }
        self.oracles[0].system.reload(rules.limits.clone());
        self.found.clear();
        self.rules = rules;
        self.is_stale = true;
        self.reloads += u32::from(is_new);
        if self.reloads > MANY {
            self.take_over();
        }
        saw("reloaded");
        Ok(())
    }

    /// Every resource that is known takes the rules over.
    pub(crate) fn take_over(&mut self) {
        for way in 0..self.oracles.len() {
            self.oracles[way].take_over_all(&self.rules);
            for resource in RESOURCES {
                self.node(way, resource);
            }
        }
        self.is_stale = false;
    }

    fn look(&mut self, index: Index) {
        self.take_over();
        let mut views = Vec::new();
        for resource in RESOURCES {
            let found = self.node(0, resource);
            let found = found.map_or(Vec::new(), |node| node.breakers());
            let circuits = self.oracles[0].circuits(resource);
            let numbers = circuits.map(|circuit| circuit.number);
            views.extend(found.into_iter().zip(numbers));
        }
        if !views.is_empty() {
            self.views.push(views.swap_remove(index.index(views.len())));
        }
    }

    // === what can be seen ===

    /// Figures and states are the same. A look at a resource has it take new rules over.
    fn compare(&mut self) -> Result<(), TestCaseError> {
        // They may be told in any order.
        let mut told = mem::take(&mut *self.changes.0.lock().unwrap());
        let oracles = self.oracles.iter_mut();
        let mut expected: Vec<_> = oracles.flat_map(Oracle::told).collect();
        for told in [&mut told, &mut expected] {
            told.sort_by_key(|(rule, from, to)| (rule.clone(), *from as u8, *to as u8));
        }
        prop_assert_eq!(told, expected);
        if self.is_stale {
            self.take_over();
        }
        let (now, has_outbound) = (self.side.now(), !self.oracles[1].came.is_empty());
        for way in 0..1 + usize::from(has_outbound) {
            for resource in RESOURCES {
                if let Some(node) = self.node(way, resource) {
                    self.oracles[way].agrees(resource, &node, now)?;
                    self.check_limit(way, resource, &node)?;
                } else {
                    let is_known = self.oracles[way].is_known(resource);
                    prop_assert!(!is_known || self.reloads > 0);
                }
            }
        }
        for (view, number) in &self.views {
            prop_assert_eq!(view.state(), self.oracles[0].circuit(*number).state());
        }
        self.oracles[0].agrees_on_all(&self.side.bench.sentinel, now)
    }

    // === limits that find themselves ===

    /// Takes over what the engine says of the limit of `resource`, whose last call was
    /// `told` that.
    fn learn(
        &mut self,
        way: usize,
        resource: &'static str,
        told: &Told<Blocked>,
    ) -> Result<(), TestCaseError> {
        let Some(adaptive) = self.rules.adaptives.get(resource) else {
            return Ok(());
        };
        let shedding = self.node(way, resource).unwrap().shedding().unwrap();
        // A refusal may change the limit: it is that by which the call was refused.
        let told = match told {
            Told::Block(blocked) if blocked.criticality().is_some() => blocked.limit(),
            _ => None,
        };
        let limit = told.unwrap_or_else(|| shedding.bound(Criticality::Critical));
        let range = adaptive.floor..=adaptive.ceiling;
        prop_assert!(range.contains(&limit), "{limit} of {adaptive:?}");
        self.oracles[way].found.insert(resource, limit);
        Ok(())
    }

    /// A limit stays in its range, and where it is while no call ends.
    fn check_limit(
        &mut self,
        way: usize,
        resource: &'static str,
        node: &NodeView,
    ) -> Result<(), TestCaseError> {
        if let Some(adaptive) = self.rules.adaptives.get(resource) {
            let limit = node.adaptive_limit().unwrap();
            let range = adaptive.floor..=adaptive.ceiling;
            prop_assert!(range.contains(&limit), "{limit} of {adaptive:?}");
            let found = self.found.entry((way, resource)).or_default();
            prop_assert_eq!(*found.limit.get_or_insert(limit), limit);
        }
        Ok(())
    }
}
