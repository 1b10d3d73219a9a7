//! A bounded table of named things that many threads find without a lock.
//!
//! Finding a known key takes no lock and allocates nothing. A new key takes the writer's lock. At
//! the bound it also needs the place of an idle entry. If there is none, or if another key is just
//! [looking](super::turn) for one, the new key gets no place, and its caller counts the call with
//! everything else that has no place.
//!
//! # Eviction
//!
//! Each new key at the bound looks at the next few entries, as the hand of a clock goes round. An
//! idle entry leaves the map and waits *in limbo* until no thread holds it any more, as a call that
//! found it just before will still count on it. Only then are its counts added to the sum of the
//! retired: no count is lost, and none is added twice. If its key is called again before that, the
//! entry comes back as it was. So an entry with a call in flight is never evicted. Nor is an entry
//! that shares its node with the entry that it replaced, while calls of that one are in flight.
//!
//! # Reading all entries
//!
//! An entry keeps its slot for as long as it lives, in limbo too, and an entry that replaces it
//! takes the slot over. So a reader goes through the slots from the first to the last, and where it
//! stands says which entries it has read. It holds a few at a time, and the others can be evicted
//! meanwhile: one that leaves before the reader has come to it is added to the reader's own sum of
//! the retired, and one that comes meanwhile, whose number is higher, is left to the next reader.
//! So each entry is read or retired, and none is both. Any number of readers may be under way.

mod places;
mod reading;
pub(super) mod settle;

use std::fmt;
use std::hash::Hash;

use papaya::HashMap;

use super::turn::TableTurn;
use crate::base::sync::{Arc, AtomicU32, Lock, Ordering};
use crate::clock::Tick;

/// How many entries a new key looks at for one that it may replace: few, as it holds the lock.
const LOOKS: usize = 16;
/// How many evicted entries may wait for their last holder: each new key at the bound visits all.
const LIMBO: usize = 64;
/// How many entries a reader of all holds at a time: a new key finds others to replace.
const READ_AT_ONCE: usize = LOOKS / 2;
/// How many slots a reader passes while it has the lock, however many of them are empty: new keys
/// wait for that lock.
const PASSED_AT_ONCE: usize = 256;
/// The slot of an entry that has left the map.
const UNLISTED: u32 = u32::MAX;

/// An entry of a table.
pub(crate) trait Resident: Send + Sync + 'static {
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// The sum of the counts of evicted entries.
    type Sum: Default + Clone + Send + fmt::Debug;

    fn key(&self) -> &Self::Key;

    fn place(&self) -> &TablePlace;

    /// Returns whether the entry was neither evicted nor replaced, so that a call that found it
    /// long ago may count on it. The answer may be out of date at once: an entry that leaves
    /// meanwhile stays in limbo while the call holds it.
    #[inline]
    fn is_listed(&self) -> bool {
        self.place().index.load(Ordering::Relaxed) != UNLISTED
    }

    /// Returns whether the entry can go: no rule stands on it, and it has not been used for so long
    /// that nothing it counted matters any more.
    fn is_idle(&self, now: Tick) -> bool;

    /// Adds the counts of the entry.
    fn retire(&self, sum: &mut Self::Sum);
}

/// Where a table keeps an entry. Written under the writer's lock.
#[derive(Debug, Default)]
pub(crate) struct TablePlace {
    /// Where the writer finds the entry in its list.
    index: AtomicU32,
}

/// See the [module](self).
pub(crate) struct Table<V: Resident> {
    map: HashMap<V::Key, Arc<V>, foldhash::quality::RandomState>,
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
    gone: Gone<V::Sum>,
    /// The number of the next entry or reading: whatever has a lower one came before.
    next_number: u64,
    readers: Vec<TableReader<V::Sum>>,
}

#[derive(Debug)]
struct TableSlot<V> {
    entry: Option<Arc<V>>,
    /// Entries and readings are numbered in the order in which they came.
    number: u64,
}

/// The sum of the entries that have left a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone<S> {
    pub(crate) retired: S,
    pub(crate) evicted: u64,
}

/// How far a reading of all entries has come.
#[derive(Debug)]
struct TableReader<S> {
    /// When the reading began, as a number.
    number: u64,
    /// The next slot to look at.
    next: usize,
    /// The entries that had left before the reading came to them.
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
