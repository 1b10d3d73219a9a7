//! Reads recorded cases, replays every step on a type of this crate, and compares the answers.

pub(crate) mod circuit_breaker;
pub(crate) mod classes;
pub(crate) mod flow_reject;
mod holds;
pub(crate) mod keyed_rule;
pub(crate) mod leap_array;
pub(crate) mod occupy;
pub(crate) mod shaping;
pub(crate) mod stack;
pub(crate) mod statistic_node;
pub(crate) mod system;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use tower_sentinel::clock::Tick;

use classes::{Answer, Class, Verdict};

/// The object on which a file is replayed. A new object is created for every case.
pub(crate) trait Subject {
    /// Creates the object under test. The error says why `config` is invalid.
    fn new(config: &Value) -> Result<Self, String>
    where
        Self: Sized;

    /// Runs `step`. Returns the answer as JSON of the same form as the recorded one.
    fn answer(&mut self, step: &Step) -> Value;
}

/// One recorded case.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) tags: Vec<String>,
    pub(crate) config: Value,
    pub(crate) steps: Vec<Step>,
}

/// One recorded operation.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: String,
    fields: Map<String, Value>,
}

/// The time that stands for the recorded time 0: a common multiple of all window lengths, late
/// enough that recorded times can be negative.
const ORIGIN_MS: i64 = 3_600_000_000;

/// Returns the time that is recorded as `ms`.
pub(crate) fn at(ms: i64) -> Tick {
    Tick::from_millis(u64::try_from(ORIGIN_MS + ms).expect("a time near the origin"))
}

/// Returns the recorded form of a time, in ms.
pub(crate) fn ms(tick: Tick) -> i64 {
    i64::try_from(tick.as_millis()).expect("a time of this test") - ORIGIN_MS
}

pub(crate) fn millis(config: &Value, name: &str) -> Duration {
    Duration::from_millis(config[name].as_u64().unwrap_or(0))
}

/// Returns the threshold of a rule that counts whole calls. A threshold below 1 becomes 0, because
/// no call fits under it.
pub(crate) const fn whole_calls(threshold: f64) -> f64 {
    if threshold < 1.0 { 0.0 } else { threshold }
}

// === impl Step ===

impl Step {
    /// The time of the step.
    pub(crate) fn now(&self) -> Tick {
        at(self.int("t_ms"))
    }

    pub(crate) fn int(&self, name: &str) -> i64 {
        self.fields[name].as_i64().expect("a whole number")
    }

    /// The weight of the call, `n`.
    pub(crate) fn weight(&self) -> u32 {
        u32::try_from(self.int("n")).expect("a weight")
    }

    pub(crate) fn number(&self, name: &str) -> f64 {
        self.fields[name].as_f64().expect("a number")
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.fields[name].as_str().expect("a text")
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|flag| flag == true)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// Fails the test, because the subject does not know the operation.
    pub(crate) fn unknown(&self) -> ! {
        panic!("no such operation: {}", self.op)
    }
}

// === impl Case ===

impl Case {
    fn parse(line: &str) -> Self {
        let mut case: Value = serde_json::from_str(line).expect("a line of JSON");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let steps = case["steps"].as_array_mut().expect("steps");
        let steps = steps
            .iter_mut()
            .map(|step| Step {
                op: text(&step["op"]),
                fields: std::mem::take(step.as_object_mut().expect("an object")),
            })
            .collect();
        let tags = case["tags"].as_array().expect("tags").iter().map(text);
        Self {
            name: text(&case["case"]),
            tags: tags.collect(),
            // Some cases have whole documents instead of single settings.
            config: case.get("documents").unwrap_or(&case["config"]).clone(),
            steps,
        }
    }

    /// Returns whether the case has a tag that begins with `start`.
    pub(crate) fn has_tag(&self, start: &str) -> bool {
        self.tags.iter().any(|tag| tag.starts_with(start))
    }
}

// === running ===

/// Replays the file `name`. For the file in this repository, also checks how many answers each
/// class has.
pub(crate) fn run<S: Subject>(name: &str, classes: &[Class]) {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let folder = std::env::var_os("SENTINEL_VECTORS").map_or_else(|| own.clone(), PathBuf::from);
    let path = folder.join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let tallies = run_text::<S>(&text, classes);
    for (class, tally) in classes.iter().zip(&tallies) {
        println!(
            "{name}: {} answers, {} of them differ: {}",
            tally.answers, tally.differing, class.name
        );
    }
    if folder == own {
        let counted: Vec<_> = tallies.iter().map(|t| (t.answers, t.differing)).collect();
        let expected: Vec<_> = classes.iter().map(|c| (c.answers, c.differing)).collect();
        assert_eq!(counted, expected, "answers and differing ones by class");
    }
}

/// The figures of one class in a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// The number of answers in the class.
    answers: usize,
    /// The number of these answers that differ from the recorded ones.
    differing: usize,
}

