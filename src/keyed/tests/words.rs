//! Tests of each kind of counting, call by call.

use std::cell::Cell;

use super::*;
use crate::keyed::Judge;
use crate::keyed::queue::{Pace, QueueCall};
use crate::keyed::refill::{Rate, Refill};
use crate::keyed::running::{self, RunningCall};
use crate::keyed::window::WindowCall;

#[test]
fn a_quota_of_five_with_a_burst_of_two_is_refilled_every_200_ms() {
    let keys = keys(Counting::Refill, SECOND);
    let limit = keys.limit(5.0, 2);
    let [x, y] = ["x", "y"].map(|key| keys.digest(&Key::Str(key)));
    assert_eq!(passes(&keys, 0, x, &limit, 100), 7);
    assert_eq!(refused(&keys, at(0), x, &limit, 1), Some(at(200)));
    // Another key has a separate quota, and can have a different limit.
    assert_eq!(passes(&keys, 0, y, &keys.limit(1.0, 2), 100), 3);
    assert_eq!(passes(&keys, 199, x, &limit, 100), 0);
    assert_eq!(passes(&keys, 200, x, &limit, 100), 1);
    // After 1 001 ms without calls, five more calls pass, as in Alibaba Sentinel.
    assert_eq!(passes(&keys, 1_201, x, &limit, 100), 5);
    assert_eq!(passes(&keys, 9_000, x, &limit, 100), 7);
    assert_eq!(refused(&keys, at(9_000), x, &limit, 3), Some(at(9_600)));
    assert_eq!(refused(&keys, at(9_000), x, &limit, 8), None);
}

#[test]
fn a_fraction_of_a_token_shortens_the_wait_for_the_next_one() {
    let keys = keys(Counting::Refill, SECOND);
    let limit = keys.limit(2.5, 0);
    // A token is earned in 400 ms, and half a token is left.
    assert_eq!(passes(&keys, 0, digest(1), &limit, 100), 2);
    assert_eq!(refused(&keys, at(0), digest(1), &limit, 1), Some(at(200)));
    assert_eq!(refused(&keys, at(0), digest(1), &limit, 3), None);
    let next = [199, 200, 599, 600].map(|now| passes(&keys, now, digest(1), &limit, 100));
    assert_eq!(next, [0, 1, 0, 1]);
    assert_eq!(passes(&keys, 9_000, digest(1), &limit, 100), 2);
}

#[test]
fn the_capacity_is_exact_at_every_threshold() {
    // The threshold, the burst, the interval, and the capacity.
    let cases = [
        (1.0, 0, SECOND, 1),
        (3.0, 0, SECOND, 3),
        (7.0, 4, Duration::from_millis(1), 11),
        (2.7, 1, SECOND, 3),
        (1.0 / 3.0, 1, SECOND, 1),
        // A token would cost 32 years. The cost is cut to nine years, which is also the longest
        // debt, so the capacity is one token.
        (1e-9, 3, SECOND, 1),
        (999_999.0, 0, SECOND, 999_999),
        (2_147_483_647.0, 0, Duration::from_millis(1), 2_147_483_647),
        (2_147_483_647.0, 2_147_483_647, SECOND, u32::MAX - 1),
        (
            2_147_483_647.0,
            7,
            Duration::from_secs(366 * 86_400),
            2_147_483_654,
        ),
    ];
    for (number, (threshold, burst, interval, capacity)) in (0_u64..).zip(cases) {
        let keys = keys(Counting::Refill, interval);
        let limit = keys.limit(threshold, burst);
        let what = format!("{threshold} and {burst} per {interval:?}");
        let key = digest(number);
        assert_eq!(keys.left(at(7), key, &limit), capacity, "{what}");
        assert!(
            keys.take(at(7), key, &limit, capacity + 1).is_err(),
            "{what}"
        );
        assert!(keys.take(at(7), key, &limit, capacity).is_ok(), "{what}");
        assert!(keys.take(at(7), key, &limit, 1).is_err(), "{what}");
        assert_eq!(keys.left(at(7), key, &limit), 0, "{what}");
    }
}

