//! When a refused call would be let in, to run or to wait: for `Retry-After`.
//!
//! It is the earliest time at which all rules on the rate of a call let it in, if no other call
//! comes. Windows, other queues and values keep their room until a call comes. Others do not: a
//! rule that warms up cools down while no call comes, and then may have no room for a call that it
//! had room for; and where a call waits for its turn, a window may lend tokens of that time now,
//! and not a little later. So each part answers not for the first time at which there is room, but
//! for the first one *from* some time on, and again from the latest of these times, until all
//! agree. None says a time after the first that suits all, so it is that one which they find.
//!
//! A call that comes before its turn waits for it, with tokens of that time; one that comes
//! later needs tokens of the time at which it comes, or a loan. How many calls will wait by
//! then is not foreseen: while as many wait as may, it is a time at which the call need not.

use std::time::Duration;

use super::CallNodes;
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::call::ring::own_ring_available_at;
use crate::engine::registry::Registry;
use crate::stat::{Nothing, Reloaded, Visit};

/// How often rules are asked at most for a time that suits all. Most agree in the second
/// round, and where one of them warms up in the third at the latest.
const MOST_ROUNDS: u32 = 64;

const NANOSECOND: Duration = Duration::from_nanos(1);

// === impl CallNodes ===

impl CallNodes {
    /// When `call` is let in, `from` some time on, if no other call comes; `None` if never.
    pub(crate) fn retry_at(
        &self,
        registry: &Registry,
        call: &Call<'_>,
        now: Tick,
        from: Tick,
    ) -> Option<Tick> {
        let related = match self.full_related(registry, now, call.weight) {
            Ok(Some((_, at))) => at,
            // Where a reload comes in between, the time is unknown.
            Ok(None) | Err(Reloaded) => Some(now),
        }?;
        self.retry_at_unrelated(call, now, related.max(from))
    }

    /// When a retry can succeed, leaving out the rules that look at other resources.
    pub(crate) fn retry_at_unrelated(
        &self,
        call: &Call<'_>,
        now: Tick,
        from: Tick,
    ) -> Option<Tick> {
        let from = match self.resource.leases() {
            Some(leases) => leases.room_at(call, now)?.max(from),
            None => from,
        };
        let from = match self.resource.costs() {
            Some(costs) => costs.room_at(call, now)?.max(from),
            None => from,
        };
        let params = self.resource.params();
        let (let_in, of_values) = match params {
            Some(params) => params.turn_at(call, now)?,
            None => (now, now),
        };
        let mut at = from.max(let_in);
        if of_values <= at && !call.flags.prioritized() && self.has_one_ring() {
            // As below, without the iterators.
            return own_ring_available_at(&self.resource, now, call.weight)
                .map(|room| room.max(at));
        }
        for _ in 0..MOST_ROUNDS {
            let (let_in, turn) = self.turn_at(now, at, call.weight)?;
            let next = if let_in > at {
                let_in
            } else {
                self.let_in_at(call, now, at, turn.max(of_values))?
            };
            if next <= at {
                return Some(at);
            }
            at = next;
        }
        // Rather no time than a wrong one.
        None
    }

    /// When every queue lets a call of `weight` in, `from` some time on, and its last turn if
    /// it comes then.
    fn turn_at(&self, now: Tick, from: Tick, weight: u32) -> Option<(Tick, Tick)> {
        if weight == 0 {
            return Some((from, from));
        }
        let (mut latest, mut last) = (from, from);
        for (node, compiled) in self.nodes_with_rules().into_iter().flatten() {
            for queue in compiled.queues() {
                let (at, turn) = queue.turn_at(now, from, weight, node.ring_at(now))?;
                (latest, last) = (latest.max(at), last.max(turn));
            }
        }
        Some((latest, last))
    }

    /// When every window lets `call` in, `at` some time or later, if it has its `turn`: at
    /// once, or to wait for that or for a loan.
    fn let_in_at(&self, call: &Call<'_>, now: Tick, at: Tick, turn: Tick) -> Option<Tick> {
        let may_wait = self.may_wait();
        let for_loan = call.patience_for_loan(self.resource.shared().config.occupy_timeout);
        let for_loan = if may_wait { for_loan } else { Duration::ZERO };
        let until_turn = turn - at;
        if !until_turn.is_zero() {
            if !may_wait {
                return Some(turn);
            }
            if let Some(most) = call.patience.filter(|most| until_turn >= *most) {
                return Some(turn.min(at + (until_turn - most) + NANOSECOND));
            }
        } else if for_loan.is_zero() {
            let mut latest = at;
            for ruled in self.limited_rings(now) {
                latest = latest.max(ruled.available_at(now, at, call.weight)?);
            }
            return Some(latest);
        }
        let visit = Visit {
            at,
            turn: turn.max(at),
            from: turn.max(at),
            for_loan,
            weight: call.weight,
        };
        match self.foresee(now, visit) {
            Ok(()) => Some(at),
            // From its turn on it need not wait for it.
            Err(Nothing { until }) if !until_turn.is_zero() => Some(until?.min(turn)),
            Err(Nothing { until }) => until,
        }
    }

    /// Returns whether every window lets `call` in at `at`, to run or to wait, if no other call
    /// comes.
    pub(crate) fn lets_in_at(&self, call: &Call<'_>, now: Tick, at: Tick) -> bool {
        self.let_in_at(call, now, at, at) == Some(at)
    }

    /// Returns whether all rings let the call of `visit` run or wait at one time.
    fn foresee(&self, now: Tick, mut visit: Visit) -> Result<(), Nothing> {
        loop {
            let latest = self.foresee_once(now, visit);
            match latest {
                Ok(latest) if latest == visit.from => return Ok(()),
                Ok(latest) => visit.from = latest,
                Err(Nothing { until: Some(until) }) if visit.from > visit.turn => {
                    // It was put off by another one, which may agree sooner by then.
                    let mut until = until;
                    for ruled in self.limited_rings(now) {
                        if let Some(room) = ruled.next_room(now, visit) {
                            until = until.min(room);
                        }
                    }
                    return Err(Nothing { until: Some(until) });
                }
                Err(nothing) => return Err(nothing),
            }
        }
    }

    /// The latest of the times that the rings foresee for `visit`.
    fn foresee_once(&self, now: Tick, visit: Visit) -> Result<Tick, Nothing> {
        let mut latest = visit.from;
        for ruled in self.limited_rings(now) {
            latest = latest.max(ruled.foresee(now, visit)?);
        }
        Ok(latest)
    }

    /// Returns whether one more call may wait.
    fn may_wait(&self) -> bool {
        for (node, most) in self.waiting_limits().into_iter().flatten() {
            if node.waiting() >= most {
                return false;
            }
        }
        true
    }
}
