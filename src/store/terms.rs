//! The terms that a rule sets for its counters, and the state that all of these have in common.

use std::time::Duration;

use super::cell::MOST_LEASED;
use super::figures::RuleFigures;
use super::hub::Hub;
use super::ledger::Ledger;
use super::seen::Seen;
use super::settings::WhenDown;
use crate::base::sync::{Arc, AtomicU32, Lock, Ordering};

/// At most this many different terms of a rule are compared with those of a new key. With more
/// limits, some keys have terms of their own.
const MOST_TERMS: usize = 16;
/// With each call that takes less, the largest one that is remembered is less by this part.
const FORGETS: u32 = 8;
/// What calls cost is drawn ahead if it is enough for so many of them: a few that come at once look
/// as if many came all the time.
const LEASED: u32 = 8;

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
    /// Whether permits are units of what calls cost: then calls [return](super::quota) most of what
    /// they take, and a refusal is remembered only for a moment.
    pub(crate) by_cost: bool,
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
    /// How many permits calls take at once, if that is not one each: about the most that one took
    /// lately.
    largest: Option<AtomicU32>,
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

    /// Returns whether a call of `weight` may ever pass: a lease of costs holds no more.
    pub(super) const fn fits(&self, weight: u32, nodes: Nodes) -> bool {
        weight <= self.limit_of(nodes) && !(self.by_cost && weight > MOST_LEASED)
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
        Arc::new(Self::alone(window, figures, hub))
    }

    /// That of a rule on what calls cost.
    pub(crate) fn of_costs(window: Window, figures: Arc<RuleFigures>, hub: &Arc<Hub>) -> Arc<Self> {
        Arc::new(Self {
            largest: Some(AtomicU32::new(1)),
            ..Self::alone(window, figures, hub)
        })
    }

    fn alone(window: Window, figures: Arc<RuleFigures>, hub: &Arc<Hub>) -> Self {
        Self {
            window: Arc::new(window),
            figures,
            hub: hub.clone(),
            terms: Lock::default(),
            seen: Lock::default(),
            largest: None,
        }
    }

    /// Returns whether it is on what calls cost.
    pub(super) const fn is_by_cost(&self) -> bool {
        self.largest.is_some()
    }

    /// Notes how many permits a call wants.
    pub(super) fn note_wanted(&self, weight: u32) {
        if let Some(largest) = &self.largest {
            // An estimate: where several threads write, any of them is right.
            let before = largest.load(Ordering::Relaxed);
            let now = weight.max(before - before / FORGETS).max(1);
            if now != before {
                largest.store(now, Ordering::Relaxed);
            }
        }
    }

    /// How many permits must be needed in the time for which they are drawn ahead. If calls take many
    /// at once, a lease is of use only to the next one of several: what it holds is too little for
    /// one call, and keeps others out.
    pub(super) fn worth_a_lease(&self) -> u32 {
        let of_calls = |largest: &AtomicU32| largest.load(Ordering::Relaxed).saturating_mul(LEASED);
        self.largest.as_ref().map_or(1, of_calls)
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
