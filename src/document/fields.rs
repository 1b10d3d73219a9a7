//! Reads one table of a document: each key once, with its type and its range.
//!
//! The code that reads a rule asks for every key that the rule can have. So the known keys are
//! those that were asked for, and all other keys in the table are unknown.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use std::time::Duration;

use super::problem::Problem;
use super::time;
use super::value::{Datum, Entries};
use crate::hook::finding::letters_apart;
use crate::rule::MOST_REPORTED;

/// The maximum length of an unknown key for which a similar known key is looked for.
const LONGEST_KEY: usize = 64;
/// The maximum difference in length between a key and a misspelling of it: two letters, and two
/// dashes.
const LARGEST_DIFFERENCE: usize = 4;

/// The dialect in which a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The form of this crate: an unknown key is an error.
    Own,
    /// The form of Sentinel: null counts as absent, and an unknown key is no error.
    Sentinel,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Fields<'a> {
    pub(super) path: String,
    pub(super) table: &'a Entries,
    /// Pairs of a field of the rule and its key in the document, for those with different names.
    pub(super) keys: Vec<(&'static str, &'static str)>,
    /// Whether the rules are for an engine with a store.
    pub(super) has_store: bool,
    form: Form,
    /// The keys that were asked for, which are the known keys.
    asked: Vec<&'static str>,
    /// Whether all keys of the table count as known.
    knows_all: bool,
    problems: Vec<Problem>,
}

// === impl Fields ===

impl<'a> Fields<'a> {
    pub(super) fn new(path: String, table: &'a Entries, form: Form) -> Self {
        Self {
            path,
            table,
            keys: Vec::new(),
            has_store: false,
            form,
            asked: Vec::new(),
            knows_all: false,
            problems: Vec::new(),
        }
    }

    /// Returns the path of `key`, as the table spells it.
    pub(super) fn path_of(&self, key: &str) -> String {
        let written = self.entry(key).map_or(key, |(written, _)| written);
        join(&self.path, written)
    }

    /// Returns the key for `field` of the rule; if there are several, the first that the table has.
    pub(super) fn key_of(&self, field: &'static str) -> &'static str {
        let all = self.keys.iter().filter(|(known, _)| *known == field);
        let mut keys = all.map(|(_, key)| *key);
        let last = keys.clone().next_back().unwrap_or(field);
        keys.find(|key| self.has(key)).unwrap_or(last)
    }

    /// Returns whether `key` has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.peek(key).is_some()
    }

