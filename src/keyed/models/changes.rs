//! Calls of a key whose limit changes.

use super::{A, B, at, keys, spawn, take};
use crate::base::sync::fault::model;
use crate::keyed::{Counting, HotKeys};

model! {
    a_debt_that_becomes_shorter_beside_a_late_call_of_the_last_owner at 3 fails with
        one_that_brings_back_an_older_word: NewRateByEarlierTime;
    || {
        // B's debt ends at 500. At 600 A takes its slot, at 5 per ms, and comes again at 10 by a clock
        // that still shows 0: by that, its debt would end at 500 as well. Beside it comes a second
        // call of B, by a clock of before.
        let keys = keys(Counting::Refill, 1);
        let [low, high] = [5.0, 10.0].map(|threshold| keys.limit(threshold, 0));
        assert!(keys.take(at(0), B, &high, 5).is_ok());
        let other = spawn(&keys, move |keys| keys.take(at(0), B, &high, 5).is_ok());
        let first = take(&keys, 600, A, low).is_some();
        let second = keys.take_by(at(0), A, &high, 1, || at(600)).is_ok();
        assert!(first && second && other.join().unwrap());
        assert!(keys.left(at(600), A, &high) >= 8, "A pays for B");
    }
}

model! {
    two_rates_of_a_key_beside_each_other at 3 fails with
        a_call_that_takes_what_is_not_there: OtherRateAsOwn;
    || {
        // Of 2 per ms both are spent, and four per ms are two more, for whoever comes first; then
        // there is none at either rate.
        let keys = keys(Counting::Refill, 1);
        let [low, high] = [2.0, 4.0].map(|threshold| keys.limit(threshold, 0));
        assert!(keys.take(at(0), A, &low, 1).is_ok());
        let by = |keys: &HotKeys, limit| keys.take_by(at(0), A, &limit, 1, || at(0)).is_ok();
        let other = spawn(&keys, move |keys| [low, high].map(|limit| by(keys, limit)));
        let ours = [high, low].map(|limit| by(&keys, limit));
        let theirs = other.join().unwrap();
        let passed = ours.into_iter().chain(theirs).filter(|&passed| passed).count() as u32;
        assert_eq!(keys.left(at(0), A, &high), 3 - passed);
        assert_eq!(keys.left(at(0), A, &low), 1_u32.saturating_sub(passed));
        assert!(ours[0] && theirs[1], "two more at the higher rate");
    }
}
