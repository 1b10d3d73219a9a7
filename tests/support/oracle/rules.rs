//! Sets of rules of all kinds, and which rule goes on from which of an older set.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Deref;

use tower_sentinel::{AuthorityRule, IsolationRule, MissingKey, Rule, Rules};

use super::breaker::Breaker;
use super::call::Asks;
use super::flow::{Flow, Whose};
use super::keyed::{Count, Keyed};
use super::system::{Adaptive, Limits};

/// A rule, and the id that it was given, if any.
#[derive(Clone, Debug)]
pub(crate) struct Named<T> {
    pub(crate) rule: T,
    pub(crate) id: Option<usize>,
}

/// A kind of rules that change.
pub(crate) trait Kind: Clone + Debug {
    /// By what ids of it begin.
    const NAME: &'static str;
    /// By what rules without one are called.
    const OWN_NAME: &'static str;

    fn build(&self, id: Option<String>) -> Rule;

    /// Whether it counts the same calls as `other` in the same way.
    fn counts_like(&self, other: &Self) -> bool;

    /// The same with some of what `other` has, by the bits of `mask`.
    fn blend(&self, other: &Self, mask: u8) -> Self;
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSet {
    /// From which number on its rules are called, if others stand beside them.
    pub(crate) first: usize,
    pub(crate) flows: Vec<Flow>,
    pub(crate) isolation: Option<(&'static str, u32)>,
    pub(crate) denied: Option<(&'static str, &'static str)>,
    pub(crate) keyed: Vec<Named<Keyed>>,
    pub(crate) breakers: Vec<Named<Breaker>>,
    pub(crate) limits: Vec<Limits>,
    pub(crate) adaptives: BTreeMap<&'static str, Adaptive>,
}

/// One rule of a set.
#[derive(Clone, Debug)]
pub(crate) struct Alone {
    pub(crate) rules: RuleSet,
    /// `None`: it is on all calls.
    pub(crate) resource: Option<&'static str>,
    pub(crate) name: String,
}

impl<T> Deref for Named<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.rule
    }
}

impl<T: Kind> Named<T> {
    pub(crate) fn built(&self) -> Rule {
        let id = self.id.map(|id| format!("{}-{id}", T::NAME));
        self.rule.build(id)
    }

    /// What refusals call it, if it stands at `place` in its set.
    fn name(&self, place: usize) -> String {
        match self.id {
            Some(id) => format!("{}-{id}", T::NAME),
            None => format!("{}-{place}", T::OWN_NAME),
        }
    }

    pub(crate) fn is_named_like(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }
}

impl RuleSet {
    pub(crate) fn rules(&self) -> Rules {
        let flows = self.flows.iter().enumerate();
        let flows = flows.map(|(index, flow)| flow.rule(self.first + index).into());
        let isolation = self.isolation.map(|(resource, most)| {
            let rule = IsolationRule::new(resource, most);
            rule.id(self.isolation_name()).into()
        });
        let denied = self
            .denied
            .map(|(resource, origin)| AuthorityRule::deny(resource, [origin]));
        let denied = denied.map(|rule| rule.id("authority").into());
        let keyed = self.keyed.iter().map(Named::built);
        let breakers = self.breakers.iter().map(Named::built);
        let limits = self.limits.iter().enumerate();
        let limits = limits.map(|(index, limits)| limits.rule(index).into());
        let adaptives = self.adaptives.iter();
        let adaptives = adaptives.map(|(resource, adaptive)| adaptive.rule(resource).into());
        let all = flows.chain(isolation).chain(denied).chain(keyed);
        let all = all.chain(breakers).chain(limits).chain(adaptives);
        all.fold(Rules::new(), |rules, rule: Rule| rules.with(rule))
    }

    pub(crate) fn isolation_name(&self) -> String {
        format!("isolation-{}", self.first)
    }

    /// How many rules come before those on parameters.
    fn before_keyed(&self) -> usize {
        self.flows.len() + self.isolation.iter().count() + self.denied.iter().count()
    }

    /// The rules on parameters, as they are called.
    pub(crate) fn keyed(&self) -> impl Iterator<Item = (Named<Keyed>, String)> {
        let names = names(&self.keyed, self.before_keyed());
        self.keyed.iter().cloned().zip(names)
    }

    /// The rules of breakers, as they are called.
    pub(crate) fn breakers(&self) -> impl Iterator<Item = (Named<Breaker>, String)> {
        let names = names(&self.breakers, self.before_keyed() + self.keyed.len());
        self.breakers.iter().cloned().zip(names)
    }

