//! Findings on the setup of a store: see [`finding`](crate::hook::finding).

use std::time::Duration;

use super::Registry;
use crate::base::panics::catch_panic;
use crate::call::Direction;
use crate::hook::Interest;
use crate::hook::finding::{Finding, FindingKind};
use crate::rule::{Rule, RuleSet, SharedRule};
use crate::store::{Hub, StoreMistake};

/// The minimum length of a bucket, in trips. Permits of a shorter bucket mostly expire unused.
const TRIPS: u32 = 10;
/// The time after its start at which a store that has never answered is reported.
const SILENT: Duration = Duration::from_secs(1);
/// The time for which a refusal of the store is reported.
const FRESH: Duration = Duration::from_secs(60);

impl Registry {
    /// Returns the findings on the store, and on those rules of `set` that use it.
    pub(super) fn store_findings(&self, set: &RuleSet) -> Vec<Finding> {
        let mut found = Vec::new();
        let is_shared = set.listed().has_shared();
        if !is_shared || self.shared.part.is_shadow() {
            return found;
        }
        let none = |kind, cause: String| Finding::new(kind, "", "", cause);
        // A missing store is a finding on each rule.
        let Some(hub) = self.shared.store.get().filter(|hub| hub.store().is_some()) else {
            return found;
        };
        found.extend(not_started(hub));
        let (alive, nodes) = (hub.alive(), hub.settings.nodes_or_one());
        if alive > nodes && hub.settings.has_nodes() {
            let cause = format!(
                "{alive} are alive, and `nodes` is {nodes}; one that has not reached the store would \
                 admit the limit divided by {nodes}: set `StoreSettings::nodes` to the number of \
                 replicas"
            );
            found.push(none(FindingKind::MoreNodes, cause));
        }
        found.extend(nodes_not_set(set, hub));
        found.extend(other_settings(hub));
        found.extend(mistakes(hub));
        found.extend(empty_shares(set, hub));
        let refusal = refusal(hub);
        found.extend(refusal.is_none().then(|| silence(hub)).flatten());
        found.extend(refusal);
        if hub.figures().trips.get() > 0 {
            found.extend(short_buckets(set, hub.trip()));
        }
        found
    }

    /// Notifies hooks of the findings on the store.
    pub(crate) fn report_store_findings(&self) {
        if self.shared.hooks.want(Interest::FINDING) {
            let found = self.store_findings(&self.rules());
            found.iter().for_each(|finding| self.shared.tell(finding));
        }
    }

    /// Returns the finding that the store is not started, if `rule` is shared.
    pub(super) fn not_started(&self, rule: &Rule) -> Option<Finding> {
        let hub = self.shared.store.get().filter(|_| rule.is_shared())?;
        hub.store().and_then(|_| not_started(hub))
    }
}

/// Returns the finding that the store is not started, or was stopped.
fn not_started(hub: &Hub) -> Option<Finding> {
    let cause = "nobody has started it, or its handle was dropped; call `Sentinel::start_store`, and \
                 keep the handle";
    (!hub.is_running()).then(|| Finding::new(FindingKind::StoreNotStarted, "", "", cause))
}

/// Returns the finding that the store has not answered since it was started.
fn silence(hub: &Hub) -> Option<Finding> {
    let is_silent = hub.has_never_answered() && hub.now() - hub.since() >= SILENT;
    is_silent.then(|| {
        let error = hub.last_error();
        let error = error.map_or_else(String::new, |error| format!("{error}; "));
        let cause = format!("{error}look at its address, and whether it can be reached from here");
        Finding::new(FindingKind::StoreUnreachable, "", "", cause)
    })
}

/// Returns the finding that the number of processes is not set, if shares depend on it.
fn nodes_not_set(set: &RuleSet, hub: &Hub) -> Option<Finding> {
    let has_shares = || {
        let all = of_shared(set, &|rule| {
            let terms = rule.terms(rule.limit(), &hub.settings);
            terms
                .is_split()
                .then(|| (FindingKind::NodesNotSet, String::new()))
        });
        !all.is_empty()
    };
    (!hub.settings.has_nodes() && has_shares()).then(|| {
        let alive = match hub.alive() {
            0 | 1 => String::new(),
            alive => format!("{alive} are alive; "),
        };
        let cause = format!(
            "{alive}one that has not reached it admits the whole limit: set `StoreSettings::nodes` \
             to the number of replicas"
        );
        Finding::new(FindingKind::NodesNotSet, "", "", cause)
    })
}

