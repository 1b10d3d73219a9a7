//! Models of room: a call passes while there is room, and gauges keep every noted value.
//!
//! A limit that refuses too many calls would pass every model that only checks that the limit is
//! never exceeded. So most twins here refuse too much: they refuse a call that another call
//! overtook, or that met a claim that is withdrawn later.

use std::sync::Arc as StdArc;

use loom::thread;

use super::{array, quota};
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::clock::Tick;
use crate::stat::counters::Counters;
use crate::stat::extremes::{Extreme, Extremes};
use crate::stat::shape::Shape;
use crate::stat::slots::SlotHold;

model! {
    unit_calls_that_fit_during_rolls at 1;
    || {
        // Three calls share three tokens: all pass, whichever of them rolls, and in whichever
        // bucket they count.
        let array = array(2);
        let others = [11, 12].map(|now| {
            let array = array.clone();
            thread::spawn(move || array.acquire_at(now, 1, &[quota(2, 3)]).is_ok())
        });
        assert!(array.acquire_at(10, 1, &[quota(2, 3)]).is_ok(), "refused with room");
        for other in others {
            assert!(other.join().unwrap(), "refused with room");
        }
    }
}

model! {
    a_unit_call_that_fits_during_a_jump at 2;
    || {
        // The window has room for both calls, so neither may be refused because the head jumps.
        let array = array(2);
        let other = array.clone();
        let jumper = thread::spawn(move || other.acquire_at(40, 1, &[quota(2, 2)]).is_ok());
        assert!(array.acquire_at(11, 1, &[quota(2, 2)]).is_ok(), "refused with room");
        assert!(jumper.join().unwrap(), "refused with room");
    }
}

model! {
    room_checked_during_a_jump at 2;
    || {
        // The check must find room, even if it comes in the middle of the jump.
        let array = array(2);
        let other = array.clone();
        let jumper = thread::spawn(move || other.acquire_at(40, 1, &[quota(2, 2)]).is_ok());
        let checked = array.check_room(Tick::from_nanos(11), 1, &[quota(2, 2)]);
        assert!(checked.is_ok(), "refused with room");
        assert!(jumper.join().unwrap(), "refused with room");
    }
}

model! {
    a_refusal_during_a_roll at 2 fails with
        takers_that_do_not_compare_the_bucket: BlindTake;
    || {
        // Each bucket has one token, and the token of 10 is taken. A call may be refused only if
        // the other call took the token of the same bucket. This can only be bucket 12, because a
        // call with a late clock counts in the newest bucket.
        let array = array(2);
        let one = || [quota(1, 1)];
        assert!(array.acquire_at(10, 1, &one()).is_ok());
        let other = array.clone();
        let early = thread::spawn(move || other.acquire_at(11, 1, &one()).map(|taken| taken.bucket));
        let late = array.acquire_at(12, 1, &one()).map(|taken| taken.bucket);
        let early = early.join().unwrap();
        assert!(late.is_ok() || early == Ok(12), "refused with room: {late:?} {early:?}");
        assert!(early.is_ok() || late == Ok(12), "refused with room: {late:?} {early:?}");
        assert_ne!(early, late, "one token, two calls");
    }
}

/// Counters with a window of one second.
pub(super) fn counters() -> Arc<Counters> {
    let shape = StdArc::new(Shape::new(500_000_000, 2));
    Arc::new(Counters::new(shape, false, Tick::ZERO))
}

model! {
    a_slot_during_a_release at 3 fails with
        slots_that_are_claimed_first: ClaimThenCheck,
        slots_that_are_checked_first: CheckThenClaim;
    || {
        // There is one slot. Its holder releases it and takes it again, concurrently with another
        // call.
        let counters = counters();
        assert!(counters.slots.take(1));
        let other = counters.clone();
        let other = thread::spawn(move || other.slots.take(1));
        counters.slots.release(SlotHold::RUNNING);
        let ours = counters.slots.take(1);
        let theirs = other.join().unwrap();
        assert!(ours || theirs, "refused with a free slot");
        assert!(!(ours && theirs), "two calls in one slot");
        assert_eq!(counters.slots.in_use(), 1);
    }
}

model! {
    a_slot_is_handed_on at 3 fails with a_slot_without_its_holders_work: FreeRelaxed;
    || {
        // There is one slot, so each holder sees the writes of the previous holder.
        let shared = Arc::new((counters(), AtomicU64::new(0)));
        let use_slot = |(counters, done): &(Arc<Counters>, AtomicU64)| {
            let has_slot = counters.slots.take(1);
            if has_slot {
                done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                counters.slots.release(SlotHold::RUNNING);
            }
            u64::from(has_slot)
        };
        let other = shared.clone();
        let other = thread::spawn(move || use_slot(&other));
        let used = use_slot(&shared) + other.join().unwrap();
        assert_eq!(shared.1.load(Ordering::Relaxed), used, "two at once");
    }
}

model! {
    two_waiters_for_the_last_place at 3 fails with
        places_that_are_checked_first: CheckThenClaim;
    || {
        // One of two places is taken: exactly one of two further calls may wait.
        let counters = counters();
        assert!(counters.start_waiting(2));
        let other = counters.clone();
        let other = thread::spawn(move || other.start_waiting(2));
        let ours = counters.start_waiting(2);
        assert!(ours != other.join().unwrap(), "one of the two waits");
        assert_eq!(counters.waiting(), 2);
    }
}

model! {
    extremes_and_a_new_bucket at 3 fails with
        an_extreme_that_is_written_over: BlindExtreme;
    || {
        // All buckets share one slot. The extremes of bucket 10 are dropped when 11 begins and
        // never appear in it; the extremes of 11 are complete.
        let extremes = Arc::new(Extremes::new(1, 10));
        let (late, busy) = (extremes.clone(), extremes.clone());
        let late = thread::spawn(move || late.note_rt(10, 1));
        let busy = thread::spawn(move || busy.note_concurrency(11, 7));
        extremes.note_rt(11, 5);
        late.join().unwrap();
        busy.join().unwrap();
        let seen = Extreme { min_rt_us: Some(5), max_concurrency: 7 };
        assert_eq!(extremes.get(11), seen);
    }
}
