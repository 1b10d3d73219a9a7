//! A sampling window, which adds up the response times of calls that end.
//!
//! ```text
//! samples  [ sum of response times in ns:50 | how many:14 ]
//! ```
//!
//! A call that ends adds itself with one `fetch_add`. The closer takes the samples with one `swap`,
//! so each sample is in exactly one window, as a whole. A sample that is added while the window
//! closes is in this window or in the next. The largest and the smallest number of calls in flight
//! are separate words. So a call that ends while the window closes can have its number of calls in
//! one window, and its sample in the next or the previous one. A full window ignores further calls
//! until it closes.
//!
//! By [`WindowSpan`], calls check whether the window may close. It is only a hint: the closer, of
//! which there is one at a time, decides by the terms. All accesses are relaxed: additions are
//! never lost, and no other data is published with them.

use std::time::Duration;

use crate::base::sync::{AtomicU32, AtomicU64, Bug, Ordering, planted};
use crate::clock::{SLACK_NS, Tick, nanos};

/// The bits of the number of samples.
const COUNT_BITS: u32 = 14;
/// The mask of the bits that hold the number of samples.
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// The maximum number of samples of one window. Concurrent threads that each find room for one more
/// sample can exceed it by their number. The count has room for 16 383 samples.
const FULL: u64 = 4_096;
/// The response time to which longer ones are cut. The sum has room for 16 383 such samples.
const MAX_RT: Duration = Duration::from_secs(60);

/// When a window may close, and which calls it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowTerms {
    pub(super) opened: Tick,
    /// The time from which the window closes with `needed` samples.
    pub(super) due: Tick,
    /// The number of samples with which the window closes from `due` on.
    pub(super) needed: u32,
    /// The time from which the window closes with `few` samples.
    pub(super) late: Tick,
    /// The number of samples with which the window closes from `late` on.
    pub(super) few: u32,
    /// The time from which the window closes with any number of samples.
    pub(super) latest: Tick,
    /// The window closes at any time if at most this many calls are in flight; 0 disables this
    /// condition.
    pub(super) calm: u32,
    /// The minimum length of the window is ten of its mean response times, but at most this time;
    /// zero disables this condition.
    pub(super) first: Duration,
    /// Calls that end before this time are not counted.
    pub(super) since: Tick,
}

/// The samples of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    /// When the window opened.
    pub(super) opened: Tick,
    /// The number of samples.
    pub(super) count: u32,
    /// The sum of the response times, in nanoseconds.
    pub(super) sum_ns: u64,
    /// The largest number of calls in flight at the end of a call, including that call.
    pub(super) peak: u32,
    /// The smallest number of calls in flight at the end of a call, including that call.
    pub(super) least: u32,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct SampleWindow {
    samples: AtomicU64,
    peak: AtomicU32,
    least: AtomicU32,
    since: AtomicU64,
    span: WindowSpan,
}

/// The time in which a window does not close: from `open` until `due`, both in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct WindowSpan {
    open: AtomicU64,
    due: AtomicU64,
}

// === impl WindowTerms ===

impl WindowTerms {
    /// The terms of a window that opens at `now` and never closes.
    pub(super) const fn never(now: Tick) -> Self {
        let never = Tick::from_nanos(u64::MAX);
        Self {
            opened: now,
            due: never,
            needed: 0,
            late: never,
            few: 0,
            latest: never,
            calm: 0,
            first: Duration::ZERO,
            since: Tick::ZERO,
        }
    }

    /// Returns whether a window with these samples may close at `now`, while `in_flight` calls are
    /// in flight.
    fn allow(&self, now: Tick, samples: u64, in_flight: u32) -> bool {
        if has_stepped_back(self.opened.as_nanos(), now.as_nanos()) {
            return true;
        }
        let count = (samples & COUNT_MASK) as u32;
        let is_there = now >= self.due && count >= self.needed
            || now >= self.late && count >= self.few
            || now >= self.latest
            || self.calm > 0 && in_flight <= self.calm;
        if !is_there || self.first.is_zero() {
            return is_there;
        }
        let mean = Duration::from_nanos((samples >> COUNT_BITS) / u64::from(count.max(1)));
        now >= self.opened + self.first.min(10 * mean)
    }
}

