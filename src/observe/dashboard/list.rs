//! A JSON list as a text, written value by value.

use std::fmt::Write;

use serde_json::Value;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct ListText(String);

impl ListText {
    pub(super) fn push(&mut self, value: &Value) {
        let before = if self.0.is_empty() { '[' } else { ',' };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{before}{value}");
    }

    pub(super) fn into_text(mut self) -> String {
        let end = if self.0.is_empty() { "[]" } else { "]" };
        self.0.push_str(end);
        self.0
    }
}
