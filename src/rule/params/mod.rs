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

/// Most rules of one resource that count calls at once: each call keeps a place
/// for each of them.
pub(super) const MOST_RUNNING: usize = 2;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct KeyedRules(Box<[KeyedState]>);

/// One rule.
#[derive(Debug)]
struct KeyedState {
    index: u32,
    rule: KeyedRule,
    /// Shared with the rule of before that it inherits, for the calls in flight.
    keys: Arc<HotKeys>,
    /// Which of the rules that count calls at once it is, if it does.
    running: Option<usize>,
    quotas: QuotasByValue,
    /// How many calls had no value. Over a reload it stays with the keys.
    missing: Arc<AtomicU64>,
    /// The tiers of calls that the rule does not know.
    unknown_tiers: UnknownTiers,
    on_suspicion: OnSuspicion,
}

/// Where a call is counted by the rules that count calls at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunningPlaces([Pinned; MOST_RUNNING]);

/// The shares of one call.
pub(crate) type Shares = SmallVec<Share, 4>;

/// The share of one value's quota that a call has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Which of the resource's rules it is.
    place: u32,
    /// The rule in the set.
    pub(crate) rule: u32,
    taken: KeyTokens,
}

/// Why a rule on a value, or a shared one, does not let a call pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoShare {
    /// There is no room for its value, before that time or for ever.
    Full {
        rule: u32,
        /// Whole tokens, and in which time; in none for calls at once.
        limit: (u32, Duration),
        available_at: Option<Tick>,
    },
    /// It has no value, and the rule refuses such calls.
    Missing { rule: u32 },
    /// The store is away, and the rule refuses all calls without it.
    NoStore { rule: u32 },
}

// === impl NoShare ===

impl NoShare {
    /// From when on there is room; `None` if there never is.
    pub(crate) const fn available_at(&self) -> Option<Tick> {
        match self {
            Self::Full { available_at, .. } => *available_at,
            Self::Missing { .. } | Self::NoStore { .. } => None,
        }
    }
}

impl RunningPlaces {
    pub(crate) const NONE: Self = Self([Pinned::NONE; MOST_RUNNING]);
}

impl Share {
    /// When the call may run.
    pub(crate) const fn start(&self) -> Tick {
        self.taken.start()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
