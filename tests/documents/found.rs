//! Documents as people have them: exported, collected, mixed up.

use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::document::{Document, Format, Kind};
use tower_sentinel::rule::SystemRule;
use tower_sentinel::{
    Call, CircuitBreakerRule, FlowRule, KeyedRule, ManualClock, MissingKey, Rules, Sentinel,
    Verdict,
};

use super::{lines, sentinel, strict};

/// The one problem of a document with one rule, which is not loaded.
fn refused(kind: Kind, rule: &Value) -> String {
    let document = sentinel(kind, &json!([rule]));
    let [line] = <[String; 1]>::try_from(lines(&document)).unwrap();
    assert!(document.strict().is_err(), "{line}");
    assert!(document.lenient().0.is_empty(), "{line}");
    line
}

/// The one warning of a document with one rule, which is loaded.
fn warned(kind: Kind, rule: &Value) -> String {
    let document = sentinel(kind, &json!([rule]));
    let [line] = <[String; 1]>::try_from(lines(&document)).unwrap();
    assert_eq!(document.strict().unwrap().len(), 1, "{line}");
    line
}

#[test]
fn what_a_dashboard_and_a_file_of_configuration_add_says_nothing() {
    let flow = json!([{
        "id": 7, "app": "shop", "ip": "192.0.2.7", "port": 8719, "limitApp": "default",
        "resource": "/a", "grade": 1, "count": 3.0, "strategy": 0, "refResource": null,
        "controlBehavior": 0, "warmUpPeriodSec": null, "maxQueueingTimeMs": null,
        "clusterMode": false, "regex": false, "gmtCreate": 1_700_000_000_000_i64,
        "gmtModified": null,
        "clusterConfig": {"flowId": null, "thresholdType": 0, "fallbackToLocalWhenFail": true},
    }]);
    let rules = strict(&sentinel(Kind::Flow, &flow));
    assert_eq!(rules, Rules::from(FlowRule::per_second("/a", 3)));
    let breaker = json!([{
        "resource": "/a", "grade": 1, "count": 0.5, "timeWindow": 5, "passCount": 0,
        "rtSlowRequestAmount": 5, "minRequestAmount": null, "slowRatioThreshold": null,
        "statIntervalMs": null, "strategy": 0,
    }]);
    let by_hand = CircuitBreakerRule::error_ratio("/a", 0.5)
        .exceeds()
        .open_for(Duration::from_secs(5))
        .buckets(1);
    let rules = strict(&sentinel(Kind::CircuitBreaker, &breaker));
    assert_eq!(rules, Rules::from(by_hand));
    let system = json!([{
        "id": 1, "app": "shop", "ip": "192.0.2.7", "port": 8719, "highestSystemLoad": -1.0,
        "avgRt": -1, "maxThread": -1, "qps": 9.0, "highestCpuUsage": -1.0, "gmtCreate": null,
    }]);
    let rules = strict(&sentinel(Kind::System, &system));
    assert_eq!(rules, Rules::from(SystemRule::new().qps(9)));
}

#[test]
fn a_rule_of_a_gateway_is_not_taken_for_a_flow_rule() {
    // As one it would let five calls pass in each second.
    let rule = json!({
        "resource": "orders", "resourceMode": 0, "grade": 1, "count": 5, "intervalSec": 60,
        "controlBehavior": 0, "burst": 2, "maxQueueingTimeoutMs": 500,
    });
    let expected = "[0].intervalSec is 60, must be absent: rules of a gateway are not read, \
                    write a `KeyedRule`";
    assert_eq!(refused(Kind::Flow, &rule), expected);
    let found = Document::read(&json!([rule]).to_string(), Format::Json).unwrap();
    assert_eq!(lines(&found), [expected]);
    for (key, value) in [
        ("paramItem", json!({"parseStrategy": 2, "fieldName": "x"})),
        ("resourceMode", json!(1)),
        ("burst", json!(3)),
        ("maxQueueingTimeoutMs", json!(2_000)),
        ("interval", json!(1)),
        ("intervalUnit", json!(1)),
    ] {
        let line = refused(
            Kind::Flow,
            &json!({"resource": "orders", "count": 5, key: value}),
        );
        assert!(line.starts_with(&format!("[0].{key} is ")), "{line}");
    }
    // Null is absent, and a rule of another kind is none of a gateway.
    let rule = json!([{"resource": "orders", "count": 5, "paramItem": null}]);
    strict(&sentinel(Kind::Flow, &rule));
    let rule = json!([{"resource": "orders", "count": 5, "paramIdx": 0, "burst": 3}]);
    strict(&sentinel(Kind::HotParam, &rule));
}

