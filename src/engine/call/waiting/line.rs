//! A waiting call in line for a slot, a share, the store or a bucket.

use std::task::Waker;
use std::time::Duration;

use super::{Rest, WaitingInner};
use crate::blocked::Blocked;
use crate::clock::Tick;
use crate::engine::call::arrival::PlaceInLine;
use crate::engine::call::lease::TurnStep;
use crate::engine::call::verdict::Verdict;
use crate::rule::{OwnShare, ShareInLine, SlotLimit};
use crate::stat::{Node, SlotHold};

const STANDS_THERE: &str = "it stands in that line";

/// The line in which a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InLine {
    /// Waits for a concurrency slot.
    Slot,
    /// Waits for a share of the concurrency limit of its value.
    Share,
    /// Waits for the answers of the store.
    Store,
    /// Waits for the bucket of its borrowed permits to begin.
    Bucket,
}

/// The slot, share or leases that a call has received in line.
#[must_use]
pub(super) enum Received {
    Slot(SlotHold),
    Share(OwnShare),
    /// The permits of shared rules, which stay in `WaitingInner::leases`.
    Leases,
}

impl WaitingInner {
    /// Returns whether the call is in line and has received the slot, share or answers for which it
    /// waits. If not, `waker` is woken once it has.
    pub(super) fn has_what_it_waits_for(&self, waker: Option<&Waker>) -> bool {
        match self.line {
            None | Some(InLine::Bucket) => false,
            Some(InLine::Slot) => {
                let ticket = self.place.expect(STANDS_THERE).ticket;
                self.node().has_slot_in_line(ticket, waker)
            }
            Some(InLine::Share) => self.share_place().has_share(waker),
            Some(InLine::Store) => {
                let leases = self.leases.as_ref();
                leases.is_some_and(|leases| leases.is_answered(waker))
            }
        }
    }

    /// Returns the call's latest place in line for a share.
    fn share_place(&self) -> &ShareInLine {
        let place = self
            .shares
            .as_deref()
            .and_then(|shares| shares.places.last());
        place.expect(STANDS_THERE)
    }

    /// Makes the call wait in line for a slot, at `place`. Its permits of shared rules are
    /// refunded.
    pub(super) fn stand_in_line(&mut self, now: Tick, place: PlaceInLine) {
        if let Some(leases) = &mut self.leases {
            leases.refund();
        }
        self.nodes.each(Node::note_in_line);
        self.line = Some(InLine::Slot);
        self.asked = now;
        self.until = now + place.left;
        self.sleep = None;
        self.place = Some(place);
        self.again.catch_up(self.nodes.resource(), now);
    }

    /// Takes the permits of shared rules that the call needs. Returns false if the call must wait
    /// for the store. A call that gets no permits now releases its `slot`, and takes a slot again
    /// later.
    pub(super) fn take_leases(
        &mut self,
        now: Tick,
        patience: Option<Duration>,
        slot: &mut Option<SlotHold>,
    ) -> Result<bool, Blocked> {
        let Some(leases) = &mut self.leases else {
            return Ok(true);
        };
        let next = leases.take(now);
        if let Ok(TurnStep::Starts) = next {
            return Ok(true);
        }
        if let Some(hold) = slot.take() {
            self.node().release_slot(hold);
        }
        match next {
            Ok(_) => {
                self.ask_store(now, patience.unwrap_or(Duration::MAX));
                Ok(false)
            }
            Err(none) => {
                let blocked = self.nodes.resource().blocked_without_lease(none, now);
                Err(self.refuse(now, blocked))
            }
        }
    }

    /// Makes the call wait for the answers of the store, which was asked at `now`, for at most
    /// `patience`.
    fn ask_store(&mut self, now: Tick, patience: Duration) {
        let most = self
            .leases
            .as_ref()
            .map_or(Duration::ZERO, |leases| leases.most());
        self.nodes.each(Node::note_in_line);
        self.line = Some(InLine::Store);
        self.asked = now;
        self.until = now + most.min(patience);
        self.sleep = None;
    }

    /// If the bucket of the call's permits has not begun at `now`, makes the call wait for it and
    /// returns true.
    pub(super) fn waits_for_bucket(&mut self, now: Tick) -> bool {
        let leases = self.leases.as_ref();
        let Some(start) = leases.and_then(|leases| leases.start_after(now)) else {
            return false;
        };
        self.nodes.each(Node::note_in_line);
        self.line = Some(InLine::Bucket);
        self.asked = now;
        self.until = start;
        self.sleep = None;
        true
    }

