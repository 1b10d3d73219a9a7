//! Keyed rules: how many calls may pass for each value of a parameter.

mod block;
mod calendar;
mod cost;
#[cfg(any(feature = "page", feature = "serde"))]
mod fields;
mod getters;
mod info;
mod inspect;

use std::sync::Arc;
use std::time::Duration;

use super::MissingKey;
use super::flow::MOST_WAITING;
use super::isolation::SlotQueue;
use super::sharing::{Sharing, shared_settings};
use crate::base::number::{Number, WholeNumber};
use crate::clock::CalendarPeriod;
use crate::keyed::{Burst, Counting, MOST_KEYS};
pub(super) use calendar::inspect_offset;

/// The default of `max_waiting`: how many calls of one value can wait for a place.
pub(super) const MOST_WAITING_OF_VALUE: u32 = 1_000;
/// The maximum number of characters of a value in a message, as values can be of any length.
const LONGEST_SHOWN: usize = 64;

/// Limits each value of a parameter: at most `threshold` calls for *each* address, user,
/// API key or product.
///
/// Every value has a separate quota. By default it is refilled continuously, like a token bucket: a
/// value that has been idle long enough may spend the whole threshold and the [burst](Self::burst)
/// at once, and from then on gets one more call every `interval / threshold`. Other ways to count
/// are a [window](Self::window), a [queue](Self::throttle), days and months [by the
/// calendar](Self::per_calendar_month), and [concurrency](Self::concurrency).
///
/// The value is the first parameter of the [call](crate::Call::param), unless the rule
/// names [another parameter](Self::param) or the [origin](Self::by_origin). Calls without a
/// value share one quota by default; see [`missing`](Self::missing).
///
/// # Memory
///
/// A value that spends nothing for a while has its whole quota again. It is then *at rest*, and can
/// be evicted, without losing anything, when another value needs its place. A rule has places for
/// at least [`max_keys`](Self::max_keys) values that are not at rest, and for at most twice as
/// many, rounded up to a multiple of eight. All values that find no place share one quota, of the
/// size of one value's. So filling the table earns no fresh quota, except that a value that later
/// finds a place starts there with a whole quota. [`max_keys`](Self::max_keys) describes how a
/// flood of made-up values affects new callers.
///
/// The memory is allocated once, 32 bytes for each of `max_keys`. Values are kept as a
/// keyed hash, never as text.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};
///
/// let rule = KeyedRule::per("/search", 2, Duration::from_secs(60))
///     .except("crawler", 1) // less for this one
///     .tier("pro", 100); // more for calls of this tier
/// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
/// let passes = |call| matches!(sentinel.try_enter(call), Verdict::Pass(_));
///
/// let by = |user| Call::new("/search").param(user);
/// assert!(passes(by("ann")) && passes(by("ann")) && !passes(by("ann")));
/// assert!(passes(by("bob")));
/// assert!(passes(by("crawler")) && !passes(by("crawler")));
/// assert!((0..100).all(|_| passes(by("eve").tier("pro"))));
/// ```
///
/// # Source
///
/// The hot-parameter rule of Alibaba Sentinel. There a quota is refilled all at once after each
/// interval, so twice the threshold may pass at its edge, and the least recently used value is
/// evicted even if it has not recovered its quota.
#[doc(alias("HotParamRule", "token_bucket", "GCRA", "KeyedRateLimit"))]
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedRule {
    resource: String,
    pub(super) of: ParamOf,
    pub(super) count: Counting,
    threshold: f64,
    interval: Duration,
    pub(super) burst: Burst,
    /// The thresholds of exceptional values. All copies of the rule share them, as there can be
    /// many.
    pub(super) exceptions: Arc<Vec<(String, f64)>>,
    pub(super) tiers: Vec<(String, f64)>,
    /// Values without a limit.
    pub(super) unlimited_values: Vec<String>,
    /// Tiers without a limit.
    pub(super) unlimited_tiers: Vec<String>,
    pub(super) max_keys: WholeNumber,
    /// The period of the calendar that was set. A later setting can still make the rule count in
    /// another way, which is reported as a problem.
    calendar: Option<CalendarPeriod>,
    /// How many minutes the rule's days and months begin before those of UTC.
    utc_offset: Option<WholeNumber>,
    /// How long a call can wait for a running call of its value to end; `None` if it is refused at
    /// once.
    queue: Option<Duration>,
    max_waiting: Option<WholeNumber>,
    /// How long a value that has exceeded its limit is refused; `None` if values are not blocked.
    block_for: Option<Duration>,
    pub(super) missing: MissingKey,
    /// The unit of costs that the rule counts; `None` if it counts calls.
    pub(super) cost: Option<String>,
    pub(super) sharing: Sharing,
    pub(super) id: Option<String>,
}

