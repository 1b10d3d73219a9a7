//! Snapshots: copies of all statistics of an engine.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::breaker::BreakerView;
use super::budget::BudgetSnapshot;
use super::known::{KeyedSnapshot, would_block};
use super::reading::{ResourceReading, read_resources, read_scopes};
use super::rules::{RuleSnapshot, RuleSnapshots};
use super::shared::SharedSnapshot;
use super::shedding::Shedding;
use crate::base::order::sorted_places;
use crate::base::pace::{StepPace, at_once};
use crate::call::Direction;
use crate::clock::Tick;
use crate::engine::Core;
use crate::engine::registry::Registry;
use crate::engine::resource::scope::{ScopeKind, ScopeNode};
use crate::engine::shadow::Shadow;
use crate::hook::finding::Finding;
use crate::stat::{Event, Node, NodeBucket, Totals};
use crate::store::StoreStatus;

/// The calls that a node of a [`Snapshot`] counts.
///
/// Origins and contexts have nodes if the engine was built
/// [with them](crate::Builder::origins), or if a rule needs them. A scope is displayed as the word
/// that [`Snapshot::to_json`] uses for it, followed by the name in quotes.
///
/// # Examples
///
/// ```
/// use tower_sentinel::read::Scope;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("orders", 2))
///     .clock(ManualClock::new())
///     .origins(true)
///     .max_origins(1)
///     .build();
/// for origin in ["shop", "shop", "shop", "office"] {
///     drop(sentinel.try_enter(Call::new("orders").origin(origin)));
/// }
/// let snapshot = sentinel.snapshot();
/// let counts = |scope| {
///     let node = snapshot.nodes().iter().find(|node| *node.scope() == scope);
///     node.map(|node| (node.totals().pass(), node.totals().block()))
/// };
/// assert_eq!(counts(Scope::Resource), Some((2, 2)));
/// assert_eq!(counts(Scope::Origin("shop".to_owned())), Some((2, 1)));
/// // The table has no place for a second origin.
/// assert_eq!(counts(Scope::Origin("office".to_owned())), None);
/// assert_eq!(counts(Scope::OverflowOrigins), Some((0, 1)));
///
/// assert_eq!(Scope::OverflowOrigins.to_string(), "overflow-origins");
/// assert_eq!(Scope::Origin("shop".to_owned()).to_string(), "origin \"shop\"");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// All calls to the resource.
    Resource,
    /// Calls of one origin.
    Origin(String),
    /// Calls of all origins that found no place in the table.
    OverflowOrigins,
    /// Calls in one context.
    Context(String),
}

impl Scope {
    /// Returns its kind, without the name of the origin or context: `resource`, `origin`,
    /// `overflow-origins` or `context`, as in JSON.
    ///
    /// ```
    /// use tower_sentinel::read::Scope;
    ///
    /// assert_eq!(Scope::Origin("shop".to_owned()).as_str(), "origin");
    /// assert_eq!(Scope::OverflowOrigins.as_str(), "overflow-origins");
    /// ```
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Scope::Resource => "resource",
            Scope::Origin(_) => "origin",
            Scope::OverflowOrigins => "overflow-origins",
            Scope::Context(_) => "context",
        }
    }

    /// Returns the name of the origin or the context.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Scope::Origin(name) | Scope::Context(name) => Some(name),
            Scope::Resource | Scope::OverflowOrigins => None,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self.name() {
            Some(name) => write!(f, " {name:?}"),
            None => Ok(()),
        }
    }
}

