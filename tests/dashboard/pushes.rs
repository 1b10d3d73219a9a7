//! Rules that the dashboard sends: in force, kept, and there after a restart, or nothing at all.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use serde_json::json;
use tower::ServiceExt;
use tower_sentinel::observe::Body;
use tower_sentinel::observe::page::Page;
use tower_sentinel::source::{FileSource, InMemory, RuleFile, RuleSink, RuleSource, SourceError};
use tower_sentinel::{
    Call, CircuitBreakerRule, FlowRule, KeyedRule, Rules, Sentinel, SystemRule, Verdict,
};

use super::{Answer, Line, connected, local};

/// What the dashboard sends for a rule of its flow page.
fn flow(name: &str, count: f64) -> serde_json::Value {
    json!({
        "clusterMode": false, "controlBehavior": 0, "count": count, "grade": 1,
        "limitApp": "default", "maxQueueingTimeMs": 500, "regex": false, "resource": name,
        "strategy": 0, "warmUpPeriodSec": 10,
    })
}

async fn push(line: &mut Line, kind: &str, rules: serde_json::Value) -> Answer {
    let data = rules.to_string();
    line.post("setRules", &[("type", kind), ("data", &data)])
        .await
}

/// As a script does that means all rules of the type.
async fn replace(line: &mut Line, kind: &str, rules: serde_json::Value) -> Answer {
    let data = rules.to_string();
    let params = [("type", kind), ("data", &data), ("replace", "all")];
    line.post("setRules", &params).await
}

fn success() -> Answer {
    Answer::ok("success")
}

/// A sink that does as it is told.
#[derive(Clone, Default)]
struct Sink {
    answers: Arc<RwLock<Vec<Result<(), SourceError>>>>,
    stored: Arc<RwLock<Vec<[Rules; 2]>>>,
}

impl Sink {
    /// One that fails with these, and then with none.
    fn failing(answers: impl IntoIterator<Item = SourceError>) -> Self {
        let sink = Self::default();
        sink.answers
            .write()
            .unwrap()
            .extend(answers.into_iter().map(Err));
        sink
    }
}

impl RuleSink for Sink {
    fn store(&self, before: &Rules, after: &Rules) -> Result<(), SourceError> {
        self.stored
            .write()
            .unwrap()
            .push([before.clone(), after.clone()]);
        self.answers.write().unwrap().pop().unwrap_or(Ok(()))
    }
}

/// A sink that panics.
struct Broken;

impl RuleSink for Broken {
    fn store(&self, _: &Rules, _: &Rules) -> Result<(), SourceError> {
        panic!("broken")
    }
}

/// A file of rules of the test called `name`.
fn file(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sentinel-dashboard-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.toml"));
    let _ = std::fs::remove_file(&path);
    path
}

#[tokio::test]
async fn pushed_rules_limit_are_kept_and_survive_a_restart() {
    let path = file("restart");
    let text = "[[rules]]\nkind = \"flow\"\nresource = \"/hourly\"\nthreshold = 9\n\
                interval = \"1h\"\n";
    std::fs::write(&path, text).unwrap();
    let start = || {
        let rules = FileSource::toml(&path).poll().unwrap().unwrap();
        Sentinel::new(rules)
    };
    let sentinel = start();
    let handle = local(&sentinel)
        .push(RuleFile::toml(&path))
        .spawn()
        .await
        .unwrap();
    let mut line = connected(&handle).await;
    let name = "/100% + tax/{id}";
    let answer = push(&mut line, "flow", json!([flow(name, 1.0)])).await;
    assert_eq!(answer, success());
    let limits = |sentinel: &Sentinel| {
        let calls = [0; 2].map(|_| sentinel.try_enter(Call::new(name)));
        matches!(calls, [Verdict::Pass(_), Verdict::Block(_)])
    };
    assert!(limits(&sentinel));
    let shown = line.get("getRules?type=flow").await.json();
    assert_eq!(
        (&shown[0]["resource"], shown.as_array().unwrap().len()),
        (&json!(name), 1)
    );
    handle.stop().await;

    let again = start();
    assert_eq!(again.rules(), sentinel.rules());
    assert_eq!(again.rules().len(), 2);
    assert!(limits(&again));
    let handle = local(&again).spawn().await.unwrap();
    let told = connected(&handle)
        .await
        .get("getRules?type=flow")
        .await
        .json();
    assert_eq!(told, shown);
}

