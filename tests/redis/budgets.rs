//! Limits on what calls cost, of all calls and of each user, over several engines of one server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_sentinel::store::RedisStore;
use tower_sentinel::{Call, FlowRule, KeyedRule, Rule, Sentinel};

use crate::cluster::Cluster;
use crate::redis::Server;
use crate::{Admitted, errors, started, store, wall_us, worst};

const TOKENS: u32 = 20_000;
const RESERVED: u32 = 100;
const RUNS: Duration = Duration::from_millis(2_600);
const USERS: u32 = 2;

/// A call after the other until it is stopped: each costs less than it reserves, and most tell it.
/// Returns what they have cost in each bucket of so many µs, of those that were let in for certain
/// in it.
async fn spend(sentinel: Sentinel, client: u32, stop: Arc<AtomicBool>, bucket_us: u64) -> Admitted {
    let mut spent = BTreeMap::new();
    let mut call = client;
    while !stop.load(Ordering::Relaxed) {
        call += 1;
        let before = wall_us() / bucket_us;
        let wanted = Call::new("/v1").param(u64::from(client / 1_000 % USERS));
        let wanted = wanted.reserve("tokens", RESERVED);
        let Ok(mut entry) = sentinel.enter(wanted).await else {
            tokio::time::sleep(Duration::from_millis(7)).await;
            continue;
        };
        let is_certain = wall_us() / bucket_us == before;
        tokio::time::sleep(Duration::from_millis(u64::from(call * 7 % 20))).await;
        let mut cost = call * 37 % (RESERVED + 1);
        match call % 4 {
            0 => cost = RESERVED,
            1 => entry.settle("tokens", cost),
            _ => _ = entry.charge("tokens", cost),
        }
        if cost == 0 && call % 4 > 1 {
            // None was told.
            cost = RESERVED;
        }
        drop(entry);
        if is_certain {
            *spent.entry(before).or_default() += cost;
        }
    }
    spent
}

/// What the calls of each user cost on four engines with `rule`, each with a store of its own.
async fn spent(
    store: impl Fn() -> RedisStore,
    rule: impl Into<Rule>,
    buckets: u32,
) -> Vec<Admitted> {
    let rule = rule.into();
    let mut engines = Vec::new();
    for _ in 0..4 {
        let long = Duration::from_secs(5);
        engines.push(started(store(), rule.clone(), long).await);
    }
    let before: Vec<_> = engines.iter().map(|(engine, _)| errors(engine)).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let bucket_us = 1_000_000 / u64::from(buckets);
    let clients: Vec<_> = (0..40_u32)
        .map(|client| {
            let engine = engines[client as usize / 2 % 4].0.clone();
            tokio::spawn(spend(engine, client * 1_000, stop.clone(), bucket_us))
        })
        .collect();
    tokio::time::sleep(RUNS).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = vec![Admitted::new(); USERS as usize];
    for (client, spent) in clients.into_iter().enumerate() {
        for (bucket, cost) in spent.await.unwrap() {
            *all[client % USERS as usize].entry(bucket).or_default() += cost;
        }
    }
    let after: Vec<_> = engines.iter().map(|(engine, _)| errors(engine)).collect();
    assert_eq!(after, before, "no draw has failed");
    all
}

fn of_all_users(spent: Vec<Admitted>) -> Admitted {
    let mut all = Admitted::new();
    for (bucket, cost) in spent.into_iter().flatten() {
        *all.entry(bucket).or_default() += cost;
    }
    all
}

fn assert_one_budget(spent: &Admitted, buckets: u32, limit: u32) {
    let (worst, total) = (worst(spent, buckets), spent.values().sum::<u32>());
    println!("{buckets} buckets: worst {worst}, in all {total}");
    assert!(worst <= limit, "{buckets} buckets: {worst}");
    assert!(total > limit / 2, "{buckets} buckets: only {total}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_engines_spend_one_budget() {
    for buckets in [1, 2, 10] {
        let Some(server) = Server::start(&format!("budgets{buckets}"), &[]).await else {
            return;
        };
        let rule = FlowRule::per_second("/v1", TOKENS)
            .buckets(buckets)
            .cost("tokens")
            .shared();
        let all = of_all_users(spent(|| store(&server), rule, buckets).await);
        assert_one_budget(&all, buckets, TOKENS);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_engines_spend_one_budget_of_each_user() {
    let Some(server) = Server::start("key-budgets", &[]).await else {
        return;
    };
    let rule = KeyedRule::per_second("/v1", TOKENS / 4)
        .window()
        .cost("tokens")
        .shared();
    for of_user in spent(|| store(&server), rule, 2).await {
        assert_one_budget(&of_user, 2, TOKENS / 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_of_a_cluster_are_spent_once() {
    let Some(cluster) = Cluster::start("budgets").await else {
        return;
    };
    let rule = FlowRule::per_second("/v1", TOKENS).cost("tokens").shared();
    let all = of_all_users(spent(|| cluster.store(), rule, 2).await);
    assert_one_budget(&all, 2, TOKENS);
    let rule = KeyedRule::per_second("/v1", TOKENS / 4).window();
    let rule = rule.cost("tokens").shared();
    for of_user in spent(|| cluster.store(), rule, 2).await {
        assert_one_budget(&of_user, 2, TOKENS / 4);
    }
}
