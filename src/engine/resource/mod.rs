//! A resource: the rules that judge its calls, and the node that counts them.
//!
//! A [`Resource`] never changes, except for its counts: a reload creates a new one with the same
//! node. So every call is judged by the rules of one version, and its end is reported to the rules
//! that admitted it. The calls of single origins and contexts are counted on [scope
//! nodes](crate::engine::resource::scope).

mod admit;
#[cfg(feature = "shared")]
mod held_leases;
#[cfg(feature = "shared")]
mod in_hand;
mod key;
#[cfg_attr(not(feature = "shared"), path = "no_leases.rs")]
mod leases;
mod notify;
mod optional;
mod other_origins;
mod path;
pub(crate) mod scope;
mod seen_keys;

use std::sync::Arc as StdArc;
use std::time::Duration;

use crate::adaptive::Limiter;
use crate::base::sync::{AtomicU8, AtomicU64, Ordering, shared_size};
use crate::breaker::Breakers;
use crate::call::{Direction, Key};
use crate::clock::Tick;
use crate::clock::timekeeper::Glance;
use crate::engine::context::{EngineContext, NodeOf};
use crate::rule::{
    CompiledRules, ContextRules, CostRules, Guards, KeyedRules, OriginRules, ResourceRules,
    RuleSet, SlotLimit,
};
use crate::stat::{Node, Resident, TablePlace as ListPlace, Totals};

pub(crate) use admit::Place;
#[cfg(feature = "shared")]
pub(crate) use held_leases::HeldLeases;
#[cfg(feature = "shared")]
pub(crate) use in_hand::InHand;
pub(crate) use key::{NewResource, ResourceKey, ResourceQuery};
#[cfg(not(feature = "shared"))]
pub(crate) use leases::HeldLeases;
pub(crate) use leases::Leases;
#[cfg(feature = "shared")]
pub(crate) use leases::{Asking, LeaseTargets, Taking};
pub(crate) use optional::OptionalChecks;
use optional::{RelatedRules, ResourceInputs};
use other_origins::OtherOrigins;
pub(crate) use path::PathKind;

/// The precision with which a node notes its last use.
const SECOND: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Resource {
    key: ResourceKey,
    text: StdArc<str>,
    /// The number that identifies the resource in the keys of its scope nodes.
    id: u64,
    node: Node,
    /// The flow rules, as quotas on rings and as queues.
    compiled: CompiledRules,
    /// The fixed limit on concurrent calls, if a rule sets one.
    slots: Option<SlotLimit>,
    /// The checks that most resources do not have.
    extras: Option<Box<OptionalChecks>>,
    /// The set of rules by which the resource was made; a bare set if no rule applies to the
    /// resource.
    rules: StdArc<RuleSet>,
    shared: StdArc<EngineContext>,
    /// The version of the rules with which the resource agrees.
    version: AtomicU64,
    place: ListPlace,
    /// Whether the resource is never evicted, because a rule names it, or it is the overflow
    /// resource.
    is_pinned: bool,
    /// Whether callers cannot invent the name: a rule names it or has named it, or a router had
    /// matched it at the first call.
    has_safe_name: bool,
    path_kind: PathKind,
    /// Whether a rule limits the concurrent calls of single origins, or depends on the concurrent
    /// calls of a related resource.
    has_narrow_slots: bool,
    /// Whether requests pass several layers that judge this resource, which is detected by marking
    /// requests: [`UNTRIED`], [`SINGLE`] or [`NESTED`].
    layers: AtomicU8,
}

/// The value of `layers` while no request to the resource was marked.
const UNTRIED: u8 = 0;
/// The value of `layers` after requests were marked, and none of them has reached a second layer
/// for this resource.
const SINGLE: u8 = 1;
/// The value of `layers` after a marked request has reached a second layer for this resource.
const NESTED: u8 = 2;

/// One call in this many is marked, in addition to the first call. The first call can end between
/// two layers, for example without a login, so later calls are marked too.
const MARKED_IN: u64 = 1_024;
/// A call is marked if its start in ns, modulo [`MARKED_IN`], equals this number. The number is
/// odd, so a start in whole microseconds never matches: with a manual clock, no call is marked by
/// chance.
const MARKED_AT: u64 = 777;

// === impl Resource ===

