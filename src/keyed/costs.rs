//! What calls of each key turn out to cost: a gauge of reservations beside the table of what was
//! charged.
//!
//! ```text
//! key ─┬▶ used      [tag|word]   a refilled quota, a window or a month, charged whatever it holds
//!      └▶ reserved  [tag|word]   [ reserved : 32 | version : 32 ]
//! ```
//!
//! The two are tables of their own. A key that has reserved something is not at rest in the second
//! one and keeps its slot there, so a call that is charged or ends finds its own reservation. It
//! may lose its slot in the first one meanwhile: where it is at rest it has used nothing.
//!
//! An admission reads its gauge, then what is used, and swaps the gauge; a settlement books first and
//! releases second. So they work as those of [all callers](crate::budget): the version of a word is
//! one more after each change, also under another owner, and the table looks at a gauge again before
//! it refuses a call.
//!
//! Keys without a slot share one gauge, as they share one quota.

use super::calendar::CalendarCharge;
use super::refill::{Refill, RefillCharge};
use super::running::Pinned;
use super::table::KeyTable;
use super::window::WindowCharge;
use super::{Digest, HotKeys, Judge, KeyLimit, KeySpec};
use crate::base::sync::{AtomicU64, Bug, Ordering, planted};
use crate::budget::{Account, BudgetCounts, BudgetFigures, CostLedger, GaugeWord};
use crate::clock::Tick;

/// How many intervals a cost may keep a key out that is limited by a refilled quota.
const MOST_INTERVALS: u32 = 10;

/// The reservations of all keys, and what has gone through their budgets.
#[derive(Debug)]
pub(super) struct KeyCosts {
    gauges: KeyTable,
    /// What all of them hold together.
    reserved: AtomicU64,
    counts: BudgetCounts,
}

/// The budget of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyBudget<'a> {
    keys: &'a HotKeys,
    key: CostKey,
}

/// A key, its limit, and where it has reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostKey {
    digest: Digest,
    limit: KeyLimit,
    gauge: Pinned,
}

/// The account of one call of a key.
#[derive(Debug)]
pub(crate) struct KeyAccount {
    key: CostKey,
    pub(crate) account: Account,
}

/// A call that reserves `wanted` of what is `left`.
#[derive(Clone, Copy)]
struct Reserve<'a> {
    wanted: u32,
    left: &'a dyn Fn() -> u32,
}

// === impl HotKeys ===

impl HotKeys {
    /// An empty table of what calls cost.
    pub(crate) fn with_costs(spec: KeySpec, now: Tick) -> Self {
        let gauges = KeyTable::new(spec.max_keys);
        Self::new(spec, now).with_gauges(gauges)
    }

    pub(super) fn with_gauges(mut self, gauges: KeyTable) -> Self {
        self.costs = Some(Box::new(KeyCosts {
            gauges,
            reserved: AtomicU64::new(0),
            counts: BudgetCounts::default(),
        }));
        self
    }

    /// The budget of `digest`, for calls at `limit`.
    pub(crate) const fn budget(&self, digest: Digest, limit: KeyLimit) -> KeyBudget<'_> {
        let gauge = Pinned::NONE;
        KeyBudget {
            keys: self,
            key: CostKey {
                digest,
                limit,
                gauge,
            },
        }
    }

    /// The budget in which `account` is.
    pub(crate) const fn budget_of(&self, account: &KeyAccount) -> KeyBudget<'_> {
        KeyBudget {
            keys: self,
            key: account.key,
        }
    }

    /// What has gone through the budgets of all keys, and what they have reserved now.
    pub(crate) fn cost_figures(&self) -> BudgetFigures {
        let costs = self.costs();
        let reserved = costs.reserved.load(Ordering::Relaxed);
        BudgetFigures {
            reserved: u32::try_from(reserved).unwrap_or(u32::MAX),
            ..costs.counts.totals()
        }
    }

    /// What running calls of `key` have reserved.
    pub(super) fn reserved(&self, key: Digest) -> u32 {
        self.costs.as_ref().map_or(0, |costs| costs.reserved(key))
    }

    fn costs(&self) -> &KeyCosts {
        self.costs.as_ref().expect("it was made for costs")
    }
}

// === impl KeyCosts ===

impl KeyCosts {
    fn reserved(&self, key: Digest) -> u32 {
        let nothing = Reserve {
            wanted: 0,
            left: &|| 0,
        };
        GaugeWord(self.gauges.word(key.0, &nothing)).reserved()
    }

