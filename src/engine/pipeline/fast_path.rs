//! The fast path, for calls that are judged only by the resource's own ring and slots, and by
//! closed breakers or one rule on a parameter.

use std::time::Duration;

use crate::breaker::Breakers;
use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::call::verdict::Started;
use crate::engine::resource::{PathKind, Resource};
use crate::rule::{NoShare, SlotLimit};
use crate::stat::Denied;

/// The reason why the fast path ([`try_fast_path`], [`try_beside_ring`](super::try_beside_ring))
/// did not let a call pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fallback {
    /// The call needs more checks than the fast path makes: its resource has another
    /// [kind](PathKind) of path, such as the path [after a lease](super::try_after_lease), or a
    /// breaker is not closed. No rule has judged the call yet.
    MoreToAsk,
    /// The resource has a [second ring](super::try_beside_ring). No rule has judged the call yet.
    HasSide,
    /// No slot is free within this limit.
    NoSlot(SlotLimit),
    /// A rule on a parameter gives the call no share of its value's quota.
    NoShare(NoShare),
    /// A ring has no tokens.
    Denied(Denied),
}

/// Judges the call by the resource's own ring and slots, and counts it there. If it fails, the call
/// has taken nothing and must [fall back](super::fall_back) to the slow path.
#[inline(always)]
pub(crate) fn try_fast_path(
    resource: &Resource,
    call: &Call<'_>,
    now: Glance,
) -> Result<Started, Fallback> {
    let (closed, params) = match resource.path_kind() {
        PathKind::Fast => (None, None),
        PathKind::FastAdaptive => return try_adaptive(resource, call, now),
        PathKind::FastAfterBreakers => {
            let closed = resource.breakers().and_then(Breakers::admit_if_closed);
            (Some(closed.ok_or(Fallback::MoreToAsk)?), None)
        }
        // A call that can wait would have to keep its share, and a call that wants to know its
        // remaining quotas needs the quota of its value. Both take the slow path.
        PathKind::FastAfterParam if !(call.flags.prioritized() || call.flags.wants_quota()) => {
            (None, resource.params())
        }
        PathKind::FastBesideRing => return Err(Fallback::HasSide),
        _ => return Err(Fallback::MoreToAsk),
    };
    let now = resource.check_time(now);
    let slots = resource.fixed_slot_limit();
    if let Some(slots) = slots.filter(|slots| !resource.node().has_free_slot(slots.limit)) {
        return Err(Fallback::NoSlot(slots));
    }
    match params {
        None => match slots {
            Some(slots) => take_slot_and_own_ring(resource, slots, now, call.weight)?,
            None => take_own_ring(resource, now, call.weight).map_err(Fallback::Denied)?,
        },
        Some(params) => {
            let time = || resource.now();
            let share = params.take_simple(call, now, time);
            let share = share.map_err(Fallback::NoShare)?;
            let taken = match slots {
                Some(slots) => take_slot_and_own_ring(resource, slots, now, call.weight),
                None => take_own_ring(resource, now, call.weight).map_err(Fallback::Denied),
            };
            if let Err(why) = taken {
                if let Some(share) = &share {
                    params.refund_simple(share, time);
                }
                return Err(why);
            }
        }
    }
    resource.notify_passed(call.weight, Some(call), Duration::ZERO);
    Ok(Started {
        at: now,
        weight: call.weight,
        has_slot: slots.is_some(),
        closed,
    })
}

/// The part of [`try_fast_path`] for slots of an adaptive limit. It is a separate function, so that
/// the other paths do not pay for it.
#[inline(never)]
fn try_adaptive(resource: &Resource, call: &Call<'_>, now: Glance) -> Result<Started, Fallback> {
    let now = resource.check_time(now);
    let Some(slots) = resource.slot_limit(call.flags.importance()) else {
        return Err(Fallback::MoreToAsk);
    };
    if !resource.node().has_free_slot(slots.limit) {
        return Err(Fallback::NoSlot(slots));
    }
    take_slot_and_own_ring(resource, slots, now, call.weight)?;
    resource.count_class(call.flags.importance(), call.weight);
    resource.notify_passed(call.weight, Some(call), Duration::ZERO);
    Ok(Started {
        at: now,
        weight: call.weight,
        has_slot: true,
        closed: None,
    })
}

/// Takes the slot of a call and its tokens on the resource's own ring, or neither. Checks for the
/// tokens first, like [`take_and_enter`](super::enter).
#[inline(always)]
pub(super) fn take_slot_and_own_ring(
    resource: &Resource,
    slots: SlotLimit,
    now: Tick,
    weight: u32,
) -> Result<(), Fallback> {
    check_own_ring(resource, now, weight).map_err(Fallback::Denied)?;
    let node = resource.node();
    let Some(hold) = node.take_slot(slots.limit) else {
        return Err(Fallback::NoSlot(slots));
    };
    match take_own_ring(resource, now, weight) {
        Ok(()) => {
            node.slot_started(hold);
            Ok(())
        }
        Err(denied) => {
            node.release_slot(hold);
            Err(Fallback::Denied(denied))
        }
    }
}

/// Takes the tokens of a call on the resource's own ring alone.
#[inline]
pub(super) fn take_own_ring(resource: &Resource, now: Tick, weight: u32) -> Result<(), Denied> {
    let (node, rules) = (resource.node(), resource.compiled());
    let taken = node.acquire(now, weight, rules.quotas());
    let taken = taken.map_err(|denied| denied.by(rules.rules()))?;
    node.start(weight, taken);
    Ok(())
}

/// Checks whether the resource's own ring has the tokens now. Takes none.
#[inline]
pub(super) fn check_own_ring(resource: &Resource, now: Tick, weight: u32) -> Result<(), Denied> {
    let rules = resource.compiled();
    let checked = resource.node().check_room(now, weight, rules.quotas());
    checked.map_err(|denied| denied.by(rules.rules()))
}
