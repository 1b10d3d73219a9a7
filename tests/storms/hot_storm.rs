//! Rules for each value of a parameter under real threads.
//!
//! `SENTINEL_ATTEMPTS` sets how many calls are tried, a million in release builds
//! and a fifth of it in others unless it is set; `SENTINEL_SEED` sets the seed,
//! which is printed.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tower_sentinel::{Call, Clock, KeyedRule, ManualClock, Sentinel, Verdict};

use crate::support::{Rng, attempts, engine, ms};

const KEYS: usize = 1_000;
const MOST: u32 = 3;

// === calls at once ===

/// Calls that the callers themselves count, of each key and of all.
struct Counted {
    of_key: Vec<AtomicU32>,
    of_all: AtomicU32,
}

/// Enters and ends calls of random keys, every other one of a few, and asserts
/// that no more run than a key and all together may.
fn run(
    sentinel: &Sentinel,
    counted: &Counted,
    (of_key, of_all): (u32, u32),
    mut rng: Rng,
    n: usize,
) {
    let mut held = Vec::new();
    for _ in 0..n {
        if held.len() > rng.below(256) {
            let (key, entry): (usize, _) = held.swap_remove(rng.below(held.len()));
            counted.of_key[key].fetch_sub(1, Ordering::Relaxed);
            counted.of_all.fetch_sub(1, Ordering::Relaxed);
            drop(entry);
            continue;
        }
        let among = if rng.one_in(2) { KEYS } else { 16 };
        let key = rng.below(among);
        let Verdict::Pass(entry) = sentinel.try_enter(Call::new("r").param(key as u64)) else {
            continue;
        };
        let at_once = counted.of_key[key].fetch_add(1, Ordering::Relaxed) + 1;
        assert!(at_once <= of_key, "{at_once} calls of key {key} at once");
        let at_once = counted.of_all.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(at_once <= of_all, "{at_once} calls at once");
        held.push((key, entry));
    }
    for (key, _) in &held {
        counted.of_key[*key].fetch_sub(1, Ordering::Relaxed);
        counted.of_all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Eight threads on a table of `max_keys`.
fn storm(max_keys: u32, most: (u32, u32)) {
    let (sentinel, _) = engine(KeyedRule::concurrency("r", MOST).max_keys(max_keys));
    let counted = Counted {
        of_key: (0..KEYS).map(|_| AtomicU32::new(0)).collect(),
        of_all: AtomicU32::new(0),
    };
    let mut seed = Rng::seeded();
    let n = attempts() as usize / 8;
    thread::scope(|scope| {
        for _ in 0..8 {
            let rng = seed.split();
            let (sentinel, counted) = (&sentinel, &counted);
            scope.spawn(move || run(sentinel, counted, most, rng, n));
        }
    });
    let params = sentinel.node("r").unwrap().keyed_rules().remove(0);
    println!("{} calls without a place", params.overflows());
    assert_eq!(params.values(), 0, "all are at rest");
    // The places of all calls are free again, also of those that had none.
    let held: Vec<_> = (0..KEYS as u64)
        .map(|key| [(); 4].map(|()| sentinel.try_enter(Call::new("r").param(key))))
        .collect();
    let passed = held.iter().flatten();
    let passed = passed.filter(|verdict| matches!(verdict, Verdict::Pass(_)));
    let places = params.values().min(KEYS);
    let shared = if places < KEYS { MOST as usize } else { 0 };
    assert_eq!(passed.count(), places * MOST as usize + shared);
}

#[test]
fn no_value_ever_has_more_calls_at_once_than_it_may() {
    storm(4_096, (MOST, u32::MAX));
}

#[test]
fn slots_that_change_hands_let_no_more_in_than_there_are() {
    // Three for each of 96 slots and for the word that all others share. A key
    // may have calls in both.
    storm(64, (2 * MOST, 97 * MOST));
}

// === windows ===

const LIMIT: u32 = 20;
const BUCKET: Duration = ms(500);

/// The bucket that the clock stands in.
fn bucket(clock: &ManualClock) -> u128 {
    Duration::from_nanos(clock.now().as_nanos()).as_nanos() / BUCKET.as_nanos()
}

/// Calls on four keys, as many in each round. Half-way through its calls the
/// `leader` moves time on, at which nobody looks. Returns, by key and bucket, the
/// calls that have passed for certain in that bucket.
fn take(
    (sentinel, clock): (&Sentinel, &ManualClock),
    round_begins: &Barrier,
    is_leader: bool,
    mut rng: Rng,
    rounds: usize,
) -> HashMap<(u64, u128), u32> {
    let mut passed = HashMap::new();
    for _ in 0..rounds {
        round_begins.wait();
        for call in 0..40 {
            if is_leader && call == 20 {
                clock.advance(ms(rng.below(900) as u64));
            }
            let key = rng.below(4) as u64;
            let before = bucket(clock);
            let verdict = sentinel.try_enter(Call::new("r").param(key));
            // No call counts in a bucket that the clock has not reached by now.
            if matches!(verdict, Verdict::Pass(_)) && before == bucket(clock) {
                *passed.entry((key, before)).or_default() += 1;
            }
        }
    }
    passed
}

#[test]
fn no_aligned_window_of_a_value_is_ever_over() {
    let rule = KeyedRule::per("r", LIMIT, BUCKET * 2).window();
    let (sentinel, clock) = engine(rule);
    // So that there is a bucket before each.
    clock.advance(BUCKET);
    let round_begins = Barrier::new(4);
    let mut seed = Rng::seeded();
    let rounds = attempts() as usize / 160;
    let mut passed = HashMap::<_, u32>::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let rng = seed.split();
                let (engine, round_begins) = ((&sentinel, &clock), &round_begins);
                scope.spawn(move || take(engine, round_begins, worker == 0, rng, rounds))
            })
            .collect();
        for worker in workers {
            for (place, n) in worker.join().unwrap() {
                *passed.entry(place).or_default() += n;
            }
        }
    });
    let (mut windows, mut full) = (0, 0);
    for (&(key, bucket), newest) in &passed {
        let before = passed.get(&(key, bucket - 1)).copied().unwrap_or(0);
        let sum = before + newest;
        assert!(sum <= LIMIT, "{sum} in the window of {bucket} of key {key}");
        windows += 1;
        full += usize::from(sum == LIMIT);
    }
    println!("{windows} windows, {full} of them full, 0 over");
    assert!(full > windows / 20, "the limit is hardly used");
}
