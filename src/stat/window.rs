//! `SlidingWindow`, the plain public counter, and the bounds that every window must keep.

use std::time::Duration;

use super::leap_array::{LeapArray, MAX_BUCKETS, MIN_BUCKET_NS};
use super::quota::{Lending, MAX_TOKENS, Quota};
use crate::base::invalid::InvalidSetting;
use crate::clock::{SHORTEST_INTERVAL, Tick};

/// The longest window: a quarter of the range of a tick, so that sums of times cannot overflow.
const LONGEST_NS: u64 = u64::MAX / 4;
/// The longest window, as text for error messages.
const LONGEST: &str = "146 years";

/// The bounds of any window.
const ANY: Bounds = Bounds {
    least_ns: MIN_BUCKET_NS,
    longest_ns: LONGEST_NS,
    longest: LONGEST,
    most_buckets: MAX_BUCKETS,
};

/// The bounds of a window over which figures per second are computed. Each node allocates memory
/// for each bucket, so there are at most 3 600. After an idle time a node steps through a whole
/// minute of buckets, so buckets must last 10 ms or longer.
const FIGURES: Bounds = Bounds {
    least_ns: 10_000_000,
    longest_ns: 3_600_000_000_000,
    longest: "1 hour",
    most_buckets: 3_600,
};

impl InvalidSetting {
    /// Returns the bucket length if `buckets` divides `interval` within the bounds of any window.
    pub(crate) fn check(interval: Duration, buckets: u32) -> Result<u64, Self> {
        Self::divide(interval, buckets, &ANY)
    }

    /// Like [`check`](Self::check), for a window over which figures per second are computed.
    pub(crate) fn check_figures(interval: Duration, buckets: u32) -> Result<u64, Self> {
        const SECOND_NS: u64 = 1_000_000_000;
        let bucket_ns = Self::divide(interval, buckets, &FIGURES)?;
        if SECOND_NS % bucket_ns != 0 && bucket_ns % SECOND_NS != 0 {
            let allowed = format!(
                "a number that cuts {interval:?} into buckets that divide one second or are whole seconds"
            );
            return Err(Self::new("buckets", buckets, allowed));
        }
        Ok(bucket_ns)
    }

    /// Returns the bucket length in ns if `buckets` divides `interval` without a remainder, and the
    /// interval, the number of buckets and their length are within `bounds`.
    fn divide(interval: Duration, buckets: u32, bounds: &Bounds) -> Result<u64, Self> {
        let Bounds {
            least_ns,
            longest_ns,
            longest,
            most_buckets,
        } = *bounds;
        let least_ms = least_ns / 1_000_000;
        if buckets == 0 || buckets > most_buckets {
            let allowed = format!("between 1 and {most_buckets}");
            return Err(Self::new("buckets", buckets, allowed));
        }
        let length = interval.as_nanos();
        if !(u128::from(least_ns)..=u128::from(longest_ns)).contains(&length) {
            let allowed = format!("between {least_ms} ms and {longest}");
            return Err(Self::new("interval", format_args!("{interval:?}"), allowed));
        }
        let (length, parts) = (length as u64, u64::from(buckets));
        if length % parts != 0 {
            let allowed = format!("a number that divides the interval of {interval:?}");
            return Err(Self::new("buckets", buckets, allowed));
        }
        if length / parts < least_ns {
            let most = length / least_ns;
            let allowed = format!("at most {most}, so that a bucket lasts {least_ms} ms");
            return Err(Self::new("buckets", buckets, allowed));
        }
        Ok(length / parts)
    }

    /// The error for a quota whose `interval` is not a number of buckets that `array` has.
    pub(super) fn not_on_grid(interval: Duration, array: &LeapArray) -> Self {
        let (bucket, most) = (array.bucket_length(), array.buckets_per_window());
        let allowed = format!("between 1 and {most} whole buckets of {bucket:?}");
        Self::new("interval", format_args!("{interval:?}"), allowed)
    }

    /// The error for a quota whose number of `buckets` does not divide its `interval` into whole
    /// buckets of `array`.
    pub(super) fn not_in_grid_buckets(interval: Duration, buckets: u32, array: &LeapArray) -> Self {
        let bucket = array.bucket_length();
        let whole = interval.as_nanos() / bucket.as_nanos();
        let allowed =
            format!("a number that divides {whole}, the buckets of {bucket:?} in {interval:?}");
        Self::new("buckets", buckets, allowed)
    }

    pub(super) fn limit(limit: u32) -> Self {
        Self::new("limit", limit, format_args!("between 0 and {MAX_TOKENS}"))
    }
}

