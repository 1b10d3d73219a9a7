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

pub(super) mod settle;

use std::fmt;
use std::hash::{BuildHasher, Hash};

use papaya::{Equivalent, Guard, HashMap, ResizeMode};

use self::settle::settle;
use super::turn::TableTurn;
use crate::base::pace::StepPace;
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

/// A reading of all entries in steps; it must be [ended](Table::end_reading).
#[derive(Debug)]
struct TableReading {
    number: u64,
}

/// Ends a reading, also by a panic.
struct EndReading<'a, V: Resident>(&'a Table<V>, TableReading);

impl<V: Resident> fmt::Debug for Table<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("len", &self.map.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl<V: Resident> Table<V> {
    /// A table of at most `capacity` entries, beside those put in by
    /// [`replace`](Self::replace).
    pub(crate) fn new(capacity: usize) -> Self {
        let hash = foldhash::quality::RandomState::default();
        Self {
            // Not incremental: a table that grew once and is only read then
            // would stay slow.
            map: HashMap::builder()
                .hasher(hash.clone())
                .resize_mode(ResizeMode::Blocking)
                .build(),
            hash,
            writer: Lock::new(Writer {
                slots: Vec::new(),
                free: Vec::new(),
                hand: 0,
                limbo: Vec::new(),
                gone: Gone::default(),
                next_number: 0,
                readers: Vec::new(),
            }),
            turn: TableTurn::new(),
            capacity,
        }
    }

    /// Keeps entries from being freed while a reader looks at them.
    #[inline]
    pub(crate) fn guard(&self) -> impl Guard + '_ {
        self.map.guard()
    }

    /// Runs `f` with the entry of `key`, if there is one.
    #[inline]
    pub(crate) fn find<Q, R>(&self, key: &Q, f: impl FnOnce(&Arc<V>) -> R) -> Option<R>
    where
        Q: Equivalent<V::Key> + Hash + ?Sized,
    {
        self.map.get(key, &self.guard()).map(f)
    }

    /// The entry of `key`, made by `make` if there is none; `None` if there is
    /// no place for it.
    #[cold]
    pub(crate) fn find_or_make<Q>(
        &self,
        key: &Q,
        now: Tick,
        make: impl FnOnce() -> V,
    ) -> Option<Arc<V>>
    where
        Q: Equivalent<V::Key> + Hash + ?Sized,
    {
        self.find_or_make_shared(key, now, || Arc::new(make()))
    }

    /// Finds or makes an entry to which others have weak references. A use by such a reference must
    /// not keep the entry from being [idle](Resident::is_idle), or the user must find the entry
    /// again by its key: an entry that is used during its eviction comes back as another `Arc`, to
    /// which the weak reference does not lead.
    pub(crate) fn find_or_make_shared<Q>(
        &self,
        key: &Q,
        now: Tick,
        make: impl FnOnce() -> Arc<V>,
    ) -> Option<Arc<V>>
    where
        Q: Equivalent<V::Key> + Hash + ?Sized,
    {
        let insert = |writer: &mut Writer<V>| {
            let (entry, slot) = match writer.recall(key) {
                Some(recalled) => recalled,
                None if writer.len() < self.capacity || self.make_room(writer, now) => {
                    (make(), writer.free_slot())
                }
                None => return None,
            };
            self.map.pin().insert(entry.key().clone(), entry.clone());
            writer.list(slot, entry.clone());
            Some(entry)
        };
        let mark = self.hash.hash_one(key).max(TableTurn::FIRST_MARK);
        let is_full = self.map.len() >= self.capacity;
        let find = || self.find(key, Arc::clone);
        self.turn
            .find_or_make(mark, &self.writer, is_full, find, insert)
    }

    /// Puts `change(old)` in the place of the entry of `key`, or in a new place if there is no such
    /// entry, at any size of the table. Where the table is full, it first tries to evict an idle
    /// entry, so the entries beyond the bound are in use. Returns the new entry and the old one.
    pub(crate) fn replace<Q>(
        &self,
        key: &Q,
        now: Tick,
        change: impl FnOnce(Option<&Arc<V>>) -> V,
    ) -> (Arc<V>, Option<Arc<V>>)
    where
        Q: Equivalent<V::Key> + Hash + ?Sized,
    {
        let mut writer = self.writer.lock();
        let (old, slot) = match writer.recall(key) {
            Some((old, slot)) => (Some(old), Some(slot)),
            None => (self.find(key, Arc::clone), None),
        };
        let entry = Arc::new(change(old.as_ref()));
        let listed = old.as_ref().filter(|old| old.is_listed());
        let slot = match (slot, listed) {
            (Some(slot), _) => slot,
            (None, Some(old)) => old.place().index.load(Ordering::Relaxed) as usize,
            (None, None) => {
                if writer.len() >= self.capacity {
                    self.make_room(&mut writer, now);
                }
                writer.free_slot()
            }
        };
        self.map.pin().insert(entry.key().clone(), entry.clone());
        // Makes the map let go of the old entry, so that the node that both share belongs to the
        // new one alone as soon as no call uses the old one.
        self.map.guard().flush();
        if let Some(old) = listed {
            old.place().index.store(UNLISTED, Ordering::Relaxed);
        }
        // A reading that has come to the old one need not come to the new one.
        writer.list(slot, entry.clone());
        (entry, old)
    }

    /// Evicts an idle entry, if it finds one, and settles the entries in limbo. Returns whether
    /// there is a place for one more entry.
    fn make_room(&self, writer: &mut Writer<V>, now: Tick) -> bool {
        for _ in 0..LOOKS.min(writer.slots.len()) {
            if writer.limbo.len() >= LIMBO {
                break;
            }
            writer.hand %= writer.slots.len();
            let slot = writer.hand;
            let entry = writer.slots[slot].entry.as_ref();
            // The map and this list hold it. Any further reference means that it is in use.
            let may_go = entry.filter(|entry| {
                entry.is_listed() && Arc::strong_count(entry) <= 2 && entry.is_idle(now)
            });
            writer.hand += 1;
            if let Some(entry) = may_go {
                self.map.pin().remove(entry.key());
                writer.take(slot);
                break;
            }
        }
        // Make the map let go of the entries that it has removed.
        self.map.guard().flush();
        for slot in std::mem::take(&mut writer.limbo) {
            let Some(entry) = writer.slots[slot].entry.take() else {
                continue;
            };
            match settle(entry, |it| it.is_idle(now), |it| writer.retire(slot, it)) {
                Ok(()) => writer.free.push(slot),
                Err(entry) => {
                    writer.slots[slot].entry = Some(entry);
                    writer.limbo.push(slot);
                }
            }
        }
        writer.len() < self.capacity
    }

    /// How many entries have a place, those in limbo included, and how many were evicted.
    #[cfg(feature = "observe")]
    pub(crate) fn places(&self) -> (usize, u64) {
        let writer = self.writer.lock();
        (writer.len(), writer.gone.evicted)
    }

    /// How many entries the table has.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Calls `read` once with every entry that was there when it began, but for those that leave
    /// before it comes to them. Returns the sum of the entries that have left: these, and all that
    /// had left before it began. Calls, new keys and other readers do not wait for it.
    pub(crate) fn read_all(&self, mut read: impl FnMut(&Arc<V>)) -> Gone<V::Sum> {
        let mut reading = EndReading(self, self.begin_reading());
        loop {
            let read = self.read_some(&mut reading.1, usize::MAX, &mut read);
            if let Some(gone) = read {
                return gone;
            }
        }
    }

    /// Reads all entries in steps of `pace`; each entry costs `work`. Entries may leave and come
    /// between two steps, and no thread waits for a reading that pauses.
    pub(crate) async fn read_paced(
        &self,
        pace: &mut StepPace,
        work: usize,
        read: &mut (dyn FnMut(&Arc<V>) + Send),
    ) -> Gone<V::Sum> {
        let mut reading = EndReading(self, self.begin_reading());
        loop {
            let most = pace.left().div_ceil(work);
            let mut count = 0;
            let gone = self.read_some(&mut reading.1, most, &mut |entry| {
                count += 1;
                read(entry);
            });
            pace.spend(work.saturating_mul(count).max(1)).await;
            if let Some(gone) = gone {
                return gone;
            }
        }
    }

    /// Begins a reading of all entries in steps. Entries leave and come between its steps.
    fn begin_reading(&self) -> TableReading {
        let mut writer = self.writer.lock();
        let number = writer.next_number();
        let gone = writer.gone.clone();
        writer.readers.push(TableReader {
            number,
            next: 0,
            gone,
        });
        TableReading { number }
    }

    /// The next step of `reading`: calls `read` with about `most` entries, or with all that are
    /// left. Returns the sum of those that have left once there are none.
    fn read_some(
        &self,
        reading: &mut TableReading,
        most: usize,
        read: &mut dyn FnMut(&Arc<V>),
    ) -> Option<Gone<V::Sum>> {
        let mut few = Vec::with_capacity(READ_AT_ONCE);
        let mut left = most;
        loop {
            let gone = self.writer.lock().give_few(reading.number, &mut few);
            if gone.is_some() {
                return gone;
            }
            // Passing slots that are empty is work, too.
            left = left.saturating_sub(few.len().max(1));
            few.drain(..).for_each(|entry| read(&entry));
            if left == 0 {
                return None;
            }
        }
    }

    /// Ends `reading`, if it is not over.
    fn end_reading(&self, reading: &TableReading) {
        let mut writer = self.writer.lock();
        writer.readers.retain(|it| it.number != reading.number);
    }
}

