//! Reads a [`LeapArray`]: single buckets, windows, and figures computed from them.
//!
//! Reads never lock and never wait. A read first advances the array, so that held tokens that are
//! due count, and then subtracts checkpoints. The result is used only if the head is still at the
//! same bucket afterwards:
//!
//! * Checkpoints do not change, and stay in the ring while the head does not move; the oldest
//!   checkpoint stays until the head is sealed. So a checkpoint is missing only if a jump skipped
//!   its bucket. Nothing was taken in that bucket, so the next checkpoint has the same value.
//! * The sum contains no token of a later bucket.
//!
//! So the values were correct at some moment during the read, with one exception. The head and the
//! loans are several words, and a loan that is made and cancelled while they are read leaves the
//! head unchanged. While loans are made and cancelled during the read, the count of the newest
//! bucket can be off by their tokens, but never falls below zero.

use std::cell::OnceCell;
use std::time::Duration;

use super::leap_array::{LeapArray, Reloaded};
use super::packed::HeadWord;
use crate::base::sync::{Bug, planted};
use crate::clock::Tick;

/// A window over an array, whose buckets can span several buckets of the array.
///
/// # Source
///
/// `SlidingWindowMetric` of sentinel-golang.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowView<'a> {
    array: &'a LeapArray,
    /// The number of buckets of the view.
    buckets: u32,
    /// The number of array buckets that one bucket of the view spans.
    stride: u32,
}

// === impl LeapArray ===

impl LeapArray {
    /// Returns the number of tokens granted since the array was created, including held ones,
    /// modulo 2³².
    #[must_use]
    pub fn granted(&self) -> u32 {
        self.load_head().granted()
    }

    /// Returns the tokens taken in the window that ends with the current bucket.
    #[must_use]
    pub fn sum(&self, now: Tick) -> u32 {
        self.whole().sum(now)
    }

