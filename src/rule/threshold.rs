//! The threshold of a rule, which can change with time.

use std::time::Duration;

use super::FlowRule;
use super::shaping::Marks;
use crate::base::sync::{Arc, shared_size};
use crate::clock::Tick;
use crate::shape::{MemoryCurve, WarmUp};
use crate::stat::LeapArray;
use crate::system::Sampler;

const SECOND_NS: u64 = 1_000_000_000;

/// How many tokens can pass in an interval.
#[derive(Debug)]
pub(super) enum Threshold {
    /// Constant.
    Fixed(f64),
    /// Rises under load. Shared with the previous rule if its state was inherited.
    Warm(Arc<WarmUp>),
    /// Falls as memory runs out.
    Memory(Box<FallingThreshold>),
}

/// A threshold that falls with memory in use.
#[derive(Debug)]
pub(super) struct FallingThreshold {
    curve: MemoryCurve,
    /// Whether the marks are bytes instead of fractions of the memory that the process may use.
    in_bytes: bool,
    /// Reads the memory in use; `None` if it is unknown.
    sampler: Option<Sampler>,
}

/// A rate as response headers advertise it: the whole tokens in an interval or, if that is less
/// than one, one token in the time that it takes.
pub(super) fn whole_rate(threshold: f64, interval: Duration) -> (u32, Duration) {
    if threshold > 0.0 && threshold < 1.0 {
        let time = Duration::try_from_secs_f64(interval.as_secs_f64() / threshold);
        (1, time.unwrap_or(Duration::MAX))
    } else {
        (threshold as u32, interval)
    }
}

impl Threshold {
    /// Bytes that the threshold occupies on the heap.
    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Fixed(_) => 0,
            Self::Warm(_) => shared_size::<WarmUp>(),
            Self::Memory(_) => size_of::<FallingThreshold>(),
        }
    }

    /// Creates the threshold of `rule`, which inherits the state of `old`.
    pub(super) fn new(rule: &FlowRule, old: Option<&Self>, sampler: Option<&Sampler>) -> Self {
        let shaping = &rule.shaping;
        if let Some(period) = shaping.warm_up {
            let (threshold, interval) = (rule.threshold(), rule.interval());
            let warm = WarmUp::new(threshold, interval, period, shaping.cold_factor());
            return Self::Warm(match old {
                Some(Self::Warm(old)) => warm.inheriting(old),
                _ => Arc::new(warm),
            });
        }
        let Some(memory) = &shaping.memory else {
            return Self::Fixed(rule.threshold());
        };
        let (in_bytes, marks) = match memory.marks {
            Marks::Shares(from, to) => (false, [from, to]),
            // A mark is rounded to 53 bits.
            Marks::Bytes(from, to) => (true, [from as f64, to as f64]),
        };
        let thresholds = [rule.threshold(), memory.threshold];
        Self::Memory(Box::new(FallingThreshold {
            curve: MemoryCurve { thresholds, marks },
            in_bytes,
            sampler: sampler.cloned(),
        }))
    }

    /// Returns the present threshold of a rule that counts in `ring`. If the rule has a queue, the
    /// last turn in it is at `last_turn`.
    pub(super) fn now(&self, now: Tick, last_turn: Option<Tick>, ring: &LeapArray) -> f64 {
        match self {
            Self::Fixed(threshold) => *threshold,
            Self::Warm(warm) => warm.limit(now, last_turn, || passed_before(ring, now, now)),
            Self::Memory(memory) => {
                let read = memory
                    .sampler
                    .as_ref()
                    .and_then(|all| all.sample_memory(now));
                let used = read.map(|read| {
                    if memory.in_bytes {
                        read.used() as f64
                    } else {
                        read.share()
                    }
                });
                memory.curve.threshold(used)
            }
        }
    }

    /// Returns when a call could pass, at `from` or later, if no other call comes; `None` if never.
    /// `room` returns this time for a given constant threshold. The memory in use is assumed not
    /// to change.
    pub(super) fn available_at(
        &self,
        now: Tick,
        from: Tick,
        last_turn: Option<Tick>,
        ring: &LeapArray,
        room: &dyn Fn(f64) -> Option<Tick>,
    ) -> Option<Tick> {
        match self {
            Self::Warm(warm) => {
                let complete = complete_from(ring, now);
                let passed = |at| passed_before(ring, now, at);
                warm.refill(now, last_turn, || passed(now));
                warm.available_at(from, last_turn, complete, &passed, room)
            }
            Self::Fixed(_) | Self::Memory(_) => room(self.now(now, last_turn, ring)),
        }
    }

    /// Returns a value of this threshold in whole tokens, which is what a window counts.
    pub(super) fn whole_tokens(&self, threshold: f64) -> u32 {
        match self {
            Self::Warm(warm) => warm.whole(threshold),
            Self::Fixed(_) => threshold as u32,
            // The factor makes up for rounding errors, which can leave a value just below a whole
            // number.
            Self::Memory(_) => (threshold * (1.0 + 4.0 * f64::EPSILON)) as u32,
        }
    }
}

/// How many tokens passed in `ring` from its creation until the second of `at` begins, as counted
/// at `now`. (Calls whose turn is in that second are in the ring already.)
fn passed_before(ring: &LeapArray, now: Tick, at: Tick) -> u64 {
    let second = at.as_nanos() - at.as_nanos() % SECOND_NS;
    let start = ring.bucket_number(Tick::from_nanos(second));
    ring.read(ring.bucket_number(now), |reading| {
        if reading.reaches(start) {
            reading.cut(start).into()
        } else {
            reading.taken().into()
        }
    })
}

/// The time from which on [`passed_before`] returns all tokens that passed in `ring` by `now`: the
/// first second that does not begin in the present bucket.
fn complete_from(ring: &LeapArray, now: Tick) -> Tick {
    let end = ring.bucket_start(now) + ring.bucket_length();
    Tick::from_nanos(end.as_nanos().div_ceil(SECOND_NS).saturating_mul(SECOND_NS))
}
