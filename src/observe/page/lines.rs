//! The rules as lines of a table, and the limits of each resource.

use std::collections::HashMap;
use std::sync::Arc;

use super::limits::{LimitFigures, limits};
use super::words;
use crate::base::pace::StepPace;
use crate::rule::{Rule, RuleSet};

/// The maximum number of rules that are shown.
pub(super) const MOST_RULES: usize = 500;

/// The rules of a rule set as lines, and their limits by resource.
#[derive(Debug)]
pub(super) struct RuleLines {
    pub(super) version: u64,
    /// The first rules, which are shown.
    pub(super) shown: Vec<RuleLine>,
    /// The number of all rules.
    pub(super) count: usize,
    /// The limits of the rules for each resource, by its name.
    by_name: HashMap<Box<str>, NameLimits>,
}

/// A rule as a line of a table.
#[derive(Debug)]
pub(super) struct RuleLine {
    pub(super) id: Arc<str>,
    pub(super) kind: &'static str,
    pub(super) resource: String,
    pub(super) is_shadow: bool,
    pub(super) words: String,
}

/// The tightest limits of the rules for one name, and whether it has flow rules and isolation
/// rules.
#[derive(Clone, Copy, Debug, Default)]
struct NameLimits {
    limits: LimitFigures,
    has_flow: bool,
    has_isolation: bool,
}

// === impl RuleLines ===

impl RuleLines {
    pub(super) async fn of(rules: &RuleSet, pace: &mut StepPace) -> Self {
        let mut lines = Self {
            version: rules.version(),
            shown: Vec::new(),
            count: 0,
            by_name: HashMap::new(),
        };
        for (rule, id) in rules.with_ids() {
            lines.count += 1;
            lines.add(rule, &id);
            pace.spend(1).await;
        }
        lines
    }

    /// Adds a rule as a line, if there is room, and its limits unless it is in shadow mode.
    fn add(&mut self, rule: &Rule, id: &Arc<str>) {
        if self.shown.len() < MOST_RULES {
            self.shown.push(RuleLine {
                id: id.clone(),
                kind: rule.kind(),
                resource: rule.resource().to_owned(),
                is_shadow: rule.is_shadow(),
                words: words::limit(rule),
            });
        }
        if rule.is_shadow() {
            return;
        }
        let own = limits(rule);
        if let Some(known) = self.by_name.get_mut(rule.resource()) {
            known.add(rule, own);
        } else {
            let mut new = NameLimits::default();
            new.add(rule, own);
            self.by_name.insert(rule.resource().into(), new);
        }
    }

    /// Returns the limits of a resource. Each figure comes from the rules that name the resource
    /// or, if none of them is of the kind, from the rules for all resources. An `adaptive_limit`
    /// replaces the limit on concurrent calls.
    pub(super) fn limits_of(&self, resource: &str, adaptive_limit: Option<u32>) -> LimitFigures {
        let of = |name: &str| self.by_name.get(name).copied().unwrap_or_default();
        let (own, default) = (of(resource), of("*"));
        let mut limits = own.limits;
        if !own.has_flow {
            limits.per_second = default.limits.per_second;
        }
        if !own.has_isolation {
            limits.at_once = default.limits.at_once;
        }
        limits.at_once = adaptive_limit.map(f64::from).or(limits.at_once);
        limits
    }
}

impl NameLimits {
    /// Tightens the limits by the `limits` of `rule`, and notes the kind of `rule`.
    fn add(&mut self, rule: &Rule, limits: LimitFigures) {
        self.limits = self.limits.and(limits);
        self.has_flow |= rule.kind() == "flow";
        self.has_isolation |= rule.kind() == "isolation";
    }
}
