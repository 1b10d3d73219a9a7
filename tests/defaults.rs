//! Rules for `*`: every resource that has no rule of the same kind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use axum::Router;
use axum::routing;
use tower::{Layer, ServiceExt};
use tower_sentinel::{
    AdaptiveRule, Call, CircuitBreakerRule, Entry, FlowRule, IsolationRule, ManualClock, Rules,
    Sentinel, SentinelLayer, ShadowView, Verdict,
};

use support::{configured, get};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn engine(rules: impl Into<Rules>) -> (Sentinel, ManualClock) {
    configured(rules, |builder| builder)
}

fn enter(sentinel: &Sentinel, resource: &str) -> Option<Entry> {
    match sentinel.try_enter(Call::new(resource)) {
        Verdict::Pass(entry) => Some(entry),
        _ => None,
    }
}

/// How many of ten calls pass, one after the other.
fn passed(sentinel: &Sentinel, resource: &str) -> usize {
    let passed = (0..10).filter_map(|_| enter(sentinel, resource));
    passed.map(drop).count()
}

/// How many of ten calls pass at once.
fn at_once(sentinel: &Sentinel, resource: &str) -> usize {
    let running: Vec<_> = (0..10).filter_map(|_| enter(sentinel, resource)).collect();
    running.len()
}

#[test]
fn each_resource_has_a_quota_of_its_own() {
    let (sentinel, clock) = engine(FlowRule::per_second("*", 3).id("default"));
    for resource in ["/a", "/b", "/c"] {
        assert_eq!(passed(&sentinel, resource), 3);
        let Verdict::Block(blocked) = sentinel.try_enter(Call::new(resource)) else {
            panic!("its quota is gone");
        };
        assert_eq!(
            (blocked.rule(), blocked.resource(), blocked.limit()),
            ("default", resource, Some(3))
        );
    }
    clock.advance(SECOND);
    assert_eq!(passed(&sentinel, "/a"), 3);
    // Outbound calls of that name are another resource.
    assert!(matches!(
        sentinel.try_enter(Call::new("/a").outbound()),
        Verdict::Pass(_)
    ));
}

#[test]
fn a_rule_of_its_own_stands_instead_of_all_defaults_of_its_kind() {
    let rules = Rules::new()
        .with(FlowRule::per_second("*", 3))
        .with(FlowRule::per("*", 4, MINUTE))
        .with(IsolationRule::new("*", 2))
        .with(FlowRule::per_second("/more", 8))
        .with(IsolationRule::new("/wider", 5))
        // Another kind, and one that looks elsewhere.
        .with(FlowRule::per_second("/named", 0).for_origin("robot"))
        .with(FlowRule::per_second("/reads", 100).when("/writes"));
    let (sentinel, clock) = engine(rules);
    assert_eq!(passed(&sentinel, "/any"), 3);
    assert_eq!(passed(&sentinel, "/more"), 8);
    assert_eq!(
        passed(&sentinel, "/named"),
        10,
        "it has a rule, for one caller"
    );
    assert_eq!(passed(&sentinel, "/reads"), 10);
    assert_eq!(passed(&sentinel, "/writes"), 3, "only others look at it");
    clock.advance(SECOND);
    assert_eq!(passed(&sentinel, "/any"), 1, "four in a minute");
    assert_eq!(at_once(&sentinel, "/more"), 2);
    assert_eq!(at_once(&sentinel, "/wider"), 3);
    assert_eq!(passed(&sentinel, "/wider"), 0);
}

#[test]
fn a_resource_of_that_very_name_is_one_of_all() {
    let breaker = CircuitBreakerRule::error_count("*", 1).min_calls(1);
    let rules = Rules::new()
        .with(FlowRule::per_second("*", 3))
        .with(FlowRule::per_second("*", 2).shadow())
        .with(IsolationRule::new("*", 2))
        .with(breaker);
    let (sentinel, _) = engine(rules);
    assert_eq!(at_once(&sentinel, "*"), 2);
    assert_eq!(passed(&sentinel, "*"), 1);
    assert_eq!(sentinel.shadows()[0].would_block(), 1);
    enter(&sentinel, "/a").unwrap().fail();
    assert_eq!(passed(&sentinel, "/a"), 0);
    assert_eq!(passed(&sentinel, "/b"), 3);
    assert_eq!(sentinel.snapshot().nodes().len(), 3);
}

