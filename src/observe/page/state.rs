//! The state of an engine as JSON, sorted and cut for a page.
//!
//! It never has an origin, a context, a parameter or a key: it is made of the nodes of resources
//! alone.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::json::Json;
use super::lines::{RuleLine, limits_by_name, limits_of};
use super::minute::{LastMinute, NANOS, minute_of, minute_of_all};
use super::query::{Sort, StateQuery};
use super::store::write_store;
use super::words::LimitFigures;
use crate::base::sync::Lock;
use crate::breaker::BreakerState;
use crate::call::Direction;
use crate::clock::Tick;
use crate::engine::registry::Registry;
use crate::report::{BreakerView, NodeSnapshot, Scope, Snapshot};
use crate::rule::RuleSet;
use crate::sentinel::Sentinel;
use crate::source::WatchStatus;
use crate::stat::{Event, Totals};

/// Most breakers, rules and findings that are told, each.
const MOST_BREAKERS: usize = 200;
const MOST_RULES: usize = 500;
const MOST_FINDINGS: usize = 50;
/// From so many nodes on, a snapshot serves all requests within a while.
const MANY_NODES: usize = 1_000;
const WHILE: Duration = Duration::from_millis(250);

/// Facts of the state that the engine does not know.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) title: String,
    /// Whether resources are told whose names callers may have made up.
    pub(super) all_resources: bool,
    pub(super) since: Tick,
    /// The note that people read before they change rules, if they may.
    pub(super) edits: Option<String>,
    /// The watches of rules, by name.
    pub(super) watches: Vec<(String, WatchStatus)>,
}

/// Parts of the state that several requests share.
#[derive(Debug, Default)]
pub(super) struct KeptParts {
    rules: Lock<Option<(u64, Arc<[RuleLine]>)>>,
    snapshot: Lock<Option<(Tick, Arc<Snapshot>)>>,
}

/// The counts of a keyed rule over all known resources.
#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    overflows: u64,
    missing: u64,
}

/// The state of `sentinel` as `query` asks for it.
pub(super) fn state(
    sentinel: &Sentinel,
    about: &About,
    kept: &KeptParts,
    query: &StateQuery,
) -> String {
    let registry = sentinel.registry();
    let time = &registry.shared().time;
    let now = time.check_making(time.read());
    let rules = registry.rules();
    let lines = kept.lines(&rules);
    let snapshot = kept.snapshot(sentinel, now);
    let nodes: Vec<_> = snapshot
        .nodes()
        .iter()
        .filter(|node| *node.scope() == Scope::Resource)
        .collect();
    let (listed, others): (Vec<&NodeSnapshot>, Vec<_>) = nodes
        .iter()
        .partition(|node| about.all_resources || node.is_listed());

    let mut json = Json::default();
    json.object(|json| {
        json.plain("schema", 1);
        json.text("version", env!("CARGO_PKG_VERSION"));
        json.text("title", &about.title);
        json.plain(
            "up",
            now.as_nanos().saturating_sub(about.since.as_nanos()) / NANOS,
        );
        // How long ago the last second ended that is told.
        json.millis(
            "second_age",
            Some(Duration::from_nanos(now.as_nanos() % NANOS)),
        );
        write_now(json, &nodes);
        write_focus(json, sentinel, query, now);
        write_rows(json, sentinel, &listed, query, &lines, now);
        json.plain("unlisted", others.len());
        write_breakers(json, &listed, &others);
        write_rules(json, &snapshot, &nodes, &lines);
        write_watches(json, &about.watches);
        match &about.edits {
            Some(note) => json.text("edits", note),
            None => json.plain("edits", "null"),
        }
        write_findings(json, &snapshot);
        write_store(json, &snapshot);
        write_system(json, registry, &snapshot, now);
    });
    json.into_text()
}

// === impl KeptParts ===

impl KeptParts {
    /// The lines of `rules`, made once for each set.
    fn lines(&self, rules: &RuleSet) -> Arc<[RuleLine]> {
        let mut kept = self.rules.lock();
        match &*kept {
            Some((version, lines)) if *version == rules.version() => lines.clone(),
            _ => {
                let lines: Arc<[RuleLine]> = rules.with_ids().map(RuleLine::new).collect();
                *kept = Some((rules.version(), lines.clone()));
                lines
            }
        }
    }

