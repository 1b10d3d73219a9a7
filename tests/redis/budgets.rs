//! A limit on what calls cost, over several engines of one server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_sentinel::{Call, FlowRule, Sentinel};

use crate::redis::Server;
use crate::{Admitted, errors, started, store, wall_us, worst};

const TOKENS: u32 = 20_000;
const RESERVED: u32 = 100;
const RUNS: Duration = Duration::from_millis(2_600);

/// A call after the other until it is stopped: each costs less than it reserves, and most tell it.
/// Returns what they have cost in each bucket of so many µs, of those that were let in for certain
/// in it.
async fn spend(sentinel: Sentinel, client: u32, stop: Arc<AtomicBool>, bucket_us: u64) -> Admitted {
    let mut spent = BTreeMap::new();
    let mut call = client;
    while !stop.load(Ordering::Relaxed) {
        call += 1;
        let before = wall_us() / bucket_us;
        let wanted = Call::new("/v1").reserve("tokens", RESERVED);
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
        let mut engines = Vec::new();
        for _ in 0..4 {
            let long = Duration::from_secs(5);
            engines.push(started(store(&server), rule.clone(), long).await);
        }
        let before: Vec<_> = engines.iter().map(|(engine, _)| errors(engine)).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let bucket_us = 1_000_000 / u64::from(buckets);
        let clients: Vec<_> = (0..40_u32)
            .map(|client| {
                let engine = engines[client as usize % 4].0.clone();
                tokio::spawn(spend(engine, client * 1_000, stop.clone(), bucket_us))
            })
            .collect();
        tokio::time::sleep(RUNS).await;
        stop.store(true, Ordering::Relaxed);
        let mut all = Admitted::new();
        for client in clients {
            for (bucket, cost) in client.await.unwrap() {
                *all.entry(bucket).or_default() += cost;
            }
        }
        let after: Vec<_> = engines.iter().map(|(engine, _)| errors(engine)).collect();
        assert_eq!(after, before, "no draw has failed");
        let (worst, total) = (worst(&all, buckets), all.values().sum::<u32>());
        println!("{buckets} buckets: worst {worst}, in all {total}");
        assert!(worst <= TOKENS, "{buckets} buckets: {worst}");
        assert!(total > TOKENS / 2, "{buckets} buckets: only {total}");
    }
}
