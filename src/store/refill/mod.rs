//! The refiller, the task that asks the store. It draws permits for waiting calls, refills the
//! leases of busy counters, sends beats, and decides whether the store is up.
//!
//! ```text
//!  start_store  a beat is answered    several beats are late, or anything else fails
//!   Idle ──▶ Starting ──▶ Live ──────────────────────▶ Down
//!                         ▲  │                           │
//!               two beats │  │ another epoch             │ a beat is answered
//!                         │  ▼                           ▼
//!                         └─ Recovering ◀────────────────┘
//! ```
//!
//! Calls that arrive before the first beat is answered wait for the store, like later calls.
//!
//! After a late beat, the next beat is sent at once. A store that is late with [three](MOST_MISSED)
//! beats in a row is *away*, in the mode `Down`. After a late beat, and while trips are
//! [silent](super::trips), no draws are sent. Otherwise, a late trip fails only its own calls.
//!
//! A store that is away gets only beats. When a suspended server resumes, it runs everything that
//! was sent to it. Draws would then take permits for calls that have left. While the store
//! recovers, every process reports the permits that it took without the store, and draws no more
//! than its share.

mod beats;
mod refiller;

use std::time::Duration;

use super::QuotaStore;
use super::beat::{Alive, Beat};
use super::budget::Budget;
use super::draw::Epoch;
use super::hub::{Hub, HubMode};
use super::quota::SharedQuota;
use super::request::Request;
use super::trips::Trips;
use crate::base::sync::{Arc, Ordering};
use crate::base::timer::Timer;
use crate::clock::Tick;

/// The time between two beats. It is short, as the grants of one such interval can be lost
/// unnoticed in a failover.
const BEAT: Duration = Duration::from_millis(250);
/// The duration of `Recovering`: two beats. By its end, all processes have noticed that the store
/// is up again.
const RECOVERS: Duration = Duration::from_millis(500);
/// The time between the first two probes of a store that is away. It doubles with each probe.
const FIRST_GAP: Duration = Duration::from_millis(20);
/// The maximum time between two probes of a store that is away.
const LAST_GAP: Duration = Duration::from_millis(200);
/// The interval at which busy counters are checked and refilled: a quarter of the default horizon.
const TICK: Duration = Duration::from_millis(5);
/// The maximum number of draws in one request when the process leaves and gives all unused permits
/// back.
const MOST_DRAWS: usize = 512;
/// The maximum number of counters in a trip that only report permits. It is small, because the
/// calls of the trip wait for its answer.
const MOST_REPORTS: usize = 32;
/// The number of late beats in a row after which a store is away.
const MOST_MISSED: u32 = 3;

/// See the [module](self).
pub(super) struct Refiller {
    hub: Arc<Hub>,
    store: std::sync::Arc<dyn QuotaStore>,
    /// The report that each beat sends.
    pub(super) alive: Alive,
    trips: Trips,
    /// The beat in flight.
    beat: Option<Request<Beat>>,
    /// The number of resets of keys by the answer to the last beat; `None` before the first answer.
    resets: Option<u64>,
    /// Whether any beat was answered or has failed. Until then, no draws are sent.
    has_beaten: bool,
    /// The time at which the next beat is sent.
    beat_at: Tick,
    /// The number of beats in a row that were late or failed.
    missed: u32,
    /// The time until the next probe of a store that is away.
    gap: Duration,
    /// The epoch of the store by the answer to the last beat.
    epoch: Epoch,
    /// The end of `Recovering`, if all reports are sent before it.
    recovers_until: Tick,
    /// Counters for which the next trips draw.
    due: Vec<Arc<SharedQuota>>,
    /// Counters whose permits must be reported to the store because it was away or has lost its
    /// data.
    reports: Vec<Arc<SharedQuota>>,
    /// Counters whose next draw is postponed, because another draw is in flight.
    put_off: Vec<Arc<SharedQuota>>,
    /// The time at which the first counter in `put_off` is due.
    put_off_until: Tick,
    /// Busy counters, which are refilled before calls have to wait.
    hot: Vec<Arc<SharedQuota>>,
    /// The time at which `hot` is checked next.
    hot_at: Tick,
    /// The timer of the task, with the time at which it fires.
    sleep: Option<(Tick, Timer)>,
    /// Whether the refiller has yielded before the next trip, so that calls of other tasks join
    /// this trip.
    has_yielded: bool,
    /// The state of the random numbers for [`jittered`](Self::jittered).
    jitter: u64,
    /// Limits the rate of refills.
    budget: Budget,
}

impl Drop for Refiller {
    /// Answers all waiting calls, even if the runtime has shut down. Otherwise, they would wait for
    /// a task that no longer runs.
    fn drop(&mut self) {
        let now = self.hub.now();
        self.hub.set_mode(HubMode::Idle, now);
        self.trips.end(now);
        self.answer_all(now);
        self.hub.late().settle_all();
        self.hub.is_started.store(false, Ordering::Release);
    }
}
