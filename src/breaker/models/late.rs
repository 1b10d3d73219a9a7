//! Models of probes that end after their lease, concurrently with the probes that have got their
//! places.

use loom::thread;

use super::super::BreakerSpec;
use super::super::BreakerState::{Closed, HalfOpen, Open};
use super::{Caller, breakers, spec};
use crate::base::sync::fault::model;

model! {
    a_late_probe_and_the_next_one at 3
        fails with a_late_probe_that_tries_once: EndTriesOnce;
    || {
        let breakers = breakers([spec(1)]);
        let mut first = Caller::new(&breakers);
        first.fail(0);
        let late = first.enter(10).unwrap();
        let mut other = Caller::new(&breakers);
        let thread = thread::spawn(move || other.end(20, late, false));
        // The lease of the late probe is over. Its end must count whether its place has been given
        // on or not.
        let next = first.enter(20).expect("as a probe or as an ordinary call");
        thread.join().unwrap();
        assert_eq!(breakers.state(0), Closed);
        first.end(20, next, true);
        assert_eq!(breakers.state(0), if next.is_probe(0) { Closed } else { Open });
    }
}

model! {
    a_late_probe_of_an_older_period_and_places_given_on at 3
        fails with a_period_that_is_written_late: PeriodAfterPlaces;
    || {
        let breakers = breakers([BreakerSpec { probes: 2, ..spec(1) }]);
        let mut first = Caller::new(&breakers);
        first.fail(0);
        let [bad, late] = [first.enter(10).unwrap(), first.enter(10).unwrap()];
        // The places are given on, so that the start of the period is written.
        first.enter(20).unwrap();
        first.end(20, bad, true);
        for _ in 0..2 {
            first.enter(30).unwrap();
        }
        let mut other = Caller::new(&breakers);
        let thread = thread::spawn(move || other.end(40, late, true));
        first.enter_as_probe(40).expect("the lease of both is over");
        thread.join().unwrap();
        assert_eq!(breakers.state(0), HalfOpen, "it is of an older period");
    }
}

model! {
    places_given_on_and_a_newer_period at 3
        fails with a_period_written_blindly: BlindPeriod;
    || {
        let breakers = breakers([BreakerSpec { probes: 2, ..spec(1) }]);
        let mut first = Caller::new(&breakers);
        first.fail(0);
        let [bad, late] = [first.enter(10).unwrap(), first.enter(10).unwrap()];
        let mut other = Caller::new(&breakers);
        let thread = thread::spawn(move || other.enter_as_probe(20).is_ok());
        first.end(20, bad, true);
        // A newer period begins, in which places are given on as well.
        for _ in 0..2 {
            let _ = first.enter_as_probe(30);
        }
        first.enter_as_probe(40).expect("the lease of both is over");
        first.end(40, late, true);
        assert_eq!(breakers.state(0), HalfOpen, "it is of an older period");
        thread.join().unwrap();
    }
}
