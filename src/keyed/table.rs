//! A table of fixed size that gives slots to keys, and evicts only keys at rest.
//!
//! A *slot* consists of two words: the tag, which is the keyed hash of its owner, and the word for
//! what the owner has spent. Eight slots make a set, and a key lives in one of two sets that its
//! hash chooses. The table stores nothing else about a key.
//!
//! # A known key
//!
//! The slot of a known key is found by its tag, and its word is changed by one compare-and-swap:
//!
//! ```text
//! caller    tag = mine?   word = w, not CLAIMED   tag = mine still?   w → w'
//! evictor   w → CLAIMED   tag = other             word = fresh
//! ```
//!
//! The word is read (acquire) between two reads of the tag. So `w` either belongs to an owner with
//! that tag, or is no longer the word of the slot. The swap compares with `w`. No word of a slot
//! comes back under another owner (see [`Judge`]), so the swap fails if the slot has changed hands.
//! A refused call makes no swap, so it reads the word again: the slot may have had another owner in
//! between, and then this key again. Changes of a word are read-modify-writes, so a thread that
//! reads a word with acquire also sees the tag that was stored before the first word of its owner
//! (release).
//!
//! # A new key
//!
//! Callers of an unknown key queue at a lock that its hash chooses, and look for the key again
//! under the lock, so that a key never gets two slots. The first caller looks for a slot that has
//! no owner or is at rest, swaps its word for CLAIMED, stores the tag, and then stores the new
//! word. A CLAIMED word belongs to no key: a call that reads it finds no key in the slot. Every
//! owner of a slot sees everything that the previous owner wrote, because its claim (acquire) reads
//! a word that the previous owner has published.
//!
//! A new key whose first call is refused takes no slot. If the owners of all sixteen slots are not
//! at rest, the call is judged by the overflow word, which all keys without a slot share. So no key
//! loses its debt through an eviction, and no client gains a quota by filling the table. A key that
//! moves from the overflow word to a slot starts with a whole quota: the keys on the overflow word
//! may together spend one quota more than if each had had a slot from the start.
//!
//! Whether a key is at rest depends on the time, and each call reads the clock separately. If a
//! call has an earlier reading than the call that has evicted its key, it no longer finds the debt
//! that its key had at that time, and may pass for this reason. No other call gains anything,
//! because at the later reading there was no debt.
//!
//! # How many keys have a place
//!
//! A table has two slots, that is, 32 bytes, for each requested key. A new key goes to its first
//! set until that set is three quarters full, and then to the emptier one of its two sets. Once all
//! slots of both sets have an owner, only slots of keys that are not at rest count as full. In a
//! large table with the requested number of keys not at rest, one key in 10⁹ finds no place. For
//! small tables see the test `a_table_has_places_for_max_keys`.
//!
//! # How few cache lines are read
//!
//! A set is two cache lines of four slots. One line of a key's first set is its *home*. A new key
//! prefers a slot without an owner, and among these a slot at home. If all slots have owners, it
//! prefers a slot at rest at home, and there the one that has rested longest. More than nine of ten
//! keys are found at home. This costs one cache miss, if the table is larger than the cache, and a
//! branch that the processor can predict; tag and word of a slot are adjacent. For all other keys,
//! the remaining three lines are read at the same time.
//!
//! # Source
//!
//! Balanced allocations (Azar, Broder, Karlin, Upfal 1994), with buckets of eight
//! and a bias for the first choice.

use super::Judge;
use super::slot::{KeySlot, NOBODY};
use crate::base::sync::{AtomicU64, Bug, Lock, Ordering, planted};

/// The number of slots in a set. Models use the smallest table in which all cases occur.
#[cfg(not(all(test, sentinel_loom)))]
const SLOTS: usize = 8;
/// The number of slots in a cache line.
#[cfg(not(all(test, sentinel_loom)))]
const LINE: usize = 4;
#[cfg(all(test, sentinel_loom))]
const SLOTS: usize = 1;
#[cfg(all(test, sentinel_loom))]
const LINE: usize = 1;

/// The number of cache lines in a set.
const LINES: usize = SLOTS / LINE;

/// The number of slots in use in a key's first set from which on the second set is considered.
const EARLY: usize = (3 * SLOTS).div_ceil(4);

/// The maximum number of locks for new keys: few, because each lock is held only for some hundred
/// nanoseconds.
const MOST_LOCKS: usize = 64;

/// A table of keys: see the [module](self).
#[derive(Debug)]
pub(super) struct KeyTable {
    sets: Box<[Set]>,
    /// The word that all keys without a slot share. It never gets an owner.
    overflow: KeySlot,
    /// The number of calls that were judged by the overflow word.
    overflows: AtomicU64,
    /// The locks for new keys.
    locks: Box<[Lock<()>]>,
}

