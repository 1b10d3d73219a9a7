//! The cost of a call that runs, and the handle by which any thread tells it.

use std::fmt;
use std::sync::OnceLock;

use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::engine::resource::Resource;
use crate::rule::Accounts;

/// A handle on the cost of a running call, for rules on [costs](crate::FlowRule::cost): a stream
/// keeps one and charges each chunk, a task settles when it knows the total.
///
/// All clones count for one call. What the call has reserved is released when the call has ended
/// *and* its last meter is gone, so that a cost may be told after the end. A call that never told a
/// cost is charged its reservation then, unless it failed. A meter that is never dropped keeps the
/// reservation.
///
/// The meter of a call without such a rule, and that by [`Default`], counts nothing. A unit that no
/// rule of the resource counts is ignored, and a unit that several rules count is told to all of
/// them.
///
/// A charge takes no lock and allocates nothing.
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
pub struct Meter(Option<Arc<Metered>>);

/// The accounts of one call. They are closed when nobody can charge them any more.
struct Metered {
    resource: Arc<Resource>,
    accounts: Accounts,
    has_failed: AtomicBool,
    /// The meter of the call in the engine of a rule in shadow mode.
    shadow: OnceLock<Meter>,
}

// === impl Meter ===

impl Meter {
    /// The meter of a call to `resource` that has these `accounts`.
    pub(crate) fn new(resource: &Arc<Resource>, accounts: Accounts) -> Self {
        Self(Some(Arc::new(Metered {
            resource: resource.clone(),
            accounts,
            has_failed: AtomicBool::new(false),
            shadow: OnceLock::new(),
        })))
    }

    /// Notes that the call has cost `n` more of `unit`. It counts now, first out of the
    /// reservation. 0 says nothing.
    ///
    /// Returns false as soon as the reservation is used up and a rule has nothing left: the work may
    /// end itself.
    pub fn charge(&self, unit: &str, n: u32) -> bool {
        let mut goes_on = true;
        if let Some(metered) = &self.0 {
            let resource = &metered.resource;
            if let Some(costs) = resource.costs() {
                goes_on = costs.charge(&metered.accounts, resource.now(), unit, n);
            }
            if let Some(shadow) = metered.shadow.get() {
                // A rule in shadow mode ends no work.
                shadow.charge(unit, n);
            }
        }
        goes_on
    }

    /// Notes that the call costs `total` of `unit` in all, or what was charged already if that is
    /// more. What is left of the reservation is free again. With 0 the call cost nothing.
    ///
    /// If several totals are told, the largest counts.
    pub fn settle(&self, unit: &str, total: u32) {
        if let Some(metered) = &self.0 {
            let resource = &metered.resource;
            if let Some(costs) = resource.costs() {
                costs.settle(&metered.accounts, resource.now(), unit, total);
            }
            if let Some(shadow) = metered.shadow.get() {
                shadow.settle(unit, total);
            }
        }
    }

    /// The call has failed: if it tells no cost, it is charged nothing.
    pub(crate) fn fail(&self) {
        if let Some(metered) = &self.0 {
            // The entry that notes it lets go of its reference after that.
            metered.has_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether it counts nothing.
    pub(crate) const fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Tells `shadow` as well what is told here.
    pub(crate) fn also_tell(&self, shadow: Self) {
        if let Some(metered) = &self.0 {
            if let Err(shadow) = metered.shadow.set(shadow) {
                // Another rule in shadow mode comes first.
                let first = metered.shadow.get();
                first.expect("it was set").also_tell(shadow);
            }
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = self.0.as_ref().map(|metered| metered.resource.text());
        f.debug_struct("Meter")
            .field("resource", &resource)
            .finish_non_exhaustive()
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
