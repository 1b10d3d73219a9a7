//! The constructors and setters of a circuit breaker.

use std::time::Duration;

use super::{
    CircuitBreakerRule, DEFAULT_BUCKETS, DEFAULT_INTERVAL, DEFAULT_MIN_CALLS, DEFAULT_OPEN_FOR,
    LONGEST_PUSHBACK, TripThreshold,
};
use crate::base::number::WholeNumber;
use crate::breaker::{BadLimit, BreakerSpec, Strategy};
use crate::clock::SHORTEST_INTERVAL;

// === impl CircuitBreakerRule ===

impl CircuitBreakerRule {
    /// Opens when at least `ratio` of the calls of `resource` took longer than `max_rt`.
    /// `ratio` is above 0 and at most 1; `max_rt` is at most 366 days. With a `max_rt` of
    /// 0, every call that took any time is slow.
    #[must_use]
    pub fn slow_ratio(resource: impl Into<String>, max_rt: Duration, ratio: f64) -> Self {
        let strategy = Strategy::Slow(max_rt);
        Self::with_strategy(resource.into(), strategy, TripThreshold::Ratio(ratio))
    }

    /// Opens when at least `ratio` of the calls of `resource` failed. `ratio` is above 0
    /// and at most 1.
    #[must_use]
    pub fn error_ratio(resource: impl Into<String>, ratio: f64) -> Self {
        Self::with_strategy(
            resource.into(),
            Strategy::Error,
            TripThreshold::Ratio(ratio),
        )
    }

    /// Opens when at least `count` calls of `resource` failed. `count` is between 1 and
    /// 1 000 000.
    #[must_use]
    pub fn error_count(resource: impl Into<String>, count: impl Into<WholeNumber>) -> Self {
        Self::with_strategy(
            resource.into(),
            Strategy::Error,
            TripThreshold::Count(count.into()),
        )
    }

    /// Opens when `count` calls of `resource` failed in a row, with no good call in between.
    /// `count` is between 1 and 1 000 000.
    ///
    /// These calls can be any time apart: none of [`interval`](Self::interval),
    /// [`buckets`](Self::buckets), [`last_calls`](Self::last_calls) and
    /// [`min_calls`](Self::min_calls) may be set. Use it for a resource that is called so rarely
    /// that an interval seldom has enough calls, or that fails either for all callers or for none.
    /// For a resource with many calls, a few of which always succeed, a ratio is the better choice.
    /// Calls count in the order in which they end. A call that is cancelled or ignored neither
    /// extends a run of errors nor ends it.
    ///
    /// With a rule for `*`, a run of errors can be forgotten: a resource that has not been
    /// called for [some time](crate::Builder::idle_after) is evicted if other resources need its
    /// place.
    ///
    /// It costs less than the other rules: a good call after a good call writes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, CircuitBreakerRule, ManualClock, Sentinel, Verdict};
    ///
    /// let clock = ManualClock::new();
    /// let sentinel = Sentinel::builder()
    ///     .rules(CircuitBreakerRule::consecutive_errors("/mail", 2))
    ///     .clock(clock.clone())
    ///     .build();
    /// let call = |fails: bool| match sentinel.try_enter(Call::new("/mail")) {
    ///     Verdict::Pass(mut entry) if fails => entry.fail(),
    ///     Verdict::Pass(_) => {}
    ///     _ => panic!("it is closed"),
    /// };
    /// call(true);
    /// call(false);
    /// call(true);
    /// clock.advance(Duration::from_secs(3_600));
    /// call(true);
    /// assert!(matches!(sentinel.try_enter(Call::new("/mail")), Verdict::Block(_)));
    /// ```
    #[must_use]
    pub fn consecutive_errors(resource: impl Into<String>, count: impl Into<WholeNumber>) -> Self {
        let threshold = TripThreshold::Consecutive(count.into());
        Self::with_strategy(resource.into(), Strategy::Error, threshold)
    }

