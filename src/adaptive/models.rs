//! Loom models of calls that end while a window closes, and of refusals concurrent with the closer.
//!
//! Each model runs in all interleavings, and has a twin with a planted bug that must fail. For how
//! to run them, see `stat::models`.

use std::time::Duration;

use loom::thread;

use super::bounds::{BoundsObserved, Frame};
use super::estimate::LimiterSettings;
use super::shed::Shed;
use super::window::{SampleWindow, Samples, WindowTerms};
use crate::base::sync::fault::{check, plant};
use crate::base::sync::{Arc, AtomicU32, Bug, Lock, Ordering};
use crate::call::{Criticality, Importance};
use crate::clock::Tick;

/// The terms of a window that any call may close.
const ALWAYS: WindowTerms = WindowTerms::ALWAYS;

/// The time of all calls.
const NOW: Tick = Tick::from_nanos(1_000);

/// A window of samples with its terms behind a lock, as in a limiter.
struct Guarded {
    window: SampleWindow,
    terms: Lock<WindowTerms>,
}

impl Guarded {
    fn new(terms: WindowTerms) -> Arc<Self> {
        Arc::new(Self {
            window: SampleWindow::new(&terms),
            terms: Lock::new(terms),
        })
    }

    /// Ends a call that took `rt_ns`. Returns the samples of the window, if the call closed it.
    fn end(&self, rt_ns: u64, next: WindowTerms) -> Option<Samples> {
        self.window.add(NOW, Duration::from_nanos(rt_ns), 1);
        if !self.window.is_due(NOW) {
            return None;
        }
        let mut terms = self.terms.try_lock()?;
        let samples = self.window.close(&terms, NOW, 1)?;
        *terms = next;
        self.window.open(&terms);
        Some(samples)
    }
}

/// Three calls end on two threads, and each may close the window. Every sample is in exactly one
/// window, as a whole.
fn calls_during_a_close() {
    let guarded = Guarded::new(ALWAYS);
    let other = {
        let guarded = guarded.clone();
        thread::spawn(move || [1, 10].map(|rt_ns| guarded.end(rt_ns, ALWAYS)))
    };
    let ours = guarded.end(100, ALWAYS);
    let theirs = other.join().unwrap();
    let mut seen: Vec<_> = theirs.into_iter().chain([ours]).flatten().collect();
    // Samples of a window that was not closed are still there.
    let rest = guarded.window.close(&ALWAYS, NOW, 1);
    seen.extend(rest);
    let count: u32 = seen.iter().map(|sample| sample.count).sum();
    let sum_ns: u64 = seen.iter().map(|sample| sample.sum_ns).sum();
    assert_eq!((count, sum_ns), (3, 111), "lost or counted twice");
}

/// Two calls find a window due. The call that takes the lock second finds the next window, which is
/// not due.
fn a_suspended_closer() {
    let later = WindowTerms {
        due: Tick::from_nanos(u64::MAX - 1),
        ..ALWAYS
    };
    let guarded = Guarded::new(ALWAYS);
    let other = {
        let guarded = guarded.clone();
        thread::spawn(move || guarded.end(1, later).is_some())
    };
    let ours = guarded.end(10, later).is_some();
    let theirs = other.join().unwrap();
    assert!(!(ours && theirs), "the next window was not due");
}

/// Settings with a burst, so that the bounds of the classes differ.
const SETTINGS: LimiterSettings = LimiterSettings {
    floor: 1,
    ceiling: 1_000,
    start: 10,
    burst: Duration::from_millis(500),
};

/// The bits of all four classes, of which calls have arrived.
const ALL_SEEN: u32 = 0b1111;

/// Creates the inputs for bounds of a service with a limit of 10, of which all classes are called.
fn frame() -> Frame {
    Frame {
        limit: 10.0,
        rate: 20.0,
        is_known: true,
        seen: ALL_SEEN,
        ..Frame::default()
    }
}

