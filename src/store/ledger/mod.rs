//! The ledger of one counter in one process: its own permits per bucket, the last answer of the
//! store, and which calls wait for the next one.
//!
//! Buckets are those of the [store's clock](super::seen). At the border of two buckets, no permit
//! is valid for one trip.

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

/// Own permits of one bucket.
#[derive(Clone, Copy, Debug)]
struct Own {
    bucket: u64,
    /// Permits that the store has counted.
    drawn: u32,
    /// Permits that were taken without the store and are not reported yet.
    local: u32,
}

/// Which own permits the store must be told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Report {
    #[default]
    Nothing,
    /// Permits that were taken without the store.
    Local,
    /// All: it has lost its data.
    All,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) terms: Arc<Terms>,
    window: Arc<Window>,
    /// A boxed slice, because a `Vec` would add eight bytes of capacity to each ledger.
    own: Box<[Own]>,
    /// The last answer, if there is one.
    last: Seen,
    has_seen: bool,
    pub(super) report: Report,
    /// The latest time at which an answered request was sent: answers to earlier ones bring no
    /// news.
    heard: Tick,
    pub(super) is_hot: bool,
    /// The permits that were free at the last answer, and how much the process had of the window.
    free: u32,
    had: u32,
    epoch: Epoch,
    pub(super) demand: Demand,
    pub(super) uncounted: Uncounted,
    /// The permits that the cell held when it was last read.
    pub(super) last_held: u32,
    /// Whether the store has answered that no permits are left until the next time with room.
    pub(super) has_none: bool,
    /// The draws that calls have paid for and that are not sent: one for each call.
    paid: i32,
    /// Waiting calls, permits to give back and requests under way; `None` if there are none.
    pub(super) pending: Option<Box<Pending>>,
}

/// Permits in the cell that the statistics have not accounted for yet.
#[derive(Debug, Default)]
pub(super) struct Uncounted {
    /// The end of their bucket.
    pub(super) end: BucketEnd,
    pub(super) permits: u32,
    /// Whether they come from the process's share, not from a grant of the store.
    pub(super) are_local: bool,
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