#[test]
fn limits_of_calls_at_once_have_their_own_slots() {
    let (sentinel, _) = engine(IsolationRule::new("*", 2));
    let running = [
        enter(&sentinel, "/a").unwrap(),
        enter(&sentinel, "/a").unwrap(),
    ];
    assert_eq!(at_once(&sentinel, "/a"), 0);
    assert_eq!(at_once(&sentinel, "/b"), 2);
    drop(running);
    assert_eq!(at_once(&sentinel, "/a"), 2);

    let rules = Rules::new()
        .with(AdaptiveRule::new("*").start(2))
        .with(AdaptiveRule::new("/a").start(5));
    let (sentinel, _) = engine(rules);
    assert_eq!(at_once(&sentinel, "/a"), 5);
    assert_eq!(at_once(&sentinel, "/b"), 2);
    assert_eq!(at_once(&sentinel, "/c"), 2);
}

#[test]
fn a_reload_brings_takes_and_keeps_them() {
    let default = || Rules::from(FlowRule::per_second("*", 3));
    let (sentinel, clock) = engine(Rules::new());
    assert_eq!(passed(&sentinel, "/a"), 10);
    sentinel.reload(default());
    clock.advance(SECOND);
    assert_eq!((passed(&sentinel, "/a"), passed(&sentinel, "/b")), (3, 3));
    // What was counted stays, beside other rules and for one of its own.
    sentinel.reload(default().with(IsolationRule::new("/a", 9)));
    assert_eq!((passed(&sentinel, "/a"), passed(&sentinel, "/b")), (0, 0));
    sentinel.reload(default().with(FlowRule::per_second("/a", 5)));
    assert_eq!((passed(&sentinel, "/a"), passed(&sentinel, "/b")), (2, 0));
    clock.advance(SECOND);
    sentinel.reload(default());
    assert_eq!((passed(&sentinel, "/a"), passed(&sentinel, "/b")), (3, 3));
    sentinel.reload(Rules::new());
    assert_eq!((passed(&sentinel, "/a"), passed(&sentinel, "/b")), (10, 10));
}

#[test]
fn a_rule_of_its_own_goes_on_from_a_default_one_and_back() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let named = |name: &str, limit: u32| Rules::from(FlowRule::per(name, limit, MINUTE));
    let line = |name: &str, limit: u32| {
        let line = FlowRule::per_second(name, limit);
        Rules::from(line.throttle(Duration::ZERO))
    };
    let days = |name: &str, limit: u32| {
        let day = FlowRule::per(name, limit, 24 * HOUR);
        let hour = FlowRule::per(name, 100, HOUR);
        Rules::build(if limit % 2 == 0 {
            [day, hour]
        } else {
            [hour, day]
        })
        .unwrap()
    };
    for [first, second] in [["*", "/a"], ["/a", "*"]] {
        // A window that shares the ring of the figures.
        let (sentinel, _) = engine(named(first, 3));
        assert_eq!(passed(&sentinel, "/a"), 3);
        sentinel.reload(named(second, 4));
        assert_eq!(passed(&sentinel, "/a"), 1, "{first} {second}");

        // Two with rings of their own, in another order.
        let (sentinel, clock) = engine(days(first, 3));
        assert_eq!(passed(&sentinel, "/a"), 3);
        clock.advance(3 * HOUR);
        sentinel.reload(days(second, 4));
        assert_eq!(passed(&sentinel, "/a"), 1, "{first} {second}");

        // A line.
        let (sentinel, clock) = engine(line(first, 1));
        assert_eq!(passed(&sentinel, "/a"), 1);
        clock.advance(Duration::from_millis(499));
        sentinel.reload(line(second, 2));
        assert_eq!(passed(&sentinel, "/a"), 0, "{first} {second}");
        clock.advance(Duration::from_millis(1));
        assert_eq!(passed(&sentinel, "/a"), 1, "{first} {second}");
    }
}

#[test]
fn one_that_only_watches_looks_at_what_it_would_be_for() {
    let rules = Rules::new()
        .with(FlowRule::per_second("*", 2).id("watches").shadow())
        .with(FlowRule::per_second("/own", 4))
        .with(IsolationRule::new("/other", 5));
    let (sentinel, _) = engine(rules);
    assert_eq!(passed(&sentinel, "/own"), 4);
    assert_eq!(passed(&sentinel, "/other"), 10);
    assert_eq!(passed(&sentinel, "/any"), 10);
    let shadows = sentinel.shadows();
    let [shadow] = &shadows[..] else { panic!() };
    assert_eq!((shadow.rule(), shadow.would_block()), ("watches", 16));

    // One that only watches takes nothing from a default in force.
    let rules = Rules::new()
        .with(FlowRule::per_second("*", 2))
        .with(FlowRule::per_second("/a", 1).shadow());
    let (sentinel, _) = engine(rules.clone());
    assert_eq!(passed(&sentinel, "/a"), 2);
    assert_eq!(sentinel.shadows()[0].would_block(), 1);

    // If all of them watch, they do so as they would be in force.
    let (sentinel, _) = configured(rules, |builder| builder.shadow(true));
    assert_eq!((passed(&sentinel, "/a"), passed(&sentinel, "/b")), (10, 10));
    let would_block: u64 = sentinel.shadows().iter().map(ShadowView::would_block).sum();
    assert_eq!(would_block, 9 + 8);
}

