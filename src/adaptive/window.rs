//! One sampling window: it adds up response times, and exactly one of many calls closes it.
//!
//! ```text
//! samples  [ sum of response times in ns:50 | how many:14 ]
//! gate     the tick from which the window may close, or CLOSING
//! ```
//!
//! A call that ends adds itself with one `fetch_add`. If the window may close
//! then, the one call that moves the gate to `CLOSING` takes the samples with
//! one `swap`, decides, and opens the gate for the next window. So:
//!
//! * Sum and number are one word: each sample is in exactly one window, as a
//!   whole. One that is added while the window closes is in this one or in the
//!   next.
//! * Between `CLOSING` and the next gate there is one closer, and no call waits for it: if its
//!   thread is put to sleep there, the window grows longer.
//! * The largest concurrency is a word of its own, so a call that ends while the window closes may
//!   have its concurrency in one window and its sample in the next or the one before.
//! * A full window takes no more: further calls add nothing until it closes.
//!
//! The gate is opened with release and read with acquire: a call that finds it open sees the terms
//! of its window and all that its closer wrote. Everything else is relaxed: atomic additions lose
//! nothing, and nothing is published with them.

use std::time::Duration;

use crate::base::sync::{AtomicU32, AtomicU64, Bug, Ordering, planted};
use crate::clock::{SLACK_NS, Tick, nanos};

const COUNT_BITS: u32 = 14;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// Most samples of one window; threads that find one place left overshoot it by
/// at most their number, for which the count has room up to 16 383.
const FULL: u64 = 4_096;
/// Longest response time that counts in full. 16 383 of them fit the sum.
const MAX_RT: Duration = Duration::from_secs(60);
/// The gate while a call closes the window.
const CLOSING: u64 = u64::MAX;

/// When a window may close, and which calls it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowTerms {
    pub(super) opened: Tick,
    /// It closes once this is past and `needed` samples are there …
    pub(super) due: Tick,
    pub(super) needed: u32,
    /// … or this is past …
    pub(super) latest: Tick,
    /// … or at most this many calls are in flight; 0 disables this condition.
    pub(super) calm: u32,
    /// Calls that end before this are not counted.
    pub(super) since: Tick,
}

/// The samples of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    /// When it opened.
    pub(super) opened: Tick,
    pub(super) count: u32,
    pub(super) sum_ns: u64,
    /// Most calls in flight when one ended, that one included.
    pub(super) peak: u32,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct SampleWindow {
    samples: AtomicU64,
    peak: AtomicU32,
    gate: AtomicU64,
    // The terms: written by the closer alone, before it opens the gate.
    opened: AtomicU64,
    needed: AtomicU32,
    latest: AtomicU64,
    calm: AtomicU32,
    since: AtomicU64,
}

// === impl Sample ===

impl Samples {
    /// The average response time in nanoseconds, at least 1; `None` if the
    /// window is empty.
    pub(super) fn mean_ns(self) -> Option<f64> {
        (self.count > 0).then(|| (self.sum_ns as f64 / f64::from(self.count)).max(1.0))
    }
}

// === impl SampleWindow ===

impl SampleWindow {
    pub(super) fn new(terms: WindowTerms) -> Self {
        let window = Self::default();
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
    }

    /// The samples of the window, for the one call that closes it; it then has to
    /// [open](Self::open) the next one. The second value is the number of calls in flight, which
    /// `in_flight` returns and only a window that waits for calm asks: else 0.
    #[inline]
    pub(super) fn close(&self, now: Tick, in_flight: impl Fn() -> u32) -> Option<(Samples, u32)> {
        let early = planted(Bug::GaugeBeforeGate).then(&in_flight);
        // Acquire: pairs with the release in `open`.
        let gate = self.gate.load(Ordering::Acquire);
        if gate == CLOSING {
            return None;
        }
        // This load comes after the acquire, and gates never repeat. So the calls in flight are
        // counted while this window is open, and not a later one.
        let calm = self.calm.load(Ordering::Relaxed);
        let in_flight = if calm == 0 {
            0
        } else {
            early.unwrap_or_else(in_flight)
        };
        let is_calm = calm > 0 && in_flight <= calm;
        if !is_calm && !self.may_close(gate, now) {
            return None;
        }
        self.take(gate).map(|sample| (sample, in_flight))
    }

    fn may_close(&self, due: u64, now: Tick) -> bool {
        let now = now.as_nanos();
        let count = self.samples.load(Ordering::Relaxed) & COUNT_MASK;
        (now >= due && count >= self.needed.load(Ordering::Relaxed).into())
            || now >= self.latest.load(Ordering::Relaxed)
            || has_stepped_back(self.opened.load(Ordering::Relaxed), now)
    }

