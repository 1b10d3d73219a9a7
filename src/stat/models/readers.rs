//! What readers see beside takers, borrowers and rolls is true of some moment.
//!
//! Every figure is put together from several words. Here the twins leave out what
//! makes sure that they belong together.

use loom::thread;

use super::{array, quota, wish};
use crate::clock::Tick;
use crate::stat::cuts::StepHead;
use crate::stat::extremes::{Extreme, Extremes};
use crate::stat::leap_array::{Grid, LeapArray};
use crate::stat::occupy::Wish;
use crate::sync::Arc;
use crate::sync::fault::model;

/// An array at bucket 11, in which one token was taken in 10 and one is held for
/// 13, of at most two.
fn with_a_loan() -> Arc<LeapArray> {
    let grid = Grid {
        bucket_ns: 1,
        buckets: 2,
        ahead: 2,
    };
    let array = Arc::new(LeapArray::with_grid(grid, Tick::from_nanos(10)));
    assert!(array.acquire(10, 1, &[quota(2, 2)]).is_ok());
    assert_eq!(array.bring_to(11), Ok(11));
    borrow_for_13(&array);
    array
}

fn borrow_for_13(array: &LeapArray) {
    let now = array.newest();
    let wish = Wish {
        from: Tick::from_nanos(13),
        ..wish(now)
    };
    let loan = array.borrow_for(wish, &[quota(2, 2)]).loan.unwrap();
    assert_eq!(loan.bucket().number(), 13);
}

model! {
    room_beside_rolls at 2 fails with a_reader_that_takes_a_missing_cut_for_room: GapIsFree;
    || {
        // The token of 10 leaves the window of three when 13 opens.
        let array = array(2);
        assert!(array.acquire(10, 1, &[quota(3, 1)]).is_ok());
        let other = array.clone();
        let reader = thread::spawn(move || other.room(Tick::from_nanos(10), &quota(3, 1)));
        assert_eq!(array.bring_to(12), Ok(12));
        assert_eq!(reader.join().unwrap(), 0, "room in a full window");
    }
}

model! {
    the_time_of_room_beside_rolls at 1 fails with
        a_time_that_takes_a_missing_cut_for_room: GapIsFree;
    || {
        let array = array(2);
        assert!(array.acquire(10, 1, &[quota(3, 1)]).is_ok());
        let other = array.clone();
        let reader = thread::spawn(move || other.room_at(Tick::from_nanos(10), 1, &quota(3, 1)));
        assert_eq!(array.bring_to(13), Ok(13));
        let at = reader.join().unwrap();
        assert!(at >= Some(Tick::from_nanos(13)), "told to come at {at:?}");
    }
}

model! {
    the_time_of_room_beside_a_borrower at 1 fails with a_time_of_two_moments: ReadAcrossBuckets;
    || {
        // What is held for 13 leaves the window of two at 15.
        let array = with_a_loan();
        let other = array.clone();
        let reader = thread::spawn(move || other.room_at(Tick::from_nanos(11), 2, &quota(2, 2)));
        assert_eq!(array.bring_to(12), Ok(12));
        borrow_for_13(&array);
        assert_eq!(reader.join().unwrap(), Some(Tick::from_nanos(15)));
    }
}

model! {
    a_late_opener_of_extremes at 2 fails with
        an_opener_that_does_not_look_where_the_head_is: OpenLate;
    || {
        // One place for all buckets. A helper opens 11 while others are at 12.
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