/// A simple sliding window counter of events in the last slices of time.
///
/// There are two ways to use it, which differ in whether a refused call counts:
///
/// | | counts refused calls | admission |
/// |---|---|---|
/// | [`add_and_sum`](Self::add_and_sum) | yes | by the caller, if the sum is at most the threshold |
/// | [`try_add`](Self::try_add) | no | by the method, if the sum with it is at most the threshold |
///
/// One slice makes a fixed window. The window slides by whole slices, aligned to the clock:
/// [`LeapArray`] documents this guarantee, and the effects of a clock that steps. Counts are right
/// after any idle time, and any number of threads may use the window at once. The sum of one window
/// must stay below 2³¹, or sums are wrong; `try_add` alone never exceeds this bound.
///
/// # Examples
///
/// ```
/// use tower_sentinel::clock::Tick;
/// use tower_sentinel::stat::SlidingWindow;
///
/// // Five slices of 1 ms: at most seven calls.
/// let window = SlidingWindow::of_millis(5)?;
/// let now = Tick::from_millis(100);
/// let passed = (0..10).filter(|_| window.try_add(now, 1, 7)).count();
/// assert_eq!(passed, 7);
/// assert_eq!(window.sum(now), 7);
///
/// // The other way: refused calls count as well.
/// let window = SlidingWindow::of_seconds(60)?;
/// let sums: Vec<_> = (0..3).map(|_| window.add_and_sum(now, 1)).collect();
/// assert_eq!(sums, [1, 2, 3]);
/// # Ok::<(), tower_sentinel::InvalidSetting>(())
/// ```
///
/// # Source
///
/// The classic array of time slices with a cursor. The classic array clears slices when the cursor
/// moves, which loses counts, and after an idle time of a whole ring it takes old counts for new
/// counts. Here every slice is identified by its number, and nothing is cleared.
#[derive(Debug)]
pub struct SlidingWindow(LeapArray);

/// The bounds of a window and its buckets.
struct Bounds {
    /// The shortest bucket, in whole milliseconds.
    least_ns: u64,
    /// The longest window.
    longest_ns: u64,
    /// `longest_ns` as text for error messages.
    longest: &'static str,
    /// The maximum number of buckets.
    most_buckets: u32,
}

impl SlidingWindow {
    /// Creates a window of `slices` slices of `length` each.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidSetting`] unless `slices` is between 1 and 65 536, `length` is at
    /// least 1 ms, and all slices together are at most 146 years.
    pub fn new(length: Duration, slices: u32) -> Result<Self, InvalidSetting> {
        if slices == 0 || slices > MAX_BUCKETS {
            let allowed = format!("between 1 and {MAX_BUCKETS}");
            return Err(InvalidSetting::new("slices", slices, allowed));
        }
        let whole = length.as_nanos().saturating_mul(u128::from(slices));
        if length < SHORTEST_INTERVAL || whole > u128::from(LONGEST_NS) {
            let allowed = format!("at least 1 ms, and at most {LONGEST} in {slices} slices");
            return Err(InvalidSetting::new(
                "length",
                format_args!("{length:?}"),
                allowed,
            ));
        }
        LeapArray::new(length * slices, slices).map(Self)
    }

