//! An engine with rules on all inbound calls and limits that find themselves beside
//! rules of all other kinds, and a naive one.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tower_sentinel::stat::Event;
use tower_sentinel::system::{ManualProbe, Sampler};
use tower_sentinel::{BlockKind, Direction, Entry, NodeView, Rules, Verdict};

use crate::adaptive::{Adaptive, adaptive};
use crate::breakers::{End, Part};
use crate::company::{self, Company, end};
use crate::crowd::{Crowd, Why, differ};
use crate::setup::{BEGIN, NS, RESOURCES};
use crate::support::bench::Bench;
use crate::system::{Limits, Says, System, limits, says};
use crate::wants::Wants;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Run(company::Op, bool),
    /// The machine says something else.
    Machine(Says),
    /// Other limits; the last one is that of an isolation rule.
    Reload(Vec<Limits>, [Adaptive; 2], u32),
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let reload = (
        prop::collection::vec(limits(), 0..3),
        [adaptive(), adaptive()],
        0_u32..5,
    );
    prop_oneof![
        17 => (company::op(), prop::bool::weighted(0.2)).prop_map(|(op, is_out)| Op::Run(op, is_out)),
        1 => says().prop_map(Op::Machine),
        1 => reload.prop_map(|(limits, adaptives, most)| Op::Reload(limits, adaptives, most)),
    ]
}

/// Of the window that figures are read from.
const HALF: u64 = 500 * NS;

/// A call that runs.
struct Running {
    entry: Entry,
    /// Among all inbound calls.
    is_counted: bool,
    way: usize,
    seen: usize,
    parts: Vec<Part>,
}

/// What one way has counted of a resource, by weight.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    complete: u64,
    error: u64,
    cancelled: u64,
}

