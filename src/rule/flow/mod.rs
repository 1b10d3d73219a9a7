//! Flow rules: how many calls of a resource may pass in a window of time.

mod calendar;
mod cost;
#[cfg(any(feature = "page", feature = "serde"))]
mod fields;
mod getters;
mod info;
mod table;

use std::fmt;
use std::time::Duration;

use super::KeyedRule;
use super::problem::Inspector;
use super::shaping::Shaping;
use super::sharing::{Sharing, inspect_window, refuse_shared, shared_settings};
use super::threshold::whole_rate;
use super::whose::{Basis, Who};
use crate::base::number::{Number, WholeNumber};
use crate::clock::{CalendarPeriod, SHORTEST_INTERVAL};
use crate::stat::{Lending, MAX_TOKENS, Quota};

/// The maximum number of buckets of one window: each takes memory in every node, and time in the
/// first call after an idle time.
const MAX_BUCKETS: u32 = 1_024;

/// The default of `max_waiting`: how many calls of a resource can wait at once.
pub(super) const MOST_WAITING: u32 = 10_000;

/// Limits a rate: at most `threshold` calls of a resource pass in a sliding window.
///
/// The window consists of [buckets](Self::buckets), two unless set, aligned to the clock.
/// [`LeapArray`](crate::stat::LeapArray) documents what exactly that guarantees;
/// [`strict`](Self::strict) gives a stronger guarantee.
///
/// A call that finds the window full is refused; a [prioritized](crate::Call::prioritized)
/// call may borrow tokens of a coming bucket and wait for it. The
/// [glossary](crate::guide::words) explains borrowing, waiting and origins.
///
/// A rule for the resource `*` is the [default](crate::rule#default-rules): every resource
/// without a flow rule of its own gets a separate window from it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("/search", 2))
///     .clock(ManualClock::new())
///     .build();
/// let call = || sentinel.try_enter(Call::new("/search"));
/// assert!(matches!((call(), call()), (Verdict::Pass(_), Verdict::Pass(_))));
/// let Verdict::Block(blocked) = call() else {
///     panic!("the third one in a second");
/// };
/// assert_eq!(blocked.retry_after(), Some(Duration::from_secs(1)));
/// ```
///
/// Other windows and other callers:
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{FlowRule, Rules};
///
/// let rules = Rules::new()
///     // 100 per second for all callers together.
///     .with(FlowRule::per_second("/search", 100))
///     // Five a minute for each caller.
///     .with(FlowRule::per("/login", 5, Duration::from_secs(60)).by_origin())
///     // Never more than 10 in any second, wherever it begins.
///     .with(FlowRule::per_second("/pay", 10).buckets(10).strict());
/// assert_eq!(rules.len(), 3);
/// ```
///
/// An invalid value is an error that names the field:
///
/// ```
/// use tower_sentinel::{FlowRule, Rules};
///
/// let error = Rules::build([FlowRule::per_second("/pay", -1)]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "rule 0 (flow \"/pay\"): threshold is -1, must be between 0 and 2147483647",
/// );
/// ```
#[doc(alias("RateLimit", "rate_limit", "RateLimiter"))]
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRule {
    resource: String,
    threshold: f64,
    interval: Duration,
    buckets: WholeNumber,
    pub(super) strict: bool,
    pub(super) who: Who,
    basis: Basis,
    pub(super) shaping: Shaping,
    /// How calls without an origin are treated, if that was set; valid only for a rule by origin.
    pub(super) missing: Option<MissingKey>,
    lend: Option<bool>,
    max_occupy_ratio: f64,
    max_waiting: WholeNumber,
    pub(super) sharing: Sharing,
    /// The calendar period in which the rule counts, if it counts by the calendar.
    calendar: Option<CalendarPeriod>,
    /// How many minutes the rule's days and months begin before those of UTC. Boxed, as few rules
    /// have an offset, and many resources can keep a copy of one rule.
    utc_offset: Option<Box<WholeNumber>>,
    /// The unit of costs that the rule counts; `None` if it counts calls.
    cost: Option<String>,
    pub(super) id: Option<String>,
}

