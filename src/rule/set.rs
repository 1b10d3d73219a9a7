//! A loaded set of rules, by the resources that they apply to.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::numbered::SharedCounts;
use super::scopes::{ContextRules, OriginRules};
use super::{
    Basis, CircuitBreakerRule, FlowRule, Guards, KeyedRule, MissingKey, NumberedRules, Rule,
    RuleSelection, Rules, SlotQueue, Who,
};
use crate::adaptive::LimiterSettings;
use crate::base::wall::wall_time;
use crate::blocked::{BlockKind, Label};
use crate::system::Limits;

/// A set of rules with a version: every call is judged by one version.
pub(crate) struct RuleSet {
    /// All rules of the list, also those that this set leaves out.
    listed: NumberedRules,
    /// The rules of each resource that a rule names.
    by_resource: HashMap<String, ResourceRules>,
    /// For each flow rule with a related resource, the rule that counts calls of that resource; by
    /// ascending index.
    watchers: Vec<(u32, FlowRule)>,
    /// The limits that all system rules together set.
    limits: Limits,
    /// The default rules, for resources that no rule names; `None` if there are none.
    defaults: Option<ResourceRules>,
    /// Whether the list has rules in shadow mode that this set leaves out.
    has_shadows: bool,
    /// The resources that these shadow rules name, each with the index of one rule that names it.
    shadowed: HashMap<String, usize>,
    /// Which rules of the list this set consists of.
    part: RuleSelection,
    version: u64,
    /// When the set was created.
    made_at: SystemTime,
    /// This set without rules of single resources; `None` if this set is itself without such rules.
    /// See [`bare`](Self::bare).
    bare: Option<Arc<RuleSet>>,
}

/// A limit on how many calls run at once, and the index of its rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotLimit {
    pub(crate) rule: u32,
    pub(crate) limit: u32,
    /// Whether the rule is adaptive; the limit is then the bound of one importance class.
    pub(crate) is_adaptive: bool,
}

/// The rules of one resource, by their index in the set.
#[derive(Debug, Default)]
pub(crate) struct ResourceRules {
    /// Flow rules that count all callers together.
    pub(crate) anyone: Vec<u32>,
    /// Rules on costs.
    pub(crate) costs: Vec<u32>,
    /// Keyed rules, and flow rules that count each origin in a table.
    pub(crate) params: Vec<u32>,
    /// Rules that count the calls of all processes that use the same store.
    pub(crate) shared: Vec<u32>,
    /// The limit of the tightest isolation rule that counts all callers together.
    pub(crate) slots: Option<SlotLimit>,
    /// Flow and isolation rules that count origins separately, if there are any.
    pub(crate) origins: Option<Arc<OriginRules>>,
    /// Flow rules for single contexts, if there are any.
    pub(crate) contexts: Option<Arc<ContextRules>>,
    /// Flow rules that count the calls of a related resource.
    pub(crate) related: Vec<u32>,
    /// The limits of isolation rules that count the running calls of a related resource.
    pub(crate) related_slots: Vec<SlotLimit>,
    /// Rules that judge a call by its properties alone, without counts, if there are any.
    pub(crate) guards: Option<Arc<Guards>>,
    /// The longest wait in a queue, of all rules.
    pub(crate) longest_wait: Duration,
    /// Circuit breakers.
    pub(crate) breakers: Vec<u32>,
    /// The index and settings of the adaptive rule, if there is one.
    pub(crate) adaptive: Option<(u32, LimiterSettings)>,
}

impl RuleSet {
    /// Creates the set of the rules of `listed` that `part` selects.
    pub(crate) fn new(listed: NumberedRules, version: u64, part: RuleSelection) -> Self {
        let rules = listed.rules.clone();
        let has_shadows = !part.shadows(&rules).is_empty();
        let mut set = Self::empty(listed, has_shadows, part, version);
        let mut defaults = Vec::new();
        for (index, rule) in part.selected(&rules) {
            if rule.is_default() {
                defaults.push((index, rule));
            } else {
                set.add(index, rule);
            }
        }
        if !defaults.is_empty() {
            set.add_defaults(&defaults, &part.applying(&rules));
        }
        if has_shadows {
            for (place, rule) in rules.iter().enumerate() {
                if part.leaves_out(rule) {
                    for (_, name) in rule.resources() {
                        set.shadowed.insert(name.to_owned(), place);
                    }
                }
            }
        }
        set.bare = Some(Arc::new(set.without_rules()));
        set
    }

