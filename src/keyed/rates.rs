//! The rates of refilled quotas in a table, and the conversion of debts from one rate to another.
//!
//! The word of a refilled quota is the time at which its debt ends, when all spent tokens have been
//! earned again. The number of these tokens depends on the rate. So the rates of a rule are
//! numbered, and a word ends with the number of the rate at which it was written:
//!
//! ```text
//! bit 63                               4 3      0
//!     [  nanoseconds since the origin   ][ rate  ]
//! ```
//!
//! A call at another rate keeps the number of spent tokens: it scales the time left by the ratio of
//! the two token costs. So a higher limit takes effect at once: a key that has spent 5 of 5 has 95
//! of 100 left. Until that call, tokens are earned at the previous rate.
//!
//! The last number is not a rate: it means that the key is *blocked*, and the time is the end of
//! the block.
//!
//! A table has room for fourteen rates at a time. When numbers run out, the rates that no current
//! limit and no debt uses are forgotten. A rate that gets no number has [number 0](UNKNOWN). A debt
//! at this rate is not converted to other rates, and keeps its time until it ends.
//!
//! The cost of a token below [`LEAST_NUMBERED`] cannot be rounded to whole nanoseconds without too
//! large an error. If a rule has a rate with cheaper tokens, the words of the table have no
//! numbers, and all debts keep their time.

use super::refill::Rate;
use crate::base::sync::{AtomicU64, Ordering};

/// The bits of a word that hold the number of a rate.
const NUMBER: u64 = 15;
/// The number of a rate for which no number was free, and of a word whose rate is not known.
pub(super) const UNKNOWN: u64 = 0;
/// The number that marks a blocked key.
const BLOCKED: u64 = NUMBER;
/// The smallest cost of a token for which words have rate numbers: 2^18 / 16 ns = 16.4 µs. Such a
/// cost is rounded up to a whole nanosecond, with an error of at most 0.006 %.
pub(super) const LEAST_NUMBERED: u64 = 1 << 18;

/// The rates of a table.
#[derive(Debug)]
pub(super) struct Rates {
    /// The cost of a token at each rate, indexed by the number of the rate; 0 if the number is
    /// free. The element of [`UNKNOWN`] says whether words have numbers.
    costs: [AtomicU64; BLOCKED as usize],
}

/// The value of the element of [`UNKNOWN`] if words have no rate numbers.
const NO_NUMBERS: u64 = 1;

// === impl Rates ===

impl Rates {
    pub(super) fn new() -> Self {
        Self {
            costs: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Declares that words have no numbers from now on.
    pub(super) fn disable_numbers(&self) {
        // Release: a call that finds a word without a number also sees this.
        self.costs[UNKNOWN as usize].store(NO_NUMBERS, Ordering::Release);
    }

    /// Returns the bits of a word that hold its rate number; 0 if words have no numbers.
    pub(super) fn mask(&self) -> u64 {
        match self.costs[UNKNOWN as usize].load(Ordering::Acquire) {
            NO_NUMBERS => 0,
            _ => NUMBER,
        }
    }

    /// Returns the number of the rate at which a token costs `cost`. Assigns a free number if the
    /// rate has none; returns [`UNKNOWN`] if all numbers are taken.
    pub(super) fn number(&self, cost: u64) -> u64 {
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        for number in 1..BLOCKED {
            if self.cost(number) == Some(cost) {
                return number;
            }
        }
        for number in 1..BLOCKED {
            let place = &self.costs[number as usize];
            if place.compare_exchange(0, cost, release, relaxed).is_ok() {
                return number;
            }
        }
        UNKNOWN
    }

    /// Forgets the rates whose numbers are not in `kept`, a set of bits.
    pub(super) fn keep(&self, kept: u16) {
        for number in 1..BLOCKED {
            if kept >> number & 1 == 0 {
                self.costs[number as usize].store(0, Ordering::Release);
            }
        }
    }

    /// Returns the cost of a token at the rate with this number, if there is one.
    fn cost(&self, number: u64) -> Option<u64> {
        // The caller never passes `UNKNOWN` or `BLOCKED`.
        let cost = self.costs[number as usize].load(Ordering::Acquire);
        (cost != 0).then_some(cost)
    }

    /// Returns the cost of a token at the rate of `word`, if that rate is known.
    pub(super) fn cost_of(&self, word: u64) -> Option<u64> {
        match word & self.mask() {
            UNKNOWN | BLOCKED => None,
            number => self.cost(number),
        }
    }

    /// Returns whether the key of `word` is blocked until the time of the word.
    pub(super) fn is_blocked(&self, word: u64) -> bool {
        word & self.mask() == BLOCKED
    }

    /// Returns the word of a key that is blocked until `time`; `None` if words have no numbers.
    pub(super) fn blocked_until(&self, time: u64) -> Option<u64> {
        (self.mask() != 0).then_some(time | BLOCKED)
    }

    /// Returns whether the number of `rate` has not been given to another rate.
    pub(super) fn knows(&self, rate: Rate) -> bool {
        rate.number == UNKNOWN || self.cost(rate.number) == Some(rate.cost)
    }
}

/// Converts `time`, in which a rate with the token cost `from` earns some tokens, to the time in
/// which a rate with the cost `to` earns them. Rounds up.
pub(super) fn scaled(time: u64, from: u64, to: u64) -> u64 {
    let time = (u128::from(time) * u128::from(to)).div_ceil(from.max(1).into());
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// Like [`scaled`], but rounds down.
pub(super) fn scaled_down(time: u64, from: u64, to: u64) -> u64 {
    let time = u128::from(time) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(time).unwrap_or(u64::MAX)
}
