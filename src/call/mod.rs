//! The properties of one request by which the engine judges it, such as its resource and its
//! caller.
//!
//! # Examples
//!
//! ```
//! use std::net::IpAddr;
//! use tower_sentinel::call::{Call, Key, Param};
//! use tower_sentinel::{BlockKind, KeyedRule, ManualClock, Sentinel, Verdict};
//!
//! let rule = KeyedRule::per_second("GET /search", 3).param("user");
//! let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
//!
//! let peer = IpAddr::from([192, 0, 2, 7]);
//! let params = [Param::new("page", 2), Param::new("user", "ann")];
//! let call = Call::new(Key::Joined("GET", "/search")).origin(peer).params(&params).batch(2);
//! assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
//! // Two of three tokens are taken.
//! let Verdict::Block(blocked) = sentinel.try_enter(call) else {
//!     panic!("two more are too many");
//! };
//! assert_eq!((blocked.kind(), blocked.resource()), (BlockKind::Keyed, "GET /search"));
//! ```

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

mod address;
mod cohort;
mod criticality;
mod current;
mod flags;
mod key;
mod owned;
mod percent;

pub(crate) use address::{canonical, ipv4_inside};
pub use cohort::Cohort;
pub(crate) use cohort::Importance;
pub use criticality::Criticality;
pub use current::InScope;
pub(crate) use flags::Flags;
pub use key::Key;
pub(crate) use key::{MAX_KEY_BYTES, OVERFLOW, OwnedKey, joined};
pub(crate) use owned::OwnedCall;
pub(crate) use percent::Encoded;

/// The direction of a call: an inbound call is served here, an outbound call is sent out to be
/// served elsewhere. Calls of the two directions are counted separately, even under the same name.
///
/// # Examples
///
/// ```
/// use tower_sentinel::call::Direction;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("users", 1))
///     .clock(ManualClock::new())
///     .build();
/// let (served, asked) = (Call::new("users"), Call::new("users").outbound());
/// let Verdict::Pass(entry) = sentinel.try_enter(served) else {
///     panic!("the first one that is served");
/// };
/// assert_eq!(entry.direction(), Direction::Inbound);
/// // The outbound calls have a quota of their own.
/// let Verdict::Pass(entry) = sentinel.try_enter(asked) else {
///     panic!("the first one that is asked of others");
/// };
/// assert_eq!(entry.direction(), Direction::Outbound);
/// assert!(matches!(sentinel.try_enter(asked), Verdict::Block(_)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Direction {
    /// The call is served here.
    #[default]
    Inbound,
    /// The call is served elsewhere.
    Outbound,
}

impl Direction {
    /// Returns the name of the direction, which is used in texts and JSON.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::call::Direction::Outbound.as_str(), "outbound");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The properties of one request by which the engine judges it.
///
/// Resource, origin, context, parameter, tier and weight are explained in the
/// [glossary](crate::guide::words).
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("orders", 10));
/// let call = Call::new("orders").origin("shop").batch(4);
/// assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
/// assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
/// // 4 + 4 + 4 > 10
/// assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub(crate) resource: Key<'a>,
    pub(crate) origin: Option<Key<'a>>,
    pub(crate) context: Option<Key<'a>>,
    pub(crate) params: Params<'a>,
    pub(crate) tier: Option<Key<'a>>,
    pub(crate) reserves: Reserves<'a>,
    pub(crate) weight: u32,
    pub(crate) patience: Option<Duration>,
    pub(crate) flags: Flags,
}

