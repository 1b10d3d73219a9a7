//! Finds mistakes by comparing the names and keys of rules with the names and keys of calls: see
//! [`finding`](crate::hook::finding).

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc as StdArc;

use super::Registry;
use crate::base::order::sorted_places;
use crate::base::pace::StepPace;
use crate::base::sync::Arc;
use crate::call::{Direction, Key, OVERFLOW};
use crate::engine::resource::{Resource, ResourceQuery};
use crate::hook::Interest;
use crate::hook::finding::{Finding, FindingKind, Need, cause_of_silence, oddity};
use crate::rule::{CostRules, MissingKey, Rule, RuleSet};
use crate::stat::Node;

/// The maximum number of findings that are reported at once, as there can be very many rules.
const MOST_FINDINGS: usize = 1_000;
/// The maximum number of rules whose names are compared with the names of calls, as comparisons are
/// expensive.
const MOST_RULES: usize = 256;
/// The number of calls after which a rule without a call is reported.
const LATE: u64 = 1_000;
/// The maximum number of call names with which the name of a rule is compared, as comparisons are
/// expensive. The names with the most calls are used.
const MOST_NAMES: usize = 256;
/// The number of name lookups that count as one unit of work of the pace.
const LOOK_UPS: usize = 64;
/// The work of comparing one rule with all names. The unit is the work of reading one resource.
const WORK_OF_NAMES: usize = 32;

/// The calls to an engine so far, by the names of resources.
#[derive(Debug, Default)]
struct Called {
    /// The weight of the calls to each resource in the table.
    calls: HashMap<StdArc<str>, u64>,
    /// The most called names without rules, with which the names of rules are compared to find
    /// misspellings.
    most: Vec<(StdArc<str>, u64)>,
    /// The weight of all calls, including those to evicted resources.
    total: u64,
}

impl Registry {
    /// Returns all current findings, including `missing`, the findings on keys that rules in shadow
    /// mode lack. Hooks are notified of each finding once. If the reader may ask before the first
    /// calls (`has_come_late` is false), they are notified only of findings with evidence, which no
    /// later call can refute.
    ///
    /// Findings with evidence come first. A reader that may ask early gets findings on rules
    /// without a call only after a [thousand](LATE) calls, as most rules have matched no call until
    /// then.
    pub(crate) async fn findings(
        &self,
        pace: &mut StepPace,
        missing: Vec<Finding>,
        has_come_late: bool,
    ) -> Vec<Finding> {
        let (set, called) = (self.rules(), self.called(pace).await);
        let is_late = called.total >= LATE;
        let mut found = self.look_for_findings(pace, &set, called, missing).await;
        if !has_come_late && !is_late {
            let is_early =
                |it: &Finding| it.kind() == FindingKind::RuleNotMet && !it.has_evidence();
            found.retain(|finding| !is_early(finding));
        }
        let (mut sorted, mut without) = (Vec::with_capacity(found.len()), Vec::new());
        for finding in found {
            if finding.has_evidence() {
                sorted.push(finding);
            } else {
                without.push(finding);
            }
        }
        sorted.append(&mut without);
        for finding in &sorted {
            if has_come_late || finding.has_evidence() {
                self.shared.tell(finding);
            }
        }
        sorted
    }

    /// Collects the findings on rules, calls, layers and the store, in this order.
    async fn look_for_findings(
        &self,
        pace: &mut StepPace,
        set: &RuleSet,
        mut called: Called,
        missing_in_shadows: Vec<Finding>,
    ) -> Vec<Finding> {
        let mut found = Vec::new();
        if called.total == 0 && !set.rules().is_empty() {
            found.push(self.no_calls());
        }
        for (rule, id) in set.with_ids() {
            if found.len() >= MOST_FINDINGS {
                break;
            }
            if found.len() == MOST_RULES {
                // For the remaining rules, similar names are not searched, as the search takes
                // time.
                called.most.clear();
            }
            let before = found.len();
            found.extend(self.of_rule(rule, &id, &called));
            if called.total > 0
                && rule.is_default()
                && called.all_have_others(rule, set, pace).await
            {
                let cause = "every resource that was called has a rule of the same kind of its own";
                found.push(not_met(rule, &id, cause.to_owned()));
            }
            // A rule with a finding was compared with many names, which costs more work.
            let is_much = found.len() > before;
            pace.spend(if is_much { WORK_OF_NAMES } else { 1 }).await;
        }
        // The map is dropped in steps as well, as it can be large.
        let mut dropped = 0;
        for call in called.calls.drain() {
            drop(call);
            dropped += 1;
            if dropped % LOOK_UPS == 0 {
                pace.spend(1).await;
            }
        }
        let mut missing = self.missing_keys(pace).await;
        missing.extend(missing_in_shadows);
        let known = found.len();
        for finding in missing {
            // The finding that no call had a key is redundant if another finding reports that no
            // layer provides this key.
            if !found[..known]
                .iter()
                .any(|known| known.is_on_part_of(&finding))
            {
                found.push(finding);
            }
        }
        found.extend(self.on_layers(set));
        #[cfg(feature = "shared")]
        found.extend(self.store_findings(set));
        found.truncate(MOST_FINDINGS);
        found
    }

