//! A quota that is refilled all the time: the generic cell rate algorithm.
//!
//! The word is the time until which the key is in debt. A token costs the time in
//! which one is earned. A call moves the end of the debt on by the cost of its
//! tokens, from now if there is no debt, and passes if the debt then ends within the
//! *tolerance*, the time in which the whole capacity is earned.
//!
//! ```text
//! 5 per second and 2 more: a token costs 200 ms, the tolerance is 1 400 ms
//!
//! word       0 ──▶ 200 ──▶ … ──▶ 1 400   seven calls at 0
//!                                ✗       the eighth would end at 1 600
//!                                1 600   at 200 ms one more may
//! ```
//!
//! A word earlier than now is a full quota under any limit of the key. Any other word ends in the
//! number of the [rate](super::rates) at which it was written: a call at another rate keeps the
//! tokens of the debt, not its time. "Earlier" is strict: the word of a new owner of a slot starts
//! at the owner's now, later than every word that was at rest there. A debt that is made shorter
//! does not end before such a word either, as the clock is read after the word.
//!
//! # Accuracy
//!
//! Times are sixteenths of a nanosecond since the table was made. The cost of a token is rounded up
//! once: to a whole sixteenth, or to a whole nanosecond where words have numbers. As the
//! tolerance is made of the rounded cost, the capacity is exact: a key that has rested may spend
//! exactly `⌊threshold⌋ + burst` tokens at one moment. In any `t` at most `threshold + burst +
//! t · threshold / interval` pass, and less than that by at most one part in 1.6 · 10¹⁰ ÷ (tokens
//! per second): 0.006 % at a million per second, 0.6 % at 10⁸; where words have numbers, one in 10⁹
//! ÷ (tokens per second), up to 61 000 of them. Beyond 1.6 · 10¹⁰ tokens per second the refill is
//! no faster, while the capacity still is the requested one.
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
//! * is not before the end of the debt that the calls that run would have left without the others:
//!   each of them moves both by its cost, from its time or later, and so keeps their order.
//!
//! So calls that run get no more than if the others had not come, in any order of the refunds.
//! A refund at the time of the call loses nothing. Later, a key in debt loses the tokens that it
//! has earned while such a call was on its way, at most the cost of the call. The word that a call
//! left does not tell how much of its debt is left, as earlier calls may have been refunded since.
//!
//! If a call has found a debt at another rate, its refund restores that debt, provided that no
//! other call has come since and the call's own debt has not ended; else the debt stays at the rate
//! of the call. A part that is open after the rate has changed closes at the faster of the two
//! rates. If the key had another rate meanwhile and has the call's own again, a refund may give
//! back more than is open, and at most what the call has paid.
//!
//! # Source
//!
//! ITU-T I.371, the virtual scheduling algorithm. Sentinel refills in one lump
//! after a whole interval instead, and so lets twice the threshold pass around
//! its end.

use std::time::Duration;

use super::Judge;
use super::rates::{Rates, SHORTEST, UNKNOWN, scaled, scaled_down};
use crate::base::sync::{Bug, planted};
use crate::clock::{Tick, nanos};

/// Units of the word in a nanosecond.
const UNITS: u64 = 16;
/// The last time that is distinguished, 18 years.
const LAST: u64 = (1 << 63) - UNITS;
/// The longest debt, 9 years. `LAST + 2 * LONGEST` and a number are below [`super::CLAIMED`].
const LONGEST: u64 = (1 << 62) - 1;
/// In the place of a wait: the word was written at another rate.
pub(super) const OTHER_RATE: u64 = u64::MAX;

/// A threshold and a burst, in units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// The cost of one token; 0 if nothing ever passes.
    pub(super) cost: u64,
    /// How long the debt after a call may be.
    tolerance: u64,
    /// The number at the end of words that are written at this rate.
    pub(super) number: u64,
    /// The bits of a word that hold the number; 0 if words have none.
    mask: u64,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refill {
    now: u64,
    cost: u64,
    rate: Rate,
}

/// One call, by a word that may be of another rate.
#[derive(Clone, Copy)]
pub(super) struct RefillAtAnyRate<'a> {
    call: Refill,
    rates: &'a Rates,
    /// Returns the present, as a word; `None` for a call that changes nothing.
    time: Option<&'a dyn Fn() -> u64>,
}

