//! Replays circuit breakers, on an engine with the breakers of one resource.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::read::BreakerState;
use tower_sentinel::{Call, CircuitBreakerRule, Entry, ManualClock, Rules, Sentinel, Verdict};

use super::{ORIGIN_MS, Step, Subject, at};

const RESOURCE: &str = "resource";

/// An engine with the breakers of one resource.
pub(crate) struct BreakerSubject {
    sentinel: Sentinel,
    clock: ManualClock,
    running: HashMap<i64, Entry>,
    /// The number of rules, each with a breaker.
    rules: usize,
}

impl Subject for BreakerSubject {
    fn new(config: &Value) -> Result<Self, String> {
        let rules = config["rules"].as_array().ok_or("no rules")?;
        let clock = ManualClock::starting_at(at(-ORIGIN_MS));
        let set = Rules::build(rules.iter().map(rule)).map_err(|error| error.to_string())?;
        Ok(Self {
            sentinel: Sentinel::builder().rules(set).clock(clock.clone()).build(),
            clock,
            running: HashMap::new(),
            rules: rules.len(),
        })
    }

    fn answer(&mut self, step: &Step) -> Value {
        self.clock.set(step.now());
        match step.op.as_str() {
            "enter" => {
                let result = match self.sentinel.try_enter(Call::new(RESOURCE)) {
                    Verdict::Pass(entry) => {
                        self.running.insert(step.int("id"), entry);
                        "pass"
                    }
                    Verdict::Block(_) => "block",
                    Verdict::Wait(_) => panic!("nothing waits here"),
                };
                json!({ "result": result, "states": self.states() })
            }
            "exit" => {
                // In cases whose answers may differ, a call that was refused here may have run in
                // the recording.
                if let Some(mut entry) = self.running.remove(&step.int("id")) {
                    if step.is("error") {
                        entry.fail();
                    }
                }
                json!({ "states": self.states() })
            }
            "state" => json!({ "states": self.states() }),
            _ => step.unknown(),
        }
    }
}

impl BreakerSubject {
    /// The states of all breakers, in the recorded form.
    fn states(&self) -> Vec<&'static str> {
        let Some(node) = self.sentinel.node(RESOURCE) else {
            return vec!["closed"; self.rules];
        };
        let name = |state| match state {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            _ => "half_open",
        };
        node.breakers()
            .iter()
            .map(|breaker| name(breaker.state()))
            .collect()
    }
}

/// Converts a recorded breaker. Recorded breakers have one bucket and open when their threshold is
/// exceeded, except that a slow ratio of exactly 1 opens when it is reached.
fn rule(rule: &Value) -> CircuitBreakerRule {
    let number = |field: &str| rule[field].as_f64().unwrap_or(0.0);
    let (made, exceeds) = match rule["strategy"].as_str() {
        Some("slow_ratio") => {
            let ratio = number("slow_ratio_threshold");
            let rt = Duration::from_millis((number("max_allowed_rt_ms") + 0.5).floor() as u64);
            (
                CircuitBreakerRule::slow_ratio(RESOURCE, rt, ratio),
                ratio < 1.0,
            )
        }
        Some("exception_ratio") => (
            CircuitBreakerRule::error_ratio(RESOURCE, number("threshold")),
            true,
        ),
        _ => {
            let count = number("threshold").floor() as u32;
            (CircuitBreakerRule::error_count(RESOURCE, count), true)
        }
    };
    let made = made
        .open_for(Duration::from_secs(number("retry_timeout_s") as u64))
        .min_calls(number("min_request_amount") as u32)
        .interval(Duration::from_millis(number("stat_interval_ms") as u64))
        .buckets(1);
    if exceeds { made.exceeds() } else { made }
}
