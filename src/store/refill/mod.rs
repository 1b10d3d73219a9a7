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

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::beat::{Alive, Beat};
use super::budget::Budget;
use super::draw::{Draw, Drawn, Epoch};
use super::hub::{Hub, HubMode};
use super::ledger::Report;
use super::quota::{After, Conditions, Grant, OnTheWay, Prepared, SharedQuota};
use super::request::{self, Request};
use super::seen::Seen;
use super::trips::{self, Trip, TripAnswers, TripEnd, Trips};
use super::{QuotaStore, StoreError, StoreErrorKind};
use crate::base::sync::{Arc, Ordering};
use crate::base::thread::this_process;
use crate::base::timer::{self, Timer};
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

impl Refiller {
    pub(super) fn new(hub: Arc<Hub>, store: std::sync::Arc<dyn QuotaStore>) -> Self {
        let now = hub.now();
        // The engine may have been built before this process was forked.
        let node = hub.node.of_process(this_process());
        Self {
            jitter: node.0 as u64 | 1,
            trips: Trips::new(hub.settings.store_wait, now),
            alive: Alive::new(node, hub.agreed()),
            hub,
            store,
            beat: None,
            has_beaten: false,
            beat_at: now,
            missed: 0,
            gap: FIRST_GAP,
            epoch: Epoch::default(),
            recovers_until: now,
            due: Vec::new(),
            reports: Vec::new(),
            put_off: Vec::new(),
            put_off_until: now,
            hot: Vec::new(),
            hot_at: now,
            sleep: None,
            has_yielded: false,
            budget: Budget::new(now),
        }
    }

