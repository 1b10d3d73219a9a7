//! Loom models of a call that gives back the unused part of its reservation while the refiller
//! runs.
//!
//! Each model runs in all interleavings, and counts the permits that are returned to the store. A
//! twin of each model with a planted bug must fail.

use loom::thread;

use super::{Asked, Conditions, Grant, OnTheWay, Prepared, SharedQuota};
use crate::base::sync::Arc;
use crate::base::sync::fault::model;
use crate::clock::Tick;
use crate::store::hub::HubMode;
use crate::store::models::{BUCKET, CONDITIONS, COSTS, cost_counter, hub};
use crate::store::ticket::{Answer, Validity};
use crate::store::{Epoch, Hub};

/// A time in the first bucket.
const EARLY: Tick = Tick::from_millis(10);
/// A time in the second bucket, which begins at 110 ms.
const LATE: Tick = Tick::from_millis(120);

/// Creates a counter of costs with a limit of 5 units in two buckets.
fn budget() -> (Arc<Hub>, Arc<SharedQuota>) {
    let hub = hub();
    hub.set_mode(HubMode::Live, Tick::from_millis(1));
    let quota = cost_counter(&hub, COSTS, 2);
    (hub, quota)
}

/// Makes a call ask for `weight` permits at `now`. Returns its ticket and its draw.
fn asked(hub: &Hub, quota: &Arc<SharedQuota>, weight: u32, now: Tick) -> (super::Ticket, OnTheWay) {
    let Asked::Waits(ticket) = SharedQuota::ask(quota, now, weight, None) else {
        panic!("the store is there");
    };
    // Otherwise the hub's list and the counter would keep each other alive.
    drop(hub.take_asking());
    match prepare(quota, now) {
        Prepared::Sends(_, sent) => (ticket, sent),
        other => panic!("a call waits: {other:?}"),
    }
}

fn prepare(quota: &Arc<SharedQuota>, now: Tick) -> Prepared {
    let conditions = Conditions { now, ..CONDITIONS };
    SharedQuota::prepare(quota, &conditions)
}

/// Answers the draw: the store grants `permits` permits of `bucket`, which begins `now`.
fn grant(sent: OnTheWay, permits: u32, bucket: u64, now: Tick) {
    let grant = Grant {
        permits,
        free: 2,
        rest: BUCKET,
        bucket,
        epoch: Epoch::from_micros(1),
        wait: BUCKET,
        sent: now,
        received: now,
    };
    SharedQuota::granted(sent, &grant);
}

/// Reserves three units of the first bucket for a call. Returns the validity of the reservation.
fn reserved(hub: &Hub, quota: &Arc<SharedQuota>) -> Validity {
    let (ticket, sent) = asked(hub, quota, 3, EARLY);
    grant(sent, 3, 1, EARLY);
    match ticket.take(EARLY) {
        Answer::Granted(valid) => valid,
        other => panic!("the store has three: {other:?}"),
    }
}

/// Runs one turn of the refiller. Returns the permits that it gives back to the store, as pairs of
/// a bucket and the number of its permits.
fn turn(hub: &Hub, now: Tick) -> Vec<(u64, u32)> {
    let mut all = Vec::new();
    for quota in hub.take_asking() {
        if let Prepared::Sends(draw, sent) = prepare(&quota, now) {
            all.extend(draw.back.map(|back| (back.bucket, back.permits)));
            grant(sent, 0, if now < LATE { 1 } else { 2 }, now);
        }
    }
    all
}

model! {
    a_return_while_the_next_bucket_begins at 3 fails with
        a_return_to_the_present_bucket: BackToPresent;
    || {
        let (hub, quota) = budget();
        let valid = reserved(&hub, &quota);
        let (ticket, sent) = asked(&hub, &quota, 1, EARLY);
        let refiller = thread::spawn(move || grant(sent, 1, 2, LATE));
        // The call has cost one of its three units, so it returns two. It has read the clock in the
        // first bucket.
        SharedQuota::give_back(&quota, valid, 2, EARLY);
        refiller.join().unwrap();
        assert!(matches!(ticket.take(LATE), Answer::Granted(_)));
        assert_eq!(turn(&hub, LATE), [(1, 2)]);
        assert_eq!(quota.in_hand(LATE), 0);
        drop(hub.take_asking());
    }
}

model! {
    a_return_during_a_turn_of_the_refiller at 3 fails with
        a_return_after_the_refiller_has_looked: LookBeforeBack;
    || {
        let (hub, quota) = budget();
        let valid = reserved(&hub, &quota);
        let refiller = {
            let hub = hub.clone();
            thread::spawn(move || turn(&hub, EARLY))
        };
        SharedQuota::give_back(&quota, valid, 2, EARLY);
        let mut back = refiller.join().unwrap();
        back.extend(turn(&hub, EARLY));
        assert_eq!(back, [(1, 2)], "once");
        drop(hub.take_asking());
    }
}
