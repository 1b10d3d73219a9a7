//! The check of shared rules: a call takes permits, or waits for the store.
//!
//! Local permits are taken after all other checks, just before the place and the tokens. If the
//! store must be asked for permits, the local rules are first checked for room, so that nothing is
//! drawn for a call that they refuse. Then the claims of the call are cancelled, the call waits
//! with a ticket at each counter, and is judged again with the granted permits. A call that waits
//! for a turn or for a loan asks when its wait is over: a permit that was drawn earlier would
//! belong to another bucket.
//!
//! A prioritized call that finds no permits also asks for permits of the next bucket. It waits
//! until that bucket begins, and is judged again with the borrowed permits. A call borrows only
//! once, and within the time that a loan may take. If it must then wait for a turn or for a loan of
//! other rules, this second wait must end before the borrowed bucket does.

use std::time::Duration;

use super::attempt::Attempt;
use super::enter::{enter_claimed, wait_or_refuse};
use super::line::wait_for_store;
use super::refusal::{Counted, refuse, refuse_flow};
use crate::base::sync::Arc;
use crate::clock::Tick;
use crate::engine::call::lease::WaitLeases;
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::verdict::Verdict;
use crate::engine::call::waiting::Waiting;
use crate::engine::resource::{HeldLeases, LeaseTargets, Leases, Taking};
use crate::rule::NoShare;
use crate::stat::{Denied, Reloaded};
use crate::store::{LeaseFound, SharedQuota, Validity};

/// Enters a call that has its claims and needs permits of `leases`.
///
/// Nearly always there is a single rule without keys, which has local permits. The call then takes
/// them here, and refunds them if it does not start: a call that waits in line is judged again.
#[inline(never)]
pub(super) fn enter_leased(
    attempt: &mut Attempt<'_>,
    nodes: CallNodes,
    leases: &Leases,
) -> Result<Verdict, Reloaded> {
    let Some((quota, valid)) = take_only_one(attempt, leases) else {
        return enter_with_targets(attempt, nodes, leases);
    };
    attempt.arrived.has_borrowed = false;
    let verdict = enter_claimed(attempt, nodes);
    if !matches!(verdict, Ok(Verdict::Pass(_))) {
        SharedQuota::refund_now(quota, valid, attempt.call.weight);
    }
    verdict
}

/// Takes local permits of the only shared rule. Returns `None` if it has none, or if the call needs
/// the general path.
#[inline]
fn take_only_one<'a>(
    attempt: &Attempt<'_>,
    leases: &'a Leases,
) -> Option<(&'a Arc<SharedQuota>, Validity)> {
    let (quota, call) = (leases.only_one()?, attempt.call);
    if call.weight == 0 || call.flags.prioritized() || call.flags.wants_quota() {
        return None;
    }
    if attempt.arrived.leases.is_some() || attempt.later_turn().is_some() {
        return None;
    }
    match quota.take(attempt.now, call.weight) {
        LeaseFound::Taken(end) => Some((quota, Validity::until(end))),
        _ => None,
    }
}

/// The general path: enters a call that needs permits of several rules or keys, or must ask for
/// them.
#[inline(never)]
fn enter_with_targets(
    attempt: &mut Attempt<'_>,
    nodes: CallNodes,
    leases: &Leases,
) -> Result<Verdict, Reloaded> {
    let (call, now) = (attempt.call, attempt.now);
    let targets = match leases.targets(call, now) {
        Ok(targets) => targets,
        Err(none) => return Ok(refuse_lease(attempt, &nodes, none)),
    };
    let had = attempt
        .arrived
        .leases
        .take()
        .map_or_else(HeldLeases::default, |had| *had);
    attempt.arrived.has_borrowed = had.is_borrowed();
    let latest = latest_start(attempt, &nodes);
    if attempt.later_turn().is_some() {
        note_quota(attempt, &nodes, &targets, true);
        let verdict = enter_claimed(attempt, nodes.clone())?;
        return Ok(keep_for_turn(verdict, targets, had));
    }
    let borrows_by = latest.filter(|_| had.is_empty());
    let held = match targets.take(now, had, borrows_by) {
        Ok(Taking::All(held)) => held,
        Ok(Taking::MustAsk(held, next)) => {
            match nodes.check_room(now, call.weight) {
                Ok(()) => {}
                Err(Denied::Reloaded) => {
                    nodes.release(&attempt.claims);
                    return Err(Reloaded);
                }
                // The local rules have room, or lend tokens, when the next bucket begins.
                Err(Denied::Full(_)) if next.is_some_and(|at| nodes.lets_in_at(call, now, at)) => {}
                Err(Denied::Full(rule)) if next.is_some() || attempt.arrived.has_borrowed => {
                    nodes.release(&attempt.claims);
                    let at = nodes.retry_at_unrelated(call, now, next.unwrap_or(now));
                    return Ok(refuse_flow(Counted::On(&nodes), call, now, rule, at));
                }
                Err(Denied::Full(rule)) => {
                    drop(held);
                    let verdict = wait_or_refuse(attempt, &nodes, rule)?;
                    return Ok(with_targets(verdict, targets));
                }
            }
            match targets.ask(now, held, borrows_by) {
                Ok(Ok(held)) => held,
                Ok(Err(asking)) if call.patience != Some(Duration::ZERO) => {
                    nodes.release(&attempt.claims);
                    let most = call.patience.unwrap_or(Duration::MAX);
                    return Ok(wait_for_store(attempt, nodes, asking, most));
                }
                Ok(Err(asking)) => {
                    let rule = asking.first_rule();
                    let none = NoShare::NoStore { rule };
                    return Ok(refuse_lease(attempt, &nodes, none));
                }
                Err(none) => return Ok(refuse_lease(attempt, &nodes, none)),
            }
        }
        Err(none) => return Ok(refuse_lease(attempt, &nodes, none)),
    };
    note_quota(attempt, &nodes, &targets, false);
    start(attempt, nodes, targets, held, latest)
}

