//! Numbers in settings, converted from any numeric type; their range is checked later.

use std::fmt;
use std::num::NonZero;

/// A number in a setting, such as a threshold, with or without a fraction: converted from any
/// number. If it is out of range, adding the rule to a set is an error.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{FlowRule, Rules};
///
/// let from_settings: u64 = 100;
/// let rule = FlowRule::per_second("/search", from_settings);
/// assert_eq!(rule.threshold(), 100.0);
/// assert_eq!(rule, FlowRule::per_second("/search", 100.0_f32));
///
/// let error = Rules::build([FlowRule::per_second("/search", 1_u64 << 40)]).unwrap_err();
/// assert_eq!(error.problems()[0].value(), "1099511627776");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Number(f64);

/// A whole number in a setting, such as a concurrency limit: converted from any whole number. If it
/// is out of range, adding the rule to a set is an error.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{IsolationRule, Rules};
///
/// let threads: usize = 8;
/// assert_eq!(IsolationRule::new("/report", threads * 4).max(), 32);
///
/// let error = Rules::build([IsolationRule::new("/report", -1)]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "rule 0 (isolation \"/report\"): max is -1, must be between 0 and 2147483647",
/// );
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WholeNumber(i128);

impl Number {
    pub(crate) const fn get(self) -> f64 {
        self.0
    }
}

impl WholeNumber {
    pub(crate) const fn new(number: u32) -> Self {
        Self(number as i128)
    }

    /// Returns the number, or the nearest `u32`: a number that has been checked is exact.
    pub(crate) const fn get(self) -> u32 {
        if self.0 < 0 {
            0
        } else if self.0 > u32::MAX as i128 {
            u32::MAX
        } else {
            self.0 as u32
        }
    }

    /// Returns the number, or the nearest `i32`: a number that has been checked is exact.
    pub(crate) fn get_signed(self) -> i32 {
        self.0.clamp(i32::MIN.into(), i32::MAX.into()) as i32
    }

    /// Returns whether the number, which may be below 0, is between `least` and `most`.
    pub(crate) const fn is_between(self, least: i64, most: i64) -> bool {
        self.0 >= least as i128 && self.0 <= most as i128
    }

    /// Returns whether the number is between `least` and `most`.
    pub(crate) const fn is_within(self, least: u32, most: u32) -> bool {
        self.is_between(least as i64, most as i64)
    }
}

impl fmt::Display for WholeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for WholeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self(number)
    }
}

impl From<f32> for Number {
    fn from(number: f32) -> Self {
        Self(number.into())
    }
}

impl From<WholeNumber> for Number {
    /// Returns the nearest `f64`: numbers from 2⁵³ on, which no setting may have, are rounded.
    fn from(number: WholeNumber) -> Self {
        Self(number.0 as f64)
    }
}

macro_rules! whole {
    ($($whole:ty)*) => {$(
        impl From<$whole> for WholeNumber {
            fn from(number: $whole) -> Self {
                // Only a `u128` can be too large.
                Self(i128::try_from(number).unwrap_or(i128::MAX))
            }
        }

        impl From<NonZero<$whole>> for WholeNumber {
            fn from(number: NonZero<$whole>) -> Self {
                number.get().into()
            }
        }

        impl From<$whole> for Number {
            fn from(number: $whole) -> Self {
                WholeNumber::from(number).into()
            }
        }

        impl From<NonZero<$whole>> for Number {
            fn from(number: NonZero<$whole>) -> Self {
                number.get().into()
            }
        }
    )*};
}

whole!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);
