//! Translates the rules of Sentinel for Go.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::fields::Fields;
use super::sentinel::{
    AS_0, NEVER_SO_LONG, REFUSES_ALL, flag_value, is_millis, just_above, number_or_0, resource,
    respelled_resource, whole_or_0, whole_part, whole_value,
};
use super::value::Datum;
use crate::rule::{
    CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, MissingKey, Rule, SystemRule,
};
use crate::stat::{MAX_RT, MAX_TOKENS};

/// The range of a `uint32`.
const UINT: RangeInclusive<u32> = 0..=u32::MAX;
/// The range of a `uint32` that must not be 0.
const FROM_1: RangeInclusive<u32> = 1..=u32::MAX;
/// The range from 0 to the largest `int64`.
const LONG: RangeInclusive<u64> = 0..=i64::MAX.unsigned_abs();
/// The effect of an index in a rule that also has a key.
const BY_KEY_ALONE: &str = "ignored beside `paramKey`: calls without that key pass, where those \
     of Sentinel for Go count by the argument at this index";
/// The fields of a [`FlowRule`], each with its key in a flow rule for Go.
const FLOW_KEYS: &[(&str, &str)] = &[
    ("interval", "statIntervalInMs"),
    ("related", "refResource"),
    ("warm_up", "warmUpPeriodSec"),
    ("cold_factor", "warmUpColdFactor"),
    ("max_wait", "maxQueueingTimeMs"),
];
/// The keys that a flow rule must have if its threshold depends on the memory in use.
const MEMORY: [&str; 4] = [
    "lowMemUsageThreshold",
    "highMemUsageThreshold",
    "memLowWaterMarkBytes",
    "memHighWaterMarkBytes",
];
/// The fields of a [`FlowRule`], each with its key in a rule that depends on the memory.
const MEMORY_KEYS: &[(&str, &str)] = &[
    ("interval", "statIntervalInMs"),
    ("related", "refResource"),
    ("max_wait", "maxQueueingTimeMs"),
    ("threshold", "lowMemUsageThreshold"),
    ("memory", "memHighWaterMarkBytes"),
    ("memory.threshold", "highMemUsageThreshold"),
];

/// Translates a `flow.Rule`. `tokenCalculateStrategy` 1 is a warm-up, and 2 follows the memory in
/// use. `controlBehavior` 1 is a queue. `relationStrategy` 1 looks at a related resource.
pub(super) fn flow(fields: &mut Fields<'_>) -> Option<Rule> {
    let resource = resource(fields);
    let low_use = fields.number("lowMemUsageThreshold").unwrap_or(0.0);
    let high_use = fields.number("highMemUsageThreshold").unwrap_or(0.0);
    let low_mark = fields.whole("memLowWaterMarkBytes", LONG).unwrap_or(0);
    let high_mark = fields.whole("memHighWaterMarkBytes", LONG).unwrap_or(0);
    let tokens = fields.whole("tokenCalculateStrategy", 0..=2).unwrap_or(0);
    let follows_memory = tokens == 2;
    let threshold = if follows_memory {
        fields.number("threshold");
        low_use
    } else {
        number_or_0(fields, "threshold", REFUSES_ALL)
    };
    let behavior = fields.whole("controlBehavior", 0..=1).unwrap_or(0);
    let threshold = if behavior == 1 || follows_memory {
        threshold
    } else {
        whole_or_0(fields, "threshold", threshold)
    };
    let relation = fields.whole("relationStrategy", 0..=1).unwrap_or(0);
    let reference = fields.text("refResource").unwrap_or_default();
    let reference = respelled_resource(fields, "refResource", reference);
    let max_wait = fields.whole("maxQueueingTimeMs", UINT).unwrap_or(0);
    let warm_up = fields.whole("warmUpPeriodSec", UINT).unwrap_or(0);
    let cold_factor = fields.whole("warmUpColdFactor", UINT).unwrap_or(0);
    let interval = fields.whole("statIntervalInMs", UINT).unwrap_or(0);
    let interval = if interval == 0 { 1_000 } else { interval };
    warn_of_java_keys(fields);
    let mut rule = FlowRule::per(resource, threshold, Duration::from_millis(interval.into()));
    if let Some(buckets) = buckets(interval) {
        rule = rule.buckets(buckets);
    }
    match tokens {
        0 => {}
        1 => {
            if warm_up == 0 {
                fields.refuse("warmUpPeriodSec", "at least 1 for a warm-up");
            }
            rule = rule.warm_up(Duration::from_secs(warm_up.into()));
            if cold_factor == 1 {
                fields.refuse("warmUpColdFactor", "above 1, or 0 for 3");
            } else if cold_factor > 1 {
                rule = rule.cold_factor(cold_factor.into());
            }
        }
        _ => {
            for key in MEMORY {
                if !fields.has_other(key, 0) {
                    fields.refuse(key, "above 0 for `tokenCalculateStrategy` 2");
                }
            }
            rule = rule.memory_bytes(low_mark..high_mark, high_use);
        }
    }
    if behavior == 1 {
        rule = rule.throttle(Duration::from_millis(max_wait.into()));
    }
    if relation == 1 {
        if reference.trim().is_empty() {
            fields.refuse("refResource", "a name for `relationStrategy` 1");
        }
        rule = rule.when(reference);
    }
    let keys = if follows_memory {
        MEMORY_KEYS
    } else {
        FLOW_KEYS
    };
    fields.keys = keys.to_vec();
    Some(rule.into())
}

