//! What a snapshot tells of single rules, as a value and as JSON.

use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};
use tower_sentinel::call::Param;
use tower_sentinel::clock::Tick;
use tower_sentinel::read::{BreakerState, BreakerView, NodeSnapshot, NodeView, Scope, Snapshot};
use tower_sentinel::stat::{Event, NodeBucket};
use tower_sentinel::{
    AdaptiveRule, AuthorityRule, BlockKind, BoxError, Builder, Call, CircuitBreakerRule,
    Criticality, FlowRule, IsolationRule, KeyedRule, ManualClock, MissingKey, Rule, Rules,
    Sentinel, SentinelLayer, SystemRule, Verdict,
};

use crate::support::{configured, enter, ms, ready, run};

fn engine(rules: impl Into<Rules>) -> Sentinel {
    configured(rules, |builder| builder).0
}

fn read(snapshot: &Snapshot) -> Value {
    serde_json::from_str(&snapshot.to_json()).unwrap()
}

/// The node of the resource `name`, and the same in JSON.
fn node(snapshot: &Snapshot, name: &str) -> (NodeSnapshot, Value) {
    let of_resource = |node: &NodeSnapshot| node.resource() == name;
    let place = snapshot.nodes().iter().position(of_resource).unwrap();
    let node = snapshot.nodes()[place].clone();
    assert_eq!(*node.scope(), Scope::Resource);
    (node, read(snapshot)["nodes"][place].clone())
}

fn breakers(snapshot: &Snapshot, name: &str) -> Vec<(String, BreakerState)> {
    let (node, _) = node(snapshot, name);
    let breakers = node.breakers().iter();
    breakers
        .map(|breaker| (breaker.rule().to_owned(), breaker.state()))
        .collect()
}

/// Ends a call as a failure.
fn fail(sentinel: &Sentinel, name: &str) {
    run(sentinel, Call::new(name)).fail();
}

fn three_failures(name: &str) -> CircuitBreakerRule {
    CircuitBreakerRule::error_count(name, 3).min_calls(1)
}

// === kinds of refusals ===

/// A rule of each kind, each for a resource of its own, or for the origin `told`.
fn one_of_each() -> Rules {
    Rules::new()
        .with(FlowRule::per_second("flow", 1).for_origin("told"))
        .with(IsolationRule::new("isolation", 0))
        .with(KeyedRule::per_second("keyed", 0).param("user"))
        .with(three_failures("circuit-breaker"))
        .with(AuthorityRule::deny("authority", ["told"]))
        .with(SystemRule::new().concurrency(2))
        .with(
            FlowRule::per_second("missing-key", 9)
                .by_origin()
                .missing(MissingKey::Refuse),
        )
        .with(FlowRule::per_second("no-timer", 1).throttle(ms(5_000)))
}

#[test]
fn a_refusal_says_in_words_what_is_the_matter() {
    let sentinel = configured(one_of_each(), |builder| builder).0;
    drop(run(&sentinel, Call::new("no-timer")));
    let told = |name| ready(sentinel.enter(Call::new(name).origin("told"))).unwrap_err();
    let no_key = ready(sentinel.enter(Call::new("missing-key"))).unwrap_err();
    assert_eq!(
        [
            told("isolation"),
            told("authority"),
            no_key,
            told("no-timer")
        ]
        .map(|it| it.to_string()),
        [
            "call to \"isolation\" refused by isolation rule \"isolation-1\"",
            "call to \"authority\" refused by authority rule \"authority-4\"",
            "call to \"missing-key\" refused for a missing key by rule \"flow-6\"",
            "call to \"no-timer\" refused: it has to wait, which needs tokio's timer",
        ]
    );
}