/// A set of slots: two cache lines, which processors fetch as a pair.
#[derive(Debug)]
#[repr(align(128))]
struct Set([KeySlot; SLOTS]);

/// A set's offer for a new key.
#[derive(Clone, Copy, Debug, Default)]
struct SetRoom {
    /// The number of slots that have an owner.
    owned: usize,
    /// The number of slots whose owner is not at rest.
    busy: usize,
    /// The best slot for the new key: its worth, its number and its word.
    best: Option<((bool, bool, u64), u32, u64)>,
}

/// The place of the word that a call has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WordPlace {
    /// The word of the key, in this slot.
    Slot(u32),
    /// The overflow word, which all keys without a slot share.
    Overflow,
}

/// The change of a word by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WordChange {
    pub(super) place: WordPlace,
    pub(super) before: u64,
    pub(super) after: u64,
}

// === impl KeyTable ===

impl KeyTable {
    /// Creates a table with places for `keys` keys that are not at rest.
    pub(super) fn new(keys: u32) -> Self {
        Self::of_sets((keys as usize * 2).div_ceil(SLOTS).max(1))
    }

    /// Creates a table of this number of sets.
    pub(super) fn of_sets(sets: usize) -> Self {
        let locks = sets.next_power_of_two().min(MOST_LOCKS);
        let mut own = Vec::with_capacity(sets);
        for _ in 0..sets {
            own.push(Set::new());
        }
        let mut own_locks = Vec::with_capacity(locks);
        for _ in 0..locks {
            own_locks.push(Lock::new(()));
        }
        Self {
            sets: own.into(),
            overflow: KeySlot::new(),
            overflows: AtomicU64::new(0),
            locks: own_locks.into(),
        }
    }

    /// Judges a call of the key `tag`, which is not [`NOBODY`], and changes the
    /// key's word if the call passes.
    #[inline]
    pub(super) fn take(
        &self,
        tag: u64,
        judge: impl Judge + Copy,
    ) -> Result<WordChange, Option<u64>> {
        match self.take_known(tag, &judge) {
            Some(outcome) => outcome,
            None => self.take_new(tag, judge),
        }
    }

    /// Like [`take`](Self::take), but compiled once for all judges. If the call is judged by the
    /// overflow word, it is counted as an overflow only if `is_counted`.
    pub(super) fn change_word(
        &self,
        tag: u64,
        judge: &dyn Judge,
        is_counted: bool,
    ) -> Result<WordChange, Option<u64>> {
        self.take_known(tag, judge)
            .unwrap_or_else(|| self.take_unknown(tag, judge, is_counted))
    }

    /// Changes the word that a call of the key `tag` has found at `place`. Returns the new word;
    /// `None` if the slot has changed hands since, or if `change` returns `None`.
    pub(super) fn change(
        &self,
        place: WordPlace,
        tag: u64,
        change: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        let tag = match place {
            WordPlace::Overflow => NOBODY,
            WordPlace::Slot(_) => tag,
        };
        let changed = self.update(place, tag, |word| change(word).ok_or(()))?;
        changed.ok().map(|change| change.after)
    }

    /// Changes the word of the key `tag`, if it has a slot and `change` returns a word. Returns
    /// whether the word was changed.
    pub(super) fn change_known(&self, tag: u64, change: &dyn Fn(u64) -> Option<u64>) -> bool {
        for set in self.sets_of(tag) {
            for slot in &self.sets[set].0 {
                let changed = slot.update(tag, |word| change(word).ok_or(()));
                if let Some(outcome) = changed {
                    return outcome.is_ok();
                }
            }
        }
        false
    }

    /// Changes the word at `place`. The owner of the word cannot change, because one of its calls
    /// is in flight.
    #[inline]
    pub(super) fn change_pinned(
        &self,
        place: WordPlace,
        change: impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        // Relaxed: the call has seen the tag of its key in this slot, and no thread has stored
        // another tag since.
        let tag = self.slot(place).tag.load(Ordering::Relaxed);
        let changed = self.update(place, tag, |word| change(word).ok_or(()))?;
        changed.ok().map(|change| change.after)
    }

    /// Returns the word of the key `tag`; `None` if the key has no slot.
    #[inline]
    fn known_word(&self, tag: u64) -> Option<u64> {
        for set in self.sets_of(tag) {
            for slot in &self.sets[set].0 {
                if let Some(word) = slot.word_of(tag) {
                    return Some(word);
                }
            }
        }
        None
    }

    /// Returns whether the key `tag` has a slot and is not at rest.
    #[cfg(all(feature = "page", feature = "serde"))]
    pub(super) fn is_in_use(&self, tag: u64, judge: &dyn Judge) -> bool {
        let word = self.known_word(tag);
        word.is_some_and(|word| judge.rest(word).is_none())
    }

