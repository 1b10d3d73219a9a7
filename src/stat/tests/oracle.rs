//! A naive window that keeps the count of every bucket and sums them up each time. It is slow, and
//! simple enough to be obviously right. A ring must answer all operations as this window does.
// The module is public only in builds for the fuzzer.
#![allow(missing_docs, unreachable_pub, reason = "for the fuzzer alone")]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Tick;
use crate::stat::{Denied, LeapArray, Loan, Quota, Wish};

/// The length of a bucket, in milliseconds.
pub const BUCKET_MS: u64 = 10;

/// A rule of the oracle, in buckets of the array.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The number of rule buckets in the window.
    pub buckets: u64,
    /// The number of array buckets that one rule bucket spans.
    pub stride: u64,
    /// The maximum number of tokens in the window.
    pub limit: u32,
}

impl Rule {
    /// The first bucket of the window that ends with `bucket`.
    fn start(&self, bucket: i64) -> i64 {
        let stride = self.stride as i64;
        (bucket.div_euclid(stride) - (self.buckets as i64 - 1)) * stride
    }
}

/// The counts of all buckets, which are never dropped and are summed up for each answer.
#[derive(Debug, Default)]
struct Oracle {
    /// The newest bucket.
    newest: i64,
    /// The tokens taken in each bucket.
    taken: BTreeMap<i64, u32>,
    /// The tokens held for each bucket.
    held: BTreeMap<i64, u32>,
}

impl Oracle {
    /// Advances the newest bucket to `bucket`, and takes the held tokens that are due.
    fn bring_to(&mut self, bucket: i64) {
        self.newest = self.newest.max(bucket);
        let later = self.held.split_off(&(self.newest + 1));
        for (bucket, n) in std::mem::replace(&mut self.held, later) {
            *self.taken.entry(bucket).or_default() += n;
        }
    }

    /// The tokens taken in the buckets from `start` to `end`.
    fn sum(&self, start: i64, end: i64) -> u32 {
        self.taken.range(start..=end).map(|(_, n)| n).sum()
    }

    /// The tokens held for all later buckets.
    fn waiting(&self) -> u32 {
        self.held.values().sum()
    }

    /// Returns whether `rule` has room for `n` tokens in the newest bucket.
    fn room(&self, rule: &Rule, n: u32) -> bool {
        self.sum(rule.start(self.newest), self.newest) + self.waiting() + n <= rule.limit
    }

    /// Takes `n` tokens and returns their bucket, or the index of the first rule without room.
    fn take(&mut self, n: u32, rules: &[Rule]) -> Result<i64, usize> {
        if let Some(index) = rules.iter().position(|rule| !self.room(rule, n)) {
            return Err(index);
        }
        *self.taken.entry(self.newest).or_default() += n;
        Ok(self.newest)
    }

    /// Returns whether `rule` lets `n` tokens be held for `target`.
    fn lends(&self, rule: &Rule, target: i64, n: u32) -> bool {
        if self.room(rule, n) {
            return true;
        }
        let start = rule.start(target);
        if start > self.newest {
            let span = (rule.buckets * rule.stride) as i64;
            return (start..=target).step_by(rule.stride as usize).all(|start| {
                let held: u32 = self.held.range(start..start + span).map(|(_, n)| n).sum();
                held + n <= rule.limit
            });
        }
        self.sum(start, self.newest) + self.waiting() + n <= rule.limit
    }

    /// Holds `n` tokens for the first bucket to which all rules agree. Returns the bucket.
    fn borrow(
        &mut self,
        now_ms: u64,
        n: u32,
        rules: &[Rule],
        patience: u64,
        ahead: i64,
    ) -> Option<i64> {
        let target = (self.newest + 1..=self.newest + ahead).find(|&target| {
            (target as u64 * BUCKET_MS) < now_ms + patience
                && rules.iter().all(|rule| self.lends(rule, target, n))
        })?;
        *self.held.entry(target).or_default() += n;
        Some(target)
    }

    /// Refunds `n` tokens if `bucket` is still the newest. Returns whether it is.
    fn refund(&mut self, bucket: i64, n: u32) -> bool {
        if bucket == self.newest {
            *self.taken.get_mut(&bucket).unwrap() -= n;
        }
        bucket == self.newest
    }

    /// Cancels a loan of `n` tokens for `target`. Returns whether they were refunded.
    fn cancel(&mut self, target: i64, n: u32) -> bool {
        if target <= self.newest {
            return self.refund(target, n);
        }
        *self.held.get_mut(&target).unwrap() -= n;
        true
    }
}

