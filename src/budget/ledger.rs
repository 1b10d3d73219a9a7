//! The budget of one rule: its window, its gauge, and its totals.

use std::hint::spin_loop;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::MAX_BUDGET;
use super::account::Account;
use super::counts::BudgetCounts;
use super::gauge::Gauge;
use super::posting::CostLedger;
use super::provider_left::ProviderLeft;
use crate::base::sync::{Arc, shared_size};
use crate::clock::Tick;
use crate::stat::{Grid, LeapArray, Quota, Reloaded};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CostBudget {
    gauge: Gauge,
    /// Replaced by a reload that changes its limit or its shape, and when a provider reports what
    /// it has left.
    window: ArcSwap<CostWindow>,
    counts: BudgetCounts,
}

/// The charges of the present interval, and the limits on them.
#[derive(Clone, Debug)]
struct CostWindow {
    ring: Arc<LeapArray>,
    quota: Quota,
    /// The last number that a provider has reported.
    provider: Option<ProviderLeft>,
}

/// The figures of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BudgetFigures {
    pub(crate) limit: u32,
    /// The units that the window holds.
    pub(crate) used: u32,
    /// The units that running calls have reserved.
    pub(crate) reserved: u32,
    /// What is left of the number that a provider has reported, if one is in force.
    pub(crate) provider_left: Option<u32>,
    /// The units that were charged in total.
    pub(crate) charged_total: u64,
    /// The units that calls have reserved in total.
    pub(crate) reserved_total: u64,
    /// The units that were charged beyond the limit.
    pub(crate) over_total: u64,
    /// The calls that ended without reporting a cost.
    pub(crate) untold_total: u64,
    /// The units that were reported and not charged, as they were too many.
    pub(crate) cut_total: u64,
    /// The largest cost that an ended call has reported.
    pub(crate) largest: Option<u32>,
}

// === impl CostBudget ===

impl CostBudget {
    pub(crate) fn new(grid: Grid, quota: Quota, now: Tick) -> Self {
        let ring = Arc::new(LeapArray::with_grid(grid, now));
        Self {
            gauge: Gauge::default(),
            window: ArcSwap::from_pointee(CostWindow {
                ring,
                quota,
                provider: None,
            }),
            counts: BudgetCounts::default(),
        }
    }

    /// Changes the limit to that of `quota`, and the shape of the window to `grid`. Only one thread
    /// may do this at a time.
    pub(crate) fn change(&self, grid: Grid, quota: Quota, now: Tick) {
        let old = self.window.load_full();
        let ring = if old.ring.grid() == grid {
            if old.quota == quota {
                return;
            }
            old.ring.clone()
        } else {
            // From here on, the old window accepts nothing, and its callers wait for the new one.
            Arc::new(old.ring.move_to(grid, now))
        };
        // A number that is reported meanwhile is kept in the new window.
        self.window.rcu(|present| CostWindow {
            ring: ring.clone(),
            quota,
            provider: present.provider,
        });
    }

    /// Reserves `wanted` units for a call, if they are left. A call that wants none needs one unit
    /// to be left. Returns the account of the call.
    pub(crate) fn admit(&self, now: Tick, wanted: u32) -> Option<Account> {
        let mut left = || self.left_of_window(now);
        let is_admitted = self.gauge.admit(wanted, &mut left);
        is_admitted.then(|| Account::new(wanted))
    }

    // --- reading ---

    /// Runs `f` on the window. Repeats it if a reload has replaced the window meanwhile.
    fn in_window<R>(&self, f: impl Fn(&CostWindow) -> Result<R, Reloaded>) -> R {
        loop {
            if let Ok(result) = f(&self.window.load()) {
                return result;
            }
            spin_loop();
        }
    }

    /// Returns what is left of the number that a provider has reported, as of `window`.
    fn provider_left(&self, window: &CostWindow, now: Tick) -> Option<u32> {
        window.provider.as_ref()?.left(&self.counts, now)
    }

