//! One history: engines that come and go, calls, and what happens to the network meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tower_sentinel::store::{StoreHandle, StoreSettings, WhenDown};
use tower_sentinel::{Call, Sentinel, Verdict};

use crate::draws::Draws;
use crate::log::Log;
use crate::network::{Link, Network, Skewed};
use crate::plan::{Plan, Trouble};
use crate::support::Rng;

pub(crate) const STORE_WAIT: Duration = Duration::from_millis(50);
const ORIGINS: [&str; 3] = ["ann", "bob", "eve"];
/// All processes have noticed that the store is back: the longest gap between two probes, and
/// the probe.
const NOTICED_MS: u64 = 310;
/// All have recovered, and have said so.
const RECOVERED_MS: u64 = 900;

/// An engine, and whether it is still there.
struct Process {
    sentinel: Sentinel,
    handle: Option<StoreHandle>,
    lives: Arc<AtomicBool>,
    link: Link,
    clock: Skewed,
    reloads_at: u64,
}

pub(crate) type Shared<T> = Arc<Mutex<T>>;

impl Process {
    fn start(plan: &Plan, limit: u32, link: Link, clock: Skewed, reloads_at: u64) -> Self {
        let settings = StoreSettings::new()
            .nodes(plan.engines as u32)
            .store_wait(STORE_WAIT);
        let sentinel = Sentinel::builder()
            .rules(plan.rules(limit))
            .clock(clock)
            .store(link.clone())
            .store_settings(settings)
            .occupy_timeout(Duration::from_millis(plan.occupy_ms))
            .build();
        let handle = Some(sentinel.start_store().expect("there is a runtime"));
        let lives = Arc::new(AtomicBool::new(true));
        Self {
            sentinel,
            handle,
            lives,
            link,
            clock,
            reloads_at,
        }
    }

    /// What it draws from now on is given back, or of no use.
    fn leaves(&self, log: &Shared<Log>) {
        let draws = self.link.note(Draws::leaves);
        lock(log).drew(draws);
    }

    /// One call, which may be dropped while it waits.
    fn call(&self, plan: &Plan, log: &Shared<Log>, rng: &mut Rng) {
        let is_prioritized = plan.prioritized > 0 && rng.one_in(plan.prioritized);
        let origin = match plan.origins {
            0 => 0,
            // The first one calls most.
            n => rng.below(n).min(rng.below(n)),
        };
        self.call_of(origin, is_prioritized, plan, log, rng);
    }

    fn call_of(
        &self,
        origin: usize,
        is_prioritized: bool,
        plan: &Plan,
        log: &Shared<Log>,
        rng: &mut Rng,
    ) {
        let weight = if rng.one_in(12) { 2 } else { 1 };
        let call = Call::new("/r").origin(ORIGINS[origin]).batch(weight);
        let call = call.prioritized(is_prioritized);
        self.link.note(|draws| draws.calls += 1);
        match self.sentinel.try_enter(call) {
            Verdict::Pass(_) => admit(log, &self.link.network, plan, origin, weight),
            Verdict::Wait(waiting) => {
                let patience = match rng.below(8) {
                    0 => Duration::from_millis(rng.below(6) as u64),
                    1 if is_prioritized => Duration::from_millis(rng.below(100) as u64),
                    _ => STORE_WAIT * 10,
                };
                let (log, lives) = (log.clone(), self.lives.clone());
                let (network, plan) = (self.link.network.clone(), plan.clone());
                tokio::spawn(async move {
                    let before = tokio::time::Instant::now();
                    let ready = tokio::time::timeout(patience, waiting.ready()).await;
                    lock(&log).waited(before.elapsed(), is_prioritized);
                    // A killed process answers nobody.
                    if matches!(ready, Ok(Ok(_))) && lives.load(Ordering::Relaxed) {
                        admit(&log, &network, &plan, origin, weight);
                    }
                });
            }
            _ => {}
        }
    }
}

fn admit(log: &Shared<Log>, network: &Network, plan: &Plan, origin: usize, weight: u32) {
    let (bucket, _) = network.bucket(plan.bucket());
    lock(log).admitted((origin, network.era()), bucket, weight);
}