impl Resource {
    /// Creates the resource of `new` under `rules`. If there is an `old` resource, reuses its node
    /// and id.
    pub(crate) fn new(
        new: &NewResource<'_>,
        rules: &StdArc<RuleSet>,
        shared: StdArc<EngineContext>,
        old: Option<&Self>,
        now: Tick,
    ) -> Self {
        let NewResource {
            query,
            id,
            has_matched,
        } = *new;
        let (key, text) = match old {
            Some(old) => (old.key.clone(), old.text.clone()),
            None => query.keep(),
        };
        let own = rules.of(&text);
        let anyone = own.map_or(&[][..], |own| &own.anyone);
        let longest_wait = own.map_or(Duration::ZERO, |own| own.longest_wait);
        let before = old.map(|old| old.compiled.on(&old.node));
        let flows = rules.flows(&text, anyone);
        let is_pinned = rules.names(&text) || *query.name == Key::OVERFLOW;
        let of = NodeOf::Resource {
            is_known: is_pinned || has_matched,
        };
        let (node, compiled) = shared.node(flows, before, longest_wait, of, now);
        let old_extras = old.and_then(|old| old.extras.as_deref());
        let kept_breakers = match old {
            Some(_) => None,
            None => shared.kept_breakers.take(|| query.name_hash(&shared)),
        };
        let old_breakers = old.and_then(Self::breakers).or(kept_breakers.as_ref());
        let extras = own.and_then(|own| {
            let made_of = ResourceInputs {
                text: &text,
                direction: key.direction,
                rules,
                shared: &shared,
                now,
            };
            OptionalChecks::new(&made_of, own, old_extras, old_breakers)
        });
        if let Some(old) = old_breakers {
            let new = extras.as_deref().and_then(|new| new.breakers.as_ref());
            old.retire(new.map(|new| &new.breakers));
        }
        let new = Self {
            path_kind: PathKind::new(key.direction, &compiled, extras.as_deref(), rules, &shared),
            has_narrow_slots: own.is_some_and(ResourceRules::have_narrow_slots),
            id: old.map_or(id, |old| old.id),
            slots: own.and_then(|own| own.slots),
            extras,
            is_pinned,
            has_safe_name: is_pinned || has_matched || old.is_some_and(|old| old.has_safe_name),
            version: AtomicU64::new(rules.version()),
            place: ListPlace::default(),
            // A resource without rules would otherwise keep the whole set in memory, through all
            // reloads.
            rules: if own.is_some() {
                rules.clone()
            } else {
                rules.bare().clone()
            },
            key,
            text,
            node,
            compiled,
            shared,
            layers: AtomicU8::new(UNTRIED),
        };
        new.begin_slots(old);
        new
    }