    fn snapshot(&self, sentinel: &Sentinel, now: Tick) -> Arc<Snapshot> {
        let mut kept = self.snapshot.lock();
        if let Some((at, snapshot)) = &*kept {
            let is_new = *at <= now && now.as_nanos() - at.as_nanos() < WHILE.as_nanos() as u64;
            if is_new && snapshot.nodes().len() >= MANY_NODES {
                return snapshot.clone();
            }
        }
        let snapshot = Arc::new(sentinel.snapshot());
        *kept = (snapshot.nodes().len() >= MANY_NODES).then(|| (now, snapshot.clone()));
        snapshot
    }
}

// === the parts, in their order ===

/// The rates of all resources together.
fn write_now(json: &mut Json, nodes: &[&NodeSnapshot]) {
    let sum = |event| Some(nodes.iter().map(|node| rate(node, event)).sum());
    json.member("now", |json| {
        for event in [Event::Pass, Event::Block, Event::Complete, Event::Error] {
            json.number(&format!("{event}_qps"), sum(event));
        }
        let in_flight = nodes.iter().map(|node| u64::from(node.concurrency()));
        json.plain("concurrency", in_flight.sum::<u64>());
        let waiting = nodes.iter().map(|node| u64::from(node.waiting()));
        json.plain("waiting", waiting.sum::<u64>());
    });
}

/// The minute of one resource, or of all.
fn write_focus(json: &mut Json, sentinel: &Sentinel, query: &StateQuery, now: Tick) {
    json.member("focus", |json| {
        let minute = match &query.focus {
            Some((direction, name)) => {
                json.text("resource", name);
                json.text("direction", &direction.to_string());
                minute_of(sentinel, *direction, name, now)
            }
            None => {
                json.plain("resource", "null");
                json.plain("direction", "null");
                Some(minute_of_all(sentinel.registry(), now))
            }
        };
        match minute {
            Some(minute) => json.member("seconds", |json| {
                write_seconds(json, &minute);
                json.list("error", minute, |json, second| json.value(second.error));
                json.list("average_rt", minute, |json, second| match second.calls {
                    0 => json.value("null"),
                    calls => json.value(second.rt.as_secs_f64() * 1e3 / calls as f64),
                });
            }),
            None => json.plain("seconds", "null"),
        }
    });
}

/// The rows of the table of resources.
fn write_rows(
    json: &mut Json,
    sentinel: &Sentinel,
    listed: &[&NodeSnapshot],
    query: &StateQuery,
    lines: &[RuleLine],
    now: Tick,
) {
    let has_part = |name: &str| query.part.is_empty() || name.to_lowercase().contains(&query.part);
    let matching = listed.iter().filter(|node| has_part(node.resource()));
    let mut rows: Vec<&NodeSnapshot> = matching.copied().collect();
    rows.sort_by(|a, b| by(query.sort, a, b));
    let limits = limits_by_name(lines);
    json.member("resources", |json| {
        json.plain("listed", listed.len());
        json.plain("matching", rows.len());
        json.list("nodes", rows.into_iter().take(query.rows), |json, node| {
            let limits = limits_of(node, &limits);
            json.object(|json| {
                write_row(json, node, limits);
                let name = node.resource();
                match minute_of(sentinel, node.direction(), name, now) {
                    Some(minute) => json.member("seconds", |json| write_seconds(json, &minute)),
                    None => json.plain("seconds", "null"),
                }
            });
        });
    });
}

