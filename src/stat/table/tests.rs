//! Tests of the table: which keys get a place, which entries keep it and which are evicted, and
//! readings of all entries.

use super::*;
use crate::base::sync::{AtomicU32, AtomicU64};
use std::time::Duration;

/// An entry that counts and is idle one second after its last use.
#[derive(Debug)]
struct Counter {
    key: u64,
    used: Tick,
    count: AtomicU64,
    place: TablePlace,
}

impl Resident for Counter {
    type Key = u64;
    type Sum = u64;

    fn key(&self) -> &u64 {
        &self.key
    }

    fn place(&self) -> &TablePlace {
        &self.place
    }

    fn is_idle(&self, now: Tick) -> bool {
        now - self.used > Duration::from_secs(1)
    }

    fn retire(&self, sum: &mut u64) {
        *sum += self.count.load(Ordering::Relaxed);
    }
}

/// Creates an entry that was last used at `used`.
fn make(key: u64, used: Tick) -> impl FnOnce() -> Counter {
    move || Counter {
        key,
        used,
        count: AtomicU64::new(0),
        place: TablePlace::default(),
    }
}

fn at(secs: u64) -> Tick {
    Tick::from_millis(secs * 1_000)
}

#[test]
fn a_new_key_evicts_an_idle_entry_and_no_count_is_lost() {
    let table = Table::<Counter>::new(4);
    for key in 0..100 {
        let now = at(key * 2);
        let entry = table
            .find_or_make(&key, now, make(key, now))
            .expect("one is idle");
        entry.count.fetch_add(key, Ordering::Relaxed);
    }
    assert!(table.len() <= 4);
    let mut alive = 0;
    let gone = table.read_all(|entry| alive += entry.count.load(Ordering::Relaxed));
    assert_eq!(alive + gone.retired, (0..100).sum::<u64>());
    assert_eq!(gone.evicted, 96);
}

#[test]
fn without_an_idle_entry_a_new_key_gets_no_place() {
    let table = Table::<Counter>::new(2);
    for key in 0..2 {
        assert!(table.find_or_make(&key, at(0), make(key, at(0))).is_some());
    }
    assert!(table.find_or_make(&7, at(0), make(7, at(0))).is_none());
    assert!(
        table.find_or_make(&1, at(0), make(1, at(0))).is_some(),
        "a known one is found"
    );
}

#[test]
fn a_replaced_entry_keeps_its_place() {
    let table = Table::<Counter>::new(3);
    for key in 0..3 {
        table.find_or_make(&key, at(0), make(key, at(0)));
    }
    table.replace(&1, Tick::ZERO, |old| {
        assert_eq!(old.map(|old| old.key), Some(1));
        make(1, at(77))()
    });
    table.replace(&9, Tick::ZERO, |old| {
        assert!(old.is_none());
        make(9, at(0))()
    });
    let mut used = Vec::new();
    table.read_all(|entry| used.push((entry.key, entry.used)));
    used.sort_unstable();
    assert_eq!(used, [(0, at(0)), (1, at(77)), (2, at(0)), (9, at(0))]);
}

#[test]
fn an_entry_that_is_held_is_not_evicted() {
    let table = Table::<Counter>::new(1);
    let held = table.find_or_make(&1, at(0), make(1, at(0))).unwrap();
    assert!(table.find_or_make(&2, at(9), make(2, at(9))).is_none());
    drop(held);
    assert!(table.find_or_make(&2, at(9), make(2, at(9))).is_some());
    assert!(table.find(&1, |_| ()).is_none());
}

