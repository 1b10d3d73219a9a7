//! Tests of the table: which keys have a slot, which keys lose it, and which keys share the
//! overflow word.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::keyed::refill::{Rate, Refill};
use crate::keyed::table::WordPlace;

/// Fills a table of one set with eight keys that have spent all their tokens.
fn exhaust(keys: &HotKeys, now: u64, limit: &KeyLimit) -> Vec<KeyTokens> {
    let spend = |number| keys.take(at(now), digest(number), limit, 5).unwrap();
    let held = (0..8).map(spend).collect();
    assert_eq!((keys.overflows(), keys.keys_in_use(at(now))), (0, 8));
    held
}

#[test]
fn keys_that_find_a_full_table_share_one_quota_and_none_gets_a_fresh_one() {
    for count in [Counting::Refill, Counting::Window, Counting::Running] {
        let keys = crowded(count);
        let limit = keys.limit(5.0, 0);
        let held = exhaust(&keys, 1_000, &limit);
        // All new keys together make five calls.
        let new = (100..200).filter(|&key| keys.take(at(1_000), digest(key), &limit, 1).is_ok());
        assert_eq!(new.count(), 5, "{count:?}");
        assert_eq!(keys.overflows(), 100);
        assert_eq!(keys.left(at(1_000), digest(300), &limit), 0);
        // Keys with slots still have no tokens.
        for key in 0..8 {
            assert_eq!(passes(&keys, 1_000, digest(key), &limit, 9), 0, "{count:?}");
        }
        // A key at rest loses its slot to a new key; keys that are not at rest keep theirs.
        if count == Counting::Running {
            release(&keys, &held[3]);
        }
        let later = if count == Counting::Running {
            1_000
        } else {
            2_001
        };
        assert_eq!(passes(&keys, later, digest(500), &limit, 9), 5, "{count:?}");
        assert_eq!(keys.overflows(), 100, "{count:?}");
        if count == Counting::Running {
            for key in [0, 1, 2, 4, 5, 6, 7, 3] {
                let place = keys.take(at(1_000), digest(key), &limit, 1);
                assert!(place.is_err(), "{key} has five, or shares a full word");
            }
        }
    }
}

#[test]
fn the_shared_word_is_whole_before_bucket_numbers_wrap() {
    let keys = crowded(Counting::Window);
    let limit = keys.limit(5.0, 0);
    // Starts shortly before 2^24 buckets of 500 ms.
    let begin = ((1 << 24) - 500) * 500;
    for round in 0..3 {
        let now = begin + round * 1_000;
        // Eight keys take the slots, so that a ninth key uses the shared word.
        for key in 0..8 {
            assert_eq!(passes(&keys, now, digest(key), &limit, 9), 5);
        }
        assert_eq!(keys.left(at(now), digest(100), &limit), 5, "{round}");
        assert_eq!(passes(&keys, now, digest(100), &limit, 9), 5, "{round}");
    }
    assert_eq!(keys.overflows(), 3 * 6);
}

#[test]
fn a_key_with_a_slot_is_in_use_again_when_bucket_numbers_wrap() {
    let keys = crowded(Counting::Window);
    exhaust(&keys, 1_000, &keys.limit(5.0, 0));
    // After 2^24 buckets of 500 ms, bucket numbers repeat, and old words look current. They do so
    // from 1 024 buckets earlier on, which is the slack for late calls.
    let again = 1_000 + (500 << 24);
    for (now, in_use) in [
        (2_000, 0),
        (again - 512_001, 0),
        (again - 512_000, 8),
        (again + 999, 8),
        (again + 1_000, 0),
    ] {
        assert_eq!(keys.keys_in_use(at(now)), in_use, "{now}");
    }
}

#[test]
fn a_call_of_an_evicted_key_refunds_nobody() {
    for count in [Counting::Refill, Counting::Window, Counting::Queue(SECOND)] {
        let keys = crowded(count);
        let limit = keys.limit(5.0, 0);
        let held: Vec<_> = (0..8)
            .map(|key| keys.take(at(1_000), digest(key), &limit, 1).unwrap())
            .collect();
        // All first keys are at rest, and eight other keys take their slots.
        let now = 20_000;
        for key in 10..18 {
            passes(&keys, now, digest(key), &limit, 9);
        }
        assert_eq!(keys.overflows(), 0);
        let left = || {
            (10..18)
                .map(|key| keys.left(at(now), digest(key), &limit))
                .collect::<Vec<_>>()
        };
        let before = left();
        // Late refunds of the evicted keys change no word of the new owners.
        for taken in &held {
            keys.refund(|| at(1_000), taken);
            release(&keys, taken);
        }
        assert_eq!(left(), before, "{count:?}");
    }
}

