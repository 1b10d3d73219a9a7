//! A sliding window of two buckets, aligned to the clock, in one word.
//!
//! ```text
//! bit 63        40 39          20 19           0
//!     [  number   ][   before    ][   newest    ]
//! ```
//!
//! The number of the newest bucket in which the key took something, and the tokens taken in the
//! bucket before and in that one. A call passes if the sum of both buckets of its window and its
//! own tokens is at most the limit. All of it is one word, so no window of two aligned buckets ever
//! holds more. A bucket that is older than the window is left out by its number, and never cleared.
//!
//! Numbers are compared modulo 2²⁴. A word that is ahead by at most the
//! [slack](Window::slack) belongs to a faster clock, and the call counts in the newest
//! bucket; one that is ahead by more is from the round before, and old.
//!
//! # Accuracy
//!
//! Exact for keys that come again within 2²⁴ buckets: 97 days for a window of a second, two hours
//! for one of a millisecond. A key that stays away for a multiple of that, give or take the slack,
//! finds its count of that time, if no other key has taken its slot since; it may be refused for
//! that, has the slot again for so long, and never gets more. A thread that stands still for as
//! long within one call may do the same to another key.
//!
//! A call whose time is behind by more than the slack takes the window for an old one
//! and opens it anew, and another key's as well if it takes that one's slot: up to a
//! limit may then pass once more. A step of the clock does not do that: by the time of an
//! engine it is at most two seconds.
//!
//! # Source
//!
//! The leap array of Sentinel with two buckets, cut down to one counter.

use std::time::Duration;

use super::Judge;
use crate::clock::{Tick, nanos};

/// The largest limit of a window: two counts and the number of a bucket share
/// one word.
pub(crate) const MOST: u32 = (1 << COUNT_BITS) - 1;

const COUNT_BITS: u32 = 20;
const NUMBER_BITS: u32 = 24;
const NUMBERS: u32 = (1 << NUMBER_BITS) - 1;

/// By how many buckets, at least, a call may be late.
const LEAST_SLACK: u64 = 1 << 10;
/// And by how long. An engine's time may be behind by the slack of the [clock](crate::clock) and a
/// step of a node, which is a second at most.
const SLACK: Duration = Duration::from_secs(4);

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowCall {
    now_ns: u64,
    bucket_ns: u64,
    /// The number of the bucket of `now_ns`.
    number: u32,
    /// By how many buckets a word may be ahead.
    slack: u32,
    limit: u32,
    weight: u32,
}

/// A charge for what a call has cost. It is never refused: a window may hold more than the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowCharge(pub(super) WindowCall);

/// A word, apart.
#[derive(Clone, Copy, Debug)]
struct WindowCounts {
    number: u32,
    before: u32,
    newest: u32,
}

impl WindowCall {
    /// A call of `weight` tokens at `now`, of a key that may take `limit` of them in
    /// an `interval`, which has this [slack](Self::slack).
    pub(super) fn new(now: Tick, interval: Duration, slack: u32, limit: u32, weight: u32) -> Self {
        let now_ns = now.as_nanos();
        let bucket_ns = bucket_ns(interval);
        Self {
            slack,
            now_ns,
            bucket_ns,
            // From 1 on, so that 0, the word of no key, is not written again.
            number: (now_ns / bucket_ns + 1) as u32 & NUMBERS,
            limit,
            weight,
        }
    }

    /// By how many buckets a call may be late, in windows of an `interval`.
    pub(super) fn slack(interval: Duration) -> u32 {
        let buckets = (nanos(SLACK) / bucket_ns(interval)).max(LEAST_SLACK);
        // Far less than a round, as no bucket is shorter than half a millisecond.
        (buckets as u32).min(NUMBERS / 4)
    }

    /// How many buckets the word is ahead of the call.
    const fn ahead(self, word: u64) -> u32 {
        WindowCounts::of(word).number.wrapping_sub(self.number) & NUMBERS
    }

    /// The counts that matter to the call, at its own time or that of a faster clock.
    const fn counts(self, word: u64) -> WindowCounts {
        let found = WindowCounts::of(word);
        let before = match self.ahead(word) {
            ahead if ahead <= self.slack => return found,
            NUMBERS => found.newest,
            _ => 0,
        };
        WindowCounts {
            number: self.number,
            before,
            newest: 0,
        }
    }
}