#[test]
fn a_stray_interval_makes_no_rule_of_a_gateway() {
    for (key, value) in [("interval", 60), ("intervalSec", 60), ("burst", 2)] {
        let rule = json!({"resource": "/a", "limitApp": "default", "count": 5, key: value});
        let expected = format!(
            "[0].{key} is {value}: ignored, as by Sentinel: a rule with `limitApp` is none of a \
             gateway, and its `count` is that of a second"
        );
        assert_eq!(warned(Kind::Flow, &rule), expected);
        let document = sentinel(Kind::Flow, &json!([rule]));
        let rules = Rules::from(FlowRule::per_second("/a", 5));
        assert_eq!(document.strict().unwrap(), rules);
    }
}

#[test]
fn a_method_before_a_colon_is_told_with_the_name_that_calls_have() {
    let note = |path: &str, name: &str, ours: &str| {
        format!(
            "{path} is {name:?}: limits no call that a layer names: \
             with `MethodRoute` it is called {ours:?}"
        )
    };
    for (name, ours) in [
        ("POST:/api/login", "POST /api/login"),
        ("GET:/users/:id", "GET /users/{id}"),
    ] {
        let told = note("[0].resource", name, ours);
        let java = json!({"resource": name, "count": 5, "limitApp": "default"});
        assert_eq!(warned(Kind::Flow, &java), told);
        let go = json!({"resource": name, "threshold": 5});
        assert_eq!(warned(Kind::Flow, &go), told);
        assert_eq!(warned(Kind::Isolation, &go), told);
        let own = json!({"rules": [{"kind": "flow", "resource": name, "threshold": 5}]});
        let own = Document::read(&own.to_string(), Format::Json).unwrap();
        assert_eq!(lines(&own), [note("rules[0].resource", name, ours)]);
        // A program may make such names itself.
        assert_eq!(own.strict().unwrap(), FlowRule::per_second(name, 5).into());
    }
    let related = json!({
        "resource": "/a", "count": 5, "strategy": 1, "refResource": "PUT:/a",
    });
    let told = note("[0].refResource", "PUT:/a", "PUT /a");
    assert_eq!(warned(Kind::Flow, &related), told);
}

#[test]
fn a_route_of_another_router_is_translated() {
    for (name, ours) in [
        ("/users/:id", "/users/{id}"),
        ("/files/*", "/files/{*rest}"),
        ("/files/**", "/files/{*rest}"),
        ("GET /files/*path", "GET /files/{*path}"),
    ] {
        let told = format!("is {name:?}: taken as {ours:?}, which matches the same paths");
        let go = json!({"resource": name, "threshold": 5});
        assert_eq!(warned(Kind::Flow, &go), format!("[0].resource {told}"));
        let document = sentinel(Kind::Flow, &json!([go]));
        let by_hand = FlowRule::per_second(ours, 5);
        assert_eq!(document.strict().unwrap(), by_hand.into());
        // What was read is written.
        assert!(document.write(Format::Json).contains(name));
        let java = json!({
            "resource": "/a", "count": 5, "strategy": 1, "refResource": name,
        });
        assert_eq!(warned(Kind::Flow, &java), format!("[0].refResource {told}"));
    }
}

