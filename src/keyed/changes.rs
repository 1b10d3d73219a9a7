//! What happens to a key's debt when its limit changes, or when the key is blocked or reset.

use std::time::Duration;

use super::keys::{Counting, HotKeys, KeyLimit, refused};
use super::refill::{self, OTHER_RATE, Refill};
use super::table::WordChange;
use super::{Digest, Judge, calendar, queue, window};
use crate::base::sync::{Bug, Ordering, planted};
use crate::clock::Tick;
use crate::stat::Refusal;

/// The rates of a table that must be kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RatesInUse {
    /// A set of rate numbers, as a bit for each.
    numbers: u16,
    /// Whether the rates of all existing debts have been added.
    includes_debts: bool,
}

// === impl HotKeys ===

impl HotKeys {
    /// Declares that the limit of these keys will never change, so that words need no rate numbers.
    pub(super) fn of_one_limit(self) -> Self {
        self.rates.disable_numbers();
        self
    }

    /// Prepares a limit like [`limit`](Self::limit), for a rule with several limits: `in_use` has
    /// the rates of its other limits. If the table has run out of rate numbers, the rates that no
    /// limit and no debt uses are forgotten.
    pub(crate) fn limit_among(
        &self,
        threshold: f64,
        burst: u32,
        now: Tick,
        in_use: &mut RatesInUse,
    ) -> KeyLimit {
        let mut limit = self.limit(threshold, burst);
        let lacks_number = matches!(limit, KeyLimit::Refill(rate) if rate.lacks_number());
        if lacks_number && !in_use.includes_debts {
            in_use.includes_debts = true;
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

    /// Returns whether keys can be [blocked](Self::block).
    pub(crate) fn can_block(&self) -> bool {
        self.rates.mask() != 0
    }

    /// Blocks `key` after a call of `weight` was refused: until `length` has passed since `now` and
    /// its quota is whole again, whichever is later. Returns false, and does nothing, if the key is
    /// already blocked, has room for the call by now, or has no slot in the table.
    pub(crate) fn block(
        &self,
        now: Tick,
        key: Digest,
        limit: &KeyLimit,
        weight: u32,
        length: Duration,
    ) -> bool {
        let KeyLimit::Refill(rate) = *limit else {
            return false;
        };
        let call = Refill::new(self.origin, now, rate, weight).at_any_rate(&self.rates, None);
        let change = |word| call.block(word, length);
        let is_blocked = self.table.change_known(key.0, &change);
        self.blocks.fetch_add(is_blocked.into(), Ordering::Relaxed);
        is_blocked
    }

    /// The number of times that keys were blocked.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Resets `key` as if it had spent nothing, and returns whether it had spent anything. `time`
    /// reads the clock. Running calls keep their places, and the word that keys without a slot
    /// share is not reset.
    pub(crate) fn reset(&self, key: Digest, time: &dyn Fn() -> Tick) -> bool {
        let early = planted(Bug::ResetByEarlierTime).then(time);
        // The clock is read after the word (acquire), as for a refund. An earlier time could
        // restore a word that the previous owner of the slot had.
        let now = || early.unwrap_or_else(time);
        if self.wide.is_some() {
            let is_reset = self.reset_wide_window(key);
            self.resets.fetch_add(is_reset.into(), Ordering::Relaxed);
            return is_reset;
        }
        let is_reset = self.table.change_known(key.0, &|word| match self.count {
            Counting::Refill => refill::reset(&self.rates, self.origin, now(), word),
            Counting::Window => window::reset(word),
            Counting::Calendar(_) => calendar::reset(word),
            Counting::Queue(_) => queue::reset(self.origin, now(), word),
            Counting::Running => None,
        });
        self.resets.fetch_add(is_reset.into(), Ordering::Relaxed);
        is_reset
    }

    /// The number of times that keys were reset.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Converts a debt of `key` at another rate to the rate of `limit`, for a call that passes and
    /// takes nothing yet. `time` reads the clock.
    pub(super) fn convert_debt(
        &self,
        now: Tick,
        key: Digest,
        limit: &KeyLimit,
        time: &dyn Fn() -> Tick,
    ) {
        let KeyLimit::Refill(rate) = *limit else {
            return;
        };
        let call = Refill::new(self.origin, now, rate, 0);
        if call.take(self.table.word(key.0, &call)) == Err(Some(OTHER_RATE)) {
            // A debt to which a charge has added too much meanwhile keeps its rate.
            let _ = self.take_anew(now, key, call, time);
        }
    }

    /// Repeats the attempt of a call whose key has a debt at another rate.
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
        // If the key has no slot, the first attempt has already counted the call as an overflow.
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
