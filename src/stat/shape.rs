//! `Shape`: how time is cut for the figures of a node.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::checkpoints::{MAX_JUMP, ROUND};
use super::histogram::Edges;
use super::packed::divide;

/// How time is cut for the figures of a node, and times for its histograms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// One step of the head: the shorter of a bucket and a second.
    pub(crate) step_ns: u64,
    /// Buckets of the window that figures per second are read from.
    pub(crate) buckets: u32,
    /// Steps of one bucket.
    pub(crate) stride: u32,
    /// Steps of one second.
    pub(crate) per_second: u32,
    /// The edges of the histograms of times, if times are counted by their length.
    pub(crate) edges: Option<StdArc<Edges>>,
}

// === impl Shape ===

impl Shape {
    /// Figures over `buckets` buckets of `bucket_ns` each, which is a part or a
    /// multiple of a second.
    pub(crate) fn new(bucket_ns: u64, buckets: u32) -> Self {
        const SECOND_NS: u64 = 1_000_000_000;
        let step_ns = bucket_ns.min(SECOND_NS);
        debug_assert!(bucket_ns % step_ns == 0 && SECOND_NS % step_ns == 0);
        Self {
            step_ns,
            buckets,
            stride: (bucket_ns / step_ns) as u32,
            per_second: (SECOND_NS / step_ns) as u32,
            edges: None,
        }
    }

    /// The bucket that `step` lies in.
    #[inline]
    pub(super) fn bucket(&self, step: u64) -> u64 {
        if self.stride == 1 {
            step
        } else {
            divide(step, self.stride.into())
        }
    }

    /// The second that `step` lies in.
    pub(super) fn second(&self, step: u64) -> u64 {
        step / u64::from(self.per_second)
    }

    /// Where a jump from step `from` towards step `to` ends. It is no longer than stamps
    /// can tell, and whole rounds of all of them are nothing to them.
    pub(super) fn landing(&self, from: u64, to: u64) -> u64 {
        let round = ROUND * u64::from(self.stride.max(self.per_second));
        let way = to - from;
        let rounds = way.saturating_sub(MAX_JUMP) / round * round;
        from + rounds + way.min(MAX_JUMP)
    }

    /// When `step` ends, in ns.
    pub(super) const fn end_of(&self, step: u64) -> u64 {
        step.saturating_add(1).saturating_mul(self.step_ns)
    }

    /// The time that the window covers.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_nanos(self.step_ns) * self.stride * self.buckets
    }
}
