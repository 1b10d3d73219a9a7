//! A bounded table of named things that many threads find without a lock.
//!
//! Finding a known key takes no lock and allocates nothing. A new key takes the
//! writer's lock; at the bound it takes the place of an idle entry, and if there
//! is none (or another thread is just looking), it gets none: its caller counts
//! it with everything else that has no place.
//!
//! # Eviction
//!
//! Each new key at the bound looks at a few entries, a clock's hand going round.
//! An entry that is idle leaves the map and waits *in limbo* until nobody holds
//! it any more: a call that found it just before is still going to count on it.
//! Only then what it had counted is added to the sum of the retired, so nothing
//! is lost and nothing is counted twice; and if its key comes again before, it
//! comes back as it was. So an entry with a call in flight never goes, nor does
//! one that shares what it counts on with an entry that it has replaced and that
//! has one.

use std::fmt;
use std::hash::Hash;

use papaya::{Equivalent, Guard, HashMap, ResizeMode};

use crate::clock::Tick;
use crate::sync::{Arc, AtomicU32, Bug, Lock, Ordering, planted};

/// How many entries a new key looks at for one that it may replace.
const LOOKS: usize = 16;
/// How many evicted entries may wait for their last holder.
const LIMBO: usize = 64;
/// The place of an entry that has left the map.
const UNLISTED: u32 = u32::MAX;

/// What a table holds.
pub(crate) trait Resident: Send + Sync + 'static {
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// What entries leave behind when they are evicted.
    type Sum: Default + Clone + Send + fmt::Debug;

    fn key(&self) -> &Self::Key;

    /// Where the writer finds the entry in its list. The table's own.
    fn place(&self) -> &AtomicU32;

    /// Whether the entry was neither evicted nor replaced: who has found it long ago may
    /// count on it. One that leaves just now is one that was found just before.
    #[inline]
    fn is_listed(&self) -> bool {
        self.place().load(Ordering::Relaxed) != UNLISTED
    }

    /// Whether nobody would miss the entry: no rule stands on it, and it has
    /// not been used for so long that nothing it counted matters any more.
    fn is_idle(&self, now: Tick) -> bool;

    /// Adds what the entry counted.
    fn retire(&self, sum: &mut Self::Sum);
}

/// See the [module](self).
pub(crate) struct Table<V: Resident> {
    map: HashMap<V::Key, Arc<V>, foldhash::quality::RandomState>,
    writer: Lock<Writer<V>>,
    capacity: usize,
}

#[derive(Debug)]
struct Writer<V: Resident> {
    entries: Vec<Arc<V>>,
    hand: usize,
    limbo: Vec<Arc<V>>,
    retired: V::Sum,
    evicted: u64,
}

