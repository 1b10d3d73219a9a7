//! Replays whole rule documents: calls to several resources, on an engine with the rules of the
//! documents.

use std::collections::HashMap;

use serde_json::{Value, json};
use tower_sentinel::call::Param;
use tower_sentinel::clock::Tick;
use tower_sentinel::document::{Document, Kind};
use tower_sentinel::{
    BlockKind, Call, Entry, ManualClock, NotAdmitted, Rule, Rules, Sentinel, Verdict, Waiting,
};

use super::{Step, Subject, at};

/// The kinds of documents, in the order in which Alibaba Sentinel checks their rules.
const KINDS: [(&str, Kind); 4] = [
    ("authority", Kind::Authority),
    ("param", Kind::HotParam),
    ("flow", Kind::Flow),
    ("degrade", Kind::CircuitBreaker),
];

/// An engine with the rules of all documents.
pub(crate) struct Stack {
    sentinel: Sentinel,
    clock: ManualClock,
    documents: HashMap<String, Value>,
    running: HashMap<i64, Entry>,
    waiting: Vec<Queued>,
}

/// A waiting call.
struct Queued {
    /// The recorded id of the call.
    id: i64,
    /// The time at which the wait is over.
    due: Tick,
    waiting: Waiting,
    /// Set if the record ends the call before it starts in the replay: whether the call failed.
    ended: Option<bool>,
}

impl Subject for Stack {
    fn new(config: &Value) -> Result<Self, String> {
        let documents: HashMap<_, _> = KINDS
            .iter()
            .map(|(kind, _)| ((*kind).to_owned(), config[kind].clone()))
            .collect();
        let clock = ManualClock::starting_at(at(0));
        let sentinel = Sentinel::builder()
            .rules(rules(&documents)?)
            .clock(clock.clone())
            // The record counts origins and contexts from the start, even if the rules that need
            // them are loaded later.
            .origins(true)
            .contexts(true)
            .build();
        Ok(Self {
            sentinel,
            clock,
            documents,
            running: HashMap::new(),
            waiting: Vec::new(),
        })
    }

    fn answer(&mut self, step: &Step) -> Value {
        self.admit_due(step.now());
        self.clock.set(step.now());
        match step.op.as_str() {
            "enter" => self.enter(step),
            "exit" => {
                self.exit(step.int("id"), step.is("failed"));
                Value::Null
            }
            "load" => {
                let loaded = step.get("rules").cloned().unwrap_or_default();
                self.documents.insert(step.text("kind").to_owned(), loaded);
                self.sentinel
                    .reload(rules(&self.documents).expect("rules of the record"));
                Value::Null
            }
            _ => step.unknown(),
        }
    }
}

impl Stack {
    /// Starts the calls whose wait is over by `now`, with the clock set to the start time of each
    /// call.
    fn admit_due(&mut self, now: Tick) {
        loop {
            let due = self.waiting.iter().enumerate();
            let due = due.filter(|(_, queued)| queued.due <= now);
            let Some((place, _)) = due.min_by_key(|(_, queued)| queued.due) else {
                return;
            };
            let queued = self.waiting.remove(place);
            self.clock.set(queued.due);
            match queued.waiting.admit() {
                Ok(entry) => {
                    self.running.insert(queued.id, entry);
                }
                Err(NotAdmitted::TooEarly(_)) => panic!("call {} is due", queued.id),
                Err(refused) => panic!("call {}: {refused:?}", queued.id),
            }
            if let Some(failed) = queued.ended {
                self.exit(queued.id, failed);
            }
        }
    }

    fn enter(&mut self, step: &Step) -> Value {
        let args = step.get("args").and_then(Value::as_array);
        let args = args.into_iter().flatten().map(value_of).collect::<Vec<_>>();
        let params: Vec<_> = args
            .iter()
            .map(|value| match value {
                Some(value) => Param::new("", *value),
                None => Param::missing(""),
            })
            .collect();
        let weight = step.get("count").map_or(1, |_| step.int("count") as u32);
        let mut call = Call::new(step.text("resource"))
            .params(&params)
            .batch(weight)
            .prioritized(step.is("prioritized"));
        if step.get("origin").is_some() {
            call = call.origin(step.text("origin"));
        }
        if step.get("context").is_some() {
            call = call.context(step.text("context"));
        }
        match self.sentinel.try_enter(call) {
            Verdict::Pass(entry) => {
                self.running.insert(step.int("id"), entry);
                json!({ "result": "pass", "waited_ns": 0 })
            }
            Verdict::Wait(waiting) => {
                let delay = waiting.delay();
                self.waiting.push(Queued {
                    id: step.int("id"),
                    due: step.now() + delay,
                    waiting,
                    ended: None,
                });
                // A wait is the recorded answer only if the record has a waiting time.
                let is_recorded = step
                    .get("expect")
                    .is_some_and(|it| it.get("waited_ns").is_some());
                let result = if is_recorded { "pass" } else { "wait" };
                json!({ "result": result, "waited_ns": delay.as_nanos() as u64 })
            }
            Verdict::Block(blocked) => {
                json!({ "result": "block", "kind": kind_of(blocked.kind()) })
            }
        }
    }

    /// Ends a call now or, if it still waits, once it has started.
    fn exit(&mut self, id: i64, failed: bool) {
        if let Some(mut entry) = self.running.remove(&id) {
            if failed {
                entry.fail();
            }
        } else if let Some(queued) = self.waiting.iter_mut().find(|queued| queued.id == id) {
            queued.ended = Some(failed);
        }
    }
}

/// The rules of all documents.
fn rules(documents: &HashMap<String, Value>) -> Result<Rules, String> {
    let mut all: Vec<Rule> = Vec::new();
    for (name, kind) in KINDS {
        let list = &documents[name];
        if list.is_null() {
            continue;
        }
        let document = Document::read_sentinel(&list.to_string(), kind);
        let document = document.map_err(|error| error.to_string())?;
        // The recorded implementation ignores invalid rules.
        all.extend(document.lenient().0);
    }
    Rules::build(all).map_err(|error| error.to_string())
}

/// Returns the text of a recorded value, which has the form `class:text`.
fn value_of(recorded: &Value) -> Option<&str> {
    let (_, text) = recorded.as_str().expect("a text").split_once(':')?;
    Some(text)
}

/// The recorded name of a refusal.
fn kind_of(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Flow | BlockKind::Isolation => "Flow",
        BlockKind::CircuitBreaker => "Degrade",
        BlockKind::Keyed => "ParamFlow",
        BlockKind::Authority => "Authority",
        other => panic!("no recorded call is refused by {other:?}"),
    }
}