fn bucket_ns(interval: Duration) -> u64 {
    (nanos(interval) / 2).max(1)
}

impl Judge for WindowCall {
    #[inline]
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        if self.weight > self.limit {
            return Err(None);
        }
        let mut counts = self.counts(word);
        // No sum overflows: a count has 20 bits, and `weight` is at most the limit.
        if counts.before + counts.newest + self.weight <= self.limit {
            counts.newest += self.weight;
            return Ok(counts.word());
        }
        // In the next bucket the newest one still counts, in the one after not.
        let is_next = counts.newest + self.weight <= self.limit;
        let ahead = counts.number.wrapping_sub(self.number) & NUMBERS;
        let buckets = u64::from(ahead) + if is_next { 1 } else { 2 };
        let into_ns = self.now_ns % self.bucket_ns;
        Err(Some(self.bucket_ns.saturating_mul(buckets) - into_ns))
    }

    fn rest(&self, word: u64) -> Option<u64> {
        // Neither a faster clock's, nor this bucket's, nor the one's before.
        let ahead = self.ahead(word);
        (self.slack < ahead && ahead < NUMBERS).then(|| u64::from(NUMBERS - ahead))
    }

    fn fresh(&self, _: u64) -> u64 {
        u64::from(self.number) << (2 * COUNT_BITS)
    }

    fn left(&self, word: u64) -> u32 {
        let counts = self.counts(word);
        self.limit.saturating_sub(counts.before + counts.newest)
    }
}

impl WindowCharge {
    /// How many units have been charged by a change of the word, and how many of them beyond the
    /// limit.
    pub(super) fn charged(self, before: u64, after: u64) -> (u32, u32) {
        let [before, after] = [before, after].map(|word| {
            let counts = self.0.counts(word);
            counts.before + counts.newest
        });
        let charged = after - before;
        (charged, after.saturating_sub(self.0.limit).min(charged))
    }
}

impl Judge for WindowCharge {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        let mut counts = self.0.counts(word);
        // One less beside a full bucket, as no word is CLAIMED.
        let most = if counts.before == MOST {
            MOST - 1
        } else {
            MOST
        };
        counts.newest = counts.newest.saturating_add(self.0.weight).min(most);
        Ok(counts.word())
    }

    fn rest(&self, word: u64) -> Option<u64> {
        self.0.rest(word)
    }

    fn fresh(&self, last: u64) -> u64 {
        self.0.fresh(last)
    }

    fn left(&self, word: u64) -> u32 {
        self.0.left(word)
    }
}

/// The word without `weight` tokens of a call that left the word `after`; `None` if
/// its bucket does not count any more.
pub(super) fn refund(word: u64, after: u64, weight: u32) -> Option<u64> {
    let mut counts = WindowCounts::of(word);
    match counts.number.wrapping_sub(WindowCounts::of(after).number) & NUMBERS {
        0 => counts.newest = counts.newest.checked_sub(weight)?,
        1 => counts.before = counts.before.checked_sub(weight)?,
        _ => return None,
    }
    Some(counts.word())
}

/// The word of a key that has spent nothing in its window; `None` if that is so already.
pub(super) fn reset(word: u64) -> Option<u64> {
    let counts = WindowCounts::of(word);
    let empty = WindowCounts {
        before: 0,
        newest: 0,
        ..counts
    };
    (counts.before + counts.newest > 0).then(|| empty.word())
}

impl WindowCounts {
    const fn of(word: u64) -> Self {
        Self {
            number: (word >> (2 * COUNT_BITS)) as u32,
            before: (word >> COUNT_BITS) as u32 & MOST,
            newest: word as u32 & MOST,
        }
    }

    /// Never [`CLAIMED`](super::CLAIMED): the two counts together are at most
    /// [`MOST`], unless they were charged, and then they are not both that.
    const fn word(self) -> u64 {
        ((self.number as u64) << (2 * COUNT_BITS))
            | ((self.before as u64) << COUNT_BITS)
            | self.newest as u64
    }
}
