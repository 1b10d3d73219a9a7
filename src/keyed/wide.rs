//! A sliding window of two buckets, for limits that are too large for counts of 20 bits.
//!
//! ```text
//! bit 63        32  31        30           0
//!     [  number   ][ closed ][    count    ]
//! ```
//!
//! A key has one word for each of the two buckets of its window: buckets with an even number count
//! in one table, and buckets with an odd number in a second table. A call in the bucket `n` passes
//! if the counts of `n − 1` and `n` and its own tokens are at most the limit.
//!
//! Two words cannot be changed by one compare-and-swap. So a call in `n` first *closes* the bucket
//! `n − 1`, so that no more calls count there, and then takes its tokens in `n`:
//!
//! ```text
//! close   word of n − 1 → [ n − 1, closed, count ]      the count can only shrink from now on
//! take    word of n     → [ n, open, count + weight ]   if both counts and the weight fit
//! ```
//!
//! A thread with an earlier clock reading finds its bucket closed, or the word of a later bucket in
//! its slot, and starts again in the newest bucket. If the second step succeeds, no call has
//! counted in `n − 1` since the first step, and none in `n` since its count was read. So no window
//! of two aligned buckets ever holds more than the limit.
//!
//! # Accuracy
//!
//! Counts are exact, as in a [window](super::window) of one word. Bucket numbers do not wrap
//! around: they are counted from the creation of the table and last for 68 years, because these
//! windows are at least a second long.
//!
//! # Source
//!
//! The leap array of Alibaba Sentinel with two buckets. A bucket is closed before its successor is
//! used, like a segment of a concurrent queue.

use std::time::Duration;

use super::keys::{HotKeys, refused};
use super::table::{KeyTable, WordChange};
use super::{Digest, Judge, KeyTokens, MOST_IN_WINDOW};
use crate::clock::{Tick, nanos};
use crate::stat::{MAX_TOKENS, Refusal};

/// The bits of a count.
const COUNT_BITS: u32 = 31;
/// The mark of a closed bucket.
const CLOSED: u64 = 1 << COUNT_BITS;

/// Returned instead of a wait if the bucket is closed, or if a later bucket has replaced it.
const LATE: u64 = u64::MAX;

/// The shortest interval of a wide window: with shorter buckets, the bucket numbers would run out
/// too soon.
const SHORTEST: Duration = Duration::from_secs(1);

/// The second table of keys with wide windows.
#[derive(Debug)]
pub(super) struct WideWindows {
    /// The words of the buckets with odd numbers.
    odd: KeyTable,
}

/// The fields of a word, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BucketWord {
    /// The number of the bucket.
    number: u32,
    /// Whether no more tokens may be taken in the bucket.
    is_closed: bool,
    /// The tokens taken in the bucket.
    count: u32,
}

/// The judge of a word for the bucket `number`.
#[derive(Clone, Copy)]
struct InBucket<'a> {
    number: u32,
    /// Returns the changed word of the bucket, or the nanoseconds to wait, or `LATE`.
    change: &'a dyn Fn(BucketWord) -> Result<BucketWord, u64>,
}

/// The tokens that a key has spent in the newest window, by bucket.
#[derive(Clone, Copy, Debug)]
struct WideCounts {
    /// The number of the newest bucket.
    number: u32,
    /// The tokens taken in the bucket before `number`.
    before: u32,
    /// The tokens taken in the bucket `number`.
    newest: u32,
}

/// The position of a clock reading in the buckets.
#[derive(Clone, Copy, Debug)]
struct BucketTime {
    /// The number of the bucket.
    number: u32,
    /// The length of a bucket.
    bucket_ns: u64,
    /// The time since the start of the bucket.
    into_ns: u64,
}

/// Returns the largest limit of a window of this interval. If it is shorter than a second, two
/// counts share one word.
pub(crate) fn most_in_window(interval: Duration) -> u32 {
    if interval < SHORTEST {
        MOST_IN_WINDOW
    } else {
        MAX_TOKENS
    }
}

