//! A store in the memory of this process, which can be made to fail.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Alive, Beat, Draw, Drawn, Epoch, NodeId, QuotaStore, StoreError, StoreErrorKind, StoreFuture,
    StoreKey,
};
use crate::base::sync::Lock;
use crate::base::timer;
use crate::clock::{Clock, MonotonicClock, Tick};

/// A process whose last beat is older than this is not counted as alive. Four beats are sent in
/// this time.
const ALIVE: Duration = Duration::from_secs(1);
/// The reading of the store's clock when its [`Clock`] reads zero: a realistic UNIX time, like that
/// of a server.
const START: Duration = Duration::from_secs(1_700_000_000);

/// A [`QuotaStore`] in memory, for tests, and for several engines of one program. Clones share one
/// store.
///
/// It behaves like a store on a network, and can be made to fail like one. It keeps the counter of
/// each key for about one window after its last draw.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::{Fault, MemoryStore, StoreErrorKind};
///
/// let store = MemoryStore::new();
/// // From now on nothing gets through, until it is healed.
/// store.set_fault(Some(Fault::Error(StoreErrorKind::Unreachable)));
/// store.set_fault(None);
/// // The next two requests are lost, and the third one is applied twice.
/// store.inject([Fault::LostRequest, Fault::LostRequest, Fault::Twice]);
/// assert_eq!(store.keys(), 0);
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

/// The clock of a store, and the state that its clones share.
struct Inner {
    clock: Box<dyn Clock>,
    state: Lock<MemoryState>,
}

/// The data of a store, its planned faults, and counts of its requests.
#[derive(Debug)]
struct MemoryState {
    data: Data,
    /// The copy that [`save`](MemoryStore::save) has made.
    saved: Data,
    /// When there are more values than this, expired ones are removed.
    sweep_at: usize,
    /// The reading of the store's clock when the [`Clock`] reads zero.
    start: Duration,
    /// The fault of every request while `next` is empty.
    always: Option<Fault>,
    /// The faults of the next requests, in order.
    next: VecDeque<Fault>,
    /// The number of requests with draws that have arrived.
    trips: u64,
    /// The number of draws that have arrived.
    draws: u64,
}

/// The data that is lost when the store is [flushed](MemoryStore::flush).
#[derive(Clone, Debug, Default)]
struct Data {
    values: HashMap<StoreKey, StoredValue>,
    /// The live processes, with the time and content of their last beats.
    nodes: HashMap<NodeId, (Duration, Alive)>,
    /// The epoch of the data; the default before the first beat.
    epoch: Epoch,
    /// The number of beats that were counted.
    beats: u64,
    /// The number of counted beats that announced a reset.
    resets: u64,
}

/// The value of a counter, which is kept until the time `until`.
#[derive(Clone, Debug)]
struct StoredValue {
    bytes: Vec<u8>,
    until: Duration,
}

/// A way in which a request to a [`MemoryStore`] fails.
///
/// A slow request sleeps on tokio's timer. Without a timer, it is not delayed.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::store::{Fault, MemoryStore, StoreErrorKind, StoreState};
/// use tower_sentinel::Sentinel;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let store = MemoryStore::new();
/// store.set_fault(Some(Fault::Error(StoreErrorKind::ReadOnly)));
/// let sentinel = Sentinel::builder().store(store).build();
/// let handle = sentinel.start_store().unwrap();
/// tokio::time::sleep(Duration::from_millis(20)).await;
/// assert_eq!(sentinel.store().unwrap().state(), StoreState::Down);
/// # drop(handle);
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request arrives after this delay. If the future is dropped earlier, it never arrives.
    SlowRequest(Duration),
    /// The request arrives at once, and the answer after this delay.
    SlowAnswer(Duration),
    /// The request never arrives, and no error is returned: the future stays pending.
    LostRequest,
    /// The request arrives, but its answer never does: the future stays pending.
    LostAnswer,
    /// The request arrives twice, and the second answer is returned.
    Twice,
    /// The request does not arrive, and an error of this kind is returned.
    Error(StoreErrorKind),
}

