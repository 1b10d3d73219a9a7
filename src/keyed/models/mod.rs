//! Models for loom: every interleaving of a few calls over a table of one or two slots.
//!
//! Each model has a twin with a planted bug that must fail. The models run together with those of
//! `stat`, with the test filter `models`.

mod changes;
mod costs;
mod wide;

use std::sync::Arc as StdArc;
use std::time::Duration;

use loom::thread;

use super::table::KeyTable;
use super::{
    Counting, Digest, HotKeys, KeyLimit, KeyLimitNow, KeySpec, KeyTokens, LineTicket, WaitLimits,
};
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::clock::{CalendarPeriod, Tick};

/// Creates keys in a table of `slots` sets of one slot each.
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
/// In a table of two sets, C's first choice is the second set; A and B choose the first set.
const C: Digest = Digest(1 << 63 | 3);

fn at(us: u64) -> Tick {
    Tick::from_nanos(us * 1_000)
}

/// Runs `body` on a new thread.
fn spawn<R: 'static>(
    keys: &Arc<HotKeys>,
    body: impl FnOnce(&HotKeys) -> R + 'static,
) -> thread::JoinHandle<R> {
    let keys = keys.clone();
    thread::spawn(move || body(&keys))
}

/// Takes one token of `key`, if there is one.
fn take(keys: &HotKeys, us: u64, key: Digest, limit: KeyLimit) -> Option<KeyTokens> {
    keys.take(at(us), key, &limit, 1).ok()
}

model! {
    two_calls_of_a_new_key at 3 fails with callers_who_both_take_a_slot: InsertWithoutSecondLook;
    || {
        // The key has one token and must get one slot: exactly one of the calls may pass.
        let keys = keys(Counting::Refill, 2);
        let limit = keys.limit(1.0, 0);
        let other = spawn(&keys, move |keys| take(keys, 0, A, limit).is_some());
        let ours = take(&keys, 0, A, limit).is_some();
        let theirs = other.join().unwrap();
        assert!(ours != theirs, "both or none");
        assert_eq!(keys.keys_in_use(at(0)), 1);
    }
}

/// Runs calls of two new keys, which use different locks, on a table with one free slot. One key
/// gets the slot, and the other key uses the shared word.
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
        a_new_key_that_evicts_the_other: SpareByTag;
    || two_new_keys_and_one_slot(Counting::Refill)
}

model! {
    two_windows_that_find_the_last_slot_free at 3 fails with
        a_new_key_that_takes_a_claimed_slot: SpareClaimed;
    || two_new_keys_and_one_slot(Counting::Window)
}

model! {
    a_call_during_the_loss_of_its_slot at 3 fails with a_hit_checked_once: HitWithoutSecondLook;
    || {
        // A is at rest. Either B takes A's slot and spends two tokens, or A spends a token and B
        // uses the shared word.
        let keys = keys(Counting::Refill, 1);
        let limit = keys.limit(2.0, 0);
        let _ = take(&keys, 0, A, limit).unwrap();
        let other = spawn(&keys, move |keys| {
            [(); 2].map(|()| take(keys, 5_000, B, limit).is_some())
        });
        let a = take(&keys, 5_000, A, limit).is_some();
        let b = other.join().unwrap();
        // No key pays for another: the key with the slot has two tokens, and the other key has two
        // on the shared word.
        assert!(a && b == [true; 2], "{a} {b:?}");
    }
}

/// Gives A's slot to B, in the first bucket in which A is at rest, while `late` runs. A late call
/// of B, with a clock reading from the previous bucket, would be refused by the word of A, but not
/// by B's word or by the shared word.
fn take_a_slot_during_a_late_call(late: impl FnOnce(&HotKeys, KeyLimit) + 'static) {
    let keys = keys(Counting::Window, 1);
    let limit = keys.limit(2.0, 0);
    let _ = [(); 2].map(|()| take(&keys, 0, A, limit).unwrap());
    let other = spawn(&keys, move |keys| late(keys, limit));
    assert!(take(&keys, 1_000, B, limit).is_some());
    other.join().unwrap();
}

model! {
    a_late_call_and_a_new_owner at 3 fails with
        a_call_refused_by_the_last_owner: TagBeforeClaim;
    // The late call of B must pass, because no word of B would refuse it.
    || take_a_slot_during_a_late_call(|keys, limit| {
        assert!(take(keys, 500, B, limit).is_some());
    })
}

