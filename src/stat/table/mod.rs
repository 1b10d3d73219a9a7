//! A bounded table of named entries that many threads find without a lock.
//!
//! Finding a known key takes no lock and allocates nothing. A new key takes the writer's lock. At
//! the bound it also needs the place of an idle entry. It gets none if there is no idle entry, or
//! if another key is [looking](super::turn) for one at the same time. Then its caller counts the
//! call together with all calls of keys without a place.
//!
//! # Eviction
//!
//! Each new key at the bound looks at the next few entries, in clock order: a *hand* goes round the
//! slots. An idle entry leaves the map and waits *in limbo* until no thread holds it any more,
//! because a call that found it just before still counts on it. Only then are its counts added to
//! the sum of the retired entries: no count is lost, and none is added twice. If its key is called
//! again before that, the same entry comes back. So an entry with a call in flight is never
//! evicted. An entry that replaced another one shares its node, and is not evicted while calls of
//! the replaced entry are in flight.
//!
//! # Reading all entries
//!
//! An entry keeps its slot for as long as it lives, in limbo too, and an entry that replaces it
//! takes the slot over. So a reader goes through the slots from the first to the last, and its
//! position tells which entries it has read. It holds a few entries at a time, and all others can
//! be evicted meanwhile. The counts of an entry that leaves before the reader comes to it are added
//! to the reader's own sum of retired entries. An entry that is added meanwhile has a higher number
//! than the reader, and is left to later readers. So each entry is either read or retired, never
//! both. Any number of readers can be active.

mod places;
mod reading;
pub(super) mod settle;

use std::fmt;
use std::hash::Hash;

use papaya::HashMap;

use super::turn::TableTurn;
use crate::base::sync::{Arc, AtomicU32, Lock, Ordering};
use crate::clock::Tick;

/// How many entries a new key checks for one to replace: few, because it holds the lock meanwhile.
const LOOKS: usize = 16;
/// How many evicted entries may wait for their last holder: few, because each new key at the bound
/// visits all of them.
const LIMBO: usize = 64;
/// How many entries a reader holds at a time: fewer than `LOOKS`, so that a new key finds others to
/// replace.
const READ_AT_ONCE: usize = LOOKS / 2;
/// How many slots, empty ones included, a reader passes while it holds the lock: new keys wait for
/// that lock.
const PASSED_AT_ONCE: usize = 256;
/// The slot index of an entry that has left the map.
const UNLISTED: u32 = u32::MAX;

/// An entry of a table.
pub(crate) trait Resident: Send + Sync + 'static {
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// The sum type for the counts of evicted entries.
    type Sum: Default + Clone + Send + fmt::Debug;

    fn key(&self) -> &Self::Key;

    fn place(&self) -> &TablePlace;

    /// Returns whether the entry has been neither evicted nor replaced, so that a call that found
    /// it long ago may still count on it. The answer can be outdated at once; that does no harm,
    /// because an entry that leaves meanwhile stays in limbo while the call holds it.
    #[inline]
    fn is_listed(&self) -> bool {
        self.place().index.load(Ordering::Relaxed) != UNLISTED
    }

    /// Returns whether the entry can be evicted: no rule depends on it, and it has been unused for
    /// so long that its counts no longer matter.
    fn is_idle(&self, now: Tick) -> bool;

    /// Adds the counts of the entry to `sum`.
    fn retire(&self, sum: &mut Self::Sum);
}

/// The slot in which a table keeps an entry. Written under the writer's lock.
#[derive(Debug, Default)]
pub(crate) struct TablePlace {
    /// The index of the entry's slot in the writer's list.
    index: AtomicU32,
}

/// A bounded table: see the [module](self).
pub(crate) struct Table<V: Resident> {
    map: HashMap<V::Key, Arc<V>, foldhash::quality::RandomState>,
    /// Hashes keys to the marks by which the turn knows them.
    hash: foldhash::quality::RandomState,
    writer: Lock<Writer<V>>,
    turn: TableTurn,
    capacity: usize,
}

#[derive(Debug)]
struct Writer<V: Resident> {
    slots: Vec<TableSlot<V>>,
    /// The slots without an entry.
    free: Vec<usize>,
    /// The slot at which the next search for an idle entry begins.
    hand: usize,
    /// The slots of the entries in limbo.
    limbo: Vec<usize>,
    /// The sum of the entries that have left the table.
    gone: Gone<V::Sum>,
    /// The number of the next entry or reading. Entries and readings with lower numbers came
    /// before.
    next_number: u64,
    /// The readings in progress.
    readers: Vec<TableReader<V::Sum>>,
}

#[derive(Debug)]
struct TableSlot<V> {
    entry: Option<Arc<V>>,
    /// The number of the entry; see [`Writer::next_number`].
    number: u64,
}

/// The sum of the entries that have left a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone<S> {
    /// The counts of these entries.
    pub(crate) retired: S,
    /// The number of entries that were evicted.
    pub(crate) evicted: u64,
}

/// The progress of a reading of all entries.
#[derive(Debug)]
struct TableReader<S> {
    /// The number of the reading.
    number: u64,
    /// The next slot to look at.
    next: usize,
    /// The sum of the entries that left before the reading came to them.
    gone: Gone<S>,
}

impl<V: Resident> fmt::Debug for Table<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("len", &self.map.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