/// Everything in a table at one moment, and what has left it.
pub(crate) struct Census<V: Resident> {
    pub(crate) entries: Vec<Arc<V>>,
    pub(crate) retired: V::Sum,
    pub(crate) evicted: u64,
}

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
        Self {
            // Not incremental: a table that grew once and is only read then
            // would stay slow.
            map: HashMap::builder()
                .hasher(foldhash::quality::RandomState::default())
                .resize_mode(ResizeMode::Blocking)
                .build(),
            writer: Lock::new(Writer {
                entries: Vec::new(),
                hand: 0,
                limbo: Vec::new(),
                retired: V::Sum::default(),
                evicted: 0,
            }),
            capacity,
        }
    }

    /// What keeps an entry from being freed while a reader looks at it.
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
        // At the bound a flood of new keys must not queue up for the lock.
        let mut writer = if self.map.len() < self.capacity {
            self.writer.lock()
        } else {
            self.writer.try_lock()?
        };
        if let Some(found) = self.find(key, Arc::clone) {
            return Some(found);
        }
        let entry = match writer.recall(key) {
            Some(entry) => entry,
            None if writer.len() < self.capacity || self.make_room(&mut writer, now) => {
                Arc::new(make())
            }
            None => return None,
        };
        self.map.pin().insert(entry.key().clone(), entry.clone());
        writer.push(entry.clone());
        Some(entry)
    }

    /// Puts `change(old)` in the place of the entry of `key`, whether there is
    /// one or not, and whatever the bound. Beyond it an idle entry goes for each
    /// that comes, so what is there beyond it is in use. The second is the old one.
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
        let listed = old.as_ref().filter(|old| old.is_listed());
        if listed.is_none() && writer.len() >= self.capacity {
            self.make_room(&mut writer, now);
        }
        self.map.pin().insert(entry.key().clone(), entry.clone());
        // What both share shall be the new one's alone when nobody uses the old one.
        self.map.guard().flush();
        if let Some(old) = listed {
            let place = old.place().load(Ordering::Relaxed);
            old.place().store(UNLISTED, Ordering::Relaxed);
            entry.place().store(place, Ordering::Relaxed);
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
        // Make the map let go of what it has removed.
        self.map.guard().flush();
        let limbo = std::mem::take(&mut writer.limbo);
        writer.limbo = limbo
            .into_iter()
            .filter_map(|entry| {
                let retire = |entry: &V| {
                    entry.retire(&mut writer.retired);
                    writer.evicted += 1;
                };
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

    /// Everything in the table and the sum of what has left it. Readers of the
    /// table are not kept waiting, new keys only while the list is copied.
    pub(crate) fn census(&self) -> Census<V> {
        let writer = self.writer.lock();
        // While the copies live, no entry can be retired behind the reader's back.
        Census {
            entries: writer
                .entries
                .iter()
                .chain(&writer.limbo)
                .cloned()
                .collect(),
            retired: writer.retired.clone(),
            evicted: writer.evicted,
        }
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
        entry
            .place()
            .store(self.entries.len() as u32, Ordering::Relaxed);
        self.entries.push(entry);
    }

    fn take(&mut self, place: usize) -> Arc<V> {
        let entry = self.entries.swap_remove(place);
        entry.place().store(UNLISTED, Ordering::Relaxed);
        if let Some(moved) = self.entries.get(place) {
            moved.place().store(place as u32, Ordering::Relaxed);
        }
        entry
    }
}

/// Hands the entry to `read` if nobody else holds it any more, with everything
/// that was done to it done, and that is no reason for it to stay: a call may have
/// found it, used it and let it go since it was chosen.
fn settle<V>(
    entry: Arc<V>,
    may_go: impl FnOnce(&V) -> bool,
    read: impl FnOnce(&V),
) -> Result<(), Arc<V>> {
    if planted(Bug::ReadBeforeLast) {
        read(&entry);
        return Arc::try_unwrap(entry).map(drop);
    }
    // Unwrapping synchronizes with every holder that let go before.
    let entry = Arc::try_unwrap(entry)?;
    if !may_go(&entry) {
        return Err(Arc::new(entry));
    }
    read(&entry);
    Ok(())
}

#[cfg(all(test, sentinel_loom))]
pub(super) mod models {
    //! An entry that is let go while it is evicted.

    use super::*;
    use crate::sync::AtomicU64;

    /// A call counts on an entry and lets go of it, while an evictor waits for
    /// the last holder: whatever was counted is in the sum.
    pub(in crate::stat) fn drop_beside_evict() {
        let entry = Arc::new(AtomicU64::new(0));
        let call = entry.clone();
        let caller = loom::thread::spawn(move || {
            call.fetch_add(1, Ordering::Relaxed);
        });
        let mut retired = None;
        let mut evict = |entry: Arc<AtomicU64>| {
            let read = |entry: &AtomicU64| retired = Some(entry.load(Ordering::Relaxed));
            settle(entry, |_| true, read)
        };
        let left = evict(entry);
        caller.join().unwrap();
        if let Err(entry) = left {
            assert!(evict(entry).is_ok());
        }
        assert_eq!(retired, Some(1), "an event was lost");
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
