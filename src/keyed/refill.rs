//! A quota that is refilled all the time: the generic cell rate algorithm.
//!
//! The word is a time, until when the key is in debt. A token costs the time in
//! which one is earned; a call moves the debt on by the cost of its tokens, from
//! now if there is none, and passes if it then ends within the *tolerance*, the
//! time in which the whole capacity is earned.
//!
//! ```text
//! 5 per second and 2 more: a token costs 200 ms, the tolerance is 1 400 ms
//!
//! word       0 ──▶ 200 ──▶ … ──▶ 1 400   seven calls at 0
//!                                ✗       the eighth would end at 1 600
//!                                1 600   at 200 ms one more may
//! ```
//!
//! A word that is before now is a full quota under any limit of the key, so a limit may change and
//! the debt keeps its meaning. "Before" is strict: the debt of a new owner of a slot starts at its
//! now, later than any that was at rest.
//!
//! # Accuracy
//!
//! Times are sixteenths of a nanosecond since the table was made, and the cost of a token is
//! rounded up to a whole one, once. As the tolerance is made of the rounded cost, the capacity is
//! exact: a key that has rested may spend exactly `⌊threshold⌋ + burst` tokens at one moment. In
//! any `t` at most `threshold + burst + t · threshold / interval` pass, and less than that by at
//! most one part in 1.6 · 10¹⁰ ÷ (tokens per second): 0.006 % at a million per second, 0.6 % at
//! 10⁸. Beyond 1.6 · 10¹⁰ tokens per second the refill is no faster, while the capacity still is
//! the requested one.
//!
//! The range is 18 years from the making of the table, after which its time stands still; a debt
//! ends within 9 years, so a capacity that takes longer to earn is reduced to the tokens earned in
//! them.
//!
//! # Refunds
//!
//! A call that does not run is refunded its cost, less the time since its start. That is its *open*
//! part, which closes as time goes on. At the latest time of a call on a word, that word less the
//! open parts of all calls that may still be refunded
//!
//! * is not before that time, if there are open parts: a call adds to the word at least as much as
//!   it opens, and a part that stays open closes by as much as time moves on;
//! * is not before the debt that the calls that run have left alone: one of them moves both on by
//!   its cost, from its time or later, and before that the first was not the earlier one.
//!
//! So calls that run get no more than if the others had not come, in any order of the refunds.
//! Nothing is lost at one moment; later, a key in debt loses the tokens that it has earned while
//! such a call was on its way, at most the cost of the call. The debt that a call left does not
//! tell how much of it there still is, as earlier calls may have been refunded from under it.
//!
//! # Source
//!
//! ITU-T I.371, the virtual scheduling algorithm. Sentinel refills in one lump
//! after a whole interval instead, and so lets twice the threshold pass around
//! its end.

use std::time::Duration;

use super::Judge;
use crate::base::sync::{Bug, planted};
use crate::clock::{Tick, nanos};

/// Units of the word in a nanosecond.
const UNITS: u64 = 16;
/// The last time that is distinguished, 18 years.
const LAST: u64 = 1 << 63;
/// The longest debt, 9 years. `LAST + 2 * LONGEST` is below [`super::CLAIMED`].
const LONGEST: u64 = (1 << 62) - 1;

/// A threshold and a burst, in units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// The cost of one token; 0 if nothing ever passes.
    cost: u64,
    /// How long the debt after a call may be.
    tolerance: u64,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refill {
    now: u64,
    cost: u64,
    rate: Rate,
}

/// A charge for what a call has cost. It is never refused: a debt may end beyond the tolerance.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefillCharge {
    call: Refill,
    /// How long the debt may be at most.
    most: u64,
}

// === impl Rate ===

impl Rate {
    pub(super) fn new(threshold: f64, burst: u32, interval: Duration) -> Self {
        if threshold <= 0.0 {
            return Self {
                cost: 0,
                tolerance: 0,
            };
        }
        let units = nanos(interval).saturating_mul(UNITS);
        let cost = cost(units, threshold);
        let whole = threshold.floor() as u64 + u64::from(burst);
        // Below the cost of a token, also where the product is rounded up.
        let part = ((threshold.fract() * cost as f64) as u64).min(cost - 1);
        let tolerance = whole.saturating_mul(cost).saturating_add(part).min(LONGEST);
        Self { cost, tolerance }
    }
}

/// The least whole cost that keeps to `threshold` tokens in `units`.
fn cost(units: u64, threshold: f64) -> u64 {
    // Exact but for thresholds below 2^-12, whose last bits are cut off. The power
    // is a shift, as `powi` promises no precision.
    let parts = (threshold * (1_u128 << 64) as f64) as u128;
    if parts == 0 {
        return LONGEST;
    }
    let cost = (u128::from(units) << 64).div_ceil(parts);
    u64::try_from(cost).unwrap_or(LONGEST).clamp(1, LONGEST)
}

