//! The cost of a call that runs, and the handle by which any thread tells it.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use super::rare::RareState;
use crate::base::small_vec::SmallVec;
use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::call::Direction;
use crate::clock::Tick;
use crate::engine::resource::Resource;
use crate::rule::{Accounts, CostRules, LeaseAccount};

/// A handle on the cost of a running call, for rules on [costs](crate::FlowRule::cost): a stream
/// keeps one and charges each chunk, a task settles when it knows the total.
///
/// All clones count for one call. What the call has reserved is released when the call has ended
/// *and* its last meter is gone, so that a cost may be told after the end. A call that never told a
/// cost is charged its reservation then, unless it failed. A meter that is never dropped keeps the
/// reservation.
///
/// The meter of a call without such a rule, and that by [`Default`], counts nothing. A unit that no
/// rule of the resource counts is ignored, but for a
/// [finding](crate::hook::FindingKind::CostUnit), and a unit that several rules count is told to all
/// of them.
///
/// A charge takes no lock and allocates nothing. Only what a [shared](crate::FlowRule::shared) rule
/// has no reservation for is noted under a lock.
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

/// The accounts of one call. They are closed when nobody can charge them any more.
pub(super) struct Metered {
    resource: Arc<Resource>,
    accounts: Accounts,
    has_failed: AtomicBool,
    /// The meter of the call in the engine of a rule in shadow mode.
    shadow: OnceLock<Meter>,
    /// The meter of the call by a layer around this one.
    outer: OnceLock<Meter>,
}

// === impl Meter ===

impl Meter {
    /// The meter of a call that has such a state, if its cost matters.
    pub(super) fn of(rare: &Arc<RareState>) -> Self {
        Self(rare.metered.is_some().then(|| rare.clone()))
    }

    /// Notes that the call has cost `n` more of `unit`. It counts now, first out of the
    /// reservation. 0 says nothing.
    ///
    /// Returns false as soon as the reservation is used up and a rule has nothing left: the work may
    /// end itself.
    pub fn charge(&self, unit: &str, n: u32) -> bool {
        let metered = self.metered();
        metered.is_none_or(|metered| metered.charge(unit, n))
    }

    /// Notes that the call costs `total` of `unit` in all, or what was charged already if that is
    /// more. What is left of the reservation is free again. With 0 the call cost nothing.
    ///
    /// If several totals are told, the largest counts.
    pub fn settle(&self, unit: &str, total: u32) {
        if let Some(metered) = self.metered() {
            metered.settle(unit, total);
        }
    }

    /// Notes that a provider has `left` so much of `unit` for its callers until `reset` is over, as it
    /// says in its response: until then no more than that passes, less what is charged from now on.
    ///
    /// It concerns all calls to the resource, by each [`FlowRule::cost`](crate::FlowRule::cost) of the
    /// unit that is not shared; a keyed rule takes no notice. A call that it keeps out has the reset as
    /// its [`retry_after`](crate::Blocked::retry_after). What running calls have reserved counts as
    /// well, that of this one too: if its own cost is in the number already, settle it first.
    ///
    /// It never lets anything pass that would not pass without it. While a number is in force, a larger
    /// one is ignored, and a smaller one takes its place and is in force at least as long. A reload
    /// keeps it with what was charged. A negative number says nothing, as providers send -1 for what
    /// they do not know, and neither does a reset of zero. A reset of more than a day counts as one day.
    ///
    /// It allocates, and lets calls that are being judged look again, so tell it once for each response.
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
            metered.tell_left(unit, u32::try_from(left).unwrap_or(u32::MAX), reset);
        }
    }

    /// Returns whether it counts nothing.
    pub(crate) const fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Tells `outer` as well what is told here, if that is of a layer around the one of this call,
    /// and not of a call that has come in and makes this one.
    pub(crate) fn within(&self, outer: Self) {
        let (Some(own), Some(around)) = (&self.0, &outer.0) else {
            return;
        };
        if !Arc::ptr_eq(own, around) && self.direction() == outer.direction() {
            if let Some(metered) = self.metered() {
                // The first one stays: it is that of the request.
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
    /// A call to `resource` that has these `accounts`.
    pub(super) fn new(resource: &Arc<Resource>, accounts: Accounts) -> Self {
        Self {
            resource: resource.clone(),
            accounts,
            has_failed: AtomicBool::new(false),
            shadow: OnceLock::new(),
            outer: OnceLock::new(),
        }
    }

    /// The call has these accounts by shared rules as well.
    pub(super) fn set_leased(&mut self, leased: SmallVec<LeaseAccount, 1>) {
        if let Some(costs) = self.resource.costs() {
            self.accounts.shared = leased;
            costs.start_shared(&self.accounts);
        }
    }

    pub(super) fn charge(&self, unit: &str, n: u32) -> bool {
        let mut goes_on = true;
        if let Some(costs) = self.resource.costs() {
            goes_on = costs.charge(&self.accounts, self.resource.now(), unit, n);
        }
        if let Some(shadow) = self.shadow.get() {
            // A rule in shadow mode ends no work.
            shadow.charge(unit, n);
        }
        match self.outer.get() {
            Some(outer) => outer.charge(unit, n) && goes_on,
            None => goes_on,
        }
    }

    /// Charges `n` units without a look at what is left.
    pub(super) fn add(&self, unit: &str, n: u32) {
        self.tell_all(&mut |costs, accounts, now| costs.add(accounts, now, unit, n));
    }

    pub(super) fn settle(&self, unit: &str, total: u32) {
        self.tell_all(&mut |costs, accounts, now| costs.settle(accounts, now, unit, total));
    }

    fn tell_left(&self, unit: &str, left: u32, reset: Duration) {
        self.tell_all(&mut |costs, accounts, now| {
            costs.tell_left(accounts, now, (unit, left), reset);
        });
    }

    /// Calls `f` with the rules on costs that have accounts of the call, these accounts and the
    /// present: here, in shadow mode and in layers around this one.
    fn tell_all(&self, f: &mut dyn FnMut(&CostRules, &Accounts, Tick)) {
        if let Some(costs) = self.resource.costs() {
            f(costs, &self.accounts, self.resource.now());
        }
        for beside in [&self.shadow, &self.outer] {
            if let Some(metered) = beside.get().and_then(Meter::metered) {
                metered.tell_all(f);
            }
        }
    }

    /// The call has failed: if it tells no cost, it is charged nothing.
    pub(super) fn fail(&self) {
        // The entry that notes it lets go of its reference after that.
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Tells `shadow` as well what is told here.
    pub(super) fn tell_shadow(&self, shadow: Meter) {
        if let Err(shadow) = self.shadow.set(shadow) {
            // Another rule in shadow mode comes first.
            let first = self.shadow.get().and_then(Meter::metered);
            first.expect("it was set").tell_shadow(shadow);
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let now = self.resource.now();
        // The entry has noted it before it let go of its reference.
        let has_failed = self.has_failed.load(Ordering::Relaxed);
        if let Some(costs) = self.resource.costs() {
            costs.close(&self.accounts, now, has_failed);
        }
    }
}
