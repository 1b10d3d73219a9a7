//! Writes JSON from front to back, and places the commas.

use std::fmt::{Display, Write};
use std::time::Duration;

use crate::read::write_text;

/// An object or a list that is being written.
#[derive(Debug, Default)]
pub(super) struct Json {
    text: String,
    /// Whether the next value follows another value.
    needs_comma: bool,
}

impl Json {
    /// Writes an object, whose members `write` adds.
    pub(super) fn object(&mut self, write: impl FnOnce(&mut Self)) {
        self.nest('{', '}', write);
    }

    /// Writes a member that is an object.
    pub(super) fn member(&mut self, key: &str, write: impl FnOnce(&mut Self)) {
        self.key(key);
        self.nest('{', '}', write);
    }

    /// Writes a member that is a list with a value for each of `items`.
    pub(super) fn list<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.key(key);
        self.nest('[', ']', |json| {
            items.into_iter().for_each(|item| write(json, item));
        });
    }

    /// Begins a member that is a list, for items that are written one by one, with work between
    /// them. [`end_list`](Self::end_list) ends it.
    pub(super) fn begin_list(&mut self, key: &str) {
        self.key(key);
        self.begin('[');
    }

    /// Ends a list that [`begin_list`](Self::begin_list) has begun.
    pub(super) fn end_list(&mut self) {
        self.end(']');
    }

    /// Begins an object: a member with this key, or the outermost object without a key.
    /// [`end_object`](Self::end_object) ends it.
    pub(super) fn begin_object(&mut self, key: Option<&str>) {
        match key {
            Some(key) => self.key(key),
            None => self.comma(),
        }
        self.begin('{');
    }

    /// Ends an object that [`begin_object`](Self::begin_object) has begun.
    pub(super) fn end_object(&mut self) {
        self.end('}');
    }

    /// Writes a member that is a number, `true` or `false`.
    pub(super) fn plain(&mut self, key: &str, value: impl Display) {
        self.key(key);
        self.value(value);
    }

    /// Writes a member that is a number, or null if there is none or if it is not finite.
    pub(super) fn number(&mut self, key: &str, value: Option<f64>) {
        match value.filter(|value| value.is_finite()) {
            Some(value) => self.plain(key, value),
            None => self.plain(key, "null"),
        }
    }

    /// Writes a member that is a time in milliseconds, or null.
    pub(super) fn millis(&mut self, key: &str, time: Option<Duration>) {
        self.number(key, time.map(|time| time.as_nanos() as f64 / 1e6));
    }

    /// Writes a member that is a text.
    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        // Writing to a string cannot fail.
        let _ = write_text(&mut self.text, text);
        self.needs_comma = true;
    }

    /// Writes a number into a list.
    pub(super) fn value(&mut self, value: impl Display) {
        self.comma();
        let _ = write!(self.text, "{value}");
        self.needs_comma = true;
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Writes an object or a list between its brackets `open` and `close`.
    fn nest(&mut self, open: char, close: char, write: impl FnOnce(&mut Self)) {
        self.comma();
        self.begin(open);
        write(self);
        self.end(close);
    }

    fn begin(&mut self, open: char) {
        self.text.push(open);
        self.needs_comma = false;
    }

    fn end(&mut self, close: char) {
        self.text.push(close);
        self.needs_comma = true;
    }

    fn key(&mut self, key: &str) {
        self.comma();
        let _ = write!(self.text, "\"{key}\":");
        self.needs_comma = false;
    }

    /// Writes a comma if the next value needs one.
    fn comma(&mut self) {
        if self.needs_comma {
            self.text.push(',');
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn commas_stand_between_values_and_nowhere_else() {
        let mut json = Json::default();
        json.object(|json| {
            json.list("none", [0; 0], Json::value);
            json.list("some", [1, 2], |json, n| {
                json.object(|json| json.plain("n", n));
            });
            json.member("inner", |json| {
                json.text("text", "a\"b");
                json.number("nan", Some(f64::NAN));
                json.millis("time", Some(Duration::from_micros(1_500)));
            });
            json.begin_object(Some("open"));
            json.begin_list("in");
            json.value(3);
            json.end_list();
            json.end_object();
            json.list("last", [1.5, 2.0], Json::value);
        });
        let expected = r#"{"none":[],"some":[{"n":1},{"n":2}],"inner":{"text":"a\"b","nan":null,"time":1.5},"open":{"in":[3]},"last":[1.5,2]}"#;
        assert_eq!(json.into_text(), expected);
    }
}
