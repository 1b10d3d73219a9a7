//! Shows and replaces the rules that the dashboard can express, and keeps all other rules.

use std::collections::HashSet;

use serde_json::Value;

pub(super) use super::form::JavaForm;
use super::form::{ShownRule, carry, unnumbered};
use super::list::ListText;
use crate::base::pace::StepPace;
use crate::rule::{Rule, Rules, SystemRule};

/// The work per rule, which is written and read back.
const WORK: usize = 2;

/// Writes the rules that `form` can express, as the dashboard reads them.
pub(super) async fn written(rules: &Rules, form: JavaForm, pace: &mut StepPace) -> String {
    let mut values = ListText::default();
    for shown in shown(rules, form) {
        match shown {
            // The dashboard shows one limit per system rule, so each limit is written as a rule.
            Some(ShownRule {
                read: Rule::System(rule),
                ..
            }) => {
                let parts = parts(&rule).into_iter();
                let parts = parts.filter_map(|part| form.show(&part.into()));
                parts.for_each(|part| values.push(&part.value));
            }
            Some(shown) => values.push(&shown.value),
            None => {}
        }
        pace.spend(WORK).await;
    }
    values.into_text()
}

/// Converts each rule to `form`; `None` for a rule that the form cannot express.
fn shown(rules: &Rules, form: JavaForm) -> impl Iterator<Item = Option<ShownRule>> + Send {
    let mut with_authority = HashSet::new();
    rules.iter().map(move |rule| {
        let shown = form.show(rule)?;
        // The dashboard has one authority rule per resource: the first one.
        let is_another = form == JavaForm::Authority && !with_authority.insert(rule.resource());
        (!is_another).then_some(shown)
    })
}

/// The rules that are to come into force, and how they differ from the rules in force that the
/// dashboard shows.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) rules: Rules,
    /// The names of the rules in force that the form can express and that were not sent.
    missing: Vec<String>,
    /// The number of sent rules that are new or changed.
    edited: usize,
}

/// A [`Merged`] before its rules are checked together.
#[derive(Debug, Default)]
struct Merging {
    /// All rules after the change.
    after: Vec<Rule>,
    /// The names of the rules in force that the form can express and that were not sent.
    missing: Vec<String>,
    /// The number of sent rules that are new or changed.
    edited: usize,
}

/// The maximum number of rules that a message names.
const MOST_NAMED: usize = 5;

/// Replaces the rules in `rules` that `form` can express by the rules in `pushed`. A replaced rule
/// keeps its position, and the settings that the form has no field for.
pub(super) fn merged(rules: &Rules, form: JavaForm, pushed: Rules) -> Result<Merged, String> {
    if pushed.iter().any(Rule::is_default) {
        return Err("资源名 (resource) is \"*\", must be the name of one".to_owned());
    }
    let pushed: Vec<Rule> = pushed.into_iter().map(unnumbered).collect();
    let shown: Vec<_> = shown(rules, form).collect();
    let merging = if form == JavaForm::System {
        merged_system(rules, &shown, pushed)
    } else {
        merged_each(rules, &shown, pushed)
    };
    let rules = Rules::build(merging.after).map_err(|error| error.to_string())?;
    Ok(Merged {
        rules,
        missing: merging.missing,
        edited: merging.edited,
    })
}

/// Returns the rules that `form` can express, as they are read back from it.
pub(super) fn as_read(rules: &Rules, form: JavaForm) -> Vec<Rule> {
    let shown = shown(rules, form).flatten();
    shown.map(|shown| shown.read).collect()
}

/// Returns whether the rule that `value` describes in `form` is in `read`, the rules in force as
/// they are [read back](as_read).
pub(super) fn is_among(read: &[Rule], form: JavaForm, value: &Value) -> bool {
    let in_cluster = value["clusterMode"] == true;
    // A rule in cluster mode that cannot be shared is read as a rule of this process alone, which
    // must not count as known.
    let rule = form.read(value);
    let rule = rule.filter(|rule| rule.is_shared() == in_cluster);
    rule.is_some_and(|rule| {
        read.iter().any(|known| match (known, &rule) {
            (Rule::System(known), Rule::System(rule)) => {
                let known = parts(known);
                parts(rule).iter().all(|part| known.contains(part))
            }
            (known, rule) => known == rule,
        })
    })
}

impl Merged {
    /// Returns why the sent rules cannot come from a dashboard that has read the rules in force;
    /// `None` if they can. A form adds, changes or removes one rule, and sends all other rules as
    /// they were read.
    pub(super) fn why_not_read(&self) -> Option<String> {
        let count = self.missing.len();
        if count == 0 || (count == 1 && self.edited == 0) {
            return None;
        }
        let mut names = self.missing[..count.min(MOST_NAMED)].join(", ");
        if count > MOST_NAMED {
            names += &format!(" and {} more", count - MOST_NAMED);
        }
        let (rules, are) = if count == 1 {
            ("rule", "is")
        } else {
            ("rules", "are")
        };
        Some(format!(
            "{count} {rules} in force {are} missing: {names}. The dashboard has not read these \
             rules, or has forgotten them, so nothing has changed: open its list of rules of this \
             type, which reads them, and send again. A script that replaces all rules says \
             replace=all."
        ))
    }
}

