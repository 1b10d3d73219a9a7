//! Gathers the figures of an engine from which states are written. One reading, in small steps,
//! serves all requests until the next reading.
//!
//! A reading contains no origin, context, parameter or key, because it reads only the nodes of
//! resources.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::budgets::PageBudgets;
use super::lines::{MOST_RULES, RuleLines};
use super::minute::{CommonMinute, LastMinute, NANOS};
use super::query::StateQuery;
use crate::base::pace::StepPace;
use crate::base::sync::Lock;
use crate::breaker::BreakerState;
use crate::call::Direction;
use crate::clock::Tick;
use crate::hook::Finding;
use crate::observe::rounds::{SharedRun, SteppedWork};
use crate::read::{BreakerView, ResourceReading, Shedding, read_resources_paced};
use crate::sentinel::Sentinel;
use crate::stat::{Event, Node, NodeBucket, Totals};
use crate::store::StoreStatus;

/// The work between two pauses, in resources read. It bounds how long a poll holds a worker.
pub(super) const PORTION: usize = 32;
/// The maximum number of breakers that are shown.
const MOST_BREAKERS: usize = 200;
/// The maximum number of texts, of different queries, that requests share.
const MOST_TEXTS: usize = 16;

/// The parts of a reading that the next reading uses again.
#[derive(Debug)]
pub(super) struct KeptParts(Lock<Parts>);

#[derive(Debug)]
struct Parts {
    lines: Option<Arc<RuleLines>>,
    minute: CommonMinute,
}

/// See the [module](self).
pub(super) struct Gathered {
    pub(super) now: Tick,
    /// The names of all rows, one after the other.
    names: String,
    pub(super) rows: Vec<PageRow>,
    pub(super) minute: LastMinute,
    /// Breakers, each with its resource; breakers that refuse calls come first.
    pub(super) breakers: Vec<(String, Direction, BreakerView)>,
    /// The number of breakers of the resources that are shown, including breakers above
    /// [`MOST_BREAKERS`].
    pub(super) breaker_count: usize,
    /// The number of open and half-open breakers of resources that are not shown.
    pub(super) unlisted_open: usize,
    /// The counts of each keyed rule, by its id.
    pub(super) keys: HashMap<String, KeyCounts>,
    /// The number of keys that were reset, for each shared rule that counts each key separately.
    pub(super) shared_resets: HashMap<Arc<str>, u64>,
    pub(super) budgets: PageBudgets,
    pub(super) lines: Arc<RuleLines>,
    pub(super) rules_since: SystemTime,
    /// The refusals of each rule that is shown.
    pub(super) blocked: Vec<u64>,
    /// The calls that each rule in shadow mode would have refused, by the id of the rule. The id is
    /// empty if the whole engine is in shadow mode.
    pub(super) would_block: HashMap<String, u64>,
    pub(super) findings: Vec<Finding>,
    pub(super) store: Option<StoreStatus>,
    /// The number of origins and contexts with a place in the table.
    pub(super) origins: usize,
    /// The number of resources, origins and contexts that were evicted.
    pub(super) evicted: u64,
    /// How often a call found no place in a table.
    pub(super) overflowed: u64,
    /// The texts that were written from this reading, by query.
    texts: Lock<Vec<(StateQuery, Arc<SharedRun<Bytes>>)>>,
}

/// The figures of a resource. A row owns no memory, so that dropping many rows takes no time.
#[derive(Debug)]
pub(super) struct PageRow {
    /// The position of the name in [`Gathered::names`](Gathered).
    name: Range<usize>,
    pub(super) direction: Direction,
    /// Whether the page shows the resource.
    pub(super) is_listed: bool,
    /// Rates of passes, refusals, completions and errors.
    pub(super) rates: [f64; RATES.len()],
    pub(super) average_rt: Option<Duration>,
    pub(super) concurrency: u32,
    pub(super) waiting: u32,
    pub(super) slots_in_use: u32,
    pub(super) adaptive_limit: Option<u32>,
    pub(super) shedding: Option<Shedding>,
    pub(super) breaker: Option<BreakerState>,
    pub(super) totals: Totals,
}

