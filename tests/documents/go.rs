//! Documents of Sentinel for Go.

use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::document::{Document, Format, Kind};
use tower_sentinel::rule::SystemRule;
use tower_sentinel::{
    CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, MissingKey, Rule, Rules,
};

use super::{json as tree, lines, ms, sentinel, strict};

fn assert_translated(kind: Kind, table: Vec<(Value, Rule)>) {
    let (list, by_hand): (Vec<_>, Vec<_>) = table.into_iter().unzip();
    let list = Value::Array(list);
    let document = sentinel(kind, &list);
    let rules = strict(&document);
    assert_eq!(rules, Rules::build(by_hand).unwrap());
    assert_eq!(tree(&document), list);
    let found = Document::read(&list.to_string(), Format::Json).unwrap();
    assert_eq!(strict(&found), rules);
}

#[test]
fn flow_rules() {
    assert_translated(
        Kind::Flow,
        vec![
            (
                json!({
                    "id": "7", "resource": "a", "tokenCalculateStrategy": 0,
                    "controlBehavior": 0, "threshold": 10.0, "relationStrategy": 0,
                    "refResource": "", "maxQueueingTimeMs": 0, "warmUpPeriodSec": 0,
                    "warmUpColdFactor": 0, "statIntervalInMs": 0, "lowMemUsageThreshold": 0,
                    "highMemUsageThreshold": 0, "memLowWaterMarkBytes": 0,
                    "memHighWaterMarkBytes": 0, "regex": false,
                }),
                FlowRule::per_second("a", 10).into(),
            ),
            // Throttling here, a warm-up in Java.
            (
                json!({
                    "resource": "a", "threshold": 10, "controlBehavior": 1,
                    "maxQueueingTimeMs": 200,
                }),
                FlowRule::per_second("a", 10).throttle(ms(200)).into(),
            ),
            (
                json!({"resource": "a", "threshold": 10, "controlBehavior": 1}),
                FlowRule::per_second("a", 10)
                    .throttle(Duration::ZERO)
                    .into(),
            ),
            (
                json!({
                    "resource": "a", "threshold": 100, "tokenCalculateStrategy": 1,
                    "warmUpPeriodSec": 10, "warmUpColdFactor": 5, "statIntervalInMs": 60_000,
                }),
                FlowRule::per("a", 100, ms(60_000))
                    .warm_up(ms(10_000))
                    .cold_factor(5.0)
                    .into(),
            ),
            (
                json!({
                    "resource": "a", "threshold": 100, "tokenCalculateStrategy": 1,
                    "warmUpPeriodSec": 10,
                }),
                FlowRule::per_second("a", 100).warm_up(ms(10_000)).into(),
            ),
            (
                json!({
                    "resource": "a", "threshold": 0, "tokenCalculateStrategy": 2, "lowMemUsageThreshold": 1_000,
                    "highMemUsageThreshold": 100, "memLowWaterMarkBytes": 1_024,
                    "memHighWaterMarkBytes": 2_048,
                }),
                FlowRule::per_second("a", 1_000)
                    .memory_bytes(1_024..2_048, 100)
                    .into(),
            ),
            // Such a rule needs no `threshold`, which tells the others from Java's.
            (
                json!({
                    "resource": "a", "tokenCalculateStrategy": 2, "lowMemUsageThreshold": 1_000,
                    "highMemUsageThreshold": 100, "memLowWaterMarkBytes": 1_024,
                    "memHighWaterMarkBytes": 2_048,
                }),
                FlowRule::per_second("a", 1_000)
                    .memory_bytes(1_024..2_048, 100)
                    .into(),
            ),
            (
                json!({
                    "resource": "a", "threshold": 1, "relationStrategy": 1, "refResource": "b",
                }),
                FlowRule::per_second("a", 1).when("b").into(),
            ),
            (
                json!({"resource": "a", "threshold": 1, "statIntervalInMs": 750}),
                FlowRule::per("a", 1, ms(750)).into(),
            ),
            (
                json!({"resource": "a", "threshold": 1, "statIntervalInMs": 1_500}),
                FlowRule::per("a", 1, ms(1_500)).buckets(3).into(),
            ),
            (
                json!({"resource": "a", "threshold": 1, "statIntervalInMs": 1}),
                FlowRule::per("a", 1, ms(1)).buckets(1).into(),
            ),
        ],
    );
}

