//! Stress tests with threads that race for the last units of a window.

use std::thread;

use super::{at, budget};
use crate::base::sync::{AtomicU64, Ordering};
use crate::budget::{CostBudget, CostLedger};
use crate::stat::tests::rng::{Rng, attempts};

/// The number of threads that race.
const THREADS: usize = 8;
/// The limit of the budget, in units.
const LIMIT: u32 = 100;

/// Runs a call that reserves `wanted` and costs `cost`, which is partly charged and then settled.
/// Returns the cost that was charged.
fn call(budget: &CostBudget, now: u64, (wanted, cost): (u32, u32), rng: &mut Rng) -> u32 {
    let now = at(now);
    let Some(account) = budget.admit(now, wanted) else {
        return 0;
    };
    if rng.one_in(8) {
        budget.cancel(&account);
        return 0;
    }
    let charged_first = rng.below(cost as usize + 1) as u32;
    if rng.one_in(2) {
        budget.charge(&account, now, charged_first);
        thread::yield_now();
    }
    budget.settle(&account, now, cost);
    budget.close(&account, now, rng.one_in(4));
    cost
}

/// Runs windows in which all threads race until nothing is left. Returns how many windows ended
/// over the limit.
fn overfull_windows(reserves: bool) -> u32 {
    let budget = budget(LIMIT);
    let windows = attempts() / 200;
    let mut over = 0;
    let mut rng = Rng::seeded();
    for window in 0..windows {
        // A window consists of two buckets of one second each.
        let now = window * 2_000;
        let charged: u32 = thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..THREADS {
                let mut rng = rng.split();
                let budget = &budget;
                threads.push(scope.spawn(move || {
                    let mut charged = 0;
                    for _ in 0..64 {
                        let cost = rng.below(20) as u32;
                        let more = rng.below(4) as u32;
                        let wanted = if reserves { cost + more } else { 0 };
                        charged += call(budget, now, (wanted, cost), &mut rng);
                    }
                    charged
                }));
            }
            threads.into_iter().map(|it| it.join().unwrap()).sum()
        });
        let figures = budget.figures(at(now));
        assert_eq!(figures.reserved, 0, "all have ended");
        assert_eq!(figures.used, charged, "each cost is booked once");
        over += u32::from(figures.used > LIMIT);
    }
    over
}

#[test]
fn no_window_overflows_if_each_call_reserves_its_cost() {
    assert_eq!(overfull_windows(true), 0);
}

#[test]
fn windows_overflow_if_costs_are_not_reserved() {
    // This shows that the test above would detect a window over the limit.
    assert!(overfull_windows(false) > 0);
}

#[test]
fn the_window_never_overflows_while_the_clock_advances() {
    let budget = budget(LIMIT);
    let clock = AtomicU64::new(0);
    let calls = attempts() / 8;
    let mut rng = Rng::seeded();
    let charged: u64 = thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let mut rng = rng.split();
            let (budget, clock) = (&budget, &clock);
            threads.push(scope.spawn(move || {
                let mut charged = 0;
                for _ in 0..calls / THREADS as u64 {
                    let step = if rng.one_in(16) { rng.below(400) } else { 0 };
                    let now = clock.fetch_add(step as u64, Ordering::Relaxed);
                    let cost = rng.below(30) as u32;
                    charged += u64::from(call(budget, now, (cost, cost), &mut rng));
                    assert!(budget.figures(at(now)).used <= LIMIT);
                }
                charged
            }));
        }
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    let figures = budget.figures(at(clock.into_inner()));
    assert_eq!((figures.charged_total, figures.reserved), (charged, 0));
    assert_eq!(figures.over_total, 0);
}
