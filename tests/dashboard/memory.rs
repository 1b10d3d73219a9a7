//! A dashboard that has not read the rules, or has forgotten them, replaces none of them.

use serde_json::{Value, json};
use tower_sentinel::source::InMemory;
use tower_sentinel::{
    AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule, Rules, Sentinel,
    SystemRule,
};

use super::{Answer, Line, connected, local};

/// The part of a dashboard that keeps the rules of one type: those of the program that it listed
/// last, until its next start. Each form sends all of them.
struct Memory {
    kind: &'static str,
    rules: Vec<Value>,
}

impl Memory {
    const fn new(kind: &'static str) -> Self {
        let rules = Vec::new();
        Self { kind, rules }
    }

    /// Opens the list of rules, which reads them.
    async fn list(&mut self, line: &mut Line) {
        let target = match self.kind {
            "param" => "getParamFlowRules".to_owned(),
            kind => format!("getRules?type={kind}"),
        };
        self.rules = line.get(&target).await.json().as_array().unwrap().clone();
    }

    async fn send(&self, line: &mut Line) -> Answer {
        let data = Value::from(self.rules.clone()).to_string();
        match self.kind {
            "param" => line.post("setParamFlowRules", &[("data", &data)]).await,
            kind => {
                line.post("setRules", &[("type", kind), ("data", &data)])
                    .await
            }
        }
    }

    /// Sends the form for a new rule.
    async fn add(&mut self, line: &mut Line, rule: Value) -> Answer {
        self.rules.push(rule);
        self.send(line).await
    }
}

/// What the form of the tree sends for a new flow rule, beside what was changed in it.
fn flow(name: &str, count: f64) -> Value {
    json!({
        "clusterConfig": {
            "acquireRefuseStrategy": 0, "clientOfflineTime": 2000,
            "fallbackToLocalWhenFail": true, "resourceTimeout": 2000,
            "resourceTimeoutStrategy": 0, "sampleCount": 10, "strategy": 0, "thresholdType": 0,
            "windowIntervalMs": 1000,
        },
        "clusterMode": false, "controlBehavior": 0, "count": count, "grade": 1,
        "limitApp": "default", "maxQueueingTimeMs": 500, "regex": false, "resource": name,
        "strategy": 0, "warmUpPeriodSec": 10,
    })
}

fn four() -> Rules {
    Rules::new()
        .with(FlowRule::per_second("/a", 5))
        .with(FlowRule::per_second("/a", 3).for_origin("app"))
        .with(FlowRule::per_second("/b", 5).id("b"))
        .with(IsolationRule::new("/c", 5))
}

fn is_refused(answer: &Answer) {
    assert_eq!(answer.status, 400, "{}", answer.text);
    let cure = "open its list of rules of this type, which reads them, and send again.";
    assert!(answer.text.contains(cure), "{}", answer.text);
}

fn success() -> Answer {
    Answer::ok("success")
}

#[tokio::test]
async fn a_form_that_has_not_seen_the_rules_in_force_removes_none() {
    let sentinel = Sentinel::new(four());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    // "+ flow rule" in the tree, after a restart of the dashboard.
    let mut memory = Memory::new("flow");
    let answer = memory.add(&mut line, flow("/d", 1.0)).await;
    is_refused(&answer);
    assert!(
        answer.text.starts_with(
            "4 rules in force are missing: flow \"/a\", flow \"/a\", flow \"/b\", isolation \"/c\". "
        ),
        "{}",
        answer.text
    );
    // The dashboard keeps what was refused, and sends it again with the next one.
    is_refused(&memory.add(&mut line, flow("/b", 1.0)).await);
    assert_eq!((sentinel.rules(), sentinel.rules_version()), (four(), 0));
    // As the message says.
    memory.list(&mut line).await;
    assert_eq!(memory.rules.len(), 4);
    assert_eq!(memory.add(&mut line, flow("/d", 1.0)).await, success());
    let five = four().with(FlowRule::per_second("/d", 1));
    assert_eq!(sentinel.rules(), five);
}

#[tokio::test]
async fn a_form_that_misses_one_rule_changes_nothing() {
    let two = || {
        Rules::new()
            .with(FlowRule::per_second("/a", 5))
            .with(FlowRule::per_second("/b", 5))
    };
    let sentinel = Sentinel::new(two());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    // A change of one, an addition, and both: each without the rule for `/b`.
    for sent in [
        vec![flow("/a", 6.0)],
        vec![flow("/a", 5.0), flow("/c", 6.0)],
        vec![flow("/a", 6.0), flow("/c", 6.0)],
        vec![flow("/c", 6.0)],
        vec![],
    ] {
        let mut memory = Memory::new("flow");
        memory.rules = sent;
        is_refused(&memory.send(&mut line).await);
        assert_eq!((sentinel.rules(), sentinel.rules_version()), (two(), 0));
    }
}