    /// Creates a set without selected rules.
    fn empty(listed: NumberedRules, has_shadows: bool, part: RuleSelection, version: u64) -> Self {
        Self {
            listed,
            by_resource: HashMap::new(),
            watchers: Vec::new(),
            limits: Limits::default(),
            defaults: None,
            has_shadows,
            shadowed: HashMap::new(),
            part,
            version,
            made_at: wall_time(),
            bare: None,
        }
    }

    /// Returns the set without the rules of single resources. It is small, so a resource without
    /// rules can keep it for as long as the resource exists.
    fn without_rules(&self) -> Self {
        let mut labels = Vec::new();
        let limits = self.limits.renumbered(&mut |rule| {
            labels.push(self.label(rule).clone());
            labels.len() as u32 - 1
        });
        let listed = NumberedRules {
            labels: labels.into(),
            ..NumberedRules::from(Rules::new())
        };
        Self {
            limits,
            ..Self::empty(listed, self.has_shadows, self.part, self.version)
        }
    }

    /// Adds the rule at `index` under the resources that it names, or to the limits of all calls.
    fn add(&mut self, index: u32, rule: &Rule) {
        match rule {
            Rule::System(rule) => return rule.tighten(&mut self.limits, index),
            Rule::Isolation(rule) => {
                // Gives the related resource an entry, so that it keeps its statistics while it is
                // idle.
                if let Some(related) = rule.get_when() {
                    let related = self.by_resource.entry(related.to_owned());
                    related.or_default();
                }
            }
            Rule::Flow(rule) => {
                if let Basis::Related(related) = rule.basis() {
                    self.watchers.push((index, rule.watcher(related)));
                    let related = self.by_resource.entry(related.clone());
                    related.or_default().anyone.push(index);
                }
            }
            _ => {}
        }
        let own = self.by_resource.entry(rule.resource().to_owned());
        own.or_default().add(index, rule);
    }

    /// Adds `defaults` to every resource for which `others` has no rule of the same kind and unit.
    fn add_defaults(&mut self, defaults: &[(u32, &Rule)], others: &[&Rule]) {
        // The kinds of the rules of each resource; `places` has a resource's index in `kinds`.
        let (mut places, mut kinds) = (HashMap::<&str, usize>::new(), Vec::<Vec<_>>::new());
        for rule in others {
            // A resource that is itself called `*`, as in `OPTIONS *`, gets the defaults like any
            // other resource.
            if !rule.is_default() {
                // Gives the resource an entry, so that its name is known even if it gets no
                // default.
                let own = self.by_resource.entry(rule.resource().to_owned());
                own.or_default();
                match places.get(rule.resource()) {
                    Some(&place) => kinds[place].push(kind_of(rule)),
                    None => {
                        places.insert(rule.resource(), kinds.len());
                        kinds.push(vec![kind_of(rule)]);
                    }
                }
            }
        }
        let unnamed = self.defaults.get_or_insert_default();
        for &(index, rule) in defaults {
            unnamed.add(index, rule);
            for (name, own) in &mut self.by_resource {
                let place = places.get(&**name);
                if !place.is_some_and(|&place| kinds[place].contains(&kind_of(rule))) {
                    own.add(index, rule);
                }
            }
        }
    }

    /// All rules of the list, in their order.
    pub(crate) fn rules(&self) -> &Rules {
        &self.listed.rules
    }

    /// All rules of the list with their labels.
    pub(crate) const fn listed(&self) -> &NumberedRules {
        &self.listed
    }

    /// Returns whether any rule's resource is a template, such as `/users/{id}`, that can match
    /// several paths.
    pub(crate) const fn has_templates(&self) -> bool {
        self.listed.has_templates
    }

    pub(crate) fn rule(&self, index: u32) -> Option<&Rule> {
        self.listed.rules.list.get(index as usize)
    }

    /// The circuit breakers at `indices`.
    pub(crate) fn breakers(
        &self,
        indices: &[u32],
    ) -> impl Iterator<Item = (u32, &CircuitBreakerRule)> {
        indices
            .iter()
            .filter_map(|&index| match self.rule(index)?.itself() {
                Rule::CircuitBreaker(rule) => Some((index, rule)),
                _ => None,
            })
    }

    /// Which rules of the list this set consists of.
    pub(crate) const fn part(&self) -> RuleSelection {
        self.part
    }