/// The part of a call that is the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParamOf {
    /// The parameter at this index, counted from 0, or from the end if negative.
    Index(i32),
    /// The parameter of this name.
    Named(String),
    /// The origin of the call.
    Origin,
    /// All calls have one value: the rule counts them together.
    Anyone,
}

impl KeyedRule {
    /// Allows at most `threshold` calls of `resource` per second for each value: between 0
    /// and 2³¹ − 1.
    #[must_use]
    pub fn per_second(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        Self::per(resource, threshold, Duration::from_secs(1))
    }

    /// Allows at most `threshold` calls of `resource` per minute for each value, as
    /// [`per`](Self::per) with 60 s.
    #[must_use]
    pub fn per_minute(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        Self::per(resource, threshold, Duration::from_secs(60))
    }

    /// Allows at most `threshold` calls of `resource` per hour for each value, as
    /// [`per`](Self::per) with 3600 s.
    #[must_use]
    pub fn per_hour(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        Self::per(resource, threshold, Duration::from_secs(3_600))
    }

    /// Allows at most `threshold` calls of `resource` per `interval` for each value; the interval
    /// is between 1 µs and 366 days, and at least 1 ms for a window and a queue. The threshold may
    /// have a fraction; a window and a concurrency limit count only its whole part. A refilled
    /// quota keeps the fraction: with 2.5, two calls pass at once, and the third after half the
    /// time that a whole call takes to refill. A threshold of 0 refuses every call, with any burst.
    /// So would a threshold between 0 and 1 without a [burst](Self::burst), which is invalid. With
    /// [`throttle`](Self::throttle) the spacing includes the fraction: at 0.5 per second a call
    /// starts every two seconds.
    #[must_use]
    pub fn per(
        resource: impl Into<String>,
        threshold: impl Into<Number>,
        interval: Duration,
    ) -> Self {
        Self {
            resource: resource.into(),
            of: ParamOf::Index(0),
            count: Counting::Refill,
            threshold: threshold.into().get(),
            interval,
            burst: Burst::NONE,
            exceptions: Arc::default(),
            tiers: Vec::new(),
            unlimited_values: Vec::new(),
            unlimited_tiers: Vec::new(),
            max_keys: WholeNumber::new(65_536),
            calendar: None,
            utc_offset: None,
            queue: None,
            max_waiting: None,
            block_for: None,
            missing: MissingKey::Share,
            cost: None,
            sharing: Sharing::default(),
            id: None,
        }
    }

    /// Allows at most `max` calls of `resource` at once for each value: between 0 and 2³¹ − 1. A
    /// call of any weight counts as one, until the end of the response body. A call that waits for
    /// its turn or for a loan of another rule counts as well, and so does a call that a later rule
    /// refuses, while it is judged. A call above the limit is refused, or waits if there is a
    /// [queue](Self::queue). A value with calls in flight is never evicted. A resource has at most
    /// two concurrency rules by value.
    #[must_use]
    pub fn concurrency(resource: impl Into<String>, max: impl Into<WholeNumber>) -> Self {
        Self {
            count: Counting::Running,
            ..Self::per(resource, max.into(), Duration::from_secs(1))
        }
    }

    /// Counts all calls together, as if they had one value.
    pub(super) fn of_all(self) -> Self {
        Self {
            of: ParamOf::Anyone,
            ..self.max_keys(1)
        }
    }

    /// Limits by the parameter called `name`, as given to the
    /// [layer](crate::SentinelLayer::param_named) or to the [call](crate::Call::params).
    #[must_use]
    pub fn param(mut self, name: impl Into<String>) -> Self {
        self.of = ParamOf::Named(name.into());
        self
    }

    /// Limits by the parameter at `index`, counted from 0, or from the end if negative: -1
    /// is the last. Default 0.
    #[must_use]
    pub fn param_at(mut self, index: i32) -> Self {
        self.of = ParamOf::Index(index);
        self
    }