    /// How many calls have reserved on the gauge that keys without a slot share.
    pub(super) fn overflows(&self) -> u64 {
        self.gauges.overflows()
    }

    /// Returns whether another key than `digest` has reserved anything since the table was made.
    pub(super) fn knows_others_than(&self, digest: Digest) -> bool {
        self.gauges.has_owner_but(digest.0)
    }

    /// Bytes that it occupies.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() - size_of::<KeyTable>() + self.gauges.footprint()
    }
}

// === impl KeyBudget ===

impl KeyBudget<'_> {
    /// Reserves `wanted` units for a call if they are left, or lets it pass without a reservation
    /// while one is left.
    pub(crate) fn admit(&self, now: Tick, wanted: u32) -> Option<KeyAccount> {
        let Self { keys, key } = *self;
        let costs = keys.costs();
        let reserve = Reserve {
            wanted,
            left: &|| keys.left_unreserved(now, key.digest, &key.limit),
        };
        let change = costs
            .gauges
            .change_word(key.digest.0, &reserve, true)
            .ok()?;
        costs.reserved.fetch_add(wanted.into(), Ordering::Relaxed);
        Some(KeyAccount {
            key: CostKey {
                gauge: Pinned::at(Some(change.place)),
                ..key
            },
            account: Account::new(wanted),
        })
    }
}

impl CostLedger for KeyBudget<'_> {
    fn book(&self, now: Tick, units: u32) {
        let Self { keys, key } = *self;
        let book = |judge: &dyn Judge| {
            let changed = keys.table.change_word(key.digest.0, judge, true);
            let change = changed.expect("no charge is refused");
            (change.before, change.after)
        };
        let (charged, over) = match key.limit {
            KeyLimit::Refill(rate) => {
                let most = keys.interval.saturating_mul(MOST_INTERVALS);
                let call = Refill::new(keys.origin, now, rate, units);
                let charge = RefillCharge::new(call, units, most, &keys.rates);
                let (before, after) = book(&charge);
                charge.charged(before, after)
            }
            KeyLimit::Window(limit) => {
                let charge = WindowCharge(keys.window(now, limit, units));
                let (before, after) = book(&charge);
                charge.charged(before, after)
            }
            KeyLimit::Calendar(limit) => {
                let charge = CalendarCharge(keys.in_period(now, limit, units));
                let (before, after) = book(&charge);
                charge.charged(before, after)
            }
            // No rule on costs counts in another way.
            KeyLimit::Queue(..) | KeyLimit::Running(_) | KeyLimit::Unlimited => (0, 0),
        };
        let counts = self.counts();
        counts.charged(charged, over);
        if charged < units {
            counts.cut(units - charged);
        }
    }

    fn release(&self, units: u32) {
        if units == 0 {
            return;
        }
        if let Some(place) = self.key.gauge.place() {
            let costs = self.keys.costs();
            let release = |word| Some(GaugeWord(word).without(units).0);
            costs.gauges.change_pinned(place, release);
            costs.reserved.fetch_sub(units.into(), Ordering::Relaxed);
        }
    }

    fn counts(&self) -> &BudgetCounts {
        &self.keys.costs().counts
    }

    fn left(&self, now: Tick) -> u32 {
        self.keys.left(now, self.key.digest, &self.key.limit)
    }

    fn window_room_at(&self, now: Tick, wanted: u32) -> Option<Tick> {
        let Self { keys, key } = *self;
        keys.available_at(now, key.digest, &key.limit, wanted)
    }
}

impl Judge for Reserve<'_> {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        let admitted = GaugeWord(word).admit(self.wanted, (self.left)());
        admitted.map(|word| word.0).ok_or(Some(0))
    }

    fn rest(&self, word: u64) -> Option<u64> {
        // A key that has reserved something is not at rest. The word holds no time, so all ages at
        // rest are 0.
        let is_at_rest = GaugeWord(word).reserved() == 0 || planted(Bug::RestIgnoresPin);
        is_at_rest.then_some(0)
    }

    fn fresh(&self, last: u64) -> u64 {
        GaugeWord(last).with(0).0
    }

    fn left(&self, word: u64) -> u32 {
        (self.left)().saturating_sub(GaugeWord(word).reserved())
    }
}
