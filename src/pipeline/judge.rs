//! The way of a call that the common path does not let pass.

use std::time::Duration;

use super::at_once::{Detour, checked, take_alone};
use super::guard::guard;
use super::refusal::{Counted, refuse, refuse_flow, refuse_share};
use super::wait::wait;
use crate::block_kind::BlockKind;
use crate::blocked::Blocked;
use crate::breaker::Admission;
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::Engine;
use crate::entry::{Entry, Kept};
use crate::lane::{Lane, NoTokens, room_alone};
use crate::places::{Claims, Moved, NoPlaces, Places};
use crate::resource::{Resource, Way};
use crate::sync::Arc;
use crate::timekeeper::Timekeeper;
use crate::verdict::Verdict;
use crate::watch::watch;

/// Goes on from the common path, without asking anyone twice.
#[inline(never)]
pub(crate) fn detour(
    engine: &Engine,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
    why: Detour,
) -> Result<Verdict, Moved> {
    let now = checked(resource, now);
    match why {
        Detour::MoreToAsk => judge_at(engine, resource, call, now),
        Detour::NoSlot(isolation) => {
            let blocked = resource.blocked_by_isolation(isolation);
            Ok(refuse(Counted::Alone(resource), call, now, blocked))
        }
        Detour::NoShare(none) => {
            let rest = room_alone(resource, now, call.weight);
            Ok(refuse_share(
                Counted::Alone(resource),
                call,
                now,
                none,
                rest,
            ))
        }
        Detour::Denied(denied) => match NoTokens::of(denied, resource.gate().rules()) {
            NoTokens::Moved => Err(Moved),
            NoTokens::Full(rule) => {
                if call.prioritized {
                    let places = Places::alone(resource.clone());
                    return full(&places, call, now, rule, &mut Claims::default());
                }
                let at = room_alone(resource, now, call.weight);
                Ok(refuse_flow(Counted::Alone(resource), call, now, rule, at))
            }
        },
    }
}

/// Judges `call` to `resource` at `now`, with nobody asked before.
pub(crate) fn judge(
    engine: &Engine,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
) -> Result<Verdict, Moved> {
    judge_at(engine, resource, call, checked(resource, now))
}

/// The same at a time that has been [checked].
fn judge_at(
    engine: &Engine,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
) -> Result<Verdict, Moved> {
    let verdict = judge_by_enforced(engine, resource, call, now);
    if !resource.rules().are_watching() {
        return verdict;
    }
    Ok(watch(engine, resource.text(), call, verdict?))
}

fn judge_by_enforced(
    engine: &Engine,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
) -> Result<Verdict, Moved> {
    if let Err(blocked) = guard(resource, call, now) {
        return refuse_anywhere(engine, resource, call, now, blocked);
    }
    let has_slot = match resource.take_slot() {
        Ok(has_slot) => has_slot,
        Err(blocked) => return refuse_anywhere(engine, resource, call, now, blocked),
    };
    let verdict = match resource.way() {
        Way::AtOnce | Way::WithBreakers | Way::Alone => {
            let places = Places::without_branches(resource.clone());
            enter_alone(places, call, now, has_slot)
        }
        Way::WithShare | Way::Full => enter_everywhere(engine, resource, call, now, has_slot),
    };
    if has_slot && !matches!(verdict, Ok(Verdict::Pass(_))) {
        resource.node().free_slots(1);
    }
    verdict
}

/// A refusal before the call's places are known.
#[cold]
fn refuse_anywhere(
    engine: &Engine,
    resource: &Arc<Resource>,
    call: &Call<'_>,
    now: Tick,
    mut blocked: Blocked,
) -> Result<Verdict, Moved> {
    let places = match Places::find(engine, resource, call, now) {
        Ok(places) => places,
        Err(NoPlaces::Moved) => return Err(Moved),
        Err(NoPlaces::Refused(_)) => {
            // It misses a key, and never passes.
            blocked = blocked.with_retry_after(None);
            Places::without_branches(resource.clone())
        }
    };
    if let Some(wait) = blocked.retry_after() {
        // What has not been asked must have room by then as well.
        let at = places.open_at(engine, call, now, now + wait);
        // Their time is that of the resource, which the clock may be behind.
        let seen = resource.node().seen();
        let until = |at| Timekeeper::until(at, now, seen).max(wait);
        blocked = blocked.with_retry_after(at.map(until));
    }
    Ok(refuse(Counted::In(&places), call, now, blocked))
}

/// Takes the tokens of a call on the resource's own ring alone, and starts it: what
/// [`take_and_enter`] does where nothing can be claimed, for a tenth less.
fn enter_alone(
    places: Places,
    call: &Call<'_>,
    now: Tick,
    has_slot: bool,
) -> Result<Verdict, Moved> {
    let resource = places.resource();
    let admission = match resource.admit(now) {
        Ok(admission) => admission,
        Err(blocked) => return Ok(refuse(Counted::In(&places), call, now, blocked)),
    };
    let Err(denied) = take_alone(resource, now, call.weight) else {
        places.pass_inbound(now, call.weight);
        places
            .resource()
            .tell_passed(call.weight, Some(call), Duration::ZERO);
        let kept = admission.map(Kept::from);
        let entry = Entry::new(places, now, call.weight, has_slot, kept);
        return Ok(Verdict::Pass(entry));
    };
    give_back_probe(resource, admission);
    match NoTokens::of(denied, resource.gate().rules()) {
        NoTokens::Moved => Err(Moved),
        NoTokens::Full(rule) => full(&places, call, now, rule, &mut Claims::default()),
    }
}

