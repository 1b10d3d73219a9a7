//! The state that all parts of an engine share.

use std::fmt;
use std::sync::{Arc as StdArc, OnceLock};
use std::time::Duration;

use crate::base::sync::{Arc, AtomicU32, AtomicU64};
use crate::breaker::KeptBreakers;
use crate::call::Direction;
use crate::clock::Tick;
use crate::clock::timekeeper::Timekeeper;
use crate::hook::finding::{Finding, Provided, ToldFindings};
use crate::hook::{Hooks, Interest};
use crate::rule::{Before, CompiledRules, FlowRule, Plan, RuleSelection};
use crate::stat::{LinedUp, Node, Shape};
#[cfg(feature = "shared")]
use crate::store::StoreSettings;
use crate::store::{Hub, StoreStatus};
use crate::system::Sampler;

/// Most buckets of a resource's ring.
const RESOURCE_BUCKETS: u64 = 256;
/// Most buckets of a scope node's ring: there are many of them.
const SCOPE_BUCKETS: u64 = 32;

/// The settings of a user. Engines of rules in shadow mode have the same.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// How figures per second are kept.
    pub(crate) shape: StdArc<Shape>,
    /// The shape of the nodes of resources, where times may be counted by their length.
    pub(crate) shape_of_resources: StdArc<Shape>,
    /// Which nodes keep the seconds of the last minute as well.
    pub(crate) minute: KeepsMinute,
    pub(crate) minute_of_scopes: bool,
    /// The longest that a call may wait for tokens of a coming bucket.
    pub(crate) occupy_timeout: Duration,
    /// How long something must not have been used before it is forgotten.
    pub(crate) idle: Duration,
    pub(crate) max_resources: usize,
    /// How many scope nodes there are, and how many origins a rule by origin knows.
    pub(crate) max_origins: usize,
    /// Whether origins and contexts have nodes although no rule asks.
    pub(crate) origins: bool,
    pub(crate) contexts: bool,
    /// Reads the figures of the machine.
    pub(crate) sampler: Option<Sampler>,
}

/// Which resources keep the seconds of the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepsMinute {
    /// Names that callers cannot make up: a rule has them, or a router has matched them.
    Known,
    All,
    None,
}

/// The purpose of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeOf {
    /// A resource. Callers can make up its name, unless it `is_known`.
    Resource {
        is_known: bool,
    },
    ScopeNode,
}

/// Everything that does not change while an engine lives, and that all its parts need.
pub(crate) struct EngineContext {
    pub(crate) config: Config,
    pub(crate) time: Timekeeper,
    pub(crate) hooks: Hooks,
    /// The keys and parameters that calls bring with them.
    pub(crate) provided: Provided,
    /// The findings that hooks have received.
    pub(crate) told: ToldFindings,
    /// The figures of all inbound calls, from the first system rule on.
    pub(crate) inbound: OnceLock<Node>,
    pub(crate) hash: [foldhash::quality::RandomState; 2],
    /// The open breakers of resources that have been evicted.
    pub(crate) kept_breakers: KeptBreakers,
    /// The version of the rules that calls are judged by.
    pub(crate) version: AtomicU64,
    /// Whether a reload has to look for calls in line for a slot.
    pub(crate) lined_up: LinedUp,
    /// The store of shared rules, from the first one on.
    pub(crate) store: OnceLock<Arc<Hub>>,
    /// The requests with a mark of the engine that are on their way: see
    /// [`wants_mark`](crate::engine::resource::Resource::wants_mark).
    pub(crate) marked: AtomicU32,
    /// Which rules of a set are judged by, at first.
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
    /// A node for `rules` on a resource whose calls may wait in a queue for `longest_wait`, and the
    /// compiled rules over it. They inherit the state of `before`: the node is that one, over
    /// another ring if the rules need it.
    pub(crate) fn node<'a>(
        &self,
        rules: Vec<(u32, &'a FlowRule)>,
        before: Option<Before<'a>>,
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
        // A wait is exclusive for a loan and inclusive for a turn.
        let patience = config
            .occupy_timeout
            .max(longest_wait + Duration::from_nanos(1));
        let plan = Plan::new(rules, before, shape, most, patience);
        plan.build(shape, keeps_minute, config.sampler.as_ref(), now)
    }

    /// Returns the context of an engine in shadow mode.
    pub(crate) fn for_shadow(&self, part: RuleSelection) -> Self {
        let mut config = self.config.clone();
        // These figures are never read.
        config.shape_of_resources = config.shape.clone();
        Self {
            config,
            // A sampler that both ask must not take one of them for a clock that has stepped.
            time: self.time.clone(),
            hooks: Hooks::default(),
            provided: Provided::default(),
            told: ToldFindings::default(),
            inbound: OnceLock::new(),
            hash: self.hash.clone(),
            kept_breakers: KeptBreakers::default(),
            version: AtomicU64::new(0),
            lined_up: LinedUp::default(),
            // Its rules have counters of their own there.
            store: self.store.clone(),
            marked: AtomicU32::new(0),
            part,
        }
    }

    /// The store of shared rules; one that is never there, if the engine has none.
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

    /// The state of the store, if there is one.
    pub(crate) fn store_status(&self) -> Option<StoreStatus> {
        let hub = self.store.get()?;
        hub.store()?;
        Some(StoreStatus::of(hub))
    }

    /// Notifies hooks of `finding`, unless they have received one of its kind for its rule.
    pub(crate) fn tell(&self, finding: &Finding) {
        if self.hooks.want(Interest::FINDING)
            && self
                .told
                .is_first(finding, || self.time.check_making(self.time.read()))
        {
            self.hooks
                .notify(Interest::FINDING, &|hook| hook.on_finding(finding));
        }
    }

    /// Returns whether calls of this direction are counted together.
    #[inline]
    pub(crate) fn counts_together(&self, direction: Direction) -> bool {
        direction == Direction::Inbound && self.inbound.get().is_some()
    }

    /// From now on all inbound calls are counted together, if they are not already.
    pub(crate) fn count_inbound(&self, now: Tick) {
        self.inbound.get_or_init(|| {
            let (shape, patience) = (&self.config.shape, self.config.occupy_timeout);
            let plan = Plan::new(Vec::new(), None, shape, RESOURCE_BUCKETS, patience);
            // The last seconds show how much the service can hold.
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
