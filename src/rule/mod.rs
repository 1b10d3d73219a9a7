//! The rules that users write: they are checked once, and are valid from then on.
//!
//! # Sentinel's words
//!
//! | here | Sentinel (Java / Go) |
//! |---|---|
//! | [`FlowRule`] | `FlowRule` of QPS grade / `flow.Rule` |
//! | [`FlowRule::for_origin`], [`IsolationRule::for_origin`] | `limitApp` / – |
//! | [`FlowRule::throttle`], [`FlowRule::warm_up`] | control behaviours rate limiter and warm-up / throttling, warm-up |
//! | [`FlowRule::when`], [`IsolationRule::when`], [`FlowRule::in_context`] | strategies relate and chain / associated resource |
//! | [`CircuitBreakerRule`] | `DegradeRule` / `circuitbreaker.Rule` |
//! | [`KeyedRule`] | `ParamFlowRule` / `hotspot.Rule` |
//! | [`AdaptiveRule`] | – / – (Gradient2 of Netflix's concurrency-limits) |
//! | [`AuthorityRule`], [`SystemRule`] | `AuthorityRule`, `SystemRule` / –, `system.Rule` |
//! | [`IsolationRule`] | `FlowRule` of thread grade / `isolation.Rule` |
//! | [`Sentinel::try_enter`](crate::Sentinel::try_enter) gives an [`Entry`](crate::Entry) | `SphU.entry` / `api.Entry` |
//! | [`Blocked`](crate::Blocked), [`BlockKind`](crate::BlockKind) | the `BlockException` family / `BlockError` |
//! | [`Verdict::Wait`](crate::Verdict::Wait) | `PriorityWaitException` / should-wait |
//! | [`NodeView`](crate::read::NodeView), [`Sentinel::inbound`](crate::Sentinel::inbound) | `ClusterNode`, `ENTRY_NODE` / `ResourceNode`, inbound node |
//! | [`reload`](crate::Sentinel::reload) | `FlowRuleManager.loadRules` / `flow.LoadRules` |
//! | [`Hook`](crate::Hook) | `ProcessorSlotEntryCallback`, `ProcessorSlotExitCallback` / `StatSlot` |
//!
//! # Default rules
//!
//! A rule for the resource `*` is the default: every resource that no rule of the same kind names
//! gets a separate window, separate slots or a separate breaker from it. A rule on
//! [costs](FlowRule::cost) replaces only a default on costs of the same unit, and a rule on calls
//! only a default on calls. A rule that only observes a resource, by [`FlowRule::when`] or
//! [`IsolationRule::when`], does not count as a rule of that resource, nor does a rule in [shadow
//! mode](Rule::shadow): a resource with no other rule of that kind still gets the default. All
//! resources beyond [`Builder::max_resources`](crate::Builder::max_resources) are counted as one. A
//! resource that has used some of its quota is not evicted to make room for another: with windows
//! of an hour, each made-up name keeps its place for that long. So give one name to all paths that
//! no route matches, as the [guide](crate::guide::first_limit#unknown-paths) does.
//!
//! If paths are the resources, because axum has no matched path for the request, the resource of
//! each rule of any kind is a template, also in shadow mode. So any rule for `/users/{id}` makes
//! one resource of all paths that match, and this resource gets one quota from a default rule.
//!
//! Circuit breakers and adaptive rules can be defaults, and so can flow and isolation rules that
//! count all callers together: up to 32 flow and isolation rules, 32 circuit breakers and 1
//! adaptive rule. A rule that keeps a table or a node for each caller cannot be a default, as it
//! would need one for each resource.
//!
//! ```
//! use tower_sentinel::{Call, FlowRule, ManualClock, Rules, Sentinel, Verdict};
//!
//! let rules = Rules::new()
//!     .with(FlowRule::per_second("*", 2))
//!     .with(FlowRule::per_second("/search", 5));
//! let sentinel = Sentinel::builder().rules(rules).clock(ManualClock::new()).build();
//! let passed = |name| {
//!     let passes = |_: &_| matches!(sentinel.try_enter(Call::new(name)), Verdict::Pass(_));
//!     (0..10).filter(passes).count()
//! };
//! assert_eq!([passed("/search"), passed("/users"), passed("/orders")], [5, 2, 2]);
//! ```
//!
//! # Reading a rule
//!
//! The settings of a rule can be read from it: `get_` and the name of the setting, such as
//! [`FlowRule::get_max_waiting`], or `is_` for a setting that is only on or off, such as
//! [`FlowRule::is_strict`]. Arguments of the constructor have no prefix, such as
//! [`FlowRule::threshold`]; which threshold a [`CircuitBreakerRule`] has, and its value, is
//! returned by the getter of that name, such as [`CircuitBreakerRule::get_error_ratio`].
//!
//! ```
//! use std::time::Duration;
//! use tower_sentinel::IsolationRule;
//!
//! let rule = IsolationRule::new("/report", 32).queue(Duration::from_secs(5));
//! assert_eq!(rule.max(), 32);
//! assert_eq!(rule.get_queue(), Some(Duration::from_secs(5)));
//! assert_eq!(rule.get_max_waiting(), 10_000);
//! ```
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tower_sentinel::rule::{AuthorityRule, CircuitBreakerRule, FlowRule, KeyedRule};
//! use tower_sentinel::rule::{IsolationRule, Rules};
//! use tower_sentinel::{BlockKind, Call, Sentinel, Verdict};
//!
//! let rules = Rules::new()
//!     .with(KeyedRule::per_minute("/login", 5))
//!     .with(IsolationRule::new("/login", 32))
//!     .with(CircuitBreakerRule::error_ratio("*", 0.5))
//!     .with(AuthorityRule::deny("/login", ["crawler"]));
//! let sentinel = Sentinel::new(rules);
//! let Verdict::Block(blocked) = sentinel.try_enter(Call::new("/login").origin("crawler")) else {
//!     panic!("one rule is enough to refuse");
//! };
//! assert_eq!((blocked.kind(), blocked.rule()), (BlockKind::Authority, "authority-3"));
//!
//! // Rules from elsewhere may be invalid. Then the current rules stay in force.
//! let error = sentinel.try_reload([FlowRule::per("/login", 5, Duration::ZERO)]).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "rule 0 (flow \"/login\"): interval is 0ns, must be between 1 ms and 366 days",
//! );
//! assert_eq!(sentinel.rules().len(), 4);
//! ```