    /// Returns the value of `key`, of any type, without marking the key as known.
    pub(super) fn peek(&self, key: &str) -> Option<&'a Datum> {
        let is_nothing = |value: &&Datum| self.form == Form::Sentinel && **value == Datum::Null;
        let (_, value) = self.entry(key)?;
        Some(value).filter(|value| !is_nothing(value))
    }

    /// Returns the entry of `key`; in this crate's form, hyphens and underscores are the same.
    fn entry(&self, key: &str) -> Option<&'a (String, Datum)> {
        let is_key = |written: &str| match self.form {
            Form::Own => is_spelled(written, key),
            Form::Sentinel => written == key,
        };
        self.table.iter().find(|(written, _)| is_key(written))
    }

    /// Returns whether `key` has a value other than `number`. A fraction of zero is no difference.
    pub(super) fn has_other(&self, key: &str, number: i32) -> bool {
        self.peek(key).is_some_and(|value| match value {
            Datum::Whole(whole) => *whole != i128::from(number),
            Datum::Number(float) => *float != f64::from(number),
            _ => true,
        })
    }

    /// Returns the value of `key` as messages show it.
    fn excerpt(&self, key: &str) -> String {
        let value = self.peek(key);
        value.map_or_else(|| "missing".to_owned(), Datum::excerpt)
    }

    /// Marks `keys` as known, although they have no effect.
    pub(super) fn known(&mut self, keys: &[&'static str]) {
        self.asked.extend_from_slice(keys);
    }

    /// Marks all keys of the table as known.
    pub(super) fn know_all(&mut self) {
        self.knows_all = true;
    }

    /// Reads the value of `key`, and marks the key as known. A value that `convert` does not accept
    /// is reported; the message describes the `allowed` values.
    fn read<T>(
        &mut self,
        key: &'static str,
        allowed: &str,
        convert: impl FnOnce(&'a Datum) -> Option<T>,
    ) -> Option<T> {
        self.asked.push(key);
        let value = self.peek(key)?;
        let converted = convert(value);
        if converted.is_none() {
            self.refuse(key, allowed);
        }
        converted
    }

    /// Reports that `key` is missing, if it is.
    pub(super) fn need(&mut self, key: &str, allowed: &str) {
        if !self.has(key) {
            self.refuse(key, allowed);
        }
    }

    /// Reads a text.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        self.read(key, "a text", as_text)
    }

    /// Reads a text that is required.
    pub(super) fn needed_text(&mut self, key: &'static str) -> String {
        let text = self.text(key);
        self.need(key, "a text");
        text.unwrap_or_default()
    }

    /// Reads a number, with or without a fraction.
    pub(super) fn number(&mut self, key: &'static str) -> Option<f64> {
        self.read(key, "a number", as_number)
    }

    /// Reads a number that is required.
    pub(super) fn needed_number(&mut self, key: &'static str) -> f64 {
        let number = self.number(key);
        self.need(key, "a number");
        number.unwrap_or_default()
    }

    /// Reads a whole number within `range`. In Sentinel's form it can have a fraction of zero.
    pub(super) fn whole<T>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i64> + PartialOrd + fmt::Display,
    {
        let allowed = format!(
            "a whole number between {} and {}",
            range.start(),
            range.end()
        );
        let form = self.form;
        self.read(key, &allowed, |value| {
            let number = match value {
                Datum::Whole(number) => *number,
                Datum::Number(number) if form == Form::Sentinel && number.fract() == 0.0 => {
                    *number as i128
                }
                _ => return None,
            };
            let number = T::try_from(i64::try_from(number).ok()?).ok();
            number.filter(|number| range.contains(number))
        })
    }

    /// Reads a whole number that fits a `u32`.
    pub(super) fn count(&mut self, key: &'static str) -> Option<u32> {
        self.whole(key, 0..=u32::MAX)
    }

    /// Reads true or false; a missing value is false.
    pub(super) fn is_set(&mut self, key: &'static str) -> bool {
        self.flag(key).unwrap_or(false)
    }

    /// Reads true or false.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.read(key, "true or false", |value| match value {
            Datum::Flag(flag) => Some(*flag),
            _ => None,
        })
    }

    /// Reads a time.
    pub(super) fn time(&mut self, key: &'static str) -> Option<Duration> {
        self.read(key, time::ALLOWED, time::parse)
    }

    /// Reads one of `names`, and returns its index.
    pub(super) fn choice(&mut self, key: &'static str, names: &[&str]) -> Option<usize> {
        let mut allowed = one_of(names);
        if let Some(Datum::Text(text)) = self.peek(key) {
            if let Some(name) = nearest(text, names.iter().copied()) {
                allowed = format!("{allowed}; did you mean {name:?}?");
            }
        }
        self.read(key, &allowed, |value| {
            let text = as_text(value)?;
            names.iter().position(|name| is_spelled(&text, name))
        })
    }

    /// Reads one of `names`, which is required, and returns its index.
    pub(super) fn needed_choice(&mut self, key: &'static str, names: &[&str]) -> Option<usize> {
        let choice = self.choice(key, names);
        self.need(key, &one_of(names));
        choice
    }

    /// Reads texts, from a list or from a single text with commas.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        self.read(key, "a list of texts", |value| match value {
            Datum::List(list) => list.iter().map(as_text).collect(),
            Datum::Text(list) => {
                let texts = list.split(',').filter(|text| !text.trim().is_empty());
                Some(texts.map(str::to_owned).collect())
            }
            _ => None,
        })
    }

    /// Reads a range of numbers. In messages, `allowed` describes the allowed values.
    pub(super) fn range<T: FromStr>(
        &mut self,
        key: &'static str,
        allowed: &'static str,
    ) -> Option<Range<T>> {
        self.read(key, allowed, |value| {
            let text = as_text(value)?;
            let (start, end) = text.split_once("..")?;
            Some(start.trim().parse().ok()?..end.trim().parse().ok()?)
        })
    }

    /// Reads a list of tables. `read` reads each table.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Fields<'a>) -> T,
    ) -> Vec<T> {
        let items = self.read(key, "a list of tables", |value| match value {
            Datum::List(items) => Some(items),
            _ => None,
        });
        let mut all = Vec::new();
        for (index, item) in items.into_iter().flatten().enumerate() {
            let path = format!("{}[{index}]", self.path_of(key));
            let Datum::Table(table) = item else {
                self.note(Problem::refused(path, item.excerpt(), "a table"));
                continue;
            };
            let mut fields = Fields::new(path, table, self.form);
            all.push(read(&mut fields));
            let problems = fields.finish();
            problems.into_iter().for_each(|problem| self.note(problem));
        }
        all
    }

    /// Adds a problem. Only the first `MOST_REPORTED` are kept, because each item of a long list
    /// can have a problem. If all kept problems are warnings, the first error replaces the last
    /// warning.
    pub(super) fn note(&mut self, problem: Problem) {
        if self.problems.len() < MOST_REPORTED {
            self.problems.push(problem);
        } else if !problem.is_warning() && self.is_good() {
            self.problems[MOST_REPORTED - 1] = problem;
        }
    }

    /// Reports that the value of `key`, or its absence, is not allowed.
    pub(super) fn refuse(&mut self, key: &str, allowed: impl Into<String>) {
        let problem = Problem::refused(self.path_of(key), self.excerpt(key), allowed);
        self.note(problem);
    }

    /// Reports that the rule as a whole is not allowed.
    pub(super) fn refuse_all(&mut self, value: &str, allowed: impl Into<String>) {
        let problem = Problem::refused(self.path.clone(), value, allowed);
        self.note(problem);
    }

    /// Warns that the value of `key` is ignored, or has another effect than it says.
    pub(super) fn warn(&mut self, key: &str, note: &str) {
        let problem = Problem::ignored(self.path_of(key), self.excerpt(key), note);
        self.note(problem);
    }

    /// Adds a warning about the value of `key`, although the rule does what was meant.
    pub(super) fn warn_harmless(&mut self, key: &str, note: &str) {
        let problem = Problem::noted(self.path_of(key), self.excerpt(key), note);
        self.note(problem);
    }

    /// Warns that the rule as a whole has another effect than it says.
    pub(super) fn warn_all(&mut self, value: &str, note: &str) {
        let problem = Problem::ignored(self.path.clone(), value.to_owned(), note);
        self.note(problem);
    }

    /// Returns whether `key` has a value other than false.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.peek(key).is_some_and(|it| *it != Datum::Flag(false))
    }

    /// Reports a problem if more than one of `keys` was [given](Self::is_given).
    pub(super) fn at_most_one(&mut self, keys: &[&str]) {
        let mut given = keys.iter().filter(|key| self.is_given(key));
        if let (Some(first), Some(second)) = (given.next(), given.next()) {
            self.refuse(second, format!("absent beside `{first}`"));
        }
    }

    /// Returns whether there is no error so far. Warnings do not count.
    pub(super) fn is_good(&self) -> bool {
        self.problems.iter().all(Problem::is_warning)
    }

    /// Returns all problems, including the problems of unknown keys.
    pub(super) fn finish(&mut self) -> Vec<Problem> {
        if !self.knows_all {
            self.report_unknown();
        }
        std::mem::take(&mut self.problems)
    }

    /// Reports the keys of the table that were not read.
    fn report_unknown(&mut self) {
        // In Sentinel's form, a known key is suggested for an unknown key only if the table lacks
        // the known key.
        let is_free = |known: &&str| self.form == Form::Own || !self.has(known);
        let free: Vec<_> = self.asked.iter().copied().filter(is_free).collect();
        // If the table has two spellings of one key, the first one is read.
        let read: Vec<_> = self
            .asked
            .iter()
            .filter_map(|key| self.entry(key))
            .collect();
        let is_read = |entry: &&(String, Datum)| read.iter().any(|it| std::ptr::eq(*it, *entry));
        let unknown = self.table.iter().filter(|entry| !is_read(entry));
        let unknown = unknown.take(MOST_REPORTED);
        let found = unknown.filter_map(|(key, value)| self.unknown(key, value, &free));
        let found: Vec<_> = found.collect();
        found.into_iter().for_each(|problem| self.note(problem));
    }

    /// Returns the problem of an unknown key. In Sentinel's form, an unknown key is a problem only
    /// if it looks misspelt.
    fn unknown(&self, key: &str, value: &Datum, known: &[&'static str]) -> Option<Problem> {
        let path = join(&self.path, key);
        let mut asked = known.iter();
        if let Some(twice) = asked.find(|asked| self.form == Form::Own && is_spelled(key, asked)) {
            let first = self.entry(twice).map_or(*twice, |(first, _)| first);
            let allowed = format!("absent beside `{first}`, which is the same key");
            return Some(Problem::refused(path, value.excerpt(), allowed));
        }
        let nearest = nearest(key, known.iter().copied());
        match (self.form, nearest) {
            (Form::Own, Some(nearest)) => Some(Problem::misspelt(path, value.excerpt(), nearest)),
            (Form::Own, None) => {
                let names: Vec<_> = known.iter().map(|key| format!("`{key}`")).collect();
                let allowed = format!("one of the known keys, {}", names.join(", "));
                Some(Problem::refused(path, "an unknown key", allowed))
            }
            (Form::Sentinel, Some(nearest)) => {
                let note = format!("not known and so ignored, did you mean `{nearest}`?");
                Some(Problem::ignored(path, value.excerpt(), note))
            }
            (Form::Sentinel, None) => None,
        }
    }
}

