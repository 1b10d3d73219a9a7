//! What the closers of an adaptive limit know: the estimate, and how many calls end.

use std::time::Duration;

use super::bounds::{CLASSES, Frame, Shown};
use super::estimate::{LimitEstimate, LimiterSettings, small_queue};
use super::window::{WindowTerms, has_stepped_back};
use crate::clock::Tick;
use crate::stat::Ends;

/// Ended calls of a window of bounds, or, when it is as long as the longest, that many.
const ENDED: u64 = 20;
const FEW_ENDED: u64 = 5;
const LONGEST: Duration = Duration::from_secs(1);
/// A class counts as seen for this many windows without a call of it.
const REMEMBERED: u8 = 10;

/// What the closers know.
#[derive(Debug)]
pub(super) struct Learned {
    pub(super) estimate: LimitEstimate,
    pub(super) terms: WindowTerms,
    /// When the window of bounds opened, and how many calls had ended by then; `None`: unknown.
    pub(super) opened: Tick,
    all: Option<Ends>,
    /// Calls that end in a second.
    rate: f64,
    /// Calls in flight at the end of the last window of bounds; and if bounds sank then, else 0.
    in_flight: u32,
    pub(super) drain: u32,
    /// How many windows ago a call of each class came.
    unseen: [u8; CLASSES],
}

/// The calls that ended in a window of bounds, and how long that was.
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

    /// What `old` knew, within other bounds. All classes are open.
    pub(super) fn of(old: &Self, settings: &LimiterSettings, now: Tick) -> Self {
        Self {
            rate: old.rate,
            unseen: old.unseen,
            all: old.all,
            ..Self::new(LimitEstimate::of(&old.estimate, settings, now), now)
        }
    }

    /// When the window of bounds is due.
    pub(super) fn turn(&self) -> Tick {
        self.opened + self.estimate.length().max(Duration::from_millis(100))
    }

    /// What has ended in the window of bounds, if it closes at `now`; the next one begins. `None` if
    /// it stays open, or begins only now as the clock has stepped back.
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

    /// Returns whether a worker was free, as there were as few as `lowest` calls in flight: no queue
    /// stands.
    pub(super) fn is_emptied(&self, lowest: u32) -> bool {
        let limit = self.estimate.in_force();
        f64::from(lowest) < limit - small_queue(limit)
    }

    /// Learns from a window of bounds of this `length`, at whose end calls are `in_flight`.
    pub(super) fn close_bounds(
        &mut self,
        settings: &LimiterSettings,
        shown: &Shown,
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
        // Bounds that sink refuse no call that is not to blame.
        let sinks = was_cut || in_flight < self.in_flight;
        self.drain = if sinks { in_flight } else { 0 };
        self.in_flight = in_flight;
    }

    /// Notes the classes `seen` in a window.
    pub(super) fn note(&mut self, seen: u32) {
        for (class, unseen) in self.unseen.iter_mut().enumerate() {
            *unseen = if seen & 1 << class != 0 {
                0
            } else {
                unseen.saturating_add(1)
            };
        }
    }

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