// A call is copied several times, so its size is kept small.
const _: () = assert!(size_of::<Call<'static>>() <= 256);

/// A parameter of a call: its name, and its value if it has one.
///
/// # Examples
///
/// ```
/// use tower_sentinel::call::Param;
/// use tower_sentinel::{BlockKind, Call, KeyedRule, ManualClock, MissingKey, Sentinel, Verdict};
///
/// // Each user, the second parameter, may search once a second; calls without a user never.
/// let rule = KeyedRule::per_second("search", 1).param_at(1).missing(MissingKey::Refuse);
/// let sentinel = Sentinel::builder().rules(rule).clock(ManualClock::new()).build();
/// let refused = |params| match sentinel.try_enter(Call::new("search").params(params)) {
///     Verdict::Block(blocked) => Some(blocked.kind()),
///     _ => None,
/// };
/// let ann = [Param::new("query", "shoes"), Param::new("user", "ann")];
/// let nobody = [Param::new("query", "shoes"), Param::missing("user")];
/// assert_eq!(refused(&ann), None);
/// assert_eq!(refused(&ann), Some(BlockKind::Keyed));
/// assert_eq!(refused(&nobody), Some(BlockKind::MissingKey));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Param<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: Option<Key<'a>>,
}

impl<'a> Param<'a> {
    /// Creates the parameter `name` with a value.
    #[must_use]
    pub fn new(name: &'a str, value: impl Into<Key<'a>>) -> Self {
        Self {
            name,
            value: Some(value.into()),
        }
    }

    /// Creates the parameter `name` without a value, for a call that has no value for it. The
    /// parameter keeps its position among the call's parameters.
    #[must_use]
    pub const fn missing(name: &'a str) -> Self {
        Self { name, value: None }
    }
}

/// The parameters of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Params<'a> {
    None,
    /// A single parameter without a name.
    One(Key<'a>),
    Many(&'a [Param<'a>]),
}

/// The costs that a call reserves, by unit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reserves<'a> {
    One(&'a str, u32),
    Many(&'a [(&'a str, u32)]),
}

impl Reserves<'_> {
    /// Calls `f` with each unit whose reservation is above 0.
    pub(crate) fn each_unit(self, f: &mut dyn FnMut(&str)) {
        let one;
        let all = match self {
            Self::One(unit, n) => {
                one = [(unit, n)];
                &one[..]
            }
            Self::Many(all) => all,
        };
        for &(unit, n) in all {
            if n > 0 {
                f(unit);
            }
        }
    }

    /// Returns the reservation of `unit`.
    pub(crate) fn of(self, unit: &str) -> u32 {
        match self {
            Self::One(own, n) if own == unit => n,
            Self::One(..) => 0,
            Self::Many(all) => {
                let mut most = 0;
                for &(own, n) in all {
                    if own == unit {
                        most = most.max(n);
                    }
                }
                most
            }
        }
    }
}

impl<'a> Call<'a> {
    /// Creates a call to `resource`: of weight 1, inbound, critical, and not prioritized.
    #[must_use]
    pub fn new(resource: impl Into<Key<'a>>) -> Self {
        Self {
            resource: resource.into(),
            origin: None,
            context: None,
            params: Params::None,
            tier: None,
            reserves: Reserves::Many(&[]),
            weight: 1,
            patience: None,
            flags: Flags::DEFAULT,
        }
    }

    /// Sets the origin: the caller. Rules [by origin](crate::FlowRule::by_origin) count all calls
    /// without an origin as calls of one caller, displayed as `-`, unless the rules set another
    /// [`MissingKey`](crate::MissingKey). A caller that sends the text `-` is a different caller.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<Key<'a>>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// Sets the context: the entrance through which the call arrived, such as `web` or `batch`.
    /// Rules can be [for one context](crate::FlowRule::in_context). The calls of a context are
    /// counted separately if a rule is for this context, or if the engine was built [with
    /// contexts](crate::Builder::contexts).
    #[must_use]
    pub fn context(mut self, context: impl Into<Key<'a>>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// Sets the value of the call's only parameter; see
    /// [`KeyedRule`](crate::KeyedRule).
    #[must_use]
    pub fn param(mut self, value: impl Into<Key<'a>>) -> Self {
        self.params = Params::One(value.into());
        self
    }

    /// Sets the call's parameters; rules refer to them by position or by name.
    ///
    /// ```
    /// use tower_sentinel::call::Param;
    /// use tower_sentinel::{Call, KeyedRule, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::new(KeyedRule::per_second("search", 1).param("user"));
    /// let params = [Param::new("query", "shoes"), Param::new("user", "ann")];
    /// let call = Call::new("search").params(&params);
    /// assert!(matches!(sentinel.try_enter(call), Verdict::Pass(_)));
    /// assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
    /// ```
    #[must_use]
    pub const fn params(mut self, params: &'a [Param<'a>]) -> Self {
        self.params = Params::Many(params);
        self
    }