/// A copy of the statistics of one node. Its window is that of
/// [`Builder::window`](crate::Builder::window). The state of single rules is in the nodes of
/// resources. Nodes of origins and contexts have no breakers, budgets or keyed rules and no
/// adaptive limit. Of these nodes, only the node of an origin with an isolation rule of its own has
/// slots.
///
/// # Examples
///
/// ```
/// use tower_sentinel::stat::Event;
/// use tower_sentinel::call::Direction;
/// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_second("job", 2))
///     .clock(ManualClock::new())
///     .build();
/// let _running: Vec<_> = (0..3).map(|_| sentinel.try_enter(Call::new("job"))).collect();
/// let snapshot = sentinel.snapshot();
/// // It is a copy, which no longer changes.
/// drop(sentinel.try_enter(Call::new("job")));
///
/// let node = &snapshot.nodes()[0];
/// assert_eq!((node.resource(), node.direction()), ("job", Direction::Inbound));
/// assert_eq!((node.qps(Event::Pass), node.qps(Event::Block)), (2.0, 1.0));
/// assert_eq!((node.concurrency(), node.average_rt()), (2, None));
/// ```
#[derive(Clone, Debug)]
pub struct NodeSnapshot {
    resource: String,
    direction: Direction,
    scope: Scope,
    is_listed: bool,
    interval: Duration,
    buckets: Vec<NodeBucket>,
    window: NodeBucket,
    /// The weight of the calls in the present second that have borrowed from a later window.
    occupied: u64,
    concurrency: u32,
    waiting: u32,
    held: u32,
    slots_in_use: u32,
    adaptive_limit: Option<u32>,
    shedding: Option<Shedding>,
    breakers: Vec<BreakerView>,
    budgets: Vec<BudgetSnapshot>,
    keyed_rules: Vec<KeyedSnapshot>,
    totals: Totals,
    minute: Option<NodeBucket>,
    previous_second: Option<NodeBucket>,
    footprint: usize,
}

impl NodeSnapshot {
    /// Copies the node of a resource, with the state of its rules.
    fn of_resource(row: &ResourceReading<'_>) -> Self {
        let present = row.present();
        let node = present.node();
        Self {
            is_listed: row.can_list(&present),
            adaptive_limit: present.adaptive_limit(),
            shedding: present.shedding(),
            breakers: present.breakers(),
            budgets: present.budgets(),
            keyed_rules: present.keyed_rules(),
            footprint: present.footprint(),
            ..Self::new(
                row.name(),
                row.direction(),
                Scope::Resource,
                &node,
                present.now,
            )
        }
    }

    /// Copies the node of an origin or a context.
    fn of_scope(scope: &ScopeNode, now: Tick) -> Self {
        let name = || scope.name().to_string();
        let kind = match scope.kind() {
            ScopeKind::Origin => Scope::Origin(name()),
            ScopeKind::Overflow => Scope::OverflowOrigins,
            ScopeKind::Context => Scope::Context(name()),
        };
        Self {
            footprint: scope.footprint(),
            ..Self::new(
                scope.resource(),
                scope.direction(),
                kind,
                &scope.node().latest(),
                now,
            )
        }
    }

    /// Copies the counts of `node`. The state of rules is left empty.
    fn new(resource: &str, direction: Direction, scope: Scope, node: &Node, now: Tick) -> Self {
        let sum = |buckets: &[NodeBucket]| {
            let (first, rest) = buckets.split_first()?;
            let mut sum = *first;
            rest.iter().for_each(|bucket| sum.merge(bucket));
            Some(sum)
        };
        let buckets = node.buckets(now);
        Self {
            resource: resource.to_owned(),
            direction,
            scope,
            is_listed: false,
            interval: node.interval(),
            window: sum(&buckets).unwrap_or_default(),
            buckets,
            occupied: node.sum(now, Event::Occupied),
            concurrency: node.concurrency(now),
            waiting: node.waiting(),
            held: node.held(now),
            slots_in_use: node.slots_in_use(),
            adaptive_limit: None,
            shedding: None,
            breakers: Vec::new(),
            budgets: Vec::new(),
            keyed_rules: Vec::new(),
            totals: node.totals(now),
            minute: node
                .seconds(now)
                .map(|seconds| sum(&seconds).unwrap_or_default()),
            previous_second: node.previous_second(now),
            footprint: 0,
        }
    }

