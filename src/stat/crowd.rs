//! Finds out whether many threads refuse calls of one node at once.
//!
//! A *look* is one sample: a thread takes it once per `PER_LOOK` refusals, counted over all threads
//! or, in a crowd, in the thread's stripe. There is a crowd if two consecutive looks are by
//! different threads and less than `CROWD_TIME` apart. At that rate, the cache line of a shared
//! counter often moves between cores. The crowd is forgotten after `MOST_LEFT` consecutive looks
//! that find no crowd. This happens when a single thread still refuses calls; the ordinary counter
//! is faster then. Both counters add to the same sum, so threads need not agree on whether there is
//! a crowd.

use crate::base::spread::STRIPES;
use crate::base::sync::{AtomicU64, Bug, Ordering, planted};
use crate::clock::Tick;

/// The number of refusals from one look to the next. It is large because each look writes a word
/// that all threads share.
const PER_LOOK: u64 = 1 << 10;
/// If two threads look less than this time, about 1 ms, apart, there is a crowd.
const CROWD_TIME: u64 = 1_000_000 >> TIME_SHIFT;
/// Times are in units of 1,024 ns, so that the longest time fits into 54 bits.
const TIME_SHIFT: u32 = 10;

/// The number of consecutive looks without a crowd after which the crowd is forgotten. These looks
/// take a thread several milliseconds, so every other thread on its core has run meanwhile.
const MOST_LEFT: u64 = if cfg!(all(test, sentinel_loom)) {
    2
} else {
    LEFT_MASK
};
/// The bits of the field `left` in the word of a [`Crowd`].
const LEFT_BITS: u32 = 6;
const LEFT_MASK: u64 = (1 << LEFT_BITS) - 1;
/// The bits of a stripe's index in the word of a [`Crowd`].
const STRIPE_BITS: u32 = 4;
const STRIPE_MASK: u64 = (1 << STRIPE_BITS) - 1;
const _: () = assert!(STRIPES <= 1 << STRIPE_BITS);

/// The last look: `[ time:54 | left:6 | stripe of the thread:4 ]`, or 0 before the first look.
/// `left` counts the looks after which the crowd is forgotten; 0 means that there is no crowd.
#[derive(Debug, Default)]
pub(super) struct Crowd(AtomicU64);

/// Returns whether a refusal of `weight` must take a look: once per `PER_LOOK` of refused weight.
/// `before` is the weight refused earlier.
#[inline]
pub(super) const fn is_look_due(before: u64, weight: u64) -> bool {
    before % PER_LOOK < weight
}

// === impl Crowd ===

impl Crowd {
    /// Returns whether there is a crowd.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        left(self.0.load(Ordering::Relaxed)) > 0
    }

    /// Takes a look at `now`, by a thread with the stripe `own`, and returns whether there is a
    /// crowd. A new crowd is recognized only if `may_come` returns true.
    pub(super) fn look(&self, now: Tick, own: usize, may_come: &dyn Fn() -> bool) -> bool {
        // The word 0 stands for no look, so a time is at least 1.
        let time = (now.as_nanos() >> TIME_SHIFT).max(1);
        let own = own as u64;
        let next = |last: u64| {
            let left = if is_crowd(last, time, own) && may_come() {
                MOST_LEFT
            } else {
                left(last).saturating_sub(1)
            };
            time << (LEFT_BITS + STRIPE_BITS) | left << STRIPE_BITS | own
        };
        if planted(Bug::BlindLook) {
            let next = next(self.0.load(Ordering::Relaxed));
            self.0.store(next, Ordering::Relaxed);
            return left(next) > 0;
        }
        let mut last = self.0.load(Ordering::Relaxed);
        loop {
            let next = next(last);
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.0.compare_exchange_weak(last, next, success, failure) {
                Ok(_) => return left(next) > 0,
                Err(newer) => last = newer,
            }
        }
    }
}

/// Returns the field `left` of the word `last`.
const fn left(last: u64) -> u64 {
    last >> STRIPE_BITS & LEFT_MASK
}

