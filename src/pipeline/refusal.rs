//! Refusals: what the caller is told, counted in every place, and told to hooks.

use std::time::Duration;

use crate::blocked::{BlockKind, Blocked};
use crate::call::Call;
use crate::clock::Tick;
use crate::entry::Verdict;
use crate::hook::BlockEvent;
use crate::places::Places;
use crate::rule::NoShare;
use crate::timekeeper::Timekeeper;

/// A refusal by the flow rule or the line `rule`, which will have room `at` some
/// time or never.
pub(super) fn refuse_flow(
    places: &Places,
    call: &Call<'_>,
    now: Tick,
    rule: u32,
    at: Option<Tick>,
) -> Verdict {
    let (kind, limit) = places.resource().rules().rate(rule);
    refuse_until(places, call, now, (kind, rule), limit, at)
}

/// A refusal by a rule on a parameter.
#[cold]
pub(super) fn refuse_share(places: &Places, call: &Call<'_>, now: Tick, none: NoShare) -> Verdict {
    match none {
        NoShare::Full {
            rule,
            threshold,
            interval,
            room_at,
        } => {
            let (kind, _) = places.resource().rules().rate(rule);
            let limit = Some((threshold as u32, interval.unwrap_or_default()));
            // The windows must have room by then as well.
            let windows = places.room_at(now, call.weight);
            let at = room_at.zip(windows).map(|(at, windows)| at.max(windows));
            refuse_until(places, call, now, (kind, rule), limit, at)
        }
        NoShare::Missing { rule } => {
            refuse_until(places, call, now, (BlockKind::MissingKey, rule), None, None)
        }
    }
}

/// A refusal by a rule with a `limit`, until `at` or for ever.
fn refuse_until(
    places: &Places,
    call: &Call<'_>,
    now: Tick,
    (kind, rule): (BlockKind, u32),
    limit: Option<(u32, Duration)>,
    at: Option<Tick>,
) -> Verdict {
    let resource = places.resource();
    let retry_after = at.map(|at| Timekeeper::until(at, now, resource.node().seen()));
    let rule = resource.rules().id(rule);
    let mut blocked =
        Blocked::new(kind, resource.text().clone(), rule).with_retry_after(retry_after);
    if let Some((tokens, interval)) = limit {
        blocked = blocked.with_limit(tokens, interval);
    }
    refuse(places, call, now, blocked)
}

/// Refuses the call.
pub(super) fn refuse(places: &Places, call: &Call<'_>, now: Tick, blocked: Blocked) -> Verdict {
    places.each(|node| node.block(now, call.weight));
    let hooks = &places.resource().shared().hooks;
    if !hooks.is_empty() {
        let event = BlockEvent {
            subject: places.resource().subject(call.weight),
            origin: call.origin,
            param: call.param_at(0).copied(),
            blocked: &blocked,
        };
        hooks.tell(|hook| hook.on_block(&event));
    }
    Verdict::Block(blocked)
}