#[tokio::test]
async fn each_type_is_pushed_as_the_pages_send_it() {
    let sentinel = Sentinel::new(Rules::new());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let degrade = json!([{
        "count": 0.5, "grade": 1, "limitApp": "default", "minRequestAmount": 5, "regex": false,
        "resource": "/pay", "slowRatioThreshold": 1.0, "statIntervalMs": 1000, "timeWindow": 10,
    }]);
    let system = json!([{
        "avgRt": -1, "highestCpuUsage": -1.0, "highestSystemLoad": -1.0, "maxThread": -1,
        "qps": 20.0, "regex": false,
    }]);
    let authority = json!([{
        "limitApp": "a,b", "regex": false, "resource": "/pay", "strategy": 0,
    }]);
    let param = json!([{
        "burstCount": 0, "clusterConfig": {
            "fallbackToLocalWhenFail": false, "sampleCount": 10, "thresholdType": 0,
            "windowIntervalMs": 1000,
        },
        "clusterMode": false, "controlBehavior": 0, "count": 5.0, "durationInSec": 1, "grade": 1,
        "limitApp": "default", "maxQueueingTimeMs": 0, "paramFlowItemList": [
            {"classType": "int", "count": 9, "object": "7"},
        ],
        "paramIdx": 0, "regex": false, "resource": "/pay",
    }]);
    for (kind, rules) in [
        ("degrade", degrade),
        ("system", system),
        ("authority", authority),
    ] {
        assert_eq!(push(&mut line, kind, rules).await, success(), "{kind}");
        let shown = line.get(&format!("getRules?type={kind}")).await.json();
        assert_eq!(shown.as_array().unwrap().len(), 1, "{kind}");
        // What it reads it may send.
        assert_eq!(push(&mut line, kind, shown.clone()).await, success());
        assert_eq!(
            line.get(&format!("getRules?type={kind}")).await.json(),
            shown
        );
    }
    let data = param.to_string();
    let answer = line.post("setParamFlowRules", &[("data", &data)]).await;
    assert_eq!(answer, success());
    let kinds: Vec<_> = sentinel
        .rules()
        .iter()
        .map(tower_sentinel::Rule::kind)
        .collect();
    assert_eq!(kinds, ["circuit-breaker", "system", "authority", "keyed"]);
    for kind in ["degrade", "system", "authority"] {
        assert_eq!(push(&mut line, kind, json!([])).await, success());
    }
    let answer = line.post("setParamFlowRules", &[("data", "[]")]).await;
    assert_eq!(answer, success());
    assert_eq!(sentinel.rules(), Rules::new());
}

#[tokio::test]
async fn one_bad_rule_and_nothing_changes() {
    let before = Rules::from(FlowRule::per_second("/search", 5));
    let sentinel = Sentinel::new(before.clone());
    let sink = Sink::default();
    let handle = local(&sentinel).push(sink.clone()).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let good = flow("/good", 1.0);
    let cases = [
        (
            json!([good, flow("/bad", -1.0)]).to_string(),
            "/bad: 单机阈值 (count) is -1.0, must be between 0 and 2147483647\n",
        ),
        (
            json!([good, flow("*", 1.0)]).to_string(),
            "*: 资源名 (resource) is \"*\", must be ",
        ),
        (
            json!([good, flow(" ", 1.0)]).to_string(),
            " : 资源名 (resource) is ",
        ),
        (
            json!([good, {"resource": "/x", "regex": true}]).to_string(),
            "/x: regex is true, must be false",
        ),
        (
            json!([good, 1]).to_string(),
            "a rule without a resource: is 1, must be a table",
        ),
        (
            json!({"rules": []}).to_string(),
            "must be a list of Sentinel's rules",
        ),
        ("[{".to_owned(), "data is no list of rules: "),
        (String::new(), "data is no list of rules: "),
    ];
    for (data, expected) in cases {
        let answer = line
            .post("setRules", &[("type", "flow"), ("data", &data)])
            .await;
        assert_eq!(answer.status, 400, "{data}");
        assert!(answer.text.contains(expected), "{data}: {}", answer.text);
        // A person has filled in a form, and has not written a text.
        assert!(!answer.text.contains("column"), "{data}: {}", answer.text);
    }
    let answer = push(
        &mut line,
        "degrade",
        json!([{
            "resource": "*", "grade": 1, "count": 0.5, "timeWindow": 10,
        }]),
    );
    let text = "资源名 (resource) is \"*\", must be the name of one";
    assert_eq!(
        answer.await,
        Answer {
            status: 400,
            text: text.to_owned()
        }
    );
    for (target, params) in [
        ("setRules", &[("data", "[]")][..]),
        ("setRules", &[("type", "gateway"), ("data", "[]")]),
        ("setRules", &[("type", "flow")]),
        ("setParamFlowRules", &[("type", "flow")]),
    ] {
        assert_eq!(line.post(target, params).await.status, 400);
    }
    assert_eq!(sentinel.rules(), before);
    assert!(sink.stored.read().unwrap().is_empty());
}

