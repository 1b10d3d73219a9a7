//! What a reload changes of a set of rules.

use proptest::sample::Index;

use super::breaker::Breaker;
use super::keyed::Keyed;
use super::rules::{Kind, Named, RuleSet};
use super::system::{Adaptive, Limits};

/// What is not there stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    pub(crate) keyed: Vec<Step<Keyed>>,
    pub(crate) breakers: Vec<Step<Breaker>>,
    /// The limit of each flow rule, and what part of it is lent.
    pub(crate) flows: Vec<(u32, Option<f64>)>,
    pub(crate) isolation: Option<u32>,
    pub(crate) limits: Option<Vec<Limits>>,
    pub(crate) adaptives: Option<[Adaptive; 2]>,
}

/// What becomes of the rules of one kind.
#[derive(Clone, Debug)]
pub(crate) enum Step<T> {
    /// One of them gets some of what another rule has.
    Blend(Index, T, u8),
    Add(Named<T>),
    Remove(Index),
    Rename(Index, Option<usize>),
    Turn(Index),
    /// All of them go.
    Clear,
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

impl RuleSet {
    pub(crate) fn edit(&mut self, edit: Edit) {
        for step in edit.keyed {
            step.apply(&mut self.keyed);
        }
        for step in edit.breakers {
            step.apply(&mut self.breakers);
        }
        self.keep_two_at_once();
        for (flow, (limit, ratio)) in self.flows.iter_mut().zip(edit.flows) {
            flow.limit = limit;
            flow.ratio = ratio.unwrap_or(flow.ratio);
        }
        if let Some((own, most)) = self.isolation.as_mut().zip(edit.isolation) {
            own.1 = most;
        }
        if let Some(limits) = edit.limits {
            self.limits = limits;
        }
        for (own, adaptive) in self
            .adaptives
            .values_mut()
            .zip(edit.adaptives.iter().flatten())
        {
            *own = *adaptive;
        }
    }
}
