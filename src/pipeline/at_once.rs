//! The common path: a call that the resource's own ring and slots let pass, and
//! breakers that are closed.

use std::time::Duration;

use crate::breaker::Breakers;
use crate::call::Call;
use crate::clock::Tick;
use crate::resource::{Isolation, Resource, Way};
use crate::rule::{HotParams, NoShare};
use crate::stat::Denied;
use crate::verdict::Started;

/// Why the [common path](pass_at_once) ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Detour {
    /// It is not the call's [way](Way), or a breaker is not closed: nobody else has
    /// been asked.
    MoreToAsk,
    /// There is no slot, by this isolation.
    NoSlot(Isolation),
    /// A rule on a parameter does not let it pass.
    NoShare(NoShare),
    /// The ring did not let the call pass.
    Denied(Denied),
}

/// The common path: the resource's own ring and slots judge the call, and count
/// it, after closed breakers or at most one rule on a parameter. Whoever is sent on a
/// [detour](super::detour) has taken nothing.
#[inline(always)]
pub(crate) fn pass_at_once(
    resource: &Resource,
    call: &Call<'_>,
    now: Tick,
) -> Result<Started, Detour> {
    let mut closed = None;
    let params = match resource.way() {
        Way::AtOnce => None,
        Way::WithBreakers => {
            closed = resource.breakers().and_then(Breakers::admit_if_closed);
            if closed.is_none() {
                return Err(Detour::MoreToAsk);
            }
            None
        }
        // Who may wait keeps its share meanwhile, and who is told what is left is told
        // of the value's quota as well.
        Way::WithShare if !(call.prioritized || call.tells_quota) => resource.params(),
        _ => return Err(Detour::MoreToAsk),
    };
    let now = checked(resource, now);
    let isolation = resource.fixed_isolation();
    if let Some(isolation) = isolation {
        if !resource.node().use_slots(1, isolation.limit) {
            return Err(Detour::NoSlot(isolation));
        }
    }
    let taken = match params {
        None => take_alone(resource, now, call.weight).map_err(Detour::Denied),
        Some(params) => take_share_and_alone(resource, params, call, now),
    };
    match taken {
        Ok(()) => {
            resource.tell_passed(call.weight, Some(call), Duration::ZERO);
            Ok(Started {
                at: now,
                n: call.weight,
                has_slot: isolation.is_some(),
                closed,
            })
        }
        Err(why) => {
            if isolation.is_some() {
                resource.node().free_slots(1);
            }
            Err(why)
        }
    }
}

/// Takes the call's share of its parameter's quota, and its tokens on the
/// resource's own ring.
fn take_share_and_alone(
    resource: &Resource,
    params: &HotParams,
    call: &Call<'_>,
    now: Tick,
) -> Result<(), Detour> {
    let share = params.take_simple(call, now).map_err(Detour::NoShare)?;
    take_alone(resource, now, call.weight).map_err(|denied| {
        if let Some(share) = &share {
            params.give_back_simple(share, &resource.shared().time);
        }
        Detour::Denied(denied)
    })
}

/// `now`, unless the clock has gone back behind what the resource has seen.
#[inline]
pub(super) fn checked(resource: &Resource, now: Tick) -> Tick {
    resource.shared().time.check(now, resource.node().seen())
}

/// Takes the tokens of a call on the resource's own ring alone.
#[inline]
pub(super) fn take_alone(resource: &Resource, now: Tick, n: u32) -> Result<(), Denied> {
    let node = resource.node();
    let taken = node.acquire(now, n, resource.gate().quotas())?;
    node.start(n, taken);
    Ok(())
}
