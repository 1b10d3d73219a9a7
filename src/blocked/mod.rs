//! The refusal of a call: which rule refused it, and when it may be retried.

mod kind;
mod reason;

use std::error::Error;
use std::fmt;
use std::io;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use crate::base::spread::SpreadCount;
use crate::call::Criticality;

pub use kind::BlockKind;
pub(crate) use kind::Retry;
pub use reason::SystemReason;

/// The number of nested errors among which a refusal is looked for: far more than programs nest.
const MOST_CAUSES: usize = 64;

/// The refusal of a call. This is the only error that a request can get from this crate.
///
/// Cloning it costs two reference counts and allocates nothing.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{BlockKind, Call, FlowRule, ManualClock, Sentinel, Verdict};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 1).id("one-a-second"))
///     .clock(ManualClock::new())
///     .build();
/// let _running = sentinel.try_enter(Call::new("job"));
/// let Verdict::Block(blocked) = sentinel.try_enter(Call::new("job")) else {
///     panic!("the second call is one too many");
/// };
/// assert_eq!(blocked.kind(), BlockKind::Flow);
/// assert_eq!(blocked.resource(), "job");
/// assert_eq!(blocked.rule(), "one-a-second");
/// assert_eq!(blocked.retry_after(), Some(Duration::from_secs(1)));
/// ```
#[doc(alias("Rejected", "RateLimited"))]
#[derive(Clone)]
pub struct Blocked {
    kind: BlockKind,
    system_reason: Option<SystemReason>,
    criticality: Option<Criticality>,
    rule: Arc<Label>,
    /// The called resource, unless the rule names it.
    resource: Option<Arc<str>>,
    retry_after: Option<Duration>,
    limit: Option<Limit>,
}

/// The part of a refusal that describes its rule: created with the rule, and shared by all its
/// refusals.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) id: Arc<str>,
    /// The resource that the rule is for; `None` if it is for several resources.
    pub(crate) resource: Option<Box<str>>,
    /// The unit of the costs that the rule counts; `None` if it counts calls.
    pub(crate) unit: Option<Box<str>>,
    /// The weight of the calls that rules of this id have refused, through all reloads.
    pub(crate) refused: Arc<SpreadCount>,
}

/// The limit that a refused call met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) tokens: u32,
    /// What the call reserves, if that alone is above the limit; else 0.
    reserved: u32,
    pub(crate) interval: Duration,
}

impl Blocked {
    /// Creates a refusal of a call to `resource` by the rule with this id.
    pub(crate) fn new(kind: BlockKind, resource: Box<str>, id: Arc<str>) -> Self {
        let rule = Label {
            id,
            resource: Some(resource),
            unit: None,
            refused: Arc::default(),
        };
        Self::of(kind, Arc::new(rule), None)
    }

    /// Creates a refusal of a call to `resource` by the rule with this label.
    pub(crate) fn by(kind: BlockKind, rule: Arc<Label>, resource: &Arc<str>) -> Self {
        debug_assert!(rule.resource.iter().all(|own| **own == **resource));
        // Most rules are for one resource, which their label names. That saves a reference count.
        let resource = rule.resource.is_none().then(|| resource.clone());
        Self::of(kind, rule, resource)
    }

    fn of(kind: BlockKind, rule: Arc<Label>, resource: Option<Arc<str>>) -> Self {
        Self {
            kind,
            system_reason: None,
            criticality: None,
            rule,
            resource,
            retry_after: None,
            limit: None,
        }
    }

    /// Counts a call of `weight` that got this refusal, for its rule.
    pub(crate) fn count(&self, weight: u32) {
        self.rule.refused.add(weight.into());
    }

    /// Counts a refusal like [`count`](Self::count), while many threads refuse concurrently.
    pub(crate) fn count_in_crowd(&self, weight: u32) {
        self.rule.refused.add_in_crowd(weight.into());
    }

    pub(crate) const fn label(&self) -> &Arc<Label> {
        &self.rule
    }

    pub(crate) fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Sets the limit that refused the call: `tokens` per `interval`.
    pub(crate) fn with_limit(mut self, tokens: u32, interval: Duration) -> Self {
        self.limit = Some(Limit {
            tokens,
            reserved: 0,
            interval,
        });
        self
    }

    /// Sets how much the call reserves of the limit on costs that refused it. Call it after
    /// `with_limit`.
    pub(crate) fn with_reserved(mut self, reserved: u32) -> Self {
        if let Some(limit) = &mut self.limit {
            limit.reserved = if reserved > limit.tokens { reserved } else { 0 };
        }
        self
    }

    pub(crate) fn with_criticality(mut self, criticality: Criticality) -> Self {
        self.criticality = Some(criticality);
        self
    }

    pub(crate) fn with_system_reason(mut self, reason: SystemReason) -> Self {
        self.system_reason = Some(reason);
        self
    }