/// Returns whether a look at `time` by the thread with the stripe `own` finds a crowd after the
/// look `last`.
const fn is_crowd(last: u64, time: u64, own: u64) -> bool {
    let (last_time, last_own) = (last >> (LEFT_BITS + STRIPE_BITS), last & STRIPE_MASK);
    // A thread with an earlier clock reading can look later; the difference counts as 0 then.
    last > 0 && last_own != own && time.saturating_sub(last_time) < CROWD_TIME
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// Takes looks, each given as a time in µs and the stripe of its thread. Returns for each look
    /// whether there is a crowd afterwards.
    fn looks(crowd: &Crowd, looks: &[(u64, usize)]) -> Vec<bool> {
        let look = |&(us, own): &(u64, usize)| {
            let found = crowd.look(Tick::from_nanos(us * 1_000), own, &|| true);
            assert_eq!(found, crowd.is_here());
            found
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_crowd_is_two_threads_within_a_millisecond() {
        let found = |all: &[(u64, usize)]| looks(&Crowd::default(), all);
        assert_eq!(found(&[(1, 0), (900, 1)]), [false, true]);
        assert_eq!(found(&[(1, 15), (900, 0)]), [false, true]);
        assert_eq!(found(&[(0, 0), (0, 1)]), [false, true]);
        assert_eq!(found(&[(1, 0), (1_100, 1), (2_200, 0)]), [false; 3]);
        assert_eq!(found(&[(1, 3), (2, 3), (3, 3)]), [false; 3]);
        // The second thread read the clock long before it looks.
        assert_eq!(found(&[(5_000, 0), (1, 1)]), [false, true]);
        // At the end of the range of times.
        let end = u64::MAX / 1_000;
        assert_eq!(found(&[(end - 1, 0), (end, 1)]), [false, true]);
    }

    #[test]
    fn a_crowd_is_forgotten_after_enough_looks_of_a_single_thread() {
        let crowd = Crowd::default();
        for _ in 0..3 {
            looks(&crowd, &[(1, 0), (2, 1)]);
            let alone = [(3, 1); MOST_LEFT as usize + 2];
            let is_here = looks(&crowd, &alone);
            let stays = is_here.iter().take_while(|is_here| **is_here).count();
            assert_eq!(stays, MOST_LEFT as usize - 1);
            assert!(!is_here[stays..].contains(&true));
        }
    }

    #[test]
    fn a_crowd_is_forgotten_when_its_threads_are_slow() {
        let crowd = Crowd::default();
        looks(&crowd, &[(1, 0), (2, 1)]);
        let slow: Vec<_> = (1..=MOST_LEFT)
            .map(|look| (look * 2_000, look as usize % 2))
            .collect();
        assert_eq!(looks(&crowd, &slow).last(), Some(&false));
    }

    #[test]
    fn a_crowd_stays_while_two_threads_look_in_turn() {
        let crowd = Crowd::default();
        looks(&crowd, &[(1, 0), (2, 1)]);
        let mut turn = [(3, 1); MOST_LEFT as usize];
        turn[0] = (3, 0);
        for _ in 0..9 {
            assert!(!looks(&crowd, &turn).contains(&false));
        }
    }

    #[test]
    fn no_crowd_is_found_without_permission() {
        let crowd = Crowd::default();
        let look = |own| crowd.look(Tick::from_nanos(9_999), own, &|| false);
        assert_eq!([0, 1, 0, 1].map(look), [false; 4]);
    }

    #[test]
    fn a_look_is_due_once_per_1024_refusals() {
        let due = |before: &u64| is_look_due(*before, 1);
        let looks: Vec<_> = (0..3_000).filter(due).collect();
        assert_eq!(looks, [0, 1_024, 2_048]);
        for weight in [2, 3, 100, 1_024, 3_000] {
            let count = |from: u64| {
                let befores = (from..from + 30_720).step_by(weight as usize);
                befores
                    .filter(|before| is_look_due(*before, weight))
                    .count()
            };
            // One look per `PER_LOOK` is due for any weight and any starting count.
            let most = 30_720_u64.div_ceil(weight.max(PER_LOOK)) as usize + 1;
            let counts = [0, 1, 77].map(count);
            assert!(
                counts.iter().all(|looks| (most - 2..=most).contains(looks)),
                "{counts:?}"
            );
        }
        assert!((0..2_048).all(|before| !is_look_due(before, 0)));
    }
}

#[cfg(all(test, sentinel_loom))]
mod models {
    //! A model of a thread whose looks would forget a crowd, concurrent with a look of another
    //! thread.

    use loom::thread;

    use super::*;
    use crate::base::sync::Arc;
    use crate::base::sync::fault::model;

    model! {
        a_crowd_that_is_forgotten_despite_another_thread at 3 fails with
            a_look_that_is_overwritten: BlindLook;
        || {
            let crowd = Arc::new(Crowd::default());
            let look = |crowd: &Crowd, own| crowd.look(Tick::from_nanos(5_000), own, &|| true);
            look(&crowd, 0);
            look(&crowd, 1);
            let other = crowd.clone();
            let alone = thread::spawn(move || for _ in 0..MOST_LEFT {
                look(&other, 1);
            });
            look(&crowd, 0);
            alone.join().unwrap();
            // Wherever this thread's look falls, too few looks of the other thread follow to forget
            // the crowd.
            assert!(crowd.is_here(), "it is forgotten although two threads look");
        }
    }
}
