//! Refusals: created with their rule and retry time, counted on every node, and passed to hooks.

use std::time::Duration;

use super::crowded::may_refuse_in_crowd;
use crate::blocked::{BlockKind, Blocked};
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::call::nodes::{CallNodes, later};
use crate::engine::call::verdict::Verdict;
use crate::engine::registry::{Registry, forget};
use crate::engine::resource::Resource;
use crate::rule::{NoShare, SlotLimit};
use crate::stat::Node;

/// The nodes on which a refusal counts.
#[derive(Clone, Copy)]
pub(super) enum Counted<'a> {
    /// Only the node of the resource. The caller need not clone its pointer for this.
    Alone(&'a Resource),
    /// All nodes of the call.
    On(&'a CallNodes),
}

impl<'a> Counted<'a> {
    fn resource(self) -> &'a Resource {
        match self {
            Self::Alone(resource) => resource,
            Self::On(nodes) => nodes.resource(),
        }
    }

    fn each(self, mut f: impl FnMut(&Node)) {
        match self {
            Self::Alone(resource) => f(resource.node()),
            Self::On(nodes) => nodes.each(f),
        }
    }
}

/// Refuses a call by `rule`, which limits a rate or has a queue. The rules have room again at `at`;
/// `None` means never.
pub(super) fn refuse_flow(
    counted: Counted<'_>,
    call: &Call<'_>,
    now: Tick,
    rule: u32,
    at: Option<Tick>,
) -> Verdict {
    let resource = counted.resource();
    let (kind, limit) = match resource.rules().flow(rule) {
        Some(flow) => (BlockKind::Flow, Some(flow.advertised())),
        None => rate_of_value(resource, call, rule, now),
    };
    let retry_after = at.map(|at| resource.time_until(at, now));
    let mut blocked = resource.blocked(kind, rule).with_retry_after(retry_after);
    if let Some((tokens, interval)) = limit {
        blocked = blocked.with_limit(tokens, interval);
    }
    refuse(counted, call, now, blocked)
}

/// Returns the kind of `rule`, which is not a flow rule, and its limit for the value of `call`.
#[cold]
fn rate_of_value(
    resource: &Resource,
    call: &Call<'_>,
    rule: u32,
    now: Tick,
) -> (BlockKind, Option<(u32, Duration)>) {
    let limit = resource
        .params()
        .and_then(|params| params.limit(rule, call, now));
    (resource.rules().kind_of_rate(rule), limit)
}

/// Refuses a call by a rule on a parameter. All other rules have room from `rest` on; `None` means
/// never.
#[cold]
pub(super) fn refuse_share(
    counted: Counted<'_>,
    call: &Call<'_>,
    now: Tick,
    mut none: NoShare,
    rest: Option<Tick>,
) -> Verdict {
    if let NoShare::Full { available_at, .. } = &mut none {
        *available_at = later(*available_at, rest);
    }
    let blocked = counted.resource().blocked_without_share(none, now);
    refuse(counted, call, now, blocked)
}

/// Refuses a call by a rule on costs.
#[cold]
pub(super) fn refuse_cost(nodes: &CallNodes, call: &Call<'_>, now: Tick, none: NoShare) -> Verdict {
    let at = nodes.retry_at_unrelated(call, now, now);
    let blocked = nodes.resource().blocked_by_cost(none, call, at, now);
    refuse(Counted::On(nodes), call, now, blocked)
}

/// Refuses a call because no slot is free within the limit of `slots`.
#[cold]
pub(super) fn refuse_slots(
    nodes: &CallNodes,
    call: &Call<'_>,
    now: Tick,
    slots: SlotLimit,
) -> Verdict {
    let blocked = nodes
        .resource()
        .blocked_by_slots(slots, call.flags.importance());
    refuse(Counted::On(nodes), call, now, blocked)
}

/// Creates the refusal of a call that has waited for a share of `rule` until its time in line was
/// over.
pub(crate) fn blocked_by_share(
    registry: &Registry,
    nodes: &CallNodes,
    call: &Call<'_>,
    now: Tick,
    rule: u32,
) -> Blocked {
    let resource = nodes.resource();
    let (kind, limit) = rate_of_value(resource, call, rule, now);
    let at = nodes.retry_at(registry, call, now, now);
    let retry_after = at.map(|at| resource.time_until(at, now));
    let blocked = resource.blocked(kind, rule).with_retry_after(retry_after);
    match limit {
        Some((calls, interval)) => blocked.with_limit(calls, interval),
        None => blocked,
    }
}

/// Counts the refusal `blocked` on all nodes, and notifies hooks.
pub(super) fn refuse(
    counted: Counted<'_>,
    call: &Call<'_>,
    now: Tick,
    blocked: Blocked,
) -> Verdict {
    let resource = counted.resource();
    counted.each(|node| {
        let is_crowded = node.block_by(now, call.weight, blocked.kind());
        if is_crowded && may_refuse_in_crowd(resource, call) {
            forget(resource);
        }
    });
    resource.note_blocked(call.weight, Some(call), &blocked);
    Verdict::Block(blocked)
}
