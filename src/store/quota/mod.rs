//! One counter of the store, from the point of view of this process.
//!
//! A call takes permits from the [cell](super::cell). If the cell has too few, the call asks for
//! permits. It waits with a [ticket](super::ticket) for the refiller. If the store is unavailable,
//! it is served at once from the share of this process.

mod ahead;
mod costs;
mod entry;
mod exhausted;
#[cfg(all(test, sentinel_loom))]
mod models;
mod on_the_way;
mod other_period;
mod refilled;
mod take;

use std::time::Duration;

use crate::base::sync::{Arc, AtomicBool, AtomicU32, AtomicU64, Lock};
use crate::stat::TablePlace;
use crate::store::books::Books;
use crate::store::cell::Cell;
use crate::store::digest::CounterDigest;
use crate::store::terms::QuotaRule;
use crate::store::ticket::{Answer, Ticket};

pub(in crate::store) use on_the_way::OnTheWay;
pub(in crate::store) use refilled::{After, Conditions, Grant, Prepared};

/// The maximum time for which a cell is marked as exhausted because the local share is used up. It
/// is short, as the store can answer again before more of the share is free.
const MOST_LOCAL_REFUSAL: Duration = Duration::from_millis(100);
/// A counter that needs a permit within this multiple of the shortest horizon is busy: the refiller
/// checks it often. With a larger multiple, too many counters would be busy if there are very many
/// keys.
const BUSY: u32 = 5;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SharedQuota {
    /// The name of the counter.
    digest: CounterDigest,
    /// The state that all counters of the rule share.
    rule: Arc<QuotaRule>,
    /// The permits that calls can take without the store.
    cell: Cell,
    /// The terms of the rule, and the ledger while any of its entries counts.
    books: Lock<Books>,
    /// The time at which the store expected room again in its last refusal, in ns.
    available_at: AtomicU64,
    /// Whether the counter is on the list of the refiller.
    pub(in crate::store) is_listed: AtomicBool,
    /// The place of the counter in the table of its rule. Used only if the rule has keys.
    place: TablePlace,
    /// The time of the last lookup of the counter in the table by a call, in [units](entry) modulo
    /// 2³².
    used: AtomicU32,
}

impl Drop for SharedQuota {
    fn drop(&mut self) {
        self.rule.hub.unregister();
    }
}

/// The answer to a call that finds too few permits in the cell.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The call must wait for the store.
    Waits(Ticket),
    /// The call has its answer at once.
    Answered(Answer),
}
