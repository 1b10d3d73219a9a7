//! Which recorded answers must be ours too, and which differ, and why.

use std::collections::HashMap;

use serde_json::Value;

use super::{Case, Step};

/// One answer, in its context.
pub(crate) struct Answer<'a> {
    pub(crate) case: &'a Case,
    /// Its step's place in the case.
    pub(crate) step: usize,
    /// Which part of the step's answer it is.
    pub(crate) field: &'a str,
    pub(crate) recorded: &'a Value,
    pub(crate) ours: &'a Value,
    /// Whether all answers of the case before this step were the recorded ones.
    pub(crate) same_so_far: bool,
    /// Whether a call of the case has passed, waited or been refused other than
    /// in the record.
    pub(crate) has_flipped: bool,
}

/// What is asked of the answers of a class.
pub(crate) enum Verdict {
    /// The recorded one.
    Exact,
    /// The recorded one, or one that the function accepts.
    Bounded(fn(&Answer<'_>) -> bool),
    /// As many calls let pass in each second as the record has: give or take
    /// one, or one in twenty.
    Rate,
    /// Nothing: they are listed, and counted.
    Listed,
}

/// Never to let a call pass that the record refuses, and never earlier; as long
/// as both have the same past.
const CAUTIOUS: Verdict = Verdict::Bounded(is_cautious);

/// A class of answers. An answer belongs to the first class that holds it.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) holds: fn(&Answer<'_>) -> bool,
    /// How many answers of the project's own copy belong to it.
    pub(crate) answers: usize,
    /// How many of those differ from the recorded ones.
    pub(crate) differing: usize,
}

const fn listed(
    name: &'static str,
    holds: fn(&Answer<'_>) -> bool,
    (answers, differing): (usize, usize),
) -> Class {
    Class {
        name,
        verdict: Verdict::Listed,
        holds,
        answers,
        differing,
    }
}

const fn cautious(
    name: &'static str,
    holds: fn(&Answer<'_>) -> bool,
    (answers, differing): (usize, usize),
) -> Class {
    Class {
        name,
        verdict: CAUTIOUS,
        holds,
        answers,
        differing,
    }
}

const fn exact(answers: usize) -> Class {
    Class {
        name: "the recorded answer",
        verdict: Verdict::Exact,
        holds: |_| true,
        answers,
        differing: 0,
    }
}

pub(crate) const LEAP_ARRAY: &[Class] = &[
    listed(LATE, clock_runs_back, (374, 103)),
    listed(QUIRK, is_quirk, (15, 10)),
    listed(DETAIL, is_detail, (22, 15)),
    listed(
        "the bucket before the only one",
        is_before_the_only_one,
        (138, 81),
    ),
    listed("counts beyond 2³²", is_huge, (8, 8)),
    exact(3_727),
];

pub(crate) const OCCUPY: &[Class] = &[
    cautious(LATE, clock_runs_back, (34, 4)),
    cautious(QUIRK, is_quirk, (2_994, 187)),
    cautious(DETAIL, is_detail, (35, 8)),
    exact(1_463),
];

pub(crate) const FLOW_REJECT: &[Class] = &[
    cautious(LATE, clock_runs_back, (34, 3)),
    listed(
        "a call holds one slot, whatever its weight",
        is_weighted_thread,
        (991, 180),
    ),
    cautious(QUIRK, is_quirk, (505, 59)),
    listed(
        "tokens are compared with tokens, not with whole ones per second",
        is_weighted_in_another_interval,
        (442, 13),
    ),
    exact(2_623),
];

pub(crate) const FLOW_THROTTLING: &[Class] = &[
    listed(LATE, clock_runs_back, (30, 14)),
    listed(QUIRK, is_quirk, (2, 2)),
    Class {
        name: "who is just in time, or just too late, may differ",
        verdict: Verdict::Rate,
        holds: |answer| answer.field == "result",
        answers: 2_823,
        differing: 24,
    },
    listed(
        "waits in a line in which one more or less stands",
        |answer| answer.has_flipped,
        (55, 54),
    ),
    Class {
        name: "turns are rounded once, to the next nanosecond",
        verdict: Verdict::Bounded(is_near_in_line),
        holds: |_| true,
        answers: 805,
        differing: 166,
    },
];

pub(crate) const FLOW_WARM_UP: &[Class] = &[
    listed(LATE, clock_runs_back, (12, 5)),
    listed(QUIRK, is_quirk, (569, 412)),
    listed(STORE, is_store, (3_195, 3_195)),
    listed(
        "a ramp of few tokens, which the record cuts to whole ones",
        is_low,
        (587, 10),
    ),
    Class {
        name: "tokens are not cut to whole ones",
        verdict: Verdict::Bounded(is_near),
        holds: |_| true,
        answers: 2_864,
        differing: 10,
    },
];

pub(crate) const FLOW_WARM_UP_THROTTLING: &[Class] = &[
    listed(QUIRK, is_quirk, (7, 7)),
    listed(STORE, is_store, (3_594, 3_594)),
    listed(
        "waits are as long as the ramp is steep",
        |answer| answer.field == "wait_ms",
        (810, 247),
    ),
    listed(
        "a ramp of few tokens, which the record cuts to whole ones",
        is_low,
        (1_149, 42),
    ),
    listed(
        "calls count from the beginning of the bucket of their turn",
        |answer| answer.op() == "read",
        (216, 82),
    ),
    Class {
        name: "tokens and turns are not cut to whole ones",
        verdict: Verdict::Rate,
        holds: |_| true,
        answers: 2_399,
        differing: 45,
    },
];

const STORE: &str = "the tokens in store are told to nobody";

pub(crate) const STATISTIC_NODE: &[Class] = &[
    listed(LATE, clock_runs_back, (245, 10)),
    listed(QUIRK, is_quirk, (211, 40)),
    listed("response times count up to one minute", is_long, (96, 50)),
    Class {
        name: "averages are over calls, recorded ones over weights",
        verdict: Verdict::Bounded(is_at_most_ours),
        holds: is_weighted_average,
        answers: 875,
        differing: 154,
    },
    exact(14_330),
];

pub(crate) const CIRCUIT_BREAKER: &[Class] = &[
    listed(LATE, clock_runs_back, (26, 13)),
    listed(
        "a call from before a change of state decides nothing and counts nowhere",
        |answer| half_open_past(answer).has_old_call,
        (1_109, 85),
    ),
    listed(
        "a probe that does not end has its place for a time only",
        |answer| half_open_past(answer).has_outlived,
        (44, 14),
    ),
    exact(5_343),
];

pub(crate) const SYSTEM: &[Class] = &[
    listed(QUIRK, is_quirk, (36, 7)),
    Class {
        name: "averages are over calls, recorded ones over weights",
        verdict: Verdict::Bounded(is_at_most_ours),
        holds: is_weighted_average,
        answers: 106,
        differing: 10,
    },
    exact(3_137),
];

const LATE: &str = "late readings count in the newest bucket";
const QUIRK: &str = "tagged as a quirk of the recorded implementation";
const DETAIL: &str = "tagged as a detail of the recorded implementation";

// === what the classes hold ===

fn clock_runs_back(answer: &Answer<'_>) -> bool {
    answer.case.has_tag("clock_")
}

fn is_quirk(answer: &Answer<'_>) -> bool {
    answer.case.has_tag("quirk:")
}

fn is_detail(answer: &Answer<'_>) -> bool {
    answer.case.has_tag("impl:")
}

fn is_before_the_only_one(answer: &Answer<'_>) -> bool {
    answer.case.config["sample_count"] == 1 && answer.op() == "previous_window"
}

fn is_huge(answer: &Answer<'_>) -> bool {
    answer.so_far().any(|step| {
        let n = step.get("n").and_then(Value::as_i64);
        n.is_some_and(|n| n.unsigned_abs() >= 1 << 31)
    })
}

/// The case has had a call of another weight than 1.
fn is_weighted(answer: &Answer<'_>) -> bool {
    answer
        .so_far()
        .any(|step| step.get("n").is_some_and(|n| *n != 1))
}

/// Within half a millisecond, or one nanosecond, for each call in the line.
fn is_near_in_line(answer: &Answer<'_>) -> bool {
    let is_waiting = |step: &&Step| step.get("expect").is_some_and(|e| e["result"] != "pass");
    let queued = answer.case.steps[..=answer.step].iter().rev();
    let queued = queued.take_while(is_waiting).count() as f64;
    let unit = if answer.field == "wait_ns" { 1.0 } else { 0.5 };
    let (Some(recorded), Some(ours)) = (answer.recorded.as_f64(), answer.ours.as_f64()) else {
        return false;
    };
    (recorded - ours).abs() <= unit * queued
}

/// Within one, or one in twenty.
fn is_near(answer: &Answer<'_>) -> bool {
    let (Some(recorded), Some(ours)) = (answer.recorded.as_f64(), answer.ours.as_f64()) else {
        return false;
    };
    (recorded - ours).abs() <= (recorded * 0.05).max(1.0)
}

fn is_low(answer: &Answer<'_>) -> bool {
    answer.case.config["count"].as_f64() < Some(10.0)
}

/// What has happened in a case of circuit breakers so far.
#[derive(Default)]
struct HalfOpenPast {
    /// A call has ended that began before the last change of some state.
    has_old_call: bool,
    /// A breaker has been half-open for longer than a probe may take.
    has_outlived: bool,
}

fn half_open_past(answer: &Answer<'_>) -> HalfOpenPast {
    let mut past = HalfOpenPast::default();
    let rules = answer.case.config["rules"].as_array();
    let lease = rules.into_iter().flatten().map(|rule| {
        let retry = rule["retry_timeout_s"].as_f64().unwrap_or(0.0) * 1e3;
        retry.max(rule["max_allowed_rt_ms"].as_f64().unwrap_or(0.0))
    });
    let lease = lease.fold(f64::INFINITY, f64::min);
    let mut begun = HashMap::new();
    let (mut states, mut changed) = (Value::Null, 0);
    let mut half_open_since = None;
    for (index, step) in answer.so_far().enumerate() {
        let id = step.get("id").and_then(Value::as_i64);
        let at = step.int("t_ms") as f64;
        let now = step
            .get("expect")
            .map_or(&Value::Null, |expect| &expect["states"]);
        match step.op.as_str() {
            "exit" => past.has_old_call |= begun.get(&id).is_some_and(|begun| *begun < changed),
            _ => past.has_outlived |= half_open_since.is_some_and(|since| at - since >= lease),
        }
        if *now != states {
            changed = index;
            states = now.clone();
            let is_half_open = |state: &Value| state == "half_open";
            let any = states
                .as_array()
                .is_some_and(|states| states.iter().any(is_half_open));
            half_open_since = any.then_some(at);
        }
        if step.op == "enter" {
            begun.insert(id, index);
        }
    }
    past
}

fn is_store(answer: &Answer<'_>) -> bool {
    answer.field == "stored_tokens"
}

fn is_weighted_thread(answer: &Answer<'_>) -> bool {
    answer.case.config["grade"] == "thread" && is_weighted(answer)
}

fn is_weighted_in_another_interval(answer: &Answer<'_>) -> bool {
    answer.case.config["interval_ms"] != 1_000 && is_weighted(answer)
}

/// The average response time, after a call that took longer than a minute.
fn is_long(answer: &Answer<'_>) -> bool {
    let mut started = HashMap::new();
    ["avg_rt", "rt"].contains(&answer.field)
        && answer.so_far().any(|step| {
            let (at, id) = (step.int("t_ms"), step.get("id").and_then(Value::as_i64));
            match step.op.as_str() {
                "enter" => started.insert(id, at).is_some_and(|_| false),
                "exit" => started.remove(&id).is_some_and(|start| at - start > 60_000),
                _ => false,
            }
        })
}

fn is_weighted_average(answer: &Answer<'_>) -> bool {
    ["avg_rt", "rt"].contains(&answer.field) && is_weighted(answer)
}

fn is_cautious(answer: &Answer<'_>) -> bool {
    let rank = |value: &Value| ["pass", "wait", "block"].iter().position(|it| value == it);
    let (recorded, ours) = (answer.recorded, answer.ours);
    !answer.same_so_far
        || match answer.field {
            "granted" => *ours == false,
            "wait_ms" => ours.is_null() || ours.as_u64() >= recorded.as_u64(),
            "result" => rank(ours) >= rank(recorded),
            _ => true,
        }
}

fn is_at_most_ours(answer: &Answer<'_>) -> bool {
    answer.recorded.as_f64() <= answer.ours.as_f64()
}

impl Answer<'_> {
    fn op(&self) -> &str {
        &self.case.steps[self.step].op
    }

    /// The steps up to this one.
    fn so_far(&self) -> impl Iterator<Item = &Step> {
        self.case.steps[..=self.step].iter()
    }
}