#[test]
fn nothing_passes_at_a_threshold_of_0_or_below_1_without_a_burst() {
    for count in [
        Counting::Refill,
        Counting::Window,
        Counting::Running,
        Counting::Queue(SECOND),
    ] {
        let keys = keys(count, SECOND);
        for (threshold, burst) in [(0.0, 0), (0.0, 9), (-0.0, 0), (f64::NAN, 0), (-1.0, 3)] {
            let limit = keys.limit(threshold, burst);
            assert_eq!(
                refused(&keys, at(5), digest(1), &limit, 1),
                None,
                "{count:?}"
            );
            assert_eq!(keys.left(at(5), digest(1), &limit), 0);
            assert!(keys.take(at(5), digest(1), &limit, 0).is_ok());
            assert_eq!(keys.available_at(at(5), digest(1), &limit, 0), Some(at(5)));
        }
        assert_eq!(keys.keys_in_use(at(5)), 0);
    }
    let keys = keys(Counting::Refill, SECOND);
    assert_eq!(
        refused(&keys, at(5), digest(1), &keys.limit(0.9, 0), 1),
        None
    );
}

#[test]
fn a_refund_is_reduced_by_what_has_been_earned_since() {
    let keys = keys(Counting::Refill, SECOND);
    let limit = keys.limit(10.0, 0);
    let four = keys.take(at(0), digest(1), &limit, 4).unwrap();
    assert_eq!(keys.left(at(0), digest(1), &limit), 6);
    keys.refund(|| at(0), &four);
    assert_eq!(keys.left(at(0), digest(1), &limit), 10);

    let four = keys.take(at(1_000), digest(1), &limit, 4).unwrap();
    assert_eq!(passes(&keys, 1_300, digest(1), &limit, 100), 9);
    // Three of the four tokens have been earned again.
    keys.refund(|| at(1_300), &four);
    assert_eq!(keys.left(at(1_300), digest(1), &limit), 1);
    assert_eq!(passes(&keys, 1_400, digest(1), &limit, 100), 2);
}

#[test]
fn a_refund_after_later_calls_restores_no_earned_tokens() {
    let keys = keys(Counting::Refill, SECOND);
    let limit = keys.limit(2.0, 0);
    let [first, second] = [(); 2].map(|()| keys.take(at(0), digest(1), &limit, 1).unwrap());
    keys.refund(|| at(0), &first);
    // The debt of both calls ended at 1 000, and now ends at 500.
    assert_eq!(passes(&keys, 500, digest(1), &limit, 100), 2);
    keys.refund(|| at(500), &second);
    assert_eq!(passes(&keys, 500, digest(1), &limit, 100), 0);
}

#[test]
fn a_late_refund_uses_the_time_at_which_the_word_was_read() {
    let keys = keys(Counting::Refill, SECOND);
    let limit = keys.limit(2.0, 0);
    let first = keys.take(at(0), digest(1), &limit, 1).unwrap();
    // The refunding thread reads the clock at 0, and then two calls come at 1 000. The thread finds
    // the word changed, and reads the clock again.
    let has_slept = Cell::new(false);
    let time = || {
        if has_slept.replace(true) {
            return at(1_000);
        }
        assert_eq!(passes(&keys, 1_000, digest(1), &limit, 100), 2);
        at(0)
    };
    keys.refund(time, &first);
    assert!(has_slept.get());
    assert_eq!(passes(&keys, 1_000, digest(1), &limit, 100), 0);
}

#[test]
fn after_a_step_back_a_refund_gives_back_at_most_the_cost() {
    // The time to which the clock steps before the refund, and the time at which a token is left.
    for (stepped_to, available_at) in [(1_000, 1_500), (500, 1_500), (200, 1_200), (0, 1_000)] {
        let keys = keys(Counting::Refill, SECOND);
        let limit = keys.limit(2.0, 0);
        let first = keys.take(at(0), digest(1), &limit, 1).unwrap();
        assert_eq!(passes(&keys, 1_000, digest(1), &limit, 100), 2);
        keys.refund(|| at(stepped_to), &first);
        let room = keys.available_at(at(1_000), digest(1), &limit, 1);
        assert_eq!(room, Some(at(available_at)), "{stepped_to}");
    }
}

