//! Replays system protection, on an engine with rules for all inbound calls.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::stat::{Event, NodeBucket};
use tower_sentinel::system::{Capacity, ManualProbe, Sampler, SystemReason};
use tower_sentinel::{Call, Entry, ManualClock, Rules, Sentinel, SystemRule, Verdict};

use super::{ORIGIN_MS, Step, Subject, at};

const RESOURCE: &str = "resource";
const MAX_RT_MS: f64 = 5_000.0;

/// An engine with rules for all inbound calls.
pub(crate) struct SystemSubject {
    sentinel: Sentinel,
    clock: ManualClock,
    probe: ManualProbe,
    sampler: Sampler,
    running: HashMap<i64, Entry>,
}

impl Subject for SystemSubject {
    fn new(config: &Value) -> Result<Self, String> {
        let mut rules = Vec::new();
        for rule in config["rules"].as_array().into_iter().flatten() {
            // Creates a separate rule for each limit of a recorded rule, because the recorded rule
            // can set any number of limits, even none. A recorded rule lets a call pass at a value
            // equal to its limit and ours does not, so our limits are just above the recorded ones.
            let set = |field: &str| rule[field].as_f64().filter(|value| *value >= 0.0);
            let new = || SystemRule::new().capacity(Capacity::Sentinel);
            rules.extend(set("qps").map(|qps| new().qps(qps)));
            rules.extend(set("max_thread").map(|most| new().concurrency(most as u32 + 1)));
            rules.extend(set("avg_rt_ms").map(|rt| {
                let rt = Duration::from_secs_f64(rt / 1e3);
                new().rt(rt + Duration::from_nanos(1))
            }));
            rules.extend(set("load").map(|load| new().load(just_above(load))));
            let cpu = set("cpu").filter(|cpu| *cpu < 1.0);
            rules.extend(cpu.map(|cpu| new().cpu(just_above(cpu))));
        }
        let clock = ManualClock::starting_at(at(-ORIGIN_MS));
        let probe = ManualProbe::new();
        let sampler = Sampler::new(probe.clone());
        Ok(Self {
            sentinel: Sentinel::builder()
                .rules(Rules::build(rules).map_err(|error| error.to_string())?)
                .clock(clock.clone())
                .sampler(sampler.clone())
                .build(),
            clock,
            probe,
            sampler,
            running: HashMap::new(),
        })
    }

    fn answer(&mut self, step: &Step) -> Value {
        self.clock.set(step.now());
        match step.op.as_str() {
            "set_load" => {
                // A load below zero means unknown, in the record and here.
                self.probe.set_load(step.number("value"));
                self.sampler.refresh(step.now());
                Value::Null
            }
            "set_cpu" => {
                self.probe.set_cpu(step.number("value"));
                self.sampler.refresh(step.now());
                Value::Null
            }
            "enter" => self.enter(step),
            "exit" => {
                // In cases whose answers may differ, a call may run in the record that was refused
                // here.
                drop(self.running.remove(&step.int("id")));
                Value::Null
            }
            "read" => self.read(),
            _ => step.unknown(),
        }
    }
}

/// Returns the next larger floating-point number. `value` must not be below zero.
fn just_above(value: f64) -> f64 {
    f64::from_bits(value.abs().to_bits() + 1)
}

impl SystemSubject {
    fn enter(&mut self, step: &Step) -> Value {
        let mut call = Call::new(RESOURCE).batch(step.weight());
        if !step.is("inbound") {
            call = call.outbound();
        }
        match self.sentinel.try_enter(call) {
            Verdict::Pass(entry) => {
                self.running.insert(step.int("id"), entry);
                json!({ "result": "pass" })
            }
            Verdict::Block(blocked) => {
                let reason = match blocked.system_reason().expect("a limit") {
                    SystemReason::Concurrency => "thread".to_owned(),
                    reason => reason.to_string(),
                };
                json!({ "result": "block", "reason": reason })
            }
            Verdict::Wait(_) => panic!("nothing waits here"),
        }
    }

    fn read(&self) -> Value {
        let inbound = self.sentinel.inbound();
        let buckets = inbound.buckets();
        let most = buckets.iter().map(NodeBucket::complete).max().unwrap_or(0);
        let calls: u64 = buckets.iter().map(NodeBucket::calls).sum();
        let rt: Duration = buckets.iter().map(NodeBucket::rt).sum();
        let average = if calls == 0 {
            0.0
        } else {
            rt.as_secs_f64() * 1e3 / calls as f64
        };
        let min_rt = inbound
            .min_rt()
            .map_or(MAX_RT_MS, |rt| rt.as_secs_f64() * 1e3);
        json!({
            "pass_qps": inbound.qps(Event::Pass),
            "block_qps": inbound.qps(Event::Block),
            "success_qps": inbound.qps(Event::Complete),
            "max_success_qps": most.max(1) as f64 * 2.0,
            "min_rt": min_rt.clamp(1.0, MAX_RT_MS),
            "avg_rt": average,
            "threads": inbound.concurrency(),
        })
    }
}
