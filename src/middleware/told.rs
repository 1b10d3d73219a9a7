//! A flag: whether a layer has reported to the engine what it extracts from requests.

use crate::base::sync::{AtomicBool, Ordering};

/// See the [module](self). A clone of a layer may extract something else, so it starts unset.
#[derive(Debug, Default)]
pub(super) struct Told(AtomicBool);

impl Told {
    /// Runs `tell` on the first call. Threads that call it concurrently may each run it.
    #[inline]
    pub(super) fn once(&self, tell: impl FnOnce()) {
        if !self.0.load(Ordering::Relaxed) {
            self.tell(tell);
        }
    }

    #[cold]
    fn tell(&self, tell: impl FnOnce()) {
        tell();
        // Relaxed: at worst two threads run `tell`.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Clone for Told {
    fn clone(&self) -> Self {
        Self::default()
    }
}