    /// Returns whether the resource was made by the current rules, or agrees with them.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.version.load(Ordering::Relaxed) == self.shared.version.load(Ordering::Acquire)
    }

    /// Returns the version of the rules with which the resource agrees.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Adopts the version of `rules` if neither they nor the old rules name the resource, and its
    /// calls take the same path. Returns whether it did. Even without rules, the path can differ,
    /// because inbound calls may now count on a common node.
    pub(crate) fn take_over(&self, rules: &RuleSet) -> bool {
        let agrees = self.rules.is_bare_set()
            && rules.of(&self.text).is_none()
            && rules.has_equal_bare_set(&self.rules)
            && self.path_kind == self.path_by(rules);
        if agrees {
            self.version.store(rules.version(), Ordering::Relaxed);
        }
        agrees
    }

    /// Returns whether a layer must mark the request of a call that starts at `at`, so that an
    /// inner layer does not judge it again.
    #[inline(always)]
    pub(crate) fn wants_mark(&self, at: Tick) -> bool {
        self.layers.load(Ordering::Relaxed) != SINGLE || at.as_nanos() % MARKED_IN == MARKED_AT
    }

    /// Notes that a request was marked.
    pub(crate) fn note_mark(&self) {
        let (first, order) = (UNTRIED, Ordering::Relaxed);
        let _ = self.layers.compare_exchange(first, SINGLE, order, order);
    }

    /// Notes that a marked request has reached a second layer. All requests are marked from now on.
    pub(crate) fn note_nested_layers(&self) {
        self.layers.store(NESTED, Ordering::Relaxed);
    }

    /// Returns the path that calls would take under `rules`.
    fn path_by(&self, rules: &RuleSet) -> PathKind {
        let extras = self.extras.as_deref();
        PathKind::new(
            self.direction(),
            &self.compiled,
            extras,
            rules,
            &self.shared,
        )
    }

    pub(crate) const fn direction(&self) -> Direction {
        self.key.direction
    }

    /// Returns whether calls to the resource also count on the node of all inbound calls.
    #[inline]
    pub(crate) fn is_counted_inbound(&self) -> bool {
        self.shared.counts_together(self.direction())
    }

    pub(crate) const fn text(&self) -> &StdArc<str> {
        &self.text
    }

    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether callers cannot invent the name. This includes a name that only a shadow rule
    /// among the `present` rules contains.
    pub(crate) fn has_safe_name(&self, present: &RuleSet) -> bool {
        self.has_safe_name || present.has_shadow_for(&self.text)
    }

    pub(crate) const fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) const fn compiled(&self) -> &CompiledRules {
        &self.compiled
    }

    /// Returns the current time, checked against the latest time that this resource has seen.
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        self.check_time(self.shared.time.read())
    }

    /// Returns the checked time of a reading. Fast for a time in the newest step that the node has
    /// seen.
    #[inline]
    pub(crate) fn check_time(&self, reading: Glance) -> Tick {
        let now = reading.undoubted();
        if self.node.is_in_step(now) {
            now
        } else {
            self.check_time_beyond_step(reading)
        }
    }

    /// Returns the time of `reading`, if it is in the newest step that the node has seen.
    #[inline]
    pub(crate) fn time_in_step(&self, reading: Glance) -> Option<Tick> {
        let now = reading.undoubted();
        self.node.is_in_step(now).then_some(now)
    }

    /// Returns the checked time of a reading outside of the newest step.
    #[cold]
    fn check_time_beyond_step(&self, reading: Glance) -> Tick {
        self.shared.time.check(reading, self.node.seen())
    }

    /// Returns the time from `now` to `at`; see
    /// [`Timekeeper::until`](crate::clock::timekeeper::Timekeeper::until).
    pub(crate) fn time_until(&self, at: Tick, now: Tick) -> Duration {
        self.shared.time.until(at, now)
    }

    /// Returns the circuit breakers, if there are any.
    #[inline]
    pub(crate) fn breakers(&self) -> Option<&Breakers> {
        Some(&self.extras.as_ref()?.breakers.as_ref()?.breakers)
    }

    /// Returns the rules of the circuit breakers, in the order of the breakers.
    pub(crate) fn breaker_rules(&self) -> &[u32] {
        let ruled = self.extras.as_ref().and_then(|it| it.breakers.as_ref());
        ruled.map_or(&[], |ruled| &ruled.rules)
    }

    /// Returns the adaptive limit and its rule, if there is one.
    #[inline]
    pub(crate) fn limiter(&self) -> Option<(u32, &Limiter)> {
        let (rule, limiter) = self.extras.as_ref()?.adaptive.as_ref()?;
        Some((*rule, limiter))
    }

    /// Returns the current estimate of the adaptive limit, in whole calls. A probe does not change
    /// it.
    pub(crate) fn adaptive_limit(&self) -> Option<u32> {
        let (_, limiter) = self.limiter()?;
        Some(limiter.estimate() as u32)
    }

    pub(crate) fn origins(&self) -> Option<&StdArc<OriginRules>> {
        self.extras.as_ref()?.origins.as_ref()
    }

    /// Returns the state shared by all origins that no rule names.
    pub(crate) fn others(&self) -> Option<&OtherOrigins> {
        self.extras.as_ref()?.others.as_ref()
    }

    pub(crate) fn contexts(&self) -> Option<&StdArc<ContextRules>> {
        self.extras.as_ref()?.contexts.as_ref()
    }

    /// Returns the flow rules on related resources.
    pub(crate) fn related(&self) -> &[u32] {
        self.related_rules().map_or(&[], |rules| &rules.flow)
    }

    /// Returns whether a rule limits the concurrent calls of single origins, or depends on the
    /// concurrent calls of a related resource.
    #[inline]
    pub(crate) const fn has_narrow_slots(&self) -> bool {
        self.has_narrow_slots
    }

    /// Returns the limits on concurrent calls of related resources.
    pub(crate) fn related_slots(&self) -> &[SlotLimit] {
        self.related_rules().map_or(&[], |rules| &rules.slots)
    }

    #[inline]
    fn related_rules(&self) -> Option<&RelatedRules> {
        self.extras.as_ref()?.related.as_deref()
    }

    /// Returns the keyed rules on calls.
    #[inline]
    pub(crate) fn params(&self) -> Option<&KeyedRules> {
        self.extras.as_ref()?.params.as_ref()
    }

    /// Returns the rules on costs.
    #[inline]
    pub(crate) fn costs(&self) -> Option<&CostRules> {
        self.extras.as_ref()?.costs.as_deref()
    }

    /// Calls `f` with each keyed rule, on calls or on costs, in the order of the rules. The
    /// arguments are the group of keyed rules, the rule's position in the group, and its index.
    pub(crate) fn each_keyed_rule<'r>(&'r self, f: &mut dyn FnMut(&'r KeyedRules, usize, u32)) {
        let of_costs = self.costs().and_then(CostRules::by_key);
        let mut all = Vec::new();
        for rules in [self.params(), of_costs].into_iter().flatten() {
            for (place, rule) in rules.rules().enumerate() {
                all.push((rules, place, rule));
            }
        }
        all.sort_by_key(|&(_, _, rule)| rule);
        for (rules, place, rule) in all {
            f(rules, place, rule);
        }
    }

    /// Returns the shared rules, which count over all processes of a store.
    #[inline]
    pub(crate) fn leases(&self) -> Option<&Leases> {
        self.extras.as_ref()?.leases.as_ref()
    }

    fn seen_keys(&self) -> Option<&seen_keys::SeenKeys> {
        self.extras.as_ref()?.seen_keys.as_ref()
    }

    /// Returns the guards, if there are any.
    pub(crate) fn guards(&self) -> Option<&Guards> {
        self.extras.as_ref()?.guards.as_deref()
    }

    /// Returns the path that calls take through the pipeline.
    #[inline]
    pub(crate) const fn path_kind(&self) -> PathKind {
        self.path_kind
    }

    pub(crate) const fn rules(&self) -> &StdArc<RuleSet> {
        &self.rules
    }

    pub(crate) const fn shared(&self) -> &StdArc<EngineContext> {
        &self.shared
    }

    /// Returns the number of bytes that the resource occupies, including the heap, without the text
    /// of its name.
    pub(crate) fn footprint(&self) -> usize {
        let extras = self.extras.as_deref().map_or(0, size_of_val);
        let limiter = self.limiter().map_or(0, |_| shared_size::<Limiter>());
        let related = self.related_rules().map_or(0, |rules| {
            size_of_val(rules) + size_of_val(self.related()) + size_of_val(self.related_slots())
        });
        let params = self.params().map_or(0, KeyedRules::footprint);
        let breakers =
            self.breakers().map_or(0, Breakers::footprint) + size_of_val(self.breaker_rules());
        let others = self.others().map_or(0, OtherOrigins::footprint);
        let costs = self
            .costs()
            .map_or(0, |costs| size_of_val(costs) + costs.footprint());
        let extras = extras + limiter + related + params + costs + breakers + others;
        let heap = extras + self.node.footprint() + self.compiled.footprint();
        shared_size::<Self>() + heap
    }
}

