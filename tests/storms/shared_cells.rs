//! Counters that fail alone, as on one shard of a store whose others answer.
//!
//! Time is tokio's, paused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_sentinel::clock::{Tick, TokioClock};
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, Fault, MemoryStore, QuotaStore, StoreError, StoreErrorKind,
    StoreFuture, StoreHandle, StoreSettings, StoreState,
};
use tower_sentinel::{Call, Clock, FlowRule, Sentinel};

const LIMIT: u32 = 100;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Each draw fails while it is told to; beats never do.
#[derive(Clone, Debug)]
struct Shard {
    store: MemoryStore,
    is_down: Arc<AtomicBool>,
}

impl QuotaStore for Shard {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        if self.is_down.load(Ordering::Relaxed) {
            let error = StoreError::new(StoreErrorKind::Moved, "its shard is away");
            let all = draws.iter().map(|_| Err(error.clone())).collect();
            return Box::pin(async { Ok(all) });
        }
        self.store.draw(draws)
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        self.store.beat(alive)
    }
}

/// Two engines on one shard, at the start of a second.
async fn pair(rule: FlowRule, wait: Duration) -> (Shard, [(Sentinel, StoreHandle); 2]) {
    let clock = TokioClock::new();
    let shard = Shard {
        store: MemoryStore::with_clock(clock),
        is_down: Arc::default(),
    };
    let engines = [(); 2].map(|()| {
        let settings = StoreSettings::new().nodes(2).store_wait(wait);
        let sentinel = Sentinel::builder()
            .rules(rule.clone())
            .clock(clock)
            .store(shard.clone())
            .store_settings(settings)
            .build();
        let handle = sentinel.start_store().unwrap();
        (sentinel, handle)
    });
    tokio::time::sleep(ms(600)).await;
    let now = clock.now() - Tick::ZERO;
    let into_second = u64::from(now.subsec_millis());
    tokio::time::sleep(ms(1_001 - into_second)).await;
    (shard, engines)
}

/// How many calls pass of ten a millisecond on each engine.
async fn passed(engines: &[(Sentinel, StoreHandle); 2], for_ms: u32) -> u32 {
    let mut passed = 0;
    for _ in 0..for_ms {
        for (sentinel, _) in engines {
            for _ in 0..10 {
                passed += u32::from(sentinel.enter(Call::new("/v1")).await.is_ok());
            }
        }
        tokio::time::sleep(ms(1)).await;
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn counters_that_failed_alone_do_not_admit_their_share_twice() {
    for buckets in [1, 2] {
        let rule = FlowRule::per_second("/v1", LIMIT).buckets(buckets).shared();
        let (shard, engines) = pair(rule, ms(50)).await;
        shard.is_down.store(true, Ordering::Relaxed);
        let alone = passed(&engines, 40).await;
        assert_eq!(alone, LIMIT, "both shares");
        shard.is_down.store(false, Ordering::Relaxed);
        // The counter is asked again after 200 ms, in the same window.
        let again = passed(&engines, 440).await;
        assert_eq!(again, 0, "{buckets} buckets");
        for (sentinel, _) in &engines {
            assert_eq!(sentinel.store().unwrap().state(), StoreState::Live);
        }
        // Then all is as before.
        tokio::time::sleep(ms(2_000)).await;
        let whole = passed(&engines, 20).await;
        assert!((LIMIT * 8 / 10..=LIMIT).contains(&whole), "{whole}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_late_call_took_is_told_to_the_store() {
    let rule = FlowRule::per_second("/v1", LIMIT)
        .buckets(1)
        .shared()
        .exact();
    let rule = rule.store_wait(ms(5));
    let (shard, engines) = pair(rule, ms(50)).await;
    // An answer that is too late for the call, and not for the engine.
    shard.store.inject([Fault::SlowAnswer(ms(20))]);
    let late = u32::from(engines[0].0.enter(Call::new("/v1")).await.is_ok());
    assert_eq!(late, 1, "it has taken one of the share");
    tokio::time::sleep(ms(50)).await;
    let rest = passed(&engines, 100).await;
    assert!(late + rest <= LIMIT, "{late} and {rest}");
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_before_the_first_answer_counts_after_it() {
    let rule = FlowRule::per_second("/v1", LIMIT).buckets(2).shared();
    let (shard, engines) = pair(rule, ms(50)).await;
    shard
        .store
        .set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
    assert_eq!(passed(&engines, 40).await, LIMIT, "both shares");
    shard.store.set_fault(None);
    tokio::time::sleep(ms(340)).await;
    assert_eq!(passed(&engines, 300).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_share_used_before_the_first_answer_is_not_all() {
    let rule = FlowRule::per_minute("/v1", LIMIT).shared().exact();
    let (shard, [(first, _handle), _other]) = pair(rule, ms(50)).await;
    let away = Fault::Error(StoreErrorKind::Unreachable);
    shard.store.set_fault(Some(away));
    let mut admitted = 0;
    for _ in 0..LIMIT {
        admitted += u32::from(first.enter(Call::new("/v1")).await.is_ok());
    }
    assert_eq!(admitted, LIMIT / 2, "its share");
    shard.store.set_fault(None);
    tokio::time::sleep(ms(1_000)).await;
    for _ in 0..LIMIT {
        admitted += u32::from(first.enter(Call::new("/v1")).await.is_ok());
    }
    assert_eq!(admitted, LIMIT, "the other process has used nothing");
}