fn write_row(json: &mut Json, node: &NodeSnapshot, limits: LimitFigures) {
    json.text("resource", node.resource());
    json.text("direction", &node.direction().to_string());
    for event in [Event::Pass, Event::Block, Event::Complete, Event::Error] {
        json.number(&format!("{event}_qps"), Some(rate(node, event)));
    }
    json.number("limit_qps", limits.per_second);
    json.millis("average_rt", average_rt(node));
    json.plain("concurrency", node.concurrency());
    json.number("limit_concurrency", limits.at_once);
    json.plain("waiting", node.waiting());
    json.plain("slots_in_use", node.slots_in_use());
    let worst = node
        .breakers()
        .iter()
        .map(BreakerView::state)
        .max_by_key(|it| rank(*it));
    match worst {
        Some(state) => json.text("breaker", &state.to_string()),
        None => json.plain("breaker", "null"),
    }
    json.member("totals", |json| write_totals(json, node.totals()));
}

fn write_totals(json: &mut Json, totals: &Totals) {
    json.plain("pass", totals.pass());
    json.plain("block", totals.block());
    json.plain("complete", totals.complete());
    json.plain("error", totals.error());
    json.member("block_by", |json| {
        for (kind, count) in totals.blocks().filter(|(_, count)| *count > 0) {
            json.plain(&kind.to_string(), count);
        }
    });
}

fn write_seconds(json: &mut Json, minute: &LastMinute) {
    json.list("pass", minute, |json, second| json.value(second.pass));
    json.list("block", minute, |json, second| json.value(second.block));
}

/// The breakers, those that refuse calls first.
fn write_breakers(json: &mut Json, listed: &[&NodeSnapshot], others: &[&NodeSnapshot]) {
    let all = |nodes: &[&NodeSnapshot]| -> Vec<(String, Direction, BreakerView)> {
        let each = nodes.iter().flat_map(|node| {
            let breakers = node.breakers().iter();
            breakers.map(|it| (node.resource().to_owned(), node.direction(), it.clone()))
        });
        each.collect()
    };
    let mut breakers = all(listed);
    breakers.sort_by_key(|(_, _, breaker)| Reverse(rank(breaker.state())));
    let count = breakers.len();
    breakers.truncate(MOST_BREAKERS);
    json.member("breakers", |json| {
        json.plain("count", count);
        let hidden = all(others);
        let open = hidden
            .iter()
            .filter(|(_, _, it)| it.state() != BreakerState::Closed);
        json.plain("unlisted_open", open.count());
        json.list("list", breakers, |json, (resource, direction, breaker)| {
            json.object(|json| {
                json.text("resource", &resource);
                json.text("direction", &direction.to_string());
                json.text("rule", breaker.rule());
                json.text("state", &breaker.state().to_string());
                json.millis("retry_after", breaker.retry_after());
                json.millis("in_state_for", Some(breaker.in_state_for()));
                json.plain("opened", breaker.times_entered(BreakerState::Open));
                json.plain("bad_calls", breaker.bad_calls());
                json.millis("since_last_bad_call", breaker.since_last_bad_call());
            });
        });
    });
}

fn write_rules(json: &mut Json, snapshot: &Snapshot, nodes: &[&NodeSnapshot], lines: &[RuleLine]) {
    let mut keys: HashMap<&str, Keys> = HashMap::new();
    for params in nodes.iter().flat_map(|node| node.keyed_rules()) {
        let keys = keys.entry(params.rule()).or_default();
        keys.overflows += params.overflows();
        keys.missing += params.missing();
    }
    let would_block: HashMap<&str, u64> = snapshot.shadows().collect();
    let refusing = snapshot.rules().filter(|rule| !rule.settings().is_shadow());
    let blocked: HashMap<&str, u64> = refusing.map(|rule| (rule.id(), rule.blocked())).collect();
    json.member("rules", |json| {
        json.plain("count", lines.len());
        json.plain("version", snapshot.rules_version());
        json.millis("since", since_1970(snapshot.rules_since()));
        // That of all rules, if the engine refuses nothing at all.
        let together = would_block.get("").map(|count| *count as f64);
        json.number("would_block", together);
        json.list("list", lines.iter().take(MOST_RULES), |json, line| {
            json.object(|json| {
                json.text("id", &line.id);
                json.text("kind", line.kind);
                json.text("resource", &line.resource);
                json.text("limit", &line.words);
                json.plain("is_shadow", line.is_shadow);
                json.number("blocked", blocked.get(&*line.id).map(|count| *count as f64));
                let count = would_block.get(&*line.id).filter(|_| line.is_shadow);
                json.number("would_block", count.map(|count| *count as f64));
                let keys = keys.get(&*line.id);
                json.number("overflows", keys.map(|keys| keys.overflows as f64));
                json.number("missing", keys.map(|keys| keys.missing as f64));
            });
        });
    });
}

