//! The shared rules of one resource, and the counters from which a call takes permits.

use std::task::Waker;
use std::time::Duration;

use super::held_leases::HeldLeases;
use super::optional::{OptionalChecks, ResourceInputs};
use crate::base::small_vec::SmallVec;
use crate::base::sync::Arc;
use crate::call::{Call, Key};
use crate::clock::Tick;
use crate::rule::{LeaseCosts, NoShare, Selected, SharedCostRule, SharedRule, most_keys};
use crate::store::{
    Answer, Asked, Hub, KeyedQuotas, LeaseFound, QuotaRule, RuleFigures, SharedQuota, Terms,
    Ticket, Validity,
};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Leases {
    pub(super) rules: Box<[LeasedRule]>,
    hub: Arc<Hub>,
}

/// One shared rule with its counters.
#[derive(Debug)]
pub(super) struct LeasedRule {
    /// The index of the rule in its set.
    pub(super) index: u32,
    pub(super) rule: SharedRule,
    pub(super) counters: LeaseCounters,
    /// The cost statistics of the rule's calls, if the rule counts costs. Shared with the same rule
    /// before a reload.
    costs: Option<Arc<LeaseCosts>>,
}

/// The counters of a rule. Shared with the same rule before a reload.
#[derive(Clone, Debug)]
pub(super) enum LeaseCounters {
    /// One counter for all calls.
    One(Arc<SharedQuota>),
    /// A counter for each key.
    ByKey(Arc<KeyedQuotas>),
}

/// The counters from which one call takes permits.
#[derive(Debug, Default)]
pub(crate) struct LeaseTargets(SmallVec<LeaseTarget, 2>);

/// One counter from which a call takes permits.
#[derive(Clone, Debug)]
pub(super) struct LeaseTarget {
    /// The index of the counter's rule.
    rule: u32,
    /// The limit and the interval that a refusal names.
    advertised: (u32, Duration),
    pub(super) quota: Arc<SharedQuota>,
    /// The number of permits that the call takes.
    pub(super) weight: u32,
    /// The reservation of the call, if the rule is on costs.
    pub(super) cost: Option<WantedUnits>,
}

/// The reservation of a call at a rule on costs.
#[derive(Clone, Debug)]
pub(super) struct WantedUnits {
    /// The cost statistics of the rule.
    pub(super) costs: Arc<LeaseCosts>,
    /// The number of units that the call reserves.
    pub(super) units: u32,
}

/// The tickets of a call that waits for the store, and the permits that it already has.
#[derive(Debug)]
pub(crate) struct Asking {
    /// The counters that were asked, with the tickets for their answers.
    tickets: Vec<(LeaseTarget, Ticket)>,
    /// The permits that the call already has.
    held: HeldLeases,
    /// The maximum time that the call waits.
    pub(crate) most: Duration,
}

/// The result of a call's attempt to take permits from its counters.
#[derive(Debug)]
pub(crate) enum Taking {
    /// The call has all its permits.
    All(HeldLeases),
    /// The call holds these permits, and must ask the store for the rest. The time is set if the
    /// rest is borrowed from the next bucket: it is when the call could start.
    MustAsk(HeldLeases, Option<Tick>),
}

// === impl Leases ===

impl Leases {
    /// Creates the shared rules at `indices`. They inherit the counters of equivalent rules in
    /// `old`.
    pub(super) fn new(
        made_of: &ResourceInputs<'_>,
        indices: &[u32],
        old: Option<&OptionalChecks>,
    ) -> Option<Self> {
        if indices.is_empty() {
            return None;
        }
        let (set, hub) = (made_of.rules, made_of.shared.hub());
        let most_origins = most_keys(made_of.shared.config.max_origins);
        let old = old.and_then(|old| old.leases.as_ref());
        let rules = indices.iter().filter_map(|&index| {
            let mut rule = set.shared(index, made_of.text, made_of.direction, most_origins)?;
            rule.window = rule.window.since(made_of.shared.time.epoch());
            let counts = set.shared_counts(index)?;
            let known = old.and_then(|old| old.known(&rule));
            let counters = known.map(|known| known.counters.clone());
            let counters = counters.unwrap_or_else(|| {
                let figures = Arc::new(RuleFigures::new(counts));
                LeaseCounters::new(&rule, figures, hub)
            });
            let costs = known.and_then(|known| known.costs.clone());
            let costs = costs.or_else(|| rule.unit().map(|unit| Arc::new(LeaseCosts::new(unit))));
            counters.figures().note_successor(counts);
            if let LeaseCounters::One(quota) = &counters {
                let limit = rule.limit();
                quota.set_terms(rule.terms(limit, &hub.settings));
            }
            Some(LeasedRule {
                index,
                rule,
                counters,
                costs,
            })
        });
        let rules: Box<[_]> = rules.collect();
        let hub = hub.clone();
        (!rules.is_empty()).then_some(Self { rules, hub })
    }

