//! A bounded table of named things that many threads find without a lock.
//!
//! Finding a known key takes no lock and allocates nothing. A new key takes the
//! writer's lock; at the bound it takes the place of an idle entry, and if there
//! is none (or another key's call is just [looking](super::turn)), it gets none: its
//! caller counts it with everything else that has no place.
//!
//! # Eviction
//!
//! Each new key at the bound looks at a few entries, a clock's hand going round. An entry that is
//! idle leaves the map and waits *in limbo* until no thread holds it any more: a call that found it
//! just before is still going to count on it. Only then its counts are added to the sum of the
//! retired, so nothing is lost and nothing is counted twice; and if its key comes again before, it
//! comes back as it was. So an entry with a call in flight never goes, nor does one that shares its
//! node with an entry that it has replaced and that has one.
//!
//! # Reading all entries
//!
//! A [reader of all](Table::read_all) holds a few entries at a time, so that the others can be
//! evicted meanwhile. An entry that leaves before the reader has come to it is added to the
//! reader's own sum of the retired instead; one that comes meanwhile is left to the next reader. So
//! each entry is read or retired, and none is both.

pub(super) mod settle;

use std::fmt;
use std::hash::{BuildHasher, Hash};

use papaya::{Equivalent, Guard, HashMap, ResizeMode};

use self::settle::settle;
use super::turn::TableTurn;
use crate::base::sync::{Arc, AtomicU32, Lock, Ordering};
use crate::clock::Tick;

/// How many entries a new key looks at for one that it may replace.
const LOOKS: usize = 16;
/// How many evicted entries may wait for their last holder.
const LIMBO: usize = 64;
/// How many entries a reader of all holds at a time: a new key finds others to replace.
const READ_AT_ONCE: usize = LOOKS / 2;
/// The place of an entry that has left the map.
const UNLISTED: u32 = u32::MAX;

/// An entry of a table.
pub(crate) trait Resident: Send + Sync + 'static {
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// The sum of the counts of evicted entries.
    type Sum: Default + Clone + Send + fmt::Debug;

    fn key(&self) -> &Self::Key;

    fn place(&self) -> &TablePlace;

    /// Whether the entry was neither evicted nor replaced: a call that has found it long ago may
    /// count on it. One that leaves just now is one that was found just before.
    #[inline]
    fn is_listed(&self) -> bool {
        self.place().index.load(Ordering::Relaxed) != UNLISTED
    }

    /// Whether the entry can go: no rule stands on it, and it has not been used for so long that
    /// nothing it counted matters any more.
    fn is_idle(&self, now: Tick) -> bool;

    /// Adds the counts of the entry.
    fn retire(&self, sum: &mut Self::Sum);
}

/// The table's notes on an entry. Written under the writer's lock.
#[derive(Debug, Default)]
pub(crate) struct TablePlace {
    /// Where the writer finds the entry in its list.
    index: AtomicU32,
    /// The last reading of all entries that need not come to this one any more.
    reading: AtomicU32,
}

/// See the [module](self).
pub(crate) struct Table<V: Resident> {
    map: HashMap<V::Key, Arc<V>, foldhash::quality::RandomState>,
    hash: foldhash::quality::RandomState,
    writer: Lock<Writer<V>>,
    turn: TableTurn,
    /// Held by the thread that reads all entries.
    reader: Lock<()>,
    capacity: usize,
}

#[derive(Debug)]
struct Writer<V: Resident> {
    entries: Vec<Arc<V>>,
    hand: usize,
    limbo: Vec<Arc<V>>,
    gone: Gone<V::Sum>,
    /// The number of the reading of all entries that is under way, or was last.
    reading: u32,
    reader: Option<Reader<V::Sum>>,
}

/// The sum of the entries that have left a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone<S> {
    pub(crate) retired: S,
    pub(crate) evicted: u64,
}

/// How far a reading of all entries has come.
#[derive(Debug)]
struct Reader<S> {
    /// The next place to look at.
    next: usize,
    /// Places before that to which others have moved since.
    again: Vec<usize>,
    /// The entries that had left before the reading came to them.
    gone: Gone<S>,
}