#[test]
fn refusals_are_counted_by_their_kind_in_every_node_and_stay_when_rules_go() {
    let (sentinel, clock) = configured(one_of_each(), |builder| builder);
    let user = [Param::new("user", "7")];
    let refused = |call: Call<'_>| match sentinel.try_enter(call) {
        Verdict::Block(blocked) => blocked.kind(),
        verdict => panic!("{verdict:?}"),
    };
    for _ in 0..3 {
        fail(&sentinel, "circuit-breaker");
    }
    drop(run(&sentinel, Call::new("flow").origin("told")));
    for (name, kind, times) in [
        ("flow", BlockKind::Flow, 1),
        ("isolation", BlockKind::Isolation, 2),
        ("keyed", BlockKind::Keyed, 3),
        ("circuit-breaker", BlockKind::CircuitBreaker, 4),
        ("authority", BlockKind::Authority, 5),
    ] {
        for _ in 0..times {
            assert_eq!(
                refused(Call::new(name).params(&user).origin("told").batch(3)),
                kind
            );
        }
    }
    assert_eq!(refused(Call::new("missing-key")), BlockKind::MissingKey);
    let running = [(); 2].map(|()| enter(&sentinel, Call::new("others")).unwrap());
    assert_eq!(refused(Call::new("others").batch(7)), BlockKind::System);
    drop(running);
    // Outside of tokio nothing can wait.
    drop(run(&sentinel, Call::new("no-timer")));
    let told = ready(sentinel.enter(Call::new("no-timer")));
    assert_eq!(told.unwrap_err().kind(), BlockKind::NoTimer);

    let expected = json!({
        "flow": 3, "isolation": 6, "keyed": 9, "circuit-breaker": 12, "authority": 15,
        "missing-key": 1, "system": 7, "no-timer": 1,
    });
    let check = || {
        clock.advance(ms(400));
        let snapshot = sentinel.snapshot();
        let totals = sentinel.inbound().totals();
        let by_kind: Value = totals
            .blocks()
            // No rule here is shared.
            .filter(|(kind, _)| *kind != BlockKind::Store)
            .map(|(kind, count)| (kind.to_string(), count))
            .collect();
        assert_eq!(by_kind, expected);
        assert_eq!(*snapshot.totals(), totals);
        for (kind, count) in totals.blocks() {
            let name = kind.to_string();
            assert_eq!(totals.block_by(kind), count);
            if ![BlockKind::System, BlockKind::Store].contains(&kind) {
                let (of_resource, written) = node(&snapshot, &name);
                assert_eq!(of_resource.totals().block_by(kind), count);
                assert_eq!(of_resource.totals().block(), count);
                assert_eq!(written["totals"]["block_by"][name], count);
            }
        }
        let mut of_origin = snapshot.nodes().iter().filter(|node| {
            node.resource() == "flow" && *node.scope() == Scope::Origin("told".into())
        });
        assert_eq!(
            of_origin.next().unwrap().totals().block_by(BlockKind::Flow),
            3
        );
    };
    check();
    assert!(sentinel.reload(Rules::new()));
    check();
}

// === rules ===

/// The ids of the rules, and what each has refused.
fn refused_by(sentinel: &Sentinel) -> Vec<(String, u64)> {
    let snapshot = sentinel.snapshot();
    let json = read(&snapshot);
    let rules = snapshot.rules().enumerate();
    let counts = rules.map(|(place, rule)| {
        let (written, rule_itself) = (&json["rules"][place], rule.settings());
        assert_eq!(written["rule"], rule.id());
        assert_eq!(written["kind"], rule_itself.kind());
        assert_eq!(written["resource"], rule_itself.resource());
        assert_eq!(written["is_shadow"], rule_itself.is_shadow());
        assert_eq!(written["limit"].as_f64(), rule_itself.limit());
        let interval = rule_itself.interval().map(|it| it.as_secs_f64() * 1e3);
        assert_eq!(written["interval"].as_f64(), interval);
        assert_eq!(written["blocked"], rule.blocked());
        (rule.id().to_owned(), rule.blocked())
    });
    counts.collect()
}

/// The same as it is expected.
fn counts<const N: usize>(counts: [(&str, u64); N]) -> Vec<(String, u64)> {
    counts.map(|(id, count)| (id.to_owned(), count)).into()
}

#[test]
fn each_kind_of_rule_counts_what_it_has_refused() {
    let (sentinel, _clock) = configured(one_of_each(), |builder| builder);
    let user = [Param::new("user", "7")];
    let refused = |call: Call<'_>| {
        assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
    };
    (0..3).for_each(|_| fail(&sentinel, "circuit-breaker"));
    drop(run(&sentinel, Call::new("flow").origin("told")));
    for (name, weight) in [
        ("flow", 2),
        ("isolation", 3),
        ("keyed", 4),
        ("circuit-breaker", 5),
        ("authority", 6),
    ] {
        refused(Call::new(name).params(&user).origin("told").batch(weight));
    }
    refused(Call::new("missing-key").batch(7));
    let running = [(); 2].map(|()| run(&sentinel, Call::new("others")));
    refused(Call::new("others").batch(8));
    drop(running);
    let counted = [
        ("flow-0", 2),
        ("isolation-1", 3),
        ("keyed-2", 4),
        ("circuit-breaker-3", 5),
        ("authority-4", 6),
        ("system-5", 8),
        ("flow-6", 7),
        ("flow-7", 0),
    ];
    assert_eq!(refused_by(&sentinel), counts(counted));
}

