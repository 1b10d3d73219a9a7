//! Models for loom: every interleaving of a few threads over the real types.
//!
//! Each model has a twin with a planted bug that must fail: a model that cannot
//! fail proves nothing. Run with
//!
//! ```text
//! RUSTFLAGS="--cfg sentinel_loom" cargo test --release --lib models
//! ```
//!
//! Each model states its preemption bound, and `SENTINEL_LOOM_MORE=1` raises all bounds by one.
//! `SENTINEL_LOOM_PAUSES=1` lets threads sleep where loom would not. Four twins need it unset:
//! `a_leaver_that_cancels_blindly`, `a_bad_call_that_is_noted_late`,
//! `a_slot_without_its_holders_work` and `a_second_that_is_opened_by_an_old_look`. The last three
//! fail only by a memory ordering that is too weak.

mod at_once;
mod cuts;
mod moved;
mod readers;
mod room;
mod slots;
mod steps;

use loom::thread;

use super::leap_array::{Denied, Grid, LeapArray, Taken};
use super::occupy::Wish;
use super::quota::{Lending, Quota};
use crate::base::sync::Arc;
use crate::base::sync::fault::model;
use crate::clock::Tick;

/// An array whose buckets last 1 ns, at bucket 10.
fn array(buckets: u32) -> Arc<LeapArray> {
    let grid = Grid {
        bucket_ns: 1,
        buckets,
        ahead: 1,
    };
    Arc::new(LeapArray::with_grid(grid, Tick::from_nanos(10)))
}

/// A quota of `limit` tokens in `buckets` buckets, which lends all tokens that leave it.
fn quota(buckets: u32, limit: u32) -> Quota {
    Quota::new(buckets, 1, limit, Lending::All)
}

/// A call of one token at `now` that waits for up to a second, which is longer than any model.
fn wish(now: u64) -> Wish {
    Wish {
        now: Tick::from_nanos(now),
        from: Tick::from_nanos(now),
        patience: std::time::Duration::from_secs(1),
        weight: 1,
    }
}

/// The tokens that the threads of a model took, by bucket.
#[derive(Default)]
struct Tally {
    /// The buckets of the tokens that calls use.
    ran: Vec<u64>,
    /// The tokens that no call uses.
    spent: u32,
}

impl Tally {
    /// The tally of a thread that made one call.
    fn took(taken: Result<Taken, Denied>) -> Self {
        Self {
            ran: taken.into_iter().map(|taken| taken.bucket).collect(),
            spent: 0,
        }
    }

    /// Borrows one token at `now`, and returns the tally of the thread.
    fn borrow(array: &LeapArray, now: u64, quotas: &[Quota]) -> Self {
        Self::borrow_as(array, wish(now), quotas)
    }

    /// Borrows tokens on the terms of `wish`, and returns the tally of the thread.
    fn borrow_as(array: &LeapArray, wish: Wish, quotas: &[Quota]) -> Self {
        let mut spent = 0;
        let loan = array.borrow_for(wish, quotas, &mut spent);
        Self {
            ran: loan.iter().map(|loan| loan.bucket()).collect(),
            spent,
        }
    }

    /// The sum of `tallies`.
    fn join(tallies: impl IntoIterator<Item = Self>) -> Self {
        tallies.into_iter().fold(Self::default(), |mut all, tally| {
            all.ran.extend(tally.ran);
            all.spent += tally.spent;
            all
        })
    }

    /// Asserts that no aligned window holds more than its limit, and that the array counted exactly
    /// the tokens of the threads, in the buckets that the threads got.
    fn settle(&self, array: &LeapArray, quotas: &[(u64, u32)]) {
        for &(buckets, limit) in quotas {
            for end in 0..16 {
                let ran = self
                    .ran
                    .iter()
                    .filter(|&&b| b + buckets > end && b <= end)
                    .count();
                assert!(
                    ran <= limit as usize,
                    "{ran} ran in the {buckets} buckets up to {end}"
                );
            }
        }
        let (newest, taken) = array.read(14, |reading| (reading.newest, reading.taken()));
        assert_eq!(newest, 14);
        assert_eq!(
            taken,
            self.ran.len() as u32 + self.spent,
            "lost or counted twice"
        );
        if self.spent == 0 {
            for bucket in 12..=14 {
                let ran = self.ran.iter().filter(|&&b| b == bucket).count() as u32;
                let counted = array.taken_between(bucket, bucket + 1);
                assert_eq!(counted, Some(ran), "bucket {bucket}");
            }
        }
    }
}