#[test]
fn an_entry_found_just_before_its_eviction_comes_back_with_its_counts() {
    let table = Table::<Counter>::new(2);
    table.find_or_make(&1, at(0), make(1, at(0)));
    table.find_or_make(&2, at(0), make(2, at(9)));
    let held = std::cell::RefCell::new(None);
    {
        // Takes a reference that the hand does not see, like a call that finds the entry just after
        // the check.
        let mut writer = table.writer.lock();
        table.map.pin().remove(&1);
        *held.borrow_mut() = writer.slots[0].entry.clone();
        writer.take(0);
    }
    held.take().unwrap().count.fetch_add(5, Ordering::Relaxed);
    let again = table.find_or_make(&1, at(9), make(1, at(9))).unwrap();
    assert_eq!(again.count.load(Ordering::Relaxed), 5);
}

/// An entry that is used just after its first check for idleness.
#[derive(Debug)]
struct UsedAfterCheck {
    key: u64,
    /// The time of the last use, in ms.
    used_ms: AtomicU64,
    /// The number of times that the entry has been checked for idleness.
    looks: AtomicU32,
    place: TablePlace,
}

impl Resident for UsedAfterCheck {
    type Key = u64;
    type Sum = ();

    fn key(&self) -> &u64 {
        &self.key
    }

    fn place(&self) -> &TablePlace {
        &self.place
    }

    fn is_idle(&self, now: Tick) -> bool {
        let used = Tick::from_millis(self.used_ms.load(Ordering::Relaxed));
        let is_idle = now - used > Duration::from_secs(1);
        if self.looks.fetch_add(1, Ordering::Relaxed) == 0 {
            self.used_ms.store(now.as_millis(), Ordering::Relaxed);
        }
        is_idle
    }

    fn retire(&self, (): &mut ()) {}
}

#[test]
fn an_entry_used_after_the_first_idle_check_is_not_evicted() {
    let table = Table::<UsedAfterCheck>::new(1);
    let make = |key| {
        move || UsedAfterCheck {
            key,
            used_ms: AtomicU64::new(0),
            looks: AtomicU32::new(0),
            place: TablePlace::default(),
        }
    };
    assert!(table.find_or_make(&1, at(0), make(1)).is_some());
    assert!(
        table.find_or_make(&2, at(9), make(2)).is_none(),
        "its quota would be fresh"
    );
    let first = table.find_or_make(&1, at(9), make(1)).unwrap();
    assert_eq!(first.used_ms.load(Ordering::Relaxed), 9_000);
    drop(first);
    // Once idle again, it is evicted.
    assert!(table.find_or_make(&2, at(99), make(2)).is_some());
}

#[test]
fn an_entry_that_comes_back_from_limbo_was_not_evicted() {
    let table = Table::<Counter>::new(1);
    table.find_or_make(&1, at(0), make(1, at(0)));
    let evicted_for = |key| {
        table.find_or_make(&key, at(9), make(key, at(9)));
        table.read_all(|_| {}).evicted
    };
    // While a guard on the table is held, the map frees no entry.
    let looking = table.guard();
    assert_eq!(evicted_for(2), 0, "it waits for who may have found it");
    assert_eq!(evicted_for(1), 0, "it has come back");
    drop(looking);
    assert_eq!(evicted_for(2), 1);
    assert!(table.find(&1, |_| ()).is_none());
}

// === reading all ===

/// Creates a full table of idle entries, each with a count of 1.
fn idle_table(count: u64) -> Table<Counter> {
    let table = Table::<Counter>::new(count as usize);
    for key in 0..count {
        let entry = table.find_or_make(&key, at(0), make(key, at(0)));
        entry.unwrap().count.fetch_add(1, Ordering::Relaxed);
    }
    table
}

/// Inserts new `keys`, so that idle entries are evicted. Returns how many of the keys got a place.
fn push_out(table: &Table<Counter>, keys: std::ops::Range<u64>) -> usize {
    let placed = keys.filter(|key| table.find_or_make(key, at(9), make(*key, at(9))).is_some());
    placed.count()
}

