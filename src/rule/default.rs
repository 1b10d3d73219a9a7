//! Default rules: for every resource that has no rule of the same kind.

use super::{Basis, Rule, Who};

/// The resource that stands for every one without a rule of the same kind.
pub(crate) const ANY_RESOURCE: &str = "*";

/// Most flow and isolation rules for it together: each is kept for every resource
/// that a rule names.
pub(super) const MOST_DEFAULTS: usize = 32;

/// The allowed values instead of `*` where that would limit no call.
pub(super) const NO_DEFAULT: &str = "a name: only circuit breakers, adaptive rules, and \
     flow and isolation rules that count all callers together, may be for all resources";

impl Rule {
    /// Returns whether the rule is for every resource without one of the same kind.
    pub(crate) fn is_default(&self) -> bool {
        self.resource() == ANY_RESOURCE
    }

    /// Returns whether the rule may be a default one. A rule that keeps a table of callers may not:
    /// each name that a client makes up would have one.
    pub(super) fn may_be_default(&self) -> bool {
        match self.itself() {
            Rule::Flow(rule) => matches!((rule.basis(), &rule.who), (Basis::Own, Who::Anyone)),
            Rule::Isolation(rule) => rule.is_for_all_calls(),
            Rule::Adaptive(_) | Rule::CircuitBreaker(_) => true,
            Rule::Keyed(_) | Rule::Authority(_) | Rule::System(_) | Rule::Shadow(_) => false,
        }
    }
}
