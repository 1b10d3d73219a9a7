//! The checks that most resources do not have: all except a ring and slots.

use std::sync::Arc as StdArc;
use std::time::Duration;

use super::leases::Leases;
use super::notify;
use super::other_origins::OtherOrigins;
use super::seen_keys::SeenKeys;
use crate::adaptive::Limiter;
use crate::base::sync::Arc;
use crate::breaker::Breakers;
use crate::call::Direction;
use crate::clock::Tick;
use crate::engine::context::EngineContext;
use crate::rule::{
    ContextRules, CostRules, Guards, KeyedRules, OriginRules, ResourceRules, RuleSet, SlotLimit,
    most_keys,
};

/// The inputs from which the checks of a resource are created.
pub(super) struct ResourceInputs<'a> {
    pub(super) text: &'a StdArc<str>,
    pub(super) direction: Direction,
    pub(super) rules: &'a StdArc<RuleSet>,
    pub(super) shared: &'a StdArc<EngineContext>,
    pub(super) now: Tick,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct OptionalChecks {
    pub(super) origins: Option<StdArc<OriginRules>>,
    /// The state shared by all origins that no rule names.
    pub(super) others: Option<OtherOrigins>,
    pub(super) contexts: Option<StdArc<ContextRules>>,
    /// Boxed to keep this struct small, as few resources have related rules.
    pub(super) related: Option<Box<RelatedRules>>,
    pub(super) guards: Option<StdArc<Guards>>,
    /// The adaptive limit and its rule. The limiter is shared with an equal rule of an older set,
    /// so running calls report their ends to it.
    pub(super) adaptive: Option<(u32, Arc<Limiter>)>,
    pub(super) params: Option<KeyedRules>,
    /// Boxed for the same reason as `related`.
    pub(super) costs: Option<Box<CostRules>>,
    pub(super) breakers: Option<RuledBreakers>,
    pub(super) leases: Option<Leases>,
    /// Not a check: notes whether calls have origins and contexts, if a rule needs them.
    pub(super) seen_keys: Option<SeenKeys>,
}

/// The rules on related resources.
#[derive(Debug)]
pub(super) struct RelatedRules {
    /// The flow rules.
    pub(super) flow: Box<[u32]>,
    /// The isolation rules, with their limits.
    pub(super) slots: Box<[SlotLimit]>,
}

/// Circuit breakers and their rules, in the same order.
#[derive(Debug)]
pub(super) struct RuledBreakers {
    pub(super) breakers: Breakers,
    pub(super) rules: Box<[u32]>,
}

impl RelatedRules {
    fn of(own: &ResourceRules) -> Option<Self> {
        let rules = Self {
            flow: own.related.as_slice().into(),
            slots: own.related_slots.as_slice().into(),
        };
        let are_none = rules.flow.is_empty() && rules.slots.is_empty();
        (!are_none).then_some(rules)
    }
}

impl OptionalChecks {
    pub(super) fn new(
        made_of: &ResourceInputs<'_>,
        own: &ResourceRules,
        old: Option<&Self>,
        old_breakers: Option<&Breakers>,
    ) -> Option<Box<Self>> {
        let &ResourceInputs {
            rules, shared, now, ..
        } = made_of;
        let name = (made_of.text, made_of.direction);
        let old_params = old.and_then(|old| old.params.as_ref());
        let max_origins = most_keys(shared.config.max_origins);
        let guards = own.guards.as_ref();
        let needs_origin = own.origins.is_some() || guards.is_some_and(|it| it.need_origin);
        let needs_context = own.contexts.is_some();
        let leases = Leases::new(made_of, &own.shared, old);
        let by_key = |indices: &[u32], old: Option<&KeyedRules>| {
            let on_suspicion = |rule| notify::on_suspicion(rules, rule, name, shared);
            let epoch: &dyn Fn() -> Duration = &|| shared.time.epoch();
            let mut of_keys = Vec::with_capacity(indices.len());
            for &index in indices {
                if let Some(rule) = rules.keyed_rule(index, max_origins) {
                    of_keys.push((index, rule));
                }
            }
            KeyedRules::new(of_keys, old, now, (on_suspicion, epoch))
        };
        let extras = Self {
            seen_keys: (needs_origin || needs_context)
                .then(|| SeenKeys::new(needs_origin, needs_context)),
            origins: own.origins.clone(),
            others: OtherOrigins::new(made_of, own, old.and_then(|old| old.others.as_ref())),
            contexts: own.contexts.clone(),
            related: RelatedRules::of(own).map(Box::new),
            guards: own.guards.clone(),
            adaptive: own.adaptive.map(|(rule, settings)| {
                let limiter = Limiter::new(settings, now);
                let limiter = match old.and_then(|old| old.adaptive.as_ref()) {
                    Some((_, old)) => limiter.inheriting(old, now),
                    None => Arc::new(limiter),
                };
                (rule, limiter)
            }),
            params: by_key(&own.params, old_params),
            costs: {
                let old = old.and_then(|old| old.costs.as_deref());
                let leased = leases.as_ref().map(Leases::costs).unwrap_or_default();
                let by_key = by_key(&own.costs, old.and_then(CostRules::by_key));
                CostRules::new(rules, &own.costs, old, now, by_key, leased).map(Box::new)
            },
            breakers: RuledBreakers::new(rules, own, old_breakers, now),
            leases,
        };
        extras.has_any().then(|| Box::new(extras))
    }

    fn has_any(&self) -> bool {
        // All fields are named, so that a new field is not forgotten here.
        let Self {
            origins,
            others: _,
            contexts,
            related,
            guards,
            adaptive,
            params,
            costs,
            breakers,
            leases,
            seen_keys: _,
        } = self;
        origins.is_some()
            || contexts.is_some()
            || related.is_some()
            || guards.is_some()
            || adaptive.is_some()
            || params.is_some()
            || costs.is_some()
            || breakers.is_some()
            || leases.is_some()
    }
}

impl RuledBreakers {
    fn new(
        rules: &RuleSet,
        own: &ResourceRules,
        old: Option<&Breakers>,
        now: Tick,
    ) -> Option<Self> {
        let (indices, specs): (Vec<_>, Vec<_>) = rules
            .breakers(&own.breakers)
            .map(|(index, rule)| (index, rule.spec()))
            .unzip();
        (!specs.is_empty()).then(|| {
            let breakers = Breakers::new(specs, now, old);
            breakers.rename(indices.iter().map(|&index| rules.id(index)));
            Self {
                breakers,
                rules: indices.into(),
            }
        })
    }
}
