//! Replays the ring of buckets, on one `LeapArray` for each event and a `Node` for the smallest
//! response time.

use std::time::Duration;

use super::{ORIGIN_MS, Step, Subject, at, millis, ms};
use crate::clock::Tick;
use crate::stat::{LeapArray, Node, NodeBucket, Outcome};
use serde_json::{Value, json};

/// The recorded names of the events, each at the index of its array.
const EVENTS: [&str; 5] = ["pass", "block", "exception", "success", "rt"];
/// The index of the response times in `EVENTS`.
const RT: usize = 4;

/// An array for each event, and a node for the smallest response time.
pub(crate) struct ArraysSubject {
    events: [LeapArray; EVENTS.len()],
    node: Node,
    /// The largest response time that the record can show, in ms.
    max_rt: i64,
}

impl Subject for ArraysSubject {
    fn new(config: &Value) -> Result<Self, String> {
        let buckets = config["sample_count"].as_i64().unwrap_or(0);
        let buckets = u32::try_from(buckets).map_err(|error| error.to_string())?;
        let interval = millis(config, "interval_ms");
        let array = || LeapArray::new(interval, buckets).map_err(|error| error.to_string());
        let start = at(-ORIGIN_MS);
        Ok(Self {
            events: [array()?, array()?, array()?, array()?, array()?],
            node: Node::new(interval, buckets, start).map_err(|error| error.to_string())?,
            max_rt: config["max_rt_ms"].as_i64().unwrap_or(5_000),
        })
    }

    fn answer(&mut self, step: &Step) -> Value {
        let now = step.now();
        if !["peek_windows", "window_pass_at", "valid_head"].contains(&step.op.as_str()) {
            self.touch(now);
        }
        match step.op.as_str() {
            "add" => {
                // Recorded counts can fall below zero and come back; sums modulo 2³² do the same.
                self.event(step).add(now, step.int("n") as u32);
                Value::Null
            }
            "add_rt" => {
                let rt = u32::try_from(step.int("rt_ms")).expect("a response time");
                self.events[RT].add(now, rt);
                let rt = Duration::from_millis(rt.into());
                self.node.complete(now, 1, rt, Outcome::Success);
                Value::Null
            }
            "sum" => json!({ "value": signed(self.event(step).sum(now)) }),
            "avg" => json!({ "value": self.event(step).qps(now) }),
            "min_rt" => json!({ "value": self.rt(self.node.min_rt(now)) }),
            "max_success" => {
                let most = self.events[3].max_of_bucket(now);
                json!({ "value": most.max(1) })
            }
            "windows" | "peek_windows" => json!({ "windows": self.windows(now) }),
            "window_starts" => {
                let starts = self.events[0].buckets(now).map(|(start, _)| ms(start));
                json!({ "starts": starts.collect::<Vec<_>>() })
            }
            "current_window" => json!({ "start": ms(self.events[0].bucket_start(now)) }),
            "window_pass_at" => {
                let at = at(step.int("at_ms"));
                json!({ "value": self.events[0].count_at(at) })
            }
            "previous_window" => {
                let [pass, block, ..] = &self.events;
                let count = |bucket: Option<(Tick, u32)>| bucket.map_or(0, |(_, count)| count);
                json!({
                    "start": pass.previous(now).map(|(start, _)| ms(start)),
                    "pass": count(pass.previous(now)),
                    "block": count(block.previous(now)),
                })
            }
            "valid_head" => json!({
                "start": self.events[0].buckets(now).next().map(|(start, _)| ms(start)),
            }),
            _ => step.unknown(),
        }
    }
}

impl ArraysSubject {
    /// The array of the event that `step` names.
    fn event(&self, step: &Step) -> &LeapArray {
        let name = step.text("event");
        let place = EVENTS.iter().position(|event| *event == name);
        &self.events[place.expect("an event")]
    }

    /// Advances all arrays to `now`. The recorded object is one array of five counts, and an access
    /// to any count opens the bucket for all of them.
    fn touch(&self, now: Tick) {
        for event in &self.events {
            event.add(now, 0);
        }
    }

    /// A response time in ms, within the recorded bounds.
    fn rt(&self, found: Option<Duration>) -> i64 {
        let rt = found.map_or(self.max_rt, |rt| rt.as_millis() as i64);
        rt.clamp(1, self.max_rt)
    }

    /// The recorded form of the buckets in which anything was counted.
    fn windows(&self, now: Tick) -> Vec<Value> {
        let rts = self.node.buckets(now);
        let count = |event: usize, start| {
            let bucket = self.events[event].buckets(now).find(|(at, _)| *at == start);
            bucket.map_or(0, |(_, count)| signed(count))
        };
        let all = self.events[0].buckets(now).map(|(start, _)| start);
        all.filter_map(|start| {
            let rt = rts.iter().find(|b| b.start() == start);
            let rt = rt.and_then(NodeBucket::min_rt);
            let counts: [i64; EVENTS.len()] = std::array::from_fn(|event| count(event, start));
            // The smallest time of a single window can be 0; over all windows, the record has at
            // least 1.
            let min_rt = rt
                .map_or(self.max_rt, |rt| rt.as_millis() as i64)
                .min(self.max_rt);
            let is_used = min_rt < self.max_rt || counts.iter().any(|count| *count != 0);
            is_used.then(|| {
                let mut window = json!({ "start": ms(start), "min_rt": min_rt });
                for (name, count) in EVENTS.iter().zip(counts) {
                    window[name] = count.into();
                }
                window
            })
        })
        .collect()
    }
}

/// A count that can have fallen below zero.
fn signed(count: u32) -> i64 {
    i64::from(count as i32)
}
