//! Estimates the limit from the samples of a window: the number of calls that a service works on at
//! once, with a small queue.
//!
//! The only inputs are the response times of ended calls, and the number of calls in flight at
//! their ends. The *long* response time is the long-term mean of calls that met no queue. Three
//! observations lead to the limit:
//!
//! * Little's law: the sum of all response times of a window, divided by its length, is the average
//!   number of calls in the service (`at_once`).
//! * While calls take at most `TOLERANCE × long`, no queue stands. If the mean `short` of a window
//!   is longer, the fraction of calls that wait is `1 − TOLERANCE × long / short`.
//! * If fewer concurrent calls are faster, a queue stood. A *probe* tests this: it lowers the limit
//!   by a quarter until the queue is gone, and then measures 100 calls. If these calls were faster,
//!   it lowers the limit by another quarter. Otherwise, their mean is the long response time.
//!
//! The limit is the number of calls in the service without their queue, plus half of its square
//! root, at least 2, for a small queue, so that no worker is idle.
//!
//! # Purpose of each part
//!
//! * *Ramps are ignored.* While the load rises, mostly short calls have ended, and their mean would
//!   be taken for the long response time. A window is *level* if the maximum of calls in flight was
//!   at most twice the average plus 4.
//! * *A limit below the slots looks healthy*: response times are good, and nothing waits. The only
//!   sign is that calls are refused while calls are not slower. In this case, the limit grows by a
//!   quarter per window.
//! * *The first window is long*, ten response times, as the calls that end early are mostly short.
//! * *After a probe that was not faster*, the limit may be too low as well. So it grows by two
//!   fifths per window, or doubles after the first probe, until calls become slower (`cold`).
//! * *A service that becomes slower for its own reasons* looks like a queue until a probe has
//!   measured it. The long response time also grows, by at most a quarter, after a probe that
//!   cannot settle or is disturbed repeatedly, and after eight inflated windows without a refusal.
//!   Otherwise, a long response time that is too low would never be corrected.
//!
//! # Source
//!
//! The windows and the treatment of outliers are taken from Gradient2 in Netflix's
//! concurrency-limits. The probe is taken from its first gradient algorithm and from BBR. The limit
//! by Little's law and the constants below were found by simulations; `bars` repeats them.

use std::time::Duration;

use super::window::{Samples, WindowTerms, has_stepped_back};
use crate::clock::Tick;

/// The least limit, if the floor and the ceiling of the rule allow it. With fewer concurrent calls,
/// a window has too few samples to distinguish a queue from noise.
const LEAST: u32 = 3;
/// While no queue stands, calls take at most this multiple of the long response time. It is above 1
/// because a mean of 100 samples is off by a tenth, and because a long response time that is a
/// fifth too low would otherwise cost a third of the limit.
pub(super) const TOLERANCE: f64 = 1.3;
/// A window with a longer mean is inflated: calls were clearly slower than without a queue.
const INFLATED: f64 = 1.25;
/// A mean below this fraction of the long response time differs from it by more than noise.
const CLEARLY_LESS: f64 = 0.75;
/// Response times above this multiple of the long response time are cut to it.
const OUTLIER: f64 = 8.0;
/// The number of samples over which the long response time is averaged.
const LONG_SAMPLES: f64 = 600.0;

/// The minimum length of a window. Between the minimum and [`LONGEST`], a window lasts two long
/// response times.
const SHORTEST: Duration = Duration::from_millis(100);
/// The minimum length of a window while the limit grows after a probe. It is shorter, so that the
/// limit grows fast.
const SHORTEST_COLD: Duration = Duration::from_millis(20);
/// The length from which a window closes with [`FEW_SAMPLES`] samples.
const LONGEST: Duration = Duration::from_secs(1);
/// The minimum number of samples with which a window closes.
const SAMPLES: u32 = 100;
/// The minimum number of samples once a window has lasted for [`LONGEST`].
const FEW_SAMPLES: u32 = 10;
/// The maximum length of the first window.
const FIRST: Duration = Duration::from_millis(500);

