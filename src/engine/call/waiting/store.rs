//! The permits of shared rules of a waiting call.

use super::{InLine, Waiting};
#[cfg(feature = "shared")]
use crate::blocked::Blocked;
#[cfg(feature = "shared")]
use crate::engine::call::lease::WaitLeases;
#[cfg(feature = "shared")]
use crate::rule::NoShare;

impl Waiting {
    /// Sets the permits of shared rules that the call needs before it starts or is judged again.
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

    /// Returns whether everything that the call waits for has arrived.
    #[cfg(feature = "shared")]
    pub(crate) fn is_done_waiting(&self) -> bool {
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
