//! What keeps a rule's calls apart: a line, a warm-up, or both.

use std::time::Duration;

use super::FlowRule;
use crate::clock::Tick;
use crate::shape::{Throttle, Turn, WarmUp, cost};
use crate::stat::LeapArray;
use crate::sync::Arc;

/// A rule whose calls stand in a line.
#[derive(Debug)]
pub(crate) struct Line {
    rule: u32,
    threshold: f64,
    interval: Duration,
    max_wait: Duration,
    throttle: Arc<Throttle>,
    warm: Option<Arc<WarmUp>>,
}

/// A place in a line, and which line that is.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    rule: u32,
    throttle: Arc<Throttle>,
    turn: Turn,
}

/// There is no place in the line of this rule, and when there will be one.
pub(crate) type NoTurn = (u32, Option<Tick>);

impl Line {
    /// The line of `rule`; whoever stands in `old` keeps the place.
    pub(crate) fn new(
        index: u32,
        rule: &FlowRule,
        max_wait: Duration,
        warm: Option<Arc<WarmUp>>,
        old: Option<&Self>,
    ) -> Self {
        Self {
            rule: index,
            threshold: rule.threshold(),
            interval: rule.interval(),
            max_wait,
            throttle: old.map_or_else(|| Arc::new(Throttle::new()), |old| old.throttle.clone()),
            warm,
        }
    }

    /// A turn for a call of weight `n`; `None` for a call that needs none. The
    /// rule counts in `ring`.
    pub(crate) fn join(
        &self,
        now: Tick,
        n: u32,
        ring: &LeapArray,
    ) -> Result<Option<Standing>, NoTurn> {
        if n == 0 {
            return Ok(None);
        }
        let threshold = match &self.warm {
            Some(warm) => limit(warm, now, ring),
            None => self.threshold,
        };
        let Some(cost) = cost(n, threshold, self.interval) else {
            return Err((self.rule, None));
        };
        match self.throttle.join(now, cost, self.max_wait) {
            Ok(turn) => Ok(Some(Standing {
                rule: self.rule,
                throttle: self.throttle.clone(),
                turn,
            })),
            Err(at) => Err((self.rule, Some(at))),
        }
    }

    pub(super) fn warm(&self) -> Option<&WarmUp> {
        self.warm.as_deref()
    }

    /// Bytes that the line occupies, heap included.
    pub(crate) const fn footprint(&self) -> usize {
        size_of::<Self>() + size_of::<Throttle>() + 2 * size_of::<usize>()
    }
}

impl Standing {
    /// The rule whose line it is.
    pub(crate) const fn rule(&self) -> u32 {
        self.rule
    }

    /// When the call may start.
    pub(crate) fn start(&self) -> Tick {
        self.turn.start()
    }

    /// Gives the turn up: it goes to the next call, unless somebody stands
    /// behind it already.
    pub(crate) fn leave(&self) {
        self.throttle.leave(self.turn);
    }
}

/// The warm-up of `rule`, if it has one, going on from `old`.
pub(super) fn warm_up(rule: &FlowRule, old: Option<&WarmUp>) -> Option<Arc<WarmUp>> {
    let shaping = rule.shaping();
    let (threshold, interval) = (rule.threshold(), rule.interval());
    let warm = WarmUp::new(threshold, interval, shaping.warm_up?, shaping.cold_factor());
    if let Some(old) = old {
        warm.take_over(old);
    }
    Some(Arc::new(warm))
}

/// The threshold that holds now for a rule that counts in `ring`.
pub(super) fn limit(warm: &WarmUp, now: Tick, ring: &LeapArray) -> f64 {
    warm.limit(now, || {
        // What passed before the present second: calls that have their turn in it
        // are in the ring already.
        let second = now.as_nanos() - now.as_nanos() % 1_000_000_000;
        let start = ring.bucket_number(Tick::from_nanos(second));
        let reading = ring.read(now);
        reading.cut(start).unwrap_or(reading.taken).into()
    })
}
