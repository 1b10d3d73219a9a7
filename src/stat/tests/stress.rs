//! Stress test of the ring with real threads: late clocks, jumps, batches, refunds, loans,
//! cancellations and readers. Afterwards every aligned window is counted.
//!
//! `SENTINEL_ATTEMPTS` sets the total number of attempts; the default is a million in release
//! builds and 200 000 in debug builds. `SENTINEL_SEED` sets the seed, which is printed.
use std::collections::HashMap;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use super::oracle::reserve;
use super::rng::{Rng, attempts};
use crate::base::sync::{AtomicBool, AtomicU64, Ordering};
use crate::clock::Tick;
use crate::stat::{LeapArray, Quota};

const BUCKET_MS: u64 = 1;
/// The number of attempts on one array, before its windows are counted and a new one is created.
const ROUND: u64 = 50_000;

/// A rule, measured in buckets of the array.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// The number of rule buckets in the window.
    buckets: u64,
    /// The number of array buckets that one rule bucket spans.
    stride: u64,
    /// The maximum number of tokens in the window.
    limit: u32,
}

const fn rule(buckets: u64, stride: u64, limit: u32) -> Rule {
    Rule {
        buckets,
        stride,
        limit,
    }
}

/// The rules of each array. Among them are single buckets, windows of different lengths, a rule
/// whose buckets span several array buckets, and a strict rule, whose window is one bucket longer.
const SETS: &[&[Rule]] = &[
    &[rule(2, 1, 20)],
    &[rule(1, 1, 7)],
    &[rule(3, 1, 13)],
    &[rule(10, 1, 40), rule(2, 1, 12), rule(11, 1, 41)],
    &[rule(10, 1, 25), rule(60, 1, 90)],
    &[rule(2, 1, 15), rule(2, 5, 60)],
];

/// The results of one thread.
#[derive(Default)]
struct Tally {
    /// The tokens of calls that ran, by bucket.
    ran: HashMap<u64, u32>,
    /// The tokens that no call uses.
    spent: u32,
    /// The number of attempts.
    attempts: u64,
    /// The number of loans.
    borrowed: u64,
}

impl Tally {
    fn ran(&mut self, bucket: u64, n: u32) {
        *self.ran.entry(bucket).or_default() += n;
    }
}

/// Makes one thread's attempts of a round.
fn work(
    array: &LeapArray,
    quotas: &[Quota],
    time: &AtomicU64,
    mut rng: Rng,
    attempts: u64,
) -> Tally {
    let mut tally = Tally::default();
    for _ in 0..attempts {
        tally.attempts += 1;
        // All threads share one clock and advance it.
        match rng.below(1_000) {
            0..40 => {
                time.fetch_add(rng.below(3) as u64 * 500_000, Ordering::Relaxed);
            }
            40..42 => {
                time.fetch_add(rng.below(40) as u64 * 1_000_000, Ordering::Relaxed);
            }
            _ => {}
        }
        let now = Tick::from_nanos(time.load(Ordering::Relaxed));
        // Sometimes a thread yields after reading the clock, so that its time is late.
        if rng.one_in(50) {
            thread::yield_now();
        }
        let n = 1 + rng.below(5).saturating_sub(2) as u32;
        match array.acquire(now, n, quotas) {
            Ok(taken) if rng.one_in(8) => {
                if !array.refund_at(taken.bucket, n) {
                    tally.spent += n;
                }
            }
            Ok(taken) => tally.ran(taken.bucket, n),
            Err(_) if rng.one_in(2) => {
                let (loan, spent) = reserve(array, now, n, quotas, Duration::from_millis(4));
                tally.spent += spent;
                match loan {
                    Err(_) => {}
                    Ok(loan) => {
                        tally.borrowed += 1;
                        if rng.one_in(4) {
                            let later = Tick::from_nanos(time.load(Ordering::Relaxed));
                            if !array.cancel(later, loan) {
                                tally.spent += n;
                            }
                        } else {
                            tally.ran(loan.bucket(), n);
                        }
                    }
                }
            }
            Err(_) => {}
        }
    }
    tally
}

