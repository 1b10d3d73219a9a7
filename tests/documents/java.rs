//! Documents of Sentinel for Java.

use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::document::{Document, Format, Kind};
use tower_sentinel::rule::SystemRule;
use tower_sentinel::system::Capacity;
use tower_sentinel::{
    AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, MissingKey, Rule, Rules,
};

use super::{json as tree, lines, ms, sentinel, strict};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const NANOSECOND: Duration = Duration::from_nanos(1);

/// Reads each table alone and all together, compares with the rules by hand, and
/// writes back what was read.
fn assert_translated(kind: Kind, table: Vec<(Value, Rule)>) {
    for (rule, by_hand) in &table {
        let document = sentinel(kind, &json!([rule]));
        assert_eq!(
            strict(&document),
            Rules::build([by_hand.clone()]).unwrap(),
            "{rule}"
        );
    }
    let (list, by_hand): (Vec<_>, Vec<_>) = table.into_iter().unzip();
    let list = Value::Array(list);
    let document = sentinel(kind, &list);
    let rules = strict(&document);
    assert_eq!(rules, Rules::build(by_hand).unwrap());
    assert_eq!(tree(&document), list);
    // The kind shows in the keys.
    let found = Document::read(&list.to_string(), Format::Json).unwrap();
    assert_eq!(strict(&found), rules);
    // And in our own words they are the same rules.
    let own = Document::read(&document.write(Format::Toml), Format::Toml).unwrap();
    assert_eq!(strict(&own), rules);
}

#[test]
fn flow_rules() {
    assert_translated(
        Kind::Flow,
        vec![
            (
                json!({
                    "resource": "/a", "limitApp": "default", "grade": 1, "count": 20.0,
                    "strategy": 0, "controlBehavior": 0, "clusterMode": false,
                    "warmUpPeriodSec": 10, "maxQueueingTimeMs": 500, "regex": false, "id": 4711,
                    "gmtCreate": 1_700_000_000_000_i64,
                }),
                FlowRule::per_second("/a", 20).into(),
            ),
            (
                json!({"resource": "/a", "count": 2.5, "limitApp": "shop"}),
                FlowRule::per_second("/a", 2.5).for_origin("shop").into(),
            ),
            (
                json!({"resource": "/a", "count": 3, "limitApp": "other"}),
                FlowRule::per_second("/a", 3).for_origin("other").into(),
            ),
            (
                json!({"resource": "/a", "count": 4, "limitApp": " ", "refResource": null}),
                FlowRule::per_second("/a", 4).into(),
            ),
            (
                json!({"resource": "/a", "count": 0, "refResource": "x"}),
                FlowRule::per_second("/a", 0).into(),
            ),
            (
                json!({"resource": "/a", "count": 5, "strategy": 1, "refResource": "write"}),
                FlowRule::per_second("/a", 5).when("write").into(),
            ),
            (
                json!({"resource": "/a", "count": 5, "strategy": 2, "refResource": "web"}),
                FlowRule::per_second("/a", 5).in_context("web").into(),
            ),
            (
                json!({"resource": "/a", "count": 5, "controlBehavior": 1}),
                FlowRule::per_second("/a", 5).warm_up(secs(10)).into(),
            ),
            (
                json!({"resource": "/a", "count": 5, "controlBehavior": 2}),
                FlowRule::per_second("/a", 5).throttle(ms(500)).into(),
            ),
            (
                json!({
                    "resource": "/a", "count": 5, "controlBehavior": 3, "warmUpPeriodSec": 60,
                    "maxQueueingTimeMs": 2000,
                }),
                FlowRule::per_second("/a", 5)
                    .warm_up(secs(60))
                    .throttle(secs(2))
                    .into(),
            ),
            // The shortest ones that there are.
            (
                json!({
                    "resource": "/a", "count": 5, "controlBehavior": 3.0, "warmUpPeriodSec": 1,
                    "maxQueueingTimeMs": 1,
                }),
                FlowRule::per_second("/a", 5)
                    .warm_up(secs(1))
                    .throttle(ms(1))
                    .into(),
            ),
            (
                json!({"resource": "/a", "grade": 0, "count": 8.0}),
                IsolationRule::new("/a", 8).into(),
            ),
            (
                json!({"resource": "/a", "grade": 0, "count": 8.9, "controlBehavior": 2}),
                IsolationRule::new("/a", 8).into(),
            ),
            (
                json!({"resource": "/a", "grade": 0, "count": 8, "limitApp": "shop"}),
                IsolationRule::new("/a", 8).for_origin("shop").into(),
            ),
            (
                json!({"resource": "/a", "grade": 0, "count": 8, "limitApp": "other"}),
                IsolationRule::new("/a", 8).for_origin("other").into(),
            ),
            (
                json!({
                    "resource": "/a", "grade": 0, "count": 8, "strategy": 1, "refResource": "/b",
                }),
                IsolationRule::new("/a", 8).when("/b").into(),
            ),
        ],
    );
}

