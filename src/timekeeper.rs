//! The engine's time: a clock's readings, doubted where they look odd.
//!
//! Counts are exact whatever the clock says: a late reading counts in the
//! newest bucket. What a bad reading can do is to make windows stand still (it
//! ran ahead, and all others are now behind) or to skip them. So where a
//! reading does not fit to what a node has seen, it is taken again:
//!
//! * Ahead by more than the [slack](SLACK): a glitch of one reading is not
//!   confirmed by the next, and of three the one in the middle is used.
//! * Behind: usually the thread was asleep between reading and using it, and
//!   the next reading is right.
//! * Still behind, by more than the slack: the clock has stepped back. When for
//!   as long nobody's clock has come any further, the engine's time goes on from
//!   where it was, with an offset from the clock.
//!
//! What is new has seen nothing yet. So a reading by which something is made has to be
//! confirmed, and not to be behind the last one by which anything was.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SLACK, SLACK_NS, Tick, nanos};
use crate::sync::{AtomicU64, Lock, Ordering};

/// How exactly it is known when something was last made: far below the slack.
const MADE_NS: u64 = 1_000_000;

/// See the [module](self). A clone always tells the same time.
// All that it knows is behind one pointer, with the clock in a box: who reads the
// clock does not have to work out where in an `Arc` it lies.
#[derive(Clone, Debug)]
pub(crate) struct Timekeeper(Arc<Time>);

/// A clock, and what is known of how it steps back, by all who go by it.
#[derive(Debug)]
struct Time {
    clock: Box<dyn Clock>,
    /// What the clock has lost by stepping back, in ns.
    offset: AtomicU64,
    /// The latest time at which something was made, in ns; up to [`MADE_NS`] before it.
    made: AtomicU64,
    behind: Lock<Option<Behind>>,
}

/// A clock that seems to have stepped back.
#[derive(Clone, Copy, Debug)]
struct Behind {
    since: Tick,
    /// The latest time that any node has seen.
    high: Tick,
}

impl Timekeeper {
    pub(crate) fn new(clock: Box<dyn Clock>) -> Self {
        Self(Arc::new(Time {
            clock,
            offset: AtomicU64::new(0),
            made: AtomicU64::new(0),
            behind: Lock::new(None),
        }))
    }

