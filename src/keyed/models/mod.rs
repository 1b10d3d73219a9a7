//! Every interleaving of a few calls over a table of one or two slots, checked by
//! loom.
//!
//! Each model has a twin with a planted bug that must fail. They run with those
//! of `stat`, by the name `models`.

mod changes;
mod costs;

use std::sync::Arc as StdArc;
use std::time::Duration;

use loom::thread;

use super::table::KeyTable;
use super::{
    Counting, Digest, HotKeys, KeyLimit, KeyLimitNow, KeySpec, KeyTokens, LineTicket, Most,
};
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::clock::{CalendarPeriod, Tick};

/// Keys of a table of `slots` sets of one slot.
fn keys(count: Counting, slots: usize) -> Arc<HotKeys> {
    let spec = KeySpec {
        count,
        interval: Duration::from_millis(1),
        max_keys: 1,
    };
    Arc::new(HotKeys::of_table(
        KeyTable::of_sets(slots),
        spec,
        Tick::ZERO,
    ))
}

const A: Digest = Digest(1);
const B: Digest = Digest(2);
/// Of two sets it lives in the second one first, where A and B do in the other.
const C: Digest = Digest(1 << 63 | 3);

fn at(us: u64) -> Tick {
    Tick::from_nanos(us * 1_000)
}

/// Runs `body` on a thread of its own.
fn spawn<R: 'static>(
    keys: &Arc<HotKeys>,
    body: impl FnOnce(&HotKeys) -> R + 'static,
) -> thread::JoinHandle<R> {
    let keys = keys.clone();
    thread::spawn(move || body(&keys))
}

/// One token of `key`, if there is one.
fn take(keys: &HotKeys, us: u64, key: Digest, limit: KeyLimit) -> Option<KeyTokens> {
    keys.take(at(us), key, &limit, 1).ok()
}

model! {
    two_calls_of_a_new_key at 3 fails with callers_who_both_take_a_slot: InsertWithoutSecondLook;
    || {
        let keys = keys(Counting::Refill, 2);
        let limit = keys.limit(1.0, 0);
        let other = spawn(&keys, move |keys| take(keys, 0, A, limit).is_some());
        let ours = take(&keys, 0, A, limit).is_some();
        let theirs = other.join().unwrap();
        assert!(ours != theirs, "both or none");
        assert_eq!(keys.keys_in_use(at(0)), 1);
    }
}

/// They queue at different locks; the second one has the shared word.
fn two_new_keys_and_one_slot(count: Counting) {
    let keys = keys(count, 2);
    let limit = keys.limit(1.0, 0);
    let _ = take(&keys, 0, C, limit).unwrap();
    let other = spawn(&keys, move |keys| take(keys, 0, B, limit).is_some());
    let a = take(&keys, 0, A, limit).is_some();
    assert!(a && other.join().unwrap());
    let again = [A, B].map(|key| take(&keys, 0, key, limit).is_some());
    assert_eq!(again, [false; 2], "each has had its one");
    assert_eq!(keys.keys_in_use(at(0)), 2);
}

model! {
    two_new_keys_that_find_the_last_slot_free at 3 fails with
        one_that_pushes_the_other_out: SpareByTag;
    || two_new_keys_and_one_slot(Counting::Refill)
}

model! {
    two_windows_that_find_the_last_slot_free at 3 fails with
        one_that_takes_a_slot_from_under_the_other: SpareClaimed;
    || two_new_keys_and_one_slot(Counting::Window)
}

model! {
    a_call_beside_the_loss_of_its_slot at 3 fails with one_that_looks_once: HitWithoutSecondLook;
    || {
        // A is at rest, and B takes its slot, all of it or all but one token.
        let keys = keys(Counting::Refill, 1);
        let limit = keys.limit(2.0, 0);
        let _ = take(&keys, 0, A, limit).unwrap();
        let other = spawn(&keys, move |keys| {
            [(); 2].map(|()| take(keys, 5_000, B, limit).is_some())
        });
        let a = take(&keys, 5_000, A, limit).is_some();
        let b = other.join().unwrap();
        // No key pays for another: the key with the slot has two, and so has the one without, on
        // the shared word.
        assert!(a && b == [true; 2], "{a} {b:?}");
    }
}

/// B takes the slot of A in the first bucket in which A is at rest, while `late` runs. A call that
/// has read the clock in the bucket before would be refused by the word of A, but neither by that
/// of B nor by the shared one.
fn one_takes_a_slot_beside_a_late_one(late: impl FnOnce(&HotKeys, KeyLimit) + 'static) {
    let keys = keys(Counting::Window, 1);
    let limit = keys.limit(2.0, 0);
    let _ = [(); 2].map(|()| take(&keys, 0, A, limit).unwrap());
    let other = spawn(&keys, move |keys| late(keys, limit));
    assert!(take(&keys, 1_000, B, limit).is_some());
    other.join().unwrap();
}

