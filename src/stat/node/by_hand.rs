//! The steps of the engine on a node, shortened for tests.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::Node;
use crate::base::invalid::InvalidSetting;
use crate::blocked::BlockKind;
use crate::clock::{Tick, nanos};
use crate::stat::event::Outcome;
use crate::stat::leap_array::Grid;
use crate::stat::shape::Shape;

impl Node {
    /// Creates a node whose figures per second cover a window of `buckets` buckets that together
    /// last `interval`.
    pub(crate) fn new(interval: Duration, buckets: u32, now: Tick) -> Result<Self, InvalidSetting> {
        let bucket_ns = InvalidSetting::check_figures(interval, buckets)?;
        let shape = Shape::new(bucket_ns, buckets);
        let grid = Grid {
            bucket_ns: shape.step_ns,
            buckets: buckets * shape.stride,
            ahead: buckets.min(64),
        };
        Ok(Self::with_grid(grid, StdArc::new(shape), true, now))
    }

    /// Counts a call of `weight` that was refused.
    pub(crate) fn block(&self, now: Tick, weight: u32) {
        if self.is_crowded() {
            self.block_in_crowd(now, weight);
        } else {
            self.block_by(now, weight, BlockKind::Flow);
        }
    }

    /// Counts the end of a call of `weight` that had passed, with a response or an error,
    /// `rt` after it started. A response time above one minute counts as one minute.
    pub(crate) fn complete(&self, now: Tick, weight: u32, rt: Duration, outcome: Outcome) {
        self.end(now, weight, nanos(rt), Some(outcome));
    }
}