/// Replays the cases of `text`, one in each line. Returns the number of answers in each class, and
/// panics if a class does not accept an answer.
pub(crate) fn run_text<S: Subject>(text: &str, classes: &[Class]) -> Vec<Tally> {
    let cases: Vec<_> = text.lines().map(Case::parse).collect();
    assert!(!cases.is_empty(), "the file holds no case");
    let mut tallies = vec![Tally::default(); classes.len()];
    let mut faults = Vec::new();
    for case in &cases {
        replay::<S>(case, classes, &mut tallies, &mut faults);
    }
    assert!(
        faults.is_empty(),
        "not the recorded answer, {} times:\n{}",
        faults.len(),
        faults[..faults.len().min(20)].join("\n")
    );
    tallies
}

/// Replays one case. Adds a message to `faults` for each answer that its class does not accept.
fn replay<S: Subject>(
    case: &Case,
    classes: &[Class],
    tallies: &mut [Tally],
    faults: &mut Vec<String>,
) {
    let mut subject = S::new(&case.config);
    let (mut same_so_far, mut has_flipped) = (true, false);
    // The number of calls that pass in each second, in the record and in the replay.
    let mut rates = BTreeMap::<i64, (i64, i64)>::new();
    let mut answers = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        let ours = match &mut subject {
            // Only this step is answered if the object could not be created.
            Err(_) if step.op == "construct" => serde_json::json!({ "error": true }),
            Ok(_) if step.op == "construct" => serde_json::json!({ "error": false }),
            Err(error) => panic!("{}: {error}", case.name),
            Ok(subject) => subject.answer(step),
        };
        answers.push(ours);
        let ours = &answers[index];
        let Some(recorded) = step.get("expect") else {
            continue;
        };
        let mut pairs = Vec::new();
        pair("", recorded, ours, &mut pairs);
        let same_before = same_so_far;
        has_flipped |= recorded["result"] != ours["result"];
        for (field, recorded, ours) in pairs {
            let answer = Answer {
                case,
                step: index,
                field: field.rsplit('.').next().unwrap_or_default(),
                recorded,
                ours,
                answers: &answers,
                same_so_far: same_before,
                has_flipped,
            };
            let class = classes.iter().position(|class| (class.holds)(&answer));
            let class = class.expect("the last class holds every answer");
            let differs = !is_same(recorded, ours);
            same_so_far &= !differs;
            tallies[class].answers += 1;
            tallies[class].differing += usize::from(differs);
            let is_fault = match classes[class].verdict {
                Verdict::Exact => differs,
                Verdict::Bounded(holds) => differs && !holds(&answer),
                Verdict::Always(holds) => !holds(&answer),
                Verdict::Rate => {
                    let rate = rates.entry(step.int("t_ms") / 1_000).or_default();
                    rate.0 += i64::from(*recorded != "block");
                    rate.1 += i64::from(*ours != "block");
                    false
                }
                Verdict::Listed => false,
            };
            if is_fault {
                faults.push(format!(
                    "{} step {index} ({} at {}) {field}: {recorded} recorded, {ours} ours",
                    case.name,
                    step.op,
                    step.int("t_ms"),
                ));
            }
        }
    }
    for (second, (recorded, ours)) in rates {
        if (recorded - ours).abs() > (recorded / 20).max(1) {
            faults.push(format!(
                "{} second {second}: {recorded} let pass by the record, {ours} by us",
                case.name
            ));
        }
    }
}

/// Collects corresponding parts of a recorded answer and of ours, each with its path.
fn pair<'a>(
    path: &str,
    recorded: &'a Value,
    ours: &'a Value,
    pairs: &mut Vec<(String, &'a Value, &'a Value)>,
) {
    const NOTHING: &Value = &Value::Null;
    match recorded {
        Value::Object(fields) => {
            for (name, recorded) in fields {
                let ours = ours.get(name).unwrap_or(NOTHING);
                pair(&format!("{path}.{name}"), recorded, ours, pairs);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let same_length = ours
                .as_array()
                .is_some_and(|ours| ours.len() == items.len());
            if !same_length {
                pairs.push((format!("{path}.length"), recorded, ours));
            }
            for (index, recorded) in items.iter().enumerate() {
                let ours = ours.get(index).unwrap_or(NOTHING);
                pair(&format!("{path}[{index}]"), recorded, ours, pairs);
            }
        }
        _ => pairs.push((path.to_owned(), recorded, ours)),
    }
}

/// Returns whether two answers are equal; floating-point numbers up to a relative error of 10⁻⁹.
fn is_same(recorded: &Value, ours: &Value) -> bool {
    match (recorded, ours) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            let (a, b) = (
                a.as_f64().unwrap_or(f64::NAN),
                b.as_f64().unwrap_or(f64::NAN),
            );
            (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
        }
        _ => recorded == ours,
    }
}