    /// Opens when the callee asks not to be called for a while, and stays open for exactly that
    /// time. The callee asks by a response with status 429 or 503 and a `Retry-After`, which a
    /// [layer](crate::SentinelLayer::outbound) reads, or the program reports it by
    /// [`Entry::push_back`](crate::Entry::push_back).
    ///
    /// Use it for a service that limits its callers, such as the API of a provider: a call that the
    /// service would refuse is refused here, with the remaining time, without a useless request to
    /// the provider. Nothing is counted, so none of [`exceeds`](Self::exceeds),
    /// [`interval`](Self::interval), [`buckets`](Self::buckets), [`last_calls`](Self::last_calls),
    /// [`min_calls`](Self::min_calls) and [`open_for`](Self::open_for) may be set. Combine it with
    /// a rule that counts errors.
    ///
    /// * The breaker is open for at most [`open_up_to`](Self::open_up_to), 60 s by default, even if
    ///   the callee asks for more. `Retry-After` can be a number of seconds or a date, which is
    ///   compared with the response's `Date`, or else with the clock of this machine. Anything
    ///   else, 0 and a date in the past are no pushback, nor is a refusal by another layer of this
    ///   program.
    /// * If several calls are pushed back, the latest time counts, also if they started before the
    ///   breaker opened.
    /// * When this time is over, one call passes as a probe. The breaker closes unless the probe is
    ///   pushed back, whether the probe succeeds or fails. If it is cancelled or
    ///   [ignored](crate::Entry::ignore), the next call is a probe. A 429 without a time is
    ///   ignored.
    /// * The pushback of gRPC, in the trailer `grpc-retry-pushback-ms`, is not read.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_sentinel::key::Authority;
    /// use tower_sentinel::{CircuitBreakerRule, ManualClock, Sentinel, SentinelLayer};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let clock = ManualClock::new();
    /// let sentinel = Sentinel::builder()
    ///     .rules(CircuitBreakerRule::pushback("api.example"))
    ///     .clock(clock.clone())
    ///     .build();
    /// // A provider that has no capacity left for half a minute.
    /// let provider = service_fn(|_: Request<String>| async {
    ///     let busy = Response::builder().status(429).header("retry-after", "30");
    ///     Ok::<_, Infallible>(busy.body(String::new()).unwrap())
    /// });
    /// let layer = SentinelLayer::with(sentinel).resource(Authority).outbound();
    /// let client = layer.layer(provider);
    /// let ask = || {
    ///     let request = Request::post("https://api.example/v1/chat").body(String::new());
    ///     client.clone().oneshot(request.unwrap())
    /// };
    ///
    /// assert_eq!(ask().await.unwrap().status(), 429); // by the provider
    /// clock.advance(Duration::from_secs(10));
    /// let refused = ask().await.unwrap(); // here: the provider is not asked
    /// assert_eq!(refused.status(), 503);
    /// assert_eq!(refused.headers()["retry-after"], "20");
    /// # });
    /// ```
    #[doc(alias("Retry-After", "backoff"))]
    #[must_use]
    pub fn pushback(resource: impl Into<String>) -> Self {
        let (strategy, threshold) = (Strategy::Pushback, TripThreshold::Pushback);
        Self::with_strategy(resource.into(), strategy, threshold)
    }

    /// Creates a rule with this condition, and otherwise the defaults.
    fn with_strategy(resource: String, strategy: Strategy, threshold: TripThreshold) -> Self {
        Self {
            resource,
            strategy,
            threshold,
            exceeds: false,
            min_calls: None,
            open_for: DEFAULT_OPEN_FOR,
            open_up_to: None,
            last_calls: None,
            interval: DEFAULT_INTERVAL,
            buckets: None,
            probes: WholeNumber::new(1),
            cancelled_as_slow: true,
            id: None,
        }
    }

    /// Sets how long the breaker stays open before a call may probe: between 1 ms and 366
    /// days. Default 10 s.
    #[doc(alias("cooldown", "reset_timeout", "wait_duration_in_open"))]
    #[must_use]
    pub fn open_for(mut self, recovery: Duration) -> Self {
        self.open_for = recovery;
        self
    }

    /// Lets the breaker stay open longer each time a probe fails (exponential backoff):
    /// twice as long as the last time, up to `longest`, and up to 128 times as long as
    /// [`open_for`](Self::open_for). `longest` is at least `open_for`, and at most 366
    /// days. Default: the breaker is open for `open_for` each time.
    ///
    /// So a resource that stays down is probed less and less often, and a resource that fails
    /// briefly is probed again soon. A breaker that has closed starts over: the next time it opens,
    /// it is open for `open_for`. A probe without an outcome changes nothing, and the time for
    /// which it holds its place does not grow. A reload keeps the number of failed probes, and the
    /// new rule determines how long the breaker is open the next time, except after a probe from
    /// before the reload: then the [old rule](Self#reloads) determines it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, CircuitBreakerRule, ManualClock, Sentinel, Verdict};
    ///
    /// let clock = ManualClock::new();
    /// let rule = CircuitBreakerRule::consecutive_errors("/mail", 1)
    ///     .open_for(Duration::from_secs(1))
    ///     .open_up_to(Duration::from_secs(5));
    /// let sentinel = Sentinel::builder().rules(rule).clock(clock.clone()).build();
    /// for open in [1, 2, 4, 5, 5] {
    ///     let Verdict::Pass(mut entry) = sentinel.try_enter(Call::new("/mail")) else {
    ///         panic!("the first call, or a probe");
    ///     };
    ///     entry.fail();
    ///     drop(entry);
    ///     let Verdict::Block(blocked) = sentinel.try_enter(Call::new("/mail")) else {
    ///         panic!("it is open");
    ///     };
    ///     assert_eq!(blocked.retry_after(), Some(Duration::from_secs(open)));
    ///     clock.advance(Duration::from_secs(open));
    /// }
    /// ```
    #[doc(alias("backoff"))]
    #[must_use]
    pub fn open_up_to(mut self, longest: Duration) -> Self {
        self.open_up_to = Some(longest);
        self
    }

