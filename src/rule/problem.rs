//! The errors of invalid rules.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::base::number::{Number, WholeNumber};
use crate::call::MAX_KEY_BYTES;
use crate::clock::{LONGEST_INTERVAL, SHORTEST_INTERVAL};
use crate::keyed::SHORTEST_REFILL;

/// The maximum number of problems in one text. The text becomes a log event, and log
/// collectors drop events that are too large; a program that generates rules makes the same mistake
/// in each rule.
pub(crate) const MOST_REPORTED: usize = 100;

/// Writes the first of `problems`, with `separator` between them, and the number of problems left
/// out.
pub(crate) fn write_first<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    problems: impl Iterator<Item = T>,
    separator: &str,
) -> fmt::Result {
    let mut problems = problems.enumerate();
    for (index, problem) in problems.by_ref().take(MOST_REPORTED) {
        if index > 0 {
            f.write_str(separator)?;
        }
        write!(f, "{problem}")?;
    }
    match problems.count() {
        0 => Ok(()),
        more => write!(f, "{separator}and {more} more"),
    }
}

/// A problem of a rule: the field, its value, and the allowed range.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{FlowRule, IsolationRule, Rule, Rules};
///
/// let error = Rules::build([
///     Rule::from(IsolationRule::new("/orders", 32)),
///     Rule::from(FlowRule::per_second("/orders", 100).buckets(0)),
/// ])
/// .unwrap_err();
/// let problem = &error.problems()[0];
/// assert_eq!((problem.index(), problem.field()), (1, "buckets"));
/// assert_eq!((problem.value(), problem.allowed()), ("0", "between 1 and 1024"));
/// assert_eq!(
///     problem.to_string(),
///     "rule 1 (flow \"/orders\"): buckets is 0, must be between 1 and 1024",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRule {
    index: usize,
    /// The kind of the rule and the name of its resource.
    subject: String,
    field: &'static str,
    value: String,
    allowed: String,
}

impl InvalidRule {
    /// Returns the index of the rule in the set, counted from 0.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns the name of the field.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        self.field
    }

    /// Returns the value of the field, as text.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns the allowed values, as text.
    #[must_use]
    pub fn allowed(&self) -> &str {
        &self.allowed
    }
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            index,
            subject,
            field,
            value,
            allowed,
        } = self;
        write!(
            f,
            "rule {index} ({subject}): {field} is {value}, must be {allowed}"
        )
    }
}

impl std::error::Error for InvalidRule {}

/// All problems of a set of rules: at least one, and at most 100 of each rule. The text is a single
/// line with the first 100 problems and the number of any others.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{FlowRule, InvalidRules, Sentinel};
///
/// let sentinel = Sentinel::new(FlowRule::per_second("/orders", 100));
/// let edited = [
///     FlowRule::per_second("/orders", -1).id("orders"),
///     FlowRule::per_second("/users", 50).id("orders"),
/// ];
/// let error: InvalidRules = sentinel.try_reload(edited).unwrap_err();
/// let wrong: Vec<_> = error.problems().iter().map(|it| (it.index(), it.field())).collect();
/// assert_eq!(wrong, [(0, "threshold"), (1, "id")]);
/// // One line for a log. The current rules stay in force.
/// assert!(error.to_string().contains("; rule 1 (flow \"/users\"): id is \"orders\", must be "));
/// assert_eq!(sentinel.rules(), FlowRule::per_second("/orders", 100).into());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRules(Vec<InvalidRule>);

impl InvalidRules {
    /// Returns the problems, in the order of the rules.
    #[must_use]
    pub fn problems(&self) -> &[InvalidRule] {
        &self.0
    }
}

impl fmt::Display for InvalidRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_first(f, self.0.iter(), "; ")
    }
}

impl std::error::Error for InvalidRules {}

/// Collects the problems of one rule.
#[derive(Debug)]
pub(crate) struct Inspector {
    pub(super) problems: Vec<InvalidRule>,
    index: usize,
    subject: String,
}

impl Inspector {
    pub(super) const fn new(index: usize, subject: String) -> Self {
        Self {
            problems: Vec::new(),
            index,
            subject,
        }
    }

    /// Reports that `field` has a `value` that is not `allowed`. Problems beyond the first 100 are
    /// dropped: a list can have one in each of a million entries.
    pub(super) fn refuse(
        &mut self,
        field: &'static str,
        value: impl fmt::Display,
        allowed: impl fmt::Display,
    ) {
        self.note(field, &value, &allowed);
    }

