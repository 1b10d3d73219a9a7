//! A threshold that falls as memory use grows.
//!
//! ```text
//! threshold
//!   high ├────────╮                 up to the low mark: the whole threshold
//!        │         ╲                between: a straight line
//!   low  ├          ╰────────       from the high mark on: the low threshold
//!        └────────┼─┼───────▶ memory in use
//!          low mark  high mark
//! ```
//!
//! While the memory in use is unknown, the whole threshold applies, because a missing measurement
//! must not refuse calls.
//!
//! # Source
//!
//! The memory-adaptive flow rule of sentinel-golang, which uses the memory of the machine even
//! inside containers.

/// A threshold as a function of the memory in use: see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MemoryCurve {
    /// The threshold up to the low mark, and the threshold from the high mark on.
    pub(crate) thresholds: [f64; 2],
    /// The low mark and the high mark, in the unit of the memory in use.
    pub(crate) marks: [f64; 2],
}

impl MemoryCurve {
    /// Returns the threshold while `used` memory is in use.
    pub(crate) fn threshold(&self, used: Option<f64>) -> f64 {
        let ([high, low], [from, to]) = (self.thresholds, self.marks);
        let Some(used) = used.filter(|&used| used > from) else {
            return high;
        };
        if used >= to {
            return low;
        }
        // `used` is between the marks, so the divisor is positive.
        let share = (used - from) / (to - from);
        // A weighted mean cannot overflow. The clamp keeps rounding errors within the two
        // thresholds.
        (high * (1.0 - share) + low * share).clamp(low.min(high), low.max(high))
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_threshold_falls_on_a_straight_line_between_the_marks() {
        let curve = MemoryCurve {
            thresholds: [1_000.0, 100.0],
            marks: [100.0, 200.0],
        };
        let cases = [
            (None, 1_000.0),
            (Some(0.0), 1_000.0),
            (Some(100.0), 1_000.0),
            (Some(110.0), 910.0),
            (Some(150.0), 550.0),
            (Some(175.0), 325.0),
            (Some(200.0), 100.0),
            (Some(f64::INFINITY), 100.0),
        ];
        for (used, expected) in cases {
            assert_eq!(curve.threshold(used), expected, "{used:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        #[test]
        fn a_larger_use_of_memory_never_raises_the_threshold(
            thresholds in prop_oneof![(0.0..1e6, 0.0..1e6), (0.0..f64::MAX, 0.0..f64::MAX)],
            marks in (0.0..1e12, 0.0..1e12),
            uses in (0.0..1e12, 0.0..1e12),
        ) {
            let (low, high) = (f64::min(thresholds.0, thresholds.1), f64::max(thresholds.0, thresholds.1));
            let curve = MemoryCurve {
                thresholds: [high, low],
                marks: [f64::min(marks.0, marks.1), f64::max(marks.0, marks.1)],
            };
            let less = curve.threshold(Some(f64::min(uses.0, uses.1)));
            let more = curve.threshold(Some(f64::max(uses.0, uses.1)));
            // Rounding of the weighted mean can make a small difference.
            prop_assert!(more <= less * (1.0 + 4.0 * f64::EPSILON));
            prop_assert!((low..=high).contains(&more) && (low..=high).contains(&less));
        }
    }
}
