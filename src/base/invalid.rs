//! `InvalidSetting`, the error of settings other than those of rules.

use std::fmt;

/// The error of a setting that cannot be used: names it, its value and the values that are allowed.
/// The error of rules is [`InvalidRule`](crate::rule::InvalidRule).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::stat::LeapArray;
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::keyed::KeyedLimiter;
/// use tower_sentinel::stat::SlidingWindow;
/// use tower_sentinel::Sentinel;
///
/// let second = Duration::from_secs(1);
/// let error = LeapArray::new(second, 7).unwrap_err();
/// assert_eq!(error.to_string(), "buckets is 7, must be a number that divides the interval of 1s");
/// let error = SlidingWindow::new(second, 0).unwrap_err();
/// assert_eq!(error.to_string(), "slices is 0, must be between 1 and 65536");
/// let error = Sentinel::builder().window(second, 1_000).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "buckets is 1000, must be at most 100, so that a bucket lasts 10 ms",
/// );
/// let error = KeyedLimiter::per_second(-1).build(Tick::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "threshold is -1, must be between 0 and 2147483647");
/// let error = KeyedLimiter::per_second(5).max_keys(0).build(Tick::ZERO).unwrap_err();
/// assert_eq!(error.to_string(), "max_keys is 0, must be between 1 and 67108864");
/// let error = Sentinel::builder().histograms_with(&[second * 61]).unwrap_err();
/// assert_eq!(error.to_string(), "edge 0 is 61s, must be whole microseconds between 1 µs and 60 s");
/// let error = Sentinel::builder().histograms_with(&[]).unwrap_err();
/// assert_eq!(error.to_string(), "there are 0 edges, must be between 1 and 32");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSetting(String);

impl InvalidSetting {
    /// Creates the error with its text.
    pub(crate) fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// Creates the error that `field` has a `value` which is not `allowed`.
    pub(crate) fn new(field: &str, value: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self(format!("{field} is {value}, must be {allowed}"))
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidSetting {}