/// A probe lowers the limit to three quarters. If the response time then falls below this fraction
/// of its previous value, it falls with the limit, so a queue stood.
const WITH_LIMIT: f64 = 0.78;
/// The number of samples with which a probe closes once it has measured for [`LONGEST`].
const PROBE_SAMPLES: u32 = 40;
/// With fewer samples, a probe has no result.
const PROBE_LEAST: u32 = 20;
/// The time between two regular probes.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// The time between two regular probes, as a multiple of the duration of the last one, if that
/// is longer.
const PROBE_BREAK: u32 = 20;
/// The minimum time from a probe to a probe that starts early because calls have become slower.
const DOUBT_AFTER: Duration = Duration::from_secs(2);
/// The same minimum as a multiple of the duration of the last probe, if that is longer.
const DOUBT_BREAK: u32 = 5;
/// The time until a disturbed probe is repeated. A probe is disturbed if clearly more calls than
/// its level were in flight.
const DISTURBED: Duration = Duration::from_millis(500);
/// After this many inflated windows in a row without a refusal, the long response time grows
/// towards the mean of the last window.
const STEADILY: u32 = 8;
/// The number of disturbed probes in a row after which the long response time grows.
const MOST_DISTURBED: u32 = 2;

/// The settings of an adaptive rule, already validated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LimiterSettings {
    /// The least limit; at least 1.
    pub(crate) floor: u32,
    /// The largest limit and bound; at least the floor.
    pub(crate) ceiling: u32,
    /// The first limit; between floor and ceiling.
    pub(crate) start: u32,
    /// The size of a burst, as a time: as many calls as end in this time may exceed the limit.
    pub(crate) burst: Duration,
}

/// The purpose of the next window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The window adjusts the limit.
    Steady,
    /// A probe waits until the calls in flight have fallen to its level.
    Settling,
    /// A probe measures response times.
    Measuring,
}

/// The observations of a window in addition to its samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowContext {
    /// The calls in flight when the window closed.
    pub(super) in_flight: u32,
    /// Whether a class was shut when the window closed.
    pub(super) is_shut: bool,
    /// Whether a call was refused in the window.
    pub(super) was_refused: bool,
    /// Whether a class was shut in the window, while none was shut before.
    pub(super) began_to_shed: bool,
}

/// The learned values. Response times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LimitEstimate {
    /// The estimated limit, with its fraction.
    pub(super) limit: f64,
    /// The long response time; 0 as long as it is unknown.
    pub(super) long: f64,
    pub(super) phase: Phase,
    /// The limit while a probe runs.
    pub(super) level: u32,
    /// The response time before the limit was lowered to the level.
    above: f64,
    /// When the last probe began.
    began: Tick,
    /// When the last probe ended.
    ended: Tick,
    /// The time of the next regular probe.
    pub(super) next: Tick,
    /// The earliest time of a probe because of slower calls.
    not_before: Tick,
    /// The largest limit since the last probe.
    mark: f64,
    /// The long response time after the last probe.
    pub(super) probed: f64,
    /// The factor by which the limit grows per window after a probe, until calls become slower; 0
    /// if it does not grow.
    cold: f64,
    /// Whether the current probe directly follows the first window.
    is_first: bool,
    /// The number of disturbed probes in a row.
    disturbed: u32,
    /// Whether the current probe has lowered its level again because calls became faster.
    has_fallen: bool,
    /// Whether calls were refused in the last window only because of the ceiling: response times
    /// showed no queue.
    pub(super) is_at_ceiling: bool,
    /// The number of windows in a row with more demand than the limit (refusals, or a limit that
    /// was always reached), in which calls were not slower.
    wanting: u32,
    /// The number of inflated windows in a row.
    inflated: u32,
}

// === impl LimiterSettings ===

impl LimiterSettings {
    /// Returns the least limit.
    fn least(&self) -> u32 {
        self.floor.max(LEAST).min(self.ceiling)
    }

    /// Returns the least level of a probe.
    fn least_level(&self) -> u32 {
        self.floor.max(LEAST - 1).min(self.ceiling)
    }

    /// Clamps `limit` to the least limit and the ceiling.
    fn clamp(&self, limit: f64) -> f64 {
        limit.clamp(self.least().into(), self.ceiling.into())
    }
}

