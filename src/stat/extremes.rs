//! The smallest response time and the largest concurrency of each bucket.
//!
//! Each bucket has one word, `[ stamp:16 | min rt in µs:26 | concurrency:22 ]`, which is written
//! only when a call beats the current value. So a call normally costs one load.

use std::time::Duration;

use crate::base::sync::{AtomicU64, Bug, Ordering, planted, words};

/// 22 bits count 4 million calls, more than one node has in flight at once.
const CONCURRENCY_BITS: u32 = 22;
/// 26 bits hold one minute in microseconds, to which response times are clamped.
const RT_BITS: u32 = 26;
const MAX_CONCURRENCY: u64 = (1 << CONCURRENCY_BITS) - 1;
/// Stands for "no response time yet"; above every clamped response time.
const NO_RT: u64 = (1 << RT_BITS) - 1;

/// The extremes of one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extreme {
    /// The smallest response time in microseconds.
    pub(super) min_rt_us: Option<u32>,
    /// The largest concurrency, at most 4 194 303.
    pub(super) max_concurrency: u32,
}

impl Extreme {
    pub(super) fn min_rt(self) -> Option<Duration> {
        self.min_rt_us.map(|us| Duration::from_micros(us.into()))
    }

    /// The extremes of two buckets together.
    pub(super) fn merge(self, other: Self) -> Self {
        Self {
            min_rt_us: match (self.min_rt_us, other.min_rt_us) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
            max_concurrency: self.max_concurrency.max(other.max_concurrency),
        }
    }

    /// Returns the word of these extremes in `bucket`.
    fn pack(self, bucket: u64) -> u64 {
        let rt = self
            .min_rt_us
            .map_or(NO_RT, |rt| u64::from(rt).min(NO_RT - 1));
        let concurrency = u64::from(self.max_concurrency).min(MAX_CONCURRENCY);
        (bucket & 0xffff) << (RT_BITS + CONCURRENCY_BITS) | rt << CONCURRENCY_BITS | concurrency
    }

    /// Returns the extremes in `word`.
    fn unpack(word: u64) -> Self {
        let rt = word >> CONCURRENCY_BITS & NO_RT;
        Self {
            min_rt_us: (rt != NO_RT).then_some(rt as u32),
            max_concurrency: (word & MAX_CONCURRENCY) as u32,
        }
    }
}

/// The extremes of the last buckets.
#[derive(Debug)]
pub(super) struct Extremes(Box<[AtomicU64]>);

impl Extremes {
    /// Creates words for at least `slots` buckets. `bucket` is the first one that is used.
    pub(super) fn new(slots: u32, bucket: u64) -> Self {
        // Each word gets the stamp of the newest bucket up to `bucket` that falls into its slot.
        // Any other stamp, such as 0, might look newer than the stamps of coming buckets.
        let slots = u64::from(slots.next_power_of_two());
        let youngest = |place| bucket.wrapping_sub(bucket.wrapping_sub(place) & (slots - 1));
        Self(words(slots as usize, &mut |place| {
            Extreme::default().pack(youngest(place as u64))
        }))
    }

