//! Limits that find themselves: within which bounds, and since when.

use proptest::prelude::*;
use tower_sentinel::{NodeView, Verdict};

use super::Pair;

/// What is known of a limit that finds itself since a call ended last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    limit: Option<u32>,
    /// What is in force, which only a refusal tells of: less, while it is probed.
    told: Option<u32>,
    /// How many calls ran at once when the last one passed since then.
    pub(super) passed: u32,
}

impl Pair {
    /// Takes over what the engine says of the limit of `resource`, whose last call was
    /// told `verdict`.
    pub(super) fn learn(
        &mut self,
        way: usize,
        resource: &'static str,
        verdict: &Verdict,
    ) -> Result<(), TestCaseError> {
        let Some(adaptive) = self.rules.adaptives.get(resource) else {
            return Ok(());
        };
        let limit = self.node(way, resource).unwrap().adaptive_limit().unwrap();
        let found = self.found.entry((way, resource)).or_default();
        if let Verdict::Block(blocked) = verdict {
            if blocked.rule() == format!("adaptive-{resource}") {
                let told = blocked.limit().unwrap();
                prop_assert!(
                    (adaptive.floor..=limit).contains(&told),
                    "{told} of {adaptive:?}"
                );
                // It has been so since then.
                prop_assert!(found.passed <= told, "{} of {told}", found.passed);
                found.told.get_or_insert(told);
            }
        }
        let limit = found.told.unwrap_or(limit);
        self.oracles[way].found.insert(resource, limit);
        Ok(())
    }

    /// A limit stays in its range, and where it is while no call ends.
    pub(super) fn check_limit(
        &mut self,
        way: usize,
        resource: &'static str,
        node: &NodeView,
    ) -> Result<(), TestCaseError> {
        if let Some(adaptive) = self.rules.adaptives.get(resource) {
            let limit = node.adaptive_limit().unwrap();
            let range = adaptive.floor..=adaptive.ceiling;
            prop_assert!(range.contains(&limit), "{limit} of {adaptive:?}");
            let found = self.found.entry((way, resource)).or_default();
            prop_assert_eq!(*found.limit.get_or_insert(limit), limit);
        }
        Ok(())
    }
}
