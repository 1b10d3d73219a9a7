//! A model of a callee that asks not to be called for a while, concurrently with a call.

use std::time::Duration;

use loom::thread;

use super::super::{BreakerSpec, Strategy};
use super::{Caller, breakers, noting, spec};
use crate::base::sync::fault::model;
use crate::clock::Tick;

model! {
    a_call_during_a_pushback at 3 fails with a_pushback_whose_time_comes_late: PushbackAfterState;
    || {
        // The callee asks for 50 ms without calls. A concurrent call may pass before the breaker
        // opens, but must not become a probe.
        let breakers = breakers([BreakerSpec {
            strategy: Strategy::Pushback,
            open_up_to: Some(Duration::from_millis(100)),
            ..spec(1)
        }]);
        let mut first = Caller::new(&breakers);
        let mut other = first.clone();
        let thread = thread::spawn(move || other.enter(1).is_ok_and(|call| call.is_probe(0)));
        let after = Duration::from_millis(50);
        breakers.push_back(Tick::ZERO, after, &mut noting(&mut first.told));
        assert!(!thread.join().unwrap(), "a probe at 1 ms of 50");
        assert!(first.enter(49).is_err());
        assert!(first.enter(50).unwrap().is_probe(0));
    }
}
