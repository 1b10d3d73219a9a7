//! Translates the rules of Sentinel for Java.
//!
//! Differences in comparisons are translated here, so that the engine compares in one way only.
//! Where Sentinel refuses only above a limit, the rule here gets the next larger number as its
//! limit, or is a breaker that opens when its limit is
//! [exceeded](crate::CircuitBreakerRule::exceeds). Where Sentinel admits one thread more than its
//! maximum, the maximum grows by one. Where a call must wait less than the maximum, the maximum
//! becomes shorter by a nanosecond.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::cluster;
use super::fields::Fields;
use super::own::with;
use super::sentinel::{
    AS_0, NEVER_SO_LONG, REFUSES_ALL, is_millis, just_above, number_or_0, resource,
    respelled_resource, whole_or_0, whole_part,
};
use super::value::Datum;
use crate::rule::{
    AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, MissingKey, Rule,
    SystemRule,
};
use crate::stat::{MAX_RT, MAX_TOKENS};
use crate::system::Capacity;

/// The range of an `int`.
const INT: RangeInclusive<i32> = i32::MIN..=i32::MAX;
/// The range of an `int` that must not be negative.
const FROM_0: RangeInclusive<u32> = 0..=2_147_483_647;
/// The range of an `int` that must be positive.
const FROM_1: RangeInclusive<u32> = 1..=2_147_483_647;
/// The difference between a time limit in Sentinel and here, where the comparisons differ. It is
/// added to a response time, and subtracted from a maximum wait.
const NANOSECOND: Duration = Duration::from_nanos(1);
/// The context that Sentinel for Java gives to calls that name no context.
const DEFAULT_CONTEXT: &str = "sentinel_default_context";

/// Translates a `FlowRule`. `grade` 0 limits threads, and 1 calls per second. `strategy` 1 looks at
/// a related resource, and 2 at a context. `controlBehavior` 1 is a warm-up, 2 a queue, and 3 both.
pub(super) fn flow(fields: &mut Fields<'_>) -> Option<Rule> {
    let resource = resource(fields);
    let origin = fields
        .text("limitApp")
        .filter(|name| !name.trim().is_empty());
    let origin = origin.unwrap_or_else(|| "default".to_owned());
    let grade = fields.whole("grade", 0..=1).unwrap_or(1);
    let count = number_or_0(fields, "count", REFUSES_ALL);
    let strategy = fields.whole("strategy", 0..=2).unwrap_or(0);
    let reference = fields.text("refResource").unwrap_or_default();
    let behavior = fields.whole("controlBehavior", FROM_0).unwrap_or(0);
    let warm_up = fields.whole("warmUpPeriodSec", INT).unwrap_or(10);
    let max_wait = fields.whole("maxQueueingTimeMs", INT).unwrap_or(500);
    let cluster = cluster::of(fields, true, grade != 0);
    if fields.has_other("statIntervalMs", 1_000) {
        let note = "ignored, as by Sentinel: `count` is that of a second";
        fields.warn_harmless("statIntervalMs", note);
    }
    if let Some(cluster) = cluster {
        return Some(cluster.flow(fields, resource, count).into());
    }
    if origin.contains(',') {
        fields.warn("limitApp", "taken as one name, as by Sentinel");
    }
    if strategy != 0 && origin != "default" {
        let allowed = "\"default\" for `strategy` 1 and 2, which count the calls of all callers";
        fields.refuse("limitApp", allowed);
    }
    let has_reference = !reference.trim().is_empty();
    if strategy != 0 && !has_reference {
        fields.refuse("refResource", "a name for `strategy` 1 and 2");
    }
    if grade == 0 {
        let max = whole_part(fields, "count", count);
        let mut rule = IsolationRule::new(resource, max).for_origin(origin);
        match strategy {
            1 => rule = rule.when(respelled_resource(fields, "refResource", reference)),
            2 => {
                let allowed = "0 or 1 for `grade` 0: calls at once are not limited by context";
                fields.refuse("strategy", allowed);
            }
            _ => {}
        }
        fields.keys = vec![
            ("max", "count"),
            ("origin", "limitApp"),
            ("related", "refResource"),
        ];
        return Some(rule.into());
    }
    if strategy == 1 && matches!(behavior, 1..=3) {
        let allowed = "0 for `strategy` 1: a queue or a warm-up is one of its own resource";
        fields.refuse("controlBehavior", allowed);
    }
    if strategy == 2 && reference == DEFAULT_CONTEXT {
        let allowed = "a context that calls name: here a call without one is in none, and all calls \
                       together have `strategy` 0";
        fields.refuse("refResource", allowed);
    }
    let is_queue = matches!(behavior, 2 | 3);
    let count = if is_queue {
        count
    } else {
        whole_or_0(fields, "count", count)
    };
    let mut rule = FlowRule::per_second(resource, count).for_origin(origin);
    rule = match strategy {
        1 => rule.when(respelled_resource(fields, "refResource", reference)),
        2 => rule.in_context(reference),
        _ => rule,
    };
    if matches!(behavior, 1 | 3) {
        if warm_up < 1 {
            fields.refuse(
                "warmUpPeriodSec",
                "at least 1 for `controlBehavior` 1 and 3",
            );
        }
        rule = rule.warm_up(Duration::from_secs(warm_up.unsigned_abs().into()));
    }
    if is_queue {
        if max_wait < 1 {
            fields.refuse(
                "maxQueueingTimeMs",
                "at least 1 for `controlBehavior` 2 and 3",
            );
        }
        rule = rule.throttle(Duration::from_millis(max_wait.unsigned_abs().into()));
    }
    if behavior > 3 {
        fields.warn("controlBehavior", "taken as 0, as Sentinel does");
    }
    // Dashboards always write these keys with their defaults, so the defaults get no note.
    if !matches!(behavior, 1 | 3) && warm_up != 10 {
        fields.warn_harmless(
            "warmUpPeriodSec",
            "without effect but for `controlBehavior` 1 and 3",
        );
    }
    if !is_queue && max_wait != 500 {
        fields.warn_harmless(
            "maxQueueingTimeMs",
            "without effect but for `controlBehavior` 2 and 3",
        );
    }
    fields.keys = vec![
        ("threshold", "count"),
        ("origin", "limitApp"),
        ("related", "refResource"),
        ("context", "refResource"),
        ("warm_up", "warmUpPeriodSec"),
        ("max_wait", "maxQueueingTimeMs"),
    ];
    Some(rule.into())
}