/// Returns the path of `key` in the table at `path`.
pub(super) fn join(path: &str, key: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_plain = !key.is_empty() && key.len() <= LONGEST_KEY && key.chars().all(is_plain);
    if is_plain && path.is_empty() {
        key.to_owned()
    } else if is_plain {
        format!("{path}.{key}")
    } else {
        let key = Datum::Text(key.to_owned()).excerpt();
        format!("{path}[{key}]")
    }
}

/// Returns whether `written` is `name`; a hyphen equals an underscore.
fn is_spelled(written: &str, name: &str) -> bool {
    let is_dash = |byte: u8| matches!(byte, b'-' | b'_');
    let mut both = written.bytes().zip(name.bytes());
    written.len() == name.len() && both.all(|(a, b)| a == b || is_dash(a) && is_dash(b))
}

fn one_of(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("one of {}", names.join(", "))
}

fn as_text(value: &Datum) -> Option<String> {
    match value {
        Datum::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn as_number(value: &Datum) -> Option<f64> {
    match value {
        Datum::Whole(number) => Some(*number as f64),
        Datum::Number(number) => Some(*number),
        _ => None,
    }
}

/// Returns the known key that `key` is probably a misspelling of: it differs by at most two
/// letters, by fewer if the key is short. Case and dashes are ignored.
pub(super) fn nearest<'k>(key: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if key.len() > LONGEST_KEY {
        return None;
    }
    let plain = |key: &str| -> String {
        let letters = key.chars().filter(|c| !matches!(c, '_' | '-'));
        letters.flat_map(char::to_lowercase).collect()
    };
    let given = plain(key);
    let letters = given.chars().count();
    let near = known.filter_map(|known| {
        if known.len().abs_diff(letters) > LARGEST_DIFFERENCE {
            return None;
        }
        let apart = letters_apart(&given, &plain(known));
        // No letter of a key of one or two letters can differ, one letter of up to four, or two.
        let most = (known.len().min(letters).saturating_sub(1) / 2).min(2);
        (apart <= most).then_some((apart, known))
    });
    near.min_by_key(|(apart, _)| *apart).map(|(_, known)| known)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_is_found_by_its_distance() {
        let known = ["threshold", "interval", "id", "for_origin", "max"];
        let table = [
            ("treshold", Some("threshold")),
            ("thershold", Some("threshold")),
            ("Threshold", Some("threshold")),
            ("forOrigin", Some("for_origin")),
            ("for-origins", Some("for_origin")),
            ("intervals", Some("interval")),
            ("interval_ms", Some("interval")),
            ("ip", None),
            ("ma", None),
            ("mox", Some("max")),
            ("mxa", Some("max")),
            ("intevrla", Some("interval")),
            ("thrshldd", None),
            ("", None),
            ("color", None),
        ];
        for (key, expected) in table {
            assert_eq!(nearest(key, known.into_iter()), expected, "{key}");
        }
        assert_eq!(nearest(&"x".repeat(1_000), known.into_iter()), None);
    }
}