    /// Notifies hooks of mistakes that become visible at the first call to a resource. `made` is
    /// the resource, which this call has created. Its name is compared with the names in the rules.
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
                if rule.resource() == &**name {
                    let mut found = self.not_provided(rule, &id);
                    found.extend(self.no_store(rule, &id));
                    #[cfg(feature = "shared")]
                    found.extend(self.not_started(rule));
                    for finding in &found {
                        self.shared.tell(finding);
                    }
                }
            } else if is_silent(rule, &|resource| self.was_called(resource)) {
                let mut cause = self.cause_by_name(rule.resource());
                if cause.is_none() {
                    cause = cause_of_silence(rule.resource(), &[(name.clone(), 1)]);
                }
                if let Some(cause) = cause {
                    self.shared.tell(&not_met(rule, &id, cause));
                }
            }
        }
        for finding in self.on_layers(&set) {
            self.shared.tell(&finding);
        }
    }

    /// Notifies hooks of the rules that have matched no call, once `resource` has been called a
    /// [thousand](LATE) times. By then, calls to other resources are expected as well.
    #[cold]
    pub(crate) fn look_late(&self, resource: &Resource) {
        let is_due = self.shared.hooks.want(Interest::FINDING)
            && calls(resource.node()) >= LATE
            && self.shared.told.may_look_late();
        if !is_due {
            return;
        }
        let set = self.rules();
        for (rule, id) in set.with_ids().take(MOST_RULES) {
            if is_silent(rule, &|resource| self.was_called(resource)) {
                let mut cause = self.cause_by_name(rule.resource());
                if cause.is_none() {
                    cause = self.cause_by_kind_of_name(rule.resource());
                }
                self.shared
                    .tell(&not_met(rule, &id, cause.unwrap_or_default()));
            }
        }
    }

    /// Notes a request whose caller is identified by the address of the peer. `is_forwarded` means
    /// that a proxy has forwarded it.
    pub(crate) fn note_peer(&self, is_forwarded: bool) {
        if self.shared.provided.note_peer(is_forwarded) {
            self.shared.tell(&behind_proxy());
        }
    }

    /// Returns the reason why no call can have `name`, if there is one: the way in which layers
    /// name calls, or the form of the name.
    fn cause_by_name(&self, name: &str) -> Option<String> {
        if let Some(names) = self.shared.provided.only_names() {
            let mut cause = "every layer names all its calls alike, by `.named(…)`: ".to_owned();
            for (place, name) in names.iter().enumerate() {
                let separator = if place == 0 { "" } else { ", " };
                // Writing to a string cannot fail.
                let _ = write!(cause, "{separator}{name:?}");
            }
            return Some(cause);
        }
        oddity(name)
    }

    /// Returns the likely cause of missing calls if `name` is not a path: by default, layers name
    /// calls by paths.
    fn cause_by_kind_of_name(&self, name: &str) -> Option<String> {
        let is_route = name.contains('/');
        (!is_route && self.shared.provided.has_layers()).then(|| {
            format!(
                "requests are named by their route; a layer with `.named({name:?})` gives all of \
                 its requests this name"
            )
        })
    }

    /// Returns the findings on the properties that layers extract from requests.
    fn on_layers(&self, set: &RuleSet) -> Vec<Finding> {
        let provided = &self.shared.provided;
        let mut needs = Vec::new();
        for rule in set.rules() {
            needs.extend(rule.needs());
        }
        let is_used = |need: Need<'_>| needs.contains(&need);
        // If a rule lacks its parameter, another finding already names the parameters that exist.
        let lacks_one = needs.iter().any(|need| {
            matches!(need, Need::ParamAt(_) | Need::ParamNamed(_))
                && provided.lacks(*need).is_some()
        });
        let unused = provided.unused_params(&is_used);
        let mut found = Vec::new();
        if !unused.is_empty() && !set.rules().is_empty() && !lacks_one {
            let cause = format!(
                "{}; a rule looks at it by `KeyedRule::param_at` or `KeyedRule::param`",
                unused.join(", ")
            );
            found.push(Finding::new(FindingKind::UnusedParam, "", "", cause));
        }
        if provided.is_behind_proxy() {
            found.push(behind_proxy());
        }
        found
    }

    /// Creates the finding that the engine has had no calls, with its likely cause.
    fn no_calls(&self) -> Finding {
        let cause = if self.shared.provided.has_layers() {
            "if requests were answered, the layer is not around their routes; in axum, \
             `.layer(…)` applies to the routes that were added before it"
        } else {
            "no layer of this engine is around a service, and the program enters no calls itself"
        };
        Finding::new(FindingKind::NoCalls, "", "", cause)
    }

    /// Returns the findings on `rule` that follow from names and layers.
    fn of_rule(&self, rule: &Rule, id: &str, called: &Called) -> Vec<Finding> {
        let mut found = Vec::new();
        let resource = rule.resource();
        let is_met = |name: &str| called.calls.contains_key(name);
        if called.total > 0 && is_silent(rule, &is_met) {
            let mut cause = self.cause_by_name(resource);
            if cause.is_none() {
                cause = cause_of_silence(resource, &called.most);
            }
            found.push(match cause {
                Some(cause) => not_met(rule, id, cause),
                None => {
                    let cause = self.cause_by_kind_of_name(resource).unwrap_or_default();
                    not_met(rule, id, cause).without_evidence()
                }
            });
        }
        match rule.itself().related() {
            Some(related) if !is_met(related) && is_met(resource) => {
                let cause = cause_of_silence(related, &called.most).unwrap_or_default();
                let kind = FindingKind::RelatedNotCalled;
                found.push(Finding::new(kind, id, related, cause));
            }
            _ => {}
        }
        found.extend(self.not_provided(rule, id));
        if rule.looks_at_machine() && self.shared.config.sampler.is_none() {
            let cause = "give the engine one by `Builder::sampler`";
            found.push(Finding::new(FindingKind::NoSampler, id, resource, cause));
        }
        found.extend(self.no_store(rule, id));
        found
    }

    /// Returns the finding that `rule` needs a store and the engine has none.
    fn no_store(&self, rule: &Rule, id: &str) -> Option<Finding> {
        let has_none = rule.is_shared() && !self.shared.has_store();
        let cause = "give the engine a store by `Builder::store`";
        has_none.then(|| Finding::new(FindingKind::NoStore, id, rule.resource(), cause))
    }

    /// Returns findings for the keys of `rule` that no layer extracts from requests.
    fn not_provided(&self, rule: &Rule, id: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        for need in rule.needs() {
            let Some(lack) = self.shared.provided.lacks(need) else {
                continue;
            };
            let effect = match (need, rule.missing_key()) {
                (Need::Tier, _) => "all callers have the default quota",
                (_, Some(MissingKey::Share)) => "all callers share one quota",
                (_, Some(MissingKey::Refuse)) => "every call is refused",
                (_, Some(MissingKey::Skip)) | (_, None) => "it limits no call by that",
            };
            let cause = format!("{lack}; {effect}");
            let finding = Finding::new(FindingKind::NotProvided, id, rule.resource(), cause);
            found.push(finding.on(need));
        }
        found
    }

    /// Returns the findings on calls that rules have matched: calls without the key of a rule, with
    /// an unknown tier, all of one class, or with costs that do not fit the rules.
    pub(crate) async fn missing_keys(&self, pace: &mut StepPace) -> Vec<Finding> {
        let mut found = Vec::new();
        let has_criticality = self.shared.provided.has_criticality();
        let mut look = |resource: &Arc<Resource>| {
            found.extend(resource.keys_without_calls());
            found.extend(resource.class_findings(has_criticality));
            found.extend(resource.cost_findings());
            let of_costs = resource.costs().and_then(CostRules::by_key);
            for rules in [resource.params(), of_costs].into_iter().flatten() {
                for (rule, calls) in rules.without_keys() {
                    found.extend(resource.missing_key(rule, calls));
                }
                for (rule, calls) in rules.blocked_together() {
                    found.extend(resource.blocked_together(rule, calls));
                }
                for (rule, tier) in rules.unknown_tiers() {
                    found.extend(resource.unknown_tier(rule, &tier));
                }
            }
        };
        self.read_resources(pace, 1, &mut look).await;
        found
    }

    /// Collects the resources that were called.
    async fn called(&self, pace: &mut StepPace) -> Called {
        let mut called = Called::default();
        let mut look = |resource: &Arc<Resource>| {
            let calls = calls(resource.node());
            *called.calls.entry(resource.text().clone()).or_default() += calls;
            // A resource counts as called at least once, even if its calls had a weight of 0.
            called.total += calls.max(1);
        };
        let gone = self.read_resources(pace, 1, &mut look).await;
        for retired in &gone.retired {
            called.total += retired.pass() + retired.block();
        }
        // Names with rules are left out: calls to them are meant for these rules.
        let set = self.rules();
        let mut looked_up = 0;
        for (name, calls) in &called.calls {
            if !set.names(name) {
                called.most.push((name.clone(), *calls));
            }
            looked_up += 1;
            if looked_up % LOOK_UPS == 0 || looked_up == called.calls.len() {
                // The sort costs about a quarter of the comparison of one rule with all names.
                keep_most(&mut called.most);
                pace.spend(WORK_OF_NAMES / 4).await;
            }
        }
        called
    }

    /// Returns whether a resource of this name is in the table, in either direction.
    fn was_called(&self, resource: &str) -> bool {
        for direction in [Direction::Inbound, Direction::Outbound] {
            let query = ResourceQuery {
                direction,
                name: &Key::Str(resource).meant(),
            };
            if self.resources.find(&query, |_| ()).is_some() {
                return true;
            }
        }
        false
    }
}