// === impl HotKeys ===

impl HotKeys {
    /// Allows limits of up to 2³¹ − 1 for these keys, which must be counted in windows, and adds a
    /// second table for at least `max_keys` keys.
    pub(crate) fn with_wide_windows(self, max_keys: u32) -> Self {
        self.with_odd_buckets(KeyTable::new(max_keys))
    }

    /// Adds `odd` as the table of the buckets with odd numbers.
    pub(super) fn with_odd_buckets(mut self, odd: KeyTable) -> Self {
        self.wide = Some(Box::new(WideWindows { odd }));
        self
    }

    /// Takes `weight` tokens of `key`.
    ///
    /// Not inlined, to keep the code of the faster kinds of counting small.
    #[inline(never)]
    pub(super) fn take_in_wide_window(
        &self,
        now: Tick,
        key: Digest,
        limit: u32,
        weight: u32,
    ) -> Result<WordChange, Refusal> {
        if weight > limit {
            return Err(refused(now, None));
        }
        let time = self.bucket_time(now);
        let taken = self.change_newest(key, time, &|counts| match counts
            .wait_ns(time, limit, weight)
        {
            0 => Ok(counts.newest + weight),
            wait_ns => Err(wait_ns),
        });
        match taken {
            Ok((_, change)) => Ok(change),
            Err(wait_ns) => Err(refused(now, wait_ns)),
        }
    }

    /// Charges `units` to `key`, even beyond the limit. Returns how many units were charged, and
    /// how many of them exceed the limit.
    pub(super) fn charge_wide_window(
        &self,
        now: Tick,
        key: Digest,
        limit: u32,
        units: u32,
    ) -> (u32, u32) {
        let charge = |counts: WideCounts| Ok(counts.newest.saturating_add(units).min(MAX_TOKENS));
        let changed = self.change_newest(key, self.bucket_time(now), &charge);
        let (found, change) = changed.expect("no charge is refused");
        let newest = BucketWord::of(change.after).count;
        let charged = newest - found.newest;
        let over = WideCounts { newest, ..found }
            .sum()
            .saturating_sub(limit.into());
        let over = u32::try_from(over).unwrap_or(u32::MAX);
        (charged, over.min(charged))
    }

    /// Returns when `key` has room for `weight` tokens, or `None` if it never has.
    pub(super) fn wide_room_at(
        &self,
        now: Tick,
        key: Digest,
        limit: u32,
        weight: u32,
    ) -> Option<Tick> {
        let time = self.bucket_time(now);
        let wait_ns = self.wide_counts(key, time).wait_ns(time, limit, weight);
        (weight <= limit).then(|| now + Duration::from_nanos(wait_ns))
    }

    /// Returns how many tokens `key` could take now if none were reserved.
    pub(super) fn left_in_wide_window(&self, now: Tick, key: Digest, limit: u32) -> u32 {
        let sum = self.wide_counts(key, self.bucket_time(now)).sum();
        u32::try_from(u64::from(limit).saturating_sub(sum)).unwrap_or(limit)
    }

    /// Refunds the `weight` tokens of a call, if the bucket of these tokens still has a word.
    pub(super) fn refund_wide_window(&self, taken: &KeyTokens, weight: u32) {
        let Some(place) = taken.place() else { return };
        let number = BucketWord::of(taken.after()).number;
        let table = self.table_of_bucket(number);
        table.change(place, taken.digest().0, &|word| {
            let bucket = BucketWord::of(word);
            let count = bucket.count.checked_sub(weight)?;
            (bucket.number == number).then(|| bucket.counting(count).word())
        });
    }

    /// Resets both buckets of `key`. Returns whether it had spent anything.
    pub(super) fn reset_wide_window(&self, key: Digest) -> bool {
        let reset = |number| {
            self.table_of_bucket(number).change_known(key.0, &|word| {
                let bucket = BucketWord::of(word);
                (bucket.count > 0).then(|| bucket.counting(0).word())
            })
        };
        // Without a short circuit, so that both buckets are reset.
        reset(0) | reset(1)
    }

