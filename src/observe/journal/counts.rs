//! Compares the counters of an engine at successive polls of the journal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::episodes::ByKind;
use super::lines::{LogLine, SilentProblem};
use crate::blocked::BlockKind;
use crate::clock::Tick;
use crate::observe::rows::may_refuse;
use crate::read::read_resources;
use crate::rule::{RuleSet, Rules};
use crate::sentinel::Sentinel;
use crate::source::WatchStatus;

/// A warning about a counter is repeated only if the counter did not rise for this long.
const CALM: Duration = Duration::from_secs(600);

/// A resource with a direction. `None` stands for all resources whose names callers can make up.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct EpisodeKey(pub(super) Option<(Arc<str>, &'static str)>);

impl EpisodeKey {
    /// Returns the name that summaries show.
    pub(super) fn name(&self) -> String {
        match &self.0 {
            Some((name, _)) => name.to_string(),
            None => "others".to_owned(),
        }
    }
}

/// The refusals of a resource since the last poll.
#[derive(Debug)]
pub(super) struct Growth {
    pub(super) key: EpisodeKey,
    pub(super) by_kind: ByKind,
    /// The rule whose refusals have grown most, among the rules that can have refused these calls.
    pub(super) rule: Option<String>,
}

/// The counters at the last poll.
#[derive(Debug)]
pub(super) struct Counts {
    /// The refusals of the resources that are logged by name, by the ids of the resources.
    listed: HashMap<u64, ByKind>,
    /// The highest id of a resource so far: a resource with a higher id is new.
    newest: Option<u64>,
    /// The refusals of all resources, including evicted ones.
    total: ByKind,
    /// The refusals of each rule, by its id.
    by_rule: HashMap<Arc<str>, u64>,
    /// The rules in force, with their version.
    rules: (u64, Rules),
    /// Calls that were judged on a shared quota of keys.
    overflows: Rise,
    /// Calls without a key.
    missing: Rise,
    /// Calls with a name for which a table had no place.
    names: Rise,
    /// Panics of hooks.
    hook_panics: u64,
}

/// A counter, and the time of its last rise.
#[derive(Debug, Default)]
struct Rise {
    count: u64,
    last: Option<Tick>,
}

/// A watched source of rules.
#[derive(Debug)]
pub(super) struct Watched {
    name: String,
    status: WatchStatus,
    /// Whether the source could be read at the last poll.
    was_up: bool,
}

/// The counters that one poll reads; the fields are as in [`Counts`].
#[derive(Debug, Default)]
struct SeenCounts {
    /// The id, the name and the refusals of each resource that is logged by name.
    listed: Vec<(u64, EpisodeKey, ByKind)>,
    newest: Option<u64>,
    total: ByKind,
    overflows: u64,
    missing: u64,
}

/// Returns the growth of each count from `before` to `now`.
fn difference(now: &ByKind, before: &ByKind) -> ByKind {
    std::array::from_fn(|kind| now[kind].saturating_sub(before[kind]))
}

impl SeenCounts {
    fn of(sentinel: &Sentinel) -> Self {
        let mut seen = Self::default();
        let add = |total: &mut ByKind, more: &ByKind| {
            for (sum, more) in total.iter_mut().zip(more) {
                *sum = sum.wrapping_add(*more);
            }
        };
        let gone = read_resources(sentinel.registry(), &mut |reading| {
            let by_kind = reading.totals().block_by;
            seen.newest = seen.newest.max(Some(reading.id()));
            add(&mut seen.total, &by_kind);
            if reading.is_listed() {
                let name = (reading.name().clone(), reading.direction().as_str());
                seen.listed
                    .push((reading.id(), EpisodeKey(Some(name)), by_kind));
            }
            for params in reading.keyed_rules() {
                seen.overflows = seen.overflows.saturating_add(params.overflows());
                seen.missing = seen.missing.saturating_add(params.missing());
            }
        });
        for totals in &gone.totals {
            add(&mut seen.total, &totals.block_by);
        }
        seen
    }
}

impl Counts {
    /// Reads the counts with which the first poll compares. So earlier events are not logged.
    pub(super) fn of(sentinel: &Sentinel) -> Self {
        let seen = SeenCounts::of(sentinel);
        let rules = sentinel.registry().rules();
        let listed = seen.listed.into_iter();
        let rise = |count| Rise { count, last: None };
        Self {
            listed: listed.map(|(id, _, by_kind)| (id, by_kind)).collect(),
            newest: seen.newest,
            total: seen.total,
            by_rule: refused_by(&rules),
            rules: (rules.version(), rules.rules().clone()),
            overflows: rise(seen.overflows),
            missing: rise(seen.missing),
            names: rise(sentinel.registry().overflowed()),
            hook_panics: sentinel.hooks().panics(),
        }
    }