    /// Returns whether a number of a provider is in force.
    pub(crate) fn has_provider_left(&self, now: Tick) -> bool {
        let provider = self.window.load().provider;
        provider.is_some_and(|provider| provider.is_in_force(now))
    }

    /// Returns the later of `at` and the time at which a provider has room for `wanted` units.
    fn after_reset(&self, window: &CostWindow, now: Tick, wanted: u32, at: Tick) -> Tick {
        match window.provider {
            Some(provider) => at.max(provider.room_at(&self.counts, now, wanted)),
            None => at,
        }
    }

    /// Returns the units that the window holds.
    fn used(&self, now: Tick) -> u32 {
        self.in_window(|window| window.ring.used_now(now, &window.quota))
    }

    /// Returns the limit minus what the window holds, or what a provider has left if that is less.
    fn left_of_window(&self, now: Tick) -> u32 {
        self.in_window(|window| {
            let used = window.ring.used_now(now, &window.quota)?;
            let left = window.quota.limit().saturating_sub(used);
            Ok(match self.provider_left(window, now) {
                Some(provider) => left.min(provider),
                None => left,
            })
        })
    }

    pub(crate) fn limit(&self) -> u32 {
        self.window.load().quota.limit()
    }

    /// Returns when more than `left` units are left, if no call comes: when enough charges have
    /// left the window, and, if a provider has no more left, after its reset.
    pub(crate) fn more_at(&self, now: Tick, left: u32) -> Option<Tick> {
        let window = self.window.load();
        let wanted = left.saturating_add(1).min(window.quota.limit());
        let at = window.ring.available_at(now, wanted, &window.quota)?;
        Some(self.after_reset(&window, now, wanted, at))
    }

    /// Returns for how long a charge has an effect.
    pub(crate) fn memory(&self) -> Duration {
        self.window.load().ring.interval()
    }

    pub(crate) fn figures(&self, now: Tick) -> BudgetFigures {
        BudgetFigures {
            limit: self.limit(),
            used: self.used(now),
            reserved: self.gauge.reserved(),
            provider_left: self.provider_left(&self.window.load(), now),
            ..self.counts.totals()
        }
    }

    /// Returns how many bytes the budget occupies, including its window.
    pub(crate) fn footprint(&self) -> usize {
        let ring = self.window.load().ring.footprint() - size_of::<LeapArray>();
        shared_size::<Self>() + shared_size::<CostWindow>() + shared_size::<LeapArray>() + ring
    }
}

impl CostLedger for CostBudget {
    fn book(&self, now: Tick, units: u32) {
        let booked = self.in_window(|CostWindow { ring, quota, .. }| {
            let used = ring.used_now(now, quota)?;
            if used >= MAX_BUDGET {
                return Ok(None);
            }
            ring.add_at(ring.bucket_number(now), units)?;
            Ok(Some((used, quota.limit())))
        });
        let Some((used, limit)) = booked else {
            return self.counts.cut(units);
        };
        let over = used.saturating_add(units).saturating_sub(limit);
        self.counts.charged(units, over.min(units));
    }

    fn release(&self, units: u32) {
        self.gauge.release(units);
    }

    fn counts(&self) -> &BudgetCounts {
        &self.counts
    }

    fn left(&self, now: Tick) -> u32 {
        let reserved = self.gauge.reserved();
        self.left_of_window(now).saturating_sub(reserved)
    }

    fn window_room_at(&self, now: Tick, wanted: u32) -> Option<Tick> {
        let window = self.window.load();
        let at = window.ring.available_from(now, wanted, &window.quota)?;
        Some(self.after_reset(&window, now, wanted, at))
    }

    fn note_provider_left(&self, now: Tick, left: u32, reset: Duration) {
        self.window.rcu(|window| {
            let provider = ProviderLeft::new(&self.counts, now, left, reset);
            CostWindow {
                provider: Some(provider.after(window.provider, now)),
                ..CostWindow::clone(window)
            }
        });
        self.gauge.renew();
    }
}