/// Runs a borrower at 11 concurrently with takers at `clocks`. The window is full at 10 and 11, and
/// has room again at 12.
fn borrow_and_takers<const N: usize>(clocks: [u64; N]) {
    let array = array(2);
    assert!(array.acquire_at(10, 1, &[quota(2, 1)]).is_ok());
    let other = array.clone();
    let borrower = thread::spawn(move || Tally::borrow(&other, 11, &[quota(2, 1)]));
    let takers = clocks.map(|now| Tally::took(array.acquire_at(now, 1, &[quota(2, 1)])));
    let first = Tally {
        ran: vec![10],
        spent: 0,
    };
    let all = takers.into_iter().chain([first, borrower.join().unwrap()]);
    Tally::join(all).settle(&array, &[(2, 1)]);
}

/// Cancels, at 11, a loan for 12 concurrently with a taker at `now`. The window is full at 10.
fn cancel_and_a_taker(now: u64) {
    let array = array(2);
    assert!(array.acquire_at(10, 1, &[quota(2, 1)]).is_ok());
    let loan = array.borrow_for(wish(11), &[quota(2, 1)], &mut 0).unwrap();
    let other = array.clone();
    let taker = thread::spawn(move || Tally::took(other.acquire_at(now, 1, &[quota(2, 1)])));
    let spent = u32::from(!array.cancel_at(11, loan));
    let first = Tally {
        ran: vec![10],
        spent,
    };
    Tally::join([first, taker.join().unwrap()]).settle(&array, &[(2, 1)]);
}

/// Extends the window of the rule from two buckets to three, as a reload at 11 does, concurrently
/// with takers at `now`.
fn move_and_takers(now: u64) {
    let old = array(2);
    let other = old.clone();
    let taker = thread::spawn(move || other.acquire_at(now, 1, &[quota(2, 1)]));
    let grid = Grid {
        bucket_ns: 1,
        buckets: 3,
        ahead: 1,
    };
    let new = old.move_to(grid, Tick::from_nanos(11));
    let ours = Tally::took(new.acquire_at(now, 1, &[quota(3, 1)]));
    // A thread that finds the array replaced tries again on the new one.
    let theirs = Tally::took(match taker.join().unwrap() {
        Err(Denied::Reloaded) => new.acquire_at(now, 1, &[quota(3, 1)]),
        taken => taken,
    });
    Tally::join([ours, theirs]).settle(&new, &[(3, 1)]);
}

model! {
    a_roll_and_takers at 1 fails with
        a_take_that_does_not_compare: BlindTake,
        an_opener_that_does_not_seal: OpenWithoutSeal;
    || {
        // The head moves from 11 to 12, concurrently with takers whose clocks are at 10 and 11.
        let array = array(2);
        assert_eq!(array.bring_to(Tick::from_nanos(11)), Ok(11));
        let others = [10, 11].map(|now| {
            let array = array.clone();
            thread::spawn(move || Tally::took(array.acquire_at(now, 1, &[quota(2, 1)])))
        });
        let ours = Tally::took(array.acquire_at(12, 1, &[quota(2, 1)]));
        let theirs = others.map(|thread| thread.join().unwrap());
        Tally::join([ours].into_iter().chain(theirs)).settle(&array, &[(2, 1)]);
    }
}

