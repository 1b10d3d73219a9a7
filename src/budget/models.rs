//! Loom models of calls that are admitted, charged and settled concurrently.
//!
//! Each model runs in all interleavings, and most have a twin with a planted bug that must fail.
//! For how to run them, see `stat::models`.

use std::time::Duration;

use loom::thread;

use super::{Account, CostBudget, CostLedger};
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::clock::Tick;
use crate::stat::{Grid, Lending, Quota};

/// The time of all calls.
const NOW: Tick = Tick::from_nanos(1_000);

/// The limit of a budget, in units.
const LIMIT: u32 = 2;

/// The time until the reset of a provider.
const RESET: Duration = Duration::from_millis(1);

fn grid(buckets: u32) -> Grid {
    Grid {
        bucket_ns: 1_000_000,
        buckets,
        ahead: 1,
    }
}

fn quota(buckets: u32, limit: u32) -> Quota {
    Quota::new(buckets, 1, limit, Lending::Nothing)
}

fn budget() -> CostBudget {
    CostBudget::new(grid(1), quota(1, LIMIT), NOW)
}

/// A running call, which ends when the last reference to it is dropped.
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

/// Returns the units in the window, and the reserved units.
fn charged_and_reserved(budget: &CostBudget) -> (u32, u32) {
    let figures = budget.figures(NOW);
    (figures.used, figures.reserved)
}

/// A call that has reserved the whole limit is settled at this cost, while another call arrives.
/// The other call is refused.
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

/// One call ends and a second call reserves as much, while a third call is between its reading of
/// the window and its swap. Only one of the two new calls is admitted.
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

/// One of two threads charges a call, and both drop it. The call is charged exactly the reported
/// cost.
fn charge_and_last_drop() {
    let budget = Arc::new(budget());
    let running = Arc::new(Running::start(&budget, LIMIT).unwrap());
    let charging = {
        let running = running.clone();
        thread::spawn(move || running.charge(1))
    };
    drop(running);
    if let Some(account) = budget.admit(NOW, 1) {
        // The call has ended by now, and one unit of its reservation was not used.
        assert_eq!(charged_and_reserved(&budget), (1, 1), "over the limit");
        budget.cancel(&account);
    }
    charging.join().unwrap();
    assert_eq!(charged_and_reserved(&budget), (1, 0));
}

/// Two threads report the cost of one call. Its reservation is released once.
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

/// A point at which threads can be interleaved before they load a value. Loom switches threads at a
/// change of a shared value, but not before every load.
#[derive(Clone)]
struct Pause(Arc<AtomicU64>);

impl Pause {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(0)))
    }

    fn here(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A provider reports that nothing is left, while a call arrives. A call that was not admitted
/// before the report is refused.
fn admission_and_report() {
    let budget = Arc::new(budget());
    let running = Running::start(&budget, 1).unwrap();
    let pause = Pause::new();
    let coming = {
        let (budget, pause) = (budget.clone(), pause.clone());
        thread::spawn(move || {
            pause.here();
            budget.admit(NOW, 1).is_some()
        })
    };
    pause.here();
    budget.note_provider_left(NOW, 0, RESET);
    let (_, reserved) = charged_and_reserved(&budget);
    running.settle(0);
    let passed = coming.join().unwrap();
    assert_eq!(passed, reserved == 2, "passed with nothing left");
    assert!(budget.admit(NOW, 1).is_none());
}

/// A provider has exactly as many units left as a running call has reserved. The call is settled at
/// this cost, while another call arrives. The other call is refused.
fn settlement_within_a_report() {
    let budget = Arc::new(CostBudget::new(grid(1), quota(1, 100), NOW));
    let running = Running::start(&budget, 1).unwrap();
    budget.note_provider_left(NOW, 1, RESET);
    let coming = {
        let budget = budget.clone();
        thread::spawn(move || budget.admit(NOW, 1).is_some())
    };
    running.settle(1);
    assert!(!coming.join().unwrap(), "more than was left");
}

/// A provider reports a number of units while a reload replaces the window. The number stays in
/// force.
fn report_and_reload() {
    let budget = Arc::new(budget());
    let pause = Pause::new();
    let reload = {
        let (budget, pause) = (budget.clone(), pause.clone());
        thread::spawn(move || {
            pause.here();
            budget.change(grid(2), quota(2, LIMIT), NOW);
        })
    };
    pause.here();
    budget.note_provider_left(NOW, 1, RESET);
    reload.join().unwrap();
    assert!(
        budget.admit(NOW, 2).is_none(),
        "the reload has forgotten it"
    );
    assert!(budget.admit(NOW, 1).is_some());
}

/// Two numbers are reported at once. The smaller number counts.
fn two_reports() {
    let budget = Arc::new(budget());
    let pause = Pause::new();
    let other = {
        let (budget, pause) = (budget.clone(), pause.clone());
        thread::spawn(move || {
            pause.here();
            budget.note_provider_left(NOW, 2, RESET);
        })
    };
    pause.here();
    budget.note_provider_left(NOW, 1, RESET);
    other.join().unwrap();
    assert!(budget.admit(NOW, 2).is_none(), "the larger one counts");
}

model! {
    an_admission_while_a_provider_reports at 3 fails with
    an_admission_that_does_not_look_again: TellWithoutVersion;
    admission_and_report
}

model! {
    a_settlement_of_what_a_provider_has_left at 3 fails with
    a_settlement_that_releases_what_a_provider_has_left: ReleaseBeforeBook;
    settlement_within_a_report
}

model! {
    a_provider_report_during_a_reload at 3;
    report_and_reload
}

model! {
    two_provider_reports_at_once at 3;
    two_reports
}

model! {
    an_admission_during_a_settlement at 3 fails with
    an_admission_during_a_release_before_the_booking: ReleaseBeforeBook;
    admission_and_settlement
}

model! {
    two_admissions_and_a_release at 3 fails with
    an_admission_by_a_gauge_that_came_back: GaugeWithoutVersion;
    admissions_and_release
}

model! {
    a_charge_during_the_last_drop at 2 fails with
    a_last_drop_that_releases_before_the_booking: ReleaseBeforeBook;
    charge_and_last_drop
}

model! {
    a_settle_during_a_charge at 3 fails with
    a_settlement_that_overwrites_a_charge: RestReleasedTwice;
    settle_and_charge
}