/// Creates the bounds of a service whose long response time is known, with all classes open.
fn shed() -> Arc<Shed> {
    let shed = Shed::new();
    shed.set_frame(&frame());
    shed.publish(&SETTINGS);
    Arc::new(shed)
}

/// The index of the least important class.
const SHEDDABLE: usize = 3;

/// Refuses a sheddable call at the bound of its class.
fn refuse(shed: &Shed) {
    let full = shed.bounds()[SHEDDABLE];
    shed.refuse(SHEDDABLE, || full, &SETTINGS);
}

/// Two calls of an open class are refused at once. Only one class is shut.
fn two_refusals() {
    let shed = shed();
    let other = {
        let shed = shed.clone();
        thread::spawn(move || refuse(&shed))
    };
    refuse(&shed);
    other.join().unwrap();
    assert_eq!(shed.strictness().shut, 1, "for one burst");
    let bounds = frame().bounds(shed.strictness(), &SETTINGS);
    assert_eq!(shed.bounds(), bounds, "those of the word are published");
}

/// A call of an open class is refused while a closer relaxes the strictness after a good window.
/// The class that the refusal has shut stays shut.
fn a_refusal_during_a_close() {
    let shed = shed();
    let other = {
        let shed = shed.clone();
        thread::spawn(move || {
            refuse(&shed);
            shed.strictness().shut
        })
    };
    let shown = BoundsObserved {
        ended: 100,
        refused: 0,
        emptied: true,
    };
    let found = shed.strictness();
    shed.relax(found, shown, &frame(), &SETTINGS);
    shed.publish(&SETTINGS);
    let seen = other.join().unwrap();
    let found = shed.strictness();
    assert!(found.shut >= seen, "a refusal is lost");
    let bounds = frame().bounds(found, &SETTINGS);
    assert_eq!(shed.bounds(), bounds, "those of the word are published");
    // A refusal that comes while the closer publishes can have no effect. Then the next refusal
    // shuts the class.
    refuse(&shed);
    assert_eq!(shed.strictness().shut, 1, "lost or doubled");
}

/// A marginal class is reopened while a call is refused by its previous bound. The refusal shuts no
/// class.
fn a_late_refusal() {
    let shed = shed();
    refuse(&shed);
    assert_eq!(shed.strictness().shut, 1);
    let full = shed.bounds()[SHEDDABLE];
    let other = {
        let shed = shed.clone();
        thread::spawn(move || shed.refuse(SHEDDABLE, || full, &SETTINGS))
    };
    shed.reset();
    shed.publish(&SETTINGS);
    other.join().unwrap();
    assert_eq!(shed.strictness().shut, 0, "shut by a refusal of before");
}

/// A call ends while a closer takes the fewest calls in flight. The call is counted in this window
/// or in the next.
fn an_end_while_the_lowest_is_taken() {
    let shed = shed();
    let other = {
        let shed = shed.clone();
        thread::spawn(move || shed.ended(3))
    };
    let first = shed.gather().lowest;
    other.join().unwrap();
    let second = shed.gather().lowest;
    assert_eq!(first.min(second), 3, "nobody saw it");
}

/// The first calls of two classes arrive while a closer takes the classes seen. No class is lost.
fn first_calls_during_a_close() {
    let shed = shed();
    let other = {
        let shed = shed.clone();
        thread::spawn(move || {
            shed.bound(Importance::of(Criticality::CriticalPlus), &SETTINGS);
        })
    };
    shed.bound(Importance::of(Criticality::Sheddable), &SETTINGS);
    let first = shed.gather().seen;
    other.join().unwrap();
    let second = shed.gather().seen;
    assert_eq!(first | second, 0b1001, "a class was seen by nobody");
}

