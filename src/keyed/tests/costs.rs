//! Tests of the budgets of keys, call by call.

use super::naive_costs::{BLOCK_MS, LIMIT, Naive, NaiveAccount};
use super::*;
use crate::budget::CostLedger;
use crate::keyed::KeyAccount;
use crate::stat::tests::rng::{Rng, attempts};

/// Creates keys with budgets per ten seconds.
fn costs(count: Counting) -> HotKeys {
    HotKeys::with_costs(spec(count, 10 * SECOND), Tick::ZERO)
}

/// The kinds of counting that can have budgets, apart from calendar periods.
const BOTH: [Counting; 2] = [Counting::Refill, Counting::Window];

/// A running call of one key.
struct Running<'a> {
    keys: &'a HotKeys,
    account: KeyAccount,
}

/// Starts a call of `key` that reserves `wanted`; `None` if it is refused.
fn start<'a>(
    keys: &'a HotKeys,
    now: u64,
    key: Digest,
    limit: KeyLimit,
    wanted: u32,
) -> Option<Running<'a>> {
    let account = keys
        .budget(key, limit)
        .admit(at(now), wanted, &|| at(now))?;
    keys.budget_of(&account).start(&account.account);
    Some(Running { keys, account })
}

impl Running<'_> {
    /// Charges `units` while the call runs. Returns the answer of the budget.
    fn charge(&self, now: u64, units: u32) -> bool {
        let budget = self.keys.budget_of(&self.account);
        budget.charge(&self.account.account, at(now), units)
    }

    /// Settles the call at a cost of `total`, without ending it.
    fn settle(&self, now: u64, total: u32) {
        let budget = self.keys.budget_of(&self.account);
        budget.settle(&self.account.account, at(now), total);
    }

    /// Ends the call.
    fn close(self, now: u64, has_failed: bool) {
        let budget = self.keys.budget_of(&self.account);
        budget.close(&self.account.account, at(now), has_failed);
    }

    /// Cancels the call, which has not run.
    fn cancel(self) {
        let budget = self.keys.budget_of(&self.account);
        budget.cancel(&self.account.account);
    }
}

#[test]
fn reservations_of_a_key_count_as_used_until_they_are_settled() {
    for count in BOTH {
        let keys = costs(count);
        let limit = keys.limit(10.0, 0);
        let [a, b] = [digest(1), digest(2)];
        let left = |key| keys.left(at(0), key, &limit);
        let first = start(&keys, 0, a, limit, 6).unwrap();
        assert!(start(&keys, 0, a, limit, 5).is_none());
        let second = start(&keys, 0, a, limit, 4).unwrap();
        assert!(start(&keys, 0, a, limit, 0).is_none(), "one must be left");
        assert_eq!((left(a), left(b)), (0, 10));
        first.settle(0, 2);
        assert_eq!(left(a), 4);
        second.cancel();
        assert_eq!(left(a), 8);
        assert!(start(&keys, 0, a, limit, 9).is_none());
        let third = start(&keys, 0, a, limit, 8).unwrap();
        assert!(third.charge(0, 7) && !third.charge(0, 1));
        third.close(0, false);
        first.close(0, false);
        assert_eq!(left(a), 0);
        let figures = keys.cost_figures();
        assert_eq!((figures.charged_total, figures.reserved_total), (10, 18));
        assert_eq!((figures.over_total, figures.untold_total), (0, 0));
    }
}

#[test]
fn a_call_without_a_report_is_charged_its_reservation_unless_it_failed() {
    // Whether the call failed, the cost that it reported, and the cost that it is charged.
    for (has_failed, reported, used) in [
        (false, None, 5),
        (true, None, 0),
        (false, Some(0), 0),
        (true, Some(2), 2),
    ] {
        let keys = costs(Counting::Window);
        let limit = keys.limit(10.0, 0);
        let call = start(&keys, 0, digest(1), limit, 5).unwrap();
        if let Some(total) = reported {
            call.settle(0, total);
        }
        call.close(0, has_failed);
        assert_eq!(keys.left(at(0), digest(1), &limit), 10 - used);
        let is_unreported = u64::from(reported.is_none() && !has_failed);
        assert_eq!(keys.cost_figures().untold_total, is_unreported);
    }
}

