//! Tests of nodes: nodes over several rings, figures after pauses, ranges of counters, and the size
//! of a node.

use super::super::counters::CALL_BITS;
use super::super::packed::Checkpoint;
use super::super::quota::Lending;
use super::*;
use crate::clock::nanos;
use crate::stat::MAX_RT;

#[test]
fn events_on_a_replaced_ring_count_on_its_successor() {
    let at = Tick::from_millis;
    let old = Node::new(Duration::from_secs(1), 2, at(0)).unwrap();
    old.pass(at(100), 1);
    let grid = Grid {
        bucket_ns: 250_000_000,
        buckets: 4,
        ahead: 2,
    };
    let new = old.over(Arc::new(old.ring().move_to(grid, at(200))));
    for second in [1_000, 2_000] {
        new.pass(at(second), 10);
    }
    // The call from before the reload ends. This is the first event of the fourth second.
    let rt = Duration::from_millis(2_900);
    old.complete(at(3_000), 1, rt, Outcome::Success);
    assert_eq!(old.latest().sum(at(3_100), Event::Complete), 1);
    assert_eq!(old.latest().average_rt(at(3_100)), Some(rt));
    new.pass(at(3_100), 1);
    let passed = |node: &Node| -> Vec<_> {
        let seconds = node.seconds(at(3_100)).unwrap();
        seconds.iter().map(NodeBucket::pass).collect()
    };
    assert_eq!(passed(&new), [1, 10, 10, 1]);
    assert_eq!(passed(&old.latest()), [1, 10, 10, 1]);
    // A reader that still holds the old ring sees no passes since the reload.
    assert_eq!(passed(&old), [1, 10, 10, 0]);
    assert_eq!(new.concurrency(at(3_100)), 3);
}

/// Uses a node of this `shape`, pauses, and makes one call. Returns its passes, completions,
/// smallest response time and largest concurrency.
fn after_a_pause(
    shape: &Shape,
    keeps_minute: bool,
    pause: Duration,
) -> (u64, u64, Option<Duration>, u32) {
    let interval_ns = nanos(shape.interval());
    let grid = Grid {
        bucket_ns: shape.step_ns,
        buckets: (interval_ns / shape.step_ns) as u32,
        ahead: 1,
    };
    let mut now = Tick::from_millis(1_000_000);
    let node = Node::with_grid(grid, StdArc::new(shape.clone()), keeps_minute, now);
    for _ in 0..70 {
        now = now + shape.interval() / shape.buckets;
        node.pass(now, 1);
        node.complete(now, 1, Duration::from_millis(1), Outcome::Failure);
    }
    let now = now + pause;
    node.pass(now, 1);
    let minute = node.seconds(now).unwrap_or_default();
    let old = minute.iter().map(|second| second.pass() + second.calls);
    (
        node.sum(now, Event::Pass).max(old.sum()),
        node.sum(now, Event::Complete),
        node.min_rt(now),
        node.max_concurrency(now),
    )
}

