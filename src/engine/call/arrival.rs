//! The state that a call brings to its judgement: none at first, or a slot, share or lease for
//! which it has waited.

use std::time::Duration;

use crate::clock::Tick;
use crate::engine::call::nodes::CallNodes;
use crate::engine::resource::{HeldLeases, Resource};
use crate::rule::{OwnShare, ShareInLine, SlotLimit};
use crate::stat::SlotHold;

/// See the [module](self). The default is for a call that has not waited.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    /// The slot that the call has received in line. If the judgement does not use the slot, the
    /// caller of the judgement releases it.
    pub(crate) slot: Option<SlotHold>,
    /// The call's place in line, in case it has to return to the line.
    pub(crate) place: Option<PlaceInLine>,
    /// The shares and places that the call has received in the lines of its values, if it has
    /// waited in one.
    pub(crate) shares: Option<Box<LineShares>>,
    /// The time at which the call arrived, if it has waited.
    pub(crate) since: Option<Tick>,
    /// The leases for which the call has waited, and which the store has granted.
    pub(crate) leases: Option<Box<HeldLeases>>,
    /// Whether the leases were borrowed from the next bucket, for whose start the call has waited.
    pub(crate) has_borrowed: bool,
}

/// The shares and places that a call has received in the lines of its values.
#[derive(Debug, Default)]
pub(crate) struct LineShares {
    /// The share that the call has received in line, to be released like a slot.
    pub(crate) own: Option<OwnShare>,
    /// The call's places in lines, the latest place last.
    pub(crate) places: Vec<ShareInLine>,
}

/// The place of a call in the line for a slot, kept in case the call must return to the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceInLine {
    /// The number that orders the line.
    pub(crate) ticket: u64,
    /// The time that the call may still wait in line, in total.
    pub(crate) left: Duration,
    /// The limit for whose slots the line is.
    pub(crate) slots: SlotLimit,
}

// === impl Arrival ===

impl Arrival {
    /// Returns how long the call has waited at `now`.
    pub(crate) fn waited(&self, now: Tick) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Returns the call's places in the lines of its values.
    pub(crate) fn share_places(&self) -> &[ShareInLine] {
        self.shares.as_deref().map_or(&[], |shares| &shares.places)
    }

    /// Takes the share that the call has received in line, if the judgement has not used it.
    pub(crate) fn take_share(&mut self) -> Option<OwnShare> {
        self.shares.as_deref_mut()?.own.take()
    }

    /// Counts the wait of a call that starts at `now`, if it has waited.
    #[inline]
    pub(crate) fn count_wait(&self, nodes: &CallNodes, now: Tick, weight: u32) {
        if self.since.is_some() {
            self.count_own_wait(nodes, now, weight);
        }
    }

    /// Counts the wait on all nodes, and the weight as borrowed if the leases were borrowed.
    #[cold]
    #[inline(never)]
    fn count_own_wait(&self, nodes: &CallNodes, now: Tick, weight: u32) {
        let occupied = if self.has_borrowed { weight } else { 0 };
        nodes.each(|node| node.waited_in_line(occupied, self.waited(now)));
    }
}

/// Takes a place in line for a slot. Returns `None` if the call may not wait in line. A call that
/// was in line `before` gets its old place. The caller must call
/// [`Registry::catch_up`](crate::engine::registry::Registry::catch_up) next.
pub(crate) fn stand_in_line(
    resource: &Resource,
    slots: SlotLimit,
    patience: Option<Duration>,
    before: Option<PlaceInLine>,
) -> Option<PlaceInLine> {
    let queue = resource.slot_queue(slots)?;
    let left = before.map_or(queue.max_wait, |place| place.left);
    let left = left.min(patience.unwrap_or(Duration::MAX));
    // A limit of 0 lets no call in.
    if left.is_zero() || slots.limit == 0 {
        return None;
    }
    let ticket = before.map(|place| place.ticket);
    let ticket = resource.node().line_up(queue.max_waiting, ticket)?;
    resource.shared().lined_up.note();
    Some(PlaceInLine {
        ticket,
        left,
        slots,
    })
}
