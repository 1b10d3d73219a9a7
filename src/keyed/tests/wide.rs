//! Tests of windows with large limits, whose two buckets have a word each.

use std::thread;

use super::{KeyTable, SECOND, at, digest, keys, passes, refused, spec};
use crate::budget::CostLedger;
use crate::clock::Tick;
use crate::keyed::{Counting, HotKeys, KeyLimit};

/// The largest limit.
const MOST: u32 = (1 << 31) - 1;

/// Creates keys that are counted in wide windows of a second.
fn wide() -> HotKeys {
    keys(Counting::Window, SECOND).with_wide_windows(1_000)
}

#[test]
fn a_wide_window_gives_the_same_answers_as_a_window_in_one_word() {
    let [wide, narrow] = [wide(), keys(Counting::Window, SECOND)];
    let key = digest(1);
    let [of_wide, of_narrow] = [&wide, &narrow].map(|keys| keys.limit(5.9, 0));
    assert_eq!(of_wide, KeyLimit::WideWindow(5));
    for now in [
        0, 1, 499, 500, 999, 1_000, 1_499, 1_700, 3_000, 3_400, 3_600, 9_000,
    ] {
        for n in [2, 1, 6, 0, 3] {
            let [ours, theirs] = [(&wide, &of_wide), (&narrow, &of_narrow)].map(|(keys, limit)| {
                let taken = keys.take(at(now), key, limit, n);
                taken.map(|_| ()).map_err(|refusal| refusal.available_at())
            });
            assert_eq!(ours, theirs, "{n} at {now}");
            let figures = |keys: &HotKeys, limit: &KeyLimit| {
                let left = keys.left(at(now), key, limit);
                let room = [1, 4, 6].map(|n| keys.available_at(at(now), key, limit, n));
                let next = keys.next_change(at(now), key, limit);
                (left, room, next, keys.keys_in_use(at(now)))
            };
            assert_eq!(figures(&wide, &of_wide), figures(&narrow, &of_narrow));
        }
    }
}

#[test]
fn a_key_of_wide_windows_takes_64_bytes() {
    let narrow = keys(Counting::Window, SECOND).footprint();
    let second = wide().footprint() - narrow;
    // Each table has 1 000 places, and its locks.
    for table in [narrow, second] {
        assert!((32_000..36_096).contains(&table), "{table}");
    }
}

#[test]
fn a_wide_window_can_count_up_to_the_largest_limit() {
    let (keys, key) = (wide(), digest(1));
    let limit = keys.limit(f64::from(MOST), 0);
    assert!(keys.take(at(0), key, &limit, 1 << 30).is_ok());
    assert!(keys.take(at(500), key, &limit, MOST - (1 << 30)).is_ok());
    assert_eq!(refused(&keys, at(500), key, &limit, 1), Some(at(1_000)));
    assert_eq!(refused(&keys, at(999), key, &limit, MOST), Some(at(1_500)));
    assert_eq!(refused(&keys, at(999), key, &limit, u32::MAX), None);
    assert!(keys.take(at(1_000), key, &limit, 1 << 30).is_ok());
    assert_eq!(keys.left(at(1_000), key, &limit), 0);
    assert_eq!(keys.left(at(1_500), key, &limit), MOST - (1 << 30));
}

#[test]
fn a_late_call_counts_in_the_newest_bucket() {
    let (keys, key) = (wide(), digest(1));
    let limit = keys.limit(3.0, 0);
    assert_eq!(passes(&keys, 499, key, &limit, 1), 1);
    assert_eq!(passes(&keys, 500, key, &limit, 1), 1);
    // These calls have a clock reading from the previous bucket.
    assert_eq!(passes(&keys, 499, key, &limit, 9), 1);
    assert_eq!(refused(&keys, at(499), key, &limit, 1), Some(at(1_000)));
    // The call in the first bucket has left the window, and the two calls in the second bucket
    // still count.
    assert_eq!(passes(&keys, 1_000, key, &limit, 9), 1);
    for late in [0, 499, 500, 999] {
        assert_eq!(passes(&keys, late, key, &limit, 9), 0);
    }
    assert_eq!(passes(&keys, 1_500, key, &limit, 9), 2);
}

#[test]
fn a_wide_bucket_is_refunded_and_reset_while_it_is_in_the_window() {
    let (keys, key) = (wide(), digest(1));
    let limit = keys.limit(9.0, 0);
    let take = |now, n| keys.take(at(now), key, &limit, n).unwrap();
    let [first, second] = [take(0, 2), take(0, 3)];
    let third = take(500, 4);
    assert!(keys.take(at(500), key, &limit, 1).is_err());
    // The bucket of this call is closed, but still in the window.
    keys.refund(|| at(500), &first);
    assert_eq!(passes(&keys, 500, key, &limit, 9), 2);
    keys.refund(|| at(500), &third);
    assert_eq!(keys.left(at(500), key, &limit), 4);
    // The bucket of the second call has left the window, and a later bucket has taken its word.
    let fourth = take(1_000, 3);
    keys.refund(|| at(1_000), &second);
    assert_eq!(keys.left(at(1_000), key, &limit), 4);
    assert!(keys.reset(key, &|| at(1_000)) && !keys.reset(key, &|| at(1_000)));
    assert_eq!((keys.resets(), keys.left(at(1_000), key, &limit)), (1, 9));
    // A call from before a reset is not refunded.
    keys.refund(|| at(1_000), &fourth);
    assert_eq!(passes(&keys, 1_000, key, &limit, 99), 9);
}

