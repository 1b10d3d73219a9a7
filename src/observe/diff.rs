//! Describes for people how a new set of rules differs from the old one.

use std::collections::HashMap;
use std::fmt::Write;

use super::span::time;
use crate::rule::{Rule, Rules, Setting};

/// One rule that is added, removed or changed.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) kind: &'static str,
    pub(super) resource: String,
    /// The id that the user gave to the rule.
    pub(super) id: Option<String>,
    /// The rule's settings before; `None` if it was added.
    pub(super) before: Option<String>,
    /// The rule's settings after; `None` if it was removed.
    pub(super) after: Option<String>,
}

/// Which settings are written in full.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Detail {
    Everything,
    /// Everything, but only the lengths of lists of origins and values.
    #[cfg(feature = "tracing")]
    NoValues,
}

/// The kind, resource and id of a rule. An old and a new rule with the same identity are one rule
/// whose settings have changed.
type RuleIdentity<'a> = (&'static str, &'a str, Option<&'a str>);

/// Returns the differences between the rules `before` and `after`. Equal rules are left out. Other
/// rules of the same kind, resource and id are paired in their order. Pairs and removed rules come
/// in the order of `before`, then rules of a new kind, resource or id.
#[cfg(all(feature = "page", feature = "serde"))]
pub(super) fn differences(before: &Rules, after: &Rules) -> Vec<Difference> {
    compared(before, after, Detail::Everything)
}

/// Returns the differences for a log: without the origins and values in lists, which can be names
/// of people.
#[cfg(feature = "tracing")]
pub(super) fn differences_without_values(before: &Rules, after: &Rules) -> Vec<Difference> {
    compared(before, after, Detail::NoValues)
}

/// Pairs the rules before and after, and returns the pairs that differ.
fn compared(before: &Rules, after: &Rules, detail: Detail) -> Vec<Difference> {
    let (old, mut new) = (grouped(before), grouped(after));
    let mut found = Vec::new();
    for (identity, mut old) in old {
        let mut new = take(&mut new, identity);
        old.retain(|rule| match new.iter().position(|other| other == rule) {
            Some(place) => {
                new.remove(place);
                false
            }
            None => true,
        });
        let mut new = new.into_iter();
        for rule in old {
            found.push(Difference::new(identity, [Some(rule), new.next()], detail));
        }
        found.extend(new.map(|rule| Difference::new(identity, [None, Some(rule)], detail)));
    }
    for (identity, rules) in new {
        found.extend(
            rules
                .into_iter()
                .map(|rule| Difference::new(identity, [None, Some(rule)], detail)),
        );
    }
    found
}

/// Groups `rules` by identity, in the order of the first rule of each group.
fn grouped(rules: &Rules) -> Vec<(RuleIdentity<'_>, Vec<&Rule>)> {
    let mut groups: Vec<(RuleIdentity<'_>, Vec<&Rule>)> = Vec::new();
    let mut places = HashMap::new();
    for rule in rules {
        let identity = (rule.kind(), rule.resource(), rule.id());
        let place = *places.entry(identity).or_insert(groups.len());
        if place == groups.len() {
            groups.push((identity, Vec::new()));
        }
        groups[place].1.push(rule);
    }
    groups
}

/// Takes the rules of `identity` out of `groups`, and leaves their group empty.
fn take<'a>(
    groups: &mut [(RuleIdentity<'a>, Vec<&'a Rule>)],
    identity: RuleIdentity<'_>,
) -> Vec<&'a Rule> {
    let mut groups = groups.iter_mut();
    let found = groups.find(|(other, _)| *other == identity);
    found
        .map(|(_, rules)| std::mem::take(rules))
        .unwrap_or_default()
}

impl Difference {
    /// Creates the difference between a rule before and after the change.
    fn new(identity: RuleIdentity<'_>, rules: [Option<&Rule>; 2], detail: Detail) -> Self {
        let (kind, resource, id) = identity;
        let [before, after] = rules.map(|rule| rule.map(|rule| settings(rule, detail)));
        Self {
            kind,
            resource: resource.to_owned(),
            id: id.map(str::to_owned),
            before,
            after,
        }
    }
}