/// A charge for what a call has cost. It is never refused: a debt may end beyond the tolerance.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefillCharge<'a> {
    call: Refill,
    units: u32,
    /// How long a debt may last beyond a quota that is spent.
    most: u64,
    rates: &'a Rates,
}

/// What a call has paid that is refunded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paid {
    pub(super) start: Tick,
    pub(super) cost: u64,
    /// The word that the call has left.
    pub(super) after: u64,
    /// The word that it has found, if that was a debt at another rate; else 0.
    pub(super) other: u64,
}

// === impl Rate ===

impl Rate {
    /// A rate of words without numbers.
    pub(super) fn new(threshold: f64, burst: u32, interval: Duration) -> Self {
        let cost = cost(nanos(interval).saturating_mul(UNITS), threshold);
        Self::of_cost(cost, threshold, burst)
    }

    /// A rate that has a number among `rates`, if one is free.
    pub(super) fn numbered(rates: &Rates, threshold: f64, burst: u32, interval: Duration) -> Self {
        let rate = Self::new(threshold, burst, interval);
        if rate.cost != 0 && rate.cost < SHORTEST {
            rates.forgo();
        }
        let mask = rates.mask();
        if mask == 0 || rate.cost == 0 {
            return Self { mask, ..rate };
        }
        let cost = rate.cost.next_multiple_of(UNITS).min(LONGEST & !mask);
        Self {
            number: rates.number(cost),
            mask,
            ..Self::of_cost(cost, threshold, burst)
        }
    }

    fn of_cost(cost: u64, threshold: f64, burst: u32) -> Self {
        let tolerance = if cost == 0 {
            0
        } else {
            let whole = threshold.floor() as u64 + u64::from(burst);
            // Below the cost of a token, also where the product is rounded up.
            let part = ((threshold.fract() * cost as f64) as u64).min(cost - 1);
            whole.saturating_mul(cost).saturating_add(part).min(LONGEST)
        };
        Self {
            cost,
            tolerance,
            number: UNKNOWN,
            mask: 0,
        }
    }

    /// Returns whether there was no number for it.
    pub(super) const fn lacks_number(&self) -> bool {
        self.number == UNKNOWN && self.mask != 0 && self.cost != 0
    }

    /// The number of the rate, as a bit.
    pub(super) const fn bit(&self) -> u16 {
        1 << self.number
    }
}

/// The least whole cost that keeps to `threshold` tokens in `units`; 0 if there are none.
fn cost(units: u64, threshold: f64) -> u64 {
    // A threshold that is NaN admits nothing, as one of 0.
    if threshold.is_nan() || threshold <= 0.0 {
        return 0;
    }
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
            now: units(origin, now) | rate.number,
            // Above every tolerance if nothing ever passes, or if the product is too large.
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

    /// This call, to be judged by a word at any of `rates`. A call that changes the word reads
    /// `time` after the word.
    pub(super) const fn at_any_rate<'a>(
        self,
        rates: &'a Rates,
        time: Option<&'a dyn Fn() -> u64>,
    ) -> RefillAtAnyRate<'a> {
        RefillAtAnyRate {
            call: self,
            rates,
            time,
        }
    }
}

// === impl RefillAtAnyRate ===

impl RefillAtAnyRate<'_> {
    /// What a token of `word` costs, if that is a debt at another rate whose tokens are known.
    fn other_cost(&self, word: u64) -> Option<u64> {
        let Refill { now, rate, .. } = self.call;
        let is_other = word > now && (word ^ now) & rate.mask != 0 && rate.number != UNKNOWN;
        is_other.then(|| self.rates.cost_of(word)).flatten()
    }

    /// Converts `debt`, of a rate at which a token costs `from`, into the time in which the call's
    /// own rate earns as many tokens.
    fn own_debt(&self, debt: u64, from: u64) -> u64 {
        let debt = scaled(debt, from, self.call.rate.cost);
        debt.checked_next_multiple_of(UNITS).unwrap_or(u64::MAX)
    }

    /// The word of a key that is blocked for `length` from now on, or for longer if its debt ends
    /// later; `None` if it is blocked already, or has room for the call.
    pub(super) fn block(&self, word: u64, length: Duration) -> Option<u64> {
        let Refill { now, rate, .. } = self.call;
        let is_blocked = word > now && self.rates.is_blocked(word);
        let is_full = matches!(self.take(word), Err(Some(_))) || planted(Bug::BlockBlindly);
        if is_blocked || !is_full {
            return None;
        }
        let until = (now & !rate.mask)
            + nanos(length)
                .saturating_mul(UNITS)
                .min(LONGEST & !rate.mask);
        self.rates.blocked_until(until.max(word & !rate.mask))
    }

    /// Takes the tokens, but keeps the time of a debt whose rate is not known.
    fn take_as_time(&self, word: u64) -> Result<u64, Option<u64>> {
        let Refill { now, cost, rate } = self.call;
        let mask = self.rates.mask();
        // The new word has no number, as its debt is of an unknown rate as well.
        let now = now & !mask;
        let due = (word & !mask).max(now) + cost;
        let latest = now + rate.tolerance;
        if due > latest {
            return Err(Some((due - latest).div_ceil(UNITS)));
        }
        Ok(due)
    }
}

