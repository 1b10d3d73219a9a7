//! Sentinel's documents: recognizes the kind of their rules and the dialect, Java or Go.

use std::fmt;

use super::fields::Fields;
use super::value::{Datum, Entries, find};
use super::{foreign, go, java};
use crate::clock::LONGEST_INTERVAL;
use crate::rule::{ANY_RESOURCE, Rule, respelled_name};
use crate::stat::MAX_TOKENS;

/// The kind of rules in one of Sentinel's documents, each of which has only one kind. A rule is
/// refused if it has a key that only another kind has, and no key that only this kind has.
///
/// # Examples
///
/// ```
/// use tower_sentinel::document::{Document, Kind};
/// use tower_sentinel::{AuthorityRule, Rules};
///
/// let text = r#"[{"resource": "/pay", "limitApp": "shop,office", "strategy": 0}]"#;
/// let rules = Document::read_sentinel(text, Kind::Authority)?.strict()?;
/// assert_eq!(rules, Rules::from(AuthorityRule::allow("/pay", ["shop", "office"])));
/// // They cannot be read as rules of another kind.
/// let problems = Document::read_sentinel(text, Kind::CircuitBreaker)?.strict().unwrap_err();
/// assert_eq!(problems.errors().next().unwrap().path(), "[0].timeWindow");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `FlowRule`, `flow.Rule`. A rule of thread grade becomes an
    /// [`IsolationRule`](crate::IsolationRule).
    Flow,
    /// `isolation.Rule`, which only the Go dialect has.
    Isolation,
    /// `DegradeRule`, `circuitbreaker.Rule`.
    CircuitBreaker,
    /// `AuthorityRule`, which only the Java dialect has.
    Authority,
    /// `SystemRule`, `system.Rule`.
    System,
    /// `ParamFlowRule`, `hotspot.Rule`.
    HotParam,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Keys that only rules of one kind have.
const MARKS: [(Kind, &[&str]); 5] = [
    (
        Kind::CircuitBreaker,
        &[
            "timeWindow",
            "slowRatioThreshold",
            "minRequestAmount",
            "retryTimeoutMs",
            "maxAllowedRtMs",
            "statSlidingWindowBucketCount",
            "probeNum",
        ],
    ),
    (
        Kind::System,
        &[
            "highestSystemLoad",
            "highestCpuUsage",
            "qps",
            "avgRt",
            "maxThread",
            "triggerCount",
        ],
    ),
    (
        Kind::HotParam,
        &[
            "paramIdx",
            "paramFlowItemList",
            "burstCount",
            "durationInSec",
            "paramIndex",
            "paramKey",
            "specificItems",
            "paramsMaxCapacity",
        ],
    ),
    (
        Kind::Flow,
        &[
            "refResource",
            "warmUpPeriodSec",
            "tokenCalculateStrategy",
            "relationStrategy",
            "statIntervalInMs",
            "warmUpColdFactor",
        ],
    ),
    // Last, because flow rules can have this key too, without a meaning.
    (Kind::CircuitBreaker, &["statIntervalMs"]),
];

/// The effect of a limit on the average response time that is too high to be reached.
pub(super) const NEVER_SO_LONG: &str = "without effect, as a call counts for a minute at most";

/// The effect of a rule without a threshold.
pub(super) const AS_0: &str = "taken as 0, as by Sentinel";
/// The effect of a flow rule without a threshold.
pub(super) const REFUSES_ALL: &str = "taken as 0, as by Sentinel: every call is refused";

/// Keys of the Go dialect that no rule of the Java dialect has.
pub(super) const GO: [&str; 13] = [
    "tokenCalculateStrategy",
    "relationStrategy",
    "statIntervalInMs",
    "warmUpColdFactor",
    "retryTimeoutMs",
    "maxAllowedRtMs",
    "statSlidingWindowBucketCount",
    "probeNum",
    "metricType",
    "triggerCount",
    "paramIndex",
    "paramKey",
    "specificItems",
];

