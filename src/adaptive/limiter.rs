//! The adaptive limit as the engine holds it: a bound to read for each class, and calls that end to
//! learn from.
//!
//! Admission is not here: the call that takes a slot compares the calls in flight with
//! [`Limiter::bound`] in one step of its own.
//!
//! Two windows are open at any time: one of samples, from which the [estimate](super::estimate)
//! learns, and one of bounds, after which the [strictness](super::bounds) changes. A call that ends
//! and finds one of them due tries to become the closer: it takes the lock of what was learned, or
//! leaves it if another thread has it. So there is one closer, no call waits for it, and if its
//! thread is put to sleep there the windows grow longer. It judges by the terms under the lock: a
//! call that slept on its way there closes no other window than the one that is due then.

use std::time::Duration;

use super::bounds::{CLASSES, Frame, Shown};
use super::estimate::{LimitEstimate, LimiterSettings, Meanwhile, small_queue};
use super::shed::Shed;
use super::window::{SampleWindow, WindowSpan, WindowTerms, has_stepped_back};
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Lock, Ordering};
use crate::clock::{Tick, nanos};
use crate::stat::{Ends, Outcome};

/// CallEnd calls of a window of bounds, or, when it is as long as the longest, that many.
const ENDED: u64 = 20;
const FEW_ENDED: u64 = 5;
const LONGEST: Duration = Duration::from_secs(1);
/// A class counts as seen for this many windows without a call of it.
const REMEMBERED: u8 = 10;
/// Retry times of excess calls: this and the next whole seconds, in turn.
const SHORTEST_RETRY: Duration = Duration::from_secs(2);
const RETRIES: u32 = 4;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Limiter {
    settings: LimiterSettings,
    shed: Shed,
    window: SampleWindow,
    /// When the window of bounds is due.
    turn: WindowSpan,
    /// What of the estimate others read: the limit, the response time without a queue, and the
    /// longest one that counts in full.
    limit: AtomicU64,
    long: AtomicU64,
    longest: AtomicU64,
    learned: Lock<Learned>,
    /// Weights of the calls of each class.
    admitted: [AtomicU64; CLASSES],
    refused: [AtomicU64; CLASSES],
    /// The number of the next retry time.
    turns: AtomicU32,
}