    /// Adds a problem, if fewer than 100 are recorded.
    fn note(&mut self, field: &'static str, value: &dyn fmt::Display, allowed: &dyn fmt::Display) {
        if self.problems.len() >= MOST_REPORTED {
            return;
        }
        self.problems.push(InvalidRule {
            index: self.index,
            subject: self.subject.clone(),
            field,
            value: value.to_string(),
            allowed: allowed.to_string(),
        });
    }

    /// Checks that `value` is between `least` and the longest interval.
    pub(super) fn time(&mut self, field: &'static str, value: Duration, least: Duration) -> bool {
        let is_valid = (least..=LONGEST_INTERVAL).contains(&value);
        if !is_valid {
            let least = match least {
                Duration::ZERO => "0",
                SHORTEST_REFILL => "1 µs",
                _ => "1 ms",
            };
            let allowed = format!("between {least} and 366 days");
            self.refuse(field, format_args!("{value:?}"), allowed);
        }
        is_valid
    }

    /// Checks that `value` is in `range`.
    pub(super) fn number(
        &mut self,
        field: &'static str,
        value: impl Into<Number>,
        range: RangeInclusive<u32>,
    ) -> bool {
        let (value, least, most) = (value.into().get(), *range.start(), *range.end());
        let is_valid = (f64::from(least)..=f64::from(most)).contains(&value);
        if !is_valid {
            let allowed = format!("between {least} and {most}");
            self.refuse(field, brief(value), allowed);
        }
        is_valid
    }

    /// Refuses a `threshold` per `interval` that is above 0 and below 1 where whole calls are
    /// counted, as no call would ever pass. `cure` is advice on how to count fractions.
    pub(super) fn whole_call(
        &mut self,
        field: &'static str,
        threshold: f64,
        interval: Duration,
        cure: &str,
    ) {
        if !(threshold > 0.0 && threshold < 1.0) {
            return;
        }
        let longer = Duration::try_from_secs_f64(interval.as_secs_f64() / threshold);
        let longer = longer.ok().filter(|longer| *longer <= LONGEST_INTERVAL);
        let rate = longer.map_or_else(String::new, |longer| format!("write 1 per {longer:?}, or "));
        let allowed = format!("0 or at least 1, as whole calls are counted: {rate}{cure}");
        self.refuse(field, brief(threshold), allowed);
    }

    /// Checks that `value` is a fraction: above 0 and at most 1.
    pub(super) fn fraction(&mut self, field: &'static str, value: f64) {
        if !(value > 0.0 && value <= 1.0) {
            self.refuse(field, brief(value), "above 0 and at most 1");
        }
    }

    /// Checks that there are at most `most` `buckets`, and that they divide `interval`.
    pub(super) fn buckets(&mut self, interval: Duration, buckets: WholeNumber, most: u32) {
        if !self.number("buckets", buckets, 1..=most) {
            return;
        }
        let buckets = buckets.get();
        if interval.as_nanos() % u128::from(buckets) != 0 {
            let allowed = format!("a number that divides the interval of {interval:?}");
            self.refuse("buckets", buckets, allowed);
        } else if interval / buckets < SHORTEST_INTERVAL {
            let most = interval.as_millis();
            let allowed = format!("at most {most}, so that a bucket lasts 1 ms");
            self.refuse("buckets", buckets, allowed);
        }
    }

    /// Checks a name from the user.
    pub(super) fn name(&mut self, field: &'static str, name: &str) {
        if name.len() > MAX_KEY_BYTES {
            let allowed = format!("at most {MAX_KEY_BYTES} bytes");
            self.refuse(field, format_args!("{} bytes long", name.len()), allowed);
        } else if name.trim().is_empty() {
            self.refuse(field, format_args!("{name:?}"), "a name that is not blank");
        } else if name.chars().any(char::is_control) {
            let allowed = "free of control characters";
            self.refuse(field, format_args!("{name:?}"), allowed);
        }
    }
}

/// `number` as messages show it: without a decimal point if it is whole, and never with hundreds of
/// zeros.
pub(super) fn brief(number: f64) -> String {
    let text = format!("{number:?}");
    match text.strip_suffix(".0") {
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// Returns the problems as an error, if there are any.
pub(super) fn verdict(problems: Vec<InvalidRule>) -> Result<(), InvalidRules> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(InvalidRules(problems))
    }
}

/// The problems of `rule` in a set without other rules.
#[cfg(all(test, not(sentinel_loom)))]
pub(super) fn problems(rule: impl Into<super::Rule>) -> Vec<String> {
    let Err(error) = super::Rules::build([rule]) else {
        return Vec::new();
    };
    let told = |it: &InvalidRule| format!("{} is {}, must be {}", it.field, it.value, it.allowed);
    error.0.iter().map(told).collect()
}
