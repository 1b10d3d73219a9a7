//! The engine's time: a clock's readings, doubted where they look odd.
//!
//! Counts are exact at any reading of the clock: a late reading counts in the newest bucket. A bad
//! reading can make windows stand still (it ran ahead, and all others are now behind) or skip them.
//! So a [`Glance`] becomes a time only by [`check`](Timekeeper::check), and where it does not fit
//! to the latest time of the engine, or of a node, it is taken again:
//!
//! * Ahead by more than the [slack](SLACK): a glitch of one reading is not
//!   confirmed by the next, and of three the one in the middle is used.
//! * Behind: usually the thread was asleep between reading and using it, and
//!   the next reading is right.
//! * Still behind, by more than the slack: the clock has stepped back, and time stands still. When
//!   for as long as the slack no reading has come any further, time continues, with an offset from
//!   the clock: by as much as the clock has moved since, so that nothing is lost.
//!
//! A new node has seen nothing yet. So a reading by which a node is made has to be confirmed in any
//! case.
//!
//! A clock may panic. It is the user's, and is read while slots and tokens are held, also by
//! destructors. So a panic is caught here, and time stands still until it answers.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::base::panics::catch_panic;
use crate::base::sync::{AtomicU64, Lock, Ordering};
use crate::clock::{Clock, ManualClock, MonotonicClock, SLACK, SLACK_NS, Tick, nanos};

/// How exactly the latest time is known: far below the slack.
const LATEST_NS: u64 = 1_000_000;

/// A reading of the clock that has not been checked yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance(Tick);

/// See the [module](self). A clone always tells the same time.
// All its state is behind one pointer, with the clock in a box: a reader does not have to work out
// where in an `Arc` the clock lies.
#[derive(Clone, Debug)]
pub(crate) struct Timekeeper(Arc<Time>);

/// A clock, and the knowledge of its steps back, shared by all its readers.
#[derive(Debug)]
struct Time {
    clock: Box<dyn Clock>,
    /// The time that the clock has lost by stepping back, in ns.
    offset: AtomicU64,
    /// The latest time of the engine, in ns; up to [`LATEST_NS`] before it, and without the
    /// readings that fell into a step that their node had seen.
    latest: AtomicU64,
    /// Where time stands still, in ns, since the clock has stepped back; else 0, or a time
    /// that is over.
    stands: AtomicU64,
    behind: Lock<Option<Behind>>,
}

/// A clock that seems to have stepped back.
#[derive(Clone, Copy, Debug)]
struct Behind {
    since: Tick,
    /// The latest time of the engine.
    high: Tick,
}

/// A clock of the user's, which may panic.
#[derive(Debug)]
struct Caught<C> {
    clock: C,
    /// The latest answer of the clock, or a time up to [`LATEST_NS`] before that, in ns.
    last: AtomicU64,
}

// === impl Glance ===

impl Glance {
    /// A time of the engine, to be checked against the latest time of another node.
    #[inline]
    pub(crate) const fn again(now: Tick) -> Self {
        Self(now)
    }

    /// For a node that can tell by itself that the reading fits.
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
        // Not with each reading: all calls read this line.
        if now.as_nanos().abs_diff(last.as_nanos()) > LATEST_NS {
            self.last.store(now.as_nanos(), Ordering::Relaxed);
        }
        now
    }

    fn epoch(&self) -> Duration {
        catch_panic(|| self.clock.epoch()).unwrap_or_default()
    }
}

