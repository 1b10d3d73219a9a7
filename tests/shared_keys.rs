//! Shared rules that count each key apart: very many keys, over several engines of one store.
//!
//! `SENTINEL_ATTEMPTS` sets how many names are made up: without it a million in release builds,
//! and a fifth of that in others. The store meets half as many.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use allocation_counter::measure;
use futures_util::future::join_all;
use tower_sentinel::clock::{Tick, TokioClock};
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, Epoch, MemoryStore, QuotaStore, StoreError, StoreFuture, StoreHandle,
    StoreSettings,
};
use tower_sentinel::{Call, Clock, KeyedRule, Sentinel};

use support::attempts;

const ENGINES: usize = 4;
const LIMIT: u32 = 5;
const PLACES: u64 = 16_384;
/// So many calls at a time.
const AT_ONCE: usize = 1_000;

/// The bytes that a key may take in this process, table and all: in its window, and after it. They
/// are 349 and 189 here; tables that have just grown would take a few more.
const BYTES_ACTIVE: i64 = 350;
const BYTES_AT_REST: i64 = 200;

fn engine(
    rule: KeyedRule,
    store: impl QuotaStore,
    clock: TokioClock,
    nodes: usize,
) -> (Sentinel, StoreHandle) {
    let sentinel = Sentinel::builder()
        .rules(rule)
        .clock(clock)
        .store(store)
        .store_settings(StoreSettings::new().nodes(nodes as u32))
        .build();
    let handle = sentinel.start_store().unwrap();
    (sentinel, handle)
}

/// Makes these calls, so many at a time, and returns how many pass of each user.
async fn passed(
    engines: &[(Sentinel, StoreHandle)],
    calls: impl Iterator<Item = (usize, u64)>,
) -> HashMap<u64, u32> {
    let mut passed = HashMap::new();
    let mut calls = calls.peekable();
    while calls.peek().is_some() {
        let some = calls.by_ref().take(AT_ONCE).map(async |(engine, user)| {
            let (sentinel, _) = &engines[engine % engines.len()];
            let call = Call::new("/r").param(user);
            (user, sentinel.enter(call).await.is_ok())
        });
        for (user, has_passed) in join_all(some).await {
            *passed.entry(user).or_default() += u32::from(has_passed);
        }
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_users_have_one_quota_each_over_four_engines() {
    let users: u64 = if cfg!(debug_assertions) {
        20_000
    } else {
        100_000
    };
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    let rule = || {
        let rule = KeyedRule::per_minute("/r", LIMIT).window();
        rule.shared().max_keys(200_000)
    };
    let engines = [(); ENGINES].map(|()| engine(rule(), store.clone(), clock, ENGINES));
    tokio::time::sleep(Duration::from_millis(600)).await;
    // Each user calls one engine after the other, so that all of them learn that it has none left.
    let rounds = 2 * ENGINES + 1;
    let order = |round: usize| (0..users).map(move |user| (round + user as usize, user));
    let calls = (0..rounds).flat_map(order);
    let passed_of = passed(&engines, calls).await;
    assert_eq!(passed_of.len() as u64, users);
    let wrong = passed_of.iter().find(|(_, passed)| **passed != LIMIT);
    assert_eq!(wrong, None, "all have all of their quota, and no more");
    let (draws, most) = (store.draws(), users * rounds as u64);
    assert!(draws <= most, "{draws} draws of {most} calls");
    println!(
        "{users} users: {:.2} draws a call, {:.1} draws a trip",
        draws as f64 / most as f64,
        draws as f64 / store.trips() as f64,
    );
    // By now each engine knows that they have none.
    let again = (0..ENGINES).flat_map(order);
    let passed_of = passed(&engines, again).await;
    assert!(passed_of.values().all(|passed| *passed == 0));
    assert_eq!(store.draws(), draws, "the exhausted cost the store nothing");
}

/// A store that has everything and keeps nothing, so that only the engine's memory grows.
#[derive(Clone, Copy, Debug)]
struct Endless(TokioClock);

impl Endless {
    fn answer(self, draw: &Draw) -> Drawn {
        let all = draw.arguments();
        let [bucket_us, firm, soft, known] = [0, 3, 4, 9].map(|at| all[at] as i64);
        let now = (self.0.now() - Tick::ZERO).as_micros() as i64;
        let (bucket, rest) = (now / bucket_us, bucket_us - now % bucket_us);
        Drawn::read(&[firm + soft, 9, rest, bucket, known.max(1), 0]).unwrap()
    }
}

impl QuotaStore for Endless {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        let answers = draws.iter().map(|draw| Ok(self.answer(draw))).collect();
        Box::pin(async { Ok(answers) })
    }

    fn beat(&self, _: Alive) -> StoreFuture<'_, Beat> {
        Box::pin(async { Ok(Beat::new(1, 0, Epoch::from_micros(1))) })
    }
}