#[test]
fn an_excess_leaves_a_window_with_its_bucket() {
    let keys = costs(Counting::Window);
    let limit = keys.limit(10.0, 0);
    let call = start(&keys, 4_000, digest(1), limit, 0).unwrap();
    // Buckets begin every five seconds, so the two charges count in neighbouring buckets.
    assert!(!call.charge(4_000, 1_000));
    assert!(!call.charge(6_000, 7));
    for (now, left) in [
        (6_000, 0),
        (9_999, 0),
        (10_000, 3),
        (14_999, 3),
        (15_000, 10),
    ] {
        assert_eq!(keys.left(at(now), digest(1), &limit), left, "{now}");
    }
    assert_eq!(keys.cost_figures().over_total, 997);
    // The counts of both buckets saturate, and other keys are not affected.
    for now in [20_000, 25_000] {
        call.charge(now, 1 << 24);
        call.charge(now, 1 << 24);
    }
    assert_eq!(keys.left(at(25_000), digest(1), &limit), 0);
    assert_eq!(keys.left(at(30_000), digest(1), &limit), 0);
    assert_eq!(keys.left(at(35_000), digest(1), &limit), 10);
    assert_eq!(keys.left(at(25_000), digest(2), &limit), 10);
    let figures = keys.cost_figures();
    assert_eq!(
        figures.charged_total + figures.cut_total,
        1_007 + (4 << 24),
        "{figures:?}"
    );
    assert_eq!(figures.charged_total, 1_007 + (1 << 20) - 1 + (1 << 20) - 2);
}

#[test]
fn a_refilled_quota_pays_a_debt_back_by_time_and_at_most_ten_intervals() {
    let keys = costs(Counting::Refill);
    let limit = keys.limit(10.0, 0);
    let call = start(&keys, 0, digest(1), limit, 10).unwrap();
    // The cost exceeds the reservation by 15. One token is earned per second.
    assert!(!call.charge(0, 25));
    for (now, left) in [(15_999, 0), (16_000, 1), (24_999, 9), (25_000, 10)] {
        assert_eq!(keys.left(at(now), digest(1), &limit), left, "{now}");
    }
    assert_eq!(keys.cost_figures().over_total, 15);
    call.charge(30_000, u32::MAX);
    let room = |wanted| keys.budget(digest(1), limit).room_at(at(30_000), wanted);
    assert_eq!(room(0), Some(at(130_000)), "ten intervals");
    assert_eq!(room(1), Some(at(130_000)));
    assert_eq!(room(10), Some(at(139_000)));
    assert_eq!(room(11), None);
    let figures = keys.cost_figures();
    assert_eq!(figures.charged_total, 25 + 109);
    assert_eq!(figures.cut_total, u64::from(u32::MAX) - 109);
    // A further charge does not change the debt.
    call.charge(30_000, 1);
    assert_eq!(room(1), Some(at(130_000)));
}

#[test]
fn a_burst_is_a_part_of_the_budget() {
    let keys = costs(Counting::Refill);
    let limit = keys.limit(10.0, 5);
    let call = start(&keys, 0, digest(1), limit, 15).unwrap();
    assert!(start(&keys, 0, digest(1), limit, 0).is_none());
    call.settle(0, 15);
    assert_eq!(keys.cost_figures().over_total, 0);
    assert!(start(&keys, 999, digest(1), limit, 0).is_none());
    assert!(start(&keys, 1_000, digest(1), limit, 1).is_some());
    assert!(start(&keys, 0, digest(2), limit, 16).is_none());
}

