//! What a rule needs from calls or from the machine to have an effect, and whether it lets calls
//! wait.

use super::{MissingKey, Rule};
use crate::hook::finding::Need;

impl Rule {
    /// The parts of a call, besides its resource, that the rule reads.
    pub(crate) fn needs(&self) -> Vec<Need<'_>> {
        self.info().needs()
    }

    /// The tiers that the rule names.
    pub(crate) fn tiers(&self) -> Vec<&str> {
        self.info().tiers()
    }

    /// How the rule treats calls without a key; `None` if the rule has no key.
    pub(crate) fn missing_key(&self) -> Option<MissingKey> {
        self.info().missing_key()
    }

    /// Returns whether the rule can make a call wait: for its turn, a place, a loan or the store.
    pub(crate) fn lets_wait(&self) -> bool {
        self.info().has_queue() || self.is_shared()
    }

    /// The related resource, whose calls the rule counts instead of the calls of its own resource.
    pub(crate) fn related(&self) -> Option<&str> {
        self.info().related()
    }

    /// Returns whether the rule is a flow rule that counts all calls of its resource together,
    /// against a threshold that does not change.
    pub(crate) fn limits_all_calls(&self) -> bool {
        self.info().limits_all_calls()
    }

    /// Returns whether `self` and `other` are of the same kind.
    pub(crate) fn is_kind_of(&self, other: &Self) -> bool {
        self.kind() == other.kind()
    }

    /// Returns whether the rule reads figures of the machine, such as its load.
    pub(crate) fn looks_at_machine(&self) -> bool {
        self.info().looks_at_machine()
    }
}
