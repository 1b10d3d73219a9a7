//! Adaptive isolation: a concurrency limit derived from response times.

#[cfg(any(feature = "page", feature = "serde"))]
mod fields;
mod getters;
mod info;

use std::time::Duration;

use super::problem::Inspector;
use crate::adaptive::LimiterSettings;
use crate::base::number::WholeNumber;
use crate::stat::MAX_TOKENS;

/// Limits how many calls of a resource run at once. The limit is derived from response times, so it
/// adapts to the capacity of the resource. Under overload the least important calls are refused
/// first.
///
/// A handler that computes without awaiting never has more calls in flight than there are threads,
/// so the rule learns nothing from it and refuses nothing. Move such work to `spawn_blocking` or
/// behind a semaphore, or limit the CPU with a [`SystemRule`](super::SystemRule) next to this rule.
///
/// # Classes
///
/// Each call has a [`Criticality`](crate::Criticality), by default `Critical`. The rule compares
/// the classes of the calls of *one* resource: routes compete only where one rule judges them
/// together, as with a layer that has [one name](crate::SentinelLayer::named) for all of them.
///
/// While there is no overload, calls of any class can exceed the limit by a [burst](Self::burst):
/// even at nine tenths of its capacity a service has queues of 150 calls now and then. A call that
/// finds the burst full is refused, and makes the least important class *marginal*: this class gets
/// only what the more important classes leave. If that is not enough, the next class becomes
/// marginal, and the classes below it are *excess*: they get idle workers only. A marginal class
/// starts with little room above the limit. The room doubles as long as no queue forms, and the
/// class opens again once the room reaches a burst, seconds after the overload is over.
///
/// If calls of two or more classes come, the burst of the least important class is at most 160
/// calls, and each class above it gets half a burst more. If calls of only one class come, the
/// burst is at most 32 calls: no less important call could be refused instead, and a long queue
/// only costs time.
///
/// # The limit
///
/// Calls beyond the limit of their class are refused at once; no call waits. The limit is the
/// number of calls that the service works on at once, by [Little's
/// law](https://en.wikipedia.org/wiki/Little%27s_law), plus half the square root of that number, at
/// least 2, for a small queue. It is at least 3 if the bounds of the rule allow that. It is updated
/// when calls end, so it never changes while nothing runs.
///
/// A response counts, with its response time, when its body has ended. So a stream whose head comes
/// at once occupies one call of the limit for as long as it lasts, and the limit learns nothing
/// from it meanwhile. For many open streams use an [`IsolationRule`](super::IsolationRule), or let
/// calls end [with their heads](crate::middleware::Completion::Head). A call that failed, was
/// cancelled or was [ignored](crate::Entry::ignore), such as a call that another layer refuses,
/// counts only if it had already taken longer than responses usually do.
///
/// When the service is full, a probe lowers the limit by a quarter for a few response times, about
/// every ten seconds, to measure how long calls take without a queue. As long as the lower limit
/// makes calls faster, the probe lowers it by another quarter, but not below the
/// [floor](Self::floor).
///
/// A reload changes nothing for a rule that stays, even if it gets another [id](Self::id). If a
/// setting changes, the current limit is kept, within the new bounds, and all classes are open.
/// Measurements in progress then start anew, and the limit learns nothing from calls that are
/// already in flight. [`start`](Self::start) applies only to a resource that had no limit. Calls
/// that were running before the rule was added count as running under it.
///
/// A rule for the resource `*` is the [default](crate::rule#default-rules): every resource
/// without an adaptive rule of its own gets a separate limit from it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use tower_sentinel::{AdaptiveRule, BlockKind, Call, Sentinel, Verdict};
///
/// let rule = AdaptiveRule::new("/search").start(2).ceiling(500).burst(Duration::ZERO);
/// let sentinel = Sentinel::new(rule);
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
/// Take a service with 20 slots, 50 ms of work per call and a load of 0.8, half of it sheddable. If
/// the sheddable calls grow twelvefold, at least 99.9 % of the critical and the `SheddablePlus`
/// calls are served, the service does at least 95 % of the work that it can, and the last refusal
/// comes at most 1.5 s after the spike. At nine tenths of the capacity none of a million calls is
/// refused, if they are of several classes. The
/// [guide](crate::guide::limits_in_detail#adaptive-limits) has the figures for other disturbances
/// and for calls of one class. `adaptive::bars` and `adaptive::claims` test all of them in virtual
/// time.
///
/// # Source
///
/// The classes are those of Google's "Site Reliability Engineering", chapter 21. The number of
/// calls in flight alone decides which classes are shed; there is no table of priorities. This
/// design draws on other limiters, above all Uber's Cinnamon and Netflix's partitions, and on the
/// shortcomings that these limiters showed in simulations. Windows and outliers are treated as by
/// Gradient2 in Netflix's concurrency-limits. The probes follow the first gradient limiter of that
/// library, and BBR.
#[doc(alias("ConcurrencyLimit", "concurrency_limits"))]
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveRule {
    resource: String,
    floor: WholeNumber,
    ceiling: WholeNumber,
    start: Option<WholeNumber>,
    burst: Duration,
    pub(super) id: Option<String>,
}