model! {
    a_late_call_beside_one_that_takes_a_slot at 3 fails with
        one_that_is_refused_by_the_last_owner: TagBeforeClaim;
    || one_takes_a_slot_beside_a_late_one(|keys, limit| {
        assert!(take(keys, 500, B, limit).is_some());
    })
}

model! {
    late_figures_beside_one_that_takes_a_slot at 3 fails with
        figures_of_the_last_owner: TagBeforeClaim;
    || one_takes_a_slot_beside_a_late_one(|keys, limit| {
        assert_ne!(keys.left(at(500), B, &limit), 0);
    })
}

model! {
    a_late_call_of_an_owner_that_comes_back at 3 fails with
        one_that_is_refused_by_the_owner_between: RefusalWithoutThirdLook;
    || {
        // A is at rest from 1 000 on, where B takes its slot and both tokens; at 2 000 A has the
        // slot again. At 1 500 the word of B would refuse, but no word of A does.
        let keys = keys(Counting::Window, 1);
        let limit = keys.limit(2.0, 0);
        let _ = take(&keys, 0, A, limit).unwrap();
        let other = spawn(&keys, move |keys| take(keys, 1_500, A, limit).is_some());
        let b = [(); 2].map(|()| take(&keys, 1_000, B, limit).is_some());
        let a = take(&keys, 2_000, A, limit).is_some();
        assert!(a && b == [true; 2]);
        assert!(other.join().unwrap(), "A pays for B");
    }
}

model! {
    figures_beside_the_loss_of_a_slot at 3 fails with
        figures_of_a_claim: ReadClaimed, figures_of_the_next_owner: HitWithoutSecondLook;
    || {
        // A is at rest, and has its two with the slot and without.
        let keys = keys(Counting::Refill, 1);
        let limit = keys.limit(2.0, 0);
        let _ = take(&keys, 0, A, limit).unwrap();
        let other = spawn(&keys, move |keys| keys.left(at(5_000), A, &limit));
        assert!(take(&keys, 5_000, B, limit).is_some());
        assert_eq!(other.join().unwrap(), 2);
    }
}

model! {
    a_call_beside_one_that_pushes_it_out_and_goes at 3 fails with
        a_debt_that_ends_now_is_forgotten: RestTooSoon;
    || {
        // A's debt ends at 1 000; there B comes and goes, which alone could bring the word back to
        // that of A.
        let keys = keys(Counting::Refill, 1);
        let (once, twice) = (keys.limit(1.0, 0), keys.limit(2.0, 0));
        let _ = take(&keys, 0, A, once).unwrap();
        let other = spawn(&keys, move |keys| {
            let taken = take(keys, 1_000, B, twice).unwrap();
            keys.refund(|| at(1_000), &taken);
        });
        assert!(take(&keys, 1_000, A, once).is_some());
        other.join().unwrap();
        assert!(take(&keys, 1_000, A, once).is_none(), "A has had its one");
    }
}

model! {
    two_owners_one_after_the_other at 3 fails with
        one_whose_tag_comes_after_the_next: WordBeforeTag;
    || {
        // C's debt ends at 1 000, and A's at 500. They queue at different locks: B takes the
        // slot of A, or has the shared word, or A has that.
        let keys = keys(Counting::Refill, 2);
        let limit = keys.limit(2.0, 0);
        let _ = [(); 2].map(|()| take(&keys, 0, C, limit).unwrap());
        let other = spawn(&keys, move |keys| take(keys, 600, B, limit).is_some());
        assert!(take(&keys, 0, A, limit).is_some());
        assert!(other.join().unwrap());
        let again = [(); 2].map(|()| take(&keys, 600, A, limit).is_some());
        assert_eq!(again, [true; 2], "A has had none of these two");
    }
}

model! {
    calls_in_flight_beside_a_new_key at 3 fails with owners_that_look_alike: OwnersWithoutEpoch;
    || {
        // A has nothing in flight; B takes the slot if it can, and ends.
        let keys = keys(Counting::Running, 1);
        let limit = keys.limit(1.0, 0);
        let first = take(&keys, 0, A, limit).unwrap();
        keys.release(first.pinned(), 1);
        let other = spawn(&keys, move |keys| {
            let taken = take(keys, 0, B, limit);
            if let Some(taken) = &taken {
                keys.release(taken.pinned(), 1);
            }
            taken.is_some()
        });
        let ours = take(&keys, 0, A, limit);
        assert!(other.join().unwrap(), "B has a slot or the shared word");
        let ours = ours.expect("A has a slot or the shared word");
        // The only one in flight is A's: if it has a slot, that is A's own.
        if keys.keys_in_use(at(0)) == 1 {
            assert!(take(&keys, 0, A, limit).is_none(), "two at once");
        }
        keys.release(ours.pinned(), 1);
        assert_eq!(keys.keys_in_use(at(0)), 0);
        assert!(take(&keys, 0, A, limit).is_some());
    }
}

