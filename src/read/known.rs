//! The counts of keyed rules and of rules in shadow mode, copied for a snapshot.

use std::sync::Arc;

use super::reading::{ResourceReading, read_resources_paced};
use crate::base::pace::{StepPace, at_once};
use crate::engine::registry::Registry;
use crate::engine::resource::Resource;

/// A copy of the counts of a keyed rule of a resource. Its values are not copied: the views that
/// [`NodeView::keyed_rules`](crate::read::NodeView::keyed_rules) returns can count them, by a walk
/// through the whole table.
///
/// # Examples
///
/// ```
/// use tower_sentinel::{Call, KeyedRule, Sentinel};
///
/// let sentinel = Sentinel::new(KeyedRule::per_second("search", 5).id("each"));
/// drop(sentinel.try_enter(Call::new("search").param("ann")));
/// drop(sentinel.try_enter(Call::new("search")));
///
/// let snapshot = sentinel.snapshot();
/// let params = &snapshot.nodes()[0].keyed_rules()[0];
/// assert_eq!((params.rule(), params.missing(), params.overflows()), ("each", 1, 0));
/// ```
#[derive(Clone, Debug)]
pub struct KeyedSnapshot {
    rule: Arc<str>,
    overflows: u64,
    missing: u64,
    resets: u64,
    /// `None` if the rule does not block values.
    blocks: Option<u64>,
    waiting: u32,
}

// === impl KeyedSnapshot ===

impl KeyedSnapshot {
    /// Copies the keyed rules of `resource`, in their order.
    pub(super) fn of(resource: &Resource) -> Vec<Self> {
        let mut snapshots = Vec::new();
        resource.each_keyed_rule(&mut |rules, place, rule| {
            snapshots.push(Self {
                rule: resource.rules().id(rule),
                overflows: rules.overflows(place),
                missing: rules.missing(place),
                resets: rules.resets(place),
                blocks: rules.has_blocks(place).then(|| rules.blocks(place)),
                waiting: rules.waiting(place),
            });
        });
        snapshots
    }

    /// Returns the id of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Returns how many calls were judged on the quota that all values without a place
    /// share; see [`KeyedView::overflows`](crate::read::KeyedView::overflows).
    #[must_use]
    pub const fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Returns how many calls came without a value; see
    /// [`KeyedView::missing`](crate::read::KeyedView::missing).
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns how many values were reset; see [`KeyedView::reset`](crate::read::KeyedView::reset).
    #[must_use]
    pub const fn resets(&self) -> u64 {
        self.resets
    }

    /// Returns how often values were blocked; see
    /// [`KeyedView::blocks`](crate::read::KeyedView::blocks).
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        match self.blocks {
            Some(blocks) => blocks,
            None => 0,
        }
    }

    /// Returns whether the rule [blocks](crate::KeyedRule::block_for) values.
    #[cfg(feature = "observe")]
    pub(crate) const fn has_blocks(&self) -> bool {
        self.blocks.is_some()
    }

    /// Returns how many calls wait in the queues of all values; see
    /// [`KeyedView::waiting`](crate::read::KeyedView::waiting).
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }
}

/// Returns how many calls a rule in shadow mode would have refused: the refusals in its `registry`.
pub(super) fn would_block(registry: &Registry) -> u64 {
    at_once(would_block_by(registry, &mut StepPace::without_pauses()))
}

/// Returns the number of [`would_block`], counted in steps between which `pace` yields to other
/// tasks.
pub(crate) async fn would_block_by(registry: &Registry, pace: &mut StepPace) -> u64 {
    let mut weight = 0_u64;
    let mut add = |row: &ResourceReading<'_>| {
        weight = weight.wrapping_add(row.totals().block());
    };
    let gone = read_resources_paced(registry, pace, 1, &mut add).await;
    for retired in &gone.totals {
        weight = weight.wrapping_add(retired.block());
    }
    weight
}
