//! How samples, windows and probes teach the limit.

use super::*;

mod probes;

const MS: f64 = 1e6;

fn settings() -> LimiterSettings {
    LimiterSettings {
        floor: 2,
        ceiling: 100,
        start: 20,
        tolerance: 1.0,
        smoothing: 0.2,
    }
}

fn sample(count: u32, mean_ms: u64, peak: u32) -> Samples {
    Samples {
        opened: Tick::ZERO,
        count,
        sum_ns: u64::from(count) * mean_ms * 1_000_000,
        peak,
    }
}

/// A state at a limit of 20 that knows 50 ms, long before its next probe.
fn known() -> Learned {
    Learned {
        long: 50.0 * MS,
        probed: 50.0 * MS,
        next: Tick::from_millis(1_000_000),
        ..Learned::new(&settings(), Tick::ZERO)
    }
}

#[test]
fn one_window_moves_the_limit_as_the_formula_says() {
    let root = 20_f64.sqrt() / 2.0;
    for (mean_ms, expected) in [
        (50, 20.0 + 0.2 * root),
        (40, 20.0 + 0.2 * root),
        (60, 20.0 + 0.2 * (20.0 * 5.0 / 6.0 + root - 20.0)),
        (100, 20.0 + 0.2 * (10.0 + root - 20.0)),
        (5_000, 20.0 + 0.2 * (10.0 + root - 20.0)),
    ] {
        let mut state = known();
        state.close(
            &settings(),
            Tick::from_millis(100),
            20,
            sample(40, mean_ms, 20),
        );
        let found = state.estimate;
        assert!((found - expected).abs() < 1e-9, "{mean_ms} ms: {found}");
    }
}

#[test]
fn the_queue_of_a_low_limit_is_one() {
    for (estimate, queue) in [(2.25, 1.0), (4.0, 1.0), (9.0, 1.5)] {
        let mut state = Learned {
            estimate,
            mark: estimate,
            ..known()
        };
        state.close(&settings(), Tick::from_millis(100), 9, sample(40, 50, 9));
        let found = state.estimate - estimate;
        assert!((found - 0.2 * queue).abs() < 1e-9, "{found} at {estimate}");
    }
}

#[test]
fn no_window_begins_before_the_one_that_it_follows() {
    let opened = Tick::from_millis(5_000);
    let late = Tick::from_millis(4_500);
    for phase in [Phase::Steady, Phase::Settling, Phase::Measuring] {
        let mut state = Learned { phase, ..known() };
        let sample = Samples {
            opened,
            ..sample(40, 50, 20)
        };
        let terms = state.close(&settings(), late, 1, sample);
        assert_eq!(terms.opened, opened, "after {phase:?}");
        assert!(terms.since == Tick::ZERO || terms.since >= opened);
    }
}

#[test]
fn a_window_that_is_half_empty_leaves_the_limit_alone() {
    for mean_ms in [1, 50, 5_000] {
        let mut state = known();
        state.close(
            &settings(),
            Tick::from_millis(100),
            9,
            sample(40, mean_ms, 9),
        );
        assert_eq!(state.estimate, 20.0);
        assert_eq!(state.phase, Phase::Steady);
    }
}

#[test]
fn a_window_that_is_half_empty_puts_the_next_probe_off() {
    let close = |state: &mut Learned, now: Tick, peak: u32| {
        state.close(&settings(), now, peak, sample(40, 50, peak));
    };
    let due = || Learned {
        next: Tick::from_millis(50),
        ..known()
    };
    // Half of the limit is a full window.
    let mut state = due();
    close(&mut state, Tick::from_millis(100), 10);
    assert_eq!(state.phase, Phase::Settling);
    let mut state = due();
    close(&mut state, Tick::from_millis(100), 9);
    for (now_ms, phase) in [(10_099, Phase::Steady), (10_100, Phase::Settling)] {
        close(&mut state, Tick::from_millis(now_ms), 20);
        assert_eq!(state.phase, phase, "at {now_ms} ms");
    }
}

#[test]
fn a_half_empty_window_feeds_the_long_average_of_600_samples() {
    let mut state = known();
    state.close(&settings(), Tick::from_millis(100), 9, sample(30, 80, 9));
    let expected = 50.0 + 30.0 * 60.0 / 601.0;
    assert!((state.long / MS - expected).abs() < 1e-9);
    // More than that are all of it.
    state.close(&settings(), Tick::from_millis(200), 9, sample(4_096, 70, 9));
    assert_eq!(state.long, 70.0 * MS);
}

#[test]
fn a_full_window_does_not_raise_the_long_response_time() {
    let mut state = known();
    for window in 1..10 {
        state.close(
            &settings(),
            Tick::from_millis(100 * window),
            20,
            sample(40, 55, 20),
        );
        assert_eq!(state.long, 50.0 * MS);
    }
}