model! {
    a_call_that_goes_back_beside_a_new_key at 3 fails with
        one_that_gives_to_whoever_is_there: HitWithoutSecondLook;
    || {
        // A refunds by a clock that is late, so that much of it is open.
        let keys = keys(Counting::Refill, 1);
        let limit = keys.limit(2.0, 0);
        let taken = take(&keys, 0, A, limit).unwrap();
        let other = spawn(&keys, move |keys| keys.refund(|| at(0), &taken));
        let b = [(); 2].map(|()| take(&keys, 600, B, limit).is_some());
        other.join().unwrap();
        assert_eq!(b, [true; 2]);
        assert!(take(&keys, 600, B, limit).is_none(), "B was given what was A's");
    }
}

/// A's first is earned again at 500; at 1 000 it has its two. `tick` sets the clock to that,
/// and `now` reads it.
fn one_goes_back_beside_later_ones(
    tick: impl FnOnce(&AtomicU64),
    now: impl Fn(&AtomicU64) -> u64 + 'static,
) {
    let keys = keys(Counting::Refill, 1);
    let limit = keys.limit(2.0, 0);
    let taken = take(&keys, 0, A, limit).unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    let ours = clock.clone();
    let other = spawn(&keys, move |keys| {
        keys.refund(|| at(now(&clock)), &taken);
    });
    tick(&ours);
    let passed = [(); 2].map(|()| take(&keys, 1_000, A, limit).is_some());
    other.join().unwrap();
    assert_eq!(passed, [true; 2]);
    assert!(take(&keys, 1_000, A, limit).is_none(), "given back twice");
}

model! {
    a_call_that_goes_back_beside_later_ones at 3 fails with
        one_that_has_read_the_clock_before: RefundByEarlierTime;
    || {
        // A clock is one for all threads: each sees the last tick. So loom must know
        // them in one order, which it only does if all are read-modify-writes.
        one_goes_back_beside_later_ones(
            |clock| _ = clock.fetch_add(1_000, Ordering::AcqRel),
            |clock| clock.fetch_add(0, Ordering::AcqRel),
        );
    }
}

model! {
    a_call_that_goes_back_by_a_clock_that_may_be_late at 3 fails with
        one_whose_clock_was_late_before_the_word: RefundByEarlierTime;
    || {
        // Nothing but the word of a later call says that its tick has been.
        one_goes_back_beside_later_ones(
            |clock| clock.store(1_000, Ordering::Relaxed),
            |clock| clock.load(Ordering::Relaxed),
        );
    }
}

model! {
    a_reset_beside_a_late_call_of_the_last_owner at 3 fails with
        one_that_brings_the_word_of_the_last_owner_back: ResetByEarlierTime;
    || {
        // B's debt ends at 500, which the clock shows at first. A comes to the slot at 600, beside
        // a second call of B by a clock of before, which costs 1 000.
        let keys = keys(Counting::Refill, 1);
        let (twice, late) = (keys.limit(2.0, 0), keys.limit(1.0, 1));
        let _ = take(&keys, 0, B, twice).unwrap();
        let clock = Arc::new(AtomicU64::new(500));
        let ours = clock.clone();
        let other = spawn(&keys, move |keys| take(keys, 0, B, late).is_some());
        let reset = spawn(&keys, move |keys| {
            let time = || {
                let now = at(clock.fetch_add(0, Ordering::AcqRel));
                // The models look at no pause before a load, which comes next, but at this one.
                clock.fetch_add(0, Ordering::AcqRel);
                now
            };
            keys.reset(A, &time)
        });
        ours.fetch_add(100, Ordering::AcqRel);
        let a = take(&keys, 600, A, twice).is_some();
        assert!(a && other.join().unwrap());
        reset.join().unwrap();
        assert!(take(&keys, 600, A, twice).is_some(), "A pays for B");
    }
}

model! {
    two_calls_at_the_change_of_a_day at 3 fails with
        one_that_brings_the_day_before_back: PeriodGoesBack;
    || {
        // The day has one token, which is spent. The last call of it comes beside the first one of
        // the next day, and takes no token of either.
        let keys = keys(Counting::Calendar(CalendarPeriod::Day), 1);
        let limit = keys.limit(1.0, 0);
        let midnight = 86_400_000_000;
        let _ = take(&keys, 0, A, limit).unwrap();
        let last = spawn(&keys, move |keys| take(keys, midnight - 1, A, limit).is_some());
        assert!(take(&keys, midnight, A, limit).is_some());
        assert!(!last.join().unwrap(), "the day before is back");
        assert!(take(&keys, midnight, A, limit).is_none());
    }
}

