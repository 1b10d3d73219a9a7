//! A quota that is refilled continuously: the generic cell rate algorithm.
//!
//! The word is the time at which the debt of the key ends. A token costs the time in which a token
//! is earned. A call extends the debt by the cost of its tokens, starting from now if there is no
//! debt. It passes if the debt then ends within the *tolerance*, the time in which the whole
//! capacity is earned.
//!
//! ```text
//! 5 per second and 2 more: a token costs 200 ms, the tolerance is 1 400 ms
//!
//! word       0 ──▶ 200 ──▶ … ──▶ 1 400   seven calls at 0
//!                                ✗       the eighth would end at 1 600
//!                                1 600   at 200 ms one more may
//! ```
//!
//! A word earlier than now is a full quota under any limit of the key. Any other word ends with the
//! number of the [rate](super::rates) at which it was written: a call at another rate keeps the
//! tokens of the debt, not its time. "Earlier" is strict: the word of a new owner of a slot starts
//! at the time of the owner's call, which is later than every word that was at rest in the slot. A
//! debt that is made shorter does not end before the owner's first word either, because the clock
//! is read after the word.
//!
//! # Accuracy
//!
//! Times are sixteenths of a nanosecond since the table was created. The cost of a token is rounded
//! up once: to a whole sixteenth, or to a whole nanosecond where words have numbers. The tolerance
//! is computed from the rounded cost, so the capacity is exact: a key at rest may spend exactly
//! `⌊threshold⌋ + burst` tokens at one moment. In any time `t`, at most `threshold + burst + t ·
//! threshold / interval` tokens pass.
//!
//! The rounding makes the refill slower by at most one part in 1.6 · 10¹⁰ ÷ (tokens per second):
//! 0.006 % at a million tokens per second, 0.6 % at 10⁸. Where words have numbers, which is up to
//! 61 000 tokens per second, it is one part in 10⁹ ÷ (tokens per second). The refill is never
//! faster than 1.6 · 10¹⁰ tokens per second, but the capacity is as requested.
//!
//! The range of times is 18 years from the creation of the table; after that, the time of the table
//! stands still. A debt lasts at most 9 years, so a capacity that takes longer to earn is reduced
//! to the tokens earned in 9 years.
//!
//! # Refunds
//!
//! A call that does not run is refunded its *open* part: its cost, less the time since its start.
//! The open part shrinks as time passes. Take the latest time of any call on a word, and subtract
//! from the word the open parts of all calls that may still be refunded. The result
//!
//! * is not before that time, if there are open parts: a call adds to the word at least as much as
//!   to the open parts, and an open part shrinks by as much as time advances;
//! * is not before the end of the debt that the calls that run would have caused without the
//!   refunded calls: each call that runs moves both times by its cost, starting from its time or
//!   later, and so keeps their order.
//!
//! So the calls that run get no more tokens than if the refunded calls had not come, in any order
//! of the refunds. A refund at the time of the call loses nothing. With a later refund, a key in
//! debt loses the tokens that it has earned since the call, at most the cost of the call. They
//! cannot be given back: the word that the call left does not show how much of its debt remains,
//! because earlier calls may have been refunded since.
//!
//! If a call has found a debt at another rate, its refund restores that debt, provided that no
//! other call has come since and the call's debt has not ended. Otherwise the debt stays at the
//! rate of the call. After a change of the rate, an open part shrinks at the faster of the two
//! rates. If the rate has changed and changed back, a refund may give back more than the open part,
//! but at most what the call has paid.
//!
//! # Source
//!
//! ITU-T I.371, the virtual scheduling algorithm. Alibaba Sentinel instead refills the whole quota
//! once per interval, and so lets up to twice the threshold pass around the end of an interval.

use std::time::Duration;

use super::Judge;
use super::rates::{LEAST_NUMBERED, Rates, UNKNOWN, scaled, scaled_down};
use crate::base::sync::{Bug, planted};
use crate::clock::{Tick, nanos};

