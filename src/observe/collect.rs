//! Reads engines into families.
//!
//! Only names that callers cannot make up have series of their own, and only so many; all calls
//! count in the series of the whole engine. Nothing here is a difference of two counters, which
//! falls while others count: whoever reads it takes a fall for a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::family::{Family, Id, Text, Value};
use super::rows::{Reasons, Row};
use crate::blocked::BlockKind;
use crate::breaker::BreakerState;
use crate::engine::registry::Registry;
use crate::report::read_resources;
use crate::rule::{Rule, RuleSelection, RuleSet};
use crate::sentinel::Sentinel;
use crate::source::WatchStatus;
use crate::stat::{Histogram, Totals};

/// The kinds of rules, as labels.
const KINDS: [&str; 7] = [
    "flow",
    "keyed",
    "isolation",
    "adaptive",
    "circuit_breaker",
    "authority",
    "system",
];

/// Families that samples are added to, each with the labels that all of an engine have.
#[derive(Debug)]
pub(super) struct Collector {
    families: Vec<Family>,
    base: Vec<(&'static str, Text)>,
}

/// The memory of one reading of an engine for the next.
#[derive(Debug, Default)]
pub(super) struct LastReading {
    /// The resources that have series, each with what it had completed.
    listed: HashMap<u64, u64>,
    /// The completions of the whole engine.
    completed: u64,
}

// === impl Collector ===

impl Collector {
    pub(super) fn new() -> Self {
        Self {
            families: Family::all(),
            base: Vec::new(),
        }
    }

    pub(super) fn into_families(self) -> Vec<Family> {
        self.families
    }