#[test]
fn a_rate_that_no_call_can_keep_to_refuses_all_as_there() {
    let told = "taken as 0, as by Sentinel: every call is refused";
    for (kind, rule, key) in [
        (Kind::Flow, json!({"resource": "a", "count": 0.5}), "count"),
        (
            Kind::Flow,
            json!({"resource": "a", "threshold": 0.5}),
            "threshold",
        ),
        (Kind::System, json!({"qps": 0.5}), "qps"),
    ] {
        assert_eq!(warned(kind, &rule), format!("[0].{key} is 0.5: {told}"));
    }
    // A queue counts the fraction.
    for rule in [
        json!({"resource": "a", "count": 0.5, "controlBehavior": 2}),
        json!({"resource": "a", "threshold": 0.5, "controlBehavior": 1}),
    ] {
        strict(&sentinel(Kind::Flow, &json!([rule])));
    }
}

#[test]
fn an_llm_token_rule_of_go_is_refused_by_name() {
    let told = "must be absent: LLM token rules of Sentinel for Go are not read";
    let items = json!([{
        "identifier": {"type": "header", "value": "x-user"},
        "keyItems": [{
            "key": ".*", "token": {"number": 1_000, "countStrategy": "total-tokens"},
            "time": {"unit": "hour", "value": 1},
        }],
    }]);
    for (rule, start) in [
        (
            json!({
                "id": "a", "resource": ".*", "strategy": "peta", "specificItems": items,
                "encoding": {"provider": "openai", "model": "gpt-4"},
            }),
            "[0].encoding is a table",
        ),
        (
            json!({"resource": ".*", "strategy": "fixed-window", "specificItems": items}),
            "[0].specificItems is a list of 1",
        ),
        (
            json!({"resource": ".*", "strategy": "fixed-window"}),
            "[0].strategy is \"fixed-window\"",
        ),
    ] {
        let expected = format!("{start}, {told}");
        for kind in [Kind::Flow, Kind::HotParam] {
            assert_eq!(refused(kind, &rule), expected);
        }
        let found = Document::read(&json!([rule]).to_string(), Format::Json).unwrap();
        assert_eq!(lines(&found), [expected]);
    }
}

#[test]
fn a_rule_of_sentinel_in_rust_is_not_taken_for_one_for_go() {
    let kinds = [
        (
            Kind::Flow,
            json!({
                "resource": "a", "calculate_strategy": "WarmUp", "control_strategy": "Throttling",
                "threshold": 100.0,
            }),
            "calculate_strategy is \"WarmUp\"",
        ),
        (
            Kind::Flow,
            json!({"resource": "a", "threshold": 100.0, "stat_interval_ms": 60_000}),
            "stat_interval_ms is 60000",
        ),
        (
            Kind::CircuitBreaker,
            json!({"resource": "a", "threshold": 0.5, "retry_timeout_ms": 3_000}),
            "retry_timeout_ms is 3000",
        ),
        (
            Kind::HotParam,
            json!({"resource": "a", "metric_type": "QPS", "param_index": 0, "threshold": 1}),
            "metric_type is \"QPS\"",
        ),
        (
            Kind::Isolation,
            json!({"resource": "a", "metric_type": "Concurrency", "threshold": 5}),
            "metric_type is \"Concurrency\"",
        ),
    ];
    for (kind, rule, what) in kinds {
        let expected = format!(
            "[0].{what}, must be absent: rules of Sentinel in Rust are not read, only those for Go"
        );
        assert_eq!(refused(kind, &rule), expected);
        // Told as well where the kind does not show.
        let found = Document::read(&json!([rule]).to_string(), Format::Json).unwrap();
        assert_eq!(lines(&found), [expected]);
    }
}

#[test]
fn a_rule_within_what_the_dashboard_keeps_is_told() {
    let inner = json!({"resource": "a", "limitApp": "x", "strategy": 1});
    let kept = json!({"id": 1, "app": "shop", "regex": false, "rule": inner});
    let expected = "[0].rule is a table, must be absent: the dashboard keeps a rule so, \
                    put its keys in its place";
    assert_eq!(refused(Kind::Authority, &kept), expected);
    let found = Document::read(&json!([kept]).to_string(), Format::Json).unwrap();
    assert_eq!(lines(&found), [expected]);
    // Beside rules of a kind that does not show either, it is not guessed.
    let both = json!([kept, {"resource": "a"}]).to_string();
    assert!(Document::read(&both, Format::Json).is_err());
}

