//! The adaptive limit as the engine holds it: one word to read, and calls that
//! end to learn from.
//!
//! Admission is not here: the call that takes a slot compares the calls in flight with
//! [`Limiter::limit`] in one step of its own. The learned values are kept in atomics that the
//! closer of a window alone writes, and that the next closer sees because it came through the
//! window's gate. So they are relaxed; others read single ones of them and may see a value that is
//! one window old.

use std::time::Duration;

use super::gradient::{Learned, LimiterSettings, Phase};
use super::window::SampleWindow;
use crate::base::sync::{Arc, AtomicU32, AtomicU64, Ordering};
use crate::clock::Tick;
use crate::stat::Outcome;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Limiter {
    settings: LimiterSettings,
    limit: AtomicU32,
    window: SampleWindow,
    memory: StateCell,
}

/// A [`Learned`] that only one writes at a time.
#[derive(Debug, Default)]
struct StateCell {
    estimate: AtomicU64,
    long: AtomicU64,
    phase: AtomicU32,
    level: AtomicU32,
    above: AtomicU64,
    began: AtomicU64,
    next: AtomicU64,
    mark: AtomicU64,
    probed: AtomicU64,
    is_confirmed: AtomicU32,
}

// === impl Limiter ===

impl Limiter {
    pub(crate) fn new(settings: LimiterSettings, now: Tick) -> Self {
        let state = Learned::new(&settings, now);
        Self {
            settings,
            limit: AtomicU32::new(state.limit()),
            window: SampleWindow::new(state.terms(now)),
            memory: StateCell::new(&state),
        }
    }

    /// How many calls may be in flight: never outside of floor and ceiling. It
    /// changes only when a call ends, and is a quarter lower during a probe. One
    /// relaxed load.
    #[inline]
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The limit that has been found, also during a probe.
    pub(crate) fn estimate(&self) -> f64 {
        f64::from_bits(self.memory.estimate.load(Ordering::Relaxed))
    }

    /// A call ended at `now` that took `rt`. `in_flight` returns the number of calls in flight at
    /// its end, itself included: the gauge before the slot is released. (At its end and not at its
    /// start: the engine has the number there for nothing, and the largest one of a window is the
    /// same.)
    ///
    /// A success counts as it is. Another end, or none, counts only if the call took
    /// longer than a response without a queue takes: then a response would have
    /// taken at least as long. A quick failure says nothing about how long the
    /// work takes.
    ///
    /// Two relaxed loads, one addition, and the loads that tell that the window
    /// may not close yet; nothing allocates, locks or waits.
    #[inline]
    pub(crate) fn ended(
        &self,
        now: Tick,
        rt: Duration,
        in_flight: impl Fn() -> u32,
        outcome: Option<Outcome>,
    ) {
        let in_flight = || in_flight().max(1);
        let long = f64::from_bits(self.memory.long.load(Ordering::Relaxed));
        let is_known = long > 0.0 && rt.as_nanos() as f64 > long;
        if outcome == Some(Outcome::Success) || is_known {
            self.window
                .add(now, rt.min(Learned::longest(long)), in_flight());
        }
        if let Some((sample, in_flight)) = self.window.close(now, in_flight) {
            let mut state = self.memory.load();
            let terms = state.close(&self.settings, now, in_flight, sample);
            self.memory.store(&state);
            self.limit.store(state.limit(), Ordering::Relaxed);
            self.window.open(terms);
        }
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
    /// samples of the old one's open window are not taken over, and a probe that it is in is
    /// abandoned.
    fn take_over(&self, old: &Self, now: Tick) {
        let state = Learned::of(old.memory.load(), &self.settings, now);
        self.memory.store(&state);
        self.limit.store(state.limit(), Ordering::Relaxed);
        self.window.open(state.terms(now));
    }
}

// === impl Memory ===

impl StateCell {
    fn new(state: &Learned) -> Self {
        let memory = Self::default();
        memory.store(state);
        memory
    }

