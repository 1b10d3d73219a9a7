//! Keeps breakers that are not closed, of resources that have been evicted from the table.
//!
//! A resource that has not been called for long loses its place in the table. A breaker of the
//! resource may still be open then: its open time is over, but only a call can show whether the
//! called service works again. So the breaker is kept here, with its state, its counts and the
//! number of failed probes, until the resource is called again. If there are too many breakers, the
//! breakers that have been kept longest are dropped.

use std::collections::{HashMap, VecDeque};

use super::Breakers;
use crate::base::sync::{AtomicU32, Lock, Ordering};

/// The maximum number of kept breakers, of all resources together. They take less than three
/// megabytes.
const MOST: usize = 4_096;

/// Identifies a resource: a hash of its name and direction.
pub(crate) type NameHash = [u64; 2];

/// The kept breakers of an engine: see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct KeptBreakers {
    kept: Lock<Kept>,
    /// The number of kept breakers, which a call that creates a resource reads without the lock.
    count: AtomicU32,
}

/// The kept breakers, behind the lock.
#[derive(Debug, Default)]
struct Kept {
    /// The breakers of each resource, with a number in the order of arrival.
    by_name: HashMap<NameHash, (u64, Breakers)>,
    /// The resources, oldest first: by ascending number.
    by_number: VecDeque<(u64, NameHash)>,
    /// The number of the next resource that arrives.
    next: u64,
    /// The number of breakers of all resources.
    count: usize,
}

// === impl KeptBreakers ===

impl KeptBreakers {
    /// Keeps the breakers of the resource `name`, which leaves the table, unless all are closed.
    pub(crate) fn keep(&self, name: NameHash, breakers: &Breakers) {
        if breakers.are_closed() {
            return;
        }
        let mut kept = self.kept.lock();
        kept.add(name, breakers.clone());
        while kept.count > MOST {
            kept.remove_oldest();
        }
        self.count.store(kept.count as u32, Ordering::Relaxed);
    }

    /// Removes and returns the breakers of the resource `name`, which gets a place in the table
    /// again.
    pub(crate) fn take(&self, name: impl FnOnce() -> NameHash) -> Option<Breakers> {
        // Relaxed: `keep` and `take` run under the lock with which the table creates and evicts
        // resources.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut kept = self.kept.lock();
        let taken = kept.remove(&name());
        self.count.store(kept.count as u32, Ordering::Relaxed);
        taken
    }
}

impl Kept {
    /// Adds the breakers of `name` as the newest ones.
    fn add(&mut self, name: NameHash, breakers: Breakers) {
        self.remove(&name);
        self.count += breakers.len();
        self.by_name.insert(name, (self.next, breakers));
        self.by_number.push_back((self.next, name));
        self.next += 1;
    }

    /// Removes and returns the breakers of `name`.
    fn remove(&mut self, name: &NameHash) -> Option<Breakers> {
        let (number, breakers) = self.by_name.remove(name)?;
        let numbered = self
            .by_number
            .binary_search_by_key(&number, |&(own, _)| own);
        if let Ok(at) = numbered {
            self.by_number.remove(at);
        }
        self.count -= breakers.len();
        Some(breakers)
    }

    /// Drops the breakers that have been kept longest.
    fn remove_oldest(&mut self) {
        if let Some((_, name)) = self.by_number.pop_front() {
            self.remove(&name);
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;
    use crate::breaker::tests::stage::{Stage, spec};

    /// Creates `count` breakers. The first breaker is open if `is_open`.
    fn breakers(count: usize, is_open: bool) -> Breakers {
        let stage = Stage::new((0..count).map(|_| spec()));
        if is_open {
            stage.breakers.force_open(0, &mut |_| {});
        }
        stage.breakers
    }

    #[test]
    fn kept_breakers_are_bounded_and_the_oldest_go_first() {
        let kept = KeptBreakers::default();
        let name = |number: usize| [number as u64, 7];
        let each = 4;
        let all = MOST / each;
        for number in 0..all {
            kept.keep(name(number), &breakers(each, true));
        }
        // Breakers that are kept again count as the newest.
        assert!(kept.take(|| name(0)).is_some());
        assert!(kept.take(|| name(0)).is_none());
        kept.keep(name(0), &breakers(each, true));
        kept.keep(name(all), &breakers(1, true));
        assert!(kept.take(|| name(1)).is_none(), "it was the oldest");
        for number in (2..=all).chain([0]) {
            assert!(kept.take(|| name(number)).is_some(), "{number}");
        }
        assert_eq!(kept.count.load(Ordering::Relaxed), 0);
        assert!(kept.kept.lock().by_number.is_empty());
    }

    #[test]
    fn all_kept_breakers_take_less_than_three_megabytes() {
        // The size of one breaker of a typical rule, with its entries in the two collections.
        let entry = 2 * (size_of::<NameHash>() + size_of::<(u64, Breakers)>());
        let each = breakers(1, true).footprint() + entry;
        println!("{each} bytes each");
        assert!(MOST * each < 3 << 20, "{each} bytes each");
    }

    #[test]
    fn breakers_kept_twice_count_once_and_closed_ones_are_not_kept() {
        let kept = KeptBreakers::default();
        kept.keep([1, 1], &breakers(3, false));
        assert!(kept.take(|| [1, 1]).is_none());
        kept.keep([1, 1], &breakers(3, true));
        kept.keep([1, 1], &breakers(2, true));
        assert_eq!(kept.count.load(Ordering::Relaxed), 2);
        assert_eq!(kept.take(|| [1, 1]).map(|it| it.len()), Some(2));
    }
}
