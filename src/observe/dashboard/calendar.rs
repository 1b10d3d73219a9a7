//! Maps each second of the engine's clock to a second of unix time.
//!
//! The engine's seconds count from the start of its clock. People and time servers set the wall
//! time. The offset between the two is fixed at the start, as a whole number of seconds. Drift does
//! not change it, so no second is sent twice or left out. Only a jump of the wall time changes the
//! offset, for later seconds:
//!
//! ```text
//! engine      7      8      9     10     11
//! unix       107    108    109   3710   3711     wall time jumps by an hour in second 10
//! ```

use std::time::{SystemTime, UNIX_EPOCH};

use crate::clock::Tick;

const SECOND: i128 = 1_000_000_000;
/// A larger change of the offset than this is a jump; a smaller one is drift.
const JUMP: i128 = 2 * SECOND;
/// At a jump, spans that ended at least this many seconds ago are dropped: answers cover only the
/// last minute.
const KEPT: u64 = 120;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    /// The seconds since the last jump.
    present: CalendarSpan,
    /// The spans before the last jump, oldest first.
    past: Vec<CalendarSpan>,
}

/// Consecutive seconds with the same offset to unix time.
#[derive(Clone, Copy, Debug)]
struct CalendarSpan {
    /// The first second.
    from: u64,
    /// How far the wall time was ahead of the engine's clock at the start of the span, in
    /// nanoseconds.
    ahead: i128,
}

// === impl Calendar ===

impl Calendar {
    pub(super) fn new(now: Tick, wall: SystemTime) -> Self {
        Self {
            present: CalendarSpan {
                from: 0,
                ahead: ahead(now, wall),
            },
            past: Vec::new(),
        }
    }

    /// Checks whether the wall time has jumped, and begins a new span if it has.
    pub(super) fn update(&mut self, now: Tick, wall: SystemTime) {
        let ahead = ahead(now, wall);
        if (ahead - self.present.ahead).abs() <= JUMP {
            return;
        }
        // No answer has contained the present second yet, so the new span begins with it.
        let from = second_of(now);
        // A span without a second is replaced.
        if self.present.from < from {
            self.past.push(self.present);
        }
        self.present = CalendarSpan { from, ahead };
        // A span ends where its successor begins.
        let ends = self.past.iter().skip(1).chain([&self.present]);
        let over = ends.take_while(|next| next.from + KEPT <= from).count();
        self.past.drain(..over);
    }

    /// Returns the unix second of the engine's `second`. A second before the oldest span that is
    /// kept has the offset of that span.
    pub(super) fn unix(&self, second: u64) -> i64 {
        let spans = [self.present].into_iter();
        let mut spans = spans.chain(self.past.iter().rev().copied());
        let span = spans.find(|span| span.from <= second);
        let oldest = self.past.first().unwrap_or(&self.present);
        let ahead = span.unwrap_or(*oldest).ahead.div_euclid(SECOND);
        i64::try_from(i128::from(second) + ahead).unwrap_or(i64::MAX)
    }
}

/// Returns the second of the engine that contains `now`.
pub(super) fn second_of(now: Tick) -> u64 {
    now.as_nanos() / SECOND as u64
}

/// Returns by how many nanoseconds the wall time is ahead of the engine's clock.
fn ahead(now: Tick, wall: SystemTime) -> i128 {
    let wall = match wall.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    };
    wall - i128::from(now.as_nanos())
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn wall(millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn drift_moves_no_second() {
        let mut calendar = Calendar::new(Tick::from_millis(7_250), wall(107_900));
        assert_eq!([6, 7, 8].map(|it| calendar.unix(it)), [106, 107, 108]);
        for drift in [-2_000, -700, 0, 400, 2_000_i64] {
            let wall = wall(157_900_i64.saturating_add(drift) as u64);
            calendar.update(Tick::from_millis(57_250), wall);
            assert_eq!([6, 57].map(|it| calendar.unix(it)), [106, 157], "{drift}");
        }
    }

    #[test]
    fn a_jump_moves_the_present_second_and_later_ones() {
        let mut calendar = Calendar::new(Tick::from_millis(7_000), wall(107_500));
        calendar.update(Tick::from_millis(10_900), wall(3_711_400));
        let mapped = [8, 9, 10, 11].map(|it| calendar.unix(it));
        assert_eq!(mapped, [108, 109, 3_710, 3_711]);
        // The wall time jumps back.
        calendar.update(Tick::from_millis(12_000), wall(112_500));
        let mapped = [9, 10, 11, 12, 13].map(|it| calendar.unix(it));
        assert_eq!(mapped, [109, 3_710, 3_711, 112, 113]);
    }

    #[test]
    fn the_last_minute_keeps_its_offset_however_long_ago_that_began() {
        let mut calendar = Calendar::new(Tick::ZERO, wall(1_000_000));
        // Each span lasts for longer than spans are kept.
        for jump in 1..9_u64 {
            let seconds = jump * 500;
            let wall = wall(1_000_000 + seconds * 1_000 + jump * 3_600_000);
            calendar.update(Tick::from_millis(seconds * 1_000), wall);
            let unix = |second: u64, jumps: u64| (1_000 + second + jumps * 3_600) as i64;
            for second in seconds - 60..seconds {
                assert_eq!(calendar.unix(second), unix(second, jump - 1));
            }
            assert_eq!(calendar.unix(seconds), unix(seconds, jump));
            assert_eq!(calendar.past.len(), 1);
        }
    }

    #[test]
    fn old_jumps_are_forgotten() {
        let mut calendar = Calendar::new(Tick::ZERO, wall(0));
        for jump in 1..1_000_u64 {
            let seconds = jump * 60;
            calendar.update(Tick::from_millis(seconds * 1_000), wall(seconds * 10_000));
            assert_eq!(calendar.unix(seconds), (seconds * 10) as i64);
        }
        assert!(calendar.past.len() <= 4);
    }
}