    /// Returns the word that would judge a call of the key `tag`.
    pub(super) fn word(&self, tag: u64, judge: &dyn Judge) -> u64 {
        if let Some(word) = self.known_word(tag) {
            return word;
        }
        match self.room(tag, judge) {
            Some((_, last)) => judge.fresh(last),
            None => of_all(self.overflow.word.load(Ordering::Relaxed), judge),
        }
    }

    /// The number of calls that were judged by the overflow word.
    pub(super) fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }

    /// Returns whether a key other than `tag` owns a slot.
    pub(super) fn has_owner_but(&self, tag: u64) -> bool {
        for set in &self.sets {
            for slot in &set.0 {
                let owner = slot.tag.load(Ordering::Relaxed);
                if owner != NOBODY && owner != tag {
                    return true;
                }
            }
        }
        false
    }

    /// Returns the number of keys that are not at rest. Reads every slot.
    pub(super) fn in_use(&self, judge: &dyn Judge) -> usize {
        let mut in_use = 0;
        for set in &self.sets {
            for slot in &set.0 {
                in_use += usize::from(slot.spare(judge).is_none());
            }
        }
        in_use
    }

    /// Calls `f` with the word of each key that is not at rest, and with the overflow word.
    pub(super) fn each_word_in_use(&self, judge: &dyn Judge, f: &mut dyn FnMut(u64)) {
        for set in &self.sets {
            for slot in &set.0 {
                if slot.spare(judge).is_none() {
                    f(slot.word.load(Ordering::Acquire));
                }
            }
        }
        f(self.overflow.word.load(Ordering::Acquire));
    }

    /// The size of the table, in bytes.
    pub(super) fn footprint(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.sets) + size_of_val(&*self.locks)
    }

    /// Judges a call of a key that has a slot; `None` if the key has none. Inlined, so that the
    /// result stays in registers.
    #[inline(always)]
    fn take_known<J: Judge + ?Sized>(
        &self,
        tag: u64,
        judge: &J,
    ) -> Option<Result<WordChange, Option<u64>>> {
        let sets = self.sets_of(tag);
        let [first, second] = sets.map(|set| &self.sets[set]);
        let home = favourite(tag) / LINE;
        let near = first.find(tag, home);
        if let Some(outcome) = self.take_found(tag, judge, sets, near) {
            return Some(outcome);
        }
        // Reads all remaining lines at the same time, so that one cache miss does not wait for
        // another.
        let rest = (0..LINES).filter(|&line| line != home);
        let near = rest.fold(0, |found, line| found | first.find(tag, line));
        let far = (0..LINES).fold(0, |found, line| found | second.find(tag, line));
        self.take_found(tag, judge, sets, near | far << SLOTS)
    }

    /// Tries the call on the slots in `found`, whose low bits stand for the first set and the next
    /// bits for the second.
    #[inline(always)]
    fn take_found<J: Judge + ?Sized>(
        &self,
        tag: u64,
        judge: &J,
        sets: [usize; 2],
        mut found: u32,
    ) -> Option<Result<WordChange, Option<u64>>> {
        while found != 0 {
            let bit = found.trailing_zeros() as usize;
            let set = if bit < SLOTS { sets[0] } else { sets[1] };
            let index = (set * SLOTS + bit % SLOTS) as u32;
            let outcome = self.update(WordPlace::Slot(index), tag, |word| judge.take(word));
            if outcome.is_some() {
                return outcome;
            }
            found &= found - 1;
        }
        None
    }

    #[cold]
    #[inline(never)]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "where the key is known, `judge` stays in registers"
    )]
    fn take_new(&self, tag: u64, judge: impl Judge) -> Result<WordChange, Option<u64>> {
        self.take_unknown(tag, &judge, true)
    }

    /// Judges a call of a key that was not found. If there is room for the key and the call passes,
    /// gives the key a slot. If there is no room, the overflow word judges the call.
    fn take_unknown(
        &self,
        tag: u64,
        judge: &dyn Judge,
        is_counted: bool,
    ) -> Result<WordChange, Option<u64>> {
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
            let place = WordPlace::Slot(index);
            if self.slot(place).pass_on(last, tag, after) {
                return Ok(WordChange {
                    place,
                    before,
                    after,
                });
            }
        }
        if is_counted {
            self.overflows.fetch_add(1, Ordering::Relaxed);
        }
        self.update(WordPlace::Overflow, NOBODY, |word| {
            judge.take(of_all(word, judge))
        })
        .expect("the overflow word stays nobody's")
    }

    /// Finds a slot for the key `tag`: one that has no owner or is at rest. Returns its number and
    /// its word.
    fn room(&self, tag: u64, judge: &dyn Judge) -> Option<(u32, u64)> {
        let [first, second] = self.sets_of(tag).map(|set| {
            // The cast is exact, because there are at most 2^27 slots.
            self.sets[set].room((set * SLOTS) as u32, tag, judge)
        });
        let is_new = first.owned < SLOTS || second.owned < SLOTS;
        let load = |room: &SetRoom| if is_new { room.owned } else { room.busy };
        let takes_first = load(&first) < EARLY || load(&first) <= load(&second);
        let (better, other) = if takes_first {
            (first, second)
        } else {
            (second, first)
        };
        // The better set may have no slot that can be given away, for example because another call
        // is claiming its last one.
        let (_, index, word) = better.best.or(other.best)?;
        Some((index, word))
    }

    /// Returns the two sets in which a key may live. They are different if the table has more than
    /// one set.
    #[inline]
    pub(super) fn sets_of(&self, tag: u64) -> [usize; 2] {
        let sets = self.sets.len();
        let first = scale(tag >> 32, sets);
        let second = first + 1 + scale(tag & u64::from(u32::MAX), sets - 1);
        [first, if second < sets { second } else { second - sets }]
    }

    /// Returns whether the slot `index` is in the home of the key `tag`.
    #[cfg(all(test, not(sentinel_loom)))]
    pub(super) fn is_home(&self, index: u32, tag: u64) -> bool {
        let home = self.sets_of(tag)[0] * SLOTS + favourite(tag);
        index as usize / LINE == home / LINE
    }

    /// Changes the word at `place` with `change`. Returns `None` if it is not the word of the key
    /// `tag`.
    #[inline(always)]
    fn update<E>(
        &self,
        place: WordPlace,
        tag: u64,
        change: impl Fn(u64) -> Result<u64, E>,
    ) -> Option<Result<WordChange, E>> {
        let outcome = self.slot(place).update(tag, change)?;
        Some(outcome.map(|(before, after)| WordChange {
            place,
            before,
            after,
        }))
    }

    /// Returns the slot with the word at `place`.
    #[inline(always)]
    fn slot(&self, place: WordPlace) -> &KeySlot {
        match place {
            WordPlace::Slot(index) => &self.sets[index as usize / SLOTS].0[index as usize % SLOTS],
            WordPlace::Overflow => &self.overflow,
        }
    }
}