    /// Returns the refusals since the last poll, and lines about everything else.
    pub(super) fn poll(&mut self, sentinel: &Sentinel, now: Tick) -> (Vec<Growth>, Vec<LogLine>) {
        let seen = SeenCounts::of(sentinel);
        let rules = sentinel.registry().rules();
        let by_rule = refused_by(&rules);
        let rule = |key: &EpisodeKey, by_kind: &ByKind| {
            let grown = |id: &Arc<str>| {
                let before = self.by_rule.get(id).copied().unwrap_or_default();
                by_rule.get(id).map_or(0, |now| now.saturating_sub(before))
            };
            rule_that_grew_most(&rules, key, by_kind, grown)
        };
        let mut growth = Vec::new();
        let mut others = difference(&seen.total, &self.total);
        let mut listed = HashMap::with_capacity(seen.listed.len());
        for (id, key, by_kind) in seen.listed {
            let is_new = self.newest.is_none_or(|newest| id > newest);
            let before = match self.listed.get(&id) {
                Some(before) => *before,
                None if is_new => ByKind::default(),
                // The resource was not listed at the last poll, so its refusals until now count as
                // `others`.
                None => by_kind,
            };
            listed.insert(id, by_kind);
            let more = difference(&by_kind, &before);
            others = difference(&others, &more);
            if more.iter().any(|count| *count > 0) {
                let rule = rule(&key, &more);
                growth.push(Growth {
                    key,
                    by_kind: more,
                    rule,
                });
            }
        }
        if others.iter().any(|count| *count > 0) {
            let rule = rule(&EpisodeKey(None), &others);
            growth.push(Growth {
                key: EpisodeKey(None),
                by_kind: others,
                rule,
            });
        }
        (self.listed, self.newest, self.total) = (listed, seen.newest.max(self.newest), seen.total);
        self.by_rule = by_rule;

        let mut lines = Vec::new();
        if rules.version() != self.rules.0 {
            let before =
                std::mem::replace(&mut self.rules, (rules.version(), rules.rules().clone()));
            lines.push(LogLine::rules_in_force(&before.1, rules.rules()));
        }
        for (rise, count, problem) in [
            (
                &mut self.overflows,
                seen.overflows,
                SilentProblem::KeysShare,
            ),
            (&mut self.missing, seen.missing, SilentProblem::NoKey),
            (
                &mut self.names,
                sentinel.registry().overflowed(),
                SilentProblem::NoPlace,
            ),
        ] {
            lines.extend(
                rise.poll(count, now)
                    .map(|more| LogLine::SilentProblem(problem, more)),
            );
        }
        let panics = sentinel.hooks().panics();
        if panics > self.hook_panics {
            lines.push(LogLine::HookPanicked(panics - self.hook_panics));
            self.hook_panics = panics;
        }
        (growth, lines)
    }
}

/// Returns the refusals of each rule, by its id.
fn refused_by(rules: &RuleSet) -> HashMap<Arc<str>, u64> {
    let labels = rules.listed().with_labels();
    labels
        .map(|(_, label)| (label.id.clone(), label.refused()))
        .collect()
}

/// Returns the rule whose refusals have `grown` most, among the rules that can refuse with the most
/// frequent kind.
fn rule_that_grew_most(
    rules: &RuleSet,
    key: &EpisodeKey,
    by_kind: &ByKind,
    grown: impl Fn(&Arc<str>) -> u64,
) -> Option<String> {
    let kind = most_of(by_kind);
    let listed = rules.listed().with_labels();
    let candidates = listed.filter(|(rule, _)| {
        let is_its = match &key.0 {
            Some((name, _)) => rule.resource() == &**name,
            None => false,
        };
        let is_for_all = rule.is_default() || kind == BlockKind::System;
        may_refuse(rule, kind) && (is_its || is_for_all)
    });
    let most = candidates
        .map(|(_, label)| (grown(&label.id), &label.id))
        .max_by_key(|it| it.0);
    most.filter(|(count, _)| *count > 0)
        .map(|(_, id)| id.to_string())
}

/// Returns the most frequent kind of refusals.
pub(super) fn most_of(by_kind: &ByKind) -> BlockKind {
    let all = BlockKind::ALL.into_iter().zip(by_kind);
    all.max_by_key(|(_, count)| **count)
        .map_or(BlockKind::Flow, |(kind, _)| kind)
}

impl Rise {
    /// Returns by how much the counter has risen, if it had not risen for [`CALM`] before.
    fn poll(&mut self, count: u64, now: Tick) -> Option<u64> {
        let more = count.saturating_sub(self.count);
        self.count = count;
        if more == 0 {
            return None;
        }
        let was_calm = self.last.is_none_or(|last| now - last >= CALM);
        self.last = Some(now);
        was_calm.then_some(more)
    }
}

impl Watched {
    pub(super) fn new(name: String, status: WatchStatus) -> Self {
        Self {
            name,
            status,
            was_up: true,
        }
    }

    pub(super) fn poll(&mut self) -> Option<LogLine> {
        let error = self.status.last_error();
        let is_up = error.is_none();
        if is_up == self.was_up {
            return None;
        }
        self.was_up = is_up;
        let error = error.map(|error| error.to_string());
        Some(LogLine::Source(self.name.clone(), error))
    }
}
