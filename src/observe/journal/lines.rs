//! The log lines of a journal: their fields and levels.

use std::collections::HashMap;
use std::time::Duration;

use tracing::{debug, error, info, warn};

use super::Changed;
use super::counts::most_of;
use super::episodes::{ByKind, Refusals, Stage};
use super::shedding::{SheddingLine, SheddingStage};
use crate::blocked::BlockKind;
use crate::breaker::BreakerState;
use crate::read::write_text;
use crate::rule::{Rule, Rules};

/// The target of all events.
pub(super) const TARGET: &str = "tower_sentinel";

/// An event to log.
#[derive(Debug)]
pub(super) enum LogLine {
    Refusals(Refusals),
    /// The refusals of the episodes that got no line.
    MoreRefusals {
        resources: u64,
        refused: u64,
        names: String,
    },
    Breaker(Changed),
    /// The last change of a breaker that flaps, and the number of changes.
    Flapped(Changed, u64),
    /// The changes of breakers that got no line.
    MoreBreakers {
        changes: u64,
        names: String,
    },
    /// The number of changes of the store that got no line.
    MoreStore(u64),
    /// The number of all rules, and how many of them were added, changed and removed.
    RulesInForce {
        rules: usize,
        added: usize,
        changed: usize,
        removed: usize,
    },
    /// The name of a source of rules, and its error unless it has recovered.
    Source(String, Option<String>),
    /// A problem, and the number of calls with it.
    SilentProblem(SilentProblem, u64),
    Shedding(SheddingLine),
    /// The number of panics in hooks.
    HookPanicked(u64),
    /// The kind of the error for which the store is down.
    StoreDown(&'static str),
    /// How long the store was down.
    StoreBack(Duration),
    /// The number of requests that the store has refused.
    StoreRefuses(u64),
}

/// A problem that no refusal and no error shows.
#[derive(Clone, Copy, Debug)]
pub(super) enum SilentProblem {
    /// Keys without a separate quota share one quota.
    KeysShare,
    /// Calls reach a keyed rule without a key.
    NoKey,
    /// Tables have no place for a resource, an origin or a context.
    NoPlace,
}

// === impl LogLine ===

impl LogLine {
    /// Creates the line on a reload: counts the rules that were added, changed and removed.
    pub(super) fn rules_in_force(before: &Rules, now: &Rules) -> Self {
        let by_id = |rules: &Rules| -> HashMap<String, Rule> {
            let ids = rules.iter().enumerate();
            ids.map(|(place, rule)| (rules.id(place), rule.clone()))
                .collect()
        };
        let [old, new] = [before, now].map(by_id);
        let known = new
            .iter()
            .filter_map(|(id, rule)| Some((old.get(id)?, rule)));
        let (mut kept, mut changed) = (0, 0);
        for (old, new) in known {
            kept += 1;
            changed += usize::from(old != new);
        }
        Self::RulesInForce {
            rules: now.len(),
            added: now.len() - kept,
            changed,
            removed: before.len() - kept,
        }
    }

