//! Every interleaving of calls that end while a window closes, checked by loom.
//!
//! Each model has a twin with a planted bug that must fail. Run as
//! `stat::models` says.

use std::time::Duration;

use loom::thread;

use super::gradient::{Phase, Settings, State};
use super::window::{Sample, Terms, Window};
use crate::clock::Tick;
use crate::sync::fault::{check, plant};
use crate::sync::{Arc, AtomicU64, Bug, Ordering};

/// A window that may close with every sample.
const ALWAYS: Terms = Terms {
    opened: Tick::ZERO,
    due: Tick::ZERO,
    needed: 1,
    latest: Tick::from_nanos(u64::MAX),
    calm: 0,
    since: Tick::ZERO,
};

const NOW: Tick = Tick::from_nanos(1_000);

/// Ends a call that took `rt_ns`: what the window saw, if the call closed it.
fn end(window: &Window, rt_ns: u64, when_closed: impl FnOnce()) -> Sample {
    window.add(NOW, Duration::from_nanos(rt_ns), 1);
    let Some((sample, _)) = window.close(NOW, || 1) else {
        return Sample::default();
    };
    when_closed();
    window.open(ALWAYS);
    sample
}

/// Two calls end beside a third: every sample is in one window, as a whole.
fn samples_beside_a_closer() {
    let window = Arc::new(Window::new(ALWAYS));
    let other = {
        let window = window.clone();
        thread::spawn(move || [1, 10].map(|rt_ns| end(&window, rt_ns, || ())))
    };
    let mut seen = vec![end(&window, 100, || ())];
    seen.extend(other.join().unwrap());
    // What nobody closed is still there.
    seen.extend(window.close(NOW, || 1).map(|(sample, _)| sample));
    let count: u32 = seen.iter().map(|sample| sample.count).sum();
    let sum_ns: u64 = seen.iter().map(|sample| sample.sum_ns).sum();
    assert_eq!((count, sum_ns), (3, 111), "lost or counted twice");
}

/// Closers change what they guard in two steps that only one at a time may do,
/// and each sees what the one before it did.
fn closers_in_turn() {
    let window = Arc::new(Window::new(ALWAYS));
    let guarded = Arc::new(AtomicU64::new(0));
    let close = |window: &Window, guarded: &AtomicU64| {
        let mut closed = 0;
        end(window, 1, || {
            let found = guarded.load(Ordering::Relaxed);
            guarded.store(found + 1, Ordering::Relaxed);
            closed = 1;
        });
        closed
    };
    let other = {
        let (window, guarded) = (window.clone(), guarded.clone());
        thread::spawn(move || close(&window, &guarded) + close(&window, &guarded))
    };
    let closed: u64 = close(&window, &guarded) + other.join().unwrap();
    assert!(closed > 0, "nobody closed");
    assert_eq!(guarded.load(Ordering::Relaxed), closed, "two at once");
}

/// The terms of a probe that waits until no more than `level` calls run.
fn settling(level: u32, opened: Tick) -> Terms {
    let settings = Settings {
        floor: 1,
        ceiling: 10,
        start: 10,
        tolerance: 1.0,
        smoothing: 0.2,
    };
    let state = State {
        phase: Phase::Settling,
        level,
        ..State::new(&settings, opened)
    };
    state.terms(opened)
}

/// A call that ends finds that a probe has settled, and sleeps. Another one closes
/// that window; when the first one wakes up, a deeper probe waits to settle.
fn a_sleeper_beside_two_probes() {
    let later = NOW + Duration::from_secs(1);
    let window = Arc::new(Window::new(settling(8, NOW)));
    let other = {
        let window = window.clone();
        thread::spawn(move || window.close(NOW, || 7).map(|(sample, _)| sample.opened))
    };
    if window.close(NOW, || 7).is_some() {
        window.open(settling(6, later));
    }
    if let Some(opened) = other.join().unwrap() {
        assert_eq!(opened, NOW, "seven calls run, and the probe is for six");
    }
}

/// A probe has settled with six calls. One more comes, and when it runs there is
/// another probe for six: who counted the six of before must not close that.
fn a_gauge_of_before_the_probe() {
    let later = NOW + Duration::from_secs(1);
    let window = Arc::new(Window::new(settling(6, NOW)));
    let gauge = Arc::new(AtomicU64::new(6));
    let other = {
        let (window, gauge) = (window.clone(), gauge.clone());
        thread::spawn(move || {
            let closed = window.close(NOW, || gauge.load(Ordering::Relaxed) as u32);
            closed.map(|(sample, _)| sample.opened)
        })
    };
    if window.close(NOW, || 6).is_some() {
        gauge.store(7, Ordering::Relaxed);
        window.open(settling(6, later));
    }
    if let Some(opened) = other.join().unwrap() {
        assert_eq!(opened, NOW, "seven calls run, and the probe is for six");
    }
}

#[test]
fn no_sample_is_lost_or_counted_twice() {
    check(3, samples_beside_a_closer);
}

#[test]
#[should_panic]
fn a_closer_that_empties_the_window_in_two_steps() {
    plant(Bug::CloseInTwoSteps);
    check(3, samples_beside_a_closer);
}

#[test]
fn who_slept_closes_no_other_probe() {
    check(2, a_sleeper_beside_two_probes);
}

#[test]
#[should_panic]
fn a_sleeper_that_closes_the_next_probe() {
    plant(Bug::OneGateForAll);
    check(2, a_sleeper_beside_two_probes);
}

#[test]
fn who_counted_before_a_probe_does_not_close_it() {
    check(2, a_gauge_of_before_the_probe);
}

#[test]
#[should_panic]
fn a_closer_that_counted_before_the_probe() {
    plant(Bug::GaugeBeforeGate);
    check(2, a_gauge_of_before_the_probe);
}

#[test]
fn one_closes_at_a_time() {
    check(3, closers_in_turn);
}

#[test]
#[should_panic]
fn a_closer_that_nobody_elected() {
    plant(Bug::CloseWithoutElection);
    check(3, closers_in_turn);
}