/// Writes the settings of `rule`, except the settings that are fields of a [`Difference`].
fn settings(rule: &Rule, detail: Detail) -> String {
    let mut text = String::new();
    for (name, value) in rule.settings().0 {
        if matches!(name, "kind" | "resource" | "id") {
            continue;
        }
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{name} = {}", written(&value, detail));
    }
    text
}

/// Writes the value of a setting.
fn written(value: &Setting, detail: Detail) -> String {
    let has_values = detail == Detail::Everything;
    match value {
        Setting::Texts(texts) if !has_values => format!("{} names", texts.len()),
        Setting::Thresholds(_, list) if !has_values => format!("{} values", list.len()),
        Setting::Text(text) => format!("{text:?}"),
        Setting::Texts(texts) => format!("{texts:?}"),
        Setting::Number(number) => number.to_string(),
        Setting::Count(count) => count.to_string(),
        Setting::Flag(flag) => flag.to_string(),
        Setting::Time(value) => time(*value),
        Setting::Thresholds(_, list) => {
            let each = list
                .iter()
                .map(|(key, threshold)| format!("{key:?}: {threshold}"));
            format!("{{{}}}", each.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::{AuthorityRule, FlowRule, IsolationRule, KeyedRule};

    /// Returns the differences as lines of text, with all settings.
    fn described(before: impl Into<Rules>, after: impl Into<Rules>) -> Vec<String> {
        in_detail(before, after, Detail::Everything)
    }

    fn in_detail(before: impl Into<Rules>, after: impl Into<Rules>, detail: Detail) -> Vec<String> {
        let all = compared(&before.into(), &after.into(), detail).into_iter();
        all.map(|it| {
            let id = it.id.map(|id| format!(" ({id})")).unwrap_or_default();
            let (before, after) = (it.before.as_deref(), it.after.as_deref());
            let [before, after] = [before, after].map(|it| it.unwrap_or("nothing"));
            format!("{} {}{id}: {before} -> {after}", it.kind, it.resource)
        })
        .collect()
    }

    #[test]
    fn equal_sets_in_another_order_do_not_differ() {
        let [a, b] = ["a", "b"].map(|name| FlowRule::per_second(name, 5));
        assert_eq!(
            described([a.clone(), b.clone(), a.clone()], [a.clone(), a, b]),
            [""; 0]
        );
    }

    #[test]
    fn a_rule_that_changes_is_one_difference() {
        let before = (
            FlowRule::per_second("a", 5).id("x"),
            FlowRule::per_second("b", 1),
            FlowRule::per_second("b", 2),
            IsolationRule::new("a", 3),
        );
        let after = (
            KeyedRule::per_minute("c", 7).except("ann", 9),
            FlowRule::per_second("b", 2),
            FlowRule::per_second("b", 4).shadow(),
            FlowRule::per_second("a", 6).id("x"),
            AuthorityRule::deny("a", ["x"]),
        );
        let expected = [
            "flow a (x): threshold = 5, interval = 1 s -> threshold = 6, interval = 1 s",
            "flow b: threshold = 1, interval = 1 s -> threshold = 4, interval = 1 s, shadow = true",
            "isolation a: max = 3 -> nothing",
            "keyed c: nothing -> threshold = 7, interval = 1 min, except = {\"ann\": 9}",
            "authority a: nothing -> deny = [\"x\"]",
        ];
        assert_eq!(described(before, after), expected);
    }

    #[cfg(feature = "tracing")]
    #[test]
    fn a_log_has_no_values_of_lists() {
        let after = (
            KeyedRule::per_minute("c", 7).except("ann", 9),
            AuthorityRule::deny("a", ["bob"]),
        );
        let expected = [
            "keyed c: nothing -> threshold = 7, interval = 1 min, except = 1 values",
            "authority a: nothing -> deny = 1 names",
        ];
        assert_eq!(in_detail(Rules::new(), after, Detail::NoValues), expected);
    }
}