/// Runs `threads` threads on one array, concurrently with `readers` that only read, and then counts
/// its windows. Returns the numbers of attempts, of windows, of windows filled to the limit, and of
/// loans.
fn round(rules: &[Rule], threads: u64, readers: u64, rng: &mut Rng) -> (u64, u64, u64, u64) {
    let span = rules
        .iter()
        .map(|rule| rule.buckets * rule.stride)
        .max()
        .unwrap();
    let array = LeapArray::new(Duration::from_millis(span * BUCKET_MS), span as u32).unwrap();
    let quotas: Vec<_> = rules
        .iter()
        .map(|rule| {
            let interval = Duration::from_millis(rule.buckets * rule.stride * BUCKET_MS);
            array
                .quota_in(interval, rule.buckets as u32, rule.limit)
                .unwrap()
        })
        .collect();
    // The clock starts at a multiple of every stride, so that the first window is whole.
    let time = AtomicU64::new(3_600_000_000_000);
    let is_over = AtomicBool::new(false);
    let tallies: Vec<_> = thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let now = Tick::from_nanos(time.load(Ordering::Relaxed));
                    std::hint::black_box(array.sum(now));
                }
            });
        }
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (array, quotas, time) = (&array, &quotas, &time);
                let rng = rng.split();
                scope.spawn(move || work(array, quotas, time, rng, ROUND / threads))
            })
            .collect();
        let tallies: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        tallies.into_iter().map(Result::unwrap).collect()
    });

    let mut ran = HashMap::<u64, u32>::new();
    let (mut spent, mut attempts, mut borrowed) = (0, 0, 0);
    for tally in tallies {
        for (bucket, n) in tally.ran {
            *ran.entry(bucket).or_default() += n;
        }
        spent += tally.spent;
        attempts += tally.attempts;
        borrowed += tally.borrowed;
    }
    let total: u32 = ran.values().sum();
    assert_eq!(
        array.granted(),
        total + spent,
        "tokens were lost or counted twice"
    );

    let (first, last) = (*ran.keys().min().unwrap(), *ran.keys().max().unwrap());
    let (mut windows, mut filled) = (0, 0);
    for rule in rules {
        for end in (first / rule.stride)..=(last / rule.stride) {
            let start = (end + 1).saturating_sub(rule.buckets) * rule.stride;
            let sum: u32 = (start..(end + 1) * rule.stride)
                .filter_map(|bucket| ran.get(&bucket))
                .sum();
            assert!(
                sum <= rule.limit,
                "{sum} of {} in the window that ends with {end} of {rule:?}",
                rule.limit,
            );
            windows += 1;
            filled += u64::from(sum == rule.limit);
        }
    }
    (attempts, windows, filled, borrowed)
}

#[test]
fn no_window_exceeds_its_limit_and_no_token_is_lost() {
    let wanted = attempts();
    let (mut attempts, mut windows, mut filled, mut borrowed) = (0, 0, 0, 0);
    let mut rng = Rng::seeded();
    let mut turns = SETS.iter().cycle().zip([2, 4, 16].into_iter().cycle());
    // There are six sets of rules and three numbers of threads. One pair is skipped after each
    // cycle of the sets, so that all pairs occur.
    let mut turn = 0;
    while attempts < wanted {
        let (rules, threads) = turns.next().unwrap();
        turn += 1;
        if turn % SETS.len() == 0 {
            turns.next();
        }
        // Only some rounds have readers, because readers slow the other threads down.
        let readers = if turn % 16 == 1 { 2 } else { 0 };
        let done = round(rules, threads, readers, &mut rng);
        attempts += done.0;
        windows += done.1;
        filled += done.2;
        borrowed += done.3;
    }
    println!(
        "{attempts} attempts, {windows} windows, {filled} of them full, {borrowed} loans, 0 over"
    );
    assert!(
        filled > windows / 100,
        "the limits are hardly used: {filled} of {windows}"
    );
    assert!(borrowed > 0);
}
