//! The task that asks the store: it draws for calls that wait, refills leases of counters that
//! are busy, says that the process is alive, and decides whether the store is there.
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
//! Calls that come before the first beat is answered wait for that, as for any answer.
//!
//! A beat that is late is followed by the next one at once; a store that answers none of
//! [three](MOST_MISSED) is away. Meanwhile, and while trips are [silent](super::trips), it is sent
//! no draws. Any other late trip fails only its own calls.
//!
//! A store that was away is asked by beats alone: a server that was stopped runs what was sent
//! to it when it wakes, and draws would take permits for nobody. While it recovers, every
//! process tells it what it does not know, and draws no more than its share.

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

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(250);
/// How long it takes until all processes have noticed that the store is back.
const RECOVERS: Duration = Duration::from_millis(500);
/// Time between the first two probes of a store that is away.
const FIRST_GAP: Duration = Duration::from_millis(20);
/// The longest time between two probes of a store that is away.
const LAST_GAP: Duration = Duration::from_millis(200);
/// How often busy counters are looked at.
const TICK: Duration = Duration::from_millis(5);
/// Most draws of one trip when the process leaves and gives back all permits in hand.
const MOST_DRAWS: usize = 512;
/// Most counters that a trip reports without a call that asks for them. Few, as the calls of that
/// trip wait for its answer.
const MOST_REPORTS: usize = 32;
/// A store that answers this many beats in a row too late is away.
const MOST_MISSED: u32 = 3;

/// See the [module](self).
pub(super) struct Refiller {
    hub: Arc<Hub>,
    store: std::sync::Arc<dyn QuotaStore>,
    pub(super) alive: Alive,
    trips: Trips,
    beat: Option<Request<Beat>>,
    /// Whether a beat was ever answered, or has failed. Until then calls wait for that.
    has_beaten: bool,
    beat_at: Tick,
    /// How many beats were late since the last one that was answered.
    missed: u32,
    /// The time until the next probe of a store that is away.
    gap: Duration,
    /// The epoch of the store, by the last beat.
    epoch: Epoch,
    recovers_until: Tick,
    /// Counters that the next trips draw for.
    due: Vec<Arc<SharedQuota>>,
    /// Counters that are reported to the store after it was away.
    reports: Vec<Arc<SharedQuota>>,
    /// Counters whose waiting calls are not drawn for yet, because a draw is on its way.
    put_off: Vec<Arc<SharedQuota>>,
    /// When `put_off` is looked at again.
    put_off_until: Tick,
    /// Busy counters, which are refilled before calls have to wait.
    hot: Vec<Arc<SharedQuota>>,
    /// When `hot` is looked at again.
    hot_at: Tick,
    sleep: Option<(Tick, Timer)>,
    /// Whether the refiller has let other tasks run since a trip was due, so that their calls are
    /// on the same trip.
    has_yielded: bool,
    jitter: u64,
    budget: Budget,
}

impl Drop for Refiller {
    /// Answers all calls that wait, also if the runtime is gone: otherwise they would wait for a
    /// task that does not run.
    fn drop(&mut self) {
        let now = self.hub.now();
        self.hub.set_mode(HubMode::Idle, now);
        self.trips.end(now);
        self.answer_all(now);
        self.hub.late().settle_all();
        self.hub.is_started.store(false, Ordering::Release);
    }
}
