//! The turn to look for a place in a full table. Only one new key has it at a time.
//!
//! A flood of new keys must not queue up for the lock of a full table. So a call with a new key
//! first tries to take the turn, which holds a hash of its key:
//!
//! ```text
//! the turn is free              takes it and the lock, and makes the key if it finds a place
//! it is of the same key         waits for that call, and finds the key if it was made
//! it is of another key          looks for its own key again, and does not wait
//! ```
//!
//! So a call gets no place only if its key had none when the call looked. A call that sees another
//! key's turn also sees every key that was made before that turn.

use crate::base::sync::{AtomicU64, Bug, Lock, Ordering, planted};

/// The mark of a free turn: no call looks for a place.
const FREE: u64 = 0;

/// The mark of the key that has the turn, or [`FREE`].
#[derive(Debug)]
pub(super) struct TableTurn(AtomicU64);

/// Ends a turn when dropped.
struct TurnGuard<'a>(&'a TableTurn);

impl TableTurn {
    /// The smallest mark of a key.
    pub(super) const FIRST_MARK: u64 = FREE + 1;

    pub(super) fn new() -> Self {
        Self(AtomicU64::new(FREE))
    }

    /// Locks `writer` and returns the result of `find` or, if `find` finds nothing, the result of
    /// `make`. If another key has the turn, only calls `find`, without the lock. `mark` is a hash
    /// of the key, and never [`FREE`]. The turn is taken only if the table `is_full`.
    pub(super) fn find_or_make<W, T>(
        &self,
        mark: u64,
        writer: &Lock<W>,
        is_full: bool,
        find: impl Fn() -> Option<T>,
        make: impl FnOnce(&mut W) -> Option<T>,
    ) -> Option<T> {
        let (mut turn, mut is_of_same) = (None, false);
        if is_full {
            match self.take(mark) {
                Ok(taken) => turn = Some(taken),
                Err(other) if other == mark && !planted(Bug::SameKeyIsAnother) => is_of_same = true,
                Err(_) if planted(Bug::PlaceWithoutSecondLook) => return None,
                Err(_) => return find(),
            }
        }
        let mut guard = writer.lock();
        if let Some(found) = find() {
            return Some(found);
        }
        // Another call of the same key had the turn. If its turn has ended, it has found no place.
        if is_of_same && self.0.load(Ordering::Relaxed) != mark {
            return None;
        }
        let made = make(&mut guard);
        // The lock is released before the turn ends, so the next call that takes the turn finds the
        // lock free.
        drop(guard);
        drop(turn);
        made
    }

    /// Takes the turn, or returns the mark of the key that has it. Acquire: pairs with the release
    /// at the end of a turn. Each turn is taken by a swap, so earlier turns are included.
    fn take(&self, mark: u64) -> Result<TurnGuard<'_>, u64> {
        self.0
            .compare_exchange(FREE, mark, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| TurnGuard(self))
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, sentinel_loom))]
pub(super) mod models {
    //! A model of two calls with the same new key on a full table.

    use super::*;
    use crate::base::sync::Arc;

    const KEYS: [u64; 2] = [1, 2];

    /// A table that is treated as full, but has a place for every key.
    struct Full {
        turn: TableTurn,
        writer: Lock<()>,
        /// 1 for each key that is in the table.
        map: [AtomicU64; 2],
    }

    impl Full {
        /// Finds or makes the entry of `key`, as a call does.
        fn call(&self, key: u64) -> Option<u64> {
            let place = &self.map[key as usize - 1];
            let find = || (place.load(Ordering::Relaxed) == 1).then_some(key);
            let make = |(): &mut ()| {
                place.store(1, Ordering::Relaxed);
                Some(key)
            };
            let found = find();
            found.or_else(|| self.turn.find_or_make(key, &self.writer, true, find, make))
        }
    }

    /// Both calls of the first key must get its place, although one of the threads then looks for a
    /// place for the second key.
    pub(in crate::stat) fn one_name_twice() {
        let full = Arc::new(Full {
            turn: TableTurn::new(),
            writer: Lock::new(()),
            map: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let other = full.clone();
        let first = loom::thread::spawn(move || KEYS.map(|key| other.call(key))[0]);
        let second = full.call(KEYS[0]);
        let both = [first.join().unwrap(), second];
        assert_eq!(both, [Some(KEYS[0]); 2], "judged without its place");
    }
}