    /// Limits by the [origin](crate::Call::origin) of the call.
    #[must_use]
    pub fn by_origin(mut self) -> Self {
        self.of = ParamOf::Origin;
        self
    }

    /// Sets how many calls beyond the threshold a value at rest can make at once: at most 2³¹ − 1.
    /// Default 0. Only for a refilled quota. A value never has more calls to spend at once than it
    /// earns in nine years.
    #[must_use]
    pub fn burst(mut self, burst: impl Into<WholeNumber>) -> Self {
        self.burst = Burst::AboveThreshold(burst.into());
        self
    }

    /// Sets how many calls a value at rest can make at once, including those of the threshold: from
    /// the threshold to 2³¹ − 1. It is converted to a [burst](Self::burst): the capacity less the
    /// whole part of the threshold. The same burst applies to values with a threshold of their own,
    /// so their capacity differs by as much as their threshold. Of `burst` and `capacity`, the last
    /// one set counts. Only for a refilled quota.
    ///
    /// ```
    /// use tower_sentinel::{KeyedRule, Rules};
    ///
    /// // One call every 100 ms, and twenty at once after a rest.
    /// let rule = KeyedRule::per_second("/search", 10).capacity(20);
    ///
    /// let error = Rules::build([rule.capacity(5)]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "rule 0 (keyed \"/search\"): capacity is 5, must be between the threshold, 10, \
    ///      and 2147483647",
    /// );
    /// ```
    #[doc(alias("burst_size"))]
    #[must_use]
    pub fn capacity(mut self, capacity: impl Into<WholeNumber>) -> Self {
        self.burst = Burst::Capacity(capacity.into());
        self
    }

    /// The burst: how many calls a value can make beyond its threshold, also if its capacity was
    /// set.
    pub(super) fn extra_calls(&self) -> u32 {
        self.burst.above_threshold(self.threshold)
    }

    /// Counts in a sliding window of two buckets, aligned to the clock, instead of
    /// refilling the quota continuously: no aligned window holds more than the threshold,
    /// as with a [`FlowRule`](crate::FlowRule).
    ///
    /// If a threshold of the rule, of a tier or of an exception is above 1 048 575, each value has
    /// two words, and the table takes 64 bytes for each of [`max_keys`](Self::max_keys). The
    /// interval is then at least a second. For a [shared](Self::shared) rule, which counts in the
    /// store, neither is so.
    #[must_use]
    pub fn window(mut self) -> Self {
        self.count = Counting::Window;
        self
    }

    /// Queues the calls of each value and lets them start one after the other, evenly
    /// spaced. Each call waits for its turn for at most `max_wait`, which is at most 256 s, and
    /// no longer than [`FlowRule::throttle`](crate::FlowRule::throttle) allows; the docs of that
    /// method also say what happens to the turns of calls that are dropped. At most 10 000 calls
    /// of a resource wait at once, or as many as its flow rules
    /// [allow](crate::FlowRule::max_waiting).
    #[must_use]
    pub fn throttle(mut self, max_wait: Duration) -> Self {
        self.count = Counting::Queue(max_wait);
        self
    }