/// Ends a reading, also by a panic.
struct EndReading<'a, V: Resident>(&'a Lock<Writer<V>>);

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
                entries: Vec::new(),
                hand: 0,
                limbo: Vec::new(),
                gone: Gone::default(),
                reading: 0,
                reader: None,
            }),
            turn: TableTurn::new(),
            reader: Lock::new(()),
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

    /// The same for an entry to which others have weak references. A use by such a reference keeps no
    /// entry from being [idle](Resident::is_idle), or the user finds it again by its key:
    /// one that is used while it is let go lives on as another one.
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
            let entry = match writer.recall(key) {
                Some(entry) => entry,
                None if writer.len() < self.capacity || self.make_room(writer, now) => {
                    let entry = make();
                    writer.needs_no_reading(&entry);
                    entry
                }
                None => return None,
            };
            self.map.pin().insert(entry.key().clone(), entry.clone());
            writer.push(entry.clone());
            Some(entry)
        };
        let mark = self.hash.hash_one(key).max(TableTurn::FIRST_MARK);
        let is_full = self.map.len() >= self.capacity;
        let find = || self.find(key, Arc::clone);
        self.turn
            .find_or_make(mark, &self.writer, is_full, find, insert)
    }

    /// Puts `change(old)` in the place of the entry of `key`, whether there is one or not, at any
    /// size of the table. Beyond the bound an idle entry goes for each that comes, so the entries
    /// beyond it are in use. The second is the old one.
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
        let old = writer.recall(key).or_else(|| self.find(key, Arc::clone));
        let entry = Arc::new(change(old.as_ref()));
        match &old {
            // A reading that has come to the one need not come to the other.
            Some(old) => {
                let reading = old.place().reading.load(Ordering::Relaxed);
                entry.place().reading.store(reading, Ordering::Relaxed);
            }
            None => writer.needs_no_reading(&entry),
        }
        let listed = old.as_ref().filter(|old| old.is_listed());
        if listed.is_none() && writer.len() >= self.capacity {
            self.make_room(&mut writer, now);
        }
        self.map.pin().insert(entry.key().clone(), entry.clone());
        // The shared node shall be the new entry's alone when no call uses the old one.
        self.map.guard().flush();
        if let Some(old) = listed {
            let place = old.place().index.swap(UNLISTED, Ordering::Relaxed);
            entry.place().index.store(place, Ordering::Relaxed);
            writer.entries[place as usize] = entry.clone();
        } else {
            writer.push(entry.clone());
        }
        (entry, old)
    }

    /// Finds a place for one more entry.
    fn make_room(&self, writer: &mut Writer<V>, now: Tick) -> bool {
        for _ in 0..LOOKS.min(writer.entries.len()) {
            if writer.limbo.len() >= LIMBO {
                break;
            }
            writer.hand %= writer.entries.len();
            let entry = &writer.entries[writer.hand];
            // More than the map and this list hold it: it is in use.
            if Arc::strong_count(entry) > 2 || !entry.is_idle(now) {
                writer.hand += 1;
                continue;
            }
            let entry = writer.take(writer.hand);
            self.map.pin().remove(entry.key());
            writer.limbo.push(entry);
            break;
        }
        // Make the map let go of the entries that it has removed.
        self.map.guard().flush();
        let limbo = std::mem::take(&mut writer.limbo);
        writer.limbo = limbo
            .into_iter()
            .filter_map(|entry| {
                let retire = |entry: &V| writer.retire(entry);
                settle(entry, |entry| entry.is_idle(now), retire).err()
            })
            .collect();
        writer.len() < self.capacity
    }

    /// How many entries the table has.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Calls `read` once with every entry that was there when it began, but for those that leave
    /// before it comes to them. Returns the sum of the entries that have left: these, and all that
    /// had left before it began. Calls and new keys wait for no reader, readers of all for each
    /// other. `read` must not read all entries of this table.
    pub(crate) fn read_all(&self, mut read: impl FnMut(&Arc<V>)) -> Gone<V::Sum> {
        let _only = self.reader.lock();
        let _end = EndReading(&self.writer);
        self.writer.lock().begin_reading();
        let mut few = Vec::with_capacity(READ_AT_ONCE);
        loop {
            let gone = self.writer.lock().give_few(&mut few);
            if let Some(gone) = gone {
                return gone;
            }
            few.drain(..).for_each(|entry| read(&entry));
        }
    }
}

