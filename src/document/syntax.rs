//! Parses JSON and TOML to a tree, and writes a tree in either syntax.

use std::fmt;

use serde_core::de::DeserializeSeed;

use super::nesting;
use super::problem::Problems;
use super::value::{AnyValue, Datum};

/// The maximum length of a document, in bytes.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// The maximum number of levels of a TOML document: its root table, and 80 levels below.
const TOML_LEVELS: usize = 81;

/// The syntax of a document.
///
/// # Examples
///
/// ```
/// use tower_sentinel::document::{Document, Format};
/// use tower_sentinel::{FlowRule, Rules};
///
/// let rules = Rules::from(FlowRule::per_second("/search", 5));
/// let document = Document::from_rules(&rules);
/// for format in [Format::Json, Format::Toml] {
///     let text = document.write(format);
///     assert_eq!(Document::read(&text, format)?.strict()?, rules);
/// }
/// // Neither format can read the other.
/// let toml = document.write(Format::Toml);
/// assert!(toml.starts_with("[[rules]]\n"));
/// assert!(Document::read(&toml, Format::Json).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JSON: the rules of this crate as `{"rules": […]}`, or the rules of Sentinel as `[…]`.
    Json,
    /// TOML: the rules of this crate as `[[rules]]`.
    Toml,
}

// === impl Format ===

impl Format {
    /// Returns the name of the format, which is also the usual extension of its files: `json` or
    /// `toml`.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::document::Format::Toml.as_str(), "toml");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Toml => "toml",
        }
    }

    pub(super) fn parse(self, text: &str) -> Result<Datum, Problems> {
        if text.len() > MAX_BYTES {
            let length = text.len();
            return Err(Problems::of_text(
                None,
                format!("the document is {length} bytes long, must be at most {MAX_BYTES}"),
            ));
        }
        let text = without_mark(text);
        match self {
            Format::Json => serde_json::from_str(text).map_err(|error| of_json(text, &error)),
            Format::Toml => match nesting::too_deep(text) {
                Some(at) => Err(Problems::of_text(
                    Some(line_and_column(text, at)),
                    "cannot recurse further: nested too deep",
                )),
                None => toml::Deserializer::parse(text)
                    .and_then(|document| AnyValue::within(TOML_LEVELS).deserialize(document))
                    .map(Datum::with_dates_as_text)
                    .map_err(|error| of_toml(text, &error)),
            },
        }
    }

    pub(super) fn print(self, tree: &Datum) -> String {
        let printed = match self {
            Format::Json => serde_json::to_string_pretty(tree).map_err(|error| error.to_string()),
            Format::Toml => toml::to_string(&tree.for_toml()).map_err(|error| error.to_string()),
        };
        printed.expect("both syntaxes have a text for every table of texts, numbers and lists")
    }
}

/// Returns `text` without the byte order mark with which some editors begin it.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Returns the problem for a syntax error in a JSON text.
fn of_json(text: &str, error: &serde_json::Error) -> Problems {
    let place = (error.line(), error.column());
    let whole = error.to_string();
    let suffix = format!(" at line {} column {}", place.0, place.1);
    let mut message = whole.strip_suffix(&suffix).unwrap_or(&whole).to_owned();
    let line = text.split('\n').nth(place.0.saturating_sub(1));
    let up_to_there = line.and_then(|line| line.as_bytes().get(..place.1));
    let is_comment = match up_to_there {
        // Not a comment: an invalid escape such as `\#` in a string.
        Some([.., b'\\', b'#']) => false,
        Some([.., last]) => matches!(last, b'/' | b'#'),
        _ => false,
    };
    if error.is_syntax() && is_comment {
        message.push_str("; JSON has no comments");
    }
    if looks_like_yaml(text) {
        message.push_str(NO_YAML);
    }
    // The parser reports column 0 for the end of the text after its last line.
    let place = (place.0 > 0).then_some((place.0, place.1.max(1)));
    Problems::of_text(place, message)
}

/// Returns the problem for a syntax error in a TOML text.
fn of_toml(text: &str, error: &toml::de::Error) -> Problems {
    let place = error.span().map(|span| line_and_column(text, span.start));
    // Some messages continue with a list of the expected tokens.
    let mut message = error.message().replace('\n', ", ");
    if looks_like_yaml(text) {
        message.push_str(NO_YAML);
    }
    Problems::of_text(place, message)
}

/// The end of the message for a text that is probably YAML.
const NO_YAML: &str = "; it looks like YAML, and only JSON and TOML are read";

/// Returns whether the first line that is no comment looks like YAML: the start of a document, an
/// item, or a key before a colon.
fn looks_like_yaml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_end);
    let first = lines.find(|line| !line.is_empty() && !line.trim_start().starts_with('#'));
    first.is_some_and(|line| {
        let is_key = |key: &str| {
            let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            !key.is_empty() && key.chars().all(is_letter)
        };
        let key = line.split_once(':');
        let key = key.filter(|(_, rest)| rest.is_empty() || rest.starts_with(' '));
        line == "---" || line.starts_with("- ") || key.is_some_and(|(key, _)| is_key(key))
    })
}

/// Returns the line and the column of the offset `at`, counted from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n');
    (line, before.len() - start.map_or(0, |at| at + 1) + 1)
}
