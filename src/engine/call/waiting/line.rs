//! A waiting call in line: for a slot, or for a share.

use std::task::Waker;

use super::{Inner, Rest};
use crate::blocked::Blocked;
use crate::clock::Tick;
use crate::rule::{OwnShare, ShareInLine};
use crate::stat::{Node, SlotHold};

const STANDS_THERE: &str = "it stands in that line";

/// What a call waits for in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InLine {
    ForSlot,
    ForShare,
}

/// What a call has got in line.
#[must_use]
pub(super) enum Got {
    Slot(SlotHold),
    Share(OwnShare),
}

impl Inner {
    /// Whether the call stands in line and has got what it waits for there. If not, `waker` is
    /// woken when it has.
    pub(super) fn has_what_it_waits_for(&self, waker: Option<&Waker>) -> bool {
        match self.line {
            None => false,
            Some(InLine::ForSlot) => {
                let ticket = self.place.expect(STANDS_THERE).ticket;
                self.node().has_slot_in_line(ticket, waker)
            }
            Some(InLine::ForShare) => self.share_place().has_share(waker),
        }
    }

    /// Where it stands in line for a share, or has stood.
    fn share_place(&self) -> &ShareInLine {
        let place = self
            .shares
            .as_deref()
            .and_then(|shares| shares.places.last());
        place.expect(STANDS_THERE)
    }

    /// Leaves the line: with what it has waited for, if it has got that.
    pub(super) fn leave_line(&mut self, now: Tick) -> Option<Got> {
        let line = self.line.take()?;
        self.nodes.each(Node::note_out_of_line);
        // What it has not used of its time is left for the next time.
        let used = now - self.asked;
        match line {
            InLine::ForSlot => {
                let place = self.place.as_mut()?;
                place.left = place.left.saturating_sub(used);
                let ticket = place.ticket;
                self.node().leave_line(ticket).map(Got::Slot)
            }
            InLine::ForShare => {
                let place = self.shares.as_deref_mut()?.places.last_mut()?;
                place.left = place.left.saturating_sub(used);
                place.leave(now).map(Got::Share)
            }
        }
    }

    /// Leaves the line, and gives what it has got there to the next call.
    pub(super) fn give_up_line(&mut self) {
        match self.leave_line(self.asked) {
            None => {}
            Some(Got::Slot(hold)) => self.node().release_slot(hold),
            Some(Got::Share(share)) => share.give_back(self.asked),
        }
    }

    /// What it waits for in `line` beyond the limit, if no more calls have that than may wait.
    pub(super) fn take_beyond(&self, now: Tick, line: InLine) -> Option<Got> {
        let resource = self.nodes.resource();
        match line {
            InLine::ForSlot => {
                let slots = self.place?.slots;
                let queue = resource.slot_queue(slots)?;
                let beyond = self.node().slots_in_use().saturating_sub(slots.limit);
                let slot = || Got::Slot(self.node().take_slot_anyway());
                (beyond < queue.max_waiting).then(slot)
            }
            InLine::ForShare => {
                let Rest::Judged(call) = &self.rest else {
                    return None;
                };
                let (params, rule) = (resource.params()?, self.share_place().rule);
                let share = call.with(|call| params.share_beyond(rule, call, now));
                share.map(Got::Share)
            }
        }
    }

    /// Refuses the call, which has left the `line` with nothing.
    pub(super) fn refuse_in_line(&self, now: Tick, line: InLine) -> Blocked {
        let blocked = match (line, &self.rest) {
            (InLine::ForShare, Rest::Judged(call)) => {
                let rule = self.share_place().rule;
                call.with(|call| self.again.blocked_by_share(&self.nodes, call, now, rule))
            }
            _ => {
                let slots = self.place.expect(STANDS_THERE).slots;
                self.nodes.resource().blocked_by_slots(slots)
            }
        };
        self.refuse(now, blocked)
    }
}
