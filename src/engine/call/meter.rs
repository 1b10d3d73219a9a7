//! The cost of a running call, and the handle with which any thread reports it.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use super::rare::RareState;
use crate::base::small_vec::SmallVec;
use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::call::Direction;
use crate::engine::resource::Resource;
use crate::rule::{Accounts, LeaseAccount};

/// A handle to report the cost of a running call, for rules on [costs](crate::FlowRule::cost). For
/// example, a stream keeps a meter and charges each chunk; a task settles when it knows the total.
///
/// All clones count for one call. The call's reservation is released when the call has ended *and*
/// its last meter is dropped, so that a cost can be reported after the end. A call that never
/// reported a cost is then charged its reservation, unless it failed. A meter that is never dropped
/// keeps the reservation.
///
/// The meter of a call without a rule on costs, and the [`Default`] meter, count nothing. A unit
/// that no rule of the resource counts is ignored and becomes a
/// [finding](crate::hook::FindingKind::CostUnit). A unit that several rules count is charged to all
/// of them.
///
/// A charge takes no lock and allocates nothing, with one exception: an excess over the reservation
/// at a [shared](crate::FlowRule::shared) rule is booked under a lock.
///
/// # Examples
///
/// A stream that ends itself when nothing is left:
///
/// ```
/// use tower_sentinel::{Call, FlowRule, Sentinel};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sentinel = Sentinel::new(FlowRule::per_minute("chat", 10).cost("tokens"));
/// let entry = sentinel.enter(Call::new("chat").reserve("tokens", 4)).await?;
/// let meter = entry.meter();
/// let sent = (0..).take_while(|_| meter.charge("tokens", 3)).count();
/// // 3 and 6 of 10 are charged, and then 9: the fourth chunk is one too many.
/// assert_eq!(sent, 3);
/// # Ok::<(), tower_sentinel::Blocked>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<RareState>>);

/// The accounts of one call. They are closed on drop, when neither the entry nor a meter can charge
/// them.
pub(super) struct Metered {
    resource: Arc<Resource>,
    accounts: Accounts,
    /// Whether the call has failed. A failed call that reports no cost is charged nothing.
    has_failed: AtomicBool,
    /// The meter of the call in the engine of a rule in shadow mode.
    shadow: OnceLock<Meter>,
    /// The meter of the same call in an outer layer.
    outer: OnceLock<Meter>,
}

// === impl Meter ===

impl Meter {
    /// Creates a meter on the rare state of a call. It counts nothing if no rule counts the call's
    /// cost.
    pub(super) fn of(rare: &Arc<RareState>) -> Self {
        Self(rare.metered.is_some().then(|| rare.clone()))
    }

    /// Notes that the call has cost `n` more of `unit`. The charge counts at once, and uses the
    /// reservation first. An `n` of 0 does not count as a report.
    ///
    /// Returns false once the reservation is used up and a rule has nothing left, so that the work
    /// can stop.
    pub fn charge(&self, unit: &str, n: u32) -> bool {
        let metered = self.metered();
        metered.is_none_or(|metered| metered.charge(unit, n))
    }

    /// Notes that the call costs `total` of `unit` in all. If more was already charged, the charges
    /// count instead. The rest of the reservation is released. With a `total` of 0 and no charges,
    /// the call costs nothing.
    ///
    /// If several totals are reported, the largest counts.
    pub fn settle(&self, unit: &str, total: u32) {
        if let Some(metered) = self.metered() {
            metered.settle(unit, total);
        }
    }

    /// Notes that a provider has reported, for example in a header of its response, that `left`
    /// units of `unit` are left until `reset` has passed. Until then, only calls within this number
    /// pass, less the units that are charged from now on.
    ///
    /// The number applies to all calls to the resource, in each
    /// [`FlowRule::cost`](crate::FlowRule::cost) of the unit that is not shared; keyed rules ignore
    /// it. With a shared rule, add a rule that is not shared: it limits each process to the last
    /// number reported to this process. A call that is refused because of the number gets the reset
    /// as its [`retry_after`](crate::Blocked::retry_after). Reservations of running calls count as
    /// used, including the reservation of this call: if the provider's number includes the cost of
    /// this call already, settle the call first.
    ///
    /// The number can only tighten a limit. While a number is in force, a larger one is ignored,
    /// and a smaller one replaces it and is in force at least as long. A reload keeps the number
    /// and the charges since. A negative number is ignored, as providers send -1 for unknown
    /// numbers, and so is a reset of zero. A reset of more than a day counts as one day.
    ///
    /// This method allocates, and makes calls that are being judged start over. So call it once for
    /// each response.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_sentinel::{Call, FlowRule, ManualClock, Sentinel, Verdict};
    ///
    /// let rule = FlowRule::per_minute("provider", 10_000).cost("tokens");
    /// let clock = ManualClock::new();
    /// let sentinel = Sentinel::builder().rules(rule).clock(clock.clone()).build();
    /// let enter = |most| sentinel.try_enter(Call::new("provider").reserve("tokens", most));
    /// let Verdict::Pass(mut entry) = enter(4_000) else {
    ///     panic!("10000 are left");
    /// };
    /// entry.settle("tokens", 500);
    /// // Others use the account as well.
    /// entry.meter().left("tokens", 1_000, Duration::from_secs(20));
    /// let Verdict::Block(blocked) = enter(4_000) else {
    ///     panic!("the provider would refuse it");
    /// };
    /// assert_eq!(blocked.retry_after(), Some(Duration::from_secs(20)));
    /// assert!(matches!(enter(1_000), Verdict::Pass(_)));
    /// clock.advance(Duration::from_secs(20));
    /// assert!(matches!(enter(4_000), Verdict::Pass(_)));
    /// ```
    pub fn left(&self, unit: &str, left: i64, reset: Duration) {
        let Some(metered) = self.metered() else {
            return;
        };
        if left >= 0 && !reset.is_zero() {
            metered.note_provider_left(unit, u32::try_from(left).unwrap_or(u32::MAX), reset);
        }
    }

