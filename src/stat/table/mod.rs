//! A bounded table of named entries that many threads find without a lock.
//!
//! Finding a known key takes no lock and allocates nothing. Adding a new key takes the writer's
//! lock. In a full table, a new key must also evict an idle entry. It gets no place if there is no
//! idle entry, or if another key is [looking](super::turn) for one at the same time. The caller
//! then counts the call together with all calls of keys without a place.
//!
//! # Eviction
//!
//! Each new key of a full table looks at the next few entries with the clock algorithm: a *hand*
//! goes round the slots. An idle entry leaves the map and waits *in limbo* until no thread holds it
//! any more, because a call that found it just before still adds to its counts. Only then are its
//! counts added to the sum of the retired entries: no count is lost, and none is added twice. If
//! its key is called again before that, the same entry comes back. So the counts of an entry with a
//! call in flight are never lost. An entry that replaced another entry shares its node, and is not
//! evicted while calls of the replaced entry are in flight.
//!
//! # Reading all entries
//!
//! An entry keeps its slot for as long as it lives, also in limbo, and an entry that replaces it
//! takes over the slot. A reader goes through the slots from the first to the last, so its position
//! shows which entries it has read. It holds a few entries at a time, and all other entries can be
//! evicted meanwhile. If an entry leaves before the reader comes to it, its counts are added to
//! this reader's sum of retired entries. An entry that is added meanwhile has a higher number than
//! the reader, so the reader skips it. So each entry is either read or retired, never both. Any
//! number of readers can be active.

mod places;
mod reading;
pub(super) mod settle;

use std::fmt;
use std::hash::Hash;

use papaya::HashMap;

use super::turn::TableTurn;
use crate::base::sync::{Arc, AtomicU32, Lock, Ordering};
use crate::clock::Tick;

/// The number of entries that a new key checks in search of an idle one: few, because it holds the
/// lock meanwhile.
const LOOKS: usize = 16;
/// The maximum number of entries in limbo: few, because each new key of a full table visits all of
/// them.
const LIMBO: usize = 64;
/// The number of entries that a reader holds at a time: fewer than `LOOKS`, so that a new key finds
/// entries that are not held.
const READ_AT_ONCE: usize = LOOKS / 2;
/// The maximum number of slots, including empty ones, that a reader passes while it holds the lock,
/// for which new keys wait.
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

    /// Returns whether the entry has been neither evicted nor replaced, so that a caller that has
    /// kept it may still add to its counts. The answer can be outdated at once. This does no harm,
    /// because an entry that leaves stays in limbo while the caller holds it.
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
    /// Hashes keys to the marks that identify them in the turn.
    hash: foldhash::quality::RandomState,
    /// The state that changes when an entry is added or leaves.
    writer: Lock<Writer<V>>,
    /// The turn of the new key that looks for a place in the full table.
    turn: TableTurn,
    /// The maximum number of entries, apart from those put in by `replace`.
    capacity: usize,
}

/// The state of a table that only the holder of the writer's lock changes.
#[derive(Debug)]
struct Writer<V: Resident> {
    /// The slots, by index; a reading goes through them in this order.
    slots: Vec<TableSlot<V>>,
    /// The slots without an entry.
    free: Vec<usize>,
    /// The slot at which the next search for an idle entry begins.
    hand: usize,
    /// The slots of the entries in limbo.
    limbo: Vec<usize>,
    /// The sum of all retired entries.
    gone: Gone<V::Sum>,
    /// The number of the next entry or reading. Entries and readings with lower numbers came
    /// before.
    next_number: u64,
    /// The readings in progress.
    readers: Vec<TableReader<V::Sum>>,
}

/// A slot of the writer's list.
#[derive(Debug)]
struct TableSlot<V> {
    /// The entry in the map or in limbo; `None` if the slot is free.
    entry: Option<Arc<V>>,
    /// The number of the entry; see [`Writer::next_number`].
    number: u64,
}

/// The sum of entries that have left a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone<S> {
    /// The sum of the counts of the entries.
    pub(crate) retired: S,
    /// The number of the entries.
    pub(crate) evicted: u64,
}

/// The progress of a reading of all entries.
#[derive(Debug)]
struct TableReader<S> {
    /// The number of the reading.
    number: u64,
    /// The next slot to look at.
    next: usize,
    /// The sum of the entries that were retired before the reading came to them.
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
