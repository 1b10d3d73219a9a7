//! The permits that shared rules have taken from their store, copied for a snapshot.

#[cfg(feature = "shared")]
use std::collections::HashMap;
use std::sync::Arc;

#[cfg(feature = "shared")]
use super::reading::read_resources;
use crate::engine::registry::Registry;
#[cfg(feature = "shared")]
use crate::engine::resource::InHand;
use crate::engine::shadow::Shadow;
#[cfg(feature = "shared")]
use crate::rule::RuleSelection;
use crate::rule::RuleSet;

/// A rule that is [shared](crate::FlowRule::shared) by the processes of a store, and the permits
/// that this process has taken for it, on all resources and in both directions.
///
/// A reload keeps the counts for a shared rule of the same id. "By weight": a call of weight 3
/// counts as 3.
///
/// A rule in [shadow mode](crate::Rule::shadow) has the figures that it would have if it were
/// enforced: no call waits for the store, or is refused, because of it.
///
/// # Examples
///
/// ```
/// use tower_sentinel::store::MemoryStore;
/// use tower_sentinel::{Call, FlowRule, Sentinel};
///
/// let sentinel = Sentinel::builder()
///     .rules(FlowRule::per_minute("/v1", 2).shared().id("two"))
///     .store(MemoryStore::new())
///     .build();
/// // Nobody has started the store, so each process has its share.
/// for _ in 0..3 {
///     drop(sentinel.try_enter(Call::new("/v1")));
/// }
/// let snapshot = sentinel.snapshot();
/// let shared = &snapshot.shared_rules()[0];
/// assert_eq!((shared.rule(), shared.local(), shared.refused()), ("two", 2, 1));
/// assert_eq!((shared.granted(), shared.cells()), (0, 1));
/// ```
#[derive(Clone, Debug)]
pub struct SharedSnapshot {
    rule: String,
    key: Option<String>,
    cells: usize,
    in_hand: u64,
    /// The counts that the methods from `granted` to `resets` return, in their order.
    counts: [u64; 7],
}

impl SharedSnapshot {
    /// Without the feature `shared` no rule is shared.
    #[cfg(not(feature = "shared"))]
    pub(super) const fn of(_: &Registry, _: &RuleSet, _: &[Arc<Shadow>]) -> Vec<Self> {
        Vec::new()
    }

    /// Copies the counts of the shared rules among `rules`, in their order. `shadows` are the
    /// engines of the rules in shadow mode, whose permits count as well.
    #[cfg(feature = "shared")]
    pub(super) fn of(registry: &Registry, rules: &RuleSet, shadows: &[Arc<Shadow>]) -> Vec<Self> {
        if !rules.listed().has_shared() {
            return Vec::new();
        }
        let mut held = HashMap::new();
        count_held(registry, &mut held);
        for shadow in shadows {
            count_held(shadow.registry(), &mut held);
        }
        let mut snapshots = Vec::new();
        for (place, label, counts) in rules.listed().with_counts() {
            if matches!(rules.part(), RuleSelection::Only(own) if own != place) {
                continue;
            }
            let held = held.get(&place);
            snapshots.push(Self {
                rule: label.id.to_string(),
                key: held.and_then(|held| Some(held.key.as_ref()?.to_string())),
                cells: held.map_or(0, |held| held.cells),
                in_hand: held.map_or(0, |held| held.permits),
                counts: counts.read(),
            });
        }
        snapshots
    }

    /// Returns the id of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns the key of the rule's counter in the store, if this process knows exactly one
    /// counter. It is a digest. `None` for a rule by key, whose counters belong to users.
    #[must_use]
    pub fn store_key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns how many counters of the store this process knows for the rule: one for each
    /// resource, or for each key that was seen recently.
    #[must_use]
    pub const fn cells(&self) -> usize {
        self.cells
    }

    /// Returns how many permits this process holds, for calls to take without asking the store.
    #[must_use]
    pub const fn in_hand(&self) -> u64 {
        self.in_hand
    }

    /// Returns how many permits of the store calls have taken, by weight, including permits that
    /// were refunded later. For a rule by key, the permits of the last moments can be missing.
    #[must_use]
    pub const fn granted(&self) -> u64 {
        self.counts[0]
    }

    /// Returns how many calls have waited for the store.
    #[must_use]
    pub const fn waited(&self) -> u64 {
        self.counts[1]
    }

    /// Returns how many calls the rule has refused because it had no permits, or no store.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.counts[2]
    }

    /// Returns how many permits calls have taken without the store, by weight: from the share of
    /// this process, or because the rule is [open](crate::store::WhenDown::Open) while the store is
    /// down.
    #[must_use]
    pub const fn local(&self) -> u64 {
        self.counts[3]
    }

    /// Returns how many permits were drawn and sent back unused.
    #[must_use]
    pub const fn repaid(&self) -> u64 {
        self.counts[4]
    }

    /// Returns how many permits were drawn and could be neither used nor sent back: other processes
    /// cannot use them until their bucket is over.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.counts[5]
    }

    /// Returns how many keys this process has [reset](crate::read::SharedKeyedView::reset).
    #[must_use]
    pub const fn resets(&self) -> u64 {
        self.counts[6]
    }
}

/// Adds the permits that the shared rules of `registry` hold to `held`, by the number of the rule.
#[cfg(feature = "shared")]
fn count_held(registry: &Registry, held: &mut HashMap<u32, InHand>) {
    read_resources(registry, &mut |row| {
        let present = row.present();
        let Some(leases) = present.leases() else {
            return;
        };
        leases.count_taken();
        for (rule, own) in leases.in_hand(present.now) {
            held.entry(rule)
                .and_modify(|all| {
                    all.cells += own.cells;
                    all.permits += own.permits;
                    all.key = None;
                })
                .or_insert(own);
        }
    });
}
