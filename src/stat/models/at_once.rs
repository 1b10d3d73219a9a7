//! A model of takers that make a single attempt, as in the fast path of the engine.

use loom::thread;

use super::*;

model! {
    takers_in_one_attempt_during_a_roll at 2 fails with
        takers_in_one_attempt_that_do_not_compare: BlindTake;
    || {
        // One thread makes an attempt in the bucket that the other thread closes, and one in the
        // bucket that the other thread opens.
        let array = array(2);
        let other = array.clone();
        let at_once = |array: &LeapArray, now| {
            let taken = array.acquire_at_once(Tick::from_nanos(now), 1, &[quota(2, 1)]);
            Tally::took(taken.unwrap_or(Err(Denied::Reloaded)))
        };
        let thread = thread::spawn(move || Tally::join([10, 12].map(|now| at_once(&other, now))));
        let ours = Tally::took(array.acquire_at(12, 1, &[quota(2, 1)]));
        let again = at_once(&array, 12);
        Tally::join([ours, again, thread.join().unwrap()]).settle(&array, &[(2, 1)]);
    }
}
