//! A place later: in a line, in a coming bucket, or in both.

use std::time::Duration;

use crate::call::Call;
use crate::clock::Tick;
use crate::lane::{Held, NoTokens};
use crate::places::{Claims, Moved, Places};
use crate::stat::{Node, Wish};
use crate::waiting::Waiting;

/// A place in every lane for a call with `claims`, or in a coming bucket for
/// one that is prioritized; `None` if there is none, and then the claims are given up.
pub(super) fn wait(
    places: &Places,
    call: &Call<'_>,
    now: Tick,
    claims: &mut Claims,
) -> Result<Option<Waiting>, Moved> {
    let turn = claims.last_turn().map_or(now, |(turn, _)| turn);
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
        Ok(Some((held, start))) => {
            let claims = std::mem::take(claims);
            let mut waiting = Waiting::new(places.clone(), held, claims, now, start, call.weight);
            if call.tells_quota {
                waiting.note_quota(call);
            }
            Ok(Some(waiting))
        }
        other => {
            places.give_up(claims);
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
type Promise = (Vec<Held>, Tick);

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
                places.cancel(wish.now, &held, wish.n);
                wish.from = latest;
            }
            Err(NoTokens::Full(_)) => return Ok(None),
            Err(NoTokens::Moved) => return Err(Moved),
        }
    }
}

/// Holds tokens in every lane for `wish.from` or the next time at which each
/// has room, and tells the latest of these times.
fn hold(places: &Places, wish: Wish) -> Result<Promise, NoTokens> {
    let mut all = Vec::new();
    let mut latest = wish.from;
    for lane in places.lanes(wish.now) {
        match lane.hold(wish) {
            Ok(held) => {
                if let Held::Loan(loan) = held {
                    latest = latest.max(loan.start());
                }
                all.push(held);
            }
            Err(refusal) => {
                places.cancel(wish.now, &all, wish.n);
                return Err(refusal);
            }
        }
    }
    Ok((all, latest))
}

/// Whether each lane holds its tokens in the bucket that `start` lies in.
fn agree(places: &Places, now: Tick, held: &[Held], start: Tick) -> bool {
    places.lanes(now).zip(held).all(|(lane, held)| {
        let bucket = match held {
            Held::Loan(loan) => loan.bucket().number(),
            Held::Taken(taken) => taken.bucket,
        };
        lane.ring.bucket_number(start) <= bucket
    })
}