model! {
    two_rolls_and_takers at 2 fails with a_taker_that_does_not_compare: BlindTake;
    || {
        // Both threads move the head. Every take must count in one bucket, and no window may hold
        // more than one token.
        let array = array(2);
        let other = array.clone();
        let thread = thread::spawn(move || {
            Tally::join([10, 12].map(|now| Tally::took(other.acquire_at(now, 1, &[quota(2, 1)]))))
        });
        let ours = [11, 13].map(|now| Tally::took(array.acquire_at(now, 1, &[quota(2, 1)])));
        Tally::join(ours.into_iter().chain([thread.join().unwrap()])).settle(&array, &[(2, 1)]);
    }
}

model! {
    two_takers_for_the_last_token at 2 fails with two_takers_that_do_not_compare: BlindTake;
    || {
        // One token is left: exactly one of two concurrent takers may get it.
        let array = array(2);
        assert!(array.acquire_at(10, 1, &[quota(2, 2)]).is_ok());
        let other = array.clone();
        let thread = thread::spawn(move || other.acquire_at(10, 1, &[quota(2, 2)]));
        let ours = array.acquire_at(10, 1, &[quota(2, 2)]);
        let theirs = thread.join().unwrap();
        assert!(ours.is_ok() != theirs.is_ok(), "{ours:?} {theirs:?}");
    }
}

model! {
    a_loan_during_a_roll at 2 fails with a_loan_that_stays_behind: HeldStayBehind;
    // The taker at 12 opens the bucket for which the loan is made, and the taker at 13 closes it.
    || borrow_and_takers([12, 13])
}

model! {
    two_borrowers_of_one_token at 2 fails with two_borrowers_that_do_not_compare: BlindTake;
    || {
        // The window is full at 10 and has room for one loan at 12, for which two borrowers
        // compete.
        let array = array(2);
        assert!(array.acquire_at(10, 1, &[quota(2, 1)]).is_ok());
        let other = array.clone();
        let thread = thread::spawn(move || Tally::borrow(&other, 11, &[quota(2, 1)]));
        let ours = Tally::borrow(&array, 11, &[quota(2, 1)]);
        let first = Tally { ran: vec![10], spent: 0 };
        let tally = Tally::join([first, ours, thread.join().unwrap()]);
        assert_eq!(tally.ran.len(), 2, "one of the two borrows");
        tally.settle(&array, &[(2, 1)]);
    }
}

model! {
    two_borrowers_in_one_future_window at 3 fails with two_loans_checked_only_once: LoanLooksOnce;
    || {
        // The window is full at 10, and its token leaves it at 11. One thread borrows for 11. The
        // other thread finds 11 taken and borrows for 12. Both loans would be in the window of 11
        // and 12.
        let grid = Grid { bucket_ns: 1, buckets: 2, ahead: 2 };
        let array = Arc::new(LeapArray::with_grid(grid, Tick::from_nanos(9)));
        assert!(array.acquire_at(9, 1, &[quota(2, 1)]).is_ok());
        assert!(array.bring_to(Tick::from_nanos(10)).is_ok());
        let other = array.clone();
        let thread = thread::spawn(move || Tally::borrow(&other, 10, &[quota(2, 1)]));
        let ours = Tally::borrow(&array, 10, &[quota(2, 1)]);
        let first = Tally { ran: vec![9], spent: 0 };
        Tally::join([first, ours, thread.join().unwrap()]).settle(&array, &[(2, 1)]);
    }
}

model! {
    two_borrowers_in_the_first_window at 3 fails with
        two_loans_checked_once_in_the_first_window: LoanLooksOnce;
    || {
        // One thread has room and waits for its turn in bucket 1. The other thread finds the token
        // of the first thread charged, and borrows for 3 unless it sees the loan. The window that
        // ends with bucket 1 would begin before bucket 0.
        let grid = Grid { bucket_ns: 1, buckets: 3, ahead: 3 };
        let array = Arc::new(LeapArray::with_grid(grid, Tick::from_nanos(0)));
        let other = array.clone();
        let thread = thread::spawn(move || {
            let turn = Wish { from: Tick::from_nanos(1), ..wish(0) };
            Tally::borrow_as(&other, turn, &[quota(3, 1)])
        });
        let ours = Tally::borrow(&array, 0, &[quota(3, 1)]);
        Tally::join([ours, thread.join().unwrap()]).settle(&array, &[(3, 1)]);
    }
}

