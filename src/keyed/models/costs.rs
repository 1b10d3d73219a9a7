//! Models of calls whose costs are counted by key.

use std::time::Duration;

use super::{A, B, at, spawn};
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::budget::CostLedger;
use crate::clock::Tick;
use crate::keyed::table::KeyTable;
use crate::keyed::{Counting, Digest, HotKeys, KeyAccount, KeyLimit, KeySpec};

/// Creates keys with budgets that are counted in windows, with `slots` slots in each table.
fn costs(slots: usize) -> Arc<HotKeys> {
    costs_by(Counting::Window, slots)
}

/// Creates keys with budgets that are counted by `count`, with `slots` slots in each table.
fn costs_by(count: Counting, slots: usize) -> Arc<HotKeys> {
    let spec = KeySpec {
        count,
        interval: Duration::from_millis(1),
        max_keys: 1,
    };
    let keys = HotKeys::of_table(KeyTable::of_sets(slots), spec, Tick::ZERO);
    let keys = keys.with_gauges(KeyTable::of_sets(slots));
    Arc::new(keys.for_all_callers())
}

/// The budget of a key.
const MOST: u32 = 2;

/// Makes a call of `key` that reserves `wanted`. Returns its account if it passes.
fn reserve(keys: &HotKeys, key: Digest, wanted: u32) -> Option<KeyAccount> {
    keys.budget(key, KeyLimit::Window(MOST))
        .admit(at(0), wanted, &|| at(0))
}

/// Settles the call of `account` at a cost of `total`, and ends it.
fn settle(keys: &HotKeys, account: &KeyAccount, total: u32) {
    let budget = keys.budget_of(account);
    budget.settle(&account.account, at(0), total);
    budget.close(&account.account, at(0), false);
}

/// Returns what is left of the budget of `key`.
fn left(keys: &HotKeys, key: Digest) -> u32 {
    keys.left(at(0), key, &KeyLimit::Window(MOST))
}

model! {
    a_reservation_during_an_eviction at 3 fails with
        a_reservation_whose_key_loses_its_slot: RestIgnoresPin,
        a_settlement_of_a_key_that_releases_before_the_booking: ReleaseBeforeBook;
    || {
        // A call of A has reserved units and settles, while B looks for a slot. B gets A's slot or
        // none.
        let keys = costs(1);
        let running = reserve(&keys, A, MOST).unwrap();
        let other = spawn(&keys, |keys| {
            let b = reserve(keys, B, 1);
            let a = reserve(keys, A, 1);
            let passed = (b.is_some(), a.is_some());
            for account in a.iter().chain(&b) {
                settle(keys, account, 0);
            }
            passed
        });
        settle(&keys, &running, MOST);
        // B has a slot or the shared word, and A has no budget left.
        assert_eq!(other.join().unwrap(), (true, false));
        assert_eq!((left(&keys, A), left(&keys, B)), (0, MOST));
    }
}

model! {
    a_new_key_during_the_end_of_a_reservation at 3 fails with
        a_new_key_whose_slot_is_released: RestIgnoresPin;
    || {
        // B gets A's slot if A has settled, and the shared word otherwise. B's reservation must
        // stay in both cases.
        let keys = costs(1);
        let running = reserve(&keys, A, 1).unwrap();
        let other = spawn(&keys, move |keys| settle(keys, &running, 0));
        let theirs = reserve(&keys, B, MOST).unwrap();
        other.join().unwrap();
        let own = keys.reserved(B);
        assert!(own == 0 || own == MOST, "{own} are left");
        settle(&keys, &theirs, 0);
        assert_eq!((keys.reserved(A), keys.reserved(B)), (0, 0));
    }
}

model! {
    two_reservations_of_a_key_and_a_release at 3 fails with
        a_reservation_by_a_word_that_came_back: GaugeWithoutVersion;
    || {
        // One call of A settles and another call reserves, while a third call is between reading
        // the charged units and its swap.
        let keys = costs(1);
        let running = reserve(&keys, A, 1).unwrap();
        let other = spawn(&keys, move |keys| {
            settle(keys, &running, 1);
            reserve(keys, A, 1).is_some()
        });
        let ours = reserve(&keys, A, 1).is_some();
        let theirs = other.join().unwrap();
        assert!(!(ours && theirs), "over the limit");
        assert!(ours || theirs, "there was room for one");
    }
}

model! {
    two_charges_of_a_new_key at 3 fails with
        charges_that_each_take_a_slot: InsertWithoutSecondLook;
    || {
        // A has no slot yet in the table of charged units, and two calls charge it concurrently.
        let keys = costs(2);
        let [ours, theirs] = [(); 2].map(|()| reserve(&keys, A, 1).unwrap());
        let other = spawn(&keys, move |keys| settle(keys, &theirs, 1));
        settle(&keys, &ours, 1);
        other.join().unwrap();
        assert_eq!(left(&keys, A), 0);
        assert_eq!(keys.keys_in_use(at(0)), 1);
    }
}

model! {
    a_charge_while_its_key_is_blocked at 3;
    || {
        // A has spent its quota of one unit per ms. One thread blocks it, and another charges a
        // call that still runs. The block must end at its time, whichever thread is first.
        let keys = costs_by(Counting::Refill, 1);
        let limit = keys.limit(1.0, 0);
        let budget = move |keys: &HotKeys| keys.budget(A, limit).book(at(0), 1);
        budget(&keys);
        let other = spawn(&keys, move |keys| budget(keys));
        assert!(keys.block(at(0), A, &limit, 1, Duration::from_millis(9)));
        other.join().unwrap();
        assert_eq!(keys.left(at(8_999), A, &limit), 0);
        assert_eq!(keys.left(at(9_000), A, &limit), 1);
        let figures = keys.cost_figures();
        assert_eq!((figures.charged_total, figures.cut_total), (2, 0));
    }
}

model! {
    an_admission_of_a_key_while_a_provider_reports at 3;
    || {
        // One of two units is reserved when a provider reports that none is left. A call that
        // arrives meanwhile either reserves the other unit before the report ends, or is refused.
        let keys = costs(1);
        let running = reserve(&keys, A, 1).unwrap();
        let pause = Arc::new(AtomicU64::new(0));
        let ours = pause.clone();
        let other = spawn(&keys, move |keys| {
            pause.fetch_add(0, Ordering::AcqRel);
            reserve(keys, A, 1).is_some()
        });
        ours.fetch_add(0, Ordering::AcqRel);
        let budget = keys.budget(A, KeyLimit::Window(MOST));
        budget.note_provider_left(at(0), 0, Duration::from_secs(1));
        let reserved = keys.reserved(A);
        settle(&keys, &running, 0);
        assert_eq!(other.join().unwrap(), reserved == 2, "it passed with nothing left");
        assert!(reserve(&keys, A, 1).is_none());
    }
}
