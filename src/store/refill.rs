//! The task that asks the store: it draws for calls that wait, refills leases of counters that
//! are busy, says that the process is alive, and decides whether the store is there.
//!
//! ```text
//!  start_store                a beat or a trip fails
//!   Idle ─────────▶ Live ─────────────────────────────▶ Down
//!                   ▲  │                                  │
//!         two beats │  │ another epoch                    │ a beat is answered
//!                   │  ▼                                  ▼
//!                   └─ Recovering ◀───────────────────────┘
//! ```
//!
//! Calls that come before the first beat is answered wait for that, as for any answer.
//!
//! A store that was away is asked by beats alone: a server that was stopped runs what was sent
//! to it when it wakes, and draws would take permits for nobody. While it recovers, every
//! process tells it what it does not know, and draws no more than its share.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::beat::{Alive, Beat};
use super::budget::Budget;
use super::draw::{Draw, Drawn, Epoch};
use super::hub::{Hub, HubMode};
use super::ledger::Report;
use super::quota::{After, Conditions, Grant, OnTheWay, SharedQuota};
use super::request::Request;
use super::seen::Seen;
use super::{QuotaStore, StoreError, StoreErrorKind};
use crate::base::sync::{Arc, Ordering};
use crate::base::thread::this_process;
use crate::base::timer::{self, Timer};
use crate::clock::Tick;

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(250);
/// How long it takes until all processes have noticed that the store is back.
const RECOVERS: Duration = Duration::from_millis(500);
/// Time between two probes of a store that is away: at first and at most.
const FIRST_GAP: Duration = Duration::from_millis(20);
const LAST_GAP: Duration = Duration::from_millis(200);
/// How often busy counters are looked at.
const TICK: Duration = Duration::from_millis(5);
/// Most draws of a trip, and most trips at a time.
const MOST_DRAWS: usize = 512;
const MOST_TRIPS: usize = 4;

struct Trip {
    request: Request<Vec<Result<Drawn, StoreError>>>,
    sent: Vec<OnTheWay>,
}

