//! Tests of budgets, with calls in sequence and in several threads.

mod stress;

use std::time::Duration;

use super::{Account, CostBudget, CostLedger, MAX_BUDGET};
use crate::call::Call;
use crate::clock::Tick;
use crate::stat::{Grid, Lending, Quota};

const SECOND_NS: u64 = 1_000_000_000;

fn at(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

/// A window of two seconds, in two buckets.
fn grid() -> Grid {
    Grid {
        bucket_ns: SECOND_NS,
        buckets: 2,
        ahead: 1,
    }
}

fn quota(limit: u32) -> Quota {
    Quota::new(2, 1, limit, Lending::Nothing)
}

fn budget(limit: u32) -> CostBudget {
    CostBudget::new(grid(), quota(limit), at(0))
}

/// Returns the units in the window, and the reserved units.
fn state(budget: &CostBudget, now: Tick) -> (u32, u32) {
    let figures = budget.figures(now);
    (figures.used, figures.reserved)
}

#[test]
fn reservations_count_as_used_until_they_are_settled() {
    let budget = budget(10);
    let first = budget.admit(at(0), 6).unwrap();
    budget.start(&first);
    assert!(budget.admit(at(0), 5).is_none());
    let second = budget.admit(at(0), 4).unwrap();
    assert_eq!(state(&budget, at(0)), (0, 10));
    budget.settle(&first, at(0), 2);
    assert_eq!(state(&budget, at(0)), (2, 4));
    assert!(budget.admit(at(0), 5).is_none());
    budget.cancel(&second);
    assert_eq!(state(&budget, at(0)), (2, 0));
    // A call that another rule refuses does not count as having reserved.
    assert_eq!(budget.figures(at(0)).reserved_total, 6);
    budget.start(&budget.admit(at(0), 8).unwrap());
    assert_eq!(budget.figures(at(0)).reserved_total, 14);
}

#[test]
fn a_call_without_a_reservation_passes_while_one_unit_is_left() {
    let budget = budget(1);
    let accounts: [Account; 2] = [(); 2].map(|()| budget.admit(at(0), 0).unwrap());
    assert!(!budget.charge(&accounts[0], at(0), 5));
    assert!(budget.admit(at(0), 0).is_none());
    assert!(!budget.charge(&accounts[1], at(0), 5));
    let figures = budget.figures(at(0));
    assert_eq!((figures.used, figures.over_total), (10, 9));
    assert!(self::budget(0).admit(at(0), 0).is_none());
}

#[test]
fn charges_come_out_of_the_reservation_first() {
    let budget = budget(10);
    let account = budget.admit(at(0), 4).unwrap();
    let full = budget.admit(at(0), 6).unwrap();
    for (units, may_continue, expected) in [
        (1, true, (1, 9)),
        (0, true, (1, 9)),
        (2, true, (3, 7)),
        // More than the rest of the reservation.
        (3, false, (6, 6)),
        (0, false, (6, 6)),
    ] {
        assert_eq!(budget.charge(&account, at(0), units), may_continue);
        assert_eq!(state(&budget, at(0)), expected);
    }
    budget.cancel(&full);
    // Some of the limit is left again.
    assert!(budget.charge(&account, at(0), 1));
}

#[test]
fn the_largest_reported_total_counts() {
    let budget = budget(100);
    let account = budget.admit(at(0), 50).unwrap();
    budget.charge(&account, at(0), 7);
    budget.settle(&account, at(0), 3);
    assert_eq!(state(&budget, at(0)), (7, 0));
    budget.settle(&account, at(0), 20);
    budget.settle(&account, at(0), 9);
    assert_eq!(state(&budget, at(0)), (20, 0));
    budget.charge(&account, at(0), 1);
    assert_eq!(state(&budget, at(0)), (21, 0));
}

/// A function that reports a cost.
type Report<'a> = &'a dyn Fn(&CostBudget, &Account);

#[test]
fn an_unreported_cost_is_the_reservation_unless_the_call_failed() {
    let reports: [Report<'_>; 4] = [
        &|_, _| {},
        &|budget, account| {
            budget.charge(account, at(0), 0);
        },
        &|budget, account| {
            budget.charge(account, at(0), 2);
        },
        &|budget, account| budget.settle(account, at(0), 0),
    ];
    for (which, ended, failed) in [(0, 5, 0), (1, 5, 0), (2, 2, 2), (3, 0, 0)] {
        for (has_failed, expected) in [(false, ended), (true, failed)] {
            let budget = budget(10);
            let account = budget.admit(at(0), 5).unwrap();
            reports[which](&budget, &account);
            budget.close(&account, at(0), has_failed);
            let figures = budget.figures(at(0));
            assert_eq!((figures.used, figures.reserved), (expected, 0));
            let is_unreported = u64::from(which < 2 && !has_failed);
            assert_eq!(figures.untold_total, is_unreported);
        }
    }
}

#[test]
fn a_cost_counts_when_it_is_reported() {
    let budget = budget(10);
    let account = budget.admit(at(0), 10).unwrap();
    budget.charge(&account, at(500), 4);
    budget.charge(&account, at(1_500), 6);
    for (now, used) in [(1_999, 10), (2_000, 6), (2_999, 6), (3_000, 0)] {
        assert_eq!(state(&budget, at(now)), (used, 0));
    }
}

#[test]
fn the_retry_time_is_that_of_the_window_alone() {
    let budget = budget(10);
    let account = budget.admit(at(0), 8).unwrap();
    let retry = Duration::from_secs(1);
    for (wanted, expected) in [
        (0, Some(at(100))),
        (2, Some(at(100))),
        // Reservations are in the way.
        (3, Some(at(100) + retry)),
        (11, None),
    ] {
        assert_eq!(budget.room_at(at(100), wanted), expected);
    }
    budget.settle(&account, at(100), 9);
    for (wanted, expected) in [(1, Some(at(100))), (2, Some(at(2_000))), (11, None)] {
        assert_eq!(budget.room_at(at(100), wanted), expected);
    }
}

#[test]
fn a_new_shape_keeps_what_was_charged_and_what_is_reserved() {
    let budget = budget(10);
    let account = budget.admit(at(0), 6).unwrap();
    budget.charge(&account, at(0), 2);
    budget.change(grid(), quota(5), at(0));
    assert_eq!(budget.left(at(0)), 0);
    budget.change(
        Grid {
            buckets: 4,
            ..grid()
        },
        Quota::new(4, 1, 20, Lending::Nothing),
        at(1_000),
    );
    assert_eq!(state(&budget, at(1_000)), (2, 4));
    budget.settle(&account, at(1_000), 5);
    assert_eq!(state(&budget, at(3_999)), (5, 0));
    assert_eq!(state(&budget, at(4_000)), (3, 0));
    assert_eq!(budget.limit(), 20);
}

/// The time until the reset that a provider reports.
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn no_more_than_a_provider_has_left_passes_until_its_reset() {
    let budget = budget(100);
    let account = budget.admit(at(0), 10).unwrap();
    budget.note_provider_left(at(0), 25, MINUTE);
    // Reservations of running calls count as well.
    assert_eq!(budget.left(at(0)), 15);
    assert!(budget.admit(at(0), 16).is_none());
    assert_eq!(budget.room_at(at(0), 16), Some(at(1_000)));
    assert_eq!(budget.room_at(at(0), 26), Some(at(60_000)));
    assert_eq!(budget.room_at(at(0), 101), None);
    budget.settle(&account, at(0), 20);
    assert_eq!(budget.left(at(0)), 5);
    // Charges that leave the window do not change the provider's number.
    assert_eq!(
        (state(&budget, at(2_000)), budget.left(at(2_000))),
        ((0, 0), 5)
    );
    assert_eq!(budget.more_at(at(2_000), 5), Some(at(60_000)));
    let last = budget.admit(at(2_000), 5).unwrap();
    assert!(!budget.charge(&last, at(2_000), 5));
    assert!(budget.admit(at(59_999), 0).is_none());
    assert!(budget.has_provider_left(at(59_999)) && !budget.has_provider_left(at(60_000)));
    assert!(budget.admit(at(60_000), 100).is_some());
}

#[test]
fn of_several_provider_numbers_the_smallest_counts() {
    let second = Duration::from_secs(1);
    for (numbers, until) in [
        ([(20, MINUTE), (10, second)], 60_000),
        ([(10, second), (20, MINUTE)], 1_000),
        ([(10, second), (10, MINUTE)], 60_000),
        ([(u32::MAX, MINUTE), (10, second)], 60_000),
        // A number whose reset has passed has no effect.
        ([(0, Duration::ZERO), (10, second)], 1_000),
        ([(10, Duration::MAX), (10, second)], 24 * 60 * 60 * 1_000),
    ] {
        let budget = budget(100);
        for (left, reset) in numbers {
            budget.note_provider_left(at(0), left, reset);
        }
        assert_eq!(budget.left(at(until - 1)), 10, "{numbers:?}");
        assert_eq!(budget.left(at(until)), 100, "{numbers:?}");
    }
}

#[test]
fn a_provider_number_never_raises_the_limit() {
    let budget = budget(10);
    budget.note_provider_left(at(0), 1_000, MINUTE);
    assert!(budget.admit(at(0), 11).is_none());
    let account = budget.admit(at(0), 10).unwrap();
    budget.close(&account, at(0), false);
    assert_eq!(budget.room_at(at(0), 1), Some(at(2_000)));
}

#[test]
fn a_new_shape_keeps_what_a_provider_has_left() {
    let budget = budget(100);
    budget.note_provider_left(at(0), 30, MINUTE);
    let account = budget.admit(at(0), 10).unwrap();
    budget.change(grid(), quota(50), at(0));
    assert_eq!(budget.left(at(0)), 20);
    let longer = Grid {
        buckets: 4,
        ..grid()
    };
    budget.change(longer, Quota::new(4, 1, 200, Lending::Nothing), at(0));
    budget.settle(&account, at(0), 15);
    assert_eq!(budget.left(at(59_999)), 15);
    assert_eq!(budget.left(at(60_000)), 200);
}

#[test]
fn huge_costs_are_cut_and_counted() {
    let budget = budget(MAX_BUDGET);
    let account = budget.admit(at(0), 0).unwrap();
    let most = Call::MAX_WEIGHT;
    budget.charge(&account, at(0), u32::MAX);
    let figures = budget.figures(at(0));
    assert_eq!(figures.used, most);
    assert_eq!(figures.cut_total, u64::from(u32::MAX - most));
    // A reservation is always charged in full.
    let reserved = budget.admit(at(0), most * 3).unwrap();
    budget.close(&reserved, at(0), false);
    assert_eq!(state(&budget, at(0)), (most * 4, 0));
    for _ in 0..200 {
        budget.charge(&account, at(0), most);
    }
    // A window that holds the maximum books no more.
    assert_eq!(state(&budget, at(0)), (MAX_BUDGET, 0));
}