#[test]
fn isolation_rules() {
    assert_translated(
        Kind::Isolation,
        vec![(
            json!({"id": "1", "resource": "a", "metricType": 0, "threshold": 12}),
            IsolationRule::new("a", 12).into(),
        )],
    );
}

#[test]
fn circuit_breaker_rules() {
    let common = |rule: CircuitBreakerRule| rule.open_for(ms(3_000)).interval(ms(10_000));
    assert_translated(
        Kind::CircuitBreaker,
        vec![
            (
                json!({
                    "resource": "a", "strategy": 0, "retryTimeoutMs": 3000,
                    "minRequestAmount": 10, "statIntervalMs": 10000,
                    "statSlidingWindowBucketCount": 10, "maxAllowedRtMs": 50, "threshold": 0.5,
                    "probeNum": 3,
                }),
                common(CircuitBreakerRule::slow_ratio("a", ms(50), 0.5))
                    .min_calls(10)
                    .buckets(10)
                    .probes(3)
                    .into(),
            ),
            (
                json!({
                    "resource": "a", "strategy": 1, "retryTimeoutMs": 3000,
                    "statIntervalMs": 10000, "threshold": 0.4,
                    "statSlidingWindowBucketCount": 7,
                }),
                common(CircuitBreakerRule::error_ratio("a", 0.4))
                    .min_calls(1)
                    .buckets(1)
                    .into(),
            ),
            (
                json!({
                    "resource": "a", "strategy": 2, "retryTimeoutMs": 3000,
                    "statIntervalMs": 10000, "threshold": 50.7, "probeNum": 0,
                }),
                common(CircuitBreakerRule::error_count("a", 50))
                    .min_calls(1)
                    .buckets(1)
                    .into(),
            ),
        ],
    );
}

#[test]
fn system_rules() {
    let above = |value: f64| f64::from_bits(value.to_bits() + 1);
    assert_translated(
        Kind::System,
        vec![
            (
                json!({"id": "s", "metricType": 0, "triggerCount": 8.0, "strategy": 1}),
                SystemRule::new().load(above(8.0)).into(),
            ),
            // Any load at all exceeds it.
            (
                json!({"metricType": 0, "triggerCount": 0, "strategy": 1}),
                SystemRule::new().load(above(0.0)).into(),
            ),
            (
                json!({"metricType": 1, "triggerCount": 400.5, "strategy": -1}),
                SystemRule::new().rt(Duration::from_micros(400_500)).into(),
            ),
            (
                json!({"metricType": 2, "triggerCount": 99.5}),
                SystemRule::new().concurrency(100).into(),
            ),
            (
                json!({"metricType": 3, "triggerCount": 999.5}),
                SystemRule::new().qps(1_000).into(),
            ),
            (
                json!({"metricType": 4, "triggerCount": 0.8, "strategy": -1}),
                SystemRule::new().cpu(above(0.8)).into(),
            ),
        ],
    );
}

