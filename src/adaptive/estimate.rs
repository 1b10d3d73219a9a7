//! From the samples of a window to the next limit: how many calls at once a service works on,
//! with a small queue.
//!
//! All that is known are the response times of calls that ended and how many ran beside them. The
//! *long* response time is what a call takes without a queue. Three laws lead from there to the
//! limit:
//!
//! * Little: the sum of all response times of a window, divided by its length, is the number of
//!   calls that were in the service on average (`at_once`).
//! * While calls take no longer than `TOLERANCE × long`, no queue stands. Beyond, the part of
//!   them that waits is `1 − TOLERANCE × long / short`.
//! * If fewer calls at once are faster, a queue stood. A *probe* finds that out: the limit is a
//!   quarter lower until the queue is gone, then 100 calls are measured. If they were faster it
//!   goes a quarter deeper; else what they took is the long response time.
//!
//! The limit is the number of calls in the service without their queue, and half of its square
//! root, at least 2, for a small one: then no worker waits for work.
//!
//! # What a part is for
//!
//! * *A ramp teaches nothing.* While more and more calls come, those that have ended are the short
//!   ones; their mean would become the long response time. A window is *level* if the most calls in
//!   flight were at most twice the average, and 4.
//! * *A limit below the slots looks healthy*: response times are good, nothing waits. Only
//!   refusals while calls are not slower tell it. Then the limit grows by a quarter a window.
//! * *The first window is long*, ten response times, as those that end early are the short ones.
//! * *After a probe that was not faster* the limit may be too low as well: it grows by two fifths
//!   a window, after the first probe it doubles, until calls become slower (`cold`).
//! * *A service that becomes slower for its own reasons* looks like a queue until a probe has seen
//!   it. A probe that cannot settle or is disturbed again says so too, and so do eight inflated
//!   windows without a refusal: the long response time grows by a quarter. Otherwise a long
//!   response time that is too low would stay.
//!
//! # Source
//!
//! The windows and outliers are those of Gradient2 in Netflix's concurrency-limits, the probe that
//! of its first gradient and of BBR. The limit by Little's law and the rest come from simulations;
//! `bars` repeats them.

use std::time::Duration;

use super::window::{Samples, WindowTerms, has_stepped_back};
use crate::clock::Tick;

/// The least limit of a rule whose own bounds allow it: with fewer calls at once a window has too
/// few samples to tell a queue from noise.
const LEAST: u32 = 3;
/// Calls take at most this multiple of the long response time while no queue stands: a mean of
/// 100 samples is off by a tenth, and a long response time that is a fifth too low would cost a
/// third of the limit otherwise.
pub(super) const TOLERANCE: f64 = 1.3;
/// A window with a longer mean is inflated: calls were clearly slower than without a queue.
const INFLATED: f64 = 1.25;
/// A mean below this part of the long response time is less by more than noise.
const CLEARLY_LESS: f64 = 0.75;
/// Longer response times count as this multiple of the long one.
const OUTLIER: f64 = 8.0;
/// How many samples the long response time is an average over.
const LONG_SAMPLES: f64 = 600.0;

/// Bounds of the length of a window, in which two response times pass.
const SHORTEST: Duration = Duration::from_millis(100);
const SHORTEST_COLD: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);
/// A window needs this many samples, or, when it is as long as the longest, that many.
const SAMPLES: u32 = 100;
const FEW_SAMPLES: u32 = 10;
/// Longest first window.
const FIRST: Duration = Duration::from_millis(500);

