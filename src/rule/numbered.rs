//! All rules of a set with their labels, including rules that an engine does not judge by.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Rule, Rules};
use crate::base::sync;
use crate::blocked::Label;
use crate::store::RuleCounts;

/// The counts of a shared rule.
pub(super) type SharedCounts = sync::Arc<RuleCounts>;

/// All rules with their labels, enforced or in shadow mode. All engines share one copy.
#[derive(Clone, Debug)]
pub(crate) struct NumberedRules {
    pub(super) rules: Arc<Rules>,
    pub(super) labels: Arc<[Arc<Label>]>,
    /// The counts of each shared rule, by its index; empty if no rule is shared. A rule inherits
    /// its counts from the previous rule with the same id.
    pub(super) shared: Arc<[Option<SharedCounts>]>,
    /// Whether any rule's resource is a template that can match several paths.
    pub(super) has_templates: bool,
}

// === impl NumberedRules ===

impl From<Rules> for NumberedRules {
    fn from(rules: Rules) -> Self {
        Self::inheriting(rules, None)
    }
}

impl NumberedRules {
    /// Numbers `rules`. Each rule continues the counts of the rule with the same id in `old`.
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
            let predecessor = match places.get(&*label.id) {
                Some(&place) => old.map(|old| (&old.labels[place], old.shared.get(place))),
                None => None,
            };
            if let Some((old, _)) = predecessor {
                label.refused = old.refused.clone();
            }
            labels.push(Arc::new(label));
            let counts = match predecessor {
                _ if !rule.is_shared() => None,
                Some((_, Some(Some(counts)))) => Some(counts.clone()),
                _ => Some(SharedCounts::default()),
            };
            shared.push(counts);
        }
        if !rules.iter().any(Rule::is_shared) {
            // A set without shared rules takes no memory for their counts.
            shared = Vec::new();
        }
        Self {
            shared: shared.into(),
            labels: labels.into(),
            has_templates: rules.templates().have_braces(),
            rules: Arc::new(rules),
        }
    }

    /// Numbers `rules`, which replace the rules of `self`.
    pub(crate) fn followed_by(&self, rules: Rules) -> Self {
        Self::inheriting(rules, Some(self))
    }

    /// The counts of the shared rules, with the index and label of each.
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
