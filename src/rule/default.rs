//! Default rules: for every resource that has no rule of the same kind.

use super::Rule;

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
}