/// See the [module](self).
pub(super) struct Refiller {
    hub: Arc<Hub>,
    store: std::sync::Arc<dyn QuotaStore>,
    pub(super) alive: Alive,
    trips: Vec<Trip>,
    beat: Option<Request<Beat>>,
    /// Whether a beat was ever answered, or has failed. Until then calls wait for that.
    has_beaten: bool,
    beat_at: Tick,
    gap: Duration,
    epoch: Epoch,
    recovers_until: Tick,
    due: Vec<Arc<SharedQuota>>,
    hot: Vec<Arc<SharedQuota>>,
    sleep: Option<(Tick, Timer)>,
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
            hub,
            store,
            alive: Alive::new(node),
            trips: Vec::new(),
            beat: None,
            has_beaten: false,
            beat_at: now,
            gap: FIRST_GAP,
            epoch: Epoch::default(),
            recovers_until: now,
            due: Vec::new(),
            hot: Vec::new(),
            sleep: None,
            budget: Budget::new(now),
        }
    }

    /// Runs until it is told to stop, and then gives back what is in hand.
    pub(super) async fn run(mut self) {
        let now = self.hub.now();
        self.hub.set_mode(HubMode::Live, now);
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
            if self.hub.mode() == HubMode::Recovering && now >= self.recovers_until {
                self.hub.set_mode(HubMode::Live, now);
            }
            has_moved |= self.start_beat(now);
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
            if self.trips.is_empty() && !is_first_beat {
                return Poll::Ready(());
            }
            if !has_moved {
                return Poll::Pending;
            }
        }
    }

    // --- beats ---

    fn start_beat(&mut self, now: Tick) -> bool {
        if self.beat.is_some() || now < self.beat_at {
            return false;
        }
        self.hub.rest_some(now);
        let (store, alive) = (self.store.clone(), self.alive);
        self.beat = Request::new(&self.hub, now, async move { store.beat(alive).await });
        // Without a timer there is nothing to go by.
        self.beat_at = now + BEAT;
        self.beat.is_some()
    }

    fn poll_beat(&mut self, cx: &mut Context<'_>, now: Tick) -> bool {
        let Some(beat) = &mut self.beat else {
            return false;
        };
        let Poll::Ready(answer) = beat.poll(cx) else {
            return false;
        };
        self.beat = None;
        self.has_beaten = true;
        match answer {
            Ok(beat) => self.alive(beat, now),
            Err(error) => self.fail(error, now),
        }
        true
    }

    /// The store has answered a beat.
    fn alive(&mut self, beat: Beat, now: Tick) {
        self.hub.set_nodes(beat.nodes, beat.rank);
        let is_lost = beat.epoch != self.epoch;
        let was_known = self.epoch != Epoch::default();
        (self.epoch, self.alive.seen) = (beat.epoch, beat.count);
        self.gap = FIRST_GAP;
        self.beat_at = now + BEAT;
        let report = if is_lost && was_known {
            Report::All
        } else {
            Report::Local
        };
        match self.hub.mode() {
            _ if report == Report::All => self.recover(report, now),
            HubMode::Down | HubMode::Idle => self.recover(report, now),
            HubMode::Live | HubMode::Recovering => {}
        }
    }

    fn recover(&mut self, report: Report, now: Tick) {
        self.recovers_until = now + RECOVERS;
        self.hub.set_mode(HubMode::Recovering, now);
        let all = self.hub.all().into_iter();
        self.due
            .extend(all.filter(|quota| quota.must_report(report, now)));
    }

    /// The store has failed.
    fn fail(&mut self, error: StoreError, now: Tick) {
        self.hub.note_error(error);
        if self.hub.mode() != HubMode::Down {
            self.hub.set_mode(HubMode::Down, now);
        }
        // Answers that come late are not taken: they are of another time.
        for trip in std::mem::take(&mut self.trips) {
            trip.sent
                .iter()
                .for_each(|sent| sent.quota.failed(now, false));
        }
        self.answer_all(now);
        self.beat = None;
        self.beat_at = now + self.jittered(self.gap);
        self.gap = (self.gap * 2).min(LAST_GAP);
    }

    /// Answers all that ask without the store.
    fn answer_all(&mut self, now: Tick) {
        let asking = self.hub.take_asking();
        for quota in self.due.drain(..).chain(asking) {
            quota.answer_without_store(now);
        }
    }

    /// `time`, more or less by a fifth.
    fn jittered(&mut self, time: Duration) -> Duration {
        // An ordinary xorshift: it only keeps processes apart.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        time * (80 + (self.jitter % 41) as u32) / 100
    }

    // --- trips ---

    fn conditions(&self, now: Tick) -> Conditions {
        Conditions {
            now,
            nodes: self.hub.nodes(),
            horizon: self.budget.stretched(self.hub.settings.horizon),
            trip: self.hub.trip(),
            is_recovering: self.hub.mode() == HubMode::Recovering,
        }
    }

    fn start_trips(&mut self, now: Tick) -> bool {
        if !self.has_beaten {
            return false;
        }
        self.due.extend(self.hub.take_asking());
        if !self.hub.is_up() {
            let has_any = !self.due.is_empty();
            self.answer_all(now);
            return has_any;
        }
        let mut has_started = false;
        while !self.due.is_empty() && self.trips.len() < MOST_TRIPS {
            let by = self.conditions(now);
            let take = self.due.len().min(MOST_DRAWS);
            let due = self.due.drain(..take);
            let (draws, sent): (Vec<_>, Vec<_>) =
                due.filter_map(|it| SharedQuota::prepare(&it, &by)).unzip();
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
            Some(request) => self.trips.push(Trip { request, sent }),
            None => sent.iter().for_each(|sent| sent.quota.failed(now, false)),
        }
    }

    fn poll_trips(&mut self, cx: &mut Context<'_>, now: Tick) -> bool {
        let mut has_moved = false;
        let mut index = 0;
        while index < self.trips.len() {
            let Poll::Ready(answer) = self.trips[index].request.poll(cx) else {
                index += 1;
                continue;
            };
            has_moved = true;
            let trip = self.trips.swap_remove(index);
            match answer {
                Ok(answers) if answers.len() == trip.sent.len() => {
                    self.hub.note_trip(now - trip.request.sent);
                    self.settle(&trip, answers, now);
                }
                Ok(_) => {
                    let detail = "it did not answer each draw";
                    let error = StoreError::new(StoreErrorKind::Refused, detail);
                    trip.sent.iter().for_each(|it| it.quota.failed(now, false));
                    self.fail(error, now);
                    return true;
                }
                Err(error) => {
                    trip.sent.iter().for_each(|it| it.quota.failed(now, false));
                    self.fail(error, now);
                    return true;
                }
            }
        }
        has_moved
    }

    /// Takes the answers of a trip.
    fn settle(&mut self, trip: &Trip, answers: Vec<Result<Drawn, StoreError>>, now: Tick) {
        let mut is_lost = false;
        for (sent, answer) in trip.sent.iter().zip(answers) {
            let quota = &sent.quota;
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
                    quota.granted(sent, &grant)
                }
                Ok(Drawn::Lost { rest, bucket, .. }) => {
                    let length = quota.window().bucket;
                    quota.lost(Seen::new(bucket, rest, trip.request.sent, now, length))
                }
                Err(error) => {
                    self.hub.note_error(error);
                    quota.failed(now, true);
                    After::Nothing
                }
            };
            if after != After::Nothing {
                self.due.push(quota.clone());
            }
            is_lost |= after == After::Lost;
            if quota.is_newly_hot() {
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
            until = until.min(now + TICK);
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
        let hot = std::mem::take(&mut self.hot);
        for quota in hot {
            if quota.is_still_hot() {
                self.due.push(quota.clone());
                self.hot.push(quota);
            }
        }
        Poll::Ready(())
    }

    // --- the end ---

    /// Gives back all that is in hand, and says that the process leaves: in one trip, and for
    /// no longer than a call would wait.
    async fn leave(&mut self) {
        let now = self.hub.now();
        let was_up = self.hub.is_up();
        self.hub.set_mode(HubMode::Idle, now);
        let trips = std::mem::take(&mut self.trips);
        for trip in &trips {
            trip.sent
                .iter()
                .for_each(|sent| sent.quota.failed(now, false));
        }
        drop(trips);
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
    /// Also if its runtime is gone: nobody waits for a task that does not run.
    fn drop(&mut self) {
        let now = self.hub.now();
        self.hub.set_mode(HubMode::Idle, now);
        for trip in std::mem::take(&mut self.trips) {
            trip.sent
                .iter()
                .for_each(|sent| sent.quota.failed(now, false));
        }
        self.answer_all(now);
        self.hub.late().settle_all();
        self.hub.is_started.store(false, Ordering::Release);
    }
}