// === impl Samples ===

impl Samples {
    /// Returns the mean response time in nanoseconds, at least 1; `None` if the window is empty.
    pub(super) fn mean_ns(self) -> Option<f64> {
        (self.count > 0).then(|| (self.sum_ns as f64 / f64::from(self.count)).max(1.0))
    }
}

// === impl WindowSpan ===

impl WindowSpan {
    /// Sets the time in which the window does not close. A reading that is before `open` by less
    /// than the clock's slack does not count as a step back.
    pub(super) fn set(&self, open: Tick, due: Tick) {
        let open = open.as_nanos().saturating_sub(SLACK_NS);
        self.open.store(open, Ordering::Relaxed);
        self.due.store(due.as_nanos(), Ordering::Relaxed);
    }

    /// Returns whether the window may close at `now`: it is due, or the clock has stepped back.
    #[inline]
    pub(super) fn is_over(&self, now: Tick) -> bool {
        let now = now.as_nanos();
        now >= self.due.load(Ordering::Relaxed) || now < self.open.load(Ordering::Relaxed)
    }
}

// === impl SampleWindow ===

impl SampleWindow {
    pub(super) fn new(terms: &WindowTerms) -> Self {
        let window = Self {
            samples: AtomicU64::new(0),
            peak: AtomicU32::new(0),
            least: AtomicU32::new(u32::MAX),
            since: AtomicU64::new(0),
            span: WindowSpan::default(),
        };
        window.open(terms);
        window
    }

    /// Adds the sample of a call that ends at `now` after `rt`, with `in_flight` calls in flight,
    /// itself included.
    #[inline]
    pub(super) fn add(&self, now: Tick, rt: Duration, in_flight: u32) {
        if now.as_nanos() < self.since.load(Ordering::Relaxed)
            || self.samples.load(Ordering::Relaxed) & COUNT_MASK >= FULL
        {
            return;
        }
        let rt_ns = nanos(rt.min(MAX_RT));
        self.samples
            .fetch_add(rt_ns << COUNT_BITS | 1, Ordering::Relaxed);
        if in_flight > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(in_flight, Ordering::Relaxed);
        }
        if in_flight < self.least.load(Ordering::Relaxed) {
            self.least.fetch_min(in_flight, Ordering::Relaxed);
        }
    }

    /// Returns whether a closer should check the window, which may be due.
    #[inline]
    pub(super) fn is_due(&self, now: Tick) -> bool {
        self.span.is_over(now)
    }

    /// Closes the window and returns its samples, if its `terms` allow it. Only the closer calls
    /// it, and then [opens](Self::open) the next window.
    pub(super) fn close(&self, terms: &WindowTerms, now: Tick, in_flight: u32) -> Option<Samples> {
        let samples = self.samples.load(Ordering::Relaxed);
        if !terms.allow(now, samples, in_flight) && !planted(Bug::CloseByHint) {
            return None;
        }
        let samples = if planted(Bug::CloseInTwoSteps) {
            let samples = self.samples.load(Ordering::Relaxed);
            self.samples.store(0, Ordering::Relaxed);
            samples
        } else {
            self.samples.swap(0, Ordering::Relaxed)
        };
        let peak = self.peak.swap(0, Ordering::Relaxed);
        Some(Samples {
            opened: terms.opened,
            count: (samples & COUNT_MASK) as u32,
            sum_ns: samples >> COUNT_BITS,
            peak,
            least: self.least.swap(u32::MAX, Ordering::Relaxed).min(peak),
        })
    }

    /// Opens the next window. Only the closer calls it.
    pub(super) fn open(&self, terms: &WindowTerms) {
        self.since.store(terms.since.as_nanos(), Ordering::Relaxed);
        let due = if terms.calm > 0 {
            // Any call that ends can leave few enough calls in flight.
            Tick::ZERO
        } else {
            terms.due.min(terms.late).min(terms.latest)
        };
        self.span.set(terms.opened, due);
    }
}

/// Returns whether a clock at `now_ns` has stepped back since it was at `then_ns`.
pub(super) const fn has_stepped_back(then_ns: u64, now_ns: u64) -> bool {
    then_ns.saturating_sub(now_ns) > SLACK_NS
}