#[test]
fn a_rule_with_keys_of_both_dialects_is_refused() {
    // Of an early Go, where 1 is a line; for Java it is a warm-up.
    let early = json!({
        "resource": "a", "metricType": 1, "count": 200.0, "relationStrategy": 0,
        "tokenCalculateStrategy": 0, "controlBehavior": 1, "maxQueueingTimeMs": 2_000,
    });
    assert_eq!(
        refused(Kind::Flow, &early),
        "[0].count is 200.0, must be absent beside `tokenCalculateStrategy`: \
         a rule for Go has a `threshold`"
    );
    // Ten a minute, and for Java ten a second.
    let mixed = json!({"resource": "a", "grade": 1, "count": 10, "statIntervalInMs": 60_000});
    assert_eq!(
        refused(Kind::Flow, &mixed),
        "[0].count is 10, must be absent beside `statIntervalInMs`: a rule for Go has a `threshold`"
    );
    let breaker = json!({"resource": "a", "count": 0.5, "retryTimeoutMs": 5, "timeWindow": 5});
    let line = refused(Kind::CircuitBreaker, &breaker);
    assert!(line.starts_with("[0].count is 0.5, "), "{line}");
    let system = json!({"metricType": 3, "triggerCount": 5, "count": 5, "qps": 7});
    let line = refused(Kind::System, &system);
    assert!(line.starts_with("[0].count is 5, "), "{line}");
}

#[test]
fn what_a_rule_for_go_says_in_the_words_of_java_is_warned_of() {
    for (key, value) in [
        ("grade", json!(0)),
        ("strategy", json!(1)),
        ("limitApp", json!("shop")),
    ] {
        let rule = json!({"resource": "a", "threshold": 5, key: value});
        assert_eq!(
            warned(Kind::Flow, &rule),
            format!("[0].{key} is {value}: ignored, as by Sentinel for Go: its rules have none")
        );
    }
    for (grade, strategy) in [(json!(1), json!(0)), (json!(1.0), json!(0.0))] {
        let usual = json!([{
            "resource": "a", "threshold": 5,
            "grade": grade, "strategy": strategy, "limitApp": "default",
        }]);
        strict(&sentinel(Kind::Flow, &usual));
    }
}

#[test]
fn an_index_beside_a_key_is_warned_of() {
    let rule = |index: Value| {
        json!({
            "resource": "a", "metricType": 0, "threshold": 5, "paramKey": "user",
            "paramIndex": index,
        })
    };
    let line = warned(Kind::HotParam, &rule(json!(2)));
    assert!(
        line.starts_with("[0].paramIndex is 2: ignored beside `paramKey`: "),
        "{line}"
    );
    // What is refused has been told.
    let line = refused(Kind::HotParam, &rule(json!(0.5)));
    assert!(line.contains("must be a whole number"), "{line}");
    // Every rule that Go writes has one.
    strict(&sentinel(Kind::HotParam, &json!([rule(json!(0))])));
}

#[test]
fn what_has_no_effect_in_a_flow_rule_is_warned_of() {
    let rule = |key: &str, value: Value| json!({"resource": "a", "count": 5, "warmUpPeriodSec": 10, key: value});
    let table = [
        (
            "limitApp",
            json!("shop,office"),
            "taken as one name, as by Sentinel",
        ),
        (
            "statIntervalMs",
            json!(60_000),
            "ignored, as by Sentinel: `count` is that of a second",
        ),
        (
            "enable",
            json!(false),
            "ignored, as by Sentinel: the rule applies",
        ),
        (
            "enabled",
            json!(false),
            "ignored, as by Sentinel: the rule applies",
        ),
    ];
    for (key, value, note) in table {
        let rule = rule(key, value.clone());
        let expected = format!("[0].{key} is {value}: {note}");
        assert_eq!(warned(Kind::Flow, &rule), expected);
        // It makes no rule of another kind of it.
        let found = Document::read(&json!([rule]).to_string(), Format::Json).unwrap();
        assert_eq!(lines(&found), [expected]);
    }
    for (key, value) in [
        ("statIntervalMs", json!(1_000)),
        ("statIntervalMs", json!(1_000.0)),
        ("enable", json!(true)),
    ] {
        strict(&sentinel(Kind::Flow, &json!([rule(key, value)])));
    }
}

