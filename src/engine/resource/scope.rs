//! Scope nodes of a resource, which count its calls of one origin, or through one context.
//!
//! Like a resource, a scope node is immutable except for its counts. After a reload, a new scope
//! node with the new rules takes over its [`Node`], and with it the counts.

use std::hash::{Hash, Hasher};
use std::sync::Arc as StdArc;
use std::time::Duration;

use papaya::Equivalent;

use crate::base::sync::shared_size;
use crate::call::{Direction, Key, OwnedKey};
use crate::clock::Tick;
use crate::engine::context::NodeOf;
use crate::engine::resource::Resource;
use crate::rule::{CompiledRules, SlotLimit};
use crate::stat::{Node, Resident, TablePlace};

/// The calls that a scope node counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ScopeKind {
    /// One origin.
    Origin,
    /// All origins for which the table had no place.
    Overflow,
    /// One context.
    Context,
}

/// The key of a scope node in the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScopeKey {
    /// The id of the resource.
    resource: u64,
    kind: ScopeKind,
    name: OwnedKey,
}

/// A borrowed [`ScopeKey`], with which a call looks up its scope node without an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScopeQuery<'a> {
    pub(crate) resource: u64,
    pub(crate) kind: ScopeKind,
    /// The name, already [shortened](Key::shortened): a name that is too long for the table is
    /// replaced by its digest.
    pub(crate) name: &'a Key<'a>,
}

/// One origin or context of one resource.
#[derive(Debug)]
pub(crate) struct ScopeNode {
    key: ScopeKey,
    /// The name of the resource.
    resource: StdArc<str>,
    direction: Direction,
    node: Node,
    compiled: CompiledRules,
    /// The limit on concurrent calls of the origin, if a rule sets one.
    slots: Option<SlotLimit>,
    /// The version of the rules by which the scope node was made.
    version: u64,
    place: TablePlace,
    /// The minimum time for which the scope node is kept after its last use.
    idle: Duration,
    /// Whether the scope node is for an origin that no rule names, or is the overflow node.
    is_of_others: bool,
}

// === impl ScopeNode ===

impl ScopeNode {
    /// Creates the scope node of `resource` for `query`. It takes over the node of `old`, if there
    /// is one.
    pub(crate) fn new(
        resource: &Resource,
        query: &ScopeQuery<'_>,
        old: Option<&Self>,
        now: Tick,
    ) -> Self {
        let (rules, shared) = (resource.rules(), resource.shared());
        let origins = resource.origins();
        let of_origin = match query.kind {
            ScopeKind::Origin => origins.map(|origins| origins.of(query.name)),
            ScopeKind::Overflow => origins.map(|origins| origins.of_unnamed()),
            ScopeKind::Context => None,
        };
        let slots = of_origin.and_then(|rules| rules.slots);
        let contexts = resource
            .contexts()
            .filter(|_| query.kind == ScopeKind::Context);
        let indices = match of_origin {
            Some(rules) => &rules.flows,
            None => contexts.map_or(&[][..], |rules| rules.of(query.name)),
        };
        let longest_wait = rules.of(resource.text()).map(|own| own.longest_wait);
        let longest_wait = longest_wait.unwrap_or_default();
        let flows = rules.flows(resource.text(), indices);
        let before = old.map(|old| old.compiled.on(&old.node));
        let (node, compiled) = shared.node(flows, before, longest_wait, NodeOf::ScopeNode, now);
        if slots.is_some() && old.is_some_and(|old| old.slots.is_none()) {
            // The calls in flight were admitted without a limit on slots, and hold no slots.
            node.mark_older();
        }
        Self {
            key: ScopeKey {
                resource: query.resource,
                kind: query.kind,
                name: (*query.name).into(),
            },
            resource: resource.text().clone(),
            direction: resource.direction(),
            version: resource.version(),
            place: TablePlace::default(),
            node,
            compiled,
            slots,
            idle: shared.config.idle,
            is_of_others: match query.kind {
                ScopeKind::Origin => !origins.is_some_and(|origins| origins.names(query.name)),
                ScopeKind::Overflow => true,
                ScopeKind::Context => false,
            },
        }
    }

    /// Returns whether the scope node was made by the rules of `resource`.
    #[inline]
    pub(crate) fn agrees_with(&self, resource: &Resource) -> bool {
        self.version == resource.version()
    }

    pub(crate) const fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) const fn compiled(&self) -> &CompiledRules {
        &self.compiled
    }

    /// Returns the limit on concurrent calls of the origin, if a rule sets one.
    #[inline]
    pub(crate) const fn slots(&self) -> Option<SlotLimit> {
        self.slots
    }

    pub(crate) const fn kind(&self) -> ScopeKind {
        self.key.kind
    }

    /// Returns whether the scope node is for an origin that no rule names, or is the overflow node.
    pub(crate) const fn is_of_others(&self) -> bool {
        self.is_of_others
    }

    pub(crate) fn name(&self) -> Key<'_> {
        self.key.name.as_key()
    }

    pub(crate) const fn resource(&self) -> &StdArc<str> {
        &self.resource
    }

    /// Returns the id of the resource.
    pub(crate) const fn resource_id(&self) -> u64 {
        self.key.resource
    }

    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }

    pub(crate) fn footprint(&self) -> usize {
        shared_size::<Self>() + self.node.footprint() + self.compiled.footprint()
    }
}

impl Resident for ScopeNode {
    type Key = ScopeKey;
    /// The totals of a dropped scope node are not kept, as the resource has counted its calls as
    /// well.
    type Sum = ();

    fn key(&self) -> &ScopeKey {
        &self.key
    }

    fn place(&self) -> &TablePlace {
        &self.place
    }

    fn is_idle(&self, now: Tick) -> bool {
        // An exhausted origin must not return with a fresh quota, so its node stays until its
        // windows have passed. The overflow node may be dropped as well: it gets a place even in a
        // full table when it is needed again, and would otherwise outlive its resource. One second
        // is added because `last_used` can be one step, a second, earlier than the last use.
        let memory = self.compiled.memory(self.node.ring()) + Duration::from_secs(1);
        now - self.node.last_used() > memory.max(self.idle) && !self.node.is_shared()
    }

    fn retire(&self, (): &mut ()) {}
}

impl Equivalent<ScopeKey> for ScopeQuery<'_> {
    fn equivalent(&self, key: &ScopeKey) -> bool {
        self.resource == key.resource && self.kind == key.kind && self.name.is_kept_as(&key.name)
    }
}

impl Hash for ScopeQuery<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.resource.hash(state);
        self.kind.hash(state);
        self.name.hash(state);
    }
}