    /// Returns how many keys have a word in the window of `now`. A call in the second bucket of the
    /// window closes the key's word in the first bucket. So every key of the window has a word in
    /// the first bucket, and only these words are counted.
    pub(super) fn keys_in_wide_windows(&self, now: Tick) -> usize {
        let number = self.bucket_time(now).number - 1;
        let change = &|bucket| Ok(bucket);
        let judge = InBucket { number, change };
        self.table_of_bucket(number).in_use(&judge)
    }

    /// Returns whether `key` has a word in the window of `now`.
    #[cfg(all(feature = "page", feature = "serde"))]
    pub(super) fn is_in_wide_window(&self, now: Tick, key: Digest) -> bool {
        let number = self.bucket_time(now).number;
        [number - 1, number].into_iter().any(|number| {
            let change = &|bucket| Ok(bucket);
            let judge = InBucket { number, change };
            self.table_of_bucket(number).is_in_use(key.0, &judge)
        })
    }

    /// Reads what `key` has spent in the window at `time`, or in a later window if a thread with a
    /// later clock reading has opened one. The two words are not read at the same moment.
    fn wide_counts(&self, key: Digest, time: BucketTime) -> WideCounts {
        let words = [time.number - 1, time.number].map(|number| {
            let change = &|bucket| Ok(bucket);
            let judge = InBucket { number, change };
            let table = self.table_of_bucket(number);
            BucketWord::of(table.word(key.0, &judge))
        });
        let mut number = time.number;
        for word in words {
            // A closed bucket shows that a call in the next bucket has come.
            number = number.max(word.number + u32::from(word.is_closed));
        }
        let count_in = |number| {
            let mut count = 0;
            for word in words {
                if word.number == number {
                    count = word.count;
                }
            }
            count
        };
        WideCounts {
            number,
            before: count_in(number - 1),
            newest: count_in(number),
        }
    }

    /// Changes the count of the bucket of `time`, or of the newest bucket if that is later, once the
    /// bucket before it is closed. `change` returns the new count, or the nanoseconds to wait.
    /// Returns what the key had spent before the change.
    fn change_newest(
        &self,
        key: Digest,
        time: BucketTime,
        change: &dyn Fn(WideCounts) -> Result<u32, u64>,
    ) -> Result<(WideCounts, WordChange), Option<u64>> {
        let mut number = time.number;
        loop {
            let changed = self.close_bucket(key, number - 1).and_then(|before| {
                let counts = |newest| WideCounts {
                    number,
                    before,
                    newest,
                };
                let change = self.change_bucket(key, number, true, &|bucket| {
                    if bucket.is_closed {
                        return Err(LATE);
                    }
                    Ok(bucket.counting(change(counts(bucket.count))?))
                })?;
                let found = BucketWord::of(change.before);
                let newest = if found.number == number {
                    found.count
                } else {
                    0
                };
                Ok((counts(newest), change))
            });
            match changed {
                Err(Some(LATE)) => number = self.wide_counts(key, time).number.max(number),
                changed => return changed,
            }
        }
    }

    /// Closes the bucket `number`, and returns its count.
    fn close_bucket(&self, key: Digest, number: u32) -> Result<u32, Option<u64>> {
        let change = self.change_bucket(key, number, false, &|bucket| Ok(bucket.closed()))?;
        Ok(BucketWord::of(change.after).count)
    }

    /// Changes the word of `key` in the bucket `number`. A call without a slot is counted as an
    /// overflow only if `is_counted`.
    fn change_bucket(
        &self,
        key: Digest,
        number: u32,
        is_counted: bool,
        change: &dyn Fn(BucketWord) -> Result<BucketWord, u64>,
    ) -> Result<WordChange, Option<u64>> {
        let judge = InBucket { number, change };
        let table = self.table_of_bucket(number);
        table.change_word(key.0, &judge, is_counted)
    }

