//! Loom models of calls, refunds and a refiller on one cell, and of calls that wait for the
//! refiller's answer.
//!
//! Each model runs in all interleavings, and counts the permits that are taken, given back and
//! left. A twin of each model with a planted bug must fail.

use std::task::{Wake, Waker};
use std::time::Duration;

use loom::thread;

use super::cell::{BucketEnd, Cell, LeaseFound};
use super::hub::HubMode;
use super::late::LateCall;
use super::quota::{Conditions, Grant, OnTheWay, Prepared};
use super::terms::Nodes;
use super::{
    Answer, Asked, Draw, Epoch, Hub, QuotaRule, RuleCounts, RuleFigures, SharedQuota,
    StoreSettings, Terms, Ticket, WhenDown, Window,
};
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicBool, AtomicU32, Ordering};
use crate::clock::timekeeper::Timekeeper;
use crate::clock::{Clock, Tick};

pub(crate) const BUCKET: Duration = Duration::from_millis(100);

/// The terms of a counter of costs with a limit of 5 units, which refuses all calls while its store
/// is unavailable.
pub(crate) const COSTS: Terms = Terms {
    limit: 5,
    per_node: false,
    exact: true,
    when_down: WhenDown::Closed,
    local_limit: None,
    ahead: 0,
    by_key: false,
    by_cost: true,
    wait_us: BUCKET.as_micros() as u32,
};

/// Creates a hub without a store, whose clock always reads 10 ms.
pub(crate) fn hub() -> Arc<Hub> {
    let time = Timekeeper::new(Box::new(FixedClock));
    Arc::new(Hub::new(None, StoreSettings::new(), time))
}

/// Creates a counter of costs, in a window of this many buckets.
pub(crate) fn cost_counter(hub: &Arc<Hub>, terms: Terms, buckets: u32) -> Arc<SharedQuota> {
    let rule = QuotaRule::of_costs(window(buckets), figures(), hub);
    SharedQuota::new([0, 1], terms, &rule)
}

const fn window(buckets: u32) -> Window {
    Window::new(BUCKET, buckets)
}

fn figures() -> Arc<RuleFigures> {
    Arc::new(RuleFigures::new(&Arc::new(RuleCounts::default())))
}

const fn ms(ms: u64) -> Tick {
    Tick::from_millis(ms)
}

/// Returns the end of the first bucket.
fn first() -> BucketEnd {
    BucketEnd::at(ms(100))
}

/// Returns the end of the second bucket.
fn second() -> BucketEnd {
    BucketEnd::at(ms(200))
}

/// Creates a cell with permits of the first bucket.
fn cell(permits: u32) -> Arc<Cell> {
    let cell = Cell::default();
    cell.put(first(), permits, BUCKET);
    Arc::new(cell)
}

/// Runs `body` on a new thread.
fn spawn<R: 'static>(
    cell: &Arc<Cell>,
    body: impl FnOnce(&Cell) -> R + 'static,
) -> thread::JoinHandle<R> {
    let cell = cell.clone();
    thread::spawn(move || body(&cell))
}

/// Takes one permit at the time `at`, in ms. Returns whether the permit belongs to the first
/// bucket; `None` if there is no permit.
fn take(cell: &Cell, at: u64) -> Option<bool> {
    match cell.take(ms(at), 1) {
        LeaseFound::Taken(end) => Some(end.is_bucket_of(first(), BUCKET)),
        _ => None,
    }
}

/// Takes all permits that are left, and returns their number.
fn left(cell: &Cell) -> u32 {
    cell.withdraw(u32::MAX).map_or(0, |(_, left)| left)
}

model! {
    two_takes_of_one_permit at 3 fails with takes_that_subtract_blindly: LeaseBareTake;
    || {
        let cell = cell(1);
        let other = spawn(&cell, |cell| take(cell, 10).is_some());
        let ours = take(&cell, 10).is_some();
        assert!(ours != other.join().unwrap(), "one permit");
        assert_eq!(left(&cell), 0);
    }
}

model! {
    a_take_during_the_close_of_its_lease at 3 fails with
        a_close_that_returns_what_was_taken: LeaseBlindClose;
    || {
        // The taker has read the clock before the end of the bucket, the closer after it.
        let cell = cell(2);
        let taker = spawn(&cell, |cell| u32::from(take(cell, 99).is_some()));
        let closed = cell.close(ms(100)).map_or(0, |(_, closed)| closed);
        let taken = taker.join().unwrap();
        assert_eq!(taken + closed + left(&cell), 2);
    }
}

model! {
    a_take_during_a_put_of_the_same_bucket at 3 fails with
        a_put_that_overwrites_a_take: LeaseBlindPut;
    || {
        let cell = cell(1);
        let taker = spawn(&cell, |cell| u32::from(take(cell, 10).is_some()));
        let out = cell.put(first(), 2, BUCKET);
        let taken = taker.join().unwrap();
        assert_eq!(taken + left(&cell) + out.new + out.old, 3);
    }
}

