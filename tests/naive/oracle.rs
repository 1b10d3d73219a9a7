//! An engine that remembers every call for ever.

use std::collections::{BTreeMap, BTreeSet};

use tower_sentinel::MissingKey;

use crate::setup::{Asks, Flow, Setup, Whose};

pub(crate) struct Naive {
    pub(crate) setup: Setup,
    /// What passed, and when, in ns.
    pub(crate) passed: Vec<(u64, Asks)>,
    /// The same, and when it came.
    pub(crate) came: Vec<(u64, Asks)>,
    pub(crate) blocked: BTreeMap<&'static str, u64>,
    pub(crate) running: Vec<&'static str>,
    pub(crate) called: BTreeSet<&'static str>,
}

/// Why the naive engine refuses a call, first reason first.
#[derive(Debug)]
pub(crate) enum Refusal {
    Authority,
    Isolation,
    /// By one of these flow rules, some of which miss a key; until then, in ns.
    Flow(Vec<usize>, Option<u64>),
}

impl Naive {
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            setup,
            passed: Vec::new(),
            came: Vec::new(),
            blocked: BTreeMap::new(),
            running: Vec::new(),
            called: BTreeSet::new(),
        }
    }

    /// Whether `call` and `other` are of one kind for `flow`: `None` if it does not
    /// count `other`, and `Some` with what it counts apart.
    pub(crate) fn key(&self, flow: &Flow, call: &Asks) -> Option<&'static str> {
        let resource = match flow.whose {
            Whose::Related(related) => related,
            _ => flow.resource,
        };
        if call.resource != resource {
            return None;
        }
        let is_named = |origin| {
            let mut others = self.setup.flows.iter();
            others.any(|other| {
                other.resource == flow.resource && other.whose == Whose::Origin(origin)
            })
        };
        match flow.whose {
            Whose::All | Whose::Related(_) => Some(""),
            Whose::Each(missing) => match (call.origin, missing) {
                (None, MissingKey::Share) => Some("-"),
                (origin, _) => origin,
            },
            Whose::Origin(origin) => call.origin.filter(|own| *own == origin),
            Whose::OtherOrigins => call.origin.filter(|own| !is_named(own)),
            Whose::Context(context) => call.context.filter(|own| *own == context),
        }
    }

    /// What passed that `flow` counts under `key`, and when.
    fn counted(&self, flow: &Flow, key: &str) -> Vec<(u64, u32)> {
        let passed = self.passed.iter();
        let passed = passed.filter(|(_, other)| self.key(flow, other) == Some(key));
        passed.map(|(at, other)| (*at, other.n)).collect()
    }

    /// What passed that `flow` counts together with `call`; `None` if it does not count
    /// that one.
    pub(crate) fn counted_with(&self, flow: &Flow, call: &Asks) -> Option<Vec<(u64, u32)>> {
        Some(self.counted(flow, self.key(flow, call)?))
    }

    /// From when on `flow` lets `call` pass; `None`: never.
    pub(crate) fn available_at(&self, flow: &Flow, call: &Asks, now: u64) -> Option<u64> {
        let key = match flow.whose {
            Whose::Related(related) if !self.called.contains(related) => return Some(now),
            Whose::Related(_) => "",
            _ if flow.misses_key(call) => return None,
            _ => match self.key(flow, call) {
                Some(key) => key,
                None => return Some(now),
            },
        };
        if call.n == 0 && flow.is_table() {
            return Some(now);
        }
        let passed = self.counted(flow, key);
        if flow.queue.is_none() {
            return flow.available_at(now, call.n, &passed);
        }
        if call.n == 0 {
            return Some(now);
        }
        let cost = flow.cost(call.n)?;
        let last = passed.iter().rfind(|(_, n)| *n > 0);
        Some(last.map_or(now, |(last, _)| now.max(last + cost)))
    }

    pub(crate) fn enter(&mut self, call: Asks, now: u64) -> Result<(), Refusal> {
        self.called.insert(call.resource);
        let verdict = self.judge(&call, now);
        if verdict.is_ok() {
            self.passed.push((now, call));
            self.running.push(call.resource);
        } else {
            *self.blocked.entry(call.resource).or_default() += u64::from(call.n);
        }
        verdict
    }

    pub(crate) fn judge(&self, call: &Asks, now: u64) -> Result<(), Refusal> {
        let caller = call.origin.map(|origin| (call.resource, origin));
        if caller.is_some() && self.setup.denied == caller {
            return Err(Refusal::Authority);
        }
        if let Some((resource, most)) = self.setup.isolation {
            let running = self.running.iter().filter(|running| **running == resource);
            if call.resource == resource && running.count() >= most as usize {
                return Err(Refusal::Isolation);
            }
        }
        let flows = self.setup.flows.iter().enumerate();
        let flows: Vec<_> = flows
            .filter(|(_, flow)| flow.resource == call.resource)
            .collect();
        let room: Vec<_> = flows
            .iter()
            .map(|(index, flow)| (*index, self.available_at(flow, call, now)))
            .collect();
        let full: Vec<_> = room
            .iter()
            .filter(|(_, at)| *at != Some(now))
            .map(|(index, _)| *index)
            .collect();
        if full.is_empty() {
            return Ok(());
        }
        let latest = room
            .iter()
            .try_fold(now, |latest, (_, at)| Some(latest.max((*at)?)));
        Err(Refusal::Flow(full, latest))
    }

    pub(crate) fn tokens(&self, resource: &str, since: u64) -> u64 {
        let passed = self.passed.iter();
        let passed = passed.filter(|(at, call)| call.resource == resource && *at >= since);
        passed.map(|(_, call)| u64::from(call.n)).sum()
    }
}