#[test]
fn keyed_ruleeter_rules() {
    assert_translated(
        Kind::HotParam,
        vec![
            (
                json!({
                    "id": "h", "resource": "a", "metricType": 1, "controlBehavior": 0,
                    "paramIndex": 1, "threshold": 100, "maxQueueingTimeMs": 0, "burstCount": 7,
                    "durationInSec": 2, "paramsMaxCapacity": 5000, "paramKey": "",
                    "specificItems": [
                        {"valKind": 0, "valStr": "+5", "threshold": 1},
                        {"valKind": 1, "valStr": "x", "threshold": 2},
                        {"valKind": 2, "valStr": "True", "threshold": 3},
                        {"valKind": 3, "valStr": "1.5", "threshold": 4},
                    ],
                }),
                KeyedRule::per("a", 100, ms(2_000))
                    .param_at(1)
                    .burst(7)
                    .max_keys(5_000)
                    .missing(MissingKey::Skip)
                    .except("5", 1)
                    .except("x", 2)
                    .except("true", 3)
                    .except("1.5", 4)
                    .into(),
            ),
            (
                json!({
                    "resource": "a", "metricType": 1, "controlBehavior": 1, "threshold": 10,
                    "maxQueueingTimeMs": 50, "durationInSec": 1, "paramKey": "user",
                }),
                KeyedRule::per_second("a", 10)
                    .param("user")
                    .throttle(ms(50) - Duration::from_nanos(1))
                    .missing(MissingKey::Skip)
                    .into(),
            ),
            // Nothing passes without a threshold, whatever the burst; an item that has a
            // threshold has the burst as well.
            (
                json!({
                    "resource": "a", "metricType": 1, "threshold": 0, "burstCount": 3,
                    "durationInSec": 1,
                    "specificItems": [{"valKind": 1, "valStr": "vip", "threshold": 5}],
                }),
                KeyedRule::per_second("a", 0)
                    .param_at(0)
                    .burst(3)
                    .missing(MissingKey::Skip)
                    .except("vip", 5)
                    .into(),
            ),
            // Calls at once have no burst.
            (
                json!({"resource": "a", "metricType": 0, "threshold": 3, "burstCount": 3}),
                KeyedRule::concurrency("a", 3)
                    .param_at(0)
                    .missing(MissingKey::Skip)
                    .into(),
            ),
            (
                json!({"resource": "a", "metricType": 0, "threshold": 3, "paramIndex": -1}),
                KeyedRule::concurrency("a", 3)
                    .param_at(-1)
                    .missing(MissingKey::Skip)
                    .into(),
            ),
        ],
    );
}

#[test]
fn a_strategy_that_is_another_here_is_a_warning() {
    let table = [
        (
            0,
            -1,
            "[0].strategy is -1: taken as 1: the load refuses only beyond the capacity",
        ),
        (
            4,
            1,
            "[0].strategy is 1: taken as -1: the CPU refuses whatever the capacity",
        ),
    ];
    for (metric, strategy, expected) in table {
        let rule = json!({"metricType": metric, "triggerCount": 0.5, "strategy": strategy});
        let document = sentinel(Kind::System, &json!([rule]));
        assert_eq!(lines(&document), [expected]);
        assert_eq!(document.strict().unwrap().len(), 1);
    }
}

#[test]
fn a_response_time_that_no_average_reaches_is_warned_of() {
    let rule = |trigger: u32| json!([{"metricType": 1, "triggerCount": trigger}]);
    assert!(lines(&sentinel(Kind::System, &rule(60_000))).is_empty());
    let document = sentinel(Kind::System, &rule(60_001));
    assert_eq!(
        lines(&document),
        ["[0].triggerCount is 60001: without effect, as a call counts for a minute at most"]
    );
    assert_eq!(document.strict().unwrap().len(), 1);
}

#[test]
fn a_share_of_the_cpu_that_is_never_exceeded_is_left_out() {
    let rule = |trigger: f64| json!([{"metricType": 4, "triggerCount": trigger}]);
    let document = sentinel(Kind::System, &rule(1.0));
    assert_eq!(
        lines(&document),
        ["[0].triggerCount is 1.0: left out, as 1 is never exceeded"]
    );
    assert!(document.strict().unwrap().is_empty());
    let document = sentinel(Kind::System, &rule(1.5));
    assert_eq!(
        lines(&document),
        ["[0].triggerCount is 1.5, must be above 0 and at most 1"]
    );
}