// === impl Refill ===

impl Refill {
    /// A call of `weight` tokens at `now`, in a table that was made at `origin`.
    pub(super) fn new(origin: Tick, now: Tick, rate: Rate, weight: u32) -> Self {
        Self {
            now: units(origin, now),
            // Above every tolerance where nothing passes, or not so much.
            cost: match rate.cost {
                0 => u64::MAX,
                cost => cost.saturating_mul(weight.into()),
            },
            rate,
        }
    }

    /// The cost of the call.
    pub(super) const fn cost(self) -> u64 {
        self.cost
    }
}

// === impl RefillCharge ===

impl RefillCharge {
    /// A charge of `units`, which keeps a key out for at most `most` beyond a quota that is spent. At
    /// a limit of 0 units have no time, and nothing is charged.
    pub(super) fn new(origin: Tick, now: Tick, rate: Rate, units: u32, most: Duration) -> Self {
        let mut call = Refill::new(origin, now, rate, units);
        if rate.cost == 0 {
            call.cost = 0;
        }
        let most = nanos(most).saturating_mul(UNITS);
        let most = rate
            .tolerance
            .saturating_add(most)
            .saturating_sub(rate.cost);
        Self {
            call,
            most: most.min(LONGEST),
        }
    }

    /// How many units have been charged by a change of the word, and how many of them beyond the
    /// tolerance.
    pub(super) fn charged(self, before: u64, after: u64) -> (u32, u32) {
        let Refill { now, rate, .. } = self.call;
        let tokens = |time: u64| {
            let tokens = time.checked_div(rate.cost).unwrap_or(0);
            u32::try_from(tokens).unwrap_or(u32::MAX)
        };
        let charged = tokens(after - before.max(now).min(after));
        let beyond = (after - now).saturating_sub(rate.tolerance);
        let over = tokens(beyond.saturating_add(rate.cost.saturating_sub(1)));
        (charged, over.min(charged))
    }
}

impl Judge for RefillCharge {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        let Refill { now, cost, .. } = self.call;
        // The sum does not overflow: see LONGEST. A debt that is longer already stays.
        let due = word.max(now).saturating_add(cost);
        Ok(due.min(now + self.most).max(word))
    }

    fn rest(&self, word: u64) -> Option<u64> {
        self.call.rest(word)
    }

    fn fresh(&self, last: u64) -> u64 {
        self.call.fresh(last)
    }

    fn left(&self, word: u64) -> u32 {
        self.call.left(word)
    }
}

/// `now` as a word. Never 0, which is the word of no key.
fn units(origin: Tick, now: Tick) -> u64 {
    let age_ns = now.nanos_since(origin).saturating_add(1);
    age_ns.saturating_mul(UNITS).min(LAST)
}

/// The word without the open part, `now`, of a call that has paid `cost` at
/// `start`; `None` if there is none.
pub(super) fn refund(origin: Tick, start: Tick, now: Tick, word: u64, cost: u64) -> Option<u64> {
    let (start, now) = (units(origin, start), units(origin, now));
    let open = cost.saturating_sub(now.saturating_sub(start));
    let paid_back = word.saturating_sub(open).max(now);
    (paid_back < word).then_some(paid_back)
}

/// The word of a key that has spent nothing by `now`, which is read after `word`; `None` if that
/// is so already.
pub(super) fn reset(origin: Tick, now: Tick, word: u64) -> Option<u64> {
    let now = units(origin, now);
    (now < word).then_some(now)
}

impl Judge for Refill {
    #[inline]
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        if self.cost > self.rate.tolerance {
            return Err(None);
        }
        // Neither sum overflows: see LONGEST.
        let due = word.max(self.now) + self.cost;
        let latest = self.now + self.rate.tolerance;
        if due > latest {
            return Err(Some((due - latest).div_ceil(UNITS)));
        }
        Ok(due)
    }

    fn rest(&self, word: u64) -> Option<u64> {
        let is_over = word < self.now || (planted(Bug::RestTooSoon) && word == self.now);
        is_over.then(|| self.now - word)
    }

    fn fresh(&self, _: u64) -> u64 {
        self.now
    }

    fn left(&self, word: u64) -> u32 {
        let debt = word.saturating_sub(self.now);
        let open = self.rate.tolerance.saturating_sub(debt);
        let tokens = open.checked_div(self.rate.cost).unwrap_or(0);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }
}
