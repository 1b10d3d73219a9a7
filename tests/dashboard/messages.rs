//! What a person reads whose rule is not taken: the resource, the field, and the range.

use serde_json::{Value, json};
use tower_sentinel::source::InMemory;
use tower_sentinel::{FlowRule, Rules, Sentinel};

use super::{Answer, connected, local};

/// What comes after all problems.
const ENDING: &str = "\nNothing has changed. The dashboard would send this rule again with the next \
                      one: open its list of rules of this type before.";

async fn sent(sentinel: &Sentinel, kind: &str, rules: &Value) -> Answer {
    let handle = local(sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let data = rules.to_string();
    match kind {
        "param" => line.post("setParamFlowRules", &[("data", &data)]).await,
        kind => {
            line.post("setRules", &[("type", kind), ("data", &data)])
                .await
        }
    }
}

/// `plain` with other values of some fields.
fn with(plain: &Value, changed: &Value) -> Value {
    let mut rule = plain.clone();
    for (key, value) in changed.as_object().unwrap() {
        rule[key] = value.clone();
    }
    rule
}

#[tokio::test]
async fn a_rule_that_would_do_something_else_is_refused_in_the_words_of_its_form() {
    let flow = json!({
        "clusterMode": false, "controlBehavior": 0, "count": 5.0, "grade": 1,
        "limitApp": "default", "maxQueueingTimeMs": 500, "regex": false, "resource": "/a",
        "strategy": 0, "warmUpPeriodSec": 10,
    });
    let degrade = json!({
        "count": 0.5, "grade": 1, "limitApp": "default", "minRequestAmount": 5, "regex": false,
        "resource": "/a", "slowRatioThreshold": 1.0, "statIntervalMs": 1000, "timeWindow": 10,
    });
    let system = json!({
        "avgRt": -1, "highestCpuUsage": -1.0, "highestSystemLoad": -1.0, "maxThread": -1,
        "qps": -1.0, "regex": false,
    });
    let authority = json!({
        "limitApp": "a,b", "regex": false, "resource": "/a", "strategy": 0,
    });
    let param = json!({
        "burstCount": 0, "clusterMode": false, "controlBehavior": 0, "count": 5.0,
        "durationInSec": 1, "grade": 1, "limitApp": "default", "maxQueueingTimeMs": 0,
        "paramFlowItemList": [], "paramIdx": 0, "regex": false, "resource": "/a",
    });
    let cases = [
        (
            "flow",
            with(&flow, &json!({"count": 0.5})),
            "/a: 单机阈值 (count) is 0.5, and would be taken as 0, as by Sentinel: every call is \
             refused",
        ),
        (
            "flow",
            with(&flow, &json!({"count": 1e12})),
            "/a: 单机阈值 (count) is 1000000000000.0, must be between 0 and 2147483647",
        ),
        (
            "flow",
            with(&flow, &json!({"limitApp": "app,web"})),
            "/a: 针对来源 (limitApp) is \"app,web\", and would be taken as one name, as by Sentinel",
        ),
        (
            "flow",
            with(&flow, &json!({"strategy": 1})),
            "/a: 关联资源 (refResource) is missing, must be a name for `strategy` 1 and 2",
        ),
        (
            "flow",
            with(&flow, &json!({"strategy": 2, "refResource": ""})),
            "/a: 入口资源 (refResource) is \"\", must be a name for `strategy` 1 and 2",
        ),
        (
            "flow",
            with(
                &flow,
                &json!({"controlBehavior": 2, "maxQueueingTimeMs": 0}),
            ),
            "/a: 超时时间 (maxQueueingTimeMs) is 0, must be at least 1 for `controlBehavior` 2 and 3",
        ),
        (
            "flow",
            with(&flow, &json!({"controlBehavior": 1, "warmUpPeriodSec": 0})),
            "/a: 预热时长 (warmUpPeriodSec) is 0, must be at least 1 for `controlBehavior` 1 and 3",
        ),
        (
            "degrade",
            with(&degrade, &json!({"count": 1.5})),
            "/a: 比例阈值 (count) is 1.5, must be between 0 and 1",
        ),
        (
            "degrade",
            with(&degrade, &json!({"count": 1.0})),
            "/a: 比例阈值 (count) is 1.0, and would be without effect, as 1 is never exceeded",
        ),
        (
            "degrade",
            with(&degrade, &json!({"grade": 0, "count": -1})),
            "/a: 最大 RT (count) is -1, must be a number of milliseconds between 0 and 31622400000",
        ),
        (
            "degrade",
            with(&degrade, &json!({"timeWindow": 0})),
            "/a: 熔断时长 (timeWindow) is 0, must be a whole number between 1 and 2147483647",
        ),
        (
            "system",
            with(&system, &json!({"highestCpuUsage": 75.0})),
            "system rule: CPU 使用率 (highestCpuUsage) is 75.0, and would be ignored, as in Sentinel, \
             as it is above 1\nsystem rule: without a limit, and would be left out, as it limits \
             nothing",
        ),
        (
            "system",
            system,
            "system rule: without a limit, and would be left out, as it limits nothing",
        ),
        (
            "authority",
            with(&authority, &json!({"limitApp": " , "})),
            "/a: 流控应用 (limitApp) is \" , \", must be names of origins, between commas",
        ),
        (
            "param",
            with(&param, &json!({"durationInSec": 0})),
            "/a: 统计窗口时长 (durationInSec) is 0, must be a whole number between 1 and 2147483647",
        ),
        (
            "param",
            with(&param, &json!({"clusterMode": true})),
            "/a: 是否集群 (clusterMode) must be off: this program has no store over which processes \
             count together (Builder::store)",
        ),
    ];
    for (kind, rule, expected) in cases {
        let sentinel = Sentinel::new(Rules::new());
        let answer = sent(&sentinel, kind, &json!([rule])).await;
        let text = format!("{expected}{ENDING}");
        assert_eq!(answer, Answer { status: 400, text });
        assert_eq!(sentinel.rules_version(), 0);
    }
}

#[tokio::test]
async fn the_newest_rule_is_told_first() {
    let bad = |name: &str| json!({"resource": name, "count": -1});
    let names = ["/1", "/2", "/3", "/4", "/5", "/6", "/7"];
    let sentinel = Sentinel::new(Rules::new());
    let answer = sent(&sentinel, "flow", &names.map(bad).into()).await;
    let text = answer.text.strip_suffix(ENDING).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let told = lines.iter().map(|line| line.split(':').next().unwrap());
    assert_eq!(
        told.collect::<Vec<_>>(),
        ["/7", "/6", "/5", "/4", "/3", "and 2 more"]
    );
}

#[tokio::test]
async fn what_is_in_force_already_is_no_problem_of_a_new_rule() {
    // One that its form takes for another, and that somebody has loaded from a file.
    let odd = FlowRule::per_second("/a", 5).for_origin("app,web");
    let sentinel = Sentinel::new(odd.clone());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let mut rules = line.get("getRules?type=flow").await.json();
    let new = json!({"resource": "/b", "count": 1, "limitApp": "default"});
    rules.as_array_mut().unwrap().push(new);
    let answer = sent(&sentinel, "flow", &rules).await;
    assert_eq!(answer, Answer::ok("success"));
    let expected = Rules::new().with(odd).with(FlowRule::per_second("/b", 1));
    assert_eq!(sentinel.rules(), expected);
    // It is one of a rule that has changed.
    let mut rules = line.get("getRules?type=flow").await.json();
    rules[0]["count"] = json!(6);
    let answer = sent(&sentinel, "flow", &rules).await;
    assert!(
        answer.text.starts_with("/a: 针对来源 (limitApp) is "),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn what_changes_nothing_is_no_problem() {
    let sentinel = Sentinel::new(Rules::new());
    // Of another choice that was made in the form before, and a name that is spelled otherwise here.
    let rule = json!({
        "clusterMode": false, "controlBehavior": 2, "count": 5.0, "grade": 1,
        "limitApp": "default", "maxQueueingTimeMs": 500, "regex": false,
        "resource": "/files/**", "strategy": 0, "warmUpPeriodSec": 30, "statIntervalMs": 0,
    });
    let answer = sent(&sentinel, "flow", &json!([rule])).await;
    assert_eq!(answer, Answer::ok("success"));
    assert_eq!(
        sentinel.rules().iter().next().unwrap().resource(),
        "/files/{*rest}"
    );
}
