//! A flag: whether a layer has reported to the engine what it extracts from requests.

use crate::base::sync::{AtomicBool, Ordering};

/// See the [module](self). A clone of a layer may extract something else, so the flag of the clone
/// is unset.
#[derive(Debug, Default)]
pub(super) struct ReportedOnce(AtomicBool);

impl ReportedOnce {
    /// Runs `report` on the first call. Threads that call it concurrently may each run it.
    #[inline]
    pub(super) fn once(&self, report: impl FnOnce()) {
        if !self.0.load(Ordering::Relaxed) {
            self.run(report);
        }
    }

    /// Runs `report`, and sets the flag.
    #[cold]
    fn run(&self, report: impl FnOnce()) {
        report();
        // Relaxed: at worst two threads run `report`.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Clone for ReportedOnce {
    fn clone(&self) -> Self {
        Self::default()
    }
}
