//! Reads the figures of engines into families.
//!
//! A resource gets series only if callers cannot make up its name, and only up to a bound. The
//! series of the whole engine count all calls. No figure is the difference of two counters: calls
//! that are counted between the two reads could make it fall, and a scraper interprets a fall as a
//! restart.
//!
//! If more resources qualify than the bound allows, resources that a rule names come first, then
//! resources with a breaker. Within a group, resources that had series before come first, then
//! older resources. So the choice stays the same from one reading to the next.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::family::{Family, Id, Labels, Text, Value};
use super::rows::{Reasons, ResourceLimits, Row};
use crate::base::pace::StepPace;
use crate::blocked::BlockKind;
use crate::breaker::BreakerState;
use crate::call::Criticality;
use crate::engine::registry::Registry;
use crate::read::{ResourceReading, read_resources_paced};
use crate::sentinel::Sentinel;
use crate::source::WatchStatus;
use crate::stat::{Histogram, Totals};

/// The families that samples are added to, and the labels that all samples of an engine have.
#[derive(Debug)]
pub(super) struct Collector {
    families: Vec<Family>,
    /// The labels that all samples of the present engine have.
    base: Vec<(&'static str, Text)>,
    /// The id of the resource whose counts are being added; 0 for all other samples.
    resource_id: u64,
}

/// The maximum numbers of resources and of rules of an engine that get series.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesBounds {
    pub(super) resources: usize,
    pub(super) rules: usize,
}

/// The state that a reading of an engine keeps for the next reading.
#[derive(Clone, Debug, Default)]
pub(super) struct LastReading {
    /// The ids of the resources that have series, each with its completions.
    listed: HashMap<u64, u64>,
    /// The completions of the whole engine.
    completed: u64,
}

/// The rank of a resource; the resources with the lowest ranks get series. It consists of the group
/// (named by a rule, with a breaker, other), whether the resource had no series before, and its id:
/// older resources have lower ids.
type RowRank = (u8, bool, u64);

// === impl LastReading ===

impl LastReading {
    /// Takes over `new`, the memory of a reading that began with a copy of this memory. Another
    /// reading can have updated this memory in the meantime, so the larger completions are kept.
    pub(super) fn update(&mut self, mut new: Self) {
        for (id, completed) in &mut new.listed {
            let known = self.listed.get(id).copied().unwrap_or_default();
            *completed = known.max(*completed);
        }
        self.listed = new.listed;
        self.completed = self.completed.max(new.completed);
    }

    /// Returns the rank of a resource; `None` if it cannot have series.
    fn rank(&self, reading: &ResourceReading<'_>) -> Option<RowRank> {
        let is_known = self.listed.contains_key(&reading.id());
        if !is_known && !reading.is_listed() {
            return None;
        }
        let class = match (reading.is_named(), reading.has_breakers()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        Some((class, !is_known, reading.id()))
    }
}

// === impl Collector ===

impl Collector {
    pub(super) fn new() -> Self {
        Self {
            families: Family::all(),
            base: Vec::new(),
            resource_id: 0,
        }
    }

    pub(super) fn into_families(self) -> Vec<Family> {
        self.families
    }

