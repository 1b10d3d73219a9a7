//! Mistakes in the set-up of a store, as findings: see [`finding`](crate::hook::finding).

use std::time::Duration;

use super::Registry;
use crate::call::Direction;
use crate::hook::finding::{Finding, FindingKind};
use crate::rule::{RuleSet, SharedRule};
use crate::store::Hub;

/// A bucket must last so many trips: permits of a shorter one are mostly lost.
const TRIPS: u32 = 10;
/// A refusal of the store is told for so long.
const FRESH: Duration = Duration::from_secs(60);

impl Registry {
    /// The findings on the store, and on those rules of `set` that count there.
    pub(super) fn store_findings(&self, set: &RuleSet) -> Vec<Finding> {
        let mut found = Vec::new();
        let is_shared = set.listed().with_counts().next().is_some();
        if !is_shared || self.shared.part.is_shadow() {
            return found;
        }
        let none = |kind, cause: String| Finding::new(kind, "", "", cause);
        // That there is none is a finding on each rule.
        let Some(hub) = self.shared.store.get().filter(|hub| hub.store().is_some()) else {
            return found;
        };
        if !hub.is_running() {
            let cause = "nobody has started it, or its handle was dropped; call \
                         `Sentinel::start_store`, and keep the handle";
            found.push(none(FindingKind::StoreNotStarted, cause.to_owned()));
        }
        let (alive, nodes) = (hub.alive(), hub.settings.nodes);
        if alive > nodes {
            let cause = format!(
                "{alive} are alive, and `nodes` is {nodes}; one that has not reached the store would \
                 admit the limit divided by {nodes}: set `StoreSettings::nodes` to the number of \
                 replicas"
            );
            found.push(none(FindingKind::MoreNodes, cause));
        }
        found.extend(empty_shares(set, hub));
        found.extend(refusal(hub));
        if hub.figures().trips.get() > 0 {
            found.extend(short_buckets(set, hub.trip()));
        }
        found
    }
}

/// That the store has refused a request of late. Its own words may have names in them.
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

/// That a share is nothing where the limit is below the number of processes.
fn empty_shares(set: &RuleSet, hub: &Hub) -> Vec<Finding> {
    let processes = hub.nodes().count;
    of_shared(set, |rule| {
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

fn short_buckets(set: &RuleSet, trip: Duration) -> Vec<Finding> {
    of_shared(set, |rule| {
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

/// What `look` finds about each shared rule of `set`.
fn of_shared(
    set: &RuleSet,
    look: impl Fn(&SharedRule) -> Option<(FindingKind, String)>,
) -> Vec<Finding> {
    let shared = set.listed().with_counts();
    let found = shared.filter_map(|(place, label, _)| {
        let resource = set.rule(place)?.resource();
        let rule = set.shared(place, resource, Direction::Inbound, 1)?;
        let (kind, cause) = look(&rule)?;
        Some(Finding::new(kind, label.id.clone(), resource, cause))
    });
    found.collect()
}
