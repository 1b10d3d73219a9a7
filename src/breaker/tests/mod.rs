//! Tests of the guarantees of breakers.

mod generations;
mod growth;
mod late;
mod oracle;
mod reload;
pub(in crate::breaker) mod stage;

use std::time::Duration;

use super::BreakerState::{Closed, HalfOpen, Open};
use super::*;
use stage::{Rng, Stage, at, ms, refused, seed, slow, spec};

#[test]
fn an_admission_is_eight_bytes() {
    assert_eq!(size_of::<Admission>(), 8);
}

#[test]
fn a_breaker_opens_at_the_fifth_call_and_probes_after_the_recovery_time() {
    let mut stage = Stage::new([spec()]);
    for _ in 0..4 {
        stage.call(10_000, true);
    }
    assert_eq!(stage.states(), [Closed], "fewer calls than the minimum");
    stage.call(10_000, false);
    assert_eq!(stage.states(), [Open], "four of five");
    assert_eq!(stage.told, [(0, Closed, Open, Some(0.8))]);

    assert_eq!(stage.enter(11_999), refused(0, 12_000));
    assert_eq!(stage.states(), [Open]);
    assert_eq!(stage.breakers.check(at(12_000)), Ok(()));
    assert_eq!(stage.states(), [Open], "a check takes nothing");
    let probe = stage.enter(12_000).unwrap();
    assert!(probe.is_probe(0));
    assert_eq!(stage.states(), [HalfOpen]);
    assert_eq!(stage.enter(12_000), refused(0, 14_000));

    stage.end(12_500, probe, 0, true);
    assert_eq!(stage.enter(14_499), refused(0, 14_500), "from the failure");
    let probe = stage.enter(14_500).unwrap();
    stage.end(14_600, probe, 0, false);
    assert_eq!(stage.states(), [Closed]);
    assert_eq!(
        stage.told[1..],
        [
            (0, Open, HalfOpen, None),
            (0, HalfOpen, Open, Some(1.0)),
            (0, Open, HalfOpen, None),
            (0, HalfOpen, Closed, None),
        ],
    );
    for _ in 0..4 {
        stage.call(14_600, true);
    }
    assert_eq!(stage.states(), [Closed], "the counts began at zero");
    stage.call(14_600, true);
    assert_eq!(stage.states(), [Open]);
}

#[test]
fn an_old_call_changes_nothing_while_half_open_or_after() {
    let mut stage = Stage::new([spec()]);
    let old: Vec<_> = (0..10).map(|_| stage.enter(0).unwrap()).collect();
    stage.trip(0);
    let probe = stage.enter(2_000).unwrap();
    stage.end(2_000, old[0], 0, false);
    stage.end(2_000, old[1], 0, true);
    stage.cancel(2_000, old[2], 0);
    stage.release(old[3]);
    assert_eq!(stage.states(), [HalfOpen]);
    stage.end(2_000, probe, 0, false);
    for &old in &old[4..] {
        stage.end(2_000, old, 0, true);
    }
    assert_eq!(stage.states(), [Closed], "counted in no later generation");
}

#[test]
fn a_dropped_probe_has_no_result_and_the_next_call_probes() {
    for release in [false, true] {
        let mut stage = Stage::new([spec()]);
        stage.trip(0);
        let probe = stage.enter(2_000).unwrap();
        if release {
            stage.release(probe);
        } else {
            stage.cancel(2_100, probe, 100);
        }
        assert_eq!(stage.states(), [Open]);
        assert_eq!(stage.told.last(), Some(&(0, HalfOpen, Open, None)));
        assert!(stage.enter(2_100).is_ok_and(|probe| probe.is_probe(0)));
    }
}