#[tokio::test]
async fn each_form_may_do_what_it_does_to_rules_that_it_has_read() {
    let sentinel = Sentinel::new(four());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let mut memory = Memory::new("flow");
    memory.list(&mut line).await;
    // Another count, another origin, another kind of limit, and away with it.
    let place = memory.rules.iter().position(|it| it["resource"] == "/b");
    let place = place.unwrap();
    memory.rules[place]["count"] = json!(6.0);
    assert_eq!(memory.send(&mut line).await, success());
    let with = |rule: FlowRule| {
        let mut rules: Vec<_> = four().into_iter().collect();
        rules[2] = rule.into();
        Rules::build(rules).unwrap()
    };
    let six = FlowRule::per_second("/b", 6).id("b");
    assert_eq!(sentinel.rules(), with(six.clone()));
    memory.rules[place]["limitApp"] = json!("app");
    assert_eq!(memory.send(&mut line).await, success());
    // It is the same rule, with what the form does not say.
    assert_eq!(sentinel.rules(), with(six.for_origin("app")));
    memory.rules[place]["limitApp"] = json!("default");
    memory.rules[place]["grade"] = json!(0);
    assert_eq!(memory.send(&mut line).await, success());
    assert_eq!(
        sentinel.rules().iter().nth(2),
        Some(&IsolationRule::new("/b", 6).into())
    );
    memory.rules.remove(place);
    assert_eq!(memory.send(&mut line).await, success());
    assert_eq!(sentinel.rules().len(), 3);
    // Down to none.
    while !memory.rules.is_empty() {
        memory.rules.pop();
        assert_eq!(memory.send(&mut line).await, success());
    }
    assert_eq!(sentinel.rules(), Rules::new());
}

#[tokio::test]
async fn no_type_loses_rules_to_a_form_that_has_not_seen_them() {
    let rules = || {
        Rules::new()
            .with(CircuitBreakerRule::error_ratio("/a", 0.5))
            .with(CircuitBreakerRule::error_count("/b", 5))
            .with(SystemRule::new().qps(10).load(2.5).id("both"))
            .with(AuthorityRule::allow("/a", ["x"]))
            .with(AuthorityRule::allow("/b", ["x"]))
            .with(KeyedRule::per_second("/a", 5))
            .with(KeyedRule::per_second("/b", 5))
    };
    let sentinel = Sentinel::new(rules());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let degrade = json!({
        "count": 0.5, "grade": 1, "limitApp": "default", "minRequestAmount": 5, "regex": false,
        "resource": "/c", "slowRatioThreshold": 1.0, "statIntervalMs": 1000, "timeWindow": 10,
    });
    let system = json!({
        "avgRt": -1, "highestCpuUsage": 0.5, "highestSystemLoad": -1.0, "maxThread": -1,
        "qps": -1.0, "regex": false,
    });
    let authority = json!({
        "limitApp": "a,b", "regex": false, "resource": "/c", "strategy": 0,
    });
    let param = json!({
        "burstCount": 0, "clusterConfig": {
            "fallbackToLocalWhenFail": true, "sampleCount": 10, "thresholdType": 0,
            "windowIntervalMs": 1000,
        },
        "clusterMode": false, "controlBehavior": 0, "count": 5.0, "durationInSec": 1, "grade": 1,
        "limitApp": "default", "maxQueueingTimeMs": 0, "paramFlowItemList": [], "paramIdx": 0,
        "regex": false, "resource": "/c",
    });
    for (kind, rule) in [
        ("degrade", degrade),
        ("system", system),
        ("authority", authority),
        ("param", param),
    ] {
        let mut memory = Memory::new(kind);
        is_refused(&memory.add(&mut line, rule.clone()).await);
        assert_eq!(sentinel.rules(), rules(), "{kind}");
        memory.list(&mut line).await;
        assert_eq!(memory.rules.len(), 2, "{kind}");
        assert_eq!(memory.add(&mut line, rule).await, success(), "{kind}");
        assert_eq!(sentinel.rules().len(), rules().len() + 1, "{kind}");
        memory.rules.pop();
        assert_eq!(memory.send(&mut line).await, success(), "{kind}");
        assert_eq!(sentinel.rules(), rules(), "{kind}");
    }
}

#[tokio::test]
async fn a_script_may_replace_all_rules_of_a_type() {
    let sentinel = Sentinel::new(four());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let data = json!([flow("/d", 1.0)]).to_string();
    let mut params = vec![("type", "flow"), ("data", &*data), ("replace", "some")];
    is_refused(&line.post("setRules", &params).await);
    params[2].1 = "all";
    assert_eq!(line.post("setRules", &params).await, success());
    assert_eq!(sentinel.rules(), FlowRule::per_second("/d", 1).into());
}
