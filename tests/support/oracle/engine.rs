//! What the naive engine makes of calls: it knows all that were ever there.

use std::collections::BTreeMap;
use std::mem;

use super::call::{Asks, End, RESOURCES};
use super::circuit::{Change, Circuit, Part, Place};
use super::ledger::Ledger;
use super::rules::{Kind, RuleSet, carry_over};
use super::system::System;
use super::verdict::Why;

/// An engine in whose rules of all kinds nothing is ever too long ago.
pub(crate) struct Oracle {
    /// Those in force, as far as flow rules and limits on calls at once go.
    pub(crate) rules: RuleSet,
    pub(crate) system: System,
    /// For how long at most a call may hold tokens of a bucket to come, in ms.
    pub(crate) longest_loan: u64,
    /// What limits were found to be that find themselves.
    pub(crate) found: BTreeMap<&'static str, u32>,
    /// What passed or waits. Calls are known by their place in it.
    pub(crate) calls: Vec<Seen>,
    pub(crate) came: Vec<Asks>,
    pub(crate) blocked: BTreeMap<&'static str, u64>,
    /// The turns in the queue of a flow rule, by its key, each with its call. A call that
    /// leaves before another leaves a gap, which is one of them.
    pub(super) queues: BTreeMap<(usize, &'static str), Vec<(usize, u64)>>,
    pub(crate) ledgers: Vec<Ledger>,
    circuits: Vec<Circuit>,
    /// Those without a rule in force, for calls and views of before.
    retired: Vec<Circuit>,
    /// How many circuits there have been.
    made: usize,
    /// Whether a call has ever waited.
    pub(super) has_waited: bool,
}

/// A call that was not refused.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) asks: Asks,
    /// When it came, and for when its tokens are, in ns.
    pub(crate) came: u64,
    pub(crate) at: u64,
    pub(crate) stage: Stage,
    /// Where it stands with the breakers of its resource.
    places: Vec<Place>,
    parts: Vec<Part>,
    began: u64,
    /// Among all inbound calls.
    is_counted: bool,
    /// When its response was there, if that was before its end.
    head: Option<u64>,
    /// Whether it waits for tokens of a bucket to come.
    pub(crate) is_loan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    Waits,
    Runs,
    Ended(End),
    /// It never ran.
    Gone,
}

impl Oracle {
    pub(crate) fn new(rules: &RuleSet) -> Self {
        let mut oracle = Self {
            rules: rules.clone(),
            system: System::new(rules.limits.clone()),
            longest_loan: 500,
            found: BTreeMap::new(),
            calls: Vec::new(),
            came: Vec::new(),
            blocked: BTreeMap::new(),
            queues: BTreeMap::new(),
            ledgers: Vec::new(),
            circuits: Vec::new(),
            retired: Vec::new(),
            made: 0,
            has_waited: false,
        };
        oracle.take_over_all(rules);
        oracle
    }

    /// One for outbound calls, on which there are no rules for all calls together.
    pub(crate) fn outbound(rules: &RuleSet) -> Self {
        Self {
            system: System::default(),
            ..Self::new(rules)
        }
    }