/// Makes further calls of a key that has spent all its tokens at 1 000, and returns how many pass.
/// The calls come after 3 000, but with a clock reading of `read`. If `other_comes`, another key
/// has taken the slot before.
fn passes_after_a_sleep(count: Counting, read: u64, other_comes: bool) -> u32 {
    let keys = crowded(count);
    let limit = keys.limit(5.0, 0);
    let take = |now, slot: u64, id| {
        let taken = keys.take(at(now), Digest(slot << 32 | id), &limit, 1);
        assert!(taken.is_ok(), "{slot} {id} at {now}");
    };
    // Seven other keys own the remaining slots.
    for slot in 1..8 {
        take(100, slot, 1);
    }
    let sleeper = Digest(1);
    assert_eq!(passes(&keys, 1_000, sleeper, &limit, 100), 5);
    // The other keys in the sleeper's cache line are not at rest.
    for slot in 1..4 {
        take(3_000, slot, 1);
    }
    if other_comes {
        // Of the slots at the new key's home, only the sleeper's is at rest.
        take(3_000, 0, 2);
    }
    let passed = passes(&keys, read, sleeper, &limit, 100);
    assert_eq!(keys.overflows(), 0);
    passed
}

#[test]
fn a_late_call_of_an_evicted_key_finds_a_fresh_quota() {
    // The counting, the clock reading, and the number of calls that pass if the key keeps its slot,
    // and if it has been evicted.
    for (count, read, kept, fresh) in [
        // The debt ends at 2 000.
        (Counting::Refill, 1_400, 2, 5),
        (Counting::Refill, 2_001, 5, 5),
        // The window consists of the buckets at 1 000 and 1 500.
        (Counting::Window, 1_999, 0, 5),
    ] {
        let found = [false, true].map(|comes| passes_after_a_sleep(count, read, comes));
        assert_eq!(found, [kept, fresh], "{count:?} at {read}");
    }
}

#[test]
fn a_call_later_than_the_slack_evicts_a_window() {
    for (buckets, is_pushed_out) in [(1_024, false), (1_025, true)] {
        let keys = crowded(Counting::Window);
        let limit = keys.limit(5.0, 0);
        exhaust(&keys, 500 * (buckets + 7), &limit);
        // A call of a new key with a clock reading that is `buckets` buckets old.
        assert!(keys.take(at(500 * 7), digest(9), &limit, 1).is_ok());
        assert_eq!(keys.overflows() == 0, is_pushed_out, "{buckets}");
    }
}

#[test]
fn a_slot_changes_hands_only_after_the_largest_cost_of_its_queue() {
    let keys = crowded(Counting::Queue(ms(0)));
    let (slow, fast) = (keys.limit(1.0, 0), keys.limit(1_000_000.0, 0));
    for key in 0..8 {
        assert!(keys.take(at(0), digest(key), &slow, 1).is_ok());
    }
    for now in [1, 500, 1_000] {
        // All eight keys are still within their gap, so a ninth key uses the shared queue.
        assert!(keys.take(at(now), digest(9), &fast, 1).is_ok());
    }
    assert_eq!(keys.overflows(), 3);
    // A gap of a second is rounded up to 4^7 × 65 536 ns, about 1 074 ms.
    assert!(keys.take(at(1_100), digest(9), &fast, 1).is_ok());
    assert_eq!(keys.overflows(), 3);
}

#[test]
fn the_largest_cost_of_a_queue_counts_until_the_queue_is_at_rest() {
    let keys = crowded(Counting::Queue(ms(0)));
    let limit = keys.limit(1_000.0, 0);
    let all = |now: u64, n: u32| {
        for key in 0..8 {
            assert!(keys.take(at(now), digest(key), &limit, n).is_ok());
        }
    };
    all(0, 1_000);
    // The keys are not at rest after these calls either, because another call of 1 000 tokens would
    // have to wait for a second.
    all(1, 1);
    assert!(keys.take(at(500), digest(9), &limit, 1).is_ok());
    assert_eq!(keys.overflows(), 1);
    // Once the queue has been at rest, the cost of the 1 000 tokens no longer counts.
    all(5_000, 1);
    assert!(keys.take(at(5_010), digest(9), &limit, 1).is_ok());
    assert_eq!(keys.overflows(), 1);
}