// Besides the kinds of rules, each in a file or folder of its own with its settings:
//
// | to write and check rules            | to judge calls by them                                 |
// |-------------------------------------|--------------------------------------------------------|
// | default, shadow: for all, watch     | set: what applies to a resource and to its origins     |
// | shaping: how flow rules admit       | plan, compiled: a node's flow rules, and their rings   |
// | template, respell, named: names     | queue, threshold: their state while they run           |
// | problem, setting, incremental, from | params: the rules on parameters of one resource        |
// | limit: how they are shown           | info: the properties of each kind                      |

mod adaptive;
mod authority;
mod circuit_breaker;
mod compiled;
mod cost;
mod costs;
mod default;
#[cfg(any(feature = "page", feature = "serde"))]
mod field;
mod flow;
mod from;
mod guard;
#[cfg(feature = "serde")]
mod incremental;
mod info;
mod isolation;
mod keyed_rule;
#[cfg_attr(not(feature = "shared"), path = "no_lease_costs.rs")]
mod lease_costs;
#[cfg_attr(not(feature = "shared"), path = "no_leased.rs")]
mod leased;
mod limit;
mod named;
mod needs;
mod numbered;
mod params;
mod plan;
mod problem;
mod queue;
mod respell;
mod scopes;
mod set;
#[cfg(any(feature = "page", feature = "serde"))]
mod setting;
mod shadow;
mod shaping;
mod sharing;
mod system;
mod template;
mod threshold;
mod whose;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use default::NO_DEFAULT;
use problem::{Inspector, verdict};

use crate::blocked::Label;
use crate::call::MAX_KEY_BYTES;

pub use crate::clock::CalendarPeriod;
pub use adaptive::AdaptiveRule;
pub use authority::AuthorityRule;
pub use circuit_breaker::CircuitBreakerRule;
pub use flow::{FlowRule, MissingKey};
pub use isolation::IsolationRule;
pub(crate) use isolation::SlotQueue;
pub use keyed_rule::KeyedRule;
pub use problem::{InvalidRule, InvalidRules};
#[cfg(feature = "serde")]
pub(crate) use problem::{MOST_REPORTED, write_first};
pub use system::SystemRule;