#[test]
fn nothing_is_charged_at_a_limit_of_0() {
    let keys = costs(Counting::Refill);
    let [none, ten] = [0.0, 10.0].map(|limit| keys.limit(limit, 0));
    assert!(start(&keys, 0, digest(1), none, 0).is_none());
    assert_eq!(keys.budget(digest(1), none).room_at(at(0), 0), None);
    // A running call books after a reload that has lowered the limit to 0.
    keys.budget(digest(1), none).book(at(0), 5);
    assert_eq!(keys.left(at(0), digest(1), &ten), 10);
    assert_eq!(keys.cost_figures().cut_total, 5);
}

#[test]
fn the_room_of_a_key_follows_from_its_charges() {
    for (count, of_two) in [(Counting::Refill, 2_000), (Counting::Window, 10_000)] {
        let keys = costs(count);
        let limit = keys.limit(10.0, 0);
        let call = start(&keys, 0, digest(1), limit, 8).unwrap();
        let room = |wanted| keys.budget(digest(1), limit).room_at(at(0), wanted);
        for (wanted, expected) in [
            (0, Some(at(0))),
            (2, Some(at(0))),
            // The quota has room, but reservations hold it. The advised time is then a second
            // later.
            (3, Some(at(1_000))),
            (10, Some(at(1_000))),
            (11, None),
        ] {
            assert_eq!(room(wanted), expected, "{count:?}, {wanted}");
        }
        call.settle(0, 9);
        assert_eq!(room(1), Some(at(0)));
        assert_eq!(room(3), Some(at(of_two)), "{count:?}");
    }
}

#[test]
fn a_key_with_a_reservation_keeps_its_slot_and_an_unused_one_does_not() {
    // Each table has eight slots.
    for count in BOTH {
        let spec = spec(count, SECOND);
        let keys = HotKeys::of_table(KeyTable::of_sets(1), spec, Tick::ZERO)
            .with_gauges(KeyTable::of_sets(1));
        let limit = keys.limit(10.0, 0);
        let running = start(&keys, 0, digest(0), limit, 10).unwrap();
        running.charge(0, 4);
        // At this time the debt is over, and the key is at rest in the table of charges.
        let now = 60_000;
        // Calls that cost nothing leave their keys at rest, so the keys evict each other.
        for other in 1..100 {
            let call = start(&keys, now, digest(other), limit, 1).unwrap();
            call.settle(now, 0);
        }
        assert_eq!(keys.left(at(now), digest(0), &limit), 4, "6 are reserved");
        // Eight keys with a debt take all slots of the table of charges.
        for other in 1..9 {
            let call = start(&keys, now, digest(other), limit, 1).unwrap();
            call.settle(now, 1);
        }
        assert_eq!(keys.left(at(now), digest(0), &limit), 4);
        running.settle(now, 10);
        assert_eq!(keys.left(at(now), digest(0), &limit), 4);
        assert_eq!(keys.reserved(digest(0)), 0);
        assert_eq!(keys.cost_figures().over_total, 0);
    }
}

#[test]
fn keys_without_a_slot_share_reservations_and_release_them() {
    let keys = HotKeys::of_table(
        KeyTable::of_sets(1),
        spec(Counting::Window, SECOND),
        Tick::ZERO,
    )
    .with_gauges(KeyTable::of_sets(1));
    let limit = keys.limit(10.0, 0);
    // Eight keys take all slots, so further keys share one gauge.
    let own: Vec<_> = (0..8)
        .map(|key| start(&keys, 0, digest(key), limit, 10).unwrap())
        .collect();
    assert_eq!(keys.overflows(), 0);
    let shared = start(&keys, 0, digest(8), limit, 7).unwrap();
    assert_eq!(keys.overflows(), 1);
    assert!(start(&keys, 0, digest(9), limit, 4).is_none());
    let other = start(&keys, 0, digest(9), limit, 3).unwrap();
    shared.settle(0, 0);
    assert!(start(&keys, 0, digest(10), limit, 7).is_some());
    other.cancel();
    drop(own);
}