#[test]
fn a_late_clock_reading_gets_no_more_tokens() {
    let keys = keys(Counting::Refill, SECOND);
    let limit = keys.limit(10.0, 0);
    assert_eq!(passes(&keys, 5_000, digest(1), &limit, 100), 10);
    assert_eq!(passes(&keys, 4_000, digest(1), &limit, 100), 0);
    let early = Tick::from_nanos(1);
    assert_eq!(refused(&keys, early, digest(1), &limit, 1), Some(at(5_100)));
    // A clock reading from before the creation of the table, or at the end of the range, gets no
    // more tokens either.
    let late = HotKeys::new(spec(Counting::Refill, SECOND), at(9_000));
    assert_eq!(passes(&late, 0, digest(1), &limit, 100), 10);
    assert_eq!(passes(&late, 9_000, digest(1), &limit, 100), 0);
    let end = Tick::from_nanos(u64::MAX);
    for _ in 0..10 {
        assert!(late.take(end, digest(1), &limit, 1).is_ok());
    }
    assert!(late.take(end, digest(1), &limit, 1).is_err());
}

#[test]
fn an_aligned_window_holds_the_limit_and_slides_by_halves() {
    let keys = keys(Counting::Window, SECOND);
    let limit = keys.limit(5.0, 0);
    let key = digest(1);
    // The buckets at 10 000 and 10 500 hold three and two tokens.
    assert_eq!(passes(&keys, 10_200, key, &limit, 3), 3);
    assert_eq!(passes(&keys, 10_900, key, &limit, 100), 2);
    assert_eq!(refused(&keys, at(10_900), key, &limit, 3), Some(at(11_000)));
    assert_eq!(refused(&keys, at(10_900), key, &limit, 4), Some(at(11_500)));
    assert_eq!(refused(&keys, at(10_900), key, &limit, 6), None);
    assert_eq!(keys.left(at(11_000), key, &limit), 3);
    assert_eq!(passes(&keys, 11_000, key, &limit, 100), 3);
    // A call with a late clock reading counts in the newest bucket.
    assert_eq!(refused(&keys, at(10_700), key, &limit, 1), Some(at(11_500)));
    assert_eq!(passes(&keys, 11_500, key, &limit, 100), 2);
    // A lower limit does not reset the counts.
    assert_eq!(keys.left(at(11_500), key, &keys.limit(3.0, 0)), 0);
    assert_eq!(passes(&keys, 20_000, key, &limit, 100), 5);
}

#[test]
fn the_largest_window_is_full_at_its_limit() {
    let keys = keys(Counting::Window, Duration::from_millis(1));
    let limit = keys.limit(1_048_575.0, 0);
    assert!(keys.take(at(3), digest(1), &limit, 1_048_575).is_ok());
    assert_eq!(passes(&keys, 3, digest(1), &limit, 100), 0);
    assert_eq!(keys.limit(5e9, 0), limit);
}

#[test]
fn a_window_is_refunded_while_it_contains_the_bucket() {
    let keys = keys(Counting::Window, SECOND);
    let limit = keys.limit(5.0, 0);
    let take = |now| keys.take(at(now), digest(1), &limit, 2).unwrap();
    let (first, second, third) = (take(0), take(100), keys.take(at(0), digest(1), &limit, 1));
    keys.refund(|| at(200), &first);
    assert_eq!(keys.left(at(200), digest(1), &limit), 2);
    let fourth = take(600);
    keys.refund(|| at(600), &second);
    assert_eq!(keys.left(at(600), digest(1), &limit), 2);
    let _ = take(1_000);
    keys.refund(|| at(1_000), &third.unwrap());
    assert_eq!(keys.left(at(1_000), digest(1), &limit), 1);
    keys.refund(|| at(1_000), &fourth);
    assert_eq!(keys.left(at(1_000), digest(1), &limit), 3);
}

