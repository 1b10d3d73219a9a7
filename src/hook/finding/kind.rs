//! `FindingKind`: the kinds of mistakes in a set-up.

use std::fmt;

/// The kind of mistake, as far as an engine can tell.
///
/// # Examples
///
/// ```
/// use tower_sentinel::hook::FindingKind;
/// use tower_sentinel::{FlowRule, Sentinel};
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
    /// A rule that [blocks](crate::KeyedRule::block_for) values has met calls with a value, but
    /// also eight or more without a value, and blocks all calls without a value together.
    BlockedTogether,
    /// Calls have a tier that the rule does not name, and that resembles one of its tiers.
    UnknownTier,
    /// A layer extracts a parameter from requests that no rule looks at.
    UnusedParam,
    /// Callers are distinguished by the address of the peer, but a proxy has forwarded all
    /// requests, so that they count as one caller.
    BehindProxy,
    /// A rule looks at the load, the CPU or the memory of the machine, and the engine has no
    /// [sampler](crate::Builder::sampler).
    NoSampler,
    /// A layer names the [classes](crate::Criticality) of its calls, but an adaptive rule has met a
    /// thousand calls or more, all of one class: there are no less important calls to refuse first.
    OneCriticality,
    /// An adaptive rule has refused calls at its [ceiling](crate::AdaptiveRule::ceiling), although
    /// calls were not slower than without a queue.
    CeilingReached,
    /// Eight or more calls that a rule on [costs](crate::FlowRule::cost) has met have ended, and no
    /// call has reported a cost: the rule limits what they reserve, which can be nothing.
    CostNotTold,
    /// As [`CostNotTold`](Self::CostNotTold), but calls have reserved or reported costs in a unit
    /// that no rule counts, such as `token` for `tokens`.
    CostUnit,
    /// One call has cost more than the whole limit of a rule on [costs](crate::FlowRule::cost): the
    /// rule may count in another unit.
    CostTooLarge,
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
    /// one. With another [secret](crate::store::StoreSettings::digest_secret) they count
    /// separately.
    OtherSettings,
    /// A shared rule has a limit below the number of processes: while the store cannot be asked,
    /// some of them admit nothing.
    NoShare,
    /// The buckets of a shared rule are shorter than ten round trips to the store.
    ShortBuckets,
    /// The store has refused requests within the last minute, because a password or a right is
    /// missing, or because other data is stored at its keys. Hooks are notified once a minute.
    StoreRefuses,
    /// The store removes counters when its memory is full.
    StoreEvicts,
    /// The password of the store goes to another machine without TLS.
    PlainPassword,
    /// A rule is [shared](crate::FlowRule::shared), and the engine has no
    /// [store](crate::Builder::store): it limits this process alone. Only
    /// [`reload`](crate::Sentinel::reload) puts a shared rule in force without a store.
    NoStore,
}

// === impl FindingKind ===

impl FindingKind {
    /// Returns the name of the kind in JSON and labels, such as `rule-not-met`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            FindingKind::NoCalls => "no-calls",
            FindingKind::RuleNotMet => "rule-not-met",
            FindingKind::RelatedNotCalled => "related-not-called",
            FindingKind::NotProvided => "not-provided",
            FindingKind::KeyMissing => "key-missing",
            FindingKind::BlockedTogether => "blocked-together",
            FindingKind::UnknownTier => "unknown-tier",
            FindingKind::UnusedParam => "unused-param",
            FindingKind::BehindProxy => "behind-proxy",
            FindingKind::NoSampler => "no-sampler",
            FindingKind::OneCriticality => "one-criticality",
            FindingKind::CeilingReached => "ceiling-reached",
            FindingKind::CostNotTold => "cost-not-told",
            FindingKind::CostUnit => "cost-unit",
            FindingKind::CostTooLarge => "cost-too-large",
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
