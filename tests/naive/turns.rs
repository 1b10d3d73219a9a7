//! Tasks against a naive engine in which calls wait in queues: who waits, exactly how
//! long, and what comes of it then.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use tower_sentinel::{
    AdaptiveRule, BlockKind, Blocked, BreakerView, FlowRule, Rule, Rules, Sentinel,
};

use crate::asked::{Asked, manner, mild, task_op};
use crate::breakers::{End, Part};
use crate::company::{Company, company};
use crate::crowd::Crowd;
use crate::hot::Count;
use crate::setup::{NS, RESOURCES, Whose};
use crate::system::{Limits, System, limits};
use crate::table::{Other, Told};
use crate::tasks::run;
use crate::twists::waiting_rules;

/// A queue: the rule, and by what it tells calls apart.
type Queue = (String, &'static str);

struct Turns {
    /// Those on all inbound calls.
    system: System,
    /// A limit that finds itself where it may only be: as good as a fixed one.
    found: Option<(&'static str, u32)>,
    rules: Vec<Rule>,
    reloads: u32,
    max_wait: u64,
    crowd: Crowd,
    /// The turns of each queue. A gap that stays is one of them.
    queues: BTreeMap<Queue, Vec<u64>>,
    calls: BTreeMap<usize, Its>,
    now: u64,
}

/// What a call has that waits or runs.
struct Its {
    /// Its place among all that were seen.
    seen: usize,
    resource: &'static str,
    turns: Vec<(Queue, u64)>,
    start: u64,
    /// Once it runs.
    parts: Option<Vec<Part>>,
    /// Among all inbound calls.
    is_counted: bool,
    /// When its response was there, if that was before its end.
    head: Option<u64>,
}

impl Turns {
    fn new(
        mut company: Company,
        limits: Vec<Limits>,
        found: Option<(&'static str, u32)>,
        max_wait: u64,
    ) -> Self {
        let mut rules = waiting_rules(&mut company, max_wait);
        for (index, limits) in limits.iter().enumerate() {
            rules = rules.with(limits.rule(index));
        }
        if let Some((resource, most)) = found {
            let rule = AdaptiveRule::new(resource).floor(most).ceiling(most);
            rules = rules.with(rule);
        }
        Self {
            system: System::new(limits),
            found,
            rules: rules.iter().cloned().collect(),
            reloads: 0,
            max_wait: max_wait * NS,
            crowd: Crowd::new(&company.into()),
            queues: BTreeMap::new(),
            calls: BTreeMap::new(),
            now: 0,
        }
    }

    /// A turn for a call of that cost, if it need not wait for too long.
    fn turn(&self, queue: &Queue, cost: Option<u64>) -> Option<u64> {
        let last = self.queues.get(queue).and_then(|turns| turns.last());
        let turn = last.map_or(Some(self.now), |last| Some(self.now.max(last + cost?)));
        turn.filter(|turn| cost.is_some() && turn - self.now <= self.max_wait)
    }

    fn is_full(&self, resource: &str) -> bool {
        let naive = &self.crowd.naive;
        let running = naive.running.iter().filter(|running| **running == resource);
        let running = running.count();
        let mut limits = naive.setup.isolation.iter().chain(&self.found);
        limits.any(|(own, most)| *own == resource && running >= *most as usize)
    }

    fn is_open(&mut self, resource: &'static str) -> bool {
        let now = self.now;
        let mut circuits = self.crowd.circuits(resource);
        circuits.any(|circuit| circuit.available_at(now) != Some(now))
    }

    /// Who refuses the call, by one of these kinds, or its turns.
    fn judge(&mut self, asked: &Asked) -> Result<Vec<(Queue, u64)>, Vec<BlockKind>> {
        let (wants, call) = (asked.wants, asked.wants.call);
        let caller = call.origin.map(|origin| (call.resource, origin));
        if caller.is_some() && self.crowd.naive.setup.denied == caller {
            return Err(vec![BlockKind::Authority]);
        }
        if self.system.refuses(call.n, self.now).is_some() {
            return Err(vec![BlockKind::System]);
        }
        if self.is_open(call.resource) {
            return Err(vec![BlockKind::CircuitBreaker]);
        }
        if self.is_full(call.resource) {
            return Err(vec![BlockKind::Isolation]);
        }
        let naive = &self.crowd.naive;
        let flows = naive.setup.flows.iter().enumerate();
        let flows: Vec<_> = flows
            .filter(|(_, flow)| flow.resource == call.resource)
            .collect();
        if flows.iter().any(|(_, flow)| flow.misses_key(&call)) {
            return Err(vec![BlockKind::MissingKey]);
        }
        let (mut turns, mut full) = (Vec::new(), Vec::new());
        for ledger in self.crowd.ledgers(call.resource) {
            let hot = &ledger.hot;
            if hot.refuses_missing(&wants) {
                full.push(BlockKind::MissingKey);
            } else if let Count::Running = hot.count {
                if ledger.available_at(&wants, self.now, &self.crowd.seen) != Some(self.now) {
                    full.push(BlockKind::Keyed);
                }
            } else if let Some(key) = hot.key(&wants).filter(|_| call.n > 0) {
                let queue = (ledger.name.clone(), key);
                match self.turn(&queue, hot.cost(&wants)) {
                    Some(turn) => turns.push((queue, turn)),
                    None => full.push(BlockKind::Keyed),
                }
            }
        }
        if !full.is_empty() {
            return Err(full);
        }
        for (index, flow) in flows {
            if let Some(key) = naive.key(flow, &call).filter(|_| call.n > 0) {
                let queue = (index.to_string(), key);
                let turn = self.turn(&queue, flow.cost(call.n));
                turns.push((queue, turn.ok_or_else(|| vec![BlockKind::Flow])?));
            }
        }
        let wait = turns.iter().map(|(_, turn)| turn - self.now).max();
        let wait = wait.filter(|wait| *wait > 0);
        match asked.patience.zip(wait) {
            Some((most, wait)) if wait >= most * NS => Err(vec![BlockKind::Flow, BlockKind::Keyed]),
            _ => Ok(turns),
        }
    }

    /// The call runs.
    fn start(&mut self, id: usize) {
        let its = self.calls.get_mut(&id).unwrap();
        let now = self.now;
        let circuits = self.crowd.circuits(its.resource);
        its.parts = Some(circuits.map(|circuit| circuit.admit(now)).collect());
        let seen = &mut self.crowd.seen[its.seen];
        seen.at = now;
        its.is_counted = self.system.passes(seen.wants.call.n, now);
        self.crowd.naive.running.push(its.resource);
    }
}

impl Other for Turns {
    type Refusal = Vec<BlockKind>;

    fn is_right(&self, refusal: &Vec<BlockKind>, found: &Blocked) -> bool {
        refusal.contains(&found.kind())
    }

    fn set(&mut self, now: u64) {
        self.now = now;
    }

    fn comes(&mut self, id: usize, asked: &Asked) -> Told<Vec<BlockKind>> {
        let turns = match self.judge(asked) {
            Ok(turns) => turns,
            Err(kinds) => return Told::Block(kinds),
        };
        for (queue, turn) in &turns {
            let queue = self.queues.entry(queue.clone()).or_default();
            queue.push(*turn);
        }
        let start = turns.iter().map(|(_, turn)| *turn).max();
        let start = start.unwrap_or(self.now);
        let its = Its {
            seen: self.crowd.count(asked.wants, self.now),
            resource: asked.wants.call.resource,
            turns,
            start,
            parts: None,
            is_counted: false,
            head: None,
        };
        self.calls.insert(id, its);
        if start > self.now {
            return Told::Wait(start);
        }
        self.start(id);
        Told::Pass
    }

    fn begins(&mut self, id: usize) -> Told<Vec<BlockKind>> {
        let its = &self.calls[&id];
        let (start, resource) = (its.start, its.resource);
        if self.now < start {
            return Told::Wait(start);
        }
        let kind = if self.is_full(resource) {
            BlockKind::Isolation
        } else if self.is_open(resource) {
            BlockKind::CircuitBreaker
        } else {
            self.start(id);
            return Told::Pass;
        };
        self.goes(id);
        Told::Block(vec![kind])
    }

    fn goes(&mut self, id: usize) {
        let its = self.calls.remove(&id).unwrap();
        self.crowd.forget(its.seen);
        for (queue, turn) in its.turns {
            // Who stands behind it has been told when it starts.
            let queue = self.queues.get_mut(&queue).unwrap();
            if queue.last() == Some(&turn) {
                queue.pop();
            }
        }
    }

    fn responds(&mut self, id: usize, end: End) {
        // Breakers learn of it now, and of nothing that comes after.
        let (now, its) = (self.now, self.calls.get_mut(&id).unwrap());
        let start = self.crowd.seen[its.seen].at;
        let parts = its.parts.replace(Vec::new()).unwrap();
        for part in parts {
            let circuit = self.crowd.circuit(part.place.circuit);
            circuit.end(part, start, now, end);
        }
        its.head = Some(now);
    }

    fn ends(&mut self, id: usize, end: End) {
        let its = self.calls.remove(&id).unwrap();
        let seen = &self.crowd.seen[its.seen];
        let n = seen.wants.call.n;
        if its.is_counted {
            let rt = its.head.unwrap_or(self.now) - seen.at;
            self.system.ends(n, rt, self.now, end);
        }
        self.crowd.end(its.seen, its.parts.unwrap(), self.now, end);
    }

    fn reload(&mut self, index: Index) -> Rules {
        // The same rules in another order, with one more for another resource.
        self.reloads += 1;
        let mut turned = self.rules.clone();
        turned.rotate_left(index.index(self.rules.len().max(1)));
        turned.push(FlowRule::per_second("else", self.reloads).into());
        Rules::build(turned).unwrap()
    }

    fn agrees(&mut self, sentinel: &Sentinel) -> Result<(), TestCaseError> {
        for resource in RESOURCES {
            let naive = &self.crowd.naive;
            let node = sentinel.node(resource).unwrap();
            let its = || self.calls.values().filter(|its| its.resource == resource);
            let running = its().filter(|its| its.parts.is_some()).count();
            prop_assert_eq!(node.waiting() as usize, its().count() - running);
            // Who waits for its turn may count as running since its bucket began.
            let waiting = its().filter(|its| its.parts.is_none());
            let early: u32 = waiting
                .map(|its| self.crowd.seen[its.seen].wants.call.n)
                .sum();
            let found = node.concurrency() as usize;
            prop_assert!((running..=running + early as usize).contains(&found));
            if naive
                .setup
                .isolation
                .is_some_and(|(own, _)| own == resource)
            {
                prop_assert_eq!(node.slots_in_use() as usize, running);
            }
            let mut states: Vec<_> = node
                .breakers()
                .iter()
                .map(|view: &BreakerView| (view.rule().to_owned(), view.state()))
                .collect();
            states.sort_by(|a, b| a.0.cmp(&b.0));
            let states: Vec<_> = states.into_iter().map(|(_, state)| state).collect();
            let expected: Vec<_> = self
                .crowd
                .circuits(resource)
                .map(|circuit| circuit.state())
                .collect();
            prop_assert_eq!(states, expected);
        }
        let waiting = self.calls.values().filter(|its| its.parts.is_none());
        prop_assert_eq!(sentinel.inbound().waiting() as usize, waiting.count());
        Ok(())
    }
}

/// Nothing but queues, and what counts calls that run.
fn queues_only(company: &mut Company) {
    let flows = &mut company.setup.flows;
    flows.retain(|flow| !matches!(flow.whose, Whose::Related(_)));
    for flow in flows {
        flow.is_strict = false;
        if flow.is_table() {
            flow.whose = Whose::OtherOrigins;
        }
        flow.queue = Some(0);
    }
    for hot in &mut company.hots {
        if hot.count != Count::Running {
            hot.count = Count::Queue(0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn tasks_start_at_the_turn_that_a_naive_queue_gives_them(
        mut company in prop_oneof![company(), mild()],
        manner in manner(),
        delay in prop_oneof![2 => Just(0_u64), 1 => 0_u64..50],
        ops in prop::collection::vec(task_op(true), 1..100),
        are_aborted in any::<bool>(),
        limits in prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(limits(), 1..3)],
        found in prop::option::weighted(0.3, (select(&RESOURCES[..]), 1_u32..4)),
    ) {
        queues_only(&mut company);
        let other = Turns::new(company, limits, found, manner.max_wait);
        let rules = Rules::build(other.rules.clone()).unwrap();
        run(other, (rules, manner), delay, ops, are_aborted, |_, _| Ok(()))?;
    }
}
