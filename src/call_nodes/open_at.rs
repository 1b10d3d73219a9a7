//! When all that judges the rate of a call has room for it: for `Retry-After`.
//!
//! Windows, other queues and values keep room that they have until somebody comes. A rule
//! that warms up does not: while nobody comes it cools down, and then may have none for
//! a call that it had room for. So rules are not asked for the first time at which they
//! have room, but for the first one *from* some time on, and again for the latest of
//! these times, until they agree. None says a time after the first that suits all, so
//! it is that one which they find.

use std::time::Duration;

use super::{CallNodes, Reloaded};
use crate::call::Call;
use crate::clock::Tick;
use crate::engine::Engine;
use crate::ruled_ring::own_ring_room_at;

/// How often rules are asked at most for a time that suits all. Where one of them
/// warms up they agree in the third round at the latest.
const MOST_ROUNDS: u32 = 64;

// === impl CallNodes ===

impl CallNodes {
    /// When all that judges the rate of `call` has room for it, `from` some time on, if
    /// nobody else comes; `None` if something never has.
    pub(crate) fn open_at(
        &self,
        engine: &Engine,
        call: &Call<'_>,
        now: Tick,
        from: Tick,
    ) -> Option<Tick> {
        let related = match self.full_related(engine, now, call.weight) {
            Ok(Some((_, at))) => at,
            // Where a reload comes in between, nobody knows.
            Ok(None) | Err(Reloaded) => Some(now),
        }?;
        self.open_at_unrelated(call, now, related.max(from))
    }

    /// The same without the rules that look at other resources.
    pub(crate) fn open_at_unrelated(&self, call: &Call<'_>, now: Tick, from: Tick) -> Option<Tick> {
        let longest = self.longest_wait(call, now);
        let params = self.resource.params();
        let params = params.map_or(Some(now), |params| params.room_at(call, now, longest))?;
        self.room_at(now, params.max(from), call.weight, longest)
    }

    /// How long `call` can wait in a queue, whatever that lets it.
    fn longest_wait(&self, call: &Call<'_>, now: Tick) -> Duration {
        if self.waiting_limits().any(|(_, most)| most == 0) {
            return Duration::ZERO;
        }
        let least = call.patience.unwrap_or(Duration::MAX);
        let least = least.saturating_sub(Duration::from_nanos(1));
        let longest = self.ruled_rings(now).map(|ruled| ruled.longest_wait());
        longest.fold(least, Duration::min)
    }

    /// When every queue and window has room for `n` tokens, `from` some time on, if nobody
    /// else takes any, for a call that can wait in a queue for `longest` at most; `None`
    /// if one never has.
    pub(crate) fn room_at(
        &self,
        now: Tick,
        mut from: Tick,
        n: u32,
        longest: Duration,
    ) -> Option<Tick> {
        if self.has_one_ring() {
            // The same as below, without the iterators.
            return own_ring_room_at(&self.resource, now, n).map(|at| at.max(from));
        }
        for _ in 0..MOST_ROUNDS {
            let queues = self.queues().try_fold(from, |latest, (node, queue)| {
                Some(latest.max(queue.room_at(now, latest, n, longest, node.ring_at(now))?))
            })?;
            let at = self.ruled_rings(now).try_fold(queues, |latest, ruled| {
                Some(latest.max(ruled.room_at(now, latest, n)?))
            })?;
            if at == from || !self.warm_up() {
                return Some(at);
            }
            from = at;
        }
        // Rather no time than a wrong one.
        None
    }

    /// Whether a rule warms up.
    fn warm_up(&self) -> bool {
        self.gates().any(|(_, gate)| gate.warms_up())
    }
}
