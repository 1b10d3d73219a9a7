//! Shared rules on a real server: the script against its model, processes, and faults.
//!
//! Without a server these tests print `SKIPPED, no redis-server`, and pass. Time is real here;
//! what is asserted are counts, and never how fast anything is.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod borrow;
mod budget_processes;
mod budgets;
mod by_key;
mod calendar;
mod certificates;
mod clones;
mod cluster;
mod crowd;
mod faults;
mod guarded;
mod hang;
mod hostile;
mod input;
mod named;
mod processes;
mod proxy;
#[path = "../support/redis.rs"]
mod redis;
mod resets;
mod script;
mod secure;
mod sentinels;
mod shadow;
mod sizes;
mod values;
mod went_back;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Mutex;
use tower_sentinel::store::{QuotaStore, RedisStore, StoreHandle, StoreSettings, StoreState};
use tower_sentinel::{Call, FlowRule, Rule, Sentinel};

/// The limit of a second, which has all of the rules here.
const LIMIT: u32 = 500;
/// Calls of each process, in percent of all.
const SKEW: [u32; 4] = [60, 25, 10, 5];

/// Wall time in µs: the clock of the server, which is on this machine.
#[expect(clippy::disallowed_methods, reason = "the server goes by it")]
fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_micros() as u64
}

fn rule(buckets: u32) -> FlowRule {
    FlowRule::per_second("/v1", LIMIT).buckets(buckets).shared()
}

fn engine(store: impl QuotaStore, rule: FlowRule) -> (Sentinel, StoreHandle) {
    engine_with(store, rule, Duration::from_millis(50))
}

fn engine_with(
    store: impl QuotaStore,
    rule: impl Into<Rule>,
    store_wait: Duration,
) -> (Sentinel, StoreHandle) {
    let settings = StoreSettings::new().nodes(SKEW.len() as u32);
    let sentinel = Sentinel::builder()
        .rules(rule.into())
        .store(store)
        .store_settings(settings.store_wait(store_wait))
        .build();
    let handle = sentinel.start_store().unwrap();
    (sentinel, handle)
}

/// Such an engine, when its store is live: until then calls may be served from its share.
async fn started(
    store: impl QuotaStore,
    rule: impl Into<Rule>,
    store_wait: Duration,
) -> (Sentinel, StoreHandle) {
    let (sentinel, handle) = engine_with(store, rule, store_wait);
    until(&sentinel, StoreState::Live).await;
    (sentinel, handle)
}

/// Such an engine, when its task asks a store that may never be live.
async fn asked(
    store: impl QuotaStore,
    rule: impl Into<Rule>,
    store_wait: Duration,
) -> (Sentinel, StoreHandle) {
    let (sentinel, handle) = engine_with(store, rule, store_wait);
    while sentinel.store().unwrap().state() == StoreState::Idle {
        tokio::task::yield_now().await;
    }
    (sentinel, handle)
}

/// How many requests have failed. A busy machine may take several attempts to connect, so tests
/// count from when the store is live.
fn errors(sentinel: &Sentinel) -> u64 {
    let json = sentinel.snapshot().to_json();
    let snapshot: serde_json::Value = serde_json::from_str(&json).unwrap();
    let by_kind = snapshot["store"]["errors"].as_object().unwrap();
    by_kind.values().map(|count| count.as_u64().unwrap()).sum()
}

/// Waits until the store of `sentinel` is in this state, for a minute at the most.
async fn until(sentinel: &Sentinel, state: StoreState) {
    for _ in 0..6_000 {
        if sentinel.store().unwrap().state() == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not {state:?}: {:?}", sentinel.store());
}

/// How many of so many calls pass, one after the other.
async fn passed(sentinel: &Sentinel, call: Call<'_>, calls: u32) -> u32 {
    let mut passed = 0;
    for _ in 0..calls {
        passed += u32::from(sentinel.enter(call).await.is_ok());
    }
    passed
}

/// A store at `url`, with the prefix of these tests.
fn named(url: &str) -> RedisStore {
    RedisStore::new(url).unwrap().with_prefix("ts").unwrap()
}

fn store(server: &redis::Server) -> RedisStore {
    named(&server.url())
}

/// Makes so many calls a second until it is stopped. Returns how many were admitted for certain
/// in each bucket of so many µs: those that were asked for and admitted in it.
async fn load(
    sentinel: Sentinel,
    per_second: u32,
    stop: Arc<AtomicBool>,
    bucket_us: u64,
) -> Admitted {
    let admitted = Arc::new(Mutex::new(Admitted::new()));
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    let mut due = 0.0;
    let mut last = wall_us();
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let now = wall_us();
        due += f64::from(per_second) * (now - last) as f64 / 1e6;
        last = now;
        while due >= 1.0 {
            due -= 1.0;
            let (sentinel, admitted) = (sentinel.clone(), admitted.clone());
            tokio::spawn(async move {
                let before = wall_us() / bucket_us;
                let has_passed = sentinel.enter(Call::new("/v1")).await.is_ok();
                if has_passed && wall_us() / bucket_us == before {
                    *admitted.lock().await.entry(before).or_default() += 1;
                }
            });
        }
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    std::mem::take(&mut *admitted.lock().await)
}

/// Calls by the number of their bucket.
type Admitted = BTreeMap<u64, u32>;

/// The most that any window of so many buckets has admitted.
fn worst(admitted: &Admitted, buckets: u32) -> u32 {
    let windows = admitted.keys().map(|&last| {
        let first = (last + 1).saturating_sub(buckets.into());
        admitted.range(first..=last).map(|(_, n)| n).sum()
    });
    windows.max().unwrap_or(0)
}
