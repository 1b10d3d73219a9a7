//! The terms that a rule sets for its counters, and the state that these counters share.

use std::time::Duration;

use super::calendar::CalendarBuckets;
use super::cell::MOST_LEASED;
use super::figures::RuleFigures;
use super::hub::Hub;
use super::ledger::Ledger;
use super::seen::Seen;
use super::settings::WhenDown;
use crate::base::sync::{Arc, AtomicU32, Lock, Ordering};
use crate::clock::Tick;

/// The maximum number of distinct terms that one rule keeps for sharing between its counters. It is
/// small, as each new counter searches them in sequence. With more distinct terms, some counters
/// allocate equal terms separately.
const MOST_TERMS: usize = 16;
/// Each call with a smaller weight lowers the remembered largest weight by `1 / FORGETS` of it.
const FORGETS: u32 = 8;
/// Units of cost are drawn ahead only if the demand reaches this multiple of the largest call.
/// Below it, a few concurrent calls would look like a steady demand.
const LEASED: u32 = 8;

/// The terms that a rule sets for a counter. They can differ by key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The permits per window.
    pub(crate) limit: u32,
    /// Whether the limit applies to each live process. All processes together then have a multiple
    /// of it.
    pub(crate) per_node: bool,
    /// Whether nothing is drawn ahead, so that each call asks the store.
    pub(crate) exact: bool,
    /// How the rule decides without the store.
    pub(crate) when_down: WhenDown,
    /// The limit of a process without the store, if the rule sets one. Otherwise, the process has
    /// its share of `limit`.
    pub(crate) local_limit: Option<u32>,
    /// The number of permits of the next bucket that a process may borrow.
    pub(crate) ahead: u32,
    /// Whether the counter counts one key of a rule with many keys. Then each draw must be [paid
    /// for](super::ledger::Ledger::affords), and no call asks before the store expects room.
    pub(crate) by_key: bool,
    /// Whether permits are units of cost. Then calls [give back](super::quota) most of what they
    /// take, so a refusal is remembered only briefly.
    pub(crate) by_cost: bool,
    /// The maximum time that a call waits for the store, in µs.
    pub(crate) wait_us: u32,
}

/// The window of a counter: the length and number of its buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The length of each bucket. For a calendar window, the length of the shortest day or month.
    pub(crate) bucket: Duration,
    /// The number of buckets.
    pub(crate) buckets: u32,
    /// The days or months of a calendar window, whose only bucket is one of them; `None` for other
    /// windows.
    pub(crate) calendar: Option<CalendarBuckets>,
}

/// The state that all counters of one rule share, so that it need not be stored for each key.
#[derive(Debug)]
pub(crate) struct QuotaRule {
    pub(super) window: Arc<Window>,
    pub(super) figures: Arc<RuleFigures>,
    pub(super) hub: Arc<Hub>,
    /// The last [distinct](MOST_TERMS) terms of the rule's counters. Most counters have equal terms
    /// and share one copy.
    terms: Lock<Vec<Arc<Terms>>>,
    /// The reading of the store's clock in the last answer to any counter of the rule.
    seen: Lock<Option<Seen>>,
    /// For a rule on costs, the approximate maximum of permits that a single call wanted recently.
    largest: Option<AtomicU32>,
}

/// The number of processes, and the rank of this one among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) count: u32,
    /// The position of this process among the live ones; `None` until a beat was answered.
    pub(crate) rank: Option<u32>,
}

impl Terms {
    /// Returns the maximum time that a call waits for the store.
    pub(crate) const fn wait(&self) -> Duration {
        Duration::from_micros(self.wait_us as u64)
    }

    /// Returns whether the limit is divided by the number of processes while the store is away.
    pub(crate) fn is_split(&self) -> bool {
        let has_share = self.when_down == WhenDown::LocalShare && self.local_limit.is_none();
        has_share && !self.per_node
    }