/// Returns the length of the queue for which a limit has room. If more workers than this are idle,
/// no queue stands.
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

    /// Creates an estimate with the learned values of `old`, clamped to the bounds of `settings`. A
    /// probe of `old` is abandoned.
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

    /// Returns the limit in force, which a probe lowers.
    pub(super) fn in_force(&self) -> f64 {
        match self.phase {
            Phase::Steady => self.limit,
            Phase::Settling | Phase::Measuring => self.level.into(),
        }
    }

    /// Returns whether a probe is running.
    pub(super) fn is_probing(&self) -> bool {
        self.phase != Phase::Steady
    }

    /// Returns the response time to which longer ones are cut.
    pub(super) fn longest(&self) -> Duration {
        if self.long > 0.0 && !self.is_probing() {
            Duration::from_nanos((self.long * OUTLIER) as u64)
        } else {
            Duration::MAX
        }
    }

    /// Lowers the limit to the calls that a service with `rate` ended calls per second serves in
    /// four long response times, so that no call waits longer. Returns whether the limit became
    /// lower.
    pub(super) fn cut_to(&mut self, rate: f64, settings: &LimiterSettings) -> bool {
        if self.is_probing() || self.long == 0.0 {
            return false;
        }
        let before = self.limit;
        let most = (4.0 * rate * self.long / 1e9).max(f64::from(LEAST) + 2.0);
        self.limit = settings.clamp(before.min(most));
        self.limit < before
    }

    /// Learns from a window that closed at `now`. Returns the terms of the next window.
    pub(super) fn close(
        &mut self,
        settings: &LimiterSettings,
        now: Tick,
        observed: WindowContext,
        sample: &Samples,
    ) -> WindowTerms {
        if has_stepped_back(sample.opened.as_nanos(), now.as_nanos()) {
            // Measurements across the step are invalid.
            self.rest(now);
            return self.terms(now);
        }
        // The closer can have read the clock before another thread opened the window.
        let now = now.max(sample.opened);
        if self.is_probing() {
            // A probe ends at `given_up`, even if no call came to close its window. The time since
            // then does not count as its duration.
            self.began = self.began + (now - self.given_up(sample.opened));
        }
        match self.phase {
            Phase::Steady => self.adjust(settings, now, observed, sample),
            Phase::Settling => self.settled(now, observed, sample),
            Phase::Measuring => self.measured(settings, now, sample),
        }
        self.terms(now)
    }

    /// Returns the terms of a window that opens at `now`.
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
            // Samples are counted here as well, as a probe that cannot settle learns from them.
            Phase::Settling => WindowTerms {
                latest: given_up,
                calm: self.level,
                ..WindowTerms::never(now)
            },
            // Calls that end now may have waited in the queue, so they are not counted. All calls
            // that end after one more response time count, no matter when they began: leaving out
            // those that began earlier would favour fast calls.
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

    /// Returns the least length of a window.
    pub(super) fn length(&self) -> Duration {
        let shortest = if self.cold > 0.0 {
            SHORTEST_COLD
        } else {
            SHORTEST
        };
        (2 * Duration::from_nanos(self.long as u64)).clamp(shortest, LONGEST)
    }

    /// Returns the response time before the limit was lowered to the level of the probe.
    fn above(&self) -> Duration {
        Duration::from_nanos(self.above as u64)
    }

    /// Returns when a window of a probe that opened at `opened` is abandoned.
    fn given_up(&self, opened: Tick) -> Tick {
        let round = self.above().max(LONGEST);
        match self.phase {
            Phase::Measuring => opened + self.above() + 2 * round,
            _ => opened + 4 * round,
        }
    }

    /// Adjusts the limit after a window outside of probes, and begins a probe if it is due.
    fn adjust(
        &mut self,
        settings: &LimiterSettings,
        now: Tick,
        observed: WindowContext,
        sample: &Samples,
    ) {
        let Some(short) = sample.mean_ns() else {
            return;
        };
        if self.long == 0.0 {
            return self.begin(settings, now, observed, sample, short);
        }
        if observed.began_to_shed && now >= self.ended + PROBE_EVERY {
            // A probe now costs nothing, as the queue has to drain anyway.
            self.next = now;
        }
        let length = (now - sample.opened).as_nanos().max(1) as f64;
        let at_once = sample.sum_ns as f64 / length;
        let (peak, least) = (f64::from(sample.peak), f64::from(sample.least));
        let is_level = peak <= 2.0 * at_once + 4.0;
        if at_once < 0.6 * self.limit && is_level {
            // With so few calls, no queue stands: they show the long response time like a probe,
            // but nothing about the limit.
            self.feed(short, sample.count);
            if !observed.is_shut {
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
        if self.inflated >= STEADILY && !observed.is_shut && !observed.was_refused {
            // Calls are slower than assumed, without overload.
            self.creep(short);
            self.inflated = 0;
        }
        let queue = small_queue(self.limit);
        let is_full = least >= self.limit - queue;
        let is_at_ceiling = self.limit >= settings.ceiling.into();
        self.is_at_ceiling = is_at_ceiling && observed.was_refused && !is_inflated;
        if is_at_ceiling {
            self.cold = 0.0;
        }
        if self.cold > 0.0 && peak >= 0.9 * self.limit {
            self.limit = settings.clamp(self.limit * self.cold);
            self.mark = self.mark.max(self.limit);
            return;
        }
        let is_wanted = observed.was_refused || is_full;
        let is_free = short < 1.15 * self.long && at_once >= 0.7 * self.limit;
        self.wanting = if is_wanted && is_free {
            self.wanting + 1
        } else {
            0
        };
        let reached = peak >= self.limit - queue;
        if self.wanting >= 2 {
            self.limit *= 1.25;
        } else if is_full || is_inflated && (reached || observed.is_shut) {
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
                && observed.is_shut
                && self.probed < CLEARLY_LESS * short
                && now >= self.not_before;
        if (is_full || observed.is_shut)
            && is_level
            && self.limit > settings.least().into()
            && (now >= self.next || is_in_doubt)
        {
            self.probe(settings, now, self.limit, short);
        }
    }

    /// Learns from the first window.
    fn begin(
        &mut self,
        settings: &LimiterSettings,
        now: Tick,
        observed: WindowContext,
        sample: &Samples,
        short: f64,
    ) {
        self.long = short;
        self.probed = short;
        if observed.was_refused {
            self.is_first = true;
            self.probe(settings, now, self.limit, short);
        } else {
            self.limit = settings.clamp(self.limit.max(sample.peak.into()));
            self.mark = self.limit;
            self.next = now + PROBE_EVERY;
        }
    }

    /// Adds `count` samples with the mean `short` to the long response time.
    fn feed(&mut self, short: f64, count: u32) {
        let weight = (2.0 * f64::from(count) / (LONG_SAMPLES + 1.0)).min(1.0);
        self.long += (short - self.long) * weight;
    }

    /// Begins a probe from `limit`, at which calls took `above`.
    fn probe(&mut self, settings: &LimiterSettings, now: Tick, limit: f64, above: f64) {
        self.began = now;
        self.has_fallen = false;
        self.lower(settings, limit, above);
    }

    /// Lowers the level of a probe to three quarters of `limit`, at which calls took `above`.
    fn lower(&mut self, settings: &LimiterSettings, limit: f64, above: f64) {
        self.phase = Phase::Settling;
        self.level = ((0.75 * limit) as u32).max(settings.least_level());
        self.above = above;
    }

    /// Closes the window in which a probe settles.
    fn settled(&mut self, now: Tick, observed: WindowContext, sample: &Samples) {
        if observed.in_flight <= self.level {
            self.phase = Phase::Measuring;
            return;
        }
        // The calls in flight did not fall to the level. Calls of open classes keep the service
        // full, or calls that do not end, such as streams.
        if let Some(short) = sample.mean_ns() {
            self.creep(short);
        }
        self.rest(now);
    }

    /// Moves the long response time to `short`, growing by at most a quarter, without a successful
    /// probe. Otherwise, a value that is too low would stay.
    fn creep(&mut self, short: f64) {
        self.long = short.min(INFLATED * self.long);
    }

    /// Closes the window in which a probe measures.
    fn measured(&mut self, settings: &LimiterSettings, now: Tick, sample: &Samples) {
        let Some(short) = sample.mean_ns().filter(|_| sample.count >= PROBE_LEAST) else {
            return self.rest(now);
        };
        if f64::from(sample.peak) > 1.5 * f64::from(self.level) + 2.0 {
            // Calls of open classes arrived during the probe.
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
            // Fewer concurrent calls were not faster, so more concurrent calls are perhaps not
            // slower.
            self.cold = if self.is_first { 2.0 } else { 1.4 };
        }
        self.rest(now);
    }

    /// Ends a probe, and schedules the next probes.
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