#[cfg(test)]
impl WindowTerms {
    /// The terms of a window that any call may close.
    pub(super) const ALWAYS: Self = Self {
        due: Tick::ZERO,
        needed: 1,
        ..Self::never(Tick::ZERO)
    };
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    const NOW: Tick = Tick::from_millis(1_000);

    const ALWAYS: WindowTerms = WindowTerms::ALWAYS;

    /// Closes the window. Returns the number of its samples and their sum.
    fn seen(window: &SampleWindow, terms: &WindowTerms) -> Option<(u32, Duration)> {
        let sample = window.close(terms, NOW, 1)?;
        Some((sample.count, Duration::from_nanos(sample.sum_ns)))
    }

    #[test]
    fn long_response_times_are_cut_to_a_minute() {
        for rt in [60, 61, 3_600, u64::MAX].map(Duration::from_secs) {
            let window = SampleWindow::new(&ALWAYS);
            window.add(NOW, rt, 1);
            window.add(NOW, Duration::from_secs(1), 1);
            assert_eq!(
                seen(&window, &ALWAYS),
                Some((2, Duration::from_secs(61))),
                "{rt:?}"
            );
        }
    }

    #[test]
    fn a_full_window_ignores_further_samples() {
        let window = SampleWindow::new(&ALWAYS);
        for _ in 0..20_000 {
            window.add(NOW, MAX_RT, 1);
        }
        assert_eq!(seen(&window, &ALWAYS), Some((4_096, MAX_RT * 4_096)));
    }

    #[test]
    fn the_most_and_the_fewest_calls_in_flight_are_those_of_this_window() {
        let window = SampleWindow::new(&ALWAYS);
        for (most, least) in [(20, 7), (6, 2)] {
            for in_flight in [least + 1, most, least] {
                window.add(NOW, MAX_RT, in_flight);
            }
            let sample = window.close(&ALWAYS, NOW, 1).unwrap();
            assert_eq!((sample.peak, sample.least), (most, least));
            window.open(&ALWAYS);
        }
    }

    #[test]
    fn a_window_closes_when_its_terms_are_met() {
        let at = Tick::from_millis;
        let terms = WindowTerms {
            due: at(900),
            needed: 3,
            late: at(1_000),
            few: 2,
            latest: at(2_000),
            ..WindowTerms::never(Tick::ZERO)
        };
        let cases = [
            (899, 9, false),
            (900, 2, false),
            (900, 3, true),
            (1_000, 1, false),
            (1_000, 2, true),
            (1_999, 0, false),
            (2_000, 0, true),
        ];
        for (now, samples, closes) in cases {
            assert_eq!(terms.allow(at(now), samples, 1), closes, "{now} {samples}");
        }
        let calm = WindowTerms { calm: 5, ..terms };
        assert!(calm.allow(at(0), 0, 5) && !calm.allow(at(0), 0, 6));
        // A clock that has stepped back by an hour.
        let opened = at(3_600_000);
        assert!(WindowTerms::never(opened).allow(at(0), 0, 1));
        let window = SampleWindow::new(&WindowTerms::never(opened));
        assert!(window.is_due(at(0)) && !window.is_due(opened));
    }

    #[test]
    fn the_first_window_lasts_for_ten_response_times() {
        let at = Tick::from_millis;
        let terms = WindowTerms {
            first: Duration::from_millis(500),
            ..ALWAYS
        };
        for (mean, due) in [(20, 200), (50, 500), (90, 500)] {
            let samples = (2 * nanos(Duration::from_millis(mean))) << COUNT_BITS | 2;
            assert!(!terms.allow(at(due - 1), samples, 1), "{mean}");
            assert!(terms.allow(at(due), samples, 1), "{mean}");
        }
    }

    #[test]
    fn calls_that_end_before_the_window_counts_are_left_out() {
        let terms = WindowTerms {
            since: NOW,
            ..ALWAYS
        };
        let window = SampleWindow::new(&terms);
        window.add(Tick::from_nanos(NOW.as_nanos() - 1), MAX_RT, 1);
        assert_eq!(seen(&window, &terms), None);
        window.add(NOW, Duration::from_secs(1), 1);
        assert_eq!(seen(&window, &terms), Some((1, Duration::from_secs(1))));
    }
}
