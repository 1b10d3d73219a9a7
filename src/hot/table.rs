//! Which slot is whose: a table of fixed size, in which only what is at rest is
//! forgotten.
//!
//! A *slot* is two words: the tag, which is the keyed hash of its owner, and
//! what the owner has spent. Eight of them make a set, and a key lives in one of
//! two sets that its hash chooses. Nothing else is kept of a key.
//!
//! # A known key
//!
//! Its slot is found by its tag, and its word is changed by one compare-and-swap:
//!
//! ```text
//! caller    tag = mine?   word = w, not CLAIMED   tag = mine still?   w → w'
//! evictor   w → CLAIMED   tag = other             word = fresh
//! ```
//!
//! The word is read (acquire) between two looks at the tag, so `w` is of an owner
//! with that tag, or is not the slot's word any more. The swap compares with `w`,
//! and as no word of a slot comes back under another owner (see
//! [`Judge`]), it fails in both cases if the slot has changed hands. Changes of a
//! word are read-modify-writes, so whoever reads one with acquire also sees the
//! tag that was stored before the first word of that owner (release).
//!
//! # A new key
//!
//! Callers of one unknown key queue at a lock that its hash chooses, and look
//! again when they have it, so that a key never gets two slots. The winner looks
//! for a slot that has no owner or is at rest, swaps its word for CLAIMED, stores
//! the tag, and then the new word. A CLAIMED word belongs to nobody: who meets it
//! does not find a key there. Every owner of a slot sees all that the one before
//! did, because it has claimed (acquire) the word that this one has published.
//!
//! A call that is refused before it has spent anything takes no slot. If there is
//! no slot either, because all sixteen are of keys that are not at rest, the call
//! is judged on the overflow word, which all such keys share. So nobody loses a
//! debt by being pushed out, and nobody gains a quota by pushing. A key that comes
//! from the overflow word to a slot starts fresh there: all of them together may
//! spend one quota more than if each had had a slot from the start.
//!
//! # How many keys have a place
//!
//! There are 1.5 slots for each key that the table is to know, 24 bytes. A new
//! key goes to its first set until that is half full, and then to the emptier of
//! both; in a set to a slot that has no owner, or to the one that has been at rest
//! for longest. Four of five keys are found in the set that is looked at first, and of a
//! large table's keys one in 10⁷ has no place when as many as were asked for are
//! not at rest. What small tables do: `a_table_has_a_place_for_as_many_as_asked`.
//!
//! # Source
//!
//! Balanced allocations (Azar, Broder, Karlin, Upfal 1994), with buckets of eight
//! and a bias for the first choice.

use super::{CLAIMED, Judge};
use crate::sync::{AtomicU64, Bug, Lock, Ordering, planted};

/// Slots of a set, and how full the first set of a key gets before the second
/// one is considered. Models have the smallest table in which everything happens.
#[cfg(not(all(test, sentinel_loom)))]
const SLOTS: usize = 8;
#[cfg(all(test, sentinel_loom))]
const SLOTS: usize = 1;
const HALF: usize = SLOTS.div_ceil(2);

/// Most locks for new keys. They are held for some hundred nanoseconds each.
const MOST_LOCKS: usize = 64;

/// The tag of a slot without an owner.
const NOBODY: u64 = 0;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Table {
    sets: Box<[Set]>,
    overflow: AtomicU64,
    /// How many calls were judged on the overflow word.
    overflows: AtomicU64,
    locks: Box<[Lock<()>]>,
}

/// Two cache lines, which processors fetch as a pair.
#[derive(Debug)]
#[repr(align(128))]
struct Set([Slot; SLOTS]);

#[derive(Debug)]
struct Slot {
    tag: AtomicU64,
    word: AtomicU64,
}

/// What a set has for a new key.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Slots that have an owner.
    owned: usize,
    /// Slots whose owner is not at rest.
    busy: usize,
    /// The slot that can be spared best: for how long it could have been, its
    /// place and its word.
    best: Option<(u64, u32, u64)>,
}

/// Whose word a call has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// That of the key, in this slot.
    Slot(u32),
    /// The one that all keys without a slot share.
    Overflow,
}

/// A word that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) place: Place,
    pub(super) before: u64,
    pub(super) after: u64,
}

// === impl Table ===

impl Table {
    /// A table in which `keys` keys that are not at rest have a place.
    pub(super) fn new(keys: u32) -> Self {
        let slots = keys as usize + (keys as usize).div_ceil(2);
        Self::of_sets(slots.div_ceil(SLOTS).max(1))
    }

    pub(super) fn of_sets(sets: usize) -> Self {
        let locks = sets.next_power_of_two().min(MOST_LOCKS);
        Self {
            sets: (0..sets).map(|_| Set::new()).collect(),
            overflow: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
            locks: (0..locks).map(|_| Lock::new(())).collect(),
        }
    }

