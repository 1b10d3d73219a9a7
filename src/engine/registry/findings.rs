//! Comparing the names and keys of rules with those of calls: see
//! [`finding`](crate::hook::finding).

use std::collections::{HashMap, HashSet};
use std::sync::Arc as StdArc;

use super::Registry;
use crate::call::{Direction, Key, OVERFLOW};
use crate::engine::resource::{Resource, ResourceQuery};
use crate::hook::Interest;
use crate::hook::finding::{Finding, FindingKind, Need, cause_of_silence};
use crate::rule::{MissingKey, Rule, RuleSet};
use crate::stat::Node;

/// Most findings that are reported at once. Rules come from the operator, but may be many.
const MOST_FINDINGS: usize = 1_000;
/// Most rules whose names are compared with others.
const MOST_RULES: usize = 256;
/// Most names, of those called most often, that the name of a rule is compared with.
const MOST_NAMES: usize = 256;

/// The resources that were called, and how often.
#[derive(Debug, Default)]
struct Called {
    calls: HashMap<StdArc<str>, u64>,
    /// Those called most often, which names of rules are compared with.
    most: Vec<(StdArc<str>, u64)>,
    /// Also on resources that have been evicted.
    total: u64,
}

impl Registry {
    /// Everything that looks like a mistake now, with the keys that the rules in shadow mode beside
    /// these are `missing`. Hooks are notified once: of all, or only of those that no further call
    /// can explain, for a reader that may come before the first calls.
    pub(crate) fn findings(&self, missing: Vec<Finding>, has_come_late: bool) -> Vec<Finding> {
        let found = self.look_for_findings(missing);
        let certain = |finding: &&Finding| has_come_late || finding.has_evidence();
        found
            .iter()
            .filter(certain)
            .for_each(|finding| self.shared.tell(finding));
        found
    }

    fn look_for_findings(&self, missing_beside: Vec<Finding>) -> Vec<Finding> {
        let (set, mut called) = (self.rules(), self.called());
        let mut found = Vec::new();
        if called.total == 0 && !set.rules().is_empty() {
            found.push(self.no_calls());
        }
        for (rule, id) in set.with_ids() {
            if found.len() >= MOST_FINDINGS {
                break;
            }
            if found.len() == MOST_RULES {
                // The names that the others are meant for are not looked for: it takes time.
                called.most.clear();
            }
            found.extend(self.of_rule(rule, &id, &set, &called));
        }
        let mut missing = self.missing_keys();
        missing.extend(missing_beside);
        // That no layer provides a key says more than that no call had it.
        let is_new = |it: &Finding| found.iter().all(|known| known.rule() != it.rule());
        missing.retain(is_new);
        found.extend(missing);
        found.extend(self.store_findings(&set));
        found.truncate(MOST_FINDINGS);
        found
    }

    /// Notifies hooks at once of mistakes that show at the first call to a resource. It has been
    /// `made` for that call.
    #[cold]
    pub(super) fn compare_new(&self, made: &Resource) {
        let are_wanted = self.shared.hooks.want(Interest::FINDING);
        if !are_wanted || !self.shared.told.may_compare() {
            return;
        }
        let (set, name) = (self.rules(), made.text());
        let is_named = set.names(name);
        for (rule, id) in set.with_ids().take(MOST_RULES) {
            if is_named {
                let is_own = rule.resource() == &**name;
                let found =
                    is_own.then(|| [self.not_provided(rule, &id), self.no_store(rule, &id)]);
                let found = found.iter().flatten().flatten();
                found.for_each(|finding| self.shared.tell(finding));
            } else if is_silent(rule, |resource| self.was_called(resource)) {
                let cause = cause_of_silence(rule.resource(), [(&**name, 1)]);
                let found = cause.map(|cause| not_met(rule, &id, cause));
                found.iter().for_each(|finding| self.shared.tell(finding));
            }
        }
    }

    fn no_calls(&self) -> Finding {
        let cause = if self.shared.provided.has_layers() {
            "if requests were answered, the layer is not around their routes; in axum, \
             `.layer(…)` applies to the routes that were added before it"
        } else {
            "no layer of this engine is around a service, and the program enters no calls itself"
        };
        Finding::new(FindingKind::NoCalls, "", "", cause)
    }

