//! Limits the draws in flight to a store, so that it answers them well within the time that calls
//! wait.
//!
//! A server runs commands in sequence, so commands that were sent earlier delay later ones,
//! including beats. Draws above the limit wait in the process. If their calls leave first, they are
//! never sent.

use std::time::Duration;

use crate::clock::{Tick, nanos};

/// The store should answer all draws in flight within `1 / PART` of the time that calls wait. One
/// trip may contain `1 / PART` of the draws that may be in flight.
const PART: u32 = 4;
/// The minimum limit of draws in flight. Over most networks, a server answers this many draws in
/// less time than a trip takes.
const LEAST: usize = 64;
/// The maximum limit of draws in flight.
const MOST: usize = 4_096;
/// The maximum number of draws of one trip, which bounds how long the trip delays other requests.
const MOST_OF_TRIP: usize = 512;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct TripPace {
    /// The time in which the store should answer all draws in flight, in ns.
    time_ns: u64,
    /// The moving average of the time that the store takes for a draw, in ns.
    draw_ns: u64,
    /// When the last trip was answered.
    answered: Tick,
}

impl TripPace {
    /// Creates the pace for calls that wait for the store for at most `wait`.
    pub(super) fn new(wait: Duration, now: Tick) -> Self {
        Self {
            time_ns: nanos(wait / PART),
            draw_ns: 0,
            answered: now,
        }
    }

    /// Notes that `draws` draws, which were `sent` together, are answered at `now`.
    pub(super) fn note(&mut self, draws: usize, sent: Tick, now: Tick) {
        // The store was busy with the previous trip until it was answered, so the time counts from
        // then.
        let took = now.nanos_since(sent.max(self.answered).min(now));
        self.answered = now;
        let each = took / draws.max(1) as u64;
        self.draw_ns = self.draw_ns - self.draw_ns / 8 + each / 8;
    }

    /// Returns how many draws may be in flight.
    fn most(&self) -> usize {
        let most = self.time_ns / self.draw_ns.max(1);
        usize::try_from(most).map_or(MOST, |most| most.clamp(LEAST, MOST))
    }

    /// Returns the maximum number of draws of the next trip, while `on_their_way` draws are
    /// unanswered.
    pub(super) fn room(&self, on_their_way: usize) -> usize {
        let most = self.most();
        let of_trip = (most / PART as usize).min(MOST_OF_TRIP);
        most.saturating_sub(on_their_way).min(of_trip)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    /// Returns the room after a sequence of `trips` trips with `draws` draws each, where a draw
    /// takes `each_us`.
    fn room(wait_ms: u64, trips: u64, draws: u64, each_us: u64) -> usize {
        let mut pace = TripPace::new(Duration::from_millis(wait_ms), Tick::ZERO);
        let mut now = Tick::ZERO;
        for _ in 0..trips {
            let sent = now;
            now = now + Duration::from_micros(draws * each_us);
            pace.note(draws as usize, sent, now);
        }
        pace.room(0)
    }

    #[test]
    fn draws_in_flight_take_a_part_of_the_wait() {
        for (wait_ms, trips, draws, each_us, expected) in [
            // No trip was measured yet.
            (200, 0, 1, 1, MOST_OF_TRIP),
            // In a quarter of the wait, the store answers 5 000 draws in the first case and 1 000
            // in the second.
            (200, 100, 16, 10, MOST_OF_TRIP),
            (200, 100, 16, 50, 250),
            (50, 100, 16, 50, LEAST),
            // The store is slow, so the minimum applies.
            (50, 100, 16, 1_000, LEAST / 4),
            (50, 100, 1, 30_000, LEAST / 4),
        ] {
            let room = room(wait_ms, trips, draws, each_us);
            let name = format!("{wait_ms} ms, {draws} draws of {each_us} us");
            let is_near = room * 10 >= expected * 9 && room * 9 <= expected * 10;
            assert!(is_near, "{name}: {room}, not {expected}");
        }
    }

    #[test]
    fn unanswered_draws_take_room() {
        let pace = TripPace::new(Duration::from_millis(200), Tick::ZERO);
        assert_eq!(pace.room(MOST - 10), 10);
        assert_eq!(pace.room(MOST + 10), 0);
    }
}
