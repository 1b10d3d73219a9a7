//! `Shape`: the buckets and seconds into which the figures of a node are divided.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::checkpoints::{MAX_JUMP, ROUND};
use super::histogram::Edges;
use super::packed::divide;

/// The buckets of a node's figures, and the edges of its histograms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The length of one step of the head, in ns: a bucket or a second, whichever is shorter.
    pub(crate) step_ns: u64,
    /// The number of buckets of the window over which figures per second are computed.
    pub(crate) buckets: u32,
    /// The number of steps in one bucket.
    pub(crate) stride: u32,
    /// The number of steps in one second.
    pub(crate) per_second: u32,
    /// The edges of the histograms, if the node keeps histograms.
    pub(crate) edges: Option<StdArc<Edges>>,
}

// === impl Shape ===

impl Shape {
    /// Creates the shape of figures over `buckets` buckets of `bucket_ns` each, which is a part or
    /// a multiple of a second.
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

    /// The step at which a jump from step `from` towards step `to` ends. A jump is at most
    /// `MAX_JUMP` steps long, so that stamps stay unambiguous, plus any number of whole rounds,
    /// after which all stamps repeat.
    pub(super) fn landing(&self, from: u64, to: u64) -> u64 {
        let round = ROUND * u64::from(self.stride.max(self.per_second));
        let distance = to - from;
        let rounds = distance.saturating_sub(MAX_JUMP) / round * round;
        from + rounds + distance.min(MAX_JUMP)
    }

    /// The end of `step`, in ns.
    pub(super) const fn end_of(&self, step: u64) -> u64 {
        step.saturating_add(1).saturating_mul(self.step_ns)
    }

    /// The length of the window.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_nanos(self.step_ns) * self.stride * self.buckets
    }
}
