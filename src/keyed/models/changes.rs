//! Models of concurrent calls of a key whose limit changes, or that is blocked.

use std::time::Duration;

use super::{A, B, at, keys, spawn, take};
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::keyed::{Counting, HotKeys};

model! {
    a_converted_debt_and_a_late_call_of_the_previous_owner at 3 fails with
        a_call_that_restores_an_older_word: NewRateByEarlierTime;
    || {
        // B's debt ends at 500. At 600 A takes the slot with a rate of 5 per ms, and then calls
        // again with a rate of 10 and a clock reading of 0. If that reading were used to convert
        // A's debt, it would end at 500 as well. Concurrently B makes a second call with an old
        // clock reading.
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
    a_key_that_is_blocked_during_a_refund at 3 fails with
        a_block_of_a_key_with_room: BlockBlindly;
    || {
        // A's only token is refunded concurrently with a second call of A. If this call is refused,
        // it blocks A, unless there is room for it by then.
        let keys = keys(Counting::Refill, 1);
        let limit = keys.limit(1.0, 0);
        let taken = take(&keys, 0, A, limit).unwrap();
        // Loom explores no pause before a load. A value that both threads change makes it explore
        // pauses here.
        let pause = Arc::new(AtomicU64::new(0));
        let ours = pause.clone();
        let other = spawn(&keys, move |keys| {
            keys.refund(|| at(0), &taken);
            pause.fetch_add(0, Ordering::AcqRel);
        });
        let is_refused = take(&keys, 0, A, limit).is_none();
        ours.fetch_add(0, Ordering::AcqRel);
        let length = Duration::from_millis(9);
        let has_room = keys.left(at(0), A, &limit) == 1;
        let is_blocked = is_refused && keys.block(at(0), A, &limit, 1, length);
        other.join().unwrap();
        assert!(!(has_room && is_blocked), "it could have passed");
        assert_eq!(keys.left(at(0), A, &limit), u32::from(is_refused && !is_blocked));
        let is_blocked_later = keys.left(at(8_999), A, &limit) == 0;
        assert_eq!(is_blocked_later, is_blocked);
        assert_eq!(keys.left(at(9_000), A, &limit), 1);
        // B has the slot or the shared word, and is not blocked.
        assert!(take(&keys, 0, B, limit).is_some());
    }
}

model! {
    two_concurrent_rates_of_a_key at 3 fails with
        a_call_that_takes_missing_tokens: OtherRateAsOwn;
    || {
        // At 2 per ms, A has one token left. At 4 per ms, three tokens are left, in whatever order
        // the calls come.
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
