//! The resources that have series in the metrics, and the kinds of refusals to show even if none
//! was counted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::base::pace::StepPace;
use crate::blocked::BlockKind;
use crate::call::Direction;
use crate::read::{Details, ResourceReading};
use crate::rule::{MissingKey, Rule, RuleSelection, RuleSet};
use crate::stat::{Histogram, Totals};

/// A resource with series. Resources whose names are written alike are added up in one row.
#[derive(Debug)]
pub(super) struct Row {
    /// The id of the resource; the smallest id if several resources are added up.
    pub(super) id: u64,
    pub(super) name: Arc<str>,
    pub(super) direction: Direction,
    pub(super) totals: Totals,
    pub(super) details: Details,
}

/// The kinds of refusals to show even if none was counted, because a rule can refuse calls with the
/// kind. Each set has a bit for each [`BlockKind`].
#[derive(Debug, Default)]
pub(super) struct Reasons<'a> {
    /// The kinds of rules that name a resource, by its name.
    of_one: HashMap<&'a str, u16>,
    /// The kinds of rules for all resources.
    of_all: u16,
    /// The kinds of system rules, which apply to inbound calls.
    of_inbound: u16,
}

/// Calls per second that flow rules allow for each resource, from rules that count all its calls.
#[derive(Debug, Default)]
pub(super) struct ResourceLimits<'a> {
    /// The limits of the rules that name a resource, by its name.
    of_one: HashMap<&'a str, Scopes>,
    /// The limits of the rules for all resources, for resources that no rule names.
    of_all: Scopes,
}

/// The tightest limit within a process, and over all processes of a store, in calls per second.
type Scopes = [Option<f64>; 2];

/// The labels of the two [`Scopes`].
const SCOPES: [&str; 2] = ["process", "shared"];

/// Returns whether `rule` can refuse a call with `kind`.
pub(super) fn may_refuse(rule: &Rule, kind: BlockKind) -> bool {
    match kind {
        BlockKind::NoTimer => rule.lets_wait(),
        BlockKind::MissingKey => rule.missing_key() == Some(MissingKey::Refuse),
        BlockKind::Store => rule.is_shared(),
        of_rules => rule.info().refuses() == of_rules,
    }
}

// === impl Row ===

impl Row {
    pub(super) fn new(reading: &ResourceReading<'_>, totals: Totals) -> Self {
        Self {
            id: reading.id(),
            name: reading.name().clone(),
            direction: reading.direction(),
            totals,
            details: reading.details(),
        }
    }

    /// Sorts rows by name and direction, and merges rows with the same name and direction: a number
    /// and the text that is written like it are two resources of one name.
    pub(super) async fn sorted(
        rows: impl Iterator<Item = Box<Self>>,
        pace: &mut StepPace,
    ) -> BTreeMap<(Arc<str>, &'static str), Box<Self>> {
        let mut sorted: BTreeMap<_, Box<Self>> = BTreeMap::new();
        for row in rows {
            let key = (row.name.clone(), row.direction.as_str());
            match sorted.get_mut(&key) {
                Some(known) => known.merge(*row),
                None => _ = sorted.insert(key, row),
            }
            pace.spend(1).await;
        }
        sorted
    }

