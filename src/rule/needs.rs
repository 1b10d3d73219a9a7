//! The needs of a rule, without which it has no effect: something of each call, or of the machine.

use super::{MissingKey, Rule};
use crate::hook::finding::Need;

impl Rule {
    /// The parts of calls that the rule looks at, beside their resource.
    pub(crate) fn needs(&self) -> Vec<Need<'_>> {
        self.info().needs()
    }

    /// The tiers that have quotas of their own.
    pub(crate) fn tiers(&self) -> Vec<&str> {
        self.info().tiers()
    }

    /// How the rule treats calls without its key; `None` for a rule without one.
    pub(crate) fn missing_key(&self) -> Option<MissingKey> {
        self.info().missing_key()
    }

    /// Returns whether a call may wait because of the rule: for its turn, a place, a loan or the
    /// store.
    pub(crate) fn lets_wait(&self) -> bool {
        self.info().has_queue() || self.is_shared()
    }

    /// The resource that the rule looks at instead of its own.
    pub(crate) fn related(&self) -> Option<&str> {
        self.info().related()
    }

    /// Returns whether it is a flow rule that counts all calls to its resource together, against a
    /// threshold that does not change.
    pub(crate) fn limits_all_alike(&self) -> bool {
        self.info().limits_all_alike()
    }

    /// Returns whether both are rules of one kind.
    pub(crate) fn is_kind_of(&self, other: &Self) -> bool {
        self.kind() == other.kind()
    }

    /// Returns whether the rule looks at figures of the machine.
    pub(crate) fn looks_at_machine(&self) -> bool {
        self.info().looks_at_machine()
    }
}
