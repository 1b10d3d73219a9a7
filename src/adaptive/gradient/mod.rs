//! The gradient: how a limit follows from response times.
//!
//! By Little's law, calls in flight are throughput times response time. So if `long` is the
//! response time without a queue and `short` the present one, `limit × long / short` is the number
//! of calls that the service really works on at once; the rest of those in flight wait. Each window
//! moves the limit there, plus a small queue by which it finds out whether more would be possible:
//!
//! ```text
//! gradient = clamp(tolerance × long / short, ½, 1)
//! target   = limit × gradient + queue
//! limit    = limit + smoothing × (target − limit), within floor and ceiling
//! ```
//!
//! Under more load than the service can take, the limit settles where
//! `limit = tolerance × slots + queue`.
//!
//! # Source
//!
//! The formula is Gradient2 of Netflix's concurrency-limits, with its constants:
//! smoothing 0.2, gradient not below ½, a long average of 600 samples which
//! loses a tenth per window while it is more than twice the short one, start 20,
//! ceiling 200, and no growth while fewer calls than half of the limit are in
//! flight. Windows are those of its `WindowedLimit`: twice the response time
//! and at least 10 samples long, and between 100 ms, the least that it allows,
//! and 1 s, its default; with few calls, as many samples as the limit.
//!
//! # Differences
//!
//! 1. *The long response time is not an average of everything.* Under permanent overload such an
//!    average becomes the response time with a queue, so the gradient becomes 1 and the limit
//!    climbs to its ceiling (`claims.rs` shows it). It has to be the response time *without* a
//!    queue, and that is seen only while fewer calls are in flight: in windows that are less than
//!    half full, in windows at the floor, and in probes. Other windows can only lower it, and only
//!    by more than noise: if they are faster by a quarter.
//! 2. *Probes*, in which the limit is a quarter lower until the queue is gone, one response time
//!    longer, and then until five rounds of calls have been measured. If the response time falls
//!    along with the limit, there was still a queue, and the probe goes a quarter deeper. One comes
//!    every 10 s of load; at once if the limit or the long response time has lost a quarter since
//!    the last one, because then one of the two is wrong; and 2 s after one that did not confirm
//!    the last. Breaks are at least 20 times as long as the probe (twice, if it is to be
//!    confirmed), so its cost stays small where calls are slow. Netflix's first gradient and BBR
//!    probe for the same reason.
//! 3. *Tolerance is 1, not 1.5.* The limit settles at `tolerance × slots`: half
//!    of all slots again, all of it queue. The tolerance is there for averages
//!    that are noisy; see the next point.
//! 4. *The queue is half of the square root of the limit, at least 1*, not the
//!    square root or 4: with 10 slots these make limits of 13.7 and 14. The noise
//!    of a window's average takes from the limit what it pushes the gradient
//!    below 1, and that is about 0.3 √limit × the coefficient of variation; so
//!    half of the root outgrows it up to exponential response times and beyond.
//! 5. *A probe errs upwards.* A long response time that is 10 % too high costs
//!    10 % of queue; one that is 20 % too low costs most of the limit. So if two
//!    probes agree to a tenth, a third one counts in full if it is higher, and by
//!    half if it is lower.
//! 6. *Outliers* beyond four times the long response time count as that. The
//!    gradient ends at twice; so no congestion is hidden, and a single stream that
//!    ends after an hour does not decide a window.
//!
//! # What it cannot know
//!
//! A service that becomes slower for a reason other than its load looks like a queue until a probe
//! has seen it: the limit falls by a quarter, is probed, and comes back. A floor above the capacity
//! of the service keeps the queue that it makes.

use std::time::Duration;

use super::window::{Samples, WindowTerms, has_stepped_back};
use crate::base::sync::{Bug, planted};
use crate::clock::Tick;

/// Netflix: the gradient takes at most half of the limit, so that outliers do
/// not empty the service.
const STEEPEST: f64 = 0.5;
/// Netflix: how many samples the long average is over.
const LONG_SAMPLES: f64 = 600.0;
/// Netflix: by what factor the long response time must exceed the short one to
/// be taken for a leftover, and what then remains of it after each window.
const LEFTOVER: f64 = 2.0;
const DECAY: f64 = 0.9;
/// Netflix: bounds of a window.
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);
const LONGEST_WINDOW: Duration = Duration::from_secs(1);
const FEWEST_SAMPLES: u32 = 10;

