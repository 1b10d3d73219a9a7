//! `HeldSums` and `Targets` give the same loans as a naive search of every bucket of every window.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::super::leap_array::{Denied, Grid};
use super::super::occupy::{Loan, Wish};
use super::super::quota::{Lending, Quota};
use super::*;
use crate::clock::Tick;

/// The number of buckets ahead for which the rings of these tests hold tokens.
const AHEAD: u64 = 64;

/// A naive reader of a ring, which looks at every bucket.
struct Naive<'a> {
    array: &'a LeapArray,
    /// The newest bucket.
    bucket: u64,
    /// The weight of the call.
    weight: u32,
}

impl Naive<'_> {
    /// The tokens held for `buckets`.
    fn held(&self, buckets: Range<u64>) -> u32 {
        let ahead = self.bucket + 1..=self.bucket + AHEAD;
        let targets = buckets.filter(|target| ahead.contains(target));
        targets
            .map(|target| self.array.held_for(self.bucket, target))
            .sum()
    }

    /// The tokens used in a window that begins at `start`: granted tokens if the window has begun,
    /// otherwise held tokens.
    fn used(&self, start: u64) -> u32 {
        if start as i64 > self.bucket as i64 {
            return self.held(start..self.bucket + AHEAD + 1);
        }
        let head = self.array.load_head();
        self.array.used(head, start).unwrap()
    }

    /// The first bucket at which `quota` has room.
    fn available_at(&self, quota: &Quota) -> Option<u64> {
        let most = quota.limit().checked_sub(self.weight)?;
        let mut targets = self.bucket + 1..;
        targets.find(|&target| {
            let begins = target % u64::from(quota.stride()) == 0;
            begins && self.used(quota.start(target)) <= most
        })
    }

    /// The maximum number of tokens that `quota` lets be held for `target`, if it lends there.
    fn lends(&self, target: u64, quota: &Quota) -> Option<u32> {
        let fits = |used: u32| used + self.weight <= quota.limit();
        if fits(self.used(quota.start(self.bucket))) {
            return Some(u32::MAX);
        }
        let start = quota.start(target);
        let is_ahead = start as i64 > self.bucket as i64;
        let is_lent = if is_ahead {
            let span = u64::from(quota.span());
            let starts = (start..=target).step_by(quota.stride() as usize);
            starts.map(|start| self.held(start..start + span)).all(fits)
        } else {
            fits(self.used(start))
        };
        if !is_lent {
            return None;
        }
        let before = quota.start(target - 1);
        let leaving = match quota.lending() {
            Lending::Nothing => return None,
            Lending::Part(_) if self.weight > 0 && before == start => 0,
            Lending::Part(_) if self.weight > 0 && is_ahead => quota.limit(),
            Lending::Part(_) if self.weight > 0 => self.used(before) - self.used(start),
            _ => return Some(u32::MAX),
        };
        // All quotas of these tests that lend a part lend half.
        Some(leaving / 2)
    }

    /// The first bucket of `targets` in which all `quotas` lend enough.
    fn earliest(&self, targets: Range<u64>, quotas: &[Quota]) -> Option<u64> {
        let mut targets = targets.filter(|target| *target <= self.bucket + AHEAD);
        targets.find(|&target| {
            let mut all = quotas.iter().map(|quota| self.lends(target, quota));
            let held = self.held(target..target + 1) + self.weight;
            all.all(|most| most.is_some_and(|most| held <= most))
        })
    }
}

/// Generates quotas of any lending, some of them with buckets that span several array buckets.
fn quota() -> impl Strategy<Value = Quota> {
    let lending = prop_oneof![
        6 => Just(Lending::All),
        2 => Just(Lending::Part(0.5)),
        1 => Just(Lending::Nothing),
    ];
    (1_u32..8, 1_u32..5, 1_u32..20, lending)
        .prop_map(|(buckets, stride, limit, lending)| Quota::new(buckets, stride, limit, lending))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn loans_and_times_of_room_match_a_search_of_every_bucket(
        quotas in prop::collection::vec(quota(), 1..4),
        calls in prop::collection::vec((0_u64..6, 0_u32..8, 0_u64..40, 0_u64..50), 1..60),
    ) {
        let grid = Grid { bucket_ns: 1, buckets: 32, ahead: AHEAD as u32 };
        let array = LeapArray::with_grid(grid, Tick::from_nanos(100));
        let mut now = 100;
        // `from` and `patience` are in buckets, which last 1 ns.
        for (step, weight, from, patience) in calls {
            // Most steps do not advance the clock, so that many calls come in one bucket.
            now += step / 5 * (step + u64::from(weight));
            let at = Tick::from_nanos(now);
            array.bring_to(at).unwrap();
            let naive = Naive { array: &array, bucket: now, weight };
            for quota in &quotas {
                let room = array.available_at(at, weight, quota).map(Tick::as_nanos);
                prop_assert_eq!(room, naive.available_at(quota), "{:?}", quota);
            }
            if array.acquire_at(now, weight, &quotas).is_ok() {
                continue;
            }
            let from = (now + from / 3).max(now + 1);
            let expected = naive.earliest(from..now + patience, &quotas);
            let wish = Wish {
                now: at,
                from: Tick::from_nanos(from),
                patience: Duration::from_nanos(patience),
                weight,
            };
            let found = array.borrow_for(wish, &quotas, &mut 0);
            let found = found.map(Loan::bucket);
            prop_assert_eq!(found.ok(), expected, "{:?}", wish);
        }
    }

    #[test]
    fn targets_match_a_naive_set(
        bucket in 0_u64..1_000,
        (from, to) in (0_u64..1_600, 0_u64..1_600),
        removed in prop::collection::vec((0_u64..1_600, 0_u64..300), 0..10),
    ) {
        let mut targets = Targets::new(bucket, from, to);
        let ahead = bucket + 1..=bucket + MOST_AHEAD;
        let mut naive: BTreeSet<u64> = (from..to).filter(|it| ahead.contains(it)).collect();
        for (start, len) in removed {
            targets.remove(start..start + len);
            naive.retain(|it| !(start..start + len).contains(it));
        }
        let found = std::iter::successors(targets.next(0), |it| targets.next(it + 1));
        prop_assert!(found.eq(naive.iter().copied()));
        prop_assert_eq!(targets.last(), naive.last().copied());
    }
}

#[test]
fn a_refusal_names_the_quota_that_does_not_lend_in_the_last_bucket() {
    let array = LeapArray::new(Duration::from_millis(4), 4).unwrap();
    let at = Tick::from_millis;
    let quotas = [3, 9].map(|limit| Quota::new(4, 1, limit, Lending::All));
    assert!(array.try_acquire(at(10), 3, &quotas).is_ok());
    let wish = |weight| Wish {
        now: at(11),
        from: at(11),
        patience: Duration::from_millis(4),
        weight,
    };
    assert!(array.borrow_for(wish(3), &quotas, &mut 0).is_ok());
    let refused = array.borrow_for(wish(1), &quotas, &mut 0);
    assert_eq!(refused.unwrap_err(), Denied::Full(0));
}
