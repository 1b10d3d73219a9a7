//! The engine against a naive one: random rules and calls, equal answers.
//!
//! The naive engine remembers every call for ever, and adds up what a rule counts
//! each time it is asked.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::stat::Event;
use tower_sentinel::{
    AuthorityRule, BlockKind, Blocked, Call, Entry, FlowRule, IsolationRule, MissingKey,
    NotAdmitted, Rules, Verdict, Waiting,
};

use support::bench::Bench;
use support::ms;

const NS: u64 = 1_000_000;
/// When the engines begin, in ms.
const BEGIN: u64 = 10_000;
const RESOURCES: [&str; 2] = ["a", "b"];
const ORIGINS: [&str; 3] = ["x", "y", "z"];
const CONTEXTS: [&str; 2] = ["c", "d"];

// === rules ===

/// Whose calls a rule counts, and limits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Whose {
    All,
    /// Of each origin; `None`: as the rule does by itself.
    Each(Option<bool>, Missing),
    Origin(&'static str),
    OtherOrigins,
    Context(&'static str),
    /// It counts those of another resource.
    Related(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Missing {
    Share,
    Skip,
    Refuse,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    resource: &'static str,
    whose: Whose,
    limit: u32,
    /// In ms, each.
    buckets: u64,
    bucket: u64,
    is_strict: bool,
    /// One call after the other, which may wait for so long, in ms.
    line: Option<u64>,
}

#[derive(Clone, Debug)]
struct Setup {
    flows: Vec<Flow>,
    isolation: Option<(&'static str, u32)>,
    denied: Option<(&'static str, &'static str)>,
}

impl Flow {
    fn rule(&self, index: usize) -> FlowRule {
        let interval = ms(self.buckets * self.bucket);
        let mut rule = FlowRule::per(self.resource, self.limit, interval)
            .buckets(self.buckets as u32)
            .id(index.to_string());
        if self.is_strict {
            rule = rule.strict();
        }
        if let Some(max_wait) = self.line {
            rule = rule.throttle(ms(max_wait));
        }
        match self.whose {
            Whose::All => rule,
            Whose::Each(lend, missing) => {
                let rule = rule.by_origin().missing(match missing {
                    Missing::Share => MissingKey::Share,
                    Missing::Skip => MissingKey::Skip,
                    Missing::Refuse => MissingKey::Refuse,
                });
                match lend {
                    Some(lend) => rule.lend(lend),
                    None => rule,
                }
            }
            Whose::Origin(origin) => rule.for_origin(origin),
            Whose::OtherOrigins => rule.for_origin("other"),
            Whose::Context(context) => rule.in_context(context),
            Whose::Related(related) => rule.when(related),
        }
    }

    fn misses_key(&self, call: &Asks) -> bool {
        matches!(self.whose, Whose::Each(_, Missing::Refuse)) && call.origin.is_none()
    }

    /// Whether it keeps a few bytes for each origin, and so counts a call when it comes.
    fn is_table(&self) -> bool {
        let lends = !matches!(self.whose, Whose::Each(None | Some(false), _));
        !lends && self.buckets == 2 && !self.is_strict && self.line.is_none()
    }

    /// What it costs a call of weight `n` in its line, in ns.
    fn cost(&self, n: u32) -> Option<u64> {
        let interval = u128::from(self.buckets * self.bucket * NS) * u128::from(n);
        (self.limit > 0).then(|| interval.div_ceil(self.limit.into()) as u64)
    }

    /// From when on a window has room for `n` more, in ns, of what passed at which
    /// time; `None`: never.
    fn room_at(&self, now: u64, n: u32, passed: &[(u64, u32)]) -> Option<u64> {
        let length = self.bucket * NS;
        let counted = self.buckets + u64::from(self.is_strict);
        let first = now / length;
        let bucket = (first..=first + counted).find(|bucket| {
            let inside = |at: u64| at / length + counted > *bucket;
            let inside = passed.iter().filter(|(at, _)| inside(*at));
            inside.map(|(_, n)| n).sum::<u32>() + n <= self.limit
        })?;
        Some(now.max(bucket * length))
    }
}

impl Setup {
    fn rules(&self) -> Rules {
        let mut rules = Rules::new();
        for (index, flow) in self.flows.iter().enumerate() {
            rules = rules.with(flow.rule(index));
        }
        if let Some((resource, most)) = self.isolation {
            rules = rules.with(IsolationRule::new(resource, most));
        }
        if let Some((resource, origin)) = self.denied {
            rules = rules.with(AuthorityRule::deny(resource, [origin]));
        }
        rules
    }
}

// === the naive engine ===

#[derive(Clone, Copy, Debug)]
struct Asks {
    resource: &'static str,
    origin: Option<&'static str>,
    context: Option<&'static str>,
    n: u32,
}

impl Asks {
    fn asked(&self) -> Call<'static> {
        let mut asked = Call::new(self.resource).batch(self.n);
        if let Some(origin) = self.origin {
            asked = asked.origin(origin);
        }
        if let Some(context) = self.context {
            asked = asked.context(context);
        }
        asked
    }
}

struct Naive {
    setup: Setup,
    /// What passed, and when, in ns.
    passed: Vec<(u64, Asks)>,
    /// The same, and when it came.
    came: Vec<(u64, Asks)>,
    blocked: BTreeMap<&'static str, u64>,
    running: Vec<&'static str>,
    called: BTreeSet<&'static str>,
}

/// Why the naive engine refuses a call, first reason first.
#[derive(Debug)]
enum Refusal {
    Authority,
    Isolation,
    /// By one of these flow rules, some of which miss a key; until then, in ns.
    Flow(Vec<usize>, Option<u64>),
}

impl Naive {
    /// Whether `call` and `other` are of one kind for `flow`: `None` if it does not
    /// count `other`, and `Some` with what it counts apart.
    fn key(&self, flow: &Flow, call: &Asks) -> Option<&'static str> {
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
            Whose::Each(_, missing) => match (call.origin, missing) {
                (None, Missing::Share) => Some("-"),
                (origin, _) => origin,
            },
            Whose::Origin(origin) => call.origin.filter(|own| *own == origin),
            Whose::OtherOrigins => call.origin.filter(|own| !is_named(own)),
            Whose::Context(context) => call.context.filter(|own| *own == context),
        }
    }

    /// From when on `flow` lets `call` pass; `None`: never.
    fn room_at(&self, flow: &Flow, call: &Asks, now: u64) -> Option<u64> {
        let key = match flow.whose {
            _ if call.n == 0 && !flow.misses_key(call) => return Some(now),
            Whose::Related(related) if !self.called.contains(related) => return Some(now),
            Whose::Related(_) => "",
            _ if flow.misses_key(call) => return None,
            _ => match self.key(flow, call) {
                Some(key) => key,
                None => return Some(now),
            },
        };
        let passed: Vec<_> = self
            .passed
            .iter()
            .filter(|(_, other)| self.key(flow, other) == Some(key))
            .map(|(at, other)| (*at, other.n))
            .collect();
        if flow.line.is_none() {
            return flow.room_at(now, call.n, &passed);
        }
        let cost = flow.cost(call.n)?;
        let last = passed.iter().rfind(|(_, n)| *n > 0);
        Some(last.map_or(now, |(last, _)| now.max(last + cost)))
    }

    fn enter(&mut self, call: Asks, now: u64) -> Result<(), Refusal> {
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

    fn judge(&self, call: &Asks, now: u64) -> Result<(), Refusal> {
        if self
            .setup
            .denied
            .is_some_and(|denied| Some(denied) == call.origin.map(|own| (call.resource, own)))
        {
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
            .map(|(index, flow)| (*index, self.room_at(flow, call, now)))
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

    /// No window that ends with a bucket holds more than its rule lets, and in a line
    /// calls keep their distance: if it is the only one of its resource, and nobody
    /// waits for anything else.
    fn assert_kept(&self, with_loans: bool) -> Result<(), TestCaseError> {
        for flow in &self.setup.flows {
            let is_own = !matches!(flow.whose, Whose::Related(_));
            let mut by_key: BTreeMap<_, Vec<_>> = BTreeMap::new();
            let passed = if flow.is_table() {
                &self.came
            } else {
                &self.passed
            };
            for (at, call) in passed.iter().filter(|_| is_own) {
                if let Some(key) = self.key(flow, call) {
                    by_key.entry(key).or_default().push((*at, call.n));
                }
            }
            for (key, mut passed) in by_key {
                passed.sort_unstable();
                passed.retain(|(_, n)| *n > 0);
                if flow.line.is_some() {
                    let in_line =
                        |other: &&Flow| other.line.is_some() && other.resource == flow.resource;
                    let are_apart =
                        !with_loans && self.setup.flows.iter().filter(in_line).count() == 1;
                    for pair in passed.windows(2).filter(|_| are_apart) {
                        let cost = flow.cost(pair[1].1).unwrap();
                        prop_assert!(
                            pair[1].0 >= pair[0].0 + cost,
                            "{:?} {:?} {:?}",
                            flow,
                            key,
                            passed
                        );
                    }
                    continue;
                }
                let length = flow.bucket * NS;
                let counted = flow.buckets + u64::from(flow.is_strict);
                for &(last, _) in &passed {
                    let last = last / length;
                    let inside = passed
                        .iter()
                        .filter(|(at, _)| at / length <= last && at / length + counted > last);
                    let sum: u32 = inside.map(|(_, n)| n).sum();
                    prop_assert!(
                        sum <= flow.limit,
                        "{:?} {:?}: {} in {:?}",
                        flow,
                        key,
                        sum,
                        passed
                    );
                }
            }
        }
        Ok(())
    }

    fn tokens(&self, resource: &str, since: u64) -> u64 {
        let passed = self.passed.iter();
        let passed = passed.filter(|(at, call)| call.resource == resource && *at >= since);
        passed.map(|(_, call)| u64::from(call.n)).sum()
    }
}

// === both ===

#[derive(Clone, Copy, Debug)]
enum Op {
    Advance(u64),
    Call(Asks),
    /// One of those that run.
    End(usize),
}

fn flow() -> impl Strategy<Value = Flow> {
    let missing = select(&[Missing::Share, Missing::Skip, Missing::Refuse][..]);
    let lend = select(&[None, Some(false), Some(true)][..]);
    let whose = prop_oneof![
        3 => Just(Whose::All),
        3 => (lend, missing).prop_map(|(lend, missing)| Whose::Each(lend, missing)),
        2 => select(&ORIGINS[..]).prop_map(Whose::Origin),
        1 => Just(Whose::OtherOrigins),
        2 => select(&CONTEXTS[..]).prop_map(Whose::Context),
        2 => Just(Whose::Related("b")),
    ];
    let window = select(
        &[
            (2, 500),
            (2, 50),
            (1, 1_000),
            (10, 100),
            (5, 200),
            (4, 500),
            (3, 7),
        ][..],
    );
    (select(&RESOURCES[..]), whose, 0_u32..8, window, 0..4, 0..6).prop_map(
        |(resource, whose, limit, (buckets, bucket), strict, line)| Flow {
            resource,
            whose,
            limit,
            buckets,
            bucket,
            is_strict: strict == 0 && line != 0,
            line: (line == 0 && !matches!(whose, Whose::Related(_))).then_some(0),
        },
    )
}

fn setup() -> impl Strategy<Value = Setup> {
    let isolation = prop::option::of((select(&RESOURCES[..]), 0_u32..4));
    let denied = prop::option::weighted(0.2, (select(&RESOURCES[..]), select(&ORIGINS[..])));
    (prop::collection::vec(flow(), 0..6), isolation, denied).prop_map(
        |(flows, isolation, denied)| Setup {
            flows,
            isolation,
            denied,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let origin = prop::option::of(select(&ORIGINS[..]));
    let context = prop::option::of(select(&CONTEXTS[..]));
    let weight = prop_oneof![6 => Just(1_u32), 1 => 0_u32..5];
    let call = (select(&RESOURCES[..]), origin, context, weight);
    prop_oneof![
        2 => (0_u64..60 * NS).prop_map(Op::Advance),
        1 => (0_u64..700 * NS).prop_map(Op::Advance),
        1 => (0_u64..30).prop_map(|ms| Op::Advance(ms * 100 * NS)),
        8 => call.prop_map(|(resource, origin, context, n)| Op::Call(Asks { resource, origin, context, n })),
        5 => any::<usize>().prop_map(Op::End),
    ]
}

fn enter(bench: &Bench, call: Asks) -> Result<Entry, Blocked> {
    match bench.sentinel.try_enter(call.asked()) {
        Verdict::Pass(entry) => Ok(entry),
        Verdict::Block(blocked) => Err(blocked),
        other => panic!("nobody asked to wait: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn the_engine_answers_as_the_naive_one(
        setup in setup(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let bench = Bench::new(setup.rules());
        let mut naive = Naive {
            setup,
            passed: Vec::new(),
            came: Vec::new(),
            blocked: BTreeMap::new(),
            running: Vec::new(),
            called: BTreeSet::new(),
        };
        let mut entries: Vec<Entry> = Vec::new();
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                Op::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                Op::End(index) if !entries.is_empty() => {
                    let index = index % entries.len();
                    naive.running.swap_remove(index);
                    drop(entries.swap_remove(index));
                }
                Op::End(_) => {}
                Op::Call(call) => {
                    let expected = naive.enter(call, now);
                    match (enter(&bench, call), expected) {
                        (Ok(entry), Ok(())) => entries.push(entry),
                        (Err(blocked), Err(expected)) => {
                            let until = blocked.retry_after().map(|after| now + after.as_nanos() as u64);
                            let rule = || blocked.rule().parse::<usize>().unwrap();
                            let is_right = match (blocked.kind(), &expected) {
                                (BlockKind::Authority, Refusal::Authority)
                                | (BlockKind::Isolation, Refusal::Isolation) => until.is_none(),
                                (BlockKind::Flow, Refusal::Flow(full, at)) => {
                                    full.contains(&rule()) && until == *at
                                }
                                (BlockKind::MissingKey, Refusal::Flow(..)) => {
                                    naive.setup.flows[rule()].misses_key(&call) && until.is_none()
                                }
                                _ => false,
                            };
                            prop_assert!(is_right, "{:?}: {:?}, and not {:?}", call, blocked, expected);
                        }
                        (found, expected) => {
                            prop_assert!(false, "{:?} at {}: {:?}, and not {:?}", call, now, found, expected);
                        }
                    }
                }
            }
            for resource in RESOURCES {
                let Some(node) = bench.sentinel.node(resource) else {
                    prop_assert!(!naive.called.contains(resource));
                    continue;
                };
                let half = 500 * NS;
                let window = (now / half - 1) * half;
                prop_assert_eq!(node.sum(Event::Pass), naive.tokens(resource, window));
                prop_assert_eq!(node.totals().pass(), naive.tokens(resource, 0));
                let blocked = naive.blocked.get(resource).copied().unwrap_or_default();
                prop_assert_eq!(node.totals().block(), blocked);
                let running = naive.running.iter().filter(|running| **running == resource);
                prop_assert_eq!(node.concurrency() as usize, running.count());
            }
        }
        drop(entries);
    }
}

// === calls that wait ===

/// What may happen where calls wait. An index is that of one that waits or runs.
#[derive(Clone, Copy, Debug)]
enum WaitOp {
    Advance(u64),
    Call(Asks),
    /// It has its turn, or has not.
    Admit(usize),
    Drop(usize),
    End(usize),
}

fn wait_op() -> impl Strategy<Value = WaitOp> {
    prop_oneof![
        12 => op().prop_map(|op| match op {
            Op::Advance(ns) => WaitOp::Advance(ns),
            Op::Call(call) => WaitOp::Call(call),
            Op::End(index) => WaitOp::End(index),
        }),
        4 => any::<usize>().prop_map(WaitOp::Admit),
        1 => any::<usize>().prop_map(WaitOp::Drop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn with_calls_that_wait_no_rule_is_exceeded(
        mut setup in setup(),
        max_wait in 0_u64..3_000,
        with_loans in any::<bool>(),
        ops in prop::collection::vec(wait_op(), 1..120),
    ) {
        for flow in &mut setup.flows {
            flow.line = flow.line.map(|_| max_wait);
        }
        let bench = Bench::with(setup.rules(), |builder| builder.occupy_timeout(ms(max_wait.max(1))));
        let mut naive = Naive {
            setup,
            passed: Vec::new(),
            came: Vec::new(),
            blocked: BTreeMap::new(),
            running: Vec::new(),
            called: BTreeSet::new(),
        };
        let mut entries: Vec<Entry> = Vec::new();
        let mut waiting: Vec<(u64, Asks, Waiting)> = Vec::new();
        let mut now = BEGIN * NS;
        for op in ops {
            match op {
                WaitOp::Advance(ns) => {
                    now += ns;
                    bench.clock.advance(Duration::from_nanos(ns));
                }
                WaitOp::End(index) if !entries.is_empty() => {
                    let index = index % entries.len();
                    naive.running.swap_remove(index);
                    drop(entries.swap_remove(index));
                }
                WaitOp::Drop(index) if !waiting.is_empty() => {
                    drop(waiting.swap_remove(index % waiting.len()));
                }
                WaitOp::Admit(index) if !waiting.is_empty() => {
                    let (came, call, its) = waiting.swap_remove(index % waiting.len());
                    let start = its.start().as_nanos();
                    match its.admit() {
                        Ok(entry) => {
                            prop_assert!(start <= now);
                            naive.passed.push((start, call));
                            naive.came.push((came, call));
                            naive.running.push(call.resource);
                            entries.push(entry);
                        }
                        Err(NotAdmitted::TooEarly(its)) => {
                            prop_assert!(start > now);
                            waiting.push((came, call, its));
                        }
                        Err(NotAdmitted::Blocked(blocked)) => {
                            prop_assert_eq!(blocked.kind(), BlockKind::Isolation);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                WaitOp::Call(call) => {
                    match bench.sentinel.try_enter(call.asked().prioritized(with_loans)) {
                        Verdict::Pass(entry) => {
                            naive.passed.push((now, call));
                            naive.came.push((now, call));
                            naive.running.push(call.resource);
                            entries.push(entry);
                        }
                        Verdict::Wait(its) => waiting.push((now, call, its)),
                        Verdict::Block(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
                _ => {}
            }
            if let Some((resource, most)) = naive.setup.isolation {
                let running = naive.running.iter().filter(|running| **running == resource);
                prop_assert!(running.count() <= most as usize);
            }
        }
        naive.assert_kept(with_loans)?;
        drop((waiting, entries));
    }
}
