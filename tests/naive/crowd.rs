//! A naive engine with rules of all kinds.

use proptest::prelude::*;
use tower_sentinel::{BlockKind, Blocked, BreakerView, HotParamView, NodeView};

use crate::breakers::{Circuit, End, Part};
use crate::company::Company;
use crate::hot::{Count, Hot, Seen};
use crate::oracle::{Naive, Refusal};
use crate::setup::Whose;
use crate::wants::Wants;

/// The naive engine with more rules.
pub(crate) struct Crowd {
    pub(crate) naive: Naive,
    pub(crate) hots: Vec<Hot>,
    circuits: Vec<Circuit>,
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
        let is_hot = blocked.rule().starts_with("hot");
        match (blocked.kind(), self) {
            (BlockKind::Authority, Self::Authority) | (BlockKind::Isolation, Self::Isolation) => {
                until.is_none()
            }
            (BlockKind::CircuitBreaker, Self::Breaker(at)) => until == *at,
            (kind, Self::Rules(full, at)) => {
                let is_right = match kind {
                    BlockKind::Flow => until == *at && !is_hot,
                    BlockKind::HotParam => until == *at && is_hot,
                    kind => kind == BlockKind::MissingKey && until.is_none(),
                };
                is_right && full.iter().any(|rule| rule == blocked.rule())
            }
            _ => false,
        }
    }
}

/// Those of hot-parameter rules; flow rules by origin are kept in the same way.
fn views(node: &NodeView) -> impl Iterator<Item = HotParamView> {
    let views = node.hot_params().into_iter();
    views.filter(|view| view.rule().starts_with("hot"))
}

impl Crowd {
    pub(crate) fn new(company: Company) -> Self {
        Self {
            naive: Naive::new(company.setup),
            came: Vec::new(),
            hots: company.hots,
            circuits: company.breakers.into_iter().map(Circuit::new).collect(),
            seen: Vec::new(),
        }
    }

    pub(crate) fn circuits(
        &mut self,
        resource: &'static str,
    ) -> impl Iterator<Item = &mut Circuit> {
        let circuits = self.circuits.iter_mut();
        circuits.filter(move |circuit| circuit.rule.resource == resource)
    }

    pub(crate) fn enter(&mut self, wants: Wants, now: u64) -> Result<Vec<Part>, Why> {
        let call = wants.call;
        self.naive.called.insert(call.resource);
        self.came.push(wants);
        let verdict = self.judge(wants, now);
        if verdict.is_ok() {
            self.naive.passed.push((now, call));
            self.naive.running.push(call.resource);
            self.seen.push(Seen {
                at: now,
                wants,
                is_running: true,
            });
        } else {
            *self.naive.blocked.entry(call.resource).or_default() += u64::from(call.n);
        }
        verdict
    }

    fn judge(&mut self, wants: Wants, now: u64) -> Result<Vec<Part>, Why> {
        let call = wants.call;
        let (mut full, mut until) = (Vec::new(), Some(now));
        // All that is asked before a call may be a probe.
        let mut early = false;
        let judged = self.naive.judge(&call, now);
        if let Err(Refusal::Authority) = judged {
            return Err(Why::Authority);
        }
        let flows = self.naive.setup.flows.iter().enumerate();
        for (index, flow) in flows.filter(|(_, flow)| flow.resource == call.resource) {
            let at = self.naive.room_at(flow, &call, now);
            if at != Some(now) {
                full.push(index.to_string());
                let is_early = flow.is_table() || flow.line.is_some();
                early |=
                    is_early || matches!(flow.whose, Whose::Related(_)) || flow.misses_key(&call);
            }
            until = until.zip(at).map(|(a, b)| a.max(b));
        }
        for (index, hot) in self.hots.iter().enumerate() {
            let at = hot.room_at(&wants, now, &self.seen);
            if at != Some(now) {
                full.push(format!("hot-{index}"));
                early = true;
            }
            let at = if hot.count == Count::Running {
                at.and(Some(now))
            } else {
                at
            };
            until = until.zip(at).map(|(a, b)| a.max(b));
        }
        let closed = self
            .circuits(call.resource)
            .map(|circuit| circuit.room_at(now))
            .max();
        if let Some(closed) = closed.filter(|at| *at > now) {
            return Err(Why::Breaker(until.map(|until| until.max(closed))));
        }
        if let Err(Refusal::Isolation) = judged {
            return Err(Why::Isolation);
        }
        if early {
            return Err(Why::Rules(full, until));
        }
        let parts: Vec<_> = self
            .circuits(call.resource)
            .map(|circuit| circuit.admit(now))
            .collect();
        if full.is_empty() {
            return Ok(parts);
        }
        for (circuit, part) in self.circuits(call.resource).zip(parts) {
            circuit.give_back(part);
        }
        Err(Why::Rules(full, until))
    }

    /// The call ends that passed as the one at `index`.
    pub(crate) fn end(&mut self, index: usize, parts: Vec<Part>, now: u64, end: End) {
        let seen = &mut self.seen[index];
        seen.is_running = false;
        let (at, resource) = (seen.at, seen.wants.call.resource);
        let mut running = self.naive.running.iter();
        let place = running.position(|running| *running == resource).unwrap();
        self.naive.running.swap_remove(place);
        for (circuit, part) in self.circuits(resource).zip(parts) {
            circuit.end(part, at, now, end);
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
        let hots = self.hots.iter().filter(|hot| hot.resource == resource);
        for (hot, view) in hots.zip(views(node)) {
            let wants = Wants::with_all(resource);
            let left = view.left(hot.value(&wants));
            let is_left = hot.has_left(&wants, left, now, &self.seen);
            prop_assert!(is_left, "{:?}: {:?} left", hot, left);
            let seen = self.seen.iter().filter(|seen| hot.is_missed(&seen.wants));
            let came = self.came.iter().filter(|wants| hot.is_missed(wants));
            let missing = view.missing() as usize;
            prop_assert!((seen.count()..=came.count()).contains(&missing));
        }
        Ok(())
    }
}
