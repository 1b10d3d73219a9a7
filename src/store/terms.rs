//! The terms that a rule sets for its counters, and the state that all of these have in common.

use std::time::Duration;

use super::figures::RuleFigures;
use super::hub::Hub;
use super::ledger::Ledger;
use super::seen::Seen;
use super::settings::WhenDown;
use crate::base::sync::{Arc, Lock};

/// At most this many different terms of a rule are compared with those of a new key. With more
/// limits, some keys have terms of their own.
const MOST_TERMS: usize = 16;

/// The terms that a rule sets for its counter: those of two keys may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) limit: u32,
    /// Whether the limit is that of each live process.
    pub(crate) per_node: bool,
    pub(crate) exact: bool,
    pub(crate) when_down: WhenDown,
    pub(crate) local_limit: Option<u32>,
    /// How many permits of the next bucket a process may hold for calls that wait for it.
    pub(crate) ahead: u32,
    /// Whether it is the counter of one key among many: then each draw is
    /// [paid](super::ledger::Ledger::affords) for, and nobody asks before the store has said that
    /// there is room.
    pub(crate) by_key: bool,
    /// The longest that a call waits.
    pub(crate) wait_us: u32,
}

/// The window of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) bucket: Duration,
    pub(crate) buckets: u32,
}

/// The state that all counters of one rule have in common, so that those of many keys need not
/// have it each.
#[derive(Debug)]
pub(crate) struct QuotaRule {
    pub(super) window: Arc<Window>,
    pub(super) figures: Arc<RuleFigures>,
    pub(super) hub: Arc<Hub>,
    /// The terms that its counters have had lately: most have the same.
    terms: Lock<Vec<Arc<Terms>>>,
    /// The clock of the store as the last answer to any of its counters told it.
    seen: Lock<Option<Seen>>,
}

/// How many processes there are, and which of them this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) count: u32,
    /// `None` until a beat was answered.
    pub(crate) rank: Option<u32>,
}

impl Terms {
    /// The longest that a call waits.
    pub(crate) const fn wait(&self) -> Duration {
        Duration::from_micros(self.wait_us as u64)
    }

    /// Returns whether the limit is divided by the number of processes without the store.
    pub(crate) fn is_split(&self) -> bool {
        let has_share = self.when_down == WhenDown::LocalShare && self.local_limit.is_none();
        has_share && !self.per_node
    }

    /// Returns whether the share of some of these processes is nothing.
    pub(crate) fn may_lack_share(&self, nodes: Nodes) -> bool {
        self.is_split() && (1..nodes.count).contains(&self.limit)
    }

    /// The limit of all processes together.
    pub(super) const fn limit_of(&self, nodes: Nodes) -> u32 {
        if self.per_node {
            self.limit.saturating_mul(nodes.count)
        } else {
            self.limit
        }
    }
}

impl Window {
    /// After so long without a call, nothing that was counted matters.
    pub(super) fn memory(&self) -> Duration {
        self.bucket * (self.buckets + 2)
    }
}

impl QuotaRule {
    pub(crate) fn new(window: Window, figures: Arc<RuleFigures>, hub: &Arc<Hub>) -> Arc<Self> {
        Arc::new(Self {
            window: Arc::new(window),
            figures,
            hub: hub.clone(),
            terms: Lock::default(),
            seen: Lock::default(),
        })
    }

    pub(super) fn note_seen(&self, seen: Seen) {
        *self.seen.lock() = Some(seen);
    }

    /// A new ledger of a counter with such terms. Its buckets are those of the store, if that has
    /// ever answered: by the process's clock, what calls take without the store would be in others.
    pub(super) fn ledger(&self, terms: Arc<Terms>) -> Ledger {
        let mut ledger = Ledger::new(terms, self.window.clone());
        if let Some(seen) = *self.seen.lock() {
            ledger.see_time(seen);
        }
        ledger
    }

    /// Returns `terms` in the place where other counters have them.
    pub(super) fn share(&self, terms: Terms) -> Arc<Terms> {
        let mut known = self.terms.lock();
        if let Some(same) = known.iter().find(|known| ***known == terms) {
            return same.clone();
        }
        if known.len() >= MOST_TERMS {
            known.remove(0);
        }
        let terms = Arc::new(terms);
        known.push(terms.clone());
        terms
    }

    pub(crate) fn figures(&self) -> &RuleFigures {
        &self.figures
    }
}

impl Nodes {
    /// The share of this process of `limit`: the first ones get one more, so that all shares
    /// together are the limit. A process that has no rank gets nothing of the remainder, and at
    /// least one: else a limit below the number of processes would admit nobody.
    pub(crate) fn share(self, limit: u32) -> u32 {
        let count = self.count.max(1);
        let equal = limit / count;
        match self.rank {
            Some(rank) => equal + u32::from(rank < limit % count),
            None => equal.max(1).min(limit),
        }
    }
}