#[test]
fn a_rule_counts_on_through_reloads_by_its_id() {
    let rule = |id, limit| FlowRule::per_second("r", limit).id(id);
    let (sentinel, _clock) = configured(rule("a", 0), |builder| builder);
    let refused = |call: Call<'_>| {
        assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
    };
    let versions = || {
        let snapshot = sentinel.snapshot();
        let json = read(&snapshot);
        assert_eq!(json["rules_version"], snapshot.rules_version());
        let since = snapshot.rules_since().duration_since(std::time::UNIX_EPOCH);
        let since = since.unwrap().as_secs_f64() * 1e3;
        assert!((json["rules_since"].as_f64().unwrap() - since).abs() < 1.0);
        assert_eq!(snapshot.rules_since(), sentinel.rules_since());
        assert_eq!(snapshot.rules_version(), sentinel.rules_version());
        (snapshot.rules_version(), snapshot.rules_since())
    };
    let first = versions();
    refused(Call::new("r").batch(2));
    assert_eq!(versions(), first);
    // Another limit, another place and another kind.
    sentinel.reload((rule("b", 9), IsolationRule::new("r", 0).id("a")).into());
    refused(Call::new("r").batch(3));
    assert_eq!(refused_by(&sentinel), counts([("b", 0), ("a", 5)]));
    let second = versions();
    assert!(second.0 == first.0 + 1 && second.1 >= first.1);
    // In shadow mode it refuses nothing, and counts apart.
    sentinel.reload(Rule::from(rule("a", 0)).shadow().into());
    drop(run(&sentinel, Call::new("r").batch(4)));
    assert_eq!(refused_by(&sentinel), counts([("a", 5)]));
    assert_eq!(sentinel.snapshot().shadows().next().unwrap().1, 4);
    // One that comes back after a set without it begins anew, also where no rule names what
    // was called before and after.
    let busy = |id: &str| Rules::from(SystemRule::new().qps(0).id(id));
    let other = |id| {
        sentinel.reload(busy(id));
        refused(Call::new("s").batch(5));
    };
    other("c");
    assert_eq!(refused_by(&sentinel), counts([("c", 5)]));
    sentinel.reload(busy("d"));
    other("c");
    assert_eq!(refused_by(&sentinel), counts([("c", 5)]));
}

#[test]
fn limits_are_shown_for_every_kind_of_rule() {
    let second = Some(ms(1_000));
    let cases: [(Rule, Option<f64>, Option<Duration>); 11] = [
        (
            FlowRule::per("r", 0.5, ms(200)).into(),
            Some(0.5),
            Some(ms(200)),
        ),
        (KeyedRule::per_second("r", 7).into(), Some(7.0), second),
        (KeyedRule::concurrency("r", 7).into(), Some(7.0), None),
        (IsolationRule::new("r", 3).into(), Some(3.0), None),
        (AdaptiveRule::new("r").ceiling(64).into(), Some(64.0), None),
        (
            CircuitBreakerRule::error_ratio("r", 0.25).into(),
            Some(0.25),
            second,
        ),
        (
            CircuitBreakerRule::error_count("r", 9)
                .interval(ms(500))
                .into(),
            Some(9.0),
            Some(ms(500)),
        ),
        (
            CircuitBreakerRule::consecutive_errors("r", 4).into(),
            Some(4.0),
            None,
        ),
        (
            CircuitBreakerRule::error_ratio("r", 0.25)
                .last_calls(20)
                .into(),
            Some(0.25),
            None,
        ),
        (AuthorityRule::deny("r", ["a"]).into(), None, None),
        (SystemRule::new().qps(3).into(), None, None),
    ];
    for (rule, limit, interval) in cases {
        for rule in [rule.clone(), rule.shadow()] {
            assert_eq!(
                (rule.limit(), rule.interval()),
                (limit, interval),
                "{rule:?}"
            );
        }
    }
}

// === circuit breakers ===

