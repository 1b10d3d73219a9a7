//! Problems of documents: errors and warnings, with their places.

use std::fmt;

use crate::rule::{MOST_REPORTED, write_first};

/// An error or a warning about one setting of a document, or the error of a text that is no
/// document.
///
/// It is displayed with the place of the setting, its value, and the allowed values: `line 20,
/// column 1: rules[3].interval is "5x", must be a time such as "500ms" or "1m30s"`. For a text that
/// is no document, it is displayed with the place of the error and a description.
///
/// # Examples
///
/// ```
/// use tower_sentinel::document::{Document, Format};
///
/// let text = r#"
///     [[rules]]
///     kind = "isolation"
///     resource = "/report"
///     max = -1
/// "#;
/// let document = Document::read(text, Format::Toml)?;
/// let problem = &document.problems().as_slice()[0];
/// assert_eq!((problem.path(), problem.index()), ("rules[0].max", Some(0)));
/// assert_eq!((problem.line(), problem.column()), (Some(5), Some(5)));
/// assert_eq!(problem.value(), "-1");
/// assert_eq!(problem.allowed(), "a whole number between 0 and 4294967295");
/// assert!(!problem.is_warning());
/// assert_eq!(
///     problem.to_string(),
///     "line 5, column 5: rules[0].max is -1, must be a whole number between 0 and 4294967295",
/// );
/// # Ok::<(), tower_sentinel::document::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    path: String,
    index: Option<usize>,
    /// The line and the column, counted from 1.
    place: Option<(usize, usize)>,
    value: String,
    allowed: String,
    nature: Nature,
}

/// The nature of a problem: which message it has, and whether it is an error or a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// A value that is not allowed.
    Refused,
    /// An unknown key that looks like a known one.
    Misspelt,
    /// A value that does not have the effect that the document asks for.
    Ignored,
    /// A value that is expressed in another way here, or that never had an effect: the rule does
    /// what was meant.
    Noted,
    /// A text that is no document.
    NoDocument,
}

/// The problems of a [`Document`](super::Document), in the order of its rules; or the single
/// problem of a text that is no document.
///
/// They are displayed with one problem per line. If there are more than 100, only the first 100 are
/// displayed, errors before warnings, with the number of further problems.
///
/// # Examples
///
/// ```
/// use tower_sentinel::document::{Document, Format};
///
/// let text = r#"[
///     {"resource": "/pay", "grade": 1, "count": 10, "clusterMode": true},
///     {"resource": "/pay", "grade": 1, "count": "ten"}
/// ]"#;
/// let document = Document::read(text, Format::Json)?;
/// let problems = document.problems();
/// assert_eq!(problems.len(), 2);
/// // The first rule is loaded, and limits this process alone.
/// let warned: Vec<_> = problems.warnings().map(|problem| problem.path()).collect();
/// assert_eq!(warned, ["[0].clusterMode"]);
/// // The second rule is not loaded.
/// let refused: Vec<_> = problems.errors().map(|problem| problem.to_string()).collect();
/// assert_eq!(refused, ["line 3, column 38: [1].count is \"ten\", must be a number"]);
/// assert_eq!(document.strict().unwrap_err().iter().len(), 2);
///
/// let text = "{\"rules\": [\n  {\"kind\" \"flow\"}\n]}";
/// let problems = Document::read(text, Format::Json).unwrap_err();
/// let problem = &problems.as_slice()[0];
/// assert_eq!((problem.line(), problem.column()), (Some(2), Some(11)));
/// assert_eq!(problems.to_string(), "line 2, column 11: expected `:`");
///
/// // A problem of the whole document has no place.
/// let problems = Document::read("7", Format::Json).unwrap_err();
/// assert_eq!(problems.as_slice()[0].line(), None);
/// assert_eq!(
///     problems.to_string(),
///     "the document is 7, must be a table with `rules`, or a list of Sentinel's rules",
/// );
/// # Ok::<(), tower_sentinel::document::Problems>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

// === impl Problem ===

impl Problem {
    /// Creates the error for a value that is not `allowed`.
    pub(super) fn refused(
        path: impl Into<String>,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        Self::new(Nature::Refused, path.into(), value.into(), allowed.into())
    }

    /// Creates the error for an unknown key that looks like the `known` key.
    pub(super) fn misspelt(path: String, value: String, known: &str) -> Self {
        Self::new(Nature::Misspelt, path, value, format!("`{known}`"))
    }