/// Two threads take slots within a bound while a closer lowers the bound. The calls in flight never
/// exceed the higher bound.
fn two_takers_and_a_closer() {
    let shed = shed();
    let taken = Arc::new(AtomicU32::new(18));
    let largest = shed.bounds()[SHEDDABLE];
    assert_eq!(largest, 20);
    let take = |shed: &Shed, taken: &AtomicU32| {
        let bound = shed.bound(Importance::of(Criticality::Sheddable), &SETTINGS);
        let mut found = taken.load(Ordering::Relaxed);
        while found < bound {
            if crate::base::sync::planted(Bug::CheckThenClaim) {
                taken.fetch_add(1, Ordering::AcqRel);
                return;
            }
            let (won, lost) = (Ordering::AcqRel, Ordering::Relaxed);
            match taken.compare_exchange(found, found + 1, won, lost) {
                Ok(_) => return,
                Err(now) => found = now,
            }
        }
    };
    let other = {
        let (shed, taken) = (shed.clone(), taken.clone());
        thread::spawn(move || [(); 2].map(|()| take(&shed, &taken)))
    };
    take(&shed, &taken);
    shed.set_frame(&Frame {
        limit: 9.0,
        ..frame()
    });
    shed.renew();
    shed.publish(&SETTINGS);
    other.join().unwrap();
    assert!(taken.load(Ordering::Relaxed) <= largest, "beyond any bound");
}

#[test]
fn no_sample_is_lost() {
    check(3, calls_during_a_close);
}

#[test]
#[should_panic(expected = "lost or counted twice")]
fn a_closer_that_empties_the_window_in_two_steps() {
    plant(Bug::CloseInTwoSteps);
    check(3, calls_during_a_close);
}

#[test]
fn a_suspended_call_closes_no_other_window() {
    check(3, a_suspended_closer);
}

#[test]
#[should_panic(expected = "was not due")]
fn a_suspended_call_that_closes_the_next_window() {
    plant(Bug::CloseByHint);
    check(3, a_suspended_closer);
}

#[test]
fn one_burst_shuts_one_class() {
    check(3, two_refusals);
}

#[test]
#[should_panic]
fn refusals_that_add_up() {
    plant(Bug::ShutByAdd);
    check(3, two_refusals);
}

#[test]
#[should_panic]
fn a_refusal_that_does_not_look_whether_its_class_is_open() {
    plant(Bug::ShutWithoutLook);
    check(3, two_refusals);
}

#[test]
fn no_refusal_is_lost_during_a_close() {
    check(3, a_refusal_during_a_close);
}

// No message is expected, as two assertions can fail: the refusal or its bounds are lost.
#[test]
#[should_panic]
fn a_closer_that_overwrites_a_refusal() {
    plant(Bug::RelaxByStore);
    check(3, a_refusal_during_a_close);
}

#[test]
fn a_late_refusal_shuts_nothing() {
    check(3, a_late_refusal);
}

#[test]
#[should_panic(expected = "by a refusal of before")]
fn a_late_refusal_that_shuts() {
    plant(Bug::ShutAnyGeneration);
    check(3, a_late_refusal);
}

#[test]
fn the_fewest_calls_are_in_one_window() {
    check(3, an_end_while_the_lowest_is_taken);
}

#[test]
#[should_panic(expected = "nobody saw it")]
fn a_closer_that_takes_the_fewest_in_two_steps() {
    plant(Bug::LowestInTwoSteps);
    check(3, an_end_while_the_lowest_is_taken);
}

#[test]
fn the_first_call_of_a_class_is_seen() {
    check(3, first_calls_during_a_close);
}

#[test]
#[should_panic(expected = "seen by nobody")]
fn a_first_call_that_overwrites_another() {
    plant(Bug::SeenByStore);
    check(3, first_calls_during_a_close);
}

#[test]
fn no_more_calls_run_than_the_largest_bound() {
    check(3, two_takers_and_a_closer);
}

#[test]
#[should_panic(expected = "beyond any bound")]
fn a_taker_that_checks_first() {
    plant(Bug::CheckThenClaim);
    check(3, two_takers_and_a_closer);
}