    /// Returns whether the list has rules in shadow mode that this set leaves out.
    #[inline]
    pub(crate) const fn has_shadows(&self) -> bool {
        self.has_shadows
    }

    /// The set for resources to which no rule applies, neither by name nor by default.
    pub(crate) fn bare(self: &Arc<Self>) -> &Arc<Self> {
        self.bare.as_ref().unwrap_or(self)
    }

    /// Returns whether this is a [bare](Self::bare) set, which has no rules of single resources.
    pub(crate) const fn is_bare_set(&self) -> bool {
        self.bare.is_none()
    }

    /// Returns whether both sets are the same for resources to which no rule applies.
    pub(crate) fn has_equal_bare_set(&self, other: &Self) -> bool {
        let one = self.bare.as_deref().unwrap_or(self);
        let two = other.bare.as_deref().unwrap_or(other);
        let (labels, others) = (&one.listed.labels, &two.listed.labels);
        if one.limits != two.limits || one.has_shadows != two.has_shadows || labels != others {
            return false;
        }
        for (one, two) in labels.iter().zip(others.iter()) {
            if !one.counts_with(two) {
                return false;
            }
        }
        true
    }

    /// The limits that all system rules together set.
    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// When the set was created, just before it came into force.
    pub(crate) const fn made_at(&self) -> SystemTime {
        self.made_at
    }

    /// The label of the rule at `index`.
    pub(crate) fn label(&self, index: u32) -> &Arc<Label> {
        &self.listed.labels[index as usize]
    }

    /// The counts of the rule at `index`, if it is shared.
    pub(crate) fn shared_counts(&self, index: u32) -> Option<&SharedCounts> {
        self.listed.shared.get(index as usize)?.as_ref()
    }

    /// All rules with their ids, enforced or in shadow mode.
    pub(crate) fn with_ids(&self) -> impl Iterator<Item = (&Rule, Arc<str>)> {
        let labels = self.listed.labels.iter();
        let ids = labels.map(|label| label.id.clone());
        self.rules().iter().zip(ids)
    }

    /// How the rule at `index` treats calls without a key; `None` if it has no key.
    pub(crate) fn missing_key(&self, index: u32) -> Option<MissingKey> {
        self.rule(index)?.missing_key()
    }

    /// The id of the rule at `index`.
    pub(crate) fn id(&self, index: u32) -> Arc<str> {
        self.label(index).id.clone()
    }

    /// The rules of the resource `name`, or else the default rules.
    pub(crate) fn of(&self, name: &str) -> Option<&ResourceRules> {
        self.by_resource.get(name).or(self.defaults.as_ref())
    }

    /// Returns whether a rule names the resource `name`.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.by_resource.contains_key(name)
    }

    /// Returns whether a rule in shadow mode that this set leaves out names the resource `name`.
    pub(crate) fn has_shadow_for(&self, name: &str) -> bool {
        self.shadowed.contains_key(name)
    }

    /// The names of all resources that a rule names.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &str> {
        self.by_resource.keys().map(String::as_str)
    }

    /// How calls wait for a slot of the isolation rule at `index`; `None` if no call waits.
    pub(crate) fn slot_queue(&self, index: u32) -> Option<SlotQueue> {
        match self.rule(index)?.itself() {
            Rule::Isolation(rule) => rule.slot_queue(),
            _ => None,
        }
    }

    /// The flow rule at `index`.
    pub(crate) fn flow(&self, index: u32) -> Option<&FlowRule> {
        match self.rule(index)?.itself() {
            Rule::Flow(rule) => Some(rule),
            _ => None,
        }
    }

    /// The rule at `index` as a keyed rule. A flow rule by origin or by the calendar is converted;
    /// by origin, it then keeps at most `most_origins` origins. `None` for other rules.
    pub(crate) fn keyed_rule(&self, index: u32, most_origins: u32) -> Option<KeyedRule> {
        match self.rule(index)?.itself() {
            Rule::Keyed(rule) => Some(rule.clone()),
            Rule::Flow(rule) if rule.is_in_table() => Some(rule.as_keyed_rule(most_origins)),
            _ => None,
        }
    }

    /// The kind of refusal when the rule at `index` has reached its rate.
    pub(crate) fn kind_of_rate(&self, index: u32) -> BlockKind {
        match self.rule(index).map(Rule::itself) {
            Some(Rule::Keyed(_)) => BlockKind::Keyed,
            // Of all other rules, only flow rules have a rate.
            _ => BlockKind::Flow,
        }
    }

    /// The flow rules at `indices`. If `name` is only the related resource of a rule, the rule's
    /// watcher is returned instead.
    pub(crate) fn flows<'a>(
        &'a self,
        name: &'a str,
        indices: &'a [u32],
    ) -> Vec<(u32, &'a FlowRule)> {
        let mut flows = Vec::with_capacity(indices.len());
        for &index in indices {
            let watcher = self.watchers.binary_search_by_key(&index, |it| it.0);
            let rule = match watcher.map(|place| &self.watchers[place].1) {
                Ok(watcher) if watcher.resource() == name => Some(watcher),
                _ => self.flow(index),
            };
            if let Some(rule) = rule {
                flows.push((index, rule));
            }
        }
        flows
    }
}