impl<V: Resident> Drop for EndReading<'_, V> {
    fn drop(&mut self) {
        self.0.end_reading(&self.1);
    }
}

impl<V: Resident> Writer<V> {
    /// How many entries there are, with those in limbo.
    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Takes the entry of `key` out of limbo, if it waits there. Returns it and its slot.
    fn recall<Q>(&mut self, key: &Q) -> Option<(Arc<V>, usize)>
    where
        Q: Equivalent<V::Key> + ?Sized,
    {
        let mut limbo = self.limbo.iter();
        let has_key = |slot: &usize| {
            let entry = self.slots[*slot].entry.as_ref();
            entry.is_some_and(|entry| key.equivalent(entry.key()))
        };
        let slot = limbo.position(has_key)?;
        let slot = self.limbo.swap_remove(slot);
        Some((self.slots[slot].entry.clone()?, slot))
    }

    /// A slot for a new entry.
    fn free_slot(&mut self) -> usize {
        let number = self.next_number();
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let new = TableSlot {
            entry: None,
            number,
        };
        match self.slots.get_mut(slot) {
            Some(free) => *free = new,
            None => self.slots.push(new),
        }
        slot
    }

    /// Puts `entry` into `slot`.
    fn list(&mut self, slot: usize, entry: Arc<V>) {
        entry.place().index.store(slot as u32, Ordering::Relaxed);
        self.slots[slot].entry = Some(entry);
    }