    /// The window of the array itself.
    pub(crate) fn whole(&self) -> WindowView<'_> {
        self.window(self.buckets_per_window(), 1)
    }

    /// A window of `buckets` buckets, each of which spans `stride` buckets of the array.
    pub(super) fn window(&self, buckets: u32, stride: u32) -> WindowView<'_> {
        WindowView {
            array: self,
            buckets,
            stride,
        }
    }

    /// Iterates over the buckets of the window that ends with the current bucket, oldest first.
    /// Each item is the start of a bucket and the number of tokens taken in it so far. The counts
    /// are copied when this method is called.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::clock::Tick;
    /// use tower_sentinel::stat::LeapArray;
    ///
    /// let at = Tick::from_millis;
    /// let array = LeapArray::new(Duration::from_secs(1), 2)?;
    /// let limit = [array.quota(Duration::from_secs(1), 5)?];
    /// assert!(array.try_acquire(at(700), 3, &limit).is_ok());
    /// assert!(array.try_acquire(at(1_100), 2, &limit).is_ok());
    /// // Refused tokens are not counted.
    /// assert!(array.try_acquire(at(1_200), 1, &limit).is_err());
    /// let counts: Vec<_> = array.buckets(at(1_200)).collect();
    /// assert_eq!(counts, [(at(500), 3), (at(1_000), 2)]);
    /// # Ok::<(), tower_sentinel::InvalidSetting>(())
    /// ```
    pub fn buckets(&self, now: Tick) -> impl Iterator<Item = (Tick, u32)> + '_ {
        self.whole().buckets(now)
    }

    /// Returns the tokens per second over the window.
    #[must_use]
    pub fn qps(&self, now: Tick) -> f64 {
        self.whole().qps(now)
    }

    /// Returns the average number of tokens per bucket of the window.
    #[must_use]
    pub fn avg(&self, now: Tick) -> f64 {
        self.whole().avg(now)
    }

    /// Returns the largest count of a single bucket of the window.
    #[must_use]
    pub fn max_of_bucket(&self, now: Tick) -> u32 {
        self.whole().max_of_bucket(now)
    }

    /// Returns the start of the bucket before the current one and the number of tokens taken in it;
    /// `None` if the array was not used in that bucket.
    #[must_use]
    pub fn previous(&self, now: Tick) -> Option<(Tick, u32)> {
        self.read(self.bucket_number(now), |reading| {
            let before = reading.newest.wrapping_sub(1);
            let cut = self.whole_cut(before)?;
            let count = reading.between(before, reading.newest);
            (cut.is_used() || count > 0).then(|| (self.start_of(before), count))
        })
    }

    /// Returns the count of the bucket that `at` lies in; 0 if that bucket is not in the window
    /// that ends with the newest bucket. Unlike the other readers, this method does not advance the
    /// array to the current time.
    #[must_use]
    pub fn count_at(&self, at: Tick) -> u32 {
        let bucket = self.bucket_number(at);
        self.look(|reading| {
            if reading.newest.wrapping_sub(bucket) >= u64::from(self.buckets_per_window()) {
                return 0;
            }
            reading.between(bucket, bucket + 1)
        })
    }

    /// Iterates over the buckets that have not opened yet and for which tokens are held, with the
    /// number of these tokens.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn loans(&self, now: Tick) -> impl Iterator<Item = (Tick, u32)> + '_ {
        let loans = self.read(self.bucket_number(now), |reading| {
            let newest = reading.newest;
            let targets = (1..=self.ahead()).map(|ahead| newest.wrapping_add(ahead));
            let loans =
                targets.map(|target| (self.start_of(target), self.held_for(newest, target)));
            loans.filter(|(_, held)| *held > 0).collect::<Vec<_>>()
        });
        loans.into_iter()
    }

    /// Returns the tokens taken in the buckets `start..end`; `end` may be a coming bucket. `None`
    /// if the array does not reach that far back. Does not advance the array.
    pub(super) fn taken_between(&self, start: u64, end: u64) -> Option<u32> {
        // While the head is sealed, the checkpoint of the next bucket can replace the oldest
        // checkpoint, so the bucket before `start` must be in reach as well.
        let before = start.wrapping_sub(1);
        self.look(|reading| reading.reaches(before).then(|| reading.between(start, end)))
    }

    /// The newest bucket.
    pub(crate) fn newest(&self) -> u64 {
        self.number(self.load_head())
    }

    /// Returns the tokens taken since creation, modulo 2³². Does not advance the array.
    #[cold]
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is not general enough in the reading's lifetime"
    )]
    pub(crate) fn taken_now(&self) -> u32 {
        self.look(|reading| reading.taken())
    }

    /// Returns the tokens taken before `bucket` began. If that bucket is out of reach, returns the
    /// tokens taken before the oldest bucket in reach. No tokens were taken in between: the node
    /// would have taken its checkpoint before them.
    pub(crate) fn taken_before(&self, bucket: u64) -> u32 {
        self.look(|reading| {
            let oldest = reading.newest.wrapping_sub(u64::from(self.reach()));
            let is_known = bucket.wrapping_sub(oldest) as i64 > 0;
            reading.cut(if is_known { bucket } else { oldest })
        })
    }

    /// Advances the array to bucket `now` and returns the result of `find`.
    pub(crate) fn read<T>(&self, now: u64, find: impl Fn(&Reading<'_>) -> T) -> T {
        loop {
            let newest = match self.present(now) {
                Ok((_, bucket)) => bucket,
                Err(Reloaded) => self.newest(),
            };
            if let Some((found, head)) = self.look_at(newest, &find) {
                // While the head is sealed, added tokens may belong to the next bucket, and the
                // checkpoint of that bucket may replace the oldest checkpoint.
                if head.is_open() || head.is_frozen() {
                    return found;
                }
            }
        }
    }

    /// Returns the result of `find` without advancing the array.
    pub(super) fn look<T>(&self, find: impl Fn(&Reading<'_>) -> T) -> T {
        loop {
            if let Some((found, _)) = self.look_at(self.newest(), &find) {
                return found;
            }
        }
    }

    /// Runs `find` with `newest` as the newest bucket, and then reads the head. Returns both
    /// results; `None` if `newest` is no longer the newest bucket.
    ///
    /// Does not help to advance the head: helping from a bucket that the head has left would send
    /// the head back.
    pub(super) fn look_at<T>(
        &self,
        newest: u64,
        find: impl Fn(&Reading<'_>) -> T,
    ) -> Option<(T, HeadWord)> {
        let found = find(&Reading {
            array: self,
            newest,
            taken: OnceCell::new(),
        });
        let head = self.load_head();
        if self.number(head) == newest || planted(Bug::ReadAcrossBuckets) {
            return Some((found, head));
        }
        if planted(Bug::HelpFromBehind) {
            self.leave_gap(head, newest);
        }
        None
    }

    /// Returns the tokens taken so far, if `newest` is the newest bucket.
    fn taken_at(&self, newest: u64) -> u32 {
        let mut taken = 0;
        // Head and loans are several words. Retry until the head has not changed meanwhile, at most
        // nine times.
        for _ in 0..9 {
            let head = self.load_head();
            taken = head.granted().wrapping_sub(self.held(newest));
            if self.load_head() == head {
                break;
            }
        }
        // An unchanged word does not prove that no call borrowed and cancelled meanwhile. But once
        // a bucket has begun, the sum of taken tokens is never below its checkpoint.
        match self.cut(newest) {
            Some(cut) if (taken.wrapping_sub(cut) as i32) < 0 && !planted(Bug::TakenBelowCut) => {
                cut
            }
            _ => taken,
        }
    }
}

/// A consistent view of the counter and the checkpoints, as of the newest bucket.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    array: &'a LeapArray,
    pub(crate) newest: u64,
    /// The result of [`taken`](Self::taken), computed on demand: it reads every loan cell, and most
    /// readers need only checkpoints.
    taken: OnceCell<u32>,
}

impl Reading<'_> {
    /// Returns the tokens taken since creation, modulo 2³². Repeated calls return the same value.
    pub(crate) fn taken(&self) -> u32 {
        *self.taken.get_or_init(|| self.array.taken_at(self.newest))
    }

    /// Returns whether the array reaches back to `bucket`, so that it knows how many tokens had
    /// been taken when `bucket` opened.
    pub(crate) fn reaches(&self, bucket: u64) -> bool {
        let back = self.newest.wrapping_sub(bucket) as i64;
        back <= i64::from(self.array.reach())
    }

    /// Returns the tokens taken before `bucket` opened, which must be in reach. For a bucket after
    /// the newest one, returns the tokens taken so far.
    pub(crate) fn cut(&self, bucket: u64) -> u32 {
        self.cut_in(bucket, self.newest.wrapping_add(1), || self.taken())
    }

    /// Returns the tokens taken in the buckets `start..end`.
    pub(crate) fn between(&self, start: u64, end: u64) -> u32 {
        let later = self.cut(end);
        later.wrapping_sub(self.cut_in(start, end, || later))
    }

    /// Returns the tokens taken before `bucket` opened. `later` returns the tokens taken before
    /// `end`, a later bucket, opened.
    fn cut_in(&self, bucket: u64, end: u64, later: impl FnOnce() -> u32) -> u32 {
        // A jump skipped the buckets without a checkpoint, and no tokens were taken in them.
        let end = end.min(self.newest.wrapping_add(1));
        for ahead in 0..(end.wrapping_sub(bucket) as i64).max(0) as u64 {
            if let Some(cut) = self.array.cut(bucket.wrapping_add(ahead)) {
                return cut;
            }
        }
        later()
    }
}

