//! Whether a layer has told the engine what it takes out of requests.

use crate::base::sync::{AtomicBool, Ordering};

/// See the [module](self). A copy may take other things, so it has told nothing.
#[derive(Debug, Default)]
pub(super) struct Told(AtomicBool);

impl Told {
    /// Tells it, unless that is done. Threads that come at once may each do so.
    #[inline]
    pub(super) fn once(&self, tell: impl FnOnce()) {
        if !self.0.load(Ordering::Relaxed) {
            self.tell(tell);
        }
    }

    #[cold]
    fn tell(&self, tell: impl FnOnce()) {
        tell();
        // Relaxed: at worst it is told twice.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Clone for Told {
    fn clone(&self) -> Self {
        Self::default()
    }
}