#[test]
fn degrade_rules() {
    let like_java = |rule: CircuitBreakerRule| rule.buckets(1).open_for(secs(10));
    assert_translated(
        Kind::CircuitBreaker,
        vec![
            (
                json!({
                    "resource": "/a", "grade": 0, "count": 299.6, "timeWindow": 10,
                    "slowRatioThreshold": 0.6, "minRequestAmount": 100, "statIntervalMs": 20000,
                    "limitApp": "default",
                }),
                like_java(CircuitBreakerRule::slow_ratio("/a", ms(300), 0.6))
                    .exceeds()
                    .min_calls(100)
                    .interval(secs(20))
                    .into(),
            ),
            // All calls slow: reached is enough.
            (
                json!({"resource": "/a", "count": 50, "timeWindow": 10}),
                like_java(CircuitBreakerRule::slow_ratio("/a", ms(50), 1.0)).into(),
            ),
            // The key of its default breakers.
            (
                json!({"resource": "*", "grade": 1, "count": 0.3, "timeWindow": 10}),
                like_java(CircuitBreakerRule::error_ratio("*", 0.3))
                    .exceeds()
                    .into(),
            ),
            (
                json!({"resource": "/a", "grade": 1, "count": 0.5, "timeWindow": 10}),
                like_java(CircuitBreakerRule::error_ratio("/a", 0.5))
                    .exceeds()
                    .into(),
            ),
            (
                json!({"resource": "/a", "grade": 1, "count": 0, "timeWindow": 3}),
                CircuitBreakerRule::error_ratio("/a", 0.0)
                    .exceeds()
                    .buckets(1)
                    .open_for(secs(3))
                    .into(),
            ),
            (
                json!({
                    "resource": "/a", "grade": 2, "count": 50.0, "timeWindow": 10,
                    "slowRatioThreshold": 1.0,
                }),
                like_java(CircuitBreakerRule::error_count("/a", 50))
                    .exceeds()
                    .into(),
            ),
            // Five calls are its default, whatever the count.
            (
                json!({"resource": "/a", "grade": 2, "count": 2, "timeWindow": 10}),
                like_java(CircuitBreakerRule::error_count("/a", 2))
                    .exceeds()
                    .min_calls(5)
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
                json!({
                    "highestSystemLoad": 3.0, "highestCpuUsage": -1.0, "qps": -1.0, "avgRt": -1,
                    "maxThread": -1,
                }),
                SystemRule::new()
                    .load(above(3.0))
                    .capacity(Capacity::Sentinel)
                    .into(),
            ),
            (
                json!({
                    "id": 3, "highestCpuUsage": 0.8, "qps": 100.0, "avgRt": 400, "maxThread": 20,
                }),
                SystemRule::new()
                    .cpu(above(0.8))
                    .qps(100)
                    .rt(ms(400) + NANOSECOND)
                    .concurrency(21)
                    .into(),
            ),
            (
                json!({"qps": 0, "avgRt": 0, "maxThread": 0}),
                SystemRule::new()
                    .qps(0)
                    .rt(NANOSECOND)
                    .concurrency(1)
                    .into(),
            ),
            (
                json!({"maxThread": i32::MAX}),
                SystemRule::new().concurrency(i32::MAX as u32).into(),
            ),
        ],
    );
}

