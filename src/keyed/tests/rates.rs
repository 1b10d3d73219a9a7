//! Tests of keys whose limit changes: the number of tokens that they have spent does not change.

use super::*;
use crate::budget::CostLedger;
use crate::keyed::RatesInUse;

/// Returns how many tokens `key` has left at each limit.
fn left<const N: usize>(keys: &HotKeys, now: u64, key: Digest, limits: [&KeyLimit; N]) -> [u32; N] {
    limits.map(|limit| keys.left(at(now), key, limit))
}

/// Makes a call of one token at `now`. Returns whether it passed.
fn take(keys: &HotKeys, now: u64, key: Digest, limit: &KeyLimit) -> bool {
    keys.take(at(now), key, limit, 1).is_ok()
}

#[test]
fn spent_tokens_keep_their_number_at_another_limit() {
    const HOUR: Duration = Duration::from_secs(3_600);
    // The threshold and burst of a limit, the number of tokens that are spent, and the threshold
    // and burst of a new limit. Then the number of tokens left at the new limit, and the seconds
    // until one more token is left.
    let cases = [
        // A higher limit takes effect at once.
        ((5.0, 0), 5, (100.0, 0), 95, 0),
        ((5.0, 0), 2, (100.0, 0), 98, 0),
        ((1.0, 0), 1, (2.0, 0), 1, 0),
        ((3.0, 0), 3, (7.0, 0), 4, 0),
        ((5.0, 0), 5, (5.0, 3), 3, 0),
        ((5.0, 2), 7, (10.0, 0), 3, 0),
        // A lower limit takes effect at once too: tokens spent beyond it must be earned again
        // first.
        ((100.0, 0), 2, (5.0, 0), 3, 0),
        ((100.0, 0), 4, (5.0, 0), 1, 0),
        ((100.0, 0), 5, (5.0, 0), 0, 36),
        ((100.0, 0), 100, (5.0, 0), 0, 96 * 36),
        ((100.0, 0), 100, (50.0, 20), 0, 31 * 36),
        ((5.0, 0), 5, (5.0, 0), 0, 720),
        ((4.0, 0), 4, (2.5, 0), 0, 4 * 900 - 3 * 900 / 2),
    ];
    for (from, spent, to, free, more_s) in cases {
        let keys = keys(Counting::Refill, HOUR);
        let [old, new] = [from, to].map(|(threshold, burst)| keys.limit(threshold, burst));
        let what = format!("{spent} of {from:?}, then {to:?}");
        assert!(keys.take(at(7), digest(1), &old, spent).is_ok(), "{what}");
        assert_eq!(keys.left(at(7), digest(1), &new), free, "{what}");
        let room = keys.available_at(at(7), digest(1), &new, 1);
        assert_eq!(room, Some(at(7 + more_s * 1_000)), "{what}");
        if more_s > 0 {
            assert_eq!(refused(&keys, at(7), digest(1), &new, 1), room, "{what}");
            let now = 7 + more_s * 1_000;
            let moment = Tick::from_nanos(now * 1_000_000 - 1);
            assert!(keys.take(moment, digest(1), &new, 1).is_err(), "{what}");
            assert!(take(&keys, now, digest(1), &new), "{what}");
            assert!(!take(&keys, now, digest(1), &new), "{what}");
        } else {
            assert_eq!(passes(&keys, 7, digest(1), &new, 1_000), free, "{what}");
        }
    }
}

#[test]
fn a_debt_is_paid_back_at_the_rate_of_the_last_call() {
    let keys = keys(Counting::Refill, SECOND);
    let (low, high) = (keys.limit(2.0, 0), keys.limit(10.0, 0));
    let limits = [&low, &high];
    assert_eq!(passes(&keys, 0, digest(1), &low, 100), 2);
    assert_eq!(left(&keys, 0, digest(1), limits), [0, 8]);
    // A token is earned in half a second, as long as no call has come at the higher limit.
    assert_eq!(left(&keys, 500, digest(1), limits), [1, 9]);
    assert!(take(&keys, 500, digest(1), &high));
    assert_eq!(left(&keys, 500, digest(1), limits), [0, 8]);
    assert_eq!(left(&keys, 600, digest(1), limits), [1, 9]);
    // Back to the lower limit.
    assert!(take(&keys, 600, digest(1), &low));
    assert_eq!(left(&keys, 1_000, digest(1), limits), [0, 8]);
    assert_eq!(left(&keys, 1_100, digest(1), limits), [1, 9]);
    assert_eq!(left(&keys, 1_600, digest(1), limits), [2, 10]);
}