impl MemoryStore {
    /// Creates an empty store on the system's monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(MonotonicClock::new())
    }

    /// Creates an empty store that uses `clock`.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        let state = MemoryState {
            data: Data::default(),
            saved: Data::default(),
            sweep_at: 64,
            start: START,
            always: None,
            next: VecDeque::new(),
            trips: 0,
            draws: 0,
        };
        Self(Arc::new(Inner {
            clock: Box::new(clock),
            state: Lock::new(state),
        }))
    }

    /// Makes every request fail from now on; `None` heals the store. A fault that was
    /// [injected](Self::inject) comes first.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.0.state.lock().always = fault;
    }

    /// Makes the next requests fail, each with one of `faults`, in order.
    pub fn inject(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.state.lock().next.extend(faults);
    }

    /// Deletes all data, like a server that restarts without its data.
    pub fn flush(&self) {
        self.0.state.lock().data = Data::default();
    }

    /// Keeps a copy of all data, like a server that writes a snapshot.
    pub fn save(&self) {
        let mut state = self.0.state.lock();
        state.saved = state.data.clone();
    }

    /// Goes back to the data of the last [`save`](Self::save), or to no data if there was none. A
    /// server does so when it restarts from a snapshot, and a lagging replica when it takes over.
    pub fn restore(&self) {
        let mut state = self.0.state.lock();
        state.data = state.saved.clone();
    }

    /// Sets the clock of the store ahead.
    pub fn step_ahead(&self, by: Duration) {
        self.0.state.lock().start += by;
    }

    /// Sets the clock of the store back, but not before the time at which it started.
    pub fn step_back(&self, by: Duration) {
        let mut state = self.0.state.lock();
        state.start = state.start.saturating_sub(by);
    }

    /// Returns how many counters the store has.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.0.state.lock().data.values.len()
    }

    /// Returns how many requests with draws have arrived.
    #[must_use]
    pub fn trips(&self) -> u64 {
        self.0.state.lock().trips
    }

    /// Returns how many draws have arrived.
    #[must_use]
    pub fn draws(&self) -> u64 {
        self.0.state.lock().draws
    }

    /// Returns the reading of the store's clock.
    fn now(&self) -> Duration {
        let since_zero = self.0.clock.now() - Tick::ZERO;
        self.0.state.lock().start + since_zero
    }

    /// Returns the fault of the next request, and removes it from the injected faults.
    fn next_fault(&self) -> Option<Fault> {
        let mut state = self.0.state.lock();
        state.next.pop_front().or(state.always)
    }

    /// Delivers a request, with the next fault if there is one, and returns the answer.
    async fn request<T>(&self, arrive: impl Fn(&Self) -> T + Send) -> Result<T, StoreError> {
        match self.next_fault() {
            None => Ok(arrive(self)),
            Some(Fault::SlowRequest(delay)) => {
                pass(delay).await;
                Ok(arrive(self))
            }
            Some(Fault::SlowAnswer(delay)) => {
                let answer = arrive(self);
                pass(delay).await;
                Ok(answer)
            }
            Some(Fault::LostRequest) => pending().await,
            Some(Fault::LostAnswer) => {
                let _ = arrive(self);
                pending().await
            }
            Some(Fault::Twice) => {
                let _ = arrive(self);
                Ok(arrive(self))
            }
            Some(Fault::Error(kind)) => Err(StoreError::new(kind, "as it was told to be")),
        }
    }

    fn draw_all(&self, draws: &[Draw]) -> Vec<Result<Drawn, StoreError>> {
        let now = self.now();
        let mut state = self.0.state.lock();
        state.trips += 1;
        state.draws += draws.len() as u64;
        let answers = draws.iter().map(|draw| Ok(state.draw(draw, now)));
        let answers = answers.collect();
        state.sweep(now);
        answers
    }

    /// Counts a beat. Drops processes that are no longer alive.
    fn count(&self, alive: Alive) -> Beat {
        let now = self.now();
        let mut state = self.0.state.lock();
        let data = &mut state.data;
        data.nodes.retain(|_, (seen, _)| *seen + ALIVE >= now);
        if alive.is_leaving {
            data.nodes.remove(&alive.node);
        } else {
            data.nodes.insert(alive.node, (now, alive));
        }
        let others = data.nodes.keys();
        let rank = others.filter(|other| other.0 < alive.node.0).count();
        (data.beats, data.epoch) = alive.count(data.beats, data.epoch, now);
        data.resets += u64::from(alive.tells_reset);
        let settings: Vec<_> = data.nodes.values().map(|(_, it)| it.settings()).collect();
        Beat::new(data.nodes.len() as u32, rank as u32, data.epoch)
            .with_count(data.beats)
            .with_resets(data.resets)
            .with_others(&alive, settings.iter().map(String::as_str))
    }
}

impl MemoryState {
    /// Applies one draw to the value of its key.
    fn draw(&mut self, draw: &Draw, now: Duration) -> Drawn {
        let values = &mut self.data.values;
        let value = values.get(&draw.key).filter(|it| it.until > now);
        let (drawn, new) = draw.apply(value.map_or(&[], |it| &it.bytes), now);
        if let Some(bytes) = new {
            let until = now + draw.lifetime();
            values.insert(draw.key.clone(), StoredValue { bytes, until });
        }
        drawn
    }

    /// Removes expired values, if there are many values.
    fn sweep(&mut self, now: Duration) {
        let values = &mut self.data.values;
        if values.len() > self.sweep_at {
            values.retain(|_, value| value.until > now);
            self.sweep_at = (2 * values.len()).max(64);
        }
    }
}