fn give_back_probe(resource: &Resource, admission: Option<Admission>) {
    if let Some(admission) = admission {
        resource.with_breakers(|breakers, told| breakers.give_back(admission, told));
    }
}

/// Takes the call's tokens in every place, and starts it.
fn enter_everywhere(
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
            let places = Places::without_branches(resource.clone());
            let blocked = resource.blocked(BlockKind::MissingKey, rule);
            return Ok(refuse(Counted::In(&places), call, now, blocked));
        }
    };
    let mut claims = Claims::default();
    if let Some(params) = resource.params() {
        match params.take(call, now, &resource.shared().time) {
            Ok(shares) => claims.shares = shares,
            Err(none) => {
                let open_at = |from| places.open_at(engine, call, now, from);
                let rest = none.room_at().and_then(open_at);
                return Ok(refuse_share(Counted::In(&places), call, now, none, rest));
            }
        }
    }
    match places.full_related(engine, now, call.weight) {
        Ok(None) => {}
        Ok(Some((rule, at))) => {
            places.give_up(&claims);
            let at = at.and_then(|from| places.open_behind_related_at(call, now, from));
            return Ok(refuse_flow(Counted::In(&places), call, now, rule, at));
        }
        Err(moved) => {
            places.give_up(&claims);
            return Err(moved);
        }
    }
    if places.is_paced() {
        match places.line_up(now, call.weight) {
            Ok(turns) => claims.turns = turns,
            Err(rule) => {
                places.give_up(&claims);
                let at = places.open_behind_related_at(call, now, now);
                return Ok(refuse_flow(Counted::In(&places), call, now, rule, at));
            }
        }
    }
    match claims.last_turn().filter(|&(turn, _)| turn > now) {
        None => take_and_enter(places, call, now, has_slot, &mut claims),
        Some((turn, rule)) => wait_for_turn(&places, call, now, &mut claims, turn, rule),
    }
}

/// Takes the call's tokens and starts it. A probe is taken just before, and given
/// back if there are no tokens.
fn take_and_enter(
    places: Places,
    call: &Call<'_>,
    now: Tick,
    has_slot: bool,
    claims: &mut Claims,
) -> Result<Verdict, Moved> {
    let resource = places.resource();
    let admission = match resource.admit(now) {
        Ok(admission) => admission,
        Err(blocked) => {
            places.give_up(claims);
            return Ok(refuse(Counted::In(&places), call, now, blocked));
        }
    };
    let taken = if places.are_one_lane() {
        let taken = take_alone(resource, now, call.weight);
        taken.map_err(|denied| NoTokens::of(denied, resource.gate().rules()))
    } else {
        take(&mut places.lanes(now), now, call.weight)
    };
    let Err(refused) = taken else {
        places.pass_inbound(now, call.weight);
        places
            .resource()
            .tell_passed(call.weight, Some(call), Duration::ZERO);
        let kept = Kept::new(places.resource(), admission, claims);
        let mut entry = Entry::new(places, now, call.weight, has_slot, kept);
        if call.tells_quota {
            entry.note_quota(call);
        }
        return Ok(Verdict::Pass(entry));
    };
    give_back_probe(resource, admission);
    match refused {
        NoTokens::Full(rule) => full(&places, call, now, rule, claims),
        NoTokens::Moved => {
            places.give_up(claims);
            Err(Moved)
        }
    }
}

/// The same for a call whose `turn` in the line of `rule` comes later: its tokens
/// are for that time.
fn wait_for_turn(
    places: &Places,
    call: &Call<'_>,
    now: Tick,
    claims: &mut Claims,
    turn: Tick,
    rule: u32,
) -> Result<Verdict, Moved> {
    if let Some(waiting) = wait(places, call, now, claims)? {
        return Ok(Verdict::Wait(waiting));
    }
    let rule = places.full_rule(now, call.weight).unwrap_or(rule);
    // Until the turn that it could not wait for, the line is taken.
    let at = places.room_at(now, turn, call.weight, Duration::ZERO);
    Ok(refuse_flow(Counted::In(places), call, now, rule, at))
}

/// Takes `n` tokens in every lane, or in none.
fn take(lanes: &mut dyn Iterator<Item = Lane<'_>>, now: Tick, n: u32) -> Result<(), NoTokens> {
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

/// A lane was full: a prioritized call may wait, any other is refused and gives up
/// what it has claimed.
#[cold]
fn full(
    places: &Places,
    call: &Call<'_>,
    now: Tick,
    rule: u32,
    claims: &mut Claims,
) -> Result<Verdict, Moved> {
    if call.prioritized {
        if let Some(waiting) = wait(places, call, now, claims)? {
            return Ok(Verdict::Wait(waiting));
        }
    } else {
        places.give_up(claims);
    }
    let at = places.room_at(now, now, call.weight, Duration::ZERO);
    Ok(refuse_flow(Counted::In(places), call, now, rule, at))
}