/// Translates a `DegradeRule`. `grade` 0 is a ratio of slow calls, 1 a ratio of errors, and 2 a
/// number of errors.
pub(super) fn circuit_breaker(fields: &mut Fields<'_>) -> Option<Rule> {
    let resource = resource(fields);
    all_origins(fields);
    let grade = fields.whole("grade", 0..=2).unwrap_or(0);
    let open_for = fields.whole("timeWindow", FROM_1);
    fields.need("timeWindow", "a whole number of seconds, at least 1");
    let count = number_or_0(fields, "count", AS_0);
    let min_calls = fields.whole("minRequestAmount", FROM_1);
    // The default minimum of Sentinel is five calls, also for a count below five.
    let min_calls = min_calls.or((grade == 2 && count < 5.0).then_some(5));
    let slow_ratio = fields.number("slowRatioThreshold").unwrap_or(1.0);
    let interval = fields.whole("statIntervalMs", FROM_1).unwrap_or(1_000);
    let rule = match grade {
        0 => {
            is_millis(fields, "count", count);
            let max_rt = Duration::from_millis(count.round() as u64);
            CircuitBreakerRule::slow_ratio(resource, max_rt, slow_ratio)
        }
        1 => {
            if count == 1.0 {
                fields.warn("count", "without effect, as 1 is never exceeded");
            }
            CircuitBreakerRule::error_ratio(resource, count)
        }
        _ => CircuitBreakerRule::error_count(resource, whole_part(fields, "count", count)),
    };
    // A slow ratio of 1 cannot be exceeded: Sentinel then opens if all calls are slow.
    let rule = if grade == 0 && slow_ratio == 1.0 {
        rule
    } else {
        rule.exceeds()
    };
    let rule = with(rule, min_calls, CircuitBreakerRule::min_calls)
        .open_for(Duration::from_secs(open_for.unwrap_or(1).into()))
        .interval(Duration::from_millis(interval.into()))
        .buckets(1);
    let keys: &[_] = if grade == 0 { &SLOW } else { &ERRORS };
    fields.keys = keys.to_vec();
    Some(rule.into())
}

/// The fields of a breaker rule by slow calls, each with its key.
const SLOW: [(&str, &str); 5] = [
    ("ratio", "slowRatioThreshold"),
    ("max_rt", "count"),
    ("min_calls", "minRequestAmount"),
    ("open_for", "timeWindow"),
    ("interval", "statIntervalMs"),
];
/// The fields of a breaker rule by failed calls, each with its key.
const ERRORS: [(&str, &str); 5] = [
    ("ratio", "count"),
    ("count", "count"),
    ("min_calls", "minRequestAmount"),
    ("open_for", "timeWindow"),
    ("interval", "statIntervalMs"),
];

