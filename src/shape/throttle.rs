//! A leaky bucket: calls start one after the other, at least their cost apart.
//!
//! ```text
//! cost 100 ms, waits of at most 250 ms, five calls at 0
//!
//! line    ●────────●────────●        ✗ would start at 300: refused
//!         0       100      200       ✗ as well, nothing has changed
//!         passes  waits    waits
//! ```
//!
//! The line is one number, the start of the latest turn. A call of cost `c` at
//! `now` starts at `max(now, last + c)`, and that becomes the latest start: the
//! cost of a call is the distance to the call *before* it, so the first call
//! after an idle time starts at once, whatever it costs, and idle time earns no
//! burst. A call that would have to wait for too long changes nothing.
//!
//! Everything is decided by one compare-and-swap of that number, from the value
//! that the decision was made on. So all turns have a total order, in which each
//! start is at least its cost after the one before. Two shortcuts break that,
//! and models show it: writing `last = now` at idle lets two calls pass at once,
//! and moving the line before the test refuses those who come before it is moved
//! back. Nothing else is published by the number, so it is relaxed.
//!
//! A turn that will not be used goes back only while it is the last of the line:
//! those behind it have been told when they start. Otherwise its gap stays. All
//! turns that are held have different starts (each is later than the latest),
//! so the number alone says whether a turn is the last.
//!
//! A clock that is late waits longer, for the line never moves back but by a
//! turn that is given back. A clock that was ahead holds the line up until the
//! others get there.
//!
//! # Accuracy
//!
//! Costs are whole nanoseconds, rounded up: never more than the threshold, and
//! for single calls less by at most one part in 10⁹ ÷ (calls per second). That
//! is below one call a minute up to 4 000 calls per second; at 700 000 it is
//! 0.03 %. Nothing is faster than a call per nanosecond.
//!
//! # Source
//!
//! The leaky bucket as a meter (ITU-T I.371, the generic cell rate algorithm
//! without tolerance for bursts), as in Sentinel's rate limiter. That one rounds
//! to milliseconds, takes both shortcuts, and never gives a turn back.

use std::time::Duration;

use crate::clock::{Tick, nanos};
use crate::sync::{AtomicU64, Bug, Ordering, planted};

/// "No turn yet". No turn starts there: the line ends one nanosecond before.
const FRESH: u64 = u64::MAX;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Throttle(AtomicU64);

/// A place in the line of a [`Throttle`]. It is either used or, once, given
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Turn {
    start: u64,
    /// The line before this turn; `None` if the turn is not part of it.
    before: Option<u64>,
}

/// What `n` tokens cost at `threshold` tokens per `interval`, in nanoseconds:
/// rounded up, at least 1 for any token, at most `u64::MAX`.
///
/// `None` if no token passes, which is so for thresholds that are not above 0.
/// No tokens cost nothing at any threshold.
///
/// For whole thresholds, and `n` intervals of together at most 104 days (2⁵³ ns),
/// the result is exact; otherwise its relative error is at most 2⁻⁵².
pub(crate) fn cost(n: u32, threshold: f64, interval: Duration) -> Option<u64> {
    if n == 0 {
        return Some(0);
    }
    // The conversion saturates.
    (threshold > 0.0).then(|| {
        let exact = f64::from(n) * nanos(interval) as f64 / threshold;
        (exact.ceil() as u64).max(1)
    })
}

/// Where a call would stand behind `last`, or from when on it could; `None` if no
/// clock comes that far.
fn place(last: u64, now: u64, cost_ns: u64, max_wait_ns: u64) -> Result<u64, Option<Tick>> {
    if last == FRESH {
        return Ok(now);
    }
    match last.checked_add(cost_ns) {
        None | Some(FRESH) => Err(None),
        Some(next) if next.saturating_sub(now) > max_wait_ns => {
            Err(Some(Tick::from_nanos(next - max_wait_ns)))
        }
        Some(next) => Ok(next.max(now)),
    }
}

