//! What calls take by the rules of one resource for each key, and what is seen of that.

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
    /// These rules, each with its index. Each inherits from those of `old`: from an equal rule, else
    /// from one of the same id, else from any, if that counts the same in the same way.
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

    /// Takes a share of every rule at `now`, or of none; `time` returns the present when shares are
    /// returned.
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

    /// When all rules will let `call` in, if no other call comes, and the last turn that it gets in
    /// their queues; `None` if one never does. Those that count calls at once let it in now, unless
    /// they never do: the end of a call cannot be foreseen. Takes nothing.
    pub(crate) fn turn_at(&self, call: &Call<'_>, now: Tick) -> Option<(Tick, Tick)> {
        let mut rules = self.0.iter();
        rules.try_fold((now, now), |(latest, last), rule| {
            let (at, turn) = rule.turn_at(call, now)?;
            Some((latest.max(at), last.max(turn)))
        })
    }

    /// Returns whether there is one rule, which lets a call pass now or refuses it, and keeps
    /// nothing of one that runs.
    pub(crate) fn are_simple(&self) -> bool {
        matches!(&*self.0, [only] if only.running.is_none() && only.rule.max_wait().is_zero())
    }

    /// Takes a share of the only rule, if it asks for one.
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

    /// The rest of the quotas of the values of `call` by each rule on a rate: the rule, its limit
    /// and in which time, the rest, and when there is more.
    pub(crate) fn rates_left(
        &self,
        call: &Call<'_>,
        now: Tick,
    ) -> impl Iterator<Item = (u32, (u32, Duration), u32, Tick)> {
        // Calls at once are no quota in any time.
        let rates = self.0.iter().filter(|rule| rule.running.is_none());
        rates.filter_map(move |rule| {
            let key = rule.keys.digest(rule.value(call).ok()??);
            let quota = rule.quota(key, call);
            if quota.is_unlimited() {
                return None;
            }
            let limit = rule.advertised(quota, now);
            // The advertised rest never exceeds the limit: a burst comes on top of it.
            let left = rule.keys.left(now, key, &quota.prepared).min(limit.0);
            let more = rule.keys.next_change(now, key, &quota.prepared);
            Some((rule.index, limit, left, more))
        })
    }

    /// The limit of the rule at `index` in the set for the value of `call`, as it is advertised.
    pub(crate) fn limit(&self, index: u32, call: &Call<'_>, now: Tick) -> Option<(u32, Duration)> {
        let rule = self.0.iter().find(|rule| rule.index == index)?;
        let key = rule.keys.digest(rule.value(call).ok()??);
        let quota = rule.quota(key, call);
        (!quota.is_unlimited()).then(|| rule.advertised(quota, now))
    }

    /// The part of its shares that a call that runs must keep.
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

    /// The call has ended that has kept `running`.
    pub(crate) fn release(&self, running: RunningPlaces) {
        let all = self.0.iter().filter_map(|rule| Some((rule, rule.running?)));
        for (rule, ordinal) in all {
            rule.keys.release(running.0[ordinal], 1);
        }
    }

    /// The rules, by their index in the set.
    pub(crate) fn rules(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|param| param.index)
    }

    /// The tokens that `value` could take now by the rule at `place`; `None` without a limit.
    pub(crate) fn left(&self, place: usize, value: &Key<'_>, now: Tick) -> Option<u32> {
        let param = &self.0[place];
        let key = param.keys.digest(value);
        let quota = param.quotas.of(key, None);
        let left = || param.keys.left(now, key, &quota.prepared);
        (!quota.is_unlimited()).then(left)
    }

    /// Gives `value` its whole quota by the rule at `place`, if it has spent any.
    pub(crate) fn reset(&self, place: usize, value: &Key<'_>, time: &dyn Fn() -> Tick) -> bool {
        let keys = &self.0[place].keys;
        keys.reset(keys.digest(value), time)
    }

    /// How often values were blocked by the rule at `place`.
    pub(crate) fn blocks(&self, place: usize) -> u64 {
        self.0[place].keys.blocks()
    }

    /// Returns whether values are blocked by the rule at `place`.
    pub(crate) fn has_blocks(&self, place: usize) -> bool {
        self.0[place].rule.get_block_for().is_some()
    }

    /// How many values were reset by the rule at `place`.
    pub(crate) fn resets(&self, place: usize) -> u64 {
        self.0[place].keys.resets()
    }

    /// How many values are not at rest by the rule at `place`.
    pub(crate) fn values(&self, place: usize, now: Tick) -> usize {
        self.0[place].keys.keys_in_use(now)
    }

    /// Calls that were judged on the quota that values without a place share.
    pub(crate) fn overflows(&self, place: usize) -> u64 {
        self.0[place].keys.overflows()
    }

    /// Calls that had no value for the rule at `place`.
    pub(crate) fn missing(&self, place: usize) -> u64 {
        self.0[place].missing.load(Ordering::Relaxed)
    }

    /// The rules, by their index in the set, that have met calls without a value and none
    /// with one, and how many.
    pub(crate) fn without_keys(&self) -> impl Iterator<Item = (u32, u64)> {
        let silent = self.0.iter().filter(|rule| rule.has_met_no_key());
        silent.map(|rule| (rule.index, rule.missing.load(Ordering::Relaxed)))
    }

    /// The rules, by their index in the set, that block calls without a value together, and how many
    /// of those have come beside others with one.
    pub(crate) fn blocked_together(&self) -> impl Iterator<Item = (u32, u64)> {
        let blocks = |it: &&KeyedState| {
            it.rule.get_block_for().is_some() && it.rule.missing == MissingKey::Share
        };
        let rules = self.0.iter().filter(blocks);
        let rules = rules.filter(|rule| !rule.has_met_no_key());
        rules.map(|rule| (rule.index, rule.missing.load(Ordering::Relaxed)))
    }

    /// The tiers that calls had and a rule does not know, with the index of the rule in the set.
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

    /// Bytes that the rules occupy on the heap, with their tables.
    pub(crate) fn footprint(&self) -> usize {
        let mut bytes = size_of_val(&*self.0);
        for rule in &self.0 {
            bytes += rule.heap();
        }
        bytes
    }
}
