//! Rules that look at other resources, and rules for single contexts.

use std::time::Duration;

use tower_sentinel::clock::Tick;
use tower_sentinel::stat::Event;
use tower_sentinel::{BlockKind, Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};

use crate::support::{engine, enter};

const SECOND: Duration = Duration::from_secs(1);

fn passed(sentinel: &Sentinel, call: Call<'_>, times: usize) -> usize {
    (0..times).filter(|_| enter(sentinel, call).is_ok()).count()
}

// === related resources ===

#[test]
fn reads_yield_to_writes() {
    let (sentinel, clock) = engine(FlowRule::per_second("read", 3).when("write"));
    let (read, write) = (Call::new("read"), Call::new("write"));
    // Nobody has written: reads are free, and do not count themselves.
    assert_eq!(passed(&sentinel, read, 100), 100);
    assert_eq!(passed(&sentinel, write, 2), 2);
    assert_eq!(passed(&sentinel, read, 100), 100);
    // Two and two are more than three; one is not.
    assert!(enter(&sentinel, read.batch(2)).is_err());
    // Writes are not limited.
    assert_eq!(passed(&sentinel, write, 50), 50);
    clock.advance(Duration::from_millis(700));
    let blocked = enter(&sentinel, read).unwrap_err();
    assert_eq!(blocked.kind(), BlockKind::Flow);
    assert_eq!((blocked.resource(), blocked.limit()), ("read", Some(3)));
    assert_eq!(blocked.retry_after(), Some(Duration::from_millis(300)));
    clock.advance(Duration::from_millis(300));
    assert_eq!(passed(&sentinel, read, 100), 100);
    assert_eq!(sentinel.node("write").unwrap().totals().block(), 0);
}

#[test]
fn a_related_window_may_be_longer_than_the_figures() {
    let minute = 60 * SECOND;
    let (sentinel, clock) = engine(FlowRule::per("read", 1, minute).when("write"));
    assert!(enter(&sentinel, Call::new("write")).is_ok());
    for _ in 0..2 {
        assert!(enter(&sentinel, Call::new("read")).is_err());
        clock.advance(19 * SECOND);
    }
    clock.advance(32 * SECOND);
    assert!(enter(&sentinel, Call::new("read")).is_ok());
}

#[test]
fn outbound_writes_are_not_those_that_inbound_reads_yield_to() {
    let (sentinel, _) = engine(FlowRule::per_second("read", 1).when("write"));
    assert_eq!(passed(&sentinel, Call::new("write").outbound(), 5), 5);
    assert!(enter(&sentinel, Call::new("read")).is_ok());
    assert!(enter(&sentinel, Call::new("read").outbound()).is_err());
}

#[test]
fn a_reload_of_either_side_is_seen_at_once() {
    let (sentinel, _) = engine(FlowRule::per_second("read", 1).when("write"));
    assert_eq!(passed(&sentinel, Call::new("write"), 1), 1);
    assert!(enter(&sentinel, Call::new("read")).is_err());
    // The rules of the other resource change; nobody calls it.
    let both = Rules::new()
        .with(FlowRule::per_second("write", 9))
        .with(FlowRule::per_second("read", 2).when("write"));
    assert!(sentinel.reload(both));
    assert!(enter(&sentinel, Call::new("read")).is_ok());
    assert!(enter(&sentinel, Call::new("read").batch(2)).is_err());
    assert!(sentinel.reload(Rules::new()));
    assert_eq!(passed(&sentinel, Call::new("read"), 9), 9);
}

#[test]
fn two_resources_may_look_at_each_other_and_at_themselves() {
    let rules = Rules::new()
        .with(FlowRule::per_second("a", 1).when("b"))
        .with(FlowRule::per_second("b", 1).when("a"))
        .with(FlowRule::per_second("c", 2).when("c"));
    let (sentinel, _) = engine(rules);
    assert!(enter(&sentinel, Call::new("a")).is_ok());
    assert!(enter(&sentinel, Call::new("b")).is_err());
    assert!(enter(&sentinel, Call::new("a")).is_ok());
    assert_eq!(passed(&sentinel, Call::new("c"), 5), 2);
}

// === contexts ===

#[test]
fn a_rule_for_a_context_counts_that_context_alone() {
    let rules = Rules::new()
        .with(FlowRule::per_second("db", 2).in_context("batch"))
        .with(FlowRule::per_second("db", 6));
    let (sentinel, _) = engine(rules);
    let db = Call::new("db");
    assert_eq!(passed(&sentinel, db.context("batch"), 5), 2);
    let blocked = enter(&sentinel, db.context("batch")).unwrap_err();
    assert_eq!(blocked.rule(), "flow-0");
    // The others share what is left of the second rule.
    assert_eq!(passed(&sentinel, db.context("web"), 3), 3);
    assert_eq!(passed(&sentinel, db, 5), 1);
    assert_eq!(sentinel.node("db").unwrap().sum(Event::Pass), 6);
    assert_eq!(sentinel.entrance("batch").sum(Event::Pass), 2);
    // No other context has been counted: nobody asked for that.
    assert_eq!(sentinel.snapshot().nodes().len(), 2);
}

#[test]
fn what_a_context_took_is_given_back_when_the_resource_refuses() {
    let rules = Rules::new()
        .with(FlowRule::per_second("db", 5).in_context("batch"))
        .with(FlowRule::per_second("db", 1));
    let (sentinel, _) = engine(rules);
    let call = Call::new("db").context("batch");
    assert_eq!(passed(&sentinel, call, 20), 1);
    // In the same window, so what had not come back would be missing.
    assert!(sentinel.reload(FlowRule::per_second("db", 5).in_context("batch").into()));
    assert_eq!(passed(&sentinel, call, 20), 4);
}

#[test]
fn a_context_with_a_rule_has_a_place_whatever_the_bound() {
    let sentinel = Sentinel::builder()
        .rules(FlowRule::per_second("db", 1).in_context("batch"))
        .clock(ManualClock::new())
        .contexts(true)
        .max_origins(2)
        .build();
    for number in 0..10 {
        assert!(enter(&sentinel, Call::new("db").context(number)).is_ok());
    }
    assert_eq!(passed(&sentinel, Call::new("db").context("batch"), 5), 1);
    assert_eq!(sentinel.snapshot().overflowed(), 8);
}

#[test]
fn a_prioritized_call_borrows_from_its_context() {
    let (sentinel, clock) = engine(FlowRule::per_second("db", 1).in_context("batch"));
    let call = Call::new("db").context("batch").prioritized(true);
    clock.set(Tick::from_millis(10_700));
    assert!(enter(&sentinel, call).is_ok());
    clock.set(Tick::from_millis(11_200));
    let Verdict::Wait(waiting) = sentinel.try_enter(call) else {
        panic!("it may wait");
    };
    assert_eq!(waiting.delay(), Duration::from_millis(300));
}

// === bad input ===

#[test]
fn bad_relations_name_the_field() {
    let cases = [
        (FlowRule::per_second("r", 1).when(""), "related is \"\""),
        (
            FlowRule::per_second("r", 1).in_context(" "),
            "context is \" \"",
        ),
        (
            FlowRule::per_second("r", 1).in_context("c").by_origin(),
            "context is \"c\", must be without an origin",
        ),
        (
            FlowRule::per_second("r", 1).when("c").for_origin("app"),
            "related is \"c\", must be without an origin",
        ),
    ];
    for (rule, expected) in cases {
        let error = Rules::build([rule]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
