//! Tests of probes that end after their lease: they have lost their place, but their ends still
//! decide.

use std::time::Duration;

use super::stage::{Stage, ms, refused, slow, spec};
use crate::breaker::BreakerState::{Closed, HalfOpen, Open};
use crate::breaker::*;

/// Opens a breaker, and makes a call every `pause` ms that ends without an error `rt` ms later.
/// Returns the time in ms at which the breaker closes; `None` if it stays open for a hundred times
/// `open_for`.
fn closes_after(spec: &BreakerSpec, pause: u64, rt: u64) -> Option<u64> {
    let open_for = spec.open_for.as_millis() as u64;
    let mut stage = Stage::new([spec.clone()]);
    stage.trip_after(0, rt + 100_000);
    let mut running = Vec::new();
    for now in (0..100 * open_for).step_by(pause as usize) {
        while let Some(&(start, call)) = running.first() {
            if start + rt > now {
                break;
            }
            stage.end(start + rt, call, rt, false);
            running.remove(0);
        }
        if stage.states() == [Closed] {
            return Some(now);
        }
        if let Ok(call) = stage.enter(now) {
            running.push((now, call));
        }
    }
    None
}

#[test]
fn a_breaker_whose_calls_take_longer_than_its_lease_closes() {
    let limits = [
        BadLimit::ratio(0.5),
        BadLimit::Count(5),
        BadLimit::Consecutive(5),
    ];
    for limit in limits {
        for (strategy, last_calls) in [
            (Strategy::Error, None),
            (Strategy::Error, Some(5)),
            (Strategy::Slow(ms(60_000)), None),
        ] {
            // In ms. The lease is the open time, or a minute for slow calls.
            for (open_for, rt) in [(1_000, 1_500), (10_000, 11_000), (1_000, 9_900)] {
                for open_up_to in [None, Some(Duration::from_secs(60))] {
                    for probes in [1, 2, 3, 63] {
                        let spec = BreakerSpec {
                            strategy,
                            limit,
                            last_calls,
                            open_for: ms(open_for),
                            open_up_to,
                            probes,
                            ..spec()
                        };
                        // The breaker closes at the end of the last probe that it needs.
                        let pause = 100;
                        let more = u64::from(probes - 1) * pause;
                        let closed = closes_after(&spec, pause, rt);
                        let latest = open_for + rt + more + 2 * pause;
                        assert!(closed.is_some_and(|at| at <= latest), "{closed:?} {spec:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_first_end_of_any_probe_of_the_period_decides() {
    let growing = BreakerSpec {
        open_up_to: Some(ms(60_000)),
        ..spec()
    };
    // For each of the three probes as the first that ends, with a good or a bad end.
    for ends in 0..3 {
        for is_bad in [false, true] {
            let mut stage = Stage::new([growing.clone()]);
            stage.trip(0);
            // Each later probe gets the place of the probe before, whose lease is over.
            let probes = [2_000, 4_000, 6_000].map(|now| stage.enter(now).unwrap());
            assert_eq!(stage.enter(6_000), refused(0, 8_000), "one place");
            stage.end(6_500, probes[ends], 0, is_bad);
            assert_eq!(stage.states(), [if is_bad { Open } else { Closed }]);
            // Later ends decide nothing, so the open time grows only once.
            for (index, &probe) in probes.iter().enumerate() {
                if index != ends {
                    stage.end(6_500, probe, 0, !is_bad);
                }
            }
            if is_bad {
                assert_eq!(stage.enter(6_500), refused(0, 10_500));
            } else {
                assert_eq!(stage.states(), [Closed]);
            }
        }
    }
}

#[test]
fn good_probes_count_whether_they_have_a_place_or_not() {
    let mut stage = Stage::new([BreakerSpec {
        probes: 3,
        ..spec()
    }]);
    stage.trip(0);
    let [good, late, hung] = [(); 3].map(|()| stage.enter(2_000).unwrap());
    stage.end(2_000, good, 0, false);
    stage.enter(2_000).unwrap();
    let next = stage.enter(4_000).unwrap();
    stage.end(4_500, late, 0, false);
    // The late and the hung probe no longer hold a place, so their ends free no place.
    stage.cancel(4_500, hung, 0);
    let others = [(); 2].map(|()| stage.enter(4_500).unwrap());
    assert_eq!(stage.enter(4_500), refused(0, 6_500));
    assert_eq!(stage.states(), [HalfOpen], "two of three");
    stage.end(4_500, next, 0, false);
    assert_eq!(stage.states(), [Closed]);
    stage.end(4_500, others[0], 0, true);
    assert_eq!(stage.states(), [Closed]);
}

#[test]
fn a_cancelled_probe_does_not_end_a_period_with_other_probes() {
    let mut stage = Stage::new([spec()]);
    stage.trip(0);
    // One caller waits for its result, and all other callers cancel.
    let patient = stage.enter(2_000).unwrap();
    for second in [4, 6, 8] {
        let hasty = stage.enter(second * 1_000).unwrap();
        stage.cancel(second * 1_000 + 500, hasty, 500);
        let next = stage.enter(second * 1_000 + 500).unwrap();
        assert!(next.is_probe(0), "the next one has its place at once");
        stage.cancel(second * 1_000 + 500, next, 0);
    }
    assert_eq!(stage.states(), [HalfOpen]);
    stage.end(9_000, patient, 7_000, false);
    assert_eq!(stage.states(), [Closed]);
}

#[test]
fn a_late_probe_that_was_slow_opens_the_breaker_and_an_older_one_does_not() {
    let mut stage = Stage::new([slow(100)]);
    stage.trip_after(0, 101);
    // Both are probes of the first half-open period, which the slow end of `old` ends.
    let [old, older] = [2_000, 4_000].map(|now| stage.enter(now).unwrap());
    stage.end(4_500, old, 2_500, false);
    assert_eq!(stage.enter(4_500), refused(0, 6_500));
    let next = stage.enter(6_500).unwrap();
    stage.enter(8_500).unwrap();
    stage.end(8_600, older, 4_600, false);
    stage.cancel(8_600, older, 4_600);
    stage.end(8_600, older, 0, false);
    assert_eq!(stage.states(), [HalfOpen], "it is of the period before");
    stage.end(8_600, next, 0, false);
    assert_eq!(stage.states(), [Closed]);
}
