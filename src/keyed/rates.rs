//! The rates of the words of a table: what a debt means to a call that has another rate.
//!
//! A debt of a refilled quota is a time, in which tokens are earned that have been spent. How many
//! these are depends on the rate. So a rate of a rule has a number, and a word ends in the number of
//! the rate that it was written by:
//!
//! ```text
//! bit 63                               4 3      0
//!     [  nanoseconds since the origin   ][ rate  ]
//! ```
//!
//! A call of another rate keeps the tokens, and makes of their time that in which it earns as many
//! itself. So a higher limit counts at once: a key that has spent 5 of 5 has 95 of 100 left. Until
//! that call its tokens are earned by the rate of before.
//!
//! The last number is no rate: such a key is *blocked*, and the time is when that ends.
//!
//! A table has room for fourteen rates at a time. One is forgotten when its number is needed, if no
//! rule that may still judge calls has it, and no debt. A rate that finds no number has
//! [number 0](UNKNOWN), and what it writes keeps its time at any rate until the debt ends.
//!
//! A token of less than [`SHORTEST`] has no whole nanoseconds to spare, as its cost could not be
//! rounded to them without a loss: where there is such a rate, the table has no numbers, and all
//! debts keep their time.

use super::refill::Rate;
use crate::base::sync::{AtomicU64, Ordering};

/// The bits of a word that hold the number of a rate.
const NUMBER: u64 = 15;
/// A rate, or a word, of which the rate is not known.
pub(super) const UNKNOWN: u64 = 0;
/// The number of a key that is blocked.
const BLOCKED: u64 = NUMBER;
/// The least cost of a token that is rounded up to a whole nanosecond, which takes 0.006 % of it.
pub(super) const SHORTEST: u64 = 1 << 18;

/// The rates of a table.
#[derive(Debug)]
pub(super) struct Rates {
    /// The cost of a token, by the number of the rate; 0 if no rate has it. In the place of
    /// [`UNKNOWN`] stands whether there are numbers.
    costs: [AtomicU64; BLOCKED as usize],
}

/// In place of numbers.
const NO_NUMBERS: u64 = 1;

// === impl Rates ===

impl Rates {
    pub(super) fn new() -> Self {
        Self {
            costs: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// From here on words have no numbers.
    pub(super) fn forgo(&self) {
        // Release: a call that finds a word without a number knows of this.
        self.costs[UNKNOWN as usize].store(NO_NUMBERS, Ordering::Release);
    }

    /// The bits of words that are a number.
    pub(super) fn mask(&self) -> u64 {
        match self.costs[UNKNOWN as usize].load(Ordering::Acquire) {
            NO_NUMBERS => 0,
            _ => NUMBER,
        }
    }

    /// The number of the rate at which a token costs this much, from now on; [`UNKNOWN`] if all
    /// numbers are taken.
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

    fn cost(&self, number: u64) -> Option<u64> {
        // `number` is not UNKNOWN.
        let cost = self.costs[number as usize].load(Ordering::Acquire);
        (cost != 0).then_some(cost)
    }

    /// The cost of a token by the rate of `word`, if that is known.
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

    /// Returns whether the number of `rate` still is its own.
    pub(super) fn knows(&self, rate: Rate) -> bool {
        rate.number == UNKNOWN || self.cost(rate.number) == Some(rate.cost)
    }
}

/// `time`, in which a rate of the cost `from` earns some tokens, as that in which one of the cost
/// `to` earns them: rounded up.
pub(super) fn scaled(time: u64, from: u64, to: u64) -> u64 {
    let time = (u128::from(time) * u128::from(to)).div_ceil(from.max(1).into());
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// As [`scaled`], rounded down.
pub(super) fn scaled_down(time: u64, from: u64, to: u64) -> u64 {
    let time = u128::from(time) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(time).unwrap_or(u64::MAX)
}
