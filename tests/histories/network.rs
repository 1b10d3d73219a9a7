//! The network between engines and their store: it delays, loses and repeats requests, cuts
//! engines off, and keeps a record of what the store counts.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tower_sentinel::Clock;
use tower_sentinel::clock::Tick;
use tower_sentinel::store::{
    Alive, Beat, Draw, Drawn, MemoryStore, QuotaStore, StoreError, StoreErrorKind, StoreFuture,
};

use crate::draws::Draws;
use crate::support::Rng;

/// What the clock of a [`MemoryStore`] reads at first; a whole number of all buckets here.
const START_NS: u128 = 1_700_000_000_000_000_000;

/// A clock of one process over tokio's: it has an offset, and runs a little fast or slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skewed {
    pub(crate) start: tokio::time::Instant,
    pub(crate) offset: Duration,
    /// So many millionths are added.
    pub(crate) ppm: u64,
}

impl Clock for Skewed {
    fn now(&self) -> Tick {
        let now = tokio::time::Instant::now().saturating_duration_since(self.start);
        let ns = now.as_nanos() as u64;
        Tick::ZERO + self.offset + Duration::from_nanos(ns + ns / 1_000_000 * self.ppm)
    }
}

/// What the network does to requests, set by the history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    /// Each way takes at most so long.
    pub(crate) delay_ms: usize,
    /// One request in so many is lost, late or applied twice; none if 0.
    pub(crate) bad_one_in: usize,
    /// Whether a request may be applied twice.
    pub(crate) repeats: bool,
    /// Which processes reach nothing.
    pub(crate) cut: Vec<bool>,
    /// Whether these hear nothing at all, or an error.
    pub(crate) is_silent: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Network {
    store: MemoryStore,
    clock: Skewed,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    weather: Weather,
    /// By so much the store's clock was set ahead, less by how much it was set back.
    steps_ms: i64,
    /// How often it was set.
    era: u64,
    /// The latest that it has read before it was set.
    latest_ns: u128,
    /// By era, bucket and key: the permits that were drawn or told of, less those given back.
    counted: BTreeMap<(u64, u64, String), u32>,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    ArrivesTwice,
    /// It arrives when nobody waits for it any more.
    ArrivesLate,
    RequestLost,
    AnswerLost,
    Refused,
}

/// The way of one process to the store.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) network: Arc<Network>,
    pub(crate) process: usize,
    draws: Arc<Mutex<Draws>>,
}

impl Network {
    pub(crate) fn new(rng: Rng, clock: Skewed, weather: Weather) -> Self {
        let state = State {
            rng,
            weather,
            steps_ms: 0,
            era: 0,
            latest_ns: 0,
            counted: BTreeMap::new(),
        };
        Self {
            store: MemoryStore::with_clock(clock),
            clock,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.state().weather);
    }

    pub(crate) fn flush(&self) {
        self.store.flush();
        self.state().counted.clear();
    }

    /// Sets the clock of the store ahead, or back if `ms` is negative.
    pub(crate) fn step(&self, ms: i64) {
        let by = Duration::from_millis(ms.unsigned_abs());
        let latest = self.now_ns();
        if ms < 0 {
            self.store.step_back(by);
        } else {
            self.store.step_ahead(by);
        }
        let mut state = self.state();
        state.steps_ms += ms;
        state.era += 1;
        state.latest_ns = state.latest_ns.max(latest);
    }

    /// How often the clock of the store was set: after that, buckets may have the numbers of
    /// earlier ones.
    pub(crate) fn era(&self) -> u64 {
        self.state().era
    }

    /// What the clock of the store reads.
    fn now_ns(&self) -> u128 {
        let steps = i128::from(self.state().steps_ms) * 1_000_000;
        let now = START_NS + (self.clock.now() - Tick::ZERO).as_nanos();
        (now as i128 + steps) as u128
    }

    /// The last bucket that there was before its clock was set.
    pub(crate) fn last_bucket(&self, length: Duration) -> u64 {
        (self.state().latest_ns / length.as_nanos()) as u64
    }

    /// The number of the present bucket by the store's clock, and how long it lasts.
    pub(crate) fn bucket(&self, length: Duration) -> (u64, Duration) {
        let now = self.now_ns();
        let left = length.as_nanos() - now % length.as_nanos();
        let number = (now / length.as_nanos()) as u64;
        (number, Duration::from_nanos(left as u64))
    }