    /// Returns the name of the resource. A number or an address and the text that is written
    /// like it are different [keys](crate::Key), so two resources can have the same name if
    /// a program uses both.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// Returns the direction of the calls.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns whether this is the node of a resource whose name callers cannot make up. This is
    /// true if a rule names it, in shadow mode or not; if a rule that is not in shadow mode has
    /// named it since its first call; if a router or the name of a layer named it at its first
    /// call; or if it is `__overflow__`. The number of nodes for which it is true is bounded by the
    /// names in the program and its rules, so each can have a separate line in a table or an
    /// export. Always false for origins and contexts.
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, Sentinel};
    ///
    /// let sentinel = Sentinel::new(FlowRule::per_second("/search", 5));
    /// drop(sentinel.try_enter(Call::new("/search")));
    /// drop(sentinel.try_enter(Call::new("/made-up-by-a-scanner")));
    /// let snapshot = sentinel.snapshot();
    /// let listed: Vec<_> = snapshot.nodes().iter().filter(|node| node.is_listed()).collect();
    /// assert_eq!((listed.len(), listed[0].resource()), (1, "/search"));
    /// ```
    #[must_use]
    pub const fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Returns which calls to the resource the node counts.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the rate of `event` per second, by weight, over the window;
    /// [`Event::Occupied`] in the current second.
    #[must_use]
    pub fn qps(&self, event: Event) -> f64 {
        let sum = match event {
            Event::Pass => self.window.pass(),
            Event::Block => self.window.block(),
            Event::Complete => self.window.complete(),
            Event::Error => self.window.error(),
            Event::Cancelled => self.window.cancelled(),
            Event::Occupied => self.occupied,
        };
        event.per_second(sum, self.interval)
    }

    /// Returns the counts of the whole window, added up.
    #[must_use]
    pub const fn window(&self) -> &NodeBucket {
        &self.window
    }

    /// Returns the buckets of the window, oldest first.
    #[must_use]
    pub fn buckets(&self) -> &[NodeBucket] {
        &self.buckets
    }

    /// Returns the average response time of the calls that ended in the window; times above
    /// a minute count as a minute.
    #[must_use]
    pub fn average_rt(&self) -> Option<Duration> {
        self.window.average_rt()
    }

    /// Returns the smallest response time in the window.
    #[must_use]
    pub fn min_rt(&self) -> Option<Duration> {
        self.window.min_rt()
    }

    /// Returns the number of calls in flight.
    #[doc(alias("in_flight"))]
    #[must_use]
    pub const fn concurrency(&self) -> u32 {
        self.concurrency
    }

    /// Returns the number of calls that wait: for a borrowed place, for their turn in a queue, for
    /// a slot, or for a place of their value.
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Returns the tokens that waiting calls hold in future buckets.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// Returns the number of concurrency slots in use, if there is an isolation or adaptive
    /// rule.
    #[must_use]
    pub const fn slots_in_use(&self) -> u32 {
        self.slots_in_use
    }

    /// Returns the concurrency limit that an [adaptive rule](crate::AdaptiveRule) has found, in
    /// whole calls. While a probe lowers the limit, this is still the limit that was found before
    /// it. `None` without an adaptive rule.
    #[must_use]
    pub const fn adaptive_limit(&self) -> Option<u32> {
        self.adaptive_limit
    }

    /// Returns which calls of each class an [adaptive rule](crate::AdaptiveRule) admits; `None`
    /// without an adaptive rule.
    #[must_use]
    pub const fn shedding(&self) -> Option<Shedding> {
        self.shedding
    }

    /// Returns frozen views of the circuit breakers, in the order of their rules.
    #[must_use]
    pub fn breakers(&self) -> &[BreakerView] {
        &self.breakers
    }

    /// Returns the budgets of the rules on [costs](crate::FlowRule::cost), in the order of the
    /// rules.
    #[must_use]
    pub fn budgets(&self) -> &[BudgetSnapshot] {
        &self.budgets
    }

    /// Returns the keyed rules, in their order, and the rules by origin that keep a table.
    #[must_use]
    pub fn keyed_rules(&self) -> &[KeyedSnapshot] {
        &self.keyed_rules
    }

    /// Returns everything counted since the node was created.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns the counts of the last minute, added up; `None` for a node that does not
    /// [keep them](crate::Builder::minute). A node that has just begun to keep seconds has only the
    /// seconds since then.
    #[must_use]
    pub const fn minute(&self) -> Option<&NodeBucket> {
        self.minute.as_ref()
    }

    /// Returns the counts of the second before the current one; `None` for a node that does not
    /// keep seconds.
    #[must_use]
    pub const fn previous_second(&self) -> Option<&NodeBucket> {
        self.previous_second.as_ref()
    }

    /// Returns the bytes that the node occupies, heap included, without its name.
    #[must_use]
    pub const fn footprint(&self) -> usize {
        self.footprint
    }
}

