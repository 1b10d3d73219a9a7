//! What running calls have reserved, in one word with a version.
//!
//! ```text
//! [ reserved : 32 | version : 32 ]
//! ```
//!
//! The version changes with each admission and each release, and where less is left all at once.
//! Without it a word may come back: one call settles and another one reserves as much, while a third
//! one sleeps between its look at the window and its swap. That one has not seen what the first has
//! booked. The version comes round after 2³² changes, for which such a call would have to sleep.

use std::fmt;

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gauge(AtomicU64);

/// One reading of a gauge. A change of it is never undone, and the words of one version after another
/// grow while nothing is reserved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct GaugeWord(pub(crate) u64);

// === impl Gauge ===

impl Gauge {
    /// Reserves `wanted` units if as many are left, and at least one is. `left` returns the limit
    /// without what the window holds, and is asked after the gauge was read.
    pub(super) fn admit(&self, wanted: u32, left: &mut dyn FnMut() -> u32) -> bool {
        loop {
            let found = self.load();
            let Some(next) = found.admit(wanted, left()) else {
                // Where the gauge has changed meanwhile, there may be room.
                if self.load() == found {
                    return false;
                }
                continue;
            };
            if self.swap(found, next) {
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
            if self.swap(found, found.without(units)) {
                return;
            }
        }
    }

    /// Lets nobody in who has looked at the window before.
    pub(super) fn renew(&self) {
        if planted(Bug::TellWithoutVersion) {
            return;
        }
        loop {
            let found = self.load();
            if self.swap(found, found.with(found.reserved())) {
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

    pub(crate) const fn reserved(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn version(self) -> u32 {
        self.0 as u32
    }

    /// The next word, with `reserved` units.
    pub(crate) fn with(self, reserved: u32) -> Self {
        Self::new(reserved, self.version().wrapping_add(1))
    }

    /// The next word, with `wanted` units more, if `left` allows as many and at least one.
    pub(crate) fn admit(self, wanted: u32, left: u32) -> Option<Self> {
        let needed = u64::from(self.reserved()) + u64::from(wanted.max(1));
        (needed <= u64::from(left)).then(|| self.with(self.reserved() + wanted))
    }

    /// The next word, with `units` less.
    pub(crate) fn without(self, units: u32) -> Self {
        let rest = self.reserved().saturating_sub(units);
        if planted(Bug::GaugeWithoutVersion) {
            return Self::new(rest, self.version().wrapping_sub(1));
        }
        self.with(rest)
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