impl Kind {
    /// Returns the name of the kind, as documents of this crate write it.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::document::Kind::HotParam.as_str(), "hot-param");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Isolation => "isolation",
            Self::CircuitBreaker => "circuit-breaker",
            Self::Authority => "authority",
            Self::System => "system",
            Self::HotParam => "hot-param",
        }
    }

    /// Returns the kind of the rules in a list, if their keys show it.
    pub(super) fn of(list: &[Datum]) -> Option<Kind> {
        let tables = list.iter().filter_map(|item| match item {
            Datum::Table(table) => Some(table),
            _ => None,
        });
        if tables.clone().next().is_some() && tables.clone().all(foreign::is_always_refused) {
            // All of them are refused as rules of any kind, with a better message than that of an
            // unknown kind.
            return Some(Kind::Flow);
        }
        let mut kinds = tables
            .clone()
            .filter_map(|table| Some(marks(table).next()?.0));
        if let Some(kind) = kinds.next() {
            return kinds.all(|other| other == kind).then_some(kind);
        }
        // No table has a mark, so the keys that several kinds share decide.
        let mut kinds = tables.map(|table| {
            if has(table, "threshold") && has(table, "metricType") {
                Some(Kind::Isolation)
            } else if has(table, "count") {
                Some(Kind::Flow)
            } else if has(table, "limitApp") && !has(table, "grade") {
                Some(Kind::Authority)
            } else {
                None
            }
        });
        let kind = kinds.next()??;
        kinds.all(|other| other == Some(kind)).then_some(kind)
    }

    /// Returns whether a table looks like a single rule.
    pub(super) fn is_single_rule(table: &Entries) -> bool {
        !has(table, "kind") && (has(table, "resource") || marks(table).next().is_some())
    }

    /// Translates the rule in a table. `None` if the rule is invalid, or if it does nothing.
    pub(super) fn translate(self, fields: &mut Fields<'_>) -> Option<Rule> {
        let table = fields.table;
        if foreign::refuse_foreign(self, fields) {
            return None;
        }
        if let Some((other, key)) = self.marks_of_another(table) {
            let allowed = format!("absent: only a rule of `Kind::{other:?}` has it");
            fields.refuse(key, allowed);
            return None;
        }
        // In Sentinel, only circuit breakers have default rules: elsewhere `*` is an ordinary name.
        let is_any =
            matches!(fields.peek("resource"), Some(Datum::Text(name)) if name == ANY_RESOURCE);
        if is_any && self != Kind::CircuitBreaker {
            let allowed = "a name: here `*` is every resource without a rule of the kind";
            fields.refuse("resource", allowed);
        }
        for key in ["enable", "enabled"] {
            if fields.peek(key) == Some(&Datum::Flag(false)) {
                fields.warn(key, "ignored, as by Sentinel: the rule applies");
            }
        }
        let is_go = GO.iter().chain(&["threshold"]).any(|key| has(table, key));
        let is_go = is_go && !has(table, "count");
        match (self, is_go) {
            (Kind::Flow, false) => java::flow(fields),
            (Kind::Flow, true) => go::flow(fields),
            (Kind::CircuitBreaker, false) => java::circuit_breaker(fields),
            (Kind::CircuitBreaker, true) => go::circuit_breaker(fields),
            (Kind::System, false) => java::system(fields),
            (Kind::System, true) => go::system(fields),
            (Kind::HotParam, false) => java::keyed_rule(fields),
            (Kind::HotParam, true) => go::keyed_rule(fields),
            (Kind::Authority, _) => java::authority(fields),
            (Kind::Isolation, _) => go::isolation(fields),
        }
    }

    /// If the table has a key that only another kind has, and no key that only this kind has,
    /// returns the other kind and that key. Read as a rule of this kind, the table would mean
    /// something else: the `count` of a circuit breaker is not a rate.
    fn marks_of_another(self, table: &Entries) -> Option<(Kind, &'static str)> {
        let mut marks = marks(table);
        let first = marks.next()?;
        let is_other = first.0 != self && marks.all(|(kind, _)| kind != self);
        is_other.then_some(first)
    }
}

/// Iterates over the groups of [`MARKS`] of which `table` has a key: returns the kind of each
/// group, and the first of its keys that `table` has.
fn marks(table: &Entries) -> impl Iterator<Item = (Kind, &'static str)> {
    MARKS.iter().filter_map(|(kind, keys)| {
        let key = keys.iter().find(|key| has(table, key))?;
        Some((*kind, *key))
    })
}