    /// Makes calls beyond a [concurrency](Self::concurrency) limit wait until a call of their value
    /// ends, for at most `max_wait`, instead of refusing them: between 0, at which no call waits,
    /// and 1 day. Default: no call waits. Only for a concurrency limit.
    ///
    /// Each value has a separate queue. Its places go to waiting calls in the order of their
    /// arrival, and a new call does not overtake them: no more calls of a value run than its limit,
    /// and no place is free while a call of that value waits. A call that has waited for
    /// `max_wait`, or for its own [patience](crate::Call::patience) if that is shorter, is refused
    /// as if it could not wait. A call that arrives when the [maximum](Self::max_waiting) number of
    /// calls is waiting, and a call of a value with a limit of 0, are refused in the same way. If
    /// the calls of a value have different [tiers](Self::tier), the limit of the first waiting call
    /// decides.
    ///
    /// A waiting call holds nothing: no slot of an isolation rule, and no share of another keyed
    /// rule. When it has its place it is judged again from the first check on, by the rules in
    /// force then. If one of these rules refuses the call, the place goes to the next call. If it
    /// has to wait for a slot of an [isolation rule](crate::IsolationRule::queue), or for a place
    /// under a second rule of this kind, the place goes to the next call too. After that wait the
    /// call gets a place before all calls that came later, within what is left of its `max_wait`.
    /// While it waits for a turn or for a loan, it keeps the place. Response time begins after the
    /// wait, which is recorded separately.
    ///
    /// All values that find no place in the table share one quota, and wait in one queue for it,
    /// even if the table gets room meanwhile. A value is not evicted while one of its calls waits.
    /// Calls wait on a tokio runtime with its timer, as in any queue; see
    /// [`Sentinel::enter`](crate::Sentinel::enter). In [shadow mode](crate::Rule::shadow) a call
    /// that would wait starts at once.
    ///
    /// A reload that keeps the [table](Self::max_keys) changes the limits for waiting calls as
    /// well; they keep the longest wait that they began with. If the reload does not keep the
    /// table, waiting calls are judged again.
    ///
    /// Waiting allocates, and takes a lock that only waiting calls and the calls that end meanwhile
    /// share.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, KeyedRule, NotAdmitted, Sentinel, Verdict};
    ///
    /// let rule = KeyedRule::concurrency("report", 1).queue(Duration::from_secs(5));
    /// let sentinel = Sentinel::new(rule);
    /// let report = |user| sentinel.try_enter(Call::new("report").param(user));
    ///
    /// let Verdict::Pass(running) = report("ann") else { panic!("ann's first report") };
    /// let Verdict::Wait(waiting) = report("ann") else { panic!("her second one waits") };
    /// assert!(matches!(report("bob"), Verdict::Pass(_)));
    /// let Err(NotAdmitted::TooEarly(waiting)) = waiting.admit() else {
    ///     panic!("the first one is not done");
    /// };
    /// drop(running);
    /// assert!(waiting.admit().is_ok());
    /// ```
    ///
    /// # Cancel safety
    ///
    /// A call that is dropped while it waits leaves the queue. If it has just got a place, the next
    /// call of its value gets it.
    #[doc(alias("wait", "acquire", "semaphore"))]
    #[must_use]
    pub fn queue(mut self, max_wait: Duration) -> Self {
        self.queue = Some(max_wait);
        self
    }

    /// Sets how many calls of one value can wait at once in the [queue](Self::queue): between 0, at
    /// which no call waits, and 2³² − 1. Default 1 000. At most 10 000
    /// calls of all values together wait, or `max_waiting` if that is larger. In [shadow
    /// mode](crate::Rule::shadow), where no call waits, this number of calls can run beyond the
    /// limit of a value. Only for a concurrency limit.
    #[must_use]
    pub fn max_waiting(mut self, max_waiting: impl Into<WholeNumber>) -> Self {
        self.max_waiting = Some(max_waiting.into());
        self
    }

    /// Sets another threshold for one value, in the same range; 0 refuses all its calls. An
    /// address or a number is written as text, and stands for both the text and the address
    /// or number. An IPv6 address is written as the [extractor](crate::key) shortens it,
    /// `2001:db8:1:2::` for a /64. If a value has two exceptions, the last one counts. A
    /// [`Secret`](crate::key::Secret) cannot be named here.
    #[must_use]
    pub fn except(mut self, value: impl Into<String>, threshold: impl Into<Number>) -> Self {
        let exceptions = Arc::make_mut(&mut self.exceptions);
        exceptions.push((value.into(), threshold.into().get()));
        self
    }

    /// Sets another threshold, in the same range, for the calls of one [tier](crate::Call::tier),
    /// such as a paid plan. If a tier is given twice, the last threshold counts. A name that spells
    /// an address or a number also stands for that address or number. An [exception](Self::except)
    /// takes precedence over a tier. A value whose tier changes keeps the number of calls that it
    /// has spent: a value that has spent 5 of 5 has 95 of 100 left at once. The reloads section of
    /// [`max_keys`](Self::max_keys) describes how long calls that passed under another limit stay
    /// spent.
    #[must_use]
    pub fn tier(mut self, tier: impl Into<String>, threshold: impl Into<Number>) -> Self {
        self.tiers.push((tier.into(), threshold.into().get()));
        self
    }

    /// Lets all calls of one value pass this rule without counting them: the value takes no place
    /// in the [table](Self::max_keys), and no header shows a quota for it. Other rules still apply
    /// to its calls. The value is written as for [`except`](Self::except), and must not have a
    /// threshold there. A threshold of 0 refuses all calls instead.
    #[must_use]
    pub fn except_unlimited(mut self, value: impl Into<String>) -> Self {
        self.unlimited_values.push(value.into());
        self
    }

