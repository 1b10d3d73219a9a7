//! Models of readers: figures read concurrently with takers, borrowers and rolls are consistent.
//!
//! Every figure is composed of several words. The twins leave out the checks that these words
//! belong to the same moment.

use loom::thread;

use super::{array, quota, wish};
use crate::base::sync::Arc;
use crate::base::sync::fault::model;
use crate::clock::Tick;
use crate::stat::checkpoints::StepHead;
use crate::stat::extremes::{Extreme, Extremes};
use crate::stat::leap_array::{Denied, Grid, LeapArray};
use crate::stat::occupy::Wish;

/// An array at bucket 11, in which one token was taken in 10 and one is held for 13. The limit is
/// two.
fn with_a_loan() -> Arc<LeapArray> {
    let grid = Grid {
        bucket_ns: 1,
        buckets: 2,
        ahead: 2,
    };
    let array = Arc::new(LeapArray::with_grid(grid, Tick::from_nanos(10)));
    assert!(array.acquire_at(10, 1, &[quota(2, 2)]).is_ok());
    assert_eq!(array.bring_to(Tick::from_nanos(11)), Ok(11));
    borrow_for_13(&array);
    array
}

/// Holds a token for bucket 13.
fn borrow_for_13(array: &LeapArray) {
    let now = array.newest();
    let wish = Wish {
        from: Tick::from_nanos(13),
        ..wish(now)
    };
    let loan = array.borrow_for(wish, &[quota(2, 2)], &mut 0).unwrap();
    assert_eq!(loan.bucket(), 13);
}

model! {
    a_sum_during_a_cancelled_loan at 3 fails with a_sum_of_words_that_do_not_match: TakenBelowCut;
    || {
        // The head word is the same before the loan and after its cancellation.
        let array = array(2);
        assert!(array.acquire_at(10, 1, &[quota(2, 1)]).is_ok());
        assert_eq!(array.bring_to(Tick::from_nanos(11)), Ok(11));
        let other = array.clone();
        let reader = thread::spawn(move || other.window(1, 1).sum(Tick::from_nanos(11)));
        let loan = array.borrow_for(wish(11), &[quota(2, 1)], &mut 0).unwrap();
        assert!(array.cancel_at(11, loan));
        let sum = reader.join().unwrap();
        assert!(sum <= 1, "{sum} of one token that was held for a moment");
    }
}

model! {
    a_view_during_a_take at 2 fails with a_view_that_does_not_look_again: ReadAcrossBuckets;
    || {
        // One token is taken in 10 and one in 11: a window of one bucket never holds both.
        let array = array(1);
        assert!(array.acquire_at(10, 1, &[quota(1, 1)]).is_ok());
        let other = array.clone();
        let reader = thread::spawn(move || other.whole().sum(Tick::from_nanos(10)));
        assert!(array.acquire_at(11, 1, &[quota(1, 1)]).is_ok());
        let sum = reader.join().unwrap();
        assert!(sum <= 1, "{sum} in a window of one");
    }
}

model! {
    buckets_during_a_take at 2 fails with buckets_that_are_not_looked_at_again: ReadAcrossBuckets;
    || {
        // The reader must never see the token of 11 in bucket 10.
        let array = array(2);
        assert!(array.acquire_at(10, 1, &[quota(1, 1)]).is_ok());
        let other = array.clone();
        let reader = thread::spawn(move || {
            let buckets = other.buckets(Tick::from_nanos(10));
            buckets.map(|(start, count)| (start.as_nanos(), count)).collect::<Vec<_>>()
        });
        assert!(array.acquire_at(11, 1, &[quota(1, 1)]).is_ok());
        let seen = reader.join().unwrap();
        let is_so = |&(bucket, count): &(u64, u32)| match bucket {
            9 => count == 0,
            10 => count == 1,
            _ => count <= 1,
        };
        assert!(seen.iter().all(is_so), "{seen:?}");
    }
}

model! {
    a_count_during_a_take at 2 fails with a_count_that_is_not_looked_at_again: ReadAcrossBuckets;
    || {
        let array = array(1);
        assert!(array.acquire_at(10, 1, &[quota(1, 1)]).is_ok());
        let other = array.clone();
        let reader = thread::spawn(move || other.count_at(Tick::from_nanos(10)));
        assert!(array.acquire_at(11, 1, &[quota(1, 1)]).is_ok());
        // Once 11 is open, the window no longer includes bucket 10.
        let count = reader.join().unwrap();
        assert!(count <= 1, "{count} in a bucket of one");
    }
}

model! {
    taken_during_a_loan at 1 fails with taken_with_stale_loans: ReadAcrossBuckets;
    || {
        // A second token is held when 12 is the newest bucket, so the loan cell is stamped 12 and
        // no longer 11.
        let array = with_a_loan();
        let other = array.clone();
        let reader = thread::spawn(move || other.taken_now());
        assert_eq!(array.bring_to(Tick::from_nanos(12)), Ok(12));
        borrow_for_13(&array);
        let taken = reader.join().unwrap();
        // A token that is charged but not yet in its loan cell counts as taken.
        assert!(taken == 1 || taken == 2, "{taken} taken, one of them or two held");
    }
}