/// The outcomes of reading rules.
fn write_watches(json: &mut Json, watches: &[(String, WatchStatus)]) {
    json.list("sources", watches, |json, (name, status)| {
        json.object(|json| {
            json.text("name", name);
            json.millis("last_poll", status.last_poll().and_then(since_1970));
            json.plain("reloads", status.reloads());
            match status.last_error() {
                Some(error) => json.text("error", &error.to_string()),
                None => json.plain("error", "null"),
            }
            json.plain("warnings", status.warnings().len());
        });
    });
}

fn since_1970(time: SystemTime) -> Option<Duration> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok()
}

fn write_findings(json: &mut Json, snapshot: &Snapshot) {
    let findings = snapshot.findings();
    json.member("findings", |json| {
        json.plain("count", findings.len());
        json.list(
            "list",
            findings.iter().take(MOST_FINDINGS),
            |json, finding| {
                json.object(|json| {
                    json.text("kind", finding.kind().as_str());
                    json.text("rule", finding.rule());
                    json.text("resource", finding.resource());
                    json.text("text", &finding.to_string());
                });
            },
        );
    });
}

fn write_system(json: &mut Json, registry: &Registry, snapshot: &Snapshot, now: Tick) {
    let sampler = registry.shared().config.sampler.as_ref();
    json.member("system", |json| {
        let readings = sampler.map(|sampler| sampler.sample(now));
        json.number("load", readings.and_then(|readings| readings.load()));
        json.number("cpu", readings.and_then(|readings| readings.cpu()));
        let memory = sampler.and_then(|sampler| sampler.sample_memory(now));
        json.number("memory", memory.map(|memory| memory.used() as f64));
        json.number("memory_limit", memory.map(|memory| memory.limit() as f64));
        json.plain("resources", snapshot.resources());
        json.plain("origins", snapshot.origins());
        json.plain("evicted", snapshot.evicted());
        json.plain("overflowed", snapshot.overflowed());
    });
}

// === figures ===

/// How many there were in the second before the present one, as plots have them. The window of a
/// node that keeps no seconds also has a part of a bucket.
fn rate(node: &NodeSnapshot, event: Event) -> f64 {
    let Some(second) = node.previous_second() else {
        return node.qps(event);
    };
    let count = match event {
        Event::Pass => second.pass(),
        Event::Block => second.block(),
        Event::Complete => second.complete(),
        Event::Error => second.error(),
        _ => return node.qps(event),
    };
    count as f64
}

/// That of the same time.
fn average_rt(node: &NodeSnapshot) -> Option<Duration> {
    match node.previous_second() {
        Some(second) => second.average_rt(),
        None => node.average_rt(),
    }
}

/// Closed, half-open, open.
const fn rank(state: BreakerState) -> u8 {
    match state {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open => 2,
    }
}

/// The order of two rows: the larger figure first, then the name.
fn by(sort: Sort, a: &NodeSnapshot, b: &NodeSnapshot) -> Ordering {
    let more = |event| rate(b, event).total_cmp(&rate(a, event));
    let figure = match sort {
        Sort::Refused => {
            let total = || b.totals().block().cmp(&a.totals().block());
            more(Event::Block)
                .then_with(total)
                .then_with(|| more(Event::Pass))
        }
        Sort::Passed => more(Event::Pass),
        Sort::Failed => {
            let total = || b.totals().error().cmp(&a.totals().error());
            more(Event::Error).then_with(total)
        }
        Sort::Rt => average_rt(b).cmp(&average_rt(a)),
        Sort::InFlight => b.concurrency().cmp(&a.concurrency()),
        Sort::Name => Ordering::Equal,
    };
    figure.then_with(|| a.resource().cmp(b.resource()))
}
