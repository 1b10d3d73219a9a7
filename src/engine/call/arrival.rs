//! How a call comes to be judged: at once, or with a slot or a share for which it has waited.

use std::time::Duration;

use crate::clock::Tick;
use crate::engine::call::nodes::CallNodes;
use crate::engine::resource::{HeldLeases, Resource};
use crate::rule::{OwnShare, ShareInLine, SlotLimit};
use crate::stat::SlotHold;

/// See the [module](self). The default is for a call that has not waited.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    /// The slot that the call has got in line. The code that begins to judge the call releases a
    /// slot that is left here.
    pub(crate) slot: Option<SlotHold>,
    /// The call's place in line, in case it has to go back there.
    pub(crate) place: Option<PlaceInLine>,
    /// The call's places in the lines for shares of its values' quotas, if it has waited for one.
    pub(crate) shares: Option<Box<OfShares>>,
    /// When the call came, if it has waited.
    pub(crate) since: Option<Tick>,
    /// The leases for which the call has waited, and which the store has granted.
    pub(crate) leases: Option<Box<HeldLeases>>,
    /// Whether it has waited for a bucket, of which it has borrowed these.
    pub(crate) has_borrowed: bool,
}

/// The shares and places that a call has got in the lines of its values.
#[derive(Debug, Default)]
pub(crate) struct OfShares {
    /// The share that the call has got in line, to be released like a slot.
    pub(crate) own: Option<OwnShare>,
    /// The call's places in lines: the last one is the latest.
    pub(crate) places: Vec<ShareInLine>,
}

/// Where a call stands in line for a slot, or has stood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceInLine {
    pub(crate) ticket: u64,
    /// How long it may wait there in all that is to come.
    pub(crate) left: Duration,
    /// The limit that it waits for.
    pub(crate) slots: SlotLimit,
}

// === impl Arrival ===

impl Arrival {
    /// How long the call has waited at `now`.
    pub(crate) fn waited(&self, now: Tick) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now - since)
    }

    /// The call's places in the lines of its values, if it had any.
    pub(crate) fn share_places(&self) -> &[ShareInLine] {
        self.shares.as_deref().map_or(&[], |shares| &shares.places)
    }

    /// Takes the share that it has got in line and that is not used.
    pub(crate) fn take_share(&mut self) -> Option<OwnShare> {
        self.shares.as_deref_mut()?.own.take()
    }

    /// The call starts at `now`: its wait is counted, if it had one.
    #[inline]
    pub(crate) fn count_wait(&self, nodes: &CallNodes, now: Tick, weight: u32) {
        if self.since.is_some() {
            self.count_own_wait(nodes, now, weight);
        }
    }

    #[cold]
    #[inline(never)]
    fn count_own_wait(&self, nodes: &CallNodes, now: Tick, weight: u32) {
        let occupied = if self.has_borrowed { weight } else { 0 };
        nodes.each(|node| node.waited_in_line(occupied, self.waited(now)));
    }
}

/// Takes a place in line for a slot, unless the call may not wait there. A call that has stood
/// there `before` has its old place. The caller must call
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