    /// Returns the only counter, if there is a single rule and it counts all calls together.
    #[inline]
    pub(crate) fn only_one(&self) -> Option<&Arc<SharedQuota>> {
        match &*self.rules {
            [
                LeasedRule {
                    rule,
                    counters: LeaseCounters::One(quota),
                    ..
                },
            ] if rule.is_of_all() => Some(quota),
            _ => None,
        }
    }

    /// Returns the span of the longest window, after which permits no longer have an effect.
    pub(super) fn memory(&self) -> Duration {
        let windows = self.rules.iter().map(|leased| leased.rule.window);
        let spans = windows.map(|window| window.bucket * (window.buckets + 1));
        spans.max().unwrap_or_default()
    }

    /// Returns the estimated time at which `call` can get its permits; `None` if never.
    pub(crate) fn room_at(&self, call: &Call<'_>, now: Tick) -> Option<Tick> {
        let Ok(targets) = self.targets(call, now) else {
            return Some(now);
        };
        let mut all = targets.0.iter();
        all.try_fold(now, |latest, target| {
            Some(latest.max(target.quota.room_at(now, target.weight)?))
        })
    }

    /// Returns the terms of a counter of `leased` with this `limit`.
    pub(super) fn terms(&self, leased: &LeasedRule, limit: u32) -> Terms {
        leased.rule.terms(limit, &self.hub.settings)
    }

    /// Returns the rule with the same counters as `rule`: the same identity and number of keys.
    fn known(&self, rule: &SharedRule) -> Option<&LeasedRule> {
        let mut all = self.rules.iter();
        all.find(|known| {
            known.rule.identity == rule.identity && known.rule.max_keys == rule.max_keys
        })
    }

    /// Returns the rules on costs.
    pub(super) fn costs(&self) -> Vec<SharedCostRule> {
        let mut rules = Vec::new();
        for leased in &self.rules {
            if let Some(costs) = &leased.costs {
                rules.push(SharedCostRule {
                    index: leased.index,
                    limit: leased.rule.limit(),
                    costs: costs.clone(),
                    quota: match &leased.counters {
                        LeaseCounters::One(quota) => Some(quota.clone()),
                        LeaseCounters::ByKey(_) => None,
                    },
                });
            }
        }
        rules
    }

    /// Finds the counters from which `call` takes permits.
    pub(crate) fn targets(&self, call: &Call<'_>, now: Tick) -> Result<LeaseTargets, NoShare> {
        let mut targets = LeaseTargets::default();
        for leased in &self.rules {
            let weight = leased.rule.wanted(call);
            if weight == 0 {
                continue;
            }
            let key = match leased.rule.select(call) {
                Selected::No => continue,
                Selected::Together => None,
                Selected::By(key) => Some(key),
                Selected::Missing => return Err(NoShare::Missing { rule: leased.index }),
            };
            let (limit, quota) = match (&leased.counters, key) {
                (LeaseCounters::One(quota), _) => (leased.rule.limit(), quota.clone()),
                (LeaseCounters::ByKey(quotas), key) => {
                    let key = key.unwrap_or(&Key::MISSING);
                    let Some(limit) = leased.rule.limit_of(key, call.tier.as_ref()) else {
                        continue;
                    };
                    (limit, quotas.of(key, self.terms(leased, limit), now))
                }
            };
            targets.0.push(LeaseTarget {
                rule: leased.index,
                advertised: leased.rule.advertised(limit, now),
                quota,
                weight,
                cost: leased.costs.as_ref().map(|costs| WantedUnits {
                    costs: costs.clone(),
                    units: call.reserves.of(leased.rule.unit().unwrap_or_default()),
                }),
            });
        }
        Ok(targets)
    }
}

impl LeaseCounters {
    fn new(rule: &SharedRule, figures: Arc<RuleFigures>, hub: &Arc<Hub>) -> Self {
        let digest = hub.digester().rule(&rule.identity);
        let terms = rule.terms(rule.limit(), &hub.settings);
        let common = match rule.unit() {
            None => QuotaRule::new(rule.window, figures, hub),
            Some(_) => QuotaRule::of_costs(rule.window, figures, hub),
        };
        if rule.is_by_key() {
            let quotas = KeyedQuotas::new(digest, common, terms, rule.max_keys);
            Self::ByKey(Arc::new(quotas))
        } else {
            let digest = hub.digester().counter(digest, None);
            Self::One(SharedQuota::new(digest, terms, &common))
        }
    }

    fn figures(&self) -> &RuleFigures {
        match self {
            Self::One(quota) => quota.rule().figures(),
            Self::ByKey(quotas) => quotas.rule().figures(),
        }
    }
}

// === impl LeaseTargets ===

