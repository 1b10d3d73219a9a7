//! A loaded set of rules: the rules of a resource, and of an origin of it.

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
    listed: NumberedRules,
    by_resource: HashMap<String, ResourceRules>,
    /// Rules that count on other resources for the rules that look at them.
    /// By ascending index.
    watchers: Vec<(u32, FlowRule)>,
    /// The limits that all system rules together set.
    limits: Limits,
    /// The rules of resources that no rule names, if there are any.
    defaults: Option<ResourceRules>,
    /// Whether there are rules in shadow mode, and these are not they.
    has_shadows: bool,
    /// The names that those have.
    /// And the place of a rule of each.
    shadowed: HashMap<String, usize>,
    part: RuleSelection,
    version: u64,
    /// When it was made.
    made_at: SystemTime,
    /// The set for resources of which this one says nothing; `None` if this is one.
    bare: Option<Arc<RuleSet>>,
}

/// How many calls may run at once, and the rule that says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotLimit {
    pub(crate) rule: u32,
    pub(crate) limit: u32,
    /// Whether it is that of an adaptive rule, for calls of one importance.
    pub(crate) is_adaptive: bool,
}

/// The rules of one resource, by their index in the set.
#[derive(Debug, Default)]
pub(crate) struct ResourceRules {
    /// Flow rules that count all callers together.
    pub(crate) anyone: Vec<u32>,
    /// Rules on costs.
    pub(crate) costs: Vec<u32>,
    /// Keyed rules.
    pub(crate) params: Vec<u32>,
    /// Rules that count over all processes of a store.
    pub(crate) shared: Vec<u32>,
    /// By the tightest isolation rule that counts all callers together.
    pub(crate) slots: Option<SlotLimit>,
    /// Flow and isolation rules that count origins apart, if there are any.
    pub(crate) origins: Option<Arc<OriginRules>>,
    /// Flow rules for single contexts, if there are any.
    pub(crate) contexts: Option<Arc<ContextRules>>,
    /// Flow rules that look at other resources.
    pub(crate) related: Vec<u32>,
    /// By the isolation rules that look at other resources.
    pub(crate) related_slots: Vec<SlotLimit>,
    /// The guards, if there are any.
    pub(crate) guards: Option<Arc<Guards>>,
    /// The longest that a rule lets calls wait in its queue.
    pub(crate) longest_wait: Duration,
    /// Circuit breakers.
    pub(crate) breakers: Vec<u32>,
    /// The adaptive rule.
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
            set.add_defaults(&defaults, &part.beside(&rules));
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

    /// The set without the rules of single resources: small, so that a resource of which it says
    /// nothing may hold it for ever.
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

