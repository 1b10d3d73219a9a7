//! Keys whose limit changes, or that are blocked or reset: the rates that their debts may have, and
//! calls that find such a debt.

use std::time::Duration;

use super::keys::{Counting, HotKeys, KeyLimit, refused};
use super::refill::{self, Refill};
use super::table::WordChange;
use super::{Digest, calendar, queue, window};
use crate::base::sync::{Bug, Ordering, planted};
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

    /// Returns whether keys can be [blocked](Self::block).
    pub(crate) fn can_block(&self) -> bool {
        self.rates.mask() != 0
    }

    /// Blocks `key` for `length` from `now` on, and until its quota is whole again: a call of `weight`
    /// has found it spent. Returns whether the key is blocked by this: not if it is so already, has
    /// room by now, or has no place in the table.
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

    /// How often keys were blocked.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Makes `key` one that has spent nothing; `time` returns the present. Returns whether it had
    /// spent anything. Calls that run keep their places, and the word that keys without a slot
    /// share stays.
    pub(crate) fn reset(&self, key: Digest, time: &dyn Fn() -> Tick) -> bool {
        let early = planted(Bug::ResetByEarlierTime).then(time);
        // After the word (acquire), as for a refund: an earlier time could bring back a word that
        // the last owner of the slot has left.
        let now = || early.unwrap_or_else(time);
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

    /// How many keys were reset.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
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