    /// The present.
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        let lost = self.0.offset.load(Ordering::Relaxed);
        Tick::from_nanos(self.0.clock.now().as_nanos().saturating_add(lost))
    }

    /// `now`, doubted if it does not fit to `seen`, the start of the newest
    /// step that a node has seen.
    #[inline]
    pub(crate) fn check(&self, now: Tick, seen: Tick) -> Tick {
        if now < seen || now.nanos_since(seen) > SLACK_NS {
            self.doubt(now, seen)
        } else {
            now
        }
    }

    /// `now`, at which something is made: a node, a table, a window. It will take what
    /// it is made by for the truth, and others go by what it has seen. Relaxed: a time
    /// is right alone.
    #[cold]
    pub(crate) fn check_making(&self, now: Tick) -> Tick {
        let now = self.agreed(now);
        let made = Tick::from_nanos(self.0.made.load(Ordering::Relaxed));
        let now = if now < made {
            self.doubt(now, made)
        } else {
            now
        };
        // Not with each of a flood of names that find no place: all calls read this line.
        if now.nanos_since(made) > MADE_NS {
            self.0.made.fetch_max(now.as_nanos(), Ordering::Relaxed);
        }
        now
    }

    /// How long it takes from `now` to `at`, on a node that has seen `seen`. A
    /// clock that is further behind than the slack is not waited for.
    pub(crate) fn until(at: Tick, now: Tick, seen: Tick) -> Duration {
        (at - now).min((at - seen).saturating_add(SLACK))
    }

    #[cold]
    fn doubt(&self, now: Tick, seen: Tick) -> Tick {
        // What lies behind may have grown old since it was read.
        let now = if now > seen { now } else { now.max(self.now()) };
        if now + SLACK < seen {
            self.catch_up(now, seen)
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
        let again = self.now();
        let (first, last) = (now.min(again), now.max(again));
        if last.nanos_since(first) > SLACK_NS {
            self.now().clamp(first, last)
        } else {
            now
        }
    }

    /// The clock is behind by more than the slack, or was `before`.
    fn catch_up(&self, before: Tick, seen: Tick) -> Tick {
        let Some(mut behind) = self.0.behind.try_lock() else {
            return before;
        };
        // Another thread may have caught up since, so only now the time is certain.
        let now = self.now();
        if now + SLACK >= seen {
            return self.confirmed(now, seen);
        }
        match *behind {
            Some(known) if seen <= known.high && now >= known.since => {
                if now - known.since < SLACK {
                    return now;
                }
                *behind = None;
                let lost = nanos(known.high - now);
                self.0.offset.fetch_add(lost, Ordering::Relaxed);
                self.now()
            }
            // The first sign of it, or somebody's clock has come further.
            known => {
                let high = known.map_or(seen, |known| known.high.max(seen));
                *behind = Some(Behind { since: now, high });
                now
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

    #[test]
    fn a_glitch_ahead_is_not_believed() {
        let clock = ManualClock::starting_at(at(5_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        // Read an hour ahead once; the clock itself says 5 s.
        assert_eq!(time.check(at(3_605_000), at(4_900)), at(5_000));
        // A real idle time is confirmed.
        clock.set(at(3_605_000));
        assert_eq!(time.check(time.now(), at(4_900)), at(3_605_000));
    }

    #[test]
    fn a_reading_that_grew_old_is_taken_again() {
        let clock = ManualClock::starting_at(at(9_000));
        let time = Timekeeper::new(Box::new(clock));
        assert_eq!(time.check(at(3_000), at(8_500)), at(9_000));
    }

    #[test]
    fn after_a_step_back_time_stands_still_for_one_window_and_then_goes_on() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        let seen = time.now();
        clock.set(at(1_000));
        assert_eq!(time.check(time.now(), seen), at(1_000));
        clock.advance(Duration::from_millis(999));
        assert_eq!(time.check(time.now(), seen), at(1_999));
        clock.advance(Duration::from_millis(1));
        assert_eq!(time.check(time.now(), seen), seen);
        clock.advance(Duration::from_millis(5));
        assert_eq!(
            time.check(time.now(), seen),
            seen + Duration::from_millis(5)
        );
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
        let seen = time.now();
        clock.set(at(1_000));
        assert_eq!(time.check(time.now(), seen), at(1_000));
        clock.advance(SLACK);
        let late = time.now();
        let other = time.clone();
        *sleepy.meanwhile.lock() = Some(Box::new(move || {
            assert_eq!(other.check(other.now(), seen), seen);
        }));
        // It reads the old time once more, and sleeps over what the other one does.
        assert_eq!(time.check(late, seen), seen);
        // So a second step back is waited for as long as the first.
        clock.set(at(0));
        let now = time.now();
        assert_eq!(time.check(now, seen), now);
        clock.advance(SLACK - Duration::from_nanos(1));
        assert!(time.check(time.now(), seen) < seen);
    }

    #[test]
    fn another_one_goes_on_from_the_same_time() {
        let clock = ManualClock::starting_at(at(3_600_000));
        let time = Timekeeper::new(Box::new(clock.clone()));
        let older = time.clone();
        let seen = time.now();
        clock.set(at(1_000));
        time.check(time.now(), seen);
        clock.advance(SLACK);
        assert_eq!(time.check(time.now(), seen), seen);
        // Also one that no call has come to meanwhile.
        assert_eq!([older.now(), time.clone().now()], [seen; 2]);
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
            let now = time.check(at(5_000), seen);
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
            assert_eq!(time.check(first, seen), idle);
            let clock = Readings(Lock::new(next.map(at).to_vec()));
            let time = Timekeeper::new(Box::new(clock));
            assert_eq!(time.check_making(first), idle);
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
            assert_eq!(time.check(time.now(), seen), at(10_100 + step * 100));
        }
    }
}
