//! How a call is judged, from top to bottom.
//!
//! ```text
//! authority   who may call at all
//! system      what all inbound calls together may ask of the machine
//! breakers    whether the resource answers well
//! isolation   a concurrency slot of the resource, fixed or found by itself; held
//!             until the call ends
//! flow        rules that look at another resource; then one lane after the
//!             other, narrow to wide: rules of the origin, of the context, of the
//!             resource; what was taken is given back when a later one refuses
//! line        a turn in each line; tokens are then taken for the time of it
//! probe       of circuit breakers that are open and due
//! loan        a prioritized call that found a lane full: the same lanes once
//!             more, each for the bucket in which the call can run
//! ```
//!
//! The order is the semantics, so it is written down here and nowhere else:
//! cheap checks first, and nothing waits before everyone who may refuse has
//! spoken. A call waits once, until the latest of its places.

use std::time::Duration;

use crate::blocked::{BlockKind, Blocked};
use crate::call::{Call, Direction};
use crate::clock::Tick;
use crate::engine::Engine;
use crate::entry::{Entry, Verdict, Waiting, admit, blocked_by_breaker, blocked_by_isolation};
use crate::hook::{BlockEvent, PassEvent};
use crate::places::{Held, Lane, Moved, NoPlaces, Place, Places, Refusal};
use crate::resource::Resource;
use crate::rule::Standing;
use crate::stat::{Node, Wish};
use crate::sync::Arc;
use crate::system::{self, Estimate, InboundFigures, Readings};
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
    let places = Places::alone(resource.clone());
    tell_passed(&places, call);
    Some(Entry::new(places, now, n, isolation.is_some(), None))
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
    if let Some((kind, rule)) = refused_at_once(resource, call, now) {
        let rule = resource.rules().id(rule);
        let blocked = Blocked::new(kind, resource.text().clone(), rule);
        return refuse_anywhere(engine, resource, call, now, blocked);
    }
    if let Some(circuit) = resource.circuit() {
        // Nobody takes a probe before all rules have spoken.
        if let Err(refusal) = circuit.breakers.check(now) {
            let blocked = blocked_by_breaker(resource, circuit, refusal, now);
            return refuse_anywhere(engine, resource, call, now, blocked);
        }
    }
    let isolation = resource.isolation();
    if let Some(isolation) = isolation {
        if !resource.node().use_slots(1, isolation.limit) {
            let blocked = blocked_by_isolation(resource, isolation.rule, isolation.limit);
            return refuse_anywhere(engine, resource, call, now, blocked);
        }
    }
    let verdict = pass(engine, resource, call, now, isolation.is_some());
    if isolation.is_some() && !matches!(verdict, Ok(Verdict::Pass(_))) {
        resource.node().free_slots(1);
    }
    verdict
}

/// The rule that refuses the call for what is known already: who calls, and how
/// the machine and all inbound calls are.
fn refused_at_once(resource: &Resource, call: &Call<'_>, now: Tick) -> Option<(BlockKind, u32)> {
    let authorities = resource.authorities();
    let refusing = authorities.and_then(|lists| lists.refusing(call.origin.as_ref()));
    if let Some(rule) = refusing {
        return Some((BlockKind::Authority, rule));
    }
    let (shared, limits) = (resource.shared(), resource.rules().limits());
    let inbound = shared.inbound.get().filter(|_| !limits.is_empty())?;
    if resource.direction() != Direction::Inbound {
        return None;
    }
    let readings = match &shared.sampler {
        Some(sampler) if limits.asks_machine() => sampler.sample(now),
        _ => Readings::UNKNOWN,
    };
    let estimate = if limits.is_load_reached(readings) {
        limits.capacity.estimate(inbound, now)
    } else {
        Estimate::INITIAL
    };
    let figures = InboundFigures::of(inbound, now, estimate);
    let reason = system::judge(limits, &figures, readings, call.weight).err()?;
    Some((BlockKind::System, limits.rule(reason)?))
}

/// A refusal before the call's places are known.
fn refuse_anywhere(
    engine: &Engine,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
    blocked: Blocked,
) -> Result<Verdict, Moved> {
    let places = match Places::find(engine, resource, call, now) {
        Ok(places) => places,
        Err(NoPlaces::Moved) => return Err(Moved),
        Err(NoPlaces::Refused(_)) => Places::only(resource.clone()),
    };
    Ok(refuse(&places, call, now, blocked))
}

/// Whether the resource's own ring is all that judges and counts the call.
#[inline]
fn is_plain(resource: &Resource, call: &Call<'_>) -> bool {
    let shared = resource.shared();
    resource.is_plain()
        && !(shared.origins && call.origin.is_some())
        && !(shared.contexts && call.context.is_some())
        && shared.inbound.get().is_none()
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
    if places.is_paced() {
        return pace(places, call, now, has_slot);
    }
    take_and_enter(places, call, now, has_slot, Vec::new())
}