    pub(super) fn write(&self) {
        match self {
            Self::Refusals(refusals) => write_refusals(refusals),
            Self::MoreRefusals {
                resources,
                refused,
                names,
            } => info!(
                target: TARGET,
                {
                    sentinel.resources = *resources,
                    sentinel.refused = *refused,
                    sentinel.names = %escaped(names)
                },
                "more refusals"
            ),
            Self::Breaker(change) => write_breaker(change),
            Self::Flapped(change, changes) => write_flapped(change, *changes),
            Self::MoreBreakers { changes, names } => info!(
                target: TARGET,
                {
                    sentinel.changes = *changes,
                    sentinel.names = %escaped(names)
                },
                "more changes of breakers"
            ),
            Self::MoreStore(changes) => info!(
                target: TARGET,
                {
                    sentinel.changes = *changes
                },
                "more changes of the store"
            ),
            Self::RulesInForce {
                rules,
                added,
                changed,
                removed,
            } => info!(
                target: TARGET,
                {
                    sentinel.rules = *rules as u64,
                    sentinel.added = *added as u64,
                    sentinel.changed = *changed as u64,
                    sentinel.removed = *removed as u64
                },
                "rules in force"
            ),
            Self::Source(name, Some(error)) => warn!(
                target: TARGET,
                {
                    sentinel.source = %escaped(name),
                    sentinel.error = %escaped(error)
                },
                "rules kept"
            ),
            Self::Source(name, None) => info!(
                target: TARGET,
                {
                    sentinel.source = %escaped(name)
                },
                "rules readable again"
            ),
            Self::SilentProblem(problem, count) => write_silent_problem(*problem, *count),
            Self::Shedding(line) => write_shedding(line),
            Self::HookPanicked(count) => error!(
                target: TARGET,
                {
                    sentinel.panics = *count
                },
                "hook panicked"
            ),
            Self::StoreDown(kind) => warn!(
                target: TARGET,
                {
                    sentinel.error = *kind
                },
                "store down"
            ),
            Self::StoreBack(after) => info!(
                target: TARGET,
                {
                    sentinel.seconds = after.as_secs()
                },
                "store back"
            ),
            Self::StoreRefuses(count) => warn!(
                target: TARGET,
                {
                    sentinel.refused = *count
                },
                "store refuses"
            ),
        }
    }
}

fn write_refusals(refusals: &Refusals) {
    let (resource, direction) = match &refusals.key.0 {
        Some((name, direction)) => (escaped(name), *direction),
        None => ("others".to_owned(), "any"),
    };
    let refused: u64 = refusals.by_kind.iter().sum();
    let most = most_of(&refusals.by_kind).terms().label;
    let (seconds, reasons) = (refusals.lasted.as_secs(), reasons(&refusals.by_kind));
    match refusals.stage {
        Stage::Began => warn!(
            target: TARGET,
            {
                sentinel.resource = %resource,
                sentinel.direction = direction,
                sentinel.reason = most,
                sentinel.rule = %escaped(refusals.rule.as_deref().unwrap_or_default()),
                sentinel.refused = refused
            },
            "refusals began"
        ),
        Stage::Ongoing => info!(
            target: TARGET,
            {
                sentinel.resource = %resource,
                sentinel.direction = direction,
                sentinel.refused = refused,
                sentinel.seconds = seconds,
                sentinel.reasons = %reasons
            },
            "refusals go on"
        ),
        Stage::Ended => info!(
            target: TARGET,
            {
                sentinel.resource = %resource,
                sentinel.direction = direction,
                sentinel.refused = refused,
                sentinel.seconds = seconds,
                sentinel.reasons = %reasons
            },
            "refusals ended"
        ),
    }
}

fn write_shedding(line: &SheddingLine) {
    let (resource, direction) = match &line.key.0 {
        Some((name, direction)) => (escaped(name), *direction),
        None => ("others".to_owned(), "any"),
    };
    match &line.stage {
        SheddingStage::Began { classes, bound } => warn!(
            target: TARGET,
            {
                sentinel.resource = %resource,
                sentinel.direction = direction,
                sentinel.classes = %classes,
                sentinel.critical_bound = u64::from(*bound)
            },
            "shedding began"
        ),
        SheddingStage::Critical => warn!(
            target: TARGET,
            {
                sentinel.resource = %resource,
                sentinel.direction = direction
            },
            "critical calls are refused"
        ),
        SheddingStage::Ended { lasted, refused } => info!(
            target: TARGET,
            {
                sentinel.resource = %resource,
                sentinel.direction = direction,
                sentinel.seconds = lasted.as_secs(),
                sentinel.refused = %refused
            },
            "shedding ended"
        ),
    }
}

fn write_breaker(change: &Changed) {
    let (resource, rule) = (escaped(&change.resource), escaped(&change.rule));
    let (direction, from, to) = (change.direction, change.from.as_str(), change.to.as_str());
    let value = change.value;
    macro_rules! write {
        ($level:ident, $message:literal) => {
            $level!(
                target: TARGET,
                {
                    sentinel.resource = %resource,
                    sentinel.direction = direction,
                    sentinel.rule = %rule,
                    sentinel.from = from,
                    sentinel.to = to,
                    sentinel.value = value
                },
                $message
            )
        };
    }
    match change.to {
        BreakerState::Open => write!(warn, "breaker opened"),
        BreakerState::Closed => write!(info, "breaker closed"),
        BreakerState::HalfOpen => write!(debug, "breaker half-open"),
    }
}

fn write_flapped(change: &Changed, changes: u64) {
    let (resource, rule) = (escaped(&change.resource), escaped(&change.rule));
    macro_rules! write {
        ($level:ident) => {
            $level!(
                target: TARGET,
                {
                    sentinel.resource = %resource,
                    sentinel.direction = change.direction,
                    sentinel.rule = %rule,
                    sentinel.changes = changes,
                    sentinel.to = change.to.as_str()
                },
                "breaker flapped"
            )
        };
    }
    match change.to {
        BreakerState::Open => write!(warn),
        BreakerState::Closed | BreakerState::HalfOpen => write!(info),
    }
}

fn write_silent_problem(problem: SilentProblem, count: u64) {
    match problem {
        SilentProblem::KeysShare => warn!(
            target: TARGET,
            {
                sentinel.calls = count,
                sentinel.hint = "a larger `max_keys` of the rule, unless somebody makes keys up"
            },
            "keys share a quota"
        ),
        SilentProblem::NoKey => warn!(
            target: TARGET,
            {
                sentinel.calls = count,
                sentinel.hint = "`.origin(…)` or `.param(…)` of the layer, and connect info for addresses"
            },
            "calls without a key"
        ),
        SilentProblem::NoPlace => warn!(
            target: TARGET,
            {
                sentinel.calls = count,
                sentinel.hint = "one name for paths that no route matches, or a larger `max_resources` or `max_origins`"
            },
            "no place for names"
        ),
    }
}

/// Writes the number of refusals of each kind that occurred, such as `flow=3 system=1`.
fn reasons(by_kind: &ByKind) -> String {
    let all = BlockKind::ALL.into_iter().zip(by_kind);
    let there = all.filter(|(_, count)| **count > 0);
    let texts: Vec<_> = there
        .map(|(kind, count)| format!("{}={count}", kind.terms().label))
        .collect();
    texts.join(" ")
}

/// Escapes `name`, so that it can neither end a line nor change the direction of the text.
pub(super) fn escaped(name: &str) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut text, name);
    text[1..text.len() - 1].to_owned()
}
