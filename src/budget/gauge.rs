//! What running calls have reserved, in one word with a version.
//!
//! ```text
//! [ reserved : 32 | version : 32 ]
//! ```
//!
//! The version changes with each admission and each release. Without it a word may come back: one
//! call settles and another one reserves as much, while a third one sleeps between its look at the
//! window and its swap. That one has not seen what the first has booked. The version comes round
//! after 2³² changes, for which such a call would have to sleep.

use std::fmt;

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gauge(AtomicU64);

/// One reading of a gauge.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GaugeWord(u64);

// === impl Gauge ===

impl Gauge {
    /// Reserves `wanted` units if as many are left, and at least one is. `left` returns the limit
    /// without what the window holds, and is asked after the gauge was read.
    pub(super) fn admit(&self, wanted: u32, left: &mut dyn FnMut() -> u32) -> bool {
        loop {
            let found = self.load();
            let needed = u64::from(found.reserved()) + u64::from(wanted.max(1));
            if needed > u64::from(left()) {
                // Where the gauge has changed meanwhile, there may be room.
                if self.load() == found {
                    return false;
                }
                continue;
            }
            if self.swap(found, found.with(found.reserved() + wanted)) {
                return true;
            }
        }
    }

    /// Releases `units` that were reserved. All that was charged out of them is in the window
    /// already.
    pub(super) fn release(&self, units: u32) {
        if units == 0 {
            return;
        }
        loop {
            let found = self.load();
            let rest = found.reserved().saturating_sub(units);
            let next = if planted(Bug::GaugeWithoutVersion) {
                GaugeWord::new(rest, found.version().wrapping_sub(1))
            } else {
                found.with(rest)
            };
            if self.swap(found, next) {
                return;
            }
        }
    }

    /// The units that are reserved.
    pub(super) fn reserved(&self) -> u32 {
        self.load().reserved()
    }

    /// The acquire pairs with the release of the thread that has released units: what it has booked
    /// before is in the window that is read next.
    fn load(&self) -> GaugeWord {
        GaugeWord(self.0.load(Ordering::Acquire))
    }

    /// The release pairs with that acquire. It also keeps the look at the window, and what was
    /// booked, before the swap.
    fn swap(&self, from: GaugeWord, to: GaugeWord) -> bool {
        self.0
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

// === impl GaugeWord ===

impl GaugeWord {
    fn new(reserved: u32, version: u32) -> Self {
        Self(u64::from(reserved) << 32 | u64::from(version))
    }

    fn reserved(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn version(self) -> u32 {
        self.0 as u32
    }

    /// The next word, with `reserved` units.
    fn with(self, reserved: u32) -> Self {
        Self::new(reserved, self.version().wrapping_add(1))
    }
}

impl fmt::Debug for GaugeWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} reserved, version {}",
            self.reserved(),
            self.version()
        )
    }
}