#[test]
fn a_key_of_several_limits_never_has_more_than_the_highest() {
    // For any order of calls: in any time the key gets at most its largest capacity, plus the
    // tokens that the highest rate earns in that time.
    let mut seed = 7_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut refused_by_both = 0;
    for _ in 0..200 {
        let keys = keys(Counting::Refill, SECOND);
        let limits = [(2.0, 1), (20.0, 0), (7.0, 3)].map(|(most, burst)| keys.limit(most, burst));
        let (mut now, mut passed) = (0, Vec::new());
        for _ in 0..200 {
            now += draw(60);
            let taken = limits.each_ref().map(|_| draw(3) as usize);
            let fitting = taken
                .iter()
                .filter(|&&limit| take(&keys, now, digest(1), &limits[limit]));
            let fitting = fitting.count();
            refused_by_both += usize::from(fitting == 0);
            passed.extend(std::iter::repeat_n(now, fitting));
        }
        for (first, start) in passed.iter().enumerate() {
            for (last, end) in passed.iter().enumerate().skip(first) {
                let most = 20 + (end - start) * 20 / 1_000;
                assert!(((last - first) as u64) < most, "{start} to {end}");
            }
        }
    }
    assert!(refused_by_both > 1_000, "{refused_by_both}");
}

#[test]
fn a_call_that_tells_its_cost_later_changes_the_rate_of_its_key_when_it_passes() {
    // Two thresholds per ten seconds, and what is left of the second one after two calls of one
    // token each, and once both are earned back.
    for (from, to, then, later) in [(5.0, 50.0, 48, 50), (50.0, 5.0, 3, 5)] {
        let keys = HotKeys::with_costs(spec(Counting::Refill, 10 * SECOND), Tick::ZERO);
        let [old, new] = [from, to].map(|threshold| keys.limit(threshold, 0));
        let admit = |limit| keys.budget(digest(1), limit).admit(at(0), 0, &|| at(0));
        let first = admit(old).unwrap();
        keys.budget_of(&first).book(at(0), 1);
        let second = admit(new).unwrap();
        // Both charges are earned back at the rate of the second call, in whichever order they come.
        keys.budget_of(&second).book(at(0), 1);
        assert_eq!(keys.left(at(0), digest(1), &new), then);
        let of_one = if to > from { 200 } else { 2_000 };
        assert_eq!(keys.left(at(of_one - 1), digest(1), &new), then);
        assert_eq!(keys.left(at(of_one), digest(1), &new), then + 1);
        assert_eq!(keys.left(at(2 * of_one), digest(1), &new), later);
    }
}

#[test]
fn a_refund_at_another_rate_is_the_same_number_of_tokens() {
    for (old, new) in [(5.0, 50.0), (50.0, 5.0)] {
        let keys = keys(Counting::Refill, SECOND);
        let [old, new] = [old, new].map(|threshold| keys.limit(threshold, 0));
        let two = keys.take(at(0), digest(1), &old, 2).unwrap();
        assert!(take(&keys, 0, digest(1), &new));
        let before = keys.left(at(0), digest(1), &new);
        keys.refund(|| at(0), &two);
        assert_eq!(keys.left(at(0), digest(1), &new), before + 2);
        keys.refund(|| at(0), &two);
        assert_eq!(
            keys.left(at(0), digest(1), &new),
            before + 3,
            "no more than was spent"
        );
    }
    // Tokens that have been earned again meanwhile are not refunded.
    let keys = keys(Counting::Refill, SECOND);
    let [old, new] = [5.0, 50.0].map(|threshold| keys.limit(threshold, 0));
    let two = keys.take(at(0), digest(1), &old, 2).unwrap();
    assert!(keys.take(at(0), digest(1), &new, 10).is_ok());
    assert_eq!(keys.left(at(20), digest(1), &new), 39);
    keys.refund(|| at(20), &two);
    assert_eq!(keys.left(at(20), digest(1), &new), 40);
}

#[test]
fn a_refund_brings_no_debt_back_to_a_key_at_rest() {
    let keys = keys(Counting::Refill, SECOND);
    let [old, new] = [2.0, 200.0].map(|threshold| keys.limit(threshold, 0));
    assert_eq!(passes(&keys, 0, digest(1), &old, 9), 2);
    // After this call three tokens are spent: a debt of 15 ms at the new limit. Before it, two
    // tokens were a debt of one second at the old limit.
    let one = keys.take(at(0), digest(1), &new, 1).unwrap();
    assert_eq!(keys.left(at(16), digest(1), &old), 2);
    keys.refund(|| at(16), &one);
    assert_eq!(keys.left(at(16), digest(1), &old), 2);
    assert_eq!(keys.keys_in_use(at(16)), 0);
}

