//! Finds the lines and columns of problems in the text of a document.
//!
//! A tree of values has no positions, so the text of a document with problems is walked once more.
//! The text was parsed before, so its syntax is valid and its depth is within bounds.

use std::collections::HashMap;

use toml::de::{DeTable, DeValue};

use super::fields::join;
use super::problem::Problems;
use super::syntax::{Format, without_mark};

/// The offset of each path to look for: the start of its key or, for an item of a list, of the
/// item. `None` until it is found.
type Places = HashMap<String, Option<usize>>;

/// Sets the line and column of each of `problems` in `text`: the position of its key, or of the
/// table that lacks the key.
pub(super) fn locate(text: &str, format: Format, problems: &mut Problems) {
    if problems.is_empty() {
        return;
    }
    let text = without_mark(text);
    let mut places = Places::new();
    for problem in problems.iter() {
        let mut path = Some(problem.path());
        while let Some(known) = path {
            places.entry(known.to_owned()).or_default();
            path = parent(known);
        }
    }
    let mut walk = Walk {
        places,
        text,
        at: 0,
    };
    match format {
        Format::Json => walk.json(""),
        Format::Toml => {
            if let Ok(table) = DeTable::parse(text) {
                walk.table(table.get_ref(), "");
            }
        }
    }
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    let starts: Vec<_> = std::iter::once(0)
        .chain(ends.map(|(at, _)| at + 1))
        .collect();
    problems.place(|path| {
        // A path that is not in the text has the position of the nearest table or list around it.
        let around = std::iter::successors(Some(path), |path| parent(path));
        let at = around
            .into_iter()
            .find_map(|path| walk.places.get(path).copied()?)?;
        let line = starts.partition_point(|start| *start <= at);
        Some((line, at - starts[line - 1] + 1))
    });
}

/// Returns the path of the table or the list that contains `path`.
fn parent(path: &str) -> Option<&str> {
    let (mut is_text, mut is_escaped, mut last) = (false, false, 0);
    for (at, c) in path.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            '.' | '[' if !is_text => last = at,
            _ => {}
        }
    }
    (last > 0).then(|| &path[..last])
}

/// A walk over the text, which finds the offsets of `places`.
struct Walk<'a> {
    places: Places,
    text: &'a str,
    /// The offset up to which a JSON text was read.
    at: usize,
}

impl Walk<'_> {
    /// Records that `path` is at the offset `at`, if it is looked for and was not found before.
    fn visit(&mut self, path: &str, at: usize) {
        if let Some(place) = self.places.get_mut(path) {
            place.get_or_insert(at);
        }
    }

    // --- TOML ---

    /// Walks over the keys of a table, whose path is `path`.
    fn table(&mut self, table: &DeTable<'_>, path: &str) {
        for (key, value) in table {
            let path = join(path, key.get_ref());
            self.visit(&path, key.span().start);
            self.value(value.get_ref(), &path);
        }
    }

    /// Walks over a value, whose path is `path`.
    fn value(&mut self, value: &DeValue<'_>, path: &str) {
        match value {
            DeValue::Table(table) => self.table(table, path),
            DeValue::Array(list) => {
                for (index, item) in list.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    self.visit(&path, item.span().start);
                    self.value(item.get_ref(), &path);
                }
            }
            _ => {}
        }
    }

    // --- JSON ---

    /// Walks over the next value, whose path is `path`.
    fn json(&mut self, path: &str) {
        match self.next() {
            Some(b'{') => {
                self.at += 1;
                while self.next() == Some(b'"') {
                    let start = self.at;
                    self.skip_text();
                    let key = serde_json::from_str::<String>(&self.text[start..self.at]);
                    let path = join(path, &key.unwrap_or_default());
                    self.visit(&path, start);
                    // Skips the colon.
                    self.next();
                    self.at += 1;
                    self.json(&path);
                    self.skip_comma();
                }
                self.at += 1;
            }
            Some(b'[') => {
                self.at += 1;
                let mut index = 0;
                while self.next().is_some_and(|byte| byte != b']') {
                    let path = format!("{path}[{index}]");
                    self.visit(&path, self.at);
                    self.json(&path);
                    self.skip_comma();
                    index += 1;
                }
                self.at += 1;
            }
            Some(b'"') => self.skip_text(),
            _ => {
                let ends = |byte: &u8| b",]} \t\r\n".contains(byte);
                let rest = &self.text.as_bytes()[self.at..];
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
    }

    /// Skips white space, and returns the next byte without skipping it.
    fn next(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let blank = rest.iter().take_while(|byte| b" \t\r\n".contains(byte));
        self.at += blank.count();
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_comma(&mut self) {
        if self.next() == Some(b',') {
            self.at += 1;
        }
    }

    /// Skips the string that begins here.
    fn skip_text(&mut self) {
        let bytes = self.text.as_bytes();
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                return;
            }
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_path_is_the_path_without_its_last_step() {
        for (path, around) in [
            ("rules", None),
            ("rules[3]", Some("rules")),
            ("rules[3].interval", Some("rules[3]")),
            ("[3].grade", Some("[3]")),
            ("[3]", None),
            ("[3][\"a.b[c\"]", Some("[3]")),
            ("[3][\"a\\\".\"]", Some("[3]")),
            ("[3].items[0].name", Some("[3].items[0]")),
        ] {
            assert_eq!(parent(path), around, "{path}");
        }
    }
}