impl LeaseTargets {
    /// Takes the call's permits from the counters. Permits that the call `had` before are used
    /// first. A call with a `latest` time can ask for permits of the next bucket, if it can start
    /// before that time. If a counter is exhausted, all permits are refunded, and the call is
    /// refused.
    pub(crate) fn take(
        &self,
        now: Tick,
        had: HeldLeases,
        latest: Option<Tick>,
    ) -> Result<Taking, NoShare> {
        let mut had = had;
        let mut held = HeldLeases::default();
        let (mut must_ask, mut start) = (false, None);
        for target in self.0.iter() {
            let weight = target.weight;
            if held.take_over(&mut had, target) {
                continue;
            }
            match target.quota.take(now, weight) {
                LeaseFound::Taken(end) => {
                    held.push(target, Some(Validity::until(end)));
                }
                LeaseFound::Exhausted(at) => {
                    let lent = latest.and_then(|by| target.quota.lends_at(now, weight, by));
                    let lent = lent.ok_or_else(|| target.exhausted(Some(at)))?;
                    (must_ask, start) = (true, start.max(Some(lent)));
                }
                LeaseFound::Nothing => must_ask = true,
            }
        }
        Ok(if must_ask {
            Taking::MustAsk(held, start)
        } else {
            Taking::All(held)
        })
    }

    /// Returns the remaining quota of each counter: its rule, its limit and interval, the number of
    /// permits left, and the time at which there are more. `takes` means that the call has yet to
    /// take its permits, which are then subtracted.
    pub(crate) fn left(
        &self,
        now: Tick,
        takes: bool,
    ) -> impl Iterator<Item = (u32, (u32, Duration), u32, Tick)> {
        self.0.iter().filter_map(move |target| {
            let (limit, left, at) = target.quota.left(now)?;
            let taken = if takes { target.weight } else { 0 };
            let left = left.saturating_sub(taken);
            Some((target.rule, (limit, target.advertised.1), left, at))
        })
    }

    /// Asks for the permits that are not `held`. A `latest` time has the same meaning as in
    /// [`take`](Self::take). Returns all permits, or the tickets for whose answers the call must
    /// wait.
    pub(crate) fn ask(
        &self,
        now: Tick,
        held: HeldLeases,
        latest: Option<Tick>,
    ) -> Result<Result<HeldLeases, Asking>, NoShare> {
        let mut asking = Asking {
            tickets: Vec::new(),
            held,
            most: Duration::MAX,
        };
        for target in self.0.iter() {
            if asking.held.has(&target.quota) {
                continue;
            }
            match SharedQuota::ask(&target.quota, now, target.weight, latest) {
                Asked::Answered(answer) => asking.take_answer(target, answer)?,
                Asked::Waits(ticket) => {
                    asking.most = asking.most.min(target.quota.terms().wait());
                    asking.tickets.push((target.clone(), ticket));
                }
            }
        }
        Ok(if asking.tickets.is_empty() {
            Ok(asking.held)
        } else {
            Err(asking)
        })
    }

    /// Returns the refusal of a call whose permits `held` expire before `start`; `None` if the call
    /// holds no permits.
    #[cold]
    pub(crate) fn over_by(&self, held: &HeldLeases, start: Tick) -> Option<NoShare> {
        let of_held = self.0.iter().find(|target| held.has(&target.quota))?;
        Some(of_held.exhausted(Some(start)))
    }
}

impl LeaseTarget {
    /// Creates the refusal by this counter, which has room again at `at`; `None` means never.
    #[cold]
    fn exhausted(&self, at: Option<Tick>) -> NoShare {
        let at = at.filter(|_| self.quota.fits(self.weight));
        NoShare::Full {
            rule: self.rule,
            limit: self.advertised,
            available_at: at.map(|at| self.quota.available_at(at)),
        }
    }
}

// === impl Asking ===

impl Asking {
    /// Returns the rule of the first counter for whose answer the call waits.
    pub(crate) fn first_rule(&self) -> u32 {
        self.tickets.first().map_or(0, |(target, _)| target.rule)
    }

    /// Returns whether all answers have arrived. If not, `waker` is woken at the next answer.
    pub(crate) fn is_answered(&self, waker: Option<&Waker>) -> bool {
        let tickets = self.tickets.iter();
        // All tickets are visited, as each must get the waker.
        let left = tickets.filter(|(_, ticket)| !ticket.is_answered(waker));
        left.count() == 0
    }

    /// Returns the permits that the call has now. A rule without an answer decides without the
    /// store.
    pub(crate) fn settle(mut self, now: Tick) -> Result<HeldLeases, NoShare> {
        for (target, ticket) in std::mem::take(&mut self.tickets) {
            let answer = ticket.take(now);
            self.take_answer(&target, answer)?;
        }
        if self.held.is_borrowed() {
            // Permits of the present bucket can expire before the borrowed permits are valid. Such
            // permits are refunded, and taken anew later.
            self.held.keep_for(self.held.start());
        }
        Ok(self.held)
    }

    /// Applies the answer of one counter.
    fn take_answer(&mut self, target: &LeaseTarget, answer: Answer) -> Result<(), NoShare> {
        match answer {
            Answer::Granted(valid) => self.held.push(target, Some(valid)),
            Answer::Open => self.held.push(target, None),
            Answer::Refused(at) => return Err(target.exhausted(at)),
            Answer::Closed => return Err(NoShare::NoStore { rule: target.rule }),
        }
        Ok(())
    }
}
