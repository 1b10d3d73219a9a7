//! Findings: mistakes in the set-up that would otherwise limit no caller, or all together, in
//! silence.
//!
//! A rule with a misspelt name refuses no call, and a limit for each caller in a server that knows
//! no addresses is one limit for all. Neither is an error: the next request may have that name, or
//! that key. So an engine compares the names and keys of its rules with those of calls, and
//! [`Sentinel::findings`](crate::Sentinel::findings) reports the differences. Nothing of that is on
//! the path of a call: the comparison is made on request, when a resource is called for the first
//! time, and when a rule has met its eighth call without a key.

mod letters;
mod provided;
mod similar;
mod told;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "serde")]
pub(crate) use letters::letters_apart;
pub(crate) use provided::{LayerFacts, Need, Provided};
pub(crate) use similar::{cause_of_silence, is_meant, oddity};
pub(crate) use told::ToldFindings;

/// The kind of mistake, as far as an engine can tell.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{FindingKind, FlowRule, Sentinel};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("job", 5));
/// let kinds: Vec<_> = sentinel.findings().iter().map(|finding| finding.kind()).collect();
/// assert_eq!(kinds, [FindingKind::NoCalls]);
/// assert_eq!(kinds[0].as_str(), "no-calls");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// There are rules, and the engine has judged no call at all.
    NoCalls,
    /// A rule has met no call, although the engine has judged calls.
    RuleNotMet,
    /// The resource that a [related](crate::FlowRule::when) rule looks at was never called.
    RelatedNotCalled,
    /// A rule looks at an origin, a context, a tier or a parameter that no layer takes out of
    /// requests.
    NotProvided,
    /// All calls that a rule has met were without the key that it looks at.
    KeyMissing,
    /// Calls have a tier that no rule knows, and that is like one of the rule's.
    UnknownTier,
    /// A layer takes a parameter out of requests that no rule looks at.
    UnusedParam,
    /// Callers are distinguished by the address of the peer, but a proxy has forwarded all
    /// requests, so that they count as one caller.
    BehindProxy,
    /// A rule looks at the load, the CPU or the memory of the machine, and the engine has no
    /// [sampler](crate::Builder::sampler).
    NoSampler,
    /// A layer names the [classes](crate::Criticality) of its calls, and an adaptive rule has met a
    /// thousand or more, all of one class: there is nobody to refuse before the others.
    OneCriticality,
    /// An adaptive rule has refused calls at its [ceiling](crate::AdaptiveRule::ceiling), although
    /// calls were not slower than without a queue.
    CeilingReached,
    /// There are [shared](crate::FlowRule::shared) rules, and the store of the engine was not
    /// [started](crate::Sentinel::start_store), or was stopped.
    StoreNotStarted,
    /// More processes use the store than [`nodes`](crate::store::StoreSettings::nodes) says.
    MoreNodes,
    /// The store has not answered since it was [started](crate::Sentinel::start_store), for a
    /// second or more.
    StoreUnreachable,
    /// The [number of processes](crate::store::StoreSettings::nodes) was not set: a process that
    /// has not reached the store admits the whole limit.
    NodesNotSet,
    /// Processes that use the store have another secret or another number of processes than this
    /// one: with another [secret](crate::store::StoreSettings::digest_secret) they count apart.
    OtherSettings,
    /// A shared rule has a limit below the number of processes: while the store is away, some of
    /// them admit nothing.
    NoShare,
    /// The buckets of a shared rule are shorter than ten trips to the store.
    ShortBuckets,
    /// The store has refused requests within the last minute, for want of a password or a right, or
    /// because something else stands at its keys. Hooks are notified once a minute.
    StoreRefuses,
    /// The store removes counters when its memory is full.
    StoreEvicts,
    /// The password of the store goes to another machine without TLS.
    PlainPassword,
    /// A rule is [shared](crate::FlowRule::shared), and the engine has no
    /// [store](crate::Builder::store): it limits this process alone. Only
    /// [`reload`](crate::Sentinel::reload) puts such a rule in force.
    NoStore,
}

/// Something in the set-up that looks like a mistake. Displayed, it is a sentence for the
/// operator.
///
/// # Examples
///
/// A test of one's own sends a request to every route, and asserts that nothing is found:
///
/// ```
/// use tower_sentinel::{Call, FindingKind, FlowRule, Rules, Sentinel};
///
/// let rules = Rules::new()
///     .with(FlowRule::per_second("/users/{id}", 5))
///     .with(FlowRule::per_second("/oders", 5));
/// let sentinel = Sentinel::new(rules);
/// drop(sentinel.try_enter(Call::new("/users/{id}")));
/// drop(sentinel.try_enter(Call::new("/orders")));
///
/// let findings = sentinel.findings();
/// assert_eq!(findings.len(), 1);
/// let finding = &findings[0];
/// assert_eq!((finding.kind(), finding.rule()), (FindingKind::RuleNotMet, "flow-1"));
/// assert_eq!(
///     finding.to_string(),
///     "rule \"flow-1\" for \"/oders\" has met no call, although calls came: \"/orders\" was \
///      called once; is that the name that is meant?",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finding {
    kind: FindingKind,
    rule: Arc<str>,
    resource: Arc<str>,
    cause: String,
    /// The part of the rule that it is about, where a rule has several.
    part: u8,
    /// Whether something was seen that speaks for it, and not only that a call is still to come.
    has_evidence: bool,
}

// === impl FindingKind ===