/// Calls [`LeapArray::borrow_for`] for a call that comes at `now`. Returns the loan, and the number
/// of tokens that were charged in vain.
pub(in crate::stat) fn reserve(
    array: &LeapArray,
    now: Tick,
    n: u32,
    quotas: &[Quota],
    patience: Duration,
) -> (Result<Loan, Denied>, u32) {
    let wish = Wish {
        now,
        from: now,
        patience,
        weight: n,
    };
    let mut spent = 0;
    let loan = array.borrow_for(wish, quotas, &mut spent);
    (loan, spent)
}

/// One operation on a ring. Times are in milliseconds. An index selects one of the takes or loans
/// so far, modulo their number.
#[derive(Clone, Debug)]
pub enum Op {
    Advance(u64),
    StepBack(u64),
    Take(u32),
    Add(u32),
    Refund(usize),
    Borrow(u32, u64),
    Cancel(usize),
    Read,
}

/// Applies `ops` to a ring of `buckets` buckets under `rules` and to the oracle, and asserts that
/// both give equal answers. The clock starts at `start`, in milliseconds.
pub fn replay(buckets: u32, rules: &[Rule], start: u64, ops: impl IntoIterator<Item = Op>) {
    let interval = Duration::from_millis(BUCKET_MS * u64::from(buckets));
    let array = LeapArray::new(interval, buckets).unwrap();
    let quotas: Vec<Quota> = rules
        .iter()
        .map(|rule| {
            let span = Duration::from_millis(BUCKET_MS * rule.buckets * rule.stride);
            array
                .quota_in(span, rule.buckets as u32, rule.limit)
                .unwrap()
        })
        .collect();
    let ahead = i64::from(buckets.min(64).next_power_of_two());

    let mut oracle = Oracle::default();
    let mut now = start;
    let mut taken: Vec<(u64, u32)> = Vec::new();
    let mut loans: Vec<(Loan, u32)> = Vec::new();
    for op in ops {
        let tick = Tick::from_millis(now);
        if !matches!(op, Op::Advance(_) | Op::StepBack(_)) {
            oracle.bring_to((now / BUCKET_MS) as i64);
        }
        match op {
            Op::Advance(ms) => now += ms,
            Op::StepBack(ms) => now = now.saturating_sub(ms),
            Op::Take(n) => {
                let ours = array.acquire(tick, n, &quotas);
                let theirs = oracle.take(n, rules);
                let answer = match ours {
                    Ok(taken) => Ok(taken.bucket as i64),
                    Err(Denied::Full(index)) => Err(index as usize),
                    Err(Denied::Reloaded) => panic!("it never moves"),
                };
                assert_eq!(answer, theirs);
                if let Ok(ours) = ours {
                    taken.push((ours.bucket, n));
                }
            }
            Op::Add(n) => {
                array.add(tick, n);
                *oracle.taken.entry(oracle.newest).or_default() += n;
            }
            Op::Refund(index) if !taken.is_empty() => {
                let (bucket, n) = taken.swap_remove(index % taken.len());
                // `refund_at` does not advance the ring, so a read first advances it as far as the
                // oracle.
                let _ = array.sum(tick);
                assert_eq!(array.refund_at(bucket, n), oracle.refund(bucket as i64, n));
            }
            Op::Borrow(n, patience) => {
                let (ours, _) = reserve(&array, tick, n, &quotas, Duration::from_millis(patience));
                let theirs = oracle.borrow(now, n, rules, patience, ahead);
                assert_eq!(ours.ok().map(|loan| loan.bucket() as i64), theirs);
                if let Ok(loan) = ours {
                    loans.push((loan, n));
                }
            }
            Op::Cancel(index) if !loans.is_empty() => {
                let (loan, n) = loans.swap_remove(index % loans.len());
                let target = loan.bucket() as i64;
                assert_eq!(array.cancel(tick, loan), oracle.cancel(target, n));
            }
            Op::Refund(_) | Op::Cancel(_) | Op::Read => {
                let newest = oracle.newest;
                let first = newest - i64::from(buckets) + 1;
                assert_eq!(array.sum(tick), oracle.sum(first, newest));
                assert_eq!(array.waiting(tick), oracle.waiting());
                for (start, count) in array.buckets(tick) {
                    let bucket = (start.as_millis() / BUCKET_MS) as i64;
                    assert_eq!(count, oracle.sum(bucket, bucket));
                }
                let held: Vec<_> = array
                    .loans(tick)
                    .map(|(start, held)| ((start.as_millis() / BUCKET_MS) as i64, held))
                    .collect();
                let theirs: Vec<_> = oracle
                    .held
                    .iter()
                    .filter(|(_, n)| **n > 0)
                    .map(|(b, n)| (*b, *n))
                    .collect();
                assert_eq!(held, theirs);
            }
        }
    }
}