/// Returns the time before which a call that borrows must start; `None` if the call may not borrow.
fn latest_start(attempt: &Attempt<'_>, nodes: &CallNodes) -> Option<Tick> {
    let context = nodes.resource().shared();
    let most = attempt
        .call
        .patience_for_loan(context.config.occupy_timeout);
    let borrows = !most.is_zero() && !context.part.is_shadow();
    borrows.then(|| attempt.arrived.since.unwrap_or(attempt.now) + most)
}

/// Notes the remaining quotas, if the call wants to know them. `takes` means that the call has yet
/// to take its permits.
fn note_quota(attempt: &mut Attempt<'_>, nodes: &CallNodes, targets: &LeaseTargets, takes: bool) {
    if attempt.call.flags.wants_quota() {
        nodes.note_leases(targets, attempt.now, takes, &mut attempt.claims.quotas);
    }
}

/// Starts a call that has its permits. They are spent only if the call passes now.
fn start(
    attempt: &mut Attempt<'_>,
    nodes: CallNodes,
    targets: LeaseTargets,
    mut held: HeldLeases,
    latest: Option<Tick>,
) -> Result<Verdict, Reloaded> {
    let verdict = enter_claimed(attempt, nodes)?;
    match verdict {
        Verdict::Pass(mut entry) => {
            entry.set_leased(held.spend());
            Ok(Verdict::Pass(entry))
        }
        Verdict::Wait(waiting) if held.is_borrowed() && !waiting.is_in_line() => {
            Ok(keep_for_loan(waiting, targets, held, latest))
        }
        _ => Ok(with_targets(verdict, targets)),
    }
}

/// Makes a call use its borrowed permits when its loan of other rules begins. Refuses the call if
/// the loan begins too late.
#[cold]
fn keep_for_loan(
    mut waiting: Waiting,
    targets: LeaseTargets,
    held: HeldLeases,
    latest: Option<Tick>,
) -> Verdict {
    let start = waiting.start();
    let is_late = latest.is_none_or(|latest| start >= latest) || !held.last_until(start);
    match targets.over_by(&held, start) {
        Some(none) if is_late => Verdict::Block(waiting.refuse_lease(none)),
        _ => {
            waiting.wait_for_leases(WaitLeases::held(targets, held));
            Verdict::Wait(waiting)
        }
    }
}

/// Makes a call use its borrowed permits when its turn comes. If they will have expired by then,
/// the call asks again.
fn keep_for_turn(mut verdict: Verdict, targets: LeaseTargets, held: HeldLeases) -> Verdict {
    match &mut verdict {
        Verdict::Wait(waiting) if held.is_borrowed() && held.last_until(waiting.start()) => {
            waiting.wait_for_leases(WaitLeases::held(targets, held));
            verdict
        }
        _ => with_targets(verdict, targets),
    }
}

/// Makes a waiting call take its permits when it starts.
fn with_targets(mut verdict: Verdict, targets: LeaseTargets) -> Verdict {
    if let Verdict::Wait(waiting) = &mut verdict {
        waiting.wait_for_leases(WaitLeases::needed(targets));
    }
    verdict
}

/// Refuses a call that gets no permits.
#[cold]
fn refuse_lease(attempt: &Attempt<'_>, nodes: &CallNodes, mut none: NoShare) -> Verdict {
    let (call, now) = (attempt.call, attempt.now);
    nodes.release(&attempt.claims);
    if let NoShare::Full { available_at, .. } = &mut none {
        // Other rules may have room only later.
        *available_at = available_at.and_then(|at| nodes.retry_at_unrelated(call, now, at));
    }
    let resource = nodes.resource();
    let reserved = resource.reserved_for_ever(&none, call);
    let blocked = resource.blocked_without_lease(none, now);
    let blocked = blocked.with_reserved(reserved);
    refuse(Counted::On(nodes), call, now, blocked)
}