    /// Lets all calls of one [tier](Self::tier) pass this rule without counting them, such as calls
    /// of a plan without a limit: they take no place in the [table](Self::max_keys), and no place
    /// of a concurrency limit. An [exception](Self::except) takes precedence. The tier must not
    /// have a threshold as well. A threshold of 0 refuses all calls instead.
    ///
    /// ```
    /// use tower_sentinel::{Call, KeyedRule, ManualClock, Sentinel, Verdict};
    ///
    /// let rule = KeyedRule::per_second("api", 5)
    ///     .tier("blocked", 0)
    ///     .tier_unlimited("enterprise");
    /// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
    /// let passed = |tier| {
    ///     let call = Call::new("api").param("ann").tier(tier);
    ///     (0..100).filter(|_| matches!(sentinel.try_enter(call), Verdict::Pass(_))).count()
    /// };
    /// assert_eq!([passed("blocked"), passed("free"), passed("enterprise")], [0, 5, 100]);
    /// ```
    #[doc(alias("no_limit"))]
    #[must_use]
    pub fn tier_unlimited(mut self, tier: impl Into<String>) -> Self {
        self.unlimited_tiers.push(tier.into());
        self
    }

    /// Sets how many values that are not at rest the table can hold at least: between 1 and 2^26.
    /// Default 65 536, which takes 2 MiB.
    ///
    /// # A full table
    ///
    /// A value keeps its place until it is at rest. After one call this takes
    ///
    /// * `interval / threshold` for a refilled quota, and up to four times as long for a
    ///   [queue](Self::throttle),
    /// * up to the whole `interval` for a [window](Self::window), including that of a plain
    ///   [`FlowRule::by_origin`](crate::FlowRule::by_origin), and even if a later rule
    ///   refuses the call,
    /// * until the day or month ends, for a rule [by the calendar](Self::per_calendar_month),
    /// * until the call ends, for [concurrency](Self::concurrency).
    ///
    /// So the table can keep up with `max_keys / time to rest` calls per second, each with a new
    /// value; at twice that rate it is full. With the default, `max_keys / time to rest` is 5 461 a
    /// second at five a minute, 182 a second at ten an hour, and 18 a second for a window of an
    /// hour. Clients that can make up values reach such rates: with header fields that are not
    /// checked, or with IPv6 networks, as a /48 has 65 536 keys.
    ///
    /// While the table is full, all new values share one quota, of the size of one value's: new
    /// honest callers share it with the flood, and are mostly refused. Callers that have a place
    /// are not affected, no caller gets a fresh quota, and no more memory is used.
    /// [`overflows`](crate::read::KeyedView::overflows) counts the calls that used the shared
    /// quota. A rule with a coarser key in front [keeps the flood
    /// out](crate::guide::floods#made-up-keys). A flow rule over all callers does not keep it out:
    /// it is checked after the rules with tables.
    ///
    /// # Reloads
    ///
    /// A [reload](crate::Sentinel::reload) that changes `max_keys`, the interval, the parameter,
    /// the offset from UTC or the way to count makes a new table: then every value has its whole
    /// quota again. A reload also makes a new table if the largest threshold of a
    /// [window](Self::window) rises above 1 048 575 or no longer exceeds it. If anything else
    /// changes, such as thresholds, exceptions and tiers, the table keeps the state of each value.
    /// For a refilled quota, a window and a month, the state is the number of calls that are spent;
    /// for a queue, it is the turns. So a higher threshold counts at once.
    ///
    /// Calls that a refilled quota has spent at another threshold are earned back at the rate of
    /// that threshold, until the value's next call passes this rule. This works for at most
    /// fourteen different thresholds at a time; the thresholds of the rule and of its tiers are
    /// chosen first. With more thresholds, or for one above 60 000 per second, a value that is not
    /// at rest keeps the time until its quota is whole instead. A call that gives its tokens back
    /// after the limit of its value has changed and changed back can give back tokens that were
    /// earned since, but never more than it took.
    ///
    /// A rule takes over the table of an equal rule of the previous set, else of the rule with its
    /// [id](Self::id), and else of any rule, provided that the previous rule counts the same values
    /// in the same way.
    #[must_use]
    pub fn max_keys(mut self, max_keys: impl Into<WholeNumber>) -> Self {
        self.max_keys = max_keys.into();
        self
    }

