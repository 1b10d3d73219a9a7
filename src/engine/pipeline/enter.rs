//! The last steps of a call that has passed the checks: it takes its place and its tokens and
//! starts, waits, or is refused.

use std::mem;

use super::attempt::Attempt;
use super::fast_path::{check_own_ring, take_own_ring};
use super::lease::enter_leased;
use super::line::{line_up, line_up_for_share};
use super::refusal::{Counted, refuse, refuse_cost, refuse_flow, refuse_share, refuse_slots};
use super::wait::wait;
use crate::base::sync::Arc;
use crate::clock::Tick;
use crate::engine::call::entry::{Entry, Permits};
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::ring::LimitedRing;
use crate::engine::call::verdict::Verdict;
use crate::engine::resource::Resource;
use crate::rule::Accounts;
use crate::stat::{Denied, Reloaded};

/// Makes the call's claims, takes its place and its tokens on every ring, and starts the call; or
/// makes it wait for its turn in a queue.
pub(super) fn enter(
    attempt: &mut Attempt<'_>,
    resource: &Arc<Resource>,
) -> Result<Verdict, Reloaded> {
    let (registry, call, now) = (attempt.engine.registry, attempt.call, attempt.now);
    let nodes = CallNodes::find(registry, resource, call, now)?;
    if let Err(slots) = nodes.check_narrow_slots(registry, now) {
        return Ok(refuse_slots(&nodes, call, now, slots));
    }
    if let Some(verdict) = claim(attempt, &nodes)? {
        return Ok(verdict);
    }
    if let Some(leases) = resource.leases() {
        return enter_leased(attempt, nodes, leases);
    }
    enter_claimed(attempt, nodes)
}

/// Starts a call that has all its claims, or makes it wait for its turn.
pub(super) fn enter_claimed(
    attempt: &mut Attempt<'_>,
    nodes: CallNodes,
) -> Result<Verdict, Reloaded> {
    match attempt.later_turn() {
        None => take_and_enter(attempt, nodes),
        Some((_, rule)) => wait_for_turn(attempt, &nodes, rule),
    }
}

/// Makes all claims of a call before it takes tokens: a share for each parameter, and a turn in
/// each queue. Also checks that related resources have room. If anything is not available, cancels
/// the claims and returns a refusal, or a wait for a share. Also cancels the claims if a reload has
/// replaced the rings.
fn claim(attempt: &mut Attempt<'_>, nodes: &CallNodes) -> Result<Option<Verdict>, Reloaded> {
    let (registry, call, now) = (attempt.engine.registry, attempt.call, attempt.now);
    let counted = Counted::On(nodes);
    if let Some(params) = nodes.resource().params() {
        let time = || nodes.resource().now();
        let taken = match attempt.arrived.shares.as_deref_mut() {
            None => params.take(call, now, time),
            Some(shares) => params.take_with(&mut shares.own, call, now, time),
        };
        match taken {
            Ok(shares) => attempt.claims.shares = shares,
            Err(none) if params.has_line(&none) => {
                return Ok(Some(line_up_for_share(attempt, nodes, none)));
            }
            Err(none) => {
                let retry_at = |from| nodes.retry_at(registry, call, now, from);
                let rest = none.available_at().and_then(retry_at);
                return Ok(Some(refuse_share(counted, call, now, none, rest)));
            }
        }
        if call.flags.wants_quota() {
            nodes.note_params(call, now, &mut attempt.claims.quotas);
        }
    }
    let full = match nodes.full_related(registry, now, call.weight) {
        Ok(None) => match nodes.queue_up(now, call.weight, &mut attempt.claims.turns) {
            Ok(()) => return Ok(None),
            Err(rule) => Ok((rule, Some(now))),
        },
        Ok(Some(full)) => Ok(full),
        Err(moved) => Err(moved),
    };
    nodes.release(&attempt.claims);
    let (rule, at) = full?;
    let at = at.and_then(|from| nodes.retry_at_unrelated(call, now, from));
    Ok(Some(refuse_flow(counted, call, now, rule, at)))
}

