//! Every interleaving of calls that end while a window closes, checked by loom.
//!
//! Each model has a twin with a planted bug that must fail. Run as
//! `stat::models` says.

use std::time::Duration;

use loom::thread;

use super::gradient::{Learned, LimiterSettings, Phase};
use super::window::{SampleWindow, Samples, WindowTerms};
use crate::base::sync::fault::{check, plant};
use crate::base::sync::{Arc, AtomicU64, Bug, Ordering};
use crate::clock::Tick;

const ALWAYS: WindowTerms = WindowTerms::ALWAYS;

const NOW: Tick = Tick::from_nanos(1_000);

/// A window, and how often it was closed: changed in two steps, of which each closer sees
/// those of the one before it.
struct Guarded {
    window: SampleWindow,
    closed: AtomicU64,
}

impl Guarded {
    /// Ends a call that took `rt_ns`. Returns the samples of the window, if the call closed it.
    fn end(&self, rt_ns: u64) -> Option<Samples> {
        self.window.add(NOW, Duration::from_nanos(rt_ns), 1);
        let (sample, _) = self.window.close(NOW, || 1)?;
        let found = self.closed.load(Ordering::Relaxed);
        self.closed.store(found + 1, Ordering::Relaxed);
        self.window.open(ALWAYS);
        Some(sample)
    }
}

/// Two calls end beside a third. One closes at a time, and every sample is in one window,
/// as a whole.
fn calls_beside_a_closer() {
    let guarded = Arc::new(Guarded {
        window: SampleWindow::new(ALWAYS),
        closed: AtomicU64::new(0),
    });
    let other = {
        let guarded = guarded.clone();
        thread::spawn(move || [1, 10].map(|rt_ns| guarded.end(rt_ns)))
    };
    let ours = guarded.end(100);
    let theirs = other.join().unwrap();
    let mut seen: Vec<_> = theirs.into_iter().chain([ours]).flatten().collect();
    assert!(!seen.is_empty(), "nobody closed");
    let closed = guarded.closed.load(Ordering::Relaxed);
    assert_eq!(closed, seen.len() as u64, "two at once");
    // Samples of a window that was not closed are still there.
    let rest = guarded.window.close(NOW, || 1);
    seen.extend(rest.map(|(sample, _)| sample));
    let count: u32 = seen.iter().map(|sample| sample.count).sum();
    let sum_ns: u64 = seen.iter().map(|sample| sample.sum_ns).sum();
    assert_eq!((count, sum_ns), (3, 111), "lost or counted twice");
}

/// The terms of a probe that waits until no more than `level` calls run.
fn settling(level: u32, opened: Tick) -> WindowTerms {
    let settings = LimiterSettings {
        floor: 1,
        ceiling: 10,
        start: 10,
        tolerance: 1.0,
        smoothing: 0.2,
    };
    let state = Learned {
        phase: Phase::Settling,
        level,
        ..Learned::new(&settings, opened)
    };
    state.terms(opened)
}

/// A call that ends finds that a probe has settled, and sleeps. Another one closes
/// that window; when the first one wakes up, a deeper probe waits to settle.
fn a_sleeper_beside_two_probes() {
    let later = NOW + Duration::from_secs(1);
    let window = Arc::new(SampleWindow::new(settling(8, NOW)));
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

/// A probe has settled with six calls. One more comes, and when it runs there is another probe for
/// six: a call that counted the six of before must not close that.
fn a_gauge_of_before_the_probe() {
    let later = NOW + Duration::from_secs(1);
    let window = Arc::new(SampleWindow::new(settling(6, NOW)));
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
fn one_closes_at_a_time_and_no_sample_is_lost() {
    check(3, calls_beside_a_closer);
}

#[test]
#[should_panic(expected = "lost or counted twice")]
fn a_closer_that_empties_the_window_in_two_steps() {
    plant(Bug::CloseInTwoSteps);
    check(3, calls_beside_a_closer);
}

#[test]
#[should_panic(expected = "two at once")]
fn a_closer_that_nobody_elected() {
    plant(Bug::CloseWithoutElection);
    check(3, calls_beside_a_closer);
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
