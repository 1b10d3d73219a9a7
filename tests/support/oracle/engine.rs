//! What the naive engine makes of calls: it knows all that were ever there.

use std::collections::BTreeMap;
use std::mem;

use tower_sentinel::system::SystemReason;
use tower_sentinel::{BlockKind, Blocked};

use super::call::{Asks, End, NS, RESOURCES};
use super::circuit::{Change, Circuit, Part, Place};
use super::flow::{Flow, turn};
use super::keyed::Count;
use super::ledger::Ledger;
use super::rules::{Kind, RuleSet, carry_over};
use super::system::System;

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
    /// The turns in the queue of a flow rule, by its key, each with its call. Who leaves
    /// before another leaves a gap, which is one of them.
    queues: BTreeMap<(usize, &'static str), Vec<(usize, u64)>>,
    pub(crate) ledgers: Vec<Ledger>,
    circuits: Vec<Circuit>,
    /// Those without a rule in force, for calls and views of before.
    retired: Vec<Circuit>,
    /// How many circuits there have been.
    made: usize,
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

/// Why a call is refused. Times are in ns; `None`: nobody knows until when.
#[derive(Clone, Debug)]
pub(crate) enum Why {
    Authority,
    System(SystemReason, usize),
    Breaker(Option<u64>),
    /// So many calls run: by this rule.
    Slots(String),
    /// Some of these rules are full, or miss a key: flow rules, and those on parameters.
    Rules(Vec<String>, Vec<String>, Option<u64>),
    /// It would have to wait for too long.
    Patience,
}

impl Why {
    /// Whether `blocked` says that, whatever the time.
    pub(crate) fn is_kind_of(&self, blocked: &Blocked) -> bool {
        let rule = blocked.rule();
        let names = |rules: &[String]| rules.iter().any(|own| own == rule);
        match (blocked.kind(), self) {
            (BlockKind::Authority, Self::Authority) => true,
            (BlockKind::System, Self::System(reason, index)) => {
                blocked.system_reason() == Some(*reason) && rule == format!("system-{index}")
            }
            (BlockKind::CircuitBreaker, Self::Breaker(_)) => true,
            (BlockKind::Isolation, Self::Slots(name)) => rule == name,
            (BlockKind::Flow, Self::Rules(flows, ..)) => names(flows),
            (BlockKind::Keyed, Self::Rules(_, keyed, _)) => names(keyed),
            (BlockKind::MissingKey, Self::Rules(flows, keyed, _)) => names(flows) || names(keyed),
            (kind, Self::Patience) => [BlockKind::Flow, BlockKind::Keyed].contains(&kind),
            _ => false,
        }
    }

    /// Whether `blocked` says that, at `now`.
    pub(crate) fn is_told(&self, blocked: &Blocked, now: u64) -> bool {
        let after = blocked.retry_after();
        let until = after.map(|after| now + after.as_nanos() as u64);
        let expected = match self {
            Self::Breaker(at) => *at,
            Self::Rules(.., at) if blocked.kind() != BlockKind::MissingKey => *at,
            _ => None,
        };
        self.is_kind_of(blocked) && until == expected
    }
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
        let parts = parts.map(|place| self.circuit(place.circuit).admit_by(place, now));
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

    // === verdicts ===

    /// Of those of `resource` that run.
    pub(crate) fn running(&self, resource: &str) -> usize {
        self.count(resource, |seen| seen.stage == Stage::Runs)
    }

    pub(crate) fn waiting(&self, resource: &str) -> usize {
        self.count(resource, |seen| seen.stage == Stage::Waits)
    }

    fn count(&self, resource: &str, is_it: impl Fn(&Seen) -> bool) -> usize {
        let own = |seen: &&Seen| seen.asks.resource == resource && is_it(seen);
        self.calls.iter().filter(own).count()
    }

    pub(crate) fn tokens(&self, resource: &str, since: u64) -> u64 {
        let own = |seen: &&Seen| {
            let is_own = seen.asks.resource == resource && seen.at >= since;
            is_own && seen.stage != Stage::Gone
        };
        let own = self.calls.iter().filter(own);
        own.map(|seen| u64::from(seen.asks.weight)).sum()
    }

    pub(crate) fn is_known(&self, resource: &str) -> bool {
        self.came.iter().any(|asks| asks.resource == resource)
    }

    /// What passed that `flow` counts together with `call`, and when; `None` if it does not
    /// count that one.
    pub(crate) fn counted_with(&self, flow: &Flow, call: &Asks) -> Option<Vec<(u64, u32)>> {
        Some(self.counted(flow, self.rules.key(flow, call)?))
    }

    fn counted(&self, flow: &Flow, key: &str) -> Vec<(u64, u32)> {
        let counted = self.calls.iter().filter(|seen| {
            seen.stage != Stage::Gone && self.rules.key(flow, &seen.asks) == Some(key)
        });
        counted.map(|seen| (seen.at, seen.asks.weight)).collect()
    }

    /// From when on the flow rule lets `call` pass or wait, and its turn then; `None`: never.
    fn flow_turn(&self, index: usize, call: &Asks, now: u64) -> Option<(u64, u64)> {
        let flow = &self.rules.flows[index];
        let passes = Some((now, now));
        let key = if flow.is_related() {
            if !self.is_known(flow.counts()) {
                return passes;
            }
            ""
        } else if flow.misses_key(call) {
            return None;
        } else if let Some(key) = self.rules.key(flow, call) {
            key
        } else {
            return passes;
        };
        if call.weight == 0 && (flow.is_table() || flow.queue.is_some()) {
            return passes;
        }
        let Some(max_wait) = flow.queue else {
            let passed = self.counted(flow, key);
            return Some((flow.available_at(now, call.weight, &passed)?, now));
        };
        let queue = self.queues.get(&(index, key));
        let last = queue.and_then(|turns| turns.last()).map(|(_, turn)| *turn);
        turn(now, last, flow.cost(call.weight), max_wait)
    }

    /// The turns of a call in the queues of flow rules, each with the number of its rule.
    fn turns(&self, asks: &Asks, now: u64) -> Vec<(usize, u64)> {
        let flows = self.rules.flows.iter().enumerate();
        let queues = flows.filter(|(_, flow)| {
            let is_counted = self.rules.key(flow, asks).is_some();
            flow.queue.is_some() && asks.weight > 0 && is_counted
        });
        let turns =
            queues.filter_map(|(index, _)| Some((index, self.flow_turn(index, asks, now)?.1)));
        turns.collect()
    }

    /// Which limit on the calls at once is reached; of two, the tighter one.
    fn full_slots(&self, resource: &str) -> Option<String> {
        let running = self.running(resource);
        let fixed = self.rules.isolation.filter(|(own, _)| *own == resource);
        let fixed = fixed.map(|(_, most)| (most, self.rules.isolation_name()));
        let found = self.found.get(resource);
        let found = found.map(|most| (*most, super::Adaptive::id(resource)));
        let tighter = fixed
            .into_iter()
            .chain(found)
            .reduce(|fixed, found| if found.0 < fixed.0 { found } else { fixed });
        tighter
            .filter(|(most, _)| running >= *most as usize)
            .map(|(_, rule)| rule)
    }

    /// When all breakers let a call pass that stands there; `None`: nobody knows.
    pub(crate) fn opens_at(&mut self, places: &[Place], now: u64) -> Option<u64> {
        places.iter().try_fold(now, |latest, place| {
            let circuit = self.circuit(place.circuit);
            Some(latest.max(circuit.room_by(*place, now)?))
        })
    }

    /// When all breakers let a call pass that comes `now`; `None`: nobody knows.
    pub(crate) fn opens(&mut self, resource: &'static str, now: u64) -> Option<u64> {
        let circuits = self.circuits(resource);
        let places: Vec<_> = circuits.map(|circuit| circuit.place()).collect();
        self.opens_at(&places, now)
    }

    /// For when the call has tokens, and whether they are lent.
    fn judge(&mut self, asks: &Asks, now: u64) -> Result<(u64, bool), Why> {
        let caller = asks.origin.map(|origin| (asks.resource, origin));
        if caller.is_some() && self.rules.denied == caller {
            return Err(Why::Authority);
        }
        if let Some((reason, index)) = self.system.refuses(asks.weight, now) {
            return Err(Why::System(reason, index));
        }
        let (mut flows, mut keyed) = (Vec::new(), Vec::new());
        let (mut until, mut start) = (Some(now), now);
        for (index, flow) in self.rules.flows.iter().enumerate() {
            if flow.resource != asks.resource {
                continue;
            }
            let room = self.flow_turn(index, asks, now);
            if room.is_none_or(|(at, _)| at > now) {
                flows.push((self.rules.first + index).to_string());
            }
            start = start.max(room.map_or(now, |(_, turn)| turn));
            until = until.zip(room).map(|(until, (at, _))| until.max(at));
        }
        for ledger in &self.ledgers {
            let mut at = ledger.available_at(asks, now);
            if at != Some(now) {
                keyed.push(ledger.name.clone());
            } else if let Some((_, turn)) = ledger.turn(asks, now) {
                start = start.max(turn);
            }
            if ledger.keyed.count == Count::Running {
                at = at.and(Some(now));
            }
            until = until.zip(at).map(|(until, at)| until.max(at));
        }
        let open = self.opens(asks.resource, now);
        if open != Some(now) {
            let latest = until.zip(open).map(|(until, open)| until.max(open));
            return Err(Why::Breaker(latest));
        }
        if let Some(rule) = self.full_slots(asks.resource) {
            return Err(Why::Slots(rule));
        }
        if !(flows.is_empty() && keyed.is_empty()) {
            let borrowed = self.borrow(asks, now).filter(|_| keyed.is_empty());
            let full = Why::Rules(flows, keyed, until);
            return borrowed.map(|at| (at, true)).ok_or(full);
        }
        let wait = start - now;
        if wait > 0 && asks.patience.is_some_and(|most| wait >= most * NS) {
            return Err(Why::Patience);
        }
        Ok((start, false))
    }
}
