//! A window rule, compiled for a [`LeapArray`](super::LeapArray).

use std::num::NonZeroU32;

use super::packed::divide;

/// The maximum number of tokens in one window, and the maximum weight of one call: 2³¹ − 1. Counts
/// are kept modulo 2³², so differences below half of that range are unambiguous.
pub(crate) const MAX_TOKENS: u32 = (1 << 31) - 1;

/// A limit on the tokens of one window of a [`LeapArray`](super::LeapArray).
///
/// Allows at most `limit` tokens in the newest `buckets` buckets of the quota, each of
/// which spans `stride` buckets of the array:
///
/// ```text
/// array        … | 118 | 119 | 120 | 121 | …      one bucket each 500 ms
/// 2 × 500 ms               [119   120)             start(120) = 119, stride 1
/// 2 × 30 s       [60 … 119][120 … )                start(120) =  60, stride 60
/// ```
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::stat::{LeapArray, Quota};
///
/// let array = LeapArray::new(Duration::from_secs(60), 120)?;
/// let quotas: [Quota; 2] = [
///     array.quota(Duration::from_secs(1), 10)?,
///     // Two buckets of 30 s, each of which spans 60 of the array.
///     array.quota_in(Duration::from_secs(60), 2, 100)?,
/// ];
/// let now = Tick::from_millis(700);
/// assert!(array.try_acquire(now, 10, &quotas).is_ok());
/// assert!(array.try_acquire(now, 1, &quotas).is_err());
///
/// let error = array.quota(Duration::from_millis(700), 10).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "interval is 700ms, must be between 1 and 120 whole buckets of 500ms",
/// );
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// The number of quota buckets in the window.
    buckets: NonZeroU32,
    /// The number of array buckets that one quota bucket spans.
    stride: NonZeroU32,
    /// The maximum number of tokens in the window.
    limit: u32,
    lending: Lending,
}

/// The part of the tokens that leave a full window that may be lent to prioritized calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lending {
    /// None of them.
    Nothing,
    /// A fraction of them, between 0 and 1.
    Part(f64),
    /// All of them.
    All,
}

impl Quota {
    /// Creates a limit on a window of `buckets` buckets, each of which spans `stride` buckets of
    /// the array.
    ///
    /// # Panics
    ///
    /// If `buckets` or `stride` is zero or `limit` is above [`MAX_TOKENS`]:
    /// rules are checked before they become quotas.
    pub(crate) fn new(buckets: u32, stride: u32, limit: u32, lending: Lending) -> Self {
        assert!(limit <= MAX_TOKENS, "a limit of {limit} was not checked");
        Self {
            buckets: NonZeroU32::new(buckets).expect("a window has a bucket"),
            stride: NonZeroU32::new(stride).expect("a bucket spans a bucket"),
            limit,
            lending,
        }
    }

    /// Returns this window with another limit.
    pub(crate) const fn limited_to(self, limit: u32) -> Self {
        Self { limit, ..self }
    }

    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// What the quota lends to prioritized calls.
    pub(crate) const fn lending(&self) -> Lending {
        self.lending
    }

    /// The number of quota buckets in the window.
    pub(super) const fn buckets(&self) -> u32 {
        self.buckets.get()
    }

    /// The number of array buckets that one quota bucket spans.
    pub(super) const fn stride(&self) -> u32 {
        self.stride.get()
    }

    /// The number of buckets of the array that the window spans.
    pub(crate) const fn span(&self) -> u32 {
        self.buckets.get() * self.stride.get()
    }

    /// The oldest bucket of the window whose newest bucket is `bucket`. It wraps below zero, like
    /// all arithmetic on bucket numbers.
    #[inline]
    pub(crate) const fn start(&self, bucket: u64) -> u64 {
        let back = self.buckets.get() as u64 - 1;
        if self.stride.get() == 1 {
            return bucket.wrapping_sub(back);
        }
        let stride = self.stride.get() as u64;
        divide(bucket, stride)
            .wrapping_sub(back)
            .wrapping_mul(stride)
    }

    /// The first array bucket after `bucket` at which a quota bucket begins, so that tokens leave
    /// the window.
    pub(crate) const fn next_start(&self, bucket: u64) -> u64 {
        let stride = self.stride.get() as u64;
        (bucket / stride + 1) * stride
    }

    /// The first buckets of all windows that begin after `bucket` and contain `target`.
    pub(super) fn starts_ahead(
        &self,
        bucket: u64,
        target: u64,
    ) -> impl Iterator<Item = u64> + use<> {
        let start = self.start(target);
        // The start of one of the first windows wraps below bucket 0.
        let start = if start > target { 0 } else { start };
        (self.next_start(bucket).max(start)..=target).step_by(self.stride.get() as usize)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_window_starts_at_a_multiple_of_its_stride() {
        let minute = Quota::new(2, 60, 1, Lending::All);
        assert_eq!(minute.start(119), 0);
        assert_eq!(minute.start(120), 60);
        assert_eq!(minute.start(179), 60);
        assert_eq!(minute.start(180), 120);
        assert_eq!(minute.start(59), 0_u64.wrapping_sub(60));
        assert_eq!(minute.next_start(119), 120);
        assert_eq!(minute.next_start(120), 180);
    }
}
