//! How a call is judged, from top to bottom.
//!
//! ```text
//! isolation   a concurrency slot of the resource      held until the call ends
//! flow        rules that look at another resource; then one lane after the
//!             other, narrow to wide: rules of the origin, of the context, of the
//!             resource; what was taken is given back when a later one refuses
//! loan        a prioritized call that found a lane full: the same lanes once
//!             more, each for the bucket in which the call can run
//! ```
//!
//! The order is the semantics, so it is written down here and nowhere else:
//! cheap checks first, and nothing waits before everyone who may refuse has
//! spoken. A call waits once, until the latest of its places.

use std::time::Duration;

use crate::blocked::{BlockKind, Blocked};
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::Engine;
use crate::entry::{Entry, Verdict, Waiting, blocked_by_isolation};
use crate::hook::{BlockEvent, PassEvent};
use crate::places::{Held, Lane, Moved, NoPlaces, Place, Places, Refusal};
use crate::resource::Resource;
use crate::stat::{Node, Wish};
use crate::sync::Arc;
use crate::timekeeper::Timekeeper;

// === judging ===

/// The common path: one ring judges the call and counts it, and there is room.
/// `None` leaves everything as it was, for [`judge`] to decide.
#[inline(always)]
pub(crate) fn pass_at_once(resource: &Arc<Resource>, call: &Call<'_>, now: Tick) -> Option<Entry> {
    if !is_plain(resource, call) {
        return None;
    }
    let (node, n) = (resource.node(), call.weight);
    let now = resource.shared().time.check(now, node.seen());
    let isolation = resource.isolation();
    if let Some(isolation) = isolation {
        if !node.use_slots(1, isolation.limit) {
            return None;
        }
    }
    let Ok(taken) = node.acquire(now, n, resource.gate().quotas()) else {
        if isolation.is_some() {
            node.free_slots(1);
        }
        return None;
    };
    node.start(n, taken);
    let places = Places::only(resource.clone());
    tell_passed(&places, call);
    Some(Entry::new(places, now, n, isolation.is_some()))
}

/// Judges `call` to `resource` at `now`.
pub(crate) fn judge(
    engine: &Engine,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
) -> Result<Verdict, Moved> {
    let shared = resource.shared();
    let now = shared.time.check(now, resource.node().seen());
    let isolation = resource.isolation();
    if let Some(isolation) = isolation {
        if !resource.node().use_slots(1, isolation.limit) {
            let blocked = blocked_by_isolation(resource, isolation.rule, isolation.limit);
            let places = match Places::find(engine, resource, call, now) {
                Ok(places) => places,
                Err(NoPlaces::Moved) => return Err(Moved),
                Err(NoPlaces::Refused(_)) => Places::only(resource.clone()),
            };
            return Ok(refuse(&places, call, now, blocked));
        }
    }
    let verdict = pass(engine, resource, call, now, isolation.is_some());
    if isolation.is_some() && !matches!(verdict, Ok(Verdict::Pass(_))) {
        resource.node().free_slots(1);
    }
    verdict
}

/// Whether the resource's own ring is all that judges and counts the call.
#[inline]
fn is_plain(resource: &Resource, call: &Call<'_>) -> bool {
    let shared = resource.shared();
    resource.origins().is_none()
        && resource.gate().sides().is_empty()
        && !(shared.origins && call.origin.is_some())
        && resource.related().is_empty()
        && !((shared.contexts || resource.contexts().is_some()) && call.context.is_some())
}

/// Takes the call's tokens in every place, and starts it.
fn pass(
    engine: &Engine,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
    has_slot: bool,
) -> Result<Verdict, Moved> {
    let places = match Places::find(engine, resource, call, now) {
        Ok(places) => places,
        Err(NoPlaces::Moved) => return Err(Moved),
        Err(NoPlaces::Refused(rule)) => {
            let places = Places::only(resource.clone());
            let rule = resource.rules().id(rule);
            let blocked = Blocked::new(BlockKind::MissingKey, resource.text().clone(), rule);
            return Ok(refuse(&places, call, now, blocked));
        }
    };
    if let Some((rule, at)) = places.full_related(engine, now, call.weight) {
        return Ok(refuse_flow(&places, call, now, rule, at));
    }
    let taken = take(&mut places.lanes(), now, call.weight);
    match taken {
        Ok(()) => Ok(enter(places, call, now, has_slot)),
        Err(Refusal::Moved) => Err(Moved),
        Err(Refusal::Full(rule)) => full(&places, call, now, rule),
    }
}

/// Takes `n` tokens in every lane, or in none.
fn take(lanes: &mut dyn Iterator<Item = Lane<'_>>, now: Tick, n: u32) -> Result<(), Refusal> {
    let Some(lane) = lanes.next() else {
        return Ok(());
    };
    let taken = lane.take(now, n)?;
    if let Err(refusal) = take(lanes, now, n) {
        lane.give_back(taken, n);
        return Err(refusal);
    }
    if let Some(node) = lane.node {
        node.start(n, taken);
    }
    Ok(())
}

