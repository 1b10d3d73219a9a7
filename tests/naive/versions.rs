//! Sets of rules that follow each other, and which rule goes on from which.

use std::fmt::Debug;
use std::ops::Deref;

use proptest::prelude::*;
use proptest::sample::Index;
use tower_sentinel::{Rule, Rules};

use crate::breakers::{Breaker, breaker};
use crate::company::Company;
use crate::hot::{Count, Hot, hot, keep_two_at_once};
use crate::setup::{Setup, Whose};

/// A rule, and the id that it was given, if any.
#[derive(Clone, Debug)]
pub(crate) struct Named<T> {
    pub(crate) rule: T,
    id: Option<usize>,
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

/// A set of rules.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) setup: Setup,
    pub(crate) hots: Vec<Named<Hot>>,
    pub(crate) breakers: Vec<Named<Breaker>>,
}

/// One rule of a set.
#[derive(Clone, Debug)]
pub(crate) struct Alone {
    pub(crate) version: Version,
    pub(crate) resource: &'static str,
    pub(crate) name: String,
}

/// What becomes of the rules of one kind.
#[derive(Clone, Debug)]
enum Step<T> {
    /// One of them gets some of what another rule has.
    Blend(Index, T, u8),
    Add(Named<T>),
    Remove(Index),
    Rename(Index, Option<usize>),
    Turn(Index),
    /// All of them go.
    Clear,
}

/// What a reload changes.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    hots: Vec<Step<Hot>>,
    breakers: Vec<Step<Breaker>>,
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

    fn is_named_like(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id
    }
}

impl<T: Kind> Step<T> {
    fn apply(self, rules: &mut Vec<Named<T>>) {
        let place = |index: Index| (!rules.is_empty()).then(|| index.index(rules.len()));
        match self {
            Self::Add(rule) => rules.push(rule),
            Self::Clear => rules.clear(),
            Self::Turn(index) => {
                if let Some(place) = place(index) {
                    rules.rotate_left(place);
                }
            }
            Self::Remove(index) => drop(place(index).map(|place| rules.remove(place))),
            Self::Rename(index, id) => {
                if let Some(place) = place(index) {
                    rules[place].id = id;
                }
            }
            Self::Blend(index, other, mask) => {
                if let Some(place) = place(index) {
                    rules[place].rule = rules[place].blend(&other, mask);
                }
            }
        }
        // No two rules have one id.
        for place in 1..rules.len() {
            let (before, own) = rules.split_at_mut(place);
            if before.iter().any(|other| own[0].is_named_like(other)) {
                own[0].id = None;
            }
        }
    }
}

impl Version {
    pub(crate) fn rules(&self) -> Rules {
        let hots = self.hots.iter().map(Named::built);
        let breakers = self.breakers.iter().map(Named::built);
        let all = hots.chain(breakers);
        all.fold(self.setup.rules(), |rules, rule| rules.with(rule))
    }

    /// The rules on parameters, as they are called.
    pub(crate) fn hots(&self) -> impl Iterator<Item = (Named<Hot>, String)> {
        let names = names(&self.hots, self.setup.rules().len());
        self.hots.iter().cloned().zip(names)
    }

    /// The rules of breakers, as they are called.
    pub(crate) fn breakers(&self) -> impl Iterator<Item = (Named<Breaker>, String)> {
        let names = names(&self.breakers, self.setup.rules().len() + self.hots.len());
        self.breakers.iter().cloned().zip(names)
    }

    /// Each rule that may change as a set of its own, and its resource.
    fn alone(&self) -> impl Iterator<Item = (Self, &'static str)> {
        let none = Self {
            setup: Setup::NONE,
            hots: Vec::new(),
            breakers: Vec::new(),
        };
        let only = none.clone();
        let hots = self.hots.iter().map(move |hot| {
            let hots = vec![hot.clone()];
            (
                Self {
                    hots,
                    ..none.clone()
                },
                hot.resource,
            )
        });
        let breakers = self.breakers.iter().map(move |rule| {
            let breakers = vec![rule.clone()];
            (
                Self {
                    breakers,
                    ..only.clone()
                },
                rule.resource,
            )
        });
        hots.chain(breakers)
    }

