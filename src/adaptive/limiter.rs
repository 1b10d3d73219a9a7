//! The adaptive limit as the engine uses it: it returns a bound for each class, and learns from
//! calls that end.
//!
//! The limiter does not admit calls: a call that takes a slot compares the calls in flight with
//! [`Limiter::bound`] in one atomic step.
//!
//! Two windows are open at any time: a window of samples, from which the
//! [estimate](super::estimate) learns, and a window of bounds, after which the
//! [strictness](super::bounds) changes. A call that ends and finds a window due tries to lock the
//! learned state. If another thread holds the lock, the call continues without it. So there is at
//! most one closer, and no call waits for it. If its thread is suspended, the windows only grow
//! longer. The closer decides by the terms under the lock. So a call that was suspended before it
//! took the lock closes only a window that is due by then.

use std::time::Duration;

use super::bounds::{BoundsObserved, CLASSES};
use super::estimate::{LimitEstimate, LimiterSettings, WindowContext};
use super::learned::Learned;
use super::shed::Shed;
use super::window::{SampleWindow, WindowSpan};
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Lock, Ordering};
use crate::call::Importance;
use crate::clock::{Tick, nanos};
use crate::stat::{Ends, Outcome};

/// The minimum retry time of excess calls.
const SHORTEST_RETRY: Duration = Duration::from_secs(2);
/// The number of different retry times, one second apart, which are returned in turn so that calls
/// do not come back together.
const RETRIES: u32 = 4;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Limiter {
    settings: LimiterSettings,
    shed: Shed,
    pub(super) window: SampleWindow,
    /// When the window of bounds is due.
    turn: WindowSpan,
    /// The estimated limit, for readers; the bits of a float.
    limit: AtomicU64,
    /// The long response time in ns; the bits of a float.
    long: AtomicU64,
    /// The response time in ns to which longer ones are cut, so that outliers do not dominate a
    /// mean.
    longest: AtomicU64,
    pub(super) learned: Lock<Learned>,
    /// The weights of the admitted calls of each class.
    admitted: [AtomicU64; CLASSES],
    /// The weights of the refused calls of each class.
    refused: [AtomicU64; CLASSES],
    /// 1 once calls were refused only because of the ceiling, while the service was not slow;
    /// otherwise 0.
    at_ceiling: AtomicU32,
    /// The counter that selects the next retry time.
    turns: AtomicU32,
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallEnd {
    pub(crate) now: Tick,
    pub(crate) rt: Duration,
    pub(crate) outcome: Option<Outcome>,
}

// === impl Limiter ===

impl Limiter {
    pub(crate) fn new(settings: LimiterSettings, now: Tick) -> Self {
        let learned = Learned::new(LimitEstimate::new(&settings, now), now);
        let limiter = Self {
            settings,
            shed: Shed::new(),
            window: SampleWindow::new(&learned.terms),
            turn: WindowSpan::default(),
            limit: AtomicU64::new(0),
            long: AtomicU64::new(0),
            longest: AtomicU64::new(u64::MAX),
            learned: Lock::new(learned),
            admitted: Default::default(),
            refused: Default::default(),
            at_ceiling: AtomicU32::new(0),
            turns: AtomicU32::new(0),
        };
        limiter.begin(&limiter.learned.lock());
        limiter
    }

    /// Returns the bound for a call of this importance: the call is admitted while fewer calls are
    /// in flight. The bound is never above the ceiling. Costs two relaxed loads, one more for a
    /// call with a cohort, and an atomic operation for the first call of a class in a window.
    #[inline]
    pub(crate) fn bound(&self, importance: Importance) -> u32 {
        self.shed.bound(importance, &self.settings)
    }

    /// Returns the bounds of all classes, for readers.
    pub(crate) fn bounds(&self) -> [u32; CLASSES] {
        self.shed.bounds()
    }

    /// Returns the number of classes that are shut, counted from the least important one up.
    pub(crate) fn shut(&self) -> u8 {
        self.shed.strictness().shut
    }

    /// Notes that a call of this importance is refused. For a call of an excess class, returns the
    /// time after which the client should retry. The times differ so that not all calls come back
    /// together; calls of one cohort get the same time.
    pub(crate) fn refused(
        &self,
        importance: Importance,
        in_flight: impl Fn() -> u32,
    ) -> Option<Duration> {
        let class = importance.class();
        self.shed.refuse(class, in_flight, &self.settings);
        let is_excess = class > self.shed.strictness().marginal();
        is_excess.then(|| {
            let turn = match importance.cohort() {
                Some(cohort) => cohort.number().into(),
                None => self.turns.fetch_add(1, Ordering::Relaxed),
            };
            SHORTEST_RETRY + Duration::from_secs((turn % RETRIES).into())
        })
    }

    /// Counts an admitted call of this class.
    #[inline]
    pub(crate) fn count_admitted(&self, class: usize, weight: u32) {
        self.admitted[class].fetch_add(weight.into(), Ordering::Relaxed);
    }

    /// Counts a refused call of this class.
    pub(crate) fn count_refused(&self, class: usize, weight: u32) {
        self.refused[class].fetch_add(weight.into(), Ordering::Relaxed);
    }

    /// Returns the weights of the admitted and the refused calls of each class.
    pub(crate) fn counts(&self) -> [(u64, u64); CLASSES] {
        std::array::from_fn(|class| {
            let count = |of: &[AtomicU64; CLASSES]| of[class].load(Ordering::Relaxed);
            (count(&self.admitted), count(&self.refused))
        })
    }

    /// Returns whether calls were ever refused at the ceiling although response times showed no
    /// queue.
    pub(crate) fn was_at_ceiling(&self) -> bool {
        self.at_ceiling.load(Ordering::Relaxed) != 0
    }

    /// Returns the estimated limit, which a probe does not change.
    pub(crate) fn estimate(&self) -> f64 {
        f64::from_bits(self.limit.load(Ordering::Relaxed))
    }

    /// Learns from a call that has ended. `in_flight` returns the calls in flight including this
    /// call, whose slot is released afterwards. (They are counted at the end of a call and not at
    /// its start, as the engine then has the number at no cost, and the maximum of a window is the
    /// same.) `all` returns the total number of calls that have ended, with or without this one.
    ///
    /// A success always counts. A failed or cancelled call counts only if it took longer than the
    /// long response time: a response would have taken at least as long. A quick failure shows
    /// nothing about the duration of the work.
    ///
    /// Costs a few relaxed loads and one atomic addition. Nothing allocates or waits.
    #[inline]
    pub(crate) fn ended(&self, call: CallEnd, in_flight: impl Fn() -> u32, all: impl Fn() -> Ends) {
        let running = in_flight().max(1);
        let long = f64::from_bits(self.long.load(Ordering::Relaxed));
        let rt_ns = call.rt.as_nanos() as f64;
        let is_known = long > 0.0 && rt_ns > long;
        if call.outcome == Some(Outcome::Success) || is_known {
            let longest = Duration::from_nanos(self.longest.load(Ordering::Relaxed));
            self.window.add(call.now, call.rt.min(longest), running);
        }
        self.shed.ended(running - 1);
        if self.window.is_due(call.now) || self.turn.is_over(call.now) {
            self.close(call.now, &in_flight, &all);
        }
    }

    /// Closes the windows that are due, unless another thread is already closing them.
    #[cold]
    fn close(&self, now: Tick, in_flight: &dyn Fn() -> u32, all: &dyn Fn() -> Ends) {
        let Some(mut learned) = self.learned.try_lock() else {
            return;
        };
        let learned = &mut *learned;
        // Counted under the lock, so that the number belongs to this window and not to a later one.
        let in_flight = in_flight().max(1);
        let has_learned = self.close_samples(learned, now, in_flight);
        let has_shown = self.close_bounds(learned, now, in_flight - 1, all);
        if has_learned || has_shown {
            self.show(learned);
        }
        if has_learned && !has_shown {
            self.shed.renew();
        }
        if has_learned || has_shown {
            self.shed.publish(&self.settings);
        }
    }

    /// Closes the window of samples if it is due. Returns whether it was closed.
    fn close_samples(&self, learned: &mut Learned, now: Tick, in_flight: u32) -> bool {
        let Some(samples) = self.window.close(&learned.terms, now, in_flight) else {
            return false;
        };
        let (was_refused, began_to_shed) = self.shed.take_flags();
        let observed = WindowContext {
            in_flight,
            is_shut: self.shut() > 0,
            was_refused,
            began_to_shed,
        };
        learned.terms = learned
            .estimate
            .close(&self.settings, now, observed, &samples);
        if learned.estimate.is_probing() {
            // The limit in force can be a quarter lower from now on.
            learned.drain = in_flight;
        }
        self.window.open(&learned.terms);
        true
    }

    /// Closes the window of bounds if it is due. Returns whether it was closed with a known number
    /// of ended calls.
    fn close_bounds(
        &self,
        learned: &mut Learned,
        now: Tick,
        in_flight: u32,
        all: &dyn Fn() -> Ends,
    ) -> bool {
        let Some(ended) = learned.ended(now, all) else {
            self.turn.set(learned.opened, learned.turn());
            return false;
        };
        let strictness = self.shed.strictness();
        let gathered = self.shed.gather();
        let shown = BoundsObserved {
            ended: ended.calls,
            refused: gathered.refused(strictness),
            emptied: learned.is_emptied(gathered.lowest),
        };
        learned.close_bounds(&self.settings, &shown, ended.length, in_flight);
        learned.note(gathered.seen);
        self.shed
            .relax(strictness, shown, &learned.frame(), &self.settings);
        self.turn.set(now, learned.turn());
        true
    }

    /// Publishes the learned values for calls and readers.
    fn show(&self, learned: &Learned) {
        let estimate = &learned.estimate;
        self.limit
            .store(estimate.limit.to_bits(), Ordering::Relaxed);
        self.long.store(estimate.long.to_bits(), Ordering::Relaxed);
        let longest = nanos(estimate.longest());
        self.longest.store(longest, Ordering::Relaxed);
        if estimate.is_at_ceiling {
            self.at_ceiling.store(1, Ordering::Relaxed);
        }
        self.shed.set_frame(&learned.frame());
    }

    /// Publishes the state with which a limiter starts.
    fn begin(&self, learned: &Learned) {
        self.show(learned);
        self.window.open(&learned.terms);
        self.turn.set(learned.opened, learned.turn());
        self.shed.publish(&self.settings);
    }

    /// Returns the limiter that replaces `old`. If both have the same settings, it is `old` itself.
    /// It then keeps its samples and a running probe, and also learns from the calls in flight,
    /// which report to the limiter that admitted them.
    ///
    /// Otherwise, it is this limiter, with the learned values of `old`.
    ///
    /// Must be called before any call uses this limiter.
    pub(crate) fn inheriting(self, old: &Arc<Self>, now: Tick) -> Arc<Self> {
        if self.settings == old.settings {
            return old.clone();
        }
        self.take_over(old, now);
        Arc::new(self)
    }

    /// Takes over the learned values of `old`. The limit is clamped to the new bounds, the samples
    /// of the open window are dropped, a probe is abandoned, and all classes are opened.
    pub(super) fn take_over(&self, old: &Self, now: Tick) {
        for class in 0..CLASSES {
            let (admitted, refused) = old.counts()[class];
            self.admitted[class].store(admitted, Ordering::Relaxed);
            self.refused[class].store(refused, Ordering::Relaxed);
        }
        let old = old.learned.lock();
        let mut learned = self.learned.lock();
        *learned = Learned::of(&old, &self.settings, now);
        self.shed.reset();
        self.begin(&learned);
    }
}
