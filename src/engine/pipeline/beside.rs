//! The fast path of a resource with a second ring, which is dedicated to a single rule: a call
//! takes tokens of both rings.
//!
//! It is separate from the common fast path, so that calls to other resources do not pay for it.

use std::time::Duration;

use super::fast_path::{Fallback, check_own_ring, take_own_ring};
use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::resource::Resource;
use crate::rule::{DedicatedRing, SlotLimit};
use crate::stat::{Denied, Taken};

/// Continues [`try_fast_path`](super::try_fast_path) for resources with a second ring. Returns
/// when the call starts.
///
/// Nearly always no slot is needed, and both rings grant the tokens in one attempt. [Other
/// cases](try_slowly) are in separate functions, so that this function keeps no values alive across
/// calls.
#[inline(always)]
pub(crate) fn try_beside_ring(
    resource: &Resource,
    call: &Call<'_>,
    now: Glance,
) -> Result<Tick, Fallback> {
    let (side, quotas) = (
        resource.compiled().only_dedicated(),
        resource.compiled().quotas(),
    );
    let weight = call.weight;
    let in_step = resource.time_in_step(now);
    let Some(at) = in_step.filter(|_| resource.fixed_slot_limit().is_none()) else {
        return try_slowly(resource, call, now);
    };
    let of_side = match side.take_at_once(at, weight) {
        Some(Ok(taken)) => taken,
        Some(Err(denied)) => return Err(Fallback::Denied(denied)),
        None => return try_slowly(resource, call, now),
    };
    let node = resource.node();
    let Some(taken) = node.acquire_at_once(at, weight, quotas) else {
        return try_own_slowly(resource, call, at, of_side);
    };
    if !node.start_alone(weight, taken) {
        return Ok(start_among_waiting(resource, call, at, taken));
    }
    resource.notify_passed(weight, Some(call), Duration::ZERO);
    Ok(at)
}

/// Handles all cases of [`try_beside_ring`], from its first step on.
#[inline(never)]
fn try_slowly(resource: &Resource, call: &Call<'_>, now: Glance) -> Result<Tick, Fallback> {
    let side = resource.compiled().only_dedicated();
    let now = resource.check_time(now);
    match resource.fixed_slot_limit() {
        None => take_both_rings(resource, side, now, call.weight).map_err(Fallback::Denied)?,
        Some(slots) => take_slot_and_both_rings(resource, side, slots, now, call.weight)?,
    }
    resource.notify_passed(call.weight, Some(call), Duration::ZERO);
    Ok(now)
}

/// Continues after the second ring has granted its tokens.
#[inline(never)]
fn try_own_slowly(
    resource: &Resource,
    call: &Call<'_>,
    now: Tick,
    of_side: Taken,
) -> Result<Tick, Fallback> {
    take_own_or_refund(
        resource,
        resource.compiled().only_dedicated(),
        now,
        call.weight,
        of_side,
    )
    .map_err(Fallback::Denied)?;
    resource.notify_passed(call.weight, Some(call), Duration::ZERO);
    Ok(now)
}

/// Starts a call that has its tokens while other calls wait. The granted tokens then include tokens
/// held for waiting calls, so [`start`](crate::stat::Node::start) counts the taken tokens anew.
#[cold]
#[inline(never)]
fn start_among_waiting(resource: &Resource, call: &Call<'_>, now: Tick, taken: Taken) -> Tick {
    resource.node().start(call.weight, taken);
    resource.notify_passed(call.weight, Some(call), Duration::ZERO);
    now
}

/// Takes the slot of a call and its tokens on both rings, or nothing. Checks for the tokens first,
/// like [`take_and_enter`](super::enter).
fn take_slot_and_both_rings(
    resource: &Resource,
    side: &DedicatedRing,
    slots: SlotLimit,
    now: Tick,
    weight: u32,
) -> Result<(), Fallback> {
    let node = resource.node();
    if !node.has_free_slot(slots.limit) {
        return Err(Fallback::NoSlot(slots));
    }
    check_both_rings(resource, now, weight).map_err(Fallback::Denied)?;
    let Some(hold) = node.take_slot(slots.limit) else {
        return Err(Fallback::NoSlot(slots));
    };
    let taken = take_both_rings(resource, side, now, weight);
    match taken {
        Ok(()) => node.slot_started(hold),
        Err(_) => node.release_slot(hold),
    }
    taken.map_err(Fallback::Denied)
}

/// Checks whether both rings have the tokens of a call now, in the order of [`take_both_rings`].
/// Takes none.
pub(super) fn check_both_rings(resource: &Resource, now: Tick, weight: u32) -> Result<(), Denied> {
    resource
        .compiled()
        .only_dedicated()
        .check_room(now, weight)?;
    check_own_ring(resource, now, weight)
}

/// Takes the tokens of a call on the second ring `side` and on the resource's own ring, or on
/// neither.
fn take_both_rings(
    resource: &Resource,
    side: &DedicatedRing,
    now: Tick,
    weight: u32,
) -> Result<(), Denied> {
    let of_side = side.take(now, weight)?;
    take_own_or_refund(resource, side, now, weight, of_side)
}

/// Takes the tokens of a call on the resource's own ring. If that ring has no tokens, refunds the
/// tokens `of_side` of the second ring.
fn take_own_or_refund(
    resource: &Resource,
    side: &DedicatedRing,
    now: Tick,
    weight: u32,
    of_side: Taken,
) -> Result<(), Denied> {
    take_own_ring(resource, now, weight).inspect_err(|_| side.refund(of_side, weight))
}
