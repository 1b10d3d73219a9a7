//! Tests of queues with exact start times.

use super::*;

#[test]
fn calls_of_a_queue_wait_for_their_turn_or_are_refused() {
    // A call starts every 100 ms, and waits for at most 250 ms.
    let keys = keys(Counting::Queue(ms(250)), SECOND);
    let limit = keys.limit(10.0, 0);
    let key = digest(1);
    let start = |now, n| {
        keys.take(at(now), key, &limit, n)
            .map(|taken| taken.start())
            .map_err(|refusal| refusal.available_at())
    };
    // Refused, with room again at this time.
    let full = |ms| Err(Some(at(ms)));
    assert_eq!(keys.left(at(0), key, &limit), 3);
    assert_eq!(
        [0, 0, 0, 0].map(|now| start(now, 1)),
        [Ok(at(0)), Ok(at(100)), Ok(at(200)), full(50)]
    );
    // A wait of exactly the maximum is allowed.
    assert_eq!(start(49, 1), full(50));
    assert_eq!(start(50, 1), Ok(at(300)));
    // A call of weight 2 has twice the distance to the previous call.
    assert_eq!(start(200, 2), full(250));
    assert_eq!(start(250, 2), Ok(at(500)));
    assert_eq!(keys.left(at(250), key, &limit), 0);
    assert_eq!(start(350, 1), Ok(at(600)));
    // A call of weight 84 starts at once if 8.4 s have passed since the start of the previous call.
    assert_eq!(start(9_000, 84), Ok(at(9_000)));
    assert_eq!(start(9_000, 1), Ok(at(9_100)));
    assert_eq!(keys.left(at(9_000), digest(2), &limit), 3);
    // The first call of a queue starts at once, whatever its weight.
    let first = keys.take(at(9_000), digest(2), &limit, 100);
    assert_eq!(first.unwrap().start(), at(9_000));
}

#[test]
fn turns_of_a_few_nanoseconds_come_one_after_the_other() {
    // The threshold in calls per second, and the distance of two turns, at least 1 ns.
    for (threshold, gap_ns) in [
        (2_147_483_647.0, 1),
        (1e9, 1),
        (4e6, 250),
        (3_906_250.0, 256),
    ] {
        let keys = keys(Counting::Queue(SECOND), SECOND);
        let limit = keys.limit(threshold, 0);
        for turn in 0..4 {
            let taken = keys.take(at(5), digest(1), &limit, 1).unwrap();
            let expected = at(5) + Duration::from_nanos(turn * gap_ns);
            assert_eq!(taken.start(), expected, "{threshold}");
        }
    }
}

#[test]
fn the_last_turn_of_a_queue_can_be_refunded() {
    let keys = keys(Counting::Queue(SECOND), SECOND);
    let limit = keys.limit(10.0, 0);
    let join = || keys.take(at(5), digest(1), &limit, 1).unwrap();
    let only = join();
    keys.refund(|| at(5), &only);
    let [first, second, third] = [join(), join(), join()];
    assert_eq!(
        [first, second, third].map(|turn| turn.start()),
        [at(5), at(105), at(205)]
    );
    keys.refund(|| at(5), &second);
    keys.refund(|| at(5), &third);
    assert_eq!(join().start(), at(205));
}

#[test]
fn a_queue_gives_no_turn_after_the_last_tick() {
    let keys = keys(Counting::Queue(SECOND), SECOND);
    let (limit, end) = (keys.limit(10.0, 0), Tick::from_nanos(u64::MAX));
    assert!(keys.take(end, digest(1), &limit, 1).is_ok());
    assert_eq!(refused(&keys, end, digest(1), &limit, 1), None);
    // A call that costs more than the range of times. No call can follow it, and its key is never
    // at rest.
    let slow = keys.limit(1e-12, 0);
    assert!(keys.take(at(0), digest(2), &slow, 1).is_ok());
    assert_eq!(refused(&keys, end, digest(2), &slow, 1), None);
    assert_eq!(keys.keys_in_use(end), 2);
}