model! {
    a_take_during_a_put_of_the_next_bucket at 3 fails with
        a_put_of_the_next_bucket_that_overwrites_a_take: LeaseBlindPut;
    || {
        let cell = cell(1);
        let taker = spawn(&cell, |cell| take(cell, 99));
        let out = cell.put(second(), 1, BUCKET);
        let taken = taker.join().unwrap();
        let of_first = u32::from(taken == Some(true));
        let of_second = u32::from(taken == Some(false));
        assert_eq!((of_first + out.old, of_second + left(&cell)), (1, 1));
    }
}

model! {
    a_refund_during_a_put_of_the_next_bucket at 3 fails with
        a_refund_that_goes_to_the_next_bucket: LeaseBlindRefund;
    || {
        let cell = cell(1);
        assert_eq!(take(&cell, 10), Some(true));
        let refund = spawn(&cell, |cell| cell.refund(first(), 1, ms(50), BUCKET));
        let out = cell.put(second(), 1, BUCKET);
        let came_back = u32::from(refund.join().unwrap());
        assert_eq!(left(&cell), 1, "the next bucket has its one");
        assert_eq!(out.old, came_back, "what came back came out");
    }
}

model! {
    an_exhaustion_during_a_put at 3 fails with a_lease_overwritten_as_exhausted: LeaseBlindExhaust;
    || {
        let cell = Arc::new(Cell::default());
        let refiller = spawn(&cell, |cell| cell.put(first(), 1, BUCKET));
        cell.exhaust(ms(100));
        refiller.join().unwrap();
        assert_eq!(left(&cell), 1, "a permit that was granted is there");
    }
}

// === calls that wait ===

/// A clock that always reads 10 ms.
#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Tick {
        ms(10)
    }
}

/// A waker that records that it was woken.
#[derive(Debug, Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Conditions at 10 ms for the only process of a store, whose trips and horizon are one bucket
/// long.
pub(super) const CONDITIONS: Conditions = Conditions {
    now: ms(10),
    nodes: Nodes {
        count: 1,
        rank: Some(0),
    },
    horizon: BUCKET,
    trip: BUCKET,
    slow_trip: BUCKET,
    is_recovering: false,
};

/// Creates a counter with `N` waiting calls, and the draw for these calls, which is in flight.
fn asked<const N: usize>() -> (Arc<Hub>, Arc<SharedQuota>, [Ticket; N], OnTheWay) {
    asked_before(None)
}

/// Like [`asked`], but calls can borrow from the next bucket if it begins before `latest`.
fn asked_before<const N: usize>(
    latest: Option<Tick>,
) -> (Arc<Hub>, Arc<SharedQuota>, [Ticket; N], OnTheWay) {
    let hub = hub();
    hub.set_mode(HubMode::Live, ms(1));
    let terms = Terms {
        ahead: 5,
        by_cost: false,
        ..COSTS
    };
    let rule = QuotaRule::new(window(1), figures(), &hub);
    let quota = SharedQuota::new([0, 1], terms, &rule);
    let tickets = [(); N].map(|()| match SharedQuota::ask(&quota, ms(10), 1, latest) {
        Asked::Waits(ticket) => ticket,
        Asked::Answered(answer) => panic!("the store is there: {answer:?}"),
    });
    // Otherwise the hub's list and the counter would keep each other alive.
    drop(hub.take_asking());
    let (_, sent) = next(&quota);
    (hub, quota, tickets, sent)
}

/// Prepares the next draw. Panics if there is none.
fn next(quota: &Arc<SharedQuota>) -> (Draw, OnTheWay) {
    match SharedQuota::prepare(quota, &CONDITIONS) {
        Prepared::Sends(draw, sent) => (draw, sent),
        other => panic!("calls wait: {other:?}"),
    }
}

/// Answers the draw: the store grants one permit.
fn grant(sent: OnTheWay) {
    grant_some(sent, 1);
}

/// Answers the draw: the store grants `permits` permits of bucket 1.
fn grant_some(sent: OnTheWay, permits: u32) {
    let grant = Grant {
        permits,
        free: 0,
        rest: BUCKET,
        bucket: 1,
        epoch: Epoch::from_micros(1),
        wait: BUCKET,
        sent: ms(10),
        received: ms(10),
    };
    SharedQuota::granted(sent, &grant);
}

fn is_granted(answer: Answer) -> u32 {
    u32::from(matches!(answer, Answer::Granted(_)))
}

model! {
    a_grant_while_its_call_leaves at 3 fails with
        a_call_that_looks_before_it_leaves: TicketLooksThenLeaves,
        a_call_that_has_left_and_is_answered: TicketAnswersGone;
    || {
        let (_, quota, [ticket], sent) = asked();
        let refiller = thread::spawn(move || grant(sent));
        drop(ticket);
        refiller.join().unwrap();
        assert_eq!(quota.in_hand(ms(10)), 1, "its permit is there for others");
    }
}