impl Judge for RefillAtAnyRate<'_> {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        match self.call.take(word) {
            Err(Some(OTHER_RATE)) => {}
            outcome => return outcome,
        }
        let Refill { now, cost, rate } = self.call;
        let now = now & !rate.mask;
        if self.rates.is_blocked(word) {
            return match (word & !rate.mask).saturating_sub(now) {
                // It is over: a key that was blocked owes nothing.
                0 => Ok(self.call.now + cost),
                blocked => Err(Some(blocked.div_ceil(UNITS))),
            };
        }
        let Some(from) = self.other_cost(word) else {
            return self.take_as_time(word);
        };
        // Read after the word: its writer may have had a later clock reading than the call, and the
        // debt may become shorter than the time between the two.
        let time = self
            .time
            .filter(|_| !planted(Bug::NewRateByEarlierTime))
            .map_or(now, |time| time().max(now));
        let debt = (word & !rate.mask).saturating_sub(time);
        let due = self.own_debt(debt, from).saturating_add(cost);
        if due > rate.tolerance {
            // The wait: until the debt, at the rate of the word, is short enough for the call.
            let most = scaled_down((rate.tolerance - cost) & !rate.mask, rate.cost, from);
            return Err(Some((time - now + (debt - most)).div_ceil(UNITS)));
        }
        Ok((time | rate.number) + due)
    }

    fn rest(&self, word: u64) -> Option<u64> {
        self.call.rest(word)
    }

    fn fresh(&self, last: u64) -> u64 {
        self.call.fresh(last)
    }

    fn left(&self, word: u64) -> u32 {
        let Refill { now, rate, .. } = self.call;
        let debt = (word & !rate.mask).saturating_sub(now & !rate.mask);
        if debt > 0 && self.rates.is_blocked(word) {
            return 0;
        }
        rate.left(match self.other_cost(word) {
            Some(from) => self.own_debt(debt, from),
            None => debt,
        })
    }
}

impl Rate {
    /// How many tokens there are beside a debt.
    fn left(&self, debt: u64) -> u32 {
        let open = self.tolerance.saturating_sub(debt);
        let tokens = open.checked_div(self.cost).unwrap_or(0);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }
}

// === impl RefillCharge ===

impl<'a> RefillCharge<'a> {
    /// A charge of `units`. The debt after it lasts for at most `most` longer than that of a spent
    /// quota. With a limit of 0 a unit costs no time, so nothing is charged.
    pub(super) fn new(call: Refill, units: u32, most: Duration, rates: &'a Rates) -> Self {
        let mut call = call;
        if !rates.knows(call.rate) {
            // The call has begun by a rate that has been forgotten since.
            call.now &= !call.rate.mask;
        }
        Self {
            call,
            units,
            most: nanos(most).saturating_mul(UNITS),
            rates,
        }
    }

    /// What a unit costs by the rate of `word`, and the time in which that rate earns the tolerance.
    fn rate_of(self, word: u64) -> (u64, u64) {
        let Refill { now, rate, .. } = self.call;
        let other = (word > now).then(|| self.rates.cost_of(word)).flatten();
        match other.filter(|&cost| cost != rate.cost) {
            Some(cost) => (cost, scaled(rate.tolerance, rate.cost, cost)),
            None => (rate.cost, rate.tolerance),
        }
    }