impl fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleSet")
            .field("rules", self.rules())
            .field("part", &self.part)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl SlotLimit {
    /// Replaces `slots` if this limit is smaller. Of two equal limits the first stays.
    pub(super) fn tighten(self, slots: &mut Option<Self>) {
        if slots.is_none_or(|tightest| self.limit < tightest.limit) {
            *slots = Some(self);
        }
    }
}

impl ResourceRules {
    /// Returns whether a rule limits how many calls of a single origin run at once, or counts the
    /// running calls of another resource.
    pub(crate) fn have_narrow_slots(&self) -> bool {
        let origins = self.origins.as_ref();
        origins.is_some_and(|rules| rules.have_slots()) || !self.related_slots.is_empty()
    }

    /// Adds the rule at `index` to the list of its kind.
    fn add(&mut self, index: u32, rule: &Rule) {
        if let Some(guard) = rule.info().guard() {
            // A guard looks only at properties of the call, so its rule is in none of the lists
            // below.
            owned(&mut self.guards).add(index, rule, guard);
            return;
        }
        match rule {
            Rule::CircuitBreaker(_) => self.breakers.push(index),
            Rule::Adaptive(rule) => self.adaptive = Some((index, rule.settings())),
            Rule::Isolation(rule) => {
                let slots = SlotLimit {
                    rule: index,
                    limit: rule.max(),
                    is_adaptive: false,
                };
                match (rule.get_when(), &rule.who) {
                    (Some(_), _) => self.related_slots.push(slots),
                    (None, Who::Anyone) => slots.tighten(&mut self.slots),
                    (None, who) => owned(&mut self.origins).add_slots(slots, who),
                }
            }
            Rule::Flow(rule) if rule.is_shared() => self.shared.push(index),
            Rule::Keyed(rule) if rule.is_shared() => self.shared.push(index),
            Rule::Keyed(rule) if rule.get_cost().is_some() => self.costs.push(index),
            Rule::Keyed(rule) => {
                self.params.push(index);
                self.longest_wait = self.longest_wait.max(rule.max_wait());
            }
            Rule::Flow(rule) if rule.get_cost().is_some() => self.costs.push(index),
            Rule::Flow(rule) if rule.calendar().is_some() => self.params.push(index),
            Rule::Flow(rule) => {
                let wait = rule.shaping.max_wait.unwrap_or_default();
                self.longest_wait = self.longest_wait.max(wait);
                match (rule.basis(), &rule.who) {
                    (Basis::Context(context), _) => owned(&mut self.contexts).add(index, context),
                    (Basis::Own, Who::Anyone) => self.anyone.push(index),
                    (Basis::Own, Who::Each) => self.params.push(index),
                    (Basis::Own, _) => owned(&mut self.origins).add(index, rule),
                    (Basis::Related(_), _) => self.related.push(index),
                }
            }
            // System rules belong to no resource, and a selected rule is never wrapped as a shadow.
            Rule::System(_) | Rule::Shadow(_) => {}
            // A kind with neither a guard nor a match arm would limit nothing.
            _ => debug_assert!(false, "{} has no place", rule.kind()),
        }
    }
}

/// The kind and cost unit of a rule. A rule replaces a default rule of the same kind and unit.
fn kind_of(rule: &Rule) -> (&'static str, Option<&str>) {
    (rule.kind(), rule.info().unit())
}

/// The value in `rules`, created if needed. Only for use while a set is being built.
fn owned<T: Default>(rules: &mut Option<Arc<T>>) -> &mut T {
    Arc::get_mut(rules.get_or_insert_default()).expect("nobody else has it yet")
}

#[cfg(all(test, not(sentinel_loom)))]
#[path = "tests/set.rs"]
mod tests;
