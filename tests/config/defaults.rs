//! Rules for `*`: every resource that has no rule of the same kind.

use std::time::Duration;

use axum::Router;
use axum::routing;
use tower::{Layer, ServiceExt};
use tower_sentinel::read::ShadowView;
use tower_sentinel::{
    AdaptiveRule, Call, CircuitBreakerRule, Entry, FlowRule, IsolationRule, ManualClock, Rule,
    Rules, Sentinel, SentinelLayer, Verdict, Waiting,
};

use crate::support::{Rng, configured, engine, get};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

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
        .with(AdaptiveRule::new("*").burst(Duration::ZERO).start(2))
        .with(AdaptiveRule::new("/a").burst(Duration::ZERO).start(5));
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
    let queue = |name: &str, limit: u32| {
        let queue = FlowRule::per_second(name, limit);
        Rules::from(queue.throttle(Duration::ZERO))
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

        // A queue.
        let (sentinel, clock) = engine(queue(first, 1));
        assert_eq!(passed(&sentinel, "/a"), 1);
        clock.advance(Duration::from_millis(499));
        sentinel.reload(queue(second, 2));
        assert_eq!(passed(&sentinel, "/a"), 0, "{first} {second}");
        clock.advance(Duration::from_millis(1));
        assert_eq!(passed(&sentinel, "/a"), 1, "{first} {second}");
    }
}

#[test]
fn one_in_shadow_mode_looks_at_what_it_would_be_for() {
    let rules = Rules::new()
        .with(FlowRule::per_second("*", 2).id("tight").shadow())
        .with(FlowRule::per_second("/own", 4))
        .with(IsolationRule::new("/other", 5));
    let (sentinel, _) = engine(rules);
    assert_eq!(passed(&sentinel, "/own"), 4);
    assert_eq!(passed(&sentinel, "/other"), 10);
    assert_eq!(passed(&sentinel, "/any"), 10);
    let shadows = sentinel.shadows();
    let [shadow] = &shadows[..] else { panic!() };
    assert_eq!((shadow.rule(), shadow.would_block()), ("tight", 16));

    // One in shadow mode takes nothing from a default in force.
    let rules = Rules::new()
        .with(FlowRule::per_second("*", 2))
        .with(FlowRule::per_second("/a", 1).shadow());
    let (sentinel, _) = engine(rules.clone());
    assert_eq!(passed(&sentinel, "/a"), 2);
    assert_eq!(sentinel.shadows()[0].would_block(), 1);

    // If all of them are in shadow mode, each counts for what it would be for.
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

// === against the same rules, written out ===

const NAMES: [&str; 4] = ["/a", "/b", "/c", "*"];
/// What the resource `*` is called where rules are written out.
const STAR: &str = "star";

/// A rule for one of the names, or for all of them.
#[derive(Clone, Copy, Debug)]
struct Spec {
    name: Option<usize>,
    kind: usize,
    seed: usize,
    is_shadow: bool,
}

impl Spec {
    fn new(rng: &mut Rng, may_be_shadow: bool) -> Self {
        let kind = rng.below(4);
        Self {
            name: (!rng.one_in(2)).then(|| rng.below(3)),
            kind,
            seed: rng.below(1_000),
            // Written out, two adaptive rules would be in shadow mode for one resource.
            is_shadow: may_be_shadow && kind != 3 && rng.one_in(3),
        }
    }

    /// Whether it is one of the name as well, beside `all`.
    fn is_for(&self, name: usize, all: &[Self]) -> bool {
        let stands_instead =
            |other: &Self| other.name == Some(name) && other.kind == self.kind && !other.is_shadow;
        match self.name {
            Some(own) => own == name,
            None => !all.iter().any(stands_instead),
        }
    }

    fn rule(&self, name: &str, id: String) -> Rule {
        let few = 1 + self.seed as u32 % 4;
        let rule = match self.kind {
            0 => {
                let interval = [SECOND, 3 * SECOND, 10 * MINUTE][self.seed / 4 % 3];
                let rule = FlowRule::per(name, 2 * few, interval).id(id);
                match self.seed / 12 % 5 {
                    0 => rule.throttle(SECOND / 2),
                    1 => rule.strict(),
                    2 => rule.warm_up(4 * SECOND),
                    3 => rule.buckets(10),
                    _ => rule,
                }
                .into()
            }
            1 => IsolationRule::new(name, few).id(id).into(),
            2 => {
                let rule = CircuitBreakerRule::error_count(name, few).min_calls(1);
                rule.open_for(SECOND / few).id(id).into()
            }
            _ => AdaptiveRule::new(name)
                .burst(Duration::ZERO)
                .start(few)
                .id(id)
                .into(),
        };
        if self.is_shadow {
            Rule::shadow(rule)
        } else {
            rule
        }
    }
}

/// A set in which no resource has two adaptive rules.
fn specs(rng: &mut Rng, may_be_shadow: bool) -> Vec<Spec> {
    let mut all = Vec::<Spec>::new();
    for _ in 0..=rng.below(6) {
        let new = Spec::new(rng, may_be_shadow);
        let is_twin = |it: &Spec| (it.kind, it.name) == (3, new.name) && new.kind == 3;
        if !all.iter().any(is_twin) {
            all.push(new);
        }
    }
    all
}

/// The set with its rules for `*`, and with these written out for each name.
fn both_ways(specs: &[Spec]) -> [Rules; 2] {
    let short = specs.iter().enumerate().map(|(place, spec)| {
        let name = spec.name.map_or("*", |name| NAMES[name]);
        spec.rule(name, place.to_string())
    });
    let long = specs.iter().enumerate().flat_map(|(place, spec)| {
        let names = (0..NAMES.len()).filter(|name| spec.is_for(*name, specs));
        let names = names.map(|name| NAMES[name]);
        names.map(move |name| {
            let name = if name == "*" { STAR } else { name };
            spec.rule(name, format!("{place} {name}"))
        })
    });
    [Rules::build(short).unwrap(), Rules::build(long).unwrap()]
}

/// What a caller sees, and which rule refuses.
fn answer(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Pass(_) => "passes".to_owned(),
        Verdict::Wait(waiting) => format!("waits {:?}", waiting.delay()),
        Verdict::Block(blocked) => {
            let rule = blocked.rule().split(' ').next().unwrap();
            format!("{rule} refuses, {:?}", blocked.retry_after())
        }
        other => panic!("{other:?}"),
    }
}

