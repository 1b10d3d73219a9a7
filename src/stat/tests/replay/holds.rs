//! The predicates of the classes. Some select the answers that a class holds; others accept an
//! answer of ours that differs.

use std::collections::HashMap;

use serde_json::Value;

use super::classes::Answer;
use super::{Step, keyed_rule};

/// Selects the cases in which the clock runs back.
pub(super) fn clock_runs_back(answer: &Answer<'_>) -> bool {
    answer.case.has_tag("clock_")
}

/// Selects the cases that record a quirk of Sentinel.
pub(super) fn is_quirk(answer: &Answer<'_>) -> bool {
    answer.case.has_tag("quirk:")
}

/// Selects the cases that record a detail of Sentinel's implementation.
pub(super) fn is_detail(answer: &Answer<'_>) -> bool {
    answer.case.has_tag("impl:")
}

/// Selects readings of the previous bucket of a ring that has only one bucket.
pub(super) fn is_before_the_only_one(answer: &Answer<'_>) -> bool {
    answer.case.config["sample_count"] == 1 && answer.op() == "previous_window"
}

/// Selects answers after a weight of at least 2³¹.
pub(super) fn is_huge(answer: &Answer<'_>) -> bool {
    answer.so_far().any(|step| {
        let n = step.get("n").and_then(Value::as_i64);
        n.is_some_and(|n| n.unsigned_abs() >= 1 << 31)
    })
}

/// Returns whether a call of the case so far had a weight other than 1.
fn is_weighted(answer: &Answer<'_>) -> bool {
    answer
        .so_far()
        .any(|step| step.get("n").is_some_and(|n| *n != 1))
}

/// Accepts a difference of at most [`rounding_in_queue`].
pub(super) fn is_near_in_queue(answer: &Answer<'_>) -> bool {
    let (Some(recorded), Some(ours)) = (answer.recorded.as_f64(), answer.ours.as_f64()) else {
        return false;
    };
    (recorded - ours).abs() <= rounding_in_queue(answer)
}

/// Accepts times in ns that differ by at most a microsecond, the precision of the record.
pub(super) fn is_as_long(answer: &Answer<'_>) -> bool {
    let (Some(recorded), Some(ours)) = (answer.recorded.as_u64(), answer.ours.as_u64()) else {
        return false;
    };
    recorded.abs_diff(ours) <= 1_000
}

/// Accepts a wait of at most [`rounding_in_queue`] for a call that passes in the record.
pub(super) fn is_nearly_its_turn(answer: &Answer<'_>) -> bool {
    let wait_ms = answer.answers[answer.step]["wait_ms"].as_f64();
    let is_short = wait_ms.is_some_and(|wait_ms| wait_ms <= rounding_in_queue(answer));
    answer.recorded == "pass" && is_short
}

/// Returns the largest difference in wait that rounding can make: half a millisecond for this call
/// and for each call before it in its queue. If the record is in nanoseconds, it is one nanosecond
/// per call. Calls with other arguments are in other queues.
fn rounding_in_queue(answer: &Answer<'_>) -> f64 {
    let is_waiting = |step: &&Step| step.get("expect").is_some_and(|e| e["result"] != "pass");
    let this = &answer.case.steps[answer.step];
    let before = answer.case.steps[..answer.step].iter().rev();
    let before = before.filter(|step| step.get("args") == this.get("args"));
    let unit = if answer.case.config["unit"] == "ns" {
        1.0
    } else {
        0.5
    };
    unit * (1 + before.take_while(is_waiting).count()) as f64
}

/// Accepts a difference of at most 1, or of at most 5 %.
pub(super) fn is_near(answer: &Answer<'_>) -> bool {
    let (Some(recorded), Some(ours)) = (answer.recorded.as_f64(), answer.ours.as_f64()) else {
        return false;
    };
    (recorded - ours).abs() <= (recorded * 0.05).max(1.0)
}

/// Selects the cases with a threshold below 10.
pub(super) fn is_low(answer: &Answer<'_>) -> bool {
    answer.case.config["count"].as_f64() < Some(10.0)
}

