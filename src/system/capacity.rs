//! Estimates how many concurrent calls the service can handle without a queue, from its latest
//! throughput.
//!
//! By Little's law, a system that completes λ calls a second, each of which takes the time W, holds
//! L = λ · W calls. With the largest λ that was seen and the smallest W, which is the time without
//! a queue, L is the number of calls that the system can hold at its best speed. Any further
//! concurrent calls only wait.
//!
//! ```text
//! second      −4   −3   −2   −1   now
//! completed   90  100   80   95     7      best:      100 a second
//! average RT  22   25   20   31    90 ms   smallest:   20 ms
//!
//! capacity = 100 / s · 20 ms = 2 calls
//! ```
//!
//! BBR, a congestion control of TCP, sets its window by the same idea: the largest bandwidth times
//! the smallest round-trip time of some past interval. Alibaba Sentinel calls its estimate BBR as
//! well.

use std::fmt;
use std::time::Duration;

use crate::clock::Tick;
use crate::stat::{Node, NodeBucket};

/// The estimate of how many concurrent calls the service can handle. A
/// [`SystemRule`](crate::rule::SystemRule) uses it when the load is too high.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::system::{Capacity, ManualProbe, Sampler};
/// use tower_sentinel::{Call, ManualClock, Sentinel, SystemRule, Verdict};
///
/// let (clock, probe) = (ManualClock::new(), ManualProbe::new());
/// let sentinel = Sentinel::builder()
///     .rules(SystemRule::new().load(4).capacity(Capacity::Robust))
///     .sampler(Sampler::new(probe.clone()))
///     .clock(clock.clone())
///     .build();
/// probe.set_load(8.0);
/// let mut running = Vec::new();
/// let refused = loop {
///     match sentinel.try_enter(Call::new("job")) {
///         Verdict::Pass(entry) => running.push(entry),
///         verdict => break verdict,
///     }
/// };
/// assert!(matches!(refused, Verdict::Block(_)));
/// // Nothing is measured yet, so the estimate is ten calls: an eleventh one may run.
/// assert_eq!(running.len(), 11);
/// // At a lower load more calls may run.
/// probe.set_load(1.0);
/// clock.advance(Duration::from_secs(1));
/// assert!(matches!(sentinel.try_enter(Call::new("job")), Verdict::Pass(_)));
/// ```
///
/// # Accuracy
///
/// Both forms are estimates. A response time ends with the head of the response, but a call is in
/// flight until the end of its body. So a service that streams bodies for a long time holds more
/// calls than the estimate allows: do not limit the load of such a service. As long as no call has
/// been measured, the estimate is ten calls.
///
/// A call is refused if the number of calls in flight before it is above the estimate and above
/// one. With an estimate of ten, an eleventh call runs and a twelfth is refused. Two calls may
/// always run.
///
/// # Source
///
/// `SystemRuleManager` of Sentinel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capacity {
    /// The largest number of calls completed in one of the last ten whole seconds, times the
    /// smallest average response time of these seconds. Calls of any weight count as one. A single
    /// fast response among slow ones does not make the estimate small. Default.
    #[default]
    Robust,
    /// The form of Sentinel for Java: the largest weight completed in one bucket of the current
    /// window, converted to a rate per second, times the smallest response time of a single call in
    /// the window. The weight counts as at least 1, the time as at least 1 ms and at most 5 s.
    Sentinel,
}

impl Capacity {
    #[cfg(any(feature = "page", feature = "serde"))]
    pub(crate) const ALL: [Self; 2] = [Self::Robust, Self::Sentinel];
    /// The names in documents.
    #[cfg(any(feature = "page", feature = "serde"))]
    pub(crate) const NAMES: [&'static str; 2] = [Self::ALL[0].as_str(), Self::ALL[1].as_str()];

    /// Returns the name of the form in documents: `robust` or `sentinel`.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::system::Capacity::Robust.as_str(), "robust");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Robust => "robust",
            Self::Sentinel => "sentinel",
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The two factors of a capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The largest rate of completions.
    pub(crate) max_complete_per_second: f64,
    /// The smallest response time.
    pub(crate) min_rt: Duration,
}

/// The number of whole seconds that the robust form covers. They are enough to include times
/// without a queue, and few enough to follow a deployment.
const SECONDS: usize = 10;
/// The largest value that Alibaba Sentinel uses for the smallest response time.
const LONGEST_MIN_RT: Duration = Duration::from_secs(5);
/// The smallest value that Alibaba Sentinel uses for the smallest response time.
const SHORTEST_MIN_RT: Duration = Duration::from_millis(1);
/// The smallest response time in the robust form: the precision of response times.
const PRECISION: Duration = Duration::from_micros(1);

impl Capacity {
    /// Estimates the capacity from the counts of `node` up to `now`. Copies the buckets of the
    /// node.
    pub(crate) fn estimate(self, node: &Node, now: Tick) -> Estimate {
        match self {
            Capacity::Robust => Estimate::of_seconds(&node.seconds(now).unwrap_or_default()),
            Capacity::Sentinel => {
                let (count, interval) = (node.bucket_count(), node.interval());
                Estimate::of_buckets(&node.buckets(now), count, interval)
            }
        }
    }
}

impl Estimate {
    /// The assumption of Alibaba Sentinel as long as no call has been measured: one call in each of
    /// the two buckets of a second, and a response time of 5 s, which gives ten calls.
    pub(crate) const INITIAL: Self = Self {
        max_complete_per_second: 2.0,
        min_rt: LONGEST_MIN_RT,
    };

    /// Returns the estimated number of concurrent calls: the product of the factors.
    pub(crate) fn calls(&self) -> f64 {
        // Divides only once, after the multiplication, so that a whole result is exact.
        self.max_complete_per_second * self.min_rt.as_nanos() as f64 / 1e9
    }