model! {
    late_figures_and_a_new_owner at 3 fails with
        figures_of_the_last_owner: TagBeforeClaim;
    // The figures of B must not be read from the word of A.
    || take_a_slot_during_a_late_call(|keys, limit| {
        assert_ne!(keys.left(at(500), B, &limit), 0);
    })
}

model! {
    a_late_call_of_an_owner_that_comes_back at 3 fails with
        a_call_refused_by_the_owner_between: RefusalWithoutThirdLook;
    || {
        // A is at rest from 1 000 on. Then B takes A's slot and spends two tokens. At 2 000 A takes
        // the slot back. At 1 500 the word of B would refuse a call of A, but no word of A does.
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
    figures_during_the_loss_of_a_slot at 3 fails with
        figures_of_a_claim: ReadClaimed, figures_of_the_next_owner: HitWithoutSecondLook;
    || {
        // A is at rest, so it has two tokens whether it keeps the slot or not.
        let keys = keys(Counting::Refill, 1);
        let limit = keys.limit(2.0, 0);
        let _ = take(&keys, 0, A, limit).unwrap();
        let other = spawn(&keys, move |keys| keys.left(at(5_000), A, &limit));
        assert!(take(&keys, 5_000, B, limit).is_some());
        assert_eq!(other.join().unwrap(), 2);
    }
}

model! {
    a_call_and_a_new_owner_that_refunds at 3 fails with
        a_debt_that_ends_now_is_forgotten: RestTooSoon;
    || {
        // A's debt ends at 1 000, when B makes a call and refunds it. If A counted as at rest by
        // then, B would get A's slot, and the refund could restore the value of A's word.
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
        a_tag_stored_after_that_of_the_next_owner: WordBeforeTag;
    || {
        // C's debt ends at 1 000, and A's at 500. A and B use different locks. B takes the slot of
        // A or uses the shared word; or A uses the shared word.
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
    calls_in_flight_and_a_new_key at 3 fails with owners_that_look_alike: OwnersWithoutEpoch;
    || {
        // A has no calls in flight. Concurrently with a call of A, a call of B takes the slot if it
        // can, and ends.
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
        // The only call in flight is A's. If a slot is in use, it belongs to A.
        if keys.keys_in_use(at(0)) == 1 {
            assert!(take(&keys, 0, A, limit).is_none(), "two at once");
        }
        keys.release(ours.pinned(), 1);
        assert_eq!(keys.keys_in_use(at(0)), 0);
        assert!(take(&keys, 0, A, limit).is_some());
    }
}

model! {
    a_refund_and_a_new_key at 3 fails with
        a_refund_to_the_next_owner: HitWithoutSecondLook;
    || {
        // A refunds with a late clock reading, so that nearly the whole cost would be given back.
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

/// Refunds a token of A concurrently with later calls. The token is earned again at 500, so at 1
/// 000 A has two tokens, and a refund must give back nothing. `tick` sets the clock to 1 000, and
/// `now` reads it.
fn refund_and_later_calls(
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
    a_refund_and_later_calls at 3 fails with
        a_refund_that_reads_the_clock_too_early: RefundByEarlierTime;
    || {
        // All threads share one clock, and each thread must see its last tick. Loom guarantees this
        // only if all accesses are read-modify-writes.
        refund_and_later_calls(
            |clock| _ = clock.fetch_add(1_000, Ordering::AcqRel),
            |clock| clock.fetch_add(0, Ordering::AcqRel),
        );
    }
}

model! {
    a_refund_by_a_clock_that_may_be_late at 3 fails with
        a_refund_by_a_clock_read_before_the_word: RefundByEarlierTime;
    || {
        // The clock is relaxed: only a word written by a later call makes its tick visible.
        refund_and_later_calls(
            |clock| clock.store(1_000, Ordering::Relaxed),
            |clock| clock.load(Ordering::Relaxed),
        );
    }
}

model! {
    a_reset_during_a_late_call_of_the_last_owner at 3 fails with
        a_reset_that_restores_the_last_owners_word: ResetByEarlierTime;
    || {
        // B's debt ends at 500, and the clock starts at 500. A takes the slot at 600, concurrently
        // with a second call of B with an old clock reading, which costs 1 000. A is also reset
        // concurrently.
        let keys = keys(Counting::Refill, 1);
        let (twice, late) = (keys.limit(2.0, 0), keys.limit(1.0, 1));
        let _ = take(&keys, 0, B, twice).unwrap();
        let clock = Arc::new(AtomicU64::new(500));
        let ours = clock.clone();
        let other = spawn(&keys, move |keys| take(keys, 0, B, late).is_some());
        let reset = spawn(&keys, move |keys| {
            let time = || {
                let now = at(clock.fetch_add(0, Ordering::AcqRel));
                // Loom explores no pause before the load that follows, so this change makes it
                // explore one.
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
        a_call_that_restores_the_previous_day: PeriodGoesBack;
    || {
        // Each day has one token, and that of the first day is spent. The last call of the first
        // day runs concurrently with the first call of the next day, and must take no token of
        // either day.
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
        // The key must get one slot: exactly two of the three calls may pass.
        let keys = keys(Counting::Window, 2);
        let limit = keys.limit(2.0, 0);
        let others = [(); 2].map(|()| spawn(&keys, move |keys| take(keys, 0, A, limit).is_some()));
        let ours = take(&keys, 0, A, limit).is_some();
        let theirs = others.map(|other| other.join().unwrap());
        let passed = theirs.into_iter().chain([ours]).filter(|&passed| passed).count();
        assert_eq!(passed, 2);
    }
}

/// Creates a table with a limit of one running call for each key, in which a call of `A` runs.
fn full(slots: usize) -> (Arc<HotKeys>, KeyTokens) {
    let keys = keys(Counting::Running, slots);
    let one: KeyLimitNow = StdArc::new(|_, _| 1);
    keys.set_limit(&one);
    let first = take(&keys, 0, A, KeyLimit::Running(1)).unwrap();
    (keys, first)
}

/// Puts a call in line for a place of `key`.
fn line_up(keys: &HotKeys, key: Digest) -> LineTicket {
    let most = WaitLimits {
        of_key: 9,
        of_all: 9,
    };
    keys.line_up(key, None, most, None).unwrap()
}

/// Starts the call with this ticket, which must have got a place, and ends it.
fn run(keys: &HotKeys, key: Digest, ticket: LineTicket) {
    let place = keys.cancel_wait(at(0), key, ticket);
    keys.release(place.expect("it waits beside a free place").pinned(), 1);
}

model! {
    a_call_lines_up_while_a_call_of_its_key_ends at 3 fails with
        a_call_that_waits_for_its_key_without_a_look: WaitWithoutLook;
    || {
        // The place that is released concurrently must reach the call in line.
        let (keys, first) = full(1);
        let other = spawn(&keys, move |keys| keys.release(first.pinned(), 1));
        let ticket = line_up(&keys, A);
        other.join().unwrap();
        run(&keys, A, ticket);
        assert_eq!(keys.keys_in_use(at(0)), 0);
    }
}

model! {
    a_call_lines_up_while_the_line_empties_and_its_key_loses_the_slot at 3 fails with
        a_call_that_marks_before_it_has_the_lock: MarkBeforeLock;
    || {
        let (keys, first) = full(1);
        let ticket = line_up(&keys, A);
        let other = spawn(&keys, move |keys| {
            // The call leaves with a place or without one.
            if let Some(place) = keys.cancel_wait(at(0), A, ticket) {
                keys.release(place.pinned(), 1);
            }
            // B takes the slot or uses the shared word.
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
    a_call_leaves_the_line_of_its_key_while_another_call_ends at 3 fails with
        a_call_that_leaves_its_key_with_a_place: LeaveBlindly;
    || {
        // The first call in line may get the place just before it leaves. Then the place must reach
        // the second call.
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
    a_new_call_and_one_in_line_for_its_key at 3 fails with
        a_new_call_that_overtakes_in_its_key: OvertakeLine;
    || {
        let (keys, first) = full(1);
        let ticket = line_up(&keys, A);
        let freeing = spawn(&keys, move |keys| keys.release(first.pinned(), 1));
        // Reading the word first makes loom explore a call that began a little earlier.
        let other = spawn(&keys, |keys| {
            keys.left(at(0), A, &KeyLimit::Running(1));
            take(keys, 0, A, KeyLimit::Running(1)).is_some()
        });
        freeing.join().unwrap();
        assert!(!other.join().unwrap(), "it waits, and another one has its place");
        run(&keys, A, ticket);
    }
}
