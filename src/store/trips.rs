//! The trips to a store that are in flight.
//!
//! A late trip fails only the calls that wait for it: the store may be slow, or the answer lost. If
//! the answer still arrives, it is applied, as the store has counted the granted permits. If the
//! store has answered nothing at all since a trip became late, its server may be suspended. A
//! suspended server runs everything that was sent to it when it resumes, so only beats are sent to
//! it.

use std::task::{Context, Poll};
use std::time::Duration;

use super::StoreError;
use super::draw::Drawn;
use super::pace::TripPace;
use super::quota::{OnTheWay, SharedQuota};
use super::request::{Heard, Request};
use crate::clock::Tick;

/// The minimum time between two trips while a trip is in flight. It lets more calls share one trip,
/// as a trip costs both sides more than a draw.
const DISTANCE: Duration = Duration::from_millis(1);
/// The answer of a late trip is awaited for this multiple of the time that a call waits.
const GIVEN_UP: u32 = 4;

/// The answers to the draws of a trip.
pub(super) type TripAnswers = Vec<Result<Drawn, StoreError>>;

/// One request with draws, in flight to the store.
pub(super) struct Trip {
    pub(super) request: Request<TripAnswers>,
    /// The draws of the request, in the order of the request.
    pub(super) sent: Vec<OnTheWay>,
    /// When the trip became late.
    late_at: Option<Tick>,
}

/// An event of a trip.
pub(super) enum TripEnd {
    Answered(Trip, Result<TripAnswers, StoreError>),
    /// The trip became late: its calls were answered without it.
    Late,
}

/// See the [module](self).
pub(super) struct Trips {
    /// The trips whose answer can still arrive, in no order.
    all: Vec<Trip>,
    /// How long calls wait for the store.
    wait: Duration,
    /// When the last trip was sent.
    started: Tick,
    /// Limits the draws in flight.
    pace: TripPace,
    /// When the store last answered anything.
    heard: Tick,
}

impl Trips {
    /// Creates an empty set of trips to a store for which calls wait at most `wait`.
    pub(super) fn new(wait: Duration, now: Tick) -> Self {
        Self {
            all: Vec::new(),
            wait,
            started: now,
            pace: TripPace::new(wait, now),
            heard: now,
        }
    }

    /// Adds a trip with the draws `sent`.
    pub(super) fn start(&mut self, request: Request<TripAnswers>, sent: Vec<OnTheWay>) {
        self.started = request.sent;
        self.all.push(Trip {
            request,
            sent,
            late_at: None,
        });
    }

    /// Returns when the next trip may start.
    pub(super) fn next_at(&self) -> Tick {
        if self.is_any() {
            self.started + DISTANCE
        } else {
            Tick::ZERO
        }
    }

    /// Returns whether any trip is in flight and not late.
    pub(super) fn is_any(&self) -> bool {
        self.all.iter().any(|trip| !trip.is_late())
    }

    /// Returns the maximum number of draws of the next trip.
    pub(super) fn room(&self) -> usize {
        let in_time = self.all.iter().filter(|trip| !trip.is_late());
        self.pace.room(in_time.map(|trip| trip.sent.len()).sum())
    }

    /// Notes that the store has answered a beat.
    pub(super) const fn note_heard(&mut self, now: Tick) {
        self.heard = now;
    }

    /// Notes that the store has answered `trip`.
    pub(super) fn note_answered(&mut self, trip: &Trip, now: Tick) {
        self.heard = now;
        self.pace.note(trip.sent.len(), trip.request.sent, now);
    }

    /// Returns whether a trip is late and the store has answered nothing since it became late.
    pub(super) fn is_silent(&self) -> bool {
        let mut late = self.all.iter().filter_map(|trip| trip.late_at);
        late.any(|at| at > self.heard)
    }

    /// Returns the next event of a trip.
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

    /// Gives up trips that are late and older than [`GIVEN_UP`] times the wait.
    pub(super) fn give_up_old(&mut self, now: Tick) {
        let most = self.wait * GIVEN_UP;
        let is_old = |trip: &Trip| trip.is_late() && trip.request.sent + most <= now;
        while let Some(index) = self.all.iter().position(is_old) {
            let trip = self.all.swap_remove(index);
            trip.sent.into_iter().for_each(OnTheWay::give_up);
        }
    }

    /// Marks all trips as late, because the store is away. Their calls are answered without it.
    pub(super) fn note_late(&mut self, now: Tick) {
        for trip in &mut self.all {
            if !trip.is_late() {
                trip.note_late(now);
            }
        }
    }

    /// Fails all trips.
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

    /// Fails the draws of the trip.
    pub(super) fn fail(self, now: Tick) {
        fail(self.sent, now);
    }
}

/// Fails draws that are not known to have been applied.
pub(super) fn fail(sent: Vec<OnTheWay>, now: Tick) {
    for sent in sent {
        SharedQuota::failed(sent, now, false);
    }
}