pub use crate::base::number::{Number, WholeNumber};

pub(crate) use compiled::{CompiledRules, DedicatedRing, Quotas};
pub(crate) use cost::REQUESTS;
pub(crate) use costs::{Accounts, CostRules};
pub(crate) use default::ANY_RESOURCE;
#[cfg(feature = "dashboard")]
pub(crate) use field::kept;
#[cfg(feature = "serde")]
pub(crate) use field::{Accessor, FieldTerms, HasFields, Needed};
pub(crate) use guard::Guards;
#[cfg(feature = "serde")]
pub(crate) use info::RuleKind;
pub(crate) use keyed_rule::most_keys;
#[cfg(feature = "shared")]
pub(crate) use lease_costs::LeaseCosts;
pub(crate) use lease_costs::{LeaseAccount, SharedCostRule};
#[cfg(feature = "shared")]
pub(crate) use leased::{Selected, SharedRule};
pub(crate) use named::Named;
pub(crate) use numbered::NumberedRules;
pub(crate) use params::{
    KeyedRules, NoShare, OnSuspicion, OwnShare, RunningPlaces, ShareInLine, Shares, Suspicion,
};
pub(crate) use plan::{Plan, PreviousRules};
pub(crate) use queue::{QueuedTurn, Turns};
pub(crate) use scopes::{ContextRules, OriginRules};
pub(crate) use set::{ResourceRules, RuleSet, SlotLimit};
#[cfg(any(feature = "page", feature = "serde"))]
pub(crate) use setting::Setting;
pub(crate) use shadow::RuleSelection;
pub(crate) use template::{Templates, check_template};
#[cfg(feature = "serde")]
pub(crate) use template::{by_method, respelled_name};
pub(crate) use whose::{Basis, Who};

/// A single rule of any kind.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::{CircuitBreakerRule, FlowRule, IsolationRule, Rule, Rules, SystemRule};
///
/// let list: Vec<Rule> = vec![
///     FlowRule::per_second("/pay", 10).into(),
///     CircuitBreakerRule::error_ratio("/pay", 0.5).open_for(Duration::from_secs(5)).into(),
///     SystemRule::new().cpu(0.85).shadow(),
/// ];
/// assert!(matches!(list[0], Rule::Flow(_)));
/// assert_eq!((list[1].resource(), list[2].resource()), ("/pay", "__inbound__"));
/// assert!(list[2].is_shadow());
///
/// // Rules are checked when they are built into a set.
/// let bad = Rule::from(IsolationRule::new(" ", 8));
/// let error = Rules::build(list.into_iter().chain([bad])).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "rule 3 (isolation \" \"): resource is \" \", must be a name that is not blank",
/// );
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Limits how many calls may pass in a window of time.
    Flow(FlowRule),
    /// Limits how many calls may pass for each value of a parameter.
    Keyed(KeyedRule),
    /// Limits how many calls may run at once.
    Isolation(IsolationRule),
    /// Limits how many calls may run at once, with a limit derived from response times.
    Adaptive(AdaptiveRule),
    /// Stops calls to a resource for a while when too many of them fail or are slow.
    CircuitBreaker(CircuitBreakerRule),
    /// Determines which origins may call a resource.
    Authority(AuthorityRule),
    /// Limits all inbound calls together, and the load of the machine.
    System(SystemRule),
    /// A rule in shadow mode, which refuses nothing; created by [`Rule::shadow`].
    Shadow(Box<Rule>),
}

