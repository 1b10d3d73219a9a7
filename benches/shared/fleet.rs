//! A fleet in virtual time: whole engines over one store in memory, with a load by Zipf's law.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::LocalSet;
use tower_sentinel::clock::{Clock, Tick, TokioClock};
use tower_sentinel::store::{Fault, MemoryStore, StoreHandle, StoreSettings};
use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};

const SECONDS: u64 = 3;

/// How many processes there are, their limit a second, how long a trip takes, and how far ahead
/// they draw.
struct Fleet {
    processes: u32,
    limit: u32,
    trip_ms: u64,
    horizon_ms: u64,
    /// What is offered, in percent of the limit.
    offered: u32,
}

#[derive(Default)]
struct Counted {
    /// By second.
    admitted: BTreeMap<u64, u32>,
    calls: u64,
    waited: u64,
}

/// Runs fleets of several sizes. Panics if any window has more than its limit.
pub(crate) fn run() {
    println!("fleet in virtual time: one bucket of a second, the load of process i as 1 / i");
    println!("processes  limit/s  offered  trip ms  horizon ms  draws/s  admitted  waited  over");
    let fleet = |processes, limit, trip_ms, horizon_ms, offered| Fleet {
        processes,
        limit,
        trip_ms,
        horizon_ms,
        offered,
    };
    for fleet in [
        fleet(10, 1_000, 1, 20, 100),
        fleet(10, 1_000, 1, 20, 200),
        fleet(100, 10_000, 1, 20, 100),
        fleet(100, 10_000, 20, 20, 100),
        fleet(100, 10_000, 60, 20, 100),
        fleet(100, 10_000, 60, 60, 100),
        fleet(1_000, 100_000, 1, 20, 100),
        fleet(1_000, 100_000, 1, 100, 100),
        fleet(1_000, 1_000, 1, 20, 100),
    ] {
        fleet.print();
    }
}

impl Fleet {
    fn print(&self) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let (counted, draws) = LocalSet::new().block_on(&runtime, self.play());
        // The first and the last second are not whole.
        let whole: Vec<_> = counted.admitted.values().copied().collect();
        let whole = &whole[1..whole.len() - 1];
        let most = *counted.admitted.values().max().unwrap();
        let over = most.saturating_sub(self.limit);
        let admitted = f64::from(whole.iter().sum::<u32>()) / whole.len() as f64;
        let waited = counted.waited as f64 / counted.calls as f64;
        println!(
            "{:9}  {:7}  {:5} %  {:7}  {:10}  {:7.0}  {:6.1} %  {:4.0} %  {over:4}",
            self.processes,
            self.limit,
            self.offered,
            self.trip_ms,
            self.horizon_ms,
            draws as f64 / (SECONDS + 1) as f64,
            100.0 * admitted / f64::from(self.limit),
            100.0 * waited,
        );
        assert_eq!(over, 0, "a window has more than its limit");
    }

    fn engine(&self, store: &MemoryStore, clock: TokioClock) -> (Sentinel, StoreHandle) {
        let settings = StoreSettings::new()
            .nodes(self.processes)
            .horizon(Duration::from_millis(self.horizon_ms))
            .store_wait(Duration::from_millis(200));
        let sentinel = Sentinel::builder()
            .rules(FlowRule::per_second("/r", self.limit).buckets(1).shared())
            .clock(clock)
            .store(store.clone())
            .store_settings(settings)
            .build();
        let handle = sentinel.start_store().unwrap();
        (sentinel, handle)
    }

    async fn play(&self) -> (Counted, u64) {
        let clock = TokioClock::new();
        let store = MemoryStore::with_clock(clock);
        let trip = Duration::from_millis(self.trip_ms);
        store.set_fault(Some(Fault::SlowRequest(trip)));
        let engines: Vec<_> = (0..self.processes)
            .map(|_| self.engine(&store, clock))
            .collect();
        // All have said that they are there.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let weights: f64 = (1..=self.processes).map(|rank| 1.0 / f64::from(rank)).sum();
        let per_ms = f64::from(self.limit) * f64::from(self.offered) / 100_000.0;
        // Not all in step: each begins at another part of its first call.
        let golden = |index: u32| (f64::from(index) * 0.618_034).fract();
        let mut due: Vec<_> = (0..self.processes).map(golden).collect();
        let counted = std::rc::Rc::new(std::cell::RefCell::new(Counted::default()));
        for _ in 0..(SECONDS + 1) * 1_000 {
            for (index, (sentinel, _)) in engines.iter().enumerate() {
                due[index] += per_ms / (index + 1) as f64 / weights;
                while due[index] >= 1.0 {
                    due[index] -= 1.0;
                    counted.borrow_mut().calls += 1;
                    match sentinel.try_enter(Call::new("/r")) {
                        Verdict::Pass(_) => counted.borrow_mut().admit(clock),
                        Verdict::Wait(waiting) => {
                            counted.borrow_mut().waited += 1;
                            let counted = counted.clone();
                            tokio::task::spawn_local(async move {
                                if waiting.ready().await.is_ok() {
                                    counted.borrow_mut().admit(clock);
                                }
                            });
                        }
                        _ => {}
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let draws = store.draws();
        tokio::time::sleep(Duration::from_secs(1)).await;
        (counted.take(), draws)
    }
}

impl Counted {
    fn admit(&mut self, clock: TokioClock) {
        // The store's clock begins with a whole second where this one does.
        let second = (clock.now() - Tick::ZERO).as_secs();
        *self.admitted.entry(second).or_default() += 1;
    }
}
