//! Tests of counts in calendar days and months.

use std::time::Duration;

use super::{crowded, digest, keys, passes, refused, spec};
use crate::budget::CostLedger;
use crate::clock::{CalendarPeriod, Tick};
use crate::keyed::{Counting, HotKeys};

const DAY: Counting = Counting::Calendar(CalendarPeriod::Day);
const MONTH: Counting = Counting::Calendar(CalendarPeriod::Month);
/// An hour, in milliseconds.
const HOURS: u64 = 3_600_000;
/// A day, in milliseconds.
const DAYS: u64 = 24 * HOURS;
/// The time 2024-02-28 00:00 UTC, in a leap year.
const LEAP: u64 = 19_781 * DAYS;

fn at(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

/// Creates keys that are counted by calendar days or months, with a clock whose epoch is 1970.
fn calendar_keys(count: Counting, utc_offset: i32) -> HotKeys {
    HotKeys::new(spec(count, Duration::ZERO), Tick::ZERO).by_calendar(Duration::ZERO, utc_offset)
}

#[test]
fn no_more_is_left_before_the_reset_that_a_provider_reports() {
    let keys = HotKeys::with_costs(spec(DAY, Duration::ZERO), Tick::ZERO);
    let keys = keys.by_calendar(Duration::ZERO, 0).for_all_callers();
    let (key, limit) = (digest(1), keys.limit(10.0, 0));
    let budget = keys.budget(key, limit);
    budget.note_provider_left(at(0), 2, Duration::from_secs(20));
    assert_eq!((keys.left(at(0), key, &limit), budget.left(at(0))), (2, 2));
    assert_eq!(keys.next_change(at(0), key, &limit), at(20_000));
    assert_eq!(keys.left(at(20_000), key, &limit), 10);
    // What is left of the day is less.
    budget.book(at(20_000), 9);
    budget.note_provider_left(at(20_000), 5, Duration::from_secs(20));
    assert_eq!(keys.left(at(20_000), key, &limit), 1);
    assert_eq!(keys.next_change(at(20_000), key, &limit), at(DAYS));
}

#[test]
fn a_period_holds_the_limit_and_begins_at_midnight() {
    // Counting, UTC offset, time of the first call, and time from there to the end of its period.
    for (count, offset, first, length) in [
        (DAY, 0, 0, DAYS),
        (DAY, 0, 7 * HOURS, 17 * HOURS),
        (DAY, 120, 21 * HOURS, HOURS),
        (DAY, 120, 22 * HOURS, DAYS),
        (DAY, -330, 5 * HOURS, HOURS / 2),
        (DAY, 1_439, 60_000, DAYS),
        (MONTH, 0, 0, 31 * DAYS),
        (MONTH, 0, LEAP, 2 * DAYS),
        (MONTH, 0, LEAP + DAYS, DAYS),
        (MONTH, 0, LEAP + 2 * DAYS, 31 * DAYS),
        (MONTH, 60, LEAP + DAYS, 23 * HOURS),
        (MONTH, -60, LEAP + 2 * DAYS, HOURS),
        (MONTH, 60, LEAP + 366 * DAYS, DAYS - HOURS), // 2025-02-28
    ] {
        let (keys, key) = (calendar_keys(count, offset), digest(1));
        let limit = keys.limit(3.9, 0);
        let (last, next) = (first + length - 1, first + length);
        assert_eq!(passes(&keys, first, key, &limit, 2), 2);
        assert_eq!(passes(&keys, last, key, &limit, 9), 1, "{count:?} {offset}");
        for now in [first, first + length / 2, last] {
            assert_eq!(refused(&keys, at(now), key, &limit, 1), Some(at(next)));
            assert_eq!(refused(&keys, at(now), key, &limit, 4), None);
            assert_eq!(keys.left(at(now), key, &limit), 0);
            assert_eq!(keys.next_change(at(now), key, &limit), at(next));
        }
        let just_before = Tick::from_nanos(at(next).as_nanos() - 1);
        assert!(keys.take(just_before, key, &limit, 1).is_err());
        assert_eq!(keys.left(at(next), key, &limit), 3);
        assert_eq!(passes(&keys, next, key, &limit, 9), 3);
    }
}

#[test]
fn a_period_can_count_up_to_the_largest_limit() {
    let (keys, key) = (calendar_keys(MONTH, 0), digest(1));
    let most = (1 << 31) - 1;
    let limit = keys.limit(f64::from(most), 0);
    assert!(keys.take(at(0), key, &limit, 1 << 30).is_ok());
    assert!(keys.take(at(0), key, &limit, most - (1 << 30)).is_ok());
    assert_eq!(refused(&keys, at(0), key, &limit, 1), Some(at(31 * DAYS)));
    assert_eq!(refused(&keys, at(0), key, &limit, u32::MAX), None);
    let next = at(31 * DAYS);
    assert!(keys.take(next, key, &limit, most).is_ok());
    assert_eq!(refused(&keys, next, key, &limit, most), Some(at(59 * DAYS)));
}

#[test]
fn a_late_call_counts_in_the_newest_period() {
    let (keys, key) = (calendar_keys(DAY, 0), digest(1));
    let limit = keys.limit(3.0, 0);
    assert_eq!(passes(&keys, DAYS - 1, key, &limit, 9), 3);
    assert_eq!(passes(&keys, DAYS, key, &limit, 1), 1);
    // The threads of these calls read the clock on the previous day, or long ago.
    for late in [DAYS - 1, 0] {
        assert_eq!(passes(&keys, late, key, &limit, 1), 1);
    }
    assert_eq!(refused(&keys, at(0), key, &limit, 1), Some(at(2 * DAYS)));
    assert_eq!(keys.left(at(0), key, &limit), 0);
    assert_eq!(passes(&keys, DAYS, key, &limit, 9), 0);
}

#[test]
fn a_period_is_refunded_and_reset_until_it_ends() {
    let (keys, key) = (calendar_keys(DAY, 0), digest(1));
    let limit = keys.limit(5.0, 0);
    let take = |now, n| keys.take(at(now), key, &limit, n).unwrap();
    let [first, second] = [take(0, 2), take(9, 3)];
    keys.refund(|| at(DAYS - 1), &first);
    assert_eq!(keys.left(at(DAYS - 1), key, &limit), 2);
    let third = take(DAYS, 1);
    // The second call belongs to the previous day, which is over, so there is nothing to refund.
    keys.refund(|| at(DAYS), &second);
    assert_eq!(keys.left(at(DAYS), key, &limit), 4);
    assert!(keys.reset(key, &|| at(DAYS)) && !keys.reset(key, &|| at(DAYS)));
    assert_eq!(keys.left(at(DAYS), key, &limit), 5);
    // A call from before a reset is not refunded.
    keys.refund(|| at(DAYS), &third);
    assert_eq!(passes(&keys, DAYS, key, &limit, 9), 5);
}

#[test]
fn a_changed_limit_applies_at_once_and_keeps_the_count() {
    let (keys, key) = (calendar_keys(MONTH, 0), digest(1));
    assert_eq!(passes(&keys, 0, key, &keys.limit(5.0, 0), 9), 5);
    assert_eq!(keys.left(at(0), key, &keys.limit(100.0, 0)), 95);
    assert_eq!(keys.left(at(0), key, &keys.limit(3.0, 0)), 0);
    assert_eq!(passes(&keys, 0, key, &keys.limit(7.0, 0), 9), 2);
}

#[test]
fn a_key_keeps_its_place_until_its_period_ends() {
    let keys = crowded(DAY);
    let limit = keys.limit(1.0, 0);
    for key in 0..8 {
        assert_eq!(passes(&keys, HOURS, digest(key), &limit, 9), 1);
    }
    assert_eq!((keys.keys_in_use(at(DAYS - 1)), keys.overflows()), (8, 0));
    // A ninth key uses the shared word.
    assert_eq!(passes(&keys, DAYS - 1, digest(9), &limit, 9), 1);
    assert_eq!(passes(&keys, DAYS - 1, digest(10), &limit, 9), 0);
    assert!(keys.overflows() > 0);
    assert_eq!(keys.keys_in_use(at(DAYS)), 0);
    for key in 10..18 {
        assert_eq!(passes(&keys, DAYS, digest(key), &limit, 9), 1);
    }
    assert_eq!(keys.keys_in_use(at(DAYS)), 8);
}

#[test]
fn period_lengths_follow_the_calendar() {
    let days = |count, ms| {
        calendar_keys(count, 0)
            .period_length(at(ms))
            .unwrap()
            .as_secs()
            / 86_400
    };
    assert_eq!([days(DAY, LEAP), days(MONTH, LEAP)], [1, 29]);
    assert_eq!([days(MONTH, 0), days(MONTH, LEAP + 2 * DAYS)], [31, 31]);
    assert_eq!(
        keys(Counting::Window, Duration::from_secs(1)).period_length(at(0)),
        None
    );
}