    /// The same, with what each is called behind so many other rules.
    pub(crate) fn each(&self, behind: usize) -> Vec<Alone> {
        let breakers = names(&self.breakers, behind + self.hots.len());
        let names = names(&self.hots, behind).chain(breakers);
        let alone = |((version, resource), name)| Alone {
            version,
            resource,
            name,
        };
        self.alone().zip(names).map(alone).collect()
    }

    /// Whether some rule names `resource`.
    pub(crate) fn names(&self, resource: &str) -> bool {
        let Setup {
            flows,
            isolation,
            denied,
        } = &self.setup;
        let mut flows = flows.iter();
        flows.any(|flow| {
            let is_related = matches!(flow.whose, Whose::Related(other) if other == resource);
            flow.resource == resource || is_related
        }) || isolation.is_some_and(|(own, _)| own == resource)
            || denied.is_some_and(|(own, _)| own == resource)
            || self.hots.iter().any(|hot| hot.resource == resource)
            || self.breakers.iter().any(|rule| rule.resource == resource)
    }

    /// The same, where calls wait for so long in the queues of their values.
    pub(crate) fn waiting(mut self, max_wait: u64) -> Self {
        for hot in &mut self.hots {
            if let Count::Queue(most) = &mut hot.rule.count {
                *most = max_wait;
            }
        }
        self
    }

    pub(crate) fn edit(&mut self, edit: Edit) {
        edit.hots
            .into_iter()
            .for_each(|step| step.apply(&mut self.hots));
        let breakers = edit.breakers.into_iter();
        breakers.for_each(|step| step.apply(&mut self.breakers));
        keep_two_at_once(&mut self.hots, |hot| Some(hot));
    }
}

impl From<Company> for Version {
    fn from(company: Company) -> Self {
        Self {
            setup: company.setup,
            hots: named(company.hots),
            breakers: named(company.breakers),
        }
    }
}

/// What `rules` are called behind so many other rules.
fn names<T: Kind>(rules: &[Named<T>], behind: usize) -> impl Iterator<Item = String> {
    let rules = rules.iter().enumerate();
    rules.map(move |(place, rule)| rule.name(behind + place))
}

fn named<T>(rules: Vec<T>) -> Vec<Named<T>> {
    let rules = rules.into_iter().enumerate();
    let named = |(index, rule)| Named {
        rule,
        id: Some(index),
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

fn id() -> impl Strategy<Value = Option<usize>> {
    prop::option::weighted(0.7, 0_usize..4)
}

fn step<T: Kind + 'static>(rule: BoxedStrategy<T>) -> impl Strategy<Value = Step<T>> {
    let mask = prop_oneof![
        4 => (0_u8..6).prop_map(|bit| 1 << bit),
        1 => any::<u8>(),
    ];
    let add = (rule.clone(), id()).prop_map(|(rule, id)| Step::Add(Named { rule, id }));
    prop_oneof![
        6 => (any::<Index>(), rule, mask).prop_map(|(index, rule, mask)| Step::Blend(index, rule, mask)),
        2 => add,
        1 => any::<Index>().prop_map(Step::Remove),
        2 => (any::<Index>(), id()).prop_map(|(index, id)| Step::Rename(index, id)),
        1 => any::<Index>().prop_map(Step::Turn),
        1 => Just(Step::Clear),
    ]
}

/// At most so many steps for rules on parameters, and for breakers.
pub(crate) fn edit(hots: usize, breakers: usize) -> impl Strategy<Value = Edit> {
    let hots = prop::collection::vec(step(hot().boxed()), 0..=hots);
    let breakers = prop::collection::vec(step(breaker().boxed()), 0..=breakers);
    (hots, breakers).prop_map(|(hots, breakers)| Edit { hots, breakers })
}