    /// Sets what happens to a call that has no value. Default: all calls without a value share one
    /// quota, under [`Key::MISSING`](crate::Key::MISSING), shown as `-`. If no call has a value,
    /// because the parameter is never set or the layer finds [no
    /// address](crate::key::PeerIp#if-no-address-is-there), that is one quota for all callers, and
    /// [`KeyedView::missing`](crate::read::KeyedView::missing) grows with each call.
    #[must_use]
    pub fn missing(mut self, missing: MissingKey) -> Self {
        self.missing = missing;
        self
    }

    /// Sets the name of the rule in refusals and response headers. Default: its kind and
    /// its place in the set, such as `keyed-2`.
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

    /// Bytes that the strings and lists of one copy of the rule occupy, without the exceptions,
    /// which all copies share.
    pub(super) fn heap(&self) -> usize {
        let of = match &self.of {
            ParamOf::Named(name) => name.len(),
            ParamOf::Index(_) | ParamOf::Origin | ParamOf::Anyone => 0,
        };
        let tiers = self.tiers.iter().map(|(tier, _)| tier.len());
        let tiers = size_of_val(&*self.tiers) + tiers.sum::<usize>();
        let unlimited = self.unlimited_values.iter().chain(&self.unlimited_tiers);
        let unlimited = unlimited.map(|name| size_of::<String>() + name.len());
        let unit = self.cost.as_ref().map_or(0, String::len);
        self.resource.len()
            + unit
            + self.id.as_ref().map_or(0, String::len)
            + of
            + tiers
            + unlimited.sum::<usize>()
    }

    /// Returns how many calls of one value can pass in an interval, or run at once.
    #[must_use]
    pub const fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Returns the interval. For a rule by the calendar, it is a day, or the 31 days of the longest
    /// month. Has no meaning for [concurrency](Self::concurrency).
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    // --- for the engine; the rule has been inspected ---

    /// The longest wait for a turn; zero if calls have no turns.
    pub(super) const fn max_wait(&self) -> Duration {
        match self.count {
            Counting::Queue(max_wait) => max_wait,
            _ => Duration::ZERO,
        }
    }

    /// How calls of one value wait for a place; `None` if no call waits.
    pub(super) fn place_queue(&self) -> Option<SlotQueue> {
        let most = self
            .max_waiting
            .map_or(MOST_WAITING_OF_VALUE, WholeNumber::get);
        let queue = SlotQueue {
            max_wait: self.queue.filter(|_| self.count == Counting::Running)?,
            max_waiting: most,
        };
        queue.lets_wait().then_some(queue)
    }

    /// The maximum number of waiting calls of all values together, if `of_one` calls of one value
    /// can wait.
    pub(super) const fn most_waiting(of_one: u32) -> u32 {
        if of_one > MOST_WAITING {
            of_one
        } else {
            MOST_WAITING
        }
    }

    /// Returns whether the same id was set for both rules.
    pub(super) fn is_named_like(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }

    /// Returns whether both rules count the same values in the same way, so that one rule can take
    /// over the table of the other.
    pub(super) fn counts_like(&self, other: &Self) -> bool {
        let window = |rule: &Self| {
            let table = (rule.max_keys, rule.has_wide_windows());
            (rule.interval, rule.get_utc_offset(), table)
        };
        let same_count = match (self.count, other.count) {
            (Counting::Queue(_), Counting::Queue(_)) => true,
            (count, other) => count == other,
        };
        self.resource == other.resource
            && self.of == other.of
            && self.cost == other.cost
            && same_count
            && window(self) == window(other)
    }
}

/// Returns `keys`, limited to the range of a table's size.
pub(crate) fn most_keys(keys: usize) -> u32 {
    u32::try_from(keys).unwrap_or(MOST_KEYS).clamp(1, MOST_KEYS)
}

shared_settings!(KeyedRule);

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_keys_is_clamped() {
        let keys = [0, 7, MOST_KEYS as usize, MOST_KEYS as usize + 1, usize::MAX];
        assert_eq!(keys.map(most_keys), [1, 7, MOST_KEYS, MOST_KEYS, MOST_KEYS]);
    }
}