model! {
    a_grant_at_the_deadline_of_its_call at 3 fails with
        a_deadline_that_looks_before_it_leaves: TicketLooksThenLeaves;
    || {
        let (hub, quota, [ticket], sent) = asked();
        let refiller = thread::spawn(move || grant(sent));
        let answer = ticket.take(ms(10));
        refiller.join().unwrap();
        // A call without an answer has put its counter on the refiller's list.
        drop(hub.take_asking());
        let taken = is_granted(answer);
        assert_eq!(taken + quota.in_hand(ms(10)), 1, "the call has it, or the cell");
    }
}

model! {
    a_grant_while_the_first_of_two_calls_leaves at 3 fails with
        the_first_of_two_that_has_left_and_is_answered: TicketAnswersGone;
    || {
        let (_, quota, [first, second], sent) = asked();
        let refiller = thread::spawn(move || grant(sent));
        drop(first);
        refiller.join().unwrap();
        assert!(second.is_answered(None));
        let taken = is_granted(second.take(ms(10)));
        assert_eq!(taken + quota.in_hand(ms(10)), 1, "the second has it, or the cell");
    }
}

model! {
    a_grant_while_its_call_begins_to_wait at 3 fails with
        a_call_that_waits_without_a_second_look: TicketLooksThenWaits;
    || {
        let (_, _quota, [ticket], sent) = asked();
        let refiller = thread::spawn(move || grant(sent));
        let woken = std::sync::Arc::new(WakeFlag::default());
        let waits = !ticket.is_answered(Some(&Waker::from(woken.clone())));
        refiller.join().unwrap();
        assert!(ticket.is_answered(None), "its answer is there");
        assert!(!waits || woken.0.load(Ordering::SeqCst), "it knows");
        assert_eq!(is_granted(ticket.take(ms(10))), 1);
    }
}

model! {
    a_loan_while_its_call_leaves at 3 fails with
        a_loan_that_is_refunded_to_the_present_bucket: RefundBeforeBucket,
        a_borrower_that_looks_before_it_leaves: TicketLooksThenLeaves,
        a_borrower_that_has_left_and_is_answered: TicketAnswersGone;
    || {
        let (hub, quota, [ticket], sent) = asked_before(Some(ms(500)));
        // No permit is left in this bucket, so the call asks for a permit of the next bucket.
        grant_some(sent, 0);
        let (draw, sent) = next(&quota);
        assert!(draw.next);
        let refiller = thread::spawn(move || grant(sent));
        drop(ticket);
        refiller.join().unwrap();
        drop(hub.take_asking());
        assert_eq!(quota.in_hand(ms(10)), 0, "its bucket has not begun");
        let (draw, _) = next(&quota);
        let back = draw.back.map(|back| (back.bucket, back.permits));
        assert_eq!(back, Some((2, 1)), "the permit goes back, once");
    }
}

// === calls that were let through before their answer ===

/// An admitted call that is judged later. Judging it takes its answer.
#[derive(Debug)]
struct RunningCall {
    ticket: Ticket,
    judged: std::sync::Arc<AtomicU32>,
}

impl LateCall for RunningCall {
    fn is_answered(&self) -> bool {
        self.ticket.is_answered(None)
    }

    fn settle(self: Box<Self>) {
        let _ = self.ticket.take(ms(10));
        self.judged.fetch_add(1, Ordering::SeqCst);
    }
}

/// Registers a waiting call to be judged late, while another thread runs `task` as the store's
/// task. Returns how many times the call was judged.
fn judged_during(task: fn(&Hub, OnTheWay)) -> u32 {
    let (hub, _, [ticket], sent) = asked();
    let refiller = {
        let hub = hub.clone();
        thread::spawn(move || task(&hub, sent))
    };
    let judged = std::sync::Arc::new(AtomicU32::new(0));
    hub.judge_late(Box::new(RunningCall {
        ticket,
        judged: judged.clone(),
    }));
    refiller.join().unwrap();
    // A call without an answer has put its counter on the refiller's list.
    drop(hub.take_asking());
    judged.load(Ordering::SeqCst)
}

model! {
    a_grant_while_its_call_is_handed_over at 3 fails with
        a_call_that_looks_for_a_grant_before_it_is_kept: LateLooksThenKeeps;
    || {
        let judged = judged_during(|hub, sent| {
            grant(sent);
            hub.late().settle_answered();
        });
        assert_eq!(judged, 1, "when its answer is there");
    }
}

model! {
    the_end_of_the_task_while_a_call_is_handed_over at 3 fails with
        a_call_that_looks_for_the_task_before_it_is_kept: LateLooksThenKeeps;
    || {
        let judged = judged_during(|hub, _| {
            hub.set_mode(HubMode::Idle, ms(10));
            hub.late().settle_all();
        });
        assert_eq!(judged, 1, "without an answer");
    }
}
