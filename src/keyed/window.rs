//! A sliding window of two buckets, aligned to the clock, in one word.
//!
//! ```text
//! bit 63        40 39          20 19           0
//!     [  number   ][   before    ][   newest    ]
//! ```
//!
//! The word holds the number of the newest bucket in which the key took tokens, and the tokens
//! taken in that bucket and in the previous one. A call passes if the counts of both buckets of its
//! window plus its tokens are at most the limit. Everything is in one word, so no window of two
//! aligned buckets ever holds more. A bucket that is older than the window is recognized by its
//! number and ignored; it is never cleared.
//!
//! Numbers are compared modulo 2²⁴. A word that is ahead by at most the [slack](WindowCall::slack)
//! was written with a later clock reading, and the call counts in its newest bucket. A word that is
//! ahead by more is old, from before the last wrap.
//!
//! # Accuracy
//!
//! Counts are exact for keys whose calls are less than 2²⁴ buckets apart: 97 days for a window of a
//! second, two hours for one of a millisecond. A key that returns after a multiple of this time,
//! within the slack, finds its old count again, if no other key has taken its slot. It may be
//! refused because of this count, and it keeps the slot for one more window, but it never gets more
//! than its limit. A thread that sleeps for this time within one call can have the same effect on
//! another key.
//!
//! A call that is late by more than the slack mistakes the current window of its key for an old one
//! and resets it, or evicts another key whose window looks old. Then tokens of up to one whole
//! limit may pass again. A step of the clock does not cause this, because the time of an engine
//! steps back by at most two seconds.
//!
//! # Source
//!
//! The leap array of Alibaba Sentinel with two buckets, reduced to one counter.

use std::time::Duration;

use super::Judge;
use crate::clock::{Tick, nanos};

/// The largest limit of a window: two counts and the number of a bucket must fit into one word.
pub(crate) const MOST: u32 = (1 << COUNT_BITS) - 1;

/// The bits of each of the two counts.
const COUNT_BITS: u32 = 20;
/// The bits of the number of a bucket.
const NUMBER_BITS: u32 = 24;
/// The mask of the number of a bucket.
const NUMBERS: u32 = (1 << NUMBER_BITS) - 1;

/// The smallest number of buckets by which a call may be late. For buckets longer than 4 ms this is
/// a longer time than [`SLACK`].
const LEAST_SLACK: u64 = 1 << 10;
/// The shortest time by which a call may be late. The time of an engine can be behind by the slack
/// of its [clock](crate::clock) and by a step of a node, which is at most a second.
const SLACK: Duration = Duration::from_secs(4);

/// The judge of a call by the counts of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowCall {
    /// The time of the call.
    now_ns: u64,
    /// The length of one of the two buckets.
    bucket_ns: u64,
    /// The number of the bucket of `now_ns`.
    number: u32,
    /// The number of buckets by which a word may be ahead of the call.
    slack: u32,
    limit: u32,
    weight: u32,
}

/// The judge of a charge for the cost of a call. A charge is never refused, so a window can hold
/// more than the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowCharge(pub(super) WindowCall);

/// The fields of a word.
#[derive(Clone, Copy, Debug)]
struct WindowCounts {
    /// The number of the newest bucket in which the key took tokens.
    number: u32,
    /// The tokens taken in the bucket before `number`.
    before: u32,
    /// The tokens taken in the bucket `number`.
    newest: u32,
}

impl WindowCall {
    /// Creates a call of `weight` tokens at `now`, of a key that may take `limit` tokens in
    /// `interval`, whose [slack](Self::slack) is `slack`.
    pub(super) fn new(now: Tick, interval: Duration, slack: u32, limit: u32, weight: u32) -> Self {
        let now_ns = now.as_nanos();
        let bucket_ns = bucket_ns(interval);
        Self {
            slack,
            now_ns,
            bucket_ns,
            // Numbers begin at 1, so that no key's first word is 0, the word of no key.
            number: (now_ns / bucket_ns + 1) as u32 & NUMBERS,
            limit,
            weight,
        }
    }

    /// Returns the number of buckets by which a call may be late, in windows of this `interval`.
    pub(super) fn slack(interval: Duration) -> u32 {
        let buckets = (nanos(SLACK) / bucket_ns(interval)).max(LEAST_SLACK);
        // The minimum hardly ever applies: no bucket is shorter than half a millisecond, so the
        // slack is far below the range of numbers.
        (buckets as u32).min(NUMBERS / 4)
    }

    /// Returns the number of buckets by which the word is ahead of the call.
    const fn ahead(self, word: u64) -> u32 {
        WindowCounts::of(word).number.wrapping_sub(self.number) & NUMBERS
    }

    /// Returns the counts that judge the call: the counts at the time of the call or, if the word
    /// is ahead by at most the slack, the counts in the word.
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

/// The length of one of the two buckets, in ns.
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
        // The newest count still counts in the next bucket, but not in the bucket after that.
        let is_next = counts.newest + self.weight <= self.limit;
        let ahead = counts.number.wrapping_sub(self.number) & NUMBERS;
        let buckets = u64::from(ahead) + if is_next { 1 } else { 2 };
        let into_ns = self.now_ns % self.bucket_ns;
        Err(Some(self.bucket_ns.saturating_mul(buckets) - into_ns))
    }

    fn rest(&self, word: u64) -> Option<u64> {
        // A word at rest is neither ahead by at most the slack, nor of the bucket of the call, nor
        // of the previous bucket.
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
    /// Returns how many units a change of the word has charged, and how many of them exceed the
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
        // The maximum is one less if the other bucket is full, so that no word is `CLAIMED`.
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

/// Returns `word` less the `weight` tokens of a call that left the word at `after`; `None` if the
/// bucket of that call no longer counts.
pub(super) fn refund(word: u64, after: u64, weight: u32) -> Option<u64> {
    let mut counts = WindowCounts::of(word);
    match counts.number.wrapping_sub(WindowCounts::of(after).number) & NUMBERS {
        0 => counts.newest = counts.newest.checked_sub(weight)?,
        1 => counts.before = counts.before.checked_sub(weight)?,
        _ => return None,
    }
    Some(counts.word())
}

/// Returns the word with both counts 0; `None` if they are already 0.
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

    /// Returns the packed word. It is never [`CLAIMED`](super::CLAIMED): the sum of the two counts
    /// is at most [`MOST`], unless units were charged. Then at least one of the counts is below
    /// [`MOST`].
    const fn word(self) -> u64 {
        ((self.number as u64) << (2 * COUNT_BITS))
            | ((self.before as u64) << COUNT_BITS)
            | self.newest as u64
    }
}