    /// Creates the warning that a value has another effect, which `note` describes.
    pub(super) fn ignored(path: String, value: String, note: impl Into<String>) -> Self {
        Self::new(Nature::Ignored, path, value, note.into())
    }

    /// Creates the warning about a value whose rule does what was meant.
    pub(super) fn noted(path: String, value: String, note: impl Into<String>) -> Self {
        Self::new(Nature::Noted, path, value, note.into())
    }

    fn new(nature: Nature, path: String, value: String, allowed: String) -> Self {
        Self {
            path,
            index: None,
            place: None,
            value,
            allowed,
            nature,
        }
    }

    /// Returns the problem with the index of its rule.
    pub(super) fn of_rule(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// Returns the problem without the text of its value, which can be a secret.
    pub(super) fn without_text(mut self) -> Self {
        if self.value.starts_with('"') {
            "a text".clone_into(&mut self.value);
        }
        self
    }

    /// Returns the path of the setting, such as `rules[3].interval`, or `[3].grade` in one of
    /// Sentinel's documents. It is empty for a text that is no document.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the index of the rule in the document, counted from 0; `None` for a problem
    /// outside of the rules.
    #[must_use]
    pub const fn index(&self) -> Option<usize> {
        self.index
    }

    /// Returns the line of the setting's key, of the rule that lacks the setting, or of a syntax
    /// error, counted from 1. `None` if the problem concerns the whole document, or if the rules
    /// were read among the settings of a program and not by a [`Document`](super::Document).
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.place.map(|(line, _)| line)
    }

    /// Returns the column in that line, counted from 1, in bytes.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.place.map(|(_, column)| column)
    }

    /// Returns the value as text; `missing` if there is none. It is empty for a text that is no
    /// document.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns a description of the allowed values. For a warning, it describes the effect of the
    /// value; for a text that is no document, the error.
    #[must_use]
    pub fn allowed(&self) -> &str {
        &self.allowed
    }

    /// Returns whether this is a warning: the rule is loaded nevertheless, and can do something
    /// else than its document says.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        matches!(self.nature, Nature::Ignored | Nature::Noted)
    }

    /// Returns whether this is a warning about a rule that still does what was meant.
    #[cfg(feature = "dashboard")]
    pub(crate) fn is_harmless(&self) -> bool {
        self.nature == Nature::Noted
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            value,
            allowed,
            ..
        } = self;
        if let Some((line, column)) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        match self.nature {
            Nature::Refused => write!(f, "{path} is {value}, must be {allowed}"),
            Nature::Misspelt => write!(f, "{path} is not known, did you mean {allowed}?"),
            Nature::Ignored | Nature::Noted => write!(f, "{path} is {value}: {allowed}"),
            Nature::NoDocument => f.write_str(allowed),
        }
    }
}

impl std::error::Error for Problem {}

// === impl Problems ===

impl Problems {
    /// Creates the problem of a text that is no document: a line and a column, and what is wrong.
    pub(super) fn of_text(place: Option<(usize, usize)>, what: impl Into<String>) -> Self {
        let nature = Nature::NoDocument;
        let problem = Problem::new(nature, String::new(), String::new(), what.into());
        Self(vec![Problem { place, ..problem }])
    }

    pub(super) fn extend(&mut self, problems: impl IntoIterator<Item = Problem>) {
        self.0.extend(problems);
    }

    /// Sets the line and column of each problem, which `find` returns for its path.
    pub(super) fn place(&mut self, find: impl Fn(&str) -> Option<(usize, usize)>) {
        for problem in &mut self.0 {
            problem.place = find(&problem.path);
        }
    }

    /// Returns all problems.
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.0
    }

    /// Iterates over all problems.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// Iterates over the errors: a rule with an error is not loaded.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter().filter(|problem| !problem.is_warning())
    }

    /// Iterates over the warnings: a rule with a warning is loaded, and can do something else than
    /// its document says.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter().filter(|problem| problem.is_warning())
    }

    /// Returns the number of problems.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no problems.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.len() > MOST_REPORTED {
            return write_first(f, self.errors().chain(self.warnings()), "\n");
        }
        write_first(f, self.iter(), "\n")
    }
}

impl std::error::Error for Problems {}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
