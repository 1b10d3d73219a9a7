//! The slow path: every check of the [pipeline](super), for calls that the fast path
//! does not let pass.

use super::EngineRef;
use super::attempt::Attempt;
use super::enter::{enter, wait_or_refuse};
use super::fast_path::Fallback;
use super::line::line_up;
use super::precheck::precheck;
use super::refusal::{Counted, refuse, refuse_flow, refuse_share};
use crate::base::sync::Arc;
use crate::blocked::Blocked;
use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::call::arrival::Arrival;
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::ring::own_ring_available_at;
use crate::engine::call::verdict::Verdict;
use crate::engine::resource::{PathKind, Resource};
use crate::stat::{Denied, Reloaded};

/// Continues where the fast path has stopped, without repeating a check.
#[inline]
pub(crate) fn fall_back(
    engine: EngineRef<'_>,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Glance,
    why: Fallback,
) -> Result<Verdict, Reloaded> {
    let alone = Counted::Alone(resource);
    match why {
        Fallback::MoreToAsk | Fallback::HasSide => {
            judge(engine, resource, call, now, &mut Arrival::default())
        }
        Fallback::NoSlot(slots) => {
            let now = resource.check_time(now);
            if resource.slot_queue(slots).is_some() {
                let mut arrived = Arrival::default();
                let mut attempt = Attempt::new(engine, call, now, &mut arrived);
                return line_up(&mut attempt, resource, slots);
            }
            let blocked = resource.blocked_by_slots(slots, call.flags.importance());
            Ok(refuse(alone, call, now, blocked))
        }
        Fallback::NoShare(none) => {
            let now = resource.check_time(now);
            let rest = own_ring_available_at(resource, now, call.weight);
            Ok(refuse_share(alone, call, now, none, rest))
        }
        Fallback::Denied(Denied::Reloaded) => Err(Reloaded),
        Fallback::Denied(Denied::Full(rule)) => {
            let now = resource.check_time(now);
            if call.flags.prioritized() {
                let nodes = CallNodes::only(resource.clone());
                let mut arrived = Arrival::default();
                let mut attempt = Attempt::new(engine, call, now, &mut arrived);
                return wait_or_refuse(&mut attempt, &nodes, rule);
            }
            let at = available_at(resource, now, call.weight);
            Ok(refuse_flow(alone, call, now, rule, at))
        }
    }
}

/// Returns the time at which the rings of the fast path have room; `None` if one of them never has.
#[inline]
pub(super) fn available_at(resource: &Resource, now: Tick, weight: u32) -> Option<Tick> {
    let own = own_ring_available_at(resource, now, weight)?;
    if resource.path_kind() == PathKind::FastBesideRing {
        // Windows keep their room until a call arrives, so both rings have room at the later time.
        return Some(own.max(resource.compiled().only_dedicated().room_at(now, weight)?));
    }
    Some(own)
}

/// Judges `call` to `resource` from the first check on. Slots and shares that the verdict does not
/// use are left in `arrived`.
pub(crate) fn judge(
    engine: EngineRef<'_>,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Glance,
    arrived: &mut Arrival,
) -> Result<Verdict, Reloaded> {
    let now = resource.check_time(now);
    resource.note_keys(call);
    if let Err(blocked) = precheck(resource, call, now) {
        return refuse_early(engine, resource, call, now, blocked);
    }
    let attempt = &mut Attempt::new(engine, call, now, arrived);
    if attempt.arrived.slot.is_none() {
        if let Err(slots) = resource.check_slots(call.flags.importance()) {
            return line_up(attempt, resource, slots);
        }
    }
    enter(attempt, resource)
}

/// Refuses a call that a check has blocked before its nodes were known. Looks up the nodes here, as
/// the refusal is recorded on each of them.
#[cold]
fn refuse_early(
    engine: EngineRef<'_>,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
    mut blocked: Blocked,
) -> Result<Verdict, Reloaded> {
    let nodes = CallNodes::find(engine.registry, resource, call, now)?;
    if let Some(wait) = blocked.retry_after() {
        // Rules that have not been asked yet must also have room at the retry time.
        let at = nodes.retry_at(engine.registry, call, now, now + wait);
        // These times are relative to the resource's time, which can be ahead of the clock.
        let until = |at| resource.time_until(at, now).max(wait);
        blocked = blocked.with_retry_after(at.map(until));
    }
    Ok(refuse(Counted::On(&nodes), call, now, blocked))
}
