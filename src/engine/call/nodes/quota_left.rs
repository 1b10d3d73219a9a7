//! The rest of the tightest quota: for the rate-limit fields of responses.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::CallNodes;
use crate::call::Call;
use crate::clock::Tick;
#[cfg(feature = "shared")]
use crate::engine::resource::LeaseTargets;
use crate::stat::MAX_TOKENS;

/// The rest of the quota of a flow rule, or of a value by a keyed rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotaLeft {
    pub(crate) rule: StdArc<str>,
    pub(crate) limit: u32,
    pub(crate) interval: Duration,
    pub(crate) remaining: u32,
    /// The time until more of the quota is there.
    pub(crate) reset: Duration,
}

// === impl QuotaLeft ===

impl QuotaLeft {
    /// The part that is left.
    pub(crate) fn part(&self) -> f64 {
        part(self.remaining, self.limit)
    }

    /// The quota with the smallest part left.
    #[inline]
    pub(crate) fn tightest(all: impl Iterator<Item = Self>) -> Option<Self> {
        let mut tightest: Option<Self> = None;
        for left in all {
            if tightest.as_ref().is_none_or(|it| left.part() < it.part()) {
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
    /// The rest of the tightest quota of a flow rule. What running calls have reserved of a limit on
    /// costs is not left.
    pub(crate) fn quota_left(&self, now: Tick) -> Option<QuotaLeft> {
        let mut tightest: Option<QuotaLeft> = None;
        for ruled in self.limited_rings(now) {
            for (rule, quota) in ruled.rules() {
                let (limit, remaining) = (quota.limit(), ruled.ring.room(now, quota));
                let is_tighter = tightest
                    .as_ref()
                    .is_none_or(|left| part(remaining, limit) < left.part());
                if limit < MAX_TOKENS && is_tighter {
                    // Nothing may leave when the next bucket begins. All of it is left to
                    // a call without weight.
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
        let Some(costs) = self.resource.costs() else {
            return tightest;
        };
        let of_costs = costs.left(now).map(|(rule, limit, remaining, more)| {
            self.left(rule, limit, remaining, self.resource.time_until(more, now))
        });
        QuotaLeft::tightest(tightest.into_iter().chain(of_costs))
    }

    /// The rest of the quotas of the parameters of `call`.
    pub(crate) fn params_left(&self, call: &Call<'_>, now: Tick) -> Option<QuotaLeft> {
        let all = self.resource.params()?.rates_left(call, now);
        QuotaLeft::tightest(all.map(|(rule, limit, remaining, more)| {
            self.left(rule, limit, remaining, self.resource.time_until(more, now))
        }))
    }

    /// The rest of the budgets of the values of `call`, if its caller asks for it.
    #[cold]
    pub(crate) fn key_costs_left(&self, call: &Call<'_>, now: Tick) -> Option<QuotaLeft> {
        let by_key = self.resource.costs()?.by_key();
        let all = by_key
            .filter(|_| call.flags.wants_quota())?
            .rates_left(call, now);
        QuotaLeft::tightest(all.map(|(rule, limit, remaining, more)| {
            self.left(rule, limit, remaining, self.resource.time_until(more, now))
        }))
    }

    /// The rest of the shared rules from which `call` takes its permits.
    #[cfg(feature = "shared")]
    pub(crate) fn leases_left(
        &self,
        targets: &LeaseTargets,
        now: Tick,
        taken: u32,
    ) -> Option<QuotaLeft> {
        QuotaLeft::tightest(targets.left(now).map(|(rule, limit, remaining, more)| {
            let reset = self.resource.time_until(more, now);
            self.left(rule, limit, remaining.saturating_sub(taken), reset)
        }))
    }

    fn left(
        &self,
        rule: u32,
        (limit, interval): (u32, Duration),
        remaining: u32,
        reset: Duration,
    ) -> QuotaLeft {
        QuotaLeft {
            rule: self.resource.rules().id(rule),
            limit,
            interval,
            remaining,
            reset,
        }
    }
}