    /// Estimates in the form of Alibaba Sentinel, from the `buckets` of a window that has `count`
    /// buckets in `interval`.
    pub(crate) fn of_buckets(buckets: &[NodeBucket], count: u32, interval: Duration) -> Self {
        let (mut most, mut min_rt) = (1, LONGEST_MIN_RT);
        for bucket in buckets {
            most = most.max(bucket.complete());
            min_rt = min_rt.min(bucket.min_rt().unwrap_or(LONGEST_MIN_RT));
        }
        Self {
            max_complete_per_second: most as f64 * f64::from(count) / interval.as_secs_f64(),
            min_rt: min_rt.max(SHORTEST_MIN_RT),
        }
    }

    /// Estimates in the robust form, from the last seconds, oldest first. The last item is the
    /// current second, which is ignored because it is not complete.
    pub(crate) fn of_seconds(seconds: &[NodeBucket]) -> Self {
        let Some((_, whole)) = seconds.split_last() else {
            return Self::INITIAL;
        };
        let last = &whole[whole.len().saturating_sub(SECONDS)..];
        let (mut most, mut min_rt_us) = (0, u64::MAX);
        for second in last {
            if second.calls > 0 {
                most = most.max(second.calls);
                min_rt_us = min_rt_us.min(second.rt_us / second.calls);
            }
        }
        if most == 0 {
            return Self::INITIAL;
        }
        Self {
            max_complete_per_second: most as f64,
            min_rt: Duration::from_micros(min_rt_us).max(PRECISION),
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::stat::Outcome;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    fn node() -> Node {
        Node::new(SECOND, 2, at(0)).unwrap()
    }

    /// Completes `calls` calls of weight `n` at `ms`. Each took `rt_ms`.
    fn complete(node: &Node, ms: u64, calls: u32, n: u32, rt_ms: u64) {
        for _ in 0..calls {
            node.pass(at(ms), n);
            node.complete(at(ms), n, Duration::from_millis(rt_ms), Outcome::Success);
        }
    }

    #[test]
    fn sentinels_form_is_the_best_bucket_and_the_shortest_call() {
        let node = node();
        complete(&node, 100, 50, 1, 20);
        complete(&node, 600, 30, 1, 90);
        let estimate = Capacity::Sentinel.estimate(&node, at(900));
        assert_eq!(estimate.max_complete_per_second, 100.0);
        assert_eq!(estimate.min_rt, Duration::from_millis(20));
        assert_eq!(estimate.calls(), 2.0);
        // The bucket with the 50 calls leaves the window.
        let later = Capacity::Sentinel.estimate(&node, at(1_100));
        assert_eq!(later.calls(), 5.4);
    }

    #[test]
    fn sentinels_form_is_per_second_for_any_window() {
        for (window_ms, per_second) in [(500, 200.0), (2_000, 50.0)] {
            let window = Duration::from_millis(window_ms);
            let node = Node::new(window, 2, at(0)).unwrap();
            complete(&node, 100, 50, 1, 20);
            let estimate = Capacity::Sentinel.estimate(&node, at(100));
            assert_eq!(estimate.max_complete_per_second, per_second);
        }
    }

    #[test]
    fn sentinels_form_counts_weights_and_the_robust_one_calls() {
        let node = node();
        complete(&node, 100, 10, 3, 100);
        assert_eq!(Capacity::Sentinel.estimate(&node, at(500)).calls(), 6.0);
        assert_eq!(Capacity::Robust.estimate(&node, at(1_500)).calls(), 1.0);
    }

    #[test]
    fn without_completions_the_estimate_is_ten_calls() {
        for capacity in [Capacity::Robust, Capacity::Sentinel] {
            // Also in the very first bucket.
            for now in [0, 100, 700, 90_000] {
                assert_eq!(capacity.estimate(&node(), at(now)).calls(), 10.0, "{now}");
            }
        }
        assert_eq!(Estimate::of_seconds(&[]), Estimate::INITIAL);
    }

    #[test]
    fn one_fast_response_does_not_reduce_the_robust_estimate() {
        let node = node();
        complete(&node, 100, 99, 1, 40);
        complete(&node, 200, 1, 1, 0);
        // The form of Alibaba Sentinel is now below one call.
        assert_eq!(Capacity::Sentinel.estimate(&node, at(900)).calls(), 0.2);
        let robust = Capacity::Robust.estimate(&node, at(1_100));
        assert_eq!(robust.max_complete_per_second, 100.0);
        assert_eq!(robust.min_rt, Duration::from_micros(39_600));
    }

    #[test]
    fn the_robust_form_looks_at_ten_whole_seconds() {
        let node = node();
        complete(&node, 500, 100, 1, 20);
        // The current second does not count yet.
        assert_eq!(Capacity::Robust.estimate(&node, at(900)), Estimate::INITIAL);
        complete(&node, 1_500, 10, 1, 100);
        for now in [2_000, 10_999] {
            assert_eq!(Capacity::Robust.estimate(&node, at(now)).calls(), 2.0);
        }
        assert_eq!(Capacity::Robust.estimate(&node, at(11_000)).calls(), 1.0);
        assert_eq!(
            Capacity::Robust.estimate(&node, at(12_000)),
            Estimate::INITIAL
        );
    }

    #[test]
    fn response_times_of_zero_are_bounded_from_below() {
        let node = node();
        complete(&node, 100, 5, 1, 0);
        let sentinel = Capacity::Sentinel.estimate(&node, at(900));
        assert_eq!(sentinel.min_rt, SHORTEST_MIN_RT);
        let robust = Capacity::Robust.estimate(&node, at(1_900));
        assert_eq!(robust.min_rt, PRECISION);
    }
}
