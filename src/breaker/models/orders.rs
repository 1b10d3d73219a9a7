//! Models of memory orderings: a thread that sees one word of a breaker also sees everything that
//! was written before it.
//!
//! Each of these models fails if one of the orderings is relaxed.

use std::time::Duration;

use loom::thread;

use super::super::circuit::{Breaker, CircuitAnswer};
use super::super::packed::StateKind;
use super::super::window::CountWindow;
use super::super::{Admission, BreakerSpec, Breakers};
use super::{Caller, breakers, count, spec};
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::clock::Tick;

model! {
    counts_during_a_leap_to_repeated_stamps at 3
        fails with a_leap_before_the_ring_is_empty: LeapWithStamps;
    || {
        // Stamps repeat after 4096 rounds of the ring.
        let (old, far) = (11, 11 + 2 * 4_096);
        let window = Arc::new(CountWindow::new(1, 2, Tick::from_nanos(10)));
        // The old cell has two counts, so that a new count gives a different word.
        assert_eq!([old - 1, old, old].map(|bucket| count(&window, bucket)), [1, 2, 3]);
        let other = window.clone();
        let thread = thread::spawn(move || count(&other, far));
        let counted = [count(&window, far), thread.join().unwrap()];
        assert_eq!(counted.into_iter().max(), Some(2), "none is lost, and none of long ago");
    }
}

model! {
    a_longer_time_and_an_older_rule at 3
        fails with a_bound_read_before_the_longer_time: LongestBeforeMoment;
    || {
        let old = Arc::new(Breaker::new(spec(1), 0, Tick::ZERO, 0, None));
        // The thread that has opened the breaker sleeps before it writes the moment.
        assert!(old.swap(old.word(), old.word().opened(StateKind::OpenUntil)));
        let other = old.clone();
        let thread = thread::spawn(move || {
            let longer = BreakerSpec { open_for: Duration::from_secs(5), ..spec(1) };
            let new = Breaker::new(longer, 0, Tick::ZERO, 0, Some(&other));
            new.ask(Tick::ZERO).1
        });
        // Under both rules the breaker is open for at least 10 ms.
        let answers = [old.ask(Tick::ZERO).1, thread.join().unwrap()];
        assert!(answers.iter().all(|it| matches!(it, CircuitAnswer::Refuse(Some(_)))), "{answers:?}");
    }
}

model! {
    a_count_during_a_late_forget at 3
        fails with a_count_that_is_forgotten: ForgetLate;
    || {
        // Two threads close a breaker. One thread has won, and a call counts in the new generation,
        // while the other still empties the counts.
        let shared = Arc::new((CountWindow::new(1, 1, Tick::ZERO), AtomicBool::new(false)));
        let other = shared.clone();
        let thread = thread::spawn(move || {
            let (window, is_over) = &*other;
            window.forget(0, || is_over.load(Ordering::Relaxed));
        });
        let (window, is_over) = &*shared;
        is_over.store(true, Ordering::Relaxed);
        count(window, 0);
        thread.join().unwrap();
        assert_eq!(count(window, 0), 2, "a count was lost");
    }
}

model! {
    a_probe_during_the_end_of_another_state at 2
        fails with a_probe_that_looks_once: ProbeLooksOnce;
    || {
        // The call probes the second breaker, and passes the first and the third.
        let specs = [spec(2), spec(1), spec(2)];
        let [breakers, alone] = [breakers(specs.clone()), breakers(specs)];
        let probe = |breakers: &Arc<Breakers>| {
            Caller::new(breakers).enter_as_probe(10).ok()
        };
        Caller::new(&breakers).fail(0);
        Caller::new(&alone).fail(0);
        let other = breakers.clone();
        let thread = thread::spawn(move || probe(&other));
        // The first breaker is opened before the third one draws an epoch.
        breakers.force_open(0, &mut |_| {});
        breakers.force_close(2, &mut |_| {});
        let admission = thread.join().unwrap();
        assert!(admission.is_none() || admission == probe(&alone), "it drew later than that");
    }
}

model! {
    an_epoch_during_the_end_of_a_state at 3
        fails with an_epoch_read_after_the_states: EpochAfterStates;
    || {
        let breakers = breakers([spec(1), spec(1)]);
        let before = breakers.admit_if_closed().map(Admission::from);
        let other = breakers.clone();
        let thread = thread::spawn(move || other.admit_if_closed().map(Admission::from));
        // The first breaker is opened before the second one draws an epoch.
        breakers.force_open(0, &mut |_| {});
        breakers.force_close(1, &mut |_| {});
        let admission = thread.join().unwrap();
        assert!(admission.is_none() || admission == before, "it counts in what comes after");
    }
}