/// Waits for `delay`, if there is a timer.
async fn pass(delay: Duration) {
    if let Ok(timer) = timer::sleep(delay) {
        let _ = timer.await;
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

impl QuotaStore for MemoryStore {
    fn draw<'a>(&'a self, draws: &'a [Draw]) -> StoreFuture<'a, Vec<Result<Drawn, StoreError>>> {
        Box::pin(self.request(|store| store.draw_all(draws)))
    }

    fn beat(&self, alive: Alive) -> StoreFuture<'_, Beat> {
        Box::pin(self.request(move |store| store.count(alive)))
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn draw(firm: u32) -> Draw {
        Draw {
            key: StoreKey::new("t".into(), 1),
            bucket: Duration::from_secs(1),
            buckets: 1,
            limit: 10,
            firm,
            soft: 0,
            divisor: 1,
            next: false,
            back: None,
            known: Epoch(0),
            add: Vec::new(),
            kept: None,
            wait: Duration::from_secs(1),
        }
    }

    fn says(node: u128, is_leaving: bool, seen: u64) -> Alive {
        Alive {
            is_leaving,
            seen,
            ..Alive::new(NodeId(node), Default::default())
        }
    }

    async fn drawn(store: &MemoryStore, firm: u32) -> Result<u32, StoreErrorKind> {
        let draws = [draw(firm)];
        let answers = store.draw(&draws).await.map_err(|error| error.kind())?;
        match answers[0] {
            Ok(Drawn::Granted { permits, .. }) => Ok(permits),
            _ => panic!("nothing is lost"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_fault_has_its_effect_once() {
        let store = MemoryStore::with_clock(ManualClock::new());
        let late = Duration::from_millis(5);
        let ask = |firm| tokio::time::timeout(late, drawn(&store, firm));
        store.inject([
            Fault::LostRequest,
            Fault::LostAnswer,
            Fault::Error(StoreErrorKind::Full),
            Fault::Twice,
            Fault::SlowRequest(late * 2),
            Fault::SlowAnswer(late * 2),
            Fault::SlowRequest(late / 2),
        ]);
        assert!(ask(1).await.is_err(), "lost");
        assert!(ask(2).await.is_err(), "2 of 10 are gone");
        assert_eq!(ask(1).await.unwrap(), Err(StoreErrorKind::Full));
        assert_eq!(ask(1).await.unwrap(), Ok(1), "and one more");
        assert!(ask(1).await.is_err(), "it was given up before it arrived");
        assert!(ask(1).await.is_err(), "it was given up after that");
        assert_eq!(ask(9).await.unwrap(), Ok(5));
        assert_eq!((store.trips(), store.keys()), (5, 1));
    }

    #[tokio::test]
    async fn a_flushed_store_has_another_epoch_and_no_counts() {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let before = store.beat(says(2, false, 0)).await.unwrap();
        assert_eq!((before.nodes, before.rank), (1, 0));
        let beat = store.beat(says(1, false, 0)).await.unwrap();
        assert_eq!((beat.nodes, beat.rank, beat.epoch), (2, 0, before.epoch));
        let last = store.beat(says(2, false, beat.count)).await.unwrap();
        assert_eq!((last.rank, last.epoch), (1, before.epoch));
        assert_eq!(drawn(&store, 10).await, Ok(10));
        assert_eq!(drawn(&store, 1).await, Ok(0));
        clock.advance(Duration::from_micros(1));
        store.flush();
        assert_eq!(drawn(&store, 1).await, Ok(1));
        let after = store.beat(says(2, false, last.count)).await.unwrap();
        assert_eq!(after.nodes, 1);
        assert_ne!(after.epoch, before.epoch);
        assert_eq!(store.beat(says(2, true, 0)).await.unwrap().nodes, 0);
    }

    #[tokio::test]
    async fn a_restored_store_has_its_old_counts_and_another_epoch() {
        let store = MemoryStore::with_clock(ManualClock::new());
        let before = store.beat(says(1, false, 0)).await.unwrap();
        assert_eq!(drawn(&store, 3).await, Ok(3));
        store.save();
        let last = store.beat(says(1, false, before.count)).await.unwrap();
        assert_eq!(last.epoch, before.epoch);
        assert_eq!(drawn(&store, 5).await, Ok(5));
        store.restore();
        assert_eq!(drawn(&store, 9).await, Ok(7));
        // A process whose last beat is in the snapshot notices nothing. The process with a later
        // beat begins a new epoch for all.
        let other = store.beat(says(2, false, 0)).await.unwrap();
        assert_eq!(other.epoch, before.epoch);
        let after = store.beat(says(1, false, last.count + 1)).await.unwrap();
        assert_ne!(after.epoch, before.epoch);
        let other = store.beat(says(2, false, other.count)).await.unwrap();
        assert_eq!(other.epoch, after.epoch);
    }

    #[tokio::test]
    async fn unused_counters_and_processes_are_dropped() {
        let clock = ManualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        for digest in 0..1_000 {
            let key = StoreKey::new("t".into(), digest);
            let draws = [Draw { key, ..draw(1) }];
            store.draw(&draws).await.unwrap()[0].clone().unwrap();
        }
        store.beat(says(1, false, 0)).await.unwrap();
        assert_eq!(store.keys(), 1_000);
        clock.advance(Duration::from_secs(3));
        assert_eq!(store.beat(says(2, false, 0)).await.unwrap().nodes, 1);
        let keys = (0..1_000).map(|digest| StoreKey::new("u".into(), digest));
        for key in keys {
            let draws = [Draw { key, ..draw(1) }];
            store.draw(&draws).await.unwrap()[0].clone().unwrap();
        }
        assert!(store.keys() <= 1_025, "{}", store.keys());
    }
}
