//! Reads and writes rules in the form of this crate, with a key for each setting.

use super::fields::Fields;
use super::store;
use super::time;
use super::value::{Datum, Entries, find};
use crate::rule::{
    Accessor, FieldTerms, HasFields, KeyedRule, Needed, Rule, RuleKind, Setting, each_kind,
};

/// 2⁵³: a floating-point number cannot express every whole number above it.
const FIRST_GAP: f64 = 9_007_199_254_740_992.0;

const A_RANGE_OF_SHARES: &str = "a range such as \"0.7..0.9\"";
const A_RANGE_OF_BYTES: &str = "a range such as \"1048576..2097152\"";

/// Reads a rule of one kind from a table whose `kind` was read.
type ReadRule = fn(&mut Fields<'_>) -> Rule;

/// The kinds of rules by [name](Rule::kind).
const KINDS: &[(&str, ReadRule)] = {
    macro_rules! readers {
        ($($kind:ident($rule:ident)),* $(,)?) => {
            &[
                $((<crate::rule::$rule as RuleKind>::NAME, read::<crate::rule::$rule>),)*
                // Sentinel's name of the kind.
                ("hot-param", read::<KeyedRule>),
            ]
        };
    }
    each_kind!(readers)
};

// === reading ===

/// Returns whether `value` looks like a rule of this form.
pub(super) fn is_rule(value: &Datum) -> bool {
    matches!(value, Datum::Table(table) if find(table, "kind").is_some())
}

/// Reads the rule in a table.
pub(super) fn rule(fields: &mut Fields<'_>) -> Option<Rule> {
    let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
    let Some(place) = fields.needed_choice("kind", &names) else {
        // Without a kind, no key can be reported as unknown.
        fields.know_all();
        return None;
    };
    let is_shadow = fields.is_set("shadow");
    let (_, read) = KINDS[place];
    let rule = read(fields);
    if let (true, Some(why)) = (fields.has("shared"), rule.info().never_shared()) {
        if fields.is_set("shared") {
            fields.refuse("shared", why);
        }
    }
    Some(if is_shadow { rule.shadow() } else { rule })
}

/// Reads the settings of a rule, in the order of its `FIELDS`.
fn read<R: HasFields>(fields: &mut Fields<'_>) -> Rule {
    let mut rule = R::plain();
    for field in R::FIELDS.iter().copied().flatten() {
        fields.keys.push((field.terms.shown_as, field.terms.name));
        rule = read_setting(rule, &field.access, field.terms.name, fields);
        check_setting(field.terms, wanted(&field.access), fields);
    }
    for name in R::RETIRED {
        if fields.has(name) {
            fields.known(&[name]);
            fields.warn(name, "ignored, as rules have no such setting any more");
        }
    }
    if let Some(choice) = R::ONE_OF {
        let is_chosen = |name: &&str| !matches!(fields.peek(name), None | Some(Datum::Flag(false)));
        if !choice.names.iter().any(is_chosen) {
            let allowed = format!("given {}", any_of(choice.names));
            fields.refuse_all(choice.without, allowed);
        }
    }
    rule.into()
}

/// Sets the setting `name` of `rule`, if the table has it.
fn read_setting<R>(
    rule: R,
    access: &Accessor<R>,
    name: &'static str,
    fields: &mut Fields<'_>,
) -> R {
    match *access {
        Accessor::Text(_, set) => with(rule, fields.text(name), set),
        Accessor::Texts(_, set) => with(rule, fields.texts(name), set),
        Accessor::Number(_, set) => with(rule, fields.number(name), set),
        Accessor::Count(_, set) => with(rule, fields.count(name), set),
        Accessor::Place(_, set) => with(rule, fields.whole(name, i32::MIN..=i32::MAX), set),
        Accessor::Flag(_, set) => with(rule, fields.flag(name), set),
        Accessor::Switch(_, set) => {
            if fields.is_set(name) {
                set(rule)
            } else {
                rule
            }
        }
        Accessor::Time(_, set) => with(rule, fields.time(name), set),
        Accessor::Choice(names, _, set) => with(rule, fields.choice(name, names), set),
        Accessor::Shares(_, set) => with(rule, fields.range(name, A_RANGE_OF_SHARES), set),
        Accessor::Bytes(_, set) => with(rule, fields.range(name, A_RANGE_OF_BYTES), set),
        Accessor::Thresholds(key, _, set) => {
            let read = |fields: &mut Fields<'_>| {
                (fields.needed_text(key), fields.needed_number("threshold"))
            };
            let mut rule = rule;
            for (name, threshold) in fields.tables(name, read) {
                rule = set(rule, name, threshold);
            }
            rule
        }
    }
}

/// Returns a description of the values that a setting can have in documents.
const fn wanted<R>(access: &Accessor<R>) -> &'static str {
    match access {
        Accessor::Text(..) => "a text",
        Accessor::Texts(..) => "a list of texts",
        Accessor::Number(..) => "a number",
        Accessor::Count(..) | Accessor::Place(..) => "a whole number",
        Accessor::Flag(..) | Accessor::Switch(..) => "true or false",
        Accessor::Time(..) => time::ALLOWED,
        Accessor::Choice(..) => "a name",
        Accessor::Shares(..) => A_RANGE_OF_SHARES,
        Accessor::Bytes(..) => A_RANGE_OF_BYTES,
        Accessor::Thresholds(..) => "a list of tables",
    }
}

