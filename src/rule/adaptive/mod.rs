//! Adaptive isolation: a concurrency limit derived from response times.

#[cfg(any(feature = "page", feature = "serde"))]
mod fields;
mod getters;
mod info;

use super::problem::Inspector;
use crate::adaptive::LimiterSettings;
use crate::base::number::WholeNumber;
use crate::stat::MAX_TOKENS;

/// Limits concurrency by a limit that adapts: as many calls of a resource at once as it can
/// take, derived from response times.
///
/// Calls beyond the limit are refused at once; none waits. While response times stay what
/// they are without a queue, the limit rises; when they grow, it falls in proportion. It
/// learns from calls that end, so it never changes while nothing runs, and it does not rise
/// while the calls in flight are fewer than half of it.
///
/// A response counts when its body has ended, with its response time. So a stream whose
/// head comes at once takes up one call of the limit for as long as it lasts, and the limit
/// learns nothing from it meanwhile. For many open streams use an
/// [`IsolationRule`](super::IsolationRule), or let calls end [with their
/// heads](crate::middleware::Completion::Head). A call that failed, was cancelled or was
/// [ignored](crate::Entry::ignore), such as one that another layer refuses, counts only if
/// it had already taken longer than responses usually do.
///
/// Under load, a probe lowers the limit by a quarter for a few response times, about every
/// ten seconds, to measure how long calls take without a queue. As long as that makes calls
/// faster, the probe lowers the limit by another quarter, but not below the
/// [floor](Self::floor).
///
/// After each window of samples:
///
/// ```text
/// gradient = clamp(tolerance × response time without a queue / present one, ½, 1)
/// target   = limit × gradient + max(1, √limit / 2)
/// limit    = limit + smoothing × (target − limit), within floor and ceiling
/// ```
///
/// A reload changes nothing for a rule that stays, even if it gets another
/// [id](Self::id). If a setting changes, the limit that was found is kept, within the new
/// bounds. Measurements in progress then start anew, and the limit learns nothing from
/// calls that are in flight. [`start`](Self::start) applies to a resource that had no
/// limit. Calls that run when a rule comes count as well.
///
/// A rule for the resource `*` is the [default](crate::rule#default-rules): every resource
/// without an adaptive rule of its own gets a separate limit from it.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{AdaptiveRule, BlockKind, Call, Sentinel, Verdict};
///
/// let sentinel = Sentinel::new(AdaptiveRule::new("/search").start(2).ceiling(500));
/// let call = || sentinel.try_enter(Call::new("/search"));
/// let (Verdict::Pass(_first), Verdict::Pass(_second)) = (call(), call()) else {
///     panic!("it starts with two at once");
/// };
/// let Verdict::Block(blocked) = call() else {
///     panic!("nothing is known about a third");
/// };
/// assert_eq!(blocked.kind(), BlockKind::Isolation);
/// ```
///
/// # Accuracy
///
/// For a service with 20 slots and 50 ms of work per call, at three times the load that it can
/// take: the limit is within 25 % of 20 after 30 s at the latest, from any start, and the 99th
/// percentile of response times is at most twice the work. When half of the slots disappear, it is
/// within 25 % again after 5 s, and after a spike of 2 s it is back within 10 s. During probes it
/// may be lower, for less than 5 % of the time. Work times that vary by ± 20 % change little about
/// this (within 30 % after slots disappear); the more they vary beyond that, the more the limit
/// drifts. `adaptive::claims` tests these figures in virtual time.
///
/// # Source
///
/// Gradient2 of Netflix's concurrency-limits with its constants: start 20, ceiling 200, smoothing
/// 0.2, a gradient of at least ½, a long average of 600 samples. The differences: the response time
/// without a queue is measured in probes and at quiet times, instead of averaged over everything,
/// which under permanent overload makes the limit rise to its ceiling; the tolerance is 1 instead
/// of 1.5, the queue half of the square root of the limit instead of 4, and the floor 1 instead of
/// 20, because the limit settles at `tolerance × slots + queue`.
#[doc(alias("ConcurrencyLimit", "concurrency_limits"))]
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveRule {
    resource: String,
    floor: WholeNumber,
    ceiling: WholeNumber,
    start: Option<WholeNumber>,
    tolerance: f64,
    smoothing: f64,
    pub(super) id: Option<String>,
}

/// Where a limit starts by default.
const START: u32 = 20;
/// Largest tolerance: the limit settles at this multiple of the slots.
const MAX_TOLERANCE: u32 = 10;

impl AdaptiveRule {
    /// Allows as many calls of `resource` at once as it can take, at least 1 and at most
    /// 200.
    #[must_use]
    pub fn new(resource: impl Into<String>) -> Self {
        Self {
            resource: resource.into(),
            floor: WholeNumber::new(1),
            ceiling: WholeNumber::new(200),
            start: None,
            tolerance: 1.0,
            smoothing: 0.2,
            id: None,
        }
    }