    /// Returns whether `error` is a refusal, or one is among its sources.
    pub(crate) fn is_behind(error: &(dyn Error + 'static)) -> bool {
        let causes = iter::successors(Some(error), |&error| {
            // `io::Error::source` skips the inner error, and returns the source of the inner error.
            match error.downcast_ref::<io::Error>() {
                Some(error) => error.get_ref().map(|inner| inner as _),
                None => error.source(),
            }
        });
        // An error that names itself as its source has no end.
        causes.take(MOST_CAUSES).any(<dyn Error>::is::<Self>)
    }

    /// Returns the kind of rule that refused.
    #[must_use]
    pub const fn kind(&self) -> BlockKind {
        self.kind
    }

    /// Returns which limit of a [`SystemRule`](crate::SystemRule) refused; `None` for a
    /// refusal of another [kind](Self::kind).
    #[must_use]
    pub const fn system_reason(&self) -> Option<SystemReason> {
        self.system_reason
    }

    /// Returns the class of the call, if an [`AdaptiveRule`](crate::AdaptiveRule) refused it:
    /// less important calls are refused before it, more important ones after.
    #[must_use]
    pub const fn criticality(&self) -> Option<Criticality> {
        self.criticality
    }

    /// Returns the resource that was called.
    #[must_use]
    pub fn resource(&self) -> &str {
        let told = self.rule.resource.as_deref().or(self.resource.as_deref());
        told.expect("the rule or the refusal says it")
    }

    /// Returns the id of the rule that refused; empty for a refusal without a rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule.id
    }

    /// Returns the unit of the costs that the rule counts, as its [cost](crate::FlowRule::cost)
    /// names it; `None` if the rule counts calls.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.rule.unit.as_deref()
    }

    /// Returns how long it takes until the earliest time at which the same call would be
    /// admitted or let in to wait, if no other calls come first. A call waits for its turn
    /// in a [queue](crate::FlowRule::throttle) or, if it is
    /// [prioritized](crate::Call::prioritized), for a loan.
    ///
    /// `None` if it can never pass (a threshold of 0, a weight or a reservation above the limit, a
    /// caller that is not allowed), or if the time is not known (isolation, where it depends on
    /// when a call ends; a system rule; a breaker that was opened by hand). It is 2 to 5 s for a
    /// call whose class gets idle workers only, because an [`AdaptiveRule`](crate::AdaptiveRule)
    /// has shut a class above it: so clients do not come back together. It is zero if a limit on
    /// concurrent calls of one value refused the call: the time is not known, but the call can pass
    /// later. A rule on [costs](crate::FlowRule::cost) says when its window has room for what the
    /// call reserves, and one second if only reservations of running calls are in the way.
    #[doc(alias("Retry-After", "wait_time"))]
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the limit of the rule: of a flow rule, or of a keyed rule for the value, in whole
    /// tokens per [`interval`](Self::interval), or in [units](Self::unit) of cost; of a limit on
    /// concurrent calls, in calls. A rate below one per interval is reported as 1 per the longer
    /// interval in which one token becomes available. `None` for other rules, and if a key is
    /// missing.
    #[must_use]
    pub fn limit(&self) -> Option<u32> {
        self.limit.map(|limit| limit.tokens)
    }

    /// Returns the interval of the limit of a flow rule or a keyed rule; `None`
    /// for limits on concurrent calls.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        self.limit
            .map(|limit| limit.interval)
            .filter(|interval| !interval.is_zero())
    }
}

impl Label {
    /// Returns the weight of the calls that the rule has refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.sum()
    }

    /// Creates a label of the same rule for calls to `resource`. It has a separate reference count,
    /// but shares the count of refusals.
    pub(crate) fn copy(&self, resource: &str) -> Self {
        Self {
            id: self.id.clone(),
            resource: Some(resource.into()),
            unit: self.unit.clone(),
            refused: self.refused.clone(),
        }
    }

    /// Returns whether this label is a [copy](Self::copy) of `other` for `resource`.
    pub(crate) fn is_copy(&self, other: &Self, resource: &str) -> bool {
        self.counts_with(other) && self.resource.as_deref() == Some(resource)
    }

    /// Returns whether both labels share one count of refusals.
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.refused, &other.refused)
    }
}

impl PartialEq for Label {
    /// Compares the described rules.
    fn eq(&self, other: &Self) -> bool {
        (&self.id, &self.resource) == (&other.id, &other.resource)
    }
}

impl Eq for Label {}

impl PartialEq for Blocked {
    /// Compares the contents of the refusals, not the counts of their rules.
    fn eq(&self, other: &Self) -> bool {
        let why = |it: &Self| (it.kind, it.system_reason, it.criticality);
        let when = |it: &Self| (it.retry_after, it.limit);
        why(self) == why(other)
            && when(self) == when(other)
            && (self.rule(), self.resource()) == (other.rule(), other.resource())
    }
}

impl Eq for Blocked {}

impl fmt::Debug for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocked")
            .field("kind", &self.kind)
            .field("system_reason", &self.system_reason)
            .field("criticality", &self.criticality)
            .field("resource", &self.resource())
            .field("rule", &self.rule())
            .field("retry_after", &self.retry_after)
            .field("limit", &self.limit)
            .finish()
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call to {:?} refused", self.resource())?;
        f.write_str(self.kind.terms().phrase)?;
        if !self.rule().is_empty() {
            write!(f, " rule {:?}", self.rule())?;
        }
        if let Some(reason) = self.system_reason {
            write!(f, " ({reason})")?;
        }
        if let Some(limit) = self.limit.filter(|limit| limit.reserved > 0) {
            write!(f, ": it reserves {} of {}", limit.reserved, limit.tokens)?;
        }
        Ok(())
    }
}

impl Error for Blocked {}
