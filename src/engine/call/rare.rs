//! State that few calls need: the cost, the entries in shadow mode, and the remaining quotas of the
//! parameters. It is one allocation, which the meters of the call share.

use std::mem;
use std::num::NonZeroU32;
use std::sync::{Arc as StdArc, OnceLock};

use super::entry::Entry;
use super::meter::Metered;
use super::nodes::QuotasLeft;
use crate::base::sync::{Arc, AtomicU64, Lock, Ordering};
use crate::engine::resource::Resource;
use crate::rule::Accounts;

/// See the [module](self). While a call is judged, its entry is the only owner.
#[derive(Default)]
pub(super) struct RareState {
    /// The entries of this call in shadow mode. They end with the call, even if a meter keeps this
    /// state alive.
    shadows: Option<Lock<Vec<Entry>>>,
    /// The remaining quotas of the call's parameters when it started or began to wait.
    pub(super) quotas: QuotasLeft,
    /// The cost of the call.
    pub(super) metered: Option<Metered>,
    /// The cost of the body of its response.
    body: OnceLock<BodyCost>,
}

/// The units that a body costs, each with the number of bytes that cost one unit.
pub(crate) type BodyUnits = StdArc<[(StdArc<str>, NonZeroU32)]>;

/// The cost of a response's body by its length.
struct BodyCost {
    /// The price of the body, in bytes per unit.
    units: BodyUnits,
    /// The number of bytes sent so far, or [`ENDED`].
    bytes: AtomicU64,
}

/// The value of `bytes` once the body has ended.
const ENDED: u64 = u64::MAX;

// === impl RareState ===

impl RareState {
    /// Creates the state of a call that only has a cost.
    #[inline]
    pub(super) fn of_cost(metered: Metered) -> Self {
        Self {
            shadows: None,
            quotas: QuotasLeft::default(),
            metered: Some(metered),
            body: OnceLock::new(),
        }
    }

    /// Attaches the entries in shadow mode of a call to `resource`, and their meters.
    pub(super) fn attach(&mut self, resource: &Arc<Resource>, shadows: Vec<Entry>) {
        for shadow in &shadows {
            let meter = shadow.meter();
            if !meter.is_idle() {
                let own = || Metered::new(resource, Accounts::default());
                self.metered.get_or_insert_with(own).chain_shadow(meter);
            }
        }
        self.shadows = Some(Lock::new(shadows));
    }

    /// Calls `f` with each entry in shadow mode.
    pub(super) fn each_shadow(&self, f: &mut dyn FnMut(&mut Entry)) {
        if let Some(shadows) = &self.shadows {
            shadows.lock().iter_mut().for_each(f);
        }
    }

    /// Calls `f` with each entry in shadow mode, and then ends them.
    pub(super) fn end_shadows(&self, f: &mut dyn FnMut(&mut Entry)) {
        self.each_shadow(f);
        if let Some(shadows) = &self.shadows {
            let ended = mem::take(&mut *shadows.lock());
            drop(ended);
        }
    }

    /// Sets the `units` that are charged for the length of the response's body.
    pub(super) fn count_body(&self, units: &BodyUnits) {
        self.body.get_or_init(|| BodyCost {
            units: units.clone(),
            bytes: AtomicU64::new(0),
        });
    }

    /// Charges `more` bytes of the body, in whole units.
    pub(super) fn charge_body(&self, more: usize) {
        let (Some(metered), Some(body)) = (&self.metered, self.body.get()) else {
            return;
        };
        let more = more as u64;
        let before = body.bytes.fetch_add(more, Ordering::Relaxed);
        let after = before.saturating_add(more);
        for (unit, each) in &*body.units {
            let each = u64::from(each.get());
            let units = after / each - before / each;
            if units > 0 {
                metered.add(unit, units.try_into().unwrap_or(u32::MAX));
            }
        }
    }

    /// Ends the body: the bytes since the last whole unit cost one more unit. If the body
    /// `is_whole`, its cost is settled. Does nothing if the body has already ended.
    pub(super) fn end_body(&self, is_whole: bool) {
        let (Some(metered), Some(body)) = (&self.metered, self.body.get()) else {
            return;
        };
        let bytes = body.bytes.swap(ENDED, Ordering::Relaxed);
        if bytes == ENDED {
            return;
        }
        for (unit, each) in &*body.units {
            let each = u64::from(each.get());
            if is_whole {
                let total = bytes.div_ceil(each);
                metered.settle(unit, total.try_into().unwrap_or(u32::MAX));
            } else if bytes % each > 0 {
                metered.add(unit, 1);
            }
        }
    }
}
