//! The shares that calls take under the keyed rules of one resource, and figures about them.

use std::time::Duration;

use super::{
    KeyedRules, KeyedState, MOST_RUNNING, NoShare, OnSuspicion, RunningPlaces, Share, Shares,
};
use crate::base::carry_over::carry_over;
use crate::base::sync::Ordering;
use crate::call::{Call, Key};
use crate::clock::Tick;
use crate::keyed::{Counting, KeyTokens};
use crate::rule::{KeyedRule, MissingKey};

impl KeyedRules {
    /// Creates the state of `rules`, given with their indices. Each inherits the state of a rule of
    /// `old`: from an equal rule, else from a rule with the same id, else from any rule, if it
    /// counts the same values in the same way.
    pub(crate) fn new(
        rules: Vec<(u32, KeyedRule)>,
        old: Option<&Self>,
        now: Tick,
        (on_suspicion, epoch): (impl Fn(u32) -> OnSuspicion, &dyn Fn() -> Duration),
    ) -> Option<Self> {
        let carry_over = carry_over(
            &rules,
            old.map_or(&[][..], |old| &old.0),
            &[
                &|(_, new), old| *new == old.rule,
                &|(_, new), old| new.is_named_like(&old.rule) && new.counts_like(&old.rule),
                &|(_, new), old| new.counts_like(&old.rule),
            ],
        );
        let (mut all, mut running) = (Vec::with_capacity(rules.len()), 0);
        for ((index, rule), old) in rules.into_iter().zip(carry_over) {
            let mut state = KeyedState::new(index, rule, old, now, (on_suspicion(index), epoch));
            if state.rule.count == Counting::Running && running < MOST_RUNNING {
                state.running = Some(running);
                state.set_limit();
                running += 1;
            }
            all.push(state);
        }
        (!all.is_empty()).then(|| Self(all.into()))
    }

    /// Takes a share of every rule at `now`, or of none. `time` returns the present time, at which
    /// shares are refunded if a rule has no room.
    pub(crate) fn take(
        &self,
        call: &Call<'_>,
        now: Tick,
        time: impl Fn() -> Tick,
    ) -> Result<Shares, NoShare> {
        let mut shares = Shares::default();
        for (place, rule) in self.0.iter().enumerate() {
            match rule.take(call, now, &time) {
                Ok(None) => {}
                Ok(Some(taken)) => shares.push(Share {
                    place: place as u32,
                    rule: rule.index,
                    taken,
                }),
                Err(none) => {
                    self.refund(&shares, &time);
                    return Err(none);
                }
            }
        }
        Ok(shares)
    }

    /// Returns when all rules will admit `call` if no other call comes, and the last turn that it
    /// gets in their queues; `None` if a rule never will. Takes nothing. The end of a call cannot
    /// be foreseen, so a concurrency rule counts as admitting the call now, unless it never will.
    pub(crate) fn turn_at(&self, call: &Call<'_>, now: Tick) -> Option<(Tick, Tick)> {
        let mut rules = self.0.iter();
        rules.try_fold((now, now), |(latest, last), rule| {
            let (at, turn) = rule.turn_at(call, now)?;
            Some((latest.max(at), last.max(turn)))
        })
    }

    /// Returns whether there is just one rule, which neither makes calls wait nor keeps state of
    /// running calls.
    pub(crate) fn are_simple(&self) -> bool {
        matches!(&*self.0, [only] if only.running.is_none() && only.rule.max_wait().is_zero())
    }

    /// Takes a share of the only rule, if the rule applies to the call.
    #[inline]
    pub(crate) fn take_simple(
        &self,
        call: &Call<'_>,
        now: Tick,
        time: impl Fn() -> Tick,
    ) -> Result<Option<KeyTokens>, NoShare> {
        self.0[0].take(call, now, &time)
    }

    /// Refunds the share that [`take_simple`](Self::take_simple) has taken.
    pub(crate) fn refund_simple(&self, taken: &KeyTokens, time: impl Fn() -> Tick) {
        self.0[0].keys.refund(time, taken);
    }

    /// Returns the shares of a call that does not run.
    pub(crate) fn refund(&self, shares: &Shares, time: impl Fn() -> Tick) {
        let time: &dyn Fn() -> Tick = &time;
        for share in shares.iter() {
            self.0[share.place as usize].keys.refund(time, &share.taken);
        }
    }

    /// The remaining quota of the value of `call`, for each rule on a rate: the index of the rule,
    /// its limit and interval, the tokens left, and the time at which more become available.
    pub(crate) fn rates_left(
        &self,
        call: &Call<'_>,
        now: Tick,
    ) -> impl Iterator<Item = (u32, (u32, Duration), u32, Tick)> {
        // A concurrency limit has no quota per time.
        let rates = self.0.iter().filter(|rule| rule.running.is_none());
        rates.filter_map(move |rule| {
            let key = rule.keys.digest(rule.value(call).ok()??);
            let quota = rule.quota(key, call);
            if quota.is_unlimited() {
                return None;
            }
            let limit = rule.advertised(quota, now);
            // The advertised remaining quota never exceeds the limit: a burst comes on top of it.
            let left = rule.keys.left(now, key, &quota.prepared).min(limit.0);
            let more = rule.keys.next_change(now, key, &quota.prepared);
            Some((rule.index, limit, left, more))
        })
    }

