//! The burst setting of a refilled quota: how many tokens it holds beyond its threshold.

use crate::base::number::{Number, WholeNumber};
use crate::stat::MAX_TOKENS;

/// A burst setting: either the tokens beyond the threshold, or the whole capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Burst {
    /// The number of tokens in addition to the threshold.
    AboveThreshold(WholeNumber),
    /// The total number of tokens, including those of the threshold.
    Capacity(WholeNumber),
}

impl Burst {
    pub(crate) const NONE: Self = Self::AboveThreshold(WholeNumber::new(0));

    /// Returns the number of tokens in addition to `threshold`. The setting must have been checked.
    /// A key at rest may spend the integer part of the threshold plus this number, so a set
    /// capacity is exact.
    pub(crate) fn above_threshold(self, threshold: f64) -> u32 {
        match self {
            Self::AboveThreshold(burst) => burst.get(),
            Self::Capacity(capacity) => capacity.get().saturating_sub(threshold as u32),
        }
    }

    /// Checks the setting of a quota with this `threshold`, which may be any number.
    ///
    /// # Errors
    ///
    /// Returns the name of the setting, its value and the allowed range. `elsewhere` is the part of
    /// the message that names the quotas without a burst.
    pub(crate) fn check(
        self,
        threshold: f64,
        is_refilled: bool,
        elsewhere: &str,
    ) -> Result<(), (&'static str, WholeNumber, String)> {
        match self {
            burst if burst == Self::NONE => Ok(()),
            Self::AboveThreshold(burst) if !is_refilled => {
                Err(("burst", burst, format!("0 {elsewhere}")))
            }
            Self::AboveThreshold(burst) if !burst.is_within(0, MAX_TOKENS) => {
                Err(("burst", burst, format!("between 0 and {MAX_TOKENS}")))
            }
            Self::Capacity(capacity) if !is_refilled => {
                Err(("capacity", capacity, format!("left out {elsewhere}")))
            }
            Self::Capacity(capacity) if !capacity.is_within(0, MAX_TOKENS) => {
                Err(("capacity", capacity, format!("between 0 and {MAX_TOKENS}")))
            }
            Self::Capacity(capacity) if Number::from(capacity).get() < threshold => {
                let allowed = format!("between the threshold, {threshold}, and {MAX_TOKENS}");
                Err(("capacity", capacity, allowed))
            }
            Self::AboveThreshold(_) | Self::Capacity(_) => Ok(()),
        }
    }
}
