//! Rules as settings make them: what limits nobody, or everybody, is an error that names the
//! cure.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use tower_sentinel::middleware::skip::paths;
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, CircuitBreakerRule, FlowRule, HotParamRule, IsolationRule,
    KeyedLimiter, MissingKey, Rule, Rules, SystemRule, Tick,
};

const SECOND: Duration = Duration::from_secs(1);

/// Field, value and what is allowed, of the only problem of `rule`.
fn problem(rule: impl Into<Rule>) -> (&'static str, String, String) {
    let error = Rules::build([rule]).unwrap_err();
    let [problem] = error.problems() else {
        panic!("{error}");
    };
    let (value, allowed) = (problem.value().to_owned(), problem.allowed().to_owned());
    (problem.field(), value, allowed)
}

#[test]
fn a_route_of_another_router_is_refused_with_ours() {
    for (theirs, ours) in [
        ("/users/:id", "/users/{id}"),
        ("/users/:id/posts/:post", "/users/{id}/posts/{post}"),
        ("/files/*", "/files/{*rest}"),
        ("/files/*path", "/files/{*path}"),
        ("/files/**", "/files/{*rest}"),
        ("/users/<id>", "/users/{id}"),
        ("/users/{id:[0-9]+}", "/users/{id}"),
        ("/files/{path...}", "/files/{*path}"),
    ] {
        let name = theirs.to_owned();
        let rules: [Rule; 7] = [
            FlowRule::per_second(&name, 1).into(),
            HotParamRule::per_second(&name, 1).into(),
            IsolationRule::new(&name, 1).into(),
            AdaptiveRule::new(&name).into(),
            CircuitBreakerRule::error_ratio(&name, 0.5).into(),
            AuthorityRule::deny(&name, ["a"]).into(),
            FlowRule::per_second(&name, 1).shadow(),
        ];
        let allowed = format!("written {ours:?}, as in axum 0.8");
        for rule in rules {
            let kind = format!("{rule:?}");
            let expected = ("resource", format!("{theirs:?}"), allowed.clone());
            assert_eq!(problem(rule), expected, "{kind}");
        }
        let related = FlowRule::per_second("a", 1).when(theirs);
        assert_eq!(problem(related).0, "related");
        let by_method = format!("GET {theirs}");
        let expected = ("resource", format!("{by_method:?}"), allowed.clone());
        assert_eq!(problem(IsolationRule::new(by_method, 1)), expected);
        // Paths that a layer skips are written in the same way.
        let skipped = std::panic::catch_unwind(|| drop(paths([theirs]))).unwrap_err();
        let text = skipped.downcast_ref::<String>().unwrap();
        assert!(text.contains(&allowed), "{text}");
        assert!(Rules::build([FlowRule::per_second(ours, 1)]).is_ok());
    }
    for good in ["/v1/projects:list", "jobs:*", "/a*", "POST:/a", "/{{x:y}}"] {
        assert!(
            Rules::build([FlowRule::per_second(good, 1)]).is_ok(),
            "{good}"
        );
    }
}

#[test]
fn a_fraction_of_a_call_where_whole_ones_count_is_refused() {
    let whole = "0 or at least 1, as whole calls are counted: write 1 per";
    let (queue, burst) = ("let calls queue with `throttle`", "add a `burst` of 1");
    let half = |rule: Rule, field, value: &str, longer: &str, cure: &str| {
        let expected = (
            field,
            value.to_owned(),
            format!("{whole} {longer}, or {cure}"),
        );
        assert_eq!(problem(rule), expected);
    };
    let flow = FlowRule::per_second("r", 0.5);
    for rule in [
        flow.clone(),
        flow.clone().by_origin(),
        flow.clone().buckets(10).strict(),
        flow.clone().warm_up(SECOND),
        flow.clone().when("s"),
    ] {
        half(rule.into(), "threshold", "0.5", "2s", queue);
    }
    let rule = FlowRule::per("r", 0.25, SECOND * 60);
    half(rule.into(), "threshold", "0.25", "240s", queue);
    let value = HotParamRule::per_second("r", 0.5);
    half(value.clone().into(), "threshold", "0.5", "2s", burst);
    let window = "leave out `window` and add a `burst` of 1";
    half(
        value.clone().window().into(),
        "threshold",
        "0.5",
        "2s",
        window,
    );
    let values = HotParamRule::per_second("r", 5);
    let rule = values.clone().except("a", 0.1);
    half(rule.into(), "except", "0.1", "10s", burst);
    let rule = values.tier("free", 0.1);
    half(rule.into(), "tier", "0.1", "10s", burst);
    let resource = "give each resource a `FlowRule` with `throttle`";
    half(
        SystemRule::new().qps(0.5).into(),
        "qps",
        "0.5",
        "2s",
        resource,
    );
    // No interval is as long as that.
    let (_, _, allowed) = problem(FlowRule::per_second("r", f64::MIN_POSITIVE));
    assert!(
        allowed.ends_with("counted: let calls queue with `throttle`"),
        "{allowed}"
    );
    let good: [Rule; 7] = [
        flow.clone().throttle(SECOND).into(),
        FlowRule::per_second("r", 0).into(),
        FlowRule::per_second("r", 1.5).into(),
        value.clone().burst(1).into(),
        value.clone().throttle(SECOND).into(),
        HotParamRule::per_second("r", 0).except("a", 1).into(),
        SystemRule::new().qps(0).into(),
    ];
    assert!(Rules::build(good).is_ok());
}

