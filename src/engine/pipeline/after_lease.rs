//! The fast path of a resource with a single shared rule without keys: a call takes local permits
//! of that rule, and then its slot and its tokens like any other call.
//!
//! It is tried only after the check for the other fast paths, so that calls to other resources do
//! not pay for it.

use std::time::Duration;

use super::fast_path::{take_own_ring, take_slot_and_own_ring};
use crate::base::sync::Arc;
use crate::call::Call;
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::resource::{Leases, Resource};
use crate::store::{LeaseFound, SharedQuota, Validity};

/// Returns when the call starts, if it gets its permits, a slot and its tokens at once. If the
/// result is `None`, the call has taken nothing, and must be judged by all checks, which can ask
/// the store.
///
/// A call that may wait for tokens, wants to know its remaining quotas, or has a weight of 0 always
/// takes the full path.
///
/// Nearly always no slot is needed, and the ring grants the tokens in one attempt. Other cases are
/// in separate functions, so that this function need not save registers around calls.
#[inline(always)]
pub(crate) fn try_after_lease(resource: &Resource, call: &Call<'_>, now: Glance) -> Option<Tick> {
    let weight = call.weight;
    let quota = resource.leases().and_then(Leases::only_one)?;
    if weight == 0 || call.flags.prioritized() || call.flags.wants_quota() {
        return None;
    }
    let in_step = resource.time_in_step(now);
    let Some(at) = in_step.filter(|_| resource.fixed_slot_limit().is_none()) else {
        return try_slowly(resource, quota, call, now);
    };
    let LeaseFound::Taken(end) = quota.take(at, weight) else {
        return None;
    };
    let node = resource.node();
    let Some(taken) = node.acquire_at_once(at, weight, resource.compiled().quotas()) else {
        return take_own_or_refund(resource, quota, call, at, Validity::until(end));
    };
    node.start(weight, taken);
    resource.notify_passed(weight, Some(call), Duration::ZERO);
    Some(at)
}

/// Handles all cases of [`try_after_lease`], from its first step on.
#[inline(never)]
fn try_slowly(
    resource: &Resource,
    quota: &Arc<SharedQuota>,
    call: &Call<'_>,
    now: Glance,
) -> Option<Tick> {
    let now = resource.check_time(now);
    let slots = resource.fixed_slot_limit();
    if slots.is_some_and(|slots| !resource.node().has_free_slot(slots.limit)) {
        return None;
    }
    let LeaseFound::Taken(end) = quota.take(now, call.weight) else {
        return None;
    };
    take_own_or_refund(resource, quota, call, now, Validity::until(end))
}

/// Takes the slot and tokens of a call that has its permits. Refunds the permits if the call does
/// not start.
#[inline(never)]
fn take_own_or_refund(
    resource: &Resource,
    quota: &Arc<SharedQuota>,
    call: &Call<'_>,
    now: Tick,
    valid: Validity,
) -> Option<Tick> {
    let is_taken = match resource.fixed_slot_limit() {
        Some(slots) => take_slot_and_own_ring(resource, slots, now, call.weight).is_ok(),
        None => take_own_ring(resource, now, call.weight).is_ok(),
    };
    if !is_taken {
        SharedQuota::refund_now(quota, valid, call.weight);
        return None;
    }
    resource.notify_passed(call.weight, Some(call), Duration::ZERO);
    Some(now)
}