/// A response time that falls below this part, while the limit falls to three quarters, falls with
/// the limit.
const WITH_LIMIT: f64 = 0.78;
/// A probe closes with this many samples when its calls are slow. With fewer than the least it
/// says nothing.
const PROBE_SAMPLES: u32 = 40;
const PROBE_LEAST: u32 = 20;
/// The time between two probes, and the least multiple of how long the last one took.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBE_BREAK: u32 = 20;
/// The same for a probe because calls have become slower.
const DOUBT_AFTER: Duration = Duration::from_secs(2);
const DOUBT_BREAK: u32 = 5;
/// The time until a probe that other calls have disturbed is tried again.
const DISTURBED: Duration = Duration::from_millis(500);
/// After so many inflated windows in a row without a refusal, calls take as long as that.
const STEADILY: u32 = 8;
/// From so many such probes in a row on, something is learned from them all the same.
const MOST_DISTURBED: u32 = 2;

/// The settings of a user. Checked by the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LimiterSettings {
    /// At least 1.
    pub(crate) floor: u32,
    /// At least the floor.
    pub(crate) ceiling: u32,
    /// Between the two.
    pub(crate) start: u32,
    /// How long a burst may be: work of this time beyond the limit.
    pub(crate) burst: Duration,
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

/// What else is known when a window closes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meanwhile {
    /// Calls in flight.
    pub(super) in_flight: u32,
    /// Whether a class is shut.
    pub(super) is_shut: bool,
    /// Whether a call was refused in the window.
    pub(super) was_refused: bool,
    /// Whether a class was shut in the window while none was before.
    pub(super) began_to_shed: bool,
}

/// The learned values. Response times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LimitEstimate {
    /// The limit that has been found, with its fraction.
    pub(super) limit: f64,
    /// The response time without a queue; 0 as long as it is unknown.
    pub(super) long: f64,
    pub(super) phase: Phase,
    /// The limit while a probe runs.
    pub(super) level: u32,
    /// The response time before the limit was lowered to the level.
    above: f64,
    /// When the last probe began and ended.
    began: Tick,
    ended: Tick,
    /// Before these, no probe begins: for any reason, because of slower calls.
    pub(super) next: Tick,
    not_before: Tick,
    /// The largest limit since the last probe.
    mark: f64,
    /// The long response time after the last probe.
    pub(super) probed: f64,
    /// The factor by which the limit grows until calls become slower; 0: it does not.
    cold: f64,
    /// The probe right after the first window.
    is_first: bool,
    /// How many probes in a row were disturbed.
    disturbed: u32,
    /// Calls have become faster in this probe.
    has_fallen: bool,
    /// Calls were refused in the last window, at the ceiling, and were not slower than without a
    /// queue.
    pub(super) is_at_ceiling: bool,
    /// How many windows in a row wanted more calls than the limit, at no cost; were inflated.
    wanting: u32,
    inflated: u32,
}

// === impl LimiterSettings ===

impl LimiterSettings {
    /// The least limit.
    fn least(&self) -> u32 {
        self.floor.max(LEAST).min(self.ceiling)
    }

    /// The least level of a probe.
    fn least_level(&self) -> u32 {
        self.floor.max(LEAST - 1).min(self.ceiling)
    }

    fn clamp(&self, limit: f64) -> f64 {
        limit.clamp(self.least().into(), self.ceiling.into())
    }
}

/// The queue that a limit makes room for; and how many workers of one may be idle before a queue
/// is said to be gone.
pub(super) fn small_queue(limit: f64) -> f64 {
    (limit.sqrt() / 2.0).max(2.0)
}

// === impl LimitEstimate ===

impl LimitEstimate {
    pub(super) fn new(settings: &LimiterSettings, now: Tick) -> Self {
        let limit = f64::from(settings.start).clamp(1.0, settings.ceiling.into());
        Self {
            limit,
            long: 0.0,
            phase: Phase::Steady,
            level: settings.start,
            above: 0.0,
            began: now,
            ended: now,
            next: now,
            not_before: now,
            mark: limit,
            probed: 0.0,
            cold: 0.0,
            is_first: false,
            disturbed: 0,
            has_fallen: false,
            is_at_ceiling: false,
            wanting: 0,
            inflated: 0,
        }
    }

