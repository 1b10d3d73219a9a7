//! All rules of a set with their ids, whichever of them an engine judges by.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Rule, Rules};
use crate::base::sync;
use crate::blocked::Label;
use crate::store::RuleCounts;

/// The counts of a shared rule.
pub(super) type SharedCounts = sync::Arc<RuleCounts>;

/// All rules with their ids, enforced or in shadow mode: one copy for all engines.
#[derive(Clone, Debug)]
pub(crate) struct NumberedRules {
    pub(super) rules: Arc<Rules>,
    pub(super) labels: Arc<[Arc<Label>]>,
    /// The counts of the shared ones, each at its place, if there are any; by id, as labels.
    pub(super) shared: Arc<[Option<SharedCounts>]>,
    pub(super) has_templates: bool,
}

// === impl NumberedRules ===

impl From<Rules> for NumberedRules {
    fn from(rules: Rules) -> Self {
        Self::inheriting(rules, None)
    }
}

impl NumberedRules {
    /// `rules`, each of which counts on with the figures of the one of its id among `old`.
    fn inheriting(rules: Rules, old: Option<&Self>) -> Self {
        let mut places: HashMap<&str, usize> = HashMap::new();
        if let Some(old) = old {
            for (place, label) in old.labels.iter().enumerate() {
                places.insert(&label.id, place);
            }
        }
        let mut labels = Vec::with_capacity(rules.len());
        let mut shared = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let mut label = rules.label(index);
            let known = match places.get(&*label.id) {
                Some(&place) => old.map(|old| (&old.labels[place], old.shared.get(place))),
                None => None,
            };
            if let Some((old, _)) = known {
                label.refused = old.refused.clone();
            }
            labels.push(Arc::new(label));
            let counts = match known {
                _ if !rule.is_shared() => None,
                Some((_, Some(Some(counts)))) => Some(counts.clone()),
                _ => Some(SharedCounts::default()),
            };
            shared.push(counts);
        }
        if !rules.iter().any(Rule::is_shared) {
            // A rule that is not shared pays nothing.
            shared = Vec::new();
        }
        Self {
            shared: shared.into(),
            labels: labels.into(),
            has_templates: rules.templates().have_braces(),
            rules: Arc::new(rules),
        }
    }

    /// `rules`, which are to come after these.
    pub(crate) fn followed_by(&self, rules: Rules) -> Self {
        Self::inheriting(rules, Some(self))
    }

    /// The counts of the shared rules, with their places and labels.
    #[cfg(any(feature = "shared", feature = "observe"))]
    pub(crate) fn with_counts(&self) -> impl Iterator<Item = (u32, &Arc<Label>, &SharedCounts)> {
        let all = self.labels.iter().zip(self.shared.iter());
        (0..)
            .zip(all)
            .filter_map(|(place, (label, counts))| Some((place, label, counts.as_ref()?)))
    }

    /// Returns whether any of the rules is shared.
    #[cfg(feature = "shared")]
    pub(crate) fn has_shared(&self) -> bool {
        !self.shared.is_empty()
    }

    /// Each rule with its label.
    pub(crate) fn with_labels(&self) -> impl Iterator<Item = (&Rule, &Arc<Label>)> {
        self.rules.iter().zip(self.labels.iter())
    }
}