#[test]
fn authority_rules() {
    assert_translated(
        Kind::Authority,
        vec![
            (
                json!({"resource": "/a", "limitApp": "shop,office", "strategy": 0}),
                AuthorityRule::allow("/a", ["shop", "office"]).into(),
            ),
            (
                json!({"resource": "/b", "limitApp": "shop, office", "strategy": 1}),
                AuthorityRule::deny("/b", ["shop", "office"]).into(),
            ),
            (
                json!({"resource": "/c", "limitApp": "shop"}),
                AuthorityRule::allow("/c", ["shop"]).into(),
            ),
        ],
    );
}

#[test]
fn parameter_rules() {
    assert_translated(
        Kind::HotParam,
        vec![
            (
                json!({
                    "resource": "/a", "grade": 1, "paramIdx": 0, "count": 5.0,
                    "durationInSec": 10, "burstCount": 3, "controlBehavior": 0,
                    "maxQueueingTimeMs": 0, "limitApp": "default", "clusterMode": false,
                    "paramFlowItemList": [
                        {"object": "crawler", "count": 1, "classType": "java.lang.String"},
                        {"object": "007", "count": 100, "classType": "int"},
                        {"object": "TRUE", "count": 2, "classType": "boolean"},
                        {"object": "False", "count": 3, "classType": "java.lang.Boolean"},
                        {"object": "TRUE", "count": 4},
                        {"object": "x", "count": 0},
                    ],
                }),
                KeyedRule::per("/a", 5, secs(10))
                    .param_at(0)
                    .burst(3)
                    .missing(MissingKey::Skip)
                    .except("crawler", 1)
                    .except("7", 100)
                    .except("true", 2)
                    .except("false", 3)
                    .except("TRUE", 4)
                    .except("x", 0)
                    .into(),
            ),
            (
                json!({"resource": "/a", "paramIdx": -1, "count": 5.9}),
                KeyedRule::per_second("/a", 5)
                    .param_at(-1)
                    .missing(MissingKey::Skip)
                    .into(),
            ),
            // There nothing passes without a count, whatever the burst; an item that has
            // a count has the burst as well.
            (
                json!({
                    "resource": "/a", "paramIdx": 1, "count": 0, "burstCount": 5,
                    "paramFlowItemList": [
                        {"object": "vip", "count": 2, "classType": "java.lang.String"},
                    ],
                }),
                KeyedRule::per_second("/a", 0)
                    .param_at(1)
                    .burst(5)
                    .missing(MissingKey::Skip)
                    .except("vip", 2)
                    .into(),
            ),
            (
                json!({
                    "resource": "/a", "grade": 0, "paramIdx": 1, "count": 4, "burstCount": 5,
                }),
                KeyedRule::concurrency("/a", 4)
                    .param_at(1)
                    .missing(MissingKey::Skip)
                    .into(),
            ),
            (
                json!({
                    "resource": "/a", "paramIdx": 0, "count": 5, "controlBehavior": 2,
                    "maxQueueingTimeMs": 500, "burstCount": 9,
                }),
                KeyedRule::per_second("/a", 5)
                    .throttle(ms(500) - NANOSECOND)
                    .missing(MissingKey::Skip)
                    .into(),
            ),
            (
                json!({
                    "resource": "/a", "paramIdx": 0, "count": 5, "controlBehavior": 2,
                }),
                KeyedRule::per_second("/a", 5)
                    .throttle(Duration::ZERO)
                    .missing(MissingKey::Skip)
                    .into(),
            ),
            (
                json!({"resource": "/a", "grade": 0, "paramIdx": 2, "count": 4.0}),
                KeyedRule::concurrency("/a", 4)
                    .param_at(2)
                    .missing(MissingKey::Skip)
                    .into(),
            ),
        ],
    );
}

