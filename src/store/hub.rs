//! The state that all counters of one engine share: whether the store can be asked, how many
//! processes use it, and which counters the refiller must look at.

use std::fmt;
use std::task::Waker;
use std::time::Duration;

use super::beat::{Agreed, Beat};
use super::digest::{CounterDigest, Digester, RuleDigest};
use super::figures::StoreFigures;
use super::key::is_prefix;
use super::late::{LateCall, LateCalls};
use super::quota::SharedQuota;
use super::settings::StoreSettings;
use super::terms::Nodes;
use super::{NodeId, QuotaStore, StoreErrorKind, StoreKey};
use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Lock, Ordering, Weak, downgrade};
use crate::clock::Tick;
use crate::clock::timekeeper::Timekeeper;

/// At most this many counters are trimmed per beat.
const REST_AT_ONCE: usize = 1_024;
/// They are trimmed in batches of this size. A batch is pinned in its table meanwhile, so it must
/// be smaller than the set of entries that a new key searches.
const HELD_AT_ONCE: usize = 8;
/// How often the watcher is called, at most.
const WATCHES: Duration = Duration::from_secs(1);
/// The rank of a process that has not heard which one it is.
const NO_RANK: u32 = u32::MAX;

/// How long a trip is taken to last before one was made.
const FIRST_TRIP: Duration = Duration::from_millis(1);

/// Whether the store can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum HubMode {
    /// Nothing refills: the store was not started, or was stopped.
    Idle,
    Live,
    Down,
    /// The store answers again, and learns what was admitted without it.
    Recovering,
    /// The store was asked for the first time, and has not answered.
    Starting,
}

/// Looks at the state of the store, for the engine.
type Watcher = std::sync::Arc<dyn Fn() + Send + Sync>;

/// See the [module](self).
pub(crate) struct Hub {
    /// `None`: it is never started, and all counters are served by shares.
    store: Option<std::sync::Arc<dyn QuotaStore>>,
    digester: Digester,
    prefix: std::sync::Arc<str>,
    pub(crate) settings: StoreSettings,
    time: Timekeeper,
    /// The name of the process that has built the engine.
    pub(super) node: NodeId,
    mode: AtomicU32,
    /// When the hub came into this mode, in ns.
    since: AtomicU64,
    /// The number of processes that share the store, as it counts for limits.
    count: AtomicU32,
    /// The processes that were alive at the last beat.
    alive: AtomicU32,
    others: Lock<Agreed>,
    watcher: Lock<(Option<Watcher>, Tick)>,
    /// [`NO_RANK`] until a beat was answered.
    rank: AtomicU32,
    /// How long a trip takes, in ns; 0 before the first one.
    trip_ns: AtomicU64,
    /// How long the slowest of the last ones took, in ns.
    slowest_ns: AtomicU64,
    last_error: Lock<Option<super::StoreError>>,
    /// The last refusal, and when it came.
    last_refusal: Lock<Option<(super::StoreError, Tick)>>,
    /// Counters that the refiller must look at.
    asking: Lock<Vec<Arc<SharedQuota>>>,
    all: Lock<Registered>,
    /// How many counters somebody holds.
    counters: AtomicU64,
    late: LateCalls,
    waker: Lock<Option<Waker>>,
    pub(super) is_started: AtomicBool,
    pub(super) stops: AtomicBool,
    pub(super) figures: StoreFigures,
}

/// All counters that somebody holds.
#[derive(Default)]
struct Registered {
    quotas: Vec<Weak<SharedQuota>>,
    /// With more counters than this, the ones that are gone are removed.
    sweep_at: usize,
    /// The next one that may rest.
    hand: usize,
}

impl HubMode {
    const fn of(number: u32) -> Self {
        match number {
            1 => Self::Live,
            2 => Self::Down,
            3 => Self::Recovering,
            4 => Self::Starting,
            _ => Self::Idle,
        }
    }
}

impl Hub {
    pub(crate) fn new(
        store: Option<std::sync::Arc<dyn QuotaStore>>,
        settings: StoreSettings,
        time: Timekeeper,
    ) -> Self {
        Self {
            digester: Digester::new(settings.secret.as_deref()),
            prefix: prefix_of(store.as_deref()).into(),
            store,
            count: AtomicU32::new(settings.nodes_or_one()),
            alive: AtomicU32::new(0),
            others: Lock::new(Agreed::default()),
            watcher: Lock::new((None, Tick::ZERO)),
            rank: AtomicU32::new(NO_RANK),
            settings,
            time,
            node: NodeId::random(),
            mode: AtomicU32::new(HubMode::Idle as u32),
            since: AtomicU64::new(0),
            trip_ns: AtomicU64::new(0),
            slowest_ns: AtomicU64::new(0),
            last_error: Lock::new(None),
            last_refusal: Lock::new(None),
            asking: Lock::new(Vec::new()),
            all: Lock::new(Registered::default()),
            counters: AtomicU64::new(0),
            late: LateCalls::default(),
            waker: Lock::new(None),
            is_started: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            figures: StoreFigures::default(),
        }
    }

