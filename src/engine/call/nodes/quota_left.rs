//! The tightest remaining quota of each unit, for the rate-limit headers of responses.

use std::iter;
use std::sync::Arc as StdArc;
use std::time::Duration;

use super::CallNodes;
use crate::blocked::Label;
use crate::call::Call;
use crate::clock::Tick;
#[cfg(feature = "shared")]
use crate::engine::resource::LeaseTargets;
use crate::rule::{CostRules, KeyedRules};
use crate::stat::MAX_TOKENS;

/// The remaining quota of a flow rule, or of one value of a keyed rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotaLeft {
    pub(crate) rule: StdArc<Label>,
    /// The quota in one `interval`, in calls or units of cost.
    pub(crate) limit: u32,
    pub(crate) interval: Duration,
    /// The amount that is left now.
    pub(crate) remaining: u32,
    /// The time until more of the quota is available.
    pub(crate) reset: Duration,
}

// === impl QuotaLeft ===

impl QuotaLeft {
    /// Returns the fraction of the quota that is left.
    pub(crate) fn part(&self) -> f64 {
        part(self.remaining, self.limit)
    }

    /// Returns the unit of cost that the quota limits; `None` if it limits calls.
    pub(crate) fn unit(&self) -> Option<&str> {
        self.rule.unit.as_deref()
    }
}

/// The tightest quota of each unit that the rules of a call count. A unit is calls, or a unit of
/// cost.
///
/// An empty value is stored as `None` without an allocation.
#[derive(Debug, Default)]
pub(crate) struct QuotasLeft(Option<NotedQuotas>);

/// The noted quotas, at most one for each unit.
#[derive(Debug)]
struct NotedQuotas {
    /// The quota of the first unit. Most calls have no other.
    first: QuotaLeft,
    /// The quotas of the other units.
    more: Vec<QuotaLeft>,
}

// === impl QuotasLeft ===

impl QuotasLeft {
    /// Notes `left`, unless a tighter quota of its unit is noted.
    pub(crate) fn note(&mut self, left: QuotaLeft) {
        let Some(noted) = &mut self.0 else {
            let more = Vec::new();
            self.0 = Some(NotedQuotas { first: left, more });
            return;
        };
        for other in iter::once(&mut noted.first).chain(&mut noted.more) {
            if other.unit() == left.unit() {
                if left.part() < other.part() {
                    *other = left;
                }
                return;
            }
        }
        noted.more.push(left);
    }

    /// Notes all quotas of `other`.
    pub(crate) fn note_all(&mut self, other: Self) {
        if let Some(NotedQuotas { first, more }) = other.0 {
            self.note(first);
            for left in more {
                self.note(left);
            }
        }
    }

    /// Shortens all resets by the time that the call has `waited` since the quotas were noted.
    pub(crate) fn after(mut self, waited: Duration) -> Self {
        if let Some(noted) = &mut self.0 {
            for left in iter::once(&mut noted.first).chain(&mut noted.more) {
                left.reset = left.reset.saturating_sub(waited);
            }
        }
        self
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &QuotaLeft> {
        let all = self.0.iter();
        all.flat_map(|noted| iter::once(&noted.first).chain(&noted.more))
    }

    /// Returns the quota with the smallest remaining fraction, among all units.
    pub(crate) fn tightest(&self) -> Option<&QuotaLeft> {
        let mut tightest: Option<&QuotaLeft> = None;
        for left in self.iter() {
            if tightest.is_none_or(|it| left.part() < it.part()) {
                tightest = Some(left);
            }
        }
        tightest
    }
}

fn part(remaining: u32, limit: u32) -> f64 {
    f64::from(remaining) / f64::from(limit.max(1))
}

// === impl CallNodes ===

impl CallNodes {
    /// Notes the remaining quotas of flow rules, on rates and on costs. Reservations of running
    /// calls count as used.
    pub(crate) fn note_quotas(&self, now: Tick, quotas: &mut QuotasLeft) {
        let mut tightest: Option<QuotaLeft> = None;
        for ruled in self.limited_rings(now) {
            for (rule, quota) in ruled.rules() {
                let (limit, remaining) = (quota.limit(), ruled.ring.room(now, quota));
                let is_tighter = tightest
                    .as_ref()
                    .is_none_or(|left| part(remaining, limit) < left.part());
                if limit < MAX_TOKENS && is_tighter {
                    // The start of the next bucket may free nothing, so the reset is the time at
                    // which one more token becomes free. A quota that is unused has no such time.
                    let more = ruled
                        .ring
                        .available_at(now, remaining.saturating_add(1), quota);
                    let flow = self.resource.rules().flow(rule);
                    let interval = flow.map_or(Duration::ZERO, |flow| flow.advertised().1);
                    let reset = self.resource.time_until(more.unwrap_or(now), now);
                    tightest = Some(self.left(rule, (limit, interval), remaining, reset));
                }
            }
        }
        if let Some(left) = tightest {
            quotas.note(left);
        }
        if let Some(costs) = self.resource.costs() {
            for left in costs.left(now) {
                quotas.note(self.with_more_at(left, now));
            }
        }
    }

    /// Notes the remaining quotas of the parameters of `call`.
    pub(crate) fn note_params(&self, call: &Call<'_>, now: Tick, quotas: &mut QuotasLeft) {
        if let Some(params) = self.resource.params() {
            for left in params.rates_left(call, now) {
                quotas.note(self.with_more_at(left, now));
            }
        }
    }

    /// Returns the remaining budgets of the values of `call`, if its caller wants them.
    #[inline]
    pub(crate) fn key_costs_left(&self, call: &Call<'_>, now: Tick) -> QuotasLeft {
        let by_key = self.resource.costs().and_then(CostRules::by_key);
        match by_key {
            Some(by_key) if call.flags.wants_quota() => self.budgets_left(by_key, call, now),
            _ => QuotasLeft::default(),
        }
    }

    #[cold]
    fn budgets_left(&self, by_key: &KeyedRules, call: &Call<'_>, now: Tick) -> QuotasLeft {
        let mut quotas = QuotasLeft::default();
        for left in by_key.rates_left(call, now) {
            quotas.note(self.with_more_at(left, now));
        }
        quotas
    }

    /// Notes the remaining quotas of the shared rules of a call. `takes` means that the call has
    /// yet to take its permits.
    #[cfg(feature = "shared")]
    pub(crate) fn note_leases(
        &self,
        targets: &LeaseTargets,
        now: Tick,
        takes: bool,
        quotas: &mut QuotasLeft,
    ) {
        for left in targets.left(now, takes) {
            quotas.note(self.with_more_at(left, now));
        }
    }

    /// Creates a remaining quota from the index of a rule, its limit and interval, the remaining
    /// amount, and the time at which more is available.
    fn with_more_at(
        &self,
        (rule, limit, remaining, more): (u32, (u32, Duration), u32, Tick),
        now: Tick,
    ) -> QuotaLeft {
        self.left(rule, limit, remaining, self.resource.time_until(more, now))
    }

    /// Creates the remaining quota of the rule at index `rule`.
    fn left(
        &self,
        rule: u32,
        (limit, interval): (u32, Duration),
        remaining: u32,
        reset: Duration,
    ) -> QuotaLeft {
        QuotaLeft {
            rule: self.resource.rules().label(rule).clone(),
            limit,
            interval,
            remaining,
            reset,
        }
    }
}
