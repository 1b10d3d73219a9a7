//! The state that all counters of one engine share: whether the store can be asked, how many
//! processes use it, and which counters the refiller must check.

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
use super::terms::{Nodes, Window};
use super::{NodeId, QuotaStore, StoreErrorKind, StoreKey};
use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Lock, Ordering, Weak, downgrade};
use crate::clock::Tick;
use crate::clock::timekeeper::Timekeeper;

/// The maximum number of counters that are trimmed per beat, so that a beat stays short.
const TRIMMED_PER_BEAT: usize = 1_024;
/// The number of counters that are trimmed in one batch. A table cannot evict the counters of a
/// batch while it runs, so a batch must be smaller than the set of entries in which a new key is
/// placed.
const TRIM_BATCH: usize = 8;
/// The minimum time between two calls of the watcher, as findings need not be reported with each
/// beat.
const WATCHES: Duration = Duration::from_secs(1);
/// The value of `rank` until a beat was answered.
const NO_RANK: u32 = u32::MAX;

/// The assumed duration of a trip until the first one was measured.
const FIRST_TRIP: Duration = Duration::from_millis(1);

/// Whether the store can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum HubMode {
    /// No task refills: the store was not started, or was stopped.
    Idle,
    /// The store answers.
    Live,
    /// The store does not answer, and calls are decided without it.
    Down,
    /// The store answers again. All processes now report the permits that they took without it, and
    /// draw no more than their share.
    Recovering,
    /// The task has sent its first request and has no answer yet.
    Starting,
}

/// A function of the engine that checks the state of the store after beats, to report findings.
type Watcher = std::sync::Arc<dyn Fn() + Send + Sync>;

/// See the [module](self).
pub(crate) struct Hub {
    /// The store. Without one, no task is ever started, and all counters are served from local
    /// shares.
    store: Option<std::sync::Arc<dyn QuotaStore>>,
    /// Derives the names of counters.
    digester: Digester,
    /// The prefix of the keys of counters in the store.
    prefix: std::sync::Arc<str>,
    pub(crate) settings: StoreSettings,
    time: Timekeeper,
    /// The name of the process that has built the engine.
    pub(super) node: NodeId,
    /// The [`HubMode`] as a number.
    mode: AtomicU32,
    /// When `mode` was last set, in ns.
    since: AtomicU64,
    /// The number of processes among which limits are divided: the live ones, or the configured
    /// number if that is higher.
    count: AtomicU32,
    /// The number of processes that were alive at the last beat.
    alive: AtomicU32,
    /// For each setting, the number of live processes with another value than this process.
    others: Lock<Agreed>,
    /// The watcher, and the earliest time of its next call.
    watcher: Lock<(Option<Watcher>, Tick)>,
    /// The position of this process among the live ones; [`NO_RANK`] until a beat was answered.
    rank: AtomicU32,
    /// The moving average of the duration of trips, in ns; 0 before the first trip.
    trip_ns: AtomicU64,
    /// The decaying maximum of the duration of trips, in ns.
    slowest_ns: AtomicU64,
    /// The last error of any kind.
    last_error: Lock<Option<super::StoreError>>,
    /// The last error of kind `Refused`, and when it came.
    last_refusal: Lock<Option<(super::StoreError, Tick)>>,
    /// The counters that the refiller must check.
    asking: Lock<Vec<Arc<SharedQuota>>>,
    /// All counters, for beats and reports.
    all: Lock<Registered>,
    /// The number of counters that exist.
    counters: AtomicU64,
    /// Admitted calls that rules in shadow mode judge once the store has answered.
    late: LateCalls,
    /// One nanosecond after the last time at which a reset became known; 0 before the first reset.
    pub(super) reset_before: AtomicU64,
    /// Wakes the refiller.
    waker: Lock<Option<Waker>>,
    /// Whether the refiller runs, so that no second one is started.
    pub(super) is_started: AtomicBool,
    /// Whether the refiller is asked to end.
    pub(super) stops: AtomicBool,
    pub(super) figures: StoreFigures,
}