    /// Sets the tier: the class of the caller, such as a paid plan;
    /// see [`KeyedRule::tier`](crate::KeyedRule::tier).
    #[must_use]
    pub fn tier(mut self, tier: impl Into<Key<'a>>) -> Self {
        self.tier = Some(tier.into());
        self
    }

    /// Sets whether the call may borrow from a later bucket of a flow rule and wait for it, instead
    /// of being refused; see [`FlowRule::lend`](crate::FlowRule::lend). The call may also borrow
    /// from a [keyed rule](crate::KeyedRule::shared) that is shared. Other rules, and queues,
    /// ignore this setting.
    #[must_use]
    pub fn prioritized(mut self, prioritized: bool) -> Self {
        self.flags = self.flags.with_prioritized(prioritized);
        self
    }

    /// Sets the time for which the call may wait, such as the time until its deadline. A call that
    /// would have to wait for this time or longer is refused at once.
    ///
    /// A patience above the default has no effect. The default is the engine's [occupy
    /// timeout](crate::Builder::occupy_timeout) for a borrowed place, and the `max_wait` of its
    /// rule for a turn in a queue. In line for a [slot](crate::IsolationRule::queue) or a [place of
    /// its value](crate::KeyedRule::queue), the length of the wait is unknown, so the call is
    /// refused when the time is over.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Sets the importance of the call under overload: an [`AdaptiveRule`](crate::AdaptiveRule)
    /// refuses the least important calls of its resource first. Default: [`Criticality::Critical`].
    /// Other rules ignore this setting, as an exhausted quota is not an overload.
    #[must_use]
    pub const fn criticality(mut self, criticality: Criticality) -> Self {
        self.flags = self.flags.with_criticality(criticality);
        self
    }

    /// Sets the cohort: the part of its class to which the call belongs. If only some calls of a
    /// class are refused, calls of higher cohorts are refused first. Default: no cohort, which is
    /// judged like cohort 0.
    #[must_use]
    pub const fn cohort(mut self, cohort: Cohort) -> Self {
        self.flags = self.flags.with_cohort(cohort);
        self
    }

    /// The largest weight: 2²⁴. One window counts fewer than 2³¹ tokens, and a few calls of this
    /// weight must not fill it, even if no rule limits calls.
    pub const MAX_WEIGHT: u32 = 1 << 24;

    /// Sets the weight of the call: the number of tokens that it takes. Layers set it with
    /// [`weight`](crate::SentinelLayer::weight); Alibaba Sentinel calls it batch count. A weight
    /// above [`MAX_WEIGHT`](Self::MAX_WEIGHT) counts as `MAX_WEIGHT`. Concurrency limits and
    /// circuit breakers count a call of any weight as one.
    ///
    /// A call whose weight exceeds what a rule ever admits at once can never pass, except in a
    /// [queue](crate::FlowRule::throttle), where it waits correspondingly longer.
    ///
    /// A call of weight 0 takes no tokens. It passes unless a window already holds more than its
    /// limit, which can happen after a reload that lowers the limit. It also passes a threshold
    /// of 0. Tokens of waiting [prioritized](Self::prioritized) calls count as taken, so a full
    /// window that has lent tokens refuses a call of weight 0. If the call is prioritized itself
    /// and the rule lends any [part](crate::FlowRule::max_occupy_ratio), it waits until the
    /// window holds no more than its limit. A quota per value never refuses a call of weight 0.
    ///
    /// The sum of the weights of all calls of one second must stay below 2³¹, or totals are wrong.
    /// A flow rule on the resource can ensure this. So choose a unit that is not too small: KiB,
    /// and not bytes.
    #[doc(alias("weight", "cost"))]
    #[must_use]
    pub fn batch(mut self, weight: u32) -> Self {
        self.weight = weight.min(Self::MAX_WEIGHT);
        self
    }

