//! The engine's time: readings of a clock, checked where they look wrong.
//!
//! Counts are exact at any reading of the clock, as a late reading counts in the newest bucket. But
//! a bad reading can make windows stand still, if it was ahead of all later readings, or can skip
//! windows. So a [`Glance`] becomes a time only by [`check`](Timekeeper::check). If it does not fit
//! the latest time of the engine, or of a node, the clock is read again:
//!
//! * Ahead by more than the [slack](SLACK): if only this reading was wrong, the next reading does
//!   not confirm it, and the median of three readings is used.
//! * Behind: usually the thread slept between reading the clock and using the reading, and the next
//!   reading is right.
//! * Still behind, by more than the slack: the clock has stepped back, and time stands still. When
//!   the clock has then moved on for as long as the slack, time continues, with an offset to the
//!   clock that makes up for the step, so that no time is lost.
//!
//! A new node has seen no time yet. So a reading by which a node is created is always confirmed.
//!
//! A clock can panic. It is the user's, and is read while slots and tokens are held, also by
//! destructors. So the panic is caught here, and time stands still until the clock answers.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::base::panics::catch_panic;
use crate::base::sync::{AtomicU64, Lock, Ordering};
use crate::clock::{Clock, ManualClock, MonotonicClock, SLACK, SLACK_NS, Tick, nanos};

/// How exactly the latest time is kept: far below the slack. A finer value would be written more
/// often.
const LATEST_NS: u64 = 1_000_000;

/// A reading of the clock that has not been checked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance(Tick);

/// See the [module](self). All clones show the same time.
// All its state is behind one pointer, and the clock is boxed: a reader need not compute where in
// an `Arc` the clock lies.
#[derive(Clone, Debug)]
pub(crate) struct Timekeeper(Arc<Time>);

/// A clock and its past steps back, shared by all clones.
#[derive(Debug)]
struct Time {
    clock: Box<dyn Clock>,
    /// The time that the clock has lost by stepping back, in ns.
    offset: AtomicU64,
    /// The latest time of the engine, in ns. It can lag by up to [`LATEST_NS`], and does not
    /// include readings in the newest step of a node's statistics, as these are not checked.
    latest: AtomicU64,
    /// The time at which the engine's time stands still after the clock has stepped back, in ns;
    /// otherwise 0, or a time that has passed.
    stands: AtomicU64,
    /// The step back that is being waited out, if there is one.
    behind: Lock<Option<Behind>>,
}

/// A clock that seems to have stepped back.
#[derive(Clone, Copy, Debug)]
struct Behind {
    /// The first reading after the step back.
    since: Tick,
    /// The latest time of the engine, at which it stands still.
    high: Tick,
}

/// A user's clock, whose panics are caught.
#[derive(Debug)]
struct Caught<C> {
    clock: C,
    /// The latest answer of the clock in ns, or up to [`LATEST_NS`] from it.
    last: AtomicU64,
}

// === impl Glance ===

impl Glance {
    /// Wraps a time of the engine, to be checked against the latest time of another node.
    #[inline]
    pub(crate) const fn again(now: Tick) -> Self {
        Self(now)
    }

    /// Returns the reading unchecked, for a node that can check by itself that it fits.
    #[inline]
    pub(crate) const fn undoubted(self) -> Tick {
        self.0
    }
}

// === impl Caught ===

impl<C: Clock> Clock for Caught<C> {
    fn now(&self) -> Tick {
        let last = Tick::from_nanos(self.last.load(Ordering::Relaxed));
        let now = catch_panic(|| self.clock.now()).unwrap_or(last);
        // Not stored at each reading, as all calls read this cache line.
        if now.as_nanos().abs_diff(last.as_nanos()) > LATEST_NS {
            self.last.store(now.as_nanos(), Ordering::Relaxed);
        }
        now
    }

    fn epoch(&self) -> Duration {
        catch_panic(|| self.clock.epoch()).unwrap_or_default()
    }
}

/// Returns `clock` in a form that does not panic.
pub(crate) fn never_panicking<C: Clock>(clock: C) -> Box<dyn Clock> {
    let any: &dyn Any = &clock;
    // The crate's own clocks do not panic, and catching would cost each call.
    if any.is::<MonotonicClock>() || any.is::<ManualClock>() || is_counter(any) {
        Box::new(clock)
    } else {
        let last = AtomicU64::new(0);
        Box::new(Caught { clock, last })
    }
}

/// Returns whether `clock` is a [`QuantaClock`](crate::clock::QuantaClock).
#[cfg(feature = "quanta")]
fn is_counter(clock: &dyn Any) -> bool {
    clock.is::<crate::clock::QuantaClock>()
}