/// Merges the `pushed` rules into `rules`, one by one. `shown` holds each of `rules` in its form;
/// `None` for a rule that the dashboard does not show.
fn merged_each(rules: &Rules, shown: &[Option<ShownRule>], pushed: Vec<Rule>) -> Merging {
    let mut pushed: Vec<Option<Rule>> = pushed.into_iter().map(Some).collect();
    let mut after: Vec<Option<Rule>> = vec![None; rules.len()];
    // Pairs equal rules first: if one of a resource's two rules is equal, the other rule has
    // changed. Rules that are now for another origin or of another kind are paired last.
    for is_same in [is_equal, is_alike, is_of_same_calls, is_of_same_resource] {
        for ((rule, shown), after) in rules.iter().zip(shown).zip(&mut after) {
            let Some(shown) = shown.as_ref().filter(|_| after.is_none()) else {
                continue;
            };
            let mut left = pushed.iter_mut();
            let found = left.find(|it| it.as_ref().is_some_and(|it| is_same(&shown.read, it)));
            *after = found.and_then(Option::take).map(|new| carry(&new, rule));
        }
    }
    let mut merging = Merging::default();
    for ((rule, shown), after) in rules.iter().zip(shown).zip(after) {
        match (shown, after) {
            (None, _) => merging.after.push(rule.clone()),
            (Some(_), None) => merging.missing.push(name(rule)),
            (Some(_), Some(after)) => {
                merging.edited += usize::from(after != *rule);
                merging.after.push(after);
            }
        }
    }
    let new = pushed.into_iter().flatten();
    let before = merging.after.len();
    merging.after.extend(new);
    merging.edited += merging.after.len() - before;
    merging
}

fn name(rule: &Rule) -> String {
    format!("{} {:?}", rule.kind(), rule.resource())
}

fn is_equal(shown: &Rule, pushed: &Rule) -> bool {
    shown == pushed
}

/// Returns whether both rules limit the same calls in the same way.
fn is_alike(shown: &Rule, pushed: &Rule) -> bool {
    let is_same = match (shown, pushed) {
        (Rule::CircuitBreaker(shown), Rule::CircuitBreaker(pushed)) => {
            shown.get_slow_ratio().is_some() == pushed.get_slow_ratio().is_some()
                && shown.get_error_count().is_some() == pushed.get_error_count().is_some()
        }
        (Rule::Keyed(shown), Rule::Keyed(pushed)) => {
            shown.get_param_at() == pushed.get_param_at()
                && shown.is_concurrency() == pushed.is_concurrency()
        }
        _ => true,
    };
    is_same && is_of_same_calls(shown, pushed)
}

/// Returns whether both rules have the same kind, resource and origin.
fn is_of_same_calls(shown: &Rule, pushed: &Rule) -> bool {
    let origin = |rule: &Rule| match rule {
        Rule::Flow(rule) => rule.get_for_origin().map(str::to_owned),
        Rule::Isolation(rule) => rule.get_for_origin().map(str::to_owned),
        _ => None,
    };
    shown.kind() == pushed.kind()
        && shown.resource() == pushed.resource()
        && origin(shown) == origin(pushed)
}

fn is_of_same_resource(shown: &Rule, pushed: &Rule) -> bool {
    shown.resource() == pushed.resource()
}

/// Copies one limit of the first rule to the second rule; `None` if the first rule does not have
/// it.
type CopyLimit = fn(&SystemRule, SystemRule) -> Option<SystemRule>;

/// The limits that a system rule can have, with Sentinel's names, in the order in which the
/// dashboard offers them.
const LIMITS: [(&str, CopyLimit); 5] = [
    ("highestSystemLoad", |from, to| {
        Some(to.load(from.get_load()?).capacity(from.get_capacity()))
    }),
    ("avgRt", |from, to| Some(to.rt(from.get_rt()?))),
    ("maxThread", |from, to| {
        Some(to.concurrency(from.get_concurrency()?))
    }),
    ("qps", |from, to| Some(to.qps(from.get_qps()?))),
    ("highestCpuUsage", |from, to| Some(to.cpu(from.get_cpu()?))),
];

/// Splits `rule` into one rule per limit.
fn parts(rule: &SystemRule) -> Vec<SystemRule> {
    let parts = LIMITS.iter();
    parts
        .filter_map(|(_, limit)| limit(rule, SystemRule::new()))
        .collect()
}

/// Merges system rules. The dashboard has a rule for each limit; limits that came from one rule
/// become one rule again.
fn merged_system(rules: &Rules, shown: &[Option<ShownRule>], pushed: Vec<Rule>) -> Merging {
    let pushed = pushed.into_iter().flat_map(|rule| match rule {
        Rule::System(rule) => parts(&rule),
        _ => Vec::new(),
    });
    let mut pushed: Vec<SystemRule> = pushed.collect();
    let mut merging = Merging::default();
    for (rule, shown) in rules.iter().zip(shown) {
        let Some(ShownRule {
            read: Rule::System(read),
            ..
        }) = shown
        else {
            merging.after.push(rule.clone());
            continue;
        };
        let mut new = SystemRule::new();
        for (name, limit) in LIMITS {
            let Some(old) = limit(read, SystemRule::new()) else {
                continue;
            };
            let of_kind = |it: &SystemRule| limit(it, SystemRule::new()).is_some();
            // Pairs an equal limit first, and else any limit of the same kind.
            let place = pushed.iter().position(|it| *it == old);
            let place = place.or_else(|| pushed.iter().position(of_kind));
            match place {
                Some(place) => {
                    let part = pushed.remove(place);
                    merging.edited += usize::from(part != old);
                    new = limit(&part, new.clone()).unwrap_or(new);
                }
                None => merging.missing.push(format!("system {name:?}")),
            }
        }
        if new != SystemRule::new() {
            merging.after.push(carry(&new.into(), rule));
        }
    }
    merging.edited += pushed.len();
    merging.after.extend(pushed.into_iter().map(Rule::from));
    merging
}