    /// Sets the lower bound of the limit: at least 1, and at most the ceiling. Default 1.
    ///
    /// A floor above the capacity of the resource preserves the queue that it causes.
    #[must_use]
    pub fn floor(mut self, floor: impl Into<WholeNumber>) -> Self {
        self.floor = floor.into();
        self
    }

    /// Sets the upper bound of the limit: at least the floor, and at most 2³¹ − 1.
    /// Default 200.
    #[must_use]
    pub fn ceiling(mut self, ceiling: impl Into<WholeNumber>) -> Self {
        self.ceiling = ceiling.into();
        self
    }

    /// Sets the limit before anything is measured: between floor and ceiling. Default: 20,
    /// or the nearer of the two if 20 lies outside of them.
    #[must_use]
    pub fn start(mut self, start: impl Into<WholeNumber>) -> Self {
        self.start = Some(start.into());
        self
    }

    /// Sets the factor by which response times may grow through queueing before the limit
    /// falls: between 1 and 10. Default 1.
    ///
    /// Under overload the limit settles at about this many times the calls that the resource
    /// works on at once. More than 1 makes sense where response times vary so widely that the limit
    /// would otherwise be too low.
    #[must_use]
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets how far the limit moves towards its new value after each window of samples, as
    /// a fraction: above 0, at most 1. Default 0.2. A lower value is steadier and slower.
    #[must_use]
    pub fn smoothing(mut self, smoothing: f64) -> Self {
        self.smoothing = smoothing;
        self
    }

    /// Sets the name of the rule in refusals. Default: its kind and its place in the set,
    /// such as `adaptive-2`.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Returns the resource that the rule is for.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The most calls that may run at once.
    pub(super) const fn most(&self) -> u32 {
        self.ceiling.get()
    }

    /// The settings of the limiter; the rule has been inspected.
    pub(crate) fn settings(&self) -> LimiterSettings {
        LimiterSettings {
            floor: self.floor.get(),
            ceiling: self.ceiling.get(),
            start: match self.start {
                Some(start) => start.get(),
                None => START.clamp(self.floor.get(), self.ceiling.get()),
            },
            tolerance: self.tolerance,
            smoothing: self.smoothing,
        }
    }

    pub(super) fn inspect(&self, inspector: &mut Inspector) {
        inspector.name("resource", &self.resource);
        inspector.number("floor", self.floor, 1..=MAX_TOKENS);
        let least = self.floor.get().clamp(1, MAX_TOKENS);
        if !self.ceiling.is_within(least, MAX_TOKENS) {
            let allowed = format!("between the floor, {least}, and {MAX_TOKENS}");
            inspector.refuse("ceiling", self.ceiling, allowed);
        }
        let most = self.ceiling.get().clamp(least, MAX_TOKENS);
        if let Some(start) = self.start.filter(|start| !start.is_within(least, most)) {
            let allowed = format!("between the floor, {least}, and the ceiling, {most}");
            inspector.refuse("start", start, allowed);
        }
        inspector.number("tolerance", self.tolerance, 1..=MAX_TOLERANCE);
        inspector.fraction("smoothing", self.smoothing);
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::rule::problem::problems;

    #[test]
    fn everything_that_is_wrong_is_named_with_its_value_and_its_range() {
        let rule = AdaptiveRule::new(" ")
            .floor(0)
            .ceiling(u32::MAX)
            .start(0)
            .tolerance(0.5)
            .smoothing(f64::NAN);
        assert_eq!(
            problems(rule),
            [
                r#"resource is " ", must be a name that is not blank"#,
                "floor is 0, must be between 1 and 2147483647",
                "ceiling is 4294967295, must be between the floor, 1, and 2147483647",
                "start is 0, must be between the floor, 1, and the ceiling, 2147483647",
                "tolerance is 0.5, must be between 1 and 10",
                "smoothing is NaN, must be above 0 and at most 1",
            ]
        );
        let crossed = AdaptiveRule::new("a").floor(500).start(499);
        assert_eq!(
            problems(crossed),
            [
                "ceiling is 200, must be between the floor, 500, and 2147483647",
                "start is 499, must be between the floor, 500, and the ceiling, 500",
            ]
        );
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(problems(AdaptiveRule::new("a").tolerance(bad)).len(), 1);
            assert_eq!(problems(AdaptiveRule::new("a").smoothing(bad)).len(), 1);
        }
    }

    #[test]
    fn a_start_that_is_not_set_lies_between_floor_and_ceiling() {
        let rule = AdaptiveRule::new("a");
        for (floor, ceiling, start) in [(1, 200, 20), (1, 5, 5), (50, 200, 50)] {
            let rule = rule.clone().floor(floor).ceiling(ceiling);
            assert!(problems(rule.clone()).is_empty());
            assert_eq!(rule.settings().start, start);
        }
        assert_eq!(rule.id("x").id.as_deref(), Some("x"));
    }
}
