//! Counters that few nodes ever need: the line for slots, and the stripes for a crowd.

use super::slots::Line;
use crate::base::spread::Stripes;

/// The rare counters of one node: see the [module](self).
#[derive(Debug)]
pub(super) struct RareCounters {
    /// The line in which calls wait for a slot.
    pub(super) line: Line,
    /// The refusals of full windows in a crowd, which the ordinary counters do not include. `None`
    /// if these counters were created for a line; then the node never uses stripes.
    pub(super) by_crowd: Option<Stripes>,
}

impl RareCounters {
    /// Creates the counters, with stripes for a crowd if `is_crowded`.
    pub(super) fn new(is_crowded: bool) -> Self {
        Self {
            line: Line::new(),
            by_crowd: is_crowded.then(Stripes::default),
        }
    }

    /// Bytes that the counters occupy, without the calls in the line.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() + self.by_crowd.as_ref().map_or(0, Stripes::footprint)
    }
}
