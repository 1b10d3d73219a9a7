//! The rates of refilled quotas in a table, and what a debt at one rate means to a call at another
//! rate.
//!
//! The debt of a refilled quota is a time: when all spent tokens will have been earned again. How
//! many tokens these are depends on the rate. So the rates of a rule are numbered, and a word ends
//! in the number of the rate at which it was written:
//!
//! ```text
//! bit 63                               4 3      0
//!     [  nanoseconds since the origin   ][ rate  ]
//! ```
//!
//! A call at another rate keeps the number of spent tokens, and converts the time to that in which
//! its own rate earns them. So a higher limit takes effect at once: a key that has spent 5 of 5 has
//! 95 of 100 left. Until that call, tokens are earned at the previous rate.
//!
//! The last number is not a rate: it means that the key is *blocked*, and the time is the end of
//! the block.
//!
//! A table has room for fourteen rates at a time. A rate is forgotten when its number is needed,
//! and neither a rule that may still judge calls nor a debt has it. A rate that finds no number has
//! [number 0](UNKNOWN). A debt that it writes is not converted to other rates, and keeps its time
//! until it ends.
//!
//! A token that costs less than [`SHORTEST`] could not be rounded to whole nanoseconds without too
//! large an error. If a rule has such a rate, the words of the table have no numbers, and all debts
//! keep their time.

use super::refill::Rate;
use crate::base::sync::{AtomicU64, Ordering};

/// The bits of a word that hold the number of a rate.
const NUMBER: u64 = 15;
/// A rate, or a word, of which the rate is not known.
pub(super) const UNKNOWN: u64 = 0;
/// The number that marks a blocked key.
const BLOCKED: u64 = NUMBER;
/// The smallest cost of a token that is rounded up to a whole nanosecond. The error is at most
/// 0.006 %.
pub(super) const SHORTEST: u64 = 1 << 18;

/// The rates of a table.
#[derive(Debug)]
pub(super) struct Rates {
    /// The cost of a token, by the number of the rate; 0 if no rate has the number. The element of
    /// [`UNKNOWN`] tells whether words have numbers.
    costs: [AtomicU64; BLOCKED as usize],
}

/// The value of the element of [`UNKNOWN`] if words have no numbers.
const NO_NUMBERS: u64 = 1;

// === impl Rates ===

impl Rates {
    pub(super) fn new() -> Self {
        Self {
            costs: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Declares that words have no numbers from now on.
    pub(super) fn forgo(&self) {
        // Release: a call that finds a word without a number also sees this.
        self.costs[UNKNOWN as usize].store(NO_NUMBERS, Ordering::Release);
    }

    /// The bits of a word that hold its number; 0 if words have no numbers.
    pub(super) fn mask(&self) -> u64 {
        match self.costs[UNKNOWN as usize].load(Ordering::Acquire) {
            NO_NUMBERS => 0,
            _ => NUMBER,
        }
    }

    /// Returns the number of the rate at which a token costs `cost`, and assigns one if it has
    /// none. [`UNKNOWN`] if all numbers are taken.
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

    /// The cost of a token at the rate with this number, if a rate has it.
    fn cost(&self, number: u64) -> Option<u64> {
        // The caller never passes `UNKNOWN` or `BLOCKED`.
        let cost = self.costs[number as usize].load(Ordering::Acquire);
        (cost != 0).then_some(cost)
    }

    /// The cost of a token at the rate of `word`, if that rate is known.
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

    /// The word of a key that is blocked until `time`; `None` if words have no numbers.
    pub(super) fn blocked_until(&self, time: u64) -> Option<u64> {
        (self.mask() != 0).then_some(time | BLOCKED)
    }

    /// Returns whether the number of `rate` still belongs to it.
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

/// As [`scaled`], rounded down.
pub(super) fn scaled_down(time: u64, from: u64, to: u64) -> u64 {
    let time = u128::from(time) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(time).unwrap_or(u64::MAX)
}