#[test]
fn a_budget_in_a_wide_window_counts_all_charges() {
    let spec = spec(Counting::Window, SECOND);
    let keys = HotKeys::with_costs(spec, Tick::ZERO).with_wide_windows(1_000);
    let key = digest(1);
    let limit = keys.limit(f64::from(1 << 30), 0);
    let budget = keys.budget(key, limit);
    let admit = |now, n| budget.admit(at(now), n, &|| at(now));
    let first = admit(0, 1 << 30).unwrap();
    assert!(admit(0, 0).is_none());
    let own = keys.budget_of(&first);
    let cost = (1 << 24) - 1;
    own.settle(&first.account, at(499), cost);
    own.close(&first.account, at(499), false);
    assert_eq!(keys.left(at(499), key, &limit), (1 << 30) - cost);
    // Charges in the second bucket, one of them with a late clock reading.
    for (now, units) in [(500, 1 << 29), (499, 1 << 29), (600, 1 << 20)] {
        budget.book(at(now), units);
    }
    assert!(admit(999, 0).is_none());
    let figures = keys.cost_figures();
    let over = u64::from(cost) + (1 << 20);
    assert_eq!(
        (figures.charged_total, figures.over_total),
        ((1 << 30) + over, over)
    );
    assert_eq!(keys.keys_in_use(at(999)), 1);
    // The first bucket leaves the window, and later the second bucket.
    assert_eq!(keys.left(at(1_000), key, &limit), 0);
    assert_eq!(keys.left(at(1_500), key, &limit), 1 << 30);
    assert_eq!(keys.keys_in_use(at(1_500)), 0);
}

#[test]
fn a_key_keeps_both_slots_while_one_of_its_buckets_counts() {
    let spec = spec(Counting::Window, SECOND);
    let [even, odd] = [(); 2].map(|()| KeyTable::of_sets(1));
    let keys = HotKeys::of_table(even, spec, Tick::ZERO).with_odd_buckets(odd);
    let limit = keys.limit(1.0, 0);
    for key in 0..8 {
        assert_eq!(passes(&keys, 0, digest(key), &limit, 9), 1);
    }
    // Two more keys use the shared word.
    assert_eq!(passes(&keys, 0, digest(9), &limit, 9), 1);
    assert_eq!(passes(&keys, 999, digest(10), &limit, 9), 0);
    assert!(keys.overflows() > 0);
    for key in 0..8 {
        assert_eq!(passes(&keys, 999, digest(key), &limit, 9), 0);
    }
    assert_eq!(
        (keys.keys_in_use(at(999)), keys.keys_in_use(at(1_500))),
        (8, 0)
    );
    for key in 10..18 {
        assert_eq!(passes(&keys, 1_500, digest(key), &limit, 9), 1);
    }
}

#[test]
fn numbers_are_counted_from_the_creation_of_the_table() {
    let days = |days: u64| at(days * 86_400_000);
    let keys = HotKeys::new(spec(Counting::Window, SECOND), days(40_000)).with_wide_windows(9);
    let (key, limit) = (digest(1), keys.limit(2.0, 0));
    // Bucket numbers last for 68 years, or 24 800 days, from the creation of the table on.
    for now in [days(40_000), days(40_001), days(40_000 + 24_000)] {
        for _ in 0..2 {
            assert!(keys.take(now, key, &limit, 1).is_ok());
        }
        assert_eq!(refused(&keys, now, key, &limit, 1), Some(now + SECOND));
    }
}

/// Runs threads whose clock readings lie on both sides of bucket edges.
#[test]
fn no_wide_window_exceeds_its_limit_with_late_clock_readings() {
    const THREADS: u64 = 4;
    /// The number of calls of each thread.
    const ROUNDS: u64 = 2_000;
    let (keys, key) = (wide(), digest(1));
    let limit = keys.limit(3.0, 0);
    let passed: Vec<u64> = thread::scope(|scope| {
        let workers = (0..THREADS).map(|nth| {
            let (keys, limit) = (&keys, &limit);
            scope.spawn(move || {
                let call = |round: u64| {
                    let now = round * 250 + (nth % 2) * 499;
                    let taken = keys.take(at(now), key, limit, 1).ok()?;
                    // The bucket in which the call counts, at or after the bucket of its time.
                    // Numbers in words start at 2.
                    Some((taken.after() >> 32) - 2)
                };
                (0..ROUNDS).filter_map(call).collect::<Vec<_>>()
            })
        });
        let workers: Vec<_> = workers.collect();
        let passed = workers.into_iter().map(|worker| worker.join().unwrap());
        passed.flatten().collect()
    });
    let mut counts = vec![0; (ROUNDS / 2 + 3) as usize];
    for bucket in passed {
        counts[bucket as usize] += 1;
    }
    let windows = counts.windows(2).map(|pair| pair[0] + pair[1]);
    assert_eq!(windows.max(), Some(3));
}