/// A copy of all statistics of an engine at one moment, and of the state of single rules.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, FlowRule, Sentinel};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("job", 10));
/// drop(sentinel.try_enter(Call::new("job")));
/// let snapshot = sentinel.snapshot();
/// assert_eq!(snapshot.nodes().len(), 1);
/// assert_eq!(snapshot.totals().complete(), 1);
/// assert!(snapshot.to_json().contains("\"resource\":\"job\""));
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    nodes: Vec<NodeSnapshot>,
    totals: Totals,
    resources: usize,
    origins: usize,
    evicted: u64,
    overflowed: u64,
    pub(super) rules: RuleSnapshots,
    pub(super) shadows: Vec<(Arc<str>, u64)>,
    store: Option<StoreStatus>,
    shared: Vec<SharedSnapshot>,
    findings: Vec<Finding>,
}

impl Snapshot {
    /// Copies the statistics of an engine.
    pub(crate) fn of(core: &Core) -> Self {
        let shadows = core.shadows().list();
        Self::of_tables(core.registry(), &shadows, core.findings_so_far())
    }

    /// Copies the statistics of a rule in shadow mode, from its own `registry`.
    pub(super) fn of_shadow(registry: &Registry) -> Self {
        let mut pace = StepPace::without_pauses();
        let findings = at_once(registry.findings(&mut pace, Vec::new(), false));
        Self::of_tables(registry, &[], findings)
    }

    /// Copies the tables of `registry`, and the counts of the rules in shadow mode.
    fn of_tables(registry: &Registry, shadows: &[Arc<Shadow>], findings: Vec<Finding>) -> Self {
        let rules = registry.rules();
        let (mut nodes, mut ids) = (Vec::new(), HashSet::new());
        let mut totals = Totals::default();
        let gone = read_resources(registry, &mut |row| {
            ids.insert(row.id());
            let node = NodeSnapshot::of_resource(row);
            totals.add(node.totals());
            nodes.push(Some(node));
        });
        for gone in &gone.totals {
            totals.add(gone);
        }
        let (resources, mut origins) = (nodes.len(), 0);
        let evicted_scopes = read_scopes(registry, &mut |scope, now| {
            origins += 1;
            // The scope nodes of an evicted resource are skipped: they would look like nodes of a
            // new resource of the same name.
            if ids.contains(&scope.resource_id()) {
                nodes.push(Some(NodeSnapshot::of_scope(scope, now)));
            }
        });
        let mut copies = Vec::with_capacity(shadows.len());
        for shadow in shadows {
            copies.push((shadow.id().clone(), would_block(shadow.registry())));
        }
        let name = |place: usize| nodes[place].as_ref().map(|node| &node.resource);
        let places = sorted_places(nodes.len(), &|one, other| name(one).cmp(&name(other)));
        let mut sorted = Vec::with_capacity(nodes.len());
        for place in places {
            sorted.extend(nodes[place].take());
        }
        Self {
            nodes: sorted,
            totals,
            resources,
            origins,
            evicted: gone.count + evicted_scopes,
            overflowed: registry.overflowed(),
            shared: SharedSnapshot::of(registry, &rules, shadows),
            store: registry.shared().store_status(),
            rules: RuleSnapshots::of(&rules),
            shadows: copies,
            findings,
        }
    }