    /// Moves the entry in `slot`, which has left the map, to limbo.
    fn take(&mut self, slot: usize) {
        if let Some(entry) = &self.slots[slot].entry {
            entry.place().index.store(UNLISTED, Ordering::Relaxed);
            self.limbo.push(slot);
        }
    }

    /// Adds the counts of `entry`, which leaves `slot`.
    fn retire(&mut self, slot: usize, entry: &V) {
        let number = self.slots[slot].number;
        // The readings that began after the entry came, and that have not read its slot yet: they
        // get its counts here.
        let unread = self.readers.iter_mut();
        let unread = unread.filter(|reader| number < reader.number && slot >= reader.next);
        for gone in unread.map(|it| &mut it.gone).chain([&mut self.gone]) {
            entry.retire(&mut gone.retired);
            gone.evicted += 1;
        }
    }

    /// Adds to `few` some entries that the reading `number` has not read. If none are left, ends
    /// the reading and returns the sum of the entries that have left.
    fn give_few(&mut self, number: u64, few: &mut Vec<Arc<V>>) -> Option<Gone<V::Sum>> {
        let place = self.readers.iter().position(|it| it.number == number)?;
        let reader = &mut self.readers[place];
        let rest = self.slots.get(reader.next..).unwrap_or_default();
        for slot in rest.iter().take(PASSED_AT_ONCE) {
            if few.len() == READ_AT_ONCE {
                break;
            }
            reader.next += 1;
            let unread = slot.entry.iter().filter(|_| slot.number < number);
            few.extend(unread.cloned());
        }
        let is_over = few.is_empty() && reader.next >= self.slots.len();
        is_over.then(|| self.readers.swap_remove(place).gone)
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