    /// What the store has counted from the bucket `first` on, by its present clock.
    pub(crate) fn counted_since(&self, first: u64) -> u32 {
        let state = self.state();
        let from = (state.era, first, String::new());
        state
            .counted
            .range(from..)
            .map(|(_, counted)| counted)
            .sum()
    }

    fn fate(&self, process: usize) -> (Fate, Duration, Duration) {
        let state = &mut *self.state();
        let weather = &state.weather;
        let mut delay = || Duration::from_millis(state.rng.below(weather.delay_ms + 1) as u64);
        let (there, back) = (delay(), delay());
        let fate = if weather.cut[process] {
            if weather.is_silent {
                Fate::RequestLost
            } else {
                Fate::Refused
            }
        } else if weather.bad_one_in > 0 && state.rng.one_in(weather.bad_one_in) {
            let fates = [
                Fate::RequestLost,
                Fate::AnswerLost,
                Fate::ArrivesLate,
                Fate::Refused,
                Fate::ArrivesTwice,
            ];
            fates[state.rng.below(fates.len() - usize::from(!weather.repeats))]
        } else {
            Fate::Arrives
        };
        (fate, there, back)
    }

    /// Whether `process` was cut off while its request was on its way.
    fn is_cut(&self, process: usize) -> bool {
        self.state().weather.cut[process]
    }

    async fn apply(&self, draws: &[Draw]) -> Result<Vec<Result<Drawn, StoreError>>, StoreError> {
        let answers = self.store.draw(draws).await?;
        let mut state = self.state();
        let era = state.era;
        for (draw, answer) in draws.iter().zip(&answers) {
            let &Ok(Drawn::Granted {
                permits, bucket, ..
            }) = answer
            else {
                continue;
            };
            let arguments = draw.arguments();
            let first = (bucket + 1).saturating_sub(arguments[1]);
            let mut count = |of: u64, change: &dyn Fn(u32) -> u32| {
                // The store has no others.
                if (first..=bucket + 1).contains(&of) {
                    let key = (era, of, draw.key());
                    let counted = state.counted.entry(key).or_default();
                    *counted = change(*counted);
                }
            };
            count(arguments[7], &|counted| {
                counted.saturating_sub(arguments[8] as u32)
            });
            for told in arguments[10..].chunks(2) {
                count(told[0], &|counted| counted + told[1] as u32);
            }
            count(bucket + arguments[6], &|counted| counted + permits);
        }
        drop(state);
        Ok(answers)
    }
}

impl Link {
    pub(crate) fn new(network: Arc<Network>, process: usize) -> Self {
        Self {
            network,
            process,
            draws: Arc::default(),
        }
    }

    /// Changes what is known of the draws of this process.
    pub(crate) fn note<T>(&self, note: impl FnOnce(&mut Draws) -> T) -> T {
        note(&mut self.draws.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets a request set off. Returns once it has arrived, with what becomes of it then.
    async fn travel(&self, given_up: impl FnOnce() + Send) -> Result<(Fate, Duration), StoreError> {
        let (fate, there, back) = self.network.fate(self.process);
        if fate == Fate::Refused {
            return Err(StoreError::new(StoreErrorKind::Unreachable, "cut off"));
        }
        if fate == Fate::ArrivesLate {
            given_up();
            return pending().await;
        }
        pass(there).await;
        if fate == Fate::RequestLost || self.network.is_cut(self.process) {
            return pending().await;
        }
        Ok((fate, back))
    }
}

impl QuotaStore for Link {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        Box::pin(async move {
            let network = &self.network;
            let late = || {
                let (network, draws) = (network.clone(), draws.to_vec());
                tokio::spawn(async move {
                    pass(Duration::from_millis(80)).await;
                    let _ = network.apply(&draws).await;
                });
            };
            let sent = tokio::time::Instant::now();
            self.note(|it| it.sends(draws));
            let (fate, back) = self.travel(late).await?;
            let mut answers = network.apply(draws).await?;
            // No client may send again what gives permits back.
            if fate == Fate::ArrivesTwice && draws.iter().all(|draw| draw.arguments()[8] == 0) {
                answers = network.apply(draws).await?;
            }
            if fate == Fate::AnswerLost {
                return pending().await;
            }
            pass(back).await;
            self.note(|it| it.hears(draws, &answers, sent));
            Ok(answers)
        })
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        Box::pin(async move {
            let (fate, back) = self.travel(|| {}).await?;
            let answer = self.network.store.beat(alive).await?;
            if fate == Fate::AnswerLost {
                return pending().await;
            }
            pass(back).await;
            Ok(answer)
        })
    }
}

async fn pass(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}