    pub(super) fn push<const N: usize>(
        &mut self,
        id: Id,
        labels: [(&'static str, Text); N],
        value: Value,
    ) {
        let labels = self.base.iter().cloned().chain(labels).collect();
        self.families[id as usize].push(labels, value);
    }

    pub(super) fn count(&mut self, id: Id, count: u64) {
        self.push(id, [], Value::Count(count));
    }

    /// The families that exist once, whatever the number of engines.
    pub(super) fn add_process(&mut self, watches: &[(Arc<str>, WatchStatus)]) {
        self.base.clear();
        let version = [("version", env!("CARGO_PKG_VERSION").into())];
        self.push(Id::BuildInfo, version, Value::Count(1));
        for (name, status) in watches {
            let is_up = Value::Count(status.is_up().into());
            self.push(Id::RuleSourceUp, [("source", name.into())], is_up);
        }
    }

    /// The figures of an engine, which is called `name` if there are several; at most so many
    /// resources have series.
    pub(super) fn add_engine(
        &mut self,
        name: Option<&Arc<str>>,
        sentinel: &Sentinel,
        max_resources: usize,
        memory: &mut LastReading,
    ) {
        self.base.clear();
        let label = name.map(|name| ("engine", Text::from(name)));
        self.base.extend(label);
        let registry = sentinel.registry();
        let rules = registry.rules();
        let rows = self.add_totals(registry, max_resources, memory);
        let reasons = Reasons::of(&rules);
        for row in &rows {
            self.add_row(row, reasons.of_row(row));
        }
        self.add_rules(&rules);
        for shadow in sentinel.shadows() {
            let labels = [("rule", Text::Shared(shadow.rule().into()))];
            self.push(
                Id::ShadowBlocked,
                labels,
                Value::Count(shadow.would_block()),
            );
        }
        self.add_store(registry, &rules);
        self.add_system(registry, &rules);
        self.count(Id::HookPanics, sentinel.hooks().panics());
    }

    /// Reads all resources. Returns those that have series of their own.
    fn add_totals(
        &mut self,
        registry: &Registry,
        max_resources: usize,
        memory: &mut LastReading,
    ) -> Vec<Row> {
        let (mut totals, mut resources) = (Totals::default(), 0);
        let (mut rows, mut living) = (Vec::new(), HashMap::new());
        let evicted = read_resources(registry, |reading| {
            resources += 1;
            let mut own = reading.totals();
            totals.add(&own);
            reading.count_taken();
            let known = memory.listed.get(&reading.id());
            // Those that had series keep them.
            let others = memory.listed.len() + living.len();
            let has_place = known.is_some() || others < max_resources && reading.is_listed();
            if has_place {
                // Of a call of weight 0 two words are counted, and the first takes off what the second
                // adds: between them there is less than before.
                own.complete = own.complete.max(known.copied().unwrap_or_default());
                memory.listed.remove(&reading.id());
                living.insert(reading.id(), own.complete);
                rows.push(Row::new(reading, own));
            }
        });
        memory.listed = living;
        evicted.totals.iter().for_each(|gone| totals.add(gone));
        totals.complete = totals.complete.max(memory.completed);
        memory.completed = totals.complete;
        let mut origins = 0;
        let gone_branches = registry.branches().read_all(|_| origins += 1);

        self.count(Id::EngineCompleted, totals.complete());
        self.count(Id::EngineFailed, totals.error());
        self.count(Id::EngineCancelled, totals.cancelled());
        self.count(Id::EnginePanicked, totals.panicked());
        for (kind, count) in totals.blocks() {
            let labels = [("reason", reason(kind).into())];
            self.push(Id::EngineBlocked, labels, Value::Count(count));
        }
        self.count(Id::Resources, resources);
        self.count(Id::ResourcesListed, memory.listed.len() as u64);
        self.count(Id::Origins, origins);
        self.count(Id::Evicted, evicted.count + gone_branches.evicted);
        self.count(Id::Overflowed, registry.overflowed());
        Row::sorted(rows)
    }

    fn add_row(&mut self, row: &Row, reasons: u16) {
        let own = || {
            [
                ("resource", Text::from(&row.name)),
                ("direction", row.direction.as_str().into()),
            ]
        };
        let (totals, details) = (&row.totals, &row.details);
        for (id, count) in [
            (Id::Completed, totals.complete()),
            (Id::Failed, totals.error()),
            (Id::Cancelled, totals.cancelled()),
            (Id::Panicked, totals.panicked()),
            (Id::WaitsDropped, totals.waiting_dropped()),
            (Id::Borrowed, totals.occupied()),
            (Id::ActiveCalls, details.concurrency.into()),
            (Id::WaitingCalls, details.waiting.into()),
        ] {
            self.push(id, own(), Value::Count(count));
        }
        for (kind, count) in totals.blocks() {
            if count > 0 || reasons >> kind as u16 & 1 == 1 {
                let [resource, direction] = own();
                let labels = [resource, direction, ("reason", reason(kind).into())];
                self.push(Id::Blocked, labels, Value::Count(count));
            }
        }
        let [rt, waits] = match details.histograms.clone() {
            Some([rt, waits]) => [Some(rt), Some(waits)],
            None => [None, None],
        };
        let call = times(totals.rt(), totals.calls(), rt);
        self.push(Id::CallDuration, own(), call);
        let wait = times(totals.waited(), totals.waits(), waits);
        self.push(Id::WaitDuration, own(), wait);
        if let Some((used, limit)) = details.slots {
            self.push(Id::SlotsUsed, own(), Value::Count(used.into()));
            self.push(Id::SlotsLimit, own(), Value::Count(limit.into()));
        }
        for breaker in &details.breakers {
            for state in BreakerState::ALL {
                let is_in_it = Value::Count((breaker.state() == state).into());
                let entered = Value::Count(breaker.times_entered(state));
                let state = match state {
                    BreakerState::Closed => "closed",
                    BreakerState::Open => "open",
                    BreakerState::HalfOpen => "half_open",
                };
                for (id, label, value) in [
                    (Id::BreakerState, "state", is_in_it),
                    (Id::BreakerTransitions, "to", entered),
                ] {
                    let [resource, direction] = own();
                    let rule = ("rule", Text::Shared(breaker.rule().into()));
                    self.push(
                        id,
                        [resource, direction, rule, (label, state.into())],
                        value,
                    );
                }
            }
        }
        for params in &details.keyed_rules {
            for (id, count) in [
                (Id::KeysOverflowed, params.overflows()),
                (Id::KeysMissing, params.missing()),
            ] {
                let [resource, direction] = own();
                let rule = ("rule", Text::Shared(params.rule().into()));
                self.push(id, [resource, direction, rule], Value::Count(count));
            }
        }
    }

    fn add_rules(&mut self, rules: &RuleSet) {
        let mut kinds = [0_u64; KINDS.len()];
        let mut shadows = 0_u64;
        for (rule, label) in rules.listed().with_labels() {
            let kind = kind(rule);
            let own = || [("rule", Text::from(&label.id)), ("kind", kind.into())];
            let is_enforced = rules.part() == RuleSelection::Enforced && !rule.is_shadow();
            if is_enforced {
                self.push(Id::RuleBlocked, own(), Value::Count(label.refused()));
                let place = KINDS.iter().position(|it| *it == kind);
                kinds[place.unwrap_or_default()] += 1;
            } else {
                shadows += 1;
            }
            let [id, kind] = own();
            let labels = || {
                let resource = Text::Shared(rule.resource().into());
                [id.clone(), kind.clone(), ("resource", resource)]
            };
            if let Some(limit) = rule.limit() {
                self.push(Id::RuleLimit, labels(), Value::Figure(limit));
            }
            if let Some(interval) = rule.interval() {
                let seconds = Value::Figure(interval.as_secs_f64());
                self.push(Id::RuleInterval, labels(), seconds);
            }
        }
        let all = KINDS.into_iter().zip(kinds).chain([("shadow", shadows)]);
        for (kind, count) in all {
            self.push(Id::Rules, [("kind", kind.into())], Value::Count(count));
        }
        self.count(Id::RulesReloads, rules.version());
        let since = rules.made_at().duration_since(UNIX_EPOCH);
        let since = Value::Figure(since.unwrap_or_default().as_secs_f64());
        self.push(Id::RulesLastReload, [], since);
    }

    fn add_system(&mut self, registry: &Registry, rules: &RuleSet) {
        if let Some(sampler) = &registry.shared().config.sampler {
            let readings = sampler.readings();
            for (id, figure) in [
                (Id::SystemLoad, readings.load()),
                (Id::SystemCpu, readings.cpu()),
            ] {
                if let Some(figure) = figure {
                    self.push(id, [], Value::Figure(figure));
                }
            }
            if let Some(memory) = sampler.last_memory() {
                for (kind, bytes) in [("used", memory.used()), ("limit", memory.limit())] {
                    self.push(
                        Id::SystemMemory,
                        [("kind", kind.into())],
                        Value::Count(bytes),
                    );
                }
            }
        }
        let limits = rules.limits();
        for (limit, figure) in [
            ("qps", limits.qps.map(|it| it.value)),
            ("concurrency", limits.concurrency.map(|it| it.value.into())),
            ("rt_seconds", limits.rt.map(|it| it.value.as_secs_f64())),
            ("load", limits.load.map(|it| it.value)),
            ("cpu_ratio", limits.cpu.map(|it| it.value)),
        ] {
            if let Some(figure) = figure {
                self.push(
                    Id::SystemLimit,
                    [("limit", limit.into())],
                    Value::Figure(figure),
                );
            }
        }
    }
}

/// The label of a kind of refusals.
pub(super) const fn reason(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Flow => "flow",
        BlockKind::Isolation => "isolation",
        BlockKind::Keyed => "keyed",
        BlockKind::CircuitBreaker => "circuit_breaker",
        BlockKind::Authority => "authority",
        BlockKind::System => "system",
        BlockKind::NoTimer => "no_timer",
        BlockKind::MissingKey => "missing_key",
        BlockKind::Store => "store",
    }
}

/// The label of a kind of rules.
fn kind(rule: &Rule) -> &'static str {
    let [
        flow,
        keyed_rule,
        isolation,
        adaptive,
        circuit_breaker,
        authority,
        system,
    ] = KINDS;
    match rule.itself() {
        Rule::Flow(_) | Rule::Shadow(_) => flow,
        Rule::Keyed(_) => keyed_rule,
        Rule::Isolation(_) => isolation,
        Rule::Adaptive(_) => adaptive,
        Rule::CircuitBreaker(_) => circuit_breaker,
        Rule::Authority(_) => authority,
        Rule::System(_) => system,
    }
}

fn times(sum: Duration, count: u64, histogram: Option<Histogram>) -> Value {
    let sum = sum.as_secs_f64();
    Value::Times {
        sum,
        count,
        histogram,
    }
}
