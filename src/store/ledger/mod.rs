//! The ledger of one counter in one process: the process's permits per bucket, the last answer of
//! the store, and the calls that wait for the next answer.
//!
//! Buckets are aligned to the [store's clock](super::seen), which a process knows only to within
//! the duration of one trip. So between two buckets, no permit is valid for up to this long.

mod back;
mod booked;
mod out;
mod paid;
mod pending;

use self::pending::Pending;
use super::cell::BucketEnd;
use super::demand::Demand;
use super::draw::Epoch;
use super::seen::Seen;
use super::terms::{Terms, Window};
use crate::base::sync::Arc;
use crate::clock::Tick;

/// The permits of one bucket that this process has taken.
#[derive(Clone, Copy, Debug)]
struct Own {
    bucket: u64,
    /// Permits that the store has counted.
    drawn: u32,
    /// Permits that were taken without the store and not yet reported to it.
    local: u32,
}

/// Which permits of this process must be reported to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Report {
    #[default]
    Nothing,
    /// Permits that were taken without the store.
    Local,
    /// All permits of this process, because the store has lost its data.
    All,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) terms: Arc<Terms>,
    window: Arc<Window>,
    /// The permits of this process, by bucket. A boxed slice, because the capacity of a `Vec` would
    /// take eight more bytes in each ledger.
    own: Box<[Own]>,
    /// The store's clock in its last answer; unused until `has_seen`.
    last: Seen,
    /// Whether the store has ever answered.
    has_seen: bool,
    /// Which permits the next draw must report.
    pub(super) report: Report,
    /// The latest sending time of an answered request. Answers to earlier requests are outdated.
    heard: Tick,
    /// Whether the counter is busy, so the refiller checks it often.
    pub(super) is_hot: bool,
    /// The number of free permits in the store at the last answer.
    free: u32,
    /// The number of this process's permits in the window at the last answer.
    had: u32,
    /// The epoch of the store's value when it last counted permits of this process.
    epoch: Epoch,
    /// The estimated demand of calls, for permits to draw ahead.
    pub(super) demand: Demand,
    pub(super) uncounted: Uncounted,
    /// The permits that the cell held when it was last read, from which the demand is computed.
    pub(super) last_held: u32,
    /// Whether the store has answered that no permits are left until `SharedQuota::available_at`.
    pub(super) has_none: bool,
    /// The number of draws that calls have [paid for](paid), less the draws that were sent. Each
    /// call pays for one draw.
    paid: i32,
    /// Waiting calls, permits to return and requests in flight; `None` if nothing is pending.
    pub(super) pending: Option<Box<Pending>>,
}

/// Permits in the cell that the statistics have not accounted for yet.
#[derive(Debug, Default)]
pub(super) struct Uncounted {
    /// The end of the bucket of these permits.
    pub(super) end: BucketEnd,
    /// The number of these permits.
    pub(super) permits: u32,
    /// Whether these permits come from the process's local share, not from a grant of the store.
    pub(super) are_local: bool,
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
