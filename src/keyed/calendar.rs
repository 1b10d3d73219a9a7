//! The count of a key in one calendar day or month, packed into one word.
//!
//! ```text
//! bit 63        32 31           0
//!     [  number   ][   count    ]
//! ```
//!
//! The word holds the number of the period in which the key last took tokens, and the tokens taken
//! in it. Each period is counted separately, so a key may take its whole limit at the end of a
//! period, and again at the start of the next one.
//!
//! Numbers never wrap. If the period in a key's word is later than the period of a call, another
//! call with a later clock reading has changed the word. The call then counts in the later period,
//! so the period of a key never goes back.
//!
//! # Source
//!
//! The fixed window counter, with calendar days or months as windows.

use std::time::Duration;

use super::keys::{Counting, HotKeys, refused};
use super::table::WordChange;
use super::{Digest, Judge};
use crate::base::sync::{Bug, planted};
use crate::clock::{Periods, Tick};
use crate::stat::Refusal;

/// The bits of the count.
const COUNT_BITS: u32 = 32;

/// The judge of a call by the count of its period.
#[derive(Clone, Copy, Debug)]
pub(super) struct CalendarCall {
    periods: Periods,
    now: Tick,
    /// The number of the period of `now`.
    number: u32,
    limit: u32,
    weight: u32,
}

/// The judge of a charge for the cost of a call. A charge is never refused, so the count of a
/// period can exceed the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct CalendarCharge(pub(super) CalendarCall);

/// The fields of a word.
#[derive(Clone, Copy, Debug)]
struct PeriodCount {
    /// The number of the period in which the key last took tokens.
    number: u32,
    /// The tokens taken in this period.
    count: u32,
}

// === impl HotKeys ===

impl HotKeys {
    /// Sets the calendar of these keys, for a clock with this [epoch](crate::Clock::epoch) and a
    /// time zone that is `utc_offset` minutes ahead of UTC.
    pub(crate) fn by_calendar(mut self, epoch: Duration, utc_offset: i32) -> Self {
        self.periods = periods_at(self.count, epoch, utc_offset);
        self
    }

    /// Returns the length of the day or month of `now`; `None` if the keys are not counted by
    /// calendar periods.
    pub(crate) fn period_length(&self, now: Tick) -> Option<Duration> {
        self.periods.map(|periods| periods.length(now))
    }

    /// Takes tokens in the period of `now`. Neither inlined nor generic over judges, to keep the
    /// code of the faster kinds of counting small.
    #[inline(never)]
    pub(super) fn take_in_period(
        &self,
        now: Tick,
        key: Digest,
        limit: u32,
        weight: u32,
    ) -> Result<WordChange, Refusal> {
        let judge = self.in_period(now, limit, weight);
        let outcome = self.table.change_word(key.0, &judge, true);
        outcome.map_err(|wait_ns| refused(now, wait_ns))
    }

    /// Returns the judge of a call of `weight` in the period of `now`.
    pub(super) fn in_period(&self, now: Tick, limit: u32, weight: u32) -> CalendarCall {
        let periods = self.periods.expect("days or months are counted");
        CalendarCall::new(periods, now, limit, weight)
    }
}

/// Returns the days or months in UTC, for a clock whose epoch is 1970; `None` if `count` is not by
/// calendar periods.
pub(super) fn periods(count: Counting) -> Option<Periods> {
    periods_at(count, Duration::ZERO, 0)
}

/// Returns the days or months for a clock with this `epoch`, in a zone that is `utc_offset` minutes
/// ahead of UTC; `None` if `count` is not by calendar periods.
fn periods_at(count: Counting, epoch: Duration, utc_offset: i32) -> Option<Periods> {
    match count {
        Counting::Calendar(period) => Some(Periods::new(period, epoch, utc_offset)),
        _ => None,
    }
}

// === impl CalendarCall ===

impl CalendarCall {
    /// Creates a call of `weight` tokens at `now`, of a key that may take `limit` tokens in each
    /// period.
    pub(super) fn new(periods: Periods, now: Tick, limit: u32, weight: u32) -> Self {
        Self {
            periods,
            now,
            number: periods.number(now),
            limit,
            weight,
        }
    }

    /// Returns the count that judges the call: the count of the period of `now` or, if the period
    /// in `word` is later, the count of that period.
    fn count(self, word: u64) -> PeriodCount {
        let found = PeriodCount::of(word);
        let is_over = if planted(Bug::PeriodGoesBack) {
            found.number != self.number
        } else {
            found.number < self.number
        };
        if is_over {
            return PeriodCount {
                number: self.number,
                count: 0,
            };
        }
        found
    }
}

impl Judge for CalendarCall {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        if self.weight > self.limit {
            return Err(None);
        }
        let PeriodCount { number, count } = self.count(word);
        match count.checked_add(self.weight) {
            Some(count) if count <= self.limit => Ok(PeriodCount { number, count }.word()),
            _ => Err(Some(self.periods.end(number).nanos_since(self.now))),
        }
    }

    fn rest(&self, word: u64) -> Option<u64> {
        // A word is at rest if its period is over.
        let number = PeriodCount::of(word).number;
        (number < self.number).then(|| u64::from(self.number - number))
    }

    fn fresh(&self, _: u64) -> u64 {
        let number = self.number;
        PeriodCount { number, count: 0 }.word()
    }

    fn left(&self, word: u64) -> u32 {
        self.limit.saturating_sub(self.count(word).count)
    }
}

impl CalendarCharge {
    /// Returns how many units a change of the word has charged, and how many of them exceed the
    /// limit.
    pub(super) fn charged(self, before: u64, after: u64) -> (u32, u32) {
        let [before, after] = [before, after].map(|word| self.0.count(word).count);
        let charged = after.saturating_sub(before);
        (charged, after.saturating_sub(self.0.limit).min(charged))
    }
}

impl Judge for CalendarCharge {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        let PeriodCount { number, count } = self.0.count(word);
        let count = count.saturating_add(self.0.weight);
        Ok(PeriodCount { number, count }.word())
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
/// period of that call is over.
pub(super) fn refund(word: u64, after: u64, weight: u32) -> Option<u64> {
    let PeriodCount { number, count } = PeriodCount::of(word);
    if number != PeriodCount::of(after).number {
        return None;
    }
    let count = count.checked_sub(weight)?;
    Some(PeriodCount { number, count }.word())
}

/// Returns the word with a count of 0; `None` if its count is already 0.
pub(super) fn reset(word: u64) -> Option<u64> {
    let PeriodCount { number, count } = PeriodCount::of(word);
    (count > 0).then(|| PeriodCount { number, count: 0 }.word())
}

impl PeriodCount {
    const fn of(word: u64) -> Self {
        Self {
            number: (word >> COUNT_BITS) as u32,
            count: word as u32,
        }
    }

    /// Returns the packed word. It is never [`CLAIMED`](super::CLAIMED), because no period has such
    /// a large number.
    const fn word(self) -> u64 {
        (self.number as u64) << COUNT_BITS | self.count as u64
    }
}
