//! A leaky bucket: calls start one after the other, at least their cost apart.
//!
//! ```text
//! cost 100 ms, waits of at most 250 ms, five calls at 0
//!
//! queue   ●────────●────────●        ✗ would start at 300: refused
//!         0       100      200       ✗ as well, nothing has changed
//!         passes  waits    waits
//! ```
//!
//! The queue is one number, the start of the latest turn. A call of cost `c` at `now` starts at
//! `max(now, last + c)`, and that becomes the latest start. So the cost of a call is its distance
//! from the *previous* call. The first call after an idle time starts at once, at any cost, and
//! idle time earns no burst. A call that would have to wait for too long changes nothing.
//!
//! One compare-and-swap of that number decides, from the value on which the decision was based. So
//! all turns have a total order, in which each start is at least its cost after the previous one.
//! Two shortcuts break that, as models show: storing `last = now` at idle lets two calls pass at
//! once, and moving the queue before the check refuses calls that come before it is moved back. The
//! number publishes no other data, so it is relaxed.
//!
//! A turn that will not be used can be cancelled only while it is the last one in the queue,
//! because later calls know their starts already. Otherwise its gap stays. All turns that are held
//! have different starts (each is later than the latest before it), so the number alone tells
//! whether a turn is the last one.
//!
//! A call with a late clock waits longer, because the queue only moves back when a turn is
//! cancelled. A call with a clock that is ahead delays the queue until the other clocks get there.
//!
//! A second word holds the largest cost that any call has had: a turn can matter to the next call
//! for that long, and until then the queue must not be dropped. No decision depends on it.
//!
//! # Accuracy
//!
//! Costs are rounded up to whole nanoseconds. So the rate never exceeds the threshold, and for
//! calls of one token it is lower by at most one part in 10⁹ ÷ (calls per second). That is less
//! than one call a minute up to 4 000 calls per second; at 700 000 it is 0.03 %. The highest rate
//! is one call per nanosecond.
//!
//! # Source
//!
//! The leaky bucket as a meter (ITU-T I.371, the generic cell rate algorithm without tolerance for
//! bursts), as in Sentinel's rate limiter. Sentinel's rounds to milliseconds, takes both shortcuts,
//! and never cancels a turn.

use std::time::Duration;

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};
use crate::clock::{Tick, nanos};

/// Stands for "no turn yet". No turn starts then: the queue ends one nanosecond before.
const FRESH: u64 = u64::MAX;

/// A queue of turns: see the [module](self).
#[derive(Debug)]
pub(crate) struct Throttle {
    /// The start of the latest turn.
    last: AtomicU64,
    /// The largest cost of a call that got a turn, in ns. Can include a call that lost its turn to
    /// another one.
    heaviest: AtomicU64,
}

/// A place in the queue of a [`Throttle`]. It is either used or, once, cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Turn {
    start: u64,
    /// The latest start before this turn; `None` if the turn is not part of the queue.
    before: Option<u64>,
}

/// The cost of `weight` tokens at `threshold` tokens per `interval`, in nanoseconds: rounded up, at
/// least 1 for any token, at most `u64::MAX`.
///
/// `None` if no token passes, that is, if the threshold is not above 0. A weight of 0 costs nothing
/// at any threshold.
///
/// For whole thresholds the result is exact; otherwise its relative error is at most 2⁻⁵².
pub(crate) fn cost(weight: u32, threshold: f64, interval: Duration) -> Option<u64> {
    if weight == 0 {
        return Some(0);
    }
    // The conversion saturates.
    (threshold > 0.0).then(|| {
        if threshold.fract() == 0.0 {
            let all = u128::from(weight) * u128::from(nanos(interval));
            let exact = all.div_ceil(threshold as u128);
            return u64::try_from(exact).unwrap_or(u64::MAX).max(1);
        }
        let exact = f64::from(weight) * nanos(interval) as f64 / threshold;
        (exact.ceil() as u64).max(1)
    })
}