impl FindingKind {
    /// Returns the word for it in JSON and labels, such as `rule-not-met`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            FindingKind::NoCalls => "no-calls",
            FindingKind::RuleNotMet => "rule-not-met",
            FindingKind::RelatedNotCalled => "related-not-called",
            FindingKind::NotProvided => "not-provided",
            FindingKind::KeyMissing => "key-missing",
            FindingKind::UnknownTier => "unknown-tier",
            FindingKind::UnusedParam => "unused-param",
            FindingKind::BehindProxy => "behind-proxy",
            FindingKind::NoSampler => "no-sampler",
            FindingKind::OneCriticality => "one-criticality",
            FindingKind::CeilingReached => "ceiling-reached",
            FindingKind::StoreNotStarted => "store-not-started",
            FindingKind::MoreNodes => "more-nodes",
            FindingKind::StoreUnreachable => "store-unreachable",
            FindingKind::NodesNotSet => "nodes-not-set",
            FindingKind::OtherSettings => "other-settings",
            FindingKind::NoShare => "no-share",
            FindingKind::ShortBuckets => "short-buckets",
            FindingKind::StoreRefuses => "store-refuses",
            FindingKind::StoreEvicts => "store-evicts",
            FindingKind::PlainPassword => "plain-password",
            FindingKind::NoStore => "no-store",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Finding ===

impl Finding {
    /// `cause` is the rest of the sentence: the names or keys that calls brought instead, and the
    /// cure.
    pub(crate) fn new(
        kind: FindingKind,
        rule: impl Into<Arc<str>>,
        resource: impl Into<Arc<str>>,
        cause: impl Into<String>,
    ) -> Self {
        let cause = cause.into();
        let is_early = matches!(kind, FindingKind::NoCalls | FindingKind::StoreNotStarted);
        Self {
            kind,
            rule: rule.into(),
            resource: resource.into(),
            has_evidence: !is_early && !cause.is_empty(),
            cause,
            part: 0,
        }
    }

    /// The finding is about `need`: the rule may have the mistake with another one as well.
    pub(crate) fn on(mut self, need: Need<'_>) -> Self {
        self.part = need.part();
        self
    }

    /// Nothing speaks for it but that no call has come yet.
    pub(crate) const fn without_evidence(mut self) -> Self {
        self.has_evidence = false;
        self
    }

    /// Returns whether something was seen that speaks for it, and not only that a call is still to
    /// come.
    pub(crate) const fn has_evidence(&self) -> bool {
        self.has_evidence
    }

    /// Returns whether both are about one part of one rule.
    pub(crate) fn is_on_part_of(&self, other: &Self) -> bool {
        (&self.rule, self.part) == (&other.rule, other.part)
    }

    /// Returns the kind of mistake.
    #[must_use]
    pub const fn kind(&self) -> FindingKind {
        self.kind
    }

    /// Returns the id of the rule; empty where it is not about one, as for
    /// [`FindingKind::NoCalls`].
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the resource that the rule is for; for [`FindingKind::RelatedNotCalled`] the one
    /// that it looks at, and for [`FindingKind::KeyMissing`] the one that was called. Empty where
    /// there is no rule.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the names or keys that calls brought instead, and the cure; empty if nothing points
    /// to a cause.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, resource) = (&self.rule, &self.resource);
        match self.kind {
            FindingKind::NoCalls => f.write_str("no call has come to the rules")?,
            FindingKind::RuleNotMet => write!(
                f,
                "rule {rule:?} for {resource:?} has met no call, although calls came"
            )?,
            FindingKind::RelatedNotCalled => write!(
                f,
                "rule {rule:?} looks at {resource:?}, which was never called"
            )?,
            FindingKind::NotProvided => write!(
                f,
                "rule {rule:?} for {resource:?} looks at a key that no call has"
            )?,
            FindingKind::KeyMissing => write!(
                f,
                "rule {rule:?} has met only calls to {resource:?} without its key"
            )?,
            FindingKind::UnknownTier => write!(
                f,
                "rule {rule:?} for {resource:?} has met calls of a tier that no rule knows"
            )?,
            FindingKind::UnusedParam => {
                f.write_str("a layer takes a parameter that no rule looks at")?;
            }
            FindingKind::BehindProxy => {
                f.write_str("all callers have the address of a proxy")?;
            }
            FindingKind::NoSampler => write!(
                f,
                "rule {rule:?} for {resource:?} looks at the machine, and refuses nothing by that"
            )?,
            FindingKind::OneCriticality => write!(
                f,
                "rule {rule:?} has met calls to {resource:?} of one class only"
            )?,
            FindingKind::CeilingReached => write!(
                f,
                "rule {rule:?} refuses calls to {resource:?} that could be served"
            )?,
            FindingKind::StoreNotStarted => f.write_str("shared rules count without the store")?,
            FindingKind::MoreNodes => {
                f.write_str("more processes use the store than the settings say")?;
            }
            FindingKind::StoreUnreachable => f.write_str("the store has not answered")?,
            FindingKind::NodesNotSet => {
                f.write_str("the number of processes that use the store was not set")?;
            }
            FindingKind::OtherSettings => {
                f.write_str("processes that use the store have other settings")?;
            }
            FindingKind::NoShare => write!(
                f,
                "rule {rule:?} for {resource:?} admits nothing in some processes without the store"
            )?,
            FindingKind::ShortBuckets => write!(
                f,
                "rule {rule:?} for {resource:?} has buckets that are over before the store has answered"
            )?,
            FindingKind::StoreRefuses => f.write_str("the store refuses requests")?,
            FindingKind::StoreEvicts => {
                f.write_str("the store removes counters when its memory is full")?;
            }
            FindingKind::PlainPassword => {
                f.write_str("the password of the store is sent in plain text")?;
            }
            FindingKind::NoStore => write!(
                f,
                "rule {rule:?} for {resource:?} is shared, and limits this process alone"
            )?,
        }
        if self.cause.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.cause)
    }
}
