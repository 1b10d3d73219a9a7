//! What the dashboard reads: seconds, trees and rules, parsed as strictly as it parses them.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::clock::Tick;
use tower_sentinel::{
    AuthorityRule, Call, FlowRule, IsolationRule, KeyedRule, ManualClock, Rules, Sentinel,
    SystemRule, Verdict,
};

use super::{Answer, connected, local};

/// A line of the answer to `metric`.
#[derive(Debug, PartialEq)]
struct Second {
    millis: i64,
    name: String,
    /// Pass, block, success, exception, response time, occupied, concurrency, classification.
    figures: Vec<i64>,
}

/// As the dashboard reads lines, without its leniency: ten fields, and whole seconds.
fn seconds(text: &str) -> Vec<Second> {
    if text.starts_with("No metrics") {
        return Vec::new();
    }
    assert!(text.ends_with('\n'));
    let line = |line: &str| {
        let fields: Vec<_> = line.split('|').collect();
        assert_eq!(fields.len(), 10, "{line}");
        let number = |text: &&str| text.parse::<i64>().unwrap();
        let millis = number(&fields[0]);
        assert_eq!(millis % 1_000, 0);
        Second {
            millis,
            name: fields[1].to_owned(),
            figures: fields[2..].iter().map(number).collect(),
        }
    };
    text.lines().map(line).collect()
}

/// Calls `name` so many times, of which the first fails if it passes. Each takes 5 ms.
fn call(sentinel: &Sentinel, clock: &ManualClock, name: &str, times: u32) {
    for place in 0..times {
        if let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new(name)) {
            clock.advance(Duration::from_millis(5));
            if place == 0 {
                entry.fail();
            }
        }
    }
}

/// An engine that was called in seconds 1000, 1001 and 1003, and in the present one, 1004.
fn called() -> (Sentinel, ManualClock) {
    let clock = ManualClock::starting_at(Tick::from_millis(1_000_000));
    let rules = Rules::new()
        .with(FlowRule::per_second("/search", 2))
        .with(FlowRule::per_second("a|b\u{2028}c", 9))
        .with(FlowRule::per_second("/idle", 9));
    let sentinel = Sentinel::builder()
        .rules(rules)
        .clock(clock.clone())
        .build();
    for (second, calls) in [(1_000, 5), (1_001, 1), (1_003, 1), (1_004, 1)] {
        clock.set(Tick::from_millis(second * 1_000));
        call(&sentinel, &clock, "/search", calls);
        call(&sentinel, &clock, "/made-up", 1);
    }
    call(&sentinel, &clock, "a|b\u{2028}c", 1);
    (sentinel, clock)
}

#[tokio::test]
async fn seconds_are_lines_of_ten_fields() {
    let (sentinel, clock) = called();
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let answer = line.get("metric?startTime=0&refetch=false").await;
    let first = seconds(&answer.text)[0].millis;
    let at = |second: i64| first + second * 1_000;
    let expected = format!(
        "{}|/search|2|3|2|1|5|0|0|0\n{}|/search|1|0|1|1|5|0|0|0\n{}|/search|1|0|1|1|5|0|0|0\n",
        at(0),
        at(1),
        at(3),
    );
    assert_eq!(answer, Answer::ok(&expected));

    // Both ends are part of the span.
    let span = |from: i64, to: i64| format!("metric?startTime={from}&endTime={to}&refetch=false");
    let count = async |line: &mut super::Line, from, to| {
        seconds(&line.get(&span(from, to)).await.text).len()
    };
    assert_eq!(count(&mut line, at(0), at(3)).await, 3);
    assert_eq!(count(&mut line, at(1), at(3)).await, 2);
    assert_eq!(count(&mut line, at(1), at(2)).await, 1);
    assert_eq!(count(&mut line, at(1) + 1, at(3) - 1).await, 0);
    assert_eq!(
        line.get(&span(at(2), at(2))).await,
        Answer::ok("No metrics")
    );
    let one = line.get("metric?startTime=0&maxLines=1").await;
    assert_eq!(seconds(&one.text).len(), 1);
    let none = line.get("metric?startTime=0&identity=%2Fidle").await;
    assert_eq!(none, Answer::ok("No metrics"));

    // The present second is told once it is over, and a name ends no field.
    clock.set(Tick::from_millis(1_005_000));
    let answer = line.get(&span(at(4), at(4))).await;
    let names: Vec<_> = seconds(&answer.text)
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(names, ["/search", "a_b\u{2028}c"]);
}

#[tokio::test]
async fn seconds_are_near_the_time_of_people() {
    let (sentinel, _) = called();
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let last = seconds(&line.get("metric?startTime=0").await.text)
        .pop()
        .unwrap();
    let node = &line.get("clusterNode").await.json()[0];
    // Second 1003 has ended less than a second before now, as 1004 is the present one.
    let behind = node["timestamp"].as_i64().unwrap() - last.millis;
    assert!((1_000..60_000).contains(&behind), "{behind}");
}