/// The limits of a system rule.
const SYSTEM_LIMITS: [&str; 5] = [
    "highestSystemLoad",
    "highestCpuUsage",
    "qps",
    "avgRt",
    "maxThread",
];

/// Translates a `SystemRule`. A limit below 0 is not set.
pub(super) fn system(fields: &mut Fields<'_>) -> Option<Rule> {
    fields.known(&["id", "resource", "regex"]);
    all_origins(fields);
    let set = |number: Option<f64>| number.filter(|number| *number >= 0.0);
    let load = set(fields.number("highestSystemLoad")).map(just_above);
    let cpu = set(fields.number("highestCpuUsage"));
    let qps = set(fields.number("qps")).map(|qps| whole_or_0(fields, "qps", qps));
    let rt = fields.whole("avgRt", INT).and_then(|rt| rt.try_into().ok());
    let rt = rt.map(|rt| Duration::from_millis(rt) + NANOSECOND);
    let most = fields.whole("maxThread", INT);
    let most = most.and_then(|most| u32::try_from(most).ok());
    for key in SYSTEM_LIMITS {
        let is_below_0 = match fields.peek(key) {
            Some(Datum::Whole(whole)) => *whole < 0,
            Some(Datum::Number(number)) => *number < 0.0,
            _ => false,
        };
        // -1 is the value that a dashboard writes for a limit that is not set.
        if is_below_0 && fields.has_other(key, -1) {
            fields.warn(key, "ignored, as in Sentinel, as it is below 0");
        }
    }
    if cpu.is_some_and(|cpu| cpu > 1.0) {
        let note = "ignored, as in Sentinel, as it is above 1";
        fields.warn("highestCpuUsage", note);
    } else if cpu == Some(1.0) {
        fields.warn("highestCpuUsage", "without effect, as 1 is never exceeded");
    }
    let cpu = cpu.filter(|cpu| *cpu < 1.0).map(just_above);
    if rt.is_some_and(|rt| rt > MAX_RT) {
        fields.warn("avgRt", NEVER_SO_LONG);
    }
    let rule = with(SystemRule::new(), load, |rule, load| {
        rule.load(load).capacity(Capacity::Sentinel)
    });
    let rule = with(rule, cpu, SystemRule::cpu);
    let rule = with(rule, qps, SystemRule::qps);
    let rule = with(rule, rt, SystemRule::rt);
    // Sentinel admits one call more than `maxThread`.
    let most = most.map(|most| (most + 1).min(MAX_TOKENS));
    let rule = with(rule, most, SystemRule::concurrency);
    if fields.is_good() && rule == SystemRule::new() {
        fields.warn_all("without a limit", "left out, as it limits nothing");
        return None;
    }
    fields.keys = vec![
        ("load", "highestSystemLoad"),
        ("cpu", "highestCpuUsage"),
        ("rt", "avgRt"),
        ("concurrency", "maxThread"),
    ];
    Some(rule.into())
}

/// Translates an `AuthorityRule`. `strategy` 0 is a list of allowed origins, and 1 a list of denied
/// origins.
pub(super) fn authority(fields: &mut Fields<'_>) -> Option<Rule> {
    let resource = resource(fields);
    let origins = fields.needed_text("limitApp");
    let rule = match fields.whole("strategy", 0..=1) {
        Some(1) => AuthorityRule::deny_list(resource, &origins),
        _ => AuthorityRule::allow_list(resource, &origins),
    };
    // A list without origins would let every call pass.
    if fields.has("limitApp") && rule.origins().is_empty() {
        fields.refuse("limitApp", "names of origins, between commas");
    }
    fields.keys = vec![("origins", "limitApp")];
    Some(rule.into())
}