#[test]
fn a_reset_key_has_its_whole_quota_at_any_limit() {
    let keys = keys(Counting::Refill, SECOND);
    let limits = [2.0, 10.0].map(|threshold| keys.limit(threshold, 0));
    assert!(take(&keys, 0, digest(1), &limits[1]));
    assert!(keys.reset(digest(1), &|| at(0)));
    assert_eq!(left(&keys, 0, digest(1), limits.each_ref()), [2, 10]);
}

#[test]
fn a_shortened_debt_uses_the_time_at_which_the_word_was_read() {
    let keys = keys(Counting::Refill, SECOND);
    let [old, new] = [1.0, 10.0].map(|threshold| keys.limit(threshold, 0));
    assert!(take(&keys, 5_000, digest(1), &old));
    // The second call is late. If its time were used to convert the debt, the debt would end before
    // the first call.
    let late = |time: u64| keys.take_by(at(3_000), digest(1), &new, 1, || at(time));
    assert!(late(5_000).is_ok());
    assert_eq!(left(&keys, 5_000, digest(1), [&new]), [8]);
}

#[test]
fn unused_rates_make_room_for_new_ones() {
    let keys = keys(Counting::Refill, SECOND);
    let mut in_use = RatesInUse::default();
    let limit = |threshold: u32, now, in_use: &mut RatesInUse| {
        keys.limit_among(threshold.into(), 0, at(now), in_use)
    };
    let first = limit(1, 0, &mut in_use);
    assert!(take(&keys, 0, digest(1), &first));
    for threshold in 2..=14 {
        let _ = limit(threshold, 0, &mut in_use);
    }
    // All fourteen numbers are in use, so the next rate has none, and its debts keep their time.
    let none = limit(16, 0, &mut in_use);
    assert_eq!(keys.left(at(0), digest(1), &none), 0);
    assert_eq!(keys.left(at(500), digest(1), &none), 8);
    assert!(take(&keys, 500, digest(1), &none));
    let second = limit(2, 500, &mut in_use);
    assert_eq!(keys.left(at(500), digest(1), &second), 0);
    assert_eq!(passes(&keys, 1_000, digest(1), &none, 100), 15);
    assert_eq!(passes(&keys, 3_000, digest(1), &second, 100), 2);

    // After a reload, only a rule with the second rate and a debt at the first rate use numbers.
    assert!(take(&keys, 9_000, digest(2), &first));
    let mut in_use = RatesInUse::default();
    in_use.note(&second);
    for threshold in 20..32 {
        let new = limit(threshold, 9_000, &mut in_use);
        let free = threshold - 1;
        assert_eq!(keys.left(at(9_000), digest(2), &new), free, "{threshold}");
    }
    let one_more = limit(40, 9_000, &mut in_use);
    assert_eq!(keys.left(at(9_000), digest(2), &one_more), 0);
    assert_eq!(keys.left(at(9_000), digest(2), &second), 1);
}

#[test]
fn debts_keep_their_time_in_a_table_with_a_very_fast_rate() {
    let keys = keys(Counting::Refill, SECOND);
    let slow = keys.limit(2.0, 0);
    assert!(take(&keys, 0, digest(1), &slow));
    let fast = keys.limit(1e6, 0);
    // A token is missing because the bits of the rate number now count as time, less than a
    // nanosecond.
    assert_eq!(keys.left(at(0), digest(1), &fast), 499_999);
    assert!(take(&keys, 0, digest(1), &fast));
    assert!(!take(&keys, 0, digest(1), &slow));
    assert!(take(&keys, 1, digest(1), &slow));
    assert_eq!(keys.left(at(501), digest(1), &fast), 500_998);
}

#[test]
fn keys_that_share_a_word_share_their_tokens() {
    let keys = crowded(Counting::Refill);
    let [low, high] = [2.0, 10.0].map(|threshold| keys.limit(threshold, 0));
    for number in 0..8 {
        assert!(take(&keys, 0, digest(number), &low));
    }
    assert_eq!(passes(&keys, 0, digest(8), &low, 100), 2);
    assert_eq!(passes(&keys, 0, digest(9), &high, 100), 8);
    assert!(!take(&keys, 0, digest(10), &low));
    // A call is counted as an overflow only once, even if it is repeated because of a debt at
    // another rate.
    assert_eq!(keys.overflows(), 3 + 9 + 1);
}