/// The list of all counters of an engine.
#[derive(Default)]
struct Registered {
    /// The counters in the order of their creation, including some that were dropped since.
    quotas: Vec<Weak<SharedQuota>>,
    /// When the list reaches this length, dropped counters are removed from it.
    sweep_at: usize,
    /// The position in `quotas` at which the next trimming begins.
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
            reset_before: AtomicU64::new(0),
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

    /// Returns the key in the store of the counter with this name.
    pub(crate) fn key(&self, [high, low]: CounterDigest) -> StoreKey {
        let digest = u128::from(high) << 64 | u128::from(low);
        StoreKey::new(self.prefix.clone(), digest)
    }

    /// Returns the key of the counter of this name for the bucket `number` of its `window`.
    pub(super) fn key_in(&self, digest: CounterDigest, window: Window, number: u64) -> StoreKey {
        self.key(match window.calendar {
            Some(_) => self.digester.period(digest, number),
            None => digest,
        })
    }

    /// Returns the present time.
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

    /// Returns the time since which the hub has been in its mode.
    pub(crate) fn since(&self) -> Tick {
        Tick::from_nanos(self.since.load(Ordering::Relaxed))
    }

    /// Returns whether calls can wait for the store.
    pub(crate) fn is_up(&self) -> bool {
        !matches!(self.mode(), HubMode::Idle | HubMode::Down)
    }

    /// Returns the number of processes among which limits are divided, and the rank of this one.
    pub(crate) fn nodes(&self) -> Nodes {
        let count = self.count.load(Ordering::Relaxed);
        let rank = self.rank.load(Ordering::Relaxed);
        Nodes {
            count,
            rank: (rank != NO_RANK).then_some(rank),
        }
    }

    /// Stores the answer to a beat: the number of live processes, the rank of this process, and how
    /// many processes have other settings.
    pub(super) fn note_beat(&self, beat: &Beat) {
        self.alive.store(beat.nodes, Ordering::Relaxed);
        let count = beat.nodes.max(self.settings.nodes_or_one());
        self.count.store(count, Ordering::Relaxed);
        self.rank.store(beat.rank.min(count - 1), Ordering::Relaxed);
        *self.others.lock() = beat.others;
    }

    /// Returns this process's values of the settings that must be equal in all processes.
    pub(super) fn agreed(&self) -> Agreed {
        let RuleDigest([_, half]) = self.digester.rule("the secret of all processes");
        Agreed {
            secret: half as u32,
            nodes: self.settings.nodes_or_one(),
        }
    }

    /// Returns how many processes have another secret, and how many are configured with another
    /// number of processes.
    pub(crate) fn others(&self) -> Agreed {
        *self.others.lock()
    }

    /// Sets the function that the store's task calls after beats, at most once a second.
    pub(crate) fn watch(&self, watcher: impl Fn() + Send + Sync + 'static) {
        self.watcher.lock().0 = Some(std::sync::Arc::new(watcher));
    }

    /// Does the periodic work of a beat: trims counters, and calls the watcher.
    pub(super) fn do_periodic_work(&self, now: Tick) {
        self.trim_some(now);
        self.notify_watcher(now);
    }

    /// Calls the watcher, unless it was called less than [`WATCHES`] ago.
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

    /// Returns whether the task runs, but no beat was ever answered.
    pub(crate) fn has_never_answered(&self) -> bool {
        self.nodes().rank.is_none() && self.is_running()
    }

    /// Returns how many processes were alive at the last beat; 0 before the first one.
    pub(crate) fn alive(&self) -> u32 {
        self.alive.load(Ordering::Relaxed)
    }

    /// Returns the moving average of the duration of trips.
    pub(crate) fn trip(&self) -> Duration {
        match self.trip_ns.load(Ordering::Relaxed) {
            0 => FIRST_TRIP,
            ns => Duration::from_nanos(ns),
        }
    }

    /// Returns the decaying maximum of the duration of trips.
    pub(super) fn slowest_trip(&self) -> Duration {
        Duration::from_nanos(self.slowest_ns.load(Ordering::Relaxed))
    }

    /// Notes the duration of a trip.
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

    /// Counts an error, and keeps it as the last error.
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

    /// Returns the last error with which the store refused a request, and its time.
    pub(crate) fn last_refusal(&self) -> Option<(super::StoreError, Tick)> {
        self.last_refusal.lock().clone()
    }