#[test]
fn the_state_of_each_breaker_is_shown_in_the_order_of_the_rules() {
    use BreakerState::{Closed, HalfOpen, Open};
    let rules = Rules::new()
        .with(three_failures("pay").id("three"))
        .with(CircuitBreakerRule::error_count("pay", 9).id("nine"));
    let (sentinel, clock) = configured(rules, |builder| builder);
    let states = || {
        let snapshot = sentinel.snapshot();
        let (node, written) = node(&snapshot, "pay");
        let states: Vec<_> = node.breakers().iter().map(BreakerView::state).collect();
        let rows = node.breakers().iter().map(|it| {
            let retry_after = it.retry_after().map(|time| time.as_millis() as u64);
            let state = it.state().to_string();
            let time = |time: std::time::Duration| time.as_nanos() as f64 / 1e6;
            let whole = |time: f64| match time.fract() == 0.0 {
                true => json!(time as u64),
                false => json!(time),
            };
            json!({
                "rule": it.rule(),
                "state": state,
                "retry_after": retry_after,
                "in_state_for": whole(time(it.in_state_for())),
                "times_entered": {
                    "closed": it.times_entered(BreakerState::Closed),
                    "open": it.times_entered(BreakerState::Open),
                    "half-open": it.times_entered(BreakerState::HalfOpen),
                },
                "bad_calls": it.bad_calls(),
                "since_last_bad_call": it.since_last_bad_call().map(time).map(whole),
            })
        });
        assert_eq!(written["breakers"], rows.collect::<Value>());
        let views = sentinel.node("pay").unwrap().breakers();
        for (view, copy) in views.iter().zip(node.breakers()) {
            assert_eq!((view.rule(), view.state()), (copy.rule(), copy.state()));
            assert_eq!(view.retry_after(), copy.retry_after());
            assert_eq!(view.in_state_for(), copy.in_state_for());
            assert_eq!(view.bad_calls(), copy.bad_calls());
            for state in [Closed, Open, HalfOpen] {
                assert_eq!(view.times_entered(state), copy.times_entered(state));
            }
            assert_eq!(view.since_last_bad_call(), copy.since_last_bad_call());
        }
        assert_eq!(views.len(), states.len());
        states
    };
    drop(run(&sentinel, Call::new("pay")));
    assert_eq!(states(), [Closed, Closed]);
    let before = sentinel.snapshot();
    (0..3).for_each(|_| fail(&sentinel, "pay"));
    assert_eq!(states(), [Open, Closed]);
    clock.advance(ms(100));
    let first = |snapshot: &Snapshot| node(snapshot, "pay").0.breakers()[0].retry_after();
    assert_eq!(first(&sentinel.snapshot()), Some(ms(9_900)));
    clock.advance(ms(60_000));
    assert_eq!(states(), [Open, Closed], "until a call comes");
    let probe = run(&sentinel, Call::new("pay"));
    assert_eq!(states(), [HalfOpen, Closed]);
    drop(probe);
    assert_eq!(states(), [Closed, Closed]);
    sentinel.node("pay").unwrap().breakers()[1].force_open();
    assert_eq!(states(), [Closed, Open]);
    let (shown, _) = node(&sentinel.snapshot(), "pay");
    assert_eq!(
        [Closed, Open, HalfOpen].map(|it| shown.breakers()[0].times_entered(it)),
        [1, 1, 1]
    );
    assert_eq!(
        breakers(&before, "pay"),
        [("three".to_owned(), Closed), ("nine".to_owned(), Closed)],
        "a copy"
    );
}

#[test]
fn breakers_of_outbound_calls_are_shown_and_apart() {
    let sentinel = engine(three_failures("pay"));
    drop(run(&sentinel, Call::new("pay")));
    for _ in 0..3 {
        run(&sentinel, Call::new("pay").outbound()).fail();
    }
    let snapshot = sentinel.snapshot();
    let mut shown: Vec<_> = snapshot
        .nodes()
        .iter()
        .map(|node| (node.direction().to_string(), node.breakers()[0].state()))
        .collect();
    shown.sort_by_key(|(direction, _)| direction.clone());
    let [inbound, outbound] = ["inbound", "outbound"].map(str::to_owned);
    assert_eq!(
        shown,
        [
            (inbound, BreakerState::Closed),
            (outbound, BreakerState::Open)
        ]
    );
}

// === limits and values ===

