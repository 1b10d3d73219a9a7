//! Tests of blocked keys, among them random calls of one key that are compared with an oracle.

use proptest::prelude::*;

use super::exact::Exact;
use super::*;

/// The time for which keys are blocked.
const LENGTH: Duration = Duration::from_secs(3);

#[test]
fn a_key_is_blocked_in_its_own_slot_alone() {
    let keys = crowded(Counting::Refill);
    let limit = keys.limit(1.0, 0);
    for number in 0..8 {
        assert_eq!(passes(&keys, 0, digest(number), &limit, 2), 1);
    }
    assert!(keys.block(at(0), digest(1), &limit, 1, LENGTH));
    assert!(!keys.block(at(1), digest(1), &limit, 1, LENGTH), "it is");
    // Keys on the shared word, and unknown keys, cannot be blocked.
    assert_eq!(passes(&keys, 0, digest(8), &limit, 2), 1);
    assert!(!keys.block(at(0), digest(8), &limit, 1, LENGTH));
    assert_eq!(passes(&keys, 1_000, digest(9), &limit, 2), 1);
    assert_eq!(keys.blocks(), 1);
    // All keys but the blocked one are at rest.
    assert_eq!(keys.keys_in_use(at(2_000)), 1);
    assert_eq!(keys.keys_in_use(at(3_000)), 1);
    assert_eq!(keys.keys_in_use(Tick::from_nanos(3_000_000_001)), 0);
}

#[test]
fn a_table_without_numbers_blocks_nobody() {
    let keys = keys(Counting::Refill, SECOND);
    let limit = keys.limit(1e6, 0);
    assert!(!keys.can_block());
    assert!(keys.take(at(0), digest(1), &limit, 1_000_000).is_ok());
    assert!(!keys.block(at(0), digest(1), &limit, 1, LENGTH));
    assert_eq!(passes(&keys, 1, digest(1), &limit, 9_999), 1_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn a_blocked_key_is_refused_until_its_block_ends_and_owes_nothing_then(
        limits in [(1..9_u32, 0..4_u32), (1..90_u32, 0..9_u32)],
        steps in prop::collection::vec((0..1_500_u64, 0..5_u32, 0..2_usize, 0..9_u32), 1..150),
    ) {
        let keys = keys(Counting::Refill, SECOND);
        let ready = limits.map(|(threshold, burst)| keys.limit(threshold.into(), burst));
        let mut exact = Exact::new(false);
        let (mut now, mut blocked, mut blocks) = (0, None, 0);
        for (wait, n, which, reset) in steps {
            now += wait;
            if reset == 0 && keys.reset(digest(1), &|| at(now)) {
                (exact, blocked) = (Exact::new(false), None);
            }
            if blocked.is_some_and(|end| end <= at(now)) {
                (exact, blocked) = (Exact::new(false), None);
            }
            let (threshold, burst) = limits[which];
            let most = threshold + burst;
            let taken = keys.take(at(now), digest(1), &ready[which], n);
            let ns = now * 1_000_000;
            let expected = match blocked {
                Some(_) if n > 0 => None,
                _ => exact.take(Counting::Refill, SECOND, limits[which], ns, n),
            };
            prop_assert_eq!(taken.is_ok(), expected.is_some());
            let Err(full) = taken else {
                continue;
            };
            let is_blocked = keys.block(at(now), digest(1), &ready[which], n, LENGTH);
            prop_assert_eq!(is_blocked, n <= most && blocked.is_none());
            if is_blocked {
                blocks += 1;
                let owed = Tick::from_nanos(exact.paid_off_ns());
                blocked = Some(owed.max(at(now) + LENGTH));
            } else {
                prop_assert_eq!(full.available_at(), blocked.filter(|_| n <= most));
            }
            if let Some(end) = blocked {
                let room = keys.available_at(at(now), digest(1), &ready[which], 1);
                prop_assert_eq!(room, Some(end));
                prop_assert_eq!(keys.left(at(now), digest(1), &ready[which]), 0);
            }
        }
        prop_assert_eq!(keys.blocks(), blocks);
    }
}
