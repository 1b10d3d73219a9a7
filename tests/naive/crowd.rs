//! A naive engine with rules of all kinds.

use std::fmt::Debug;
use std::mem;

use proptest::prelude::*;
use tower_sentinel::{BlockKind, Blocked, BreakerView, KeyedView, NodeView};

use crate::breakers::{Change, Circuit, End, Part};
use crate::hot::{Count, Seen};
use crate::ledger::Ledger;
use crate::oracle::{Naive, Refusal};
use crate::setup::{RESOURCES, Setup};
use crate::versions::{Kind, Version, carry_over};
use crate::wants::Wants;

/// The naive engine with more rules.
pub(crate) struct Crowd {
    pub(crate) naive: Naive,
    ledgers: Vec<Ledger>,
    circuits: Vec<Circuit>,
    /// Those without a rule in force, for calls and views of before.
    retired: Vec<Circuit>,
    /// How many circuits there have been.
    made: usize,
    /// What passed. The calls that run are known by their place in it.
    pub(crate) seen: Vec<Seen>,
    pub(crate) came: Vec<Wants>,
}

/// Why a call is refused.
#[derive(Debug)]
pub(crate) enum Why {
    Authority,
    /// Until then, in ns.
    Breaker(Option<u64>),
    Isolation,
    /// Some of these rules are full, or miss a key. `None`: nobody knows until when.
    Rules(Vec<String>, Option<u64>),
}

impl Why {
    /// Whether `blocked` says that, at `now`.
    pub(crate) fn is_told(&self, blocked: &Blocked, now: u64) -> bool {
        let after = blocked.retry_after();
        let until = after.map(|after| now + after.as_nanos() as u64);
        let is_hot = blocked.kind() == BlockKind::Keyed;
        match (blocked.kind(), self) {
            (BlockKind::Authority, Self::Authority) | (BlockKind::Isolation, Self::Isolation) => {
                until.is_none()
            }
            (BlockKind::CircuitBreaker, Self::Breaker(at)) => until == *at,
            (kind, Self::Rules(full, at)) => {
                let is_right = match kind {
                    BlockKind::Flow => until == *at && !is_hot,
                    BlockKind::Keyed => until == *at && is_hot,
                    kind => kind == BlockKind::MissingKey && until.is_none(),
                };
                is_right && full.iter().any(|rule| rule == blocked.rule())
            }
            _ => false,
        }
    }
}

/// An engine and a naive one answer differently.
pub(crate) fn differ(
    wants: Wants,
    now: u64,
    found: &dyn Debug,
    expected: &dyn Debug,
) -> TestCaseError {
    let text = format!("{wants:?} at {now}: {found:?}, and not {expected:?}");
    TestCaseError::fail(text)
}

/// Those of keyed rules; flow rules by origin are kept in the same way.
fn views(node: &NodeView) -> impl Iterator<Item = KeyedView> {
    let views = node.keyed_rules().into_iter();
    views.filter(|view| {
        ["hot", "keyed"]
            .iter()
            .any(|name| view.rule().starts_with(name))
    })
}

impl Crowd {
    pub(crate) fn new(version: &Version) -> Self {
        let mut crowd = Self::without_changing(version.setup.clone());
        crowd.take_over_all(version);
        crowd
    }

    /// One without the rules that reloads change.
    fn without_changing(setup: Setup) -> Self {
        Self {
            naive: Naive::new(setup),
            came: Vec::new(),
            ledgers: Vec::new(),
            circuits: Vec::new(),
            retired: Vec::new(),
            made: 0,
            seen: Vec::new(),
        }
    }

    pub(crate) fn circuits(
        &mut self,
        resource: &'static str,
    ) -> impl Iterator<Item = &mut Circuit> {
        let circuits = self.circuits.iter_mut();
        circuits.filter(move |circuit| circuit.rule().resource == resource)
    }

    /// The circuit of that number, be a rule in force or not.
    pub(crate) fn circuit(&mut self, number: usize) -> &mut Circuit {
        let mut circuits = self.circuits.iter_mut().chain(&mut self.retired);
        let found = circuits.find(|circuit| circuit.number == number);
        found.unwrap()
    }

    /// What is told of the circuits of rules in force since the last time.
    pub(crate) fn told(&mut self) -> Vec<Change> {
        let told = |circuit: &mut Circuit| mem::take(&mut circuit.told);
        self.circuits.iter_mut().flat_map(told).collect()
    }

    pub(crate) fn ledgers(&self, resource: &'static str) -> impl Iterator<Item = &Ledger> {
        let ledgers = self.ledgers.iter();
        ledgers.filter(move |ledger| ledger.hot.resource == resource)
    }

    pub(crate) fn take_over_all(&mut self, version: &Version) {
        for resource in RESOURCES {
            self.take_over(version, resource);
        }
    }

    /// The rules of `version` for `resource` come in force.
    pub(crate) fn take_over(&mut self, version: &Version, resource: &'static str) {
        let since = (self.seen.len(), self.came.len());
        let ledgers = mem::take(&mut self.ledgers).into_iter();
        let (old, ledgers) = ledgers.partition(|ledger| ledger.hot.resource == resource);
        self.ledgers = ledgers;
        let new = version.hots().filter(|(hot, _)| hot.resource == resource);
        let (hots, names): (Vec<_>, Vec<_>) = new.unzip();
        let (old, _) = carry_over(&hots, old, |ledger| &ledger.hot, false);
        for ((hot, name), old) in hots.into_iter().zip(names).zip(old) {
            self.ledgers.push(match old {
                Some(old) => old.go_on(hot, name),
                None => Ledger::new(hot, name, since),
            });
        }
        let circuits = mem::take(&mut self.circuits).into_iter();
        let (old, circuits) = circuits.partition(|circuit| circuit.rule().resource == resource);
        self.circuits = circuits;
        let new = version.breakers();
        let new = new.filter(|(rule, _)| rule.resource == resource);
        let (new, names): (Vec<_>, Vec<_>) = new.unzip();
        let (old, left) = carry_over(&new, old, Circuit::named, true);
        self.retired.extend(left);
        for ((rule, name), old) in new.into_iter().zip(names).zip(old) {
            self.made += 1;
            let circuit = match old {
                Some(old) if old.rule().counts_like(&rule) => old.go_on(rule),
                Some(old) => {
                    let circuit = old.opened_alike(rule, self.made);
                    self.retired.push(old);
                    circuit
                }
                None => Circuit::new(rule, self.made),
            };
            self.circuits.push(circuit.called(name));
        }
    }