impl Rule {
    /// Returns the resource that the rule is for; `__inbound__` for a system rule.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.info().resource()
    }

    /// Returns the name of the rule's kind, which is the same in documents, ids and messages:
    /// `flow`, `keyed`, `isolation`, `adaptive`, `circuit-breaker`, `authority` or `system`. A rule
    /// in shadow mode has the kind of the rule itself. A refusal by an adaptive rule has the kind
    /// [`BlockKind::Isolation`](crate::BlockKind::Isolation); all other rules refuse with the kind
    /// of their own name.
    ///
    /// ```
    /// use tower_sentinel::{FlowRule, KeyedRule, Rule};
    ///
    /// assert_eq!(Rule::from(KeyedRule::per_second("/search", 5)).kind(), "keyed");
    /// assert_eq!(FlowRule::per_second("/search", 5).shadow().kind(), "flow");
    /// ```
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.info().kind()
    }

    /// Returns the id that was set for the rule; `None` if refusals name it by its kind and
    /// its place in the set.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.info().id()
    }

    /// Returns whether the rule counts the calls of all processes that use the same store.
    pub(crate) fn is_shared(&self) -> bool {
        self.info().is_shared()
    }

    /// The limit of a flow rule, or the largest limit of any value of a keyed rule; 0 for any other
    /// kind.
    #[cold]
    pub(crate) fn largest_limit(&self) -> u32 {
        match self.itself() {
            Rule::Flow(rule) => rule.advertised().0,
            Rule::Keyed(rule) => {
                let mut most = rule.threshold();
                for (_, limit) in rule.tiers.iter().chain(&*rule.exceptions) {
                    most = most.max(*limit);
                }
                most as u32
            }
            _ => 0,
        }
    }

    /// The id of the rule in a set that has it at `index`.
    fn id_at(&self, index: usize) -> String {
        self.id()
            .map_or_else(|| format!("{}-{index}", self.kind()), str::to_owned)
    }

    /// The resources that the rule names, each with the field that names it.
    pub(crate) fn resources(&self) -> Vec<(&'static str, &str)> {
        let mut names = Vec::with_capacity(2);
        if !matches!(self.itself(), Rule::System(_)) {
            names.push(("resource", self.resource()));
        }
        if let Some(related) = self.info().related() {
            names.push(("related", related));
        }
        names
    }

    /// The key under which [`Rules`] counts the rules of a resource, where their number is limited.
    /// It consists of `what`, the name of such rules, of the mode, and of the resource.
    fn bounded_as(&self, what: &str) -> String {
        let (mode, resource) = (self.is_shadow(), self.resource());
        format!("{what} {mode} {resource}")
    }

    /// Creates an inspector for the problems of the rule, which is at `index`.
    fn inspector(&self, index: usize) -> Inspector {
        // A name that is too long is not repeated in full with each problem.
        let name: String = self.resource().chars().take(MAX_KEY_BYTES).collect();
        Inspector::new(index, format!("{} {name:?}", self.kind()))
    }
}

/// Calls the macro `$then` with the kinds of rules, each by its variant of [`Rule`] and its type.
/// Everything that needs to know all kinds uses this list.
macro_rules! each_kind {
    ($then:ident) => {
        $then! {
            Flow(FlowRule),
            Isolation(IsolationRule),
            Adaptive(AdaptiveRule),
            CircuitBreaker(CircuitBreakerRule),
            Authority(AuthorityRule),
            System(SystemRule),
            Keyed(KeyedRule),
        }
    };
}

pub(crate) use each_kind;

/// Implements the conversions of each kind of rule: into a [`Rule`], and into shadow mode.
macro_rules! kinds {
    ($($kind:ident($rule:ident)),* $(,)?) => {$(
        impl From<$rule> for Rule {
            fn from(rule: $rule) -> Self {
                Rule::$kind(rule)
            }
        }

        impl $rule {
            /// Returns the rule in shadow mode, in which it refuses nothing; see
            /// [`Rule::shadow`].
            #[must_use]
            pub fn shadow(self) -> Rule {
                Rule::from(self).shadow()
            }
        }
    )*};
}

each_kind!(kinds);