    /// The limit of the value of `call` under the rule at `index` in the set, as response headers
    /// show it.
    pub(crate) fn limit(&self, index: u32, call: &Call<'_>, now: Tick) -> Option<(u32, Duration)> {
        let rule = self.0.iter().find(|rule| rule.index == index)?;
        let key = rule.keys.digest(rule.value(call).ok()??);
        let quota = rule.quota(key, call);
        (!quota.is_unlimited()).then(|| rule.advertised(quota, now))
    }

    /// Returns the places, among its shares, that a call must keep while it runs.
    pub(crate) fn keep(&self, shares: &Shares) -> RunningPlaces {
        let mut running = RunningPlaces::NONE;
        let kept = shares.iter().filter_map(|share| {
            let ordinal = self.0[share.place as usize].running?;
            Some((ordinal, share.taken.pinned()))
        });
        for (ordinal, pinned) in kept {
            running.0[ordinal] = pinned;
        }
        running
    }

    /// Releases the places of a call that has ended.
    pub(crate) fn release(&self, running: RunningPlaces) {
        let all = self.0.iter().filter_map(|rule| Some((rule, rule.running?)));
        for (rule, ordinal) in all {
            rule.keys.release(running.0[ordinal], 1);
        }
    }

    /// The indices of the rules in the set.
    pub(crate) fn rules(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|param| param.index)
    }

    /// The tokens that `value` could take now under the rule at `place`; `None` if it has no limit.
    pub(crate) fn left(&self, place: usize, value: &Key<'_>, now: Tick) -> Option<u32> {
        let param = &self.0[place];
        let key = param.keys.digest(param.counted_key(value));
        let quota = param.quotas.of(key, None);
        let left = || param.keys.left(now, key, &quota.prepared);
        (!quota.is_unlimited()).then(left)
    }

    /// Returns whether `value` has spent some of its quota under the rule at `place`, or has calls
    /// running.
    #[cfg(all(feature = "page", feature = "serde"))]
    pub(crate) fn is_in_use(&self, place: usize, value: &Key<'_>, now: Tick) -> bool {
        let param = &self.0[place];
        let key = param.keys.digest(param.counted_key(value));
        param.keys.is_in_use(now, key)
    }

    /// Restores the whole quota of `value` under the rule at `place`. Returns whether any
    /// of it was spent.
    pub(crate) fn reset(&self, place: usize, value: &Key<'_>, time: &dyn Fn() -> Tick) -> bool {
        let param = &self.0[place];
        let key = param.keys.digest(param.counted_key(value));
        param.keys.reset(key, time)
    }

    /// How often the rule at `place` has blocked a value.
    pub(crate) fn blocks(&self, place: usize) -> u64 {
        self.0[place].keys.blocks()
    }

    /// Returns whether the rule at `place` blocks values.
    pub(crate) fn has_blocks(&self, place: usize) -> bool {
        self.0[place].rule.get_block_for().is_some()
    }

    /// How many values were reset under the rule at `place`.
    pub(crate) fn resets(&self, place: usize) -> u64 {
        self.0[place].keys.resets()
    }

    /// How many values are not at rest under the rule at `place`.
    pub(crate) fn values(&self, place: usize, now: Tick) -> usize {
        self.0[place].keys.keys_in_use(now)
    }

    /// How many calls were judged on the quota that values without a place share.
    pub(crate) fn overflows(&self, place: usize) -> u64 {
        self.0[place].keys.overflows()
    }

    /// How many calls had no value for the rule at `place`.
    pub(crate) fn missing(&self, place: usize) -> u64 {
        self.0[place].missing.load(Ordering::Relaxed)
    }

    /// The rules that have met calls without a value, and no call with a value: their indices in
    /// the set, and how many calls had no value.
    pub(crate) fn without_keys(&self) -> impl Iterator<Item = (u32, u64)> {
        let silent = self.0.iter().filter(|rule| rule.has_met_no_key());
        silent.map(|rule| (rule.index, rule.missing.load(Ordering::Relaxed)))
    }

    /// The rules that block calls without a value together, and have met calls with a value as
    /// well: their indices in the set, and how many calls had no value.
    pub(crate) fn blocked_together(&self) -> impl Iterator<Item = (u32, u64)> {
        let blocks = |it: &&KeyedState| {
            it.rule.get_block_for().is_some() && it.rule.missing == MissingKey::Share
        };
        let rules = self.0.iter().filter(blocks);
        let rules = rules.filter(|rule| !rule.has_met_no_key());
        rules.map(|rule| (rule.index, rule.missing.load(Ordering::Relaxed)))
    }

    /// The tiers of calls that a rule does not name, each with the index of the rule in the set.
    pub(crate) fn unknown_tiers(&self) -> Vec<(u32, String)> {
        let mut unknown = Vec::new();
        for rule in &self.0 {
            rule.unknown_tiers
                .each(&mut |tier| unknown.push((rule.index, tier.to_string())));
        }
        unknown
    }

    /// Bytes of the table of the rule at `place`.
    pub(crate) fn table_footprint(&self, place: usize) -> usize {
        self.0[place].keys.footprint()
    }

    /// Bytes that the rules occupy on the heap, including their tables.
    pub(crate) fn footprint(&self) -> usize {
        let mut bytes = size_of_val(&*self.0);
        for rule in &self.0 {
            bytes += rule.heap();
        }
        bytes
    }
}