    /// Leaves the line. Returns the slot, share or permits, if the call has received them.
    pub(super) fn cancel_wait(&mut self, now: Tick) -> Option<Received> {
        let line = self.line.take()?;
        self.nodes.each(Node::note_out_of_line);
        // The rest of the allowed time is kept for the next wait in this line.
        let used = now - self.asked;
        match line {
            InLine::Slot => {
                let place = self.place.as_mut()?;
                place.left = place.left.saturating_sub(used);
                let ticket = place.ticket;
                self.node().cancel_wait(ticket).map(Received::Slot)
            }
            InLine::Share => {
                let place = self.shares.as_deref_mut()?.places.last_mut()?;
                place.left = place.left.saturating_sub(used);
                place.cancel(now).map(Received::Share)
            }
            InLine::Store => self
                .leases
                .as_mut()?
                .settle(now)
                .then_some(Received::Leases),
            InLine::Bucket => Some(Received::Leases),
        }
    }

    /// Refuses a call that finds no slot within the limit of `slots` when it starts. Releases the
    /// call's `own` slot of the resource.
    #[cold]
    pub(super) fn refuse_without_slot(
        &self,
        now: Tick,
        slots: SlotLimit,
        own: Option<SlotHold>,
    ) -> Verdict {
        if let Some(hold) = own {
            self.node().release_slot(hold);
        }
        let blocked = self.blocked_by_slots(slots);
        Verdict::Block(self.refuse(now, blocked))
    }

    fn blocked_by_slots(&self, slots: SlotLimit) -> Blocked {
        let importance = match &self.rest {
            Rest::Judged(call) => call.importance(),
            Rest::Promised(promised) => promised.importance,
        };
        self.nodes.resource().blocked_by_slots(slots, importance)
    }

    /// Leaves the line, without an answer to the call. A slot or share that the call has received
    /// goes to the next call.
    pub(super) fn cancel_line(&mut self) {
        if matches!(self.line, Some(InLine::Store | InLine::Bucket)) {
            self.line = None;
            self.nodes.each(Node::note_out_of_line);
            // The leases are dropped, which refunds granted permits. Settling them would decide
            // missing answers without the store.
            self.leases = None;
        }
        match self.cancel_wait(self.asked) {
            None => {}
            Some(Received::Slot(hold)) => self.node().release_slot(hold),
            Some(Received::Share(share)) => share.release(self.asked),
            Some(Received::Leases) => unreachable!("it waits for the store no more"),
        }
    }

    /// Takes the slot or share for which the call waits in `line`, beyond the limit. Takes nothing
    /// if the number of calls beyond the limit has reached the maximum length of the queue.
    pub(super) fn take_beyond(&self, now: Tick, line: InLine) -> Option<Received> {
        let resource = self.nodes.resource();
        match line {
            InLine::Slot => {
                let slots = self.place?.slots;
                let queue = resource.slot_queue(slots)?;
                let beyond = self.node().slots_in_use().saturating_sub(slots.limit);
                let slot = || Received::Slot(self.node().take_slot_anyway());
                (beyond < queue.max_waiting).then(slot)
            }
            InLine::Share => {
                let Rest::Judged(call) = &self.rest else {
                    return None;
                };
                let (params, rule) = (resource.params()?, self.share_place().rule);
                let share = call.with(|call| params.share_beyond(rule, call, now));
                share.map(Received::Share)
            }
            InLine::Store | InLine::Bucket => None,
        }
    }

    /// Refuses a call that has left the `line` without receiving anything.
    pub(super) fn refuse_in_line(&self, now: Tick, line: InLine) -> Blocked {
        let refusal = self.leases.as_ref().and_then(|leases| leases.refusal());
        let blocked = match (line, &self.rest, refusal) {
            (InLine::Store, _, Some(none)) => {
                self.nodes.resource().blocked_without_lease(none, now)
            }
            (InLine::Share, Rest::Judged(call), _) => {
                let rule = self.share_place().rule;
                call.with(|call| self.again.blocked_by_share(&self.nodes, call, now, rule))
            }
            _ => {
                let slots = self.place.expect(STANDS_THERE).slots;
                self.blocked_by_slots(slots)
            }
        };
        self.refuse(now, blocked)
    }
}
