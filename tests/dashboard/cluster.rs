//! "Cluster" in the forms: rules that the processes of a store share.

use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::rule::MissingKey;
use tower_sentinel::source::InMemory;
use tower_sentinel::store::{MemoryStore, WhenDown};
use tower_sentinel::{FlowRule, IsolationRule, KeyedRule, Rule, Rules, Sentinel};

use super::{Answer, Line, connected, local};

fn shared(rules: impl Into<Rules>) -> Sentinel {
    Sentinel::builder()
        .rules(rules)
        .store(MemoryStore::new())
        .build()
}

async fn push(line: &mut Line, kind: &str, rules: &Value) -> Answer {
    let data = rules.to_string();
    match kind {
        "param" => line.post("setParamFlowRules", &[("data", &data)]).await,
        kind => {
            line.post("setRules", &[("type", kind), ("data", &data)])
                .await
        }
    }
}

async fn shown(line: &mut Line, kind: &str) -> Value {
    let target = match kind {
        "param" => "getParamFlowRules",
        _ => "getRules?type=flow",
    };
    line.get(target).await.json()
}

/// The form for flow rules with "cluster" ticked, under the number that the dashboard gives it.
fn flow(number: u64, count: f64) -> Value {
    json!({
        "clusterConfig": {
            "acquireRefuseStrategy": 0, "clientOfflineTime": 2000,
            "fallbackToLocalWhenFail": true, "flowId": number, "resourceTimeout": 2000,
            "resourceTimeoutStrategy": 0, "sampleCount": 10, "strategy": 0, "thresholdType": 0,
            "windowIntervalMs": 1000,
        },
        "clusterMode": true, "controlBehavior": 0, "count": count, "grade": 1,
        "limitApp": "default", "maxQueueingTimeMs": 500, "regex": false, "resource": "/a",
        "strategy": 0, "warmUpPeriodSec": 10,
    })
}

fn param(number: u64, count: f64) -> Value {
    json!({
        "burstCount": 0, "clusterConfig": {
            "fallbackToLocalWhenFail": false, "flowId": number, "sampleCount": 10,
            "thresholdType": 1, "windowIntervalMs": 1000,
        },
        "clusterMode": true, "controlBehavior": 0, "count": count, "durationInSec": 1, "grade": 1,
        "limitApp": "default", "maxQueueingTimeMs": 0,
        "paramFlowItemList": [{"classType": "int", "count": 9, "object": "7"}],
        "paramIdx": 0, "regex": false, "resource": "/a",
    })
}

#[tokio::test]
async fn a_rule_of_a_cluster_is_shared_and_counts_by_its_resource() {
    let per_second = FlowRule::per_second("/a", 5)
        .buckets(10)
        .shared()
        .per_node();
    let by_value = KeyedRule::per_second("/a", 5)
        .window()
        .except("7", 9)
        .missing(MissingKey::Skip)
        .shared();
    let cases: [(&str, Value, Rule); 2] = [
        (
            "flow",
            flow(17, 5.0),
            per_second.when_down(WhenDown::LocalShare).into(),
        ),
        (
            "param",
            param(17, 5.0),
            by_value.when_down(WhenDown::Open).into(),
        ),
    ];
    for (kind, sent, expected) in cases {
        let sentinel = shared(Rules::new());
        let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
        let mut line = connected(&handle).await;
        assert_eq!(
            push(&mut line, kind, &json!([sent])).await,
            Answer::ok("success")
        );
        assert_eq!(sentinel.rules(), Rules::new().with(expected));
        // The dashboard numbers what it reads anew, and nothing changes.
        let mut rules = shown(&mut line, kind).await;
        assert_eq!(rules[0]["clusterMode"], true);
        rules[0]["clusterConfig"]["flowId"] = json!(99);
        assert_eq!(push(&mut line, kind, &rules).await, Answer::ok("success"));
        assert_eq!(sentinel.rules_version(), 1);
        // What one form adds is what it removes.
        assert_eq!(
            push(&mut line, kind, &json!([])).await,
            Answer::ok("success")
        );
        assert_eq!(sentinel.rules(), Rules::new());
    }
}

/// Shared rules that a form can say, but for what it has no field for.
fn visible() -> Vec<(&'static str, Rule)> {
    let window = Duration::from_secs(5);
    let keyed = || KeyedRule::per_second("/a", 5).window().shared();
    vec![
        ("flow", FlowRule::per_second("/a", 5).shared().into()),
        (
            "flow",
            FlowRule::per_second("/a", 5)
                .shared()
                .exact()
                .id("x")
                .into(),
        ),
        (
            "flow",
            FlowRule::per("/a", 5, window)
                .shared()
                .per_node()
                .id("cluster-7")
                .into(),
        ),
        (
            "flow",
            FlowRule::per("/a", 50, window)
                .shared()
                .when_down(WhenDown::LocalShare)
                .local_limit(3)
                .store_wait(Duration::from_millis(20))
                .into(),
        ),
        (
            "flow",
            FlowRule::per_second("/a", 5)
                .shared()
                .when_down(WhenDown::Open)
                .into(),
        ),
        ("param", keyed().into()),
        (
            "param",
            keyed().per_node().exact().max_keys(9).id("x").into(),
        ),
        (
            "param",
            KeyedRule::per("/a", 50, window)
                .window()
                .except("b", 100)
                .missing(MissingKey::Skip)
                .shared()
                .when_down(WhenDown::Open)
                .into(),
        ),
    ]
}