/// The mixer of SplitMix64, as a fixed hash.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (bits ^ (bits >> 31)).max(1)
}

#[test]
fn a_table_has_places_for_max_keys() {
    for max_keys in [1, 8, 10, 50, 100, 1_000, 10_000, 65_536] {
        for table in 0..(70_000 / max_keys).min(100) {
            let spec = KeySpec {
                max_keys,
                ..spec(Counting::Refill, SECOND)
            };
            let keys = HotKeys::new(spec, Tick::ZERO);
            let limit = keys.limit(1.0, 0);
            for key in 0..max_keys {
                let key = Digest(mixed(u64::from(table * max_keys + key)));
                assert!(keys.take(at(0), key, &limit, 1).is_ok());
            }
            assert_eq!(keys.overflows(), 0, "{max_keys}, table {table}");
            assert_eq!(keys.keys_in_use(at(0)), max_keys as usize);
            // Each key is found, in whichever set its slot is.
            for key in 0..max_keys {
                let key = Digest(mixed(u64::from(table * max_keys + key)));
                assert_eq!(keys.left(at(0), key, &limit), 0);
                assert_eq!(keys.available_at(at(0), key, &limit, 1), Some(at(1_000)));
            }
        }
    }
}

#[test]
fn a_table_of_used_slots_has_places_for_max_keys() {
    let max_keys = 10_000;
    let spec = KeySpec {
        max_keys,
        ..spec(Counting::Refill, SECOND)
    };
    let keys = HotKeys::new(spec, Tick::ZERO);
    let limit = keys.limit(1.0, 0);
    for round in 0..20 {
        // Keys of earlier rounds are at rest, but still own the slots.
        let now = round * 2_000;
        for key in 0..u64::from(max_keys) {
            let key = Digest(mixed(round * u64::from(max_keys) + key));
            assert!(keys.take(at(now), key, &limit, 1).is_ok());
        }
        assert_eq!(keys.overflows(), 0, "round {round}");
        assert_eq!(keys.keys_in_use(at(now)), max_keys as usize);
    }
}

#[test]
fn keys_at_rest_keep_their_slots_while_free_slots_are_left() {
    let (count, max_keys) = (10_000, 10_000);
    let table = KeyTable::new(max_keys);
    let rate = Rate::new(1e6, 0, SECOND);
    let round = |now| {
        let call = Refill::new(Tick::ZERO, at(now), rate, 1);
        let place = |key| table.take(mixed(key), call).unwrap().place;
        (0..count).map(place).collect::<Vec<_>>()
    };
    // Each key is at rest when the next key comes, but none is evicted.
    let first = round(1);
    let mut places: Vec<_> = first.iter().map(|place| format!("{place:?}")).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), first.len());
    assert_eq!(round(2), first);
}

#[test]
fn most_keys_are_at_home() {
    let table = KeyTable::new(10_000);
    // Only the key of the last call is not at rest.
    let take = |now, key| {
        let call = Refill::new(Tick::ZERO, at(now), Rate::new(1e6, 0, SECOND), 1);
        table.take(mixed(key), call).unwrap().place
    };
    let home = |now| {
        let is_home = |&key: &u64| match take(now + key, key) {
            WordPlace::Slot(slot) => table.is_home(slot, mixed(key)),
            WordPlace::Overflow => false,
        };
        (0..10_000).filter(is_home).count()
    };
    let new = home(1);
    assert!(new > 9_200, "{new} of 10 000");
    // This does not change once all slots have had other owners.
    for stranger in 10_000..90_000 {
        take(10_000 + stranger, stranger);
    }
    let again = home(100_001);
    assert!(again > 9_200, "{again} of 10 000 after strangers");
}