    /// Sets how many calls must have ended in the interval before the breaker may open:
    /// between 1 and 1 000 000, or the number of [`last_calls`](Self::last_calls). Default
    /// 5, or that number, or the count of an [`error_count`](Self::error_count), whichever
    /// is least.
    #[doc(alias("minimum_number_of_calls"))]
    #[must_use]
    pub fn min_calls(mut self, calls: impl Into<WholeNumber>) -> Self {
        self.min_calls = Some(calls.into());
        self
    }

    /// Sets the time over which calls are counted: between 1 ms and 366 days. Default 1 s.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Counts the last `calls` calls that have ended, however long ago, instead of the calls of an
    /// interval: between 1 and 40.
    ///
    /// Neither [`interval`](Self::interval) nor [`buckets`](Self::buckets) may be set then;
    /// [`min_calls`](Self::min_calls) and the count of an
    /// [`error_count`](Self::error_count) are at most `calls`. Calls count in the order in
    /// which they end. A call that is cancelled or ignored is not among them, unless it
    /// counts [as slow](Self::count_cancelled_as_slow).
    ///
    /// Use it for a resource that is called at very different rates: an interval that has
    /// enough calls at night is too long by day. Bad calls before a long pause still count
    /// after it. With a rule for `*`, the last calls may be forgotten: a resource that has
    /// not been called for [some time](crate::Builder::idle_after) is evicted if others
    /// need its place.
    ///
    /// It costs one compare-and-swap at the end of a call, writes nothing while all of the
    /// last calls were good, and takes less memory than an interval.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, CircuitBreakerRule, ManualClock, Sentinel, Verdict};
    ///
    /// let clock = ManualClock::new();
    /// let sentinel = Sentinel::builder()
    ///     .rules(CircuitBreakerRule::error_ratio("/report", 0.5).last_calls(6))
    ///     .clock(clock.clone())
    ///     .build();
    /// let call = |fails: bool| match sentinel.try_enter(Call::new("/report")) {
    ///     Verdict::Pass(mut entry) if fails => entry.fail(),
    ///     Verdict::Pass(_) => {}
    ///     _ => panic!("it is closed"),
    /// };
    /// for fails in [false, false, false, true, false, false, true] {
    ///     call(fails);
    ///     clock.advance(Duration::from_secs(3_600));
    /// }
    /// // Three of the last six.
    /// call(true);
    /// assert!(matches!(sentinel.try_enter(Call::new("/report")), Verdict::Block(_)));
    /// ```
    #[doc(alias("sliding_window_size"))]
    #[must_use]
    pub fn last_calls(mut self, calls: impl Into<WholeNumber>) -> Self {
        self.last_calls = Some(calls.into());
        self
    }

    /// Sets the number of buckets that the interval is divided into: between 1 and 64, each
    /// at least 1 ms long. Default 10, or the next lower number that divides the interval.
    ///
    /// One bucket is a fixed window: it starts again at each multiple of the interval, as
    /// in Alibaba Sentinel. All buckets are read whenever a call ends.
    #[must_use]
    pub fn buckets(mut self, buckets: impl Into<WholeNumber>) -> Self {
        self.buckets = Some(buckets.into());
        self
    }

    /// Sets how many probes can run at once while the breaker is half-open, and how many good
    /// probes close it, with no bad probe in between: between 1 and 63. Default 1. A bad probe
    /// opens the breaker at once. A probe that ends, or that holds its place for too long, makes
    /// room for the next, so more probes than this can run before the breaker closes.
    #[doc(alias("half_open"))]
    #[must_use]
    pub fn probes(mut self, probes: impl Into<WholeNumber>) -> Self {
        self.probes = probes.into();
        self
    }