    fn add(&mut self, index: u32, rule: &Rule) {
        match rule {
            Rule::System(rule) => return rule.tighten(&mut self.limits, index),
            Rule::Isolation(rule) => {
                // Its figures stay while the resource is idle, as those of one that has a rule.
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

    /// Gives `defaults` to every resource without a rule of the same kind and unit among
    /// `others`.
    fn add_defaults(&mut self, defaults: &[(u32, &Rule)], others: &[&Rule]) {
        // The kinds of the rules of each resource, by the place under its name.
        let (mut places, mut kinds) = (HashMap::<&str, usize>::new(), Vec::<Vec<_>>::new());
        for rule in others {
            // A resource of that very name, as in `OPTIONS *`, is one of all.
            if !rule.is_default() {
                // So that a resource without a default is known by its name.
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

    pub(crate) fn rules(&self) -> &Rules {
        &self.listed.rules
    }

    pub(crate) const fn listed(&self) -> &NumberedRules {
        &self.listed
    }

    /// Returns whether a path may match a template other than itself.
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

    /// Which of the rules these are.
    pub(crate) const fn part(&self) -> RuleSelection {
        self.part
    }

    /// Returns whether there are rules in shadow mode beside these.
    #[inline]
    pub(crate) const fn has_shadows(&self) -> bool {
        self.has_shadows
    }

    /// The rules of a resource for which there are none by name, nor by default.
    pub(crate) fn bare(self: &Arc<Self>) -> &Arc<Self> {
        self.bare.as_ref().unwrap_or(self)
    }

    /// Returns whether nothing at all is said of a resource.
    pub(crate) const fn is_defaults_only(&self) -> bool {
        self.bare.is_none()
    }

    /// Returns whether both say the same where nothing is said of a resource.
    pub(crate) fn agrees_on_others(&self, other: &Self) -> bool {
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

    /// When it was made, which is just before it comes into force.
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

    /// All rules, enforced or in shadow mode, with their ids.
    pub(crate) fn with_ids(&self) -> impl Iterator<Item = (&Rule, Arc<str>)> {
        let labels = self.listed.labels.iter();
        let ids = labels.map(|label| label.id.clone());
        self.rules().iter().zip(ids)
    }

    /// How the rule at `index` treats calls without its key.
    pub(crate) fn missing_key(&self, index: u32) -> Option<MissingKey> {
        self.rule(index)?.missing_key()
    }

    /// The id of the rule at `index`.
    pub(crate) fn id(&self, index: u32) -> Arc<str> {
        self.label(index).id.clone()
    }

    /// The rules of the resource `name`, or else those of all that have none.
    pub(crate) fn of(&self, name: &str) -> Option<&ResourceRules> {
        self.by_resource.get(name).or(self.defaults.as_ref())
    }

    /// Returns whether a rule names the resource `name`.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.by_resource.contains_key(name)
    }

    /// Returns whether a rule in shadow mode beside these names the resource `name`.
    pub(crate) fn has_shadow_for(&self, name: &str) -> bool {
        self.shadowed.contains_key(name)
    }

    /// The names of all resources that a rule names.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &str> {
        self.by_resource.keys().map(String::as_str)
    }

    /// How calls wait for a slot of the isolation rule at `index`, if they may.
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

    /// The rule at `index`, if it is on a parameter, or counts for origins as if they were one. It
    /// then knows at most `most_origins`.
    pub(crate) fn keyed_rule(&self, index: u32, most_origins: u32) -> Option<KeyedRule> {
        match self.rule(index)?.itself() {
            Rule::Keyed(rule) => Some(rule.clone()),
            Rule::Flow(rule) if rule.is_by_origin() => Some(rule.as_keyed_rule(most_origins)),
            _ => None,
        }
    }

    /// The kind of the rule at `index` in a refusal for its rate.
    pub(crate) fn kind_of_rate(&self, index: u32) -> BlockKind {
        match self.rule(index).map(Rule::itself) {
            Some(Rule::Keyed(_)) => BlockKind::Keyed,
            // No other rule has a rate.
            _ => BlockKind::Flow,
        }
    }

    /// The flow rules at `indices`, as they count on the resource `name`.
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
    /// Puts this limit in place of a larger one. Of two equal ones the first is named.
    pub(super) fn tighten(self, slots: &mut Option<Self>) {
        if slots.is_none_or(|tightest| self.limit < tightest.limit) {
            *slots = Some(self);
        }
    }
}

impl ResourceRules {
    /// Returns whether a rule limits the calls at once of single origins, or looks at those of
    /// another resource.
    pub(crate) fn have_narrow_slots(&self) -> bool {
        let origins = self.origins.as_ref();
        origins.is_some_and(|rules| rules.have_slots()) || !self.related_slots.is_empty()
    }

    fn add(&mut self, index: u32, rule: &Rule) {
        if let Some(guard) = rule.info().guard() {
            // Such a rule judges by what a call brings, and needs nothing else.
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
            // These are no resource's; and a selected rule is no shadow.
            Rule::System(_) | Rule::Shadow(_) => {}
            // A kind that has neither a guard nor a place above would limit nothing.
            _ => debug_assert!(false, "{} has no place", rule.kind()),
        }
    }
}

/// What a rule limits: a rule of a resource is in place of a default one of this kind.
fn kind_of(rule: &Rule) -> (&'static str, Option<&str>) {
    (rule.kind(), rule.info().unit())
}

/// The value in `rules`, made if need be, while a set is being made.
fn owned<T: Default>(rules: &mut Option<Arc<T>>) -> &mut T {
    Arc::get_mut(rules.get_or_insert_default()).expect("nobody else has it yet")
}

#[cfg(all(test, not(sentinel_loom)))]
#[path = "tests/set.rs"]
mod tests;