#[tokio::test]
async fn rules_change_by_post_and_with_a_sink_alone() {
    let before = Rules::from(FlowRule::per_second("/search", 5));
    let sentinel = Sentinel::new(before.clone());
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let answer = push(&mut line, "flow", json!([])).await;
    let text = "rules are read only here: give the program a sink by Dashboard::push";
    assert_eq!((answer.status, &*answer.text), (400, text));
    handle.stop().await;

    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    for target in [
        "setRules?type=flow&data=%5B%5D",
        "setParamFlowRules?data=%5B%5D",
    ] {
        let answer = line.get(target).await;
        assert_eq!(
            (answer.status, &*answer.text),
            (405, "rules are changed by POST")
        );
    }
    assert_eq!(sentinel.rules(), before);
}

#[tokio::test]
async fn a_sink_that_fails_leaves_the_old_rules_in_force() {
    let limit = |limit: u32| Rules::from(FlowRule::per_second("/search", limit));
    let sentinel = Sentinel::new(limit(5));
    let sink = Sink::failing([SourceError::new("the disk is full")]);
    let handle = local(&sentinel).push(sink.clone()).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let answer = push(&mut line, "flow", json!([flow("/search", 6.0)])).await;
    assert_eq!((answer.status, &*answer.text), (500, "the disk is full"));
    assert_eq!(sentinel.rules(), limit(5));
    // It is asked again, and nothing is left of what it has not kept.
    for limit in [7.0, 7.0] {
        let answer = push(&mut line, "flow", json!([flow("/search", limit)])).await;
        assert_eq!(answer, success());
    }
    assert_eq!(sentinel.rules(), limit(7));
    let expected = [(5, 6), (5, 7)].map(|(a, b)| [limit(a), limit(b)]);
    assert_eq!(*sink.stored.read().unwrap(), expected);
}

#[tokio::test]
async fn a_sink_that_panics_leaves_the_old_rules_in_force() {
    let sentinel = Sentinel::new(Rules::new());
    let handle = local(&sentinel).push(Broken).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let answer = push(&mut line, "flow", json!([flow("/search", 6.0)])).await;
    let text = "the sink panicked: broken";
    assert_eq!((answer.status, &*answer.text), (500, text));
    assert_eq!(sentinel.rules(), Rules::new());
}