/// A set of valid rules: a value of this type cannot hold an invalid one.
///
/// All rules of a resource apply to each of its calls; a refusal names the first rule that refuses.
/// Rules are checked kind by kind, in the order given on the [front
/// page](crate#how-a-call-travels). Keyed rules and circuit breakers are each checked in the order
/// of the set. Flow rules are checked in no documented order: if several of them would refuse a
/// call, the refusal can name any of them.
///
/// Names in rules, of resources and of anything else, must not be blank, and have at most 256 bytes
/// and no control characters. A template has at most 25 parameters. No two rules have the same id;
/// if a rule has no id, its kind and its place, such as `flow-2`, are its id.
///
/// # Examples
///
/// Add rules that are part of the program one by one; build rules from a configuration all at once,
/// so that all problems are reported:
///
/// ```
/// use tower_sentinel::{FlowRule, IsolationRule, Rule, Rules};
///
/// let rules = Rules::new()
///     .with(FlowRule::per_second("/orders", 100))
///     .with(IsolationRule::new("/orders", 32));
/// assert_eq!(rules.len(), 2);
///
/// let from_elsewhere: Vec<Rule> = vec![
///     FlowRule::per_second("", 100).into(),
///     FlowRule::per_second("/a", f64::NAN).buckets(7).into(),
/// ];
/// let error = Rules::build(from_elsewhere).unwrap_err();
/// let fields: Vec<_> = error.problems().iter().map(|p| (p.index(), p.field())).collect();
/// assert_eq!(fields, [(0, "resource"), (1, "threshold"), (1, "buckets")]);
/// ```
///
/// Functions that take a set also take a tuple of up to twelve rules of any kinds, and an array or
/// a `Vec` of rules of one kind, or of [`Rule`]s:
///
/// ```
/// use tower_sentinel::{FlowRule, KeyedRule, IsolationRule, Rule, SentinelLayer};
///
/// let layer = SentinelLayer::new((
///     KeyedRule::per_minute("/login", 5),
///     IsolationRule::new("/report", 2),
/// ));
/// assert_eq!(layer.sentinel().rules().len(), 2);
///
/// let limits: Vec<Rule> = vec![
///     FlowRule::per_second("/orders", 100).into(),
///     IsolationRule::new("/orders", 32).shadow(),
/// ];
/// assert_eq!(SentinelLayer::new(limits).sentinel().rules().len(), 2);
/// ```
///
/// To change a set, iterate over its rules and build a new one:
///
/// ```
/// use tower_sentinel::{FlowRule, IsolationRule, Rules, Sentinel};
///
/// let rules = Rules::new()
///     .with(FlowRule::per_second("/orders", 100).id("sale"))
///     .with(IsolationRule::new("/orders", 32));
/// let sentinel = Sentinel::new(rules);
/// let kept = sentinel.rules().into_iter().filter(|rule| rule.id() != Some("sale"));
/// assert!(sentinel.try_reload(kept)?);
/// assert_eq!(sentinel.rules(), IsolationRule::new("/orders", 32).into());
/// # Ok::<(), tower_sentinel::InvalidRules>(())
/// ```
#[derive(Clone, Default)]
pub struct Rules {
    list: Vec<Rule>,
    /// The index of each rule by its id.
    ids: HashMap<String, usize>,
    /// The number of rules under each key of [`Rule::bounded_as`].
    bounded: HashMap<String, usize>,
    /// The index of each shared rule by the identity under which it counts.
    shared: HashMap<String, usize>,
    templates: Templates,
}

impl Rules {
    /// Creates a set without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a set of `rules`.
    ///
    /// # Errors
    ///
    /// Returns all problems of all rules.
    pub fn build<R: Into<Rule>>(rules: impl IntoIterator<Item = R>) -> Result<Self, InvalidRules> {
        let mut set = Self::new();
        let mut problems = Vec::new();
        for rule in rules {
            problems.extend(set.add(rule.into()));
        }
        verdict(problems)?;
        Ok(set)
    }

    /// Adds a rule that is part of the program. For rules from a configuration use
    /// [`try_with`](Self::try_with) or [`build`](Self::build).
    ///
    /// # Panics
    ///
    /// Panics if the rule is invalid, with all its problems.
    #[must_use]
    #[track_caller]
    pub fn with(self, rule: impl Into<Rule>) -> Self {
        match self.try_with(rule) {
            Ok(rules) => rules,
            Err(error) => panic!("{error}"),
        }
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// Returns all problems of the rule.
    pub fn try_with(mut self, rule: impl Into<Rule>) -> Result<Self, InvalidRules> {
        verdict(self.add(rule.into()))?;
        Ok(self)
    }

    /// Returns the number of rules in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Iterates over the rules, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.list.iter()
    }

    /// The id of the rule at `index`: the id that was set, or its kind and index.
    pub(crate) fn id(&self, index: usize) -> String {
        self.list[index].id_at(index)
    }

