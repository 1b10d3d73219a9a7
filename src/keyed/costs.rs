//! Budgets of keys for calls whose cost is known only afterwards. Each key has a gauge of reserved
//! units, in addition to its word in the table of charged units.
//!
//! ```text
//! key ─┬▶ used      [tag|word]   charged units: a quota, a window or a period
//!      └▶ reserved  [tag|word]   [ reserved : 32 | version : 32 ]
//! ```
//!
//! These are two separate tables. A key with reserved units is not at rest in the second table and
//! keeps its slot there, so a call that is charged or ends finds its reservation. The key can lose
//! its slot in the first table meanwhile, but only when it is at rest there, so that it has nothing
//! to lose.
//!
//! An admission reads the gauge, then the charged units, and swaps the gauge. A settlement first
//! books the cost and then releases the reservation. This is the protocol of the [budget of all
//! callers](crate::budget). Each change of a gauge word increments its version, even when the slot
//! changes its owner, and the table reads a gauge again before it refuses a call.
//!
//! Keys without a slot share one gauge, just as they share one quota.

use std::time::Duration;

use super::calendar::CalendarCharge;
use super::refill::{Refill, RefillCharge};
use super::running::Pinned;
use super::table::KeyTable;
use super::window::WindowCharge;
use super::{Digest, HotKeys, Judge, KeyLimit, KeySpec};
use crate::base::sync::{AtomicU64, Bug, Ordering, planted};
use crate::budget::{Account, BudgetCounts, BudgetFigures, CostLedger, GaugeWord, ProviderNumber};
use crate::clock::Tick;

/// The largest debt that a charge can leave in a refilled quota, in intervals. It bounds how long
/// one large cost can lock out a key.
const MOST_INTERVALS: u32 = 10;

/// The reservations of all keys, and the totals of their budgets.
#[derive(Debug)]
pub(super) struct KeyCosts {
    /// The table of gauges, one for each key with reserved units.
    gauges: KeyTable,
    /// The sum of all reservations.
    reserved: AtomicU64,
    /// The totals of the budgets of all keys.
    counts: BudgetCounts,
    /// What a provider has left, if [one key](HotKeys::for_all_callers) stands for all callers.
    provider: Option<Box<ProviderNumber>>,
}

/// The budget of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyBudget<'a> {
    keys: &'a HotKeys,
    key: CostKey,
}

/// A key, its limit, and the slot of its reservation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostKey {
    digest: Digest,
    limit: KeyLimit,
    /// The slot of the key's gauge, in the table of gauges.
    gauge: Pinned,
}

/// The reservation and the charges of one call of a key.
#[derive(Debug)]
pub(crate) struct KeyAccount {
    key: CostKey,
    pub(crate) account: Account,
}

/// The judge of a call that reserves `wanted` of the units that are `left`.
#[derive(Clone, Copy)]
struct Reserve<'a> {
    wanted: u32,
    left: &'a dyn Fn() -> u32,
}

// === impl HotKeys ===

impl HotKeys {
    /// Creates an empty table for keys with budgets.
    pub(crate) fn with_costs(spec: KeySpec, now: Tick) -> Self {
        let gauges = KeyTable::new(spec.max_keys);
        Self::new(spec, now).with_gauges(gauges)
    }

    /// Adds `gauges` as the table of reservations.
    pub(super) fn with_gauges(mut self, gauges: KeyTable) -> Self {
        self.costs = Some(Box::new(KeyCosts {
            gauges,
            reserved: AtomicU64::new(0),
            counts: BudgetCounts::default(),
            provider: None,
        }));
        self
    }

    /// Declares that one key stands for all callers. So what a provider reports as left limits its
    /// budget, if it has one.
    pub(crate) fn for_all_callers(mut self) -> Self {
        if let Some(costs) = &mut self.costs {
            costs.provider = Some(Box::default());
        }
        self
    }

    /// Returns the budget of the key `digest` at `limit`.
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