model! {
    a_loan_that_looks_again_during_a_roll at 2 fails with
        a_loan_checked_only_once: LoanLooksOnce;
    || {
        // A loan that is placed must be checked again, also if its window begins during the check.
        let grid = Grid { bucket_ns: 1, buckets: 2, ahead: 2 };
        let array = Arc::new(LeapArray::with_grid(grid, Tick::from_nanos(9)));
        super::occupy::models::look_during_a_roll(array, [quota(2, 1)]);
    }
}

model! {
    a_cancelled_loan_during_a_roll at 3 fails with a_loan_cancelled_backwards: CancelBackwards;
    // The taker opens the bucket of the loan while the loan is cancelled.
    || cancel_and_a_taker(12)
}

model! {
    a_refund_during_a_roll at 2 fails with a_refund_that_does_not_look: BlindRefund;
    || {
        // A token taken at 10 is refunded while takers at 11 and 12 move the head. A refund must
        // fail once its bucket has closed.
        let array = array(2);
        let other = array.clone();
        let refunder = thread::spawn(move || match other.acquire_at(10, 1, &[quota(2, 1)]) {
            Ok(taken) if other.refund_at(taken.bucket, 1) => Tally::default(),
            taken => Tally::took(taken),
        });
        let takers = [11, 12].map(|now| Tally::took(array.acquire_at(now, 1, &[quota(2, 1)])));
        let all = takers.into_iter().chain([refunder.join().unwrap()]);
        Tally::join(all).settle(&array, &[(2, 1)]);
    }
}

model! {
    a_loan_and_a_longer_rule_with_room at 2;
    || {
        // The rules are 1 token per 2 buckets and 2 tokens per 4. The first rule is full and lends.
        // The second rule has room for one more token, for which a borrower and a taker compete.
        let quotas = || [quota(2, 1), quota(4, 2)];
        let array = array(4);
        assert!(array.acquire_at(10, 1, &quotas()).is_ok());
        let other = array.clone();
        let borrower = thread::spawn(move || Tally::borrow(&other, 11, &quotas()));
        let taker = Tally::took(array.acquire_at(12, 1, &quotas()));
        let first = Tally { ran: vec![10], spent: 0 };
        let mut tally = Tally::join([first, taker, borrower.join().unwrap()]);
        assert_eq!(tally.ran.len() as u32 + tally.spent, 2, "one of the two gets it");
        // No call can take more before the window of four buckets has moved on.
        let late = Tally::took(array.acquire_at(13, 1, &quotas()));
        tally = Tally::join([tally, late]);
        tally.settle(&array, &[(2, 1), (4, 2)]);
    }
}

model! {
    additions_during_a_roll at 2 fails with additions_that_open_no_bucket: AddWithoutRoll;
    || {
        let array = array(2);
        let threads: Vec<_> = [11, 12]
            .map(|now| {
                let array = array.clone();
                thread::spawn(move || array.add_at(now, 1).is_ok())
            })
            .into();
        assert!(array.add_at(10, 1).is_ok());
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        let between = |start, end| array.read(13, |reading| reading.between(start, end));
        assert_eq!(array.taken_now(), 3);
        // No addition counts in a bucket before its caller's clock, or two buckets after it.
        assert!(between(11, 13) <= 3);
        assert!(between(12, 14) >= 1);
    }
}

model! {
    a_jump_during_a_roll at 1 fails with a_taker_that_waits_in_the_gap: WaitInGap;
    || {
        // One clock is far ahead, so its thread jumps. The other thread must neither wait for it
        // nor open a bucket beyond it.
        let array = array(2);
        let other = array.clone();
        let thread = thread::spawn(move || other.acquire_at(11, 1, &[quota(2, 1)]).map_or(11, |taken| taken.bucket));
        let far = array.acquire_at(40, 1, &[quota(2, 1)]).map_or(40, |taken| taken.bucket);
        let near = thread.join().unwrap();
        assert!(far == 40 && near <= 40, "opened a bucket that no clock has reached");
        let taken = array.read(41, |reading| reading.between(39, 41));
        assert!(taken <= 1);
    }
}