/// How a rule treats a call that has no key for it: no origin for a rule [by
/// origin](FlowRule::by_origin), no value for a [`KeyedRule`].
///
/// A call has no key if the layer has no extractor for it, or if the extractor finds
/// nothing in the request. [`PeerIp`](crate::key::PeerIp#if-no-address-is-there) finds
/// nothing if the server is not set up for it.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{BlockKind, Call, FlowRule, MissingKey, Sentinel, Verdict};
///
/// let rule = FlowRule::per_second("/search", 100).by_origin().missing(MissingKey::Refuse);
/// let sentinel = Sentinel::new(rule);
/// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("/search")) else {
///     panic!("it does not say who calls");
/// };
/// assert_eq!(blocked.kind(), BlockKind::MissingKey);
/// assert!(matches!(sentinel.try_enter(Call::new("/search").origin("shop")), Verdict::Pass(_)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// All calls without a key share one quota, under the key `-`. A few callers can use it up for
    /// all others.
    #[default]
    Share,
    /// The rule does not apply to calls without a key, so it does not limit them. A client can
    /// leave a key out. It can also send the key twice, so that an
    /// [extractor](crate::key#different-spellings-of-a-key) finds no key, while the service reads
    /// one of the two. So another rule must limit calls without a key, by something that is always
    /// there, as [here](crate::guide::callers#per-user-or-api-key).
    Skip,
    /// Calls without a key are refused; over HTTP, with status 403.
    Refuse,
}

impl MissingKey {
    #[cfg(any(feature = "page", feature = "serde"))]
    pub(crate) const ALL: [Self; 3] = [Self::Share, Self::Skip, Self::Refuse];
    /// The names in documents.
    #[cfg(any(feature = "page", feature = "serde"))]
    pub(crate) const NAMES: [&'static str; 3] = [
        Self::ALL[0].as_str(),
        Self::ALL[1].as_str(),
        Self::ALL[2].as_str(),
    ];

    /// Returns the name of the setting in documents: `share`, `skip` or `refuse`.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::MissingKey::Refuse.as_str(), "refuse");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Skip => "skip",
            Self::Refuse => "refuse",
        }
    }
}

impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FlowRule {
    /// Allows at most `threshold` calls of `resource` per second. The threshold is between 0 and
    /// 2³¹ − 1.
    ///
    /// The threshold may have a fraction. A window counts whole calls and ignores the
    /// fraction. So a threshold between 0 and 1 would refuse every call, and is invalid: for
    /// one call every two seconds, use `per(resource, 1, Duration::from_secs(2))`. With
    /// [`throttle`](Self::throttle) the fraction does count: at 0.5 per second a call
    /// starts every two seconds.
    #[must_use]
    pub fn per_second(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        Self::per(resource, threshold, Duration::from_secs(1))
    }

    /// Allows at most `threshold` calls of `resource` per minute, as
    /// [`per`](Self::per) with 60 s.
    #[must_use]
    pub fn per_minute(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        Self::per(resource, threshold, Duration::from_secs(60))
    }

    /// Allows at most `threshold` calls of `resource` per hour, as
    /// [`per`](Self::per) with 3600 s.
    ///
    /// With the system clock, buckets are aligned to UTC: see [windows and the
    /// calendar](crate::stat#windows-and-the-calendar).
    #[must_use]
    pub fn per_hour(resource: impl Into<String>, threshold: impl Into<Number>) -> Self {
        Self::per(resource, threshold, Duration::from_secs(3_600))
    }

    /// Allows at most `threshold` calls of `resource` per `interval`, which is between 1 ms
    /// and 366 days. An interval that is below 2 ms, or that cannot be halved, needs a
    /// number of [buckets](Self::buckets) other than two.
    #[must_use]
    pub fn per(
        resource: impl Into<String>,
        threshold: impl Into<Number>,
        interval: Duration,
    ) -> Self {
        Self {
            resource: resource.into(),
            threshold: threshold.into().get(),
            interval,
            buckets: WholeNumber::new(2),
            strict: false,
            who: Who::Anyone,
            basis: Basis::Own,
            shaping: Shaping::default(),
            missing: None,
            lend: None,
            max_occupy_ratio: 1.0,
            max_waiting: WholeNumber::new(MOST_WAITING),
            sharing: Sharing::default(),
            calendar: None,
            utc_offset: None,
            cost: None,
            id: None,
        }
    }

    /// Sets the number of buckets that the interval is divided into: between 1 and 1024,
    /// each at least 1 ms long. Default 2.
    ///
    /// One bucket is a fixed window: it starts again at each multiple of the interval. More
    /// buckets spread the calls more evenly. They cost no more time per call, except that
    /// the first call after an idle time writes a few words for each bucket.
    #[must_use]
    pub fn buckets(mut self, buckets: impl Into<WholeNumber>) -> Self {
        self.buckets = buckets.into();
        self
    }

    /// Admits no more than the threshold in *any* interval of the rule's length, wherever
    /// it begins.
    ///
    /// The rule then counts one bucket more than the interval has. The price is a lower
    /// sustained rate while calls keep the limit exhausted: `n / (n + 1)` of the threshold
    /// for `n` buckets, so 67 % for two and 91 % for ten. For a quota that another service
    /// counts, use `.strict().buckets(10)`.
    ///
    /// The guarantee is about the moment of admission. A strict rule does not lend unless
    /// [`lend(true)`](Self::lend) is set. A call that borrows then counts in the bucket
    /// that it was promised, and a timer that fires late may start it after that bucket.
    /// Cannot be combined with [`throttle`](Self::throttle) or [`warm_up`](Self::warm_up).
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Gives every origin a separate quota. To limit each caller, a [`KeyedRule`](crate::KeyedRule)
    /// is the usual way; the guide says [when this is
    /// needed](crate::guide::callers#when-a-caller-needs-another-rule).
    ///
    /// Calls without an origin share one quota, under the name `-`, unless
    /// [`missing`](Self::missing) is set otherwise. If the layer's
    /// [`origin`](crate::SentinelLayer::origin) finds no key in any request, that is one
    /// quota for all callers: see [`PeerIp`](crate::key::PeerIp#if-no-address-is-there) for
    /// how that happens and how to notice it.
    ///
    /// Once the engine's [limit on origins](crate::Builder::max_origins) is reached, all
    /// further origins of the resource share one quota. Clients that make up origins can
    /// reach it; [`KeyedRule::max_keys`](crate::KeyedRule::max_keys) says how fast.
    ///
    /// The quotas are kept in a table like that of a [`KeyedRule`](crate::KeyedRule), which takes
    /// 32 bytes per origin, allocated up front for [`max_origins`](crate::Builder::max_origins)
    /// origins; for thresholds above 1 048 575 it takes 64 bytes. Such a threshold needs an interval
    /// of at least a second, unless the rule is [shared](Self::shared). The windows have two
    /// buckets, are not [strict](Self::strict) and do not lend. A call that waits for another rule
    /// is counted in the table when it arrives. A [reload](crate::Sentinel::reload) that changes the
    /// interval resets the table: every origin then has its whole quota again.
    ///
    /// If each origin needs [`strict`](Self::strict), [`buckets`](Self::buckets),
    /// [`lend(true)`](Self::lend), [`warm_up`](Self::warm_up) or [`memory`](Self::memory), use
    /// [`for_origin("other")`](Self::for_origin), which keeps a node with statistics for each
    /// origin; `by_origin` with any of these settings is an error. For a separate queue for each
    /// origin, use a [`KeyedRule`](crate::KeyedRule) with [`throttle`](crate::KeyedRule::throttle).
    #[must_use]
    pub fn by_origin(mut self) -> Self {
        self.who = Who::Each;
        self
    }

    /// Counts and limits only the calls of `origin`. An address or a number is written as
    /// text, and stands for both the text and the address or number.
    ///
    /// The two special origins of Alibaba Sentinel keep their meaning: `"default"` counts all
    /// callers together, as without this method, and `"other"` gives a separate quota to every
    /// origin that no rule of the resource names. With [`throttle`](Self::throttle), though, all
    /// these origins share one queue and one warm-up: together they get the threshold once, not
    /// once each.
    #[must_use]
    pub fn for_origin(mut self, origin: impl Into<String>) -> Self {
        self.who = Who::of_origin(origin.into());
        self
    }

    /// Limits the rule's resource by the calls of another resource: calls of the rule's own
    /// resource are refused while one more call of `related` would exceed the threshold. So reads
    /// can yield to writes. `related` can be a template, like the name of a rule. Only calls of
    /// `related` with the same direction count.
    ///
    /// Nothing is taken from `related`, so calls that arrive at the same moment may all pass when
    /// there is room for only one. The rule does not apply until `related` has been called for the
    /// first time. It cannot be combined with an origin, a queue, a warm-up or memory.
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::builder()
    ///     .rules(FlowRule::per_second("read", 2).when("write"))
    ///     .clock(ManualClock::new())
    ///     .build();
    /// let passes = |name| matches!(sentinel.try_enter(Call::new(name)), Verdict::Pass(_));
    /// assert!((0..100).all(|_| passes("read")));
    /// assert!(passes("write") && passes("write"));
    /// assert!(!passes("read")); // two writes in this second
    /// assert!(passes("write"));
    /// ```
    #[must_use]
    pub fn when(mut self, related: impl Into<String>) -> Self {
        self.basis = Basis::Related(related.into());
        self
    }

    /// Counts and limits only calls that come through `context`, which is written like an
    /// [origin](Self::for_origin). It cannot be combined with an origin.
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::builder()
    ///     .rules(FlowRule::per_second("db", 1).in_context("batch"))
    ///     .clock(ManualClock::new())
    ///     .build();
    /// let passes = |context| {
    ///     matches!(sentinel.try_enter(Call::new("db").context(context)), Verdict::Pass(_))
    /// };
    /// assert!(passes("batch") && !passes("batch"));
    /// assert!(passes("web"));
    /// ```
    #[must_use]
    pub fn in_context(mut self, context: impl Into<String>) -> Self {
        self.basis = Basis::Context(context.into());
        self
    }

    /// Sets how a rule [by origin](Self::by_origin) treats calls that have no origin. Default: they
    /// share one quota. It is invalid to set this for a rule that is not by origin, as such a rule
    /// needs no key of a call.
    #[must_use]
    pub fn missing(mut self, missing: MissingKey) -> Self {
        self.missing = Some(missing);
        self
    }

    /// Sets whether prioritized calls may borrow from coming buckets. Default: yes, except for a
    /// [strict](Self::strict) rule. A rule [by origin](Self::by_origin) does not lend unless it is
    /// [shared](Self::shared).
    ///
    /// A shared rule lends permits of the next bucket only. The store counts them there, so each
    /// window admits no more than the limit.
    #[must_use]
    pub fn lend(mut self, lend: bool) -> Self {
        self.lend = Some(lend);
        self
    }

    /// When a bucket leaves the window, its tokens become free. Sets the largest fraction of them
    /// that can be lent: above 0, at most 1. Default 1: borrowers can take all of them, and
    /// ordinary calls get the rest. If the next window shares no bucket with the present one, as
    /// with a rule of one bucket, this is a fraction of the threshold instead.
    ///
    /// Tokens are lent only for the start of a bucket of the rule. All tokens held for that time
    /// count, including those of calls that wait only for another rule. A call that also waits for
    /// another rule, such as one for its origin, may start later in that bucket.
    ///
    /// For a [shared](Self::shared) rule this is the fraction of the limit, rounded down, that each
    /// process can borrow from the next bucket.
    #[must_use]
    pub fn max_occupy_ratio(mut self, ratio: f64) -> Self {
        self.max_occupy_ratio = ratio;
        self
    }

    /// Sets how many calls may wait at once, for tokens that this rule has lent or in its
    /// queue. Default 10 000; 0: no call waits, as with [`lend(false)`](Self::lend).
    ///
    /// All waiting calls of a resource count together, whichever rule they wait for. Their number
    /// is limited by the smallest `max_waiting` of the rules that count all callers together, or by
    /// 10 000 if none of these rules lets calls wait. In addition, the `max_waiting` of a rule for
    /// origins or for a context limits the waiting calls of each origin, or of the context. For a
    /// [shared](Self::shared) rule it limits the permits that the process has borrowed at once; if
    /// the rule is by origin, per origin.
    ///
    /// In [shadow mode](crate::Rule::shadow) no call waits, so all numbers above 0 have the same
    /// effect.
    #[must_use]
    pub fn max_waiting(mut self, max_waiting: impl Into<WholeNumber>) -> Self {
        self.max_waiting = max_waiting.into();
        self
    }

    /// Sets the name of the rule in refusals and response headers. Default: its kind and
    /// its place in the set, such as `flow-2`.
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

    /// Returns how many calls may pass in one interval.
    #[must_use]
    pub const fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Returns the length of the window. For a rule by the calendar, it is a day, or the 31 days of
    /// the longest month.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    // --- for the engine; the rule has been inspected ---

    pub(crate) const fn basis(&self) -> &Basis {
        &self.basis
    }

    /// The related resource, if the rule limits its own resource by the calls of another one.
    pub(super) fn related(&self) -> Option<&str> {
        match &self.basis {
            Basis::Related(related) => Some(related),
            Basis::Own | Basis::Context(_) => None,
        }
    }

    /// Returns the rule that counts calls of `related` for this rule, and refuses none of them.
    pub(crate) fn watcher(&self, related: &str) -> Self {
        Self {
            resource: related.to_owned(),
            threshold: f64::from(MAX_TOKENS),
            basis: Basis::Own,
            shaping: Shaping::default(),
            max_waiting: WholeNumber::new(u32::MAX),
            sharing: Sharing::default(),
            cost: None,
            lend: Some(true),
            max_occupy_ratio: 1.0,
            ..self.clone()
        }
    }

    /// Bytes that the strings of the rule occupy on the heap.
    pub(super) fn heap(&self) -> usize {
        let who = match &self.who {
            Who::Only(origin) => origin.len(),
            Who::Anyone | Who::Each | Who::Other => 0,
        };
        let basis = match &self.basis {
            Basis::Related(name) | Basis::Context(name) => name.len(),
            Basis::Own => 0,
        };
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.resource.len() + text(&self.id) + text(&self.cost) + who + basis
    }

    /// How many calls can wait at once; `None` if this rule makes no call wait.
    pub(crate) fn most_waiting(&self) -> Option<u32> {
        let has_queue = self.shaping.max_wait.is_some();
        (has_queue || self.lends()).then_some(self.max_waiting.get())
    }

    /// For a shared rule: the fraction of the limit that one process can borrow from the next
    /// bucket, and the maximum number of permits that it can borrow.
    pub(super) fn borrow_limits(&self) -> (f64, u32) {
        let most = if self.lends() {
            self.max_waiting.get()
        } else {
            0
        };
        (self.max_occupy_ratio, most)
    }

    /// Returns whether prioritized calls can borrow from coming buckets of the rule.
    fn lends(&self) -> bool {
        let is_lender = self.lend.unwrap_or(!self.strict) && self.cost.is_none();
        is_lender && self.max_waiting.get() > 0
    }

    /// The whole part of the threshold.
    pub(crate) const fn limit(&self) -> u32 {
        self.threshold as u32
    }

    /// The limit as response headers advertise it: a number of calls, and the time in which they
    /// may be made.
    pub(crate) fn advertised(&self) -> (u32, Duration) {
        if self.shaping.max_wait.is_some() {
            whole_rate(self.threshold, self.interval)
        } else {
            // A window ignores the fraction.
            (self.limit(), self.interval)
        }
    }

    /// The length of a bucket of the rule, in nanoseconds.
    pub(crate) const fn bucket_ns(&self) -> u64 {
        self.interval.as_nanos() as u64 / self.buckets.get() as u64
    }

    /// The number of buckets in the rule's window, of the rule's own bucket length.
    pub(crate) const fn counted_buckets(&self) -> u32 {
        self.buckets.get() + if self.strict { 1 } else { 0 }
    }

    /// The length of the rule's window, with the additional bucket of a strict rule.
    pub(super) const fn span_ns(&self) -> u64 {
        self.bucket_ns() * self.counted_buckets() as u64
    }

    /// Returns the quota of the rule on a ring with buckets of `bucket_ns`.
    pub(crate) fn quota(&self, bucket_ns: u64) -> Quota {
        let stride = (self.bucket_ns() / bucket_ns) as u32;
        Quota::new(self.counted_buckets(), stride, self.limit(), self.lending())
    }

    /// The part of the tokens of a coming bucket that the rule lends.
    fn lending(&self) -> Lending {
        if !self.lends() {
            Lending::Nothing
        } else if self.max_occupy_ratio < 1.0 {
            Lending::Part(self.max_occupy_ratio)
        } else {
            Lending::All
        }
    }

    /// Returns whether the rule is for every resource without a flow rule of its own.
    pub(super) fn is_for_any(&self) -> bool {
        self.resource == super::ANY_RESOURCE
    }

    /// Reports the settings that a shared rule cannot have.
    fn inspect_shared(&self, inspector: &mut Inspector) {
        if self.calendar.is_some() {
            // All other settings have been refused already.
            return;
        }
        if self.shaping != Shaping::default() {
            let why = "left out with `throttle`, `warm_up` or `memory`: one queue and one clock \
                 cannot be shared";
            refuse_shared(inspector, why);
        }
        if let Basis::Related(_) = self.basis {
            refuse_shared(inspector, "left out with `when`: nothing is taken there");
        }
        if self.who == Who::Other {
            let why = "left out with the origin \"other\": name the origins, or use `by_origin`";
            refuse_shared(inspector, why);
        }
        inspect_window(inspector, self.interval, self.buckets.get());
    }

    /// Returns whether the same id was set for both rules.
    pub(super) fn is_named_like(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }

    /// Returns whether two rules of one node count the same calls in the same window, so that one
    /// rule can take over the counts of the other.
    pub(super) fn counts_like(&self, other: &Self) -> bool {
        let window = |rule: &Self| (rule.interval, rule.buckets, rule.strict);
        self.selects_like(other) && window(self) == window(other)
    }

    /// Returns whether two rules of one node are for the same calls. The resource is not compared:
    /// both apply to the resource of that node, by its name or as defaults.
    pub(super) fn selects_like(&self, other: &Self) -> bool {
        self.who == other.who && self.basis == other.basis
    }

    pub(super) fn inspect(&self, inspector: &mut Inspector) {
        inspector.name("resource", &self.resource);
        match &self.cost {
            Some(unit) => self.inspect_cost(unit, inspector),
            None => _ = inspector.number("threshold", self.threshold, 0..=MAX_TOKENS),
        }
        if self.shaping.max_wait.is_none() {
            let cure = match self.cost {
                None => "let calls queue with `throttle`",
                Some(_) => "choose a smaller unit",
            };
            inspector.whole_call("threshold", self.threshold, self.interval, cure);
        }
        if let Some(missing) = self.missing.filter(|_| self.who != Who::Each) {
            let allowed = "left out without `by_origin`: the rule has no key that may be missing";
            inspector.refuse("missing", missing.as_str(), allowed);
        }
        if inspector.time("interval", self.interval, SHORTEST_INTERVAL) {
            inspector.buckets(self.interval, self.buckets, MAX_BUCKETS);
        }
        self.shaping.inspect(self, inspector);
        self.inspect_calendar(inspector);
        let is_local = self.sharing == Sharing::default();
        if self.who == Who::Each && is_local && self.calendar.is_none() {
            self.inspect_by_origin(inspector);
        }
        let basis = match &self.basis {
            Basis::Own => None,
            Basis::Related(name) => Some(("related", name)),
            Basis::Context(name) => Some(("context", name)),
        };
        let basis = basis.map(|(field, name)| (field, &**name));
        self.who.inspect(basis, inspector);
        if let Some((field, name)) = basis {
            if field == "related" && self.shaping != Shaping::default() {
                let allowed = "without `throttle`, `warm_up` or `memory`: nothing is taken there";
                inspector.refuse(field, format_args!("{name:?}"), allowed);
            }
        }
        if self.sharing.inspect(inspector) {
            self.inspect_shared(inspector);
        }
        inspector.fraction("max_occupy_ratio", self.max_occupy_ratio);
        inspector.number("max_waiting", self.max_waiting, 0..=u32::MAX);
    }
}

shared_settings!(FlowRule);