    /// Runs until its handle stops it, and then gives back what is in hand.
    pub(super) async fn run(mut self) {
        let now = self.hub.now();
        self.hub.set_mode(HubMode::Starting, now);
        poll_fn(|cx| self.poll(cx)).await;
        let until = self.hub.now() + self.hub.settings.store_wait;
        poll_fn(|cx| self.poll_last(cx, until)).await;
        self.leave().await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.hub.wait(cx.waker());
            if self.hub.stops.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            let now = self.hub.now();
            let mut has_moved = self.poll_beat(cx, now);
            has_moved |= self.poll_trips(cx, now);
            let has_told = now >= self.recovers_until && self.reports.is_empty();
            if self.hub.mode() == HubMode::Recovering && has_told {
                self.hub.set_mode(HubMode::Live, now);
            }
            has_moved |= self.start_beat(now);
            if self.yields(cx) {
                return Poll::Pending;
            }
            has_moved |= self.start_trips(now);
            self.hub.late().settle_answered();
            if !has_moved && self.poll_sleep(cx, now).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Lets the store answer the calls that wait for it; those that come after `until` are too
    /// late. A trip has a deadline of its own.
    fn poll_last(&mut self, cx: &mut Context<'_>, until: Tick) -> Poll<()> {
        loop {
            let now = self.hub.now();
            let mut has_moved = self.poll_trips(cx, now);
            if !self.has_beaten {
                has_moved |= self.poll_beat(cx, now);
            }
            if now < until {
                has_moved |= self.start_trips(now);
            }
            self.hub.late().settle_answered();
            let is_first_beat = self.beat.is_some() && !self.has_beaten;
            if !self.trips.is_any() && !is_first_beat {
                return Poll::Ready(());
            }
            if !has_moved {
                return Poll::Pending;
            }
        }
    }

    /// Lets other tasks run once before it draws. The first of several calls that come at once has
    /// woken this task; the others get on the same trip.
    fn yields(&mut self, cx: &mut Context<'_>) -> bool {
        self.has_yielded = !self.has_yielded && self.hub.is_asked();
        if self.has_yielded {
            cx.waker().wake_by_ref();
        }
        self.has_yielded
    }

    // --- trips ---

    fn conditions(&self, now: Tick) -> Conditions {
        Conditions {
            now,
            nodes: self.hub.nodes(),
            horizon: self.budget.stretched(self.hub.settings.horizon),
            trip: self.hub.trip(),
            slow_trip: self.hub.slowest_trip(),
            is_recovering: self.hub.mode() == HubMode::Recovering,
        }
    }

    /// Sends trips for the counters that are due, as far as the pace allows. While the store is
    /// away, answers their calls without it. Returns whether anything was done.
    fn start_trips(&mut self, now: Tick) -> bool {
        if !self.has_beaten || (self.hub.is_up() && self.is_in_doubt()) {
            return false;
        }
        self.due.extend(self.hub.take_asking());
        if now >= self.put_off_until {
            self.due.append(&mut self.put_off);
        }
        if !self.hub.is_up() {
            let has_any = !self.due.is_empty();
            self.answer_all(now);
            return has_any;
        }
        let mut has_started = false;
        while now >= self.trips.next_at() {
            let take = self.due.len().min(self.trips.room());
            let reports = self.reports.len().min(self.trips.room() - take);
            let reports = reports.min(MOST_REPORTS);
            if take + reports == 0 {
                break;
            }
            let reports = self.reports.drain(self.reports.len() - reports..);
            let counters: Vec<_> = self.due.drain(..take).chain(reports).collect();
            let by = self.conditions(now);
            let most = counters.len();
            let (mut draws, mut sent) = (Vec::with_capacity(most), Vec::with_capacity(most));
            for quota in counters {
                match SharedQuota::prepare(&quota, &by) {
                    Prepared::Nothing => {}
                    Prepared::Sends(draw, on_the_way) => {
                        draws.push(draw);
                        sent.push(on_the_way);
                    }
                    Prepared::Waits(at) => {
                        if self.put_off.is_empty() || at < self.put_off_until {
                            self.put_off_until = at;
                        }
                        self.put_off.push(quota);
                    }
                }
            }
            if draws.is_empty() {
                continue;
            }
            has_started = true;
            let refills = sent.iter().filter(|sent| sent.is_refill());
            self.budget.note(refills.count(), now);
            self.start_trip(draws, sent, now);
        }
        has_started
    }

    fn start_trip(&mut self, draws: Vec<Draw>, sent: Vec<OnTheWay>, now: Tick) {
        self.hub.figures.trips.add(1);
        self.hub.figures.draws.add(draws.len() as u64);
        let store = self.store.clone();
        let request = async move { store.draw(&draws).await };
        match Request::new(&self.hub, now, request) {
            Some(request) => self.trips.start(request, sent),
            None => trips::fail(sent, now),
        }
    }

    fn poll_trips(&mut self, cx: &mut Context<'_>, now: Tick) -> bool {
        let mut has_moved = false;
        self.trips.give_up_old(now);
        while let Some(event) = self.trips.poll(cx, now) {
            has_moved = true;
            match event {
                TripEnd::Answered(trip, answer) => self.take_answer(trip, answer, now),
                TripEnd::Late => {
                    self.hub.note_error(request::late());
                    if self.trips.is_silent() {
                        // A beat tells whether the store is there.
                        self.beat_at = self.beat_at.min(now);
                    }
                }
            }
        }
        has_moved
    }

    fn take_answer(&mut self, trip: Trip, answer: Result<TripAnswers, StoreError>, now: Tick) {
        let is_late = trip.is_late();
        let error = match answer {
            Ok(answers) if answers.len() == trip.sent.len() => {
                self.trips.note_answered(&trip, now);
                if !is_late {
                    self.hub.note_trip(now - trip.request.sent);
                }
                self.settle(trip, answers, now);
                return;
            }
            Ok(_) => {
                let detail = "it did not answer each draw";
                StoreError::new(StoreErrorKind::Refused, detail)
            }
            Err(error) => error,
        };
        trip.fail(now);
        if is_late {
            return;
        }
        if error.kind() == StoreErrorKind::Late {
            self.hub.note_error(error);
            self.beat_at = self.beat_at.min(now);
        } else {
            self.fail(error, now);
        }
    }

    /// Takes the answers of a trip.
    fn settle(&mut self, trip: Trip, answers: TripAnswers, now: Tick) {
        let mut is_lost = false;
        for (sent, answer) in trip.sent.into_iter().zip(answers) {
            let quota = sent.quota.clone();
            let after = match answer {
                Ok(Drawn::Granted {
                    permits,
                    free,
                    rest,
                    bucket,
                    epoch,
                    wait,
                }) => {
                    let grant = Grant {
                        permits,
                        free,
                        rest,
                        bucket,
                        epoch,
                        wait,
                        sent: trip.request.sent,
                        received: now,
                    };
                    SharedQuota::granted(sent, &grant)
                }
                Ok(Drawn::Lost { rest, bucket, .. }) => {
                    let length = quota.window().bucket;
                    let seen = Seen::new(bucket, rest, trip.request.sent, now, length);
                    SharedQuota::lost(sent, seen)
                }
                Err(error) => {
                    self.hub.note_error(error);
                    SharedQuota::failed(sent, now, true);
                    After::Nothing
                }
            };
            if after != After::Nothing {
                self.due.push(quota.clone());
            }
            is_lost |= after == After::Lost;
            if quota.is_newly_hot() {
                if self.hot.is_empty() {
                    self.hot_at = now + TICK;
                }
                self.hot.push(quota.clone());
            }
        }
        if is_lost {
            self.recover(Report::All, now);
        }
    }

    // --- sleeping ---

    /// Sleeps until something is due. Ready if something is.
    fn poll_sleep(&mut self, cx: &mut Context<'_>, now: Tick) -> Poll<()> {
        let mut until = self.beat_at;
        if self.beat.is_some() {
            until = now + BEAT;
        }
        if self.hub.mode() == HubMode::Recovering {
            until = until.min(self.recovers_until);
        }
        if !self.hot.is_empty() && self.hub.is_up() {
            until = until.min(self.hot_at);
        }
        if !self.put_off.is_empty() {
            until = until.min(self.put_off_until);
        }
        let asks = !self.due.is_empty() || !self.reports.is_empty();
        if asks && self.trips.room() > 0 && !self.is_in_doubt() {
            until = until.min(self.trips.next_at());
        }
        if self.sleep.as_ref().is_none_or(|(set, _)| *set > until) {
            let time = (until - now).max(Duration::from_micros(100));
            let Ok(timer) = timer::sleep(time) else {
                // Nothing can be waited for without a timer.
                self.hub.stops.store(true, Ordering::Release);
                return Poll::Ready(());
            };
            self.sleep = Some((until, timer));
        }
        let Some((_, timer)) = &mut self.sleep else {
            return Poll::Pending;
        };
        if Pin::new(timer).poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.sleep = None;
        if now >= self.hot_at {
            self.look_at_hot(now);
        }
        Poll::Ready(())
    }

    fn look_at_hot(&mut self, now: Tick) {
        self.hot_at = now + TICK;
        for quota in std::mem::take(&mut self.hot) {
            if quota.is_still_hot() {
                self.due.push(quota.clone());
                self.hot.push(quota);
            }
        }
    }

    // --- the end ---

    /// Gives back all that is in hand, and says that the process leaves: in one trip, and for
    /// no longer than a call would wait.
    async fn leave(&mut self) {
        let now = self.hub.now();
        let was_up = self.hub.is_up();
        self.hub.set_mode(HubMode::Idle, now);
        self.trips.end(now);
        self.answer_all(now);
        self.hub.late().settle_all();
        if !was_up {
            return;
        }
        let mut draws = Vec::new();
        let by = self.conditions(now);
        for quota in self.hub.all() {
            draws.append(&mut SharedQuota::prepare_last(&quota, &by));
        }
        let (store, mut alive) = (self.store.clone(), self.alive);
        alive.is_leaving = true;
        let farewell = async move {
            for some in draws.chunks(MOST_DRAWS) {
                store.draw(some).await?;
            }
            store.beat(alive).await
        };
        if let Some(mut last) = Request::new(&self.hub, now, farewell) {
            let _ = poll_fn(|cx| last.poll(cx)).await;
        }
    }
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