#[test]
fn what_a_full_window_says_of_the_long_response_time() {
    let close = |settings: &LimiterSettings, long: f64, mean_ms| {
        let mut state = Learned {
            long: long * MS,
            probed: long * MS,
            ..known()
        };
        let now = Tick::from_millis(100);
        state.close(settings, now, 20, sample(40, mean_ms, 20));
        state
    };
    let is_near = |found: f64, ms: f64| (found / MS - ms).abs() < 1e-9;
    // Clearly less than known is fed to the average, the same is not.
    assert!(is_near(close(&settings(), 40.0, 30).long, 40.0));
    let fed = 40.0 - 11.0 * 80.0 / 601.0;
    assert!(is_near(close(&settings(), 40.0, 29).long, fed));
    // The rest of an overload is forgotten faster.
    let fed = 100.0 - 80.0 * 80.0 / 601.0;
    assert!(is_near(close(&settings(), 100.0, 20).long, fed * DECAY));
    // At the floor there is nothing to probe, and the average follows.
    let at_floor = LimiterSettings {
        floor: 20,
        ..settings()
    };
    for (mean_ms, long) in [(60, 52.0), (40, 48.0)] {
        let state = close(&at_floor, 50.0, mean_ms);
        assert!(is_near(state.long, long), "{}", state.long);
    }
    let mut state = Learned {
        next: Tick::ZERO,
        ..known()
    };
    state.close(&at_floor, Tick::from_millis(100), 20, sample(40, 50, 20));
    assert_eq!((state.phase, state.limit()), (Phase::Steady, 20));
}

#[test]
fn either_doubt_begins_a_probe() {
    let shrunk = Learned {
        mark: 40.0,
        ..known()
    };
    let faster = Learned {
        probed: 80.0 * MS,
        ..known()
    };
    let cases = [
        (known(), Phase::Steady),
        (shrunk, Phase::Settling),
        (faster, Phase::Settling),
    ];
    for (mut state, phase) in cases {
        let now = Tick::from_millis(100);
        state.close(&settings(), now, 20, sample(40, 50, 20));
        assert_eq!(state.phase, phase);
    }
}

#[test]
fn a_window_is_as_long_as_two_response_times_within_its_bounds() {
    let now = Tick::from_millis(7);
    for (long, length_ms) in [(10, 100), (100, 200), (500, 1_000), (5_000, 1_000)] {
        let state = Learned {
            long: f64::from(long) * MS,
            ..known()
        };
        let length = Duration::from_millis(length_ms);
        assert_eq!(state.terms(now).due, now + length, "{long} ms");
        // That of a probe begins when those have ended that may have waited.
        let probe = Learned {
            phase: Phase::Measuring,
            above: 80.0 * MS,
            ..state
        };
        let since = now + Duration::from_millis(80);
        let terms = probe.terms(now);
        assert_eq!((terms.since, terms.due), (since, since + length));
    }
    for (estimate, needed) in [(3.9, 3), (10.0, 10), (20.0, 10)] {
        let state = Learned {
            estimate,
            ..known()
        };
        assert_eq!(state.terms(now).needed, needed, "at {estimate}");
    }
}

#[test]
fn calls_count_up_to_four_times_the_long_response_time() {
    assert_eq!(Learned::longest(50.0 * MS), Duration::from_millis(200));
    assert_eq!(Learned::longest(0.0), Duration::MAX);
}

#[test]
fn a_confirmed_probe_that_is_faster_is_believed_by_half() {
    // Whether it was confirmed, and its response time; then the known response time, and whether it
    // is confirmed.
    let cases = [
        (false, 49, 49.0, true),
        (true, 49, 49.5, true),
        (true, 52, 52.0, true),
        (true, 60, 60.0, false),
        (true, 40, 40.0, false),
        (false, 40, 40.0, false),
    ];
    for (is_confirmed, mean_ms, long, agrees) in cases {
        let mut state = Learned {
            phase: Phase::Measuring,
            level: 15,
            above: 45.0 * MS,
            is_confirmed,
            ..known()
        };
        let now = Tick::from_millis(100);
        state.close(&settings(), now, 15, sample(10, mean_ms, 15));
        assert_eq!((state.phase, state.long), (Phase::Steady, long * MS));
        assert_eq!(state.is_confirmed, agrees, "{mean_ms} ms");
        let least = if agrees { PROBE_EVERY } else { CONFIRM_AFTER };
        assert_eq!(state.next, now + least);
    }
    // One sample too few says nothing.
    let mut state = Learned {
        phase: Phase::Measuring,
        level: 15,
        above: 45.0 * MS,
        ..known()
    };
    state.close(&settings(), Tick::from_millis(100), 15, sample(9, 60, 15));
    assert_eq!((state.phase, state.long), (Phase::Steady, 50.0 * MS));
    assert_eq!(Samples::default().mean_ns(), None);
}

