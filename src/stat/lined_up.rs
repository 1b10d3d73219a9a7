//! Whether a reload has to look for calls that wait in line for a slot.
//!
//! A call that lines up by older rules waits for the limit of these. Either the reload has the
//! call go by the new ones, or the call does so itself:
//!
//! ```text
//! call                             reload
//! stands in line                   stores the new version
//! notes it          swap           asks whether any call may wait    swap
//! reads the version                looks at each line, if so
//! ```
//!
//! One of the two swaps is the later one, and sees all that came before the other. So either
//! the reload finds the line, or the call finds the version.

use crate::base::sync::{AtomicBool, Bug, Ordering, planted};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct LinedUp(AtomicBool);

impl Default for LinedUp {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl LinedUp {
    /// A call stands in line. It reads the version of the rules after this.
    pub(crate) fn note(&self) {
        if planted(Bug::LineUpByStore) {
            self.0.store(true, Ordering::Release);
        } else {
            // Pairs with the swap of a reload, in both directions.
            self.0.swap(true, Ordering::AcqRel);
        }
    }

    /// Returns whether a call has ever stood in line. A reload asks after its version can be read.
    pub(crate) fn may_wait(&self) -> bool {
        if planted(Bug::LineLookByLoad) {
            self.0.load(Ordering::Acquire)
        } else {
            // Pairs with the swap of a call, in both directions.
            self.0.fetch_or(false, Ordering::AcqRel)
        }
    }
}