    /// How many units have been charged by a change of the word, and how many of them beyond the
    /// tolerance.
    pub(super) fn charged(self, before: u64, after: u64) -> (u32, u32) {
        let now = self.call.now;
        let (cost, tolerance) = self.rate_of(after);
        let tokens = |time: u64| {
            let tokens = time.checked_div(cost).unwrap_or(0);
            u32::try_from(tokens).unwrap_or(u32::MAX)
        };
        let charged = tokens(after - before.max(now).min(after));
        let beyond = after.saturating_sub(now).saturating_sub(tolerance);
        let over = tokens(beyond.saturating_add(cost.saturating_sub(1)));
        (charged, over.min(charged))
    }
}

impl Judge for RefillCharge<'_> {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        let Refill { now, rate, .. } = self.call;
        let (cost, tolerance) = self.rate_of(word);
        let charge = cost.saturating_mul(self.units.into());
        let most = tolerance.saturating_add(self.most).saturating_sub(cost);
        let (mask, from) = (rate.mask, word.max(now));
        // The sum does not overflow: see LONGEST. A debt that is longer already stays.
        let due = (from & !mask).saturating_add(charge);
        let due = due.min((now & !mask) + (most.min(LONGEST) & !mask));
        Ok((due | from & mask).max(word))
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

/// `now` as a word, without a number. Never 0, which is the word of no key.
#[inline]
pub(super) fn units(origin: Tick, now: Tick) -> u64 {
    // So that the result is at most LAST.
    const MOST_NS: u64 = LAST / UNITS - 1;
    (now.nanos_since(origin).min(MOST_NS) + 1) * UNITS
}

/// The word after the refund, at `now`, of a call that has `paid`: without the part of the cost
/// that is still open. `None` if nothing is given back.
pub(super) fn refund(rates: &Rates, origin: Tick, now: Tick, word: u64, paid: Paid) -> Option<u64> {
    let (start, now) = (units(origin, paid.start), units(origin, now));
    if rates.is_blocked(word) {
        return None;
    }
    let (mask, since) = (rates.mask(), now.saturating_sub(start));
    let mut open = paid.cost.saturating_sub(since);
    if word | mask < now | mask {
        // The key is at rest, and has its whole quota whether its slot is taken or not.
        return None;
    }
    if word == paid.after && paid.other != 0 {
        // No call has changed the word since: restore the debt that this call found.
        return Some(paid.other.max(now | word & mask));
    }
    if (word ^ paid.after) & mask != 0 {
        if let (Some(from), Some(to)) = (rates.cost_of(paid.after), rates.cost_of(word)) {
            // As if the key had had the faster of both rates all the time: that closes more.
            let closed = scaled_down(paid.cost, from, to).saturating_sub(since);
            open = scaled_down(open, from, to).min(closed) & !mask;
        }
    }
    let paid_back = word.saturating_sub(open).max(now | word & mask);
    (paid_back < word).then_some(paid_back)
}

/// The word of a key that has spent nothing by `now`, which is read after `word`; `None` if that
/// is so already.
pub(super) fn reset(rates: &Rates, origin: Tick, now: Tick, word: u64) -> Option<u64> {
    let mut now = units(origin, now);
    if !rates.is_blocked(word) {
        now |= word & rates.mask();
    }
    (now < word).then_some(now)
}

impl Judge for Refill {
    #[inline]
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        if self.cost > self.rate.tolerance {
            return Err(None);
        }
        // Neither sum overflows: see LONGEST. A cost ends in no number.
        let due = word.max(self.now) + self.cost;
        if (due ^ self.now) & self.rate.mask != 0 && !planted(Bug::OtherRateAsOwn) {
            return Err(Some(OTHER_RATE));
        }
        let latest = self.now + self.rate.tolerance;
        if due > latest {
            return Err(Some((due - latest).div_ceil(UNITS)));
        }
        Ok(due)
    }

    fn rest(&self, word: u64) -> Option<u64> {
        // Compares the times alone: with all bits of the numbers set.
        let (word, now) = (word | self.rate.mask, self.now | self.rate.mask);
        let is_over = word < now || (planted(Bug::RestTooSoon) && word == now);
        is_over.then(|| now - word)
    }

    fn fresh(&self, _: u64) -> u64 {
        self.now
    }

    fn left(&self, word: u64) -> u32 {
        self.rate.left(word.saturating_sub(self.now))
    }
}