// === impl WindowView ===

impl<'a> WindowView<'a> {
    /// The length of the view's window.
    fn interval(&self) -> Duration {
        self.array.bucket_length() * self.buckets * self.stride
    }

    /// The tokens taken in the window; 0 if the array does not reach that far back.
    pub(crate) fn sum(&self, now: Tick) -> u32 {
        let stride = u64::from(self.stride);
        self.array.read(self.array.bucket_number(now), |reading| {
            let end = reading.newest / stride + 1;
            let start = end.wrapping_sub(u64::from(self.buckets));
            let (start, end) = (start.wrapping_mul(stride), end.wrapping_mul(stride));
            let is_known = reading.reaches(start);
            if is_known {
                reading.between(start, end)
            } else {
                0
            }
        })
    }

    /// The tokens per second over the window.
    fn qps(&self, now: Tick) -> f64 {
        f64::from(self.sum(now)) / self.interval().as_secs_f64()
    }

    /// The average number of tokens per bucket.
    fn avg(&self, now: Tick) -> f64 {
        f64::from(self.sum(now)) / f64::from(self.buckets)
    }

    /// The largest count of a single bucket of the view.
    fn max_of_bucket(&self, now: Tick) -> u32 {
        self.buckets(now).map(|(_, count)| count).max().unwrap_or(0)
    }

