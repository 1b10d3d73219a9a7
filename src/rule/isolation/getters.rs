//! Reading the settings of an isolation rule.

use std::time::Duration;

use super::IsolationRule;

impl IsolationRule {
    /// Returns the longest wait in the [queue](Self::queue) for a slot; `None` if there is no
    /// queue.
    #[must_use]
    pub const fn get_queue(&self) -> Option<Duration> {
        self.queue
    }

    /// Returns the origin that the rule is [for](Self::for_origin), or `other`; `None` if it is for
    /// calls of any origin, or of none.
    #[must_use]
    pub fn get_for_origin(&self) -> Option<&str> {
        self.who.origin()
    }

    /// Returns the other resource whose running calls [are counted](Self::when) instead of the
    /// rule's own, if there is one.
    #[must_use]
    pub fn get_when(&self) -> Option<&str> {
        self.related.as_deref()
    }

    /// Returns how many calls [may wait](Self::max_waiting) at once.
    #[must_use]
    pub const fn get_max_waiting(&self) -> u32 {
        self.max_waiting.get()
    }

    /// Returns the [name](Self::id) of the rule; `None` if it is named after its place in the set.
    #[must_use]
    pub fn get_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