model! {
    three_calls_for_the_last_two_tokens at 3 fails with
        callers_who_each_take_a_slot: InsertWithoutSecondLook;
    || {
        let keys = keys(Counting::Window, 2);
        let limit = keys.limit(2.0, 0);
        let others = [(); 2].map(|()| spawn(&keys, move |keys| take(keys, 0, A, limit).is_some()));
        let ours = take(&keys, 0, A, limit).is_some();
        let theirs = others.map(|other| other.join().unwrap());
        let passed = theirs.into_iter().chain([ours]).filter(|&passed| passed).count();
        assert_eq!(passed, 2);
    }
}

/// A table in which one call of `A` runs, as may one of each key at once.
fn full(slots: usize) -> (Arc<HotKeys>, KeyTokens) {
    let keys = keys(Counting::Running, slots);
    let one: KeyLimitNow = StdArc::new(|_, _| 1);
    keys.set_limit(&one);
    let first = take(&keys, 0, A, KeyLimit::Running(1)).unwrap();
    (keys, first)
}

fn line_up(keys: &HotKeys, key: Digest) -> LineTicket {
    let most = Most {
        of_key: 9,
        of_all: 9,
    };
    keys.line_up(key, None, most, None).unwrap()
}

/// The call with this ticket has its place, and ends.
fn run(keys: &HotKeys, key: Digest, ticket: LineTicket) {
    let place = keys.cancel_wait(at(0), key, ticket);
    keys.release(place.expect("it waits beside a free place").pinned(), 1);
}

model! {
    a_call_lines_up_beside_the_end_of_another_of_its_key at 3 fails with
        a_call_that_waits_for_its_key_without_a_look: WaitWithoutLook;
    || {
        let (keys, first) = full(1);
        let other = spawn(&keys, move |keys| keys.release(first.pinned(), 1));
        let ticket = line_up(&keys, A);
        other.join().unwrap();
        run(&keys, A, ticket);
        assert_eq!(keys.keys_in_use(at(0)), 0);
    }
}

model! {
    a_call_lines_up_where_the_last_one_leaves_and_its_key_loses_the_slot at 3 fails with
        a_call_that_marks_before_it_has_the_lock: MarkBeforeLock;
    || {
        let (keys, first) = full(1);
        let ticket = line_up(&keys, A);
        let other = spawn(&keys, move |keys| {
            // With a place or without one.
            if let Some(place) = keys.cancel_wait(at(0), A, ticket) {
                keys.release(place.pinned(), 1);
            }
            // It takes the slot, or shares the word of all.
            let b = take(keys, 0, B, KeyLimit::Running(1)).unwrap();
            keys.release(b.pinned(), 1);
        });
        let ending = spawn(&keys, move |keys| keys.release(first.pinned(), 1));
        let ticket = line_up(&keys, A);
        ending.join().unwrap();
        other.join().unwrap();
        run(&keys, A, ticket);
        assert_eq!(keys.keys_in_use(at(0)), 0);
    }
}

model! {
    a_call_leaves_the_line_of_its_key_beside_the_end_of_another at 3 fails with
        a_call_that_leaves_its_key_with_a_place: LeaveBlindly;
    || {
        let (keys, first) = full(1);
        let [leaving, next] = [(); 2].map(|()| line_up(&keys, A));
        let other = spawn(&keys, move |keys| keys.release(first.pinned(), 1));
        if let Some(place) = keys.cancel_wait(at(0), A, leaving) {
            keys.release(place.pinned(), 1);
        }
        other.join().unwrap();
        run(&keys, A, next);
        assert_eq!(keys.keys_in_use(at(0)), 0);
    }
}

model! {
    a_new_call_beside_one_in_line_for_its_key at 3 fails with
        a_new_call_that_overtakes_in_its_key: OvertakeLine;
    || {
        let (keys, first) = full(1);
        let ticket = line_up(&keys, A);
        let freeing = spawn(&keys, move |keys| keys.release(first.pinned(), 1));
        // The word is looked at before, as if the call had come a little earlier.
        let other = spawn(&keys, |keys| {
            keys.left(at(0), A, &KeyLimit::Running(1));
            take(keys, 0, A, KeyLimit::Running(1)).is_some()
        });
        freeing.join().unwrap();
        assert!(!other.join().unwrap(), "it waits, and another one has its place");
        run(&keys, A, ticket);
    }
}