    /// Each rule as a set of its own, with what it is called behind so many others.
    pub(crate) fn each(&self, behind: usize) -> Vec<Alone> {
        let first = self.first;
        let mut each = Vec::new();
        let mut alone = |resource, name, add: &dyn Fn(&mut Self)| {
            let mut rules = Self {
                first,
                ..Self::default()
            };
            add(&mut rules);
            each.push(Alone {
                rules,
                resource,
                name,
            });
        };
        for (index, flow) in self.flows.iter().enumerate() {
            let name = (first + index).to_string();
            alone(Some(flow.resource), name, &|rules| rules.flows.push(*flow));
        }
        if let Some((resource, _)) = self.isolation {
            let name = self.isolation_name();
            alone(Some(resource), name, &|rules| {
                rules.isolation = self.isolation;
            });
        }
        let behind = behind + self.before_keyed();
        for (rule, name) in self.keyed.iter().zip(names(&self.keyed, behind)) {
            let add = |rules: &mut Self| rules.keyed.push(rule.clone());
            alone(Some(rule.resource), name, &add);
        }
        let behind = behind + self.keyed.len();
        for (rule, name) in self.breakers.iter().zip(names(&self.breakers, behind)) {
            let add = |rules: &mut Self| rules.breakers.push(rule.clone());
            alone(Some(rule.resource), name, &add);
        }
        for (index, limits) in self.limits.iter().enumerate() {
            let add = |rules: &mut Self| rules.limits.push(limits.clone());
            alone(None, format!("system-{index}"), &add);
        }
        each
    }

    /// By what `flow` tells calls apart; `None` if it does not count this one.
    pub(crate) fn key(&self, flow: &Flow, call: &Asks) -> Option<&'static str> {
        if call.resource != flow.counts() {
            return None;
        }
        let is_named = |origin| {
            let mut others = self.flows.iter();
            others.any(|other| {
                other.resource == flow.resource && other.whose == Whose::Origin(origin)
            })
        };
        match flow.whose {
            Whose::All | Whose::Related(_) => Some(""),
            Whose::Each(MissingKey::Share) => call.origin.or(Some("-")),
            Whose::Each(_) => call.origin,
            Whose::Origin(origin) => call.origin.filter(|own| *own == origin),
            Whose::OtherOrigins => {
                let own = call.origin.filter(|own| !is_named(own))?;
                // One queue for all of them, and a window for each.
                Some(if flow.queue.is_some() { "" } else { own })
            }
            Whose::Context(context) => call.context.filter(|own| *own == context),
        }
    }

    /// Whether some rule names `resource`.
    pub(crate) fn names(&self, resource: &str) -> bool {
        let mut flows = self.flows.iter();
        flows.any(|flow| [flow.resource, flow.counts()].contains(&resource))
            || self.isolation.is_some_and(|(own, _)| own == resource)
            || self.denied.is_some_and(|(own, _)| own == resource)
            || self.keyed.iter().any(|rule| rule.resource == resource)
            || self.breakers.iter().any(|rule| rule.resource == resource)
            || self.adaptives.contains_key(resource)
    }

    /// The same, where calls wait for so long in all queues.
    pub(crate) fn waiting(mut self, max_wait: u64) -> Self {
        for flow in &mut self.flows {
            flow.queue = flow.queue.map(|_| max_wait);
        }
        for keyed in &mut self.keyed {
            if let Count::Queue(most) = &mut keyed.rule.count {
                *most = max_wait;
            }
        }
        self
    }

    /// A resource has at most two rules that count calls at once: those beyond go.
    pub(crate) fn keep_two_at_once(&mut self) {
        let mut at_once = BTreeMap::<_, u32>::new();
        self.keyed.retain(|rule| {
            let known = at_once.entry(rule.resource).or_default();
            *known += u32::from(rule.count == Count::Running);
            rule.count != Count::Running || *known <= 2
        });
    }
}

/// What `rules` are called behind so many other rules.
fn names<T: Kind>(rules: &[Named<T>], behind: usize) -> impl Iterator<Item = String> {
    let rules = rules.iter().enumerate();
    rules.map(move |(place, rule)| rule.name(behind + place))
}

/// `rules` with the ids from `first` on.
pub(crate) fn named<T>(rules: Vec<T>, first: usize) -> Vec<Named<T>> {
    let rules = rules.into_iter().enumerate();
    let named = |(index, rule)| Named {
        rule,
        id: Some(first + index),
    };
    rules.map(named).collect()
}

/// What each of `new` goes on from, and each of `old` at most once: what belongs to
/// an equal rule, else to one of the same id, which for a rule on parameters must
/// count the same as well, else to one that does.
///
/// Those of `old` that are left come after that.
pub(crate) fn carry_over<T: Kind, O>(
    new: &[Named<T>],
    old: Vec<O>,
    rule: impl Fn(&O) -> &Named<T>,
    is_id_enough: bool,
) -> (Vec<Option<O>>, Vec<O>) {
    let mut left: Vec<_> = old.into_iter().map(Some).collect();
    let mut found: Vec<_> = new.iter().map(|_| None).collect();
    for closeness in 0..3 {
        for (new, found) in new.iter().zip(&mut found).filter(|(_, it)| it.is_none()) {
            let is_partner = |old: &Named<T>| match closeness {
                0 => new.built() == old.built(),
                1 => new.is_named_like(old) && (is_id_enough || new.counts_like(old)),
                _ => new.counts_like(old),
            };
            let mut left = left.iter_mut();
            *found = left
                .find(|old| old.as_ref().is_some_and(|old| is_partner(rule(old))))
                .and_then(Option::take);
        }
    }
    (found, left.into_iter().flatten().collect())
}