    /// Reserves the maximum cost of the call, as far as it is known: `n` of `unit`. Default 0: the
    /// call passes while any units are left.
    ///
    /// Rules on [costs](crate::FlowRule::cost) count a reservation as used until the call has ended
    /// or is [settled](crate::Entry::settle). A reservation above the limit of such a rule is
    /// always refused. A unit that no rule of the resource counts is ignored.
    ///
    /// At most `limit ÷ n` calls run at once. So a call that reserves much more than it costs keeps
    /// other calls out while it runs. If a small overrun is acceptable, reserve the usual cost, not
    /// the highest possible cost.
    ///
    /// Of several calls of `reserve` and [`reserves`](Self::reserves), the last one counts.
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, Sentinel, Verdict};
    ///
    /// let sentinel = Sentinel::new(FlowRule::per_minute("export", 1_000).cost("KiB"));
    /// let call = |most| Call::new("export").reserve("KiB", most);
    /// let Verdict::Pass(_running) = sentinel.try_enter(call(800)) else {
    ///     panic!("1000 are left");
    /// };
    /// let Verdict::Block(blocked) = sentinel.try_enter(call(1_001)) else {
    ///     panic!("never so many");
    /// };
    /// assert_eq!(blocked.retry_after(), None);
    /// assert_eq!(
    ///     blocked.to_string(),
    ///     "call to \"export\" refused by flow rule \"flow-0\": it reserves 1001 of 1000",
    /// );
    /// ```
    #[must_use]
    pub const fn reserve(mut self, unit: &'a str, n: u32) -> Self {
        self.reserves = Reserves::One(unit, n);
        self
    }

    /// Reserves costs of several units: see [`reserve`](Self::reserve). If a unit has two numbers,
    /// the larger number counts.
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, Rules, Sentinel, Verdict};
    ///
    /// let rules = Rules::new()
    ///     .with(FlowRule::per_minute("query", 100).cost("rows"))
    ///     .with(FlowRule::per_minute("query", 9).cost("ms"));
    /// let sentinel = Sentinel::new(rules);
    /// let call = Call::new("query").reserves(&[("rows", 50), ("ms", 5)]);
    /// let Verdict::Pass(_running) = sentinel.try_enter(call) else {
    ///     panic!("both have room");
    /// };
    /// // 5 + 5 > 9
    /// assert!(matches!(sentinel.try_enter(call), Verdict::Block(_)));
    /// ```
    #[must_use]
    pub const fn reserves(mut self, all: &'a [(&'a str, u32)]) -> Self {
        self.reserves = Reserves::Many(all);
        self
    }

    /// Makes the call outbound: it is served elsewhere.
    #[must_use]
    pub fn outbound(mut self) -> Self {
        self.flags = self.flags.with_direction(Direction::Outbound);
        self
    }

    /// Returns the exclusive limit of the call's wait for a loan. It is zero if the call may not
    /// borrow, and at most `most`, the limit for all calls.
    pub(crate) fn patience_for_loan(&self, most: Duration) -> Duration {
        match self.patience {
            _ if !self.flags.prioritized() => Duration::ZERO,
            Some(patience) => patience.min(most),
            None => most,
        }
    }

    /// Returns the parameter at `index`. A negative index counts from the end.
    pub(crate) fn param_at(&self, index: i32) -> Option<&Key<'a>> {
        match &self.params {
            Params::None => None,
            Params::One(value) => [0, -1].contains(&index).then_some(value),
            Params::Many(params) => {
                let place = if index < 0 {
                    params.len().checked_sub(index.unsigned_abs() as usize)?
                } else {
                    index as usize
                };
                params.get(place)?.value.as_ref()
            }
        }
    }

    /// Returns the parameter called `name`.
    pub(crate) fn param_named(&self, name: &str) -> Option<&Key<'a>> {
        match &self.params {
            Params::Many(params) => params
                .iter()
                .find(|param| param.name == name)?
                .value
                .as_ref(),
            Params::None | Params::One(_) => None,
        }
    }
}