    // === rules ===

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
        ledgers.filter(move |ledger| ledger.keyed.resource == resource)
    }

    pub(crate) fn take_over_all(&mut self, rules: &RuleSet) {
        for resource in RESOURCES {
            self.take_over(rules, resource);
        }
    }

    /// The rules for `resource` on parameters and of breakers come in force.
    pub(crate) fn take_over(&mut self, rules: &RuleSet, resource: &'static str) {
        let since = (self.calls.len(), self.came.len());
        let ledgers = mem::take(&mut self.ledgers).into_iter();
        let (old, ledgers) = ledgers.partition(|ledger| ledger.keyed.resource == resource);
        self.ledgers = ledgers;
        let new = rules.keyed().filter(|(rule, _)| rule.resource == resource);
        let (new, names): (Vec<_>, Vec<_>) = new.unzip();
        let (old, _) = carry_over(&new, old, |ledger| &ledger.keyed, false);
        for ((rule, name), old) in new.into_iter().zip(names).zip(old) {
            self.ledgers.push(match old {
                Some(old) => old.go_on(rule, name),
                None => Ledger::new(rule, name, since),
            });
        }
        let circuits = mem::take(&mut self.circuits).into_iter();
        let (old, circuits) = circuits.partition(|circuit| circuit.rule().resource == resource);
        self.circuits = circuits;
        let new = rules.breakers();
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

    // === calls ===

    /// What becomes of a call: its place among all, where it runs or waits until
    /// [`start_of`](Self::start_of).
    pub(crate) fn enter(&mut self, asks: Asks, now: u64) -> Result<usize, Why> {
        self.came.push(asks);
        match self.judge(&asks, now) {
            Ok((at, is_loan)) => {
                let call = self.note(asks, now, at);
                self.calls[call].is_loan = is_loan;
                if self.start_of(call) <= now {
                    self.start(call, now);
                }
                Ok(call)
            }
            Err(why) => {
                self.refuses(&asks);
                Err(why)
            }
        }
    }

    fn refuses(&mut self, asks: &Asks) {
        *self.blocked.entry(asks.resource).or_default() += u64::from(asks.weight);
    }

    /// The call passes or waits that has come `now`, with tokens for then.
    pub(crate) fn note(&mut self, asks: Asks, now: u64, at: u64) -> usize {
        let call = self.calls.len();
        self.has_waited |= at > now;
        for (index, turn) in self.turns(&asks, now) {
            let key = self.rules.key(&self.rules.flows[index], &asks).unwrap();
            self.queues
                .entry((index, key))
                .or_default()
                .push((call, turn));
        }
        for ledger in &mut self.ledgers {
            ledger.count(call, &asks, now);
        }
        let circuits = self.circuits(asks.resource);
        let places = circuits.map(|circuit| circuit.place()).collect();
        self.calls.push(Seen {
            asks,
            came: now,
            at,
            stage: Stage::Waits,
            places,
            parts: Vec::new(),
            began: now,
            is_counted: false,
            head: None,
            is_loan: false,
        });
        call
    }

    pub(crate) fn start_of(&self, call: usize) -> u64 {
        self.calls[call].at
    }

    /// The call has its turn.
    pub(crate) fn begin(&mut self, call: usize, now: u64) -> Result<(), Why> {
        let asks = self.calls[call].asks;
        let open = self.opens_at(&self.calls[call].places.clone(), now);
        let why = match self.full_slots(asks.resource) {
            Some(rule) => Why::Slots(rule),
            None if open != Some(now) => Why::Breaker(open),
            None => {
                self.start(call, now);
                return Ok(());
            }
        };
        self.forget(call);
        self.refuses(&asks);
        Err(why)
    }

    fn start(&mut self, call: usize, now: u64) {
        let places = mem::take(&mut self.calls[call].places);
        let parts = places.into_iter();
        let parts = parts.map(|place| self.circuit(place.circuit).admit(place, now));
        let parts = parts.collect();
        let seen = &mut self.calls[call];
        (seen.parts, seen.began, seen.stage) = (parts, now, Stage::Runs);
        seen.is_counted = self.system.passes(seen.asks.weight, now);
    }

    /// The head of its response is there, and its body goes on.
    pub(crate) fn responds(&mut self, call: usize, now: u64, end: End) {
        self.calls[call].head = Some(now);
        self.tell_breakers(call, now, end);
    }

    pub(crate) fn end(&mut self, call: usize, now: u64, end: End) {
        self.tell_breakers(call, now, end);
        let seen = &mut self.calls[call];
        seen.stage = Stage::Ended(end);
        let (weight, rt) = (seen.asks.weight, seen.head.unwrap_or(now) - seen.began);
        if seen.is_counted {
            self.system.ends(weight, rt, now, end);
        }
        for ledger in &mut self.ledgers {
            ledger.ends(call);
        }
    }

    fn tell_breakers(&mut self, call: usize, now: u64, end: End) {
        let parts = mem::take(&mut self.calls[call].parts);
        let began = self.calls[call].began;
        for part in parts {
            let circuit = self.circuit(part.place.circuit);
            circuit.end(part, began, now, end);
        }
    }

    /// The call was never there.
    pub(crate) fn forget(&mut self, call: usize) {
        self.calls[call].stage = Stage::Gone;
        for ledger in &mut self.ledgers {
            ledger.forget(call);
        }
        for queue in self.queues.values_mut() {
            // Those that stand behind it have been told when they start.
            if queue.last().is_some_and(|(last, _)| *last == call) {
                queue.pop();
            }
        }
    }
}