#[test]
fn those_without_a_place_share_one_quota() {
    let (sentinel, _) = configured(FlowRule::per_second("*", 3), |builder| {
        builder.max_resources(2)
    });
    assert_eq!((passed(&sentinel, "/a"), passed(&sentinel, "/b")), (3, 3));
    assert_eq!((passed(&sentinel, "/c"), passed(&sentinel, "/d")), (3, 0));
    assert!(sentinel.snapshot().overflowed() > 0);
}

#[test]
fn a_used_up_quota_does_not_begin_anew_because_others_want_the_place() {
    let hour = FlowRule::per("*", 3, 60 * MINUTE);
    let (sentinel, clock) = configured(hour, |builder| builder.max_resources(2).idle_after(SECOND));
    assert_eq!(passed(&sentinel, "/a"), 3);
    for minute in 0..58 {
        clock.advance(MINUTE);
        drop(enter(&sentinel, &format!("/{minute}")));
    }
    assert_eq!(passed(&sentinel, "/a"), 0);
    for _ in 0..62 {
        clock.advance(MINUTE);
    }
    drop(enter(&sentinel, "/x"));
    drop(enter(&sentinel, "/y"));
    assert!(sentinel.node("/a").is_none(), "its time is over");
}

#[test]
fn defaults_of_several_kinds_stand_beside_each_other() {
    let rules = Rules::new().with(FlowRule::per_second("*", 3)).with(
        CircuitBreakerRule::error_count("*", 1)
            .min_calls(1)
            .id("breaker"),
    );
    let (sentinel, _) = engine(rules);
    enter(&sentinel, "/a").unwrap().fail();
    let Verdict::Block(blocked) = sentinel.try_enter(Call::new("/a")) else {
        panic!("one failure opens it");
    };
    assert_eq!(blocked.rule(), "breaker");
    assert_eq!(passed(&sentinel, "/b"), 3);
}

#[test]
fn there_are_so_many_of_them() {
    let rules = |n| (1..=n).map(|n| FlowRule::per_second("*", n));
    let (sentinel, _) = engine(Rules::build(rules(32)).unwrap());
    assert_eq!(passed(&sentinel, "/a"), 1);
    let error = Rules::build(rules(33)).unwrap_err();
    let told = "rule 32 (flow \"*\"): resource is \"*\", must be that of at most 32 flow and isolation rules";
    assert_eq!(error.to_string(), told);
}

#[tokio::test]
async fn a_router_has_a_limit_for_each_of_its_routes() {
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("*", 2))
        .clock(ManualClock::new())
        .build();
    let app = Router::new()
        .route("/users/{id}", routing::get(|| async { "hello" }))
        .route("/orders", routing::get(|| async { "none" }))
        .layer(SentinelLayer::with(sentinel));
    for (path, status) in [
        ("/users/1", 200),
        ("/users/2", 200),
        ("/users/3", 429),
        ("/orders", 200),
    ] {
        let response = app.clone().oneshot(get(path)).await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
}

#[tokio::test]
async fn the_template_of_any_rule_makes_one_resource_of_its_paths() {
    let default = || Rules::from(FlowRule::per_second("*", 1));
    let named = || IsolationRule::new("/users/{id}", 9);
    let sets = [
        (default(), 404),
        (default().with(named()), 429),
        (default().with(named().shadow()), 429),
    ];
    for (rules, second) in sets {
        let sentinel = Sentinel::builder()
            .rules(rules)
            .clock(ManualClock::new())
            .build();
        // Around the router, where axum has matched nothing yet.
        let app = SentinelLayer::with(sentinel).layer(Router::<()>::new());
        for (path, status) in [("/users/1", 404), ("/users/2", second)] {
            let response = app.clone().oneshot(get(path)).await.unwrap();
            assert_eq!(response.status(), status, "{path}");
        }
    }
}
