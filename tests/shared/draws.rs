//! What a rule by key costs the store: at most one draw for each call, and none for a user who is
//! exhausted.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{advance, sleep, timeout};
use tower_sentinel::clock::TokioClock;
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, Fault, MemoryStore, QuotaStore, StoreError, StoreFuture, StoreHandle,
    StoreSettings,
};
use tower_sentinel::{Call, Clock, FlowRule, Sentinel, Verdict};

use super::support::Rng;
use super::{Fleet, ms};

/// The way of one engine to the store, with what came along.
#[derive(Clone, Debug)]
struct Counted {
    store: MemoryStore,
    clock: TokioClock,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    draws: AtomicU64,
    /// Grants that came when their bucket was over.
    late: AtomicU64,
}

impl QuotaStore for Counted {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        Box::pin(async move {
            let sent = self.clock.now();
            let answers = self.store.draw(draws).await?;
            let took = self.clock.now() - sent;
            for (draw, answer) in draws.iter().zip(&answers) {
                self.counts.draws.fetch_add(1, Ordering::Relaxed);
                let bucket = Duration::from_micros(draw.arguments()[0]);
                let is_late = matches!(answer, Ok(Drawn::Granted { permits: 1.., rest, .. })
                    if took >= *rest - bucket / 10_000);
                self.counts
                    .late
                    .fetch_add(is_late.into(), Ordering::Relaxed);
            }
            Ok(answers)
        })
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        self.store.beat(alive)
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_who_is_exhausted_is_never_asked_about() {
    for buckets in [1, 2] {
        let rule = FlowRule::per_minute("/v1", 60).buckets(buckets);
        let fleet = Fleet::new::<2>(rule.by_origin().shared()).await;
        fleet.begin_minute().await;
        let call = Call::new("/v1").origin("ann");
        // So many make the user a busy one.
        let mut passed = 0;
        for _ in 0..100 {
            passed += fleet.passed(2, call).await;
            sleep(ms(1)).await;
        }
        assert_eq!(passed, 60);
        let draws = fleet.store.draws();
        for _ in 0..500 {
            assert_eq!(fleet.passed(40, call).await, 0);
            assert_eq!(fleet.passed(2, call.batch(3)).await, 0);
            sleep(ms(7)).await;
        }
        assert_eq!(fleet.store.draws(), draws, "with {buckets} buckets");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_permit_of_a_user_is_the_last_draw() {
    let rule = FlowRule::per_minute("/v1", 3).buckets(1).by_origin();
    let fleet = Fleet::new::<1>(rule.shared()).await;
    fleet.begin_minute().await;
    let call = Call::new("/v1").origin("ann");
    assert_eq!(fleet.passed(3, call).await, 3);
    assert_eq!(fleet.store.draws(), 3);
    let refused = fleet.engine(0).enter(call).await.unwrap_err();
    let left = refused.retry_after().unwrap();
    sleep(left - ms(2)).await;
    assert_eq!(fleet.passed(9, call).await, 0);
    assert_eq!(
        fleet.store.draws(),
        3,
        "the store has said that none is left"
    );
    sleep(ms(3)).await;
    assert_eq!(fleet.passed(4, call).await, 3);
    assert_eq!(fleet.store.draws(), 6);
}

#[tokio::test(start_paused = true)]
async fn calls_that_leave_cost_no_draws_to_give_back() {
    let rule = FlowRule::per_second("/v1", 50).buckets(2).by_origin();
    let fleet = Fleet::new::<1>(rule.shared()).await;
    let call = Call::new("/v1").origin("ann");
    for _ in 0..40 {
        let Verdict::Wait(waiting) = fleet.engine(0).try_enter(call) else {
            panic!("nothing is in hand");
        };
        drop(waiting);
        // Its permit comes, and its bucket ends.
        sleep(ms(510)).await;
    }
    sleep(ms(2_000)).await;
    assert_eq!(fleet.store.draws(), 40);
}

/// A burst makes a user a busy one, whose permits are drawn ahead: in each bucket, as long as the
/// demand is remembered.
#[tokio::test(start_paused = true)]
async fn a_burst_of_a_user_is_not_refilled_when_nobody_calls() {
    for buckets in [10, 20, 50] {
        for weight in [1, 5, 100] {
            for (calls, pause) in [(2, 1), (2, 15), (12, 1), (12, 8)] {
                let rule = FlowRule::per_second("/v1", 10_000).buckets(buckets);
                let fleet = Fleet::new::<1>(rule.by_origin().shared()).await;
                let call = Call::new("/v1").origin("ann").batch(weight);
                for _ in 0..calls {
                    assert_eq!(fleet.passed(1, call).await, 1);
                    sleep(ms(pause)).await;
                }
                sleep(ms(3_000)).await;
                let draws = fleet.store.draws();
                assert!(
                    draws <= calls,
                    "{draws} draws for {calls} calls of {weight}, each {pause} ms, {buckets} buckets"
                );
            }
        }
    }
}

struct Random {
    engines: Vec<(Sentinel, StoreHandle, Arc<Counts>)>,
    buckets_ms: u64,
    users: usize,
    calls: Vec<u64>,
    borrowed: u64,
}

impl Random {
    async fn new(rng: &mut Rng) -> Self {
        let clock = TokioClock::new();
        let store = MemoryStore::with_clock(clock);
        let trip = Duration::from_micros(rng.below(4_000) as u64);
        store.set_fault(Some(Fault::SlowRequest(trip)));
        let buckets_ms = [100, 500][rng.below(2)];
        let buckets = 1 + rng.below(3) as u32;
        let interval = ms(buckets_ms) * buckets;
        let rule = FlowRule::per("/v1", 1 + rng.below(30) as u32, interval).buckets(buckets);
        let rule = rule.by_origin().shared();
        let rule = if rng.one_in(3) { rule.exact() } else { rule };
        let engines = (0..1 + rng.below(3)).map(|_| {
            let counts = Arc::new(Counts::default());
            let counted = Counted {
                store: store.clone(),
                clock,
                counts: counts.clone(),
            };
            // A stall is no outage.
            let settings = StoreSettings::new().nodes(3).store_wait(ms(10_000));
            let sentinel = Sentinel::builder()
                .rules(rule.clone())
                .clock(clock)
                .store(counted)
                .store_settings(settings)
                .occupy_timeout(ms(2 * buckets_ms))
                .build();
            let handle = sentinel.start_store().unwrap();
            (sentinel, handle, counts)
        });
        let engines: Vec<_> = engines.collect();
        sleep(ms(600)).await;
        Self {
            calls: vec![0; engines.len()],
            engines,
            buckets_ms,
            users: 1 + 3 * rng.below(2),
            borrowed: 0,
        }
    }

    fn call(&mut self, rng: &mut Rng) {
        const USERS: [&str; 4] = ["ann", "bob", "eve", "joe"];
        let engine = rng
            .below(self.engines.len())
            .min(rng.below(self.engines.len()));
        let call = Call::new("/v1").origin(USERS[rng.below(self.users)]);
        let call = call
            .batch([1, 1, 1, 3][rng.below(4)])
            .prioritized(rng.one_in(4));
        self.calls[engine] += 1;
        if let Verdict::Wait(waiting) = self.engines[engine].0.try_enter(call) {
            let patience = [0, rng.below(5) as u64, 9_000][rng.below(3)];
            tokio::spawn(async move {
                let _ = timeout(ms(patience), pin!(waiting.ready())).await;
            });
        }
    }

    async fn play(&mut self, rng: &mut Rng) {
        for _ in 0..300 {
            match rng.below(8) {
                0 => (0..rng.below(40)).for_each(|_| self.call(rng)),
                1..5 => self.call(rng),
                _ => {}
            }
            match rng.below(12) {
                // The process stands still.
                0 => advance(ms(rng.below(900) as u64)).await,
                1 => sleep(ms(self.buckets_ms)).await,
                2 => sleep(ms(rng.below(60) as u64)).await,
                _ => sleep(ms(rng.below(3) as u64)).await,
            }
        }
        sleep(ms(12_000)).await;
        for (sentinel, ..) in &self.engines {
            self.borrowed += sentinel.node("/v1").unwrap().totals().occupied();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn by_key_there_are_no_more_draws_than_calls() {
    let (mut draws, mut late, mut borrowed) = (0, 0, 0);
    for seed in 0..60 {
        let rng = &mut Rng::of(seed);
        let mut random = Random::new(rng).await;
        random.play(rng).await;
        for ((_, _, counts), calls) in random.engines.iter().zip(&random.calls) {
            let drawn = counts.draws.load(Ordering::Relaxed);
            let in_vain = counts.late.load(Ordering::Relaxed);
            assert!(
                drawn <= calls + in_vain,
                "{drawn} draws for {calls} calls, {in_vain} in vain, seed {seed}"
            );
            (draws, late) = (draws + drawn, late + in_vain);
        }
        borrowed += random.borrowed;
    }
    println!("{draws} draws, {late} of them late, {borrowed} borrowed");
    assert!(draws > 1_000 && late > 20 && borrowed > 100);
}

/// A quota that knows of every call at once: the calls of each bucket that it has admitted.
#[derive(Clone, Default)]
struct AllKnowing(Vec<u32>);

impl AllKnowing {
    fn admits(&mut self, bucket: usize, buckets: usize, limit: u32) -> bool {
        self.0.resize((bucket + 1).max(self.0.len()), 0);
        let window = &self.0[(bucket + 1).saturating_sub(buckets)..];
        let admits = window.iter().sum::<u32>() < limit;
        self.0[bucket] += u32::from(admits);
        admits
    }
}

/// How many calls four engines admit, in percent of those that such quotas would have: `load` times
/// the limit of each user is asked for, at random times, of one engine far more than of another.
async fn admitted_by_key(rule: FlowRule, limit: u32, buckets: usize, load: u32) -> f64 {
    const USERS: usize = 60;
    let fleet = Fleet::new::<4>(rule).await;
    let trip = Fault::SlowRequest(Duration::from_micros(500));
    fleet.store.set_fault(Some(trip));
    let rng = &mut Rng::of(7);
    let mut quotas = vec![AllKnowing::default(); USERS];
    let mut could = 0;
    let admitted = Arc::new(AtomicU64::new(0));
    for step in 0..4_000 {
        for (user, quota) in quotas.iter_mut().enumerate() {
            if rng.below(1_000) >= (limit * load) as usize {
                continue;
            }
            could += u64::from(quota.admits(step * buckets / 1_000, buckets, limit));
            let engine = match rng.below(100) {
                0..60 => 0,
                60..85 => 1,
                85..95 => 2,
                _ => 3,
            };
            let (sentinel, admitted) = (fleet.engine(engine).clone(), admitted.clone());
            tokio::spawn(async move {
                let name = user.to_string();
                let call = Call::new("/v1").origin(name.as_str());
                if sentinel.enter(call).await.is_ok() {
                    admitted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        sleep(ms(1)).await;
    }
    sleep(ms(100)).await;
    100.0 * admitted.load(Ordering::Relaxed) as f64 / could as f64
}

/// The worst limits are those of users who are just busy enough for permits to be drawn ahead.
#[tokio::test(start_paused = true)]
async fn by_key_few_permits_are_left_over() {
    for limit in [5, 16, 50] {
        for buckets in [1, 2, 10] {
            let rule = FlowRule::per_second("/v1", limit).buckets(buckets as u32);
            let rule = rule.by_origin().shared();
            let leased = [1, 2].map(|load| admitted_by_key(rule.clone(), limit, buckets, load));
            let [just, twice] = leased;
            let (just, twice) = (just.await, twice.await);
            let exact = admitted_by_key(rule.exact(), limit, buckets, 1).await;
            println!("{limit}/s, {buckets} buckets: {just:.2} %, {twice:.2} %, exact {exact:.2} %");
            assert!(
                just >= 95.0,
                "{just:.2} % at the limit, {limit} in {buckets}"
            );
            assert!(
                twice >= 98.0,
                "{twice:.2} % at twice the limit, {limit} in {buckets}"
            );
            assert!(exact >= 99.0, "{exact:.2} % if exact, {limit} in {buckets}");
        }
    }
}
