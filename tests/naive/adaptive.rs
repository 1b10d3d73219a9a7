//! Rules whose limits find themselves, at random.

use proptest::prelude::*;
use proptest::sample::select;
use tower_sentinel::AdaptiveRule;

/// A limit that finds itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adaptive {
    pub(crate) floor: u32,
    more: u32,
    start: u32,
    smoothing: f64,
}

impl Adaptive {
    /// It is never above that.
    pub(crate) fn ceiling(self) -> u32 {
        self.floor + self.more
    }

    pub(crate) fn rule(self, resource: &str) -> AdaptiveRule {
        let ceiling = self.ceiling();
        AdaptiveRule::new(resource)
            .floor(self.floor)
            .ceiling(ceiling)
            .start(self.start.clamp(self.floor, ceiling))
            .smoothing(self.smoothing)
            .id(format!("adaptive-{resource}"))
    }
}

pub(crate) fn adaptive() -> impl Strategy<Value = Adaptive> {
    let smoothing = select(&[0.2, 0.7, 1.0][..]);
    (1_u32..5, 0_u32..8, 0_u32..9, smoothing).prop_map(|(floor, more, start, smoothing)| Adaptive {
        floor,
        more,
        start,
        smoothing,
    })
}
