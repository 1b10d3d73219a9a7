//! Puts a call in line: for a slot, for a share of the concurrency limit of a value, or for the
//! store.

use std::time::Duration;

use super::attempt::Attempt;
use super::refusal::{Counted, refuse_share, refuse_slots};
use crate::base::sync::Arc;
use crate::call::OwnedCall;
use crate::engine::call::arrival::stand_in_line;
#[cfg(feature = "shared")]
use crate::engine::call::lease::WaitLeases;
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::verdict::Verdict;
use crate::engine::call::waiting::{InLine, WaitBegun, Waiting};
#[cfg(feature = "shared")]
use crate::engine::resource::Asking;
use crate::engine::resource::Resource;
use crate::rule::{NoShare, SlotLimit};
use crate::stat::{Node, Reloaded};

/// Queues a call that finds no slot within the limit of `slots`. Refuses the call if the queue is
/// full or the call may not wait.
#[cold]
pub(super) fn line_up(
    attempt: &mut Attempt<'_>,
    resource: &Arc<Resource>,
    slots: SlotLimit,
) -> Result<Verdict, Reloaded> {
    let (registry, call, now) = (attempt.engine.registry, attempt.call, attempt.now);
    let nodes = CallNodes::find(registry, resource, call, now)?;
    // A call that would be refused by its origin's slots need not wait for a slot of the resource.
    if let Err(narrow) = nodes.check_narrow_slots(registry, now) {
        return Ok(refuse_slots(&nodes, call, now, narrow));
    }
    let before = attempt.arrived.place;
    let Some(place) = stand_in_line(resource, slots, call.patience, before) else {
        return Ok(refuse_slots(&nodes, call, now, slots));
    };
    attempt.arrived.place = Some(place);
    Ok(wait_in_line(attempt, nodes, InLine::Slot, place.left))
}

/// Queues a call whose value has no share left at a rule with a queue; `none` names this rule.
/// Refuses the call if the queue is full or the call may not wait.
#[cold]
pub(super) fn line_up_for_share(
    attempt: &mut Attempt<'_>,
    nodes: &CallNodes,
    none: NoShare,
) -> Verdict {
    let (call, now, arrived) = (attempt.call, attempt.now, &mut *attempt.arrived);
    let resource = nodes.resource();
    let params = resource.params().expect("one of them has refused the call");
    let Some(place) = params.stand_in_line(&none, call, arrived.share_places()) else {
        let retry_at = |from| nodes.retry_at(attempt.engine.registry, call, now, from);
        let rest = none.available_at().and_then(retry_at);
        return refuse_share(Counted::On(nodes), call, now, none, rest);
    };
    resource.shared().lined_up.note();
    let left = place.left;
    let places = &mut arrived.shares.get_or_insert_default().places;
    places.retain(|before| !before.is_in_same_table(&place));
    places.push(place);
    wait_in_line(attempt, nodes.clone(), InLine::Share, left)
}

/// Makes a call wait for the store, for a limited time, and be judged again with its answer.
#[cfg(feature = "shared")]
#[cold]
pub(super) fn wait_for_store(
    attempt: &mut Attempt<'_>,
    nodes: CallNodes,
    asking: Asking,
    most: Duration,
) -> Verdict {
    let mut verdict = wait_in_line(attempt, nodes, InLine::Store, asking.most.min(most));
    if let Verdict::Wait(waiting) = &mut verdict {
        waiting.wait_for_leases(WaitLeases::asking(asking));
    }
    verdict
}

/// Makes a call wait in `line` for at most `left`, the rest of its time in this line. The call
/// holds no tokens, slots or shares while it waits.
fn wait_in_line(
    attempt: &mut Attempt<'_>,
    nodes: CallNodes,
    line: InLine,
    left: Duration,
) -> Verdict {
    let (call, now) = (attempt.call, attempt.now);
    nodes.each(Node::note_in_line);
    attempt.engine.registry.catch_up(nodes.resource(), now);
    let arrived = &mut *attempt.arrived;
    let mut own = std::mem::take(arrived);
    // A slot and a share are left in `arrived`: the caller of the judgement releases them.
    arrived.slot = own.slot.take();
    let shares = own.shares.as_deref_mut();
    let share = shares.and_then(|shares| shares.own.take());
    if share.is_some() {
        arrived.shares.get_or_insert_default().own = share;
    }
    let begun = WaitBegun {
        again: attempt.engine.again(),
        nodes,
        weight: call.weight,
        since: own.since.unwrap_or(now),
        asked: now,
    };
    Verdict::Wait(Waiting::in_line(
        begun,
        OwnedCall::from(call),
        line,
        left,
        own,
    ))
}
