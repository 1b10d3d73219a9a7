//! The budget of one rule: its window, its gauge, and its totals.

use std::hint::spin_loop;
use std::sync::Arc as StdArc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::MAX_BUDGET;
use super::account::Account;
use super::counts::BudgetCounts;
use super::gauge::Gauge;
use super::posting::CostLedger;
use super::provider_left::ProviderNumber;
use crate::base::sync::{Arc, AtomicBool, Ordering, shared_size};
use crate::clock::Tick;
use crate::stat::{Grid, LeapArray, Quota, Reloaded};

/// See the [module](self). Calls use the window of this value directly, without counting
/// references, until a reload replaces the window.
#[derive(Debug)]
pub(crate) struct CostBudget {
    /// The window at the creation of this value.
    window: StdArc<CostWindow>,
    shared: Arc<SharedBudget>,
}

/// The part of a budget that reloads keep.
#[derive(Debug)]
struct SharedBudget {
    gauge: Gauge,
    /// The current window, which a reload replaces if it changes the limit or the shape.
    window: ArcSwap<CostWindow>,
    provider: ProviderNumber,
    counts: BudgetCounts,
}

/// A window of charges, and the limit on them.
#[derive(Debug)]
struct CostWindow {
    /// The charged units by bucket.
    ring: Arc<LeapArray>,
    quota: Quota,
    /// Set when a reload has replaced this window.
    is_replaced: AtomicBool,
}

/// The figures of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BudgetFigures {
    /// The limit on the units of a window.
    pub(crate) limit: u32,
    /// The units that the window holds.
    pub(crate) used: u32,
    /// The units that running calls have reserved.
    pub(crate) reserved: u32,
    /// The units that a provider has left by its last report, if this report is in force.
    pub(crate) provider_left: Option<u32>,
    /// The units that were charged in total.
    pub(crate) charged_total: u64,
    /// The units that calls have reserved in total.
    pub(crate) reserved_total: u64,
    /// The units that were charged beyond the limit.
    pub(crate) over_total: u64,
    /// The calls that ended without reporting a cost.
    pub(crate) untold_total: u64,
    /// The units that were reported but not charged, as they were too many.
    pub(crate) cut_total: u64,
    /// The largest cost that an ended call has reported.
    pub(crate) largest: Option<u32>,
}

// === impl CostWindow ===

impl CostWindow {
    fn new(ring: Arc<LeapArray>, quota: Quota) -> StdArc<Self> {
        StdArc::new(Self {
            ring,
            quota,
            is_replaced: AtomicBool::new(false),
        })
    }
}

// === impl CostBudget ===

impl CostBudget {
    pub(crate) fn new(grid: Grid, quota: Quota, now: Tick) -> Self {
        let ring = Arc::new(LeapArray::with_grid(grid, now));
        let window = CostWindow::new(ring, quota);
        Self {
            window: window.clone(),
            shared: Arc::new(SharedBudget {
                gauge: Gauge::default(),
                window: ArcSwap::new(window),
                provider: ProviderNumber::default(),
                counts: BudgetCounts::default(),
            }),
        }
    }

    /// Creates a window with the limit of `quota` and the shape `grid`, which takes over the
    /// charges of the old window. Returns the budget with this window. Only one thread may do this
    /// at a time.
    pub(crate) fn change(&self, grid: Grid, quota: Quota, now: Tick) -> Self {
        let shared = self.shared.clone();
        let old = shared.window.load_full();
        if old.ring.grid() == grid && old.quota == quota {
            return Self {
                window: old,
                shared,
            };
        }
        let ring = if old.ring.grid() == grid {
            old.ring.clone()
        } else {
            // From here on, the old window accepts no charges, and its callers wait for the new
            // window.
            Arc::new(old.ring.move_to(grid, now))
        };
        let window = CostWindow::new(ring, quota);
        shared.window.store(window.clone());
        // The release pairs with the acquire in `in_window`.
        old.is_replaced.store(true, Ordering::Release);
        Self { window, shared }
    }

    /// Reserves `wanted` units for a call, if they are left. If `wanted` is 0, one unit must be
    /// left. Returns the account of the call.
    pub(crate) fn admit(&self, now: Tick, wanted: u32) -> Option<Account> {
        let is_admitted = (self.shared.gauge).admit(wanted, || self.left_of_window(now));
        is_admitted.then(|| Account::new(wanted))
    }

    // --- reading ---

    /// Runs `f` on the window. Runs `f` again if a reload has replaced the window meanwhile.
    #[inline]
    fn in_window<R>(&self, f: impl Fn(&CostWindow) -> Result<R, Reloaded>) -> R {
        loop {
            let new;
            let window = if self.window.is_replaced.load(Ordering::Acquire) {
                new = self.new_window();
                &new
            } else {
                &self.window
            };
            if let Ok(result) = f(window) {
                return result;
            }
            spin_loop();
        }
    }