    /// Returns whether this meter counts nothing.
    pub(crate) const fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Forwards reports to this meter to `outer` as well, if `outer` is the meter of the same call
    /// in an outer layer. A meter of the other direction is ignored: it belongs to an inbound call
    /// that makes this outbound call.
    pub(crate) fn within(&self, outer: Self) {
        let (Some(own), Some(around)) = (&self.0, &outer.0) else {
            return;
        };
        if !Arc::ptr_eq(own, around) && self.direction() == outer.direction() {
            if let Some(metered) = self.metered() {
                // A meter that is already set is kept.
                let _ = metered.outer.set(outer);
            }
        }
    }

    fn direction(&self) -> Option<Direction> {
        Some(self.metered()?.resource.direction())
    }

    fn metered(&self) -> Option<&Metered> {
        self.0.as_ref()?.metered.as_ref()
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = self.metered().map(|metered| metered.resource.text());
        f.debug_struct("Meter")
            .field("resource", &resource)
            .finish_non_exhaustive()
    }
}

// === impl Metered ===

impl Metered {
    /// Creates the metering of a call to `resource` with these `accounts`.
    pub(super) fn new(resource: &Arc<Resource>, accounts: Accounts) -> Self {
        Self {
            resource: resource.clone(),
            accounts,
            has_failed: AtomicBool::new(false),
            shadow: OnceLock::new(),
            outer: OnceLock::new(),
        }
    }

    /// Adds the accounts of shared rules, and starts them.
    pub(super) fn set_leased(&mut self, leased: SmallVec<LeaseAccount, 1>) {
        if let Some(costs) = self.resource.costs() {
            self.accounts.shared = leased;
            costs.start_shared(&self.accounts);
        }
    }

    pub(super) fn charge(&self, unit: &str, n: u32) -> bool {
        let mut may_continue = true;
        if let Some(costs) = self.resource.costs() {
            may_continue = costs.charge(&self.accounts, self.resource.now(), unit, n);
        }
        if let Some(shadow) = self.shadow.get() {
            // A rule in shadow mode ends no work.
            shadow.charge(unit, n);
        }
        match self.outer.get() {
            Some(outer) => outer.charge(unit, n) && may_continue,
            None => may_continue,
        }
    }

    /// Charges `n` units without checking what is left.
    pub(super) fn add(&self, unit: &str, n: u32) {
        if let Some(costs) = self.resource.costs() {
            costs.add(&self.accounts, self.resource.now(), unit, n);
        }
        self.each_linked(|linked| linked.add(unit, n));
    }

    pub(super) fn settle(&self, unit: &str, total: u32) {
        if let Some(costs) = self.resource.costs() {
            costs.settle(&self.accounts, self.resource.now(), unit, total);
        }
        self.each_linked(|linked| linked.settle(unit, total));
    }

    /// Does the work of [`Meter::left`], for a valid number.
    fn note_provider_left(&self, unit: &str, left: u32, reset: Duration) {
        if let Some(costs) = self.resource.costs() {
            let now = self.resource.now();
            costs.note_provider_left(&self.accounts, now, (unit, left), reset);
        }
        self.each_linked(|linked| linked.note_provider_left(unit, left, reset));
    }

    /// Calls `f` with the metering of the same call in shadow mode and in an outer layer.
    #[inline]
    fn each_linked(&self, mut f: impl FnMut(&Self)) {
        for linked in [&self.shadow, &self.outer] {
            if let Some(metered) = linked.get().and_then(Meter::metered) {
                f(metered);
            }
        }
    }

    /// Notes that the call has failed, so that it is charged nothing if it reports no cost.
    pub(super) fn fail(&self) {
        // Relaxed suffices: the entry drops its reference afterwards, which orders the store before
        // the load in `drop`.
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Forwards reports to this meter to `shadow` as well.
    pub(super) fn chain_shadow(&self, shadow: Meter) {
        if let Err(shadow) = self.shadow.set(shadow) {
            // Another shadow is already set, so the new shadow is chained to it.
            let first = self.shadow.get().and_then(Meter::metered);
            first.expect("it was set").chain_shadow(shadow);
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        // The entry has stored the flag before it dropped its reference.
        let has_failed = self.has_failed.load(Ordering::Relaxed);
        if let Some(costs) = self.resource.costs() {
            costs.close(&self.accounts, || self.resource.now(), has_failed);
        }
    }
}