// === impl Throttle ===

impl Throttle {
    /// An empty line: the first call starts at once.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(FRESH))
    }

    /// A turn at `now` or later, but by at most `max_wait`, for a call of
    /// [`cost`] `cost_ns`. A call of cost 0 starts at once and is not part of
    /// the line.
    ///
    /// # Errors
    ///
    /// When a turn within `max_wait` will be there, if no one else comes; later
    /// than `now`; `None` for never. The line has not changed.
    pub(crate) fn join(
        &self,
        now: Tick,
        cost_ns: u64,
        max_wait: Duration,
    ) -> Result<Turn, Option<Tick>> {
        let now = now.as_nanos().min(FRESH - 1);
        if cost_ns == 0 {
            let before = None;
            return Ok(Turn { start: now, before });
        }
        let max_wait_ns = nanos(max_wait);
        let mut last = self.0.load(Ordering::Relaxed);
        loop {
            let place = place(last, now, cost_ns, max_wait_ns);
            if planted(Bug::MoveThenCheck) && last != FRESH {
                self.0.fetch_add(cost_ns, Ordering::Relaxed);
                if place.is_err() {
                    self.0.fetch_sub(cost_ns, Ordering::Relaxed);
                }
            }
            let start = place?;
            let turn = Turn {
                start,
                before: Some(last),
            };
            if planted(Bug::StoreAtIdle) && start == now {
                self.0.store(start, Ordering::Relaxed);
                return Ok(turn);
            }
            if planted(Bug::MoveThenCheck) && last != FRESH {
                return Ok(turn);
            }
            match self
                .0
                .compare_exchange_weak(last, start, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Ok(turn),
                Err(found) => last = found,
            }
        }
    }

    /// When [`join`](Self::join) would find a turn, if no one else comes; `None`
    /// for never. Takes nothing.
    pub(crate) fn room_at(&self, now: Tick, cost_ns: u64, max_wait: Duration) -> Option<Tick> {
        let last = self.0.load(Ordering::Relaxed);
        let from = now.as_nanos().min(FRESH - 1);
        if cost_ns == 0 {
            return Some(now);
        }
        place(last, from, cost_ns, nanos(max_wait)).map_or_else(|at| at, |_| Some(now))
    }

    /// The start of the latest turn; `None` if there is none yet.
    pub(crate) fn last(&self) -> Option<Tick> {
        let last = self.0.load(Ordering::Relaxed);
        (last != FRESH).then_some(Tick::from_nanos(last))
    }

    /// Gives back a turn that is not used, however late. Says whether the line
    /// has it back; if not, others stand behind it, and its gap stays.
    pub(crate) fn leave(&self, turn: Turn) -> bool {
        let Some(before) = turn.before else {
            return true;
        };
        if planted(Bug::BlindLeave) {
            self.0.store(before, Ordering::Relaxed);
            return true;
        }
        self.0
            .compare_exchange(turn.start, before, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

impl Turn {
    /// When the call starts.
    pub(crate) const fn start(self) -> Tick {
        Tick::from_nanos(self.start)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Tick {
        Tick::from_millis(ms)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The wait of a call at `now` ms, in ms.
    fn wait(line: &Throttle, now: u64, cost_ms: u64, max_wait: u64) -> Result<u64, u64> {
        match line.join(at(now), cost_ms * MS, ms(max_wait)) {
            Ok(turn) => Ok((turn.start() - at(now)).as_millis() as u64),
            Err(from) => Err(from.unwrap().as_millis()),
        }
    }

    #[test]
    fn waits_grow_up_to_the_bound_and_then_calls_are_refused() {
        let line = Throttle::new();
        let waits: Vec<_> = (0..5).map(|_| wait(&line, 0, 100, 250)).collect();
        // The fourth could start at 300 and may wait 250.
        assert_eq!(waits, [Ok(0), Ok(100), Ok(200), Err(50), Err(50)]);
        assert_eq!(wait(&line, 100, 100, 250), Ok(200));
        // The bound itself is allowed.
        assert_eq!(wait(&line, 149, 100, 250), Err(150));
        assert_eq!(wait(&line, 150, 100, 250), Ok(250));
    }

    #[test]
    fn without_waits_calls_pass_at_their_distance_only() {
        let line = Throttle::new();
        assert_eq!(wait(&line, 5, 100, 0), Ok(0));
        assert_eq!(wait(&line, 104, 100, 0), Err(105));
        assert_eq!(wait(&line, 105, 100, 0), Ok(0));
        // A call of two tokens keeps twice the distance.
        assert_eq!(wait(&line, 304, 200, 0), Err(305));
        assert_eq!(wait(&line, 305, 200, 0), Ok(0));
        // Idle time earns nothing.
        assert_eq!(wait(&line, 9_000, 100, 0), Ok(0));
        assert_eq!(wait(&line, 9_000, 100, 0), Err(9_100));
    }

    #[test]
    fn the_first_call_passes_at_once_whatever_it_costs_and_whenever_it_comes() {
        for now in [0, 1, u64::MAX - 1, u64::MAX] {
            for cost_ns in [1, u64::MAX] {
                let line = Throttle::new();
                let now = Tick::from_nanos(now);
                let turn = line.join(now, cost_ns, Duration::ZERO).unwrap();
                assert_eq!(
                    now - turn.start(),
                    Duration::from_nanos(now.as_nanos() / u64::MAX)
                );
                assert_eq!(line.join(now, u64::MAX, Duration::MAX), Err(None));
            }
        }
    }

    #[test]
    fn a_call_of_no_tokens_passes_and_changes_nothing() {
        let line = Throttle::new();
        assert_eq!(wait(&line, 0, 0, 0), Ok(0));
        assert_eq!(wait(&line, 50, 100, 0), Ok(0));
        let idle = line.join(at(10), 0, Duration::ZERO).unwrap();
        assert_eq!(idle.start(), at(10));
        assert!(line.leave(idle));
        assert_eq!(wait(&line, 149, 100, 0), Err(150));
    }

    #[test]
    fn a_late_clock_waits_longer_and_moves_nothing_back() {
        let line = Throttle::new();
        assert_eq!(wait(&line, 1_000, 100, 0), Ok(0));
        assert_eq!(wait(&line, 0, 100, 500), Err(600));
        assert_eq!(wait(&line, 900, 100, 500), Ok(200));
        assert_eq!(wait(&line, 1_000, 100, 500), Ok(200));
    }

    #[test]
    fn the_last_of_the_line_can_leave_it_and_others_leave_a_gap() {
        let line = Throttle::new();
        let join = |now| line.join(at(now), 100 * MS, ms(1_000)).unwrap();
        let (first, second, third) = (join(0), join(0), join(0));
        assert!(!line.leave(second));
        assert!(line.leave(third));
        // The gap of the second one stays, that of the third does not.
        let third = join(0);
        assert_eq!(third.start(), at(200));
        assert!(!line.leave(first));
        // Also long after its start: nobody has come since.
        assert!(line.leave(third));
        assert_eq!(join(250).start(), at(250));

        let fresh = Throttle::new();
        let only = fresh.join(at(7), MS, Duration::ZERO).unwrap();
        assert!(fresh.leave(only));
        assert_eq!(wait(&fresh, 0, 1, 0), Ok(0));
    }

    #[test]
    fn costs_are_rounded_up() {
        let cases = [
            (1, 10.0, SECOND, Some(100 * MS)),
            (2, 10.0, SECOND, Some(200 * MS)),
            (1, 3.0, SECOND, Some(333_333_334)),
            (1, 1001.0, SECOND, Some(999_001)),
            (1, 0.2, SECOND, Some(5_000 * MS)),
            (1, 5.0, Duration::from_secs(60), Some(12_000 * MS)),
            (1, 1e-9, SECOND, Some(1_000_000_000_000_000_000)),
            (1, 1e9, SECOND, Some(1)),
            (1, 1e12, SECOND, Some(1)),
            (1, f64::MAX, SECOND, Some(1)),
            (1, f64::INFINITY, SECOND, Some(1)),
            (1, 1.0, Duration::ZERO, Some(1)),
            (1, f64::MIN_POSITIVE, SECOND, Some(u64::MAX)),
            (u32::MAX, 1e-300, Duration::MAX, Some(u64::MAX)),
            (1, 0.0, SECOND, None),
            (1, -0.0, SECOND, None),
            (1, -1.0, SECOND, None),
            (1, f64::NAN, SECOND, None),
            (0, 0.0, SECOND, Some(0)),
            (0, f64::NAN, SECOND, Some(0)),
        ];
        for (n, threshold, interval, expected) in cases {
            let found = cost(n, threshold, interval);
            assert_eq!(found, expected, "{n} at {threshold} per {interval:?}");
        }
    }

    #[test]
    fn never_more_than_three_in_a_second_at_three_per_second() {
        let line = Throttle::new();
        let cost_ns = cost(1, 3.0, SECOND).unwrap();
        let starts: Vec<_> = (0..3_000)
            .map(|_| {
                line.join(Tick::ZERO, cost_ns, Duration::MAX)
                    .unwrap()
                    .start()
            })
            .collect();
        assert!(starts.windows(4).all(|four| four[3] - four[0] > SECOND));
    }

    /// Tokens that start in 60 s if calls of `n` come as soon as they can.
    fn admitted(threshold: f64, n: u32, max_wait: Duration) -> f64 {
        let line = Throttle::new();
        let end = Tick::from_nanos(60_000 * MS);
        let mut now = Tick::ZERO;
        let mut calls = 0;
        let Some(cost_ns) = cost(n, threshold, SECOND) else {
            return 0.0;
        };
        while now < end {
            match line.join(now, cost_ns, max_wait) {
                Ok(turn) if turn.start() < end => calls += 1,
                Ok(_) => break,
                Err(later) => now = later.unwrap(),
            }
        }
        f64::from(calls) * f64::from(n)
    }

    #[test]
    fn what_is_admitted_in_a_minute_is_the_threshold_times_60() {
        let small = [
            0.0, 1e-9, 0.2, 0.25, 0.5, 1.0, 1.5, 3.0, 7.0, 10.0, 33.3, 100.0,
        ];
        let large = [700.0, 999.0, 1000.0, 1001.0, 3_999.0];
        for threshold in small.into_iter().chain(large) {
            for max_wait in [Duration::ZERO, ms(500)] {
                let found = admitted(threshold, 1, max_wait);
                let off = found - threshold * 60.0;
                assert!(off.abs() <= 1.0, "{found} at {threshold} per second");
            }
        }
        // Call by call, these would take a while: within one call, again.
        for (threshold, n) in [(1e6, 1_000), (1e6 + 1.0, 1_000), (1e12, 1_000_000_000)] {
            let found = admitted(threshold, n, Duration::ZERO);
            let off = found - threshold * 60.0;
            assert!(
                off.abs() <= f64::from(n),
                "{found} at {threshold} per second"
            );
        }
    }

    #[test]
    fn the_largest_threshold_still_counts_nanoseconds() {
        let line = Throttle::new();
        let cost_ns = cost(1, f64::MAX, SECOND).unwrap();
        for now in 0..1_000 {
            let now = Tick::from_nanos(now);
            assert_eq!(
                line.join(now, cost_ns, Duration::ZERO).unwrap().start(),
                now
            );
            assert!(line.join(now, cost_ns, Duration::ZERO).is_err());
        }
    }

    /// A line as a list of turns, in numbers that cannot overflow.
    #[derive(Default)]
    struct Oracle {
        /// The turns in line, first to last, gaps included.
        line: Vec<(usize, i128)>,
        joined: usize,
    }

    impl Oracle {
        fn join(&mut self, now: i128, cost: i128, max_wait: i128) -> Option<i128> {
            self.joined += 1;
            if cost == 0 {
                return Some(now);
            }
            let mut start = now;
            if let Some(&(_, last)) = self.line.last() {
                while start < last + cost {
                    start = last + cost;
                }
            }
            if start - now > max_wait || start >= i128::from(u64::MAX) {
                return None;
            }
            self.line.push((self.joined, start));
            Some(start)
        }

        fn leave(&mut self, turn: usize) -> bool {
            let place = self.line.iter().position(|&(id, _)| id == turn);
            match place {
                None => true,
                Some(place) if place + 1 == self.line.len() => {
                    self.line.pop();
                    true
                }
                Some(_) => false,
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// The clock goes on, and sometimes back.
        Clock(i64),
        Join {
            cost: u64,
            max_wait: u64,
        },
        /// One of the turns that are still held.
        Leave(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let cost = prop_oneof![
            8 => 0..40_u64,
            1 => any::<u64>(),
            1 => Just(u64::MAX),
        ];
        let max_wait = prop_oneof![
            8 => 0..100_u64,
            1 => any::<u64>(),
        ];
        let step = prop_oneof![
            3 => (-20..60_i64).prop_map(Step::Clock),
            6 => (cost, max_wait).prop_map(|(cost, max_wait)| Step::Join { cost, max_wait }),
            2 => any::<prop::sample::Index>().prop_map(Step::Leave),
        ];
        prop::collection::vec(step, 1..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

        #[test]
        fn the_line_is_that_of_a_naive_list(
            from in prop_oneof![Just(0), 0..1_000_u64, any::<u64>(), u64::MAX - 500..u64::MAX],
            steps in steps(),
        ) {
            let line = Throttle::new();
            let mut oracle = Oracle::default();
            let mut now = from;
            let mut held = Vec::new();
            for step in steps {
                match step {
                    Step::Clock(by) => now = now.saturating_add_signed(by).min(u64::MAX - 1),
                    Step::Join { cost, max_wait } => {
                        let wait = Duration::from_nanos(max_wait);
                        let found = line.join(Tick::from_nanos(now), cost, wait);
                        let expected = oracle.join(now.into(), cost.into(), max_wait.into());
                        let starts = found.ok().map(|turn| i128::from(turn.start().as_nanos()));
                        prop_assert_eq!(starts, expected);
                        match found {
                            Ok(turn) => held.push((oracle.joined, turn)),
                            Err(later) => {
                                // That is the moment, and the one before is not.
                                if let Some(later) = later {
                                    prop_assert!(later > Tick::from_nanos(now));
                                    let before = Tick::from_nanos(later.as_nanos() - 1);
                                    prop_assert_eq!(line.join(before, cost, wait), Err(Some(later)));
                                    let turn = line.join(later, cost, wait);
                                    prop_assert!(line.leave(turn.unwrap()));
                                }
                            }
                        }
                    }
                    Step::Leave(index) if !held.is_empty() => {
                        let (id, turn) = held.swap_remove(index.index(held.len()));
                        prop_assert_eq!(line.leave(turn), oracle.leave(id));
                    }
                    Step::Leave(_) => {}
                }
            }
        }

        #[test]
        fn costs_are_the_smallest_whole_ones_that_keep_the_threshold(
            n in 1..1_000_u32,
            threshold in prop_oneof![1..100_u64, 1..2_000_000_000_u64],
            interval in prop_oneof![Just(1_000_000_000_u64), 1_000_000..9_000_000_000_000_u64],
        ) {
            let found = cost(n, threshold as f64, Duration::from_nanos(interval)).unwrap();
            let exact = (u128::from(n) * u128::from(interval)).div_ceil(threshold.into());
            prop_assert_eq!(u128::from(found), exact);
        }
    }
}