    /// Returns the table with the words of the bucket `number`.
    fn table_of_bucket(&self, number: u32) -> &KeyTable {
        match &self.wide {
            Some(wide) if number % 2 == 1 => &wide.odd,
            _ => &self.table,
        }
    }

    /// Returns the bucket of `now` and the position in it.
    fn bucket_time(&self, now: Tick) -> BucketTime {
        let bucket_ns = nanos(self.interval) / 2;
        let now_ns = now.as_nanos().max(self.origin.as_nanos());
        // Numbers start at 2: the previous bucket is then at least 1, and 0 is the word of no key.
        let number = now_ns / bucket_ns - self.origin.as_nanos() / bucket_ns + 2;
        BucketTime {
            number: u32::try_from(number).unwrap_or(u32::MAX - 1),
            bucket_ns,
            into_ns: now_ns % bucket_ns,
        }
    }
}

// === impl WideWindows ===

impl WideWindows {
    /// Returns whether a key other than `digest` owns a slot.
    pub(super) fn knows_others_than(&self, digest: Digest) -> bool {
        self.odd.has_owner_but(digest.0)
    }

    /// The number of calls that were judged by the word that keys without a slot share.
    pub(super) fn overflows(&self) -> u64 {
        self.odd.overflows()
    }

    /// The bytes that this value occupies.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() - size_of::<KeyTable>() + self.odd.footprint()
    }
}

// === impl InBucket ===

impl Judge for InBucket<'_> {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        let found = BucketWord::of(word);
        if found.number > self.number {
            return Err(Some(LATE));
        }
        let bucket = if found.number == self.number {
            found
        } else {
            BucketWord::of(self.fresh(word))
        };
        let changed = (self.change)(bucket);
        changed.map(BucketWord::word).map_err(Some)
    }

    fn rest(&self, word: u64) -> Option<u64> {
        let number = BucketWord::of(word).number;
        (number < self.number).then(|| u64::from(self.number - number))
    }

    fn fresh(&self, _: u64) -> u64 {
        u64::from(self.number) << (COUNT_BITS + 1)
    }

    fn left(&self, word: u64) -> u32 {
        MAX_TOKENS - BucketWord::of(word).count
    }
}

// === impl WideCounts ===

impl WideCounts {
    /// The tokens spent in both buckets.
    fn sum(self) -> u64 {
        u64::from(self.before) + u64::from(self.newest)
    }

    /// Returns how long after `time` there is room for `weight` tokens, which are at most the
    /// limit; 0 if there is room already.
    fn wait_ns(self, time: BucketTime, limit: u32, weight: u32) -> u64 {
        let (limit, weight) = (u64::from(limit), u64::from(weight));
        if self.sum() + weight <= limit {
            return 0;
        }
        // The newest count still counts in the next bucket, but not in the bucket after that.
        let buckets = if u64::from(self.newest) + weight <= limit {
            1
        } else {
            2
        };
        let ahead = u64::from(self.number - time.number);
        time.bucket_ns.saturating_mul(ahead + buckets) - time.into_ns
    }
}

// === impl BucketWord ===

impl BucketWord {
    const fn of(word: u64) -> Self {
        Self {
            number: (word >> (COUNT_BITS + 1)) as u32,
            is_closed: word & CLOSED != 0,
            count: word as u32 & MAX_TOKENS,
        }
    }

    /// Returns the packed word. It is never [`CLAIMED`](super::CLAIMED), because no bucket has such
    /// a large number.
    const fn word(self) -> u64 {
        let closed = if self.is_closed { CLOSED } else { 0 };
        (self.number as u64) << (COUNT_BITS + 1) | closed | self.count as u64
    }

    /// Returns this word with the bucket closed.
    const fn closed(self) -> Self {
        Self {
            is_closed: true,
            ..self
        }
    }

    /// Returns this word with another count.
    const fn counting(self, count: u32) -> Self {
        Self { count, ..self }
    }
}
