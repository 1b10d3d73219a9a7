//! A queue of evenly spaced calls: a leaky bucket in one word.
//!
//! ```text
//! bit 63                       5 4     0
//!     [        latest turn      ][ gap ]      nanoseconds | a power of four
//! ```
//!
//! A call of cost `c` at `now` starts at `max(now, latest + c)`, which becomes the latest turn. A
//! call that would have to wait too long is refused and changes nothing. A flow rule's queue has
//! the same arithmetic: the cost of a call is its distance from the previous call, and the first
//! call of a queue starts at once.
//!
//! Whether a queue is at rest depends on the cost of its next call, which is not known when another
//! key needs the slot. So the word keeps the largest cost since the key was last at rest, rounded
//! up to a power of four, as its *gap*. A queue is at rest when its latest turn is longer ago than
//! its gap. After an eviction, only a call that costs more than the gap can start earlier than with
//! the old word.
//!
//! A gap of 0 means a queue without a turn: it is new, or its only turn was cancelled. The time in
//! its word is its creation time, so that no word of a slot is ever earlier than its owner's first
//! word.
//!
//! The range is 18 years from the creation of the table. A call whose turn would be later is
//! refused for ever: its refusal names no time at which there is room.
//!
//! # Accuracy
//!
//! Costs are rounded up to whole nanoseconds, like those of a flow rule's queue.

use std::time::Duration;

use super::Judge;
use crate::clock::{Tick, nanos};
use crate::shape::cost;

/// The bits of a gap.
const GAP_BITS: u32 = 5;
/// The mask of a gap, which is also the largest gap.
const GAPS: u64 = (1 << GAP_BITS) - 1;
/// The last possible turn, 18 years after the creation of the table. It is one below the maximum of
/// the field, so that no word is `CLAIMED`.
const LAST: u64 = (u64::MAX >> GAP_BITS) - 1;
/// A gap of `k` stands for 2^(8 + 2k) ns: the shortest gap is 2^10 ns, and each further gap is four
/// times as long.
const GAP_BASE: u32 = 8;

/// A threshold, converted to a distance between calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// The number of tokens in each `interval`.
    threshold: f64,
    interval: Duration,
    /// The cost of one token in ns; `None` if no token ever passes.
    single_ns: Option<u64>,
}

/// The judge of a call by the word of its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueCall {
    /// The time of the call, in ns since the creation of the table, plus 1.
    now: u64,
    /// The cost of one token; `None` if no token ever passes.
    single_ns: Option<u64>,
    /// The cost of the call; `None` if no token ever passes.
    cost_ns: Option<u64>,
    /// The longest wait for a turn.
    max_wait_ns: u64,
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(threshold: f64, interval: Duration) -> Self {
        Self {
            threshold,
            interval,
            single_ns: cost(1, threshold, interval),
        }
    }

    /// Returns the cost of a call of `weight` tokens in ns; `None` if no token ever passes.
    fn cost(self, weight: u32) -> Option<u64> {
        if weight == 1 {
            self.single_ns
        } else {
            cost(weight, self.threshold, self.interval)
        }
    }

    /// Returns the time that `weight` calls of one token take in the queue; `None` if no token ever
    /// passes, or if the time overflows.
    pub(super) fn time_of(self, weight: u32) -> Option<Duration> {
        let all_ns = self.single_ns?.checked_mul(weight.into())?;
        Some(Duration::from_nanos(all_ns))
    }
}

// === impl QueueCall ===

impl QueueCall {
    /// Creates a call of `weight` tokens at `now`, in a table that was created at `origin`.
    pub(super) fn new(
        origin: Tick,
        now: Tick,
        pace: Pace,
        max_wait: Duration,
        weight: u32,
    ) -> Self {
        Self {
            // At least 1, because 0 is the word of no key.
            now: now.nanos_since(origin).saturating_add(1).min(LAST),
            single_ns: pace.single_ns,
            cost_ns: pace.cost(weight),
            max_wait_ns: nanos(max_wait),
        }
    }

    /// Returns the wait of a call that changed the word to `after`, in ns.
    pub(super) const fn wait_ns(self, after: u64) -> u64 {
        (after >> GAP_BITS).saturating_sub(self.now)
    }

    /// Returns the earliest start of a call of `cost_ns` behind the latest turn of `word`. It can
    /// be in the past.
    const fn next(word: u64, cost_ns: u64) -> u64 {
        let (latest, gap) = (word >> GAP_BITS, word & GAPS);
        if gap == 0 {
            latest
        } else {
            latest.saturating_add(cost_ns)
        }
    }
}

/// Returns `before`, the word before the call, if no later call has changed the word since.
pub(super) fn cancel(word: u64, before: u64, after: u64) -> Option<u64> {
    (word == after).then_some(before)
}

/// Returns the smallest gap that is at least `cost_ns` long.
fn gap(cost_ns: u64) -> u64 {
    // The bit length of `cost_ns − 1`. Each step of the gap covers two more bits.
    let bits = u64::BITS - cost_ns.saturating_sub(1).leading_zeros();
    u64::from(bits.saturating_sub(GAP_BASE).div_ceil(2)).max(1)
}

/// Returns the length of a gap in nanoseconds; `u64::MAX` if it is beyond the range.
const fn gap_ns(gap: u64) -> u64 {
    let bits = GAP_BASE + 2 * gap as u32;
    if bits < u64::BITS {
        1 << bits
    } else {
        u64::MAX
    }
}

/// Returns the word of a queue without a turn, created at `now`, which must be read after `word`.
/// `None` if `word` has no turn already.
pub(super) fn reset(origin: Tick, now: Tick, word: u64) -> Option<u64> {
    let now = now.nanos_since(origin).saturating_add(1).min(LAST);
    (word & GAPS != 0).then_some(now << GAP_BITS)
}

impl Judge for QueueCall {
    #[inline]
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        let Some(cost_ns) = self.cost_ns else {
            return Err(None);
        };
        let start = Self::next(word, cost_ns).max(self.now);
        if start > LAST {
            return Err(None);
        }
        let wait_ns = start - self.now;
        if wait_ns > self.max_wait_ns {
            return Err(Some(wait_ns - self.max_wait_ns));
        }
        let known = if self.rest(word).is_some() {
            0
        } else {
            word & GAPS
        };
        Ok((start << GAP_BITS) | gap(cost_ns).max(known))
    }

    #[inline]
    fn rest(&self, word: u64) -> Option<u64> {
        let (latest, gap) = (word >> GAP_BITS, word & GAPS);
        let gap_ns = if gap == 0 { 0 } else { gap_ns(gap) };
        let is_over = latest.saturating_add(gap_ns) < self.now;
        is_over.then(|| self.now - latest)
    }

    fn fresh(&self, _: u64) -> u64 {
        self.now << GAP_BITS
    }

    fn left(&self, word: u64) -> u32 {
        let Some(single_ns) = self.single_ns else {
            return 0;
        };
        let start = Self::next(word, single_ns).max(self.now);
        let Some(open_ns) = self.max_wait_ns.checked_sub(start - self.now) else {
            return 0;
        };
        u32::try_from(open_ns / single_ns + 1).unwrap_or(u32::MAX)
    }
}
