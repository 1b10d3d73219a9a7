//! Refusals: made with their rule and their time, counted on every node, told to hooks.

use std::time::Duration;

use crate::blocked::BlockKind;
use crate::blocked::Blocked;
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::call::nodes::{CallNodes, later};
use crate::engine::call::verdict::Verdict;
use crate::engine::resource::Resource;
use crate::rule::NoShare;
use crate::stat::Node;

/// Where a refusal counts.
#[derive(Clone, Copy)]
pub(super) enum Counted<'a> {
    /// On the resource, and nowhere else: nobody need hold it for that.
    Alone(&'a Resource),
    /// On all these nodes.
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

/// A refusal by the flow rule or the queue `rule`, which will have room `at` some
/// time or never.
pub(super) fn refuse_flow(
    counted: Counted<'_>,
    call: &Call<'_>,
    now: Tick,
    rule: u32,
    at: Option<Tick>,
) -> Verdict {
    let resource = counted.resource();
    let (kind, limit) = resource.rules().rate(rule);
    let limit = limit.or_else(|| resource.params()?.limit(rule, call));
    refuse_until(counted, call, now, (kind, rule), limit, at)
}

/// A refusal by a rule on a parameter, where the `rest` has room some time or never.
#[cold]
pub(super) fn refuse_share(
    counted: Counted<'_>,
    call: &Call<'_>,
    now: Tick,
    none: NoShare,
    rest: Option<Tick>,
) -> Verdict {
    match none {
        NoShare::Full {
            rule,
            limit,
            room_at,
        } => {
            let (kind, _) = counted.resource().rules().rate(rule);
            let at = later(room_at, rest);
            refuse_until(counted, call, now, (kind, rule), Some(limit), at)
        }
        NoShare::Missing { rule } => refuse_until(
            counted,
            call,
            now,
            (BlockKind::MissingKey, rule),
            None,
            None,
        ),
    }
}

/// A refusal by a rule with a `limit`, until `at` or for ever.
fn refuse_until(
    counted: Counted<'_>,
    call: &Call<'_>,
    now: Tick,
    (kind, rule): (BlockKind, u32),
    limit: Option<(u32, Duration)>,
    at: Option<Tick>,
) -> Verdict {
    let resource = counted.resource();
    let retry_after = at.map(|at| resource.time_until(at, now));
    let mut blocked = resource.blocked(kind, rule).with_retry_after(retry_after);
    if let Some((tokens, interval)) = limit {
        blocked = blocked.with_limit(tokens, interval);
    }
    refuse(counted, call, now, blocked)
}

/// Refuses the call.
pub(super) fn refuse(
    counted: Counted<'_>,
    call: &Call<'_>,
    now: Tick,
    blocked: Blocked,
) -> Verdict {
    counted.each(|node| node.block_by(now, call.weight, blocked.kind()));
    counted
        .resource()
        .notify_blocked(call.weight, Some(call), &blocked);
    Verdict::Block(blocked)
}
