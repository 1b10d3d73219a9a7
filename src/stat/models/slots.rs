//! Models of concurrency slots: calls that hold no slot, and calls that wait for a slot.

use loom::thread;

use super::room::counters;
use crate::base::sync::fault::model;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use crate::stat::counters::Counters;
use crate::stat::lined_up::LinedUp;
use crate::stat::slots::SlotHold;

/// Counters with a substitute for the ring that only counts passes.
struct Node {
    counters: Arc<Counters>,
    /// The number of calls that have passed: the count of the substitute ring.
    taken: AtomicU64,
    /// The calls that run, counted independently.
    running: AtomicU64,
}

impl Node {
    /// Creates a node with `calls` running calls that hold no slot.
    fn with_older(calls: u64) -> Arc<Self> {
        let counters = counters();
        counters.slots.mark_older(counters.line_or_create());
        Arc::new(Self {
            counters,
            taken: AtomicU64::new(calls),
            running: AtomicU64::new(calls),
        })
    }

    /// Creates a node with a limit of one, and one running call.
    fn full() -> Arc<Self> {
        let counters = counters();
        counters.line_or_create().set_limit(Box::new(|| 1));
        assert!(counters.slots.take(1));
        Arc::new(Self {
            counters,
            taken: AtomicU64::new(0),
            running: AtomicU64::new(0),
        })
    }

    /// The number of calls in flight, by the count of the substitute ring.
    fn in_flight(&self) -> u32 {
        let taken = self.taken.load(Ordering::Relaxed);
        self.counters.in_flight(taken as u32)
    }

    fn let_in(&self) {
        self.counters.let_in(|| self.in_flight());
    }

    fn line_up(&self) -> u64 {
        let ticket = self.counters.line_up(9, None, || self.in_flight());
        ticket.expect("there is room")
    }

    fn has_slot(&self, ticket: u64) -> bool {
        self.counters.line_or_create().has_slot(ticket, None)
    }

    fn release(&self, hold: SlotHold) {
        if self.counters.slots.release(hold) {
            self.let_in();
        }
    }

    /// Ends a call that holds no slot.
    fn end_without_slot(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.counters.done.fetch_add(1, Ordering::Acquire);
        if self.counters.slots.somebody_waits() {
            self.let_in();
        }
    }

    /// Starts a call if it gets a slot: it takes the slot, and then its tokens.
    fn start(&self, limit: u32) {
        let slots = &self.counters.slots;
        let Some(hold) = slots.take_if_marked(limit, || self.in_flight()) else {
            return;
        };
        let others = self.running.fetch_add(1, Ordering::Relaxed);
        assert!(others < limit.into(), "one too many");
        self.taken.fetch_add(1, Ordering::Relaxed);
        slots.started(hold);
    }
}

model! {
    a_limit_over_calls_that_hold_no_slot at 3 fails with
        a_call_that_counts_as_started_too_early: EnterAsStarted;
    || {
        // The limit is three, and two older calls run. Two new calls start, and one of the older
        // calls ends.
        let node = Node::with_older(2);
        let other = node.clone();
        let other = thread::spawn(move || other.start(3));
        let older = node.clone();
        let older = thread::spawn(move || older.end_without_slot());
        node.start(3);
        other.join().unwrap();
        older.join().unwrap();
        let running = node.running.load(Ordering::Relaxed);
        let in_use = node.counters.slots.in_use_or_older(|| node.in_flight());
        assert_eq!(u64::from(in_use), running);
    }
}

model! {
    a_call_lines_up_while_another_call_ends at 3 fails with
        a_call_that_waits_without_a_look: WaitWithoutLook;
    || {
        // The slot that is released concurrently must reach the call in line.
        let node = Node::full();
        let other = node.clone();
        let other = thread::spawn(move || other.release(SlotHold::RUNNING));
        let ticket = node.line_up();
        other.join().unwrap();
        assert!(node.has_slot(ticket), "it waits beside a free slot");
        assert_eq!(node.counters.slots.in_use(), 1);
    }
}

model! {
    a_call_lines_up_while_a_call_without_a_slot_ends at 3 fails with
        a_call_that_waits_unseen: WaitUnseen;
    || {
        // The only running call holds no slot. Its end must let the call in line start.
        let node = Node::with_older(1);
        node.counters.line_or_create().set_limit(Box::new(|| 1));
        let older = node.clone();
        let older = thread::spawn(move || older.end_without_slot());
        let ticket = node.line_up();
        older.join().unwrap();
        assert!(node.has_slot(ticket), "it waits beside a free slot");
    }
}

model! {
    a_call_leaves_the_line_while_another_call_ends at 3 fails with
        a_call_that_leaves_with_its_slot: LeaveBlindly;
    || {
        // The first call in line may get the slot just before it leaves. Then the slot must reach
        // the second call.
        let node = Node::full();
        let tickets = [node.line_up(), node.line_up()];
        let other = node.clone();
        let other = thread::spawn(move || other.release(SlotHold::RUNNING));
        if node.counters.slots.cancel(node.counters.line_or_create(), tickets[0]) {
            node.release(SlotHold::FROM_LINE);
        }
        other.join().unwrap();
        assert!(node.has_slot(tickets[1]), "the slot was lost");
        node.release(SlotHold::FROM_LINE);
        assert!(node.counters.slots.take(1), "nothing is left over");
    }
}

model! {
    a_new_call_and_one_in_line at 3 fails with
        a_new_call_that_overtakes: CheckThenClaim;
    || {
        // One slot is released: exactly one of the new call and the call in line may get it.
        let node = Node::full();
        let freeing = node.clone();
        let freeing = thread::spawn(move || freeing.release(SlotHold::RUNNING));
        let other = node.clone();
        let other = thread::spawn(move || other.counters.slots.take(1));
        let ticket = node.line_up();
        let overtook = other.join().unwrap();
        freeing.join().unwrap();
        assert!(overtook != node.has_slot(ticket), "one slot, two calls");
    }
}

/// An engine reduced to the flags that a reload and a call in line read.
struct Reloading {
    /// The flag under test.
    lined_up: LinedUp,
    /// Whether the call stands in line.
    is_in_line: AtomicBool,
    /// Whether the reload has stored the version of the new rules.
    has_new_rules: AtomicBool,
    /// Whether the reload or the call has moved the call to the new limit.
    has_caught_up: AtomicBool,
}

model! {
    a_call_lines_up_during_a_reload at 3 fails with
        a_call_that_lines_up_by_a_store: LineUpByStore,
        a_reload_that_looks_by_a_load: LineLookByLoad;
    || {
        // The reload or the call must notice the other.
        let engine = Arc::new(Reloading {
            lined_up: LinedUp::default(),
            is_in_line: AtomicBool::new(false),
            has_new_rules: AtomicBool::new(false),
            has_caught_up: AtomicBool::new(false),
        });
        let reload = engine.clone();
        let reload = thread::spawn(move || {
            reload.has_new_rules.store(true, Ordering::Release);
            if reload.lined_up.may_wait() && reload.is_in_line.load(Ordering::Relaxed) {
                reload.has_caught_up.store(true, Ordering::Relaxed);
            }
        });
        engine.is_in_line.store(true, Ordering::Relaxed);
        engine.lined_up.note();
        if engine.has_new_rules.load(Ordering::Acquire) {
            engine.has_caught_up.store(true, Ordering::Relaxed);
        }
        reload.join().unwrap();
        assert!(engine.has_caught_up.load(Ordering::Relaxed), "it waits by the old rules");
    }
}
