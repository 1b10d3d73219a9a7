//! Beats, by which the refiller detects whether the store is up.

use std::task::{Context, Poll};
use std::time::Duration;

use super::{BEAT, FIRST_GAP, LAST_GAP, MOST_MISSED, RECOVERS, Refiller};
use crate::clock::Tick;
use crate::store::beat::Beat;
use crate::store::draw::Epoch;
use crate::store::hub::HubMode;
use crate::store::ledger::Report;
use crate::store::request::{self, Heard, Request};
use crate::store::{StoreError, StoreErrorKind};

impl Refiller {
    /// Sends a beat if it is due. Returns whether a beat was sent.
    pub(super) fn start_beat(&mut self, now: Tick) -> bool {
        if self.beat.is_some() || now < self.beat_at {
            return false;
        }
        self.hub.do_periodic_work(now);
        let (store, alive) = (self.store.clone(), self.alive);
        self.beat = Request::new(&self.hub, now, async move { store.beat(alive).await });
        // Without a timer, no request can be made. The next attempt is made after the regular
        // interval.
        self.beat_at = now + BEAT;
        self.beat.is_some()
    }

    /// Handles the answer to the beat in flight, or its lateness. Returns whether there was
    /// anything to handle.
    pub(super) fn poll_beat(&mut self, cx: &mut Context<'_>, now: Tick) -> bool {
        let Some(beat) = &mut self.beat else {
            return false;
        };
        let Poll::Ready(heard) = beat.poll(cx) else {
            return false;
        };
        let sent = beat.sent;
        self.beat = None;
        let answer = match heard {
            Heard::Answer(answer) => answer,
            Heard::Late => Err(request::late()),
        };
        match answer {
            Ok(beat) => {
                self.hub.note_trip(now - sent);
                self.alive(beat, now);
            }
            Err(error) => self.beat_failed(error, now),
        }
        true
    }

    /// Handles a beat that was late or has failed.
    fn beat_failed(&mut self, error: StoreError, now: Tick) {
        self.missed += 1;
        let is_doubt = error.kind() == StoreErrorKind::Late && self.missed < MOST_MISSED;
        if is_doubt && self.hub.is_up() {
            self.hub.note_error(error);
            self.beat_at = now;
        } else {
            self.fail(error, now);
        }
    }

    /// Returns whether the store may be down: a beat was late, or the store has been silent since a
    /// trip was late.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.missed > 0 || self.trips.is_silent()
    }

    /// Handles the answer to a beat.
    fn alive(&mut self, beat: Beat, now: Tick) {
        self.has_beaten = true;
        self.missed = 0;
        self.trips.note_heard(now);
        self.hub.note_beat(&beat);
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
            HubMode::Starting => self.hub.set_mode(HubMode::Live, now),
            HubMode::Live | HubMode::Recovering => {}
        }
        self.hear_of_resets(beat.resets, is_lost && was_known, now);
    }

    /// Compares the number of `resets` that the store has counted with the last known one. If it
    /// has changed, or the store has lost its data, all counters forget refusals of the store, so
    /// that their next calls ask again.
    fn hear_of_resets(&mut self, resets: u64, is_lost: bool, now: Tick) {
        let before = self.resets.replace(resets);
        if before == Some(resets) && !is_lost {
            return;
        }
        // The first answer to a beat makes no request doubtful: this task has sent no draws before
        // it.
        if before.is_some() {
            self.hub.note_reset(now);
        }
        self.hub.all().iter().for_each(|quota| quota.doubt());
    }

    /// Begins to recover: schedules the reports of all counters that have permits to report.
    pub(super) fn recover(&mut self, report: Report, now: Tick) {
        self.recovers_until = now + RECOVERS;
        self.hub.set_mode(HubMode::Recovering, now);
        let all = self.hub.all().into_iter();
        self.reports.clear();
        self.reports
            .extend(all.filter(|quota| quota.must_report(report, now)));
    }

    /// Declares the store down, answers all waiting calls without it, and schedules the next probe.
    pub(super) fn fail(&mut self, error: StoreError, now: Tick) {
        self.hub.note_error(error);
        self.has_beaten = true;
        if self.hub.mode() != HubMode::Down {
            self.hub.set_mode(HubMode::Down, now);
        }
        self.trips.note_late(now);
        self.reports.clear();
        self.answer_all(now);
        self.beat = None;
        self.beat_at = now + self.jittered(self.gap);
        self.gap = (self.gap * 2).min(LAST_GAP);
    }

    /// Answers all waiting calls without the store.
    pub(super) fn answer_all(&mut self, now: Tick) {
        let asking = self.hub.take_asking();
        let waiting = self.due.drain(..).chain(self.put_off.drain(..));
        for quota in waiting.chain(asking) {
            quota.answer_without_store(now);
        }
    }

    /// Returns `time`, randomly changed by up to a fifth.
    fn jittered(&mut self, time: Duration) -> Duration {
        // A plain xorshift suffices, as it only prevents processes from probing in step.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        time * (80 + (self.jitter % 41) as u32) / 100
    }
}