/// Returns the number of buckets of an interval in milliseconds, if it is not the default of two.
/// In Sentinel for Go, an interval of up to 10 s has buckets of half a second; with fewer buckets,
/// calls would leave the window sooner. Any other interval is one bucket in Sentinel for Go. Here
/// it has two buckets, which can refuse more calls than one bucket, but not fewer.
const fn buckets(interval: u32) -> Option<u32> {
    match interval {
        // A bucket lasts at least a millisecond, so this interval cannot have two.
        1 => Some(1),
        500..=10_000 if interval % 500 == 0 => Some(interval / 500),
        _ => None,
    }
}

/// Warns of keys that have an effect only in rules for Java.
fn warn_of_java_keys(fields: &mut Fields<'_>) {
    let is_usual = |value: &Datum| match value {
        Datum::Text(origin) => origin.trim().is_empty() || origin == "default",
        _ => false,
    };
    let is_for_one = fields.peek("limitApp").is_some_and(|it| !is_usual(it));
    let unusual = [
        ("grade", fields.has_other("grade", 1)),
        ("strategy", fields.has_other("strategy", 0)),
        ("limitApp", is_for_one),
    ];
    for (key, _) in unusual.into_iter().filter(|(_, is_unusual)| *is_unusual) {
        fields.warn(key, "ignored, as by Sentinel for Go: its rules have none");
    }
}

/// Translates a `circuitbreaker.Rule`. `strategy` 0 is a ratio of slow calls, 1 a ratio of errors,
/// and 2 a number of errors.
pub(super) fn circuit_breaker(fields: &mut Fields<'_>) -> Option<Rule> {
    let resource = resource(fields);
    let strategy = fields.whole("strategy", 0..=2).unwrap_or(0);
    let open_for = fields.whole("retryTimeoutMs", FROM_1);
    let min_calls = fields.whole("minRequestAmount", UINT).unwrap_or(0);
    let interval = fields.whole("statIntervalMs", FROM_1);
    for key in ["retryTimeoutMs", "statIntervalMs"] {
        fields.need(key, "a whole number of milliseconds, at least 1");
    }
    let interval = interval.unwrap_or(1);
    let buckets = fields
        .whole("statSlidingWindowBucketCount", UINT)
        .unwrap_or(0);
    let max_rt = fields.whole("maxAllowedRtMs", LONG).unwrap_or(0);
    if strategy == 0 && !fields.has("maxAllowedRtMs") {
        fields.warn("maxAllowedRtMs", AS_0);
    }
    let threshold = fields.needed_number("threshold");
    let probes = fields.whole("probeNum", LONG).unwrap_or(0);
    let rule = match strategy {
        0 => CircuitBreakerRule::slow_ratio(resource, Duration::from_millis(max_rt), threshold),
        1 => CircuitBreakerRule::error_ratio(resource, threshold),
        _ => {
            let count = whole_part(fields, "threshold", threshold);
            CircuitBreakerRule::error_count(resource, count)
        }
    };
    let is_cut = buckets > 0 && interval % buckets == 0;
    let rule = rule
        .open_for(Duration::from_millis(open_for.unwrap_or(1).into()))
        .min_calls(min_calls.max(1))
        .interval(Duration::from_millis(interval.into()))
        .buckets(if is_cut { buckets } else { 1 })
        .probes(u32::try_from(probes.max(1)).unwrap_or(u32::MAX));
    fields.keys = vec![
        ("ratio", "threshold"),
        ("count", "threshold"),
        ("max_rt", "maxAllowedRtMs"),
        ("min_calls", "minRequestAmount"),
        ("open_for", "retryTimeoutMs"),
        ("interval", "statIntervalMs"),
        ("buckets", "statSlidingWindowBucketCount"),
        ("probes", "probeNum"),
    ];
    Some(rule.into())
}

