//! Rules as lines of a table, and the limits that they give to resources.

use std::collections::HashMap;
use std::sync::Arc;

use super::words::{self, LimitFigures};
use crate::report::NodeSnapshot;
use crate::rule::Rule;

/// A rule as a line of a table.
#[derive(Debug)]
pub(super) struct RuleLine {
    pub(super) id: Arc<str>,
    pub(super) kind: &'static str,
    pub(super) resource: String,
    pub(super) is_shadow: bool,
    pub(super) words: String,
    pub(super) limits: LimitFigures,
}

impl RuleLine {
    pub(super) fn new((rule, id): (&Rule, Arc<str>)) -> Self {
        Self {
            id,
            kind: rule.kind(),
            resource: rule.resource().to_owned(),
            is_shadow: rule.is_shadow(),
            words: words::limit(rule),
            limits: words::limits(rule),
        }
    }
}

/// The tightest limits of the rules for each name, and of which kinds there are rules.
pub(super) fn limits_by_name(lines: &[RuleLine]) -> HashMap<&str, (LimitFigures, [bool; 2])> {
    let mut limits: HashMap<&str, (LimitFigures, [bool; 2])> = HashMap::new();
    for line in lines.iter().filter(|line| !line.is_shadow) {
        let (known, has) = limits.entry(&line.resource).or_default();
        *known = known.and(line.limits);
        has[0] |= line.kind == "flow";
        has[1] |= line.kind == "isolation";
    }
    limits
}

/// Those of `node`: of its own rules, or else of those for all resources.
pub(super) fn limits_of(
    node: &NodeSnapshot,
    limits: &HashMap<&str, (LimitFigures, [bool; 2])>,
) -> LimitFigures {
    let (mut own, has) = limits.get(node.resource()).copied().unwrap_or_default();
    let (default, _) = limits.get("*").copied().unwrap_or_default();
    if !has[0] {
        own.per_second = default.per_second;
    }
    if !has[1] {
        own.at_once = default.at_once;
    }
    own.at_once = node.adaptive_limit().map(f64::from).or(own.at_once);
    own
}