#[test]
fn a_limit_that_is_not_there_is_warned_of() {
    let table = [
        (
            Kind::Flow,
            json!({"resource": "a", "grade": 1}),
            "[0].count is missing: taken as 0, as by Sentinel: every call is refused",
        ),
        (
            Kind::Flow,
            json!({"resource": "a", "statIntervalInMs": 1_000}),
            "[0].threshold is missing: taken as 0, as by Sentinel: every call is refused",
        ),
        (
            Kind::CircuitBreaker,
            json!({"resource": "a", "grade": 1, "timeWindow": 5}),
            "[0].count is missing: taken as 0, as by Sentinel",
        ),
        (
            Kind::HotParam,
            json!({"resource": "a", "paramIdx": 0}),
            "[0].count is missing: taken as 0, as by Sentinel",
        ),
        (
            Kind::HotParam,
            json!({"resource": "a", "paramIndex": 0}),
            "[0].threshold is missing: taken as 0, as by Sentinel",
        ),
        (
            Kind::HotParam,
            json!({"resource": "a", "threshold": 5, "specificItems": [{"valStr": "7"}]}),
            "[0].specificItems[0].threshold is missing: taken as 0, as by Sentinel",
        ),
        (
            Kind::CircuitBreaker,
            json!({
                "resource": "a", "threshold": 0.5, "retryTimeoutMs": 1_000,
                "statIntervalMs": 1_000,
            }),
            "[0].maxAllowedRtMs is missing: taken as 0, as by Sentinel",
        ),
    ];
    for (kind, rule, expected) in table {
        assert_eq!(warned(kind, &rule), expected);
    }
}

#[test]
fn a_value_without_a_count_is_left_out() {
    let rule = json!([{
        "resource": "a", "count": 5, "paramIdx": 0,
        "paramFlowItemList": [{"object": "x"}, {"object": "y", "count": 2}],
    }]);
    let document = sentinel(Kind::HotParam, &rule);
    assert_eq!(
        lines(&document),
        ["[0].paramFlowItemList[0].count is missing: left out with its item, as by Sentinel"]
    );
    let by_hand = KeyedRule::per_second("a", 5)
        .param_at(0)
        .missing(MissingKey::Skip)
        .except("y", 2);
    assert_eq!(document.strict().unwrap(), Rules::from(by_hand));
}

#[test]
fn what_becomes_of_a_rule_for_a_token_server_is_what_it_says() {
    let flow = |config: Value| {
        json!({
            "resource": "a", "count": 5, "clusterMode": true, "clusterConfig": config,
        })
    };
    let falls_back = "as by Sentinel while no token server answers";
    let passes = "where Sentinel limits nothing while no token server answers";
    for (config, note) in [
        (json!({"flowId": 7}), falls_back),
        (
            json!({"flowId": 7, "fallbackToLocalWhenFail": true}),
            falls_back,
        ),
        (
            json!({"flowId": 7, "fallbackToLocalWhenFail": false}),
            passes,
        ),
        (Value::Null, passes),
    ] {
        let line = warned(Kind::Flow, &flow(config));
        assert!(line.ends_with(note), "{line}");
    }
    let mut param = flow(json!({"flowId": 7, "fallbackToLocalWhenFail": true}));
    param["paramIdx"] = json!(0);
    let line = warned(Kind::HotParam, &param);
    assert!(line.ends_with(falls_back), "{line}");
}

#[test]
fn a_rule_for_go_forgets_no_call_sooner_than_there() {
    let rule = json!([{"resource": "a", "threshold": 5, "statIntervalInMs": 10_000}]);
    let rules = strict(&sentinel(Kind::Flow, &rule));
    let clock = ManualClock::new();
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .build();
    let passed_at = |ms: u64| {
        clock.advance(Duration::from_millis(ms));
        (0..10)
            .filter(|_| matches!(sentinel.try_enter(Call::new("a")), Verdict::Pass(_)))
            .count()
    };
    // Late in the first half of the window: with buckets of five seconds these calls
    // would be forgotten after five.
    assert_eq!(passed_at(4_900), 5);
    for _ in 0..19 {
        assert_eq!(passed_at(500), 0);
    }
    assert_eq!(passed_at(500), 5);
}

