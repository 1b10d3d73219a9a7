//! Tests of one queue, with exact turns and against a naive list.

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

/// Joins the queue at `now` ms. Returns the wait in ms; the error is the time in ms from which on a
/// call can join.
fn wait(queue: &Throttle, now: u64, cost_ms: u64, max_wait: u64) -> Result<u64, u64> {
    match queue.join(at(now), cost_ms * MS, ms(max_wait)) {
        Ok(turn) => Ok((turn.start() - at(now)).as_millis() as u64),
        Err(from) => Err(from.unwrap().as_millis()),
    }
}

#[test]
fn waits_grow_up_to_the_bound_and_then_calls_are_refused() {
    let queue = Throttle::new();
    let waits: Vec<_> = (0..5).map(|_| wait(&queue, 0, 100, 250)).collect();
    // The fourth call would start at 300 and may wait for 250, so it must come at 50 or later.
    assert_eq!(waits, [Ok(0), Ok(100), Ok(200), Err(50), Err(50)]);
    assert_eq!(wait(&queue, 100, 100, 250), Ok(200));
    // A wait of exactly the bound is allowed.
    assert_eq!(wait(&queue, 149, 100, 250), Err(150));
    assert_eq!(wait(&queue, 150, 100, 250), Ok(250));
}

#[test]
fn without_waiting_calls_pass_only_at_their_distance() {
    let queue = Throttle::new();
    assert_eq!(wait(&queue, 5, 100, 0), Ok(0));
    assert_eq!(wait(&queue, 104, 100, 0), Err(105));
    assert_eq!(wait(&queue, 105, 100, 0), Ok(0));
    // A call of two tokens has twice the distance to the previous call.
    assert_eq!(wait(&queue, 304, 200, 0), Err(305));
    assert_eq!(wait(&queue, 305, 200, 0), Ok(0));
    // Idle time earns no burst.
    assert_eq!(wait(&queue, 9_000, 100, 0), Ok(0));
    assert_eq!(wait(&queue, 9_000, 100, 0), Err(9_100));
}

#[test]
fn the_first_call_passes_at_once_at_any_cost_and_time() {
    for now in [0, 1, u64::MAX - 1, u64::MAX] {
        for cost_ns in [1, u64::MAX] {
            let queue = Throttle::new();
            let now = Tick::from_nanos(now);
            let turn = queue.join(now, cost_ns, Duration::ZERO).unwrap();
            assert_eq!(
                now - turn.start(),
                Duration::from_nanos(now.as_nanos() / u64::MAX)
            );
            assert_eq!(queue.join(now, u64::MAX, Duration::MAX), Err(None));
        }
    }
}

#[test]
fn a_call_of_no_tokens_passes_and_changes_nothing() {
    let queue = Throttle::new();
    assert_eq!(wait(&queue, 0, 0, 0), Ok(0));
    assert_eq!(wait(&queue, 50, 100, 0), Ok(0));
    let idle = queue.join(at(10), 0, Duration::ZERO).unwrap();
    assert_eq!(idle.start(), at(10));
    assert!(queue.cancel(idle));
    assert_eq!(wait(&queue, 149, 100, 0), Err(150));
}

#[test]
fn a_late_clock_waits_longer_and_moves_nothing_back() {
    let queue = Throttle::new();
    assert_eq!(wait(&queue, 1_000, 100, 0), Ok(0));
    assert_eq!(wait(&queue, 0, 100, 500), Err(600));
    assert_eq!(wait(&queue, 900, 100, 500), Ok(200));
    assert_eq!(wait(&queue, 1_000, 100, 500), Ok(200));
}

#[test]
fn the_last_turn_can_be_cancelled_and_other_turns_leave_a_gap() {
    let queue = Throttle::new();
    let join = |now| queue.join(at(now), 100 * MS, ms(1_000)).unwrap();
    let (first, second, third) = (join(0), join(0), join(0));
    assert!(!queue.cancel(second));
    assert!(queue.cancel(third));
    // The second turn leaves a gap. The third turn leaves none.
    let third = join(0);
    assert_eq!(third.start(), at(200));
    assert!(!queue.cancel(first));
    // A turn can be cancelled long after its start, if no call has come since.
    assert!(queue.cancel(third));
    assert_eq!(join(250).start(), at(250));

    let fresh = Throttle::new();
    let only = fresh.join(at(7), MS, Duration::ZERO).unwrap();
    assert!(fresh.cancel(only));
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
    let queue = Throttle::new();
    let cost_ns = cost(1, 3.0, SECOND).unwrap();
    let starts: Vec<_> = (0..3_000)
        .map(|_| {
            queue
                .join(Tick::ZERO, cost_ns, Duration::MAX)
                .unwrap()
                .start()
        })
        .collect();
    assert!(starts.windows(4).all(|four| four[3] - four[0] > SECOND));
}