    /// Returns the budget that `account` draws on.
    pub(crate) const fn budget_of(&self, account: &KeyAccount) -> KeyBudget<'_> {
        KeyBudget {
            keys: self,
            key: account.key,
        }
    }

    /// Returns the totals of the budgets of all keys, and the number of units that are reserved
    /// now.
    pub(crate) fn cost_figures(&self) -> BudgetFigures {
        let costs = self.costs();
        let reserved = costs.reserved.load(Ordering::Relaxed);
        BudgetFigures {
            reserved: u32::try_from(reserved).unwrap_or(u32::MAX),
            ..costs.counts.totals()
        }
    }

    /// Returns the figures of the budget `key` at `limit`, which counts by the calendar.
    pub(crate) fn figures_of(&self, now: Tick, key: Digest, limit: u32) -> BudgetFigures {
        // What is left of the largest limit shows what is used, also beyond the limit.
        let used = u32::MAX - self.left_by_word(now, key, &KeyLimit::Calendar(u32::MAX));
        BudgetFigures {
            limit,
            used,
            provider_left: self.provider_left(now),
            ..self.cost_figures()
        }
    }

    /// Returns what a provider has left by its last report, if this report is in force.
    #[inline]
    pub(super) fn provider_left(&self, now: Tick) -> Option<u32> {
        let costs = self.costs.as_ref()?;
        costs.provider.as_ref()?.left(&costs.counts, now)
    }

    /// Returns the later of `at` and the time at which a provider has room for `wanted` units.
    pub(super) fn after_reset(&self, now: Tick, wanted: u32, at: Tick) -> Tick {
        match self.costs.as_deref() {
            Some(KeyCosts {
                provider: Some(provider),
                counts,
                ..
            }) => provider.after_reset(counts, now, wanted, at),
            _ => at,
        }
    }

    /// The units that running calls of `key` have reserved.
    pub(super) fn reserved(&self, key: Digest) -> u32 {
        self.costs.as_ref().map_or(0, |costs| costs.reserved(key))
    }

    /// Returns the reservations. Panics if these keys have no budgets.
    fn costs(&self) -> &KeyCosts {
        self.costs.as_ref().expect("it was made for costs")
    }
}

// === impl KeyCosts ===

impl KeyCosts {
    /// The units that running calls of `key` have reserved.
    fn reserved(&self, key: Digest) -> u32 {
        let nothing = Reserve {
            wanted: 0,
            left: &|| 0,
        };
        GaugeWord(self.gauges.word(key.0, &nothing)).reserved()
    }

    /// The number of calls that used the gauge that keys without a slot share.
    pub(super) fn overflows(&self) -> u64 {
        self.gauges.overflows()
    }

    /// Returns whether any key other than `digest` has reserved units since the table was created.
    pub(super) fn knows_others_than(&self, digest: Digest) -> bool {
        self.gauges.has_owner_but(digest.0)
    }

    /// The bytes that this value occupies.
    pub(super) fn footprint(&self) -> usize {
        let provider = self.provider.as_deref().map_or(0, size_of_val);
        size_of::<Self>() - size_of::<KeyTable>() + self.gauges.footprint() + provider
    }
}

// === impl KeyBudget ===

impl KeyBudget<'_> {
    /// Admits a call and reserves `wanted` units for it, if they are left. If `wanted` is 0, admits
    /// the call while at least one unit is left. From then on what the key has spent is earned back
    /// at the rate of its limit. `time` reads the clock.
    pub(crate) fn admit(
        &self,
        now: Tick,
        wanted: u32,
        time: &dyn Fn() -> Tick,
    ) -> Option<KeyAccount> {
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
        keys.convert_debt(now, key.digest, &key.limit, time);
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
    fn book(&self, now: Tick, units: u32) -> Option<u32> {
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
            KeyLimit::WideWindow(limit) => keys.charge_wide_window(now, key.digest, limit, units),
            KeyLimit::Calendar(limit) => {
                let charge = CalendarCharge(keys.in_period(now, limit, units));
                let (before, after) = book(&charge);
                charge.charged(before, after)
            }
            // A rule with budgets never has one of these limits.
            KeyLimit::Queue(..) | KeyLimit::Running(_) | KeyLimit::Unlimited => (0, 0),
        };
        let counts = self.counts();
        counts.charged(charged, over);
        if charged < units {
            counts.cut(units - charged);
        }
        None
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
        let at = keys.available_at(now, key.digest, &key.limit, wanted)?;
        Some(keys.after_reset(now, wanted, at))
    }

    fn note_provider_left(&self, now: Tick, left: u32, reset: Duration) {
        let costs = self.keys.costs();
        if let Some(provider) = &costs.provider {
            provider.note(&costs.counts, now, left, reset);
            // Changes the version of the gauge, so that an admission that has read the number
            // before reads it again.
            let nothing = Reserve {
                wanted: 0,
                left: &|| u32::MAX,
            };
            let _ = (costs.gauges).change_word(self.key.digest.0, &nothing, true);
        }
    }
}

impl Judge for Reserve<'_> {
    fn take(&self, word: u64) -> Result<u64, Option<u64>> {
        let admitted = GaugeWord(word).admit(self.wanted, (self.left)());
        admitted.map(|word| word.0).ok_or(Some(0))
    }

    fn rest(&self, word: u64) -> Option<u64> {
        // A key with reservations is not at rest. The word holds no time, so the age of a word at
        // rest is always 0.
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
