//! What is asked of a quota beside its limit: plans without one, and resets.

use std::time::Duration;

use tower_sentinel::{Call, FlowRule, Key, KeyedRule, Rules, Verdict};

use crate::support::bench::Bench;

const MINUTE: Duration = Duration::from_secs(60);

fn by(value: &str) -> Call<'_> {
    Call::new("r").param(value)
}

fn passed(bench: &Bench, n: usize, call: Call<'_>) -> usize {
    (0..n).filter(|_| bench.enter(call).is_ok()).count()
}

// === plans without a limit ===

/// A rule of each way to count.
fn each_way() -> [KeyedRule; 4] {
    [
        KeyedRule::per("r", 2, MINUTE),
        KeyedRule::per("r", 2, MINUTE).window(),
        KeyedRule::per("r", 2, MINUTE).throttle(Duration::ZERO),
        KeyedRule::concurrency("r", 2),
    ]
}

#[test]
fn a_plan_without_a_limit_is_not_counted() {
    for rule in each_way() {
        let rule = rule
            .tier("none", 0)
            .tier("plan", 1)
            .tier_unlimited("open")
            .except("one", 1)
            .except_unlimited("7")
            .except_unlimited("10.0.0.1");
        let bench = Bench::new(rule.clone());
        let address = Call::new("r").param(std::net::IpAddr::from([10, 0, 0, 1]));
        for call in [
            by("ann").tier("open"),
            Call::new("r").tier("open"),
            by("7"),
            Call::new("r").param(7_u64),
            by("7").tier("none"),
            address,
        ] {
            let entries: Vec<_> = (0..50).map_while(|_| bench.enter(call).ok()).collect();
            assert_eq!(entries.len(), 50, "{rule:?} {call:?}");
        }
        let node = bench.sentinel.node("r").unwrap();
        let view = &node.keyed_rules()[0];
        assert_eq!((view.values(), view.overflows()), (0, 0), "{rule:?}");
        assert_eq!(
            ["7", "8"].map(|value| view.is_unlimited(value)),
            [true, false]
        );
        assert_eq!(
            (view.left("7"), view.left("8") == u32::MAX),
            (u32::MAX, false)
        );
        let running: Vec<_> = (0..9)
            .map(|_| bench.enter(by("one").tier("open")))
            .collect();
        let one = running.iter().filter(|entry| entry.is_ok()).count();
        assert_eq!(one, 1, "an exception goes before a tier: {rule:?}");
        assert_eq!(passed(&bench, 9, by("ann").tier("none")), 0, "{rule:?}");
    }
}

#[test]
fn a_plan_without_a_limit_is_under_all_other_rules() {
    let rules = Rules::new()
        .with(KeyedRule::per("r", 2, MINUTE).tier_unlimited("open"))
        .with(FlowRule::per("r", 9, MINUTE));
    let bench = Bench::new(rules);
    assert_eq!(passed(&bench, 20, by("ann").tier("open")), 9);
}

#[test]
fn a_value_keeps_what_it_has_spent_while_its_plan_has_no_limit() {
    let bench = Bench::new(KeyedRule::per("r", 5, MINUTE).tier_unlimited("open"));
    assert_eq!(passed(&bench, 3, by("ann")), 3);
    assert_eq!(passed(&bench, 99, by("ann").tier("open")), 99);
    assert_eq!(passed(&bench, 9, by("ann")), 2);
}

#[test]
fn calls_without_a_limit_are_calls_with_a_key() {
    let bench = Bench::new(KeyedRule::per("r", 5, MINUTE).tier_unlimited("open"));
    assert_eq!(passed(&bench, 1, by("ann").tier("open")), 1);
    // Eight without one, which would be a mistake if no call had one.
    assert_eq!(passed(&bench, 8, Call::new("r")), 5);
    assert_eq!(bench.sentinel.findings().len(), 0);
    let view = &bench.sentinel.node("r").unwrap().keyed_rules()[0];
    assert_eq!((view.left(Key::MISSING), view.missing()), (0, 8));
}

