//! Stress tests: threads race for the last units of a few keys.

use std::thread;

use super::*;
use crate::base::sync::{AtomicU64, Ordering};
use crate::budget::CostLedger;
use crate::stat::tests::rng::{Rng, attempts};

const THREADS: usize = 8;
/// The budget of each key, in units per second.
const LIMIT: u32 = 100;

/// Runs a call of `key` that reserves `wanted` and costs `cost`, charged in one or two parts.
/// Returns the charged units: `cost`, or 0 if the call is refused or cancelled.
fn call(keys: &HotKeys, now: Tick, key: Digest, (wanted, cost): (u32, u32), rng: &mut Rng) -> u32 {
    let limit = keys.limit(LIMIT.into(), 0);
    let Some(running) = keys.budget(key, limit).admit(now, wanted, &|| now) else {
        return 0;
    };
    let budget = keys.budget_of(&running);
    let account = &running.account;
    if rng.one_in(8) {
        budget.cancel(account);
        return 0;
    }
    if rng.one_in(2) {
        budget.charge(account, now, rng.below(cost as usize + 1) as u32);
        thread::yield_now();
    }
    budget.settle(account, now, cost);
    budget.close(account, now, rng.one_in(4));
    cost
}

/// Repeatedly lets all threads race for the budgets of two new keys. Returns the total number of
/// units that were charged beyond the limits.
fn charged_over(count: Counting, reserves: bool) -> u64 {
    let keys = HotKeys::with_costs(spec(count, SECOND), Tick::ZERO);
    let mut rng = Rng::seeded();
    for window in 1..=attempts() / 400 {
        // At this time all earlier debts have been paid back.
        let now = at(window * 20_000);
        let mut charged = [0; 2];
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..THREADS {
                let mut rng = rng.split();
                let keys = &keys;
                threads.push(scope.spawn(move || {
                    // The units charged to each of the two keys.
                    let mut charged = [0; 2];
                    for _ in 0..64 {
                        let key = rng.below(2);
                        let cost = rng.below(20) as u32;
                        let more = rng.below(4) as u32;
                        let costs = (if reserves { cost + more } else { 0 }, cost);
                        let own = window * 2 + key as u64;
                        charged[key] += call(keys, now, digest(own), costs, &mut rng);
                    }
                    charged
                }));
            }
            for thread in threads {
                let own = thread.join().unwrap();
                charged = [charged[0] + own[0], charged[1] + own[1]];
            }
        });
        for (key, charged) in charged.into_iter().enumerate() {
            let key = digest(window * 2 + key as u64);
            assert_eq!(keys.reserved(key), 0, "all have ended");
            let limit = keys.limit(LIMIT.into(), 0);
            let left = keys.left(now, key, &limit);
            assert_eq!(
                left,
                LIMIT.saturating_sub(charged),
                "each cost is booked once"
            );
        }
    }
    let figures = keys.cost_figures();
    assert_eq!((figures.reserved, keys.overflows()), (0, 0));
    figures.over_total
}

#[test]
fn no_key_exceeds_its_limit_if_each_call_reserves_its_cost() {
    for count in [Counting::Refill, Counting::Window] {
        assert_eq!(charged_over(count, true), 0, "{count:?}");
    }
}

#[test]
fn keys_exceed_their_limit_if_costs_are_reported_afterwards() {
    // Shows that the test above would notice an excess.
    for count in [Counting::Refill, Counting::Window] {
        assert!(charged_over(count, false) > 0, "{count:?}");
    }
}

#[test]
fn all_reservations_are_released_while_keys_evict_each_other() {
    for count in [Counting::Refill, Counting::Window] {
        // Twelve keys compete for eight slots while the clock advances.
        let keys = HotKeys::of_table(KeyTable::of_sets(1), spec(count, SECOND), Tick::ZERO)
            .with_gauges(KeyTable::of_sets(1));
        let clock = AtomicU64::new(20_000);
        let mut rng = Rng::seeded();
        let charged: u64 = thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..THREADS {
                let mut rng = rng.split();
                let (keys, clock) = (&keys, &clock);
                threads.push(scope.spawn(move || {
                    let mut charged = 0;
                    for _ in 0..attempts() / 64 {
                        let step = if rng.one_in(8) { rng.below(400) } else { 0 };
                        let now = at(clock.fetch_add(step as u64, Ordering::Relaxed));
                        let key = digest(rng.below(12) as u64);
                        let cost = rng.below(30) as u32;
                        charged += u64::from(call(keys, now, key, (cost, cost), &mut rng));
                    }
                    charged
                }));
            }
            threads.into_iter().map(|it| it.join().unwrap()).sum()
        });
        let figures = keys.cost_figures();
        // A thread can be so late that its charge adds nothing to a debt, and is cut off.
        let accounted = figures.charged_total + figures.cut_total;
        assert_eq!((figures.reserved, accounted), (0, charged));
        assert!(keys.overflows() > 0, "they do crowd each other");
        for key in 0..12 {
            assert_eq!(keys.reserved(digest(key)), 0);
        }
        // The shared gauge is empty as well: eight new keys take the slots, and a ninth key, which
        // uses the shared gauge, can reserve the whole limit.
        let later = Tick::from_millis(clock.into_inner() + 60_000);
        let limit = keys.limit(LIMIT.into(), 0);
        for key in 100..109 {
            let budget = keys.budget(digest(key), limit);
            assert!(budget.admit(later, LIMIT, &|| later).is_some(), "{key}");
        }
    }
}
