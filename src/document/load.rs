//! Loads a whole document: its tree, the rules in it, and their problems.

use std::collections::HashSet;
use std::fmt;

use super::cluster;
use super::fields::{Fields, Form};
use super::own;
use super::places;
use super::problem::{Problem, Problems};
use super::sentinel::Kind;
use super::store::{self, StoreSection};
use super::syntax::{Format, MAX_BYTES};
use super::value::{Datum, Entries, find};
use crate::rule::{InvalidRule, MOST_REPORTED, Rule, Rules, by_method};

/// The maximum number of rules in a document. It bounds the memory for problems: the problems of an
/// invalid rule take more memory than the rule has bytes.
const MAX_RULES: usize = 100_000;
/// Once a document has this many problems, each further rule can have only one.
const MOST_PROBLEMS: usize = 100_000;

/// A document that holds rules, and the result of reading it.
///
/// Reading does not stop at the first invalid rule. The document has all valid rules, and the
/// problems of the invalid rules. At most 100 problems of each rule are kept. Once the document has
/// 100 000 problems, one problem of each further rule is kept. [`strict`](Self::strict) returns all
/// rules or none, [`lenient`](Self::lenient) the valid rules.
///
/// For each rule, the keys and the types of their values are checked first. Values out of range are
/// reported only if all keys and types are valid.
///
/// See the [module](super) for the format of documents.
///
/// # Examples
///
/// ```
/// use tower_sentinel::document::{Document, Format};
/// use tower_sentinel::{FlowRule, Rules};
///
/// let text = r#"{"rules": [
///     {"kind": "flow", "resource": "/a", "threshold": 5},
///     {"kind": "flow", "resource": "/b", "threshold": -5}
/// ]}"#;
/// let document = Document::read(text, Format::Json)?;
/// let (good, problems) = document.lenient();
/// assert_eq!(good, Rules::from(FlowRule::per_second("/a", 5)));
/// assert_eq!(problems.as_slice()[0].path(), "rules[1].threshold");
/// // All or none.
/// assert_eq!(document.strict().unwrap_err(), problems);
/// # Ok::<(), tower_sentinel::document::Problems>(())
/// ```
#[derive(Clone)]
pub struct Document {
    tree: Datum,
    pub(super) rules: Rules,
    store: Option<StoreSection>,
    pub(super) problems: Problems,
    /// The rules and problems for an engine with a store, if they differ.
    pub(super) shared: Option<Box<(Rules, Problems)>>,
}

// === impl Document ===

impl Document {
    /// The maximum length of a document in bytes: 4 MiB.
    pub const MAX_BYTES: usize = MAX_BYTES;
    /// The maximum number of rules in a document: 100 000.
    pub const MAX_RULES: usize = MAX_RULES;

    /// Reads `text`.
    ///
    /// A JSON list is one of Sentinel's documents. The kind of its rules is recognized by keys
    /// that no other kind has; if there are none, use [`read_sentinel`](Self::read_sentinel).
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not valid in that format, has a key twice, is longer
    /// than [`MAX_BYTES`](Self::MAX_BYTES), has more than [`MAX_RULES`](Self::MAX_RULES)
    /// rules, or is nested deeper than 80 levels in TOML and 127 in JSON; if it is neither
    /// a table nor a list; or if it is a list of rules of this crate, or of rules whose
    /// kind cannot be recognized. Problems of single rules are not errors here.
    pub fn read(text: &str, format: Format) -> Result<Self, Problems> {
        let document = Self::of_tree(format.parse(text)?)?;
        Ok(document.located(text, format))
    }

    /// Reads a parsed document, in the form of this crate or of Sentinel.
    fn of_tree(tree: Datum) -> Result<Self, Problems> {
        match tree {
            Datum::Table(table) => Self::of_own(table),
            Datum::List(list) if list.is_empty() => Self::of_sentinel(list, Kind::Flow),
            // A list of this crate's rules must not be read as Sentinel's: of a system rule, only
            // `qps`, which both forms have, would be read.
            Datum::List(list) if list.iter().any(own::is_rule) => Err(Problems::of_text(
                None,
                "rules with a `kind` must be in a table: {\"rules\": […]}",
            )),
            Datum::List(list) => match Kind::of(&list) {
                Some(kind) => Self::of_sentinel(list, kind),
                None => Err(Problems::of_text(
                    None,
                    "the kind of these rules does not show in their keys; \
                     name it, with Document::read_sentinel",
                )),
            },
            other => Err(Problems::of_text(
                None,
                format!(
                    "the document is {}, must be a table with `rules`, or a list of Sentinel's rules",
                    other.excerpt()
                ),
            )),
        }
    }

    /// Reads one of Sentinel's documents: a JSON list of rules of one `kind`.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read), and if the text is not a list.
    pub fn read_sentinel(text: &str, kind: Kind) -> Result<Self, Problems> {
        match Format::Json.parse(text)? {
            Datum::List(list) => {
                let document = Self::of_sentinel(list, kind)?;
                Ok(document.located(text, Format::Json))
            }
            other => Err(Problems::of_text(
                None,
                format!(
                    "the document is {}, must be a list of Sentinel's rules",
                    other.excerpt()
                ),
            )),
        }
    }