/// A name that nobody has called by.
const fn made_up(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// An engine on an endless store, which has a place for each of so many keys.
struct Room {
    runtime: tokio::runtime::Runtime,
    engines: [(Sentinel, StoreHandle); 1],
}

impl Room {
    fn new() -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let engines = [runtime.block_on(async {
            let clock = TokioClock::new();
            let rule = KeyedRule::per_minute("/r", LIMIT).window().shared();
            let engine = engine(rule.max_keys(PLACES as u32), Endless(clock), clock, 1);
            tokio::time::sleep(Duration::from_millis(600)).await;
            engine
        })];
        Self { runtime, engines }
    }

    /// One call of each key. Returns how many bytes and allocations are left of it for each place.
    fn flood(&self, keys: Range<u64>) -> (i64, f64) {
        self.measured(async {
            let calls = keys.map(|key| (0, made_up(key)));
            drop(passed(&self.engines, calls).await);
        })
    }

    fn measured(&self, run: impl Future<Output = ()>) -> (i64, f64) {
        let left = measure(|| self.runtime.block_on(run));
        let allocations = left.count_current as f64 / PLACES as f64;
        (left.bytes_current / PLACES as i64, allocations)
    }
}

#[test]
fn made_up_keys_leave_bounded_memory_in_a_process() {
    let attempts = attempts();
    let room = Room::new();
    let (of_each, _) = room.flood(0..PLACES);
    let (more, _) = room.flood(PLACES..attempts);
    println!("{more} bytes more for each place, after {attempts} keys");
    assert!(of_each + more <= BYTES_ACTIVE + 50, "{more} bytes more");
    let held = room.engines[0].0.store().unwrap().counters();
    assert!(held as u64 <= PLACES + 1, "{held} counters");
}

#[test]
fn a_key_takes_a_third_of_a_kilobyte_in_its_window_and_half_of_that_after_it() {
    let room = Room::new();
    let (active, allocations) = room.flood(0..PLACES);
    println!("{active} bytes in {allocations:.2} allocations for each key that calls");
    assert!(active <= BYTES_ACTIVE, "{active} bytes");
    assert!(allocations < 4.1, "{allocations} allocations");
    // The task of the store looks at a thousand keys with each beat.
    let rest = Duration::from_secs(120 + 60);
    let (less, fewer) = room.measured(async { tokio::time::sleep(rest).await });
    let (at_rest, allocations) = (active + less, allocations + fewer);
    println!("{at_rest} bytes in {allocations:.2} allocations for each key at rest");
    assert!(at_rest <= BYTES_AT_REST, "{at_rest} bytes");
    assert!(allocations < 2.1, "{allocations} allocations");
    // They are the same keys as before.
    let (more, _) = room.flood(0..PLACES);
    assert!((-less - 2..=2 - less).contains(&more), "{more} and {less}");
}

#[tokio::test(start_paused = true)]
async fn made_up_keys_leave_the_store_with_their_windows() {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    let rule = KeyedRule::per_second("/r", LIMIT).window().shared();
    let engines = [engine(
        rule.max_keys(PLACES as u32),
        store.clone(),
        clock,
        1,
    )];
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut most = 0;
    for first in (0..attempts() / 2).step_by(AT_ONCE) {
        // One key in the midst of them calls more often than it may.
        let keys = first..first + AT_ONCE as u64 / 2;
        let calls = keys.flat_map(|key| [(0, made_up(key)), (0, 0)]);
        let passed_of = passed(&engines, calls).await;
        assert!(passed_of[&0] <= LIMIT, "{} of {LIMIT}", passed_of[&0]);
        assert_eq!(passed_of.len(), AT_ONCE / 2 + usize::from(first > 0));
        most = most.max(store.keys());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Those of two seconds, and up to as many that are swept out later.
    println!("at most {most} keys in the store");
    assert!(most <= 2 * 2 * 20 * AT_ONCE / 2 + 1_000, "{most} keys");
}

#[tokio::test(start_paused = true)]
async fn many_busy_keys_are_refilled_for_longer_ahead() {
    let clock = TokioClock::new();
    let mut drawn_per_second = Vec::new();
    // 100 calls a second of each. At the shortest horizon each is refilled 22 times a second.
    for keys in [10, 400] {
        let store = MemoryStore::with_clock(clock);
        let rule = KeyedRule::per_minute("/r", 1_000_000).window();
        let engines = [engine(rule.shared(), store.clone(), clock, 1)];
        let mut draws = 0;
        for ms in 0..2_000 {
            let calls = (0..keys).filter(|key| (ms + key) % 10 == 0);
            let passed_of = passed(&engines, calls.map(|key| (0, key))).await;
            assert!(passed_of.values().all(|passed| *passed == 1));
            tokio::time::sleep(Duration::from_millis(1)).await;
            if ms == 1_000 {
                draws = store.draws();
            }
        }
        drawn_per_second.push(store.draws() - draws);
    }
    println!("{drawn_per_second:?} draws a second");
    let below = 150..400;
    assert!(below.contains(&drawn_per_second[0]), "{drawn_per_second:?}");
    let budget = 1_500..3_000;
    assert!(
        budget.contains(&drawn_per_second[1]),
        "{drawn_per_second:?}"
    );
}