#[test]
fn bucket_numbers_wrap() {
    let keys = keys(Counting::Window, SECOND);
    let limit = keys.limit(5.0, 0);
    let bucket = |number: u64| number * 500;
    for round in 0..3 {
        // Pairs of neighbouring buckets. Four calls pass in the first bucket of each pair, and one
        // more in the second bucket.
        for number in [0, 1, 0x0080_0000, 0x0080_0001, 0x00FF_FC00, 0x00FF_FC01] {
            let now = bucket((round << 24) + number);
            let free = if number % 2 == 0 { 5 } else { 1 };
            assert_eq!(
                passes(&keys, now, digest(1), &limit, 4),
                free.min(4),
                "{round} {number}"
            );
        }
    }
}

#[test]
fn a_late_call_at_the_wrap_is_refused_until_the_newest_bucket_leaves() {
    let keys = keys(Counting::Window, SECOND);
    let limit = keys.limit(5.0, 0);
    // The newest bucket has the number 0, and the bucket before it has the largest number.
    let [late, newest, over] = [2, 1, -1].map(|before| at(((1 << 24) - before) as u64 * 500));
    assert!(keys.take(newest, digest(1), &limit, 5).is_ok());
    assert_eq!(refused(&keys, late, digest(1), &limit, 1), Some(over));
}

#[test]
fn a_call_later_than_the_slack_resets_its_window() {
    // The slack is 1 024 buckets. `again` calls pass because the late call has reset the window.
    for (buckets, again) in [(1_024, 0), (1_025, 5)] {
        let keys = keys(Counting::Window, SECOND);
        let limit = keys.limit(5.0, 0);
        let now = 500 * (buckets + 7);
        assert_eq!(passes(&keys, now, digest(1), &limit, 100), 5);
        // A call with a clock reading that is `buckets` buckets old.
        let slept = passes(&keys, 500 * 7, digest(1), &limit, 1);
        assert_eq!(slept, again.min(1), "{buckets}");
        assert_eq!(passes(&keys, now, digest(1), &limit, 100), again);
    }
}

#[test]
fn concurrent_calls_reach_the_limit_and_one_more_passes_when_one_ends() {
    let keys = keys(Counting::Running, SECOND);
    let limit = keys.limit(2.9, 0);
    let take = || keys.take(at(3), digest(1), &limit, 1);
    let (first, second) = (take().unwrap(), take().unwrap());
    assert_eq!(take().unwrap_err().available_at(), Some(at(3)));
    release(&keys, &first);
    assert_eq!(keys.left(at(3), digest(1), &limit), 1);
    let third = take().unwrap();
    assert_eq!(keys.left(at(3), digest(1), &limit), 0);
    release(&keys, &second);
    keys.refund(|| at(4), &third);
    assert_eq!(keys.left(at(3), digest(1), &limit), 2);
    assert_eq!(keys.keys_in_use(at(3)), 0);
}

#[test]
fn the_next_token_comes_with_time_or_with_the_next_bucket() {
    let next = |keys: &HotKeys, now| keys.next_change(at(now), digest(1), &keys.limit(5.0, 0));
    let take = |keys: &HotKeys, now, n| passes(keys, now, digest(1), &keys.limit(5.0, 0), n);
    let refill = keys(Counting::Refill, SECOND);
    assert_eq!(take(&refill, 7, 1), 1);
    assert_eq!([7, 107].map(|now| next(&refill, now)), [at(207); 2]);
    let window = keys(Counting::Window, SECOND);
    assert_eq!(take(&window, 10_200, 9), 5);
    assert_eq!(next(&window, 10_200), at(11_000));
    // A call starts every 200 ms, so six calls fit: one starts, and five wait.
    let queue = keys(Counting::Queue(SECOND), SECOND);
    assert_eq!(take(&queue, 7, 3), 3);
    assert_eq!([7, 107].map(|now| next(&queue, now)), [at(207); 2]);
    assert_eq!(take(&queue, 7, 9), 3);
    assert_eq!(next(&queue, 107), at(207));
    // At 107 the key has its whole quota of two calls. It never gets more, although the queue is
    // not at rest.
    let short = keys(Counting::Queue(Duration::from_millis(300)), SECOND);
    assert_eq!(take(&short, 7, 1), 1);
    assert_eq!([7, 106, 107].map(|now| next(&short, now)), [107; 3].map(at));
    for count in [
        Counting::Refill,
        Counting::Window,
        Counting::Queue(SECOND),
        Counting::Running,
    ] {
        assert_eq!(next(&keys(count, SECOND), 7), at(7));
    }
}