#[test]
fn what_to_do_without_a_key_is_refused_where_there_is_none() {
    let allowed = "left out without `by_origin`: the rule has no key that may be missing";
    for (missing, name) in [(MissingKey::Skip, "skip"), (MissingKey::Refuse, "refuse")] {
        let rule = FlowRule::per_second("r", 1).missing(missing);
        let expected = ("missing", name.to_owned(), allowed.to_owned());
        for rule in [
            rule.clone(),
            rule.clone().for_origin("a"),
            rule.clone().for_origin("other"),
            rule.clone().in_context("a"),
            rule.clone().throttle(SECOND),
        ] {
            assert_eq!(problem(rule), expected);
        }
        assert!(Rules::build([rule.by_origin()]).is_ok());
        let values = HotParamRule::per_second("r", 1).missing(missing);
        assert!(Rules::build([values]).is_ok());
    }
}

#[test]
fn a_set_is_made_of_whatever_rules_are_at_hand() {
    let flow = || FlowRule::per_second("a", 1);
    let slots = || IsolationRule::new("a", 1);
    let breaker = || CircuitBreakerRule::error_ratio("a", 0.5);
    let expected = Rules::new().with(flow()).with(slots()).with(breaker());
    let mixed = || -> Vec<Rule> { vec![flow().into(), slots().into(), breaker().into()] };
    assert_eq!(Rules::from((flow(), slots(), breaker())), expected);
    assert_eq!(Rules::from(mixed()), expected);
    let array: [Rule; 3] = mixed().try_into().unwrap();
    assert_eq!(Rules::from(array), expected);
    assert_eq!(Rules::from((flow(),)), flow().into());
    assert_eq!(Rules::from(vec![flow(); 2]).len(), 2);
    assert!(Rules::from(Vec::<Rule>::new()).is_empty());
    // As many as a tuple may have, some in shadow mode.
    let twelve = Rules::from((
        flow(),
        slots(),
        breaker(),
        flow().shadow(),
        AdaptiveRule::new("a"),
        AuthorityRule::deny("a", ["x"]),
        SystemRule::new().qps(1),
        HotParamRule::per_second("a", 1),
        flow(),
        flow(),
        flow(),
        slots().shadow(),
    ));
    assert_eq!(
        (twelve.len(), twelve.iter().nth(3).unwrap().is_shadow()),
        (12, true)
    );
    // All problems of all of them, with their places.
    let bad = || {
        (
            FlowRule::per_second("a", -1),
            slots(),
            IsolationRule::new(" ", 1),
        )
    };
    let caught = std::panic::catch_unwind(|| Rules::from(bad())).unwrap_err();
    let text = caught.downcast_ref::<String>().unwrap();
    assert!(
        text.starts_with("rule 0 (flow \"a\"): threshold is -1, must be "),
        "{text}"
    );
    assert!(
        text.contains("; rule 2 (isolation \" \"): resource is \" \", must be "),
        "{text}"
    );
}

#[test]
fn a_minute_and_an_hour_have_constructors() {
    let of = |interval| FlowRule::per("a", 5, interval);
    assert_eq!(FlowRule::per_minute("a", 5), of(SECOND * 60));
    assert_eq!(FlowRule::per_hour("a", 5), of(SECOND * 3_600));
    let of = |interval| HotParamRule::per("a", 5, interval);
    assert_eq!(HotParamRule::per_minute("a", 5), of(SECOND * 60));
    assert_eq!(HotParamRule::per_hour("a", 5), of(SECOND * 3_600));
    let now = Tick::from_millis(1_000_000);
    for (limiter, token) in [
        (KeyedLimiter::per_minute(60), SECOND),
        (KeyedLimiter::per_hour(60), SECOND * 60),
    ] {
        let limiter = limiter.build(now).unwrap();
        assert!(limiter.try_acquire(now, "a", 60).is_ok());
        let full = limiter.try_acquire(now, "a", 1).unwrap_err();
        assert_eq!(full.room_at(), Some(now + token));
    }
}