    pub(crate) fn enter(&mut self, wants: Wants, now: u64) -> Result<Vec<Part>, Why> {
        let call = wants.call;
        self.naive.called.insert(call.resource);
        self.came.push(wants);
        let verdict = self.judge(wants, now);
        if verdict.is_ok() {
            self.naive.passed.push((now, call));
            self.naive.running.push(call.resource);
            self.count(wants, now);
        } else {
            *self.naive.blocked.entry(call.resource).or_default() += u64::from(call.n);
        }
        verdict
    }

    /// The rules on parameters count a call, whose place is told.
    pub(crate) fn count(&mut self, wants: Wants, now: u64) -> usize {
        let index = self.seen.len();
        for ledger in &mut self.ledgers {
            ledger.count(index, &wants);
        }
        self.seen.push(Seen {
            at: now,
            wants,
            is_running: true,
        });
        index
    }

    /// The call at `index` was never there.
    pub(crate) fn forget(&mut self, index: usize) {
        self.seen[index].is_running = false;
        for ledger in &mut self.ledgers {
            ledger.forget(index);
        }
    }

    fn judge(&mut self, wants: Wants, now: u64) -> Result<Vec<Part>, Why> {
        let call = wants.call;
        let (mut full, mut until) = (Vec::new(), Some(now));
        let judged = self.naive.judge(&call, now);
        if let Err(Refusal::Authority) = judged {
            return Err(Why::Authority);
        }
        let flows = self.naive.setup.flows.iter().enumerate();
        for (index, flow) in flows.filter(|(_, flow)| flow.resource == call.resource) {
            let at = self.naive.available_at(flow, &call, now);
            if at != Some(now) {
                full.push(index.to_string());
            }
            until = until.zip(at).map(|(a, b)| a.max(b));
        }
        for ledger in &self.ledgers {
            let at = ledger.available_at(&wants, now, &self.seen);
            if at != Some(now) {
                full.push(ledger.name.clone());
            }
            let at = if ledger.hot.count == Count::Running {
                at.and(Some(now))
            } else {
                at
            };
            until = until.zip(at).map(|(a, b)| a.max(b));
        }
        let closed = self
            .circuits(call.resource)
            .map(|circuit| circuit.available_at(now))
            .try_fold(now, |latest, at| Some(latest.max(at?)));
        if closed != Some(now) {
            let latest = until.zip(closed).map(|(a, b)| a.max(b));
            return Err(Why::Breaker(latest));
        }
        if let Err(Refusal::Isolation) = judged {
            return Err(Why::Isolation);
        }
        if !full.is_empty() {
            return Err(Why::Rules(full, until));
        }
        Ok(self
            .circuits(call.resource)
            .map(|circuit| circuit.admit(now))
            .collect())
    }

    /// The call ends that passed as the one at `index`.
    pub(crate) fn end(&mut self, index: usize, parts: Vec<Part>, now: u64, end: End) {
        let seen = &mut self.seen[index];
        seen.is_running = false;
        let (at, resource) = (seen.at, seen.wants.call.resource);
        let mut running = self.naive.running.iter();
        let place = running.position(|running| *running == resource).unwrap();
        self.naive.running.swap_remove(place);
        for part in parts {
            self.circuit(part.place.circuit).end(part, at, now, end);
        }
    }

    /// Whether the figures of `resource` are those that `node` has.
    pub(crate) fn agrees(
        &mut self,
        resource: &'static str,
        node: &NodeView,
        now: u64,
    ) -> Result<(), TestCaseError> {
        let states: Vec<_> = node.breakers().iter().map(BreakerView::state).collect();
        let circuits = self.circuits(resource);
        let expected: Vec<_> = circuits.map(|circuit| circuit.state()).collect();
        prop_assert_eq!(states, expected);
        let naive = &self.naive;
        let running = naive.running.iter().filter(|running| **running == resource);
        prop_assert_eq!(node.concurrency() as usize, running.count());
        let blocked = naive.blocked.get(resource).copied();
        prop_assert_eq!(node.totals().block(), blocked.unwrap_or(0));
        let by_kind = node.totals().blocks().map(|(_, count)| count);
        prop_assert_eq!(by_kind.sum::<u64>(), node.totals().block());
        prop_assert_eq!(views(node).count(), self.ledgers(resource).count());
        for (ledger, view) in self.ledgers(resource).zip(views(node)) {
            prop_assert_eq!(view.rule(), &ledger.name);
            let wants = Wants::with_all(resource);
            let left = view.left(ledger.hot.value(&wants));
            let is_left = ledger.has_left(&wants, left, now, &self.seen);
            prop_assert!(is_left, "{:?}: {:?} left", ledger, left);
            let (passed, came) = ledger.missed(&self.seen, &self.came);
            prop_assert!((passed..=came).contains(&(view.missing() as usize)));
        }
        Ok(())
    }
}
