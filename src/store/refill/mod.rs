//! The task that asks the store: it draws for calls that wait, refills the leases of busy counters,
//! sends beats, and decides whether the store is up.
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
//! Calls that come before the first beat is answered wait for it, as for any answer.
//!
//! A late beat is followed by another one at once. A store that is late with [three](MOST_MISSED)
//! beats in a row is away. After a late beat, and while trips are [silent](super::trips), no draws
//! are sent. Otherwise, a late trip fails only its own calls.
//!
//! A store that is away gets only beats. A server that was suspended runs everything that was sent
//! to it when it resumes, and draws would then take permits for calls that have left. While the
//! store recovers, every process reports what it took without it, and draws no more than its share.

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

/// The time between two beats. After a failover, grants of this long can be lost unnoticed, so it
/// is short.
const BEAT: Duration = Duration::from_millis(250);
/// The duration of `Recovering`, which is that of two beats. By its end, all processes have noticed
/// that the store is back.
const RECOVERS: Duration = Duration::from_millis(500);
/// The time between the first two probes of a store that is away. It doubles with each probe.
const FIRST_GAP: Duration = Duration::from_millis(20);
/// The longest time between two probes of a store that is away.
const LAST_GAP: Duration = Duration::from_millis(200);
/// The interval at which busy counters are checked and refilled: a quarter of the default horizon.
const TICK: Duration = Duration::from_millis(5);
/// The most draws of one request when the process leaves and gives back all unused permits.
const MOST_DRAWS: usize = 512;
/// The most counters that a trip reports without a call that asks for them. Few, because the calls
/// of that trip wait for its answer.
const MOST_REPORTS: usize = 32;
/// A store that answers this many beats in a row too late is away.
const MOST_MISSED: u32 = 3;

/// See the [module](self).
pub(super) struct Refiller {
    hub: Arc<Hub>,
    store: std::sync::Arc<dyn QuotaStore>,
    /// The report that each beat sends.
    pub(super) alive: Alive,
    trips: Trips,
    /// The beat that is on its way.
    beat: Option<Request<Beat>>,
    /// How many keys were reset, by the last beat.
    resets: Option<u64>,
    /// Whether a beat was ever answered or has failed. Until then, no draws are sent.
    has_beaten: bool,
    /// When the next beat is sent.
    beat_at: Tick,
    /// How many beats in a row were late.
    missed: u32,
    /// The time until the next probe of a store that is away.
    gap: Duration,
    /// The epoch of the store, by the last beat.
    epoch: Epoch,
    /// When `Recovering` ends, if all reports are sent by then.
    recovers_until: Tick,
    /// Counters that the next trips draw for.
    due: Vec<Arc<SharedQuota>>,
    /// Counters that are reported to the store after it was away.
    reports: Vec<Arc<SharedQuota>>,
    /// Counters whose waiting calls get no draw yet, because another one is on its way.
    put_off: Vec<Arc<SharedQuota>>,
    /// When the next of `put_off` is due.
    put_off_until: Tick,
    /// Busy counters, which are refilled before calls have to wait.
    hot: Vec<Arc<SharedQuota>>,
    /// When `hot` is next refilled.
    hot_at: Tick,
    /// The timer of the task, and when it fires.
    sleep: Option<(Tick, Timer)>,
    /// Whether the refiller has yielded since a trip was due, so that calls of other tasks are on
    /// the same trip.
    has_yielded: bool,
    /// The state of the random numbers for [`jittered`](Self::jittered).
    jitter: u64,
    budget: Budget,
}

impl Drop for Refiller {
    /// Answers all waiting calls, also if the runtime is gone: otherwise they would wait for a task
    /// that does not run.
    fn drop(&mut self) {
        let now = self.hub.now();
        self.hub.set_mode(HubMode::Idle, now);
        self.trips.end(now);
        self.answer_all(now);
        self.hub.late().settle_all();
        self.hub.is_started.store(false, Ordering::Release);
    }
}