    /// Creates a document of `rules`, in the form of this crate. Settings with their default value
    /// are left out, except for intervals and how long a breaker is open. If a rule is
    /// [shared](crate::FlowRule::shared), the document has an empty [`StoreSection`].
    #[must_use]
    pub fn from_rules(rules: &Rules) -> Self {
        let has_store = rules.iter().any(Rule::is_shared);
        Self {
            tree: own::tree(rules.iter()),
            rules: rules.clone(),
            store: has_store.then(StoreSection::default),
            problems: Problems::default(),
            shared: None,
        }
    }

    /// Creates a document of `rules`, like [`from_rules`](Self::from_rules), with the
    /// [store](Self::store) section of this document.
    #[must_use]
    pub fn with_rules(&self, rules: &Rules) -> Self {
        let mut new = Self::from_rules(rules);
        let kept = match &self.tree {
            Datum::Table(table) => find(table, store::KEY),
            _ => None,
        };
        if let (Some(kept), Datum::Table(table)) = (kept, &mut new.tree) {
            table.retain(|(key, _)| key != store::KEY);
            table.push((store::KEY.to_owned(), kept.clone()));
            new.store.clone_from(&self.store);
        }
        new
    }

    /// Returns the document as text.
    ///
    /// The text has everything that was read, including invalid rules and keys without
    /// effect, but no comments; in TOML, keys are in alphabetical order. A document of Sentinel
    /// is a list, which TOML cannot express, so in TOML it is written with only the valid rules,
    /// in the form of this crate.
    ///
    /// A value that the chosen format cannot express is left out (null) or becomes the nearest
    /// value that it can express; valid rules have only values that both formats can express.
    #[must_use]
    pub fn write(&self, format: Format) -> String {
        match (&self.tree, format) {
            (Datum::List(_), Format::Toml) => format.print(&own::tree(self.rules.iter())),
            _ => format.print(&self.tree),
        }
    }

    /// Returns all rules.
    ///
    /// # Errors
    ///
    /// Returns all problems, if there is an error. Warnings alone are no error; see
    /// [`problems`](Self::problems).
    pub fn strict(&self) -> Result<Rules, Problems> {
        match self.problems.errors().next() {
            None => Ok(self.rules.clone()),
            Some(_) => Err(self.problems.clone()),
        }
    }

    /// Returns the valid rules, and all problems, including warnings.
    ///
    /// If rules exclude each other, such as two with the same id, the first one is valid. A
    /// conflict between the templates in the names of two rules is reported only if the later
    /// rule has no other problem.
    #[must_use]
    pub fn lenient(&self) -> (Rules, Problems) {
        (self.rules.clone(), self.problems.clone())
    }

    /// Returns all errors and warnings.
    #[must_use]
    pub const fn problems(&self) -> &Problems {
        &self.problems
    }

    /// Returns the section on the store of shared rules; `None` if the document has none.
    #[must_use]
    pub const fn store(&self) -> Option<&StoreSection> {
        self.store.as_ref()
    }

    /// Adds the lines and columns of the problems, which are found in `text`.
    fn located(mut self, text: &str, format: Format) -> Self {
        places::locate(text, format, &mut self.problems);
        if let Some(shared) = &mut self.shared {
            places::locate(text, format, &mut shared.1);
        }
        self
    }

    /// Reads a document in the form of this crate.
    fn of_own(table: Entries) -> Result<Self, Problems> {
        let (mut rules, mut of_rules) = Default::default();
        let mut fields = Fields::new(String::new(), &table, Form::Own);
        fields.known(&["rules", store::KEY]);
        let read = fields.peek(store::KEY).map(StoreSection::read);
        let (store, of_store) = read.unzip();
        match fields.peek("rules") {
            Some(Datum::List(list)) => {
                (rules, of_rules) = load(list, "rules", Form::Own, |fields| {
                    let rule = own::rule(fields)?;
                    if store.is_none() {
                        store::refuse_shared(&rule, fields);
                    }
                    Some(rule)
                })?;
            }
            None if Kind::is_single_rule(&table) => {
                let allowed = "a list of tables; one of Sentinel's rules is read in a list, `[…]`";
                fields.refuse("rules", allowed);
                fields.know_all();
            }
            _ => fields.refuse("rules", "a list of tables, which may be empty"),
        }
        let mut problems = Problems::default();
        problems.extend(fields.finish());
        problems.extend(of_store.into_iter().flatten());
        problems.extend(of_rules);
        Ok(Self {
            tree: Datum::Table(table),
            rules,
            store,
            problems,
            shared: None,
        })
    }

    /// Reads a document of Sentinel for an engine without a store. A document with cluster rules is
    /// read for an engine with a store as well.
    fn of_sentinel(list: Vec<Datum>, kind: Kind) -> Result<Self, Problems> {
        let (rules, problems) = sentinel_rules(&list, kind, false)?;
        let shared = if cluster::has_cluster_rule(&list) {
            Some(Box::new(sentinel_rules(&list, kind, true)?))
        } else {
            None
        };
        Ok(Self {
            tree: Datum::List(list),
            rules,
            store: None,
            problems,
            shared,
        })
    }
}