/// The counts of a keyed rule over all known resources.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyCounts {
    /// Calls that were judged on the quota that keys without a place share.
    pub(super) overflows: u64,
    /// Keys that were given their whole quota back.
    pub(super) resets: u64,
    /// Calls without a key.
    pub(super) missing: u64,
    /// How often values were blocked, if the rule blocks values.
    pub(super) blocks: Option<u64>,
}

/// The events whose rates are shown.
pub(super) const RATES: [Event; 4] = [Event::Pass, Event::Block, Event::Complete, Event::Error];

// === impl KeptParts ===

impl KeptParts {
    pub(super) fn new() -> Self {
        Self(Lock::new(Parts {
            lines: None,
            minute: CommonMinute::new(),
        }))
    }
}

// === impl Gathered ===

impl Gathered {
    /// Gathers the figures of `sentinel`; with `all_resources` also of resources whose names
    /// callers can make up.
    pub(super) async fn of(
        sentinel: &Sentinel,
        all_resources: bool,
        kept: &KeptParts,
        pace: &mut StepPace,
    ) -> Self {
        let registry = sentinel.registry();
        let time = &registry.shared().time;
        let now = time.check_for_creation(time.read());
        let rules = registry.rules();
        let (known, mut minute) = {
            let kept = kept.0.lock();
            (kept.lines.clone(), kept.minute.clone())
        };
        let lines = match known.filter(|lines| lines.version == rules.version()) {
            Some(lines) => lines,
            None => Arc::new(RuleLines::of(&rules, pace).await),
        };
        let from = minute.begin(now);
        let mut reader = PageReader {
            all_resources,
            now,
            from,
            minute,
            names: String::new(),
            rows: Vec::new(),
            breakers: Default::default(),
            breaker_count: 0,
            unlisted_open: 0,
            keys: HashMap::new(),
            shared_resets: HashMap::new(),
            budgets: PageBudgets::default(),
        };
        let mut read = |reading: &ResourceReading<'_>| reader.read(reading);
        let evicted = read_resources_paced(registry, pace, 1, &mut read).await;
        let (origins, evicted_origins) = registry.scopes().places();
        let mut would_block = HashMap::new();
        for shadow in sentinel.shadows() {
            let count = shadow.would_block_by(pace).await;
            would_block.insert(shadow.rule().to_owned(), count);
        }
        let findings = sentinel.core().findings_by(pace, false).await;
        let labels = rules.listed().with_labels().take(MOST_RULES);
        let blocked = labels.map(|(_, label)| label.refused()).collect();
        let PageReader {
            minute,
            names,
            rows,
            breakers,
            breaker_count,
            unlisted_open,
            keys,
            shared_resets,
            budgets,
            ..
        } = reader;
        let gathered = Self {
            now,
            names,
            rows,
            minute: minute.seconds(),
            breakers: breakers
                .into_iter()
                .rev()
                .flatten()
                .take(MOST_BREAKERS)
                .collect(),
            breaker_count,
            unlisted_open,
            keys,
            shared_resets,
            budgets,
            lines: lines.clone(),
            rules_since: rules.made_at(),
            blocked,
            would_block,
            findings,
            store: registry.shared().store_status(),
            origins,
            evicted: evicted.count + evicted_origins,
            overflowed: registry.overflowed(),
            texts: Lock::new(Vec::new()),
        };
        *kept.0.lock() = Parts {
            lines: Some(lines),
            minute,
        };
        gathered
    }

    pub(super) fn name(&self, row: &PageRow) -> &str {
        &self.names[row.name.clone()]
    }