/// Translates a `system.Rule`. `metricType` 0 is the load, 1 the response time, 2 the concurrency,
/// 3 the rate, and 4 the CPU.
pub(super) fn system(fields: &mut Fields<'_>) -> Option<Rule> {
    fields.known(&["id"]);
    let metric = fields.whole("metricType", 0..=4);
    fields.need("metricType", "a whole number between 0 and 4");
    let trigger = fields.needed_number("triggerCount");
    let strategy = fields.whole("strategy", -1..=1).unwrap_or(0);
    let rule = SystemRule::new();
    // In Sentinel for Go, the load or the CPU refuses calls above its limit, a rate or a
    // concurrency already at its limit. A limit below zero is kept, so that it is refused as out of
    // range.
    let reached = if trigger < 0.0 {
        trigger
    } else {
        trigger.ceil()
    };
    let rule = match metric? {
        0 => {
            if strategy != 1 {
                let note = "taken as 1: the load refuses only beyond the capacity";
                fields.warn("strategy", note);
            }
            rule.load(exceeded(trigger))
        }
        1 => {
            if !is_millis(fields, "triggerCount", trigger) {
                return None;
            }
            let rt = Duration::from_secs_f64(trigger / 1e3);
            if rt > MAX_RT {
                fields.warn("triggerCount", NEVER_SO_LONG);
            }
            rule.rt(rt)
        }
        2 => rule.concurrency(whole_part(fields, "triggerCount", reached)),
        3 => rule.qps(reached),
        _ => {
            if strategy == 1 {
                let note = "taken as -1: the CPU refuses whatever the capacity";
                fields.warn("strategy", note);
            }
            if trigger == 1.0 {
                fields.warn("triggerCount", "left out, as 1 is never exceeded");
                return None;
            }
            rule.cpu(exceeded(trigger))
        }
    };
    fields.keys = vec![
        ("load", "triggerCount"),
        ("cpu", "triggerCount"),
        ("qps", "triggerCount"),
        ("rt", "triggerCount"),
    ];
    Some(rule.into())
}

/// Translates an `isolation.Rule`. The only `metricType` is 0, the concurrency.
pub(super) fn isolation(fields: &mut Fields<'_>) -> Option<Rule> {
    let resource = resource(fields);
    fields.whole("metricType", 0..=0);
    let max = fields.whole("threshold", 1..=MAX_TOKENS);
    fields.need("threshold", "a whole number, at least 1");
    Some(IsolationRule::new(resource, max.unwrap_or(1)).into())
}

/// Translates a `hotspot.Rule`. `metricType` 0 limits the concurrency, and 1 calls per interval.
/// `controlBehavior` 1 is a queue.
pub(super) fn keyed_rule(fields: &mut Fields<'_>) -> Option<Rule> {
    let resource = resource(fields);
    let metric = fields.whole("metricType", 0..=1).unwrap_or(0);
    let behavior = fields.whole("controlBehavior", 0..=1).unwrap_or(0);
    let index = fields.whole("paramIndex", i32::MIN..=i32::MAX);
    let key = fields.text("paramKey").filter(|key| !key.is_empty());
    let threshold = number_or_0(fields, "threshold", AS_0);
    let threshold = whole_part(fields, "threshold", threshold);
    let max_wait = fields.whole("maxQueueingTimeMs", LONG).unwrap_or(0);
    let burst = fields.whole("burstCount", 0..=MAX_TOKENS).unwrap_or(0);
    let interval = fields.whole("durationInSec", LONG).unwrap_or(0);
    let max_keys = fields.whole("paramsMaxCapacity", UINT).unwrap_or(0);
    let exceptions = fields.tables("specificItems", exception);
    let mut rule = if metric == 0 {
        KeyedRule::concurrency(resource, threshold)
    } else {
        if interval == 0 {
            fields.refuse("durationInSec", "at least 1 for `metricType` 1");
        }
        KeyedRule::per(resource, threshold, Duration::from_secs(interval))
    };
    if key.is_some() && index.is_some_and(|index| index != 0) {
        fields.warn("paramIndex", BY_KEY_ALONE);
    }
    rule = match key {
        Some(key) => rule.param(key),
        None => rule.param_at(index.unwrap_or(0)),
    };
    rule = rule.missing(MissingKey::Skip);
    if metric == 1 && behavior == 1 {
        // In Sentinel for Go, a call must wait less than the maximum.
        let max_wait = Duration::from_millis(max_wait);
        rule = rule.throttle(max_wait.saturating_sub(Duration::from_nanos(1)));
    } else if metric == 1 {
        // With a threshold of 0, only specific items can use the burst, as in Sentinel for Go.
        rule = rule.burst(burst);
    }
    if max_keys > 0 {
        rule = rule.max_keys(max_keys);
    }
    for (value, threshold) in exceptions {
        rule = rule.except(value, threshold);
    }
    fields.keys = vec![
        ("param", "paramKey"),
        ("interval", "durationInSec"),
        ("max_wait", "maxQueueingTimeMs"),
        ("max_keys", "paramsMaxCapacity"),
        ("except", "specificItems"),
    ];
    Some(rule.into())
}

/// Reads one of the `specificItems`: a value of the parameter, and its threshold.
fn exception(fields: &mut Fields<'_>) -> (String, u32) {
    let kind = fields.whole("valKind", 0..=3).unwrap_or(0);
    let value = fields.needed_text("valStr");
    let threshold = fields.whole("threshold", 0..=MAX_TOKENS).unwrap_or(0);
    if !fields.has("threshold") {
        fields.warn("threshold", AS_0);
    }
    let value = match kind {
        0 => whole_value(fields, "valStr", &value),
        2 => flag_value(fields, "valStr", &value),
        _ => value,
    };
    (value, threshold)
}

/// Returns the next number above `limit`, which is reached as soon as `limit` is exceeded. A limit
/// below zero is kept, so that it is refused as out of range.
fn exceeded(limit: f64) -> f64 {
    if limit < 0.0 {
        limit
    } else {
        just_above(limit)
    }
}