    /// Judges a call of the key `tag`, which is not [`NOBODY`], and changes the
    /// key's word if the call passes.
    #[inline]
    pub(super) fn take(&self, tag: u64, judge: impl Judge) -> Result<Change, Option<u64>> {
        match self.take_known(tag, judge) {
            Some(outcome) => outcome,
            None => self.take_unknown(tag, judge),
        }
    }

    /// Changes the word that a call of the key `tag` has found at `place`, unless
    /// that has changed hands since or `change` gives none.
    pub(super) fn change(
        &self,
        place: Place,
        tag: u64,
        change: impl Fn(u64) -> Option<u64>,
    ) -> bool {
        let change = |word| change(word).ok_or(());
        match place {
            Place::Overflow => update(&self.overflow, change).is_ok(),
            Place::Slot(index) => matches!(self.slot(index).update(tag, change), Some(Ok(_))),
        }
    }

    /// Changes the word at `place`, whose owner cannot change because a call of it
    /// is in flight.
    #[inline]
    pub(super) fn change_pinned(&self, place: Place, change: impl Fn(u64) -> Option<u64>) {
        let tag = match place {
            Place::Overflow => NOBODY,
            // Relaxed: the call has seen its tag there, and nobody stores one since.
            Place::Slot(index) => self.slot(index).tag.load(Ordering::Relaxed),
        };
        self.change(place, tag, change);
    }

    /// What `read` says of the word by which a call of the key `tag` would be
    /// judged.
    pub(super) fn read<R>(&self, tag: u64, judge: impl Judge, read: impl Fn(u64) -> R) -> R {
        for set in self.sets_of(tag) {
            for slot in &self.sets[set].0 {
                if let Some(word) = slot.word_of(tag) {
                    return read(word);
                }
            }
        }
        match self.room(tag, judge) {
            Some((_, last)) => read(judge.fresh(last)),
            None => read(self.overflow.load(Ordering::Relaxed)),
        }
    }

    /// How many calls were judged on the overflow word.
    pub(super) fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }

    /// How many keys are not at rest. Looks at every slot.
    pub(super) fn in_use(&self, judge: impl Judge) -> usize {
        let slots = self.sets.iter().flat_map(|set| &set.0);
        slots.filter(|slot| slot.spare(judge).is_none()).count()
    }

    /// What the table takes, in bytes.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.sets) + size_of_val(&*self.locks)
    }

    /// Inlined, with its callers, so that what it finds stays in registers.
    #[inline(always)]
    fn take_known(&self, tag: u64, judge: impl Judge) -> Option<Result<Change, Option<u64>>> {
        for set in self.sets_of(tag) {
            let mut own = self.sets[set].find(tag);
            while own != 0 {
                let index = (set * SLOTS) as u32 + own.trailing_zeros();
                let outcome = self.slot(index).update(tag, |word| judge.take(word));
                if let Some(outcome) = outcome {
                    return Some(outcome.map(|(before, after)| Change {
                        place: Place::Slot(index),
                        before,
                        after,
                    }));
                }
                own &= own - 1;
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn take_unknown(&self, tag: u64, judge: impl Judge) -> Result<Change, Option<u64>> {
        let lock = &self.locks[tag as usize & (self.locks.len() - 1)];
        let _one_at_a_time = lock.lock();
        if !planted(Bug::InsertWithoutSecondLook) {
            if let Some(outcome) = self.take_known(tag, judge) {
                return outcome;
            }
        }
        while let Some((index, last)) = self.room(tag, judge) {
            let before = judge.fresh(last);
            let after = judge.take(before)?;
            if self.slot(index).pass_on(last, tag, after) {
                let place = Place::Slot(index);
                return Ok(Change {
                    place,
                    before,
                    after,
                });
            }
        }
        self.overflows.fetch_add(1, Ordering::Relaxed);
        let (before, after) = update(&self.overflow, |word| judge.take(word))?;
        let place = Place::Overflow;
        Ok(Change {
            place,
            before,
            after,
        })
    }

    /// A slot for the key `tag` that nobody needs, and its word.
    fn room(&self, tag: u64, judge: impl Judge) -> Option<(u32, u64)> {
        let [first, second] = self.sets_of(tag).map(|set| {
            // At most 1.5 * 2^26 slots.
            self.sets[set].room((set * SLOTS) as u32, tag, judge)
        });
        let is_new = first.owned < SLOTS || second.owned < SLOTS;
        let load = |room: &Room| if is_new { room.owned } else { room.busy };
        let takes_first = first.owned < HALF || load(&first) <= load(&second);
        let (better, other) = if takes_first {
            (first, second)
        } else {
            (second, first)
        };
        // Somebody may be about to take the last slot of the better one.
        let (_, index, word) = better.best.or(other.best)?;
        Some((index, word))
    }

    /// The two sets in which a key may live: different ones, if there are two.
    #[inline]
    fn sets_of(&self, tag: u64) -> [usize; 2] {
        let sets = self.sets.len();
        let first = scale(tag >> 32, sets);
        let second = first + 1 + scale(tag & u64::from(u32::MAX), sets - 1);
        [first, if second < sets { second } else { second - sets }]
    }

    fn slot(&self, index: u32) -> &Slot {
        &self.sets[index as usize / SLOTS].0[index as usize % SLOTS]
    }
}

/// A number below `size` from 32 random bits, without a division.
#[inline]
const fn scale(bits: u64, size: usize) -> usize {
    ((bits * size as u64) >> 32) as usize
}

/// Changes a word that has no owner by `change`: its values before and after.
fn update<E>(word: &AtomicU64, change: impl Fn(u64) -> Result<u64, E>) -> Result<(u64, u64), E> {
    let mut found = word.load(Ordering::Relaxed);
    loop {
        let next = change(found)?;
        match word.compare_exchange_weak(found, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Ok((found, next)),
            Err(now) => found = now,
        }
    }
}

// === impl Set ===

impl Set {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Slot {
            tag: AtomicU64::new(NOBODY),
            word: AtomicU64::new(0),
        }))
    }

    /// The slots whose tag is `tag`, as bits. Without a branch for each slot, which
    /// no processor could predict.
    #[inline]
    fn find(&self, tag: u64) -> u32 {
        let mut found = 0;
        for (index, slot) in self.0.iter().enumerate() {
            // Acquire: pairs with the store of the tag, after which the word is
            // CLAIMED or this owner's.
            let is_own = slot.tag.load(Ordering::Acquire) == tag;
            found |= u32::from(is_own) << index;
        }
        found
    }

    /// The room for the key `tag` in a set whose first slot is number `base`.
    fn room(&self, base: u32, tag: u64, judge: impl Judge) -> Room {
        let mut room = Room::default();
        for nth in 0..SLOTS {
            // From a place that depends on the key, as not all words have an age.
            let index = (nth + tag as usize % SLOTS) % SLOTS;
            let slot = &self.0[index];
            let spare = slot.spare(judge);
            room.owned += usize::from(slot.tag.load(Ordering::Relaxed) != NOBODY);
            let Some((rest, word)) = spare else {
                room.busy += 1;
                continue;
            };
            if room.best.is_none_or(|(best, ..)| best < rest) {
                room.best = Some((rest, base + index as u32, word));
            }
        }
        room
    }
}

