//! The settings and state that all parts of an engine share.

use std::fmt;
use std::sync::{Arc as StdArc, OnceLock};
use std::time::Duration;

use crate::base::sync::{Arc, AtomicU32, AtomicU64};
use crate::breaker::KeptBreakers;
use crate::call::Direction;
use crate::clock::Tick;
use crate::clock::timekeeper::Timekeeper;
use crate::hook::finding::{Finding, Provided, ReportedFindings};
use crate::hook::{Hooks, Interest};
use crate::rule::{CompiledRules, FlowRule, Plan, PreviousRules, RuleSelection};
use crate::stat::{LinedUp, Node, Shape};
#[cfg(feature = "shared")]
use crate::store::StoreSettings;
use crate::store::{Hub, StoreStatus};
use crate::system::Sampler;

/// The maximum number of buckets of a resource's ring, which bounds the memory of its node.
const RESOURCE_BUCKETS: u64 = 256;
/// The maximum number of buckets of a scope node's ring. It is smaller, as there are many scope
/// nodes.
const SCOPE_BUCKETS: u64 = 32;

/// The settings of an engine. Engines of rules in shadow mode use a copy.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The windows in which scope nodes and the inbound node keep figures per second.
    pub(crate) shape: StdArc<Shape>,
    /// The windows of the nodes of resources, which can also have histograms of durations.
    pub(crate) shape_of_resources: StdArc<Shape>,
    /// Which nodes of resources also keep the seconds of the last minute.
    pub(crate) minute: KeepsMinute,
    /// Whether scope nodes keep the seconds of the last minute.
    pub(crate) minute_of_scopes: bool,
    /// The maximum time that a call may wait for tokens of a coming bucket.
    pub(crate) occupy_timeout: Duration,
    /// The time that a resource or scope node must be unused before it can be dropped.
    pub(crate) idle: Duration,
    /// The maximum number of resources that the engine keeps.
    pub(crate) max_resources: usize,
    /// The maximum number of scope nodes, and of the origins that a rule by origin keeps.
    pub(crate) max_origins: usize,
    /// Whether origins have nodes even if no rule needs them.
    pub(crate) origins: bool,
    /// Whether contexts have nodes even if no rule needs them.
    pub(crate) contexts: bool,
    /// Reads the load figures of the machine.
    pub(crate) sampler: Option<Sampler>,
}

/// Which resources keep the seconds of the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepsMinute {
    /// Resources whose names callers cannot invent: a rule contains the name, or a router has
    /// matched it.
    Known,
    /// All resources.
    All,
    None,
}

/// The kind of a node, which determines its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeOf {
    /// The node of a resource. `is_known` means that callers cannot invent its name.
    Resource {
        is_known: bool,
    },
    ScopeNode,
}

/// The state that all parts of an engine need and that no reload replaces.
pub(crate) struct EngineContext {
    pub(crate) config: Config,
    pub(crate) time: Timekeeper,
    pub(crate) hooks: Hooks,
    /// The properties of calls that the engine's layers extract from requests, for findings.
    pub(crate) provided: Provided,
    /// The findings that hooks have already received.
    pub(crate) told: ReportedFindings,
    /// The node of all inbound calls; set once there was a system rule.
    pub(crate) inbound: OnceLock<Node>,
    /// The random hash functions of tables and of shortened names.
    pub(crate) hash: [foldhash::quality::RandomState; 2],
    /// The open breakers of evicted resources, which are restored when these resources are called
    /// again.
    pub(crate) kept_breakers: KeptBreakers,
    /// The version of the rules in force.
    pub(crate) version: AtomicU64,
    /// Whether calls have ever waited in line. If not, a reload need not search for waiting calls.
    pub(crate) lined_up: LinedUp,
    /// The hub of the store of shared rules, once it is needed.
    pub(crate) store: OnceLock<Arc<Hub>>,
    /// The number of marked requests in flight: see
    /// [`wants_mark`](crate::engine::resource::Resource::wants_mark).
    pub(crate) marked: AtomicU32,
    /// Which rules of a set this engine judges by, unless a reload selects others.
    pub(crate) part: RuleSelection,
}

impl Default for Config {
    fn default() -> Self {
        let shape = StdArc::new(Shape::new(500_000_000, 2));
        Self {
            shape: shape.clone(),
            shape_of_resources: shape,
            minute: KeepsMinute::Known,
            minute_of_scopes: false,
            occupy_timeout: Duration::from_millis(500),
            idle: Duration::from_secs(60),
            max_resources: 16_384,
            max_origins: 65_536,
            origins: false,
            contexts: false,
            sampler: None,
        }
    }
}

