//! The gauge: the units that running calls have reserved, in one word with a version.
//!
//! ```text
//! [ reserved : 32 | version : 32 ]
//! ```
//!
//! The version changes with each admission, with each release, and when the limit becomes tighter.
//! Without a version, a word could return to an earlier value (the ABA problem). For example, call
//! A settles and call B reserves as many units, while call C is between its reading of the window
//! and its swap. C has not seen the units that A has booked, but its swap would succeed. The
//! version wraps around after 2³² changes; C would have to be suspended for exactly this number of
//! changes.

use std::fmt;

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gauge(AtomicU64);

/// The content of a gauge. No sequence of changes restores an earlier word, until the version wraps
/// around.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct GaugeWord(pub(crate) u64);

// === impl Gauge ===

impl Gauge {
    /// Reserves `wanted` units if at least as many are left, and at least one unit. `left` returns
    /// the limit minus the units in the window; it is called after the gauge was read.
    #[inline]
    pub(super) fn admit(&self, wanted: u32, left: impl Fn() -> u32) -> bool {
        loop {
            let found = self.load();
            let Some(next) = found.admit(wanted, left()) else {
                // If the gauge has changed meanwhile, there may be room now.
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

    /// Releases `units` that were reserved. The caller must have booked the charged part of them in
    /// the window before.
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

    /// Changes the version. So a call that has read the window before is not admitted, and must
    /// read it again.
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

    /// Returns the units that are reserved.
    pub(super) fn reserved(&self) -> u32 {
        self.load().reserved()
    }

    /// The acquire pairs with the release in [`swap`](Self::swap): a window that is read after this
    /// load contains the units that a thread has booked before it released units.
    fn load(&self) -> GaugeWord {
        GaugeWord(self.0.load(Ordering::Acquire))
    }

    /// The release pairs with the acquire in [`load`](Self::load). It also keeps the reading of the
    /// window, and bookings, before the swap.
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

    /// Returns the next word, with `reserved` units.
    pub(crate) fn with(self, reserved: u32) -> Self {
        Self::new(reserved, self.version().wrapping_add(1))
    }

    /// Returns the next word, with `wanted` more units, if `left` allows them and at least one
    /// unit.
    pub(crate) fn admit(self, wanted: u32, left: u32) -> Option<Self> {
        let needed = u64::from(self.reserved()) + u64::from(wanted.max(1));
        (needed <= u64::from(left)).then(|| self.with(self.reserved() + wanted))
    }

    /// Returns the next word, with `units` fewer units.
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