/// Returns the overflow `word`, or a fresh word if it is 0 because no call has been judged by it
/// yet.
fn of_all(word: u64, judge: &dyn Judge) -> u64 {
    if word == 0 { judge.fresh(word) } else { word }
}

/// Returns the index of the slot in its first set that a key prefers.
const fn favourite(tag: u64) -> usize {
    // Uses the low bits of the high half, because the high bits of this half choose the set.
    (tag >> 32) as usize % SLOTS
}

/// Maps 32 random bits to a number below `size`, without a division.
#[inline]
const fn scale(bits: u64, size: usize) -> usize {
    ((bits * size as u64) >> 32) as usize
}

// === impl Set ===

impl Set {
    fn new() -> Self {
        Self(std::array::from_fn(|_| KeySlot::new()))
    }

    /// Returns the slots of one cache line whose tag is `tag`, as bits. It has no branch for each
    /// slot, which processors could not predict.
    #[inline]
    fn find(&self, tag: u64, line: usize) -> u32 {
        let base = line * LINE;
        let mut found = 0;
        for (index, slot) in self.0[base..base + LINE].iter().enumerate() {
            // Relaxed: `update` reads the tag again after it has read the word.
            let is_own = slot.tag.load(Ordering::Relaxed) == tag;
            found |= u32::from(is_own) << index;
        }
        found << base
    }

    /// Returns the room for the key `tag` in this set, whose first slot has the number `base`.
    fn room(&self, base: u32, tag: u64, judge: &dyn Judge) -> SetRoom {
        let mut room = SetRoom::default();
        for nth in 0..SLOTS {
            // Begins with the key's favourite slot, so the first `LINE` slots are those of its
            // cache line.
            let index = favourite(tag) ^ nth;
            let slot = &self.0[index];
            let spare = slot.spare(judge);
            room.owned += usize::from(slot.tag.load(Ordering::Relaxed) != NOBODY);
            let Some((rest, word)) = spare else {
                room.busy += 1;
                continue;
            };
            // Prefers a slot without an owner, then a slot at home, then the slot that has rested
            // longest.
            let worth = (rest == u64::MAX, nth < LINE, rest);
            if room.best.is_none_or(|(best, ..)| best < worth) {
                room.best = Some((worth, base + index as u32, word));
            }
        }
        room
    }
}