    /// The learned values of `old`, within other bounds. A probe of it is abandoned.
    pub(super) fn of(old: &Self, settings: &LimiterSettings, now: Tick) -> Self {
        let limit = settings.clamp(old.limit);
        Self {
            limit,
            long: old.long,
            next: old.next.min(now + PROBE_EVERY),
            mark: limit,
            probed: old.long,
            ..Self::new(settings, now)
        }
    }

    /// The limit in force.
    pub(super) fn in_force(&self) -> f64 {
        match self.phase {
            Phase::Steady => self.limit,
            Phase::Settling | Phase::Measuring => self.level.into(),
        }
    }

    pub(super) fn is_probing(&self) -> bool {
        self.phase != Phase::Steady
    }

    /// The longest response time that counts in full.
    pub(super) fn longest(&self) -> Duration {
        if self.long > 0.0 && !self.is_probing() {
            Duration::from_nanos((self.long * OUTLIER) as u64)
        } else {
            Duration::MAX
        }
    }

    /// No call waits longer than four response times: the limit is at most what a service that
    /// ends `rate` calls a second works on in this time. Returns whether it became lower.
    pub(super) fn cut_to(&mut self, rate: f64, settings: &LimiterSettings) -> bool {
        if self.is_probing() || self.long == 0.0 {
            return false;
        }
        let before = self.limit;
        let most = (4.0 * rate * self.long / 1e9).max(f64::from(LEAST) + 2.0);
        self.limit = settings.clamp(before.min(most));
        self.limit < before
    }

    /// A window closed at `now`. Decides the purpose of the next one.
    pub(super) fn close(
        &mut self,
        settings: &LimiterSettings,
        now: Tick,
        beside: Meanwhile,
        sample: &Samples,
    ) -> WindowTerms {
        if has_stepped_back(sample.opened.as_nanos(), now.as_nanos()) {
            // Nothing that was measured across the step is true.
            self.rest(now);
            return self.terms(now);
        }
        // The closer's clock may have been read before the window opened.
        let now = now.max(sample.opened);
        if self.is_probing() {
            // Where the probe was abandoned and no call came to close it, it cost nothing.
            self.began = self.began + (now - self.given_up(sample.opened));
        }
        match self.phase {
            Phase::Steady => self.adjust(settings, now, beside, sample),
            Phase::Settling => self.settled(now, beside, sample),
            Phase::Measuring => self.measured(settings, now, sample),
        }
        self.terms(now)
    }

    /// The terms of a window that opens at `now`.
    pub(super) fn terms(&self, now: Tick) -> WindowTerms {
        let length = self.length();
        let given_up = self.given_up(now);
        let few = (self.limit as u32).clamp(1, FEW_SAMPLES);
        let is_first = self.long == 0.0;
        let terms = WindowTerms {
            opened: now,
            due: now + length,
            needed: if self.cold > 0.0 || is_first {
                few
            } else {
                SAMPLES
            },
            late: now + LONGEST,
            few,
            first: if is_first { FIRST } else { Duration::ZERO },
            ..WindowTerms::never(now)
        };
        match self.phase {
            Phase::Steady => terms,
            // Its samples count, as a probe that cannot settle learns from them.
            Phase::Settling => WindowTerms {
                latest: given_up,
                calm: self.level,
                ..WindowTerms::never(now)
            },
            // Calls that end now may have waited in the queue: they are let go. Those that end
            // after one more response time all count, whenever they began: to leave out those
            // that began earlier would prefer the fast ones.
            Phase::Measuring => WindowTerms {
                due: now + self.above(),
                needed: SAMPLES,
                late: now + self.above() + LONGEST,
                few: PROBE_SAMPLES,
                latest: given_up,
                since: now + self.above(),
                ..WindowTerms::never(now)
            },
        }
    }

