//! The main loop of the refiller: sending trips, handling answers, sleeping, and leaving.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::super::beat::Alive;
use super::super::budget::Budget;
use super::super::draw::{Draw, Drawn, Epoch};
use super::super::hub::{Hub, HubMode};
use super::super::ledger::Report;
use super::super::quota::{After, Conditions, Grant, OnTheWay, Prepared, SharedQuota};
use super::super::request::{self, Request};
use super::super::seen::Seen;
use super::super::trips::{self, Trip, TripAnswers, TripEnd, Trips};
use super::super::{QuotaStore, StoreError, StoreErrorKind};
use super::{BEAT, FIRST_GAP, MOST_DRAWS, MOST_REPORTS, Refiller, TICK};
use crate::base::sync::{Arc, Ordering};
use crate::base::thread::this_process;
use crate::base::timer::{self};
use crate::clock::Tick;

impl Refiller {
    pub(in crate::store) fn new(hub: Arc<Hub>, store: std::sync::Arc<dyn QuotaStore>) -> Self {
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
            resets: None,
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

    /// Runs until the handle stops the task, and then gives unused permits back to the store.
    pub(in crate::store) async fn run(mut self) {
        let now = self.hub.now();
        self.hub.set_mode(HubMode::Starting, now);
        poll_fn(|cx| self.poll(cx)).await;
        let until = self.hub.now() + self.hub.settings.store_wait;
        poll_fn(|cx| self.poll_last(cx, until)).await;
        self.leave().await;
    }

    /// Does all work that is due. Ready once the handle has stopped the task.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.hub.wait(cx.waker());
            if self.hub.stops.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            let now = self.hub.now();
            let mut has_moved = self.poll_beat(cx, now);
            has_moved |= self.poll_trips(cx, now);
            let has_reported = now >= self.recovers_until && self.reports.is_empty();
            if self.hub.mode() == HubMode::Recovering && has_reported {
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

    /// Finishes the trips in flight after the task was stopped. Calls that arrive before `until`
    /// still get a trip. Each trip has its own deadline.
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

    /// Returns whether the task must yield once before it draws. If several calls arrive at once,
    /// the first call wakes the task. After the yield, the other calls are part of the same trip.
    fn yields(&mut self, cx: &mut Context<'_>) -> bool {
        self.has_yielded = !self.has_yielded && self.hub.is_asked();
        if self.has_yielded {
            cx.waker().wake_by_ref();
        }
        self.has_yielded
    }

    // --- trips ---

    /// Returns the conditions under which counters prepare their draws.
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

    /// Sends trips for the counters that are due, within the limits of the pace. While the store is
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

    /// Sends one trip.
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

    /// Handles answered and late trips. Returns whether there were any.
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
                        // A beat shows whether the store is up.
                        self.beat_at = self.beat_at.min(now);
                    }
                }
            }
        }
        has_moved
    }

    /// Handles the answer of a trip: applies it, or fails its draws.
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

    /// Applies the answers of a trip to the counters.
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
                    let window = quota.window();
                    let (bucket, rest) = window.read(bucket, rest);
                    // A full calendar window has room again when its day or month ends.
                    let is_full = window.calendar.is_some() && !wait.is_zero();
                    let wait = if is_full { rest } else { wait };
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
                    let (bucket, rest) = quota.window().read(bucket, rest);
                    let seen = Seen::new(bucket, rest, trip.request.sent, now);
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

    /// Sleeps until something is due. Ready when the timer has fired.
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
                // Without a timer, the task cannot wait for anything, and ends.
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

    /// Schedules draws for the counters that are still busy, and drops all other counters from the
    /// list.
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

    /// Gives all unused permits back and sends the last beat, if the store is up. Takes at most
    /// `store_wait`.
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