#[test]
fn what_is_ignored_is_a_warning() {
    let table = [
        (
            Kind::Flow,
            json!({
                "resource": "/a", "count": 1, "clusterMode": true,
                "clusterConfig": {"flowId": 7, "thresholdType": 1},
            }),
            "[0].clusterMode is true: ignored, this process alone is limited, \
             as by Sentinel while no token server answers",
            1,
        ),
        (
            Kind::Flow,
            json!({"resource": "/a", "count": 1, "controlBehavior": 9}),
            "[0].controlBehavior is 9: taken as 0, as Sentinel does",
            1,
        ),
        (
            Kind::Flow,
            json!({"resource": "/a", "count": 1, "controlBehaviour": 2}),
            "[0].controlBehaviour is 2: not known and so ignored, \
             did you mean `controlBehavior`?",
            1,
        ),
        (
            Kind::CircuitBreaker,
            json!({"resource": "/a", "grade": 1, "count": 1.0, "timeWindow": 10}),
            "[0].count is 1.0: without effect, as 1 is never exceeded",
            1,
        ),
        (
            Kind::CircuitBreaker,
            json!({"resource": "/a", "grade": 2, "count": 1, "timeWindow": 10, "limitApp": "x"}),
            "[0].limitApp is \"x\": ignored, as by Sentinel: the rule is for all callers",
            1,
        ),
        (
            Kind::System,
            json!({"qps": 1, "limitApp": "x"}),
            "[0].limitApp is \"x\": ignored, as by Sentinel: the rule is for all callers",
            1,
        ),
        (
            Kind::System,
            json!({"qps": 1, "highestCpuUsage": 80}),
            "[0].highestCpuUsage is 80: ignored, as in Sentinel, as it is above 1",
            1,
        ),
        (
            Kind::System,
            json!({"qps": 1, "highestCpuUsage": -0.8}),
            "[0].highestCpuUsage is -0.8: ignored, as in Sentinel, as it is below 0",
            1,
        ),
        (
            Kind::System,
            json!({"qps": 1, "maxThread": -20}),
            "[0].maxThread is -20: ignored, as in Sentinel, as it is below 0",
            1,
        ),
        (
            Kind::System,
            json!({"qps": 1, "highestCpuUsage": 1.0}),
            "[0].highestCpuUsage is 1.0: without effect, as 1 is never exceeded",
            1,
        ),
        (
            Kind::System,
            json!({"avgRt": 60_000}),
            "[0].avgRt is 60000: without effect, as a call counts for a minute at most",
            1,
        ),
        (
            Kind::System,
            json!({"qps": -1.0}),
            "[0] is without a limit: left out, as it limits nothing",
            0,
        ),
        (
            Kind::HotParam,
            json!({"resource": "/a", "count": 1, "paramIdx": 0, "limitApp": "x"}),
            "[0].limitApp is \"x\": ignored, as by Sentinel: the rule is for all callers",
            1,
        ),
        (
            Kind::HotParam,
            json!({"resource": "/a", "count": 1, "paramIdx": 0, "controlBehavior": 1}),
            "[0].controlBehavior is 1: taken as 0, as Sentinel does",
            1,
        ),
        (
            Kind::HotParam,
            json!({
                "resource": "/a", "count": 1, "paramIdx": 0, "clusterMode": true,
                "clusterConfig": {"flowId": 7},
            }),
            "[0].clusterMode is true: ignored, this process alone is limited, \
             where Sentinel limits nothing while no token server answers",
            1,
        ),
    ];
    for (kind, rule, expected, loaded) in table {
        let list = json!([rule]);
        let document = sentinel(kind, &list);
        assert_eq!(lines(&document), [expected]);
        let warning = &document.problems().as_slice()[0];
        assert!(warning.is_warning() && warning.index() == Some(0));
        assert_eq!(document.strict().unwrap().len(), loaded, "{rule}");
        assert_eq!(tree(&document), list);
    }
}

#[test]
fn an_authority_rule_that_is_refused_is_not_the_first_of_its_resource() {
    let document = sentinel(
        Kind::Authority,
        &json!([
            {"resource": "/a", "limitApp": "x", "strategy": 2},
            {"resource": "/a", "limitApp": "y", "strategy": 1},
        ]),
    );
    assert_eq!(
        lines(&document),
        ["[0].strategy is 2, must be a whole number between 0 and 1"]
    );
    let rules = document.lenient().0;
    assert_eq!(rules, Rules::from(AuthorityRule::deny("/a", ["y"])));

    // Nor is one of which each key is good, and a name is not.
    let document = sentinel(
        Kind::Authority,
        &json!([
            {"resource": "/a", "limitApp": "x\ny"},
            {"resource": "/a", "limitApp": "z"},
        ]),
    );
    assert_eq!(
        lines(&document),
        ["[0].limitApp is \"x\\ny\", must be free of control characters"]
    );
    let rules = document.lenient().0;
    assert_eq!(rules, Rules::from(AuthorityRule::allow("/a", ["z"])));
}