#[test]
fn the_adaptive_limit_and_the_slots_in_use_are_shown() {
    let sentinel = engine(AdaptiveRule::new("r").burst(Duration::ZERO).start(3));
    let _running = [(); 2].map(|()| run(&sentinel, Call::new("r")));
    drop(run(&sentinel, Call::new("without")));
    let snapshot = sentinel.snapshot();
    let (found, written) = node(&snapshot, "r");
    assert_eq!((found.adaptive_limit(), found.slots_in_use()), (Some(3), 2));
    let view = sentinel.node("r").unwrap();
    assert_eq!(view.adaptive_limit(), Some(3));
    assert_eq!(view.slots_in_use(), 2);
    assert_eq!(written["adaptive_limit"], 3);
    assert_eq!(written["slots_in_use"], 2);
    let shedding = found.shedding().unwrap();
    assert_eq!(view.shedding(), Some(shedding));
    assert_eq!(shedding.bound(Criticality::Critical), 3);
    let critical = json!({"bound": 3, "admitted": 2, "blocked": 0});
    assert_eq!(written["shedding"]["critical"], critical);
    assert_eq!(written["shedding"]["shut"], json!([]));
    let (none, written) = node(&snapshot, "without");
    assert_eq!((none.adaptive_limit(), none.slots_in_use()), (None, 0));
    assert_eq!(written["adaptive_limit"], Value::Null);
    assert_eq!(written["shedding"], Value::Null);
    assert_eq!(none.shedding(), None);
    assert_eq!(written["slots_in_use"], 0);
    for list in ["breakers", "keyed_rules", "budgets"] {
        assert_eq!(written[list], json!([]));
    }
}

#[test]
fn budgets_are_shown_for_each_rule() {
    let rules = Rules::new()
        .with(FlowRule::per_minute("r", 100).cost("tokens").id("all"))
        .with(KeyedRule::per_minute("r", 50).cost("\"rows\"").id("each"));
    let sentinel = engine(rules);
    let call = Call::new("r").param("ann");
    run(&sentinel, call.reserve("tokens", 40)).settle("tokens", 30);
    let _running = run(&sentinel, call.reserve("tokens", 20));
    let snapshot = sentinel.snapshot();
    let (found, written) = node(&snapshot, "r");
    assert_eq!(found.budgets(), sentinel.node("r").unwrap().budgets());
    let all = json!({
        "rule": "all", "unit": "tokens", "is_by_key": false, "limit": 100,
        "used": 30, "reserved": 20, "left": 50, "charged_total": 30, "reserved_total": 60,
        "over_total": 0, "untold_total": 0, "cut_total": 0,
    });
    let each = json!({
        "rule": "each", "unit": "\"rows\"", "is_by_key": true, "limit": 50,
        "used": 0, "reserved": 0, "left": 50, "charged_total": 0, "reserved_total": 0,
        "over_total": 0, "untold_total": 1, "cut_total": 0,
    });
    assert_eq!(written["budgets"], json!([all, each]));
}

#[test]
fn overflows_and_calls_without_a_value_are_shown_for_each_rule() {
    let rules = Rules::new()
        .with(KeyedRule::per_second("r", 9).id("many"))
        .with(KeyedRule::per_second("r", 9).max_keys(1).id("one"))
        // It keeps such a table, too.
        .with(FlowRule::per_second("r", 9).by_origin().id("callers"));
    let sentinel = engine(Rules::build(rules).unwrap());
    for value in 0..500_u64 {
        drop(sentinel.try_enter(Call::new("r").param(value).origin("app")));
    }
    for _ in 0..2 {
        drop(sentinel.try_enter(Call::new("r").origin("app")));
    }
    let snapshot = sentinel.snapshot();
    let (node, written) = node(&snapshot, "r");
    let views = sentinel.node("r").unwrap().keyed_rules();
    assert_eq!(views.len(), 3);
    assert_eq!(node.keyed_rules().len(), 3);
    for (place, (copy, view)) in node.keyed_rules().iter().zip(&views).enumerate() {
        assert_eq!(copy.rule(), view.rule());
        assert_eq!(copy.overflows(), view.overflows());
        assert_eq!(copy.missing(), view.missing());
        assert_eq!(copy.blocks(), view.blocks());
        let expected = json!({
            "rule": copy.rule(),
            "overflows": copy.overflows(),
            "missing": copy.missing(),
            "resets": copy.resets(),
            "blocks": copy.blocks(),
            "waiting": copy.waiting(),
        });
        assert_eq!(written["keyed_rules"][place], expected);
    }
    let of = |rule: &str| {
        let mut all = node.keyed_rules().iter();
        all.find(|it| it.rule() == rule).unwrap()
    };
    assert_eq!(
        (of("many").overflows(), of("one").overflows() > 0),
        (0, true)
    );
    assert_eq!((of("many").missing(), of("callers").missing()), (2, 0));
}

