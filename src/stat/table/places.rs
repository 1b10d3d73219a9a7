//! How a table finds, creates, lists and evicts entries.

use std::hash::{BuildHasher, Hash};

use papaya::{Equivalent, Guard, HashMap, ResizeMode};

use super::super::turn::TableTurn;
use super::reading::{EndReading, TableReading};
use super::settle::settle;
use super::{
    Gone, LIMBO, LOOKS, PASSED_AT_ONCE, READ_AT_ONCE, Resident, Table, TableReader, TableSlot,
    UNLISTED, Writer,
};
use crate::base::pace::StepPace;
use crate::base::sync::{Arc, Lock, Ordering};
use crate::clock::Tick;

impl<V: Resident> Table<V> {
    /// Creates a table of at most `capacity` entries, plus any number put in by
    /// [`replace`](Self::replace).
    pub(crate) fn new(capacity: usize) -> Self {
        let hash = foldhash::quality::RandomState::default();
        Self {
            // Not incremental: after incremental growth, a map that is only read would stay slow.
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

    /// Returns a guard that keeps entries from being freed while a reader looks at them.
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

    /// Returns the entry of `key`, created by `make` if there is none; `None` if there is no place
    /// for it.
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

    /// Like [`find_or_make`](Self::find_or_make), for an entry that also has weak references. If an
    /// entry is used through a weak reference during its eviction, it comes back in a new `Arc`, to
    /// which the weak reference does not lead. So either this use must leave the entry
    /// [idle](Resident::is_idle), or the user must find the entry again by its key.
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

    /// Replaces the entry of `key` with `change(old)`. If there is no old entry, adds the new one,
    /// even beyond the capacity; a full table first tries to evict an idle entry. Returns the new
    /// entry and the old one.
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
        // Makes the map free the old entry as soon as no call uses it. Then the new entry is the
        // only owner of the node that both share.
        self.map.guard().flush();
        if let Some(old) = listed {
            old.place().index.store(UNLISTED, Ordering::Relaxed);
        }
        // The slot keeps its number: a reading that has passed the old entry does not need to read
        // the new one.
        writer.list(slot, entry.clone());
        (entry, old)
    }

    /// Evicts an idle entry if it finds one, and retires entries in limbo that nobody holds.
    /// Returns whether there is room for another entry.
    fn make_room(&self, writer: &mut Writer<V>, now: Tick) -> bool {
        for _ in 0..LOOKS.min(writer.slots.len()) {
            if writer.limbo.len() >= LIMBO {
                break;
            }
            writer.hand %= writer.slots.len();
            let slot = writer.hand;
            let entry = writer.slots[slot].entry.as_ref();
            // The map and this list hold one reference each. Any further reference means that the
            // entry is in use.
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
        // Makes the map free the entries that it has removed.
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

    /// The number of entries, including those in limbo, and the number of evicted entries.
    #[cfg(feature = "observe")]
    pub(crate) fn places(&self) -> (usize, u64) {
        let writer = self.writer.lock();
        (writer.len(), writer.gone.evicted)
    }

    /// The number of entries in the map.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Calls `read` once with every entry of the table. Skips entries that leave before the reading
    /// comes to them, and entries that are added meanwhile. Returns the sum of all entries that
    /// have left, also during the reading. Calls, new keys and other readers do not wait for a
    /// reading.
    pub(crate) fn read_all(&self, mut read: impl FnMut(&Arc<V>)) -> Gone<V::Sum> {
        let mut reading = EndReading(self, self.begin_reading());
        loop {
            let read = self.read_some(&mut reading.1, usize::MAX, &mut read);
            if let Some(gone) = read {
                return gone;
            }
        }
    }

    /// Like [`read_all`](Self::read_all), but pauses between steps of the size that `pace` sets;
    /// each entry costs `work` units. Entries can leave and be added between two steps, and no
    /// thread waits for a reading that pauses.
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

    /// Begins a reading of all entries in steps.
    pub(super) fn begin_reading(&self) -> TableReading {
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

    /// Runs the next step of `reading`: calls `read` with about `most` of the remaining entries.
    /// When none remain, ends the reading and returns the sum of the entries that have left the
    /// table.
    pub(super) fn read_some(
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
            // Passing empty slots costs work too.
            left = left.saturating_sub(few.len().max(1));
            few.drain(..).for_each(|entry| read(&entry));
            if left == 0 {
                return None;
            }
        }
    }

    /// Ends `reading` early, if it has not ended.
    pub(super) fn end_reading(&self, reading: &TableReading) {
        let mut writer = self.writer.lock();
        writer.readers.retain(|it| it.number != reading.number);
    }
}

impl<V: Resident> Writer<V> {
    /// The number of entries, including those in limbo.
    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns a new number for an entry or a reading.
    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Takes the entry of `key` out of limbo, if it is there. Returns the entry and its slot.
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

    /// Returns a slot for a new entry, with a new number.
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
    pub(super) fn take(&mut self, slot: usize) {
        if let Some(entry) = &self.slots[slot].entry {
            entry.place().index.store(UNLISTED, Ordering::Relaxed);
            self.limbo.push(slot);
        }
    }

    /// Adds the counts of `entry`, which leaves `slot`, to the sums of retired entries.
    fn retire(&mut self, slot: usize, entry: &V) {
        let number = self.slots[slot].number;
        // Readings that began after the entry was added, and have not come to its slot yet, get its
        // counts here.
        let unread = self.readers.iter_mut();
        let unread = unread.filter(|reader| number < reader.number && slot >= reader.next);
        for gone in unread.map(|it| &mut it.gone).chain([&mut self.gone]) {
            entry.retire(&mut gone.retired);
            gone.evicted += 1;
        }
    }

    /// Moves the reading `number` forward and adds the entries that it passes to `few`. If none
    /// remain, ends the reading and returns its sum of the entries that have left.
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
