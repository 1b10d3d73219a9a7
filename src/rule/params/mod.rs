//! The keyed rules of one resource, with the state of their keys.

mod costs;
mod line;
mod quotas;
mod shares;
mod state;
mod suspicion;

use std::time::Duration;

use super::keyed_rule::KeyedRule;
use crate::base::small_vec::SmallVec;
use crate::base::sync::{Arc, AtomicU64};
use crate::clock::Tick;
use crate::keyed::{HotKeys, KeyTokens, Pinned};

pub(crate) use costs::KeyAccounts;
pub(crate) use line::{OwnShare, ValuePlaceInLine as ShareInLine};
use quotas::{QuotasByValue, UnknownTiers};
pub(crate) use suspicion::{OnSuspicion, Suspicion};

/// The maximum number of concurrency rules by value of one resource. It is small, as each running
/// call stores a place for each of them.
pub(super) const MOST_RUNNING: usize = 2;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeyedRules(Box<[KeyedState]>);

/// One keyed rule, with the state of its keys.
#[derive(Debug)]
struct KeyedState {
    /// The index of the rule in the set.
    index: u32,
    rule: KeyedRule,
    /// Kept over reloads: the rule that inherits the table shares it, as calls in flight hold
    /// places in it.
    keys: Arc<HotKeys>,
    /// The ordinal among the concurrency rules of the resource; `None` if the rule limits a rate.
    running: Option<usize>,
    quotas: QuotasByValue,
    /// How many calls had no value. A rule that inherits the table continues this count.
    missing: Arc<AtomicU64>,
    /// The tiers of calls that the rule does not name.
    unknown_tiers: UnknownTiers,
    /// Called when calls show a likely mistake in the set-up.
    on_suspicion: OnSuspicion,
}

/// The places of a running call in the tables of the concurrency rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunningPlaces([Pinned; MOST_RUNNING]);

/// All shares that one call has taken.
pub(crate) type Shares = SmallVec<Share, 4>;

/// What a call has taken from the quota of its value under one rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// The place of the rule in the list of the resource.
    place: u32,
    /// The index of the rule in the set.
    pub(crate) rule: u32,
    taken: KeyTokens,
}

/// Why a keyed or a shared rule does not let a call pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoShare {
    /// The quota of the value has no room until `available_at`; `None` if it never has.
    Full {
        rule: u32,
        /// The limit in whole tokens, and its interval; a zero interval for a concurrency limit.
        limit: (u32, Duration),
        available_at: Option<Tick>,
    },
    /// The call has no value, and the rule refuses calls without a value.
    Missing { rule: u32 },
    /// The store cannot be asked, and the rule refuses all calls without it.
    NoStore { rule: u32 },
}

// === impl NoShare ===

impl NoShare {
    /// When there is room; `None` if there never is.
    pub(crate) const fn available_at(&self) -> Option<Tick> {
        match self {
            Self::Full { available_at, .. } => *available_at,
            Self::Missing { .. } | Self::NoStore { .. } => None,
        }
    }
}

impl RunningPlaces {
    /// The places of a call that no concurrency rule counts.
    pub(crate) const NONE: Self = Self([Pinned::NONE; MOST_RUNNING]);
}

impl Share {
    /// When the call can start.
    pub(crate) const fn start(&self) -> Tick {
        self.taken.start()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
