//! The budget of one rule: its window, its gauge, and what has gone through them.

use std::hint::spin_loop;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::MAX_BUDGET;
use super::account::{Account, Posting};
use super::gauge::Gauge;
use crate::base::sync::{Arc, AtomicU64, Bug, Ordering, planted, shared_size};
use crate::clock::Tick;
use crate::stat::{Grid, LeapArray, Quota, Reloaded};

/// The `Retry-After` where only reservations are in the way: when they end is unknown.
const RETRY: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct CostBudget {
    gauge: Gauge,
    /// Another one after a reload that changes its limit or its shape.
    window: ArcSwap<CostWindow>,
    counts: Posted,
}

/// What counts in the present interval, and the limit on it.
#[derive(Debug)]
struct CostWindow {
    ring: Arc<LeapArray>,
    quota: Quota,
}

#[derive(Debug, Default)]
struct Posted {
    charged: AtomicU64,
    reserved: AtomicU64,
    over: AtomicU64,
    untold: AtomicU64,
    cut: AtomicU64,
}

/// The figures of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BudgetFigures {
    pub(crate) limit: u32,
    /// What the window holds, and what running calls have reserved.
    pub(crate) used: u32,
    pub(crate) reserved: u32,
    /// In all: charged, reserved, charged beyond the limit.
    pub(crate) charged_total: u64,
    pub(crate) reserved_total: u64,
    pub(crate) over_total: u64,
    /// Calls that ended without a cost, and costs that were too large to be booked.
    pub(crate) untold_total: u64,
    pub(crate) cut_total: u64,
}

// === impl CostBudget ===

impl CostBudget {
    pub(crate) fn new(grid: Grid, quota: Quota, now: Tick) -> Self {
        let ring = Arc::new(LeapArray::with_grid(grid, now));
        Self {
            gauge: Gauge::default(),
            window: ArcSwap::from_pointee(CostWindow { ring, quota }),
            counts: Posted::default(),
        }
    }

    /// Goes on with another limit, and with a window of the shape `grid`. Only one thread may do
    /// this at a time.
    pub(crate) fn change(&self, grid: Grid, quota: Quota, now: Tick) {
        let old = self.window.load_full();
        let ring = if old.ring.grid() == grid {
            if old.quota == quota {
                return;
            }
            old.ring.clone()
        } else {
            // From here on the old window takes nothing, and its callers wait for the new one.
            Arc::new(old.ring.move_to(grid, now))
        };
        self.window.store(CostWindow { ring, quota }.into());
    }

    /// Reserves `wanted` units for a call if they are left, or lets it pass without a reservation
    /// while one is left.
    pub(crate) fn admit(&self, now: Tick, wanted: u32) -> Option<Account> {
        let mut left = || self.left_of_window(now);
        let is_admitted = self.gauge.admit(wanted, &mut left);
        is_admitted.then(|| Account::new(wanted))
    }

    /// The call of `account`, which was charged nothing so far, runs: its reservation counts.
    pub(crate) fn start(&self, account: &Account) {
        let reserved = account.rest();
        self.counts
            .reserved
            .fetch_add(reserved.into(), Ordering::Relaxed);
    }

    /// Takes back the reservation of a call that does not run.
    pub(crate) fn cancel(&self, account: &Account) {
        let Posting { release, .. } = account.settle(0);
        self.gauge.release(release);
    }

    /// The call of `account` has cost `units` more. Returns whether something is left, of its
    /// reservation or of the limit.
    pub(crate) fn charge(&self, account: &Account, now: Tick, units: u32) -> bool {
        let posting = account.charge(units);
        self.carry_out(now, posting);
        posting.rest > 0 || self.left(now) > 0
    }

    /// The call of `account` costs `total` in all.
    pub(crate) fn settle(&self, account: &Account, now: Tick, total: u32) {
        self.carry_out(now, account.settle(total));
    }