/// Takes the call's tokens and starts it. A probe is taken just before, and given
/// back if there are no tokens.
fn take_and_enter(
    places: Places,
    call: &Call<'_>,
    now: Tick,
    has_slot: bool,
    turns: Vec<Standing>,
) -> Result<Verdict, Moved> {
    let resource = places.resource();
    let admission = match admit(resource, now) {
        Ok(admission) => admission,
        Err(blocked) => {
            turns.iter().for_each(Standing::leave);
            return Ok(refuse(&places, call, now, blocked));
        }
    };
    let taken = take(&mut places.lanes(now), now, call.weight);
    let Err(refused) = taken else {
        tell_passed(&places, call);
        let entry = Entry::new(places, now, call.weight, has_slot, admission);
        return Ok(Verdict::Pass(entry));
    };
    if let (Some(admission), Some(circuit)) = (admission, resource.circuit()) {
        let mut told = |change| resource.tell_breaker(circuit, change);
        circuit.breakers.give_back(admission, &mut told);
    }
    match refused {
        Refusal::Full(rule) => full(&places, call, now, rule, turns),
        Refusal::Moved => {
            turns.iter().for_each(Standing::leave);
            Err(Moved)
        }
    }
}

/// The same where calls stand in a line: the call gets its turn first, and then
/// its tokens for the time of that turn.
fn pace(places: Places, call: &Call<'_>, now: Tick, has_slot: bool) -> Result<Verdict, Moved> {
    let turns = match places.line_up(now, call.weight) {
        Ok(turns) => turns,
        Err((rule, at)) => return Ok(refuse_flow(&places, call, now, rule, at)),
    };
    if turns.iter().all(|turn| turn.start() <= now) {
        return take_and_enter(places, call, now, has_slot, turns);
    }
    let rule = turns.first().map_or(0, Standing::rule);
    match wait(&places, call, now, turns)? {
        Some(waiting) => Ok(Verdict::Wait(waiting)),
        None => {
            let rule = places.full_rule(now, call.weight).unwrap_or(rule);
            let at = places.room_at(now, call.weight);
            Ok(refuse_flow(&places, call, now, rule, at))
        }
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

/// A lane was full: a prioritized call may wait, any other is refused and leaves
/// the lines in which it has `turns`.
#[cold]
fn full(
    places: &Places,
    call: &Call<'_>,
    now: Tick,
    rule: u32,
    turns: Vec<Standing>,
) -> Result<Verdict, Moved> {
    if call.prioritized {
        if let Some(waiting) = wait(places, call, now, turns)? {
            return Ok(Verdict::Wait(waiting));
        }
    } else {
        turns.iter().for_each(Standing::leave);
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

// === waiting ===

/// A place in every lane for a call that has `turns`, or in a coming bucket for
/// one that is prioritized; `None` if there is none, and then the turns are left.
fn wait(
    places: &Places,
    call: &Call<'_>,
    now: Tick,
    turns: Vec<Standing>,
) -> Result<Option<Waiting>, Moved> {
    let turn = turns.iter().map(Standing::start).max().unwrap_or(now);
    let found = match patience(places, call, now, turn) {
        Some(patience) if places.start_waiting() => {
            let wish = Wish {
                now,
                from: turn.max(now),
                patience,
                n: call.weight,
            };
            let found = hold_alike(places, wish);
            if !matches!(found, Ok(Some(_))) {
                places.each(Node::stop_waiting);
            }
            found
        }
        _ => Ok(None),
    };
    match found {
        Ok(Some((held, start))) => Ok(Some(Waiting::new(
            places.clone(),
            held,
            turns,
            now,
            start,
            call.weight,
        ))),
        other => {
            turns.iter().for_each(Standing::leave);
            other.map(|_| None)
        }
    }
}

/// How long the call may wait, exclusive: for its turn, and for a loan if it is
/// prioritized. `None` if its own patience ends before its turn.
fn patience(places: &Places, call: &Call<'_>, now: Tick, turn: Tick) -> Option<Duration> {
    let until_turn = turn - now;
    if call.patience.is_some_and(|most| until_turn >= most) && turn > now {
        return None;
    }
    let most = places.resource().shared().patience;
    let for_loan = match call.patience {
        _ if !call.prioritized => Duration::ZERO,
        Some(patience) => patience.min(most),
        None => most,
    };
    let for_turn = if turn > now {
        until_turn + Duration::from_nanos(1)
    } else {
        Duration::ZERO
    };
    Some(for_loan.max(for_turn))
}

/// Tokens in every lane, and the time that they are for.
type Promise = (Vec<(Place, Held)>, Tick);

/// Tokens in every lane for one and the same time, and that time; `None` if some
/// lane has none. A round may find that one lane has room only later than
/// others; then all are asked again for that later time.
fn hold_alike(places: &Places, mut wish: Wish) -> Result<Option<Promise>, Moved> {
    loop {
        match hold(places, wish) {
            Ok((held, latest)) if agree(places, wish.now, &held, latest) => {
                return Ok(Some((held, latest)));
            }
            Ok((held, latest)) => {
                give_back(places, wish.now, &held, wish.n);
                wish.from = latest;
            }
            Err(Refusal::Full(_)) => return Ok(None),
            Err(Refusal::Moved) => return Err(Moved),
        }
    }
}

/// Holds tokens in every lane for `wish.from` or the next time at which each
/// has room, and tells the latest of these times.
fn hold(places: &Places, wish: Wish) -> Result<(Vec<(Place, Held)>, Tick), Refusal> {
    let mut all = Vec::new();
    let mut latest = wish.from;
    for lane in places.lanes(wish.now) {
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
fn agree(places: &Places, now: Tick, held: &[(Place, Held)], start: Tick) -> bool {
    places.lanes(now).zip(held).all(|(lane, (_, held))| {
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