#[tokio::test]
async fn spans_that_are_no_numbers_are_refused() {
    let (sentinel, _) = called();
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let cases = [
        (
            "metric",
            "startTime is missing, must be a number of milliseconds since 1970",
        ),
        ("metric?startTime=x", "startTime must be a whole number"),
        (
            "metric?startTime=0&endTime=",
            "endTime must be a whole number",
        ),
        (
            "metric?startTime=0&maxLines=1.5",
            "maxLines must be a whole number",
        ),
        (
            "metric?startTime=%ff",
            "a parameter is no text in percent-encoding",
        ),
    ];
    for (target, expected) in cases {
        let answer = line.get(target).await;
        assert_eq!((answer.status, &*answer.text), (400, expected), "{target}");
    }
}

/// A tree as the dashboard builds it: every parent stands before its children.
fn paths(nodes: &Value) -> Vec<String> {
    let mut known: HashMap<&str, String> = HashMap::new();
    for node in nodes.as_array().unwrap() {
        let name = node["resource"].as_str().unwrap();
        let path = match node["parentId"].as_str() {
            None => {
                assert!(known.is_empty(), "a second root");
                name.to_owned()
            }
            Some(parent) => format!("{} > {name}", known[parent]),
        };
        let id = node["id"].as_str().unwrap();
        assert_eq!((id.len(), id.matches('-').count()), (36, 4));
        assert!(known.insert(id, path).is_none(), "the id is another's");
    }
    let mut paths: Vec<_> = known.into_values().collect();
    paths.sort();
    paths
}

/// The figures of a node, which must be whole numbers.
fn figures(node: &Value) -> Vec<i64> {
    let names = [
        "threadNum",
        "passQps",
        "blockQps",
        "totalQps",
        "averageRt",
        "successQps",
        "exceptionQps",
        "oneMinutePass",
        "oneMinuteBlock",
        "oneMinuteException",
        "oneMinuteTotal",
    ];
    let number = |name: &str| node[name].as_i64().unwrap_or_else(|| panic!("{name}"));
    assert!(number("timestamp") > 0);
    names.iter().map(|name| number(name)).collect()
}

#[tokio::test]
async fn the_tree_has_one_root_and_parents_come_first() {
    let (sentinel, clock) = called();
    let Verdict::Pass(running) = sentinel.try_enter(Call::new("a|b\u{2028}c")) else {
        panic!("there is room");
    };
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let tree = line.get("jsonTree?type=root").await.json();
    let expected = [
        "machine-root",
        "machine-root > sentinel_default_context",
        "machine-root > sentinel_default_context > /search",
        "machine-root > sentinel_default_context > a|b\u{2028}c",
    ];
    assert_eq!(paths(&tree), expected);
    let of = |name: &str| {
        let mut nodes = tree.as_array().unwrap().iter();
        figures(nodes.find(|node| node["resource"] == name).unwrap())
    };
    assert_eq!(of("/search"), [0, 1, 0, 1, 5, 1, 1, 5, 3, 4, 8]);
    assert_eq!(of("a|b\u{2028}c"), [1, 2, 0, 2, 5, 1, 1, 2, 0, 1, 2]);
    assert_eq!(of("machine-root"), [1, 3, 0, 3, 5, 2, 2, 7, 3, 5, 10]);
    assert_eq!(of("sentinel_default_context"), of("machine-root"));

    let list = line.get("clusterNode?type=zero").await.json();
    let named = |list: &Value| -> Vec<String> {
        let nodes = list.as_array().unwrap().iter();
        let name = |node: &Value| {
            assert!(node.get("id").is_none() && node.get("parentId").is_none());
            figures(node);
            node["resource"].as_str().unwrap().to_owned()
        };
        nodes.map(name).collect()
    };
    assert_eq!(named(&list), ["/search", "a|b\u{2028}c"]);
    drop(running);
    // An hour later they are known, and have done nothing in the last minute.
    clock.advance(Duration::from_secs(3_600));
    let list = line.get("clusterNode?type=zero").await.json();
    assert_eq!(named(&list).len(), 2);
    let list = line.get("clusterNode?type=notZero").await.json();
    assert_eq!(list, json!([]));
}

