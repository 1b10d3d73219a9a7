//! Shared rules: one quota over several engines of one store.
//!
//! Time is tokio's, paused. Each engine has a task of its own that asks the store, as each
//! process of a service has.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_types, reason = "a store of a test keeps its way")]

mod advertised;
mod borrow;
mod budgets;
mod calendar;
mod deploy;
mod down;
mod draws;
mod key_budgets;
mod keys;
mod late;
mod limits;
mod no_store;
mod own;
mod paths;
mod resets;
mod rules;
mod set_up;
mod shadow;
mod slow;
#[path = "../support/mod.rs"]
mod support;
mod told;
mod waits;

use std::time::Duration;

use tower_sentinel::clock::{Tick, TokioClock};
use tower_sentinel::store::{MemoryStore, StoreHandle, StoreSettings};
use tower_sentinel::{Call, Clock, Rules, Sentinel};

const SECOND: Duration = Duration::from_secs(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Engines over one store, which are all there.
struct Fleet {
    store: MemoryStore,
    clock: TokioClock,
    engines: Vec<(Sentinel, StoreHandle)>,
}

impl Fleet {
    async fn new<const N: usize>(rules: impl Into<Rules>) -> Self {
        Self::with::<N>(rules, StoreSettings::new().nodes(N as u32)).await
    }

    async fn with<const N: usize>(rules: impl Into<Rules>, settings: StoreSettings) -> Self {
        Self::patient::<N>(rules, settings, ms(500)).await
    }

    /// One in which prioritized calls wait for less than so long.
    async fn patient<const N: usize>(
        rules: impl Into<Rules>,
        settings: StoreSettings,
        occupy_timeout: Duration,
    ) -> Self {
        let (rules, clock) = (rules.into(), TokioClock::new());
        let store = MemoryStore::with_clock(clock);
        let engines = (0..N).map(|_| {
            let sentinel = Sentinel::builder()
                .rules(rules.clone())
                .clock(clock)
                .store(store.clone())
                .store_settings(settings.clone())
                .occupy_timeout(occupy_timeout)
                .build();
            let handle = sentinel.start_store().unwrap();
            (sentinel, handle)
        });
        let engines = engines.collect();
        let fleet = Self {
            store,
            clock,
            engines,
        };
        // All have said that they are there, and a second begins.
        tokio::time::sleep(ms(600)).await;
        fleet.begin_second().await;
        fleet
    }

    async fn begin_second(&self) {
        let since = self.clock.now() - Tick::ZERO;
        let left = SECOND - Duration::from_nanos(u64::from(since.subsec_nanos()));
        tokio::time::sleep(left + ms(1)).await;
    }

    async fn begin_minute(&self) {
        tokio::time::sleep(SECOND * 120).await;
        self.begin_second().await;
    }

    fn engine(&self, index: usize) -> &Sentinel {
        &self.engines[index].0
    }

    /// How many of `calls` pass on each engine in turn.
    async fn passed(&self, calls: usize, call: Call<'_>) -> usize {
        let mut passed = 0;
        for index in 0..calls {
            let engine = self.engine(index % self.engines.len());
            passed += usize::from(engine.enter(call).await.is_ok());
        }
        passed
    }
}