    /// The findings on `rule`, as far as names and layers show them.
    fn of_rule(&self, rule: &Rule, id: &str, set: &RuleSet, called: &Called) -> Vec<Finding> {
        let mut found = Vec::new();
        let resource = rule.resource();
        let is_met = |name: &str| called.calls.contains_key(name);
        if called.total > 0 && is_silent(rule, is_met) {
            let cause = called.cause_of_silence(resource);
            found.push(not_met(rule, id, cause));
        }
        let related = rule.itself().related().filter(|name| !is_met(name));
        if let Some(related) = related.filter(|_| is_met(resource)) {
            let cause = called.cause_of_silence(related);
            found.push(Finding::new(
                FindingKind::RelatedNotCalled,
                id,
                related,
                cause,
            ));
        }
        if called.total > 0 && rule.is_default() && called.all_have_others(rule, set) {
            let cause = "every resource that was called has a rule of the same kind of its own";
            found.push(not_met(rule, id, cause.to_owned()));
        }
        found.extend(self.not_provided(rule, id));
        if rule.looks_at_machine() && self.shared.config.sampler.is_none() {
            let cause = "give the engine one by `Builder::sampler`";
            found.push(Finding::new(FindingKind::NoSampler, id, resource, cause));
        }
        found.extend(self.no_store(rule, id));
        found
    }

    /// That `rule` needs a store, where there is none.
    fn no_store(&self, rule: &Rule, id: &str) -> Option<Finding> {
        let has_none = rule.is_shared() && !self.shared.has_store();
        let cause = "give the engine a store by `Builder::store`";
        has_none.then(|| Finding::new(FindingKind::NoStore, id, rule.resource(), cause))
    }

    /// A key of `rule` that no layer takes out of requests.
    fn not_provided(&self, rule: &Rule, id: &str) -> Option<Finding> {
        let provided = &self.shared.provided;
        let needs = rule.needs();
        let (need, lack) = needs
            .iter()
            .find_map(|need| Some((need, provided.lacks(*need)?)))?;
        let effect = match (need, rule.missing_key()) {
            (Need::Tier, _) => "all callers have the default quota",
            (_, Some(MissingKey::Share)) => "all callers share one quota",
            (_, Some(MissingKey::Refuse)) => "every call is refused",
            (_, Some(MissingKey::Skip)) | (_, None) => "it limits no call by that",
        };
        let cause = format!("{lack}; {effect}");
        Some(Finding::new(
            FindingKind::NotProvided,
            id,
            rule.resource(),
            cause,
        ))
    }

    /// The rules that have met calls, and none with the key that they look at.
    pub(crate) fn missing_keys(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        self.resources.read_all(|resource| {
            if let Some(params) = resource.params() {
                let silent = params.without_keys();
                found.extend(silent.filter_map(|(rule, calls)| resource.missing_key(rule, calls)));
            }
        });
        found
    }

    fn called(&self) -> Called {
        let mut called = Called::default();
        let gone = self.resources.read_all(|resource| {
            let calls = calls(resource.node());
            *called.calls.entry(resource.text().clone()).or_default() += calls;
            // A call of weight 0 counts for nothing, and has been made.
            called.total += calls.max(1);
        });
        for retired in &gone.retired {
            called.total += retired.pass() + retired.block();
        }
        let mut most: Vec<_> = called
            .calls
            .iter()
            .map(|(name, calls)| (name.clone(), *calls))
            .collect();
        most.sort_unstable_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
        most.truncate(MOST_NAMES);
        called.most = most;
        called
    }

    fn was_called(&self, resource: &str) -> bool {
        [Direction::Inbound, Direction::Outbound]
            .into_iter()
            .any(|direction| {
                let query = ResourceQuery {
                    direction,
                    name: &Key::Str(resource).meant(),
                };
                self.resources.find(&query, |_| ()).is_some()
            })
    }
}

impl Called {
    /// Why no call has come to `name`; nothing if no other name is like it.
    fn cause_of_silence(&self, name: &str) -> String {
        let others = self.most.iter().map(|(other, calls)| (&**other, *calls));
        cause_of_silence(name, others).unwrap_or_default()
    }

    /// Whether each resource that was called has a rule of its own that keeps the default
    /// `rule` away.
    fn all_have_others(&self, rule: &Rule, set: &RuleSet) -> bool {
        let others = set.rules().iter().filter(|other| !other.is_default());
        let others = others.filter(|other| other.is_kind_of(rule));
        let named: HashSet<_> = others.map(Rule::resource).collect();
        self.calls.keys().all(|name| named.contains(&**name))
    }
}

/// Whether `rule` has met no call, if those are the resources that were called.
fn is_silent(rule: &Rule, was_called: impl Fn(&str) -> bool) -> bool {
    let resource = rule.resource();
    let is_of_one = !rule.is_default() && !matches!(rule.itself(), Rule::System(_));
    // That no call is without a place of its own is as it should be.
    is_of_one && resource != OVERFLOW && !was_called(resource)
}

fn not_met(rule: &Rule, id: &str, cause: String) -> Finding {
    Finding::new(FindingKind::RuleNotMet, id, rule.resource(), cause)
}

/// The weight of all calls that `node` has counted.
fn calls(node: &Node) -> u64 {
    let totals = node.totals(node.last_used());
    totals.pass() + totals.block()
}
