//! Replays keyed rules, which limit each value of a parameter, on an engine with the rules of one
//! resource.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::call::Param;
use tower_sentinel::rule::MissingKey;
use tower_sentinel::{
    Call, Entry, KeyedRule, ManualClock, NotAdmitted, Rules, Sentinel, Verdict, Waiting,
};

use super::{ORIGIN_MS, Step, Subject, at, millis};

const RESOURCE: &str = "resource";

/// An engine with the keyed rules of one resource.
pub(crate) struct KeyedSubject {
    sentinel: Sentinel,
    clock: ManualClock,
    waiting: Vec<Waiting>,
    /// The entries of each recorded call: one, or one for each element of a collection.
    running: HashMap<i64, Vec<Entry>>,
}

impl Subject for KeyedSubject {
    fn new(config: &Value) -> Result<Self, String> {
        let rules = config["rules"].as_array().ok_or("no rules")?;
        let set = Rules::build(rules.iter().map(rule)).map_err(|error| error.to_string())?;
        let clock = ManualClock::starting_at(at(-ORIGIN_MS));
        Ok(Self {
            sentinel: Sentinel::builder().rules(set).clock(clock.clone()).build(),
            clock,
            waiting: Vec::new(),
            running: HashMap::new(),
        })
    }

    fn answer(&mut self, step: &Step) -> Value {
        self.clock.set(step.now());
        self.admit_due();
        match step.op.as_str() {
            "acquire" => self.enter(args(step), step.weight()).0,
            "enter" => {
                let (answer, entries) = self.enter(args(step), step.weight());
                self.running.insert(step.int("id"), entries);
                answer
            }
            "exit" => {
                self.running.remove(&step.int("id"));
                Value::Null
            }
            "acquire_range" => {
                let from = step.int("from");
                let value = |number| json!(format!("{}{number}", step.text("prefix")));
                let passes = |number: &i64| {
                    let (answer, _) = self.enter(&[value(*number)], step.weight());
                    answer["result"] != "block"
                };
                let passed = (from..from + step.int("count")).filter(passes).count();
                json!({ "passed": passed })
            }
            _ => step.unknown(),
        }
    }
}

impl KeyedSubject {
    /// Starts and ends the waiting calls that are due.
    fn admit_due(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting.admit() {
                Ok(entry) => drop(entry),
                Err(NotAdmitted::TooEarly(waiting)) => self.waiting.push(waiting),
                Err(refused) => panic!("{refused:?}"),
            }
        }
    }

    /// Makes one recorded call; returns the answer and the entries. Each element of a collection is
    /// a separate call. If an element is refused, the earlier elements have already passed.
    fn enter(&mut self, args: &[Value], n: u32) -> (Value, Vec<Entry>) {
        let mut entries = Vec::new();
        let mut delay = Duration::ZERO;
        for args in one_by_one(args) {
            match self.enter_one(&args, n) {
                Verdict::Pass(entry) => entries.push(entry),
                Verdict::Wait(waiting) => {
                    delay = delay.max(waiting.delay());
                    self.waiting.push(waiting);
                }
                Verdict::Block(_) => return (json!({ "result": "block" }), Vec::new()),
            }
        }
        let answer = if delay.is_zero() {
            json!({ "result": "pass" })
        } else {
            json!({ "result": "wait", "wait_ms": delay.as_secs_f64() * 1e3 })
        };
        (answer, entries)
    }

    /// Makes one call to the engine.
    fn enter_one(&self, args: &[Value], n: u32) -> Verdict {
        let texts: Vec<_> = args.iter().map(text_of).collect();
        let params: Vec<_> = texts
            .iter()
            .map(|text| match text {
                Some(text) => Param::new("", text.as_str()),
                None => Param::missing(""),
            })
            .collect();
        let call = Call::new(RESOURCE).params(&params).batch(n);
        self.sentinel.try_enter(call)
    }
}

fn args(step: &Step) -> &[Value] {
    let args = step.get("args").and_then(Value::as_array);
    args.expect("a list of values")
}

/// Converts a value to its JSON text, so that recorded values of different types stay different.
fn text_of(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| value.to_string())
}

/// Returns the arguments of each call that a recorded call stands for. If an argument is a
/// collection, that is one call for each element.
fn one_by_one(args: &[Value]) -> Vec<Vec<Value>> {
    let Some(at) = args.iter().position(Value::is_array) else {
        return vec![args.to_vec()];
    };
    let elements = args[at].as_array().into_iter().flatten();
    let with = |element: &Value| {
        let mut args = args.to_vec();
        args[at] = element.clone();
        args
    };
    elements.map(with).collect()
}

/// The value that a rule limits, as the text that [`KeyedSubject`] passes to the engine.
pub(crate) fn value(rule: &Value, step: &Step) -> Option<String> {
    let args = args(step);
    let index = rule["param_idx"].as_i64().expect("a place");
    let from_start = if index < 0 {
        index + args.len() as i64
    } else {
        index
    };
    let index = usize::try_from(from_start).ok()?;
    args.get(index).and_then(text_of)
}

/// The number of calls with this value that may pass in an interval.
pub(crate) fn threshold(rule: &Value, value: &str) -> i64 {
    let own = items(rule).find(|(text, _)| text == value);
    own.map_or_else(|| count(rule), |(_, threshold)| threshold)
}

/// The recorded threshold, truncated to whole calls.
fn count(rule: &Value) -> i64 {
    rule["count"].as_f64().expect("a number") as i64
}

/// The values that have a separate threshold, with that threshold.
fn items(rule: &Value) -> impl Iterator<Item = (String, i64)> {
    rule["items"].as_array().into_iter().flatten().map(|item| {
        let text = item["value"].as_str().expect("a text");
        let text = match item["type"].as_str() {
            Some("string") => item["value"].to_string(),
            _ => text.to_owned(),
        };
        (text, item["threshold"].as_i64().expect("whole calls"))
    })
}

/// Converts a recorded rule. Leaves out the recorded capacity, because its effects differ: this
/// crate forgets no value that has spent tokens, and in a full table it depends on chance which
/// values get no place.
fn rule(rule: &Value) -> KeyedRule {
    let whole = |name: &str| {
        let value = rule[name].as_i64().unwrap_or(0);
        i32::try_from(value).expect("a small number")
    };
    let interval = Duration::from_secs(whole("duration_s") as u64);
    let count = u32::try_from(count(rule)).expect("a count");
    let made = if rule["grade"] == "thread" {
        KeyedRule::concurrency(RESOURCE, count)
    } else if rule["control"] == "throttle" {
        // Recorded waits are shorter than the maximum; ours can be equal to it.
        let longest = millis(rule, "max_queueing_ms").saturating_sub(Duration::from_nanos(1));
        KeyedRule::per(RESOURCE, count, interval).throttle(longest)
    } else {
        KeyedRule::per(RESOURCE, count, interval).burst(whole("burst") as u32)
    };
    let made = made.param_at(whole("param_idx")).missing(MissingKey::Skip);
    items(rule).fold(made, |made, (text, threshold)| {
        made.except(text, threshold as f64)
    })
}