/// Events so far in a case of circuit breakers, for which recorded answers may differ from ours.
#[derive(Default)]
pub(super) struct HalfOpenPast {
    /// A call has ended that began before the last change of the breakers' states.
    pub(super) has_old_call: bool,
    /// A breaker has been half-open for longer than a probe may take.
    pub(super) has_outlived: bool,
}

/// Computes the events of the case up to this answer.
pub(super) fn half_open_past(answer: &Answer<'_>) -> HalfOpenPast {
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

/// Selects the stored tokens of rules that warm up.
pub(super) fn is_store(answer: &Answer<'_>) -> bool {
    answer.field == "stored_tokens"
}

/// Selects answers of a limit on concurrency after a call of a weight other than 1.
pub(super) fn is_weighted_thread(answer: &Answer<'_>) -> bool {
    answer.case.config["grade"] == "thread" && is_weighted(answer)
}

/// Selects answers of a rule whose interval is not a second, after a call of a weight other than 1.
pub(super) fn is_weighted_in_another_interval(answer: &Answer<'_>) -> bool {
    answer.case.config["interval_ms"] != 1_000 && is_weighted(answer)
}

/// Selects average response times after a call that took longer than a minute.
pub(super) fn is_long(answer: &Answer<'_>) -> bool {
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

/// Selects average response times after a call of a weight other than 1.
pub(super) fn is_weighted_average(answer: &Answer<'_>) -> bool {
    ["avg_rt", "rt"].contains(&answer.field) && is_weighted(answer)
}

/// Selects answers after a call that has a collection as an argument.
pub(super) fn has_collection(answer: &Answer<'_>) -> bool {
    answer.so_far().any(|step| {
        let args = step.get("args").and_then(Value::as_array);
        args.is_some_and(|args| args.iter().any(Value::is_array))
    })
}

/// Selects the cases with a refilled quota that refuses at once.
pub(super) fn is_refilled(answer: &Answer<'_>) -> bool {
    let rule = &answer.case.config["rules"][0];
    rule["grade"] == "qps" && rule["control"] == "reject"
}

/// Selects the cases with a rule that has a queue.
pub(super) fn is_queue(answer: &Answer<'_>) -> bool {
    answer.case.config["rules"][0]["control"] == "throttle"
}

/// Accepts an answer of ours that a naive, continuously refilled quota would give, computed in
/// integer fractions of a token. If exactly enough is left, a refusal is accepted too, because our
/// quota rounds the price of a token up.
pub(super) fn is_refilled_all_the_time(answer: &Answer<'_>) -> bool {
    let rule = &answer.case.config["rules"][0];
    let step = &answer.case.steps[answer.step];
    let Some(value) = keyed_rule::value(rule, step) else {
        return answer.ours == "pass";
    };
    let number = |name: &str| rule[name].as_i64().expect("a whole number");
    let token = number("duration_s") * 1_000;
    let threshold = keyed_rule::threshold(rule, &value);
    let capacity = if threshold == 0 {
        0
    } else {
        (threshold + number("burst")) * token
    };
    let (mut left, mut last) = (capacity, 0);
    let refill = |left: i64, last, at| capacity.min(left + (at - last) * threshold);
    for (step, ours) in answer.so_far().zip(answer.answers).take(answer.step) {
        if keyed_rule::value(rule, step).as_ref() == Some(&value) && ours["result"] == "pass" {
            left = refill(left, last, step.int("t_ms")) - step.int("n") * token;
            last = step.int("t_ms");
        }
    }
    left = refill(left, last, step.int("t_ms"));
    let price = step.int("n") * token;
    match answer.ours.as_str() {
        Some("pass") => price <= left,
        Some("block") => price >= left,
        _ => false,
    }
}

/// Accepts an answer that is not more permissive than the recorded one. Once an earlier answer of
/// the case has differed, accepts any answer.
pub(super) fn is_cautious(answer: &Answer<'_>) -> bool {
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

/// Accepts a figure that is at least the recorded one.
pub(super) fn is_at_most_ours(answer: &Answer<'_>) -> bool {
    answer.recorded.as_f64() <= answer.ours.as_f64()
}