#[test]
fn the_first_authority_rule_of_a_resource_counts() {
    let document = sentinel(
        Kind::Authority,
        &json!([
            {"resource": "/a", "limitApp": "x"},
            {"resource": "/a", "limitApp": "y", "strategy": 1},
        ]),
    );
    let rules = document.strict().unwrap();
    assert_eq!(rules, Rules::from(AuthorityRule::allow("/a", ["x"])));
    assert_eq!(
        lines(&document),
        ["[1] is not the first rule of its resource: left out, as Sentinel applies only the first"]
    );
}

#[test]
fn a_key_beside_the_one_that_it_resembles_is_of_no_interest() {
    let list = json!([{"resource": "/a", "count": 5, "counts": 6}]);
    let rules = strict(&sentinel(Kind::Flow, &list));
    assert_eq!(rules, Rules::from(FlowRule::per_second("/a", 5)));
}

#[test]
fn a_rule_with_a_count_is_one_of_java() {
    let rule = json!({"resource": "/a", "count": 5, "threshold": 9, "controlBehavior": 1});
    let by_hand = FlowRule::per_second("/a", 5).warm_up(secs(10));
    assert_eq!(
        strict(&sentinel(Kind::Flow, &json!([rule]))),
        Rules::from(by_hand)
    );
}

#[test]
fn a_useless_rule_at_the_end_switches_nothing_off() {
    let document = sentinel(Kind::System, &json!([{"qps": 5}, {"qps": -1}]));
    let rules = document.strict().unwrap();
    assert_eq!(rules, Rules::from(SystemRule::new().qps(5)));
}