/// The number of time units of the word in a nanosecond.
const UNITS: u64 = 16;
/// The last time that is distinguished, in units: 18 years.
const LAST: u64 = (1 << 63) - UNITS;
/// The longest debt, in units: 9 years. `LAST + 2 * LONGEST` plus a rate number is below
/// [`super::CLAIMED`].
const LONGEST: u64 = (1 << 62) - 1;
/// Returned instead of a wait if the word was written at another rate.
pub(super) const OTHER_RATE: u64 = u64::MAX;

/// A threshold and a burst, converted to units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// The cost of one token; 0 if nothing ever passes.
    pub(super) cost: u64,
    /// The maximum length of the debt after a call.
    tolerance: u64,
    /// The number of this rate, with which words that are written at this rate end.
    pub(super) number: u64,
    /// The bits of a word that hold the rate number; 0 if words have no numbers.
    mask: u64,
}

/// The judge of a call at the rate of the key's word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refill {
    /// The time of the call, as a word with the number of the rate.
    now: u64,
    /// The cost of the call, in units of time.
    cost: u64,
    /// The rate of the call's limit.
    rate: Rate,
}

/// The judge of a call whose key may have a word at another rate.
#[derive(Clone, Copy)]
pub(super) struct RefillAtAnyRate<'a> {
    call: Refill,
    rates: &'a Rates,
    /// Reads the clock and returns its time as a word; `None` for a call that changes nothing.
    time: Option<&'a dyn Fn() -> u64>,
}

/// The judge of a charge for the cost of a call. A charge is never refused: the debt may end beyond
/// the tolerance.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefillCharge<'a> {
    call: Refill,
    /// The number of tokens to charge.
    units: u32,
    /// The maximum time by which the debt may exceed that of a spent quota.
    most: u64,
    rates: &'a Rates,
}

/// The payment of a call that is to be refunded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paid {
    /// The time of the call.
    pub(super) start: Tick,
    /// The cost of the call, in units of time.
    pub(super) cost: u64,
    /// The word after the call.
    pub(super) after: u64,
    /// The word before the call, if that was a debt at another rate; otherwise 0.
    pub(super) other: u64,
}

// === impl Rate ===

impl Rate {
    /// Creates a rate for words without numbers.
    pub(super) fn new(threshold: f64, burst: u32, interval: Duration) -> Self {
        let cost = cost(nanos(interval).saturating_mul(UNITS), threshold);
        Self::of_cost(cost, threshold, burst)
    }

