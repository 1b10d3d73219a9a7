//! The checks that take nothing: guards, system rules, and circuit breakers that refuse.

use crate::blocked::{BlockKind, Blocked};
use crate::call::{Call, Direction};
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::resource::Resource;
use crate::system::{self, InboundFigures, Readings, SystemReason};

/// Makes all checks that take nothing. They judge the caller, the load of the machine and of all
/// inbound calls, and the health of the resource.
pub(super) fn precheck(resource: &Resource, call: &Call<'_>, now: Tick) -> Result<(), Blocked> {
    if let Some((kind, rule)) = resource.guards().and_then(|guards| guards.refusing(call)) {
        return Err(resource.blocked(kind, rule));
    }
    if let Some((rule, reason)) = overload(resource, call, now) {
        let blocked = resource.blocked(BlockKind::System, rule);
        return Err(blocked.with_system_reason(reason));
    }
    // Only a check: the probe is taken last, when no other rule can refuse the call.
    resource.check_breakers(now)
}

/// Returns the system rule that refuses the call, and the limit that is exceeded.
fn overload(resource: &Resource, call: &Call<'_>, now: Tick) -> Option<(u32, SystemReason)> {
    let (shared, limits) = (resource.shared(), resource.rules().limits());
    let inbound = shared.inbound.get().filter(|_| !limits.is_empty())?;
    if resource.direction() != Direction::Inbound {
        return None;
    }
    // Calls to other resources may have advanced the inbound node to a later time than this call
    // has read, so the time is checked against the node's.
    let now = shared.time.check(Glance::again(now), inbound.seen());
    let readings = match &shared.config.sampler {
        Some(sampler) if limits.asks_machine() => sampler.sample(now),
        _ => Readings::UNKNOWN,
    };
    let figures = InboundFigures::of(inbound, now, limits, readings);
    let reason = system::judge(limits, &figures, readings, call.weight).err()?;
    Some((limits.rule(reason)?, reason))
}
