//! Stands in for `lease_costs.rs` without the feature `shared`: no rule can be shared.

use crate::budget::{Account, BudgetCounts, BudgetFigures, CostLedger};
use crate::clock::Tick;

/// Has no values, as no rule is shared.
#[derive(Debug)]
pub(crate) enum SharedCostRule {}

/// Has no values, as no rule is shared.
#[derive(Debug)]
pub(crate) enum LeaseAccount {}

impl SharedCostRule {
    pub(super) const fn index(&self) -> u32 {
        match *self {}
    }

    pub(super) const fn unit(&self) -> &str {
        match *self {}
    }

    pub(super) const fn is_by_key(&self) -> bool {
        match *self {}
    }

    pub(super) const fn figures(&self, _: Tick) -> BudgetFigures {
        match *self {}
    }
}

impl LeaseAccount {
    pub(super) const fn unit(&self) -> &str {
        match *self {}
    }

    pub(super) const fn account(&self) -> &Account {
        match *self {}
    }
}

impl CostLedger for LeaseAccount {
    fn book(&self, _: Tick, _: u32) -> Option<u32> {
        match *self {}
    }

    fn release(&self, _: u32) {
        match *self {}
    }

    fn counts(&self) -> &BudgetCounts {
        match *self {}
    }

    fn left(&self, _: Tick) -> u32 {
        match *self {}
    }

    fn window_room_at(&self, _: Tick, _: u32) -> Option<Tick> {
        match *self {}
    }
}
