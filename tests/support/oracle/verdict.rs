//! What the naive engine answers to a call, and why.

use tower_sentinel::system::SystemReason;
use tower_sentinel::{BlockKind, Blocked};

use super::call::{Asks, NS};
use super::circuit::Place;
use super::engine::{Oracle, Seen, Stage};
use super::flow::{Flow, turn};
use super::keyed::Count;
use super::system::Adaptive;

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
    pub(super) fn turns(&self, asks: &Asks, now: u64) -> Vec<(usize, u64)> {
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
    pub(super) fn full_slots(&self, resource: &str) -> Option<String> {
        let running = self.running(resource);
        let fixed = self.rules.isolation.filter(|(own, _)| *own == resource);
        let fixed = fixed.map(|(_, most)| (most, self.rules.isolation_name()));
        let found = self.found.get(resource);
        let found = found.map(|most| (*most, Adaptive::id(resource)));
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
            Some(latest.max(circuit.opens_at(*place, now)?))
        })
    }

    /// When all breakers let a call pass that comes `now`; `None`: nobody knows.
    pub(crate) fn opens(&mut self, resource: &'static str, now: u64) -> Option<u64> {
        let circuits = self.circuits(resource);
        let places: Vec<_> = circuits.map(|circuit| circuit.place()).collect();
        self.opens_at(&places, now)
    }

    /// For when the call has tokens, and whether they are lent.
    pub(super) fn judge(&mut self, asks: &Asks, now: u64) -> Result<(u64, bool), Why> {
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
