//! The state of the closers of an adaptive limit: the estimate, and the rate of ended calls.

use std::time::Duration;

use super::bounds::{BoundsObserved, CLASSES, Frame};
use super::estimate::{LimitEstimate, LimiterSettings, small_queue};
use super::window::{WindowTerms, has_stepped_back};
use crate::clock::Tick;
use crate::stat::Ends;

/// The minimum number of ended calls with which a window of bounds closes.
const ENDED: u64 = 20;
/// The minimum number of ended calls once the window has lasted for [`LONGEST`].
const FEW_ENDED: u64 = 5;
/// The length from which a window of bounds closes with [`FEW_ENDED`] calls.
const LONGEST: Duration = Duration::from_secs(1);
/// A class without calls still counts as seen for this many windows, so that a short gap between
/// its calls does not change the bounds.
const REMEMBERED: u8 = 10;

/// See the [module](self). Only the closer of a window changes this state, under a lock.
#[derive(Debug)]
pub(super) struct Learned {
    pub(super) estimate: LimitEstimate,
    pub(super) terms: WindowTerms,
    /// When the window of bounds opened.
    pub(super) opened: Tick,
    /// The number of calls that had ended when the window opened; `None` if unknown.
    all: Option<Ends>,
    /// The average number of calls that end per second.
    rate: f64,
    /// The calls in flight at the end of the last window of bounds.
    in_flight: u32,
    /// See [`Frame::drain`].
    pub(super) drain: u32,
    /// For each class, the number of windows since its last call.
    unseen: [u8; CLASSES],
}

/// The calls that ended in a window of bounds, and its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedCalls {
    pub(super) calls: u64,
    pub(super) length: Duration,
}

// === impl Learned ===

impl Learned {
    pub(super) fn new(estimate: LimitEstimate, now: Tick) -> Self {
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

    /// Creates the state that continues that of `old` with changed `settings`. No drain is in
    /// progress.
    pub(super) fn of(old: &Self, settings: &LimiterSettings, now: Tick) -> Self {
        Self {
            rate: old.rate,
            unseen: old.unseen,
            all: old.all,
            ..Self::new(LimitEstimate::of(&old.estimate, settings, now), now)
        }
    }

    /// Returns when the window of bounds is due.
    pub(super) fn turn(&self) -> Tick {
        self.opened + self.estimate.length().max(Duration::from_millis(100))
    }

    /// Closes the window of bounds if it is due at `now`, and begins the next window. Returns the
    /// calls that have ended in the closed window. Returns `None` if the window stays open, or if
    /// the number of calls is unknown, for example after a step back of the clock.
    pub(super) fn ended(&mut self, now: Tick, all: &dyn Fn() -> Ends) -> Option<EndedCalls> {
        let has_stepped_back = has_stepped_back(self.opened.as_nanos(), now.as_nanos());
        if now < self.turn() && !has_stepped_back {
            return None;
        }
        let all = all();
        let length = now - self.opened;
        let before = self.all.filter(|_| !has_stepped_back);
        let calls = before.map(|before| all.since(before));
        if calls.is_some_and(|it| it < ENDED && (length < LONGEST || it < FEW_ENDED)) {
            return None;
        }
        (self.opened, self.all) = (now, Some(all));
        calls.map(|calls| EndedCalls { calls, length })
    }

    /// Returns whether a worker was free, so no queue stands, if the fewest calls in flight were
    /// `lowest`.
    pub(super) fn is_emptied(&self, lowest: u32) -> bool {
        let limit = self.estimate.in_force();
        f64::from(lowest) < limit - small_queue(limit)
    }

    /// Updates the rate, the limit and the drain after a window of bounds of this `length`, which
    /// ended with `in_flight` calls in flight.
    pub(super) fn close_bounds(
        &mut self,
        settings: &LimiterSettings,
        shown: &BoundsObserved,
        length: Duration,
        in_flight: u32,
    ) {
        let rate = shown.ended as f64 / length.as_secs_f64().max(1e-9);
        self.rate = if shown.emptied {
            rate.max(0.98 * self.rate)
        } else {
            0.75 * self.rate + 0.25 * rate
        };
        let was_cut = !shown.emptied && self.estimate.cut_to(self.rate, settings);
        // While the service drains, calls of open classes must not be refused: see
        // [`Frame::drain`].
        let sinks = was_cut || in_flight < self.in_flight;
        self.drain = if sinks { in_flight } else { 0 };
        self.in_flight = in_flight;
    }

    /// Updates `unseen` with the classes that were `seen` in a window.
    pub(super) fn note(&mut self, seen: u32) {
        for (class, unseen) in self.unseen.iter_mut().enumerate() {
            *unseen = if seen & 1 << class != 0 {
                0
            } else {
                unseen.saturating_add(1)
            };
        }
    }

    /// Returns the inputs for the bounds.
    pub(super) fn frame(&self) -> Frame {
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
