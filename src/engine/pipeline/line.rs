//! How a call comes to wait in line for a slot.

use std::time::Duration;

use super::arrival::{Arrival, PlaceInLine};
use super::refusal::{Counted, refuse};
use crate::base::sync::Arc;
use crate::call::{Call, OwnedCall};
use crate::clock::Tick;
use crate::engine::Engine;
use crate::engine::call::nodes::{CallNodes, Reloaded};
use crate::engine::call::verdict::Verdict;
use crate::engine::call::waiting::Waiting;
use crate::engine::resource::Resource;
use crate::rule::SlotLimit;
use crate::stat::Node;

/// Has a call wait that finds no slot within the limit of `slots`, whose rule has a queue; or
/// refuses it, if that is full or the call is not patient.
#[cold]
pub(super) fn line_up(
    engine: &Engine,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
    slots: SlotLimit,
    arrival: &Arrival,
) -> Result<Verdict, Reloaded> {
    let nodes = CallNodes::find(engine, resource, call, now)?;
    let before = arrival.place;
    let Some(place) = stand_in_line(resource, slots, call.patience, before) else {
        let blocked = resource.blocked_by_slots(slots);
        return Ok(refuse(Counted::On(&nodes), call, now, blocked));
    };
    nodes.each(Node::note_in_line);
    engine.catch_up(resource, now);
    let times = (arrival.since.unwrap_or(now), now);
    let owned = OwnedCall::from(call);
    let waiting = Waiting::in_line(engine, nodes, owned, place, times, call.weight);
    Ok(Verdict::Wait(waiting))
}

/// A place in line for a slot, unless the call may not wait there. One that has stood there
/// `before` has its old place. The caller goes on with [`Engine::catch_up`].
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
