//! Writes the state of an engine as JSON, with the rows that a page shows.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::gather::{Gathered, PORTION, PageRow, RATES};
use super::json::Json;
use super::limits::LimitFigures;
use super::minute::{LastMinute, NANOS, minute_of};
use super::query::{Sort, StateQuery};
use super::store::write_store;
use crate::base::pace::StepPace;
use crate::breaker::BreakerState;
use crate::call::Criticality;
use crate::clock::Tick;
use crate::read::Shedding;
use crate::sentinel::Sentinel;
use crate::source::WatchStatus;
use crate::stat::Totals;

/// The maximum number of findings that are shown.
const MOST_FINDINGS: usize = 50;
/// The number of rows that are read as one batch. A row is cheap to read, so the work is counted
/// once for each batch.
const LOOKED_AT: usize = 128;

/// The parts of the state that do not come from the engine.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) title: String,
    /// Whether resources whose names callers can make up are shown.
    pub(super) all_resources: bool,
    /// When the page was created.
    pub(super) since: Tick,
    /// The note that people read before they change rules; `None` if the page cannot change rules.
    pub(super) edits: Option<String>,
    /// The watches of rules, by name.
    pub(super) watches: Vec<(String, WatchStatus)>,
}

/// Writes one state, from the gathered figures.
pub(super) struct StateWriter {
    pub(super) sentinel: Sentinel,
    pub(super) about: About,
    pub(super) gathered: Arc<Gathered>,
}

// === impl StateWriter ===

impl StateWriter {
    /// Writes the state that `query` asks for, in small steps.
    pub(super) async fn write(self, query: StateQuery) -> Bytes {
        let (pace, mut json) = (&mut StepPace::of(PORTION), Json::default());
        let (gathered, about) = (&*self.gathered, &self.about);
        let now = gathered.now;
        json.begin_object(None);
        json.plain("schema", 1);
        json.text("version", env!("CARGO_PKG_VERSION"));
        json.text("title", &about.title);
        let up = now.as_nanos().saturating_sub(about.since.as_nanos());
        json.plain("up", up / NANOS);
        // The time since the end of the last second that is shown.
        let age = Duration::from_nanos(now.as_nanos() % NANOS);
        json.millis("second_age", Some(age));
        self.write_now(&mut json, pace).await;
        self.write_focus(&mut json, &query);
        self.write_rows(&mut json, &query, pace).await;
        write_breakers(&mut json, gathered, pace).await;
        write_rules(&mut json, gathered, pace).await;
        write_watches(&mut json, &about.watches);
        match &about.edits {
            Some(note) => json.text("edits", note),
            None => json.plain("edits", "null"),
        }
        write_findings(&mut json, gathered);
        write_store(&mut json, gathered.store.as_ref());
        write_system(&mut json, &self.sentinel, gathered);
        json.end_object();
        json.into_text().into()
    }

    /// Writes the rates of all resources together.
    async fn write_now(&self, json: &mut Json, pace: &mut StepPace) {
        let (mut rates, mut concurrency, mut waiting) = ([0.0; RATES.len()], 0, 0);
        for rows in self.gathered.rows.chunks(LOOKED_AT) {
            for row in rows {
                for (sum, rate) in rates.iter_mut().zip(row.rates) {
                    *sum += rate;
                }
                concurrency += u64::from(row.concurrency);
                waiting += u64::from(row.waiting);
            }
            pace.spend(1).await;
        }
        json.member("now", |json| {
            for (event, rate) in RATES.iter().zip(rates) {
                json.number(&format!("{event}_qps"), Some(rate));
            }
            json.plain("concurrency", concurrency);
            json.plain("waiting", waiting);
        });
    }