/// What the closers know.
#[derive(Debug)]
struct Learned {
    estimate: LimitEstimate,
    terms: WindowTerms,
    /// When the window of bounds opened, and how many calls had ended by then; `None`: unknown.
    opened: Tick,
    all: Option<Ends>,
    /// Calls that end in a second.
    rate: f64,
    /// Calls in flight at the end of the last window of bounds; and if bounds sank then, else 0.
    in_flight: u32,
    drain: u32,
    /// How many windows ago a call of each class came.
    unseen: [u8; CLASSES],
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
            shed: Shed::new(&settings, learned.estimate.limit),
            window: SampleWindow::new(&learned.terms),
            turn: WindowSpan::default(),
            limit: AtomicU64::new(0),
            long: AtomicU64::new(0),
            longest: AtomicU64::new(u64::MAX),
            learned: Lock::new(learned),
            admitted: Default::default(),
            refused: Default::default(),
            turns: AtomicU32::new(0),
        };
        limiter.begin(&limiter.learned.lock());
        limiter
    }

    /// How many calls may be in flight for one of this class to be admitted. It is never above the
    /// ceiling. Two relaxed loads, and an addition for the first call of a class in a window.
    #[inline]
    pub(crate) fn bound(&self, class: usize) -> u32 {
        self.shed.bound(class, &self.settings)
    }

    /// The bounds of all classes, for readers.
    pub(crate) fn bounds(&self) -> [u32; CLASSES] {
        self.shed.bounds()
    }

    /// How many classes are shut, from the least important one.
    pub(crate) fn shut(&self) -> u8 {
        self.shed.strictness().shut
    }

    /// A call of this class is refused. Returns when it should come again, if there is a reason:
    /// calls of a class that gets idle workers only should not come back together.
    pub(crate) fn refused(&self, class: usize, in_flight: impl Fn() -> u32) -> Option<Duration> {
        self.shed.refuse(class, in_flight, &self.settings);
        let is_excess = class > self.shed.strictness().marginal();
        is_excess.then(|| {
            let turn = self.turns.fetch_add(1, Ordering::Relaxed) % RETRIES;
            SHORTEST_RETRY + Duration::from_secs(turn.into())
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

    /// Admitted and refused calls of each class, by their weights.
    pub(crate) fn counts(&self) -> [(u64, u64); CLASSES] {
        std::array::from_fn(|class| {
            let count = |of: &[AtomicU64; CLASSES]| of[class].load(Ordering::Relaxed);
            (count(&self.admitted), count(&self.refused))
        })
    }

    /// The limit that has been found, also during a probe.
    pub(crate) fn estimate(&self) -> f64 {
        f64::from_bits(self.limit.load(Ordering::Relaxed))
    }

    /// A call has ended. `in_flight` returns the calls in flight, this one included: its slot is
    /// released afterwards. (At its end and not at its start: the engine has the number there for
    /// nothing, and the largest one of a window is the same.) `all` returns how many calls have
    /// ever ended, this one included or not.
    ///
    /// A success counts as it is. Another end, or none, counts only if the call took
    /// longer than a response without a queue takes: then a response would have
    /// taken at least as long. A quick failure says nothing about how long the
    /// work takes.
    ///
    /// A few relaxed loads and one addition; nothing allocates or waits.
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

    /// Closes the windows that are due, unless another thread does.
    #[cold]
    fn close(&self, now: Tick, in_flight: &dyn Fn() -> u32, all: &dyn Fn() -> Ends) {
        let Some(mut learned) = self.learned.try_lock() else {
            return;
        };
        let learned = &mut *learned;
        // Counted under the lock, so while this window is open and not a later one.
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

    fn close_samples(&self, learned: &mut Learned, now: Tick, in_flight: u32) -> bool {
        let Some(samples) = self.window.close(&learned.terms, now, in_flight) else {
            return false;
        };
        let (was_refused, began_to_shed) = self.shed.take_said();
        let beside = Meanwhile {
            in_flight,
            is_shut: self.shut() > 0,
            was_refused,
            began_to_shed,
        };
        learned.terms = learned
            .estimate
            .close(&self.settings, now, beside, &samples);
        if learned.estimate.is_probing() {
            // The limit in force may be a quarter lower from now on.
            learned.drain = in_flight;
        }
        self.window.open(&learned.terms);
        true
    }

    fn close_bounds(
        &self,
        learned: &mut Learned,
        now: Tick,
        in_flight: u32,
        all: &dyn Fn() -> Ends,
    ) -> bool {
        let has_stepped_back = has_stepped_back(learned.opened.as_nanos(), now.as_nanos());
        if now < learned.turn() && !has_stepped_back {
            return false;
        }
        let all = all();
        let Some(before) = learned.all.filter(|_| !has_stepped_back) else {
            learned.open_bounds(now, all);
            self.turn.set(now, learned.turn());
            return false;
        };
        let length = now - learned.opened;
        let ended = all.since(before);
        if ended < ENDED && (length < LONGEST || ended < FEW_ENDED) {
            return false;
        }
        let strictness = self.shed.strictness();
        let gathered = self.shed.gather();
        let limit = learned.estimate.in_force();
        let emptied = f64::from(gathered.lowest) < limit - small_queue(limit);
        let rate = ended as f64 / length.as_secs_f64().max(1e-9);
        learned.rate = if emptied {
            rate.max(0.98 * learned.rate)
        } else {
            0.75 * learned.rate + 0.25 * rate
        };
        let was_cut = !emptied && learned.estimate.cut_to(learned.rate, &self.settings);
        // Bounds that sink refuse no call that is not to blame.
        let sinks = was_cut || in_flight < learned.in_flight;
        learned.drain = if sinks { in_flight } else { 0 };
        learned.in_flight = in_flight;
        learned.note(gathered.seen);
        learned.open_bounds(now, all);
        let refused = gathered.refused;
        let shown = Shown {
            ended,
            refused: refused.get(strictness.marginal()).copied().unwrap_or(0),
            emptied,
        };
        self.shed
            .relax(strictness, shown, &learned.frame(), &self.settings);
        self.turn.set(now, learned.turn());
        true
    }

    /// Shows what was learned to all calls.
    fn show(&self, learned: &Learned) {
        let estimate = &learned.estimate;
        self.limit
            .store(estimate.limit.to_bits(), Ordering::Relaxed);
        self.long.store(estimate.long.to_bits(), Ordering::Relaxed);
        let longest = nanos(estimate.longest());
        self.longest.store(longest, Ordering::Relaxed);
        self.shed.set_frame(&learned.frame());
    }

    fn begin(&self, learned: &Learned) {
        self.show(learned);
        self.window.open(&learned.terms);
        self.turn.set(learned.opened, learned.turn());
        self.shed.publish(&self.settings);
    }

    /// This limiter where `old` is: `old` itself, if both have the same settings. So it
    /// learns from the calls in flight, which end where they began, and keeps the samples
    /// and the probe that are under way.
    ///
    /// For a limiter that no call has seen yet.
    pub(crate) fn inheriting(self, old: &Arc<Self>, now: Tick) -> Arc<Self> {
        if self.settings == old.settings {
            return old.clone();
        }
        self.take_over(old, now);
        Arc::new(self)
    }

    /// Takes over the learned values of `old`; the limit is brought within the new bounds. The
    /// samples of the old one's open window are not taken over, a probe that it is in is abandoned,
    /// and all classes are open.
    fn take_over(&self, old: &Self, now: Tick) {
        for class in 0..CLASSES {
            let (admitted, refused) = old.counts()[class];
            self.admitted[class].store(admitted, Ordering::Relaxed);
            self.refused[class].store(refused, Ordering::Relaxed);
        }
        let old = old.learned.lock();
        let mut learned = self.learned.lock();
        *learned = Learned {
            rate: old.rate,
            unseen: old.unseen,
            all: old.all,
            ..Learned::new(LimitEstimate::of(&old.estimate, &self.settings, now), now)
        };
        self.shed.reset();
        self.begin(&learned);
    }
}

// === impl Learned ===

impl Learned {
    fn new(estimate: LimitEstimate, now: Tick) -> Self {
        Self {
            terms: estimate.terms(now),
            estimate,
            opened: now,
            all: None,
            rate: 0.0,
            in_flight: 0,
            drain: 0,
            unseen: [REMEMBERED + 1; CLASSES],
        }
    }

    /// When the window of bounds is due.
    fn turn(&self) -> Tick {
        self.opened + self.estimate.length().max(Duration::from_millis(100))
    }

    fn open_bounds(&mut self, now: Tick, all: Ends) {
        self.opened = now;
        self.all = Some(all);
    }

    /// Notes the classes `seen` in a window.
    fn note(&mut self, seen: u32) {
        for (class, unseen) in self.unseen.iter_mut().enumerate() {
            *unseen = if seen & 1 << class != 0 {
                0
            } else {
                unseen.saturating_add(1)
            };
        }
    }

    fn frame(&self) -> Frame {
        let mut seen = 0;
        for (class, &unseen) in self.unseen.iter().enumerate() {
            if unseen <= REMEMBERED {
                seen |= 1 << class;
            }
        }
        Frame {
            limit: self.estimate.in_force(),
            rate: self.rate,
            drain: self.drain,
            is_known: self.estimate.long > 0.0,
            seen,
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The class of calls without one.
    const CLASS: usize = 1;

    fn settings(floor: u32, start: u32, ceiling: u32) -> LimiterSettings {
        LimiterSettings {
            floor,
            ceiling,
            start,
            burst: Duration::ZERO,
        }
    }

    /// A service and its calls, one after the other.
    struct EndedCalls {
        limiter: Limiter,
        now: Tick,
        ended: u64,
    }

    impl EndedCalls {
        fn new(settings: LimiterSettings, now: Tick) -> Self {
            Self {
                limiter: Limiter::new(settings, now),
                now,
                ended: 0,
            }
        }

        fn end(&mut self, rt: Duration, in_flight: u32, outcome: Option<Outcome>) {
            self.ended += 1;
            let (now, ended) = (self.now, self.ended);
            let call = CallEnd { now, rt, outcome };
            self.limiter.ended(call, || in_flight, || Ends::of(ended));
        }

        /// Ends calls that took `rt` at a full limit, one in each 5 ms, for a time.
        fn end_for(&mut self, millis: u64, rt: Duration, outcome: Option<Outcome>) {
            for _ in 0..millis / 5 {
                self.now = self.now + Duration::from_millis(5);
                self.limiter.bound(CLASS);
                self.end(rt, self.limiter.bounds()[CLASS], outcome);
            }
        }

        fn long(&self) -> f64 {
            self.limiter.learned.lock().estimate.long
        }
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_quick_failure_or_cancellation_is_no_sample() {
        for outcome in [Some(Outcome::Failure), None] {
            let mut calls = EndedCalls::new(settings(1, 20, 200), Tick::ZERO);
            // Nothing is known yet: not even a slow one counts.
            calls.end_for(500, MS(900), outcome);
            assert_eq!((calls.limiter.estimate(), calls.long()), (20.0, 0.0));
            calls.end_for(3_000, MS(50), Some(Outcome::Success));
            assert_eq!(calls.long(), 50e6);
            let before = calls
                .limiter
                .window
                .close(&WindowTerms::ALWAYS, calls.now, 1);
            assert!(before.is_some());
            calls.end_for(200, MS(1), outcome);
            let after = calls
                .limiter
                .window
                .close(&WindowTerms::ALWAYS, calls.now, 1);
            assert_eq!(after, None, "there are no samples");
        }
    }

    #[test]
    fn cancelled_calls_that_are_slower_than_known_are_learned_from() {
        for outcome in [Some(Outcome::Failure), None] {
            let mut calls = EndedCalls::new(settings(1, 20, 200), Tick::ZERO);
            calls.end_for(3_000, MS(100), Some(Outcome::Success));
            assert_eq!(calls.long(), 100e6);
            calls.end_for(4_000, MS(300), outcome);
            assert!(calls.long() > 120e6, "{calls:?}");
        }
    }

    #[test]
    fn a_limiter_that_takes_over_knows_what_the_old_one_knew() {
        let mut old = EndedCalls::new(settings(1, 20, 200), Tick::ZERO);
        old.end_for(10_000, MS(100), Some(Outcome::Success));
        let limit = old.limiter.estimate();
        assert!(limit > 20.0, "{old:?}");
        for (floor, ceiling) in [(1, 200), (1, 10), (150, 200)] {
            let new = Limiter::new(settings(floor, floor, ceiling), old.now);
            new.take_over(&old.limiter, old.now);
            let expected = limit.clamp(floor.into(), ceiling.into());
            assert_eq!(new.estimate(), expected);
            assert_eq!(new.bounds()[CLASS], expected as u32);
            assert_eq!(new.learned.lock().estimate.long, old.long());
            assert_eq!(new.counts(), old.limiter.counts());
        }
    }

    #[test]
    fn a_clock_that_steps_back_an_hour_does_not_stop_it() {
        let mut calls = EndedCalls::new(settings(1, 20, 200), Tick::from_millis(3_600_000));
        calls.end_for(3_000, MS(50), Some(Outcome::Success));
        calls.now = Tick::ZERO;
        calls.end_for(10_000, MS(100), Some(Outcome::Success));
        assert!(calls.long() > 75e6, "it has learned since");
    }

    #[test]
    fn the_limit_is_back_when_calls_come_again_after_a_pause_in_a_probe() {
        let mut calls = EndedCalls::new(settings(1, 20, 200), Tick::ZERO);
        let is_measuring = |calls: &EndedCalls| {
            let phase = calls.limiter.learned.lock().estimate.phase;
            phase == super::super::estimate::Phase::Measuring
        };
        calls.end_for(5, MS(50), Some(Outcome::Success));
        calls.limiter.refused(CLASS, || 20);
        while !is_measuring(&calls) {
            calls.end_for(5, MS(50), Some(Outcome::Success));
        }
        assert!(calls.limiter.bounds()[CLASS] < 20);
        calls.now = calls.now + Duration::from_secs(3_600);
        calls.end(MS(50), 1, Some(Outcome::Success));
        let limit = calls.limiter.estimate();
        assert_eq!(calls.limiter.bounds()[CLASS], limit as u32);
    }

    /// Calls of one class, in a service that is known to take 50 ms.
    fn known(burst: Duration) -> EndedCalls {
        let settings = LimiterSettings {
            burst,
            ..settings(1, 20, 10_000)
        };
        let mut calls = EndedCalls::new(settings, Tick::ZERO);
        for _ in 0..400 {
            calls.now = calls.now + MS(5);
            calls.limiter.bound(CLASS);
            calls.limiter.bound(3);
            calls.end(MS(50), 10, Some(Outcome::Success));
        }
        calls
    }

    #[test]
    fn a_refusal_of_an_open_class_shuts_the_least_important_one() {
        let calls = known(MS(500));
        let limiter = &calls.limiter;
        let before = limiter.bounds();
        assert!(before.is_sorted_by(|more, less| more > less), "{before:?}");
        assert_eq!(limiter.shut(), 0);
        // Only a call that is still at its bound shuts anything.
        assert_eq!(limiter.refused(1, || before[1] - 1), None);
        assert_eq!(limiter.shut(), 0);
        assert_eq!(limiter.refused(3, || before[3]), None);
        assert_eq!(limiter.shut(), 1);
        // The next refusal of that class shuts no other one.
        assert_eq!(limiter.refused(3, || before[3]), None);
        assert_eq!(limiter.shut(), 1);
        let after = limiter.bounds();
        assert_eq!(after[..3], before[..3]);
        assert_eq!(after[3], limiter.estimate() as u32);
        // Nobody asks for SheddablePlus: it is stepped over.
        limiter.refused(1, || after[1]);
        assert_eq!(limiter.shut(), 3);
        let waits = [(); 5].map(|()| limiter.refused(3, || 0).unwrap().as_secs());
        assert_eq!(waits, [2, 3, 4, 5, 2]);
        assert_eq!(limiter.refused(1, || 0), None);
    }

    #[test]
    fn without_a_burst_all_open_classes_have_the_limit() {
        let calls = known(Duration::ZERO);
        let limit = calls.limiter.estimate() as u32;
        assert_eq!(calls.limiter.bounds(), [limit; CLASSES]);
    }

    impl std::fmt::Debug for EndedCalls {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.limiter.learned.lock().fmt(f)
        }
    }

    fn ends() -> impl Strategy<Value = Vec<(u64, u64, u32, u8)>> {
        let number = || {
            prop_oneof![
                Just(0),
                0..200_000_000_u64,
                0..100_000_000_000_u64,
                any::<u64>(),
                Just(u64::MAX)
            ]
        };
        let in_flight = prop_oneof![Just(0), 0..300_u32, any::<u32>()];
        proptest::collection::vec((number(), number(), in_flight, 0..3_u8), 1..400)
    }

    proptest! {
        /// Clock readings, response times and numbers of calls of any kind and in
        /// any order.
        #[test]
        fn nothing_makes_the_limit_leave_its_bounds_or_not_be_a_number(
            floor in 1..50_u32,
            more in 0..500_u32,
            start in 0..500_u32,
            burst in 0..10_000_u64,
            is_clock_right in any::<bool>(),
            ends in ends(),
        ) {
            let ceiling = floor + more;
            let settings = LimiterSettings {
                burst: MS(burst),
                ..settings(floor, start.clamp(floor, ceiling), ceiling)
            };
            let mut calls = EndedCalls::new(settings, Tick::ZERO);
            for (time, rt, in_flight, end) in ends {
                calls.now = if is_clock_right {
                    calls.now + Duration::from_nanos(time % 1_000_000_000)
                } else {
                    Tick::from_nanos(time)
                };
                let class = in_flight as usize % CLASSES;
                if in_flight >= calls.limiter.bound(class) {
                    calls.limiter.refused(class, || in_flight);
                }
                let outcome = [Some(Outcome::Success), Some(Outcome::Failure), None][end as usize];
                calls.end(Duration::from_nanos(rt), in_flight, outcome);
                let limit = calls.limiter.estimate();
                prop_assert!((f64::from(floor)..=f64::from(ceiling)).contains(&limit));
                let long = calls.long();
                prop_assert!(long.is_finite() && long >= 0.0);
                let bounds = calls.limiter.bounds();
                let marginal = CLASSES - usize::from(calls.limiter.shut());
                prop_assert!(bounds.iter().all(|&bound| bound <= ceiling));
                prop_assert!(bounds.is_sorted_by(|more, less| more >= less), "{bounds:?}");
                prop_assert!(bounds.iter().take(marginal + 1).all(|&bound| bound >= 1));
            }
        }
    }
}