/// Below this part of the old value, a new one is more than noise.
const CLEARLY_LESS: f64 = 0.75;
/// Two probes agree if neither is below this part of the other.
const AGREES: f64 = 0.9;
/// A response time that falls below this part, while the limit falls to three
/// quarters, falls with the limit.
const WITH_LIMIT: f64 = 0.8125;
/// Longer response times count as this multiple of the long-term one.
const OUTLIER: f64 = 4.0;
/// The time between two probes, and before one that is to confirm another.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const CONFIRM_AFTER: Duration = Duration::from_secs(2);
/// The shortest time between two probes, as a multiple of how long the last probe took.
const PROBE_BREAK: u32 = 20;
const CONFIRM_BREAK: u32 = 2;
/// A probe measures this many rounds of the calls that it lets in, but not more
/// calls than that.
const PROBE_ROUNDS: u32 = 5;
const PROBE_SAMPLES: u32 = 100;

/// The settings of a user. Checked by the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LimiterSettings {
    /// At least 1.
    pub(crate) floor: u32,
    /// At least the floor.
    pub(crate) ceiling: u32,
    /// Between the two.
    pub(crate) start: u32,
    /// Finite, at least 1.
    pub(crate) tolerance: f64,
    /// Above 0, at most 1.
    pub(crate) smoothing: f64,
}

/// The purpose of the next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Adjusting the limit.
    Steady,
    /// A probe waits until no more calls than its level are in flight.
    Settling,
    /// A probe measures.
    Measuring,
}

/// The learned values. Response times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Learned {
    /// The limit that has been found, with its fraction.
    pub(super) estimate: f64,
    /// The response time without a queue; 0 as long as there is none.
    pub(super) long: f64,
    pub(super) phase: Phase,
    /// The limit while a probe runs.
    pub(super) level: u32,
    /// The response time before the limit was lowered to the level.
    pub(super) above: f64,
    /// When the last probe began, and before when no other one does.
    pub(super) began: Tick,
    pub(super) next: Tick,
    /// The largest estimate since the last probe.
    pub(super) mark: f64,
    /// The long response time after the last probe.
    pub(super) probed: f64,
    /// Whether the last probe agreed with the estimate of before.
    pub(super) is_confirmed: bool,
}

// === impl Learned ===

impl Learned {
    pub(super) fn new(settings: &LimiterSettings, now: Tick) -> Self {
        Self {
            estimate: settings.start.into(),
            long: 0.0,
            phase: Phase::Steady,
            level: settings.start,
            above: 0.0,
            began: now,
            // Where the limit starts may be far above the slots: the first busy
            // window is followed by a probe.
            next: now,
            mark: settings.start.into(),
            probed: 0.0,
            is_confirmed: false,
        }
    }

    /// The learned values of `old`, within other bounds. A probe of it is abandoned.
    pub(super) fn of(old: Self, settings: &LimiterSettings, now: Tick) -> Self {
        let estimate = old
            .estimate
            .clamp(settings.floor.into(), settings.ceiling.into());
        Self {
            estimate,
            long: old.long,
            next: old.next.min(now + PROBE_EVERY),
            mark: estimate,
            probed: old.long,
            is_confirmed: old.is_confirmed,
            ..Self::new(settings, now)
        }
    }

    /// The limit in force.
    pub(super) fn limit(&self) -> u32 {
        match self.phase {
            Phase::Steady => self.estimate as u32,
            Phase::Settling | Phase::Measuring => self.level,
        }
    }

    /// The longest response time that counts in full.
    pub(super) fn longest(long: f64) -> Duration {
        if long > 0.0 {
            Duration::from_nanos((long * OUTLIER) as u64)
        } else {
            Duration::MAX
        }
    }

    /// A window closed at `now`, with `in_flight` calls in flight. Decides the purpose of the next
    /// one.
    pub(super) fn close(
        &mut self,
        settings: &LimiterSettings,
        now: Tick,
        in_flight: u32,
        sample: Samples,
    ) -> WindowTerms {
        if has_stepped_back(sample.opened.as_nanos(), now.as_nanos()) {
            // Nothing that was measured across the step is true.
            self.rest(now, PROBE_EVERY, PROBE_BREAK);
            return self.terms(now);
        }
        // The closer's clock may have been read before the window opened.
        let now = now.max(sample.opened);
        if self.phase != Phase::Steady {
            // Where the probe was abandoned and no call came to close it, it cost nothing.
            self.began = self.began + (now - self.given_up(sample.opened));
        }
        match self.phase {
            Phase::Steady => self.adjust(settings, now, sample),
            Phase::Settling if in_flight <= self.level => self.phase = Phase::Measuring,
            // Calls that do not end, such as streams, leave nothing to measure.
            Phase::Settling => self.rest(now, PROBE_EVERY, PROBE_BREAK),
            Phase::Measuring => self.measured(settings, now, sample),
        }
        self.terms(now)
    }