#[test]
fn the_buckets_of_a_rule_for_go_are_those_that_it_has_there() {
    let ms = Duration::from_millis;
    for (interval, buckets) in [(500, 1), (1_500, 3), (6_000, 12), (10_000, 20)] {
        let rule = json!([{"resource": "a", "threshold": 5, "statIntervalInMs": interval}]);
        let by_hand = FlowRule::per("a", 5, ms(interval)).buckets(buckets);
        assert_eq!(strict(&sentinel(Kind::Flow, &rule)), Rules::from(by_hand));
    }
    for interval in [499, 1_000, 1_200, 10_500, 60_000] {
        let rule = json!([{"resource": "a", "threshold": 5, "statIntervalInMs": interval}]);
        let by_hand = FlowRule::per("a", 5, ms(interval));
        assert_eq!(strict(&sentinel(Kind::Flow, &rule)), Rules::from(by_hand));
    }
}

#[test]
fn a_single_rule_is_told_to_stand_in_a_list() {
    for rule in [json!({"resource": "a", "count": 1}), json!({"qps": 5})] {
        let document = Document::read(&rule.to_string(), Format::Json).unwrap();
        assert_eq!(
            lines(&document),
            [
                "rules is missing, must be a list of tables; one of Sentinel's rules is read in a \
                 list, `[…]`"
            ]
        );
        assert!(document.strict().is_err());
    }
    // One of our own, and what is no rule at all.
    for table in [
        json!({"kind": "flow", "resource": "a", "threshold": 1}),
        json!({"data": []}),
    ] {
        let document = Document::read(&table.to_string(), Format::Json).unwrap();
        assert_eq!(
            lines(&document)[0],
            "rules is missing, must be a list of tables, which may be empty"
        );
    }
}

#[test]
fn yaml_is_named() {
    let told = |text: &str, format| Document::read(text, format).unwrap_err().to_string();
    for text in [
        "rules:\n  - kind: flow\n    resource: /a\n    threshold: 5\n",
        "# of the shop\n\n- resource: /a\n  count: 5\n",
        "---\nrules: []\n",
        "kind: flow",
    ] {
        for format in [Format::Json, Format::Toml] {
            let error = told(text, format);
            let expected = "; it looks like YAML, and only JSON and TOML are read";
            assert!(error.ends_with(expected), "{format}: {error}");
        }
    }
    for (text, format) in [
        ("[rules", Format::Toml),
        ("a = ", Format::Toml),
        ("{\"a\": 1", Format::Json),
        ("[-]", Format::Json),
        ("", Format::Json),
        ("http://a/b", Format::Toml),
    ] {
        let error = told(text, format);
        assert!(!error.contains("YAML"), "{error}");
    }
}

#[test]
fn a_comment_is_named() {
    for text in [
        "[\n  {\n    // the name\n    \"resource\": \"a\"\n  }\n]",
        "[{\"resource\": \"a\", \"count\": 1 // one\n}]",
        "/* of the shop */\n[{\"resource\": \"a\", \"count\": 1}]",
        "[{\"resource\": \"a\", # the name\n\"count\": 1}]",
        "\u{feff}[] // none",
    ] {
        let error = Document::read(text, Format::Json).unwrap_err().to_string();
        assert!(error.ends_with("; JSON has no comments"), "{error}");
    }
    for text in [
        "[{\"resource\": \"/#\" \"count\": 1}]",
        "[1, 2",
        "",
        "[\"a/\n\"]",
        "[{\"resource\": \"/a\\#b\", \"count\": 1}]",
    ] {
        let error = Document::read(text, Format::Json).unwrap_err().to_string();
        assert!(!error.contains("comments"), "{error}");
    }
}