model! {
    a_late_helper_during_a_jump at 2 fails with an_opener_that_skips_its_cut: SkipPublish;
    || {
        // A helper is about to write the checkpoint of 11 into the slot of the checkpoint of 39.
        let array = array(2);
        let (other, head) = (array.clone(), array.load_head());
        let helper = thread::spawn(move || other.advance(head, 10, 11));
        let taken = array.acquire_at(40, 1, &[quota(2, 1)]);
        helper.join().unwrap();
        assert_eq!(taken.map(|taken| taken.bucket), Ok(40), "a cut was missing");
    }
}

model! {
    a_slow_reader_and_a_taker at 2 fails with
        a_reader_that_does_not_look_again: ReadAcrossBuckets,
        a_reader_that_helps_from_behind: HelpFromBehind;
    || {
        // The reader reads as of bucket 10. The head is at 14; when the taker opens 15, the head is
        // more than a ring ahead of 10.
        let array = array(2);
        assert_eq!(array.bring_to(Tick::from_nanos(14)), Ok(14));
        let slow = array.clone();
        let reader = thread::spawn(move || {
            let taken = slow.look_at(10, |reading| reading.taken());
            assert!(taken.is_none(), "a reading of a bucket that has passed");
        });
        assert!(array.acquire_at(15, 1, &[quota(2, 1)]).is_ok());
        reader.join().unwrap();
        let again = array.acquire_at(16, 1, &[quota(2, 1)]);
        assert!(again.is_err(), "the head was sent back");
    }
}

model! {
    a_move_and_takers at 2 fails with a_move_that_leaves_the_old_one_open: FreezeWithoutMark;
    // No call may pass on the old array without being counted in the new one.
    || move_and_takers(11)
}

model! {
    a_move_and_a_loan at 2 fails with a_move_that_forgets_the_loan: FreezeWithoutMark;
    || {
        // A loan is made concurrently with a reload: the new array must hold its token, or the loan
        // must fail.
        let old = array(2);
        assert!(old.acquire_at(10, 1, &[quota(2, 1)]).is_ok());
        let other = old.clone();
        let borrower = thread::spawn(move || Tally::borrow(&other, 11, &[quota(2, 1)]));
        let now = Tick::from_nanos(11);
        let new = old.move_to(Grid { bucket_ns: 1, buckets: 2, ahead: 1 }, now);
        let first = Tally { ran: vec![10], spent: 0 };
        let all = [first, borrower.join().unwrap()].into_iter();
        let takers = [12, 13].map(|now| Tally::took(new.acquire_at(now, 1, &[quota(2, 1)])));
        Tally::join(all.chain(takers)).settle(&new, &[(2, 1)]);
    }
}

model! {
    a_drop_during_an_eviction at 3 fails with an_evictor_that_reads_too_early: ReadBeforeLast;
    super::table::settle::models::drop_during_evict
}

model! {
    a_use_through_a_weak_reference_during_an_eviction at 3 fails with
        an_evictor_that_looks_once: LetGoAtFirstLook,
        an_evictor_that_reads_and_looks_after: ReadBeforeLast;
    super::table::settle::models::weak_use_during_evict
}

model! {
    keeping_seconds_begins_while_seconds_open at 3 fails with
        a_second_that_is_opened_by_an_old_look: MinuteByLoad;
    super::minute::models::a_late_beginning
}

model! {
    two_calls_of_a_new_name_at_a_full_table at 3 fails with
        a_call_that_does_not_wait_for_its_own_name: SameKeyIsAnother,
        a_call_that_does_not_look_again: PlaceWithoutSecondLook;
    super::turn::models::one_name_twice
}
