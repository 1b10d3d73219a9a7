//! A flag that tells a reload whether calls may wait in line for a concurrency slot.
//!
//! A call that lines up under older rules waits for a slot under their limit. So once new rules are
//! in force, either the reload moves the call to the new limit, or the call moves itself:
//!
//! ```text
//! call                             reload
//! stands in line                   stores the new version
//! notes it          swap           asks whether any call may wait    swap
//! reads the version                looks at each line, if so
//! ```
//!
//! The later one of the two swaps sees everything that was written before the earlier one. So
//! either the reload finds the call in its line, or the call finds the new version.

use crate::base::sync::{AtomicBool, Bug, Ordering, planted};

/// The flag: see the [module](self).
#[derive(Debug)]
pub(crate) struct LinedUp(AtomicBool);

impl Default for LinedUp {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl LinedUp {
    /// Notes that a call stands in line. The call must read the version of the rules only after
    /// this.
    pub(crate) fn note(&self) {
        if planted(Bug::LineUpByStore) {
            self.0.store(true, Ordering::Release);
        } else {
            // Pairs with the swap of a reload, in both directions.
            self.0.swap(true, Ordering::AcqRel);
        }
    }

    /// Returns whether a call has ever stood in line. A reload must store its version before it
    /// calls this.
    pub(crate) fn may_wait(&self) -> bool {
        if planted(Bug::LineLookByLoad) {
            self.0.load(Ordering::Acquire)
        } else {
            // Pairs with the swap of a call, in both directions.
            self.0.fetch_or(false, Ordering::AcqRel)
        }
    }
}
