//! The turn to look for a place where a table is full: one new key at a time.
//!
//! At its bound a flood of new keys must not queue up for the lock of a table. So a call that makes
//! a new key first takes the turn, which tells which key it is:
//!
//! ```text
//! the turn is free              takes it and the lock, and makes the key if it finds a place
//! it is of the same key         waits for that call, and finds the made key
//! it is of another key          looks for its own key again, and does not wait
//! ```
//!
//! So a call finds no place only if its key had none when it looked: the turn was another key's
//! then, and a call that sees that turn also sees every key that was made before it.

use crate::base::sync::{AtomicU64, Bug, Lock, Ordering, planted};

/// The turn is free: no call looks for a place.
const FREE: u64 = 0;

/// The mark of the key that a place is looked for, or [`FREE`].
#[derive(Debug)]
pub(super) struct TableTurn(AtomicU64);

/// Ends a turn.
struct TurnGuard<'a>(&'a TableTurn);

impl TableTurn {
    pub(super) const FIRST_MARK: u64 = FREE + 1;

    pub(super) fn new() -> Self {
        Self(AtomicU64::new(FREE))
    }

    /// The result of `find`, or that of `make` under the lock of `writer`; `None` if it makes
    /// nothing, or another key has the turn. `mark` is a hash of the key, not [`FREE`]. The turn
    /// matters only where the table `is_full`.
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
        // Whose turn it was has found no place, unless it still waits for this lock.
        if is_of_same && self.0.load(Ordering::Relaxed) != mark {
            return None;
        }
        let made = make(&mut guard);
        // In this order: a call that meets another turn need not wait for the lock.
        drop(guard);
        drop(turn);
        made
    }

    /// The turn, or the mark of the key that has it. Acquire: pairs with the release at the end of
    /// a turn, also of those before the one that is seen, as each is taken by a swap.
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
    //! Two calls of one new name where a table is full.

    use super::*;
    use crate::base::sync::Arc;

    const KEYS: [u64; 2] = [1, 2];

    /// A table that is full and has a place for every key that looks for one.
    struct Full {
        turn: TableTurn,
        writer: Lock<()>,
        /// Whether each key is there.
        map: [AtomicU64; 2],
    }

    impl Full {
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

    /// Both get the place, although one of them looks for that of another name next.
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