impl Called {
    /// Returns whether each called resource has its own rule, which replaces the default `rule`.
    async fn all_have_others(&self, rule: &Rule, set: &RuleSet, pace: &mut StepPace) -> bool {
        let mut named: HashMap<&str, usize> = HashMap::new();
        for (looked_up, other) in set.rules().iter().enumerate() {
            if !other.is_default() && other.is_kind_of(rule) {
                named.insert(other.resource(), looked_up);
            }
            if looked_up % LOOK_UPS == 0 {
                pace.spend(1).await;
            }
        }
        for (looked_up, name) in self.calls.keys().enumerate() {
            if !named.contains_key(&**name) {
                return false;
            }
            if looked_up % LOOK_UPS == 0 {
                pace.spend(1).await;
            }
        }
        true
    }
}

/// Sorts `names` by their number of calls, and keeps the first [`MOST_NAMES`].
fn keep_most(names: &mut Vec<(StdArc<str>, u64)>) {
    let places = sorted_places(names.len(), &|one, other| {
        let ((a, more), (b, less)) = (&names[one], &names[other]);
        less.cmp(more).then_with(|| a.cmp(b))
    });
    let mut most = Vec::new();
    for &place in &places[..places.len().min(MOST_NAMES)] {
        most.push(names[place].clone());
    }
    *names = most;
}

/// Returns whether `rule` names a resource for which `was_called` returns false.
fn is_silent(rule: &Rule, was_called: &dyn Fn(&str) -> bool) -> bool {
    let resource = rule.resource();
    let is_of_one = !rule.is_default() && !matches!(rule.itself(), Rule::System(_));
    // It is normal that the overflow resource has no calls.
    is_of_one && resource != OVERFLOW && !was_called(resource)
}

/// Creates the finding that a proxy is in front of a layer that identifies callers by the address
/// of the peer.
fn behind_proxy() -> Finding {
    let cause = "layers tell them apart by `PeerIp`, and every request that was looked at has a field \
                 of a proxy; `key::ForwardedIp` finds the client behind proxies that it is told to \
                 trust";
    Finding::new(FindingKind::BehindProxy, "", "", cause)
}

/// Creates the finding that `rule` has matched no call, with its likely `cause`.
fn not_met(rule: &Rule, id: &str, cause: String) -> Finding {
    Finding::new(FindingKind::RuleNotMet, id, rule.resource(), cause)
}

/// Returns the weight of all calls that `node` has counted.
fn calls(node: &Node) -> u64 {
    let totals = node.totals(node.last_used());
    totals.pass() + totals.block()
}