    /// Opens only when the ratio or count is exceeded, not already when it is reached, as
    /// in Sentinel for Java. The ratio or count may then be 0, which one bad call exceeds;
    /// a ratio of 1 is never exceeded, and a count must be below the number of
    /// [`last_calls`](Self::last_calls).
    #[must_use]
    pub fn exceeds(mut self) -> Self {
        self.exceeds = true;
        self
    }

    /// Sets whether a call that is cancelled or [ignored](crate::Entry::ignore) counts as
    /// slow if it had already taken longer than the limit. Default true.
    ///
    /// If it is false, and a service hangs behind callers with a timeout, no call ever ends with an
    /// outcome, so the breaker never opens. Only a [`slow_ratio`](Self::slow_ratio) rule counts
    /// cancelled or ignored calls.
    #[must_use]
    pub fn count_cancelled_as_slow(mut self, count_cancelled_as_slow: bool) -> Self {
        self.cancelled_as_slow = count_cancelled_as_slow;
        self
    }

    /// Sets the name of the rule in refusals. Default: its kind and its place in the set,
    /// such as `circuit-breaker-2`.
    ///
    /// If a rule replaces a rule with the same id, the breaker stays open as long as the old
    /// breaker would have; see [reloads](Self#reloads).
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Returns the resource that the rule is for; `*` for all resources without a rule of
    /// their own.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The number or the fraction of bad calls at which the breaker opens.
    pub(super) fn limit(&self) -> Option<f64> {
        match self.threshold {
            TripThreshold::Ratio(ratio) => Some(ratio),
            TripThreshold::Count(count) | TripThreshold::Consecutive(count) => {
                Some(count.get().into())
            }
            TripThreshold::Pushback => None,
        }
    }

    /// The interval in which calls are counted; `None` if the rule counts no calls in an interval.
    pub(super) fn counted_interval(&self) -> Option<Duration> {
        let is_counted = !self.is_consecutive() && !self.is_pushback();
        (self.last_calls.is_none() && is_counted).then_some(self.interval)
    }

    // --- for the engine; the rule has been inspected ---

    /// The settings in the form in which a breaker uses them.
    pub(crate) fn spec(&self) -> BreakerSpec {
        BreakerSpec {
            strategy: self.strategy,
            limit: match self.threshold {
                TripThreshold::Ratio(ratio) => BadLimit::ratio(ratio),
                TripThreshold::Count(count) => BadLimit::Count(count.get()),
                TripThreshold::Consecutive(count) => BadLimit::Consecutive(count.get()),
                // Never reached: for this strategy, no outcome of a call is bad.
                TripThreshold::Pushback => BadLimit::Consecutive(1),
            },
            exceeds: self.exceeds,
            min_calls: self
                .min_calls
                .map_or_else(|| self.default_min_calls(), WholeNumber::get),
            open_for: self.open_for,
            open_up_to: self
                .open_up_to
                .or(self.is_pushback().then_some(LONGEST_PUSHBACK)),
            last_calls: self.last_calls.map(WholeNumber::get),
            interval: self.interval,
            buckets: self
                .buckets
                .map_or_else(|| self.default_buckets(), WholeNumber::get),
            probes: self.probes.get(),
            cancelled_as_slow: self.cancelled_as_slow,
            id: self.id.as_deref().map(Into::into),
        }
    }

    /// The default of `min_calls`: no more than the bad calls that the rule needs, or the last
    /// calls that it counts.
    fn default_min_calls(&self) -> u32 {
        let least = match self.threshold {
            TripThreshold::Ratio(_) => DEFAULT_MIN_CALLS,
            TripThreshold::Count(count) => count.get().clamp(1, DEFAULT_MIN_CALLS),
            TripThreshold::Consecutive(_) | TripThreshold::Pushback => 1,
        };
        self.last_calls
            .map_or(least, |calls| least.min(calls.get()))
    }

    /// Returns whether the breaker opens at a number of failures in a row.
    pub(super) const fn is_consecutive(&self) -> bool {
        matches!(self.threshold, TripThreshold::Consecutive(_))
    }

    /// The default of `buckets`: the largest number up to [`DEFAULT_BUCKETS`] that divides the
    /// interval.
    fn default_buckets(&self) -> u32 {
        let may_have = |buckets: &u32| {
            self.interval.as_nanos() % u128::from(*buckets) == 0
                && self.interval / *buckets >= SHORTEST_INTERVAL
        };
        (2..=DEFAULT_BUCKETS).rev().find(may_have).unwrap_or(1)
    }
}