impl<V: Resident> Drop for EndReading<'_, V> {
    fn drop(&mut self) {
        self.0.lock().reader = None;
    }
}

impl<V: Resident> Writer<V> {
    fn len(&self) -> usize {
        self.entries.len() + self.limbo.len()
    }

    /// The entry of `key`, if it waits in limbo: out of it.
    fn recall<Q>(&mut self, key: &Q) -> Option<Arc<V>>
    where
        Q: Equivalent<V::Key> + ?Sized,
    {
        let mut limbo = self.limbo.iter();
        let index = limbo.position(|entry| key.equivalent(entry.key()))?;
        Some(self.limbo.swap_remove(index))
    }

    fn push(&mut self, entry: Arc<V>) {
        let index = self.entries.len() as u32;
        entry.place().index.store(index, Ordering::Relaxed);
        self.entries.push(entry);
    }

    fn take(&mut self, place: usize) -> Arc<V> {
        let entry = self.entries.swap_remove(place);
        entry.place().index.store(UNLISTED, Ordering::Relaxed);
        if let Some(moved) = self.entries.get(place) {
            moved.place().index.store(place as u32, Ordering::Relaxed);
        }
        if let Some(reader) = &mut self.reader {
            let moved = self.entries.get(place).filter(|_| place < reader.next);
            let is_unread = moved.is_some_and(|moved| moved.place().is_unread(self.reading));
            reader.again.extend(is_unread.then_some(place));
            reader.next = reader.next.min(self.entries.len());
        }
        entry
    }

    fn retire(&mut self, entry: &V) {
        let unread = self.reader.as_mut();
        let unread = unread.filter(|_| entry.place().is_unread(self.reading));
        for gone in [&mut self.gone]
            .into_iter()
            .chain(unread.map(|it| &mut it.gone))
        {
            entry.retire(&mut gone.retired);
            gone.evicted += 1;
        }
    }

    // --- reading all ---

    fn begin_reading(&mut self) {
        self.reading = self.reading.wrapping_add(1);
        self.reader = Some(Reader {
            next: 0,
            again: Vec::new(),
            gone: self.gone.clone(),
        });
    }

    /// A new entry: a reading that is under way leaves it to the next one.
    fn needs_no_reading(&self, entry: &V) {
        entry.place().claim(self.reading);
    }

    /// Gives the reader some entries that it has not read. If there are none any more, ends the
    /// reading and returns the sum of the entries that have left.
    fn give_few(&mut self, few: &mut Vec<Arc<V>>) -> Option<Gone<V::Sum>> {
        let reader = self.reader.as_mut()?;
        let unread = |entry: &&Arc<V>| entry.place().claim(self.reading);
        let mut is_over = false;
        if !reader.again.is_empty() {
            let from = reader.again.len().saturating_sub(READ_AT_ONCE);
            let again = reader.again.drain(from..);
            let again = again.filter_map(|place| self.entries.get(place));
            few.extend(again.filter(unread).cloned());
        } else if reader.next < self.entries.len() {
            let rest = &self.entries[reader.next..];
            let looked_at = &rest[..rest.len().min(READ_AT_ONCE)];
            reader.next += looked_at.len();
            few.extend(looked_at.iter().filter(unread).cloned());
        } else {
            let limbo = self.limbo.iter().filter(unread);
            few.extend(limbo.take(READ_AT_ONCE).cloned());
            is_over = few.is_empty();
        }
        let reader = if is_over { self.reader.take() } else { None };
        reader.map(|reader| reader.gone)
    }
}

impl TablePlace {
    /// Whether the reading with this number must still come to the entry.
    fn is_unread(&self, reading: u32) -> bool {
        self.reading.load(Ordering::Relaxed) != reading
    }

    /// The same; from now on it need not.
    fn claim(&self, reading: u32) -> bool {
        self.reading.swap(reading, Ordering::Relaxed) != reading
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