/// Returns the start of a call behind `last`. The error is the time from which on it can join the
/// queue, or `None` if that is beyond the range of clocks.
fn place(last: u64, now: u64, cost_ns: u64, max_wait_ns: u64) -> Result<u64, Option<Tick>> {
    if last == FRESH {
        return Ok(now);
    }
    match last.checked_add(cost_ns) {
        None | Some(FRESH) => Err(None),
        Some(next) if next.saturating_sub(now) > max_wait_ns => {
            Err(Some(Tick::from_nanos(next - max_wait_ns)))
        }
        Some(next) => Ok(next.max(now)),
    }
}

// === impl Throttle ===

impl Throttle {
    /// Creates an empty queue, in which the first call starts at once.
    pub(crate) fn new() -> Self {
        Self {
            last: AtomicU64::new(FRESH),
            heaviest: AtomicU64::new(0),
        }
    }

    /// Takes a turn at `now` or up to `max_wait` later, for a call of [`cost`] `cost_ns`. A call of
    /// cost 0 starts at once and is not part of the queue.
    ///
    /// # Errors
    ///
    /// Returns the time, later than `now`, at which there will be a turn within `max_wait` if no
    /// other call comes; `None` means never. The queue is unchanged then.
    pub(crate) fn join(
        &self,
        now: Tick,
        cost_ns: u64,
        max_wait: Duration,
    ) -> Result<Turn, Option<Tick>> {
        let now = now.as_nanos().min(FRESH - 1);
        if cost_ns == 0 {
            let before = None;
            return Ok(Turn { start: now, before });
        }
        let max_wait_ns = nanos(max_wait);
        if cost_ns > self.heaviest.load(Ordering::Relaxed) {
            self.note_heavy(now, cost_ns, max_wait_ns);
        }
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let place = place(last, now, cost_ns, max_wait_ns);
            let before = Some(last);
            if planted(Bug::MoveThenCheck) && last != FRESH {
                self.last.fetch_add(cost_ns, Ordering::Relaxed);
                if place.is_err() {
                    self.last.fetch_sub(cost_ns, Ordering::Relaxed);
                }
                return place.map(|start| Turn { start, before });
            }
            let start = place?;
            let turn = Turn { start, before };
            if planted(Bug::StoreAtIdle) && start == now {
                self.last.store(start, Ordering::Relaxed);
                return Ok(turn);
            }
            match self
                .last
                .compare_exchange_weak(last, start, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Ok(turn),
                Err(found) => last = found,
            }
        }
    }

    /// Returns when [`join`](Self::join) would find a turn if no other call comes; `None` means
    /// never. Takes nothing.
    pub(crate) fn available_at(&self, now: Tick, cost_ns: u64, max_wait: Duration) -> Option<Tick> {
        let last = self.last.load(Ordering::Relaxed);
        if cost_ns == 0 {
            return Some(now);
        }
        place(last, now.as_nanos(), cost_ns, nanos(max_wait)).map_or_else(|at| at, |_| Some(now))
    }

    /// Notes the cost of a call that seems to get a turn, before it gets one: the cost of a call
    /// that runs must not be missed, and that of a call that is always refused must not count.
    #[cold]
    fn note_heavy(&self, now: u64, cost_ns: u64, max_wait_ns: u64) {
        let last = self.last.load(Ordering::Relaxed);
        if place(last, now, cost_ns, max_wait_ns).is_ok() {
            self.heaviest.fetch_max(cost_ns, Ordering::Relaxed);
        }
    }

    /// The largest cost of a call that has got a turn.
    pub(crate) fn heaviest(&self) -> Duration {
        Duration::from_nanos(self.heaviest.load(Ordering::Relaxed))
    }

    /// The start of the latest turn; `None` if there is none yet.
    pub(crate) fn last(&self) -> Option<Tick> {
        let last = self.last.load(Ordering::Relaxed);
        (last != FRESH).then_some(Tick::from_nanos(last))
    }

    /// Cancels a turn that is not used, however late. Returns false if other turns are behind it:
    /// then its gap stays.
    pub(crate) fn cancel(&self, turn: Turn) -> bool {
        let Some(before) = turn.before else {
            return true;
        };
        if planted(Bug::BlindLeave) {
            self.last.store(before, Ordering::Relaxed);
            return true;
        }
        self.last
            .compare_exchange(turn.start, before, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

impl Turn {
    /// The time at which the call starts.
    pub(crate) const fn start(self) -> Tick {
        Tick::from_nanos(self.start)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
#[path = "tests/throttle.rs"]
mod tests;
