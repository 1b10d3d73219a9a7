//! What has gone through a budget, in all.

use super::BudgetFigures;
use crate::base::sync::{AtomicU64, Ordering};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct BudgetCounts {
    charged: AtomicU64,
    reserved: AtomicU64,
    over: AtomicU64,
    untold: AtomicU64,
    cut: AtomicU64,
    /// The largest cost that a call has told, or [`UNKNOWN`].
    largest: AtomicU64,
}

/// No call has told a cost so far: any other value is one more than a cost.
const UNKNOWN: u64 = 0;

// === impl BudgetCounts ===

impl BudgetCounts {
    pub(crate) fn reserved(&self, units: u32) {
        add(&self.reserved, units);
    }

    /// Units that were charged, and how many of them beyond the limit.
    pub(crate) fn charged(&self, units: u32, over: u32) {
        add(&self.charged, units);
        if over > 0 {
            add(&self.over, over);
        }
    }

    /// A call has ended that had told a cost. It is written only if it is the largest so far.
    pub(super) fn told(&self, units: u32) {
        let units = u64::from(units) + 1;
        if self.largest.load(Ordering::Relaxed) < units {
            self.largest.fetch_max(units, Ordering::Relaxed);
        }
    }

    pub(super) fn untold(&self) {
        add(&self.untold, 1);
    }

    /// What was charged in all. After a look at the gauge it has all that was released by then.
    pub(super) fn charged_so_far(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Units that were told and not charged.
    #[cold]
    pub(crate) fn cut(&self, units: u32) {
        add(&self.cut, units);
    }

    /// The figures of all times; the others are 0.
    pub(crate) fn totals(&self) -> BudgetFigures {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BudgetFigures {
            charged_total: count(&self.charged),
            reserved_total: count(&self.reserved),
            over_total: count(&self.over),
            untold_total: count(&self.untold),
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
