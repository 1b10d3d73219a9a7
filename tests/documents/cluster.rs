//! Rules of Sentinel that a token server is asked for, where there is a store in its place.

use serde_json::{Value, json};
use tower_sentinel::document::{Document, Format, Kind, Problem};
use tower_sentinel::store::WhenDown;
use tower_sentinel::{FlowRule, IsolationRule, KeyedRule, MissingKey, Rule, Rules};

use super::{lines, ms, sentinel};

const SHARE: &str = "[0].clusterConfig.fallbackToLocalWhenFail is missing: while the store is away \
     this process has its share of the count, where each client of Sentinel has the whole one";
const NOT_THERE: &str = "ignored, as by a token server of Sentinel, which looks at the count alone";

/// `rule` in a cluster with `config`, as it is read for an engine with a store.
fn shared(kind: Kind, mut rule: Value, config: Value) -> Document {
    rule["clusterMode"] = json!(true);
    rule["clusterConfig"] = config;
    sentinel(kind, &json!([rule])).with_store()
}

fn flow(config: Value) -> Document {
    shared(Kind::Flow, json!({"resource": "/a", "count": 5}), config)
}

fn rules(document: &Document) -> Rules {
    document.strict().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_rule_for_a_token_server_is_shared_where_there_is_a_store() {
    let plain = || FlowRule::per_second("/a", 5).buckets(10).id("cluster-7");
    let table = [
        (
            json!({"flowId": 7, "thresholdType": 1, "fallbackToLocalWhenFail": false}),
            plain().shared().when_down(WhenDown::Open),
        ),
        (
            json!({"flowId": 7, "thresholdType": 0, "fallbackToLocalWhenFail": false}),
            plain().shared().per_node().when_down(WhenDown::Open),
        ),
        (
            json!({
                "flowId": 7.0, "thresholdType": 1, "fallbackToLocalWhenFail": false,
                "windowIntervalMs": 60_000, "sampleCount": 4, "strategy": 0,
                "resourceTimeout": 2000, "resourceTimeoutStrategy": 0, "clientOfflineTime": null,
            }),
            FlowRule::per_minute("/a", 300)
                .buckets(4)
                .id("cluster-7")
                .shared()
                .when_down(WhenDown::Open),
        ),
    ];
    for (config, expected) in table {
        let document = flow(config);
        assert_eq!(lines(&document), [""; 0]);
        assert_eq!(rules(&document), Rules::from(expected));
    }
    let document = flow(json!({"flowId": 9_007_199_254_740_993_i64}));
    let share = FlowRule::per_second("/a", 5)
        .buckets(10)
        .id("cluster-9007199254740993")
        .shared()
        .per_node()
        .when_down(WhenDown::LocalShare);
    assert_eq!(rules(&document), Rules::from(share));
    assert_eq!(lines(&document), [SHARE]);
}

#[test]
fn a_parameter_for_a_token_server_is_shared_where_there_is_a_store() {
    let rule = json!({
        "resource": "/a", "paramIdx": 1, "count": 5,
        "paramFlowItemList": [{"object": "x", "count": 2}],
    });
    let config = json!({"flowId": 7, "thresholdType": 1, "windowIntervalMs": 10_000});
    let document = shared(Kind::HotParam, rule, config);
    let by_hand = KeyedRule::per("/a", 50, ms(10_000))
        .window()
        .param_at(1)
        .missing(MissingKey::Skip)
        .except("x", 20)
        .id("cluster-7")
        .shared()
        .when_down(WhenDown::Open);
    assert_eq!(rules(&document), Rules::from(by_hand));
    assert_eq!(lines(&document), [""; 0]);
}

#[test]
fn what_a_token_server_does_not_look_at_is_a_warning() {
    let config = || json!({"flowId": 7, "thresholdType": 1, "fallbackToLocalWhenFail": false});
    let by_hand = FlowRule::per_second("/a", 5)
        .buckets(10)
        .id("cluster-7")
        .shared()
        .when_down(WhenDown::Open);
    let cases = [
        (json!({"limitApp": "ann"}), "[0].limitApp is \"ann\""),
        (
            json!({"strategy": 1, "refResource": "/b"}),
            "[0].strategy is 1",
        ),
        (json!({"controlBehavior": 2}), "[0].controlBehavior is 2"),
    ];
    for (settings, expected) in cases {
        let mut rule = json!({"resource": "/a", "count": 5});
        let table = rule.as_object_mut().unwrap();
        table.extend(settings.as_object().unwrap().clone());
        let document = shared(Kind::Flow, rule, config());
        assert_eq!(lines(&document), [format!("{expected}: {NOT_THERE}")]);
        assert_eq!(rules(&document), Rules::from(by_hand.clone()));
    }
    let rule = json!({
        "resource": "/a", "paramIdx": 0, "count": 5, "burstCount": 2, "durationInSec": 9,
    });
    let told = lines(&shared(Kind::HotParam, rule, config()));
    let expected = [
        format!("[0].burstCount is 2: {NOT_THERE}"),
        format!("[0].durationInSec is 9: {NOT_THERE}"),
    ];
    assert_eq!(told, expected);
    let server = flow(json!({
        "flowId": 7, "thresholdType": 1, "fallbackToLocalWhenFail": false, "clientOfflineTime": 9,
    }));
    assert_eq!(
        lines(&server),
        ["[0].clusterConfig.clientOfflineTime is 9: ignored, as there is no token server"]
    );
    // Less than one call in a window is none.
    let few = flow(json!({
        "flowId": 7, "thresholdType": 1, "fallbackToLocalWhenFail": false,
        "windowIntervalMs": 100, "sampleCount": 1,
    }));
    let told = lines(&few);
    assert_eq!(
        told,
        ["[0].count is 5: taken as 0, as by Sentinel: every call is refused"]
    );
}

#[test]
fn calls_at_once_are_not_shared() {
    let expected = "[0].clusterMode is true: ignored, this process alone is limited: calls at once \
         cannot be shared";
    let config = || json!({"flowId": 7});
    let rule = json!({"resource": "/a", "count": 5, "grade": 0});
    let document = shared(Kind::Flow, rule, config());
    assert_eq!(lines(&document), [expected]);
    assert_eq!(rules(&document), IsolationRule::new("/a", 5).into());
    let rule = json!({"resource": "/a", "count": 5, "grade": 0, "paramIdx": 0});
    let document = shared(Kind::HotParam, rule, config());
    assert_eq!(lines(&document), [expected]);
    assert!(!format!("{:?}", rules(&document)).contains("is_shared: true"));
}

#[test]
fn a_bad_rule_for_a_token_server_is_told_with_its_place() {
    let id = "must be a whole number between 1 and 9223372036854775807";
    let cases = [
        (Value::Null, "[0].clusterConfig is missing, must be a table with a `flowId`".to_owned()),
        (json!(7), "[0].clusterConfig is 7, must be a table with a `flowId`".to_owned()),
        (
            json!({}),
            "[0].clusterConfig.flowId is missing, must be a whole number, at least 1".to_owned(),
        ),
        (json!({"flowId": 0}), format!("[0].clusterConfig.flowId is 0, {id}")),
        (json!({"flowId": "x"}), format!("[0].clusterConfig.flowId is \"x\", {id}")),
        (
            json!({"flowId": 7, "thresholdType": 2}),
            "[0].clusterConfig.thresholdType is 2, must be a whole number between 0 and 1".to_owned(),
        ),
        (
            json!({"flowId": 7, "strategy": 1}),
            "[0].clusterConfig.strategy is 1, must be a whole number between 0 and 0".to_owned(),
        ),
        (
            json!({"flowId": 7, "sampleCount": 3}),
            "[0].clusterConfig.sampleCount is 3, must be a number that divides the 1000 ms of the window"
                .to_owned(),
        ),
        (
            json!({"flowId": 7, "sampleCount": 0}),
            "[0].clusterConfig.sampleCount is 0, must be a whole number between 1 and 2147483647"
                .to_owned(),
        ),
        (
            json!({"flowId": 7, "windowIntervalMs": 50}),
            "[0].clusterConfig is 50ms, must be so long that a bucket lasts 10 ms, with `shared`"
                .to_owned(),
        ),
        (
            json!({"flowId": 7, "windowIntervalMs": 20_000, "sampleCount": 200}),
            "[0].clusterConfig is 200, must be at most 128 with `shared`".to_owned(),
        ),
    ];
    for (config, expected) in cases {
        let document = flow(config);
        let told = lines(&document);
        let errors: Vec<_> = document.problems().errors().collect();
        assert_eq!(errors.len(), 1, "{told:?}");
        assert!(
            errors[0].to_string().ends_with(&expected),
            "{told:?} is not {expected}"
        );
        assert_eq!(errors[0].line(), Some(1));
        assert!(document.lenient().0.is_empty());
    }
    let two = json!([
        {"resource": "/a", "count": 5, "clusterMode": true, "clusterConfig": {"flowId": 7}},
        {"resource": "/b", "count": 5, "clusterMode": true, "clusterConfig": {"flowId": 7}},
    ]);
    let (good, problems) = sentinel(Kind::Flow, &two).with_store().lenient();
    assert_eq!(good.len(), 1);
    let paths: Vec<_> = problems.errors().map(Problem::path).collect();
    assert!(
        !paths.is_empty() && paths.iter().all(|path| *path == "[1].clusterConfig"),
        "{problems}"
    );
}

#[test]
fn without_a_store_and_in_other_documents_nothing_is_shared() {
    let rule = json!([{"resource": "/a", "count": 5, "clusterMode": true,
        "clusterConfig": {"flowId": 7}}]);
    let document = sentinel(Kind::Flow, &rule);
    let plain = Rules::from(FlowRule::per_second("/a", 5).for_origin("default"));
    assert_eq!(rules(&document), plain);
    let told = lines(&document);
    assert!(
        told.len() == 1 && told[0].starts_with("[0].clusterMode is true: ignored"),
        "{told:?}"
    );
    // The same text is written either way.
    assert_eq!(
        super::json(&document),
        super::json(&document.clone().with_store())
    );
    let own = r#"{"rules": [{"kind": "flow", "resource": "/a", "threshold": 5}]}"#;
    let own = Document::read(own, Format::Json).unwrap();
    assert_eq!(rules(&own.clone().with_store()), rules(&own));
    let local = json!([{"resource": "/a", "count": 5, "clusterMode": false}]);
    let local = sentinel(Kind::Flow, &local);
    assert_eq!(rules(&local.clone().with_store()), rules(&local));
    let is_shared = |rule: &Rule| matches!(rule, Rule::Flow(rule) if rule.is_shared());
    assert!(!rules(&local.with_store()).iter().any(is_shared));
}