/// Takes the call's place and its tokens, and starts the call. If the place or the tokens are not
/// available, the call takes neither, and waits or is refused.
///
/// A place and tokens cannot be taken in one atomic operation. A call that takes its place and then
/// finds no tokens has briefly held the place, for which another call may be refused. To make this
/// rare, the tokens are checked first. So it only happens to calls that lose a race for the last
/// tokens, and not to all calls while a quota is used up.
fn take_and_enter(attempt: &mut Attempt<'_>, nodes: CallNodes) -> Result<Verdict, Reloaded> {
    let (call, now, resource) = (attempt.call, attempt.now, nodes.resource());
    if resource.has_places() {
        if let Err(denied) = check_tokens(&nodes, now, call.weight) {
            return go_without(attempt, &nodes, denied);
        }
    }
    let of_origin = match nodes.take_origin_slot() {
        Ok(hold) => hold,
        Err(slots) => {
            nodes.release(&attempt.claims);
            return Ok(refuse_slots(&nodes, call, now, slots));
        }
    };
    let slot = match resource.take_slot(call.flags.importance(), &mut attempt.arrived.slot) {
        Ok(slot) => slot,
        Err(slots) => {
            nodes.release_origin_slot(of_origin);
            nodes.release(&attempt.claims);
            return line_up(attempt, resource, slots);
        }
    };
    let place = match resource.take_place(now, slot) {
        Ok(place) => place,
        Err(blocked) => {
            nodes.release_origin_slot(of_origin);
            nodes.release(&attempt.claims);
            return Ok(refuse(Counted::On(&nodes), call, now, blocked));
        }
    };
    let mut accounts = None;
    if let Some(costs) = resource.costs() {
        let accounts = accounts.insert(Accounts::default());
        let reserved = costs.reserve(call, now, &|| resource.now(), accounts);
        if let Err(none) = reserved {
            resource.release(place);
            nodes.release_origin_slot(of_origin);
            nodes.release(&attempt.claims);
            return Ok(refuse_cost(&nodes, call, now, none));
        }
    }
    if let Err(denied) = take_tokens(&nodes, now, call.weight) {
        if let (Some(costs), Some(accounts)) = (resource.costs(), &accounts) {
            costs.cancel(accounts);
        }
        resource.release(place);
        nodes.release_origin_slot(of_origin);
        return go_without(attempt, &nodes, denied);
    }
    resource.place_started(place);
    nodes.origin_slot_started(of_origin);
    nodes.pass_inbound(now, call.weight);
    attempt.arrived.count_wait(&nodes, now, call.weight);
    resource.count_class(call.flags.importance(), call.weight);
    resource.notify_passed(call.weight, Some(call), attempt.arrived.waited(now));
    let permits = Permits::new(resource, place.admission, &attempt.claims);
    let costs_left = accounts.as_ref().map(|_| nodes.key_costs_left(call, now));
    let mut entry = Entry::new(nodes, now, call.weight, place.has_slot(), permits);
    if !attempt.claims.quotas.is_empty() {
        entry.note_param_quotas(mem::take(&mut attempt.claims.quotas));
    }
    if let Some(accounts) = accounts {
        if let Some(left) = costs_left.filter(|left| !left.is_empty()) {
            entry.note_param_quotas(left);
        }
        entry.set_accounts(accounts);
    }
    Ok(Verdict::Pass(entry))
}

/// Checks whether each ring of a call has `weight` tokens now. Takes none.
#[inline(never)]
fn check_tokens(nodes: &CallNodes, now: Tick, weight: u32) -> Result<(), Denied> {
    if !nodes.has_one_ring() {
        return nodes.check_room(now, weight);
    }
    check_own_ring(nodes.resource(), now, weight)
}

/// Takes `weight` tokens on each ring of a call, or on none.
fn take_tokens(nodes: &CallNodes, now: Tick, weight: u32) -> Result<(), Denied> {
    if !nodes.has_one_ring() {
        return take_all(&mut nodes.limited_rings(now), now, weight);
    }
    take_own_ring(nodes.resource(), now, weight)
}

/// Makes a call that finds no tokens wait, or refuses it.
#[cold]
fn go_without(
    attempt: &mut Attempt<'_>,
    nodes: &CallNodes,
    denied: Denied,
) -> Result<Verdict, Reloaded> {
    match denied {
        Denied::Full(rule) => wait_or_refuse(attempt, nodes, rule),
        Denied::Reloaded => {
            nodes.release(&attempt.claims);
            Err(Reloaded)
        }
    }
}

/// Makes a call wait for its turn in the queue of `rule`. Its tokens are held until then. Refuses
/// the call if a ring has no tokens.
fn wait_for_turn(
    attempt: &mut Attempt<'_>,
    nodes: &CallNodes,
    rule: u32,
) -> Result<Verdict, Reloaded> {
    if let Some(waiting) = wait(attempt, nodes)? {
        return Ok(Verdict::Wait(waiting));
    }
    let (call, now) = (attempt.call, attempt.now);
    let rule = match nodes.check_room(now, call.weight) {
        Err(Denied::Full(full)) => full,
        _ => rule,
    };
    let at = nodes.retry_at_unrelated(call, now, now);
    Ok(refuse_flow(Counted::On(nodes), call, now, rule, at))
}

/// Takes `weight` tokens on each of `rings`, or on none.
fn take_all(
    rings: &mut dyn Iterator<Item = LimitedRing<'_>>,
    now: Tick,
    weight: u32,
) -> Result<(), Denied> {
    let Some(ruled) = rings.next() else {
        return Ok(());
    };
    let taken = ruled.take(now, weight)?;
    if let Err(refusal) = take_all(rings, now, weight) {
        ruled.refund(taken, weight);
        return Err(refusal);
    }
    if let Some(node) = ruled.node {
        node.start(weight, taken);
    }
    Ok(())
}

/// Handles a call for which a rule has no room. A prioritized call can wait for room. Any other
/// call is refused, and its claims are cancelled.
#[cold]
pub(super) fn wait_or_refuse(
    attempt: &mut Attempt<'_>,
    nodes: &CallNodes,
    rule: u32,
) -> Result<Verdict, Reloaded> {
    let (call, now) = (attempt.call, attempt.now);
    if call.flags.prioritized() {
        if let Some(waiting) = wait(attempt, nodes)? {
            return Ok(Verdict::Wait(waiting));
        }
    } else {
        nodes.release(&attempt.claims);
    }
    let at = nodes.retry_at_unrelated(call, now, now);
    Ok(refuse_flow(Counted::On(nodes), call, now, rule, at))
}
