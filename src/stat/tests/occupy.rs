//! Tests of loans that fail or are cancelled, and of loans that start when tokens leave the window.

use super::super::tests::oracle::reserve;
use super::*;

#[test]
fn a_loan_that_is_not_held_is_not_refunded() {
    let (at, second) = (Tick::from_millis, Duration::from_secs(1));
    let array = || LeapArray::new(second, 2).unwrap();
    let (array, other) = (array(), array());
    let limit = [array.quota(second, 10).unwrap()];
    assert!(array.try_acquire(at(700), 10, &limit).is_ok());
    let loan = reserve(&array, at(1_200), 4, &limit, second).0.unwrap();
    assert!(!other.cancel(at(1_200), loan));
    assert!(array.cancel(at(1_200), loan));
    assert!(!array.cancel(at(1_200), loan), "twice");
    assert_eq!((array.granted(), other.granted()), (10, 0));
    assert!(array.try_acquire(at(1_200), 1, &limit).is_err());
}

#[test]
fn a_loan_starts_when_tokens_leave_the_window_and_can_be_lent_again_after_a_cancellation() {
    let (at, half) = (Tick::from_millis, Duration::from_millis(500));
    let array = LeapArray::new(half * 2, 2).unwrap();
    let limit = [array.quota(half * 2, 10).unwrap()];
    assert!(array.try_acquire(at(700), 10, &limit).is_ok());
    // The ten tokens leave the window at 1500, which is too late for a patience of 100 ms.
    let early = reserve(&array, at(1_200), 4, &limit, half / 5);
    assert_eq!(early, (Err(Denied::Full(0)), 0));
    let (loan, spent) = reserve(&array, at(1_200), 4, &limit, half);
    let loan = loan.unwrap();
    assert_eq!((loan.start(), loan.tokens(), spent), (at(1_500), 4, 0));
    assert_eq!((loan.bucket(), array.waiting(at(1_200))), (3, 4));
    assert!(array.cancel(at(1_300), loan));
    let loan = reserve(&array, at(1_400), 10, &limit, half).0.unwrap();
    assert!(reserve(&array, at(1_400), 1, &limit, half).0.is_err());
    // At 1500 the ten are taken, so an ordinary call finds the window full.
    assert_eq!(array.sum(at(1_600)), 10);
    assert!(array.try_acquire(at(1_600), 1, &limit).is_err());
    // Once the bucket of the loan is closed, its tokens are spent.
    assert_eq!(array.sum(at(2_100)), 10);
    assert!(!array.cancel(at(2_100), loan));
}

#[test]
fn a_refused_loan_names_the_quota_that_lends_too_little() {
    let (at, second) = (Tick::from_millis, Duration::from_secs(1));
    let lending = [Lending::All, Lending::Part(0.5)];
    for half in [1, 0] {
        let array = LeapArray::new(second, 2).unwrap();
        let quota = |index| Quota::new(2, 1, 10, lending[usize::from(index == half)]);
        let quotas = [0, 1].map(quota);
        assert!(array.try_acquire(at(700), 10, &quotas).is_ok());
        assert!(reserve(&array, at(1_200), 5, &quotas, second / 2).0.is_ok());
        let (refused, _) = reserve(&array, at(1_200), 1, &quotas, second / 2);
        assert_eq!(refused, Err(Denied::Full(half)));
    }
}
