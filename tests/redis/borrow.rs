//! Prioritized calls of two processes that borrow from the next bucket of one server.

use std::time::Duration;

use futures_util::future::join_all;
use tower_sentinel::store::StoreErrorKind;
use tower_sentinel::{Call, FlowRule, NotAdmitted, Sentinel, Verdict};

use crate::redis::Server;
use crate::{passed, started, store, wall_us};

const LIMIT: u32 = 40;
const BUCKET_US: u64 = 800_000;
/// Most rounds until the machine has let one go through in time.
const ROUNDS: u32 = 10;

/// The number of the bucket, and how far it is, in percent.
fn bucket() -> (u64, u64) {
    let us = wall_us();
    (us / BUCKET_US, us % BUCKET_US * 100 / BUCKET_US)
}

/// Until so many percent of a bucket are over.
async fn go_to(percent: u64) {
    let left = (BUCKET_US + percent * BUCKET_US / 100 - wall_us() % BUCKET_US) % BUCKET_US;
    tokio::time::sleep(Duration::from_micros(left)).await;
}

/// How many calls pass of so many to each engine.
async fn passed_at_once(engines: &[Sentinel; 2], calls: u32) -> u32 {
    let both = engines.iter().flat_map(|engine| {
        let call = move |_| async move { engine.enter(Call::new("/v1")).await.is_ok() };
        (0..calls).map(call)
    });
    let passed = join_all(both).await;
    passed.into_iter().map(u32::from).sum()
}

/// One round: a bucket that is used up, and the next one that is lent. `None` if the machine was so
/// slow that it says nothing.
async fn round(engines: &[Sentinel; 2], gives_back: usize) -> Option<()> {
    let call = Call::new("/v1");
    // A whole bucket later nothing is lent any more.
    go_to(0).await;
    go_to(48).await;
    let (number, _) = bucket();
    let used = passed_at_once(engines, LIMIT + 1).await;
    let is_in_one = bucket().0 == number;
    assert!(
        !is_in_one || used <= LIMIT,
        "{used} of {LIMIT} in one bucket"
    );
    // Those who leave again have borrowed nothing.
    for _ in 0..gives_back {
        let Verdict::Wait(asking) = engines[0].try_enter(call.prioritized(true)) else {
            continue;
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
        if let Err(NotAdmitted::TooEarly(waiting)) = asking.admit() {
            drop(waiting);
        }
    }
    let calls: Vec<_> = (0..2 * LIMIT as usize)
        .map(|at| {
            let engine = engines[at % 2].clone();
            tokio::spawn(async move {
                let passed = engine.enter(call.prioritized(true)).await.is_ok();
                passed.then(bucket)
            })
        })
        .collect();
    let is_in_time = used == LIMIT && bucket().0 == number && bucket().1 < 85;
    let (mut borrowed, mut is_late) = (0, false);
    for call in calls {
        if let Some((there, percent)) = call.await.unwrap() {
            borrowed += 1;
            is_late |= there > number + 1 || percent > 60;
            assert!(!is_in_time || there > number, "it runs before its bucket");
        }
    }
    let others = passed_at_once(engines, LIMIT).await;
    let is_done_in_time = bucket().0 == number + 1;
    if !is_in_time || is_late || !is_done_in_time {
        return None;
    }
    assert_eq!(
        (borrowed, others),
        (LIMIT, 0),
        "all that borrow pass, and nobody else does"
    );
    Some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_two_processes_borrow_one_limit_of_the_next_bucket() {
    let Some(server) = Server::start("borrow", &[]).await else {
        return;
    };
    let rule = FlowRule::per("/v1", LIMIT, Duration::from_micros(BUCKET_US)).buckets(1);
    let rule = rule.shared().exact();
    // The machine may be busy: late answers would be an outage, which has another bound.
    let wait = Duration::from_secs(5);
    let (one, first) = started(store(&server), rule.clone(), wait).await;
    let (two, second) = started(store(&server), rule, wait).await;
    let engines = [one, two];
    for engine in &engines {
        let _ = passed(engine, Call::new("/v1"), 1).await;
    }
    for gives_back in [0, 5] {
        // What a round asserts of a slow machine is that no bucket has more than the limit.
        let mut rounds = 1;
        while round(&engines, gives_back).await.is_none() && rounds < ROUNDS {
            rounds += 1;
        }
        println!("{gives_back} give back: {rounds} rounds");
    }
    for engine in &engines {
        let errors = engine.store().unwrap().errors(StoreErrorKind::Late);
        assert_eq!(errors, 0);
    }
    first.shutdown().await;
    second.shutdown().await;
}