#[cfg(not(feature = "quanta"))]
fn is_counter(_: &dyn Any) -> bool {
    false
}

// === impl Timekeeper ===

impl Timekeeper {
    pub(crate) fn new(clock: Box<dyn Clock>) -> Self {
        Self(Arc::new(Time {
            clock,
            offset: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            stands: AtomicU64::new(0),
            behind: Lock::new(None),
        }))
    }

    /// Reads the clock.
    #[inline]
    pub(crate) fn read(&self) -> Glance {
        let lost = self.0.offset.load(Ordering::Relaxed);
        Glance(Tick::from_nanos(
            self.0.clock.now().as_nanos().saturating_add(lost),
        ))
    }

    /// Returns the time of a reading. It is doubted if it does not fit the latest time or `seen`,
    /// the start of the newest step of a node's statistics.
    #[inline]
    pub(crate) fn check(&self, reading: Glance, seen: Tick) -> Tick {
        let (now, seen) = (reading.0, self.latest().max(seen));
        let now = if now < seen || now.nanos_since(seen) > SLACK_NS {
            self.doubt(now, seen)
        } else {
            now
        };
        self.record(now)
    }

    /// Returns the present, for use without a node: it never goes back by more than [`LATEST_NS`].
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        let now = self.check(self.read(), Tick::ZERO);
        now.max(self.latest())
    }

    /// Returns the time of a reading by which something is created: a node, a table, a window. It
    /// is always confirmed, as a new object has nothing to compare its first reading with.
    #[cold]
    pub(crate) fn check_for_creation(&self, reading: Glance) -> Tick {
        let (now, seen) = (self.agreed(reading.0), self.latest());
        let now = if now < seen {
            self.doubt(now, seen)
        } else {
            now
        };
        self.record(now)
    }

    /// Returns how long after 1970 the time 0 is, for rules by the calendar. The offset that makes
    /// up for steps back is not included: no period that has begun comes again.
    pub(crate) fn epoch(&self) -> Duration {
        self.0.clock.epoch()
    }

    /// Returns how long a call has to wait from `now` until `at`. While time stands still, the wait
    /// is at least the slack, after which time continues.
    pub(crate) fn until(&self, at: Tick, now: Tick) -> Duration {
        let stands = Tick::from_nanos(self.0.stands.load(Ordering::Relaxed));
        if now <= stands {
            (at - now).max(SLACK)
        } else {
            at - now
        }
    }

    /// Relaxed, here and below: each time is valid on its own.
    #[inline]
    fn latest(&self) -> Tick {
        Tick::from_nanos(self.0.latest.load(Ordering::Relaxed))
    }

    /// Records `now` as the latest time of the engine, if it is later. Returns `now`.
    #[inline]
    fn record(&self, now: Tick) -> Tick {
        // Not stored each time, as all calls read this cache line.
        if now.nanos_since(self.latest()) > LATEST_NS {
            self.0.latest.fetch_max(now.as_nanos(), Ordering::Relaxed);
        }
        now
    }

    /// Returns the time of a reading that is behind `seen` or far ahead of the latest time.
    #[cold]
    fn doubt(&self, now: Tick, seen: Tick) -> Tick {
        // A reading behind `seen` may be old by now, so the clock is read again.
        let now = if now > seen {
            now
        } else {
            now.max(self.read().0)
        };
        if now < seen {
            self.catch_up(seen)
        } else {
            self.confirmed(now, seen)
        }
    }

    /// Returns `now`. If it is far ahead of `seen`, other readings must agree: then the engine was
    /// idle for a long time.
    fn confirmed(&self, now: Tick, seen: Tick) -> Tick {
        if now.nanos_since(seen) > SLACK_NS {
            self.agreed(now).max(seen)
        } else {
            now
        }
    }

    /// Returns `now` if the next reading agrees; otherwise the median of three readings, of which
    /// one may be wrong.
    fn agreed(&self, now: Tick) -> Tick {
        let again = self.read().0;
        let (first, last) = (now.min(again), now.max(again));
        if last.nanos_since(first) > SLACK_NS {
            self.read().0.clamp(first, last)
        } else {
            now
        }
    }

    /// Handles a clock that is behind `seen`. If it is behind by no more than the slack, its
    /// reading is used.
    fn catch_up(&self, seen: Tick) -> Tick {
        let Some(mut behind) = self.0.behind.try_lock() else {
            return seen;
        };
        // Another thread may have caught up meanwhile, so the clock is read again under the lock.
        let now = self.read().0;
        if now >= seen {
            return self.confirmed(now, seen);
        }
        match *behind {
            // `seen` can be more exact than the latest time of the engine, by up to `LATEST_NS`.
            Some(known) if seen.nanos_since(known.high) <= LATEST_NS && now >= known.since => {
                if now - known.since < SLACK {
                    return seen;
                }
                // The clock has moved on for the slack, so time continues.
                *behind = None;
                let lost = nanos(known.high - known.since);
                self.0.offset.fetch_add(lost, Ordering::Relaxed);
                self.read().0
            }
            _ if now + SLACK >= seen => now,
            // This is the first sign of a step back, or a later time was seen since, or the clock
            // has stepped back further.
            known => {
                let high = known.map_or(seen, |known| known.high.max(seen));
                *behind = Some(Behind { since: now, high });
                self.0.stands.store(high.as_nanos(), Ordering::Relaxed);
                seen
            }
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    /// Returns the time of a new reading, for a node whose newest step starts at `seen`.
    fn checked(time: &Timekeeper, seen: Tick) -> Tick {
        time.check(time.read(), seen)
    }

    #[test]
    fn a_glitch_ahead_is_not_believed() {
        let clock = ManualClock::starting_at(at(5_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        // One reading is an hour ahead; the clock itself reads 5 s.
        assert_eq!(time.check(Glance(at(3_605_000)), at(4_900)), at(5_000));
        // A real idle time is confirmed.
        clock.set(at(3_605_000));
        assert_eq!(checked(&time, at(4_900)), at(3_605_000));
    }

    #[test]
    fn an_outdated_reading_is_repeated() {
        let clock = ManualClock::starting_at(at(9_000));
        let time = Timekeeper::new(Box::new(clock));
        assert_eq!(time.check(Glance(at(3_000)), at(8_500)), at(9_000));
    }

    #[test]
    fn after_a_step_back_time_stands_still_for_a_second_and_loses_nothing() {
        // By how much the clock steps back, and for how long time stands still.
        let cases = [
            (1, 1),
            (999, 999),
            (1_000, 1_000),
            (1_001, 1_000),
            (1_999, 1_000),
            (2_500, 1_000),
            (3_599_000, 1_000),
        ];
        for (step, stands) in cases {
            let clock = ManualClock::starting_at(at(3_600_000));
            let time = Timekeeper::new(Box::new(clock.clone()));
            let seen = checked(&time, Tick::ZERO);
            let wait = |now| time.until(seen + Duration::from_millis(300), now);
            assert_eq!(wait(seen), Duration::from_millis(300));
            clock.set(at(3_600_000 - step));
            for ms in 0..stands {
                let now = checked(&time, at(3_500_000));
                assert!(now <= seen, "{step}: {now:?} after {ms} ms");
                let is_noted = step > 1_000;
                assert_eq!(now == seen, is_noted, "{step}: after {ms} ms");
                assert!(!is_noted || wait(now) == SLACK);
                clock.advance(Duration::from_millis(1));
            }
            for ms in stands..3_000 {
                let now = checked(&time, at(3_500_000));
                // Time continues from when the clock stepped back.
                let lost = step.min(stands) * u64::from(step <= 1_000);
                assert_eq!(now, at(3_600_000 + ms - lost), "{step}: after {ms} ms");
                clock.advance(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn a_clock_that_returns_within_a_second_leaves_no_offset() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        let seen = checked(&time, Tick::ZERO);
        clock.set(at(1_000));
        assert_eq!(checked(&time, seen), seen);
        clock.set(at(3_600_500));
        let now = checked(&time, seen);
        assert_eq!(now, at(3_600_500));
        let soon = Duration::from_millis(3);
        assert_eq!(time.until(now + soon, now), soon);
    }

    #[test]
    fn a_node_that_has_seen_nothing_gets_the_time_of_the_engine() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        let seen = checked(&time, Tick::ZERO);
        clock.set(at(1_000));
        let making = time.check_for_creation(time.read());
        assert_eq!([making, checked(&time, Tick::ZERO)], [seen; 2]);
        // A node can have seen up to `LATEST_NS` more than the engine: it is the same step back.
        let more = seen + Duration::from_nanos(LATEST_NS);
        assert_eq!(checked(&time, more), more);
        clock.advance(SLACK);
        assert_eq!(checked(&time, more), seen + SLACK);
    }

    #[test]
    fn a_clock_that_panics_stands_still_until_it_answers() {
        #[derive(Debug)]
        struct Panics(ManualClock);

        impl Clock for Panics {
            fn now(&self) -> Tick {
                let now = self.0.now();
                assert!(now < at(6_000) || now > at(7_000), "the clock panics");
                now
            }
        }

        let clock = ManualClock::starting_at(at(5_000));
        let time = Timekeeper::new(never_panicking(Panics(clock.clone())));
        let mut last = Tick::ZERO;
        for ms in (5_000..9_000).step_by(100) {
            clock.set(at(ms));
            let now = checked(&time, last);
            let is_there = !(6_000..=7_000).contains(&ms);
            assert_eq!(now, if is_there { at(ms) } else { at(5_900) });
            last = now;
        }
    }

    type Meanwhile = Box<dyn FnOnce() + Send>;

    /// A clock whose reader sleeps once between reading it and using the reading, while `meanwhile`
    /// runs.
    struct Sleepy {
        clock: ManualClock,
        meanwhile: Lock<Option<Meanwhile>>,
    }

    impl std::fmt::Debug for Sleepy {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.clock.fmt(f)
        }
    }

    impl Clock for Sleepy {
        fn now(&self) -> Tick {
            let now = self.clock.now();
            let meanwhile = self.meanwhile.lock().take();
            if let Some(meanwhile) = meanwhile {
                meanwhile();
            }
            now
        }
    }

    #[test]
    fn a_late_reader_does_not_restart_an_ended_step_back() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let sleepy = Arc::new(Sleepy {
            clock: clock.clone(),
            meanwhile: Lock::new(None),
        });
        let time = Arc::new(Timekeeper::new(Box::new(sleepy.clone())));
        let seen = checked(&time, Tick::ZERO);
        clock.set(at(1_000));
        assert_eq!(checked(&time, seen), seen);
        clock.advance(SLACK);
        let late = time.read();
        let other = time.clone();
        *sleepy.meanwhile.lock() = Some(Box::new(move || {
            assert_eq!(checked(&other, seen), seen + SLACK);
        }));
        // It reads the old time again, and sleeps while the other thread catches up.
        assert_eq!(time.check(late, seen), seen + SLACK);
        // So after a second step back, time stands still for as long as after the first.
        clock.set(at(0));
        assert_eq!(checked(&time, seen), seen + SLACK);
        clock.advance(SLACK - Duration::from_nanos(1));
        assert_eq!(checked(&time, seen), seen + SLACK);
    }

    #[test]
    fn clones_continue_from_the_same_time() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        let older = time.clone();
        let seen = checked(&time, Tick::ZERO);
        clock.set(at(1_000));
        checked(&time, seen);
        clock.advance(SLACK);
        assert_eq!(checked(&time, seen), seen + SLACK);
        // This includes a clone that no call has used meanwhile.
        let both = [older.read(), time.clone().read()];
        assert_eq!(both.map(Glance::undoubted), [seen + SLACK; 2]);
    }

    /// A clock with these readings; the last one stays.
    #[derive(Debug)]
    struct Readings(Lock<Vec<Tick>>);

    impl Clock for Readings {
        fn now(&self) -> Tick {
            let mut rest = self.0.lock();
            if rest.len() > 1 {
                rest.remove(0)
            } else {
                rest[0]
            }
        }
    }

    #[test]
    fn a_glitch_ahead_is_rejected_while_the_clock_is_behind() {
        let seen = at(10_000);
        // The wrong reading is the second one, or the third.
        for readings in [[400_000, 5_000, 5_000], [5_000, 400_000, 5_000]] {
            let clock = Readings(Lock::new(readings.map(at).to_vec()));
            let time = Timekeeper::new(Box::new(clock));
            let now = time.check(Glance(at(5_000)), seen);
            assert!(now <= seen, "{now:?} {readings:?}");
        }
    }

    #[test]
    fn a_glitch_behind_is_not_believed_after_an_idle_time() {
        let (seen, idle) = (at(4_900), at(3_605_000));
        // The wrong reading is the second one, or the first.
        for (first, next) in [(idle, [0, 3_605_000]), (at(0), [3_605_000; 2])] {
            let clock = Readings(Lock::new(next.map(at).to_vec()));
            let time = Timekeeper::new(Box::new(clock));
            assert_eq!(time.check(Glance(first), seen), idle);
            let clock = Readings(Lock::new(next.map(at).to_vec()));
            let time = Timekeeper::new(Box::new(clock));
            assert_eq!(time.check_for_creation(Glance(first)), idle);
        }
    }

    #[test]
    fn clocks_that_disagree_do_not_push_each_other_on() {
        let clock = ManualClock::starting_at(at(10_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        // Another core's clock is two seconds ahead and keeps moving.
        for step in 0..100 {
            clock.advance(Duration::from_millis(100));
            let seen = at(12_000 + step * 100);
            assert_eq!(checked(&time, seen), seen);
            assert_eq!(time.read().undoubted(), clock.now());
        }
    }
}