    /// Creates a window of `slices` slices of one millisecond.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn of_millis(slices: u32) -> Result<Self, InvalidSetting> {
        Self::new(Duration::from_millis(1), slices)
    }

    /// Creates a window of `slices` slices of one second.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn of_seconds(slices: u32) -> Result<Self, InvalidSetting> {
        Self::new(Duration::from_secs(1), slices)
    }

    /// Creates a window of `slices` slices of one minute.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn of_minutes(slices: u32) -> Result<Self, InvalidSetting> {
        Self::new(Duration::from_secs(60), slices)
    }

    /// Creates a window of `slices` slices of one hour.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn of_hours(slices: u32) -> Result<Self, InvalidSetting> {
        Self::new(Duration::from_secs(3_600), slices)
    }

    /// Creates a window of `slices` slices of one day of 24 hours.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn of_days(slices: u32) -> Result<Self, InvalidSetting> {
        Self::new(Duration::from_secs(86_400), slices)
    }

    /// Creates a window of `slices` slices of one week of seven days.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn of_weeks(slices: u32) -> Result<Self, InvalidSetting> {
        Self::new(Duration::from_secs(604_800), slices)
    }

    /// Returns the length of one slice.
    #[must_use]
    pub const fn slice_length(&self) -> Duration {
        self.0.bucket_length()
    }

    /// Returns the number of slices.
    #[must_use]
    pub const fn slices(&self) -> u32 {
        self.0.buckets_per_window()
    }

    /// Adds `weight` and returns the sum of the window, including this `weight`.
    ///
    /// If several threads add at the same time, each gets a different sum, as if they had added one
    /// after the other.
    pub fn add_and_sum(&self, now: Tick, weight: u32) -> u32 {
        let now = self.0.bucket_number(now);
        loop {
            let Ok((head, bucket)) = self.0.present(now) else {
                return 0;
            };
            let start = bucket.wrapping_sub(u64::from(self.slices()) - 1);
            let Some(cut) = self.0.cut(start) else {
                self.0.leave_gap(head, bucket);
                continue;
            };
            let next = head.plus(weight);
            if self.0.swap_head(head, next) {
                return next.granted().wrapping_sub(cut);
            }
        }
    }

    /// Adds `weight` if the sum of the window, including this `weight`, is then at most `limit`;
    /// otherwise adds nothing and returns false. A limit above 2³¹ − 1 has the effect of
    /// 2³¹ − 1.
    pub fn try_add(&self, now: Tick, weight: u32, limit: u32) -> bool {
        let quota = Quota::new(self.slices(), 1, limit.min(MAX_TOKENS), Lending::Nothing);
        self.0.try_acquire(now, weight, &[quota]).is_ok()
    }

    /// Returns the sum of the window.
    #[must_use]
    pub fn sum(&self, now: Tick) -> u32 {
        self.0.sum(now)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    #[test]
    fn reads_zero_after_an_idle_time_of_any_number_of_rings() {
        for idle in [
            5,
            6,
            7,
            8,
            11,
            13,
            16,
            22,
            110,
            1 << 30,
            1 << 31,
            1 << 32,
            (1 << 32) + 1,
        ] {
            let window = SlidingWindow::of_millis(5).unwrap();
            assert!((0..7).all(|_| window.try_add(at(1_000), 1, 7)));
            assert!(!window.try_add(at(1_000), 1, 7));
            assert_eq!(window.sum(at(1_000 + idle)), 0, "idle for {idle}");
            assert!(window.try_add(at(1_000 + idle), 7, 7), "idle for {idle}");
        }
    }

    #[test]
    fn the_sum_covers_the_last_slices_including_the_current_one() {
        let window = SlidingWindow::of_seconds(3).unwrap();
        for second in 0..5 {
            window.add_and_sum(at(second * 1_000), 1 << second);
        }
        assert_eq!(window.sum(at(4_000)), 0b11100);
        assert_eq!(window.sum(at(6_999)), 0b10000);
        assert_eq!(window.sum(at(7_000)), 0);
    }

    #[test]
    fn one_slice_is_a_fixed_window_and_bursts_at_its_edge() {
        let window = SlidingWindow::of_seconds(1).unwrap();
        let passed = |ms| {
            (0..10_000)
                .filter(|_| window.try_add(at(ms), 1, 10_000))
                .count()
        };
        assert_eq!(passed(900), 10_000);
        assert_eq!(passed(1_100), 10_000);
    }

    #[test]
    fn every_constructor_has_the_right_slice_length() {
        let lengths = [
            SlidingWindow::of_millis(1),
            SlidingWindow::of_seconds(1),
            SlidingWindow::of_minutes(1),
            SlidingWindow::of_hours(1),
            SlidingWindow::of_days(1),
            SlidingWindow::of_weeks(1),
        ]
        .map(|window| window.unwrap().slice_length().as_millis());
        assert_eq!(
            lengths,
            [1, 1_000, 60_000, 3_600_000, 86_400_000, 604_800_000]
        );
    }

    #[test]
    fn a_bad_window_is_an_error_that_names_what_is_allowed() {
        let slices = "must be between 1 and 65536";
        let (ms, ns) = (Duration::from_millis(1), Duration::from_nanos(1));
        let years = Duration::from_secs(146 * 365 * 86_400);
        let cases = [
            (ms, 0, format!("slices is 0, {slices}")),
            (ms, 65_537, format!("slices is 65537, {slices}")),
            (
                Duration::ZERO,
                2,
                "length is 0ns, must be at least 1 ms, and at most 146 years in 2 slices".into(),
            ),
            (
                ms - ns,
                5,
                "length is 999.999µs, must be at least 1 ms, and at most 146 years in 5 slices"
                    .into(),
            ),
            (
                years,
                2,
                "length is 4604256000s, must be at least 1 ms, and at most 146 years in 2 slices"
                    .into(),
            ),
        ];
        for (length, slices, expected) in cases {
            let error = SlidingWindow::new(length, slices).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert!(SlidingWindow::new(Duration::MAX, 2).is_err());
        assert!(SlidingWindow::new(years, 1).is_ok());
        assert!(SlidingWindow::new(ms, 65_536).is_ok());
    }
}