#[test]
fn nodes_of_origins_and_contexts_have_no_rules() {
    let rules = Rules::new()
        .with(three_failures("r"))
        .with(AdaptiveRule::new("r"))
        .with(KeyedRule::per_second("r", 9));
    let (sentinel, _) = configured(rules, |builder| builder.origins(true).contexts(true));
    let _running = run(&sentinel, Call::new("r").origin("app").context("web"));
    let snapshot = sentinel.snapshot();
    let written = read(&snapshot);
    assert_eq!(snapshot.nodes().len(), 3);
    for (node, written) in snapshot
        .nodes()
        .iter()
        .zip(written["nodes"].as_array().unwrap())
    {
        let counts = [node.breakers().len(), node.keyed_rules().len()];
        let expected = usize::from(*node.scope() == Scope::Resource);
        assert_eq!(counts, [expected; 2]);
        assert_eq!(node.adaptive_limit().is_some(), expected == 1);
        assert_eq!(node.slots_in_use() as usize, expected);
        let lists = ["breakers", "keyed_rules"].map(|list| written[list].as_array().unwrap().len());
        assert_eq!(lists, [expected; 2]);
    }
}

// === rules in shadow mode ===

#[test]
fn what_each_shadow_rule_would_have_refused_is_shown() {
    let rules = Rules::new()
        .with(FlowRule::per_second("r", 9).id("in force"))
        .with(FlowRule::per_second("r", 2).id("tight").shadow())
        .with(Rule::from(three_failures("r").id("failing")).shadow());
    let sentinel = engine(rules);
    for _ in 0..5 {
        fail(&sentinel, "r");
    }
    let shown = |snapshot: &Snapshot| -> Vec<_> {
        let shadows = snapshot.shadows();
        shadows
            .map(|(rule, count)| (rule.to_owned(), count))
            .collect()
    };
    let snapshot = sentinel.snapshot();
    let expected = [("tight".to_owned(), 3), ("failing".to_owned(), 2)];
    assert_eq!(shown(&snapshot), expected);
    let written = json!([
        { "rule": "tight", "would_block": 3 },
        { "rule": "failing", "would_block": 2 },
    ]);
    assert_eq!(read(&snapshot)["shadows"], written);
    assert_eq!(snapshot.totals().block(), 0);
    // A breaker in shadow mode is none of the resource.
    assert_eq!(breakers(&snapshot, "r"), []);
    let own = sentinel.shadows()[1].snapshot();
    let open = ("failing".to_owned(), BreakerState::Open);
    assert_eq!(breakers(&own, "r"), [open]);
    assert_eq!(own.shadows().len(), 0);
    assert_eq!(read(&own)["shadows"], json!([]));
    // A copy.
    fail(&sentinel, "r");
    assert_eq!(shown(&snapshot), expected);
    assert_eq!(sentinel.snapshot().shadows().next().unwrap().1, 4);
}

#[test]
fn all_rules_in_shadow_mode_together_are_one_without_an_id() {
    let (sentinel, _) = configured(FlowRule::per_second("r", 1), |builder| builder.shadow(true));
    (0..3).for_each(|_| fail(&sentinel, "r"));
    let shadows = read(&sentinel.snapshot())["shadows"].clone();
    assert_eq!(shadows, json!([{ "rule": "", "would_block": 2 }]));
}

// === reloads ===

#[test]
fn after_a_reload_rules_in_force_are_shown_though_nobody_has_called() {
    let sentinel = engine(
        Rules::new()
            .with(three_failures("kept").id("same"))
            .with(three_failures("renamed").id("before"))
            .with(three_failures("lost").id("lost"))
            .with(FlowRule::per_second("lost", 99)),
    );
    for name in ["kept", "renamed", "lost", "new", "by default", "bare"] {
        (0..3).for_each(|_| fail(&sentinel, name));
    }
    let rules = Rules::new()
        .with(three_failures("kept").id("same"))
        .with(three_failures("renamed").id("after"))
        .with(FlowRule::per_second("lost", 99))
        .with(FlowRule::per_second("bare", 99))
        .with(KeyedRule::per_second("new", 9).id("values"))
        .with(AdaptiveRule::new("*"));
    sentinel.reload(rules);
    let snapshot = sentinel.snapshot();
    let open = |rule: &str| [(rule.to_owned(), BreakerState::Open)];
    assert_eq!(breakers(&snapshot, "kept"), open("same"));
    assert_eq!(breakers(&snapshot, "renamed"), open("after"));
    assert_eq!(breakers(&snapshot, "lost"), []);
    assert_eq!(node(&snapshot, "new").0.keyed_rules()[0].rule(), "values");
    assert!(node(&snapshot, "by default").0.adaptive_limit().is_some());
    for node in snapshot.nodes() {
        let (totals, name) = (node.totals(), node.resource());
        assert_eq!((totals.complete(), node.window().error()), (3, 3), "{name}");
    }
    assert_eq!(snapshot.totals().complete(), 18);
    // What is shown is what a call meets.
    for name in ["kept", "renamed"] {
        let told = sentinel.try_enter(Call::new(name));
        assert!(matches!(told, Verdict::Block(_)), "{name}");
    }
}