#[test]
fn two_breakers_are_probed_only_when_both_are_ready() {
    let late = BreakerSpec {
        open_for: ms(3_000),
        limit: BadLimit::Count(5),
        ..spec()
    };
    let mut stage = Stage::new([spec(), late]);
    stage.trip(0);
    assert_eq!(stage.states(), [Open, Open]);
    assert_eq!(stage.enter(2_000), refused(1, 3_000));
    assert_eq!(stage.states(), [Open, Open]);
    let probe = stage.enter(3_000).unwrap();
    assert_eq!(stage.states(), [HalfOpen, HalfOpen]);
    stage.end(3_000, probe, 0, false);
    assert_eq!(stage.states(), [Closed, Closed]);
}

#[test]
fn a_ratio_of_one_is_reached_but_never_exceeded() {
    let one = BreakerSpec {
        limit: BadLimit::ratio(1.0),
        ..spec()
    };
    let mut stage = Stage::new([one.clone()]);
    for calls in 1..=5 {
        assert_eq!(stage.states(), [Closed], "before call {calls}");
        stage.call(0, true);
    }
    assert_eq!(stage.states(), [Open]);
    let exceeds = BreakerSpec {
        exceeds: true,
        ..one
    };
    let mut stage = Stage::new([exceeds]);
    for _ in 0..100 {
        stage.call(0, true);
    }
    assert_eq!(stage.states(), [Closed]);
}

#[test]
fn limits_are_reached_or_exceeded_exactly() {
    // The limit, whether it must be exceeded, the numbers of bad calls and of all calls, and
    // whether the breaker opens.
    let cases = [
        (BadLimit::ratio(0.1), false, (1, 10), true),
        (BadLimit::ratio(0.1), true, (1, 10), false),
        (BadLimit::ratio(0.1), true, (2, 19), true),
        (BadLimit::ratio(2.0 / 3.0), false, (4, 6), true),
        (BadLimit::ratio(2.0 / 3.0), true, (4, 6), false),
        (BadLimit::ratio(0.29), false, (29, 100), true),
        (BadLimit::ratio(0.29), false, (28, 100), false),
        (BadLimit::ratio(0.0), true, (0, 9), false),
        (BadLimit::ratio(0.0), true, (1, 9), true),
        (BadLimit::Count(3), false, (3, 9), true),
        (BadLimit::Count(3), false, (2, 9), false),
        (BadLimit::Count(3), true, (3, 9), false),
        (BadLimit::Count(3), true, (4, 9), true),
    ];
    for (limit, exceeds, (bad, total), opens) in cases {
        let mut stage = Stage::new([BreakerSpec {
            limit,
            exceeds,
            min_calls: total,
            ..spec()
        }]);
        for call in 0..total {
            assert_eq!(stage.states(), [Closed]);
            stage.call(0, call < bad);
        }
        let expected = if opens { Open } else { Closed };
        assert_eq!(
            stage.states(),
            [expected],
            "{limit:?} {exceeds} {bad}/{total}"
        );
    }
}

#[test]
fn a_call_is_slow_if_it_takes_longer_than_the_limit() {
    let mut stage = Stage::new([slow(100)]);
    for rt in [100, 100, 100, 101, 101] {
        let call = stage.enter(0).unwrap();
        stage.end(0, call, rt, true);
    }
    assert_eq!(stage.states(), [Closed], "two of five");
    let call = stage.enter(0).unwrap();
    stage.end(0, call, 5_000, false);
    assert_eq!(stage.states(), [Open], "three of six");
    let probe = stage.enter(2_000).unwrap();
    stage.end(2_100, probe, 100, true);
    assert_eq!(stage.states(), [Closed], "errors do not matter");
}

#[test]
fn a_cancelled_call_counts_only_if_it_was_slow_already() {
    // The settings, the time in ms from the start of each call to its cancellation, and the state
    // afterwards.
    for (spec, elapsed, state) in [
        (slow(100), 101, Open),
        (slow(100), 100, Closed),
        (
            BreakerSpec {
                cancelled_as_slow: false,
                ..slow(100)
            },
            101,
            Closed,
        ),
        (spec(), 101, Closed),
    ] {
        let mut stage = Stage::new([spec]);
        for _ in 0..100 {
            if let Ok(call) = stage.enter(0) {
                stage.cancel(0, call, elapsed);
            }
        }
        assert_eq!(stage.states(), [state]);
    }
    // A probe that was slow already has failed.
    let mut stage = Stage::new([slow(100)]);
    for _ in 0..5 {
        let call = stage.enter(0).unwrap();
        stage.end(0, call, 101, false);
    }
    let probe = stage.enter(2_000).unwrap();
    stage.cancel(2_101, probe, 101);
    assert_eq!(stage.enter(4_100), refused(0, 4_101));
}