    /// Adds the figures of another resource of the same name and direction.
    fn merge(&mut self, other: Self) {
        self.id = self.id.min(other.id);
        self.totals.add(&other.totals);
        let (mine, others) = (&mut self.details, other.details);
        mine.concurrency = mine.concurrency.saturating_add(others.concurrency);
        mine.waiting = mine.waiting.saturating_add(others.waiting);
        mine.slots = match (mine.slots, others.slots) {
            (Some((used, limit)), Some((more, _))) => Some((used.saturating_add(more), limit)),
            (slots, other) => slots.or(other),
        };
        mine.shedding = match (mine.shedding, others.shedding) {
            (Some(mine), Some(others)) => Some(mine.plus(&others)),
            (mine, others) => mine.or(others),
        };
        // Both resources have breakers of the same rules, so either breaker can be shown.
        let known = mine.breakers.len();
        for breaker in others.breakers {
            let is_new = |it: &&str| {
                mine.breakers[..known]
                    .iter()
                    .all(|known| known.rule() != *it)
            };
            if Some(breaker.rule()).filter(is_new).is_some() {
                mine.breakers.push(breaker);
            }
        }
        let known = mine.keyed_rules.len();
        for params in others.keyed_rules {
            let is_new = |it: &&str| {
                let known = &mine.keyed_rules[..known];
                known.iter().all(|known| known.rule() != *it)
            };
            if Some(params.rule()).filter(is_new).is_some() {
                mine.keyed_rules.push(params);
            }
        }
        for budget in others.budgets {
            if mine
                .budgets
                .iter()
                .all(|known| known.rule() != budget.rule())
            {
                mine.budgets.push(budget);
            }
        }
        mine.histograms = match (mine.histograms.take(), others.histograms) {
            (Some(mine), Some(others)) => Some(add_each(mine, others)),
            (mine, others) => mine.or(others),
        };
    }
}

fn add_each([rt, waits]: [Histogram; 2], [more_rt, more_waits]: [Histogram; 2]) -> [Histogram; 2] {
    [rt.plus(&more_rt), waits.plus(&more_waits)]
}

// === impl Reasons ===

impl<'a> Reasons<'a> {
    pub(super) async fn of(rules: &'a RuleSet, pace: &mut StepPace) -> Self {
        let mut reasons = Self::default();
        if rules.part() != RuleSelection::Enforced {
            return reasons;
        }
        for rule in rules.rules().iter().filter(|rule| !rule.is_shadow()) {
            pace.spend(1).await;
            let kinds = BlockKind::ALL.into_iter();
            let bits = kinds
                .filter(|kind| may_refuse(rule, *kind))
                .fold(0, |bits, kind| bits | 1 << kind as u16);
            if let Rule::System(_) = rule {
                reasons.of_inbound |= bits;
            } else if rule.is_default() {
                reasons.of_all |= bits;
            } else {
                *reasons.of_one.entry(rule.resource()).or_default() |= bits;
            }
        }
        reasons
    }

    /// Returns the kinds to show for a resource, as a bit for each [`BlockKind`].
    pub(super) fn of_row(&self, row: &Row) -> u16 {
        let own = self.of_one.get(&*row.name).copied().unwrap_or_default();
        let inbound = match row.direction {
            Direction::Inbound => self.of_inbound,
            Direction::Outbound => 0,
        };
        own | self.of_all | inbound
    }
}

// === impl ResourceLimits ===

impl<'a> ResourceLimits<'a> {
    pub(super) async fn of(rules: &'a RuleSet, pace: &mut StepPace) -> Self {
        let mut limits = Self::default();
        if rules.part() != RuleSelection::Enforced {
            return limits;
        }
        for rule in rules.rules().iter().filter(|rule| !rule.is_shadow()) {
            pace.spend(1).await;
            if !matches!(rule, Rule::Flow(_)) {
                continue;
            }
            let scopes = if rule.is_default() {
                &mut limits.of_all
            } else {
                // A rule that limits only some calls gets an entry too: it replaces the default
                // rules.
                limits.of_one.entry(rule.resource()).or_default()
            };
            let rate = rule.limit().zip(rule.interval());
            let rate = rate.filter(|_| rule.limits_all_calls());
            if let Some((limit, interval)) = rate {
                let known = &mut scopes[usize::from(rule.is_shared())];
                let rate = limit / interval.as_secs_f64();
                *known = Some(known.map_or(rate, |known| known.min(rate)));
            }
        }
        limits
    }

    /// Returns the limits of a resource, each with its scope: the limits of the rules that name it,
    /// or else of the rules for all resources.
    pub(super) fn of_row(&self, row: &Row) -> impl Iterator<Item = (&'static str, f64)> + use<> {
        let scopes = self.of_one.get(&*row.name).unwrap_or(&self.of_all);
        let both = SCOPES.into_iter().zip(*scopes);
        both.filter_map(|(scope, limit)| Some((scope, limit?)))
    }
}
