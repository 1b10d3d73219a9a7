//! Which rules the dashboard sees, and what becomes of those that it changes.

use std::time::Duration;

use serde_json::{Value, json};
use tower_sentinel::source::InMemory;
use tower_sentinel::system::Capacity;
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, IsolationRule, KeyedRule,
    MissingKey, Rule, Rules, Sentinel, SystemRule,
};

use super::{Answer, Line, connected, local};

const TYPES: [&str; 5] = ["flow", "degrade", "system", "authority", "param"];

async fn get(line: &mut Line, kind: &str) -> Value {
    let target = match kind {
        "param" => "getParamFlowRules".to_owned(),
        kind => format!("getRules?type={kind}"),
    };
    line.get(&target).await.json()
}

async fn set(line: &mut Line, kind: &str, rules: &Value) -> Answer {
    post(line, kind, rules, &[]).await
}

async fn post(line: &mut Line, kind: &str, rules: &Value, more: &[(&str, &str)]) -> Answer {
    let data = rules.to_string();
    match kind {
        "param" => {
            let params = [&[("data", &*data)], more].concat();
            line.post("setParamFlowRules", &params).await
        }
        kind => {
            let params = [&[("type", kind), ("data", &data)], more].concat();
            line.post("setRules", &params).await
        }
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Rules that the form of a type says, but for what it has no field for.
fn visible() -> Vec<(&'static str, Rule)> {
    let second = Duration::from_secs(1);
    vec![
        ("flow", FlowRule::per_second("/a", 5).into()),
        ("flow", FlowRule::per_second("/a", 0).into()),
        (
            "flow",
            FlowRule::per_second("/a", 5)
                .for_origin("other")
                .lend(false)
                .max_occupy_ratio(0.5)
                .id("x")
                .into(),
        ),
        (
            "flow",
            FlowRule::per_second("/a", 0.5)
                .throttle(millis(20))
                .max_waiting(3)
                .into(),
        ),
        (
            "flow",
            FlowRule::per_second("/a", 5)
                .warm_up(second)
                .cold_factor(5.0)
                .into(),
        ),
        (
            "flow",
            FlowRule::per_second("/a", 5)
                .warm_up(second)
                .throttle(millis(20))
                .into(),
        ),
        (
            "flow",
            FlowRule::per_second("/users/{id}", 5)
                .when("/b")
                .buckets(5)
                .into(),
        ),
        ("flow", IsolationRule::new("/a", 0).into()),
        (
            "flow",
            IsolationRule::new("/a", 2)
                .for_origin("other")
                .max_waiting(3)
                .into(),
        ),
        (
            "flow",
            IsolationRule::new("/a", 2).for_origin("x").id("y").into(),
        ),
        ("flow", IsolationRule::new("/a", 2).when("/b").into()),
        (
            "flow",
            IsolationRule::new("/a", 5)
                .queue(second)
                .max_waiting(3)
                .id("x")
                .into(),
        ),
        ("degrade", CircuitBreakerRule::error_ratio("/a", 0.5).into()),
        (
            "degrade",
            CircuitBreakerRule::error_ratio("/a", 0.5)
                .exceeds()
                .min_calls(9)
                .into(),
        ),
        (
            "degrade",
            CircuitBreakerRule::error_count("/a", 3)
                .probes(2)
                .buckets(4)
                .into(),
        ),
        (
            "degrade",
            CircuitBreakerRule::error_count("/a", 9).min_calls(5).into(),
        ),
        (
            "degrade",
            CircuitBreakerRule::error_count("/a", 0).exceeds().into(),
        ),
        (
            "degrade",
            CircuitBreakerRule::slow_ratio("/a", millis(300), 1.0)
                .open_for(second)
                .open_up_to(Duration::from_secs(60))
                .interval(millis(2_500))
                .count_cancelled_as_slow(false)
                .id("x")
                .into(),
        ),
        (
            "degrade",
            CircuitBreakerRule::slow_ratio("/a", millis(300), 0.5)
                .exceeds()
                .into(),
        ),
        ("system", SystemRule::new().qps(10).id("x").into()),
        (
            "system",
            SystemRule::new()
                .load(2.5)
                .capacity(Capacity::Sentinel)
                .into(),
        ),
        (
            "system",
            SystemRule::new().load(2.5).cpu(0.75).concurrency(10).into(),
        ),
        ("system", SystemRule::new().rt(millis(30)).into()),
        (
            "authority",
            AuthorityRule::allow("/a", ["x", "y"])
                .deny_unknown()
                .id("x")
                .into(),
        ),
        ("authority", AuthorityRule::deny("/a", ["x"]).into()),
        (
            "param",
            KeyedRule::per_minute("/a", 5)
                .param_at(-1)
                .max_keys(9)
                .id("x")
                .into(),
        ),
        (
            "param",
            KeyedRule::per_second("/a", 5)
                .burst(9)
                .missing(MissingKey::Refuse)
                .into(),
        ),
        (
            "param",
            KeyedRule::per_second("/a", 5)
                .except("b", 6)
                .except("c", 0)
                .into(),
        ),
        (
            "param",
            KeyedRule::per_second("/a", 5).throttle(millis(20)).into(),
        ),
        (
            "param",
            KeyedRule::per_second("/a", 5)
                .throttle(millis(20) - Duration::from_nanos(1))
                .missing(MissingKey::Skip)
                .into(),
        ),
        (
            "param",
            KeyedRule::concurrency("/a", 5)
                .queue(second)
                .max_waiting(3)
                .into(),
        ),
        ("param", KeyedRule::concurrency("/a", 5).into()),
    ]
}

/// Rules that no form says.
fn invisible() -> Vec<Rule> {
    let second = Duration::from_secs(1);
    vec![
        FlowRule::per_minute("/a", 5).into(),
        FlowRule::per_second("/a", 5).strict().into(),
        FlowRule::per_second("/a", 5).by_origin().into(),
        FlowRule::per_second("/a", 5).shadow(),
        FlowRule::per_second("/a", 5).memory(0.5..0.9, 1).into(),
        FlowRule::per_second("/a", 5).warm_up(millis(1_500)).into(),
        FlowRule::per_second("/a", 5)
            .throttle(Duration::from_micros(1_500))
            .into(),
        IsolationRule::new("*", 5).into(),
        AdaptiveRule::new("/a").into(),
        CircuitBreakerRule::error_ratio("*", 0.5).into(),
        CircuitBreakerRule::error_ratio("/a", 0.5)
            .last_calls(9)
            .into(),
        CircuitBreakerRule::error_ratio("/a", 0.5)
            .open_for(millis(1_500))
            .into(),
        CircuitBreakerRule::consecutive_errors("/a", 5).into(),
        CircuitBreakerRule::slow_ratio("/a", millis(300), 1.0)
            .exceeds()
            .into(),
        CircuitBreakerRule::slow_ratio("/a", Duration::from_micros(1_500), 0.5).into(),
        AuthorityRule::allow("/a", ["x"]).shadow(),
        SystemRule::new().rt(Duration::from_micros(1_500)).into(),
        KeyedRule::per_second("/a", 5).param("user").into(),
        KeyedRule::per_second("/a", 5).by_origin().into(),
        KeyedRule::per_second("/a", 5).window().into(),
        KeyedRule::per_second("/a", 5).capacity(9).into(),
        KeyedRule::per_second("/a", 5).tier("pro", 9).into(),
        KeyedRule::per_second("/a", 5)
            .except("b", 1.5)
            .burst(1)
            .into(),
        KeyedRule::per("/a", 5, second / 2).into(),
    ]
}

#[tokio::test]
async fn a_rule_that_is_read_and_sent_again_is_the_same() {
    for (kind, rule) in visible() {
        let rules = Rules::new().with(rule.clone());
        let sentinel = Sentinel::new(rules.clone());
        let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
        let mut line = connected(&handle).await;
        for other in TYPES.iter().filter(|other| **other != kind) {
            assert_eq!(get(&mut line, other).await, json!([]), "{rule:?}");
            assert_eq!(
                set(&mut line, other, &json!([])).await,
                Answer::ok("success")
            );
        }
        let shown = get(&mut line, kind).await;
        assert!(
            !shown.as_array().unwrap().is_empty(),
            "{rule:?} is not shown"
        );
        assert_eq!(set(&mut line, kind, &shown).await, Answer::ok("success"));
        assert_eq!((sentinel.rules(), sentinel.rules_version()), (rules, 0));
        // The limits of a system rule are several rules there.
        let answer = post(&mut line, kind, &json!([]), &[("replace", "all")]).await;
        assert_eq!(answer, Answer::ok("success"));
        assert_eq!(sentinel.rules(), Rules::new());
    }
}

#[tokio::test]
async fn a_rule_that_no_form_says_is_not_shown_and_stays() {
    for rule in invisible() {
        let rules = Rules::new().with(rule.clone());
        let sentinel = Sentinel::new(rules.clone());
        let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
        let mut line = connected(&handle).await;
        for kind in TYPES {
            assert_eq!(get(&mut line, kind).await, json!([]), "{rule:?}");
            assert_eq!(
                set(&mut line, kind, &json!([])).await,
                Answer::ok("success")
            );
        }
        assert_eq!(sentinel.rules(), rules);
    }
}

/// What becomes of `rules` when the dashboard sends those of `kind` after `change`.
async fn changed(rules: Rules, kind: &str, change: impl FnOnce(&mut Value)) -> Vec<Rule> {
    let sentinel = Sentinel::new(rules);
    let handle = local(&sentinel).push(InMemory).spawn().await.unwrap();
    let mut line = connected(&handle).await;
    let mut shown = get(&mut line, kind).await;
    change(&mut shown);
    assert_eq!(set(&mut line, kind, &shown).await, Answer::ok("success"));
    sentinel.rules().into_iter().collect()
}

#[tokio::test]
async fn of_several_rules_of_a_resource_the_changed_one_changes() {
    let two = Rules::new()
        .with(FlowRule::per_second("/a", 5).id("five"))
        .with(FlowRule::per_second("/a", 6).id("six"))
        .with(FlowRule::per_second("/a", 6).for_origin("shop").id("shop"));
    let after = changed(two, "flow", |rules| {
        rules[0]["count"] = json!(1.0);
        rules.as_array_mut().unwrap().reverse();
    });
    let expected: [Rule; 3] = [
        FlowRule::per_second("/a", 1).id("five").into(),
        FlowRule::per_second("/a", 6).id("six").into(),
        FlowRule::per_second("/a", 6)
            .for_origin("shop")
            .id("shop")
            .into(),
    ];
    assert_eq!(after.await, expected);
}

#[tokio::test]
async fn a_breaker_keeps_its_way_to_compare_and_grows_with_its_time() {
    let rule = CircuitBreakerRule::error_ratio("/a", 0.5);
    let rule = rule.open_up_to(Duration::from_secs(20)).probes(3).id("x");
    let after = changed(Rules::new().with(rule.clone()), "degrade", |rules| {
        rules[0]["count"] = json!(0.25);
        rules[0]["timeWindow"] = json!(30);
    });
    let half_minute = Duration::from_secs(30);
    let expected = CircuitBreakerRule::error_ratio("/a", 0.25)
        .probes(3)
        .id("x");
    let expected = expected.open_for(half_minute).open_up_to(half_minute);
    assert_eq!(after.await, [Rule::from(expected)]);
    // Another way to count: what goes with both stays.
    let after = changed(Rules::new().with(rule), "degrade", |rules| {
        rules[0]["grade"] = json!(2);
        rules[0]["count"] = json!(50);
    });
    let expected = CircuitBreakerRule::error_count("/a", 50).probes(3).id("x");
    let expected = expected.open_up_to(Duration::from_secs(20));
    assert_eq!(after.await, [Rule::from(expected)]);
}

#[tokio::test]
async fn the_limits_of_a_system_rule_are_shown_apart_and_stay_together() {
    let rules = || {
        Rules::new()
            .with(SystemRule::new().qps(10).load(2.5).id("both"))
            .with(FlowRule::per_second("/a", 5))
    };
    let qps = |rules: &mut Value| {
        let mut list = rules.as_array_mut().unwrap().iter_mut();
        list.position(|rule| rule["qps"] == json!(10.0)).unwrap()
    };
    let after = changed(rules(), "system", |rules| {
        let place = qps(rules);
        rules[place]["qps"] = json!(7.0);
    });
    let expected = SystemRule::new().qps(7).load(2.5).id("both");
    assert_eq!(after.await[0], expected.into());
    let after = changed(rules(), "system", |rules| {
        let place = qps(rules);
        rules.as_array_mut().unwrap().remove(place);
    });
    let expected = SystemRule::new().load(2.5).id("both");
    assert_eq!(after.await[0], expected.into());
    let after = changed(rules(), "system", |rules| {
        let new = json!({"highestSystemLoad": -1, "highestCpuUsage": -1, "qps": -1, "avgRt": -1,
            "maxThread": 9});
        rules.as_array_mut().unwrap().push(new);
    });
    let expected: [Rule; 3] = [
        SystemRule::new().qps(10).load(2.5).id("both").into(),
        FlowRule::per_second("/a", 5).into(),
        SystemRule::new().concurrency(10).into(),
    ];
    assert_eq!(after.await, expected);
}

#[tokio::test]
async fn of_two_authority_rules_of_a_resource_the_second_is_not_shown() {
    let two = Rules::new()
        .with(AuthorityRule::allow("/a", ["x"]))
        .with(AuthorityRule::deny("/a", ["y"]));
    let after = changed(two, "authority", |rules| {
        assert_eq!(rules.as_array().unwrap().len(), 1);
        rules[0]["limitApp"] = json!("x,z");
    });
    let expected: [Rule; 2] = [
        AuthorityRule::allow("/a", ["x", "z"]).into(),
        AuthorityRule::deny("/a", ["y"]).into(),
    ];
    assert_eq!(after.await, expected);
}
