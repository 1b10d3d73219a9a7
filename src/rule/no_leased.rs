//! The stand-in for shared rules as they count on a resource, where no engine has a store.

use super::Rule;

impl Rule {
    /// No engine takes a shared rule, so none of them counts with another.
    pub(super) const fn shared_identity(&self) -> Option<String> {
        None
    }
}
