//! Makes a call wait: for its turn in a queue, for tokens of a coming bucket, or for both.

use std::time::Duration;

use super::attempt::Attempt;
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::call::nodes::CallNodes;
use crate::engine::call::ring::Held;
use crate::engine::call::waiting::{Promised, WaitBegun, Waiting};
use crate::stat::{Denied, Node, Reloaded, Wish};

/// Holds tokens on every ring for a call that waits for the last turn among its claims or, if it is
/// prioritized, for a coming bucket. If a ring has no tokens, cancels the claims and returns
/// `None`.
pub(super) fn wait(
    attempt: &mut Attempt<'_>,
    nodes: &CallNodes,
) -> Result<Option<Waiting>, Reloaded> {
    let (call, now, claims) = (attempt.call, attempt.now, &mut attempt.claims);
    let turn = claims.last_turn().map_or(now, |(turn, _)| turn.max(now));
    let held = hold(nodes, call, now, turn);
    let Ok(Some((held, start))) = held else {
        nodes.release(claims);
        return held.map(|_| None);
    };
    let promised = Promised {
        held,
        claims: std::mem::take(claims),
        start,
        patience: call.patience,
        importance: call.flags.importance(),
        for_costs: nodes.resource().costs().map(|_| Box::new(call.into())),
    };
    let begun = WaitBegun {
        again: attempt.engine.again(),
        nodes: nodes.clone(),
        weight: call.weight,
        since: attempt.arrived.since.unwrap_or(now),
        asked: now,
    };
    Ok(Some(Waiting::promised(
        begun,
        promised,
        attempt.arrived.place,
    )))
}

/// Holds tokens for a time at or after `turn`. Counts the call as waiting if it gets them.
fn hold(
    nodes: &CallNodes,
    call: &Call<'_>,
    now: Tick,
    turn: Tick,
) -> Result<Option<Promise>, Reloaded> {
    let patience = patience(nodes, call, turn - now);
    let Some(patience) = patience.filter(|_| nodes.start_waiting()) else {
        return Ok(None);
    };
    let wish = Wish {
        now,
        from: turn,
        patience,
        weight: call.weight,
    };
    let held = hold_for_one_time(nodes, wish);
    if !matches!(held, Ok(Some(_))) {
        nodes.each(Node::stop_waiting);
    }
    held
}

/// Returns the exclusive limit of the call's wait: just beyond `until_turn`, or the time that the
/// call may wait for a loan if that is longer. Returns `None` if the call's own patience ends
/// before its turn.
fn patience(nodes: &CallNodes, call: &Call<'_>, until_turn: Duration) -> Option<Duration> {
    let most = nodes.resource().shared().config.occupy_timeout;
    let for_loan = call.patience_for_loan(most);
    if until_turn.is_zero() {
        return Some(for_loan);
    }
    let is_patient = call.patience.is_none_or(|most| until_turn < most);
    is_patient.then(|| for_loan.max(until_turn + Duration::from_nanos(1)))
}

/// The tokens held on every ring, and the time for which they are held.
type Promise = (Vec<Held>, Tick);

/// Holds tokens on every ring for a common time. Returns `None` if a ring has no tokens. If one
/// ring has room only at a later time, all rings are asked again for that time.
fn hold_for_one_time(nodes: &CallNodes, mut wish: Wish) -> Result<Option<Promise>, Reloaded> {
    loop {
        match hold_on_each(nodes, wish) {
            Ok((held, latest)) if agree(nodes, wish.now, &held, latest) => {
                return Ok(Some((held, latest)));
            }
            Ok((held, latest)) => {
                nodes.cancel(wish.now, &held, wish.weight);
                wish.from = latest;
            }
            Err(Denied::Full(_)) => return Ok(None),
            Err(Denied::Reloaded) => return Err(Reloaded),
        }
    }
}

/// Holds tokens on every ring, for `wish.from` or the next time at which the ring has room. Returns
/// the tokens and the latest of these times.
fn hold_on_each(nodes: &CallNodes, wish: Wish) -> Result<Promise, Denied> {
    // Most calls have one or two rings, and a vector that grows would start with a capacity of
    // four.
    let mut all = Vec::with_capacity(2);
    let mut latest = wish.from;
    for ruled in nodes.limited_rings(wish.now) {
        match ruled.hold(wish) {
            Ok(held) => {
                if let Held::Loan(loan) = held {
                    latest = latest.max(loan.start());
                }
                all.push(held);
            }
            Err(refusal) => {
                nodes.cancel(wish.now, &all, wish.weight);
                return Err(refusal);
            }
        }
    }
    Ok((all, latest))
}

/// Returns whether each ring holds tokens of the bucket that contains `start`, or of a later one.
fn agree(nodes: &CallNodes, now: Tick, held: &[Held], start: Tick) -> bool {
    let mut rings = nodes.limited_rings(now).zip(held);
    rings.all(|(ruled, held)| ruled.ring.bucket_number(start) <= held.bucket())
}