/// Makes random calls of two keys, and compares the keys with the naive model after each step.
fn history(count: Counting, rng: &mut Rng) {
    // A table of one set, so that a key at rest can lose its slot to other keys.
    let spec = spec(count, 10 * SECOND);
    let keys =
        HotKeys::of_table(KeyTable::of_sets(1), spec, Tick::ZERO).with_gauges(KeyTable::of_sets(1));
    let limit = keys.limit(LIMIT.into(), 0);
    let mut naive = [Naive::default(), Naive::default()];
    let mut running: Vec<(usize, Running<'_>, NaiveAccount)> = Vec::new();
    // Starts at the fifth bucket, so that the words of new keys differ from the words of the first
    // bucket.
    let mut now = 25_000;
    let mut others = 2;
    for _ in 0..30 {
        let key = rng.below(2);
        let small = rng.below(5) as u32;
        match rng.below(7) {
            0 | 1 => {
                let left = naive[key].left(count, now);
                let wanted = if rng.one_in(3) { left } else { small };
                let started = start(&keys, now, digest(key as u64), limit, wanted);
                assert_eq!(
                    started.is_some(),
                    wanted.max(1) <= left,
                    "{wanted} of {left}"
                );
                if let Some(call) = started {
                    naive[key].reserved += wanted;
                    let account = NaiveAccount {
                        reserved: wanted,
                        rest: wanted,
                        ..NaiveAccount::default()
                    };
                    running.push((key, call, account));
                } else {
                    let length = Duration::from_millis(BLOCK_MS);
                    let wanted = wanted.max(1);
                    let is_blocked =
                        keys.block(at(now), digest(key as u64), &limit, wanted, length);
                    assert_eq!(is_blocked, naive[key].block(count, now, wanted));
                    let room = keys.budget(digest(key as u64), limit).room_at(at(now), 1);
                    let end = at(naive[key].blocked_ms);
                    assert!(end <= at(now) || room == Some(end), "{room:?} and {end:?}");
                }
            }
            2 => now += [1, 700, 5_000, 20_000][rng.below(4)],
            3 => {
                // Another key takes slots. It settles with a late clock reading, so that it is at
                // rest in both tables afterwards.
                let call = start(&keys, now, digest(others), limit, small);
                let call = call.expect("it is a new one");
                others += 1;
                if rng.one_in(2) {
                    call.settle(now - 24_000, 1);
                }
                call.close(now, true);
            }
            _ if running.is_empty() => {}
            4 => {
                let one = rng.below(running.len());
                let (key, call, account) = &mut running[one];
                let naive = &mut naive[*key];
                let goes_on = call.charge(now, small);
                if small > 0 {
                    naive.charge(account, now, small);
                }
                assert_eq!(goes_on, account.rest > 0 || naive.left(count, now) > 0);
            }
            5 => {
                let one = rng.below(running.len());
                let (key, call, account) = &mut running[one];
                call.settle(now, small);
                naive[*key].settle(account, now, small);
            }
            _ => {
                let one = rng.below(running.len());
                let (key, call, mut account) = running.swap_remove(one);
                let has_failed = rng.one_in(3);
                call.close(now, has_failed);
                if !account.has_reported && !has_failed {
                    let reserved = account.reserved;
                    naive[key].charge(&mut account, now, reserved);
                }
                let total = account.charged;
                naive[key].settle(&mut account, now, total);
            }
        }
        for (key, naive) in naive.iter().enumerate() {
            naive.check(count, now);
            let left = keys.left(at(now), digest(key as u64), &limit);
            assert_eq!(left, naive.left(count, now));
        }
    }
    let reserved = naive.iter().map(|key| key.reserved);
    let found: u32 = (0..2).map(|key| keys.reserved(digest(key))).sum();
    assert_eq!(found, reserved.sum::<u32>());
}

#[test]
fn budgets_of_keys_answer_as_naive_lists_do() {
    let mut rng = Rng::seeded();
    for number in 0..attempts() / 2 {
        history(BOTH[number as usize % 2], &mut rng);
    }
}