    /// The call of `account` has ended, and nobody can charge it any more.
    pub(crate) fn close(&self, account: &Account, now: Tick, has_failed: bool) {
        let (posting, is_untold) = account.close(has_failed);
        self.carry_out(now, posting);
        if is_untold {
            self.counts.untold.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Books first and releases second: see the [module](super).
    fn carry_out(&self, now: Tick, posting: Posting) {
        if planted(Bug::ReleaseBeforeBook) {
            self.gauge.release(posting.release);
            self.book(now, posting.book);
            return;
        }
        self.book(now, posting.book);
        self.gauge.release(posting.release);
        if posting.cut > 0 {
            self.count_cut(posting.cut);
        }
    }

    fn book(&self, now: Tick, units: u32) {
        if units == 0 {
            return;
        }
        let used = self.used(now);
        if used >= MAX_BUDGET {
            return self.count_cut(units);
        }
        self.in_window(|window| {
            let bucket = window.ring.bucket_number(now);
            window.ring.add_at(bucket, units).map(|_| ())
        });
        self.counts
            .charged
            .fetch_add(units.into(), Ordering::Relaxed);
        let limit = self.window.load().quota.limit();
        let over = used.saturating_add(units).saturating_sub(limit).min(units);
        if over > 0 {
            self.counts.over.fetch_add(over.into(), Ordering::Relaxed);
        }
    }

    #[cold]
    fn count_cut(&self, units: u32) {
        self.counts.cut.fetch_add(units.into(), Ordering::Relaxed);
    }

    // --- reading ---

    /// Runs `f` on the window, again where a reload has just put another one in its place.
    fn in_window<R>(&self, f: impl Fn(&CostWindow) -> Result<R, Reloaded>) -> R {
        loop {
            if let Ok(result) = f(&self.window.load()) {
                return result;
            }
            spin_loop();
        }
    }

    /// What the window holds.
    fn used(&self, now: Tick) -> u32 {
        self.in_window(|window| window.ring.used_now(now, &window.quota))
    }

    /// The limit without what the window holds.
    fn left_of_window(&self, now: Tick) -> u32 {
        self.in_window(|window| {
            let used = window.ring.used_now(now, &window.quota)?;
            Ok(window.quota.limit().saturating_sub(used))
        })
    }

    /// What a new call may still cost.
    pub(crate) fn left(&self, now: Tick) -> u32 {
        let reserved = self.gauge.reserved();
        self.left_of_window(now).saturating_sub(reserved)
    }

    pub(crate) fn limit(&self) -> u32 {
        self.window.load().quota.limit()
    }

    /// When a call that wants to reserve `wanted` units may be let in, if no other one comes: now,
    /// or when the window alone has room for them. `None` if never.
    pub(crate) fn room_at(&self, now: Tick, wanted: u32) -> Option<Tick> {
        let wanted = wanted.max(1);
        if wanted <= self.left(now) {
            return Some(now);
        }
        let at = {
            let window = self.window.load();
            window.ring.available_from(now, wanted, &window.quota)?
        };
        Some(if at <= now { now + RETRY } else { at })
    }

    /// When more than `left` units may be left, if no call comes: when the next bucket leaves the
    /// window in which something was charged.
    pub(crate) fn more_at(&self, now: Tick, left: u32) -> Option<Tick> {
        let window = self.window.load();
        let wanted = left.saturating_add(1).min(window.quota.limit());
        window.ring.available_at(now, wanted, &window.quota)
    }

    /// How long what was charged matters.
    pub(crate) fn memory(&self) -> Duration {
        self.window.load().ring.interval()
    }

    pub(crate) fn figures(&self, now: Tick) -> BudgetFigures {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BudgetFigures {
            limit: self.limit(),
            used: self.used(now),
            reserved: self.gauge.reserved(),
            charged_total: count(&self.counts.charged),
            reserved_total: count(&self.counts.reserved),
            over_total: count(&self.counts.over),
            untold_total: count(&self.counts.untold),
            cut_total: count(&self.counts.cut),
        }
    }

    /// Bytes that it occupies on the heap with its window.
    pub(crate) fn footprint(&self) -> usize {
        let ring = self.window.load().ring.footprint() - size_of::<LeapArray>();
        shared_size::<Self>() + shared_size::<CostWindow>() + shared_size::<LeapArray>() + ring
    }
}
