//! Tests of the open time of breakers, which grows while probes fail.

use std::time::Duration;

use super::stage::{Stage, ms, refused, spec};
use crate::breaker::BreakerState::Closed;
use crate::breaker::*;

#[test]
fn the_open_time_doubles_after_each_bad_probe_until_the_breaker_closes() {
    let growing = |longest| BreakerSpec {
        open_up_to: Some(longest),
        ..spec()
    };
    // The longest open time, and the open times in seconds, each after one more bad probe.
    let cases = [
        (ms(2_000), [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]),
        (ms(9_000), [2, 4, 8, 9, 9, 9, 9, 9, 9, 9]),
        (Duration::MAX, [2, 4, 8, 16, 32, 64, 128, 256, 256, 256]),
    ];
    for (longest, seconds) in cases {
        let mut stage = Stage::new([growing(longest)]);
        let mut now = 0;
        for _ in 0..2 {
            stage.trip(now);
            for open in seconds.map(|seconds| seconds * 1_000) {
                assert_eq!(stage.enter(now), refused(0, now + open));
                now += open;
                // Probes without a result do not change the open time. The lease of a hanging probe
                // does not grow.
                let dropped = stage.enter(now).unwrap();
                stage.cancel(now, dropped, 0);
                stage.enter(now).unwrap();
                assert_eq!(stage.enter(now), refused(0, now + 2_000));
                now += 2_000;
                stage.call(now, true);
            }
            now += 256_000;
            stage.call(now, false);
            assert_eq!(stage.states(), [Closed]);
        }
    }
}

#[test]
fn concurrent_bad_probes_double_the_open_time_once() {
    let mut stage = Stage::new([BreakerSpec {
        open_up_to: Some(ms(60_000)),
        probes: 3,
        ..spec()
    }]);
    stage.trip(0);
    let probes = [(); 3].map(|()| stage.enter(2_000).unwrap());
    // Only the first end decides: the open time doubles from 2 s to 4 s.
    for probe in probes {
        stage.end(2_000, probe, 0, true);
    }
    assert_eq!(stage.enter(2_000), refused(0, 6_000));
}

#[test]
fn the_number_of_failed_probes_is_kept_in_a_reload() {
    let other = |open_up_to, interval| BreakerSpec {
        open_up_to,
        interval: ms(interval),
        id: Some("one".into()),
        ..spec()
    };
    let longest = Some(ms(60_000));
    let mut stage = Stage::new([other(None, 1_000)]);
    stage.trip(0);
    stage.call(2_000, true);
    stage.call(4_000, true);
    // The next rules: a rule that counts the same calls, a rule that counts other calls, and a rule
    // whose open time does not grow. With each rule, the time until which the breaker is open, and
    // the time until which it is open after another bad probe.
    let cases = [
        (other(longest, 1_000), 6_000, 22_000),
        (other(longest, 500), 22_000, 54_000),
        (other(None, 500), 54_000, 56_000),
    ];
    for (rule, until, then) in cases {
        stage.reload(4_000, [rule]);
        assert_eq!(stage.enter(until - 1), refused(0, until));
        stage.call(until, true);
        assert_eq!(stage.enter(until), refused(0, then));
    }
}

#[test]
fn a_clock_that_steps_back_extends_no_grown_open_time() {
    let mut stage = Stage::new([BreakerSpec {
        open_up_to: Some(ms(3_600_000)),
        ..spec()
    }]);
    stage.trip(1_000_000);
    stage.call(1_002_000, true);
    assert_eq!(stage.enter(1_002_000), refused(0, 1_006_000));
    // After a small step back, the clock is treated as if no time had passed. A large step back
    // ends the open time.
    assert_eq!(stage.enter(1_001_500), refused(0, 1_006_000));
    stage.call(500_000, false);
    assert_eq!(stage.states(), [Closed]);
}