impl EngineContext {
    /// Creates a node with compiled `rules`, for calls that may wait in a queue for at most
    /// `longest_wait`. The new node and rules inherit the state of `before`: its node is reused,
    /// with a new ring if the rules need one.
    pub(crate) fn node<'a>(
        &self,
        rules: Vec<(u32, &'a FlowRule)>,
        before: Option<PreviousRules<'a>>,
        longest_wait: Duration,
        of: NodeOf,
        now: Tick,
    ) -> (Node, CompiledRules) {
        let config = &self.config;
        let (shape, most, keeps_minute) = match of {
            NodeOf::Resource { is_known } => {
                let is_wanted = config.minute == KeepsMinute::Known && is_known;
                let keeps_minute = is_wanted || config.minute == KeepsMinute::All;
                (&config.shape_of_resources, RESOURCE_BUCKETS, keeps_minute)
            }
            NodeOf::ScopeNode => (&config.shape, SCOPE_BUCKETS, config.minute_of_scopes),
        };
        // A wait for a loan must be shorter than `occupy_timeout`. A wait for a turn can be as long
        // as `longest_wait`.
        let patience = config
            .occupy_timeout
            .max(longest_wait + Duration::from_nanos(1));
        let plan = Plan::new(rules, before, shape, most, patience);
        plan.build(shape, keeps_minute, config.sampler.as_ref(), now)
    }

    /// Returns the context of an engine in shadow mode.
    pub(crate) fn for_shadow(&self, part: RuleSelection) -> Self {
        let mut config = self.config.clone();
        // Histograms of a shadow engine would never be read.
        config.shape_of_resources = config.shape.clone();
        Self {
            config,
            // The clock is shared, as a sampler with two clocks would mistake their difference for
            // a step.
            time: self.time.clone(),
            hooks: Hooks::default(),
            provided: Provided::default(),
            told: ReportedFindings::default(),
            inbound: OnceLock::new(),
            hash: self.hash.clone(),
            kept_breakers: KeptBreakers::default(),
            version: AtomicU64::new(0),
            lined_up: LinedUp::default(),
            // Rules in shadow mode have their own counters in the store.
            store: self.store.clone(),
            marked: AtomicU32::new(0),
            part,
        }
    }

    /// Returns the hub of the store. If the engine has no store, creates a hub that is always idle.
    #[cfg(feature = "shared")]
    pub(crate) fn hub(&self) -> &Arc<Hub> {
        self.store.get_or_init(|| {
            let settings = StoreSettings::new();
            Arc::new(Hub::new(None, settings, self.time.clone()))
        })
    }

    /// Returns whether rules can be shared.
    pub(crate) fn has_store(&self) -> bool {
        self.store.get().is_some_and(|hub| hub.store().is_some())
    }

    /// Returns the state of the store, if there is one.
    pub(crate) fn store_status(&self) -> Option<StoreStatus> {
        let hub = self.store.get()?;
        hub.store()?;
        Some(StoreStatus::of(hub))
    }

    /// Notifies hooks of `finding`, unless they have already received a finding of the same kind
    /// for the same rule.
    pub(crate) fn tell(&self, finding: &Finding) {
        if self.hooks.want(Interest::FINDING)
            && self
                .told
                .is_first(finding, || self.time.check_for_creation(self.time.read()))
        {
            self.hooks
                .notify(Interest::FINDING, &|hook| hook.on_finding(finding));
        }
    }

    /// Returns whether calls of this direction count on a common node.
    #[inline]
    pub(crate) fn counts_together(&self, direction: Direction) -> bool {
        direction == Direction::Inbound && self.inbound.get().is_some()
    }

    /// Makes all inbound calls count on a common node from now on. Does nothing if they already do.
    pub(crate) fn count_inbound(&self, now: Tick) {
        self.inbound.get_or_init(|| {
            let (shape, patience) = (&self.config.shape, self.config.occupy_timeout);
            let plan = Plan::new(Vec::new(), None, shape, RESOURCE_BUCKETS, patience);
            // The node keeps the seconds of the last minute, from which system rules estimate the
            // capacity.
            let (node, _) = plan.build(shape, true, None, now);
            node
        });
    }
}

impl fmt::Debug for EngineContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The seeds are secret.
        f.debug_struct("EngineContext")
            .field("time", &self.time)
            .field("hooks", &self.hooks)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