/// Reports a setting that is missing, or that another setting excludes.
fn check_setting(terms: FieldTerms, wanted: &str, fields: &mut Fields<'_>) {
    let name = terms.name;
    match terms.needed {
        Needed::No => {}
        Needed::Yes => fields.need(name, wanted),
        Needed::Unless(other) if fields.has(other) => {}
        Needed::Unless(_) => fields.need(name, wanted),
        Needed::With(others, why) if others.iter().any(|other| fields.has(other)) => {
            fields.need(name, &format!("{wanted}{why}"));
        }
        Needed::With(others, _) if fields.has(name) => {
            fields.refuse(name, format!("absent without {}", any_of(others)));
        }
        Needed::With(..) => {}
    }
    // If several other settings exclude this setting, only one problem is reported.
    let other = terms.not_beside.iter().find(|other| fields.is_given(other));
    if let Some(other) = other {
        fields.at_most_one(&[other, name]);
    }
}

/// Writes the names of settings as a choice in words.
fn any_of(names: &[&str]) -> String {
    let mut words = String::new();
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        words += match (index, is_last, names.len()) {
            (0, _, 0..=2) => "",
            (0, ..) => "one of ",
            (_, true, 2) => " or ",
            (_, true, _) => " and ",
            _ => ", ",
        };
        words += &format!("`{name}`");
    }
    words
}

/// Applies `set` to `rule` and `value`, if there is a value.
pub(super) fn with<R, T>(rule: R, value: Option<T>, set: impl FnOnce(R, T) -> R) -> R {
    match value {
        Some(value) => set(rule, value),
        None => rule,
    }
}

// === writing ===

/// Returns the tree of a document of `rules`.
pub(super) fn tree<'a>(rules: impl Iterator<Item = &'a Rule> + Clone) -> Datum {
    let mut table = vec![("rules".to_owned(), list(rules.clone()))];
    if rules.into_iter().any(Rule::is_shared) {
        // An empty section means that the program has a store, which shared rules need.
        table.push((store::KEY.to_owned(), Datum::Table(Entries::new())));
    }
    Datum::Table(table)
}

/// Returns a list with a table for each of `rules`.
pub(super) fn list<'a>(rules: impl Iterator<Item = &'a Rule>) -> Datum {
    let tables = rules.map(|rule| {
        let settings = rule.settings().0.into_iter();
        Datum::Table(
            settings
                .map(|(name, setting)| (name.to_owned(), value(setting)))
                .collect(),
        )
    });
    Datum::List(tables.collect())
}

fn value(setting: Setting) -> Datum {
    match setting {
        Setting::Text(text) => Datum::Text(text),
        Setting::Texts(texts) => Datum::List(texts.into_iter().map(Datum::Text).collect()),
        Setting::Number(value) => number(value),
        Setting::Count(count) => Datum::Whole(count.into()),
        Setting::Flag(flag) => Datum::Flag(flag),
        Setting::Time(time) => Datum::Text(time::print(time)),
        Setting::Thresholds(key, list) => {
            let tables = list.into_iter().map(|(name, threshold)| {
                let name = (key.to_owned(), Datum::Text(name));
                Datum::Table(vec![name, ("threshold".to_owned(), number(threshold))])
            });
            Datum::List(tables.collect())
        }
    }
}

/// Returns `number` as a whole number if it has no fraction, so that it is written without a point.
fn number(number: f64) -> Datum {
    if number.fract() == 0.0 && number.abs() < FIRST_GAP {
        Datum::Whole(number as i128)
    } else {
        Datum::Number(number)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// Returns the keys in the row that `docs` has for a kind: its words between backticks, without
    /// values.
    fn documented(docs: &str, kind: &str) -> Vec<String> {
        let row = docs
            .lines()
            .find(|line| line.starts_with(&format!("//! | `{kind}` (")))
            .unwrap_or_else(|| panic!("{kind} has no row"));
        let keys = row.split('|').nth(2).unwrap();
        let words = keys.split('`').skip(1).step_by(2);
        let words = words.filter(|word| !word.starts_with('"'));
        // The keys of nested tables, such as those of `except`, are in parentheses.
        let inner = |word: &&str| !matches!((kind, *word), ("keyed", "value" | "name"));
        words.filter(inner).map(str::to_owned).collect()
    }

    #[test]
    fn the_table_of_keys_has_all_settings_of_each_kind() {
        fn check<R: HasFields + RuleKind>() {
            let rows = R::FIELDS.iter().copied().flatten();
            let mut names: Vec<_> = rows.map(|field| field.terms.name).collect();
            let mut documented = documented(include_str!("mod.rs"), R::NAME);
            // The tables under `except` and `tier` have a threshold too.
            documented.sort();
            documented.dedup();
            names.sort_unstable();
            assert_eq!(documented, names, "{}", R::NAME);
        }
        macro_rules! checks {
            ($($kind:ident($rule:ident)),* $(,)?) => { $(check::<crate::rule::$rule>();)* };
        }
        each_kind!(checks);
    }

    #[test]
    fn a_choice_in_words_names_all() {
        assert_eq!(any_of(&["a"]), "`a`");
        assert_eq!(any_of(&["a", "b"]), "`a` or `b`");
        assert_eq!(any_of(&["a", "b", "c"]), "one of `a`, `b` and `c`");
    }
}
