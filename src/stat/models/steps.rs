//! Models of a head that steps over buckets to which no thread's clock points.

use loom::thread;

use super::*;

model! {
    steps_and_a_taker at 2 fails with
        steps_with_a_taker_that_does_not_compare: BlindTake;
    || {
        // The head moves from 10 over 11 and 12 to 13, concurrently with a taker whose clock is
        // still at 12. The limit must hold, and no bucket after 13 may open.
        let array = array(2);
        let other = array.clone();
        let thread = thread::spawn(move || Tally::took(other.acquire_at(12, 1, &[quota(2, 1)])));
        let ours = Tally::took(array.acquire_at(13, 1, &[quota(2, 1)]));
        let tally = Tally::join([ours, thread.join().unwrap()]);
        assert!(tally.ran.iter().all(|&b| b <= 13), "opened a bucket that no clock has reached");
        tally.settle(&array, &[(2, 1)]);
    }
}

model! {
    steps_and_a_late_helper at 2 fails with
        a_late_helper_that_does_not_compare: BlindTake,
        a_late_helper_that_waits_in_the_gap: WaitInGap;
    || {
        // A helper is about to open 11 when a jump passes that bucket. The checkpoints of 11 and 39
        // share a slot.
        let array = array(2);
        let (other, head) = (array.clone(), array.load_head());
        let helper = thread::spawn(move || {
            other.advance(head, 10, 12);
            Tally::took(other.acquire_at(12, 1, &[quota(2, 1)]))
        });
        let ours = Tally::took(array.acquire_at(40, 1, &[quota(2, 1)]));
        let theirs = helper.join().unwrap();
        let taken = array.read(41, |reading| reading.between(39, 41));
        let ran = ours.ran.iter().chain(&theirs.ran).filter(|&&b| b >= 39).count();
        assert_eq!(taken as usize, ran, "lost or counted twice");
        assert!(taken <= 1);
    }
}

model! {
    a_loan_and_steps at 2;
    // The limit must hold although the taker's head steps over bucket 12 on its way to 13, while a
    // loan for 12 is being made.
    || borrow_and_takers([13])
}

model! {
    a_cancelled_loan_during_steps at 3 fails with
        a_loan_cancelled_backwards_during_steps: CancelBackwards;
    // The limit must hold although the taker's head moves on to 14, beyond the loan's bucket 12,
    // during the cancellation.
    || cancel_and_a_taker(14)
}

model! {
    additions_during_steps at 2 fails with additions_without_steps: AddWithoutRoll;
    || {
        let array = array(2);
        let threads: Vec<_> = [12, 13]
            .map(|now| {
                let array = array.clone();
                thread::spawn(move || array.add_at(now, 1).is_ok())
            })
            .into();
        assert!(array.add_at(10, 1).is_ok());
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        let between = |start, end| array.read(13, |reading| reading.between(start, end));
        assert_eq!(array.taken_now(), 3);
        // No addition counts in a bucket before its caller's clock.
        assert!(between(12, 14) >= 2);
    }
}

model! {
    a_move_and_steps at 2 fails with a_move_that_leaves_the_steps_open: FreezeWithoutMark;
    // The limit must hold although the takers' heads step over bucket 12 on their way to 13, while
    // the array is replaced.
    || move_and_takers(13)
}