// === resets ===

#[test]
fn a_value_that_is_reset_has_its_whole_quota_and_no_other_has() {
    let rules = [
        KeyedRule::per("r", 4, MINUTE).burst(2),
        KeyedRule::per("r", 6, MINUTE).window(),
        KeyedRule::per("r", 6, MINUTE).throttle(MINUTE),
    ];
    for rule in rules {
        let is_queue = rule.get_throttle().is_some();
        let bench = Bench::new(rule.clone());
        let spend = |value| {
            let waiting: Vec<_> = (0..9)
                .map(|_| bench.sentinel.try_enter(by(value)))
                .collect();
            let is_refused = |verdict: &Verdict| matches!(verdict, Verdict::Block(_));
            (
                waiting
                    .iter()
                    .filter(|verdict| !is_refused(verdict))
                    .count(),
                waiting,
            )
        };
        let whole = if is_queue { 7 } else { 6 };
        let [_ann, _bob] = ["ann", "bob"].map(|value| {
            let (passed, waiting) = spend(value);
            assert_eq!(passed, whole, "{rule:?}");
            waiting
        });
        let view = &bench.sentinel.node("r").unwrap().keyed_rules()[0];
        assert_eq!(
            ["ann", "bob"].map(|value| view.left(value)),
            [0, 0],
            "{rule:?}"
        );
        let reset = ["ann", "ann", "eve"].map(|value| view.reset(value));
        assert_eq!(
            (reset, view.resets()),
            ([true, false, false], 1),
            "{rule:?}"
        );
        assert_eq!(
            ["ann", "bob"].map(|value| view.left(value)),
            [whole as u32, 0]
        );
        assert_eq!(spend("ann").0, whole, "{rule:?}");
        // Over a reload of limits the count stays with the table.
        let reloaded = bench.sentinel.reload(rule.clone().tier("x", 1).into());
        let view = &bench.sentinel.node("r").unwrap().keyed_rules()[0];
        assert_eq!((reloaded, view.resets()), (true, 1));
    }
}

#[test]
fn calls_that_run_keep_their_places_over_a_reset() {
    let bench = Bench::new(KeyedRule::concurrency("r", 2));
    let running = [0, 1].map(|_| bench.enter(by("ann")).unwrap());
    let view = &bench.sentinel.node("r").unwrap().keyed_rules()[0];
    assert!(!view.reset("ann"));
    assert_eq!((view.left("ann"), view.resets()), (0, 0));
    drop(running);
    assert_eq!(view.left("ann"), 2);
}

#[test]
fn values_that_share_a_quota_are_not_reset() {
    let bench = Bench::new(KeyedRule::per("r", 1, MINUTE).max_keys(1));
    for value in 0..20_u64 {
        let _ = bench.enter(Call::new("r").param(value));
    }
    let view = &bench.sentinel.node("r").unwrap().keyed_rules()[0];
    let reset = (0..20_u64).filter(|&value| view.reset(value)).count();
    // A table has at least eight places.
    assert!((8..16).contains(&reset), "{reset}");
    assert_eq!((view.left(19_u64), view.resets()), (0, reset as u64));
}

#[test]
fn a_call_from_before_a_reset_is_refunded_once() {
    let rules = Rules::new()
        .with(KeyedRule::per("r", 5, MINUTE))
        .with(FlowRule::per("r", 1, Duration::from_secs(1)));
    let bench = Bench::new(rules);
    drop(bench.at(700).enter(by("x")).unwrap());
    let Verdict::Wait(waiting) = bench
        .at(1_200)
        .sentinel
        .try_enter(by("x").prioritized(true))
    else {
        panic!("the second opens at 1500");
    };
    let view = &bench.sentinel.node("r").unwrap().keyed_rules()[0];
    assert_eq!(
        (view.left("x"), view.reset("x"), view.left("x")),
        (3, true, 5)
    );
    drop(waiting);
    assert_eq!(view.left("x"), 5);
}