/// A lane was full: a prioritized call may wait, any other is refused.
#[cold]
fn full(places: &Places, call: &Call<'_>, now: Tick, rule: u32) -> Result<Verdict, Moved> {
    if call.prioritized {
        match borrow(places, call, now) {
            Ok(Some(waiting)) => return Ok(Verdict::Wait(waiting)),
            Ok(None) => {}
            Err(Moved) => return Err(Moved),
        }
    }
    let at = places.room_at(now, call.weight);
    Ok(refuse_flow(places, call, now, rule, at))
}

/// A refusal by the flow rule `rule`, which will have room `at` some time or
/// never.
fn refuse_flow(
    places: &Places,
    call: &Call<'_>,
    now: Tick,
    rule: u32,
    at: Option<Tick>,
) -> Verdict {
    let resource = places.resource();
    let rules = resource.rules();
    let retry_after = at.map(|at| Timekeeper::until(at, now, resource.node().seen()));
    let mut blocked = Blocked::new(BlockKind::Flow, resource.text().clone(), rules.id(rule))
        .with_retry_after(retry_after);
    if let Some(rule) = rules.flow(rule) {
        blocked = blocked.with_limit(rule.limit(), rule.interval());
    }
    refuse(places, call, now, blocked)
}

fn enter(places: Places, call: &Call<'_>, now: Tick, has_slot: bool) -> Verdict {
    tell_passed(&places, call);
    Verdict::Pass(Entry::new(places, now, call.weight, has_slot))
}

#[inline]
fn tell_passed(places: &Places, call: &Call<'_>) {
    let hooks = &places.resource().shared().hooks;
    if !hooks.is_empty() {
        let event = PassEvent {
            subject: places.resource().subject(call.weight),
            origin: call.origin,
            param: call.param,
            waited: Duration::ZERO,
        };
        hooks.tell(|hook| hook.on_pass(&event));
    }
}

fn refuse(places: &Places, call: &Call<'_>, now: Tick, blocked: Blocked) -> Verdict {
    places.each(|node| node.block(now, call.weight));
    let hooks = &places.resource().shared().hooks;
    if !hooks.is_empty() {
        let event = BlockEvent {
            subject: places.resource().subject(call.weight),
            origin: call.origin,
            param: call.param,
            blocked: &blocked,
        };
        hooks.tell(|hook| hook.on_block(&event));
    }
    Verdict::Block(blocked)
}

// === borrowing ===

/// A place in a coming bucket in every lane; `None` if there is none.
fn borrow(places: &Places, call: &Call<'_>, now: Tick) -> Result<Option<Waiting>, Moved> {
    if !places.start_waiting() {
        return Ok(None);
    }
    let most = places.resource().shared().patience;
    let mut wish = Wish {
        now,
        from: now,
        patience: call.patience.map_or(most, |patience| patience.min(most)),
        n: call.weight,
    };
    // A round may find that one lane has room only later than others; then all
    // are asked again for that later time.
    let found = loop {
        match hold(places, wish) {
            Ok((held, latest)) if agree(places, &held, latest) => break Ok(Some((held, latest))),
            Ok((held, latest)) => {
                give_back(places, now, &held, call.weight);
                wish.from = latest;
            }
            Err(Refusal::Full(_)) => break Ok(None),
            Err(Refusal::Moved) => break Err(Moved),
        }
    };
    match found {
        Ok(Some((held, start))) => Ok(Some(Waiting::new(
            places.clone(),
            held,
            now,
            start,
            call.weight,
        ))),
        other => {
            places.each(Node::stop_waiting);
            other.map(|_| None)
        }
    }
}

/// Holds tokens in every lane for `wish.from` or the next time at which each
/// has room, and tells the latest of these times.
fn hold(places: &Places, wish: Wish) -> Result<(Vec<(Place, Held)>, Tick), Refusal> {
    let mut all = Vec::new();
    let mut latest = wish.from;
    for lane in places.lanes() {
        match lane.hold(wish) {
            Ok(held) => {
                if let Held::Loan(loan) = held {
                    latest = latest.max(loan.start());
                }
                all.push((lane.place, held));
            }
            Err(refusal) => {
                give_back(places, wish.now, &all, wish.n);
                return Err(refusal);
            }
        }
    }
    Ok((all, latest))
}

/// Whether each lane holds its tokens in the bucket that `start` lies in.
fn agree(places: &Places, held: &[(Place, Held)], start: Tick) -> bool {
    places.lanes().zip(held).all(|(lane, (_, held))| {
        let bucket = match held {
            Held::Loan(loan) => loan.bucket().number(),
            Held::Taken(taken) => taken.bucket,
        };
        lane.ring.bucket_number(start) <= bucket
    })
}

fn give_back(places: &Places, now: Tick, held: &[(Place, Held)], n: u32) {
    for (place, held) in held.iter().rev() {
        places.cancel(*place, now, *held, n);
    }
}
