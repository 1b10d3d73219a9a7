//! Finds out whether many threads refuse calls of one node at once.
//!
//! One of every `PER_LOOK` refusals takes a look, on the thread that refuses. There is a crowd if
//! two looks in a row were by different threads and the refusals between them took only a short
//! time. At that rate the cache line of a shared counter moves between cores much of the time. A
//! crowd is never forgotten, as its cost is paid once.

use crate::base::spread::own_stripe;
use crate::base::sync::{AtomicU64, Ordering};
use crate::clock::Tick;

/// Refusals from one look to the next.
const PER_LOOK: u64 = 1 << 10;
/// Two looks of different threads less than this many µs apart indicate a crowd.
const CROWD_US: u64 = 1_000;

/// The crowd has come.
const HERE: u64 = u64::MAX;

/// The last look, `[ time in µs:56 | stripe of the thread:8 ]`; 0 before the first one; or
/// [`HERE`].
#[derive(Debug, Default)]
pub(super) struct Crowd(AtomicU64);

/// Returns whether the refusal after `before` earlier ones takes a look.
#[inline]
pub(super) const fn is_look_due(before: u64) -> bool {
    before % PER_LOOK == 0
}

// === impl Crowd ===

impl Crowd {
    /// Returns whether a crowd was found [for good](Self::stay).
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed) == HERE
    }

    /// Takes a look: whether there is a crowd `now`.
    pub(super) fn has_come(&self, now: Tick) -> bool {
        let (us, own) = (now.as_nanos() / 1_000, own_stripe() as u64);
        // A look that takes the place of `HERE` says that it has come, and the caller restores it.
        let last = self.0.swap(us << 8 | own, Ordering::Relaxed);
        let (last_us, last_own) = (last >> 8, last & 0xff);
        let is_crowd = last > 0 && last_own != own && us.saturating_sub(last_us) < CROWD_US;
        last == HERE || is_crowd
    }

    /// Records the crowd for good.
    pub(super) fn stay(&self) {
        self.0.store(HERE, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// Looks at these times in µs, each by a thread of its own, and says whether a crowd has come.
    fn has_come(looks: &[u64]) -> bool {
        let crowd = Arc::new(Crowd::default());
        let mut has_come = false;
        for us in looks {
            let (crowd, now) = (crowd.clone(), Tick::from_nanos(us * 1_000));
            has_come |= thread::spawn(move || crowd.has_come(now)).join().unwrap();
        }
        has_come
    }

    #[test]
    fn a_crowd_is_some_threads_within_a_millisecond() {
        // Several, as two of them may have one stripe.
        assert!(has_come(&[1, 900, 1_800, 2_700, 3_600]));
        assert!(!has_come(&[1, 1_001, 2_001, 3_001, 4_001]));
        assert!(!has_come(&[1]));
    }

    #[test]
    fn one_thread_is_no_crowd() {
        let crowd = Crowd::default();
        assert!((1..9).all(|us| !crowd.has_come(Tick::from_nanos(us * 1_000))));
    }

    #[test]
    fn a_crowd_that_stays_has_come_at_each_look() {
        let crowd = Crowd::default();
        crowd.stay();
        assert!(crowd.is_here() && crowd.has_come(Tick::from_nanos(7)));
        crowd.stay();
        assert!(crowd.is_here());
    }

    #[test]
    fn a_look_is_due_once_in_so_many_refusals() {
        let due = |before: &u64| is_look_due(*before);
        let looks: Vec<_> = (0..3_000).filter(due).collect();
        assert_eq!(looks, [0, 1_024, 2_048]);
    }
}
