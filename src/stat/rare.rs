//! Counters that few nodes ever need: those of a line for slots, and of a crowd.

use super::slots::Line;
use crate::base::spread::Stripes;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct RareCounters {
    /// Where calls wait for a slot.
    pub(super) line: Line,
    /// The refusals of full windows by a crowd, which are not among the ordinary ones. A node that
    /// had a line before has none: its calls do not take the way of a crowd.
    pub(super) by_crowd: Option<Stripes>,
}

impl RareCounters {
    /// With stripes for a crowd, or without.
    pub(super) fn new(is_crowded: bool) -> Self {
        Self {
            line: Line::new(),
            by_crowd: is_crowded.then(Stripes::default),
        }
    }

    /// Bytes that they occupy, without the calls in the line.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() + self.by_crowd.as_ref().map_or(0, Stripes::footprint)
    }
}