/// `clock`, read without a panic.
pub(crate) fn never_panicking<C: Clock>(clock: C) -> Box<dyn Clock> {
    let any: &dyn Any = &clock;
    // A wall around those that need none would cost each call.
    if any.is::<MonotonicClock>() || any.is::<ManualClock>() || is_counter(any) {
        Box::new(clock)
    } else {
        let last = AtomicU64::new(0);
        Box::new(Caught { clock, last })
    }
}

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

    /// The time of a reading, doubted if it does not fit to the latest one or to `seen`,
    /// the start of the newest step that a node has seen.
    #[inline]
    pub(crate) fn check(&self, reading: Glance, seen: Tick) -> Tick {
        let (now, seen) = (reading.0, self.latest().max(seen));
        let now = if now < seen || now.nanos_since(seen) > SLACK_NS {
            self.doubt(now, seen)
        } else {
            now
        };
        self.tell(now)
    }

    /// The present, where no node has seen a step: it never goes back by more than
    /// [`LATEST_NS`].
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        let now = self.check(self.read(), Tick::ZERO);
        now.max(self.latest())
    }

    /// The time of a reading by which something is made: a node, a table, a window. A made thing
    /// takes its first reading for the truth.
    #[cold]
    pub(crate) fn check_making(&self, reading: Glance) -> Tick {
        let (now, seen) = (self.agreed(reading.0), self.latest());
        let now = if now < seen {
            self.doubt(now, seen)
        } else {
            now
        };
        self.tell(now)
    }

    /// How long after 1970 the time 0 is, for rules by the calendar. The time that the clock has lost
    /// by stepping back is no part of it: no period goes back, nor one that has begun.
    pub(crate) fn epoch(&self) -> Duration {
        self.0.clock.epoch()
    }

    /// How long it takes from `now` to `at`. While time stands still, no call has to wait for
    /// longer than that.
    pub(crate) fn until(&self, at: Tick, now: Tick) -> Duration {
        let stands = Tick::from_nanos(self.0.stands.load(Ordering::Relaxed));
        if now <= stands {
            (at - now).max(SLACK)
        } else {
            at - now
        }
    }

    /// Relaxed, here and below: a time is right alone.
    #[inline]
    fn latest(&self) -> Tick {
        Tick::from_nanos(self.0.latest.load(Ordering::Relaxed))
    }

    /// Notes that `now` is a time of the engine.
    #[inline]
    fn tell(&self, now: Tick) -> Tick {
        // Not each time: all calls read this line.
        if now.nanos_since(self.latest()) > LATEST_NS {
            self.0.latest.fetch_max(now.as_nanos(), Ordering::Relaxed);
        }
        now
    }

    #[cold]
    fn doubt(&self, now: Tick, seen: Tick) -> Tick {
        // A reading behind `seen` may have grown old since it was taken.
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

    /// `now`, unless it is far ahead of `seen` and other readings disagree: else it was
    /// a long idle time.
    fn confirmed(&self, now: Tick, seen: Tick) -> Tick {
        if now.nanos_since(seen) > SLACK_NS {
            self.agreed(now).max(seen)
        } else {
            now
        }
    }

    /// `now`, if the next reading agrees; else the one in the middle of three, of which
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

    /// The clock is behind `seen`. If it is so by no more than the slack, it is left to come
    /// back.
    fn catch_up(&self, seen: Tick) -> Tick {
        let Some(mut behind) = self.0.behind.try_lock() else {
            return seen;
        };
        // Another thread may have caught up since, so only now the time is certain.
        let now = self.read().0;
        if now >= seen {
            return self.confirmed(now, seen);
        }
        match *behind {
            // Nodes know what they have seen more exactly.
            Some(known) if seen.nanos_since(known.high) <= LATEST_NS && now >= known.since => {
                if now - known.since < SLACK {
                    return seen;
                }
                *behind = None;
                let lost = nanos(known.high - known.since);
                self.0.offset.fetch_add(lost, Ordering::Relaxed);
                self.read().0
            }
            _ if now + SLACK >= seen => now,
            // The first sign of it, or a reading has come further.
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

    /// The time for a node that has `seen` a step.
    fn told(time: &Timekeeper, seen: Tick) -> Tick {
        time.check(time.read(), seen)
    }

    #[test]
    fn a_glitch_ahead_is_not_believed() {
        let clock = ManualClock::starting_at(at(5_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        // Read an hour ahead once; the clock itself says 5 s.
        assert_eq!(time.check(Glance(at(3_605_000)), at(4_900)), at(5_000));
        // A real idle time is confirmed.
        clock.set(at(3_605_000));
        assert_eq!(told(&time, at(4_900)), at(3_605_000));
    }

    #[test]
    fn a_reading_that_grew_old_is_taken_again() {
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
            let seen = told(&time, Tick::ZERO);
            let wait = |now| time.until(seen + Duration::from_millis(300), now);
            assert_eq!(wait(seen), Duration::from_millis(300));
            clock.set(at(3_600_000 - step));
            for ms in 0..stands {
                let now = told(&time, at(3_500_000));
                assert!(now <= seen, "{step}: {now:?} after {ms} ms");
                let is_noted = step > 1_000;
                assert_eq!(now == seen, is_noted, "{step}: after {ms} ms");
                assert!(!is_noted || wait(now) == SLACK);
                clock.advance(Duration::from_millis(1));
            }
            for ms in stands..3_000 {
                let now = told(&time, at(3_500_000));
                // From when it stepped back on.
                let lost = step.min(stands) * u64::from(step <= 1_000);
                assert_eq!(now, at(3_600_000 + ms - lost), "{step}: after {ms} ms");
                clock.advance(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn a_clock_that_steps_back_for_no_second_ends_where_it_was() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        let seen = told(&time, Tick::ZERO);
        clock.set(at(1_000));
        assert_eq!(told(&time, seen), seen);
        clock.set(at(3_600_500));
        let now = told(&time, seen);
        assert_eq!(now, at(3_600_500));
        let soon = Duration::from_millis(3);
        assert_eq!(time.until(now + soon, now), soon);
    }

    #[test]
    fn what_has_seen_nothing_is_told_the_time_of_all() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        let seen = told(&time, Tick::ZERO);
        clock.set(at(1_000));
        let making = time.check_making(time.read());
        assert_eq!([making, told(&time, Tick::ZERO)], [seen; 2]);
        // Its reading is believed a millisecond earlier than what others have seen.
        let more = seen + Duration::from_nanos(LATEST_NS);
        assert_eq!(told(&time, more), more);
        clock.advance(SLACK);
        assert_eq!(told(&time, more), seen + SLACK);
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
            let now = told(&time, last);
            let is_there = !(6_000..=7_000).contains(&ms);
            assert_eq!(now, if is_there { at(ms) } else { at(5_900) });
            last = now;
        }
    }

    type Meanwhile = Box<dyn FnOnce() + Send>;

    /// A clock whose reader sleeps, once, between reading it and using that:
    /// something else happens meanwhile.
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
    fn who_slept_while_another_thread_caught_up_does_not_start_anew() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let sleepy = Arc::new(Sleepy {
            clock: clock.clone(),
            meanwhile: Lock::new(None),
        });
        let time = Arc::new(Timekeeper::new(Box::new(sleepy.clone())));
        let seen = told(&time, Tick::ZERO);
        clock.set(at(1_000));
        assert_eq!(told(&time, seen), seen);
        clock.advance(SLACK);
        let late = time.read();
        let other = time.clone();
        *sleepy.meanwhile.lock() = Some(Box::new(move || {
            assert_eq!(told(&other, seen), seen + SLACK);
        }));
        // It reads the old time once more, and sleeps over what the other one does.
        assert_eq!(time.check(late, seen), seen + SLACK);
        // So a second step back is waited for as long as the first.
        clock.set(at(0));
        assert_eq!(told(&time, seen), seen + SLACK);
        clock.advance(SLACK - Duration::from_nanos(1));
        assert_eq!(told(&time, seen), seen + SLACK);
    }

    #[test]
    fn another_one_goes_on_from_the_same_time() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        let older = time.clone();
        let seen = told(&time, Tick::ZERO);
        clock.set(at(1_000));
        told(&time, seen);
        clock.advance(SLACK);
        assert_eq!(told(&time, seen), seen + SLACK);
        // Also one that no call has come to meanwhile.
        let both = [older.read(), time.clone().read()];
        assert_eq!(both.map(Glance::undoubted), [seen + SLACK; 2]);
    }

    /// A clock with so many readings; the last one stays.
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
    fn a_glitch_ahead_is_not_believed_while_the_clock_is_behind_either() {
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
            assert_eq!(time.check_making(Glance(first)), idle);
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
            assert_eq!(told(&time, seen), seen);
            assert_eq!(time.read().undoubted(), clock.now());
        }
    }
}
