//! Reading one table of a document: each key once, with its type and its range.
//!
//! The reader of a rule asks for every key that the rule may have. So the keys that are known are
//! those that were asked for, and all others in the table are unknown.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use std::time::Duration;

use super::problem::Problem;
use super::time;
use super::value::{Datum, Entries};
use crate::hook::finding::letters_apart;
use crate::rule::MOST_TOLD;

/// Longest key for which a known one is looked for.
const LONGEST_KEY: usize = 64;
/// Most that two keys may differ in length if one may be a misspelling of the other:
/// two letters, and two dashes.
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
    /// Pairs of a field of the rule and the key for it in the document, where the names differ.
    pub(super) keys: Vec<(&'static str, &'static str)>,
    /// Whether the rules are for an engine with a store.
    pub(super) has_store: bool,
    form: Form,
    asked: Vec<&'static str>,
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

    /// The path of `key`, as the table spells it.
    pub(super) fn path_of(&self, key: &str) -> String {
        let written = self.entry(key).map_or(key, |(written, _)| written);
        join(&self.path, written)
    }

    /// The key of the setting that the rule calls `field`: of several, the first that the table
    /// has.
    pub(super) fn key_of(&self, field: &'static str) -> &'static str {
        let all = self.keys.iter().filter(|(known, _)| *known == field);
        let mut keys = all.map(|(_, key)| *key);
        let last = keys.clone().next_back().unwrap_or(field);
        keys.find(|key| self.has(key)).unwrap_or(last)
    }

    /// Returns whether a value stands under `key`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.peek(key).is_some()
    }

    /// The value under `key`, of any type.
    pub(super) fn peek(&self, key: &str) -> Option<&'a Datum> {
        let is_nothing = |value: &&Datum| self.form == Form::Sentinel && **value == Datum::Null;
        let (_, value) = self.entry(key)?;
        Some(value).filter(|value| !is_nothing(value))
    }

    /// The entry of `key`; in our own form it may have hyphens for underscores.
    fn entry(&self, key: &str) -> Option<&'a (String, Datum)> {
        let is_key = |written: &str| match self.form {
            Form::Own => is_spelled(written, key),
            Form::Sentinel => written == key,
        };
        self.table.iter().find(|(written, _)| is_key(written))
    }

    /// Returns whether a value stands under `key` that is not this `number`, which may be written
    /// with a fraction of zero.
    pub(super) fn has_other(&self, key: &str, number: i32) -> bool {
        self.peek(key).is_some_and(|value| match value {
            Datum::Whole(whole) => *whole != i128::from(number),
            Datum::Number(float) => *float != f64::from(number),
            _ => true,
        })
    }

    /// The value under `key` as messages show it.
    fn excerpt(&self, key: &str) -> String {
        let value = self.peek(key);
        value.map_or_else(|| "missing".to_owned(), Datum::excerpt)
    }

    /// Marks `keys` as known, although they have no effect.
    pub(super) fn known(&mut self, keys: &[&'static str]) {
        self.asked.extend_from_slice(keys);
    }

    /// All keys are known from here on.
    pub(super) fn know_all(&mut self) {
        self.knows_all = true;
    }

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

    /// Notes that `key` has to be there, unless it is.
    pub(super) fn need(&mut self, key: &str, allowed: &str) {
        if !self.has(key) {
            self.refuse(key, allowed);
        }
    }

    /// A text.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        self.read(key, "a text", as_text)
    }

    /// A text that has to be there.
    pub(super) fn needed_text(&mut self, key: &'static str) -> String {
        let text = self.text(key);
        self.need(key, "a text");
        text.unwrap_or_default()
    }

    /// A number, with or without a fraction.
    pub(super) fn number(&mut self, key: &'static str) -> Option<f64> {
        self.read(key, "a number", as_number)
    }

    /// A number that has to be there.
    pub(super) fn needed_number(&mut self, key: &'static str) -> f64 {
        let number = self.number(key);
        self.need(key, "a number");
        number.unwrap_or_default()
    }

    /// A whole number within `range`. Sentinel's may be written with a fraction
    /// of zero.
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

    /// Reads a number of 32 bits without a sign.
    pub(super) fn count(&mut self, key: &'static str) -> Option<u32> {
        self.whole(key, 0..=u32::MAX)
    }

    /// True or false; false if it is not there.
    pub(super) fn is_set(&mut self, key: &'static str) -> bool {
        self.flag(key).unwrap_or(false)
    }

    /// True or false.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.read(key, "true or false", |value| match value {
            Datum::Flag(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A time.
    pub(super) fn time(&mut self, key: &'static str) -> Option<Duration> {
        self.read(key, time::ALLOWED, time::parse)
    }

    /// One of a few names, as its place among them.
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

    /// One of a few names that has to be there.
    pub(super) fn needed_choice(&mut self, key: &'static str, names: &[&str]) -> Option<usize> {
        let choice = self.choice(key, names);
        self.need(key, &one_of(names));
        choice
    }

    /// Texts, in a list or between the commas of one text.
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

    /// A range of numbers. In messages, `allowed` describes the values that may stand here.
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

    /// A list of tables, each read by `read`.
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

    /// Notes a problem. Only the first `MOST_TOLD` are kept, as a list may have one in each of a
    /// million places; if these are all warnings, the first error replaces the last of them.
    pub(super) fn note(&mut self, problem: Problem) {
        if self.problems.len() < MOST_TOLD {
            self.problems.push(problem);
        } else if !problem.is_warning() && self.is_good() {
            self.problems[MOST_TOLD - 1] = problem;
        }
    }

    /// Notes that the value under `key`, or its absence, is not allowed.
    pub(super) fn refuse(&mut self, key: &str, allowed: impl Into<String>) {
        let problem = Problem::refused(self.path_of(key), self.excerpt(key), allowed);
        self.note(problem);
    }

    /// Notes that the rule as a whole is not allowed.
    pub(super) fn refuse_all(&mut self, value: &str, allowed: impl Into<String>) {
        let problem = Problem::refused(self.path.clone(), value, allowed);
        self.note(problem);
    }

    /// Warns that the value under `key` is ignored, or has another effect than where it comes from.
    pub(super) fn warn(&mut self, key: &str, note: &str) {
        let problem = Problem::ignored(self.path_of(key), self.excerpt(key), note);
        self.note(problem);
    }

    /// Notes something about the value under `key` that does not change what the rule means.
    pub(super) fn tell(&mut self, key: &str, note: &str) {
        let problem = Problem::noted(self.path_of(key), self.excerpt(key), note);
        self.note(problem);
    }

    /// Warns that the rule as a whole has another effect than where it comes from.
    pub(super) fn warn_all(&mut self, value: &str, note: &str) {
        let problem = Problem::ignored(self.path.clone(), value.to_owned(), note);
        self.note(problem);
    }

    /// Returns whether a value stands under `key`. A switch that is off does not count.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.peek(key).is_some_and(|it| *it != Datum::Flag(false))
    }

    /// Notes that of some keys more than one was [given](Self::is_given).
    pub(super) fn at_most_one(&mut self, keys: &[&str]) {
        let mut given = keys.iter().filter(|key| self.is_given(key));
        if let (Some(first), Some(second)) = (given.next(), given.next()) {
            self.refuse(second, format!("absent beside `{first}`"));
        }
    }

    /// Returns whether nothing is wrong so far.
    pub(super) fn is_good(&self) -> bool {
        self.problems.iter().all(Problem::is_warning)
    }

    /// Returns all noted problems, after adding those of unknown keys.
    pub(super) fn finish(&mut self) -> Vec<Problem> {
        if !self.knows_all {
            self.tell_unknown();
        }
        std::mem::take(&mut self.problems)
    }

    fn tell_unknown(&mut self) {
        // In Sentinel's form, a known key that the table has is no suggestion for an unknown one.
        let is_free = |known: &&str| self.form == Form::Own || !self.has(known);
        let free: Vec<_> = self.asked.iter().copied().filter(is_free).collect();
        // Of two spellings of one key the first is read.
        let read: Vec<_> = self
            .asked
            .iter()
            .filter_map(|key| self.entry(key))
            .collect();
        let is_read = |entry: &&(String, Datum)| read.iter().any(|it| std::ptr::eq(*it, *entry));
        let unknown = self.table.iter().filter(|entry| !is_read(entry));
        let unknown = unknown.take(MOST_TOLD);
        let found = unknown.filter_map(|(key, value)| self.unknown(key, value, &free));
        let found: Vec<_> = found.collect();
        found.into_iter().for_each(|problem| self.note(problem));
    }

    /// The problem of an unknown key, if there is one.
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

/// The path of `key` in the table at `path`.
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

/// Returns whether `written` is `name` but for hyphens and underscores.
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

/// The known key that `key` was probably meant to be: at most two letters away, fewer for a short
/// one, ignoring capitals and dashes.
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
        let most = (known.len().min(letters).saturating_sub(1) / 2).min(2);
        (apart <= most).then_some((apart, known))
    });
    near.min_by_key(|(apart, _)| *apart).map(|(_, known)| known)
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_known_by_its_distance() {
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