#[test]
fn who_goes_on_probes_when_the_old_one_would_have_but_within_ten_seconds() {
    let now = Tick::from_millis(5_000);
    for (next_ms, expected_ms) in [(8_000, 8_000), (1_000_000, 15_000)] {
        let old = Learned {
            estimate: 30.0,
            next: Tick::from_millis(next_ms),
            is_confirmed: true,
            // It has come down from there since the last probe.
            mark: 45.0,
            probed: 60.0 * MS,
            ..known()
        };
        let new = Learned::of(old, &settings(), now);
        assert_eq!(new.next, Tick::from_millis(expected_ms));
        assert_eq!((new.estimate, new.mark), (30.0, 30.0));
        assert_eq!((new.long, new.probed), (50.0 * MS, 50.0 * MS));
        assert!(new.is_confirmed && new.phase == Phase::Steady);
    }
}

#[test]
fn a_probe_goes_down_until_the_response_time_no_longer_follows() {
    // 15 slots, 50 ms of work, a limit of 60: 200 ms.
    let rt = |limit: u32| u64::from(50 * limit.max(15)) / 15;
    let settings = settings();
    let mut state = Learned::new(&settings, Tick::ZERO);
    state.estimate = 60.0;
    let mut now = Tick::from_millis(100);
    let mut levels = Vec::new();
    let mut terms = state.close(&settings, now, 60, sample(40, rt(60), 60));
    while state.phase != Phase::Steady {
        if state.phase == Phase::Settling {
            levels.push(state.limit());
            assert_eq!(terms.calm, state.limit());
        }
        now = now + Duration::from_millis(500);
        let level = state.limit();
        terms = state.close(&settings, now, level, sample(40, rt(level), level));
    }
    assert_eq!(levels, [45, 33, 24, 18, 13]);
    assert_eq!(state.long, 50.0 * MS);
    assert!(state.limit() >= 59, "a probe leaves the estimate alone");
    assert!(state.next < now + PROBE_EVERY * 8, "and is to be confirmed");
}

#[test]
fn a_probe_that_cannot_settle_is_given_up() {
    let mut state = known();
    state.next = Tick::ZERO;
    let now = Tick::from_millis(100);
    let terms = state.close(&settings(), now, 20, sample(40, 50, 20));
    assert_eq!(state.phase, Phase::Settling);
    assert_eq!(state.limit(), 15);
    let none = Samples {
        opened: terms.opened,
        ..sample(0, 0, 0)
    };
    let terms = state.close(&settings(), terms.latest, 18, none);
    assert_eq!(state.phase, Phase::Steady);
    assert_eq!(state.limit(), 20);
    // It took 4 s, so the next one is 80 s away.
    assert_eq!(state.next, terms.opened + Duration::from_secs(80));
}

#[test]
fn an_hour_without_calls_in_a_probe_does_not_put_the_next_one_off() {
    for phase in [Phase::Settling, Phase::Measuring] {
        let mut state = Learned {
            phase,
            level: 15,
            above: 50.0 * MS,
            ..known()
        };
        let mut now = Tick::from_millis(3_600_000);
        let mut terms = state.close(&settings(), now, 1, sample(1, 50, 1));
        if phase == Phase::Settling {
            now = terms.due;
            let sample = sample(75, 50, 15);
            let opened = terms.opened;
            terms = state.close(&settings(), now, 15, Samples { opened, ..sample });
        }
        assert_eq!(state.phase, Phase::Steady);
        // It was abandoned after 4 s, or measured for 150 ms after that.
        let next = terms.opened + Duration::from_secs(84);
        assert!(state.next <= next, "{:?} after {now:?}", state.next);
    }
}

#[test]
fn a_clock_that_steps_back_starts_the_window_anew() {
    for phase in [Phase::Steady, Phase::Settling, Phase::Measuring] {
        let mut state = known();
        state.phase = phase;
        state.began = Tick::from_millis(7_000_000);
        let late = Samples {
            opened: Tick::from_millis(7_200_000),
            ..sample(40, 9_000, 20)
        };
        let now = Tick::from_millis(5_000);
        let terms = state.close(&settings(), now, 20, late);
        assert_eq!((state.estimate, state.long), (20.0, 50.0 * MS));
        assert_eq!(state.next, now + PROBE_EVERY);
        assert_eq!(terms.due, now + SHORTEST_WINDOW);
    }
}