    /// Returns whether the store's task runs.
    pub(crate) fn is_running(&self) -> bool {
        self.mode() != HubMode::Idle
    }

    pub(crate) const fn figures(&self) -> &StoreFigures {
        &self.figures
    }

    /// Puts `quota` on the list of the refiller and wakes the refiller, if there is one.
    pub(super) fn look_at(&self, quota: &Arc<SharedQuota>) {
        if !quota.is_listed.swap(true, Ordering::AcqRel) {
            self.asking.lock().push(quota.clone());
            // The mode is read after the push, because a refiller that ends sets the mode before it
            // empties the list. Without a refiller, nothing else would remove the quota from the
            // list, and the hub and the quota would keep each other alive.
            if self.mode() == HubMode::Idle {
                drop(self.take_asking());
            }
            self.wake();
        }
    }

    /// Wakes the refiller.
    pub(super) fn wake(&self) {
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sets the waker that is woken when a counter is put on the list.
    pub(super) fn wait(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Returns whether any counter is on the list of the refiller.
    pub(super) fn is_asked(&self) -> bool {
        !self.asking.lock().is_empty()
    }

    /// Empties the list of the refiller, and returns its counters.
    pub(super) fn take_asking(&self) -> Vec<Arc<SharedQuota>> {
        let asking = std::mem::take(&mut *self.asking.lock());
        for quota in &asking {
            quota.is_listed.store(false, Ordering::Release);
        }
        asking
    }

    /// Keeps a `call` that was already admitted. It is judged once the store has answered its draw.
    pub(crate) fn judge_late(&self, call: Box<dyn LateCall>) {
        // A task that ends sets the mode before it empties the list.
        let is_gone = || self.mode() == HubMode::Idle;
        if let Some(call) = self.late.keep(call, is_gone) {
            call.settle();
        }
    }

    /// Returns the calls that are judged once the store has answered.
    pub(super) const fn late(&self) -> &LateCalls {
        &self.late
    }

    /// Adds a new counter to the list of all counters.
    pub(super) fn register(&self, quota: &Arc<SharedQuota>) {
        self.counters.fetch_add(1, Ordering::Relaxed);
        let mut all = self.all.lock();
        if all.quotas.len() >= all.sweep_at {
            all.quotas.retain(|quota| quota.strong_count() > 0);
            // Dropped counters keep their memory until they are removed from here, so the list is
            // swept when it has grown by a quarter.
            all.sweep_at = all.quotas.len() / 4 * 5 + 64;
        }
        all.quotas.push(downgrade(quota));
    }

    /// Trims expired state from the next few counters, round-robin.
    fn trim_some(&self, now: Tick) {
        let mut few = Vec::with_capacity(TRIM_BATCH);
        for _ in 0..TRIMMED_PER_BEAT / TRIM_BATCH {
            let mut all = self.all.lock();
            let is_end = all.give_few(&mut few);
            drop(all);
            few.drain(..).for_each(|quota| quota.rest(now));
            if is_end {
                return;
            }
        }
    }

    /// Returns all counters that are still in use.
    pub(super) fn all(&self) -> Vec<Arc<SharedQuota>> {
        let all = self.all.lock();
        all.quotas.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns how many counters exist.
    pub(crate) fn counters(&self) -> usize {
        self.counters.load(Ordering::Relaxed) as usize
    }

    /// Notes that a counter was dropped.
    pub(super) fn unregister(&self) {
        self.counters.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Registered {
    /// Adds the next counters to `few`, at most [`TRIM_BATCH`], and returns whether the end of
    /// the list was reached.
    fn give_few(&mut self, few: &mut Vec<Arc<SharedQuota>>) -> bool {
        let rest = self.quotas.get(self.hand..).unwrap_or_default();
        let some = &rest[..rest.len().min(TRIM_BATCH)];
        few.extend(some.iter().filter_map(Weak::upgrade));
        let is_end = some.len() == rest.len();
        self.hand = if is_end { 0 } else { self.hand + some.len() };
        is_end
    }
}

/// Returns the prefix of the keys of `store`, or the default if the store has no valid prefix.
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