    /// Adds a sample to the family `id`, with the common labels and `labels`.
    pub(super) fn push<const N: usize>(
        &mut self,
        id: Id,
        labels: [(&'static str, Text); N],
        value: Value,
    ) {
        let mut all = Labels::default();
        let labels = self.base.iter().cloned().chain(labels);
        labels.for_each(|label| all.push(label));
        self.families[id as usize].push(all, value, self.resource_id);
    }

    /// Adds a count without further labels to the family `id`.
    pub(super) fn count(&mut self, id: Id, count: u64) {
        self.push(id, [], Value::Count(count));
    }

    /// Adds the samples of the process, which exist once for any number of engines.
    pub(super) fn add_process(&mut self, watches: &[(Arc<str>, WatchStatus)]) {
        self.base.clear();
        let version = [("version", env!("CARGO_PKG_VERSION").into())];
        self.push(Id::BuildInfo, version, Value::Count(1));
        for (name, status) in watches {
            let is_up = Value::Count(status.is_up().into());
            self.push(Id::RuleSourceUp, [("source", name.into())], is_up);
        }
    }

    /// Adds the figures of an engine, labeled with `name` if there are several engines. Returns the
    /// amount of work, which sets the pause until the next reading: 1 for each resource with
    /// series, and 1/16 for each resource that was read.
    pub(super) async fn add_engine(
        &mut self,
        name: Option<&Arc<str>>,
        sentinel: &Sentinel,
        bounds: SeriesBounds,
        memory: &mut LastReading,
        pace: &mut StepPace,
    ) -> usize {
        self.base.clear();
        let label = name.map(|name| ("engine", Text::from(name)));
        self.base.extend(label);
        let registry = sentinel.registry();
        let rules = registry.rules();
        let totals = self.add_totals(registry, bounds.resources, memory, pace);
        let (rows, resources) = totals.await;
        let reasons = Reasons::of(&rules, pace).await;
        let limits = ResourceLimits::of(&rules, pace).await;
        let read = rows.len() + resources / 16;
        let rows = Row::sorted(rows.into_values(), pace).await;
        for row in rows.into_values() {
            self.add_row(&row, reasons.of_row(&row), &limits);
            // A row that is written counts as two resources that are read.
            pace.spend(2).await;
        }
        let shadows = sentinel.shadows();
        let left_out = self.add_rules(&rules, bounds.rules, pace).await;
        self.count(Id::RulesLeftOut, left_out as u64);
        for shadow in shadows.iter().take(bounds.rules) {
            let labels = [("rule", Text::Shared(shadow.rule().into()))];
            let count = shadow.would_block_by(pace).await;
            self.push(Id::ShadowBlocked, labels, Value::Count(count));
        }
        self.add_store(registry, &rules, bounds.rules, pace).await;
        self.add_system(registry, &rules);
        self.count(Id::HookPanics, sentinel.hooks().panics());
        read
    }

    /// Reads all resources. Returns the resources that get series, by rank, and the number of all
    /// resources.
    async fn add_totals(
        &mut self,
        registry: &Registry,
        max_resources: usize,
        memory: &mut LastReading,
        pace: &mut StepPace,
    ) -> (BTreeMap<RowRank, Box<Row>>, usize) {
        let (mut totals, mut resources, mut nameable) = (Totals::default(), 0, 0);
        let mut rows: BTreeMap<RowRank, Box<Row>> = BTreeMap::new();
        let mut read = |reading: &ResourceReading<'_>| {
            resources += 1;
            let mut own = reading.totals();
            totals.add(&own);
            reading.count_taken();
            let Some(rank) = memory.rank(reading) else {
                return;
            };
            nameable += 1;
            let is_full = rows.len() == max_resources;
            let ranks_before = |last: &RowRank| !is_full || rank < *last;
            if max_resources > 0 && rows.keys().next_back().is_none_or(ranks_before) {
                // A call of weight 0 first subtracts 1 from one word, and then adds 1 to another. A
                // reading between the two steps finds fewer completions than the last reading did.
                let known = memory.listed.get(&reading.id()).copied();
                own.complete = own.complete.max(known.unwrap_or_default());
                if is_full {
                    rows.pop_last();
                }
                rows.insert(rank, Box::new(Row::new(reading, own)));
            }
        };
        let evicted = read_resources_paced(registry, pace, 1, &mut read).await;
        memory.listed = HashMap::new();
        for ((.., id), row) in &rows {
            memory.listed.insert(*id, row.totals.complete);
            pace.spend(1).await;
        }
        evicted.totals.iter().for_each(|gone| totals.add(gone));
        totals.complete = totals.complete.max(memory.completed);
        memory.completed = totals.complete;
        let (origins, evicted_origins) = registry.scopes().places();

        self.count(Id::EngineCompleted, totals.complete());
        self.count(Id::EngineFailed, totals.error());
        self.count(Id::EngineCancelled, totals.cancelled());
        self.count(Id::EnginePanicked, totals.panicked());
        for (kind, count) in totals.blocks() {
            let labels = [("reason", kind.terms().label.into())];
            self.push(Id::EngineBlocked, labels, Value::Count(count));
        }
        self.count(Id::Resources, resources as u64);
        self.count(Id::ResourcesListed, rows.len() as u64);
        self.count(Id::ResourcesLeftOut, nameable - rows.len() as u64);
        self.count(Id::Origins, origins as u64);
        self.count(Id::Evicted, evicted.count + evicted_origins);
        self.count(Id::Overflowed, registry.overflowed());
        (rows, resources)
    }

    /// Adds the samples of one resource. `reasons` are the kinds of refusals to show even if none
    /// was counted.
    fn add_row(&mut self, row: &Row, reasons: u16, limits: &ResourceLimits<'_>) {
        let own = || {
            [
                ("resource", Text::from(&row.name)),
                ("direction", row.direction.as_str().into()),
            ]
        };
        self.resource_id = row.id;
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
        for (kind, count) in refusals(row, reasons) {
            let [resource, direction] = own();
            let labels = [resource, direction, ("reason", kind.terms().label.into())];
            self.push(Id::Blocked, labels, Value::Count(count));
        }
        let [rt, waits] = match details.histograms.clone() {
            Some([rt, waits]) => [Some(rt), Some(waits)],
            None => [None, None],
        };
        let call = times(totals.rt(), totals.calls(), rt);
        self.push(Id::CallDuration, own(), call);
        let wait = times(totals.waited(), totals.waits(), waits);
        self.push(Id::WaitDuration, own(), wait);
        for (scope, limit) in limits.of_row(row) {
            let [resource, direction] = own();
            let labels = [resource, direction, ("scope", scope.into())];
            self.push(Id::CallsLimit, labels, Value::Figure(limit));
        }
        if let Some((used, limit)) = details.slots {
            self.push(Id::SlotsUsed, own(), Value::Count(used.into()));
            self.push(Id::SlotsLimit, own(), Value::Count(limit.into()));
        }
        if let Some(shedding) = &details.shedding {
            let shut = shedding.shut().len() as u64;
            self.push(Id::Shedding, own(), Value::Count(shut));
            for class in Criticality::ALL {
                for (id, count) in [
                    (Id::CriticalityBound, shedding.bound(class).into()),
                    (Id::CriticalityAdmitted, shedding.admitted(class)),
                    (Id::CriticalityBlocked, shedding.refused(class)),
                ] {
                    let [resource, direction] = own();
                    let class = ("criticality", class.as_str().into());
                    self.push(id, [resource, direction, class], Value::Count(count));
                }
            }
        }
        for budget in &details.budgets {
            for (id, count) in [
                (Id::CostCharged, budget.charged_total()),
                (Id::CostReservedTotal, budget.reserved_total()),
                (Id::CostReserved, budget.reserved().into()),
                (Id::CostOver, budget.over_total()),
                (Id::CostUntold, budget.untold_total()),
            ] {
                let [resource, direction] = own();
                let rule = ("rule", Text::Shared(budget.rule().into()));
                let unit = ("unit", Text::Shared(budget.unit().into()));
                self.push(id, [resource, direction, rule, unit], Value::Count(count));
            }
        }
        // Counts of rules can outlive the resource, so they do not restart with it.
        self.resource_id = 0;
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
            for (id, count, is_exported) in [
                (Id::KeysOverflowed, params.overflows(), true),
                (Id::KeysMissing, params.missing(), true),
                (Id::KeysReset, params.resets(), true),
                (Id::KeysBlocked, params.blocks(), params.has_blocks()),
            ] {
                if !is_exported {
                    continue;
                }
                let [resource, direction] = own();
                let rule = ("rule", Text::Shared(params.rule().into()));
                self.push(id, [resource, direction, rule], Value::Count(count));
            }
        }
    }
}

/// Returns the refusals of `row` by kind. The kinds in `reasons` are returned even if they are 0.
fn refusals(row: &Row, reasons: u16) -> impl Iterator<Item = (BlockKind, u64)> {
    let blocks = row.totals.blocks();
    blocks.filter(move |(kind, count)| *count > 0 || reasons >> *kind as u16 & 1 == 1)
}

/// Creates the value of a sample of durations.
fn times(sum: Duration, count: u64, histogram: Option<Histogram>) -> Value {
    let sum = sum.as_secs_f64();
    Value::Times {
        sum,
        count,
        histogram,
    }
}