#[tokio::test]
async fn rules_that_need_a_store_are_kept_by_no_sink_where_there_is_none() {
    let before = Rules::from(FlowRule::per_second("/fleet", 5).shared());
    let sentinel = Sentinel::new(Rules::new());
    // The program itself may load them.
    assert!(sentinel.reload(before.clone()));
    let sink = Sink::default();
    let handle = local(&sentinel).push(sink.clone()).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let authority = json!([{ "limitApp": "a", "resource": "/pay", "strategy": 0 }]);
    let answer = push(&mut line, "authority", authority).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text.contains("no store"), "{}", answer.text);
    assert_eq!(sentinel.rules(), before);
    assert!(sink.stored.read().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_on_a_page_and_by_the_dashboard_follow_each_other() {
    const TOKEN: &str = "correct-horse-battery";
    let sentinel = Sentinel::new(Rules::new());
    let sink = Sink::default();
    let handle = local(&sentinel).push(sink.clone()).spawn().await.unwrap();
    let page = Page::new(&sentinel).token(TOKEN).unwrap();
    let page = page.edits(sink.clone()).unwrap();
    let request = |query: &str| {
        let request = http::Request::builder().uri(format!("/?{query}"));
        let request = request.header("host", "localhost");
        request.header("authorization", format!("Bearer {TOKEN}"))
    };
    let mut line = connected(&handle).await;
    let by_dashboard = async {
        for limit in 1..=40 {
            let rules = json!([flow("/dashboard", f64::from(limit))]);
            replace(&mut line, "flow", rules).await;
        }
    };
    let by_page = async {
        for limit in 1..=40 {
            let rules = request("rules").body(Body::default()).unwrap();
            let rules = page.clone().oneshot(rules).await.unwrap();
            let change = request("rules").method("POST");
            let change = change.header("if-match", &rules.headers()["etag"]);
            let change = change.header("content-type", "application/json");
            let document = json!({
                "rules": [{ "kind": "isolation", "resource": "/page", "max": limit }],
            });
            let change = change.body(Body::from(document.to_string())).unwrap();
            page.clone().oneshot(change).await.unwrap();
        }
    };
    tokio::join!(by_dashboard, by_page);
    let stored = sink.stored.read().unwrap();
    let mut last = &Rules::new();
    for [before, after] in &*stored {
        assert_eq!(before, last);
        last = after;
    }
    assert_eq!(*last, sentinel.rules());
}

#[tokio::test]
async fn a_file_that_was_edited_meanwhile_is_left_alone() {
    let path = file("edited");
    std::fs::write(&path, "rules = []\n").unwrap();
    let sentinel = Sentinel::new(Rules::new());
    let handle = local(&sentinel)
        .push(RuleFile::toml(&path))
        .spawn()
        .await
        .unwrap();
    let mut line = connected(&handle).await;
    let answer = push(&mut line, "flow", json!([flow("/search", 6.0)])).await;
    assert_eq!(answer, success());
    let edited = "[[rules]]\nkind = \"isolation\"\nresource = \"/search\"\nmax = 1\n";
    std::fs::write(&path, edited).unwrap();
    let answer = push(&mut line, "flow", json!([flow("/search", 7.0)])).await;
    assert_eq!(answer.status, 400);
    assert!(
        answer.text.contains("has other rules than those in force"),
        "{}",
        answer.text
    );
    assert_eq!(sentinel.rules(), FlowRule::per_second("/search", 6).into());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), edited);
}

#[tokio::test]
async fn rules_that_the_form_cannot_say_stay_where_they_are() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("/a", 100).id("minute"))
        .with(
            FlowRule::per_second("/a", 5)
                .id("second")
                .buckets(10)
                .max_waiting(7),
        )
        .with(FlowRule::per_second("/a", 5).by_origin())
        .with(FlowRule::per_second("/b", 5).strict())
        .with(FlowRule::per_second("/c", 5).id("goes"))
        .with(FlowRule::per_second("/d", 5).shadow())
        .with(CircuitBreakerRule::error_ratio("*", 0.5))
        .with(KeyedRule::per_second("/e", 5).param("user"))
        .with(SystemRule::new().qps(5));
    let sentinel = Sentinel::new(rules.clone());
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let pushed = json!([flow("/new", 1.0), flow("/a", 6.0)]);
    assert_eq!(replace(&mut line, "flow", pushed).await, success());
    let mut expected: Vec<_> = rules.into_iter().collect();
    let six = FlowRule::per_second("/a", 6);
    expected[1] = six.id("second").buckets(10).max_waiting(7).into();
    expected.remove(4);
    expected.push(FlowRule::per_second("/new", 1).into());
    assert_eq!(sentinel.rules(), Rules::build(expected).unwrap());
}
