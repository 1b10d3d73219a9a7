//! Keys whose limit changes: the rates that their debts may have, and calls that find such a debt.

use super::Digest;
use super::keys::{HotKeys, KeyLimit, refused};
use super::refill::{self, Refill};
use super::table::WordChange;
use crate::clock::Tick;
use crate::stat::Refusal;

/// The rates of a table that are not to be forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RatesInUse {
    /// A bit for the number of each.
    numbers: u16,
    /// Whether those of debts are among them.
    are_all: bool,
}

// === impl HotKeys ===

impl HotKeys {
    /// These keys, none of which will ever have another limit.
    pub(super) fn of_one_limit(self) -> Self {
        self.rates.forgo();
        self
    }

    /// [`limit`](Self::limit) for a rule, beside limits whose rates are in use. Rates that neither a
    /// limit nor a debt has are forgotten if there are too many.
    pub(crate) fn limit_beside(
        &self,
        threshold: f64,
        burst: u32,
        now: Tick,
        in_use: &mut RatesInUse,
    ) -> KeyLimit {
        let mut limit = self.limit(threshold, burst);
        let lacks_number = matches!(limit, KeyLimit::Refill(rate) if rate.lacks_number());
        if lacks_number && !in_use.are_all {
            in_use.are_all = true;
            self.judged(now, &limit, 0, &mut |judge| {
                self.table.each_word_in_use(judge, &mut |word| {
                    in_use.numbers |= 1 << (word & self.rates.mask());
                });
            });
            self.rates.keep(in_use.numbers);
            limit = self.limit(threshold, burst);
        }
        in_use.note(&limit);
        limit
    }

    /// Takes the tokens of a call whose key has a debt at another rate.
    #[cold]
    #[inline(never)]
    pub(super) fn take_anew(
        &self,
        now: Tick,
        key: Digest,
        call: Refill,
        time: &dyn Fn() -> Tick,
    ) -> Result<WordChange, Refusal> {
        let time = || refill::units(self.origin, time());
        let judge = call.at_any_rate(&self.rates, Some(&time));
        // It has been counted if it shares a word.
        let outcome = self.table.change_word(key.0, &judge, false);
        outcome.map_err(|wait_ns| refused(now, wait_ns))
    }
}

// === impl RatesInUse ===

impl RatesInUse {
    /// Adds the rate of `limit`.
    pub(crate) fn note(&mut self, limit: &KeyLimit) {
        if let KeyLimit::Refill(rate) = limit {
            self.numbers |= rate.bit();
        }
    }
}