    pub(crate) const fn store(&self) -> Option<&std::sync::Arc<dyn QuotaStore>> {
        self.store.as_ref()
    }

    pub(crate) const fn digester(&self) -> &Digester {
        &self.digester
    }

    /// The key of the counter of this name.
    pub(crate) fn key(&self, [high, low]: CounterDigest) -> StoreKey {
        let digest = u128::from(high) << 64 | u128::from(low);
        StoreKey::new(self.prefix.clone(), digest)
    }

    /// The present. Bounded by the last time that was told, so it does not go back.
    pub(crate) fn now(&self) -> Tick {
        self.time.check(self.time.read(), Tick::ZERO)
    }

    pub(crate) fn mode(&self) -> HubMode {
        HubMode::of(self.mode.load(Ordering::Acquire))
    }

    pub(super) fn set_mode(&self, mode: HubMode, now: Tick) {
        self.mode.store(mode as u32, Ordering::Release);
        self.since.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Since when the hub has been in its mode.
    pub(crate) fn since(&self) -> Tick {
        Tick::from_nanos(self.since.load(Ordering::Relaxed))
    }

    /// Returns whether calls may wait for the store.
    pub(crate) fn is_up(&self) -> bool {
        !matches!(self.mode(), HubMode::Idle | HubMode::Down)
    }

    /// How many processes to reckon with.
    pub(crate) fn nodes(&self) -> Nodes {
        let count = self.count.load(Ordering::Relaxed);
        let rank = self.rank.load(Ordering::Relaxed);
        Nodes {
            count,
            rank: (rank != NO_RANK).then_some(rank),
        }
    }

    /// Takes over how many were alive at a beat, which of them this process is, and how many have
    /// other settings.
    pub(super) fn note_beat(&self, beat: &Beat) {
        self.alive.store(beat.nodes, Ordering::Relaxed);
        let count = beat.nodes.max(self.settings.nodes_or_one());
        self.count.store(count, Ordering::Relaxed);
        self.rank.store(beat.rank.min(count - 1), Ordering::Relaxed);
        *self.others.lock() = beat.others;
    }

    /// The settings on which all processes should agree.
    pub(super) fn agreed(&self) -> Agreed {
        let RuleDigest([_, half]) = self.digester.rule("the secret of all processes");
        Agreed {
            secret: half as u32,
            nodes: self.settings.nodes_or_one(),
        }
    }

    /// How many processes have another secret, and how many another number of processes.
    pub(crate) fn others(&self) -> Agreed {
        *self.others.lock()
    }

    /// Sets the function that the task of the store calls now and then.
    pub(crate) fn watch(&self, watcher: impl Fn() + Send + Sync + 'static) {
        self.watcher.lock().0 = Some(std::sync::Arc::new(watcher));
    }

    /// Does what is to be done now and then.
    pub(super) fn at_a_beat(&self, now: Tick) {
        self.rest_some(now);
        self.notify_watcher(now);
    }

    /// Calls the watcher, if it was not called lately.
    fn notify_watcher(&self, now: Tick) {
        let mut watcher = self.watcher.lock();
        if now < watcher.1 {
            return;
        }
        watcher.1 = now + WATCHES;
        let called = watcher.0.clone();
        drop(watcher);
        if let Some(called) = called {
            called();
        }
    }

    /// Returns whether it was asked, and has never answered a beat.
    pub(crate) fn has_never_answered(&self) -> bool {
        self.nodes().rank.is_none() && self.is_running()
    }

    /// How many were alive at the last beat; 0 before the first one.
    pub(crate) fn alive(&self) -> u32 {
        self.alive.load(Ordering::Relaxed)
    }

    pub(crate) fn trip(&self) -> Duration {
        match self.trip_ns.load(Ordering::Relaxed) {
            0 => FIRST_TRIP,
            ns => Duration::from_nanos(ns),
        }
    }

    /// How long the slowest of the last trips took: the more came after it, the less it counts.
    pub(super) fn slowest_trip(&self) -> Duration {
        Duration::from_nanos(self.slowest_ns.load(Ordering::Relaxed))
    }

    pub(super) fn note_trip(&self, took: Duration) {
        let last = self.trip_ns.load(Ordering::Relaxed);
        let took = crate::clock::nanos(took);
        let mean = match last {
            0 => took,
            last => last - last / 8 + took / 8,
        };
        self.trip_ns.store(mean.max(1), Ordering::Relaxed);
        let slowest = self.slowest_ns.load(Ordering::Relaxed);
        let slowest = took.max(slowest - slowest / 8);
        self.slowest_ns.store(slowest, Ordering::Relaxed);
    }

    pub(super) fn note_error(&self, error: super::StoreError) {
        self.figures.errors[error.kind().index()].add(1);
        if error.kind() == StoreErrorKind::Refused {
            *self.last_refusal.lock() = Some((error.clone(), self.now()));
        }
        *self.last_error.lock() = Some(error);
    }

    pub(crate) fn last_error(&self) -> Option<super::StoreError> {
        self.last_error.lock().clone()
    }

    /// The last error by which the store has refused a request, and when it came.
    pub(crate) fn last_refusal(&self) -> Option<(super::StoreError, Tick)> {
        self.last_refusal.lock().clone()
    }

    /// Returns whether its task runs.
    pub(crate) fn is_running(&self) -> bool {
        self.mode() != HubMode::Idle
    }

    pub(crate) const fn figures(&self) -> &StoreFigures {
        &self.figures
    }

    /// Puts `quota` on the list of the refiller and wakes it, if there is one.
    pub(super) fn look_at(&self, quota: &Arc<SharedQuota>) {
        if !quota.is_listed.swap(true, Ordering::AcqRel) {
            self.asking.lock().push(quota.clone());
            // After that: a refiller that ends says so before it empties the list. Without one
            // nothing else would take the quota from there, and both would keep each other.
            if self.mode() == HubMode::Idle {
                drop(self.take_asking());
            }
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sets the waker that is woken when a counter is on the list.
    pub(super) fn wait(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Returns whether there is a counter to look at.
    pub(super) fn is_asked(&self) -> bool {
        !self.asking.lock().is_empty()
    }

    pub(super) fn take_asking(&self) -> Vec<Arc<SharedQuota>> {
        let asking = std::mem::take(&mut *self.asking.lock());
        for quota in &asking {
            quota.is_listed.store(false, Ordering::Release);
        }
        asking
    }

    /// Keeps `call`, which runs already, until the store has answered its question: then it is
    /// judged.
    pub(crate) fn judge_late(&self, call: Box<dyn LateCall>) {
        // A task that ends says so before it empties the list.
        let is_gone = || self.mode() == HubMode::Idle;
        if let Some(call) = self.late.keep(call, is_gone) {
            call.settle();
        }
    }

    /// The calls that are judged when the store has answered.
    pub(super) const fn late(&self) -> &LateCalls {
        &self.late
    }

    pub(super) fn register(&self, quota: &Arc<SharedQuota>) {
        self.counters.fetch_add(1, Ordering::Relaxed);
        let mut all = self.all.lock();
        if all.quotas.len() >= all.sweep_at {
            all.quotas.retain(|quota| quota.strong_count() > 0);
            // Counters that are gone keep their memory until then.
            all.sweep_at = all.quotas.len() / 4 * 5 + 64;
        }
        all.quotas.push(downgrade(quota));
    }

    /// Trims expired state from the next few counters, round-robin.
    fn rest_some(&self, now: Tick) {
        let mut few = Vec::with_capacity(HELD_AT_ONCE);
        for _ in 0..REST_AT_ONCE / HELD_AT_ONCE {
            let mut all = self.all.lock();
            let is_end = all.give_few(&mut few);
            drop(all);
            few.drain(..).for_each(|quota| quota.rest(now));
            if is_end {
                return;
            }
        }
    }

    /// All counters that somebody holds.
    pub(super) fn all(&self) -> Vec<Arc<SharedQuota>> {
        let all = self.all.lock();
        all.quotas.iter().filter_map(Weak::upgrade).collect()
    }

    /// How many counters somebody holds.
    pub(crate) fn counters(&self) -> usize {
        self.counters.load(Ordering::Relaxed) as usize
    }

    /// Notes that a counter is gone.
    pub(super) fn unregister(&self) {
        self.counters.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Registered {
    /// Gives some of those that come next, and returns whether they were the last.
    fn give_few(&mut self, few: &mut Vec<Arc<SharedQuota>>) -> bool {
        let rest = self.quotas.get(self.hand..).unwrap_or_default();
        let some = &rest[..rest.len().min(HELD_AT_ONCE)];
        few.extend(some.iter().filter_map(Weak::upgrade));
        let is_end = some.len() == rest.len();
        self.hand = if is_end { 0 } else { self.hand + some.len() };
        is_end
    }
}

/// The prefix of the keys of a store.
fn prefix_of(store: Option<&dyn QuotaStore>) -> &str {
    let prefix = store.map(QuotaStore::prefix);
    prefix.filter(|prefix| is_prefix(prefix)).unwrap_or("ts")
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("store", &self.store)
            .field("settings", &self.settings)
            .field("mode", &self.mode())
            .finish_non_exhaustive()
    }
}