    #[cold]
    fn take(&self, gate: u64) -> Option<Samples> {
        // Acquire: the winner sees everything that the last one wrote. While the clock advances no
        // gate comes back, so the winner closes the window that it has judged.
        let won = self
            .gate
            .compare_exchange(gate, CLOSING, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if !won && !planted(Bug::CloseWithoutElection) {
            return None;
        }
        let samples = if planted(Bug::CloseInTwoSteps) {
            let samples = self.samples.load(Ordering::Relaxed);
            self.samples.store(0, Ordering::Relaxed);
            samples
        } else {
            self.samples.swap(0, Ordering::Relaxed)
        };
        Some(Samples {
            opened: Tick::from_nanos(self.opened.load(Ordering::Relaxed)),
            count: (samples & COUNT_MASK) as u32,
            sum_ns: samples >> COUNT_BITS,
            peak: self.peak.swap(0, Ordering::Relaxed),
        })
    }

    /// Opens the next window. Only for the call that closed the last one.
    pub(super) fn open(&self, terms: WindowTerms) {
        self.opened
            .store(terms.opened.as_nanos(), Ordering::Relaxed);
        self.needed.store(terms.needed, Ordering::Relaxed);
        self.latest
            .store(terms.latest.as_nanos(), Ordering::Relaxed);
        self.calm.store(terms.calm, Ordering::Relaxed);
        self.since.store(terms.since.as_nanos(), Ordering::Relaxed);
        // Release: pairs with the acquire in `close` and `take`.
        self.gate
            .store(terms.due.as_nanos().min(CLOSING - 1), Ordering::Release);
    }
}

/// Returns whether a clock at `now_ns` has stepped back since it was at `then_ns`.
pub(super) const fn has_stepped_back(then_ns: u64, now_ns: u64) -> bool {
    then_ns.saturating_sub(now_ns) > SLACK_NS
}

#[cfg(test)]
impl WindowTerms {
    /// Terms of a window that any call may close.
    pub(super) const ALWAYS: Self = Self {
        opened: Tick::ZERO,
        due: Tick::ZERO,
        needed: 1,
        latest: Tick::from_nanos(u64::MAX),
        calm: 0,
        since: Tick::ZERO,
    };
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    const NOW: Tick = Tick::from_millis(1_000);

    const ALWAYS: WindowTerms = WindowTerms::ALWAYS;

    /// How many calls it saw, and their response times added up.
    fn seen(window: &SampleWindow) -> Option<(u32, Duration)> {
        let (sample, _) = window.close(NOW, || 1)?;
        Some((sample.count, Duration::from_nanos(sample.sum_ns)))
    }

    #[test]
    fn a_call_of_an_hour_counts_as_one_of_a_minute() {
        for rt in [60, 61, 3_600, u64::MAX].map(Duration::from_secs) {
            let window = SampleWindow::new(ALWAYS);
            window.add(NOW, rt, 1);
            window.add(NOW, Duration::from_secs(1), 1);
            assert_eq!(seen(&window), Some((2, Duration::from_secs(61))), "{rt:?}");
        }
    }

    #[test]
    fn a_full_window_takes_no_more() {
        let window = SampleWindow::new(ALWAYS);
        for _ in 0..20_000 {
            window.add(NOW, MAX_RT, 1);
        }
        assert_eq!(seen(&window), Some((4_096, MAX_RT * 4_096)));
    }

    #[test]
    fn the_most_calls_in_flight_are_those_of_this_window() {
        let window = SampleWindow::new(ALWAYS);
        for most in [20, 3] {
            for in_flight in [1, most, 2] {
                window.add(NOW, MAX_RT, in_flight);
            }
            let (sample, _) = window.close(NOW, || 1).unwrap();
            assert_eq!(sample.peak, most);
            window.open(ALWAYS);
        }
    }

    #[test]
    fn a_window_closes_from_the_time_on_that_it_is_due() {
        let window = SampleWindow::new(WindowTerms { due: NOW, ..ALWAYS });
        window.add(NOW, MAX_RT, 1);
        let early = Tick::from_nanos(NOW.as_nanos() - 1);
        assert_eq!(window.close(early, || 1), None);
        assert_eq!(seen(&window), Some((1, MAX_RT)));
    }

    #[test]
    fn calls_count_that_end_when_the_window_begins_to_count() {
        let window = SampleWindow::new(WindowTerms {
            since: NOW,
            ..ALWAYS
        });
        window.add(Tick::from_nanos(NOW.as_nanos() - 1), MAX_RT, 1);
        assert_eq!(seen(&window), None);
        window.add(NOW, Duration::from_secs(1), 1);
        assert_eq!(seen(&window), Some((1, Duration::from_secs(1))));
    }
}
