//! Writes the current figures of the resources, as a list and as a tree.
//!
//! The tree has Sentinel's form: a root, one entrance below it, and below that all resources. It
//! has no entrance per context, because callers can make up the names of contexts.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::list::ListText;
use crate::base::pace::StepPace;
use crate::base::wall::since_1970;
use crate::clock::Tick;
use crate::engine::registry::Registry;
use crate::read::{ResourceReading, read_resources_paced};
use crate::stat::{Event, Node, average_rt};

/// The name of the root in Sentinel.
const ROOT: &str = "machine-root";
/// The name of the entrance, which is the default context of Sentinel.
const ENTRANCE: &str = "sentinel_default_context";

/// The figures of a resource, or the sums over several resources.
#[derive(Clone, Debug, Default)]
struct TreeFigures {
    /// The calls in flight.
    threads: u32,
    /// The rate of passes, per second, like the next three rates.
    pass: f64,
    block: f64,
    success: f64,
    error: f64,
    /// The number of calls that ended in the window, for the average response time.
    calls: u64,
    /// The sum of the response times of these calls.
    rt: Duration,
    minute: MinuteFigures,
}

/// The counts of the last minute.
#[derive(Clone, Copy, Debug, Default)]
struct MinuteFigures {
    pass: u64,
    block: u64,
    error: u64,
}

impl TreeFigures {
    fn of(node: &Node, now: Tick) -> Self {
        let (calls, rt) = node.calls_and_rt(now);
        let mut minute = MinuteFigures::default();
        for second in node.seconds(now).unwrap_or_default() {
            minute.pass += second.pass();
            minute.block += second.block();
            minute.error += second.error();
        }
        Self {
            threads: node.concurrency(now),
            pass: node.qps(now, Event::Pass),
            block: node.qps(now, Event::Block),
            success: node.qps(now, Event::Complete),
            error: node.qps(now, Event::Error),
            calls,
            rt,
            minute,
        }
    }

    fn add(&mut self, other: &Self) {
        self.threads = self.threads.saturating_add(other.threads);
        self.pass += other.pass;
        self.block += other.block;
        self.success += other.success;
        self.error += other.error;
        self.calls += other.calls;
        self.rt += other.rt;
        self.minute.pass += other.minute.pass;
        self.minute.block += other.minute.block;
        self.minute.error += other.minute.error;
    }

    /// Writes the figures as a node named `resource`, at the time `at` in milliseconds since 1970.
    fn write(&self, resource: &str, at: u64) -> Map<String, Value> {
        let rt = average_rt(self.calls, self.rt.as_micros() as u64).map_or(0, |rt| rt.as_millis());
        let MinuteFigures { pass, block, error } = self.minute;
        let numbers: [(&str, u64); 12] = [
            ("threadNum", self.threads.into()),
            ("passQps", self.pass as u64),
            ("blockQps", self.block as u64),
            ("totalQps", (self.pass + self.block) as u64),
            ("averageRt", u64::try_from(rt).unwrap_or(u64::MAX)),
            ("successQps", self.success as u64),
            ("exceptionQps", self.error as u64),
            ("oneMinutePass", pass),
            ("oneMinuteBlock", block),
            ("oneMinuteException", error),
            ("oneMinuteTotal", pass.saturating_add(block)),
            ("timestamp", at),
        ];
        let numbers = numbers.map(|(key, number)| (key.to_owned(), number.into()));
        let mut node = Map::from_iter(numbers);
        node.insert("resource".to_owned(), resource.into());
        node
    }
}

/// Returns the figures of the resources whose names callers cannot make up, by name.
async fn resources(registry: &Registry, pace: &mut StepPace) -> BTreeMap<Arc<str>, TreeFigures> {
    let mut resources: BTreeMap<Arc<str>, TreeFigures> = BTreeMap::new();
    let mut add = |reading: &ResourceReading<'_>| {
        if reading.is_listed() {
            let present = reading.present();
            let own = TreeFigures::of(&present.node(), present.now);
            let figures = resources.entry(reading.name().clone()).or_default();
            figures.add(&own);
        }
    };
    read_resources_paced(registry, pace, 1, &mut add).await;
    resources
}

/// Returns the tree, with parents before their children.
pub(super) async fn tree(registry: &Registry, pace: &mut StepPace) -> String {
    let (resources, at) = (resources(registry, pace).await, millis());
    let mut all = TreeFigures::default();
    for figures in resources.values() {
        all.add(figures);
        pace.spend(1).await;
    }
    let mut nodes = ListText::default();
    let mut add = |figures: &TreeFigures, name: &str, parent: Option<&str>| {
        let id = random_id();
        let mut node = figures.write(name, at);
        node.insert("id".to_owned(), id.as_str().into());
        if let Some(parent) = parent {
            node.insert("parentId".to_owned(), parent.into());
        }
        nodes.push(&Value::Object(node));
        id
    };
    let root = add(&all, ROOT, None);
    let entrance = add(&all, ENTRANCE, Some(&root));
    for (name, figures) in resources {
        add(&figures, &name, Some(&entrance));
        pace.spend(1).await;
    }
    nodes.into_text()
}

/// Returns the list; if `is_busy`, only of the resources that were called in the last minute.
pub(super) async fn list(registry: &Registry, is_busy: bool, pace: &mut StepPace) -> String {
    let (resources, at) = (resources(registry, pace).await, millis());
    let mut nodes = ListText::default();
    for (name, figures) in resources {
        if !is_busy || figures.minute.pass > 0 || figures.minute.block > 0 {
            nodes.push(&Value::Object(figures.write(&name, at)));
        }
        pace.spend(1).await;
    }
    nodes.into_text()
}

/// Returns the present time in milliseconds since 1970.
fn millis() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// Returns a random id in the form of a UUID, so that no other node has it.
fn random_id() -> String {
    let random = || RandomState::new().build_hasher().finish();
    let mut text = format!("{:016x}{:016x}", random(), random());
    for place in [8, 13, 18, 23] {
        text.insert(place, '-');
    }
    text
}
