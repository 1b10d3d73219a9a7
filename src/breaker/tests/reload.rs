//! Tests of reloads: the state that breakers keep when their rules change.

use super::stage::{Stage, at, ms, refused, slow, spec};
use crate::breaker::BreakerState::{Closed, HalfOpen, Open};
use crate::breaker::*;

#[test]
fn an_equal_rule_keeps_everything() {
    let mut stage = Stage::new([spec()]);
    let calls: Vec<_> = (0..5).map(|_| stage.enter(0).unwrap()).collect();
    let other = slow(100);
    let old = stage.reload(0, [other, spec()]);
    // Calls that were admitted before the reload end in the old breakers.
    for call in calls {
        old.complete(at(0), call, ms(0), true, &mut |_| {});
    }
    assert_eq!(stage.states(), [Closed, Open]);
    let probe = stage.enter(2_000).unwrap();
    let old = stage.reload(2_000, [spec()]);
    assert_eq!(stage.states(), [HalfOpen]);
    assert!(stage.enter(2_000).is_err(), "its place is taken");
    old.complete(at(2_000), probe, ms(0), false, &mut |_| {});
    assert_eq!(stage.states(), [Closed]);
}

#[test]
fn a_changed_limit_keeps_counts_and_state() {
    let tighter = |min_calls| BreakerSpec {
        limit: BadLimit::Count(min_calls),
        min_calls,
        ..spec()
    };
    let mut stage = Stage::new([spec()]);
    let old_call = stage.enter(0).unwrap();
    for _ in 0..4 {
        stage.call(0, true);
    }
    let old = stage.reload(0, [tighter(7)]);
    // The call counts for the new rule, and the old rule does not open the breaker.
    old.complete(at(0), old_call, ms(0), true, &mut |_| {
        panic!("nothing changed")
    });
    stage.call(0, true);
    assert_eq!(stage.states(), [Closed]);
    stage.call(0, true);
    assert_eq!(stage.states(), [Open], "the seventh");
    stage.reload(500, [tighter(8)]);
    assert_eq!(stage.enter(1_999), refused(0, 2_000));
    assert!(stage.enter(2_000).is_ok());
}

#[test]
fn a_run_of_failures_survives_a_new_limit_but_not_a_change_to_a_window() {
    let in_a_row = |count| BreakerSpec {
        limit: BadLimit::Consecutive(count),
        min_calls: 1,
        // A row has no interval, so a different value here makes no difference.
        interval: ms(u64::from(count)),
        ..spec()
    };
    let mut stage = Stage::new([in_a_row(5)]);
    for _ in 0..2 {
        stage.call(0, true);
    }
    stage.reload(0, [in_a_row(4)]);
    stage.call(0, true);
    assert_eq!(stage.states(), [Closed]);
    stage.reload(0, [spec()]);
    stage.reload(0, [in_a_row(4)]);
    stage.call(0, true);
    assert_eq!(stage.states(), [Closed], "the row was forgotten");
    for _ in 0..3 {
        stage.call(0, true);
    }
    assert_eq!(stage.states(), [Open]);
}

#[test]
fn last_calls_are_kept_by_a_rule_with_the_same_last_calls() {
    let of_last = |bad, last_calls| BreakerSpec {
        limit: BadLimit::Count(bad),
        min_calls: 1,
        last_calls,
        ..spec()
    };
    let mut stage = Stage::new([of_last(5, Some(6))]);
    stage.call(0, true);
    stage.call(0, true);
    stage.reload(0, [of_last(3, Some(6))]);
    // A rule for another number of calls, or for an interval, begins without any calls.
    for other in [Some(7), None] {
        stage.reload(0, [of_last(3, other)]);
        stage.call(0, true);
        assert_eq!(stage.states(), [Closed], "{other:?}");
        stage.reload(0, [of_last(3, Some(6))]);
        stage.call(0, true);
        stage.call(0, true);
        assert_eq!(stage.states(), [Closed], "{other:?}");
    }
    stage.reload(0, [of_last(4, Some(6))]);
    stage.call(0, true);
    assert_eq!(stage.states(), [Closed], "the third");
    stage.call(0, true);
    assert_eq!(stage.states(), [Open], "the fourth");
}

#[test]
fn a_breaker_stays_open_as_long_as_its_older_rule_said() {
    let named = |open_for, interval| BreakerSpec {
        open_for: ms(open_for),
        interval: ms(interval),
        id: Some("named".into()),
        ..spec()
    };
    // The new rule counts the same calls, or a different window.
    for interval in [1_000, 500] {
        let mut stage = Stage::new([named(60_000, 1_000)]);
        stage.trip(0);
        stage.reload(0, [named(1, interval)]);
        for now in [0, 59_999] {
            assert_eq!(stage.enter(now), refused(0, 60_000));
        }
        stage.call(60_000, false);
        // A new rule with a longer open time applies to the next opening.
        stage.reload(60_000, [named(90_000, interval)]);
        stage.trip(60_000);
        assert_eq!(stage.enter(60_000), refused(0, 150_000));
    }
}

#[test]
fn a_rule_that_counts_differently_inherits_only_the_open_state_of_its_id() {
    let named = |spec| BreakerSpec {
        id: Some("named".into()),
        ..spec
    };
    let mut stage = Stage::new([named(spec())]);
    stage.trip(0);
    stage.reload(1_000, [named(slow(100))]);
    assert_eq!(stage.enter(1_999), refused(0, 2_000));
    let probe = stage.enter(2_000).unwrap();
    let old = stage.reload(2_000, [named(slow(200))]);
    assert_eq!(stage.states(), [Open]);
    old.complete(at(2_000), probe, ms(0), false, &mut |_| {});
    assert_eq!(stage.states(), [Open], "it was no probe of this one");
    let probe = stage.enter(2_000).unwrap();
    stage.end(2_000, probe, 0, false);
    assert_eq!(stage.states(), [Closed]);
    stage.breakers.force_open(0, &mut |_| {});
    stage.reload(2_000, [named(spec())]);
    assert!(stage.enter(1_000_000).is_err(), "forced");
    stage.reload(2_000, [slow(100)]);
    assert_eq!(stage.states(), [Closed], "another rule");
}
