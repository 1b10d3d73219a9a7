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
}

// === impl BudgetCounts ===

impl BudgetCounts {
    pub(super) fn reserved(&self, units: u32) {
        add(&self.reserved, units);
    }

    /// Units that were charged, and how many of them beyond the limit.
    pub(crate) fn charged(&self, units: u32, over: u32) {
        add(&self.charged, units);
        if over > 0 {
            add(&self.over, over);
        }
    }

    pub(super) fn untold(&self) {
        add(&self.untold, 1);
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
            ..BudgetFigures::default()
        }
    }
}

fn add(count: &AtomicU64, units: u32) {
    count.fetch_add(units.into(), Ordering::Relaxed);
}