    /// Writes the last minute of one resource, or of all resources together.
    fn write_focus(&self, json: &mut Json, query: &StateQuery) {
        json.member("focus", |json| {
            let minute = match &query.focus {
                Some((direction, name)) => {
                    json.text("resource", name);
                    json.text("direction", &direction.to_string());
                    minute_of(&self.sentinel, *direction, name, self.gathered.now)
                }
                None => {
                    json.plain("resource", "null");
                    json.plain("direction", "null");
                    Some(self.gathered.minute)
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

    /// Writes the rows of the table of resources.
    async fn write_rows(&self, json: &mut Json, query: &StateQuery, pace: &mut StepPace) {
        let gathered = &*self.gathered;
        let (mut listed, mut matching, mut first) = (0, 0, Vec::<&PageRow>::new());
        for rows in gathered.rows.chunks(LOOKED_AT) {
            for row in rows.iter().filter(|row| row.is_listed) {
                listed += 1;
                let name = gathered.name(row);
                if query.part.is_empty() || name.to_lowercase().contains(&query.part) {
                    matching += 1;
                    first.push(row);
                }
            }
            first.sort_by(|a, b| gathered.compare(query.sort, a, b));
            first.truncate(query.rows);
            // A batch that is filtered and sorted counts as half a portion.
            pace.spend(PORTION / 2).await;
        }
        json.begin_object(Some("resources"));
        json.plain("listed", listed);
        json.plain("matching", matching);
        json.begin_list("nodes");
        for row in first {
            let name = gathered.name(row);
            let limits = gathered.lines.limits_of(name, row.adaptive_limit);
            json.object(|json| {
                write_row(json, name, row, limits);
                match minute_of(&self.sentinel, row.direction, name, gathered.now) {
                    Some(minute) => json.member("seconds", |json| write_seconds(json, &minute)),
                    None => json.plain("seconds", "null"),
                }
            });
            // A row with its minute counts as much work as four resources that are read.
            pace.spend(4).await;
        }
        json.end_list();
        json.end_object();
        json.plain("unlisted", gathered.rows.len() - listed);
    }
}

// === the parts of the state ===

/// Writes the figures of a resource.
fn write_row(json: &mut Json, name: &str, row: &PageRow, limits: LimitFigures) {
    json.text("resource", name);
    json.text("direction", &row.direction.to_string());
    for (event, rate) in RATES.iter().zip(row.rates) {
        json.number(&format!("{event}_qps"), Some(rate));
    }
    json.number("limit_qps", limits.per_second);
    json.millis("average_rt", row.average_rt);
    json.plain("concurrency", row.concurrency);
    json.number("limit_concurrency", limits.at_once);
    json.plain("waiting", row.waiting);
    json.plain("slots_in_use", row.slots_in_use);
    match row.breaker {
        Some(state) => json.text("breaker", &state.to_string()),
        None => json.plain("breaker", "null"),
    }
    match &row.shedding {
        Some(shedding) => json.list("classes", Criticality::ALL.iter(), |json, class| {
            json.object(|json| write_class(json, *class, shedding));
        }),
        None => json.plain("classes", "null"),
    }
    json.member("totals", |json| write_totals(json, &row.totals));
}

/// Writes how an adaptive rule treats a class of calls. Of the shut classes, the most important one
/// is `marginal`: it gets the capacity that the open classes leave. The other shut classes are
/// `excess`.
fn write_class(json: &mut Json, class: Criticality, shedding: &Shedding) {
    json.text("criticality", class.as_str());
    let state = match shedding.shut() {
        [marginal, ..] if *marginal == class => "marginal",
        shut if shut.contains(&class) => "excess",
        _ => "open",
    };
    json.text("state", state);
    json.plain("bound", shedding.bound(class));
    json.plain("admitted", shedding.admitted(class));
    json.plain("blocked", shedding.refused(class));
}

/// Writes the totals, with the refusals of each kind that occurred.
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

/// Writes the passes and the refusals of each second.
fn write_seconds(json: &mut Json, minute: &LastMinute) {
    json.list("pass", minute, |json, second| json.value(second.pass));
    json.list("block", minute, |json, second| json.value(second.block));
}

/// Writes the breakers. Breakers that refuse calls come first.
async fn write_breakers(json: &mut Json, gathered: &Gathered, pace: &mut StepPace) {
    json.begin_object(Some("breakers"));
    json.plain("count", gathered.breaker_count);
    json.plain("unlisted_open", gathered.unlisted_open);
    json.begin_list("list");
    for (resource, direction, breaker) in &gathered.breakers {
        json.object(|json| {
            json.text("resource", resource);
            json.text("direction", &direction.to_string());
            json.text("rule", breaker.rule());
            json.text("state", &breaker.state().to_string());
            json.millis("retry_after", breaker.retry_after());
            json.millis("in_state_for", Some(breaker.in_state_for()));
            json.plain("opened", breaker.times_entered(BreakerState::Open));
            json.plain("bad_calls", breaker.bad_calls());
            json.millis("since_last_bad_call", breaker.since_last_bad_call());
        });
        pace.spend(1).await;
    }
    json.end_list();
    json.end_object();
}

/// Writes the rules that are shown, each with its counts.
async fn write_rules(json: &mut Json, gathered: &Gathered, pace: &mut StepPace) {
    let lines = &*gathered.lines;
    json.begin_object(Some("rules"));
    json.plain("count", lines.count);
    json.plain("version", lines.version);
    json.millis("since", since_1970(gathered.rules_since));
    // If the whole engine is in shadow mode, this is the count of all its rules together.
    let together = gathered.would_block.get("").map(|count| *count as f64);
    json.number("would_block", together);
    json.begin_list("list");
    for (line, blocked) in lines.shown.iter().zip(&gathered.blocked) {
        let keys = gathered.keys.get(&*line.id);
        let blocks = keys.and_then(|keys| keys.blocks);
        json.object(|json| {
            json.text("id", &line.id);
            json.text("kind", line.kind);
            json.text("resource", &line.resource);
            let words = gathered.budgets.words(&line.id, &line.words);
            match blocks {
                Some(count) => json.text("limit", &format!("{words}: {count} blocks so far")),
                None => json.text("limit", &words),
            }
            json.plain("is_shadow", line.is_shadow);
            let blocked = (!line.is_shadow).then_some(*blocked as f64);
            json.number("blocked", blocked);
            let count = gathered.would_block.get(&*line.id);
            let count = count.filter(|_| line.is_shadow);
            json.number("would_block", count.map(|count| *count as f64));
            json.number("overflows", keys.map(|keys| keys.overflows as f64));
            json.number("missing", keys.map(|keys| keys.missing as f64));
            let resets = keys.map(|keys| keys.resets);
            let resets = resets.or_else(|| gathered.shared_resets.get(&line.id).copied());
            json.number("resets", resets.map(|count| count as f64));
            json.number("blocks", blocks.map(|count| count as f64));
            gathered.budgets.write(&line.id, json);
        });
        pace.spend(1).await;
    }
    json.end_list();
    json.end_object();
}

/// Writes the outcomes of the watches of rules.
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

fn write_findings(json: &mut Json, gathered: &Gathered) {
    let findings = &gathered.findings;
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

/// Writes the figures of the machine and of the tables.
fn write_system(json: &mut Json, sentinel: &Sentinel, gathered: &Gathered) {
    let sampler = sentinel.registry().shared().config.sampler.as_ref();
    json.member("system", |json| {
        let readings = sampler.map(|sampler| sampler.sample(gathered.now));
        json.number("load", readings.and_then(|readings| readings.load()));
        json.number("cpu", readings.and_then(|readings| readings.cpu()));
        let memory = sampler.and_then(|sampler| sampler.sample_memory(gathered.now));
        json.number("memory", memory.map(|memory| memory.used() as f64));
        json.number("memory_limit", memory.map(|memory| memory.limit() as f64));
        json.plain("resources", gathered.rows.len());
        json.plain("origins", gathered.origins);
        json.plain("evicted", gathered.evicted);
        json.plain("overflowed", gathered.overflowed);
    });
}

// === impl Gathered ===

impl Gathered {
    /// Compares two rows by the figure that `sort` names, larger first, and then by the name. Equal
    /// rates of refusals or of errors are followed by the totals.
    fn compare(&self, sort: Sort, a: &PageRow, b: &PageRow) -> Ordering {
        let [pass, block, _, error] =
            std::array::from_fn(|place| b.rates[place].total_cmp(&a.rates[place]));
        let figure = match sort {
            Sort::Refused => {
                let total = b.totals.block().cmp(&a.totals.block());
                block.then(total).then(pass)
            }
            Sort::Passed => pass,
            Sort::Failed => error.then(b.totals.error().cmp(&a.totals.error())),
            Sort::Rt => b.average_rt.cmp(&a.average_rt),
            Sort::InFlight => b.concurrency.cmp(&a.concurrency),
            Sort::Name => Ordering::Equal,
        };
        figure.then_with(|| self.name(a).cmp(self.name(b)))
    }
}