    /// Returns the current window, after a reload has replaced the window of this value.
    #[cold]
    fn new_window(&self) -> StdArc<CostWindow> {
        self.shared.window.load_full()
    }

    /// Returns the units that a provider has left by its last report, if this report is in force.
    #[inline]
    fn provider_left(&self, now: Tick) -> Option<u32> {
        self.shared.provider.left(&self.shared.counts, now)
    }

    /// Returns whether a number of a provider is in force.
    pub(crate) fn has_provider_left(&self, now: Tick) -> bool {
        self.provider_left(now).is_some()
    }

    /// Returns the later of `at` and the time at which a provider has room for `wanted` units.
    fn after_reset(&self, now: Tick, wanted: u32, at: Tick) -> Tick {
        let SharedBudget {
            provider, counts, ..
        } = &*self.shared;
        provider.after_reset(counts, now, wanted, at)
    }

    /// Returns the units that the window holds.
    fn used(&self, now: Tick) -> u32 {
        self.in_window(|window| window.ring.used_now(now, &window.quota))
    }

    /// Returns the limit minus the units in the window, or the units that a provider has left if
    /// these are fewer.
    #[inline]
    fn left_of_window(&self, now: Tick) -> u32 {
        let left = self.in_window(|window| {
            let used = window.ring.used_now(now, &window.quota)?;
            Ok(window.quota.limit().saturating_sub(used))
        });
        match self.provider_left(now) {
            Some(provider) => left.min(provider),
            None => left,
        }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.shared.window.load().quota.limit()
    }

    /// Returns the time at which more than `left` units are left, if no call arrives: when enough
    /// charges have left the window. If a provider has too few units left, the result is not before
    /// the provider's reset.
    pub(crate) fn more_at(&self, now: Tick, left: u32) -> Option<Tick> {
        let window = self.shared.window.load();
        let wanted = left.saturating_add(1).min(window.quota.limit());
        let at = window.ring.available_at(now, wanted, &window.quota)?;
        Some(self.after_reset(now, wanted, at))
    }

    /// Returns the time for which a charge has an effect.
    pub(crate) fn memory(&self) -> Duration {
        self.shared.window.load().ring.interval()
    }

    pub(crate) fn figures(&self, now: Tick) -> BudgetFigures {
        BudgetFigures {
            limit: self.limit(),
            used: self.used(now),
            reserved: self.shared.gauge.reserved(),
            provider_left: self.provider_left(now),
            ..self.shared.counts.totals()
        }
    }

    /// Returns the number of bytes that the budget occupies on the heap, including its window.
    pub(crate) fn footprint(&self) -> usize {
        let ring = self.shared.window.load().ring.footprint() - size_of::<LeapArray>();
        let window = shared_size::<CostWindow>() + shared_size::<LeapArray>() + ring;
        shared_size::<SharedBudget>() + window
    }
}

impl CostLedger for CostBudget {
    #[inline]
    fn book(&self, now: Tick, units: u32) -> Option<u32> {
        let counts = &self.shared.counts;
        let booked = self.in_window(|CostWindow { ring, quota, .. }| {
            let used = ring.add_below(now, units, quota, MAX_BUDGET)?;
            Ok(used.map(|used| (used, quota.limit())))
        });
        let Some((used, limit)) = booked else {
            counts.cut(units);
            return None;
        };
        let used = used.saturating_add(units);
        counts.charged(units, used.saturating_sub(limit).min(units));
        Some(limit.saturating_sub(used))
    }

    fn release(&self, units: u32) {
        self.shared.gauge.release(units);
    }

    fn counts(&self) -> &BudgetCounts {
        &self.shared.counts
    }

    fn left(&self, now: Tick) -> u32 {
        let reserved = self.shared.gauge.reserved();
        self.left_of_window(now).saturating_sub(reserved)
    }

    #[inline]
    fn has_left(&self, now: Tick, booked: Option<u32>) -> bool {
        match booked {
            Some(left) if !self.shared.provider.may_be_in_force(now) => {
                left > self.shared.gauge.reserved()
            }
            _ => self.left(now) > 0,
        }
    }

    fn window_room_at(&self, now: Tick, wanted: u32) -> Option<Tick> {
        let window = self.shared.window.load();
        let at = window.ring.available_from(now, wanted, &window.quota)?;
        Some(self.after_reset(now, wanted, at))
    }

    fn note_provider_left(&self, now: Tick, left: u32, reset: Duration) {
        let SharedBudget {
            provider,
            gauge,
            counts,
            ..
        } = &*self.shared;
        provider.note(counts, now, left, reset);
        gauge.renew();
    }
}