/// The default of [`AdaptiveRule::start`].
const START: u32 = 20;
/// The default of [`AdaptiveRule::burst`].
const BURST: Duration = Duration::from_millis(500);
/// The largest valid [`AdaptiveRule::burst`].
const LONGEST_BURST: Duration = Duration::from_secs(10);

impl AdaptiveRule {
    /// Limits the concurrent calls of `resource` to its measured capacity. The limit is at least 1
    /// and at most 200, unless [`floor`](Self::floor) or [`ceiling`](Self::ceiling) is set.
    #[must_use]
    pub fn new(resource: impl Into<String>) -> Self {
        Self {
            resource: resource.into(),
            floor: WholeNumber::new(1),
            ceiling: WholeNumber::new(200),
            start: None,
            burst: BURST,
            id: None,
        }
    }

    /// Sets the lower bound of the limit: at least 1, and at most the ceiling. Default 1.
    ///
    /// A floor above the capacity of the resource causes a permanent queue there.
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

    /// Sets the limit that applies before anything is measured: between floor and ceiling. Default:
    /// 20, or the bound nearer to it if 20 lies outside of them.
    #[must_use]
    pub fn start(mut self, start: impl Into<WholeNumber>) -> Self {
        self.start = Some(start.into());
        self
    }

    /// Sets how much work calls can bring beyond the limit before one is refused, as the time that
    /// the service takes for it: at most 10 s. Default 500 ms.
    ///
    /// The burst is at least 8 calls and at most 160, or 32 where calls of only one class come.
    /// `0`: no call exceeds the limit. Calls are then refused already at nine tenths of the
    /// service's capacity, as arrivals cluster by chance.
    #[must_use]
    pub const fn burst(mut self, burst: Duration) -> Self {
        self.burst = burst;
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

    /// The upper bound of the limit.
    pub(super) const fn most(&self) -> u32 {
        self.ceiling.get()
    }

    /// The settings of the limiter. The rule has been inspected, so they are valid.
    pub(crate) fn settings(&self) -> LimiterSettings {
        LimiterSettings {
            floor: self.floor.get(),
            ceiling: self.ceiling.get(),
            start: match self.start {
                Some(start) => start.get(),
                None => START.clamp(self.floor.get(), self.ceiling.get()),
            },
            burst: self.burst,
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
        if self.burst > LONGEST_BURST {
            let allowed = format!("at most {LONGEST_BURST:?}");
            inspector.refuse("burst", format_args!("{:?}", self.burst), allowed);
        }
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
            .burst(Duration::from_millis(10_001));
        assert_eq!(
            problems(rule),
            [
                r#"resource is " ", must be a name that is not blank"#,
                "floor is 0, must be between 1 and 2147483647",
                "ceiling is 4294967295, must be between the floor, 1, and 2147483647",
                "start is 0, must be between the floor, 1, and the ceiling, 2147483647",
                "burst is 10.001s, must be at most 10s",
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