// === hostile texts ===

#[test]
fn an_id_neither_ends_a_script_nor_turns_the_line_around() {
    let hostile = |kind: &str| format!("{kind}</script>\"\\\u{202e}&\u{2028}'{{}}");
    let [breaker, values, shadow] = ["a", "b", "c"].map(hostile);
    let rules = Rules::new()
        .with(three_failures("r").id(&*breaker))
        .with(KeyedRule::per_second("r", 9).id(&*values))
        .with(FlowRule::per_second("r", 9).id(&*shadow).shadow());
    let sentinel = engine(rules);
    drop(run(&sentinel, Call::new("r")));
    let snapshot = sentinel.snapshot();
    let (_, written) = node(&snapshot, "r");
    assert_eq!(written["breakers"][0]["rule"], *breaker);
    assert_eq!(written["keyed_rules"][0]["rule"], *values);
    assert_eq!(read(&snapshot)["shadows"][0]["rule"], *shadow);
    let text = snapshot.to_json();
    for c in ['<', '>', '&', '\u{202e}', '\u{2028}'] {
        assert!(!text.contains(c), "{c:?} in {text}");
    }
}

#[test]
fn a_window_does_not_change_who_keeps_seconds() {
    let window = |builder: Builder| builder.window(ms(1_000), 4).unwrap();
    for (of_resources, of_origins) in [(false, false), (false, true), (true, false), (true, true)] {
        let keep = |builder: Builder| {
            let builder = builder.origins(true).minute(of_resources);
            builder.minute_of_origins(of_origins)
        };
        let engines = [
            configured(Rules::new(), |builder| window(keep(builder))),
            configured(Rules::new(), |builder| keep(window(builder))),
        ];
        for (sentinel, _clock) in engines {
            drop(sentinel.try_enter(Call::new("r").origin("shop")));
            let snapshot = sentinel.snapshot();
            let is_kept = |scope: &Scope| {
                let mut nodes = snapshot.nodes().iter();
                let node = nodes.find(|node| node.scope() == scope).unwrap();
                node.minute().is_some()
            };
            assert_eq!(is_kept(&Scope::Resource), of_resources);
            assert_eq!(is_kept(&Scope::Origin("shop".into())), of_origins);
        }
    }
}

#[test]
fn names_that_callers_can_make_up_keep_no_minute_unless_asked() {
    let rules = || {
        Rules::new()
            .with(FlowRule::per_second("named", 9))
            .with(FlowRule::per_second("*", 9))
            .with(FlowRule::per_second("shadow", 9).shadow())
    };
    let kept = |configure: fn(Builder) -> Builder| {
        let (sentinel, _clock) = configured(rules(), |builder| configure(builder).max_resources(2));
        let names = ["named", "made up", "another", "no place"];
        for name in names {
            drop(run(&sentinel, Call::new(name)));
        }
        let names = ["named", "made up", "__overflow__"];
        names.map(|name| sentinel.node(name).unwrap().seconds().is_some())
    };
    assert_eq!(kept(|builder| builder), [true, false, true]);
    assert_eq!(kept(|builder| builder.minute(true)), [true; 3]);
    assert_eq!(kept(|builder| builder.minute(false)), [false; 3]);
    // In shadow mode the rule has a node of its own.
    let (sentinel, _clock) = configured(rules(), |builder| builder);
    drop(run(&sentinel, Call::new("shadow")));
    let node = sentinel.shadows()[0].node("shadow").unwrap();
    assert!(node.seconds().is_some());
}