#[test]
fn old_figures_do_not_reappear_after_a_pause_of_any_length() {
    let shape = |bucket_ms, buckets| Shape::new(bucket_ms * 1_000_000, buckets);
    let shapes = [(500, 2), (100, 10), (2_000, 2)];
    // Pauses near the numbers of buckets after which stamps repeat, and near the lengths of the
    // longest jumps.
    for round in [1_u64 << 16, 1 << 22, 1 << 24, 3 << 24, 1 << 30] {
        // In buckets, or in seconds.
        for pause in round - 30..round + 30 {
            for (bucket_ms, buckets) in shapes {
                for minute in [false, true] {
                    for unit_ms in [bucket_ms, 1_000] {
                        let shape = shape(bucket_ms, buckets);
                        let pause = Duration::from_millis(pause * unit_ms);
                        let seen = after_a_pause(&shape, minute, pause);
                        assert_eq!(seen, (1, 0, None, 1), "{pause:?} {shape:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_long_bucket_counts_more_calls_than_the_narrow_counter() {
    let node = Node::new(Duration::from_secs(3_600), 1, Tick::ZERO).unwrap();
    let rt = Duration::from_millis(1);
    // Slightly more than 2²⁴ calls, about 4 700 a second for an hour.
    for second in 0..10 {
        let now = Tick::from_millis(second * 1_000);
        for _ in 0..=(1 << 24) / 10 {
            node.complete(now, 1, rt, Outcome::Success);
        }
    }
    let (now, all) = (Tick::from_millis(9_000), (1 << 24) / 10 * 10 + 10);
    assert_eq!(node.sum(now, Event::Complete), all);
    assert_eq!(node.buckets(now)[0].calls(), all);
    assert_eq!(node.average_rt(now), Some(rt));
    let next = Tick::from_millis(3_600_000);
    node.complete(next, 1, rt, Outcome::Success);
    assert_eq!(node.sum(next, Event::Complete), 1);
    assert_eq!(node.totals(next).complete(), all + 1);
}

#[test]
fn totals_are_wider_than_the_counters_that_they_are_read_from() {
    let node = Node::new(Duration::from_secs(1), 2, Tick::ZERO).unwrap();
    // 12 × 2³⁰ passes, and 2 × 2⁴⁰ µs of response times.
    let seconds = 12;
    let calls = (2 << 40) / (MAX_RT.as_micros() as u64 * seconds) + 1;
    for second in 0..seconds {
        let now = Tick::from_millis(second * 1_000);
        node.pass(now, 1 << 30);
        for _ in 0..calls {
            node.complete(now, 1, MAX_RT, Outcome::Success);
        }
    }
    let totals = node.totals(Tick::from_millis(seconds * 1_000));
    assert_eq!(totals.pass(), seconds << 30);
    assert_eq!(totals.rt(), MAX_RT * (calls * seconds) as u32);
}

#[test]
fn figures_per_second_are_averages_over_the_window() {
    for (seconds, buckets) in [(1, 2), (2, 1), (10, 2), (60, 3)] {
        let window = Duration::from_secs(seconds);
        let node = Node::new(window, buckets, Tick::ZERO).unwrap();
        assert_eq!(node.interval(), window);
        node.pass(Tick::ZERO, 30);
        let per_second = node.qps(Tick::ZERO, Event::Pass);
        assert_eq!(per_second, 30.0 / seconds as f64);
    }
}

#[test]
fn jumps_of_decades_take_few_steps() {
    /// A century of 365.25-day years, in seconds.
    const CENTURY: u64 = 3_155_760_000;
    // `most` is the maximum number of steps at which the head may stop.
    for (bucket_ms, buckets, most) in [(500, 2, 10), (100, 10, 50), (2_000, 2, 10)] {
        let shape = Shape::new(bucket_ms * 1_000_000, buckets);
        let to = CENTURY * u64::from(shape.per_second);
        let jumps = std::iter::successors(Some(7), |&from| {
            (from < to).then(|| shape.landing(from, to))
        });
        assert!(jumps.count() <= most, "{shape:?}");
    }
}

#[cfg(target_pointer_width = "64")]
#[test]
fn a_node_has_the_documented_size() {
    // The numbers add up to the rows of the table in the documentation of `Node`.
    assert_eq!(size_of::<LeapArray>(), 64 + 40);
    assert_eq!(
        size_of::<Counters>(),
        64 + 24 + 24 + 16 + 16 + 16 + 16 + 16 + 16 + 8
    );
    let node = Node::new(Duration::from_secs(1), 2, Tick::ZERO).unwrap();
    assert_eq!(node.footprint(), 104 + 216 + 144 + 32 + 32);
}

#[test]
fn buckets_are_consistent_if_the_ring_is_far_ahead() {
    let at = Tick::from_millis;
    let node = Node::new(Duration::from_secs(1), 2, at(0)).unwrap();
    node.pass(at(100), 1);
    // The ring moves before the counters, and a reader with an older clock reading can come in
    // between.
    node.ring.add(at(60_000), 3);
    let buckets = node.buckets(at(200));
    let seen: Vec<_> = buckets.iter().map(|b| (b.start(), b.pass())).collect();
    assert_eq!(seen, [(at(59_500), 0), (at(60_000), 3)]);
}

#[test]
fn more_calls_than_the_narrow_counter_holds_end_in_one_step() {
    let at = Tick::from_millis;
    let rt = Duration::from_millis(1);
    let node = Node::new(Duration::from_secs(1), 2, at(0)).unwrap();
    // 40 times 2²⁰ calls, two and a half ranges: all but the first are added directly to the counter.
    let (rounds, others) = (40, (1 << 20) - 1);
    for round in 0..rounds {
        node.complete(at(0), 1, rt, Outcome::Success);
        let others_and_rt = others | (others * 1_000) << CALL_BITS;
        node.counters
            .done
            .fetch_add(others_and_rt, Ordering::Relaxed);
        assert_eq!(node.totals(at(0)).calls(), (round + 1) << 20);
    }
    assert_eq!(node.totals(at(0)).complete(), rounds << 20);
    assert_eq!(node.sum(at(500), Event::Complete), rounds << 20);
    assert_eq!(node.totals(at(1_000)).rt(), rt * (rounds << 20) as u32);
}

#[test]
fn an_overflow_of_the_call_count_does_not_change_response_times() {
    let at = Tick::from_millis;
    let node = Node::new(Duration::from_secs(1), 2, at(0)).unwrap();
    for second in 0..5 {
        // 2²² calls that take no time: all but the last are added directly to the counter.
        let now = at(second * 1_000);
        node.complete(now, 1, Duration::ZERO, Outcome::Success);
        let others = (1 << 22) - 1;
        node.counters.done.fetch_add(others, Ordering::Relaxed);
    }
    let now = at(4_000);
    assert_eq!(node.totals(now).calls(), 5 << 22);
    assert_eq!(node.totals(now).rt(), Duration::ZERO);
    assert_eq!(node.average_rt(now), Some(Duration::ZERO));
    assert_eq!(node.seconds(now).unwrap()[3].rt(), Duration::ZERO);
}

#[test]
fn days_of_response_times_in_one_second_are_all_in_the_total() {
    let at = Tick::from_millis;
    let node = Node::new(Duration::from_secs(1), 2, at(0)).unwrap();
    // 10 000 minutes are 6.9 days, more than half of the range of the narrow counter.
    let calls = 10_000;
    for _ in 0..calls {
        node.complete(at(100_000), 1, MAX_RT, Outcome::Success);
    }
    let all = MAX_RT * calls;
    assert_eq!(node.average_rt(at(100_100)), Some(MAX_RT));
    assert_eq!(node.totals(at(100_100)).rt(), all);
    node.complete(at(102_000), 1, Duration::from_secs(1), Outcome::Success);
    let totals = node.totals(at(102_000));
    assert_eq!(totals.rt(), all + Duration::from_secs(1));
}

#[test]
fn a_ring_that_is_read_without_events_loses_no_due_tokens() {
    let at = Tick::from_millis;
    let node = Node::new(Duration::from_secs(2), 4, at(0)).unwrap();
    let quota = [Quota::new(4, 1, 10, Lending::All)];
    node.pass(at(100), 1);
    node.pass(at(1_100), 9);
    let wish = Wish {
        now: at(1_200),
        from: at(1_200),
        patience: Duration::from_secs(3),
        weight: 5,
    };
    // The window is full. It has room again when the nine tokens leave it.
    let loan = node.borrow_for(wish, &quota).unwrap();
    assert_eq!(loan.start(), at(3_000));
    // The timer of the waiting call is late, and a check comes before it.
    assert!(node.check_room(at(30_000), 1, &quota).is_ok());
    node.start_waited(at(30_000), 5, 5, Duration::from_secs(2));
    let seconds = node.seconds(at(30_000)).unwrap();
    let passed = seconds.iter().map(NodeBucket::pass);
    let passed: Vec<_> = (0..).zip(passed).filter(|second| second.1 > 0).collect();
    assert_eq!(passed, [(0, 1), (1, 9), (3, 5)]);
}

#[test]
fn no_bucket_is_read_from_a_checkpoint_that_is_being_replaced() {
    let at = Tick::from_millis;
    let node = Node::new(Duration::from_secs(1), 2, at(0)).unwrap();
    node.pass(at(100), 3);
    node.pass(at(600), 1);
    // Other threads have come to bucket 3, and one of them is about to open bucket 4.
    assert!(node.ring.bring_to(at(1_500)).is_ok());
    let head = node.ring.load_head();
    assert!(node.ring.swap_head(head, head.sealed()));
    let cut = Checkpoint::new(4, 4, true);
    node.ring.cut_cell(4).store(cut.0, Ordering::Release);
    // A reader whose clock is still in bucket 1.
    let buckets = node.buckets(at(600));
    let seen: Vec<_> = buckets.iter().map(|b| (b.start(), b.pass())).collect();
    assert_eq!(seen, [(at(1_000), 0), (at(1_500), 0)]);
}

// === seconds that are kept later ===

/// A node that keeps no seconds at first, with buckets of half a second.
fn node_without_seconds() -> Node {
    let grid = Grid {
        bucket_ns: 500_000_000,
        buckets: 2,
        ahead: 1,
    };
    let shape = StdArc::new(Shape::new(500_000_000, 2));
    Node::with_grid(grid, shape, false, Tick::ZERO)
}

#[test]
fn seconds_kept_later_begin_after_the_next_second() {
    let at = Tick::from_millis;
    let node = node_without_seconds();
    // One call in second 0, two in second 1 and so on.
    let call = |second: u64| {
        for _ in 0..=second {
            node.pass(at(second * 1_000 + 600), 1);
            node.complete(
                at(second * 1_000 + 700),
                1,
                Duration::from_millis(100),
                Outcome::Success,
            );
        }
    };
    (0..5).for_each(call);
    let seconds = |now| node.seconds(at(now));
    assert_eq!(seconds(4_900), None);
    // The second call has no effect.
    node.keep_minute();
    node.keep_minute();
    assert_eq!(seconds(4_900), Some(Vec::new()));
    assert_eq!(node.previous_second(at(5_100)), None);
    (5..8).for_each(call);
    let known: Vec<_> = seconds(7_900).unwrap();
    let passed = known
        .iter()
        .map(|second| (second.start(), second.pass(), second.calls));
    assert_eq!(
        passed.collect::<Vec<_>>(),
        [(at(6_000), 7, 7), (at(7_000), 8, 8)]
    );
    assert_eq!(node.previous_second(at(8_100)).unwrap().pass(), 8);
    // A minute later the node has all seconds of the last minute.
    (8..80).for_each(call);
    let known = seconds(79_900).unwrap();
    assert_eq!((known.len(), known[0].start()), (60, at(20_000)));
    assert!(
        known
            .iter()
            .zip(21..)
            .all(|(second, calls)| second.pass() == calls)
    );
}

#[test]
fn seconds_kept_later_contain_no_earlier_events_after_a_pause() {
    let at = Tick::from_millis;
    for pause in [2, 61, 100, 1 << 22, 1 << 24] {
        let node = node_without_seconds();
        node.pass(at(100), 5);
        node.keep_minute();
        node.pass(at(pause * 1_000 + 100), 1);
        node.pass(at(pause * 1_000 + 1_100), 2);
        let seconds = node.seconds(at(pause * 1_000 + 1_200)).unwrap();
        let passed: Vec<_> = seconds.iter().map(NodeBucket::pass).collect();
        let idle = passed.len() - 2;
        assert_eq!(passed[idle..], [1, 2], "after {pause} s");
        assert!(
            passed[..idle].iter().all(|&passed| passed == 0),
            "{passed:?}"
        );
    }
}

#[test]
fn borrowed_tokens_of_the_current_second_are_known_without_a_kept_minute() {
    let at = Tick::from_millis;
    let node = node_without_seconds();
    let wait = Duration::from_millis(100);
    node.start_waited(at(1_100), 1, 3, wait);
    node.start_waited(at(1_900), 1, 4, wait);
    assert_eq!(node.sum(at(1_950), Event::Occupied), 7);
    assert_eq!(node.sum(at(2_050), Event::Occupied), 0);
    node.start_waited(at(2_100), 1, 1, wait);
    assert_eq!(node.sum(at(2_200), Event::Occupied), 1);
    assert_eq!(node.totals(at(2_200)).occupied(), 8);
}
