//! Findings: mistakes in the set-up that would otherwise go unnoticed, while they limit no caller,
//! or all callers together.
//!
//! A rule with a misspelled name refuses no call, and a limit for each caller in a server that
//! knows no addresses is one limit for all. Neither is an error: the next request can have that
//! name, or that key. So an engine compares the names and keys of its rules with those of calls,
//! and [`Sentinel::findings`](crate::Sentinel::findings) reports the differences. This costs calls
//! nothing: the comparison is made on request, when a resource is called for the first time, and
//! when a rule has met its eighth call without a key.

mod kind;
mod letters;
mod provided;
mod reported;
mod similar;
mod text;

use std::sync::Arc;

pub use kind::FindingKind;
#[cfg(feature = "serde")]
pub(crate) use letters::letters_apart;
pub(crate) use provided::{LayerFacts, Need, Provided};
pub(crate) use reported::ReportedFindings;
pub(crate) use similar::{cause_of_silence, is_meant, oddity};

/// Something in the set-up that looks like a mistake. Displayed, it is a sentence for the
/// operator.
///
/// # Examples
///
/// A test can send a request to every route, and assert that nothing is found:
///
/// ```
/// use tower_sentinel::hook::FindingKind;
/// use tower_sentinel::{Call, FlowRule, Rules, Sentinel};
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
    /// The part of the rule that the finding is about, if a rule can have several.
    part: u8,
    /// Whether calls have shown the mistake; false if it may only be that a call is still to come.
    has_evidence: bool,
}

// === impl Finding ===

impl Finding {
    /// Creates a finding. `cause` is the rest of the sentence: the names or keys that calls brought
    /// instead, and the remedy.
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

    /// Sets the `need` that the finding is about: the rule can have the same mistake with another
    /// need.
    pub(crate) fn on(mut self, need: Need<'_>) -> Self {
        self.part = need.part();
        self
    }

    /// Marks a finding that only shows that no call has come yet.
    pub(crate) const fn without_evidence(mut self) -> Self {
        self.has_evidence = false;
        self
    }

    /// Returns whether calls have shown the mistake; false if it may only be that a call is still
    /// to come.
    pub(crate) const fn has_evidence(&self) -> bool {
        self.has_evidence
    }

    /// Returns whether both findings are about the same part of the same rule.
    pub(crate) fn is_on_part_of(&self, other: &Self) -> bool {
        (&self.rule, self.part) == (&other.rule, other.part)
    }

    /// Returns the kind of mistake.
    #[must_use]
    pub const fn kind(&self) -> FindingKind {
        self.kind
    }

    /// Returns the id of the rule; empty if the finding is not about a rule, as for
    /// [`FindingKind::NoCalls`].
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the resource that the rule is for; for [`FindingKind::RelatedNotCalled`] the
    /// resource that it looks at, and for [`FindingKind::KeyMissing`] the resource that was called.
    /// Empty if there is no rule.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the names or keys that calls brought instead, and the remedy; empty if no cause is
    /// known.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }
}