/// Shared rules that no form says.
fn invisible() -> Vec<Rule> {
    vec![
        FlowRule::per_second("/a", 5)
            .shared()
            .when_down(WhenDown::Closed)
            .into(),
        FlowRule::per_second("/a", 5)
            .for_origin("x")
            .shared()
            .into(),
        FlowRule::per_second("/a", 5)
            .in_context("x")
            .shared()
            .into(),
        FlowRule::per_second("/a", 5).shared().shadow(),
        KeyedRule::per_second("/a", 5)
            .window()
            .param("x")
            .shared()
            .into(),
        KeyedRule::per("/a", 1, Duration::from_secs(5))
            .window()
            .shared()
            .into(),
    ]
}

#[tokio::test]
async fn a_shared_rule_that_is_read_and_sent_again_is_the_same() {
    for (kind, rule) in visible() {
        let sentinel = shared(Rules::new().with(rule.clone()));
        let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
        let mut line = connected(&handle).await;
        let rules = shown(&mut line, kind).await;
        assert_eq!(rules.as_array().unwrap().len(), 1, "{rule:?} is not shown");
        let count = rules[0]["count"].as_f64().unwrap();
        assert_eq!(push(&mut line, kind, &rules).await, Answer::ok("success"));
        assert_eq!(
            (sentinel.rules(), sentinel.rules_version()),
            (rule.clone().into(), 0)
        );
        // Another count, and it is the same quota with the same settings.
        let mut other = rules.clone();
        other[0]["count"] = json!(count + 1.0);
        assert_eq!(push(&mut line, kind, &other).await, Answer::ok("success"));
        let changed = sentinel.rules().into_iter().next().unwrap();
        assert_ne!(changed, rule);
        assert_eq!(changed.id(), rule.id());
        assert_eq!(push(&mut line, kind, &rules).await, Answer::ok("success"));
        assert_eq!(sentinel.rules(), rule.into());
    }
    for rule in invisible() {
        let sentinel = shared(Rules::new().with(rule.clone()));
        let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
        let mut line = connected(&handle).await;
        for kind in ["flow", "param"] {
            assert_eq!(shown(&mut line, kind).await, json!([]), "{rule:?}");
        }
    }
}

#[tokio::test]
async fn the_tick_makes_a_rule_shared_and_takes_that_back() {
    let sentinel = shared(FlowRule::per_second("/a", 5).id("x"));
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    assert_eq!(
        push(&mut line, "flow", &json!([flow(3, 5.0)])).await,
        Answer::ok("success")
    );
    let rule = FlowRule::per_second("/a", 5).id("x").shared().per_node();
    assert_eq!(
        sentinel.rules(),
        rule.when_down(WhenDown::LocalShare).into()
    );
    let mut rules = shown(&mut line, "flow").await;
    rules[0]["clusterMode"] = json!(false);
    assert_eq!(push(&mut line, "flow", &rules).await, Answer::ok("success"));
    assert_eq!(
        sentinel.rules(),
        FlowRule::per_second("/a", 5).id("x").into()
    );
}

#[tokio::test]
async fn a_cluster_that_cannot_be_is_refused() {
    let sentinel = Sentinel::new(Rules::new());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    for (kind, rule) in [("flow", flow(3, 5.0)), ("param", param(3, 5.0))] {
        let answer = push(&mut line, kind, &json!([rule])).await;
        let text = "/a: 是否集群 (clusterMode) must be off: this program has no store";
        assert!(
            answer.status == 400 && answer.text.starts_with(text),
            "{}",
            answer.text
        );
    }
    assert_eq!(sentinel.rules_version(), 0);

    let sentinel = shared(IsolationRule::new("/a", 5));
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    // The form offers it for calls at once, and for what a token server does not look at.
    let mut at_once = flow(3, 5.0);
    at_once["grade"] = json!(0);
    let mut queue = flow(3, 5.0);
    queue["controlBehavior"] = json!(2);
    for (rule, text) in [
        (
            at_once,
            "/a: 是否集群 (clusterMode) is true, and would be ignored, this process alone is",
        ),
        (
            queue,
            "/a: 流控效果 (controlBehavior) is 2, and would be ignored, as by a token server",
        ),
    ] {
        let answer = push(&mut line, "flow", &json!([rule])).await;
        assert!(
            answer.status == 400 && answer.text.starts_with(text),
            "{}",
            answer.text
        );
    }
    assert_eq!(sentinel.rules(), IsolationRule::new("/a", 5).into());
}