pub(crate) struct World {
    bench: Bench,
    probe: ManualProbe,
    now: u64,
    company: Company,
    adaptives: BTreeMap<&'static str, Adaptive>,
    system: System,
    /// Inbound calls, and outbound ones: they know nothing of each other.
    crowds: [Crowd; 2],
    ended: BTreeMap<(usize, &'static str), Ended>,
    running: Vec<Running>,
    /// What the limits were found to be since the last call ended, of each way, and
    /// what was told of those in force.
    found: BTreeMap<(usize, &'static str), u32>,
    told: BTreeMap<(usize, &'static str), u32>,
    /// How many calls ran at once when the last one passed since then.
    passed: BTreeMap<(usize, &'static str), u32>,
}

fn rules(
    company: &Company,
    system: &System,
    adaptives: &BTreeMap<&'static str, Adaptive>,
) -> Rules {
    let limits = system.limits.iter().enumerate();
    let rules = limits.fold(company.rules(), |rules, (index, limits)| {
        rules.with(limits.rule(index))
    });
    adaptives.iter().fold(rules, |rules, (resource, adaptive)| {
        rules.with(adaptive.rule(resource))
    })
}

impl World {
    pub(crate) fn new(
        company: Company,
        limits: Vec<Limits>,
        adaptives: BTreeMap<&'static str, Adaptive>,
    ) -> Self {
        let system = System::new(limits);
        let probe = ManualProbe::new();
        let sampler = Sampler::new(probe.clone());
        let bench = Bench::with(rules(&company, &system, &adaptives), |builder| {
            builder.sampler(sampler)
        });
        Self {
            bench,
            probe,
            now: BEGIN * NS,
            crowds: [0; 2].map(|_| Crowd::new(&company.clone().into())),
            company,
            adaptives,
            system,
            ended: BTreeMap::new(),
            running: Vec::new(),
            found: BTreeMap::new(),
            told: BTreeMap::new(),
            passed: BTreeMap::new(),
        }
    }

    fn node(&self, way: usize, resource: &str) -> Option<NodeView> {
        match way {
            0 => self.bench.sentinel.node(resource),
            _ => self.bench.sentinel.outbound_node(resource),
        }
    }

    pub(crate) fn run(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Machine(says) => {
                self.system.says = says;
                self.probe.set_load(says.load);
                self.probe.set_cpu(says.cpu);
            }
            Op::Reload(limits, adaptives, most) => self.reload(limits, adaptives, most),
            Op::Run(company::Op::Advance(ns), _) => {
                // Breakers know times to 8 µs.
                let ns = ns / 8_000 * 8_000;
                self.now += ns;
                self.bench.clock.advance(Duration::from_nanos(ns));
            }
            Op::Run(company::Op::End(index, how), _) => {
                if let Some(index) = index.checked_rem(self.running.len()) {
                    let running = self.running.swap_remove(index);
                    self.end(running, how);
                }
            }
            Op::Run(company::Op::Call(wants), is_out) => self.call(wants, is_out.into())?,
        }
        self.check()
    }

    fn reload(&mut self, limits: Vec<Limits>, adaptives: [Adaptive; 2], most: u32) {
        self.system.reload(limits);
        for (known, adaptive) in self.adaptives.values_mut().zip(adaptives) {
            *known = adaptive;
        }
        if let Some((_, known)) = &mut self.company.setup.isolation {
            *known = most;
        }
        let rules = rules(&self.company, &self.system, &self.adaptives);
        self.bench.sentinel.reload(rules);
        self.found.clear();
        self.told.clear();
        self.passed.clear();
    }

    /// How many calls of its resource may run, and by which rule, if `verdict` is what
    /// the last one of them was told. What is found is not what is in force: in a
    /// probe that is less, and only a refusal tells of it.
    fn most(
        &mut self,
        way: usize,
        resource: &'static str,
        verdict: &Verdict,
    ) -> Result<Option<(u32, String)>, TestCaseError> {
        let fixed = self.company.setup.isolation;
        let fixed = fixed.filter(|(own, _)| *own == resource);
        let fixed = fixed.map(|(_, most)| (most, "isolation".to_owned()));
        let Some(adaptive) = self.adaptives.get(resource) else {
            return Ok(fixed);
        };
        let rule = format!("adaptive-{resource}");
        let (node, key) = (self.node(way, resource).unwrap(), (way, resource));
        let found = node.adaptive_limit().unwrap();
        if let Verdict::Block(blocked) = verdict {
            if blocked.rule() == rule {
                let told = blocked.limit().unwrap();
                let range = adaptive.floor..=found;
                prop_assert!(range.contains(&told), "{} of {:?}", told, adaptive);
                // It has been so since then.
                let at_once = self.passed.get(&key).copied().unwrap_or(0);
                prop_assert!(at_once <= told, "{} of {}", at_once, told);
                self.told.entry(key).or_insert(told);
            }
        }
        let found = self.told.get(&key).copied().unwrap_or(found);
        let fixed = fixed.filter(|(most, _)| *most <= found);
        Ok(Some(fixed.unwrap_or((found, rule))))
    }

    fn call(&mut self, wants: Wants, way: usize) -> Result<(), TestCaseError> {
        let (call, now) = (wants.call, self.now);
        let verdict = wants.asked(|call| {
            let call = if way == 0 { call } else { call.outbound() };
            self.bench.sentinel.try_enter(call)
        });
        let most = self.most(way, call.resource, &verdict)?;
        let crowd = &mut self.crowds[way];
        let setup = &mut crowd.naive.setup;
        setup.isolation = most.as_ref().map(|(most, _)| (call.resource, *most));
        let is_denied = call
            .origin
            .is_some_and(|origin| setup.denied == Some((call.resource, origin)));
        let overload = match way {
            0 if !is_denied => self.system.refuses(call.n, now),
            _ => None,
        };
        if let Some((reason, index)) = overload {
            crowd.naive.called.insert(call.resource);
            crowd.came.push(wants);
            *crowd.naive.blocked.entry(call.resource).or_default() += u64::from(call.n);
            let is_right = matches!(&verdict, Verdict::Block(blocked)
                if blocked.kind() == BlockKind::System
                    && blocked.system_reason() == Some(reason)
                    && blocked.rule() == format!("system-{index}")
                    && blocked.retry_after().is_none());
            if !is_right {
                return Err(differ(wants, now, &verdict, &reason));
            }
            return Ok(());
        }
        match (verdict, crowd.enter(wants, now)) {
            (Verdict::Pass(entry), Ok(parts)) => {
                let direction = [Direction::Inbound, Direction::Outbound][way];
                prop_assert_eq!(entry.direction(), direction);
                let seen = crowd.seen.len() - 1;
                let running = crowd.naive.running.iter();
                let running = running.filter(|running| **running == call.resource);
                let key = (way, call.resource);
                self.passed.insert(key, running.count() as u32);
                let is_counted = way == 0 && self.system.passes(call.n, now);
                self.running.push(Running {
                    entry,
                    is_counted,
                    way,
                    seen,
                    parts,
                });
            }
            (Verdict::Block(blocked), Err(why)) => {
                // Of two limits on calls at once, the tighter one refuses.
                let is_named = match (&why, most) {
                    (Why::Isolation, Some((_, rule))) => blocked.rule() == rule,
                    _ => true,
                };
                if !(why.is_told(&blocked, now) && is_named) {
                    return Err(differ(wants, now, &blocked, &why));
                }
            }
            (found, expected) => return Err(differ(wants, now, &found, &expected)),
        }
        Ok(())
    }

    fn end(&mut self, running: Running, how: End) {
        let Running {
            entry,
            is_counted,
            way,
            seen,
            parts,
        } = running;
        let crowd = &mut self.crowds[way];
        let (start, call) = (crowd.seen[seen].at, crowd.seen[seen].wants.call);
        crowd.end(seen, parts, self.now, how);
        if is_counted {
            self.system.ends(call.n, self.now - start, self.now, how);
        }
        let ended = self.ended.entry((way, call.resource)).or_default();
        let n = u64::from(call.n);
        match how {
            End::Cancelled => ended.cancelled += n,
            End::Failed => {
                ended.complete += n;
                ended.error += n;
            }
            End::Good | End::Ignored => ended.complete += n,
        }
        end(entry, how);
        self.found.clear();
        self.told.clear();
        self.passed.clear();
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        for way in 0..2 {
            for resource in RESOURCES {
                if let Some(node) = self.node(way, resource) {
                    self.crowds[way].agrees(resource, &node, self.now)?;
                    self.check_books(way, resource, &node)?;
                    self.check_limit(way, resource, &node)?;
                }
            }
        }
        let inbound = self.bench.sentinel.inbound();
        let running = self.running.iter().filter(|running| running.way == 0);
        prop_assert_eq!(inbound.concurrency() as usize, running.count());
        let window = (self.now / HALF).saturating_sub(1) * HALF;
        let tokens = RESOURCES.map(|resource| self.crowds[0].naive.tokens(resource, window));
        prop_assert_eq!(inbound.sum(Event::Pass), tokens.iter().sum::<u64>());
        Ok(())
    }

    fn check_books(
        &self,
        way: usize,
        resource: &'static str,
        node: &NodeView,
    ) -> Result<(), TestCaseError> {
        let ended = self
            .ended
            .get(&(way, resource))
            .copied()
            .unwrap_or_default();
        let totals = node.totals();
        prop_assert_eq!(totals.pass(), self.crowds[way].naive.tokens(resource, 0));
        prop_assert_eq!(totals.complete(), ended.complete);
        prop_assert_eq!(totals.error(), ended.error);
        prop_assert_eq!(totals.cancelled(), ended.cancelled);
        let isolation = self.company.setup.isolation;
        if self.adaptives.contains_key(resource)
            || isolation.is_some_and(|(own, _)| own == resource)
        {
            prop_assert_eq!(node.slots_in_use(), node.concurrency());
        }
        Ok(())
    }

    /// A limit stays in its range, and where it is while no call ends.
    fn check_limit(
        &mut self,
        way: usize,
        resource: &'static str,
        node: &NodeView,
    ) -> Result<(), TestCaseError> {
        let Some(adaptive) = self.adaptives.get(resource) else {
            return Ok(());
        };
        let limit = node.adaptive_limit().unwrap();
        let range = adaptive.floor..=adaptive.ceiling();
        prop_assert!(range.contains(&limit), "{} of {:?}", limit, adaptive);
        let known = self.found.insert((way, resource), limit);
        prop_assert_eq!(known.unwrap_or(limit), limit);
        Ok(())
    }

    /// All calls end, and nothing is left of them.
    pub(crate) fn rest(&mut self) -> Result<(), TestCaseError> {
        for running in std::mem::take(&mut self.running) {
            self.end(running, End::Good);
        }
        self.check()?;
        let inbound = self.bench.sentinel.inbound();
        prop_assert_eq!((inbound.concurrency(), inbound.waiting()), (0, 0));
        Ok(())
    }
}