/// Translates a `ParamFlowRule`. `grade` 0 limits threads, and 1 calls per interval.
/// `controlBehavior` 2 is a queue.
pub(super) fn keyed_rule(fields: &mut Fields<'_>) -> Option<Rule> {
    let resource = resource(fields);
    all_origins(fields);
    let grade = fields.whole("grade", 0..=1).unwrap_or(1);
    let index = fields.whole("paramIdx", INT);
    fields.need("paramIdx", "the index of the parameter");
    let count = number_or_0(fields, "count", AS_0);
    let count = whole_part(fields, "count", count);
    let interval = fields.whole("durationInSec", FROM_1).unwrap_or(1);
    let burst = fields.whole("burstCount", FROM_0).unwrap_or(0);
    let behavior = fields.whole("controlBehavior", FROM_0).unwrap_or(0);
    let max_wait = fields.whole("maxQueueingTimeMs", FROM_0).unwrap_or(0);
    let exceptions = fields.tables("paramFlowItemList", exception);
    if let Some(cluster) = cluster::of(fields, false, grade != 0) {
        let exceptions = exceptions.into_iter().flatten();
        let rule = cluster.keyed_rule(fields, resource, count.into(), exceptions);
        let rule = rule.param_at(index.unwrap_or(0)).missing(MissingKey::Skip);
        return Some(rule.into());
    }
    let mut rule = if grade == 0 {
        KeyedRule::concurrency(resource, count)
    } else {
        KeyedRule::per(resource, count, Duration::from_secs(interval.into()))
    };
    rule = rule.param_at(index.unwrap_or(0)).missing(MissingKey::Skip);
    if grade == 1 && behavior == 2 {
        let max_wait = Duration::from_millis(max_wait.into());
        rule = rule.throttle(max_wait.saturating_sub(NANOSECOND));
    } else if grade == 1 {
        // With a count of 0, only values in `paramFlowItemList` can use the burst, as in Sentinel.
        rule = rule.burst(burst);
    }
    if !matches!(behavior, 0 | 2) {
        fields.warn("controlBehavior", "taken as 0, as Sentinel does");
    }
    for (value, threshold) in exceptions.into_iter().flatten() {
        rule = rule.except(value, threshold);
    }
    fields.keys = vec![
        ("threshold", "count"),
        ("interval", "durationInSec"),
        ("burst", "burstCount"),
        ("max_wait", "maxQueueingTimeMs"),
        ("except", "paramFlowItemList"),
    ];
    Some(rule.into())
}

/// Reads one of the `paramFlowItemList`: a value of the parameter, and its count. As in Sentinel,
/// an invalid item is left out, and the rule is loaded without it.
fn exception(fields: &mut Fields<'_>) -> Option<(String, u32)> {
    fields.known(&["object", "count", "classType"]);
    let class = match fields.peek("classType") {
        None => "",
        Some(Datum::Text(class)) => class.trim(),
        Some(_) => return left_out(fields, "classType"),
    };
    let value = match fields.peek("object") {
        Some(Datum::Text(text)) => text.clone(),
        Some(Datum::Whole(number)) => number.to_string(),
        Some(Datum::Flag(flag)) => flag.to_string(),
        _ => return left_out(fields, "object"),
    };
    let count = match fields.peek("count") {
        Some(Datum::Whole(count)) => u32::try_from(*count).ok(),
        Some(Datum::Number(count)) if count.fract() == 0.0 && *count >= 0.0 => Some(*count as u32),
        _ => None,
    };
    let Some(count) = count.filter(|count| FROM_0.contains(count)) else {
        return left_out(fields, "count");
    };
    let value = match class {
        "int" | "java.lang.Integer" => whole_text::<i32>(&value),
        "long" | "java.lang.Long" => whole_text::<i64>(&value),
        "short" | "java.lang.Short" => whole_text::<i16>(&value),
        "byte" | "java.lang.Byte" => whole_text::<i8>(&value),
        "boolean" | "java.lang.Boolean" => {
            let is_true = value.eq_ignore_ascii_case("true");
            if !is_true && !value.eq_ignore_ascii_case("false") {
                fields.warn("object", "taken as false, as by Sentinel");
            }
            Some(is_true.to_string())
        }
        "double" | "java.lang.Double" | "float" | "java.lang.Float" => {
            Some(value).filter(|value| value.trim().parse::<f64>().is_ok())
        }
        "char" => value.chars().next().map(String::from),
        "" | "String" | "java.lang.String" | "java.lang.Character" => Some(value),
        _ => return left_out(fields, "classType"),
    };
    match value {
        Some(value) => Some((value, count)),
        None => left_out(fields, "object"),
    }
}

/// Returns the canonical text of the whole number `value`; `None` if `value` is no whole number.
fn whole_text<T: FromStr + ToString>(value: &str) -> Option<String> {
    value.parse::<T>().ok().map(|number| number.to_string())
}

/// Warns that an item is left out because of its value under `key`.
fn left_out<T>(fields: &mut Fields<'_>, key: &'static str) -> Option<T> {
    fields.warn(key, "left out with its item, as by Sentinel");
    None
}

/// Warns if the rule names an origin: Sentinel applies rules of this kind to all origins.
fn all_origins(fields: &mut Fields<'_>) {
    fields.known(&["limitApp"]);
    let is_one = |name: &str| !matches!(name.trim(), "" | "default");
    if matches!(fields.peek("limitApp"), Some(Datum::Text(name)) if is_one(name)) {
        let note = "ignored, as by Sentinel: the rule is for all callers";
        fields.warn("limitApp", note);
    }
}