    /// How long a window is at least.
    pub(super) fn length(&self) -> Duration {
        let shortest = if self.cold > 0.0 {
            SHORTEST_COLD
        } else {
            SHORTEST
        };
        (2 * Duration::from_nanos(self.long as u64)).clamp(shortest, LONGEST)
    }

    fn above(&self) -> Duration {
        Duration::from_nanos(self.above as u64)
    }

    /// When a window of a probe that opened at `opened` is abandoned.
    fn given_up(&self, opened: Tick) -> Tick {
        let round = self.above().max(LONGEST);
        match self.phase {
            Phase::Measuring => opened + self.above() + 2 * round,
            _ => opened + 4 * round,
        }
    }

    fn adjust(
        &mut self,
        settings: &LimiterSettings,
        now: Tick,
        beside: Meanwhile,
        sample: &Samples,
    ) {
        let Some(short) = sample.mean_ns() else {
            return;
        };
        if self.long == 0.0 {
            return self.begin(settings, now, beside, sample, short);
        }
        if beside.began_to_shed && now >= self.ended + PROBE_EVERY {
            // It costs nothing: the queue has to drain anyway.
            self.next = now;
        }
        let length = (now - sample.opened).as_nanos().max(1) as f64;
        let at_once = sample.sum_ns as f64 / length;
        let (peak, least) = (f64::from(sample.peak), f64::from(sample.least));
        let is_level = peak <= 2.0 * at_once + 4.0;
        if at_once < 0.6 * self.limit && is_level {
            // As good as a probe, and it says nothing about the limit.
            self.feed(short, sample.count);
            if !beside.is_shut {
                self.next = now + PROBE_EVERY;
            }
            (self.wanting, self.inflated) = (0, 0);
            return;
        }
        if short < CLEARLY_LESS * self.long && is_level {
            self.feed(short, sample.count);
            if self.long > 2.0 * short {
                self.long *= 0.9;
            }
        }
        let is_inflated = short > INFLATED * self.long;
        if is_inflated {
            self.cold = 0.0;
            self.inflated += 1;
        } else {
            self.inflated = 0;
        }
        if self.inflated >= STEADILY && !beside.is_shut && !beside.was_refused {
            // Calls are slower than thought, and nobody is the worse for it.
            self.creep(short);
            self.inflated = 0;
        }
        let queue = small_queue(self.limit);
        let is_full = least >= self.limit - queue;
        let is_at_ceiling = self.limit >= settings.ceiling.into();
        self.is_at_ceiling = is_at_ceiling && beside.was_refused && !is_inflated;
        if is_at_ceiling {
            self.cold = 0.0;
        }
        if self.cold > 0.0 && peak >= 0.9 * self.limit {
            self.limit = settings.clamp(self.limit * self.cold);
            self.mark = self.mark.max(self.limit);
            return;
        }
        let is_wanted = beside.was_refused || is_full;
        let is_free = short < 1.15 * self.long && at_once >= 0.7 * self.limit;
        self.wanting = if is_wanted && is_free {
            self.wanting + 1
        } else {
            0
        };
        let reached = peak >= self.limit - queue;
        if self.wanting >= 2 {
            self.limit *= 1.25;
        } else if is_full || is_inflated && (reached || beside.is_shut) {
            let working = (TOLERANCE * self.long / short).clamp(0.5, 1.0);
            let target = at_once.min(2.0 * self.limit) * working + queue;
            self.limit += 0.25 * (target - self.limit);
        } else if reached && !is_inflated {
            self.limit += 0.2 * queue;
        }
        self.limit = settings.clamp(self.limit);
        self.mark = self.mark.max(self.limit);

        let is_full = least >= self.limit - small_queue(self.limit);
        let is_in_doubt = self.limit < CLEARLY_LESS * self.mark
            || short < 0.5 * self.probed && now >= self.ended + DOUBT_AFTER
            || self.inflated >= 2
                && beside.is_shut
                && self.probed < CLEARLY_LESS * short
                && now >= self.not_before;
        if (is_full || beside.is_shut)
            && is_level
            && self.limit > settings.least().into()
            && (now >= self.next || is_in_doubt)
        {
            self.probe(settings, now, self.limit, short);
        }
    }