#[test]
fn only_names_that_callers_cannot_make_up_are_listed() {
    let rules = Rules::new()
        .with(FlowRule::per_second("named", 9))
        .with(FlowRule::per_second("*", 9))
        .with(FlowRule::per_second("relative", 9).when("related"))
        .with(FlowRule::per_second("shadow", 9).shadow());
    let (sentinel, _clock) = configured(rules, |builder| builder.max_resources(5).origins(true));
    let call = |name: &str| drop(run(&sentinel, Call::new(name).origin("named")));
    // The names of a layer's own are no caller's.
    let layer = SentinelLayer::with(sentinel.clone()).named("layer");
    let answer =
        |_: Request<()>| std::future::ready(Ok::<_, BoxError>(Response::new(Body::empty())));
    let answered = ready(layer.layer(service_fn(answer)).oneshot(Request::new(())));
    assert!(answered.is_ok());
    let names = [
        "named", "related", "shadow", "made up", "another", "no place",
    ];
    names.iter().for_each(|name| call(name));
    let listed = || {
        let snapshot = sentinel.snapshot();
        let json = read(&snapshot);
        let nodes = snapshot.nodes().iter().enumerate();
        let listed = nodes.filter(|(place, node)| {
            assert_eq!(json["nodes"][place]["is_listed"], node.is_listed());
            node.is_listed()
        });
        let names = listed.map(|(_, node)| {
            assert_eq!(*node.scope(), Scope::Resource);
            node.resource().to_owned()
        });
        names.collect::<Vec<_>>()
    };
    assert_eq!(
        listed(),
        ["__overflow__", "layer", "named", "related", "shadow"]
    );
    // One that a reload names is listed from then on, whatever becomes of the rule.
    sentinel.reload(FlowRule::per_second("made up", 9).into());
    assert_eq!(
        listed(),
        ["__overflow__", "layer", "made up", "named", "related"]
    );
    sentinel.reload(Rules::new());
    assert_eq!(
        listed(),
        ["__overflow__", "layer", "made up", "named", "related"]
    );
}

#[test]
fn a_resource_keeps_its_minute_from_the_reload_on_that_names_it() {
    let (sentinel, clock) = configured(Rules::new(), |builder| builder);
    let mut calls = 0;
    // One call in the first second, two in the next and so on.
    let mut second = || {
        calls += 1;
        (0..calls).for_each(|_| drop(run(&sentinel, Call::new("r"))));
        clock.advance(ms(1_000));
    };
    (0..3).for_each(|_| second());
    let node = || sentinel.node("r").unwrap();
    let minute = |view: NodeView| {
        let seconds = view.seconds()?;
        Some(seconds.iter().map(NodeBucket::pass).collect::<Vec<_>>())
    };
    assert_eq!(minute(node()), None);
    assert!(sentinel.reload(FlowRule::per_second("r", 1_000).into()));
    (0..4).for_each(|_| second());
    // The next second, and the present one, in which nothing was called.
    let known = minute(node()).unwrap();
    assert!(
        [vec![5, 6, 7, 0], vec![6, 7, 0]].contains(&known),
        "{known:?}"
    );
    // It goes on when the rule has gone.
    assert!(sentinel.reload(Rules::new()));
    (0..2).for_each(|_| second());
    let known = minute(node()).unwrap();
    assert!(known.ends_with(&[6, 7, 8, 9, 0]), "{known:?}");
    // In all, nothing is lost.
    assert_eq!(node().totals().pass(), (1..=9).sum::<u64>());
}

#[test]
fn borrowed_tokens_are_known_where_no_minute_is_kept() {
    let (sentinel, clock) = configured(FlowRule::per_second("*", 1), |builder| builder);
    let call = Call::new("made up").prioritized(true);
    drop(run(&sentinel, Call::new("made up")));
    clock.advance(ms(600));
    let Verdict::Wait(waiting) = sentinel.try_enter(call) else {
        panic!("the window has room in 400 ms");
    };
    clock.advance(ms(400));
    drop(waiting.admit().unwrap());
    let node = sentinel.node("made up").unwrap();
    assert_eq!((node.seconds(), node.sum(Event::Occupied)), (None, 1));
    assert_eq!(sentinel.inbound().qps(Event::Occupied), 1.0);
    clock.advance(ms(1_000));
    assert_eq!(node.sum(Event::Occupied), 0);
}

// === what is added up ===

#[test]
fn what_is_added_up_begins_with_its_first_part() {
    // The first bucket of a clock begins at 0, as an empty one of no bucket does.
    for beginning in [0, 60_000] {
        let clock = ManualClock::starting_at(Tick::from_millis(beginning + 600));
        let sentinel = Sentinel::builder()
            .clock(clock.clone())
            .minute(true)
            .build();
        drop(run(&sentinel, Call::new("job")));
        let (node, _) = node(&sentinel.snapshot(), "job");
        assert_eq!(node.window().start(), Tick::from_millis(beginning));

        clock.set(Tick::from_millis(beginning + 5_300));
        drop(run(&sentinel, Call::new("job")));
        let seconds = sentinel.node("job").unwrap().seconds().unwrap();
        let (node, _) = self::node(&sentinel.snapshot(), "job");
        assert_eq!(node.minute().unwrap().start(), seconds[0].start());
    }
}
