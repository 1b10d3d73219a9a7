//! Every interleaving of calls that are admitted, charged and settled at once, checked by loom.
//!
//! Each model has twins with a planted bug that must fail. Run as `stat::models` says.

use loom::thread;

use super::{Account, CostBudget, CostLedger};
use crate::base::sync::Arc;
use crate::base::sync::fault::model;
use crate::clock::Tick;
use crate::stat::{Grid, Lending, Quota};

const NOW: Tick = Tick::from_nanos(1_000);

const LIMIT: u32 = 2;

fn budget() -> CostBudget {
    let grid = Grid {
        bucket_ns: 1_000_000,
        buckets: 1,
        ahead: 1,
    };
    CostBudget::new(grid, Quota::new(1, 1, LIMIT, Lending::Nothing), NOW)
}

/// A running call, which ends when the last handle on it is dropped.
struct Running {
    budget: Arc<CostBudget>,
    account: Account,
}

impl Running {
    fn start(budget: &Arc<CostBudget>, wanted: u32) -> Option<Self> {
        Some(Self {
            account: budget.admit(NOW, wanted)?,
            budget: budget.clone(),
        })
    }

    fn charge(&self, units: u32) {
        self.budget.charge(&self.account, NOW, units);
    }

    fn settle(&self, total: u32) {
        self.budget.settle(&self.account, NOW, total);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.budget.close(&self.account, NOW, false);
    }
}

fn charged_and_reserved(budget: &CostBudget) -> (u32, u32) {
    let figures = budget.figures(NOW);
    (figures.used, figures.reserved)
}

/// A call that has reserved the whole limit settles it, while another one comes.
fn admission_and_settlement() {
    let budget = Arc::new(budget());
    let running = Running::start(&budget, LIMIT).unwrap();
    let coming = {
        let budget = budget.clone();
        thread::spawn(move || budget.admit(NOW, 1).is_some())
    };
    running.settle(LIMIT);
    assert!(!coming.join().unwrap(), "over the limit");
    assert_eq!(charged_and_reserved(&budget), (LIMIT, 0));
}

/// One call settles and one more takes its place, while a third one is between its look at the
/// window and its swap.
fn admissions_and_release() {
    let budget = Arc::new(budget());
    let running = Running::start(&budget, 1).unwrap();
    let next = {
        let budget = budget.clone();
        thread::spawn(move || {
            drop(running);
            budget.admit(NOW, 1).is_some()
        })
    };
    let ours = budget.admit(NOW, 1).is_some();
    let theirs = next.join().unwrap();
    assert!(!(ours && theirs), "over the limit");
    assert!(ours || theirs, "there was room for one");
}

/// One of two threads charges a call, and both let go of it: what was told is all that it cost.
fn charge_and_last_drop() {
    let budget = Arc::new(budget());
    let running = Arc::new(Running::start(&budget, LIMIT).unwrap());
    let charging = {
        let running = running.clone();
        thread::spawn(move || running.charge(1))
    };
    drop(running);
    if let Some(account) = budget.admit(NOW, 1) {
        // Then the call has ended, and one unit of its reservation was not used.
        assert_eq!(charged_and_reserved(&budget), (1, 1), "over the limit");
        budget.cancel(&account);
    }
    charging.join().unwrap();
    assert_eq!(charged_and_reserved(&budget), (1, 0));
}

/// Two threads tell what one call costs.
fn settle_and_charge() {
    let budget = Arc::new(budget());
    let other = budget.admit(NOW, 1).unwrap();
    let running = Arc::new(Running::start(&budget, 1).unwrap());
    let charging = {
        let running = running.clone();
        thread::spawn(move || running.charge(1))
    };
    running.settle(1);
    charging.join().unwrap();
    let (used, reserved) = charged_and_reserved(&budget);
    assert_eq!(reserved, 1, "the other call keeps its reservation");
    assert!((1..=2).contains(&used), "charged {used}");
    budget.cancel(&other);
}

model! {
    an_admission_beside_a_settlement at 3 fails with
    an_admission_beside_a_release_before_the_booking: ReleaseBeforeBook;
    admission_and_settlement
}

model! {
    two_admissions_and_a_release at 3 fails with
    an_admission_by_a_gauge_that_came_back: GaugeWithoutVersion;
    admissions_and_release
}

model! {
    a_charge_beside_the_last_drop at 2 fails with
    a_last_drop_that_releases_before_the_booking: ReleaseBeforeBook;
    charge_and_last_drop
}

model! {
    a_settle_beside_a_charge at 3 fails with
    a_settlement_that_overwrites_a_charge: RestReleasedTwice;
    settle_and_charge
}