#[test]
fn entries_are_evicted_while_all_are_read_and_each_is_read_or_retired() {
    const KEYS: u64 = 1_000;
    // The number of entries that the reader has read when the first new keys come. The hand moves
    // independently of the reader.
    for from in [0, 1, 7, 8, 300, 800] {
        let table = idle_table(KEYS);
        let (mut read, mut placed) = (0, 0);
        let gone = table.read_all(|entry| {
            // New entries have a count of 0.
            read += entry.count.load(Ordering::Relaxed);
            if read >= from && placed < 600 {
                placed += push_out(&table, 10_000 + read * 10..10_000 + read * 10 + 10);
            }
        });
        assert!(placed >= 600, "{placed} of 600 have found a place");
        assert_eq!(read + gone.retired, KEYS, "from {from} on");
        // The reading leaves no state behind that a later reading would count.
        let mut alive = 0;
        let gone = table.read_all(|entry| alive += entry.count.load(Ordering::Relaxed));
        assert_eq!(alive + gone.retired, KEYS);
    }
}

#[test]
fn an_entry_that_is_replaced_or_comes_back_is_read_once() {
    const KEYS: u64 = 100;
    let table = idle_table(KEYS);
    let (mut read, mut renewed) = (Vec::new(), 0);
    table.read_all(|entry| {
        read.push(entry.key);
        // Replaces entries that were read, entries that were not read yet, and entries in limbo.
        for key in [entry.key, (entry.key + 50) % KEYS] {
            push_out(&table, 1_000 + key..1_001 + key);
            table.replace(&key, at(9), |old| {
                let count = old.map_or(0, |old| old.count.load(Ordering::Relaxed));
                let counter = make(key, at(9))();
                counter.count.store(count, Ordering::Relaxed);
                renewed += 1;
                counter
            });
        }
    });
    let all = read.len();
    read.sort_unstable();
    read.dedup();
    assert_eq!(all, read.len(), "one was read twice");
    assert!(renewed > KEYS / 2, "{renewed}");
}

#[test]
fn a_reading_that_panics_is_ended() {
    let table = idle_table(20);
    let read = std::panic::AssertUnwindSafe(|| table.read_all(|_| panic!("in a reader")));
    assert!(std::panic::catch_unwind(read).is_err());
    assert!(push_out(&table, 100..110) > 0);
    let mut alive = 0;
    let gone = table.read_all(|entry| alive += entry.count.load(Ordering::Relaxed));
    assert_eq!(alive + gone.retired, 20);
}

#[test]
fn concurrent_readings_in_steps_are_exact_and_block_nobody() {
    const KEYS: u64 = 300;
    let table = idle_table(KEYS);
    let mut readings: Vec<_> = (0..3).map(|_| (table.begin_reading(), 0, None)).collect();
    let mut step = 0;
    while readings.iter().any(|(.., gone)| gone.is_none()) {
        for (place, (reading, read, gone)) in readings.iter_mut().enumerate() {
            // Each reading runs at a different pace.
            if gone.is_none() && step % (place + 1) == 0 {
                let mut add = |entry: &Arc<Counter>| *read += entry.count.load(Ordering::Relaxed);
                *gone = table.read_some(reading, 16, &mut add);
            }
        }
        step += 1;
        push_out(&table, 10_000 * step as u64..10_000 * step as u64 + 5);
        // A complete reading does not wait for readings that have not ended.
        let mut alive = 0;
        let all = table.read_all(|entry| alive += entry.count.load(Ordering::Relaxed));
        assert_eq!(alive + all.retired, KEYS);
    }
    for (place, (_, read, gone)) in readings.into_iter().enumerate() {
        assert_eq!(read + gone.unwrap().retired, KEYS, "reading {place}");
    }
    assert!(table.writer.lock().readers.is_empty());
}

#[test]
fn a_step_is_bounded_and_an_ended_reading_leaves_nothing() {
    let table = idle_table(100);
    let mut reading = table.begin_reading();
    let mut read = 0;
    assert!(
        table
            .read_some(&mut reading, 16, &mut |_| read += 1)
            .is_none()
    );
    assert_eq!(read, 16);
    table.end_reading(&reading);
    assert!(table.writer.lock().readers.is_empty());
}