#[test]
fn too_few_calls_open_no_breaker() {
    let mut stage = Stage::new([
        spec(),
        slow(0),
        BreakerSpec {
            limit: BadLimit::Count(1),
            ..spec()
        },
    ]);
    assert_eq!(stage.breakers.check(at(0)), Ok(()));
    for second in 0..100 {
        for _ in 0..4 {
            let call = stage.enter(second * 1_000).unwrap();
            stage.end(second * 1_000, call, 50, true);
        }
        // Cancelled calls count in no ratio.
        for _ in 0..10 {
            let call = stage.enter(second * 1_000).unwrap();
            stage.cancel(second * 1_000, call, 0);
        }
    }
    assert_eq!(stage.states(), [Closed; 3]);
    assert_eq!(stage.told, []);
}

#[test]
fn the_window_slides() {
    let mut stage = Stage::new([spec()]);
    for time in [0, 300, 600, 900] {
        stage.call(time, true);
    }
    stage.call(1_000, true);
    assert_eq!(stage.states(), [Closed], "the first one has left");
    stage.call(1_099, true);
    assert_eq!(stage.states(), [Open], "five within ten buckets");
}

#[test]
fn probes_are_bounded_and_the_same_number_of_good_probes_closes_the_breaker() {
    let mut stage = Stage::new([BreakerSpec {
        probes: 3,
        ..spec()
    }]);
    stage.trip(0);
    let probes: Vec<_> = (0..3).map(|_| stage.enter(2_000).unwrap()).collect();
    assert!(stage.enter(2_000).is_err(), "the fourth");
    stage.end(2_000, probes[0], 0, false);
    stage.end(2_000, probes[1], 0, false);
    stage.cancel(2_000, probes[2], 0);
    assert_eq!(stage.states(), [HalfOpen], "two, and one that said nothing");
    let probe = stage.enter(2_000).unwrap();
    let last = stage.enter(2_000).unwrap();
    stage.end(2_000, probe, 0, false);
    assert_eq!(stage.states(), [Closed]);
    stage.end(2_000, last, 0, true);
    assert_eq!(stage.states(), [Closed], "it came too late");

    // The first bad probe opens the breaker, even after good probes.
    stage.trip(2_000);
    let probes: Vec<_> = (0..3).map(|_| stage.enter(4_000).unwrap()).collect();
    stage.end(4_000, probes[0], 0, false);
    stage.end(4_000, probes[1], 0, true);
    assert_eq!(stage.states(), [Open]);
    stage.end(4_000, probes[2], 0, false);
    assert_eq!(stage.enter(5_999), refused(0, 6_000));
}

#[test]
fn a_probe_that_hangs_holds_its_place_for_its_lease() {
    // The lease is the recovery time or the limit of a slow call, whichever is longer.
    for (limit, lease) in [(100, 2_000), (7_000, 7_000)] {
        let mut stage = Stage::new([slow(limit)]);
        for _ in 0..5 {
            let call = stage.enter(0).unwrap();
            stage.end(0, call, limit + 1, false);
        }
        let hung = stage.enter(2_000).unwrap();
        assert_eq!(stage.enter(1_999 + lease), refused(0, 2_000 + lease));
        let probe = stage.enter(2_000 + lease).unwrap();
        assert!(stage.enter(2_000 + lease).is_err());
        stage.cancel(2_000 + lease, hung, 0);
        assert!(stage.enter(2_000 + lease).is_err(), "it had no place");
        stage.end(2_000 + lease, probe, 0, false);
        assert_eq!(stage.states(), [Closed]);
        stage.end(2_000 + lease, hung, limit + 1, true);
        assert_eq!(stage.states(), [Closed], "the period is over");
    }
}