    /// Creates the label of the rule at `index`, with no refusals counted.
    pub(crate) fn label(&self, index: usize) -> Label {
        let rule = &self.list[index];
        let is_for_one = !rule.is_default() && !matches!(rule.itself(), Rule::System(_));
        Label {
            refused: Arc::default(),
            id: self.id(index).into(),
            resource: is_for_one.then(|| rule.resource().into()),
            unit: rule.info().unit().map(Into::into),
        }
    }

    /// Returns a problem for each rule that needs a store.
    pub(crate) fn check_without_store(&self) -> Result<(), InvalidRules> {
        let mut problems = Vec::new();
        for (index, rule) in self.list.iter().enumerate() {
            if !rule.is_shared() {
                continue;
            }
            let mut inspector = rule.inspector(index);
            let allowed = "left out where the engine has no store: give it one by \
                 `Builder::store`";
            inspector.refuse("shared", true, allowed);
            problems.extend(inspector.problems);
        }
        verdict(problems)
    }

    pub(crate) const fn templates(&self) -> &Templates {
        &self.templates
    }

    /// Adds `rule`, even if it has problems, and returns them.
    fn add(&mut self, rule: Rule) -> Vec<InvalidRule> {
        let index = self.list.len();
        let mut inspector = rule.inspector(index);
        self.inspect(&rule, &mut inspector);
        self.name_resources(&rule, index, &mut inspector);
        self.push(rule);
        inspector.problems
    }

    /// Adds `rule`, whose templates have already been added.
    fn push(&mut self, rule: Rule) {
        let place = self.list.len();
        if let Some((what, _)) = rule.info().bound() {
            let bounded = rule.bounded_as(what);
            let count = self.bounded.get(&bounded).copied().unwrap_or_default();
            self.bounded.insert(bounded, count + 1);
        }
        self.ids.insert(rule.id_at(place), place);
        if let Some(identity) = rule.shared_identity() {
            self.shared.insert(identity, place);
        }
        self.list.push(rule);
    }

    /// Reports the problems of `rule`, alone and with the rules of the set, except for its
    /// templates.
    fn inspect(&self, rule: &Rule, inspector: &mut Inspector) {
        rule.info().check(inspector);
        self.inspect_shared(rule, inspector);
        // A rule that cannot be a default would be in force for `*`, but apply to no call.
        for (field, name) in rule.resources() {
            if name == ANY_RESOURCE && !rule.info().may_be_default() {
                inspector.refuse(field, format_args!("{name:?}"), NO_DEFAULT);
            }
        }
        if let Some((what, most)) = rule.info().bound() {
            let count = self.bounded.get(&rule.bounded_as(what));
            if count.is_some_and(|count| *count >= most) {
                let allowed = format!("that of at most {most} {what}");
                inspector.refuse("resource", format_args!("{:?}", rule.resource()), allowed);
            }
        }
        if let Some(id) = rule.id() {
            inspector.name("id", id);
        }
        let id = rule.id_at(self.list.len());
        if self.ids.contains_key(&id) {
            let allowed = "different from that of every other rule";
            inspector.refuse("id", format_args!("{id:?}"), allowed);
        }
    }

    /// Reports a shared rule that counts under the same identity as another rule of the set.
    fn inspect_shared(&self, rule: &Rule, inspector: &mut Inspector) {
        // An identity needs valid settings: an invalid window may have no buckets.
        if !inspector.problems.is_empty() {
            return;
        }
        let identity = rule.shared_identity();
        if identity.is_some_and(|identity| self.shared.contains_key(&identity)) {
            let allowed = "different from that of a shared rule of the same calls and window: \
                 give each of them an `id`";
            inspector.refuse("id", rule.id().unwrap_or("none"), allowed);
        }
    }

    /// Adds the templates in the names of `rule`, which is at `index`.
    fn name_resources(&mut self, rule: &Rule, index: usize, inspector: &mut Inspector) {
        for (field, name) in rule.resources() {
            if let Err(allowed) = self.templates.add(name, index) {
                inspector.refuse(field, format_args!("{name:?}"), allowed);
            }
        }
    }
}

impl PartialEq for Rules {
    /// Compares the rules and their order.
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.list).finish()
    }
}

impl IntoIterator for Rules {
    type Item = Rule;
    type IntoIter = std::vec::IntoIter<Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a> IntoIterator for &'a Rules {
    type Item = &'a Rule;
    type IntoIter = std::slice::Iter<'a, Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