    /// Returns whether the share of some of these processes is zero.
    pub(crate) fn may_lack_share(&self, nodes: Nodes) -> bool {
        self.is_split() && (1..nodes.count).contains(&self.limit)
    }

    /// Returns whether a call of `weight` can ever pass. The weight of a call under a rule on costs
    /// must also fit into a lease.
    pub(super) const fn fits(&self, weight: u32, nodes: Nodes) -> bool {
        weight <= self.limit_of(nodes) && !(self.by_cost && weight > MOST_LEASED)
    }

    /// Returns the limit of all processes together.
    pub(super) const fn limit_of(&self, nodes: Nodes) -> u32 {
        if self.per_node {
            self.limit.saturating_mul(nodes.count)
        } else {
            self.limit
        }
    }
}

impl Window {
    /// Creates a window of `buckets` buckets, each of the length `bucket`.
    pub(crate) const fn new(bucket: Duration, buckets: u32) -> Self {
        Self {
            bucket,
            buckets,
            calendar: None,
        }
    }
}

impl QuotaRule {
    pub(crate) fn new(window: Window, figures: Arc<RuleFigures>, hub: &Arc<Hub>) -> Arc<Self> {
        Arc::new(Self::alone(window, figures, hub))
    }

    /// Creates the state of a rule on costs.
    pub(crate) fn of_costs(window: Window, figures: Arc<RuleFigures>, hub: &Arc<Hub>) -> Arc<Self> {
        Arc::new(Self {
            largest: Some(AtomicU32::new(1)),
            ..Self::alone(window, figures, hub)
        })
    }

    /// Creates the state of a rule on calls.
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

    /// Returns whether the rule is on costs.
    pub(super) const fn is_by_cost(&self) -> bool {
        self.largest.is_some()
    }

    /// Notes how many permits a call wants.
    pub(super) fn note_wanted(&self, weight: u32) {
        if let Some(largest) = &self.largest {
            // The value is an estimate, so a lost update between threads does no harm.
            let before = largest.load(Ordering::Relaxed);
            let now = weight.max(before - before / FORGETS).max(1);
            if now != before {
                largest.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Returns the minimum demand within the horizon at which permits are drawn ahead. If calls
    /// take many permits at once, a lease must serve several of them: a smaller lease would serve
    /// no call, and would withhold permits from other processes.
    pub(super) fn worth_a_lease(&self) -> u32 {
        let of_calls = |largest: &AtomicU32| largest.load(Ordering::Relaxed).saturating_mul(LEASED);
        self.largest.as_ref().map_or(1, of_calls)
    }

    /// Returns the number of the bucket at `now`, by the last answer of the store.
    pub(super) fn present_bucket(&self, now: Tick) -> u64 {
        self.window.here(*self.seen.lock(), now).number
    }

    /// Stores a reading of the store's clock, for new ledgers.
    pub(super) fn note_seen(&self, seen: Seen) {
        *self.seen.lock() = Some(seen);
    }

    /// Creates a ledger with these terms. Its buckets are numbered by the store's clock if the
    /// store has ever answered any counter of the rule. By the process's clock, permits taken
    /// without the store would be booked in other buckets.
    pub(super) fn ledger(&self, terms: Arc<Terms>) -> Ledger {
        let mut ledger = Ledger::new(terms, self.window.clone());
        if let Some(seen) = *self.seen.lock() {
            ledger.see_time(seen);
        }
        ledger
    }

    /// Returns `terms` as a pointer that is shared with other counters of equal terms.
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
    /// Returns this process's share of `limit`. The remainder goes to the processes of the lowest
    /// ranks, so that all shares add up to the limit. A process without a rank gets nothing of the
    /// remainder, but its share is at least one permit: otherwise a limit below the number of
    /// processes would admit no call.
    pub(crate) fn share(self, limit: u32) -> u32 {
        let count = self.count.max(1);
        let equal = limit / count;
        match self.rank {
            Some(rank) => equal + u32::from(rank < limit % count),
            None => equal.max(1).min(limit),
        }
    }
}