/// Returns the finding that other processes have different settings, which must be equal.
fn other_settings(hub: &Hub) -> Option<Finding> {
    let others = hub.others();
    let mut causes = Vec::new();
    if others.secret > 0 {
        causes.push(format!(
            "{} have another `digest_secret`, or none, and count apart from this one",
            others.secret
        ));
    }
    if others.nodes > 0 {
        let nodes = hub.settings.nodes_or_one();
        causes.push(format!(
            "{} have another `nodes` than {nodes}",
            others.nodes
        ));
    }
    (!causes.is_empty()).then(|| {
        let cause = causes.join("; ");
        Finding::new(FindingKind::OtherSettings, "", "", cause)
    })
}

/// Returns findings for the mistakes that the store itself has detected.
fn mistakes(hub: &Hub) -> Vec<Finding> {
    let noticed = hub.store().and_then(|it| catch_panic(|| it.mistakes()));
    let told = noticed.into_iter().flatten().map(|mistake| {
        let (kind, cause) = match mistake {
            StoreMistake::Evicts(policy) => {
                let cause = format!(
                    "its policy is {policy:?}, and a limit whose counter is removed is admitted once \
                     more; set `maxmemory-policy` to noeviction, and leave it room"
                );
                (FindingKind::StoreEvicts, cause)
            }
            StoreMistake::PlainPassword => {
                let cause = "use TLS, by an address that begins with `rediss://`";
                (FindingKind::PlainPassword, cause.to_owned())
            }
        };
        Finding::new(kind, "", "", cause)
    });
    told.collect()
}

/// Returns the finding that the store has recently refused a request.
fn refusal(hub: &Hub) -> Option<Finding> {
    let (error, at) = hub.last_refusal()?;
    (hub.now() - at < FRESH).then(|| {
        let cause = format!(
            "{error}; look at the password, the rights of its user, and what else stands at keys \
             with this prefix"
        );
        Finding::new(FindingKind::StoreRefuses, "", "", cause)
    })
}

/// Returns findings for rules whose limit is below the number of processes, so that some shares are
/// zero.
fn empty_shares(set: &RuleSet, hub: &Hub) -> Vec<Finding> {
    let processes = hub.nodes().count;
    of_shared(set, &|rule| {
        let limit = rule.least_limit();
        let has_none = rule.terms(limit, &hub.settings).may_lack_share(hub.nodes());
        has_none.then(|| {
            let cause = format!(
                "its limit of {limit} is one each for as many of {processes}; set `local_limit`, or \
                 another `when_down`"
            );
            (FindingKind::NoShare, cause)
        })
    })
}

/// Returns findings for rules whose buckets are too short for the duration of a trip.
fn short_buckets(set: &RuleSet, trip: Duration) -> Vec<Finding> {
    of_shared(set, &|rule| {
        let bucket = rule.window.bucket;
        (bucket < trip * TRIPS).then(|| {
            let cause = format!(
                "one lasts {bucket:?}, and a trip takes {trip:?}; give the rule a longer \
                 interval or fewer buckets"
            );
            (FindingKind::ShortBuckets, cause)
        })
    })
}

/// Collects the findings that `look` returns for the shared rules of `set`.
fn of_shared(
    set: &RuleSet,
    look: &dyn Fn(&SharedRule) -> Option<(FindingKind, String)>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    for (place, label, _) in set.listed().with_counts() {
        let Some(resource) = set.rule(place).map(Rule::resource) else {
            continue;
        };
        let Some(rule) = set.shared(place, resource, Direction::Inbound, 1) else {
            continue;
        };
        if let Some((kind, cause)) = look(&rule) {
            found.push(Finding::new(kind, label.id.clone(), resource, cause));
        }
    }
    found
}