/// How many calls the rule at `place` would have refused.
fn would_block(sentinel: &Sentinel, place: usize) -> u64 {
    let place = place.to_string();
    let all = sentinel.shadows();
    let own = all
        .iter()
        .filter(|it| it.rule().split(' ').next() == Some(&*place));
    own.map(ShadowView::would_block).sum()
}

#[test]
fn calls_are_judged_as_by_the_same_rules_written_out_for_each_resource() {
    let mut rng = Rng::seeded();
    for round in 0..400 {
        // A rule in shadow mode starts afresh where it is written out anew.
        let may_be_shadow = rng.one_in(2);
        let mut set = specs(&mut rng, may_be_shadow);
        let [(short, clock), (long, other_clock)] = both_ways(&set).map(engine);
        let (mut running, mut waiting) = (Vec::new(), Vec::new());
        let mut history = vec![format!("{set:?}")];
        for _ in 0..120 {
            match rng.below(20) {
                0 if !may_be_shadow => {
                    if rng.one_in(2) {
                        set = specs(&mut rng, false);
                    } else if !set.is_empty() {
                        let place = rng.below(set.len());
                        set[place].seed = rng.below(1_000);
                    }
                    let [rules, written_out] = both_ways(&set);
                    short.reload(rules);
                    long.reload(written_out);
                    // What is asked for is made anew, what has lost a rule at once.
                    for name in NAMES {
                        let _ = (short.node(name), long.node(name));
                    }
                    let _ = long.node(STAR);
                    history.push(format!("{set:?}"));
                }
                0..5 => {
                    let time = SECOND / 100 * rng.below(70) as u32;
                    clock.advance(time);
                    other_clock.advance(time);
                    history.push(format!("{time:?}"));
                }
                5..8 if !running.is_empty() => {
                    let mut pair: [Entry; 2] = running.swap_remove(rng.below(running.len()));
                    if rng.one_in(2) {
                        pair.iter_mut().for_each(Entry::fail);
                    }
                }
                8 if !waiting.is_empty() => {
                    drop::<[Waiting; 2]>(waiting.swap_remove(rng.below(waiting.len())));
                }
                _ => {
                    let name = NAMES[rng.below(NAMES.len())];
                    let written_out = if name == "*" { STAR } else { name };
                    let is_prioritized = rng.one_in(3);
                    let weight = 1 + u32::from(rng.one_in(8));
                    let call = |name| {
                        let call = Call::new(name).prioritized(is_prioritized);
                        call.batch(weight)
                    };
                    let verdicts = (
                        short.try_enter(call(name)),
                        long.try_enter(call(written_out)),
                    );
                    let answers = [answer(&verdicts.0), answer(&verdicts.1)];
                    history.push(format!("{name} {}", answers[0]));
                    assert_eq!(answers[0], answers[1], "round {round}: {history:#?}");
                    match verdicts {
                        (Verdict::Pass(a), Verdict::Pass(b)) => running.push([a, b]),
                        (Verdict::Wait(a), Verdict::Wait(b)) => waiting.push([a, b]),
                        _ => {}
                    }
                }
            }
        }
        for place in 0..set.len() {
            let found = [&short, &long].map(|sentinel| would_block(sentinel, place));
            assert_eq!(
                found[0], found[1],
                "round {round}, rule {place}: {history:#?}"
            );
        }
    }
}
