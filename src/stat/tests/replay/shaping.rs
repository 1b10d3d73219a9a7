//! Replays rules that shape traffic, on an engine with one rule that has a queue, warms up, or
//! both.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::clock::Tick;
use tower_sentinel::stat::{Event, NodeBucket};
use tower_sentinel::{Call, FlowRule, ManualClock, NotAdmitted, Rules, Sentinel, Verdict, Waiting};

use super::{ORIGIN_MS, Step, Subject, at, millis, whole_calls};

const RESOURCE: &str = "resource";

/// An engine with one rule that shapes traffic.
pub(crate) struct ShapingSubject {
    sentinel: Sentinel,
    clock: ManualClock,
    waiting: Vec<Waiting>,
    /// Whether waits are recorded in nanoseconds.
    in_nanos: bool,
}

impl Subject for ShapingSubject {
    fn new(config: &Value) -> Result<Self, String> {
        let interval = match config.get("stat_duration_ms") {
            Some(_) => millis(config, "stat_duration_ms"),
            None => millis(config, "interval_ms"),
        };
        let count = config["count"].as_f64().unwrap_or(0.0).max(0.0);
        let has_queue = config.get("max_queueing_ms").is_some();
        let count = if has_queue { count } else { whole_calls(count) };
        let mut rule = FlowRule::per(RESOURCE, count, interval).max_waiting(u32::MAX);
        if let Some(period) = config["warm_up_period_s"].as_u64() {
            rule = rule.warm_up(Duration::from_secs(period));
            rule = rule.cold_factor(config["cold_factor"].as_f64().unwrap_or(3.0));
        }
        if has_queue {
            rule = rule.throttle(millis(config, "max_queueing_ms"));
        }
        let clock = ManualClock::starting_at(at(-ORIGIN_MS));
        let rules = Rules::build([rule]).map_err(|error| error.to_string())?;
        Ok(Self {
            sentinel: Sentinel::builder()
                .rules(rules)
                .clock(clock.clone())
                .build(),
            clock,
            waiting: Vec::new(),
            in_nanos: config["unit"] == "ns",
        })
    }

    fn answer(&mut self, step: &Step) -> Value {
        let now = match step.get("t_ns").and_then(Value::as_i64) {
            Some(ns) => {
                let ns = ORIGIN_MS * 1_000_000 + ns;
                Tick::from_nanos(u64::try_from(ns).expect("a time near the origin"))
            }
            None => step.now(),
        };
        self.clock.set(now);
        self.admit_due();
        match step.op.as_str() {
            "acquire" => self.acquire(weight(step)),
            "acquire_burst" => {
                let times = step.int("times");
                let passes = |_: &i64| self.acquire(weight(step))["result"] == "pass";
                json!({ "passed": (0..times).filter(passes).count() })
            }
            // The engine counts calls itself, so this step does nothing.
            "record_pass" => Value::Null,
            "read" => self.read(),
            _ => step.unknown(),
        }
    }
}

/// The weight of the call. Recorded weights below zero take no tokens, like zero.
fn weight(step: &Step) -> u32 {
    u32::try_from(step.int("n").max(0)).expect("a weight")
}

impl ShapingSubject {
    /// Starts and ends the waiting calls that are due.
    fn admit_due(&mut self) {
        // Calls start in the order of their start times, so that a call is counted before later
        // calls start.
        let mut due = BTreeMap::<Tick, Vec<Waiting>>::new();
        for waiting in std::mem::take(&mut self.waiting) {
            due.entry(waiting.start()).or_default().push(waiting);
        }
        for waiting in due.into_values().flatten() {
            match waiting.admit() {
                Ok(entry) => drop(entry),
                Err(NotAdmitted::TooEarly(waiting)) => self.waiting.push(waiting),
                Err(refused) => panic!("{refused:?}"),
            }
        }
    }

    fn acquire(&mut self, n: u32) -> Value {
        match self.sentinel.try_enter(Call::new(RESOURCE).batch(n)) {
            Verdict::Pass(_) => json!({ "result": "pass" }),
            Verdict::Wait(waiting) => {
                let delay = waiting.delay();
                self.waiting.push(waiting);
                if self.in_nanos {
                    json!({ "result": "wait", "wait_ns": delay.as_nanos() as u64 })
                } else {
                    json!({ "result": "wait", "wait_ms": delay.as_secs_f64() * 1e3 })
                }
            }
            Verdict::Block(_) => json!({ "result": "block" }),
        }
    }

    fn read(&self) -> Value {
        let Some(node) = self.sentinel.node(RESOURCE) else {
            return json!({ "pass_qps": 0.0, "previous_pass_qps": 0.0 });
        };
        let seconds = node.seconds().expect("seconds are kept");
        let previous = seconds.iter().rev().nth(1).map_or(0, NodeBucket::pass);
        json!({ "pass_qps": node.qps(Event::Pass), "previous_pass_qps": previous as f64 })
    }
}
