//! The totals of a budget.

use super::BudgetFigures;
use crate::base::sync::{AtomicU64, Ordering};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct BudgetCounts {
    /// The units that were charged.
    charged: AtomicU64,
    /// The units that were reserved by calls that started.
    reserved: AtomicU64,
    /// The units that were charged beyond the limit.
    over: AtomicU64,
    /// The calls that ended without reporting a cost.
    unreported: AtomicU64,
    /// The units that were reported but not charged, as they were too many.
    cut: AtomicU64,
    /// The largest cost that a call has reported, plus one; or [`UNKNOWN`].
    largest: AtomicU64,
}

/// The value of `largest` while no call has reported a cost.
const UNKNOWN: u64 = 0;

// === impl BudgetCounts ===

impl BudgetCounts {
    /// Counts units that a starting call has reserved.
    pub(crate) fn reserved(&self, units: u32) {
        add(&self.reserved, units);
    }

    /// Counts charged units, of which `over` were beyond the limit.
    pub(crate) fn charged(&self, units: u32, over: u32) {
        add(&self.charged, units);
        if over > 0 {
            add(&self.over, over);
        }
    }

    /// Notes the reported cost of a call that has ended. Writes only if it is the largest so far.
    pub(super) fn note_reported(&self, units: u32) {
        let units = u64::from(units) + 1;
        if self.largest.load(Ordering::Relaxed) < units {
            self.largest.fetch_max(units, Ordering::Relaxed);
        }
    }

    /// Counts a call that has ended without reporting a cost.
    pub(super) fn note_unreported(&self) {
        add(&self.unreported, 1);
    }

    /// Returns the units charged in total. If the gauge was read before, the result includes the
    /// charges of all releases that this reading has seen.
    pub(super) fn charged_so_far(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Counts units that were reported but not charged.
    #[cold]
    pub(crate) fn cut(&self, units: u32) {
        add(&self.cut, units);
    }

    /// Returns the totals; all other figures are 0.
    pub(crate) fn totals(&self) -> BudgetFigures {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BudgetFigures {
            charged_total: count(&self.charged),
            reserved_total: count(&self.reserved),
            over_total: count(&self.over),
            untold_total: count(&self.unreported),
            cut_total: count(&self.cut),
            largest: match count(&self.largest) {
                UNKNOWN => None,
                units => Some((units - 1) as u32),
            },
            ..BudgetFigures::default()
        }
    }
}

fn add(count: &AtomicU64, units: u32) {
    count.fetch_add(units.into(), Ordering::Relaxed);
}
