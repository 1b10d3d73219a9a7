//! Default rules: for every resource that has no rule of the same kind.

use super::Rule;

/// The resource name that stands for every resource without a rule of the same kind.
pub(crate) const ANY_RESOURCE: &str = "*";

/// The maximum number of flow and isolation rules for `*`, together. It is small, as every resource
/// that a rule names gets a copy of each of them.
pub(super) const MOST_DEFAULTS: usize = 32;

/// The allowed value, in a problem, of the resource of a rule that cannot be a default.
pub(super) const NO_DEFAULT: &str = "a name: only circuit breakers, adaptive rules, and \
     flow and isolation rules that count all callers together, and not by the calendar, may be for all resources";

impl Rule {
    /// Returns whether the rule is for every resource without a rule of the same kind.
    pub(crate) fn is_default(&self) -> bool {
        self.resource() == ANY_RESOURCE
    }
}