    /// Creates a rate with a number in `rates`, if a number is free.
    pub(super) fn numbered(rates: &Rates, threshold: f64, burst: u32, interval: Duration) -> Self {
        let rate = Self::new(threshold, burst, interval);
        if rate.cost != 0 && rate.cost < LEAST_NUMBERED {
            rates.disable_numbers();
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

    /// Creates a rate without a number, at which a token costs `cost`.
    fn of_cost(cost: u64, threshold: f64, burst: u32) -> Self {
        let tolerance = if cost == 0 {
            0
        } else {
            let whole = threshold.floor() as u64 + u64::from(burst);
            // The fraction of a token must cost less than a token, also if the product is rounded
            // up.
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

    /// Returns whether words have numbers, but no number was free for this rate.
    pub(super) const fn lacks_number(&self) -> bool {
        self.number == UNKNOWN && self.mask != 0 && self.cost != 0
    }

    /// The number of the rate, as a bit.
    pub(super) const fn bit(&self) -> u16 {
        1 << self.number
    }
}

/// Returns the smallest whole cost of a token at which at most `threshold` tokens are earned in
/// `units`; 0 if none are.
fn cost(units: u64, threshold: f64) -> u64 {
    // A threshold of NaN admits nothing, like a threshold of 0.
    if threshold.is_nan() || threshold <= 0.0 {
        return 0;
    }
    // Exact, except for thresholds below 2^-12, whose last bits are cut off. The power is a shift,
    // because `powi` promises no precision.
    let parts = (threshold * (1_u128 << 64) as f64) as u128;
    if parts == 0 {
        return LONGEST;
    }
    let cost = (u128::from(units) << 64).div_ceil(parts);
    u64::try_from(cost).unwrap_or(LONGEST).clamp(1, LONGEST)
}

// === impl Refill ===

impl Refill {
    /// Creates the judge of a call of `weight` tokens at `now`, in a table that was created at
    /// `origin`.
    pub(super) fn new(origin: Tick, now: Tick, rate: Rate, weight: u32) -> Self {
        Self {
            now: units(origin, now) | rate.number,
            // The cost is above every tolerance if nothing ever passes, or if the product is too
            // large.
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

    /// Returns whether the key of `word` is blocked at the time of the call.
    fn finds_block(self, rates: &Rates, word: u64) -> bool {
        rates.is_blocked(word) && word & !self.rate.mask > self.now & !self.rate.mask
    }

    /// Returns the judge of this call for a word at any of `rates`. If the call may change the
    /// word, `time` reads the clock.
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
    /// Returns the cost of a token at the rate of `word`, if `word` is a debt at another rate and
    /// that rate is known.
    fn other_cost(&self, word: u64) -> Option<u64> {
        let Refill { now, rate, .. } = self.call;
        let is_other = word > now && (word ^ now) & rate.mask != 0 && rate.number != UNKNOWN;
        is_other.then(|| self.rates.cost_of(word)).flatten()
    }

    /// Converts `debt`, at a rate whose tokens cost `from`, into the time in which the rate of the
    /// call earns as many tokens.
    fn own_debt(&self, debt: u64, from: u64) -> u64 {
        let debt = scaled(debt, from, self.call.rate.cost);
        debt.checked_next_multiple_of(UNITS).unwrap_or(u64::MAX)
    }

    /// Returns the word of a key that is blocked for `length` from now on, or longer if its debt
    /// ends later; `None` if the key is already blocked or has room for the call.
    pub(super) fn block(&self, word: u64, length: Duration) -> Option<u64> {
        let Refill { now, rate, .. } = self.call;
        let is_blocked = self.call.finds_block(self.rates, word);
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

    /// Takes the tokens without converting the debt, whose rate is not known.
    fn take_as_time(&self, word: u64) -> Result<u64, Option<u64>> {
        let Refill { now, cost, rate } = self.call;
        let mask = self.rates.mask();
        // The new word has no number, because its debt is partly at an unknown rate.
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
                // The block is over, and the key owes nothing.
                0 => Ok(self.call.now + cost),
                blocked => Err(Some(blocked.div_ceil(UNITS))),
            };
        }
        let Some(from) = self.other_cost(word) else {
            return self.take_as_time(word);
        };
        // The clock is read after the word. The writer of the word may have had a later clock
        // reading than this call, and the converted debt may be shorter than the time between the
        // two readings.
        let time = self
            .time
            .filter(|_| !planted(Bug::NewRateByEarlierTime))
            .map_or(now, |time| time().max(now));
        let debt = (word & !rate.mask).saturating_sub(time);
        let due = self.own_debt(debt, from).saturating_add(cost);
        if due > rate.tolerance {
            // The wait ends when the debt, which shrinks at the rate of the word, is short enough
            // for the call.
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
        if self.call.finds_block(self.rates, word) {
            return 0;
        }
        rate.left(match self.other_cost(word) {
            Some(from) => self.own_debt(debt, from),
            None => debt,
        })
    }
}

impl Rate {
    /// Returns how many tokens are left with a debt of `debt` units.
    fn left(&self, debt: u64) -> u32 {
        let open = self.tolerance.saturating_sub(debt);
        let tokens = open.checked_div(self.cost).unwrap_or(0);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }
}

// === impl RefillCharge ===

impl<'a> RefillCharge<'a> {
    /// Creates a charge of `units`. The debt after it exceeds that of a spent quota by at most
    /// `most`. With a limit of 0 a unit costs no time, so nothing is charged.
    pub(super) fn new(call: Refill, units: u32, most: Duration, rates: &'a Rates) -> Self {
        let mut call = call;
        if !rates.knows(call.rate) {
            // The call has begun at a rate that has been forgotten since.
            call.now &= !call.rate.mask;
        }
        Self {
            call,
            units,
            most: nanos(most).saturating_mul(UNITS),
            rates,
        }
    }

    /// Returns the cost of a unit at the rate of `word`, and the tolerance converted to that rate.
    fn rate_of(self, word: u64) -> (u64, u64) {
        let Refill { now, rate, .. } = self.call;
        let other = (word > now).then(|| self.rates.cost_of(word)).flatten();
        match other.filter(|&cost| cost != rate.cost) {
            Some(cost) => (cost, scaled(rate.tolerance, rate.cost, cost)),
            None => (rate.cost, rate.tolerance),
        }
    }

    /// Returns `word` as a debt: a key whose block is over owes nothing.
    fn debt_word(self, word: u64) -> u64 {
        if self.rates.is_blocked(word) {
            self.call.now
        } else {
            word.max(self.call.now)
        }
    }

    /// Returns how many units a change of the word has charged, and how many of them are beyond the
    /// tolerance. What is charged during a block counts as charged, and not as beyond.
    pub(super) fn charged(self, before: u64, after: u64) -> (u32, u32) {
        if self.call.finds_block(self.rates, after) {
            return (self.units, 0);
        }
        let now = self.call.now;
        let (cost, tolerance) = self.rate_of(after);
        let tokens = |time: u64| {
            let tokens = time.checked_div(cost).unwrap_or(0);
            u32::try_from(tokens).unwrap_or(u32::MAX)
        };
        let charged = tokens(after - self.debt_word(before).min(after));
        let beyond = after.saturating_sub(now).saturating_sub(tolerance);
        let over = tokens(beyond.saturating_add(cost.saturating_sub(1)));
        (charged, over.min(charged))
    }
}

impl Judge for RefillCharge<'_> {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        if self.call.finds_block(self.rates, word) {
            // A blocked key owes nothing at the end of its block, and no charge prolongs it.
            return Ok(word);
        }
        let Refill { now, rate, .. } = self.call;
        let (cost, tolerance) = self.rate_of(word);
        let charge = cost.saturating_mul(self.units.into());
        let most = tolerance.saturating_add(self.most).saturating_sub(cost);
        let (mask, from) = (rate.mask, self.debt_word(word));
        // The sum does not overflow: see `LONGEST`. A debt that is already longer is not shortened.
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

/// Returns `now` as a word without a rate number. It is never 0, which is the word of no key.
#[inline]
pub(super) fn units(origin: Tick, now: Tick) -> u64 {
    // Keeps the result at or below `LAST`.
    const MOST_NS: u64 = LAST / UNITS - 1;
    (now.nanos_since(origin).min(MOST_NS) + 1) * UNITS
}

/// Returns the word after the refund, at `now`, of the open part of what a call has `paid`. `None`
/// if nothing is given back.
pub(super) fn refund(rates: &Rates, origin: Tick, now: Tick, word: u64, paid: Paid) -> Option<u64> {
    let (start, now) = (units(origin, paid.start), units(origin, now));
    if rates.is_blocked(word) {
        return None;
    }
    let (mask, since) = (rates.mask(), now.saturating_sub(start));
    let mut open = paid.cost.saturating_sub(since);
    if word | mask < now | mask {
        // The key is at rest, so it has its whole quota already.
        return None;
    }
    if word == paid.after && paid.other != 0 {
        // No call has changed the word since, so the debt before the call is restored.
        return Some(paid.other.max(now | word & mask));
    }
    if (word ^ paid.after) & mask != 0 {
        if let (Some(from), Some(to)) = (rates.cost_of(paid.after), rates.cost_of(word)) {
            // Shrinks the open part as if the key had had the faster of the two rates all the time.
            let closed = scaled_down(paid.cost, from, to).saturating_sub(since);
            open = scaled_down(open, from, to).min(closed) & !mask;
        }
    }
    let paid_back = word.saturating_sub(open).max(now | word & mask);
    (paid_back < word).then_some(paid_back)
}

/// Returns the word of a key that has spent nothing by `now`, which must be read after `word`;
/// `None` if the key has no debt.
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
        // Neither sum overflows: see `LONGEST`. The bits of the rate number are 0 in a cost.
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
        // Sets all bits of the rate numbers, so that only the times are compared.
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
