//! The refusals of the rules in force, copied for a snapshot.

use std::time::SystemTime;

use crate::rule::{NumberedRules, Rule, RuleSet};

/// A rule in force, and its refusals.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, FlowRule, IsolationRule, ManualClock, Rules, Sentinel};
///
/// let rules = Rules::new()
///     .with(FlowRule::per_second("job", 2).id("two"))
///     .with(IsolationRule::new("job", 8));
/// let sentinel = Sentinel::builder().rules(rules).clock(ManualClock::new()).build();
/// for _ in 0..5 {
///     drop(sentinel.try_enter(Call::new("job")));
/// }
/// let snapshot = sentinel.snapshot();
/// let seen: Vec<_> = snapshot.rules().map(|rule| (rule.id(), rule.blocked())).collect();
/// assert_eq!(seen, [("two", 3), ("isolation-1", 0)]);
/// assert_eq!(snapshot.rules().next().and_then(|rule| rule.settings().limit()), Some(2.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RuleSnapshot<'a> {
    rule: &'a Rule,
    id: &'a str,
    blocked: u64,
}

/// All rules, and the refusals of each.
#[derive(Clone, Debug)]
pub(super) struct RuleSnapshots {
    pub(super) version: u64,
    pub(super) since: SystemTime,
    listed: NumberedRules,
    blocked: Box<[u64]>,
}

impl RuleSnapshots {
    /// Copies the refusals of all `rules`.
    pub(super) fn of(rules: &RuleSet) -> Self {
        let listed = rules.listed().clone();
        let mut blocked = Vec::new();
        for (_, label) in listed.with_labels() {
            blocked.push(label.refused());
        }
        Self {
            blocked: blocked.into(),
            listed,
            version: rules.version(),
            since: rules.made_at(),
        }
    }

    /// Returns the rules, in their order in the set.
    pub(super) fn all(&self) -> Vec<RuleSnapshot<'_>> {
        let mut all = Vec::new();
        for (place, (rule, label)) in self.listed.with_labels().enumerate() {
            all.push(RuleSnapshot {
                rule,
                id: &label.id,
                blocked: self.blocked[place],
            });
        }
        all
    }
}

// === impl RuleSnapshot ===

impl<'a> RuleSnapshot<'a> {
    /// Returns the id of the rule: the id that was set, or an id made from its kind and position.
    #[must_use]
    pub const fn id(&self) -> &'a str {
        self.id
    }

    /// Returns the rule itself, with its kind, its resource and its limit.
    #[must_use]
    pub const fn settings(&self) -> &'a Rule {
        self.rule
    }

    /// Returns the weight of the calls that the rule has refused, on all resources and in both
    /// directions. A reload keeps the count for a rule of the same id. The count is 0 for a rule in
    /// shadow mode, which refuses nothing: [`Snapshot::shadows`](crate::read::Snapshot::shadows)
    /// has the calls that it would have refused. If several rules would refuse a call, the rule
    /// that is checked first counts it.
    #[must_use]
    pub const fn blocked(&self) -> u64 {
        self.blocked
    }
}