    fn load(&self) -> Learned {
        let float = |word: &AtomicU64| f64::from_bits(word.load(Ordering::Relaxed));
        let tick = |word: &AtomicU64| Tick::from_nanos(word.load(Ordering::Relaxed));
        Learned {
            estimate: float(&self.estimate),
            long: float(&self.long),
            phase: match self.phase.load(Ordering::Relaxed) {
                phase if phase == Phase::Settling as u32 => Phase::Settling,
                phase if phase == Phase::Measuring as u32 => Phase::Measuring,
                _ => Phase::Steady,
            },
            level: self.level.load(Ordering::Relaxed),
            above: float(&self.above),
            began: tick(&self.began),
            next: tick(&self.next),
            mark: float(&self.mark),
            probed: float(&self.probed),
            is_confirmed: self.is_confirmed.load(Ordering::Relaxed) != 0,
        }
    }

    fn store(&self, state: &Learned) {
        let float = |word: &AtomicU64, value: f64| word.store(value.to_bits(), Ordering::Relaxed);
        let tick = |word: &AtomicU64, value: Tick| word.store(value.as_nanos(), Ordering::Relaxed);
        float(&self.estimate, state.estimate);
        float(&self.long, state.long);
        self.phase.store(state.phase as u32, Ordering::Relaxed);
        self.level.store(state.level, Ordering::Relaxed);
        float(&self.above, state.above);
        tick(&self.began, state.began);
        tick(&self.next, state.next);
        float(&self.mark, state.mark);
        float(&self.probed, state.probed);
        self.is_confirmed
            .store(state.is_confirmed.into(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(floor: u32, start: u32, ceiling: u32) -> LimiterSettings {
        LimiterSettings {
            floor,
            ceiling,
            start,
            tolerance: 1.0,
            smoothing: 0.2,
        }
    }

    /// Ends calls that took `rt` at a full limit, 20 in each 100 ms, for
    /// `windows` windows.
    fn end_calls(
        limiter: &Limiter,
        from: Tick,
        windows: u64,
        rt: Duration,
        outcome: Option<Outcome>,
    ) -> Tick {
        let mut now = from;
        for _ in 0..windows * 20 {
            now = now + Duration::from_millis(5);
            limiter.ended(now, rt, || limiter.limit(), outcome);
        }
        now
    }

    #[test]
    fn what_was_learned_is_read_again() {
        let phases = [Phase::Steady, Phase::Settling, Phase::Measuring];
        for (phase, is_confirmed) in phases.into_iter().zip([true, false, true]) {
            let state = Learned {
                estimate: 1.5,
                long: 2.5,
                phase,
                level: 3,
                above: 4.5,
                began: Tick::from_nanos(5),
                next: Tick::from_nanos(6),
                mark: 7.5,
                probed: 8.5,
                is_confirmed,
            };
            let memory = StateCell::new(&Learned::new(&settings(1, 20, 200), Tick::ZERO));
            memory.store(&state);
            for memory in [memory, StateCell::new(&state)] {
                assert_eq!(format!("{:?}", memory.load()), format!("{state:?}"));
            }
        }
    }

    #[test]
    fn a_quick_failure_or_cancellation_is_no_sample() {
        for outcome in [Some(Outcome::Failure), None] {
            let limiter = Limiter::new(settings(1, 20, 200), Tick::ZERO);
            let ms = Duration::from_millis;
            // Nothing is known yet: not even a slow one counts.
            let now = end_calls(&limiter, Tick::ZERO, 5, ms(900), outcome);
            assert_eq!((limiter.limit(), limiter.memory.load().long), (20, 0.0));
            let now = end_calls(&limiter, now, 30, ms(50), Some(Outcome::Success));
            let before = limiter.memory.load();
            assert_eq!(before.long, 50e6);
            end_calls(&limiter, now, 30, ms(1), outcome);
            assert_eq!(limiter.memory.load(), before);
        }
    }

    #[test]
    fn cancelled_calls_that_are_slower_than_known_lower_the_limit() {
        for outcome in [Some(Outcome::Failure), None] {
            let limiter = Limiter::new(settings(1, 20, 200), Tick::ZERO);
            let ms = Duration::from_millis;
            let now = end_calls(&limiter, Tick::ZERO, 30, ms(50), Some(Outcome::Success));
            let before = limiter.estimate();
            // Too few windows for a probe that would take it for the service's own.
            end_calls(&limiter, now, 3, ms(500), outcome);
            assert!(limiter.estimate() < before * 0.85, "{}", limiter.estimate());
        }
    }

    #[test]
    fn a_limiter_that_takes_over_knows_what_the_old_one_knew() {
        let old = Limiter::new(settings(1, 20, 200), Tick::ZERO);
        let now = end_calls(
            &old,
            Tick::ZERO,
            100,
            Duration::from_millis(50),
            Some(Outcome::Success),
        );
        assert!(old.estimate() > 30.0);
        for (floor, ceiling) in [(1, 200), (1, 10), (150, 200)] {
            let new = Limiter::new(settings(floor, floor, ceiling), now);
            new.take_over(&old, now);
            let expected = old.estimate().clamp(floor.into(), ceiling.into());
            assert_eq!(new.estimate(), expected);
            assert_eq!(new.limit(), expected as u32);
            assert_eq!(new.memory.load().long, old.memory.load().long);
        }
    }

    #[test]
    fn a_clock_that_steps_back_an_hour_does_not_stop_it() {
        let limiter = Limiter::new(settings(1, 20, 200), Tick::from_millis(3_600_000));
        let ms = Duration::from_millis;
        end_calls(
            &limiter,
            Tick::from_millis(3_600_000),
            30,
            ms(50),
            Some(Outcome::Success),
        );
        let before = limiter.estimate();
        end_calls(&limiter, Tick::ZERO, 60, ms(50), Some(Outcome::Success));
        assert!(limiter.estimate() > before + 5.0);
    }

    #[test]
    fn the_limit_is_back_when_calls_come_again_after_a_pause_in_a_probe() {
        let limiter = Limiter::new(settings(1, 20, 200), Tick::ZERO);
        let mut now = Tick::ZERO;
        while limiter.memory.load().phase != Phase::Measuring {
            now = now + Duration::from_millis(5);
            limiter.ended(
                now,
                Duration::from_millis(50),
                || limiter.limit(),
                Some(Outcome::Success),
            );
        }
        assert!(limiter.limit() < 20);
        let later = now + Duration::from_secs(3_600);
        limiter.ended(
            later,
            Duration::from_millis(50),
            || 1,
            Some(Outcome::Success),
        );
        assert_eq!(limiter.limit(), limiter.estimate() as u32);
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
            tolerance in 1.0..10.0_f64,
            smoothing in 0.001..=1.0_f64,
            is_clock_right in any::<bool>(),
            ends in ends(),
        ) {
            let ceiling = floor + more;
            let start = start.clamp(floor, ceiling);
            let settings = LimiterSettings { floor, ceiling, start, tolerance, smoothing };
            let limiter = Limiter::new(settings, Tick::ZERO);
            let mut now = Tick::ZERO;
            for (time, rt, in_flight, end) in ends {
                now = if is_clock_right {
                    now + Duration::from_nanos(time % 1_000_000_000)
                } else {
                    Tick::from_nanos(time)
                };
                let outcome = [Some(Outcome::Success), Some(Outcome::Failure), None][end as usize];
                limiter.ended(now, Duration::from_nanos(rt), || in_flight, outcome);
                let state = limiter.memory.load();
                prop_assert!((floor..=ceiling).contains(&limiter.limit()));
                let bounds = f64::from(floor)..=f64::from(ceiling);
                prop_assert!(bounds.contains(&state.estimate));
                prop_assert!(state.long.is_finite() && state.long >= 0.0);
                prop_assert!(state.above.is_finite() && state.probed.is_finite());
            }
        }
    }
}