#[test]
fn the_next_token_is_there_at_the_reported_time_and_not_before() {
    for count in [
        Counting::Refill,
        Counting::Window,
        Counting::Queue(2 * SECOND),
    ] {
        let keys = keys(count, SECOND);
        // In a queue a token costs whole nanoseconds, slightly more than a third of a second.
        let limit = keys.limit(3.0, 0);
        assert_eq!(passes(&keys, 7, digest(1), &limit, 3), 3);
        let left = |nanos| keys.left(Tick::from_nanos(nanos), digest(1), &limit);
        let now = at(7).as_nanos();
        let next = keys.next_change(at(7), digest(1), &limit).as_nanos();
        assert!(now < next && left(next - 1) == left(now), "{count:?}");
        assert!(left(next) > left(now), "{count:?}");
    }
}

#[test]
fn a_new_owner_begins_later_than_any_word_at_rest() {
    /// Asserts that the words of a new owner are later than `last`, the word of the old owner.
    fn is_passed_on(judge: &impl Judge, last: u64) {
        let fresh = judge.fresh(last);
        assert!(fresh > last, "{fresh:#x} after {last:#x}");
        assert!(judge.take(fresh).unwrap() > fresh);
    }
    let moment = Tick::from_nanos;

    // The cost is 100 ms, which the queue rounds up to a gap of 2^28 ns. Times in words are 1 ns
    // larger.
    let pace = Pace::new(10.0, SECOND);
    let queue = |ns| QueueCall::new(Tick::ZERO, moment(ns), pace, SECOND, 1);
    let last = queue(0).take(0).unwrap();
    let over = 1 << 28;
    assert_eq!(queue(over).rest(last), None);
    assert_eq!(queue(over + 1).rest(last), Some(over + 1));
    is_passed_on(&queue(over + 1), last);
    // A queue without a turn, for example after its only turn was cancelled.
    let empty = queue(7).fresh(0);
    assert_eq!(queue(7).rest(empty), None);
    assert_eq!(queue(8).rest(empty), Some(1));
    is_passed_on(&queue(8), empty);

    let rate = Rate::new(10.0, 0, SECOND);
    let refill = |ns| Refill::new(Tick::ZERO, moment(ns), rate, 1);
    let last = refill(0).take(0).unwrap();
    let over = 100_000_000;
    assert_eq!(refill(over).rest(last), None);
    let age = refill(over + 1).rest(last).unwrap();
    assert!(refill(over + 2).rest(last).unwrap() > age);
    is_passed_on(&refill(over + 1), last);

    // A window of two buckets of 500 ms.
    let window = |ms| WindowCall::new(at(ms), SECOND, WindowCall::slack(SECOND), 5, 1);
    let last = window(0).take(window(0).fresh(0)).unwrap();
    assert_eq!(window(999).rest(last), None);
    let age = window(1_000).rest(last).unwrap();
    assert!(window(1_500).rest(last).unwrap() > age);
    is_passed_on(&window(1_000), last);

    let call = RunningCall::new(3, 1);
    let mut last = 0;
    for _ in 0..3 {
        is_passed_on(&call, last);
        let running = call.take(call.fresh(last)).unwrap();
        assert_eq!(call.rest(running), None);
        last = running::release(running, 1).unwrap();
        assert_eq!(call.rest(last), Some(0));
    }
}