    /// Returns the text for `query`. `write` begins the text, unless another request with the same
    /// query has begun it.
    pub(super) fn text(
        &self,
        query: &StateQuery,
        write: impl FnOnce() -> SteppedWork<Bytes>,
    ) -> Arc<SharedRun<Bytes>> {
        let mut texts = self.texts.lock();
        texts.retain(|(_, text)| !text.is_abandoned());
        let known = texts.iter().find(|(known, _)| known == query);
        if let Some((_, text)) = known {
            return text.clone();
        }
        let text = SharedRun::new(write());
        if texts.len() < MOST_TEXTS {
            texts.push((query.clone(), text.clone()));
        }
        text
    }
}

/// A reading in progress.
struct PageReader {
    all_resources: bool,
    now: Tick,
    /// The first second that `minute` lacks.
    from: Tick,
    minute: CommonMinute,
    names: String,
    rows: Vec<PageRow>,
    /// The breakers by [`rank`] of their states.
    breakers: [Vec<(String, Direction, BreakerView)>; 3],
    breaker_count: usize,
    unlisted_open: usize,
    keys: HashMap<String, KeyCounts>,
    shared_resets: HashMap<Arc<str>, u64>,
    budgets: PageBudgets,
}

impl PageReader {
    /// Adds the figures of one resource.
    fn read(&mut self, reading: &ResourceReading<'_>) {
        let resource = reading.present();
        let (node, present) = (resource.node(), resource.now);
        let previous = Tick::from_nanos((self.now.as_nanos() / NANOS).saturating_sub(1) * NANOS);
        let seconds = node.seconds_from(present, self.from.min(previous));
        let seconds = seconds.unwrap_or_default();
        self.minute.add(&seconds, self.from);
        let second = seconds.iter().find(|second| second.start() == previous);
        let second = second.filter(|_| self.now.as_nanos() >= NANOS);

        let (name, direction) = (reading.name(), reading.direction());
        let is_listed = self.all_resources || reading.is_listed();
        let breakers = resource.breakers();
        let worst = breakers
            .iter()
            .map(BreakerView::state)
            .max_by_key(|it| rank(*it));
        for breaker in breakers {
            let state = breaker.state();
            if is_listed {
                self.breaker_count += 1;
                let alike = &mut self.breakers[rank(state)];
                if alike.len() < MOST_BREAKERS {
                    alike.push((name.to_string(), direction, breaker));
                }
            } else if state != BreakerState::Closed {
                self.unlisted_open += 1;
            }
        }
        for params in resource.keyed_rules() {
            let keys = self.keys.entry(params.rule().to_owned()).or_default();
            keys.overflows += params.overflows();
            keys.missing += params.missing();
            keys.resets += params.resets();
            if params.has_blocks() {
                *keys.blocks.get_or_insert_default() += params.blocks();
            }
        }
        self.shared_resets.extend(resource.shared_resets());
        self.budgets.add(resource.budgets());
        let start = self.names.len();
        self.names.push_str(name);
        self.rows.push(PageRow {
            name: start..self.names.len(),
            direction,
            is_listed,
            rates: RATES.map(|event| rate(&node, present, second, event)),
            average_rt: match second {
                Some(second) => second.average_rt(),
                None => node.average_rt(present),
            },
            concurrency: node.concurrency(present),
            waiting: node.waiting(),
            slots_in_use: node.slots_in_use(),
            adaptive_limit: resource.adaptive_limit(),
            shedding: resource.shedding(),
            breaker: worst,
            totals: node.totals(present),
        });
    }
}

/// Returns the number of events in the last whole second, as in the plots. For a node that keeps no
/// seconds, returns the rate in the window, which includes the bucket in progress.
fn rate(node: &Node, present: Tick, second: Option<&NodeBucket>, event: Event) -> f64 {
    let count = second.and_then(|second| match event {
        Event::Pass => Some(second.pass()),
        Event::Block => Some(second.block()),
        Event::Complete => Some(second.complete()),
        Event::Error => Some(second.error()),
        _ => None,
    });
    count.map_or_else(|| node.qps(present, event), |count| count as f64)
}

/// Returns the rank of a breaker's state: the more calls a breaker in this state refuses, the
/// higher.
const fn rank(state: BreakerState) -> usize {
    match state {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open => 2,
    }
}