/// Reads a list of Sentinel's rules, for an engine with a store or without.
fn sentinel_rules(
    list: &[Datum],
    kind: Kind,
    has_store: bool,
) -> Result<(Rules, Problems), Problems> {
    let mut with_authority = HashSet::new();
    load(list, "", Form::Sentinel, |fields| {
        fields.has_store = has_store;
        let rule = kind.translate(fields)?;
        // An invalid rule does not count as the first rule of its resource.
        let is_good = || fields.is_good() && Rules::build([rule.clone()]).is_ok();
        let is_authority = matches!(rule, Rule::Authority(_)) && is_good();
        if is_authority && !with_authority.insert(rule.resource().to_owned()) {
            let note = "left out, as Sentinel applies only the first";
            fields.warn_all("not the first rule of its resource", note);
            return None;
        }
        Some(rule)
    })
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The tree is left out: it can hold the address of a store with a password.
        f.debug_struct("Document")
            .field("rules", &self.rules)
            .field("store", &self.store)
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

/// Reads a list of rules in the form of this crate that is not in a document.
///
/// # Errors
///
/// Returns the problems of the rules, or a message that there are too many rules.
pub(super) fn own_rules(list: &[Datum]) -> Result<Rules, String> {
    let loaded = load(list, "", Form::Own, own::rule);
    let (rules, problems) = loaded.map_err(|problems| problems.to_string())?;
    match problems.errors().next() {
        None => Ok(rules),
        Some(_) => Err(problems.to_string()),
    }
}

/// Loads the rules of a list with `read`. Returns the valid rules and all problems.
fn load<'a>(
    list: &'a [Datum],
    path: &str,
    form: Form,
    mut read: impl FnMut(&mut Fields<'a>) -> Option<Rule>,
) -> Result<(Rules, Problems), Problems> {
    let length = list.len();
    if length > MAX_RULES {
        return Err(Problems::of_text(
            None,
            format!("the document has {length} rules, must be at most {MAX_RULES}"),
        ));
    }
    let (mut rules, mut all) = (Rules::new(), Problems::default());
    for (index, item) in list.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Datum::Table(table) = item else {
            let problem = Problem::refused(path, item.excerpt(), "a table");
            all.extend([problem.of_rule(index)]);
            continue;
        };
        let mut fields = Fields::new(path, table, form);
        let rule = read(&mut fields);
        if let Some(rule) = &rule {
            warn_of_names(rule, &mut fields);
        }
        let mut problems = fields.finish();
        let is_good = problems.iter().all(Problem::is_warning);
        if let Some(rule) = rule.filter(|_| is_good) {
            if let Err(error) = rules.try_add(rule, index) {
                let found = error.problems().iter();
                problems.extend(found.map(|invalid| problem_of(&fields, invalid)));
            }
        }
        let most = if all.len() < MOST_PROBLEMS {
            MOST_REPORTED
        } else {
            1
        };
        if problems.len() > most {
            problems.sort_by_key(Problem::is_warning);
            problems.truncate(most);
        }
        let problems = problems.into_iter();
        all.extend(problems.map(|problem| problem.of_rule(index)));
    }
    rules.settle();
    Ok((rules, all))
}

/// Warns of names in the style of Sentinel's adapters, which no layer gives to calls.
fn warn_of_names(rule: &Rule, fields: &mut Fields<'_>) {
    for (field, name) in rule.resources() {
        if let Some(ours) = by_method(name) {
            let note = format!(
                "limits no call that a layer names: with `MethodRoute` it is called {ours:?}"
            );
            fields.warn(fields.key_of(field), &note);
        }
    }
}

/// Returns the problem of the document for a setting that a rule refuses.
fn problem_of(fields: &Fields<'_>, invalid: &InvalidRule) -> Problem {
    if invalid.field() == "limits" {
        let value = format!("without a limit ({})", invalid.value());
        return Problem::refused(&*fields.path, value, invalid.allowed());
    }
    let key = fields.key_of(invalid.field());
    let written = fields.peek(key).filter(|value| value.is_short());
    let value = written.map_or_else(|| invalid.value().to_owned(), Datum::excerpt);
    Problem::refused(fields.path_of(key), value, invalid.allowed())
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_rule_matches_no_path() {
        let text = r#"{"rules": [
            {"kind": "flow", "resource": "/users/{id}", "threshold": 1},
            {"kind": "flow", "resource": "/a/{*rest}", "threshold": 1, "when": "/users/{name}"}
        ]}"#;
        let (rules, problems) = Document::read(text, Format::Json).unwrap().lenient();
        assert_eq!(problems.as_slice()[0].path(), "rules[1].when");
        assert_eq!(rules.templates().matching("/users/7"), Some("/users/{id}"));
        assert_eq!(rules.templates().matching("/a/b"), None);
    }
}
