//! Tests of consecutive generations: the changes that are reported, and the counts that are
//! forgotten.

use super::stage::{Stage, at, ms, refused, spec};
use crate::breaker::BreakerState::{Closed, HalfOpen, Open};
use crate::breaker::*;

#[test]
fn a_listener_sees_all_changes_made() {
    // Each report must come after both breakers have changed, so that a slow listener does not
    // delay the second breaker.
    let breakers = Breakers::new([spec(), spec()], at(0), None);
    let states = || [breakers.state(0), breakers.state(1)];
    let mut reports = Vec::new();
    for _ in 0..5 {
        let call = breakers.admit(at(0), &mut |_| {}).unwrap();
        breakers.complete(at(0), call, ms(0), true, &mut |change| {
            reports.push((change.index, states()));
        });
    }
    assert_eq!(reports, [(0, [Open, Open]), (1, [Open, Open])]);
    reports.clear();
    let admitted = breakers.admit(at(2_000), &mut |change| {
        reports.push((change.index, states()));
    });
    assert_eq!(
        reports,
        [(0, [HalfOpen, HalfOpen]), (1, [HalfOpen, HalfOpen])]
    );
    reports.clear();
    breakers.release(admitted.unwrap(), &mut |change| {
        reports.push((change.index, states()));
    });
    assert_eq!(reports, [(0, [Open, Open]), (1, [Open, Open])]);
    reports.clear();
    let probe = breakers.admit(at(2_000), &mut |_| {}).unwrap();
    breakers.cancel(at(2_000), probe, ms(0), &mut |change| {
        reports.push((change.index, states()));
    });
    assert_eq!(reports, [(0, [Open, Open]), (1, [Open, Open])]);
}

#[test]
fn a_forgotten_row_does_not_come_back_after_16384_changes() {
    let in_a_row = BreakerSpec {
        limit: BadLimit::Consecutive(5),
        ..spec()
    };
    let of_the_last = BreakerSpec {
        limit: BadLimit::Count(5),
        last_calls: Some(9),
        ..spec()
    };
    for spec in [in_a_row, of_the_last] {
        let mut stage = Stage::new([spec]);
        for _ in 0..4 {
            stage.call(0, true);
        }
        // Each of these changes begins a new closed generation, without a call.
        for _ in 0..1 << 14 {
            stage.breakers.force_close(0, &mut |_| {});
        }
        for _ in 0..4 {
            stage.call(0, true);
            assert_eq!(stage.states(), [Closed]);
        }
        stage.call(0, true);
        assert_eq!(stage.states(), [Open]);
    }
}

#[test]
fn an_open_time_does_not_come_back_after_16384_changes() {
    let mut stage = Stage::new([BreakerSpec {
        open_up_to: Some(ms(60_000)),
        ..spec()
    }]);
    // Two bad probes double the open time twice, to 8 s.
    stage.trip(0);
    stage.call(2_000, true);
    stage.call(6_000, true);
    assert_eq!(stage.enter(6_000), refused(0, 14_000));
    // With the opening below, the version is the same again.
    for _ in 0..(1 << 14) - 1 {
        stage.breakers.force_close(0, &mut |_| {});
    }
    stage.trip(6_000);
    assert_eq!(stage.enter(6_000), refused(0, 8_000));
}

#[test]
fn forgotten_counts_do_not_come_back_after_256_changes() {
    // The breaker is either closed by hand, or opened and closed by calls, which makes three
    // changes of state.
    for is_by_hand in [true, false] {
        let long = BreakerSpec {
            limit: BadLimit::Count(5),
            min_calls: 1,
            open_for: ms(1),
            interval: ms(1_000_000),
            ..spec()
        };
        let mut stage = Stage::new([long]);
        for _ in 0..4 {
            stage.call(0, true);
        }
        let mut now = 100_000;
        for _ in 0..256 {
            if is_by_hand {
                stage.breakers.force_close(0, &mut |_| {});
            } else {
                while stage.states() == [Closed] {
                    stage.call(now, true);
                }
                now += 1;
                stage.call(now, false);
            }
        }
        stage.call(now, true);
        assert_eq!(stage.states(), [Closed], "one error, by hand: {is_by_hand}");
        for _ in 0..3 {
            stage.call(now, true);
        }
        assert_eq!(
            stage.states(),
            [Closed],
            "four errors, by hand: {is_by_hand}"
        );
        stage.call(now, true);
        assert_eq!(stage.states(), [Open]);
    }
}
