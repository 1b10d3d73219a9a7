//! Replays rules that refuse at once, on an engine with one flow or isolation rule.

use std::collections::VecDeque;

use serde_json::{Value, json};
use tower_sentinel::stat::{Event, NodeBucket};
use tower_sentinel::{
    Call, Entry, FlowRule, IsolationRule, ManualClock, NotAdmitted, Rules, Sentinel, Verdict,
    Waiting,
};

use super::{ORIGIN_MS, Step, Subject, at, millis, whole_calls};

const RESOURCE: &str = "resource";

/// An engine with one flow or isolation rule.
pub(crate) struct FlowSubject {
    sentinel: Sentinel,
    clock: ManualClock,
    running: VecDeque<Entry>,
    waiting: Vec<Waiting>,
    /// The number of calls that have ended in the record while they still wait in this engine.
    ended_early: usize,
}

impl Subject for FlowSubject {
    fn new(config: &Value) -> Result<Self, String> {
        let interval = millis(config, "interval_ms");
        let buckets = config["sample_count"].as_u64().unwrap_or(0) as u32;
        let threshold = config["threshold"].as_f64().unwrap_or(0.0);
        let rules = if config["grade"] == "thread" {
            Rules::new().with(IsolationRule::new(RESOURCE, threshold as u32))
        } else {
            // Recorded thresholds are per second.
            let threshold = whole_calls(threshold * interval.as_secs_f64());
            Rules::new().with(FlowRule::per(RESOURCE, threshold, interval).buckets(buckets))
        };
        let clock = ManualClock::starting_at(at(-ORIGIN_MS));
        let sentinel = Sentinel::builder()
            .rules(rules)
            .clock(clock.clone())
            .window(interval, buckets)
            .map_err(|error| error.to_string())?
            .occupy_timeout(millis(config, "occupy_timeout_ms"))
            .build();
        Ok(Self {
            sentinel,
            clock,
            running: VecDeque::new(),
            waiting: Vec::new(),
            ended_early: 0,
        })
    }

    fn answer(&mut self, step: &Step) -> Value {
        self.clock.set(step.now());
        self.admit_due();
        match step.op.as_str() {
            "acquire" => self.acquire(step),
            "release" => {
                if self.running.pop_front().is_none() {
                    self.ended_early += 1;
                }
                Value::Null
            }
            "read" => self.read(),
            _ => step.unknown(),
        }
    }
}

impl FlowSubject {
    /// Starts the waiting calls that are due. The record contains only their decision to wait.
    fn admit_due(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting.admit() {
                Ok(entry) if self.ended_early > 0 => {
                    self.ended_early -= 1;
                    drop(entry);
                }
                Ok(entry) => self.running.push_back(entry),
                Err(NotAdmitted::TooEarly(waiting)) => self.waiting.push(waiting),
                Err(refused) => panic!("{refused:?}"),
            }
        }
    }

    fn acquire(&mut self, step: &Step) -> Value {
        let call = Call::new(RESOURCE)
            .batch(step.weight())
            .prioritized(step.is("prioritized"));
        match self.sentinel.try_enter(call) {
            Verdict::Pass(entry) => {
                self.running.push_back(entry);
                json!({ "result": "pass" })
            }
            Verdict::Wait(waiting) => {
                let delay = waiting.delay();
                self.waiting.push(waiting);
                json!({ "result": "wait", "wait_ms": delay.as_millis() as u64 })
            }
            Verdict::Block(_) => json!({ "result": "block" }),
        }
    }

    /// The figures of the resource, in the recorded form.
    fn read(&self) -> Value {
        let Some(node) = self.sentinel.node(RESOURCE) else {
            return json!({
                "pass_qps": 0.0, "block_qps": 0.0, "threads": 0, "waiting": 0,
                "minute_pass": 0, "minute_block": 0,
            });
        };
        let minute = node.seconds().expect("seconds are kept");
        let sum = |of: fn(&NodeBucket) -> u64| minute.iter().map(of).sum::<u64>();
        // From its decision to wait on, the record counts a waiting call as running and its tokens
        // as passed.
        let threads = node.concurrency() as usize + self.waiting.len() - self.ended_early;
        json!({
            "pass_qps": node.qps(Event::Pass),
            "block_qps": node.qps(Event::Block),
            "threads": threads,
            "waiting": node.held(),
            "minute_pass": sum(NodeBucket::pass) + u64::from(node.held()),
            "minute_block": sum(NodeBucket::block),
        })
    }
}
