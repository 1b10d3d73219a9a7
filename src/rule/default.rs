//! Default rules: for every resource that has no rule of the same kind.

use super::{Basis, Rule, Who};

/// The resource that stands for every one without a rule of the same kind.
pub(crate) const ANY_RESOURCE: &str = "*";

/// Most flow and isolation rules for it together: each is kept for every resource
/// that a rule names.
pub(super) const MOST_DEFAULTS: usize = 32;

/// What is allowed instead of `*` where that would limit nobody.
pub(super) const NO_DEFAULT: &str = "a name: only circuit breakers, isolation and adaptive rules, \
     and flow rules that count all callers together, may be for all resources";

impl Rule {
    /// Whether the rule is for every resource without one of the same kind.
    pub(crate) fn is_default(&self) -> bool {
        self.resource() == ANY_RESOURCE
    }

    /// Whether the rule may be a default one. What keeps a table of callers may
    /// not: there would be one for each name that somebody makes up.
    pub(super) fn may_be_default(&self) -> bool {
        match self.itself() {
            Rule::Flow(rule) => matches!((rule.basis(), &rule.who), (Basis::Own, Who::Anyone)),
            Rule::Isolation(_) | Rule::Adaptive(_) | Rule::CircuitBreaker(_) => true,
            Rule::HotParam(_) | Rule::Authority(_) | Rule::System(_) | Rule::Shadow(_) => false,
        }
    }
}
