//! The queue of a rule whose calls pass one after the other.

use std::cell::Cell;
use std::time::Duration;

use super::FlowRule;
use super::threshold::Threshold;
use crate::base::small_vec::SmallVec;
use crate::base::sync::{Arc, shared_size};
use crate::clock::Tick;
use crate::shape::{Throttle, Turn, cost};
use crate::stat::LeapArray;
use crate::system::Sampler;

/// A rule whose calls wait in a queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The index of the rule in the set.
    index: u32,
    rule: FlowRule,
    threshold: Threshold,
    /// The turns. Kept over reloads: the new queue shares them, as calls wait for their turns.
    throttle: Arc<Throttle>,
}

/// The turns of one call, in the order of its queues. Few calls wait in more than one queue.
pub(crate) type Turns = SmallVec<QueuedTurn, 1>;

/// A turn in one of the queues that a call waits in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedTurn {
    /// The index of the rule that has the queue.
    pub(crate) rule: u32,
    pub(crate) turn: Turn,
}

impl Queue {
    /// Creates the queue of `rule`. Calls that wait in `old` keep their turns.
    pub(super) fn new(
        index: u32,
        rule: &FlowRule,
        old: Option<&Self>,
        sampler: Option<&Sampler>,
    ) -> Self {
        Self {
            index,
            threshold: Threshold::new(rule, old.map(|old| &old.threshold), sampler),
            throttle: old.map_or_else(|| Arc::new(Throttle::new()), |old| old.throttle.clone()),
            rule: rule.clone(),
        }
    }

    /// The index of the rule that has the queue.
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    pub(super) const fn rule(&self) -> &FlowRule {
        &self.rule
    }

    /// Takes a turn for a call of `weight`, if the call need not wait for it longer than the rule
    /// allows. `ring` is the ring in which the rule's calls are counted.
    pub(crate) fn join(&self, now: Tick, weight: u32, ring: &LeapArray) -> Option<Turn> {
        let threshold = self.threshold.now(now, self.throttle.last(), ring);
        let cost = cost(weight, threshold, self.rule.interval())?;
        self.throttle.join(now, cost, self.max_wait()).ok()
    }

    /// Returns when a call of `weight` will be admitted, at `from` or later, and the turn that it
    /// then gets, if no other call comes; `None` if never. Takes nothing.
    pub(crate) fn turn_at(
        &self,
        now: Tick,
        from: Tick,
        weight: u32,
        ring: &LeapArray,
    ) -> Option<(Tick, Tick)> {
        let last_turn = self.throttle.last();
        // The closure is called with each threshold in turn; the last threshold is in force at the
        // returned time.
        let turn = Cell::new(from);
        let available_at = |threshold| {
            let cost = cost(weight, threshold, self.rule.interval())?;
            turn.set(self.throttle.available_at(now, cost, Duration::ZERO)?);
            self.throttle.available_at(now, cost, self.max_wait())
        };
        let at = self
            .threshold
            .available_at(now, from, last_turn, ring, &available_at)?;
        let at = at.max(from);
        Some((at, turn.get().max(at)))
    }

    fn max_wait(&self) -> Duration {
        self.rule.shaping.max_wait.unwrap_or_default()
    }

    /// Cancels a turn. The next call gets it, unless another call is already queued behind it.
    pub(crate) fn cancel(&self, turn: Turn) {
        self.throttle.cancel(turn);
    }

    /// How long after its arrival a call can still delay the next call: the longest wait, plus the
    /// cost of the next call at the lowest threshold. The next call is assumed to weigh the whole
    /// threshold, at least 1, and to cost no less than the most expensive call so far.
    pub(super) fn memory(&self) -> Duration {
        let (shaping, whole) = (&self.rule.shaping, self.rule.threshold());
        let lowest = match (&shaping.memory, shaping.warm_up) {
            // A threshold of 0 is left out: no call passes at it.
            (Some(memory), _) if memory.threshold > 0.0 => memory.threshold,
            (_, Some(_)) => whole / shaping.cold_factor(),
            _ => whole,
        };
        let heaviest = whole.max(1.0).ceil() as u32;
        let cost = cost(heaviest, lowest, self.rule.interval()).unwrap_or_default();
        let cost = Duration::from_nanos(cost).max(self.throttle.heaviest());
        cost.saturating_add(shaping.max_wait.unwrap_or_default())
    }

    /// Bytes that the queue occupies, heap included.
    pub(crate) fn footprint(&self) -> usize {
        let queue = size_of::<Self>() + shared_size::<Throttle>();
        queue + self.rule.heap() + self.threshold.heap()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_cost_at_the_lowest_threshold_plus_the_longest_wait() {
        let rule = || FlowRule::per_second("r", 10).throttle(Duration::from_millis(500));
        let cold = rule().warm_up(Duration::from_secs(10)).cold_factor(4.0);
        // `seconds` is the cost of a call of ten tokens at the lowest threshold.
        for (rule, seconds) in [
            (rule(), 1),
            (cold, 4),
            (rule().memory_bytes(1..2, 5), 2),
            // At 0 no call passes, so the whole threshold counts.
            (rule().memory_bytes(1..2, 0), 1),
        ] {
            let queue = Queue::new(0, &rule, None, None);
            let expected = Duration::from_millis(seconds * 1_000 + 500);
            assert_eq!(queue.memory(), expected, "{rule:?}");
        }
    }

    #[test]
    fn a_last_turn_in_the_future_extends_the_memory() {
        let rule = FlowRule::per_second("r", 10).throttle(Duration::from_millis(500));
        let queue = Queue::new(0, &rule, None, None);
        let ring = LeapArray::new(Duration::from_secs(1), 2).unwrap();
        assert!(queue.join(Tick::ZERO, 200, &ring).is_some());
        assert!(queue.join(Tick::ZERO, 300, &ring).is_none());
        assert_eq!(queue.memory(), Duration::from_millis(20_500));
    }
}
