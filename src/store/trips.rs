//! The trips to a store that are on their way.
//!
//! A trip that is late fails the calls that wait for it, and no others: the store may be slow, or
//! the answer be lost. Its answer is taken all the same, as the store has counted what it grants.
//! Where nothing at all was heard since a trip was due, a server may stand still; it will run
//! whatever it was sent once it wakes, so it is sent nothing but beats.

use std::task::{Context, Poll};
use std::time::Duration;

use super::StoreError;
use super::draw::Drawn;
use super::pace::TripPace;
use super::quota::{OnTheWay, SharedQuota};
use super::request::{Heard, Request};
use crate::clock::Tick;

/// While a trip is on its way, the next one sets off only at a distance from it: it takes more
/// calls along, and a trip costs both sides more than a draw.
const DISTANCE: Duration = Duration::from_millis(1);
/// An answer is given up after this multiple of the time that a call waits.
const GIVEN_UP: u32 = 4;

/// The answers to the draws of a trip.
pub(super) type TripAnswers = Vec<Result<Drawn, StoreError>>;

pub(super) struct Trip {
    pub(super) request: Request<TripAnswers>,
    pub(super) sent: Vec<OnTheWay>,
    /// When its time was over.
    late_at: Option<Tick>,
}

/// The end of a trip.
pub(super) enum TripEnd {
    Answered(Trip, Result<TripAnswers, StoreError>),
    /// The calls that wait for it were answered without it.
    Late,
}

/// See the [module](self).
pub(super) struct Trips {
    all: Vec<Trip>,
    wait: Duration,
    started: Tick,
    pace: TripPace,
    /// When anything was heard of the store for the last time.
    heard: Tick,
}

impl Trips {
    /// Creates the trips to a store for which a call waits for `wait`.
    pub(super) fn new(wait: Duration, now: Tick) -> Self {
        Self {
            all: Vec::new(),
            wait,
            started: now,
            pace: TripPace::new(wait, now),
            heard: now,
        }
    }

    pub(super) fn start(&mut self, request: Request<TripAnswers>, sent: Vec<OnTheWay>) {
        self.started = request.sent;
        self.all.push(Trip {
            request,
            sent,
            late_at: None,
        });
    }

    /// When the next one may start.
    pub(super) fn next_at(&self) -> Tick {
        if self.is_any() {
            self.started + DISTANCE
        } else {
            Tick::ZERO
        }
    }

    /// Returns whether calls wait for the answer of any.
    pub(super) fn is_any(&self) -> bool {
        self.all.iter().any(|trip| !trip.is_late())
    }

    /// How many draws the next one may have.
    pub(super) fn room(&self) -> usize {
        let in_time = self.all.iter().filter(|trip| !trip.is_late());
        self.pace.room(in_time.map(|trip| trip.sent.len()).sum())
    }

    /// The store has answered.
    pub(super) const fn note_heard(&mut self, now: Tick) {
        self.heard = now;
    }

    /// The store has answered a `trip`.
    pub(super) fn note_answered(&mut self, trip: &Trip, now: Tick) {
        self.heard = now;
        self.pace.note(trip.sent.len(), trip.request.sent, now);
    }

    /// Returns whether one is late, and nothing was heard since it was due.
    pub(super) fn is_silent(&self) -> bool {
        let mut late = self.all.iter().filter_map(|trip| trip.late_at);
        late.any(|at| at > self.heard)
    }

    /// What comes next of those that are on their way.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Tick) -> Option<TripEnd> {
        for index in 0..self.all.len() {
            let trip = &mut self.all[index];
            match trip.request.poll(cx) {
                Poll::Ready(Heard::Answer(answer)) => {
                    return Some(TripEnd::Answered(self.all.swap_remove(index), answer));
                }
                Poll::Ready(Heard::Late) => {
                    trip.note_late(now);
                    return Some(TripEnd::Late);
                }
                Poll::Pending => {}
            }
        }
        None
    }

    /// Gives up those that are late for too long.
    pub(super) fn give_up_old(&mut self, now: Tick) {
        let most = self.wait * GIVEN_UP;
        let is_old = |trip: &Trip| trip.is_late() && trip.request.sent + most <= now;
        while let Some(index) = self.all.iter().position(is_old) {
            let trip = self.all.swap_remove(index);
            trip.sent.into_iter().for_each(OnTheWay::give_up);
        }
    }

    /// The store is away: no call waits for any of them longer.
    pub(super) fn note_late(&mut self, now: Tick) {
        for trip in &mut self.all {
            if !trip.is_late() {
                trip.note_late(now);
            }
        }
    }

    /// Gives up all of them.
    pub(super) fn end(&mut self, now: Tick) {
        for trip in std::mem::take(&mut self.all) {
            trip.fail(now);
        }
    }
}

impl Trip {
    pub(super) const fn is_late(&self) -> bool {
        self.late_at.is_some()
    }

    fn note_late(&mut self, now: Tick) {
        self.late_at = Some(now);
        self.sent.iter_mut().for_each(|it| it.note_late(now));
    }

    /// Nothing is known to have happened.
    pub(super) fn fail(self, now: Tick) {
        fail(self.sent, now);
    }
}

/// Draws of which nothing is known to have happened.
pub(super) fn fail(sent: Vec<OnTheWay>, now: Tick) {
    for sent in sent {
        SharedQuota::failed(sent, now, false);
    }
}