// === impl Slot ===

impl Slot {
    /// Changes the word of the key `tag` by `change`: its values before and
    /// after, or `None` if the slot is another's.
    #[inline(always)]
    fn update<E>(
        &self,
        tag: u64,
        change: impl Fn(u64) -> Result<u64, E>,
    ) -> Option<Result<(u64, u64), E>> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word == CLAIMED {
                return None;
            }
            if !planted(Bug::HitWithoutSecondLook) && self.tag.load(Ordering::Acquire) != tag {
                return None;
            }
            let next = match change(word) {
                Ok(next) => next,
                Err(error) => return Some(Err(error)),
            };
            let (won, lost) = (Ordering::Relaxed, Ordering::Acquire);
            match self.word.compare_exchange_weak(word, next, won, lost) {
                Ok(_) => return Some(Ok((word, next))),
                Err(now) => word = now,
            }
        }
    }

    /// The word, if it is that of the key `tag`.
    fn word_of(&self, tag: u64) -> Option<u64> {
        if self.tag.load(Ordering::Acquire) != tag {
            return None;
        }
        let word = self.word.load(Ordering::Acquire);
        (word != CLAIMED && self.tag.load(Ordering::Acquire) == tag).then_some(word)
    }

    /// For how long no key has needed the slot, and its word; `None` if one does.
    fn spare(&self, judge: impl Judge) -> Option<(u64, u64)> {
        let tag = self.tag.load(Ordering::Acquire);
        let word = self.word.load(Ordering::Acquire);
        match (tag, word) {
            (_, CLAIMED) => None,
            // Any other word is of an owner that has come since the look at the tag.
            (NOBODY, 0) => Some((u64::MAX, word)),
            (NOBODY, _) if planted(Bug::SpareByTag) => Some((u64::MAX, word)),
            _ => Some((judge.rest(word)?, word)),
        }
    }

    /// Gives the slot to the key `tag`, whose word is `next`, if its word still
    /// is `last`.
    fn pass_on(&self, last: u64, tag: u64, next: u64) -> bool {
        let (won, lost) = (Ordering::Acquire, Ordering::Relaxed);
        let is_claimed = self.word.compare_exchange(last, CLAIMED, won, lost).is_ok();
        if is_claimed {
            self.tag.store(tag, Ordering::Release);
            self.word.store(next, Ordering::Release);
        }
        is_claimed
    }
}