/// Returns whether a table has a value other than null under `key`.
pub(super) fn has(table: &Entries, key: &str) -> bool {
    find(table, key).is_some_and(|value| *value != Datum::Null)
}

/// Reads the settings that all rules have, and returns the resource.
pub(super) fn resource(fields: &mut Fields<'_>) -> String {
    fields.known(&["id"]);
    if fields.is_set("regex") {
        let allowed =
            "false: a resource is named in full, or by a template such as \"/users/{id}\"";
        fields.refuse("regex", allowed);
    }
    let name = fields.needed_text("resource");
    respelled_resource(fields, "resource", name)
}

/// Translates the resource `name`, the value of `key`, to this crate's syntax of templates. The
/// adapters of Sentinel for Go name resources by the routes of Gin and Echo.
pub(super) fn respelled_resource(
    fields: &mut Fields<'_>,
    key: &'static str,
    name: String,
) -> String {
    let Some(ours) = respelled_name(&name) else {
        return name;
    };
    fields.warn_harmless(
        key,
        &format!("taken as {ours:?}, which matches the same paths"),
    );
    ours
}

/// Returns whether `number`, the value of `key`, is a valid time in milliseconds, and refuses it if
/// not.
pub(super) fn is_millis(fields: &mut Fields<'_>, key: &str, number: f64) -> bool {
    let longest = LONGEST_INTERVAL.as_millis() as f64;
    let is_good = (0.0..=longest).contains(&number);
    if !is_good {
        let allowed = format!("a number of milliseconds between 0 and {longest}");
        fields.refuse(key, allowed);
    }
    is_good
}

/// Returns the next number above `value`, which is not below zero: a limit that refuses at this
/// number refuses everything above `value`.
pub(super) fn just_above(value: f64) -> f64 {
    f64::from_bits(value.abs().to_bits() + 1)
}

/// Returns the canonical text of the whole number in `value`, and refuses a text that is no whole
/// number.
pub(super) fn whole_value(fields: &mut Fields<'_>, key: &str, value: &str) -> String {
    match value.trim().parse::<i64>() {
        Ok(number) => number.to_string(),
        // A value that is no text, or is missing, was reported before.
        Err(_) if matches!(fields.peek(key), Some(Datum::Text(_))) => {
            fields.refuse(key, "a whole number as a text");
            String::new()
        }
        Err(_) => String::new(),
    }
}

/// Returns the canonical text of the flag in `value`, and refuses a text that is no flag.
pub(super) fn flag_value(fields: &mut Fields<'_>, key: &str, value: &str) -> String {
    let plain = value.trim().to_ascii_lowercase();
    // A value that is no text, or is missing, was reported before.
    let is_text = matches!(fields.peek(key), Some(Datum::Text(_)));
    if is_text && !matches!(&*plain, "true" | "false") {
        fields.refuse(key, "\"true\" or \"false\"");
    }
    plain
}

/// Returns the whole part of `number`, the value of `key`.
pub(super) fn whole_part(fields: &mut Fields<'_>, key: &str, number: f64) -> u32 {
    if !(0.0..=f64::from(MAX_TOKENS)).contains(&number) {
        fields.refuse(key, format!("between 0 and {MAX_TOKENS}"));
    }
    number as u32
}

/// Returns the limit on calls per second that `number`, the value of `key`, amounts to: 0 for a
/// limit between 0 and 1, which lets no call pass.
pub(super) fn whole_or_0(fields: &mut Fields<'_>, key: &'static str, number: f64) -> f64 {
    if number > 0.0 && number < 1.0 {
        fields.warn(key, REFUSES_ALL);
        return 0.0;
    }
    number
}

/// Returns the number under `key`. A missing number is 0, with a warning that `note` describes.
pub(super) fn number_or_0(fields: &mut Fields<'_>, key: &'static str, note: &str) -> f64 {
    let number = fields.number(key);
    if !fields.has(key) {
        fields.warn(key, note);
    }
    number.unwrap_or(0.0)
}
