//! A leaky bucket: each call starts at least its cost after the previous call.
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
//! `max(now, last + c)`, which becomes the latest start. So the cost of a call is its distance from
//! the *previous* call. The first call after an idle time starts at once, at any cost, and idle
//! time earns no burst. A call that would have to wait too long is refused and changes nothing.
//!
//! A call decides on the value of this number that it has read, and takes its turn by one
//! compare-and-swap from this value. So all turns have a total order, in which each start is at
//! least its cost after the previous start. Two shortcuts would break this order, as models show.
//! If an idle queue were changed by a plain store, two calls could pass at the same time. If a call
//! moved the queue before its check, other calls would be refused until it moves the queue back.
//! The number publishes no other data, so its accesses are relaxed.
//!
//! A turn that will not be used can be cancelled only while it is the last turn in the queue,
//! because later calls already know their starts. Otherwise it leaves a gap. All turns that have
//! not been cancelled have different starts. So the number alone shows whether a turn is the last
//! one.
//!
//! A call with a late clock reading waits longer, because the queue only moves back when a turn is
//! cancelled. A call with a clock that is ahead delays the queue until the other clocks have caught
//! up.
//!
//! A second word holds the largest cost that any call has had. The latest turn can delay the next
//! call for this time, so the queue must not be dropped before. No decision on a call depends on
//! this word.
//!
//! # Accuracy
//!
//! Costs are rounded up to whole nanoseconds. So the rate never exceeds the threshold. For calls of
//! one token, it is lower by at most one part in 10⁹ ÷ (calls per second). Up to 4 000 calls per
//! second, this is less than one call per minute; at 700 000 calls per second it is 0.03 %. The
//! highest rate is one call per nanosecond.
//!
//! # Source
//!
//! The leaky bucket as a meter (ITU-T I.371, the generic cell rate algorithm without tolerance for
//! bursts), as in the rate limiter of Alibaba Sentinel. That limiter rounds to milliseconds, takes
//! both shortcuts, and never cancels a turn.

use std::time::Duration;

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};
use crate::clock::{Tick, nanos};

/// Stands for "no turn yet". No turn ever starts at this time, because the last possible turn is
/// one nanosecond earlier.
const FRESH: u64 = u64::MAX;

/// A queue of turns: see the [module](self).
#[derive(Debug)]
pub(crate) struct Throttle {
    /// The start of the latest turn.
    last: AtomicU64,
    /// The largest cost of a call that got a turn, in ns. It can include a call that lost its turn
    /// to another call.
    heaviest: AtomicU64,
}

/// A place in the queue of a [`Throttle`]. It must either be used or be cancelled once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Turn {
    start: u64,
    /// The latest start when this turn was taken; `None` if the turn is not part of the queue.
    before: Option<u64>,
}

/// Returns the cost of `weight` tokens at `threshold` tokens per `interval`, in nanoseconds. It is
/// rounded up, at least 1 unless `weight` is 0, and at most `u64::MAX`.
///
/// Returns `None` if no token passes, that is, if the threshold is not above 0. A weight of 0 costs
/// nothing at any threshold.
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

/// Returns the start of a call behind `last`. The error is the time from which on the call can join
/// the queue, or `None` if its turn is beyond the range of clocks.
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

    /// Takes a turn at `now` or up to `max_wait` later, for a call with the [`cost`] `cost_ns`. A
    /// call of cost 0 starts at once and is not part of the queue.
    ///
    /// # Errors
    ///
    /// Returns the time, later than `now`, from which on the call can join if no other call comes;
    /// `None` means never. In this case the queue is unchanged.
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

    /// Returns the time from which on [`join`](Self::join) would give a turn if no other call
    /// comes; `None` means never. Takes no turn.
    pub(crate) fn available_at(&self, now: Tick, cost_ns: u64, max_wait: Duration) -> Option<Tick> {
        let last = self.last.load(Ordering::Relaxed);
        if cost_ns == 0 {
            return Some(now);
        }
        place(last, now.as_nanos(), cost_ns, nanos(max_wait)).map_or_else(|at| at, |_| Some(now))
    }

    /// Notes the cost of a call that seems to get a turn, before it gets one. So the cost of a call
    /// that runs is never missed, and the cost of a call that is always refused does not count.
    #[cold]
    fn note_heavy(&self, now: u64, cost_ns: u64, max_wait_ns: u64) {
        let last = self.last.load(Ordering::Relaxed);
        if place(last, now, cost_ns, max_wait_ns).is_ok() {
            self.heaviest.fetch_max(cost_ns, Ordering::Relaxed);
        }
    }

    /// Returns the largest cost of a call that has got a turn.
    pub(crate) fn heaviest(&self) -> Duration {
        Duration::from_nanos(self.heaviest.load(Ordering::Relaxed))
    }

    /// Returns the start of the latest turn; `None` if there is no turn yet.
    pub(crate) fn last(&self) -> Option<Tick> {
        let last = self.last.load(Ordering::Relaxed);
        (last != FRESH).then_some(Tick::from_nanos(last))
    }

    /// Cancels a turn that is not used, at any time. Returns false if other turns are behind it;
    /// then the turn leaves a gap.
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
    /// Returns the time at which the call starts.
    pub(crate) const fn start(self) -> Tick {
        Tick::from_nanos(self.start)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
#[path = "tests/throttle.rs"]
mod tests;
