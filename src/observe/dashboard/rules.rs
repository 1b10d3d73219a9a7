//! Rules that the dashboard shows and replaces, among those that it does not know.

use std::collections::HashSet;

use serde_json::Value;

pub(super) use super::form::JavaForm;
use super::form::{ShownRule, carry};
use crate::rule::{Rule, Rules, SystemRule};

/// The rules of `rules` that `form` can say, as the dashboard reads them.
pub(super) fn written(rules: &Rules, form: JavaForm) -> String {
    let shown = shown(rules, form).into_iter().flatten();
    let values = shown.flat_map(|shown| match (&shown.read, form) {
        // It shows one limit of each.
        (Rule::System(rule), JavaForm::System) => {
            let parts = parts(rule).into_iter();
            let parts = parts.filter_map(|part| form.show(&part.into()));
            parts.map(|part| part.value).collect()
        }
        _ => vec![shown.value],
    });
    Value::Array(values.collect()).to_string()
}

/// Each rule of `rules` in `form`, if it has one.
fn shown(rules: &Rules, form: JavaForm) -> Vec<Option<ShownRule>> {
    let mut with_authority = HashSet::new();
    let show = |rule| {
        let shown = form.show(rule)?;
        // Of a resource there is only one.
        let is_another = form == JavaForm::Authority && !with_authority.insert(rule.resource());
        (!is_another).then_some(shown)
    };
    rules.iter().map(show).collect()
}

/// The rules that are in force once `pushed` has replaced those of `rules` that `form` can say.
/// They keep their places, and what the form lacks.
pub(super) fn merged(rules: &Rules, form: JavaForm, pushed: Rules) -> Result<Rules, String> {
    if pushed.iter().any(Rule::is_default) {
        return Err("resource is \"*\", must be the name of one".to_owned());
    }
    let shown = shown(rules, form);
    let after = if form == JavaForm::System {
        merged_system(rules, &shown, pushed)
    } else {
        merged_each(rules, &shown, pushed)
    };
    Rules::build(after).map_err(|error| error.to_string())
}

fn merged_each(rules: &Rules, shown: &[Option<ShownRule>], pushed: Rules) -> Vec<Rule> {
    let mut pushed: Vec<Option<Rule>> = pushed.into_iter().map(Some).collect();
    let mut after: Vec<Option<Rule>> = vec![None; rules.len()];
    // Equal ones first: of two rules of a resource, the other one has changed.
    for is_same in [is_equal, is_alike, is_of_same_calls] {
        for ((rule, shown), after) in rules.iter().zip(shown).zip(&mut after) {
            let Some(shown) = shown.as_ref().filter(|_| after.is_none()) else {
                continue;
            };
            let mut left = pushed.iter_mut();
            let found = left.find(|it| it.as_ref().is_some_and(|it| is_same(&shown.read, it)));
            *after = found.and_then(Option::take).map(|new| carry(&new, rule));
        }
    }
    let kept = rules.iter().zip(shown).zip(after);
    let kept = kept.filter_map(|((rule, shown), after)| match shown {
        Some(_) => after,
        None => Some(rule.clone()),
    });
    kept.chain(pushed.into_iter().flatten()).collect()
}

fn is_equal(shown: &Rule, pushed: &Rule) -> bool {
    shown == pushed
}

/// Whether both limit the same calls in the same way.
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

fn is_of_same_calls(shown: &Rule, pushed: &Rule) -> bool {
    let origin = |rule: &Rule| match rule {
        Rule::Flow(rule) => rule.get_for_origin().map(str::to_owned),
        _ => None,
    };
    shown.kind() == pushed.kind()
        && shown.resource() == pushed.resource()
        && origin(shown) == origin(pushed)
}

/// The limits that a system rule may have, in the order of the dashboard's choice.
const LIMITS: [fn(&SystemRule, SystemRule) -> Option<SystemRule>; 5] = [
    |from, to| Some(to.load(from.get_load()?).capacity(from.get_capacity())),
    |from, to| Some(to.rt(from.get_rt()?)),
    |from, to| Some(to.concurrency(from.get_concurrency()?)),
    |from, to| Some(to.qps(from.get_qps()?)),
    |from, to| Some(to.cpu(from.get_cpu()?)),
];

/// A rule for each limit of `rule`.
fn parts(rule: &SystemRule) -> Vec<SystemRule> {
    let parts = LIMITS.iter();
    parts
        .filter_map(|limit| limit(rule, SystemRule::new()))
        .collect()
}

/// The dashboard has a rule for each limit. Those that came from one rule stay one.
fn merged_system(rules: &Rules, shown: &[Option<ShownRule>], pushed: Rules) -> Vec<Rule> {
    let pushed = pushed.into_iter().flat_map(|rule| match rule {
        Rule::System(rule) => parts(&rule),
        _ => Vec::new(),
    });
    let mut pushed: Vec<SystemRule> = pushed.collect();
    let mut after = Vec::new();
    for (rule, shown) in rules.iter().zip(shown) {
        let Some(ShownRule {
            read: Rule::System(read),
            ..
        }) = shown
        else {
            after.push(rule.clone());
            continue;
        };
        let mut new = SystemRule::new();
        for limit in LIMITS {
            let Some(old) = limit(read, SystemRule::new()) else {
                continue;
            };
            let of_kind = |it: &SystemRule| limit(it, SystemRule::new()).is_some();
            let place = pushed.iter().position(|it| *it == old);
            let place = place.or_else(|| pushed.iter().position(of_kind));
            if let Some(place) = place {
                let part = pushed.remove(place);
                new = limit(&part, new.clone()).unwrap_or(new);
            }
        }
        if new != SystemRule::new() {
            after.push(carry(&new.into(), rule));
        }
    }
    after.extend(pushed.into_iter().map(Rule::from));
    after
}
