//! Replays statistics, on a single node, or on an engine that keeps a node for the resource, for
//! every origin, for every context and for all inbound calls.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tower_sentinel::clock::Tick;
use tower_sentinel::read::{NodeSnapshot, Scope};
use tower_sentinel::{Call, Entry, FlowRule, ManualClock, Sentinel, Verdict};

use super::{ORIGIN_MS, Step, Subject, at, millis, ms};
use crate::stat::{Node, NodeBucket, Outcome};

const RESOURCE: &str = "resource";

/// The object under test, depending on the case.
pub(crate) enum Nodes {
    SingleNode(Box<SingleNode>),
    EngineNodes(Box<EngineNodes>),
}

/// A single node without an engine.
pub(crate) struct SingleNode {
    node: Node,
    form: Form,
    /// The running calls by their recorded ids, each with its start time and its weight.
    running: HashMap<i64, (Tick, u32)>,
    /// The newest second that `metrics` has returned.
    last_returned: i64,
}

/// An engine with one flow rule.
pub(crate) struct EngineNodes {
    sentinel: Sentinel,
    clock: ManualClock,
    form: Form,
    is_inbound: bool,
    running: HashMap<i64, Entry>,
}

/// The parameters by which the figures of a case are converted to the recorded form.
#[derive(Clone, Copy)]
struct Form {
    /// The length of the window.
    interval: Duration,
    /// The number of buckets of the window.
    buckets: u32,
    /// The largest response time that the record can show, in ms. It also stands for no response
    /// time.
    max_rt: f64,
}

/// The figures of a node.
#[derive(Default)]
struct Reading {
    buckets: Vec<NodeBucket>,
    seconds: Vec<NodeBucket>,
    previous_second: NodeBucket,
    threads: u32,
}

impl Subject for Nodes {
    fn new(config: &Value) -> Result<Self, String> {
        let interval = millis(config, "interval_ms");
        let buckets = config["sample_count"].as_u64().unwrap_or(0) as u32;
        let max_rt = config["max_rt_ms"].as_f64().unwrap_or(5_000.0);
        let form = Form {
            interval,
            buckets,
            max_rt,
        };
        let start = at(-ORIGIN_MS);
        if config["kind"] == "node" {
            let node = Node::new(interval, buckets, start).map_err(|error| error.to_string())?;
            return Ok(Self::SingleNode(Box::new(SingleNode {
                node,
                form,
                running: HashMap::new(),
                last_returned: i64::MIN,
            })));
        }
        let threshold = config["qps_threshold"].as_f64().unwrap_or(0.0);
        let clock = ManualClock::starting_at(start);
        let sentinel = Sentinel::builder()
            .rules(FlowRule::per(RESOURCE, threshold, interval).buckets(buckets))
            .clock(clock.clone())
            .window(interval, buckets)
            .map_err(|error| error.to_string())?
            .occupy_timeout(millis(config, "occupy_timeout_ms"))
            .origins(true)
            .contexts(true)
            .minute_of_origins(true)
            .build();
        Ok(Self::EngineNodes(Box::new(EngineNodes {
            sentinel,
            clock,
            form,
            is_inbound: config["inbound"] == true,
            running: HashMap::new(),
        })))
    }

    fn answer(&mut self, step: &Step) -> Value {
        match self {
            Self::SingleNode(node) => node.answer(step),
            Self::EngineNodes(nodes) => nodes.answer(step),
        }
    }
}

impl SingleNode {
    fn answer(&mut self, step: &Step) -> Value {
        let now = step.now();
        match step.op.as_str() {
            "enter" => {
                self.node.pass(now, step.weight());
                self.running.insert(step.int("id"), (now, step.weight()));
                Value::Null
            }
            "exit" => {
                let (start, n) = self.running.remove(&step.int("id")).expect("it runs");
                let outcome = if step.is("error") {
                    Outcome::Failure
                } else {
                    Outcome::Success
                };
                self.node.complete(now, n, now - start, outcome);
                Value::Null
            }
            "block" => {
                self.node.block(now, step.weight());
                Value::Null
            }
            "read" => self.form.figures(&Reading {
                buckets: self.node.buckets(now),
                seconds: self.node.seconds(now).expect("seconds are kept"),
                previous_second: self.node.previous_second(now).expect("they are"),
                threads: self.node.concurrency(now),
            }),
            "metrics" => json!({ "nodes": self.metrics(now) }),
            _ => step.unknown(),
        }
    }

    /// Returns the complete seconds with events that this method has not returned before.
    fn metrics(&mut self, now: Tick) -> Vec<Value> {
        let seconds = self.node.seconds(now).expect("seconds are kept");
        let present = ms(now).div_euclid(1_000) * 1_000;
        let mut lines = Vec::new();
        for second in seconds {
            let start = ms(second.start());
            let is_used = [
                second.pass(),
                second.block(),
                second.complete(),
                second.error(),
            ]
            .iter()
            .any(|count| *count > 0);
            if start <= self.last_returned || start >= present || !is_used {
                continue;
            }
            self.last_returned = start;
            let rt = second.average_rt().unwrap_or_default();
            lines.push(json!({
                "timestamp": start,
                "pass": second.pass(),
                "block": second.block(),
                "success": second.complete(),
                "exception": second.error(),
                "rt": rt.as_millis() as u64,
                "occupied": second.occupied(),
            }));
        }
        lines
    }
}