    pub(super) fn footprint(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Notes that a call ended in `bucket`, `rt_us` after it started.
    #[inline]
    pub(super) fn note_rt(&self, bucket: u64, rt_us: u32) {
        let found = self.cell(bucket).load(Ordering::Relaxed);
        // `NO_RT` is above any response time, so the first one replaces it.
        let known = found >> CONCURRENCY_BITS & NO_RT;
        if !is_of(found, bucket) || u64::from(rt_us) < known {
            self.improve(
                bucket,
                Extreme {
                    min_rt_us: Some(rt_us),
                    ..Extreme::default()
                },
            );
        }
    }

    /// Notes that `concurrency` calls, including one that has just passed in `bucket`, are in
    /// flight.
    #[inline]
    pub(super) fn note_concurrency(&self, bucket: u64, concurrency: u32) {
        let found = self.cell(bucket).load(Ordering::Relaxed);
        if !is_of(found, bucket) || u64::from(concurrency) > found & MAX_CONCURRENCY {
            self.improve(
                bucket,
                Extreme {
                    max_concurrency: concurrency,
                    ..Extreme::default()
                },
            );
        }
    }

    /// Merges `seen` into the word of `bucket`.
    #[cold]
    fn improve(&self, bucket: u64, seen: Extreme) {
        let cell = self.cell(bucket);
        let mut found = cell.load(Ordering::Relaxed);
        loop {
            // A word of an older bucket is replaced. A word of a newer bucket stays: this call is
            // late, and the slot no longer belongs to its bucket.
            let behind =
                (bucket as u16).wrapping_sub((found >> (RT_BITS + CONCURRENCY_BITS)) as u16);
            let known = match behind {
                0 => Extreme::unpack(found),
                1..=0x7fff => Extreme::default(),
                _ => return,
            };
            let next = known.merge(seen).pack(bucket);
            if planted(Bug::BlindExtreme) {
                cell.store(next, Ordering::Relaxed);
                return;
            }
            // Release: pairs with the acquire of a late opener.
            match cell.compare_exchange_weak(found, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => found = now,
            }
        }
    }

    /// Resets the word of `bucket` before the head moves there. Otherwise an old stamp could stay
    /// until stamps wrap, and look new again. `stands` returns whether the head is still at the
    /// bucket before. Returns false, and changes nothing, if the head has moved on.
    pub(super) fn open(&self, bucket: u64, stands: &dyn Fn() -> bool) -> bool {
        let (cell, new) = (self.cell(bucket), Extreme::default().pack(bucket));
        loop {
            let found = cell.load(Ordering::Acquire);
            if found == new {
                return true;
            }
            // If the head still stands before `bucket`, the found word is of an older bucket, even
            // if its stamp is equal, as after a long pause. A thread writes for `bucket` or a newer
            // bucket only after it has seen the head move on, and it writes with release: this
            // thread would have seen that move too. Another thread that moves the head from here
            // changes the word first, so the swap below fails. If that thread jumps, the swap may
            // succeed, but then it resets a bucket that the jump skips.
            if !stands() && !planted(Bug::OpenLate) {
                return false;
            }
            if cell
                .compare_exchange(found, new, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }

    /// Returns the extremes of `bucket`, or the extremes of an empty bucket if the word of `bucket`
    /// has been replaced or was never written.
    pub(super) fn get(&self, bucket: u64) -> Extreme {
        let found = self.cell(bucket).load(Ordering::Relaxed);
        if is_of(found, bucket) {
            Extreme::unpack(found)
        } else {
            Extreme::default()
        }
    }

    /// The cell that `bucket` shares with every bucket a ring earlier or later.
    fn cell(&self, bucket: u64) -> &AtomicU64 {
        &self.0[bucket as usize & (self.0.len() - 1)]
    }
}

/// Returns whether `word` has the stamp of `bucket`.
const fn is_of(word: u64, bucket: u64) -> bool {
    (word >> (RT_BITS + CONCURRENCY_BITS)) as u16 == bucket as u16
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    fn rt(us: u32) -> Extreme {
        Extreme {
            min_rt_us: Some(us),
            max_concurrency: 0,
        }
    }

    #[test]
    fn keeps_the_smallest_and_the_largest_of_each_bucket() {
        let extremes = Extremes::new(3, 0);
        assert_eq!(extremes.get(0), Extreme::default());
        extremes.note_rt(0, 9);
        extremes.note_rt(0, 7);
        extremes.note_rt(0, 8);
        extremes.note_concurrency(0, 4);
        extremes.note_concurrency(0, 3);
        assert_eq!(
            extremes.get(0),
            Extreme {
                min_rt_us: Some(7),
                max_concurrency: 4
            }
        );
        // Bucket 4 replaces bucket 0 in its slot, and a late call of bucket 0 does not change it.
        extremes.note_rt(4, 8);
        extremes.note_rt(0, 1);
        assert_eq!(extremes.get(4), rt(8));
        assert_eq!(extremes.get(0), Extreme::default());
    }

    #[test]
    fn a_late_opener_does_not_change_a_newer_bucket() {
        let extremes = Extremes::new(3, 0);
        assert!(extremes.open(4, &|| true));
        // Bucket 4 is open already, so the answer is true even though the head has moved on.
        assert!(extremes.open(4, &|| false));
        extremes.note_rt(4, 8);
        // Bucket 4 has the slot of bucket 0, and its word has been used: neither bucket can be
        // opened.
        assert!(!extremes.open(0, &|| false));
        assert!(!extremes.open(4, &|| false));
        assert_eq!(extremes.get(4), rt(8));
    }

    #[test]
    fn a_word_with_a_repeated_stamp_is_reset_when_its_bucket_opens() {
        let extremes = Extremes::new(3, 0);
        extremes.note_rt(3, 8);
        assert!(extremes.open(3 + (1 << 16), &|| true));
        assert_eq!(extremes.get(3 + (1 << 16)), Extreme::default());
    }

    #[test]
    fn extremes_work_from_the_first_bucket_on() {
        // Stamps have 16 bits. For any first bucket, no initial word has its stamp or a newer one.
        for first in [0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xffff, 120_000_000] {
            let extremes = Extremes::new(3, first);
            for bucket in first..first + 4 {
                assert_eq!(extremes.get(bucket), Extreme::default());
                extremes.note_rt(bucket, 7);
                assert_eq!(extremes.get(bucket), rt(7), "bucket {bucket} after {first}");
            }
        }
    }

    #[test]
    fn extremes_saturate() {
        let extremes = Extremes::new(1, 0);
        extremes.note_rt(5, u32::MAX);
        extremes.note_concurrency(5, u32::MAX);
        let seen = extremes.get(5);
        assert_eq!(seen.max_concurrency, (1 << 22) - 1);
        assert_eq!(seen.min_rt_us, Some((1 << 26) - 2));
    }
}
