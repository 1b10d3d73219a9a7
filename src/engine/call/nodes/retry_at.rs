//! Computes the time at which a refused call would be let in, to run or to wait, for `Retry-After`.
//!
//! This is the earliest time at which all rules on the rate of a call let the call in, if no other
//! call arrives. Windows, values, and queues without a warm-up keep their room until a call
//! arrives. Two parts can lose their room again. A rule with a warm-up cools down while no call
//! arrives, and can then lack room that it had before. And if a call waits for its turn, a window
//! may lend it tokens of its turn's time now, but not a little later.
//!
//! So each part is asked for the first time with room *from* a given time on, and all parts are
//! asked again from the latest of their answers, until they agree. No part skips a time at which
//! all parts have room, so the earliest such time is found.
//!
//! A call that arrives before its turn waits for it, with tokens of the time of the turn. A call
//! that arrives later needs tokens of its arrival time, or a loan. The number of calls that will be
//! waiting is not predicted. If no further call may wait now, the result is a time at which the
//! call need not wait.

use std::time::Duration;

use super::CallNodes;
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::call::ring::own_ring_available_at;
use crate::engine::registry::Registry;
use crate::stat::{Nothing, Reloaded, Visit};

/// The maximum number of rounds in which rules are asked for a time at which all have room. They
/// agree in the second round, or in the third if a rule has a warm-up. The limit only guards
/// against an endless loop.
const MOST_ROUNDS: u32 = 64;

/// The smallest step of time. A wait must be shorter than the call's patience by at least this
/// step.
const NANOSECOND: Duration = Duration::from_nanos(1);

// === impl CallNodes ===

impl CallNodes {
    /// Returns the time, not before `from`, at which `call` is let in if no other call arrives;
    /// `None` if never.
    pub(crate) fn retry_at(
        &self,
        registry: &Registry,
        call: &Call<'_>,
        now: Tick,
        from: Tick,
    ) -> Option<Tick> {
        let related = match self.full_related(registry, now, call.weight) {
            Ok(Some((_, at))) => at,
            // After a reload, the time of related resources is unknown.
            Ok(None) | Err(Reloaded) => Some(now),
        }?;
        self.retry_at_unrelated(call, now, related.max(from))
    }

    /// Does the work of [`retry_at`](Self::retry_at) without the rules on related resources.
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
            // A faster equivalent of the loop below, for a single ring.
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
        // Without agreement, returning no time is better than returning a wrong time.
        None
    }

    /// Returns the time, not before `from`, at which every queue lets a call of `weight` in, and
    /// the last turn of a call that arrives at that time.
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

    /// Returns the time at which every window lets in a `call` that arrives at `at` or later and
    /// has its last turn at `turn`. The call is let in to run at once, or to wait for the turn or
    /// for a loan.
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
            // A call that arrives at its turn need not wait.
            Err(Nothing { until }) if !until_turn.is_zero() => Some(until?.min(turn)),
            Err(Nothing { until }) => until,
        }
    }

    /// Returns whether every window lets `call` in at `at`, to run or to wait, if no other call
    /// arrives.
    pub(crate) fn lets_in_at(&self, call: &Call<'_>, now: Tick, at: Tick) -> bool {
        self.let_in_at(call, now, at, at) == Some(at)
    }

    /// Predicts whether all rings let the call of `visit` run, or wait for one common time.
    fn foresee(&self, now: Tick, mut visit: Visit) -> Result<(), Nothing> {
        loop {
            let latest = self.foresee_once(now, visit);
            match latest {
                Ok(latest) if latest == visit.from => return Ok(()),
                Ok(latest) => visit.from = latest,
                Err(Nothing { until: Some(until) }) if visit.from > visit.turn => {
                    // Another ring has postponed the start of the call. For a later visit, that
                    // ring may have room sooner.
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

    /// Returns the latest of the times that the rings predict for `visit`.
    fn foresee_once(&self, now: Tick, visit: Visit) -> Result<Tick, Nothing> {
        let mut latest = visit.from;
        for ruled in self.limited_rings(now) {
            latest = latest.max(ruled.foresee(now, visit)?);
        }
        Ok(latest)
    }

    /// Returns whether every node allows one more waiting call.
    fn may_wait(&self) -> bool {
        for (node, most) in self.waiting_limits().into_iter().flatten() {
            if node.waiting() >= most {
                return false;
            }
        }
        true
    }
}