#[test]
fn among_keys_at_rest_the_least_recently_seen_is_evicted_first() {
    let table = KeyTable::of_sets(1);
    let rate = Rate::new(1_000.0, 0, SECOND);
    let see = |now, slot: u64, id: u64| {
        let call = Refill::new(Tick::ZERO, at(now), rate, 1);
        table.take((slot << 32) | id, call).unwrap().place
    };
    for (now, slot) in (1..).zip([0, 1, 2, 3, 4, 5, 6, 7, 0]) {
        assert_eq!(see(10 * now, slot, 1), WordPlace::Slot(slot as u32));
    }
    // New keys, with their homes in different cache lines. `likes` is the slot that the key
    // prefers, and `gets` the slot of its home that was used longest ago.
    for (now, (likes, gets)) in (200..).zip([(0, 1), (5, 4), (2, 2), (0, 3), (3, 0)]) {
        assert_eq!(see(now, likes, 2 + now), WordPlace::Slot(gets));
    }
}

#[test]
fn memory_is_32_bytes_for_each_key() {
    let bytes = |max_keys| {
        let spec = KeySpec {
            max_keys,
            ..spec(Counting::Refill, SECOND)
        };
        HotKeys::new(spec, Tick::ZERO).footprint()
    };
    assert!(bytes(1) < 512, "{}", bytes(1));
    let million = bytes(1_000_000) as f64 / 1e6;
    assert!((32.0..32.01).contains(&million), "{million}");
}

#[test]
fn digests_are_keyed() {
    let [one, other] = [0, 0].map(|_| keys(Counting::Refill, SECOND));
    let key = Key::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(one.digest(&key), one.digest(&key));
    assert_ne!(one.digest(&key), other.digest(&key));
    assert_eq!(
        one.digest(&Key::Joined("GET", "/")),
        one.digest(&Key::Str("GET /"))
    );
}

#[test]
fn no_place_is_lost_or_freed_twice_while_slots_change_hands() {
    let keys = crowded(Counting::Running);
    let limit = keys.limit(2.0, 0);
    let run = |thread: u64| {
        let mut held = Vec::new();
        for step in 0..20_000 {
            let key = digest(mixed(thread << 32 | step) % 24);
            held.extend(keys.take(at(0), key, &limit, 1));
            if held.len() > 2 {
                release(&keys, &held.swap_remove(step as usize % 3));
            }
        }
        for taken in &held {
            release(&keys, taken);
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || run(thread));
        }
    });
    assert_eq!(keys.keys_in_use(at(0)), 0);
    // The count of the shared word is 0 as well: once eight keys have slots, a ninth key has the
    // whole limit.
    let held: Vec<_> = (0..8)
        .map(|key| keys.take(at(0), digest(key), &limit, 1))
        .collect();
    assert!(held.iter().all(Result::is_ok));
    assert_eq!(keys.left(at(0), digest(8), &limit), 2);
}

#[test]
fn calls_of_known_and_unknown_keys_do_not_allocate() {
    for count in [
        Counting::Refill,
        Counting::Window,
        Counting::Queue(SECOND),
        Counting::Running,
    ] {
        let keys = crowded(count);
        let limit = keys.limit(2.0, 0);
        let info = allocation_counter::measure(|| {
            for call in 0..2_000 {
                let now = at(call * 7);
                let key = keys.digest(&Key::Int(call % 40));
                if let Ok(taken) = keys.take(now, key, &limit, 1) {
                    if call % 2 == 0 {
                        keys.refund(|| now, &taken);
                    } else {
                        release(&keys, &taken);
                    }
                }
                keys.left(now, key, &limit);
            }
        });
        assert_eq!(info.count_total, 0, "{count:?}");
    }
}

#[test]
fn a_key_has_two_different_sets_if_the_table_has_two() {
    for sets in [2, 3, 5, 64, 1_000] {
        let table = KeyTable::of_sets(sets);
        let edges = [0, 1, u32::MAX - 1, u32::MAX].map(u64::from);
        let corners = edges
            .iter()
            .flat_map(|high| edges.map(|low| high << 32 | low));
        for tag in corners.chain((0..1_000).map(|number| digest(number).0)) {
            let [first, second] = table.sets_of(tag);
            assert!(first < sets && second < sets && first != second, "{tag:#x}");
        }
    }
    assert_eq!(KeyTable::of_sets(1).sets_of(u64::MAX), [0, 0]);
}