model! {
    held_during_a_loan at 1 fails with held_as_of_another_bucket: ReadAcrossBuckets;
    || {
        // A second token is held for 13 during the read: both figures must include the first loan.
        let array = with_a_loan();
        let other = array.clone();
        let reader = thread::spawn(move || {
            let now = Tick::from_nanos(11);
            let loans: u32 = other.loans(now).map(|(_, held)| held).sum();
            (loans, other.waiting(now))
        });
        assert_eq!(array.bring_to(Tick::from_nanos(12)), Ok(12));
        borrow_for_13(&array);
        let (loans, waiting) = reader.join().unwrap();
        assert!(loans >= 1 && waiting >= loans, "{loans} held, then {waiting}");
    }
}

model! {
    room_during_rolls at 2;
    || {
        // The token of 10 leaves the window of three when 13 opens.
        let array = array(2);
        assert!(array.acquire_at(10, 1, &[quota(3, 1)]).is_ok());
        let other = array.clone();
        let reader = thread::spawn(move || other.room(Tick::from_nanos(10), &quota(3, 1)));
        assert_eq!(array.bring_to(Tick::from_nanos(12)), Ok(12));
        assert_eq!(reader.join().unwrap(), 0, "room in a full window");
    }
}

model! {
    the_time_of_room_during_rolls at 1;
    || {
        let array = array(2);
        assert!(array.acquire_at(10, 1, &[quota(3, 1)]).is_ok());
        let other = array.clone();
        let reader = thread::spawn(move || other.available_at(Tick::from_nanos(10), 1, &quota(3, 1)));
        // The checkpoint of 14 replaces that of 10.
        assert_eq!(array.bring_to(Tick::from_nanos(14)), Ok(14));
        let at = reader.join().unwrap();
        assert!(at >= Some(Tick::from_nanos(13)), "told to come at {at:?}");
    }
}

model! {
    the_time_of_room_during_a_loan at 1 fails with a_time_of_two_moments: ReadAcrossBuckets;
    || {
        // The tokens held for 13 leave the window of two at 15.
        let array = with_a_loan();
        let other = array.clone();
        let reader = thread::spawn(move || other.available_at(Tick::from_nanos(11), 2, &quota(2, 2)));
        assert_eq!(array.bring_to(Tick::from_nanos(12)), Ok(12));
        borrow_for_13(&array);
        assert_eq!(reader.join().unwrap(), Some(Tick::from_nanos(15)));
    }
}

model! {
    a_jump_during_a_move at 2 fails with a_jump_that_a_move_does_not_see: FreezeWithoutMark;
    || {
        // One clock is far ahead: its thread jumps, concurrently with a reload.
        let old = array(2);
        assert!(old.acquire_at(10, 1, &[quota(2, 1)]).is_ok());
        let other = old.clone();
        let jumper = thread::spawn(move || other.acquire_at(40, 1, &[quota(2, 1)]));
        let new = old.move_to(Grid { bucket_ns: 1, buckets: 2, ahead: 1 }, Tick::from_nanos(11));
        let theirs = match jumper.join().unwrap() {
            // A thread that finds the array replaced tries again on the new one.
            Err(Denied::Reloaded) => new.acquire_at(40, 1, &[quota(2, 1)]),
            taken => taken,
        };
        assert!(theirs.is_ok(), "refused with room");
        assert!(new.acquire_at(40, 1, &[quota(2, 1)]).is_err(), "two in a window of one");
        assert_eq!(new.granted(), 2, "lost or counted twice");
        // The old array still shows the tokens that it had taken, at whichever step of the jump the
        // reload came.
        let then = old.window(2, 1).sum(Tick::from_nanos(41));
        assert!(then <= 1, "{then} in a window of one");
    }
}

model! {
    a_late_opener_of_extremes at 2 fails with
        an_opener_that_does_not_look_where_the_head_is: OpenLate;
    || {
        // All buckets share one slot. A helper may open 11 late, when another thread is already at
        // 12.
        let seen = Arc::new((StepHead::new(10), Extremes::new(1, 10)));
        seen.1.note_rt(10, 9);
        let open_after = |seen: &(StepHead, Extremes), step| {
            seen.0.advance(step, |next, stands| seen.1.open(next, stands));
        };
        let other = seen.clone();
        let helper = thread::spawn(move || open_after(&other, 10));
        open_after(&seen, 10);
        open_after(&seen, 11);
        seen.1.note_rt(12, 5);
        helper.join().unwrap();
        let expected = Extreme { min_rt_us: Some(5), max_concurrency: 0 };
        assert_eq!(seen.1.get(12), expected, "wiped");
    }
}
