//! The exact fraction that a ratio of a rule stands for.
//!
//! The float for the ratio 0.1 is slightly more than one in ten, and 2.0 / 3.0 is slightly less
//! than two in three. If counts were compared with these floats, one call in ten would not reach
//! the ratio 0.1. So a ratio stands for the simplest fraction whose nearest float it is: 1/10, 2/3.
//! Counts are compared with this fraction in integers, which is exact.
//!
//! The candidates are the convergents of the float's continued fraction. The
//! error of a float below 1 is at most 2⁻⁵⁴, and a fraction that is nearer than
//! 1/(2q²) is a convergent (Legendre), so each fraction with a denominator up to
//! 2²⁶ is found.

/// The fraction `part / whole`, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fraction {
    part: u128,
    whole: u128,
}

impl Fraction {
    /// Returns the simplest fraction whose nearest float is `ratio`, which must be between 0 and 1.
    /// A ratio above 0 but below 2⁻⁴⁰ is treated as 2⁻⁴⁰, because a single bad call reaches both.
    pub(super) fn nearest(ratio: f64) -> Self {
        const BITS: u32 = 92;
        let least = 1.0 / (1_u64 << 40) as f64;
        let ratio = if ratio > 0.0 { ratio.max(least) } else { 0.0 };
        // Exact: the last of the 53 bits of a number from 2⁻⁴⁰ on is at least 2⁻⁹². Powers are
        // shifts, because `powi` promises no precision.
        let (mut a, mut b) = ((ratio * (1_u128 << BITS) as f64) as u128, 1_u128 << BITS);
        let (mut before, mut last) = ((0, 1), (1, 0));
        while b > 0 {
            let digit = a / b;
            let next = (digit * last.0 + before.0, digit * last.1 + before.1);
            (before, last) = (last, next);
            if last.0 as f64 / last.1 as f64 == ratio {
                break;
            }
            (a, b) = (b, a % b);
        }
        Self {
            part: last.0,
            whole: last.1,
        }
    }

    /// Returns whether `bad` of `total` is at least the fraction.
    pub(super) const fn is_reached(self, bad: u64, total: u64) -> bool {
        // Counts are below 2³² and terms below 2⁹³.
        bad as u128 * self.whole >= self.part * total as u128
    }

    /// Returns whether `bad` of `total` is more than the fraction.
    pub(super) const fn is_exceeded(self, bad: u64, total: u64) -> bool {
        bad as u128 * self.whole > self.part * total as u128
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_fraction_that_was_meant() {
        let cases = [
            (0.0, 0, 1),
            (0.1, 1, 10),
            (0.29, 29, 100),
            (0.5, 1, 2),
            (2.0 / 3.0, 2, 3),
            (0.999_999, 999_999, 1_000_000),
            (1.0, 1, 1),
            (7.0 / 67_108_859.0, 7, 67_108_859),
            (f64::MIN_POSITIVE, 1, 1 << 40),
        ];
        for (ratio, part, whole) in cases {
            assert_eq!(
                Fraction::nearest(ratio),
                Fraction { part, whole },
                "{ratio}"
            );
        }
    }

    #[test]
    fn every_fraction_of_small_numbers_is_reached_by_itself_and_not_exceeded() {
        for whole in 1..=300_u32 {
            for part in 1..=whole {
                let fraction = Fraction::nearest(f64::from(part) / f64::from(whole));
                let (bad, total) = (u64::from(part), u64::from(whole));
                assert!(fraction.is_reached(bad, total) && !fraction.is_exceeded(bad, total));
                assert!(!fraction.is_reached(bad * 1_000 - 1, total * 1_000));
                assert!(fraction.is_exceeded(bad * 1_000 + 1, total * 1_000));
            }
        }
    }
}