#[tokio::test]
async fn rules_are_told_in_the_form_of_java() {
    let half_second = Duration::from_millis(500);
    let rules = Rules::new()
        .with(FlowRule::per_second("/a", 5))
        .with(
            FlowRule::per_second("/a", 2.5)
                .for_origin("shop")
                .throttle(half_second),
        )
        .with(FlowRule::per_second("/b", 7).when("/a").id("yields"))
        .with(
            FlowRule::per_second("/b", 7)
                .in_context("web")
                .warm_up(Duration::from_secs(20)),
        )
        .with(IsolationRule::new("/c", 3))
        .with(AuthorityRule::deny("/d", ["x", "y"]))
        .with(
            KeyedRule::per_minute("/e", 9)
                .param_at(1)
                .burst(4)
                .except("vip", 99),
        )
        .with(
            SystemRule::new()
                .qps(100)
                .concurrency(8)
                .rt(Duration::from_millis(30)),
        );
    let sentinel = Sentinel::new(rules);
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let flow = |name: &str, count: f64, origin: &str, more: Value| {
        let mut rule = json!({
            "resource": name, "limitApp": origin, "grade": 1, "count": count, "strategy": 0,
            "controlBehavior": 0, "warmUpPeriodSec": 10, "maxQueueingTimeMs": 500,
            "clusterMode": false,
        });
        for (key, value) in more.as_object().unwrap() {
            rule[key] = value.clone();
        }
        rule
    };
    let expected = json!([
        flow("/a", 5.0, "default", json!({})),
        flow("/a", 2.5, "shop", json!({"controlBehavior": 2})),
        flow("/b", 7.0, "default", json!({"strategy": 1, "refResource": "/a"})),
        flow(
            "/b",
            7.0,
            "default",
            json!({"strategy": 2, "refResource": "web", "controlBehavior": 1, "warmUpPeriodSec": 20}),
        ),
        {
            "resource": "/c", "limitApp": "default", "grade": 0, "count": 3, "strategy": 0,
            "controlBehavior": 0, "clusterMode": false,
        },
    ]);
    assert_eq!(line.get("getRules?type=flow").await.json(), expected);
    let expected = json!([{"resource": "/d", "limitApp": "x,y", "strategy": 1}]);
    assert_eq!(line.get("getRules?type=authority").await.json(), expected);
    let expected = json!([{
        "resource": "/e", "limitApp": "default", "grade": 1, "paramIdx": 1, "count": 9.0,
        "durationInSec": 60, "burstCount": 4, "controlBehavior": 0, "maxQueueingTimeMs": 0,
        "paramFlowItemList": [{"object": "vip", "count": 99, "classType": "String"}],
        "clusterMode": false,
    }]);
    assert_eq!(line.get("getParamFlowRules").await.json(), expected);
    let system = |key: &str, value: Value| {
        let mut rule = json!({
            "highestSystemLoad": -1.0, "highestCpuUsage": -1.0, "qps": -1.0, "avgRt": -1,
            "maxThread": -1,
        });
        rule[key] = value;
        rule
    };
    let expected = json!([
        system("avgRt", json!(30)),
        system("maxThread", json!(7)),
        system("qps", json!(100.0)),
    ]);
    assert_eq!(line.get("getRules?type=system").await.json(), expected);
    assert_eq!(line.get("getRules?type=degrade").await, Answer::ok("[]"));
    for target in ["getRules", "getRules?type=", "getRules?type=paramFlow"] {
        let answer = line.get(target).await;
        assert_eq!((answer.status, &*answer.text), (400, "invalid type"));
    }
}

#[tokio::test]
async fn the_other_commands_are_answered_or_unknown() {
    let (sentinel, _) = called();
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let mode = json!({
        "mode": -1, "lastModified": 0, "clientAvailable": false, "serverAvailable": false,
    });
    assert_eq!(line.get("getClusterMode").await.json(), mode);
    assert_eq!(line.get("basicInfo").await.json()["app"], "shop");
    let status = line.get("systemStatus").await.json();
    assert_eq!((&status["qps"], &status["t"]), (&json!(3.0), &json!(0)));
    for command in line.get("api").await.json().as_array().unwrap() {
        assert!(!command["desc"].as_str().unwrap().is_empty());
        let target = command["url"].as_str().unwrap().strip_prefix('/').unwrap();
        let answer = line.get(target).await;
        assert!(!answer.text.contains("Unknown"), "{target}");
    }
    for command in [
        "setClusterMode?mode=1",
        "cluster/client/fetchConfig",
        "gateway/getRules",
        "",
    ] {
        let answer = line.get(command).await;
        let name = command.split('?').next().unwrap();
        let expected = format!("Unknown command `{name}`");
        assert_eq!((answer.status, answer.text), (400, expected));
    }
}

#[tokio::test]
async fn what_callers_send_is_in_no_answer() {
    const MARK: &str = "marker-7c1d";
    let clock = ManualClock::new();
    let rules = Rules::new()
        .with(FlowRule::per_second("/search", 2).by_origin())
        .with(KeyedRule::per_second("/search", 1).param_at(0));
    let engine = Sentinel::builder().rules(rules).clock(clock.clone());
    let sentinel = engine.contexts(true).build();
    for _ in 0..4 {
        let call = Call::new("/search").origin(MARK).param(MARK).context(MARK);
        drop(sentinel.try_enter(call));
        drop(sentinel.try_enter(Call::new(MARK)));
    }
    clock.advance(Duration::from_secs(2));
    let handle = local(&sentinel).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let mut all = String::new();
    for target in [
        "metric?startTime=0",
        "jsonTree",
        "clusterNode",
        "getRules?type=flow",
        "getParamFlowRules",
        "basicInfo",
        "systemStatus",
        "api",
    ] {
        all.push_str(&line.get(target).await.text);
    }
    assert!(all.contains("/search") && !all.contains(MARK), "{all}");
}