/// Returns the number of tokens that start in 60 s if calls of `n` tokens come as soon as they can.
fn admitted(threshold: f64, n: u32, max_wait: Duration) -> f64 {
    let queue = Throttle::new();
    let end = Tick::from_nanos(60_000 * MS);
    let mut now = Tick::ZERO;
    let mut calls = 0;
    let Some(cost_ns) = cost(n, threshold, SECOND) else {
        return 0.0;
    };
    while now < end {
        match queue.join(now, cost_ns, max_wait) {
            Ok(turn) if turn.start() < end => calls += 1,
            Ok(_) => break,
            Err(later) => now = later.unwrap(),
        }
    }
    f64::from(calls) * f64::from(n)
}

#[test]
fn a_minute_admits_60_times_the_threshold() {
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
    // To save time, larger thresholds are tested with calls of many tokens. The error is at most
    // one call.
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
    let queue = Throttle::new();
    let cost_ns = cost(1, f64::MAX, SECOND).unwrap();
    for now in 0..1_000 {
        let now = Tick::from_nanos(now);
        assert_eq!(
            queue.join(now, cost_ns, Duration::ZERO).unwrap().start(),
            now
        );
        assert!(queue.join(now, cost_ns, Duration::ZERO).is_err());
    }
}

/// A naive queue: a list of turns, in numbers that cannot overflow.
#[derive(Default)]
struct Oracle {
    /// The ids and starts of the turns in the queue, in order, including gaps.
    queue: Vec<(usize, i128)>,
    /// The number of calls so far, which is the id of the last call.
    joined: usize,
}

impl Oracle {
    /// Returns the start of a call; `None` if it would have to wait too long.
    fn join(&mut self, now: i128, cost: i128, max_wait: i128) -> Option<i128> {
        self.joined += 1;
        if cost == 0 {
            return Some(now);
        }
        let mut start = now;
        if let Some(&(_, last)) = self.queue.last() {
            while start < last + cost {
                start = last + cost;
            }
        }
        if start - now > max_wait || start >= i128::from(u64::MAX) {
            return None;
        }
        self.queue.push((self.joined, start));
        Some(start)
    }

    /// Cancels a turn. Returns false if other turns are behind it.
    fn cancel(&mut self, turn: usize) -> bool {
        let place = self.queue.iter().position(|&(id, _)| id == turn);
        match place {
            None => true,
            Some(place) if place + 1 == self.queue.len() => {
                self.queue.pop();
                true
            }
            Some(_) => false,
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The clock moves by this many ns, forward or back.
    Clock(i64),
    /// A call of this cost joins the queue, with this maximum wait, both in ns.
    Join { cost: u64, max_wait: u64 },
    /// One of the turns that were taken and not cancelled is cancelled.
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
    fn the_queue_matches_a_naive_list(
        from in prop_oneof![Just(0), 0..1_000_u64, any::<u64>(), u64::MAX - 500..u64::MAX],
        steps in steps(),
    ) {
        let queue = Throttle::new();
        let mut oracle = Oracle::default();
        let mut now = from;
        let mut held = Vec::new();
        for step in steps {
            match step {
                Step::Clock(by) => now = now.saturating_add_signed(by).min(u64::MAX - 1),
                Step::Join { cost, max_wait } => {
                    let wait = Duration::from_nanos(max_wait);
                    let found = queue.join(Tick::from_nanos(now), cost, wait);
                    let expected = oracle.join(now.into(), cost.into(), max_wait.into());
                    let starts = found.ok().map(|turn| i128::from(turn.start().as_nanos()));
                    prop_assert_eq!(starts, expected);
                    match found {
                        Ok(turn) => held.push((oracle.joined, turn)),
                        Err(later) => {
                            // A call can join at this time, but not a nanosecond before.
                            if let Some(later) = later {
                                prop_assert!(later > Tick::from_nanos(now));
                                let before = Tick::from_nanos(later.as_nanos() - 1);
                                prop_assert_eq!(queue.join(before, cost, wait), Err(Some(later)));
                                let turn = queue.join(later, cost, wait);
                                prop_assert!(queue.cancel(turn.unwrap()));
                            }
                        }
                    }
                }
                Step::Leave(index) if !held.is_empty() => {
                    let (id, turn) = held.swap_remove(index.index(held.len()));
                    prop_assert_eq!(queue.cancel(turn), oracle.cancel(id));
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

#[test]
fn the_cost_at_a_whole_threshold_is_exact_beyond_104_days() {
    // The interval is more than 2⁵³ ns, and not a multiple of two, so an `f64` cannot represent it.
    let interval = Duration::from_secs(200 * 86_400) + Duration::from_nanos(1);
    let ns = interval.as_nanos() as u64;
    assert_eq!(cost(1, 1.0, interval), Some(ns));
    assert_eq!(cost(3, 2.0, interval), Some((3 * ns).div_ceil(2)));
    assert_eq!(cost(u32::MAX, 1.0, Duration::MAX), Some(u64::MAX));
}