    /// The buckets of the view, oldest first; the last one is still open.
    fn buckets(&self, now: Tick) -> impl Iterator<Item = (Tick, u32)> + use<'a> {
        let (array, stride) = (self.array, u64::from(self.stride));
        let counts = array.read(array.bucket_number(now), |reading| {
            let newest = reading.newest / stride;
            let mut later = reading.taken();
            let mut counts = Vec::new();
            for back in 0..u64::from(self.buckets) {
                let Some(bucket) = newest.checked_sub(back) else {
                    break;
                };
                let cut = reading.cut_in(bucket * stride, (bucket + 1) * stride, || later);
                let count = later.wrapping_sub(cut);
                later = cut;
                counts.push((array.start_of(bucket * stride), count));
            }
            counts
        });
        counts.into_iter().rev()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_view_with_wider_buckets_adds_up_the_buckets_of_the_array() {
        let at = Tick::from_millis;
        let array = LeapArray::new(Duration::from_millis(2_400), 12).unwrap();
        array.add(at(2_200), 100); // age 1300 at 3500: outside
        array.add(at(2_400), 1);
        array.add(at(3_500), 10);
        let counts = |window: WindowView<'_>| -> Vec<_> {
            let buckets = window.buckets(at(3_500));
            buckets
                .map(|(start, count)| (start.as_millis(), count))
                .collect()
        };
        let (narrow, wide) = (array.window(6, 1), array.window(3, 2));
        let expected = [
            (2_400, 1),
            (2_600, 0),
            (2_800, 0),
            (3_000, 0),
            (3_200, 0),
            (3_400, 10),
        ];
        assert_eq!(counts(narrow), expected);
        assert_eq!(counts(wide), [(2_400, 1), (2_800, 0), (3_200, 10)]);
        for window in [narrow, wide] {
            assert_eq!(window.interval(), Duration::from_millis(1_200));
            assert_eq!(window.sum(at(3_500)), 11);
            assert_eq!(window.max_of_bucket(at(3_500)), 10);
        }
        assert_eq!(
            (narrow.avg(at(3_500)), wide.avg(at(3_500))),
            (11.0 / 6.0, 11.0 / 3.0)
        );
    }

    #[test]
    fn a_bucket_leaves_when_it_is_as_old_as_the_window() {
        let at = Tick::from_millis;
        let array = LeapArray::new(Duration::from_millis(1_200), 6).unwrap();
        array.add(at(2_200), 100);
        assert_eq!(array.sum(at(3_399)), 100);
        assert_eq!(array.sum(at(3_400)), 0);
    }
}