    /// The terms of a window that opens at `now`.
    pub(super) fn terms(&self, now: Tick) -> WindowTerms {
        let never = Tick::from_nanos(u64::MAX);
        let long = Duration::from_nanos(self.long as u64);
        let above = Duration::from_nanos(self.above as u64);
        let length = (2 * long).clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
        let given_up = self.given_up(now);
        match self.phase {
            Phase::Steady => WindowTerms {
                opened: now,
                due: now + length,
                needed: self.limit().min(FEWEST_SAMPLES),
                latest: never,
                calm: 0,
                since: Tick::ZERO,
            },
            // Each probe gets its own due time, the one at which it is abandoned: so the gate of
            // each probe differs, and a late closer cannot act on the state of an earlier probe.
            Phase::Settling => WindowTerms {
                opened: now,
                due: if planted(Bug::OneGateForAll) {
                    never
                } else {
                    given_up
                },
                needed: 0,
                latest: given_up,
                calm: self.level,
                since: never,
            },
            // Calls that end now may have waited in the queue: they are let go.
            // Those that end after one more response time all count, whenever
            // they began: to leave out those that began earlier would prefer the
            // fast ones.
            Phase::Measuring => WindowTerms {
                opened: now,
                due: now + above + length,
                needed: (self.level.saturating_mul(PROBE_ROUNDS)).min(PROBE_SAMPLES),
                latest: given_up,
                calm: 0,
                since: now + above,
            },
        }
    }

    /// When a window of a probe that opened at `opened` is abandoned.
    fn given_up(&self, opened: Tick) -> Tick {
        let above = Duration::from_nanos(self.above as u64);
        opened + 4 * above.max(LONGEST_WINDOW)
    }

    fn adjust(&mut self, settings: &LimiterSettings, now: Tick, sample: Samples) {
        let Some(short) = sample.mean_ns() else {
            return;
        };
        if self.long == 0.0 {
            self.long = short;
        }
        if f64::from(sample.peak) < self.estimate / 2.0 {
            // As good as a probe, and it says nothing about the limit.
            self.feed(short, sample.count);
            self.next = now + PROBE_EVERY;
            return;
        }
        let limit = self.limit();
        if limit <= settings.floor {
            // There is no lower limit to compare with.
            self.long += (short - self.long) * settings.smoothing;
        } else if short < self.long * CLEARLY_LESS {
            self.feed(short, sample.count);
            if self.long > LEFTOVER * short {
                self.long *= DECAY;
            }
        }
        let gradient = (settings.tolerance * self.long / short).clamp(STEEPEST, 1.0);
        let queue = (self.estimate.sqrt() / 2.0).max(1.0);
        let target = self.estimate * gradient + queue;
        self.estimate = (self.estimate + (target - self.estimate) * settings.smoothing)
            .clamp(settings.floor.into(), settings.ceiling.into());
        self.mark = self.mark.max(self.estimate);
        let is_in_doubt =
            self.long <= self.probed * CLEARLY_LESS || self.estimate <= self.mark * CLEARLY_LESS;
        if self.limit() > settings.floor && (is_in_doubt || now >= self.next) {
            self.began = now;
            self.probe(settings, self.limit(), short);
        }
    }

    /// Adds `count` samples with the average `short` to the long average.
    fn feed(&mut self, short: f64, count: u32) {
        let weight = (2.0 * f64::from(count) / (LONG_SAMPLES + 1.0)).min(1.0);
        self.long += (short - self.long) * weight;
    }

    /// Lowers the limit by a quarter from `limit`, where calls took `above`.
    fn probe(&mut self, settings: &LimiterSettings, limit: u32, above: f64) {
        self.phase = Phase::Settling;
        self.level = (limit - limit.div_ceil(4)).max(settings.floor);
        self.above = above;
    }

    fn measured(&mut self, settings: &LimiterSettings, now: Tick, sample: Samples) {
        let enough = self.level.min(FEWEST_SAMPLES);
        let short = match sample.mean_ns() {
            Some(short) if sample.count >= enough => short,
            _ => return self.rest(now, PROBE_EVERY, PROBE_BREAK),
        };
        if short < self.above * WITH_LIMIT && self.level > settings.floor {
            return self.probe(settings, self.level, short);
        }
        let agrees = short > self.long * AGREES && short * AGREES < self.long;
        if agrees && self.is_confirmed && short < self.long {
            self.long += (short - self.long) / 2.0;
        } else {
            self.long = short;
        }
        self.is_confirmed = agrees;
        if agrees {
            self.rest(now, PROBE_EVERY, PROBE_BREAK);
        } else {
            self.rest(now, CONFIRM_AFTER, CONFIRM_BREAK);
        }
    }

    /// Ends a probe; no other one before `least`, or a multiple of how long it
    /// took.
    fn rest(&mut self, now: Tick, least: Duration, multiple: u32) {
        self.phase = Phase::Steady;
        self.mark = self.estimate;
        self.probed = self.long;
        self.next = now + least.max((now - self.began).saturating_mul(multiple));
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
