//! What a provider has left, told by a meter.

use std::time::Duration;

use tower_sentinel::{Call, Entry, FlowRule, KeyedRule, Meter, MissingKey, Rules, Sentinel};

use crate::support::{configured, engine, enter, ms, run};

const MINUTE: Duration = Duration::from_secs(60);

const SOON: Duration = Duration::from_secs(20);

/// A limit of 100 tokens a minute.
fn tokens() -> FlowRule {
    FlowRule::per_minute("provider", 100).cost("tokens")
}

fn ask(most: u32) -> Call<'static> {
    Call::new("provider").reserve("tokens", most)
}

/// The most that a call may reserve.
fn room(sentinel: &Sentinel) -> u32 {
    let most = (1..=1_000).take_while(|&most| enter(sentinel, ask(most)).is_ok_and(free));
    most.last().unwrap_or(0)
}

/// Ends a call that costs nothing.
fn free(mut entry: Entry) -> bool {
    entry.settle("tokens", 0);
    true
}

#[test]
fn a_number_of_a_provider_limits_all_calls_until_its_reset() {
    let (sentinel, clock) = engine(tokens());
    let mut first = run(&sentinel, ask(40));
    let meter = first.meter();
    first.settle("tokens", 10);
    drop(first);
    // After its call as well.
    meter.left("tokens", 30, SOON);
    assert_eq!(room(&sentinel), 30);
    let budget = sentinel.node("provider").unwrap().budgets().remove(0);
    assert_eq!(
        (budget.used(), budget.left(), budget.limit()),
        (10, 30, 100)
    );
    let refused = |most| enter(&sentinel, ask(most)).unwrap_err().retry_after();
    assert_eq!(refused(31), Some(SOON));
    // The window has less.
    assert_eq!(refused(91), Some(MINUTE));
    let mut second = run(&sentinel, ask(30));
    assert_eq!(refused(1), Some(ms(1_000)));
    assert!(second.charge("tokens", 29) && !second.charge("tokens", 1));
    clock.advance(SOON - ms(1));
    assert_eq!(refused(1), Some(ms(1)));
    clock.advance(ms(1));
    assert_eq!(room(&sentinel), 60);
}

#[test]
fn a_number_that_is_not_known_or_not_counted_says_nothing() {
    let rules = Rules::new()
        .with(tokens())
        .with(
            KeyedRule::per_minute("provider", 50)
                .cost("tokens")
                .missing(MissingKey::Skip),
        )
        .with(FlowRule::per_minute("provider", 1_000));
    let (sentinel, _clock) = engine(rules);
    let entry = run(&sentinel, ask(0).param("ann"));
    let meter = entry.meter();
    for (left, reset) in [
        (-1, MINUTE),
        (i64::MIN, MINUTE),
        (0, Duration::ZERO),
        (i64::MAX, MINUTE),
    ] {
        meter.left("tokens", left, reset);
        Meter::default().left("tokens", left, reset);
    }
    assert_eq!(room(&sentinel), 100);
    meter.left("token", 0, MINUTE);
    assert_eq!(room(&sentinel), 100);
    // The budget of a value stays as it is.
    meter.left("tokens", 60, MINUTE);
    drop(meter);
    free(entry);
    assert_eq!(room(&sentinel), 60);
    assert!(enter(&sentinel, ask(50).param("ann")).is_ok_and(free));
    assert!(enter(&sentinel, ask(51).param("ann")).is_err());
}

#[test]
fn each_rule_on_the_unit_takes_notice_and_so_does_one_that_takes_over() {
    let hour = FlowRule::per_hour("provider", 10_000)
        .cost("tokens")
        .id("hour");
    let (sentinel, clock) = engine(Rules::from(tokens()).with(hour.clone()));
    let entry = run(&sentinel, ask(0));
    entry.meter().left("tokens", 70, MINUTE * 2);
    free(entry);
    sentinel.reload(tokens().buckets(6).strict().into());
    assert_eq!(room(&sentinel), 70);
    sentinel.reload(Rules::new().with(hour));
    run(&sentinel, ask(0)).settle("tokens", 20);
    assert_eq!(room(&sentinel), 50);
    clock.advance(MINUTE * 2);
    assert_eq!(room(&sentinel), 1_000);
}

#[test]
fn a_rule_in_shadow_mode_hears_what_a_provider_has_left() {
    let shadow = FlowRule::per_minute("provider", 1_000)
        .cost("tokens")
        .shadow();
    let (sentinel, _clock) = engine(shadow);
    let entry = run(&sentinel, ask(0));
    entry.meter().left("tokens", 5, MINUTE);
    free(entry);
    for (most, blocked) in [(5, 0), (6, 1)] {
        assert!(enter(&sentinel, ask(most)).is_ok_and(free));
        assert_eq!(sentinel.shadows()[0].would_block(), blocked);
    }
}

#[test]
fn a_resource_is_kept_until_the_reset() {
    let rule = FlowRule::per_second("*", 100).cost("tokens");
    let (sentinel, clock) = configured(rule, |builder| {
        builder.idle_after(ms(1_000)).max_resources(2)
    });
    let entry = run(&sentinel, ask(0));
    entry.meter().left("tokens", 0, MINUTE);
    free(entry);
    let others_come = |names: [&str; 3]| {
        for name in names {
            run(&sentinel, Call::new(name)).settle("tokens", 1);
        }
    };
    clock.advance(MINUTE - ms(1));
    others_come(["a", "b", "c"]);
    assert!(enter(&sentinel, ask(0)).is_err());
    clock.advance(ms(10_000));
    others_come(["d", "e", "f"]);
    assert!(sentinel.node("provider").is_none());
}