impl EngineNodes {
    fn answer(&mut self, step: &Step) -> Value {
        self.clock.set(step.now());
        match step.op.as_str() {
            "enter" => self.enter(step),
            "exit" => {
                let mut entry = self.running.remove(&step.int("id")).expect("it runs");
                if step.is("error") {
                    entry.fail();
                }
                Value::Null
            }
            "read" => self.read(),
            _ => step.unknown(),
        }
    }

    fn enter(&mut self, step: &Step) -> Value {
        let mut call = Call::new(RESOURCE)
            .batch(step.weight())
            .context(step.text("context"))
            .prioritized(step.is("prioritized"));
        if !step.text("origin").is_empty() {
            call = call.origin(step.text("origin"));
        }
        if !self.is_inbound {
            call = call.outbound();
        }
        match self.sentinel.try_enter(call) {
            Verdict::Pass(entry) => {
                self.running.insert(step.int("id"), entry);
                json!({ "result": "pass" })
            }
            Verdict::Wait(waiting) => {
                let delay = waiting.delay();
                self.clock.advance(delay);
                let entry = waiting.admit().expect("its time has come");
                self.running.insert(step.int("id"), entry);
                json!({ "result": "wait", "wait_ms": delay.as_millis() as u64 })
            }
            Verdict::Block(_) => json!({ "result": "block" }),
        }
    }

    /// The figures of all nodes, in the recorded form.
    fn read(&self) -> Value {
        let snapshot = self.sentinel.snapshot();
        let (mut origins, mut contexts) = (Map::new(), Map::new());
        let mut cluster = Value::Null;
        for node in snapshot.nodes() {
            let figures = self.form.figures(&Reading::of(node));
            match node.scope() {
                Scope::Resource => cluster = figures,
                Scope::Origin(name) => drop(origins.insert(name.clone(), figures)),
                Scope::Context(name) => drop(contexts.insert(name.clone(), figures)),
                // The record has no node for calls without an origin.
                _ => {}
            }
        }
        let inbound = self.sentinel.inbound();
        json!({
            "cluster": cluster,
            "origins": origins,
            "contexts": contexts,
            "entry_node": self.form.figures(&Reading {
                buckets: inbound.buckets(),
                seconds: inbound.seconds(),
                previous_second: inbound.previous_second(),
                threads: inbound.concurrency(),
            }),
        })
    }
}

impl Reading {
    /// Returns the figures of `node`.
    fn of(node: &NodeSnapshot) -> Self {
        Self {
            buckets: node.buckets().to_vec(),
            seconds: node.minute().copied().into_iter().collect(),
            previous_second: node.previous_second().copied().unwrap_or_default(),
            threads: node.concurrency(),
        }
    }
}

impl Form {
    /// The figures of one node, in the recorded form.
    fn figures(&self, reading: &Reading) -> Value {
        let seconds = self.interval.as_secs_f64();
        // These closures sum up a count: over buckets, per second of the window, and over the last
        // minute.
        let of = |buckets: &[NodeBucket], count: fn(&NodeBucket) -> u64| {
            buckets.iter().map(count).sum::<u64>()
        };
        let second = |count| of(&reading.buckets, count) as f64 / seconds;
        let minute = |count| of(&reading.seconds, count);
        let (pass, block) = (NodeBucket::pass, NodeBucket::block);
        let calls = of(&reading.buckets, NodeBucket::calls);
        let rt: Duration = reading.buckets.iter().map(NodeBucket::rt).sum();
        let average = match calls {
            0 => 0.0,
            calls => in_ms(rt) / calls as f64,
        };
        let min_rt = reading.buckets.iter().filter_map(NodeBucket::min_rt).min();
        let most = reading.buckets.iter().map(NodeBucket::complete).max();
        let bucket = seconds / f64::from(self.buckets);
        json!({
            "pass_qps": second(pass),
            "block_qps": second(block),
            "total_qps": second(pass) + second(block),
            "success_qps": second(NodeBucket::complete),
            "exception_qps": second(NodeBucket::error),
            "max_success_qps": most.unwrap_or(0).max(1) as f64 / bucket,
            // Always 0 in the record.
            "occupied_pass_qps": 0.0,
            "avg_rt": average,
            "min_rt": min_rt.map_or(self.max_rt, in_ms).clamp(1.0, self.max_rt),
            "previous_pass_qps": reading.previous_second.pass() as f64,
            "previous_block_qps": reading.previous_second.block() as f64,
            "total_request": minute(pass) + minute(block),
            "total_pass": minute(pass),
            "total_success": minute(NodeBucket::complete),
            "total_exception": minute(NodeBucket::error),
            "block_request": minute(block),
            "threads": reading.threads,
        })
    }
}

/// Returns a duration in ms.
fn in_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
