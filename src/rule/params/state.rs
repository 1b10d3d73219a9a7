//! One keyed rule in force: its table, and the value and the quota by which it judges a call.

use std::time::Duration;

use super::quotas::{QuotasByValue, UnknownTiers, ValueQuota};
use super::{KeyedState, NoShare, OnSuspicion};
use crate::base::sync::{Arc, AtomicU64, shared_size};
use crate::call::{Call, Key};
use crate::clock::Tick;
use crate::keyed::{Counting, Digest, HotKeys, KeySpec, KeyTokens, RatesInUse};
use crate::rule::MissingKey;
use crate::rule::keyed_rule::{KeyedRule, ParamOf};
use crate::rule::threshold::whole_rate;

impl KeyedState {
    /// Bytes that the state occupies on the heap: its table, its rule, and the prepared quotas.
    pub(super) fn heap(&self) -> usize {
        let keys = self.keys.footprint() - size_of::<HotKeys>() + shared_size::<HotKeys>();
        keys + shared_size::<AtomicU64>()
            + size_of_val(&*self.on_suspicion.0)
            + self.rule.heap()
            + self.quotas.heap()
    }

    pub(super) fn new(
        index: u32,
        rule: KeyedRule,
        old: Option<&Self>,
        now: Tick,
        (on_suspicion, epoch): (OnSuspicion, &dyn Fn() -> Duration),
    ) -> Self {
        let keys = match old {
            // A rule that blocks values needs a table that can mark blocks, which not every table
            // can.
            Some(old) if rule.get_block_for().is_none() || old.keys.can_block() => old.keys.clone(),
            _ => {
                let spec = KeySpec {
                    count: rule.count,
                    interval: rule.interval(),
                    max_keys: rule.max_keys.get(),
                };
                let keys = match rule.get_cost() {
                    Some(_) => HotKeys::with_costs(spec, now),
                    None => HotKeys::new(spec, now),
                };
                let keys = match &rule.of {
                    ParamOf::Anyone => keys.for_all_callers(),
                    _ => keys,
                };
                Arc::new(match rule.calendar() {
                    Some(_) => keys.by_calendar(epoch(), rule.get_utc_offset()),
                    None if rule.has_wide_windows() => keys.with_wide_windows(spec.max_keys),
                    None => keys,
                })
            }
        };
        let unchanged = old.filter(|old| old.rule == rule);
        let mut rates = RatesInUse::default();
        if let Some(old) = old {
            old.quotas.note_rates(&mut rates);
        }
        let keys_at = (&*keys, now);
        let before = unchanged.map(|old| &old.quotas);
        let quotas = QuotasByValue::new(&rule, keys_at, &mut rates, before);
        Self {
            missing: old.map_or_else(Arc::default, |old| old.missing.clone()),
            on_suspicion,
            unknown_tiers: UnknownTiers::default(),
            index,
            running: None,
            quotas,
            rule,
            keys,
        }
    }

    /// The value by which `call` is judged; `None` if the rule does not apply to it.
    pub(super) fn value<'c>(&self, call: &'c Call<'_>) -> Result<Option<&'c Key<'c>>, NoShare> {
        match self.carried_value(call) {
            Some(value) => Ok(Some(value)),
            None => self.fallback_key(),
        }
    }

    /// The value that `call` carries, if any.
    #[inline]
    pub(super) fn carried_value<'c>(&self, call: &'c Call<'_>) -> Option<&'c Key<'c>> {
        match &self.rule.of {
            ParamOf::Index(index) => call.param_at(*index),
            ParamOf::Named(name) => call.param_named(name),
            ParamOf::Origin => call.origin.as_ref(),
            ParamOf::Anyone => Some(&Key::MISSING),
        }
    }

    /// The key under which `value` is counted.
    pub(super) fn counted_key<'v>(&self, value: &'v Key<'v>) -> &'v Key<'v> {
        match self.rule.of {
            ParamOf::Anyone => &Key::MISSING,
            _ => value,
        }
    }

    /// The key by which a call without a value is judged; `None` if the rule does not apply to it.
    pub(super) fn fallback_key(&self) -> Result<Option<&'static Key<'static>>, NoShare> {
        match self.rule.missing {
            MissingKey::Share => Ok(Some(&Key::MISSING)),
            MissingKey::Skip => Ok(None),
            MissingKey::Refuse => Err(NoShare::Missing { rule: self.index }),
        }
    }

    /// Takes the share of `call`. `time` returns the present time.
    pub(super) fn take(
        &self,
        call: &Call<'_>,
        now: Tick,
        time: &dyn Fn() -> Tick,
    ) -> Result<Option<KeyTokens>, NoShare> {
        let Some(value) = self.value_to_take(call)? else {
            return Ok(None);
        };
        let key = self.keys.digest(value);
        let quota = self.quota_to_take(key, call);
        let weight = self.weight(call);
        match self.keys.take_by(now, key, &quota.prepared, weight, time) {
            Ok(taken) => Ok(Some(taken)),
            Err(full) => Err(NoShare::Full {
                rule: self.index,
                limit: self.advertised(quota, now),
                available_at: self.block(now, key, quota, weight, full.available_at()),
            }),
        }
    }

    /// Blocks a value whose quota is spent, if the rule blocks values. Returns when there is room
    /// for a call of `weight` after that, or `room_at` if nothing was blocked.
    #[cold]
    #[inline(never)]
    pub(super) fn block(
        &self,
        now: Tick,
        key: Digest,
        quota: &ValueQuota,
        weight: u32,
        room_at: Option<Tick>,
    ) -> Option<Tick> {
        let Some(length) = self.rule.get_block_for() else {
            return room_at;
        };
        let limit = &quota.prepared;
        if self.keys.block(now, key, limit, weight, length) {
            self.keys.available_at(now, key, limit, weight)
        } else {
            room_at
        }
    }

    /// Returns when the rule will admit `call`, and the turn that it then gets, which can be later.
    /// Takes nothing.
    pub(super) fn turn_at(&self, call: &Call<'_>, now: Tick) -> Option<(Tick, Tick)> {
        let Some(value) = self.value(call).ok()? else {
            return Some((now, now));
        };
        let key = self.keys.digest(value);
        let limit = self.quota(key, call).prepared.waiting(Duration::ZERO);
        let turn = self
            .keys
            .available_at(now, key, &limit, self.weight(call))?;
        let at = now + (turn - now).saturating_sub(self.rule.max_wait());
        Some((at, turn))
    }

    /// What `call` takes: one place, whatever its weight, under a concurrency limit, or else its
    /// weight.
    pub(super) fn weight(&self, call: &Call<'_>) -> u32 {
        match self.rule.count {
            Counting::Running => 1,
            _ => call.weight,
        }
    }

    /// The limit of `quota` as response headers advertise it: a number of calls, and the time for
    /// them.
    pub(super) fn advertised(&self, quota: &ValueQuota, now: Tick) -> (u32, Duration) {
        let (threshold, interval) = (quota.threshold, self.rule.interval());
        match self.rule.count {
            Counting::Refill | Counting::Queue(_) => whole_rate(threshold, interval),
            Counting::Window => (threshold as u32, interval),
            Counting::Calendar(_) => {
                let length = self.keys.period_length(now);
                (threshold as u32, length.unwrap_or(interval))
            }
            Counting::Running => (threshold as u32, Duration::ZERO),
        }
    }

    // Always inlined, as `quota_to_take` is.
    #[inline(always)]
    pub(super) fn quota(&self, key: Digest, call: &Call<'_>) -> &ValueQuota {
        self.quotas.of(key, call.tier.as_ref())
    }
}
