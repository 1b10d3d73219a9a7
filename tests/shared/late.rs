//! Answers that are late, and a store that stands still: what fails, what counts, and how soon all is
//! as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tower_sentinel::clock::TokioClock;
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, Fault, MemoryStore, QuotaStore, StoreError, StoreErrorKind,
    StoreFuture, StoreHandle, StoreSettings, StoreState,
};
use tower_sentinel::{Call, Clock, FlowRule, Sentinel};

use super::{Fleet, SECOND, ms};

const WAIT: u64 = 50;

async fn fleet<const N: usize>(rule: FlowRule) -> Fleet {
    let settings = StoreSettings::new().nodes(N as u32).store_wait(ms(WAIT));
    let fleet = Fleet::with::<N>(rule, settings).await;
    fleet.begin_minute().await;
    fleet
}

#[tokio::test(start_paused = true)]
async fn one_late_answer_in_many_fails_the_calls_that_wait_for_it() {
    for (exact, one_in) in [(true, 100), (true, 30), (false, 100), (false, 30)] {
        let rule = FlowRule::per_minute("/v1", 10_000).shared();
        let rule = if exact { rule.exact() } else { rule };
        let fleet = fleet::<1>(rule).await;
        let requests = (1..2_000).map(|number| match number % one_in {
            0 => Fault::SlowAnswer(ms(60)),
            _ => Fault::SlowAnswer(ms(1)),
        });
        fleet.store.inject(requests);
        let (late, passed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        for _ in 0..300 {
            let (engine, clock) = (fleet.engine(0).clone(), fleet.clock);
            let (late, passed) = (late.clone(), passed.clone());
            tokio::spawn(async move {
                let since = clock.now();
                let passes = engine.enter(Call::new("/v1")).await.is_ok();
                passed.fetch_add(passes.into(), Ordering::Relaxed);
                let waited = clock.now() - since;
                assert!(waited <= ms(WAIT), "{waited:?}");
                late.fetch_add((waited == ms(WAIT)).into(), Ordering::Relaxed);
            });
            tokio::time::sleep(ms(10)).await;
            let state = fleet.engine(0).store().unwrap().state();
            assert_eq!(state, StoreState::Live, "one in {one_in}");
        }
        tokio::time::sleep(ms(200)).await;
        assert_eq!(passed.load(Ordering::Relaxed), 300);
        let late = late.load(Ordering::Relaxed);
        assert!(
            late <= 300 / one_in + 2,
            "one in {one_in}, exact {exact}: {late}"
        );
        let status = fleet.engine(0).store().unwrap();
        assert!(status.errors(StoreErrorKind::Late) > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_pays_for_what_its_calls_have_taken() {
    for (late, is_given_up) in [(60, false), (120, false), (190, false), (600, true)] {
        let fleet = fleet::<2>(FlowRule::per_minute("/v1", 10).shared().exact()).await;
        let call = Call::new("/v1");
        // It has heard of the store's time.
        assert_eq!(fleet.passed(1, call).await, 1);
        fleet.store.inject([Fault::SlowAnswer(ms(late))]);
        assert_eq!(fleet.passed(1, call).await, 1, "of the share");
        tokio::time::sleep(ms(700)).await;
        let draws = fleet.store.draws();
        assert_eq!(draws, 2 + u64::from(is_given_up), "after {late} ms");
        // Where its answer does not come, its permit is nobody's.
        let all = 10 - usize::from(is_given_up);
        assert_eq!(2 + fleet.passed(20, call).await, all, "after {late} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_that_nobody_has_replaced_is_in_hand() {
    let rule = FlowRule::per_minute("/v1", 3).shared().exact();
    let fleet = fleet::<1>(rule.when_down(tower_sentinel::store::WhenDown::Closed)).await;
    fleet.store.inject([Fault::SlowAnswer(ms(60))]);
    let call = Call::new("/v1");
    assert_eq!(
        fleet.passed(1, call).await,
        0,
        "without an answer it is closed"
    );
    tokio::time::sleep(ms(20)).await;
    let draws = fleet.store.draws();
    assert_eq!(fleet.passed(1, call).await, 1);
    assert_eq!(fleet.store.draws(), draws);
    assert_eq!(fleet.passed(9, call).await, 2);
}

#[tokio::test(start_paused = true)]
async fn only_a_store_that_answers_none_of_three_beats_is_away() {
    for (lost, is_away) in [(1, false), (2, false), (3, true)] {
        let fleet = fleet::<1>(FlowRule::per_minute("/v1", 10).shared()).await;
        let faults = (0..lost).map(|_| Fault::LostAnswer);
        fleet.store.inject(faults);
        let since = Instant::now();
        let mut was_away = false;
        while since.elapsed() < SECOND {
            let state = fleet.engine(0).store().unwrap().state();
            if state == StoreState::Down && !was_away {
                was_away = true;
                let took = since.elapsed();
                assert!(took <= ms(250 + 3 * WAIT + 5), "{took:?}");
            }
            tokio::time::sleep(ms(1)).await;
        }
        assert_eq!(was_away, is_away, "{lost} lost");
    }
}

/// Where a call has found that nothing is heard, beats look after that at once.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_is_noticed_after_four_waits() {
    for wait in [5, 20, 50, 200] {
        let settings = StoreSettings::new().store_wait(ms(wait));
        let rule = FlowRule::per_minute("/v1", 10).shared().exact();
        let fleet = Fleet::with::<1>(rule, settings).await;
        fleet.store.set_fault(Some(Fault::LostRequest));
        let since = Instant::now();
        let engine = fleet.engine(0);
        while engine.store().unwrap().state() != StoreState::Down {
            let before = Instant::now();
            drop(engine.enter(Call::new("/v1")).await);
            assert!(before.elapsed() <= ms(wait), "{:?}", before.elapsed());
            assert!(since.elapsed() <= ms(4 * wait + 2), "{:?}", since.elapsed());
            tokio::time::sleep(ms(1)).await;
        }
    }
}

/// A server that runs one draw after the other, takes its time for each, and can be stopped: then it
/// runs whatever it was sent when it goes on.
#[derive(Clone, Debug)]
struct Server {
    store: MemoryStore,
    each: Duration,
    goes: watch::Receiver<bool>,
    /// When it has run all that it was sent, in µs since the start.
    busy_until: Arc<AtomicU64>,
    start: Instant,
    draws: Arc<AtomicU64>,
}

impl Server {
    /// Runs so many commands, when it comes to them.
    async fn runs(&self, commands: u32) {
        let mut goes = self.goes.clone();
        let _ = goes.wait_for(|goes| *goes).await;
        let now = self.start.elapsed().as_micros() as u64;
        let takes = (self.each * commands).as_micros() as u64;
        let until = self.busy_until.load(Ordering::Relaxed).max(now) + takes;
        self.busy_until.store(until, Ordering::Relaxed);
        tokio::time::sleep_until(self.start + Duration::from_micros(until)).await;
    }
}

impl QuotaStore for Server {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        let (server, draws) = (self.clone(), draws.to_vec());
        // It runs it even if nobody waits.
        let runs = tokio::spawn(async move {
            server
                .draws
                .fetch_add(draws.len() as u64, Ordering::Relaxed);
            server.runs(draws.len() as u32).await;
            server.store.draw(&draws).await
        });
        Box::pin(async { runs.await.unwrap() })
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        Box::pin(async move {
            self.runs(1).await;
            self.store.beat(alive).await
        })
    }
}

/// What four engines have seen of a load by key.
#[derive(Debug, Default)]
struct Seen {
    passed: AtomicU64,
    waited_us: AtomicU64,
    /// When one of them was not live for the last time, in ms.
    last_away: AtomicU64,
}

/// Four engines, each of whose calls has a key of its own.
struct Engines {
    server: Server,
    switch: watch::Sender<bool>,
    all: Vec<(Sentinel, StoreHandle)>,
    calls: u64,
}

impl Engines {
    async fn new(each_us: u64, wait: u64) -> Self {
        let clock = TokioClock::new();
        let (switch, goes) = watch::channel(true);
        let server = Server {
            store: MemoryStore::with_clock(clock),
            each: Duration::from_micros(each_us),
            goes,
            busy_until: Arc::default(),
            start: Instant::now(),
            draws: Arc::default(),
        };
        let rule = FlowRule::per_second("/v1", 5).by_origin().shared();
        let all = (0..4).map(|_| {
            let settings = StoreSettings::new().nodes(4).store_wait(ms(wait));
            let builder = Sentinel::builder().rules(rule.clone()).clock(clock);
            let sentinel = builder
                .store(server.clone())
                .store_settings(settings)
                .build();
            let handle = sentinel.start_store().unwrap();
            (sentinel, handle)
        });
        let all = all.collect();
        tokio::time::sleep(SECOND).await;
        Self {
            server,
            switch,
            all,
            calls: 0,
        }
    }

    fn draws(&self) -> u64 {
        self.server.draws.load(Ordering::Relaxed)
    }

    /// So many calls a millisecond of each engine, for so long.
    async fn load(&mut self, per_ms: u64, time: Duration) -> Arc<Seen> {
        let seen = Arc::new(Seen::default());
        let since = Instant::now();
        while since.elapsed() < time {
            for (sentinel, _) in &self.all {
                for _ in 0..per_ms {
                    self.calls += 1;
                    let (key, sentinel, seen) = (self.calls, sentinel.clone(), seen.clone());
                    tokio::spawn(async move {
                        let (name, began) = (key.to_string(), Instant::now());
                        let call = Call::new("/v1").origin(name.as_str());
                        let passes = sentinel.enter(call).await.is_ok();
                        seen.passed.fetch_add(passes.into(), Ordering::Relaxed);
                        let waited = began.elapsed().as_micros() as u64;
                        seen.waited_us.fetch_add(waited, Ordering::Relaxed);
                    });
                }
            }
            tokio::time::sleep(ms(1)).await;
            let live = |(it, _): &(Sentinel, _)| it.store().unwrap().state() == StoreState::Live;
            if !self.all.iter().all(live) {
                let at = since.elapsed().as_millis() as u64;
                seen.last_away.store(at, Ordering::Relaxed);
            }
        }
        tokio::time::sleep(ms(300)).await;
        seen
    }

    /// A load that is as it must be: all are live within a second, and in the next one calls wait no
    /// longer than a few trips, each of which is worth a draw.
    async fn assert_well(&mut self, name: &str, most_draws: f64) {
        let (calls, draws) = (self.calls, self.draws());
        let first = self.load(1, SECOND).await;
        assert!(
            first.last_away.load(Ordering::Relaxed) < 1_000,
            "{name}: not live for a second"
        );
        let waited = self.calls;
        let next = self.load(1, SECOND).await;
        assert_eq!(next.last_away.load(Ordering::Relaxed), 0, "{name}");
        let mean = next.waited_us.load(Ordering::Relaxed) / (self.calls - waited);
        assert!(mean <= 3_000, "{name}: calls wait for {mean} us");
        let (calls, draws) = (self.calls - calls, self.draws() - draws);
        let each = draws as f64 / calls as f64;
        assert!(each <= most_draws, "{name}: {each} draws a call");
    }
}

#[tokio::test(start_paused = true)]
async fn a_standstill_ends_when_the_server_goes_on() {
    for wait in [50, 200] {
        for stops in [20, 60, 150, 300, 700] {
            let mut engines = Engines::new(50, wait).await;
            engines.load(1, ms(300)).await;
            engines.switch.send(false).unwrap();
            let switch = engines.switch.clone();
            tokio::spawn(async move {
                tokio::time::sleep(ms(stops)).await;
                switch.send(true).unwrap();
            });
            engines.load(1, ms(stops)).await;
            let name = format!("wait {wait}, stops for {stops} ms");
            engines.assert_well(&name, 1.3).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_the_server_can_bear_keeps_it() {
    for (wait, each_us, per_ms) in [(50, 50, 2), (50, 50, 4), (200, 50, 4), (50, 200, 1)] {
        let mut engines = Engines::new(each_us, wait).await;
        let seen = engines.load(per_ms, SECOND).await;
        let name = format!("wait {wait}, {each_us} us, {per_ms} a ms");
        assert_eq!(seen.last_away.load(Ordering::Relaxed), 0, "{name}");
        assert_eq!(seen.passed.load(Ordering::Relaxed), engines.calls, "{name}");
        let mean = seen.waited_us.load(Ordering::Relaxed) / engines.calls;
        assert!(mean <= 10_000, "{name}: calls wait for {mean} us");
    }
}
#[tokio::test(start_paused = true)]
async fn a_load_that_is_too_much_for_the_server_is_over_when_it_ends() {
    for wait in [50, 200] {
        let mut engines = Engines::new(100, wait).await;
        // Twice as much as it can do.
        let seen = engines.load(5, SECOND).await;
        let last_away = seen.last_away.load(Ordering::Relaxed);
        assert_eq!(last_away, 0, "wait {wait}: it answers beats all the time");
        // Of the calls that were served without it, it is told afterwards.
        engines.assert_well(&format!("wait {wait}"), 2.0).await;
    }
}
