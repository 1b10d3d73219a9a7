//! Reading the settings of an authority rule.

use super::{AuthorityRule, Treatment};

impl AuthorityRule {
    /// Returns whether only the listed origins are [allowed](Self::allow); otherwise they are
    /// [denied](Self::deny).
    #[must_use]
    pub const fn is_allow(&self) -> bool {
        matches!(self.strategy, Treatment::Allow)
    }

    /// Returns whether calls without an origin are [refused](Self::deny_unknown).
    #[must_use]
    pub const fn get_deny_unknown(&self) -> bool {
        self.deny_unknown
    }

    /// Returns the [name](Self::id) of the rule; `None` if it is named after its place in the set.
    #[must_use]
    pub fn get_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