#[test]
fn a_breaker_recovers_in_time_however_a_probe_ends() {
    let mut rng = Rng(seed());
    for run in 0..1_000 {
        let recovery = 1 + rng.below(5_000);
        let probes = 1 + rng.below(3) as u32;
        let mut stage = Stage::new([BreakerSpec {
            open_for: ms(recovery),
            probes,
            ..spec()
        }]);
        let start = rng.below(10_000);
        stage.trip(start);
        let mut now = start + recovery;
        // The time at which the last lease ends.
        let mut free_at = now;
        for _ in 0..probes {
            let Ok(probe) = stage.enter(now) else {
                break;
            };
            let end = now + rng.below(recovery);
            match rng.below(6) {
                0 => stage.end(end, probe, 0, false),
                // A panic counts as an error.
                1 | 2 => stage.end(end, probe, 0, true),
                3 => stage.cancel(end, probe, end - now),
                4 => stage.release(probe),
                // The probe never ends, so its place is free once its lease is over.
                _ => free_at = free_at.max(now + recovery),
            }
            free_at = free_at.max(end);
            now = end;
        }
        // Further calls come at random times, and all of them are good.
        let limit = free_at + recovery;
        while stage.states() != [Closed] {
            if let Ok(call) = stage.enter(now) {
                stage.end(now, call, 0, false);
            } else {
                assert!(now < limit, "run {run}: not closed by {limit}");
                now = limit.min(now + 1 + rng.below(recovery.div_ceil(4)));
            }
        }
    }
}

#[test]
fn a_clock_that_steps_back_prolongs_no_open_time() {
    let mut stage = Stage::new([spec()]);
    stage.trip(1_000_000);
    assert_eq!(stage.enter(1_000_100), refused(0, 1_002_000));
    // After a small step back, the clock is treated as if no time had passed. A large step back
    // ends the open time.
    assert_eq!(stage.enter(1_000_000), refused(0, 1_002_000));
    let probe = stage.enter(5_000).unwrap();
    assert!(probe.is_probe(0));
    assert_eq!(stage.enter(5_000), refused(0, 7_000));
    stage.end(5_000, probe, 0, false);
    assert_eq!(stage.states(), [Closed]);
    // The clock steps far ahead and back. The calls after that still open the breaker.
    stage.call(9_000_000, true);
    for _ in 0..4 {
        stage.call(5_000, true);
    }
    assert_eq!(stage.states(), [Open]);
}

#[test]
fn extreme_times_do_not_overflow() {
    let mut stage = Stage::new([BreakerSpec {
        open_for: Duration::from_secs(366 * 86_400),
        ..slow(0)
    }]);
    // The last millisecond of the clock.
    let end = u64::MAX / 1_000_000;
    for _ in 0..5 {
        let call = stage.enter(end).unwrap();
        stage.end(end, call, u64::MAX, true);
    }
    assert_eq!(stage.states(), [Open]);
    let _ = stage.enter(end);
    let _ = stage.enter(0);
}

#[test]
fn an_operator_opens_and_closes() {
    let mut stage = Stage::new([spec(), spec()]);
    let old = stage.enter(0).unwrap();
    let notify = &mut |_| {};
    stage.breakers.force_open(1, notify);
    stage.breakers.force_open(1, notify);
    // Refused by the second breaker, without an end.
    let forever = Err((1, None));
    assert_eq!(stage.enter(1_000_000_000), forever);
    assert_eq!(stage.states(), [Closed, Open]);
    let mut changes = 0;
    stage.breakers.force_close(1, &mut |_| changes += 1);
    stage.breakers.force_close(1, &mut |_| changes += 1);
    assert_eq!(changes, 1);
    assert_eq!(stage.states(), [Closed, Closed]);
    for _ in 0..4 {
        stage.call(0, true);
    }
    // The old call belongs to an older generation only for the second breaker.
    stage.end(0, old, 0, true);
    assert_eq!(stage.states(), [Open, Closed]);
}
