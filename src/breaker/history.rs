//! A breaker's history, for views and reports: when its state last changed, when a bad call last
//! ended, how many bad calls opened it, and how often each state was entered.
//!
//! No decision depends on the history. So if two threads change a breaker at the same time, the
//! figures of either thread may be kept.

use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::{AtomicU64, Ordering, shared_size};
use crate::breaker::BreakerState;
use crate::clock::{SLACK_NS, Tick};

/// The history of one breaker: see the [module](self).
#[derive(Debug)]
pub(super) struct History {
    /// The time of the last change of the state.
    changed: Latest,
    /// The end of the last bad call.
    bad: Latest,
    /// The number of bad calls that opened the breaker; 0 if an operator opened it.
    opened_by: AtomicU64,
    /// The number of times that each state was entered, indexed by state. A breaker that inherits
    /// from another breaker shares these counts, so that they never fall.
    entered: Arc<[AtomicU64; BreakerState::ALL.len()]>,
}

/// The latest of several times, in ns. A time far before the noted one replaces it, because the
/// clock must have stepped back.
#[derive(Debug)]
struct Latest(AtomicU64);

/// Stands for "no time yet"; no clock ever reaches it.
const NEVER: u64 = u64::MAX;

// === impl Latest ===

impl Latest {
    /// Notes `now`, unless the noted time is later by at most the slack of the clock.
    fn note(&self, now: Tick) {
        let (found, now) = (self.0.load(Ordering::Relaxed), now.as_nanos());
        if found == NEVER || found < now || found - now > SLACK_NS {
            self.0.store(now, Ordering::Relaxed);
        }
    }

    /// The time since the noted time, if there is one.
    fn ago(&self, now: Tick) -> Option<Duration> {
        let time = self.0.load(Ordering::Relaxed);
        (time != NEVER).then(|| now - Tick::from_nanos(time))
    }
}

impl Clone for Latest {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

// === impl History ===

impl History {
    /// Creates the history of a breaker that is created at `now`.
    pub(super) fn new(now: Tick) -> Self {
        Self {
            changed: Latest(AtomicU64::new(now.as_nanos())),
            bad: Latest(AtomicU64::new(NEVER)),
            opened_by: AtomicU64::new(0),
            entered: Arc::new(std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }

    /// Bytes that a history occupies on the heap, if it is not shared.
    pub(super) const fn heap() -> usize {
        shared_size::<[AtomicU64; BreakerState::ALL.len()]>()
    }

    /// Notes that the state has changed at `now`.
    pub(super) fn note_change(&self, now: Tick) {
        self.changed.note(now);
    }

    /// Increments the number of times that `state` was entered.
    pub(super) fn note_entered(&self, state: BreakerState) {
        self.entered[state as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of times that `state` was entered.
    pub(super) fn entered(&self, state: BreakerState) -> u64 {
        self.entered[state as usize].load(Ordering::Relaxed)
    }

    /// Notes that a bad call, one that counts or a probe, has ended at `now`.
    pub(super) fn note_bad(&self, now: Tick) {
        self.bad.note(now);
    }

    /// Notes the number of bad calls that have opened the breaker; 0 if an operator has opened it.
    pub(super) fn note_opened_by(&self, bad: u64) {
        self.opened_by.store(bad, Ordering::Relaxed);
    }

    /// The time since the last change of the state.
    pub(super) fn since_change(&self, now: Tick) -> Duration {
        self.changed.ago(now).unwrap_or_default()
    }

    /// The time since the last bad call ended, if one has.
    pub(super) fn since_bad(&self, now: Tick) -> Option<Duration> {
        self.bad.ago(now)
    }

    /// The number of bad calls that opened the breaker; 0 if an operator opened it.
    pub(super) fn opened_by(&self) -> u64 {
        self.opened_by.load(Ordering::Relaxed)
    }
}

impl Clone for History {
    fn clone(&self) -> Self {
        Self {
            changed: self.changed.clone(),
            bad: self.bad.clone(),
            opened_by: AtomicU64::new(self.opened_by()),
            entered: self.entered.clone(),
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_latest_time_is_kept_unless_the_clock_has_stepped_back_far() {
        let latest = Latest(AtomicU64::new(NEVER));
        let now = Tick::from_nanos(100 + SLACK_NS);
        assert_eq!(latest.ago(now), None);
        for (noted, expected) in [(50, 50), (40, 50), (60 + SLACK_NS, 60 + SLACK_NS), (59, 59)] {
            latest.note(Tick::from_nanos(noted));
            let ago = Duration::from_nanos(100 + SLACK_NS - expected);
            assert_eq!(latest.ago(now), Some(ago), "{noted}");
        }
        assert_eq!(latest.ago(Tick::ZERO), Some(Duration::ZERO), "it is ahead");
    }
}
