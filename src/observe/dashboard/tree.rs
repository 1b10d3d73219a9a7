//! The resources as they are at this moment, as a list and as a tree.
//!
//! The tree has Sentinel's form, a root and one entrance, below which all resources are: which
//! contexts calls come through may be for callers to say.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::UNIX_EPOCH;

use serde_json::{Map, Value};

use crate::clock::wall_time;
use crate::report::{NodeSnapshot, Scope};
use crate::sentinel::Sentinel;
use crate::stat::{Event, NodeBucket};

const ROOT: &str = "machine-root";
const ENTRANCE: &str = "sentinel_default_context";

/// The figures of a resource, or of many.
#[derive(Clone, Debug, Default)]
struct TreeFigures {
    threads: u32,
    /// Per second.
    pass: f64,
    block: f64,
    success: f64,
    error: f64,
    /// The count of the window, for the average.
    window: NodeBucket,
    minute: NodeBucket,
}

impl TreeFigures {
    fn add_node(&mut self, node: &NodeSnapshot) {
        self.add(&Self {
            threads: node.concurrency(),
            pass: node.qps(Event::Pass),
            block: node.qps(Event::Block),
            success: node.qps(Event::Complete),
            error: node.qps(Event::Error),
            window: *node.window(),
            minute: node.minute().copied().unwrap_or_default(),
        });
    }

    fn add(&mut self, other: &Self) {
        self.threads = self.threads.saturating_add(other.threads);
        self.pass += other.pass;
        self.block += other.block;
        self.success += other.success;
        self.error += other.error;
        self.window.merge(&other.window);
        self.minute.merge(&other.minute);
    }

    /// A node of the dashboard's, called `resource`.
    fn write(&self, resource: &str, at: u64) -> Map<String, Value> {
        let rt = self.window.average_rt().map_or(0, |rt| rt.as_millis());
        let (pass, block) = (self.minute.pass(), self.minute.block());
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
            ("oneMinuteException", self.minute.error()),
            ("oneMinuteTotal", pass.saturating_add(block)),
            ("timestamp", at),
        ];
        let numbers = numbers.map(|(key, number)| (key.to_owned(), number.into()));
        let mut node = Map::from_iter(numbers);
        node.insert("resource".to_owned(), resource.into());
        node
    }
}

/// The resources whose names callers cannot make up, by name.
fn resources(sentinel: &Sentinel) -> BTreeMap<String, TreeFigures> {
    let mut resources: BTreeMap<String, TreeFigures> = BTreeMap::new();
    for node in sentinel.snapshot().nodes() {
        if *node.scope() == Scope::Resource && node.is_listed() {
            let figures = resources.entry(node.resource().to_owned()).or_default();
            figures.add_node(node);
        }
    }
    resources
}

/// The tree, parents before their children.
pub(super) fn tree(sentinel: &Sentinel) -> String {
    let (resources, at) = (resources(sentinel), millis());
    let mut all = TreeFigures::default();
    resources.values().for_each(|figures| all.add(figures));
    let mut nodes = Vec::new();
    let mut add = |figures: &TreeFigures, name: &str, parent: Option<&str>| {
        let id = unique();
        let mut node = figures.write(name, at);
        node.insert("id".to_owned(), id.as_str().into());
        if let Some(parent) = parent {
            node.insert("parentId".to_owned(), parent.into());
        }
        nodes.push(Value::Object(node));
        id
    };
    let root = add(&all, ROOT, None);
    let entrance = add(&all, ENTRANCE, Some(&root));
    for (name, figures) in &resources {
        add(figures, name, Some(&entrance));
    }
    Value::Array(nodes).to_string()
}

/// The list; if `is_busy`, of those that were called in the last minute.
pub(super) fn list(sentinel: &Sentinel, is_busy: bool) -> String {
    let at = millis();
    let resources = resources(sentinel);
    let nodes = resources
        .iter()
        .filter(|(_, figures)| !is_busy || figures.minute.pass() > 0 || figures.minute.block() > 0);
    let nodes = nodes.map(|(name, figures)| Value::Object(figures.write(name, at)));
    Value::Array(nodes.collect()).to_string()
}

fn millis() -> u64 {
    let since = wall_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A name that no other node has.
fn unique() -> String {
    let random = || RandomState::new().build_hasher().finish();
    let mut text = format!("{:016x}{:016x}", random(), random());
    for place in [8, 13, 18, 23] {
        text.insert(place, '-');
    }
    text
}