pub(crate) fn lock<T>(shared: &Shared<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn pass_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Plays the history of `plan`. Its books are checked at the end, when all is at rest.
pub(crate) async fn play(plan: &Plan, rng: &mut Rng) -> Log {
    let start = tokio::time::Instant::now();
    let store_clock = Skewed {
        start,
        offset: Duration::ZERO,
        ppm: 0,
    };
    let network = Arc::new(Network::new(rng.split(), store_clock, plan.weather()));
    let mut processes: Vec<_> = (0..plan.engines)
        .map(|process| {
            let clock = Skewed {
                start,
                offset: Duration::from_micros(rng.below(3_000_000) as u64),
                ppm: rng.below(80) as u64,
            };
            let network = network.clone();
            let reloads_at = rng.below(plan.length_ms as usize) as u64;
            Process::start(
                plan,
                plan.limit,
                Link::new(network, process),
                clock,
                reloads_at,
            )
        })
        .collect();
    // Each has heard of the others, and of the store's time: it goes by its own clock before.
    pass_ms(300).await;
    let log = Arc::new(Mutex::new(Log::new()));
    for process in &processes {
        for origin in ORIGINS {
            process.link.note(|draws| draws.calls += 1);
            drop(process.sentinel.try_enter(Call::new("/r").origin(origin)));
        }
    }
    pass_ms(plan.bucket_ms * u64::from(plan.buckets + 1)).await;
    let mut due = vec![0.0; plan.engines];
    let skew = skew(plan.engines, rng);
    for ms in 0..plan.length_ms {
        if plan.trouble != Trouble::Nothing {
            trouble(plan, ms, &network, &log, rng);
        }
        for (index, process) in processes.iter_mut().enumerate() {
            if ms == process.reloads_at && plan.later_limit != plan.limit {
                let reloaded = process.sentinel.try_reload(plan.rules(plan.later_limit));
                assert!(reloaded.is_ok(), "{reloaded:?}");
            }
            let is_calm = plan.trouble == Trouble::Nothing || plan.trouble == Trouble::All;
            if is_calm && rng.one_in(1_500) {
                restart(plan, process, ms, &log, rng).await;
            }
            due[index] += skew[index] * plan.load as f64 / 1_000.0;
            // Calls come in bursts.
            if due[index] >= 1.0 && !rng.one_in(3) {
                let calls = due[index] as usize;
                due[index] -= calls as f64;
                (0..calls).for_each(|_| process.call(plan, &log, rng));
            }
        }
        pass_ms(1).await;
    }
    settle(plan, &network, &log, processes, rng).await;
    std::mem::take(&mut *lock(&log))
}

/// The parts of the load that each engine has.
fn skew(engines: usize, rng: &mut Rng) -> Vec<f64> {
    let parts: Vec<_> = (0..engines).map(|_| 1 + rng.below(20)).collect();
    let all: usize = parts.iter().sum();
    parts.iter().map(|&part| part as f64 / all as f64).collect()
}

/// Stops an engine, by asking it to or not, and starts another one in its place.
async fn restart(plan: &Plan, process: &mut Process, ms: u64, log: &Shared<Log>, rng: &mut Rng) {
    let handle = process.handle.take().expect("it runs");
    process.leaves(log);
    if rng.one_in(2) {
        handle.shutdown().await;
    } else {
        process.lives.store(false, Ordering::Relaxed);
        drop(handle);
    }
    let limit = if ms >= process.reloads_at {
        plan.later_limit
    } else {
        plan.limit
    };
    let link = Link::new(process.link.network.clone(), process.link.process);
    let clock = process.clock;
    *process = Process::start(plan, limit, link, clock, process.reloads_at);
    // Its task has begun.
    tokio::task::yield_now().await;
}

/// What goes wrong in this millisecond.
fn trouble(plan: &Plan, ms: u64, network: &Network, log: &Shared<Log>, rng: &mut Rng) {
    let any = plan.trouble == Trouble::All;
    let is = |trouble| plan.trouble == trouble || any;
    let now = tokio::time::Instant::now();
    let soon = now + Duration::from_millis(plan.until_ms - plan.from_ms + NOTICED_MS);
    if ms == plan.from_ms {
        lock(log).troubled(now, soon);
        if is(Trouble::Loss) {
            let bad_one_in = 2 + rng.below(40);
            network.change(|weather| {
                weather.bad_one_in = bad_one_in;
                weather.repeats = plan.when_down != WhenDown::Closed;
            });
        }
        if is(Trouble::Partition) || is(Trouble::Outage) {
            let (first, silent) = (rng.below(plan.engines), rng.one_in(2));
            let all = plan.trouble == Trouble::Outage;
            let others = rng.next();
            network.change(|weather| {
                let cut = weather.cut.iter_mut().enumerate();
                cut.for_each(|(at, cut)| *cut = all || at == first || others >> at & 1 == 1);
                weather.is_silent = silent;
            });
        }
        if is(Trouble::Flush) {
            network.flush();
        }
        if is(Trouble::Step) {
            let most = 4 * plan.bucket_ms as usize * plan.buckets as usize;
            let by = 1 + rng.below(most) as i64;
            network.step(if rng.one_in(2) { by } else { -by });
        }
    }
    if ms == plan.until_ms {
        heal(plan, network);
        if plan.trouble == Trouble::Outage {
            let from = now - Duration::from_millis(plan.until_ms - plan.from_ms);
            lock(log).away(from, now);
        }
        if any && rng.one_in(2) {
            network.flush();
            lock(log).troubled(now, now + Duration::from_millis(NOTICED_MS));
        }
    }
}

fn heal(plan: &Plan, network: &Network) {
    network.change(|weather| *weather = plan.weather());
}

/// Lets all come to rest, makes calls in one bucket, stops the engines, and looks whether the
/// store has counted what was admitted.
async fn settle(
    plan: &Plan,
    network: &Arc<Network>,
    log: &Shared<Log>,
    processes: Vec<Process>,
    rng: &mut Rng,
) {
    heal(plan, network);
    pass_ms(RECOVERED_MS + plan.bucket_ms * (u64::from(plan.buckets) + 2)).await;
    // Where its clock was set back and nobody has asked since, buckets of before come again.
    let last = network.last_bucket(plan.bucket());
    while network.bucket(plan.bucket()).0 <= last + u64::from(plan.buckets) {
        pass_ms(plan.bucket_ms).await;
    }
    let (_, left) = network.bucket(plan.bucket());
    tokio::time::sleep(left + Duration::from_millis(1)).await;
    // A counter has the terms of the last reload once it is called.
    for process in &processes {
        let origins = 0..plan.origins.max(1);
        origins.for_each(|origin| process.call_of(origin, false, plan, log, rng));
    }
    let part = plan.bucket_ms / 4;
    for _ in 0..part {
        for process in &processes {
            (0..rng.below(4)).for_each(|_| process.call(plan, log, rng));
        }
        pass_ms(1).await;
    }
    if plan.prioritized > 0 {
        // What was borrowed is used, or was given back, when the next bucket has begun.
        let (_, left) = network.bucket(plan.bucket());
        tokio::time::sleep(left + Duration::from_millis(3)).await;
        for process in &processes {
            (0..plan.origins.max(1))
                .for_each(|origin| process.call_of(origin, false, plan, log, rng));
            let node = process.sentinel.node("/r").expect("it was called");
            lock(log).borrowed(node.totals().occupied());
        }
    }
    let (bucket, _) = network.bucket(plan.bucket());
    let first = bucket + 1 - u64::from(plan.buckets);
    pass_ms(part).await;
    let ends: Vec<_> = processes
        .into_iter()
        .map(|process| {
            process.leaves(log);
            let handle = process.handle.expect("it runs");
            tokio::spawn(async move {
                handle.shutdown().await;
                drop(process.sentinel);
            })
        })
        .collect();
    for end in ends {
        end.await.expect("it ends");
    }
    assert_eq!(network.bucket(plan.bucket()).0, bucket, "all in one bucket");
    lock(log).rests(network.counted_since(first), network.era(), first);
}
