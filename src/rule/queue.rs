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
    index: u32,
    rule: FlowRule,
    threshold: Threshold,
    /// Shared with the queue that it inherits, for the calls that wait in it.
    throttle: Arc<Throttle>,
}

/// The turns of one call, in the order of its queues: hardly any waits in two.
pub(crate) type Turns = SmallVec<QueuedTurn, 1>;

/// A turn in one of the queues that a call waits in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedTurn {
    /// The rule whose queue it is.
    pub(crate) rule: u32,
    pub(crate) turn: Turn,
}

impl Queue {
    /// The queue of `rule`; a call that waits in `old` keeps its place.
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

    /// The rule whose queue it is.
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    pub(super) const fn rule(&self) -> &FlowRule {
        &self.rule
    }

    /// A turn for a call of `weight`, if there is one soon enough. The rule counts
    /// in `ring`.
    pub(crate) fn join(&self, now: Tick, weight: u32, ring: &LeapArray) -> Option<Turn> {
        let threshold = self.threshold.now(now, self.throttle.last(), ring);
        let cost = cost(weight, threshold, self.rule.interval())?;
        self.throttle.join(now, cost, self.max_wait()).ok()
    }

    /// When a call of `weight` will be let in, `from` some time on, and the turn that it gets
    /// then, if no other call comes; `None` if never. Takes nothing.
    pub(crate) fn turn_at(
        &self,
        now: Tick,
        from: Tick,
        weight: u32,
        ring: &LeapArray,
    ) -> Option<(Tick, Tick)> {
        let last_turn = self.throttle.last();
        // The last threshold that is asked for is the one that holds then.
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

    /// Cancels a turn: it goes to the next call, unless another one stands behind it already.
    pub(crate) fn cancel(&self, turn: Turn) {
        self.throttle.cancel(turn);
    }

    /// How long after it came a call matters to the next one: that one's cost, while
    /// the threshold is at its lowest, after the longest wait. Its weight is taken to
    /// be at most the whole threshold, but at least 1, and its cost as much as any has had.
    pub(super) fn memory(&self) -> Duration {
        let (shaping, whole) = (&self.rule.shaping, self.rule.threshold());
        let lowest = match (&shaping.memory, shaping.warm_up) {
            // Nothing passes at 0.
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
    fn a_call_matters_for_its_cost_at_the_lowest_threshold_and_the_longest_wait() {
        let rule = || FlowRule::per_second("r", 10).throttle(Duration::from_millis(500));
        let cold = rule().warm_up(Duration::from_secs(10)).cold_factor(4.0);
        // The cost of a call of ten tokens.
        for (rule, seconds) in [
            (rule(), 1),
            (cold, 4),
            (rule().memory_bytes(1..2, 5), 2),
            // At 0 nothing passes that could be waited for.
            (rule().memory_bytes(1..2, 0), 1),
        ] {
            let queue = Queue::new(0, &rule, None, None);
            let expected = Duration::from_millis(seconds * 1_000 + 500);
            assert_eq!(queue.memory(), expected, "{rule:?}");
        }
    }

    #[test]
    fn a_call_that_cost_more_and_had_its_turn_matters_for_that_long() {
        let rule = FlowRule::per_second("r", 10).throttle(Duration::from_millis(500));
        let queue = Queue::new(0, &rule, None, None);
        let ring = LeapArray::new(Duration::from_secs(1), 2).unwrap();
        assert!(queue.join(Tick::ZERO, 200, &ring).is_some());
        assert!(queue.join(Tick::ZERO, 300, &ring).is_none());
        assert_eq!(queue.memory(), Duration::from_millis(20_500));
    }
}
