//! Reads the store of an engine, and its shared rules, into families.

use super::collect::Collector;
use super::family::{Id, Text, Value};
use crate::base::pace::StepPace;
use crate::engine::registry::Registry;
use crate::rule::{RuleSelection, RuleSet};
use crate::store::{StoreErrorKind, StoreState};

impl Collector {
    /// Adds the samples of the store, if the engine has one, and of the shared rules.
    pub(super) async fn add_store(
        &mut self,
        registry: &Registry,
        rules: &RuleSet,
        max_rules: usize,
        pace: &mut StepPace,
    ) {
        let Some(store) = registry.shared().store_status() else {
            return;
        };
        let is_up = matches!(store.state(), StoreState::Live | StoreState::Recovering);
        self.count(Id::StoreUp, is_up.into());
        self.count(Id::StoreNodes, store.nodes().into());
        let trip = Value::Figure(store.trip().as_secs_f64());
        self.push(Id::StoreTrip, [], trip);
        self.count(Id::StoreDraws, store.draws());
        for kind in StoreErrorKind::ALL {
            let labels = [("kind", failure(kind).into())];
            self.push(Id::StoreErrors, labels, Value::Count(store.errors(kind)));
        }
        let is_whole = rules.part() == RuleSelection::Enforced;
        for (place, label, counts) in rules.listed().with_counts().take(max_rules) {
            pace.spend(1).await;
            let [granted, waited, refused, local, _, lost, resets] = counts.read();
            let permits = [
                (Id::SharedGranted, granted),
                (Id::SharedLocal, local),
                (Id::SharedLost, lost),
                (Id::SharedReset, resets),
            ];
            // A rule in shadow mode makes no call wait, and refuses none.
            let is_enforced = is_whole && rules.rule(place).is_some_and(|it| !it.is_shadow());
            let calls = [(Id::SharedWaited, waited), (Id::SharedRefused, refused)];
            let calls = calls.into_iter().filter(|_| is_enforced);
            for (id, count) in permits.into_iter().chain(calls) {
                let labels = [("rule", Text::from(&label.id))];
                self.push(id, labels, Value::Count(count));
            }
        }
    }
}

/// Returns the label of a kind of failures of a store.
const fn failure(kind: StoreErrorKind) -> &'static str {
    match kind {
        StoreErrorKind::ReadOnly => "read_only",
        kind => kind.as_str(),
    }
}
