//! What is asked of a quota beside its limit: plans without one.

use std::time::Duration;

use tower_sentinel::{Call, FlowRule, Key, KeyedRule, Rules};

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
