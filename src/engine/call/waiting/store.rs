//! A waiting call that needs permits of shared rules.

use super::{InLine, Waiting};
#[cfg(feature = "shared")]
use crate::blocked::Blocked;
#[cfg(feature = "shared")]
use crate::engine::call::lease::WaitLeases;
#[cfg(feature = "shared")]
use crate::rule::NoShare;

impl Waiting {
    /// The call needs permits of shared rules before it goes on.
    #[cfg(feature = "shared")]
    pub(crate) fn wait_for_leases(&mut self, leases: WaitLeases) {
        if let Some(inner) = &mut self.inner {
            inner.leases = Some(Box::new(leases));
        }
    }

    /// Returns whether the call waits for the store.
    pub(super) fn asks_store(&self) -> bool {
        self.inner().line == Some(InLine::Store)
    }

    /// Returns whether all that it waits for is there.
    #[cfg(feature = "shared")]
    pub(crate) fn has_all(&self) -> bool {
        self.inner().has_what_it_waits_for(None)
    }

    /// Ends the wait of a call for which shared rules have no permits.
    #[cfg(feature = "shared")]
    pub(crate) fn refuse_lease(mut self, none: NoShare) -> Blocked {
        let now = self.inner().now();
        let mut inner = self.take();
        inner.cancel_line();
        let blocked = inner.nodes.resource().blocked_without_lease(none, now);
        inner.refuse(now, blocked)
    }
}