impl Resident for Resource {
    type Key = ResourceKey;
    type Sum = [Totals; 2];

    fn key(&self) -> &ResourceKey {
        &self.key
    }

    fn place(&self) -> &ListPlace {
        &self.place
    }

    fn is_idle(&self, now: Tick) -> bool {
        // Running calls that older rules admitted hold an older resource, which shares this node.
        if self.is_pinned || self.node.is_shared() {
            return false;
        }
        // The resource must not be evicted before its state has expired: a breaker would close, or
        // a window would start with a fresh quota.
        if self
            .costs()
            .is_some_and(|costs| costs.has_provider_left(now))
        {
            return false;
        }
        let breakers = self.breakers();
        let Some(breakers) = breakers.map_or(Some(Duration::ZERO), Breakers::memory) else {
            return false;
        };
        let leases = self.leases().map_or(Duration::ZERO, Leases::memory);
        let memory = self.compiled.memory(self.node.ring());
        let others = self.others().map_or(Duration::ZERO, OtherOrigins::memory);
        let costs = self.costs().map_or(Duration::ZERO, CostRules::memory);
        let memory = memory.max(breakers).max(leases).max(others).max(costs);
        // `last_used` can be up to one step, a second, earlier than the last use.
        let step = if memory.is_zero() {
            Duration::ZERO
        } else {
            SECOND
        };
        now - self.node.last_used() >= self.shared.config.idle.max(memory + step)
    }

    fn retire(&self, sum: &mut Self::Sum) {
        let totals = self.node.totals(self.node.last_used());
        sum[self.key.direction as usize].add(&totals);
        if let Some(breakers) = self.breakers() {
            let name = self.key.with_query(|query| query.name_hash(&self.shared));
            self.shared.kept_breakers.keep(name, breakers);
        }
    }
}