    /// Returns all nodes, sorted by resource, except the nodes of evicted resources.
    #[must_use]
    pub fn nodes(&self) -> &[NodeSnapshot] {
        &self.nodes
    }

    /// Returns everything counted on all resources since the engine was built, including evicted
    /// resources. No count ever falls, except that [`pass`](Totals::pass) can fall by calls that
    /// were dropped while they waited.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns how many resources are counted separately.
    #[must_use]
    pub const fn resources(&self) -> usize {
        self.resources
    }

    /// Returns how many origins and contexts have a place in the table. Origins and contexts of
    /// evicted resources are included until their places are needed.
    #[must_use]
    pub const fn origins(&self) -> usize {
        self.origins
    }

    /// Returns how many resources, origins and contexts have been evicted for new ones.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Returns how often a call found no place in a table. A call can count three times: for its
    /// resource, its origin and its context. A call without a place for its resource is counted
    /// under `__overflow__`. A call without a place for its origin is counted with all other
    /// origins without a place. A call without a place for its context is counted in no context.
    #[must_use]
    pub const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Returns how often the rules have been replaced; see
    /// [`Sentinel::rules_version`](crate::Sentinel::rules_version).
    #[must_use]
    pub const fn rules_version(&self) -> u64 {
        self.rules.version
    }

    /// Returns when the rules came into force; see
    /// [`Sentinel::rules_since`](crate::Sentinel::rules_since).
    #[must_use]
    pub const fn rules_since(&self) -> SystemTime {
        self.rules.since
    }

    /// Returns the rules in force, including rules in shadow mode, in their order.
    pub fn rules(&self) -> impl Iterator<Item = RuleSnapshot<'_>> {
        self.rules.all().into_iter()
    }

    /// Iterates over the rules in [shadow mode](crate::Rule::shadow), in their order: the id of
    /// each, and how many calls, by weight, it would have refused, including calls to resources
    /// that have been evicted. The id is empty if [all rules](crate::Builder::shadow) are in shadow
    /// mode together. For more, see [`ShadowView`](crate::read::ShadowView).
    ///
    /// ```
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel};
    ///
    /// let sentinel = Sentinel::builder()
    ///     .rules(FlowRule::per_second("job", 2).id("two").shadow())
    ///     .clock(ManualClock::new())
    ///     .build();
    /// for _ in 0..5 {
    ///     drop(sentinel.try_enter(Call::new("job")));
    /// }
    /// let snapshot = sentinel.snapshot();
    /// assert_eq!(snapshot.shadows().collect::<Vec<_>>(), [("two", 3)]);
    /// // The enforced rules let all of them pass.
    /// assert_eq!(snapshot.totals().block(), 0);
    /// ```
    pub fn shadows(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.shadows.iter().map(|(rule, count)| (&**rule, *count))
    }

    /// Returns the state of the [store](crate::Builder::store), and the counts of its requests;
    /// `None` if the engine has none.
    #[must_use]
    pub const fn store(&self) -> Option<&StoreStatus> {
        self.store.as_ref()
    }

    /// Returns the rules that are [shared](crate::FlowRule::shared), in their order, with the
    /// permits that they have taken from the store.
    #[must_use]
    pub fn shared_rules(&self) -> &[SharedSnapshot] {
        &self.shared
    }

    /// Returns likely mistakes in the configuration; see
    /// [`Sentinel::findings`](crate::Sentinel::findings).
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
