//! Tests of draws that the refiller makes ahead of calls, and of processes that have never reached
//! a store.

use super::*;
use crate::clock::Tick;
use crate::store::refill::Refiller;
use crate::store::{Alive, QuotaStore};

#[tokio::test(start_paused = true)]
async fn processes_without_a_rank_admit_an_equal_part_and_at_least_one() {
    for (limit, admitted) in [(2, 4), (6, 4), (8, 8), (0, 0)] {
        let clock = TokioClock::new();
        let store = MemoryStore::with_clock(clock);
        store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
        let setup = Setup {
            bucket: Duration::from_secs(100),
            limit,
            ..Setup::default()
        };
        let processes = [(); 4].map(|()| Process::new(setup, &store, clock));
        let mut passed = 0;
        for _ in 0..9 {
            for process in &processes {
                passed += u32::from(process.call().await);
            }
        }
        // No process knows its rank, so no process gets the remainder of the limit.
        assert_eq!(passed, admitted, "limit {limit}");
    }
}

/// The clock of a server, which is half a bucket ahead of the processes.
#[derive(Debug)]
struct Ahead(TokioClock);

impl Clock for Ahead {
    fn now(&self) -> Tick {
        self.0.now() + Setup::default().bucket / 2
    }
}

/// If the process used its own clock, it would take its share twice in one window of the store.
#[tokio::test(start_paused = true)]
async fn a_new_ledger_knows_the_buckets_of_an_unreachable_store() {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(Ahead(clock));
    let process = Process::new(Setup::default(), &store, clock);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(process.call().await);
    tokio::time::sleep(Duration::from_secs(10)).await;
    store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let into = (clock.now() - Tick::ZERO).as_millis() as u64 % 500;
    tokio::time::sleep(Duration::from_millis(900 - into)).await;
    let mut passed = [0, 0];
    for passed in &mut passed {
        while process.call().await {
            *passed += 1;
        }
        // Meanwhile, a bucket ends by the process's clock, but not by the store's clock.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert!(passed[0] > 0);
    assert_eq!(passed[1], 0);
}

#[tokio::test(start_paused = true)]
async fn busy_counters_are_refilled_in_time_and_unused_counters_are_not() {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    store.set_fault(Some(Fault::SlowRequest(Duration::from_millis(1))));
    let setup = Setup {
        bucket: Duration::from_secs(100),
        limit: 100_000,
        ..Setup::default()
    };
    let process = Process::new(setup, &store, clock);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut waited = 0;
    for ms in 0..1_000 {
        let now = process.hub.now();
        let found = process.quota.take(now, 1);
        if found == LeaseFound::Nothing {
            assert!(process.call().await);
            waited += usize::from(ms > 100);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(waited, 0, "calls found none in hand");
    // The demand has decayed since the last call.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(process.quota.in_hand(process.hub.now()), 0);
    let draws = store.draws();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(store.draws(), draws, "it is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_busy_exhausted_counter_asks_the_store_every_20_ms() {
    let clock = TokioClock::new();
    let store = MemoryStore::with_clock(clock);
    store.set_fault(Some(Fault::SlowRequest(Duration::from_millis(1))));
    let setup = Setup {
        bucket: Duration::from_secs(100),
        limit: 400,
        ..Setup::default()
    };
    let process = Arc::new(Process::new(setup, &store, clock));
    tokio::time::sleep(Duration::from_millis(600)).await;
    let (mut draws, mut passed) = (0, 0);
    for ms in 0..1_000 {
        passed += u32::from(process.call().await);
        tokio::time::sleep(Duration::from_millis(1)).await;
        if ms == 500 {
            draws = store.draws();
        }
    }
    assert_eq!(passed, setup.limit);
    let draws = store.draws() - draws;
    assert!((10..=30).contains(&draws), "{draws} draws in half a second");
}

/// An engine can be built before a fork, and its store started in each forked process.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn forked_processes_are_counted_separately() {
    let store = StdArc::new(MemoryStore::with_clock(TokioClock::new()));
    let time = Timekeeper::new(Box::new(TokioClock::new()));
    let hub = Hub::new(Some(store.clone()), StoreSettings::new(), time);
    let built = hub.node;
    let here = Refiller::new(Arc::new(hub), store.clone()).alive.node;
    let elsewhere = built.of_process(std::process::id() + 1);
    for (node, nodes) in [(here, 1), (elsewhere, 2), (here, 2)] {
        assert_eq!(
            store
                .beat(Alive::new(node, Default::default()))
                .await
                .unwrap()
                .nodes,
            nodes
        );
    }
}