#[test]
fn a_kind_that_does_not_show_has_to_be_named() {
    for text in [
        r#"[{"resource": "/a"}]"#,
        r#"[{"resource": "/a", "threshold": 5}]"#,
        r#"[{"timeWindow": 5}, {"paramIdx": 0}]"#,
        r#"[{"resource": "/a", "count": 1}, {"resource": "/a", "limitApp": "x"}]"#,
        "[1, 2]",
    ] {
        let error = Document::read(text, Format::Json).unwrap_err();
        assert!(
            error.to_string().contains("read_sentinel"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_bad_item_costs_the_item_and_neither_the_rule_nor_the_others() {
    let item = |object: Value, count: Value, class: &str| json!({"object": object, "count": count, "classType": class});
    let left_out = "left out with its item, as by Sentinel";
    // What stands in the item, what becomes of it, and what is said of which key.
    let cases = [
        (
            item(json!(null), json!(1), "int"),
            None,
            ("object", left_out),
        ),
        (
            item(json!("x"), json!(1), "int"),
            None,
            ("object", left_out),
        ),
        (
            item(json!(" 7"), json!(1), "int"),
            None,
            ("object", left_out),
        ),
        (
            item(json!("3000000000"), json!(1), "int"),
            None,
            ("object", left_out),
        ),
        (
            item(json!("200"), json!(1), "byte"),
            None,
            ("object", left_out),
        ),
        (
            item(json!("40000"), json!(1), "java.lang.Short"),
            None,
            ("object", left_out),
        ),
        (
            item(json!("x"), json!(1), "double"),
            None,
            ("object", left_out),
        ),
        (
            item(json!(""), json!(1), "char"),
            None,
            ("object", left_out),
        ),
        (
            item(json!([7]), json!(1), "int"),
            None,
            ("object", left_out),
        ),
        (
            item(json!("x"), json!(-1), "String"),
            None,
            ("count", left_out),
        ),
        (
            item(json!("x"), json!(null), "String"),
            None,
            ("count", left_out),
        ),
        (
            item(json!("x"), json!(1.5), "String"),
            None,
            ("count", left_out),
        ),
        (
            item(json!("x"), json!("1"), "String"),
            None,
            ("count", left_out),
        ),
        (
            item(json!("x"), json!(1), "Money"),
            None,
            ("classType", left_out),
        ),
        (
            item(json!("yes"), json!(1), "boolean"),
            Some("false"),
            ("object", "taken as false, as by Sentinel"),
        ),
        (
            item(json!("TRUE"), json!(1), "boolean"),
            Some("true"),
            ("", ""),
        ),
        (
            item(json!("+7"), json!(1), "java.lang.Integer"),
            Some("7"),
            ("", ""),
        ),
        (
            item(json!("3000000000"), json!(1), "long"),
            Some("3000000000"),
            ("", ""),
        ),
        (item(json!(7), json!(1.0), "int"), Some("7"), ("", "")),
        (
            item(json!(true), json!(1), "boolean"),
            Some("true"),
            ("", ""),
        ),
        (item(json!("xyz"), json!(1), "char"), Some("x"), ("", "")),
    ];
    for (item, expected, (key, note)) in cases {
        let text = json!([{
            "resource": "/a", "paramIdx": 0, "count": 5,
            "paramFlowItemList": [item, {"object": "good", "count": 9}],
        }]);
        let document = Document::read_sentinel(&text.to_string(), Kind::HotParam).unwrap();
        let mut rule = KeyedRule::per_second("/a", 5)
            .param_at(0)
            .missing(MissingKey::Skip);
        if let Some(value) = expected {
            rule = rule.except(value, 1);
        }
        let rules = Rules::from(rule.except("good", 9));
        assert_eq!(document.strict().unwrap(), rules, "{item}");
        assert_eq!(document.lenient().0, rules);
        let told: Vec<_> = document.problems().iter().collect();
        if key.is_empty() {
            assert!(told.is_empty(), "{told:?}");
            continue;
        }
        assert_eq!(told.len(), 1, "{item}");
        assert_eq!(told[0].path(), format!("[0].paramFlowItemList[0].{key}"));
        assert!(
            told[0].is_warning() && told[0].allowed() == note,
            "{}",
            told[0]
        );
    }
}

#[test]
fn a_setting_without_effect_is_told() {
    let text = r#"[
        {"resource": "/a", "count": 5, "controlBehavior": 2, "warmUpPeriodSec": 30},
        {"resource": "/b", "count": 5, "controlBehavior": 1, "maxQueueingTimeMs": 90},
        {"resource": "/d", "count": 5, "warmUpPeriodSec": 10, "maxQueueingTimeMs": 500}
    ]"#;
    let document = Document::read_sentinel(text, Kind::Flow).unwrap();
    let told: Vec<_> = document
        .problems()
        .warnings()
        .map(tower_sentinel::document::Problem::path)
        .collect();
    assert_eq!(told, ["[0].warmUpPeriodSec", "[1].maxQueueingTimeMs"]);
    assert_eq!(document.strict().unwrap().len(), 3);
}

#[test]
fn a_flow_rule_with_a_key_of_a_gateway_is_a_flow_rule() {
    let text = r#"[{"resource": "a", "grade": 1, "count": 100, "interval": 1, "strategy": 1,
        "refResource": "b"}]"#;
    let document = Document::read_sentinel(text, Kind::Flow).unwrap();
    let rule = FlowRule::per_second("a", 100).when("b");
    assert_eq!(document.strict().unwrap(), Rules::from(rule));
    let told = document.problems().warnings().next().unwrap().to_string();
    let expected =
        "[0].interval is 1: ignored, as by Sentinel: a rule with `strategy` is none of a";
    assert!(told.contains(expected), "{told}");
    for key in [
        "refResource",
        "warmUpPeriodSec",
        "maxQueueingTimeMs",
        "clusterMode",
    ] {
        let mut rule = json!({"resource": "a", "count": 1, "interval": 1});
        rule[key] = match key {
            "refResource" => json!("b"),
            "clusterMode" => json!(false),
            _ => json!(10),
        };
        let text = json!([rule]).to_string();
        let document = Document::read_sentinel(&text, Kind::Flow).unwrap();
        assert!(document.strict().is_ok(), "{text}");
    }
}
