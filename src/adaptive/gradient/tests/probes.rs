//! When a probe begins, what it measures, and when the next one does.

use super::*;

#[test]
fn a_limit_is_in_doubt_that_has_lost_a_quarter_of_what_it_rose_to() {
    let mut state = known();
    let mut now = Tick::ZERO;
    let mut close = |state: &mut Learned, mean_ms| {
        now = now + Duration::from_millis(100);
        state.close(&settings(), now, 100, sample(40, mean_ms, 100));
    };
    for _ in 0..50 {
        close(&mut state, 50);
    }
    let doubtful = state.estimate * 0.75;
    assert!(doubtful > 25.0, "it began at 20");
    let mut before = state.estimate;
    for _ in 0..20 {
        if state.phase == Phase::Steady {
            before = state.estimate;
            close(&mut state, 100);
        }
    }
    assert_eq!(state.phase, Phase::Settling);
    assert!(state.estimate <= doubtful && before > doubtful);
}

#[test]
fn a_doubt_ends_with_its_probe() {
    // The limit that it was in doubt of, and the measurement of the probe.
    for (mark, probe) in [
        (40.0, sample(40, 50, 15)),
        (40.0, sample(0, 0, 0)),
        (20.0, sample(40, 30, 15)),
    ] {
        let mut state = Learned {
            phase: Phase::Measuring,
            level: 15,
            above: 30.0 * MS,
            mark,
            ..known()
        };
        state.close(&settings(), Tick::from_millis(100), 15, probe);
        let mean_ms = state.long / MS;
        for window in 2..10 {
            let busy = sample(40, mean_ms as u64, 20);
            state.close(&settings(), Tick::from_millis(100 * window), 20, busy);
            assert_eq!(state.phase, Phase::Steady, "{probe:?}");
        }
    }
}

#[test]
fn a_probe_measures_five_rounds_of_calls_but_no_more_than_a_hundred() {
    for (level, needed) in [(1, 5), (15, 75), (20, 100), (21, 100), (u32::MAX, 100)] {
        let state = Learned {
            phase: Phase::Measuring,
            level,
            ..known()
        };
        assert_eq!(state.terms(Tick::ZERO).needed, needed);
    }
}

#[test]
fn a_probe_is_given_up_after_four_seconds_or_four_response_times() {
    for (above, seconds) in [(0.05, 4), (1.0, 4), (3.0, 12)] {
        for phase in [Phase::Settling, Phase::Measuring] {
            let state = Learned {
                phase,
                above: above * 1e9,
                ..known()
            };
            let now = Tick::from_millis(100);
            let latest = state.terms(now).latest;
            assert_eq!(latest, now + Duration::from_secs(seconds));
        }
    }
}

#[test]
fn a_probe_at_the_floor_goes_no_deeper() {
    let at_floor = LimiterSettings {
        floor: 15,
        ..settings()
    };
    for (settings, phase) in [(settings(), Phase::Settling), (at_floor, Phase::Steady)] {
        let mut state = Learned {
            phase: Phase::Measuring,
            level: 15,
            above: 100.0 * MS,
            ..known()
        };
        state.close(&settings, Tick::from_millis(100), 15, sample(75, 50, 15));
        assert_eq!(state.phase, phase);
    }
}

#[test]
fn a_low_probe_needs_as_many_samples_as_it_lets_in() {
    for (count, long) in [(2, 50.0), (3, 60.0)] {
        let mut state = Learned {
            phase: Phase::Measuring,
            level: 3,
            above: 60.0 * MS,
            ..known()
        };
        state.close(&settings(), Tick::from_millis(100), 3, sample(count, 60, 3));
        assert_eq!(state.long, long * MS, "{count} samples");
    }
}

#[test]
fn the_break_after_a_probe_is_a_multiple_of_what_it_took() {
    // Calls of 51 ms agree with the known response time, calls of 60 ms do not.
    for (mean_ms, expected) in [(51, 60), (60, 6)] {
        let mut state = Learned {
            phase: Phase::Measuring,
            level: 15,
            above: 50.0 * MS,
            ..known()
        };
        let now = Tick::from_millis(3_000);
        state.close(&settings(), now, 15, sample(75, mean_ms, 15));
        assert_eq!(state.next, now + Duration::from_secs(expected));
    }
}
