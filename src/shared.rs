//! What all parts of an engine share.

use std::fmt;
use std::sync::{Arc as StdArc, OnceLock};
use std::time::Duration;

use crate::breaker::KeptBreakers;
use crate::call::Direction;
use crate::clock::Tick;
use crate::hook::Hooks;
use crate::rule::{Before, FlowRule, Gate, Part, Plan};
use crate::stat::{Node, Shape};
use crate::sync::AtomicU64;
use crate::system::Sampler;
use crate::timekeeper::Timekeeper;

/// Most buckets of a resource's ring.
const RESOURCE_BUCKETS: u64 = 256;
/// Most buckets of a branch's ring: there are many of them.
const BRANCH_BUCKETS: u64 = 32;

/// What a user configures. Engines of rules in shadow mode have the same.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// How figures per second are kept, for resources and for branches.
    pub(crate) shape: StdArc<Shape>,
    pub(crate) branch_shape: StdArc<Shape>,
    /// The longest that a call may wait for tokens of a coming bucket.
    pub(crate) occupy_timeout: Duration,
    /// How long something must not have been used before it is forgotten.
    pub(crate) idle: Duration,
    pub(crate) max_resources: usize,
    /// How many branches there are, and how many origins a rule by origin knows.
    pub(crate) max_origins: usize,
    /// Whether origins and contexts have nodes although no rule asks.
    pub(crate) origins: bool,
    pub(crate) contexts: bool,
    /// What the machine says.
    pub(crate) sampler: Option<Sampler>,
}

/// What does not change while an engine lives, and what all its parts need.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) time: Timekeeper,
    pub(crate) hooks: Hooks,
    /// The figures of all inbound calls, from the first system rule on.
    pub(crate) inbound: OnceLock<Node>,
    pub(crate) hash: [foldhash::quality::RandomState; 2],
    /// The open breakers of resources that have been evicted.
    pub(crate) kept_breakers: KeptBreakers,
    /// The version of the rules that calls are judged by.
    pub(crate) version: AtomicU64,
    /// Which rules of a set are judged by, at first.
    pub(crate) part: Part,
}

impl Default for Config {
    fn default() -> Self {
        let shape = |minute| StdArc::new(Shape::new(500_000_000, 2, minute));
        Self {
            shape: shape(true),
            branch_shape: shape(false),
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

impl Shared {
    /// A node for `rules` on a resource whose calls may wait in a queue for
    /// `longest_wait`, and the gate over it. They go on from what was there `before`:
    /// the node is that one, over another ring if the rules need it.
    pub(crate) fn node<'a>(
        &self,
        rules: impl IntoIterator<Item = (u32, &'a FlowRule)>,
        before: Option<Before<'a>>,
        longest_wait: Duration,
        is_branch: bool,
        now: Tick,
    ) -> (Node, Gate) {
        let config = &self.config;
        let (shape, most) = if is_branch {
            (&config.branch_shape, BRANCH_BUCKETS)
        } else {
            (&config.shape, RESOURCE_BUCKETS)
        };
        // A wait is exclusive for a loan and inclusive for a turn.
        let patience = config
            .occupy_timeout
            .max(longest_wait + Duration::from_nanos(1));
        Plan::new(rules, before, shape, most, patience).build(shape, config.sampler.as_ref(), now)
    }

    /// The same for an engine in shadow mode.
    pub(crate) fn for_shadow(&self, part: Part) -> Self {
        Self {
            config: self.config.clone(),
            // A sampler that both ask must not take one of them for a clock that has stepped.
            time: self.time.clone(),
            hooks: Hooks::default(),
            inbound: OnceLock::new(),
            hash: self.hash.clone(),
            kept_breakers: KeptBreakers::default(),
            version: AtomicU64::new(0),
            part,
        }
    }

    /// Whether calls of this direction are counted together.
    #[inline]
    pub(crate) fn counts_together(&self, direction: Direction) -> bool {
        direction == Direction::Inbound && self.inbound.get().is_some()
    }

    /// From now on all inbound calls are counted together, if they are not already.
    pub(crate) fn count_inbound(&self, now: Tick) {
        self.inbound.get_or_init(|| {
            // What the service can hold is told by its last seconds.
            let shape = Shape {
                minute: true,
                ..*self.config.shape
            };
            let patience = self.config.occupy_timeout;
            let plan = Plan::new([], None, &shape, RESOURCE_BUCKETS, patience);
            let (node, _) = plan.build(&StdArc::new(shape), None, now);
            node
        });
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The seeds are secret.
        f.debug_struct("Shared")
            .field("time", &self.time)
            .field("hooks", &self.hooks)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
