//! The concurrency slots of a node, and the line of calls that wait for a slot.

use std::task::Waker;
use std::time::Duration;

use super::Node;
use crate::base::sync::{Arc, Ordering};
use crate::stat::Ends;
use crate::stat::slots::{LimitNow, SlotHold};

impl Node {
    /// Returns whether fewer than `limit` concurrency slots are in use.
    #[inline]
    pub(crate) fn has_free_slot(&self, limit: u32) -> bool {
        self.counters.slots.has_room(limit) || self.has_free_slot_if_marked(limit)
    }

    // Not inlined, because nearly every call finds room without this path.
    #[cold]
    #[inline(never)]
    fn has_free_slot_if_marked(&self, limit: u32) -> bool {
        let slots = &self.counters.slots;
        slots.is_marked() && slots.has_room_if_marked(limit, || self.in_flight())
    }

    /// Takes a concurrency slot, unless `limit` slots are in use or a call waits for a slot. The
    /// caller must call [`slot_started`](Self::slot_started) once the call has its tokens.
    #[inline]
    pub(crate) fn take_slot(&self, limit: u32) -> Option<SlotHold> {
        if self.counters.slots.take(limit) {
            return Some(SlotHold::RUNNING);
        }
        self.take_slot_if_marked(limit)
    }

    /// The slow path of [`take_slot`](Self::take_slot), for a word with any field set but the
    /// number of slots in use. Takes no slot if the word has become unmarked.
    #[cold]
    #[inline(never)]
    fn take_slot_if_marked(&self, limit: u32) -> Option<SlotHold> {
        let counters = &self.counters;
        if !counters.slots.is_marked() {
            return None;
        }
        // Once no other node value shares these counters, all calls in flight hold slots.
        if let Some(line) = counters.line().filter(|_| counters.slots.has_older()) {
            counters.slots.forget_older(line, || !self.is_shared());
        }
        counters.slots.take_if_marked(limit, || self.in_flight())
    }

    /// Takes a slot even beyond the limit.
    pub(crate) fn take_slot_anyway(&self) -> SlotHold {
        self.counters.slots.take_anyway()
    }

    /// Notes that the call that holds a slot has its tokens.
    #[inline]
    pub(crate) fn slot_started(&self, hold: SlotHold) {
        self.counters.slots.started(hold);
    }

    /// Releases a slot, and passes it to a waiting call if there is one.
    #[inline]
    pub(crate) fn release_slot(&self, hold: SlotHold) {
        if self.counters.slots.release(hold) {
            self.let_in();
        }
    }

    /// Must be called after the end of a call that holds no slot. If calls without a slot count
    /// against the limit, another call may wait for this end.
    ///
    /// No call is left waiting. A call that starts to wait first sets the mark `waits`. Then it
    /// does a read-modify-write with release on both counts of ended calls, which does not change
    /// them. The ended call has changed one of these counts before, with acquire. If its change
    /// came first, the waiting call sees the end; otherwise this function sees the mark.
    #[inline]
    pub(crate) fn end_without_slot(&self) {
        if self.counters.slots.somebody_waits() {
            self.let_in();
        }
    }

    /// From now on, calls in flight that hold no slot count against the limit, until no such call
    /// can be left.
    pub(crate) fn mark_older(&self) {
        self.counters
            .slots
            .mark_older(self.counters.line_or_create());
    }

    /// The calls in flight, counted on the newest ring.
    #[cold]
    #[inline(never)]
    fn in_flight(&self) -> u32 {
        self.counters.in_flight(self.latest().ring.taken_now())
    }

    /// The number of ended calls.
    pub(crate) fn ends(&self) -> Ends {
        self.counters.ends()
    }

    /// The number of slots in use, plus one for each running call that holds no slot because it
    /// started before the limit.
    pub(crate) fn slots_in_use(&self) -> u32 {
        self.counters.slots.in_use_or_older(|| self.in_flight())
    }

    // --- the line for a slot ---

    /// Returns whether a call could ever wait for a slot here.
    pub(crate) fn has_line(&self) -> bool {
        self.counters.line().is_some()
    }

    /// Returns whether a call waits for a slot. If not, a call that lines up later sees everything
    /// that was written before this function was called.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.counters.line().is_some_and(|line| !line.is_empty())
    }

    /// Sets the function that returns how many slots there are, for calls in line.
    pub(crate) fn set_slot_limit(&self, limit: LimitNow) {
        self.counters.line_or_create().set_limit(limit);
    }

    /// Gives free slots to calls that wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn let_in(&self) {
        self.counters.let_in(|| self.in_flight());
    }

    /// Puts a call in line for a slot and returns its ticket; `None` if `max` calls wait already. A
    /// call that lines up again passes its earlier `ticket`.
    pub(crate) fn line_up(&self, max: u32, ticket: Option<u64>) -> Option<u64> {
        self.counters.line_up(max, ticket, || self.in_flight())
    }

    /// Returns whether the call with this `ticket` has got a slot. If not, `waker` is woken once it
    /// has.
    pub(crate) fn has_slot_in_line(&self, ticket: u64, waker: Option<&Waker>) -> bool {
        let line = self.counters.line();
        line.is_some_and(|line| line.has_slot(ticket, waker))
    }

    /// Removes the call with this `ticket` from the line. Returns its slot if it has already got
    /// one.
    pub(crate) fn cancel_wait(&self, ticket: u64) -> Option<SlotHold> {
        let has_slot = self.counters.slots.cancel(self.counters.line()?, ticket);
        has_slot.then_some(SlotHold::FROM_LINE)
    }

    /// Returns whether both nodes share their counters.
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.counters, &other.counters)
    }

    /// Counts a call that begins to wait for a slot.
    pub(crate) fn note_in_line(&self) {
        self.counters.in_line.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that no longer waits for a slot.
    pub(crate) fn note_out_of_line(&self) {
        self.counters.in_line.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a call that has started after its wait for a slot, with `occupied` borrowed tokens.
    pub(crate) fn waited_in_line(&self, occupied: u32, wait: Duration) {
        self.counters.waited(occupied, wait);
    }
}