    /// The first window has closed.
    fn begin(
        &mut self,
        settings: &LimiterSettings,
        now: Tick,
        beside: Meanwhile,
        sample: &Samples,
        short: f64,
    ) {
        self.long = short;
        self.probed = short;
        if beside.was_refused {
            self.is_first = true;
            self.probe(settings, now, self.limit, short);
        } else {
            self.limit = settings.clamp(self.limit.max(sample.peak.into()));
            self.mark = self.limit;
            self.next = now + PROBE_EVERY;
        }
    }

    /// Adds `count` samples with the average `short` to the long average.
    fn feed(&mut self, short: f64, count: u32) {
        let weight = (2.0 * f64::from(count) / (LONG_SAMPLES + 1.0)).min(1.0);
        self.long += (short - self.long) * weight;
    }

    /// Begins a probe at `limit`, where calls took `above`.
    fn probe(&mut self, settings: &LimiterSettings, now: Tick, limit: f64, above: f64) {
        self.began = now;
        self.has_fallen = false;
        self.lower(settings, limit, above);
    }

    fn lower(&mut self, settings: &LimiterSettings, limit: f64, above: f64) {
        self.phase = Phase::Settling;
        self.level = ((0.75 * limit) as u32).max(settings.least_level());
        self.above = above;
    }

    fn settled(&mut self, now: Tick, beside: Meanwhile, sample: &Samples) {
        if beside.in_flight <= self.level {
            self.phase = Phase::Measuring;
            return;
        }
        // Other calls keep the service full, or calls that do not end, such as streams.
        if let Some(short) = sample.mean_ns() {
            self.creep(short);
        }
        self.rest(now);
    }

    /// No probe succeeds, and calls take `short`: a long response time that is wrong must not last.
    fn creep(&mut self, short: f64) {
        self.long = short.min(INFLATED * self.long);
    }

    fn measured(&mut self, settings: &LimiterSettings, now: Tick, sample: &Samples) {
        let Some(short) = sample.mean_ns().filter(|_| sample.count >= PROBE_LEAST) else {
            return self.rest(now);
        };
        if f64::from(sample.peak) > 1.5 * f64::from(self.level) + 2.0 {
            // Classes that are open came in between.
            self.disturbed += 1;
            if self.disturbed >= MOST_DISTURBED {
                self.creep(short);
            }
            self.rest(now);
            self.next = now + DISTURBED;
            return;
        }
        self.disturbed = 0;
        if short < self.above * WITH_LIMIT && self.level > settings.least_level() {
            self.has_fallen = true;
            return self.lower(settings, self.level.into(), short);
        }
        self.long = if short < self.long && short > 0.8 * self.long {
            f64::midpoint(self.long, short)
        } else {
            short
        };
        if self.has_fallen {
            let working = TOLERANCE * f64::from(self.level) / 0.75;
            let most = working + small_queue(working);
            self.limit = settings.clamp(self.limit.min(most));
        } else {
            // Fewer calls are not faster: more may be no slower.
            self.cold = if self.is_first { 2.0 } else { 1.4 };
        }
        self.rest(now);
    }

    /// Ends a probe.
    fn rest(&mut self, now: Tick) {
        let took = now - self.began;
        self.phase = Phase::Steady;
        self.mark = self.limit;
        self.probed = self.long;
        self.is_first = false;
        self.ended = now;
        self.not_before = now + DOUBT_AFTER.max(took.saturating_mul(DOUBT_BREAK));
        self.next = now + PROBE_EVERY.max(took.saturating_mul(PROBE_BREAK));
        (self.wanting, self.inflated) = (0, 0);
    }
}
