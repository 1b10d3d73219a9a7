//! Which slot belongs to which key: a table of fixed size, in which only keys at rest are
//! forgotten.
//!
//! A *slot* is two words: the tag, which is the keyed hash of its owner, and the owner's spent
//! quota. Eight of them make a set, and a key lives in one of two sets that its hash chooses.
//! Nothing else is kept of a key.
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
//! The word is read (acquire) between two looks at the tag, so `w` is of an owner with that tag, or
//! is not the slot's word any more. The swap compares with `w`, and as no word of a slot comes back
//! under another owner (see [`Judge`]), it fails in both cases if the slot has changed hands. A
//! call that is refused reads the word again instead: the slot may have been another's between two
//! turns of the key. Changes of a word are read-modify-writes, so a thread that reads one with
//! acquire also sees the tag that was stored before the first word of that owner (release).
//!
//! # A new key
//!
//! Callers of one unknown key queue at a lock that its hash chooses, and look again when they have
//! it, so that a key never gets two slots. The winner looks for a slot that has no owner or is at
//! rest, swaps its word for CLAIMED, stores the tag, and then the new word. A CLAIMED word belongs
//! to no key: a call that meets it does not find a key there. Every owner of a slot sees all that
//! the owner before it did, because its claim (acquire) reads a word that the latter has published.
//!
//! A call that is refused before it has spent anything takes no slot. If there is no slot either,
//! because all sixteen are of keys that are not at rest, the call is judged on the overflow word,
//! which all such keys share. So no key loses a debt by being pushed out, and none gains a quota by
//! pushing. A key that comes from the overflow word to a slot starts fresh there: all of them
//! together may spend one quota more than if each had had a slot from the start.
//!
//! Whether a key is at rest depends on the time, and each call has its own reading of the clock. A
//! call whose reading is earlier than that of another call that has pushed its key out finds no
//! debt where it would have found one, and may pass because of that. No other call gains by it, as
//! by the later reading there was no debt.
//!
//! # How many keys have a place
//!
//! There are two slots for each key that the table is to know, 32 bytes. A new key goes to its
//! first set until that is three quarters full, and then to the emptier of both. Once all slots
//! have an owner, only those of keys that are not at rest count as full. Of a large table's keys
//! one in 10⁹ has no place when as many as were asked for are not at rest. For small tables see
//! `a_table_has_places_for_max_keys`.
//!
//! # How few cache lines are read
//!
//! A set is two cache lines of four slots. One line of its first set is a key's
//! *home*. Among slots without an owner a new key prefers one there, and likewise
//! among slots at rest, where it takes the one that has been so for longest. More than nine of ten
//! keys are found at home, with one cache miss if memory is large, and a branch
//! that the processor foresees; tag and word of a slot lie side by side. For the
//! others the three lines that remain are read at once.
//!
//! # Source
//!
//! Balanced allocations (Azar, Broder, Karlin, Upfal 1994), with buckets of eight
//! and a bias for the first choice.

use super::Judge;
use super::slot::{KeySlot, NOBODY};
use crate::base::sync::{AtomicU64, Bug, Lock, Ordering, planted};

/// Slots of a set, and of a cache line. Models have the smallest table in which
/// everything happens.
#[cfg(not(all(test, sentinel_loom)))]
const SLOTS: usize = 8;
#[cfg(not(all(test, sentinel_loom)))]
const LINE: usize = 4;
#[cfg(all(test, sentinel_loom))]
const SLOTS: usize = 1;
#[cfg(all(test, sentinel_loom))]
const LINE: usize = 1;

/// Cache lines of a set.
const LINES: usize = SLOTS / LINE;

/// How full the first set of a key gets before the second one is considered.
const EARLY: usize = (3 * SLOTS).div_ceil(4);

/// Most locks for new keys. They are held for some hundred nanoseconds each.
const MOST_LOCKS: usize = 64;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct KeyTable {
    sets: Box<[Set]>,
    /// The word that all keys without a slot share. It never gets an owner.
    overflow: KeySlot,
    /// How many calls were judged on the overflow word.
    overflows: AtomicU64,
    locks: Box<[Lock<()>]>,
}

/// Two cache lines, which processors fetch as a pair.
#[derive(Debug)]
#[repr(align(128))]
struct Set([KeySlot; SLOTS]);

/// A set's offer for a new key.
#[derive(Clone, Copy, Debug, Default)]
struct SetRoom {
    /// Slots that have an owner.
    owned: usize,
    /// Slots whose owner is not at rest.
    busy: usize,
    /// The slot that can be spared best: its worth to the new key, its number and its word.
    best: Option<((bool, bool, u64), u32, u64)>,
}

/// Whose word a call has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WordPlace {
    /// The word of the key, in this slot.
    Slot(u32),
    /// The slot that all keys without one of their own share.
    Overflow,
}

/// A word that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WordChange {
    pub(super) place: WordPlace,
    pub(super) before: u64,
    pub(super) after: u64,
}

// === impl KeyTable ===

impl KeyTable {
    /// A table in which `keys` keys that are not at rest have a place.
    pub(super) fn new(keys: u32) -> Self {
        Self::of_sets((keys as usize * 2).div_ceil(SLOTS).max(1))
    }

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

    /// As [`take`](Self::take), but compiled once for all judges. A call that is judged on the
    /// overflow word is added to the count of such calls only if `is_counted`.
    pub(super) fn change_word(
        &self,
        tag: u64,
        judge: &dyn Judge,
        is_counted: bool,
    ) -> Result<WordChange, Option<u64>> {
        self.take_known(tag, judge)
            .unwrap_or_else(|| self.take_unknown(tag, judge, is_counted))
    }

    /// Changes the word that a call of the key `tag` has found at `place`, unless
    /// that has changed hands since or `change` gives none. Returns the new word.
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

    /// Changes the word of the key `tag`, if it has a slot, unless `change` gives none. Returns
    /// whether it was changed.
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

    /// Changes the word at `place`, whose owner cannot change because a call of it
    /// is in flight.
    #[inline]
    pub(super) fn change_pinned(
        &self,
        place: WordPlace,
        change: impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        // Relaxed: the call has seen its tag there, and no thread stores one since.
        let tag = self.slot(place).tag.load(Ordering::Relaxed);
        let changed = self.update(place, tag, |word| change(word).ok_or(()))?;
        changed.ok().map(|change| change.after)
    }

    /// The word by which a call of the key `tag` would be judged.
    pub(super) fn word(&self, tag: u64, judge: &dyn Judge) -> u64 {
        for set in self.sets_of(tag) {
            for slot in &self.sets[set].0 {
                if let Some(word) = slot.word_of(tag) {
                    return word;
                }
            }
        }
        match self.room(tag, judge) {
            Some((_, last)) => judge.fresh(last),
            None => of_all(self.overflow.word.load(Ordering::Relaxed), judge),
        }
    }

    /// How many calls were judged on the overflow word.
    pub(super) fn overflows(&self) -> u64 {
        self.overflows.load(Ordering::Relaxed)
    }

    /// Returns whether a slot is owned by another key than `tag`.
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

    /// How many keys are not at rest. Looks at every slot.
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

    /// Inlined, with its callers, so that its result stays in registers.
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
        // The rest at once, so that one cache miss does not wait for another.
        let rest = (0..LINES).filter(|&line| line != home);
        let near = rest.fold(0, |found, line| found | first.find(tag, line));
        let far = (0..LINES).fold(0, |found, line| found | second.find(tag, line));
        self.take_found(tag, judge, sets, near | far << SLOTS)
    }

    /// The call on the slots in `found`: bits for the first set, then for the second.
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
            // At most 2^27 slots.
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
        // Another call may be about to take the last slot of the better one.
        let (_, index, word) = better.best.or(other.best)?;
        Some((index, word))
    }

    /// The two sets in which a key may live: different ones, if there are two.
    #[inline]
    pub(super) fn sets_of(&self, tag: u64) -> [usize; 2] {
        let sets = self.sets.len();
        let first = scale(tag >> 32, sets);
        let second = first + 1 + scale(tag & u64::from(u32::MAX), sets - 1);
        [first, if second < sets { second } else { second - sets }]
    }

    #[cfg(all(test, not(sentinel_loom)))]
    pub(super) fn is_home(&self, index: u32, tag: u64) -> bool {
        let home = self.sets_of(tag)[0] * SLOTS + favourite(tag);
        index as usize / LINE == home / LINE
    }

    /// Changes the word at `place` by `change`, or gives `None` if it is not that of the
    /// key `tag`.
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

    #[inline(always)]
    fn slot(&self, place: WordPlace) -> &KeySlot {
        match place {
            WordPlace::Slot(index) => &self.sets[index as usize / SLOTS].0[index as usize % SLOTS],
            WordPlace::Overflow => &self.overflow,
        }
    }
}

/// The overflow `word`, or a fresh one while it is 0, as no call has been judged on it yet.
fn of_all(word: u64, judge: &dyn Judge) -> u64 {
    if word == 0 { judge.fresh(word) } else { word }
}

/// The slot of its first set that a key would like best.
const fn favourite(tag: u64) -> usize {
    // The high bits of this half choose the set.
    (tag >> 32) as usize % SLOTS
}

/// A number below `size` from 32 random bits, without a division.
#[inline]
const fn scale(bits: u64, size: usize) -> usize {
    ((bits * size as u64) >> 32) as usize
}

// === impl Set ===

impl Set {
    fn new() -> Self {
        Self(std::array::from_fn(|_| KeySlot::new()))
    }

    /// The slots of one cache line whose tag is `tag`, as bits. Without a branch for
    /// each slot, which no processor could predict.
    #[inline]
    fn find(&self, tag: u64, line: usize) -> u32 {
        let base = line * LINE;
        let mut found = 0;
        for (index, slot) in self.0[base..base + LINE].iter().enumerate() {
            // Relaxed: `update` looks again when it has read the word.
            let is_own = slot.tag.load(Ordering::Relaxed) == tag;
            found |= u32::from(is_own) << index;
        }
        found << base
    }

    /// The room for the key `tag` in a set whose first slot is number `base`.
    fn room(&self, base: u32, tag: u64, judge: &dyn Judge) -> SetRoom {
        let mut room = SetRoom::default();
        for nth in 0..SLOTS {
            // Begins with the key's favourite slot, and so with all of its cache line.
            let index = favourite(tag) ^ nth;
            let slot = &self.0[index];
            let spare = slot.spare(judge);
            room.owned += usize::from(slot.tag.load(Ordering::Relaxed) != NOBODY);
            let Some((rest, word)) = spare else {
                room.busy += 1;
                continue;
            };
            // One without an owner, else one at home, else the one that rests for longest.
            let worth = (rest == u64::MAX, nth < LINE, rest);
            if room.best.is_none_or(|(best, ..)| best < worth) {
                room.best = Some((worth, base + index as u32, word));
            }
        }
        room
    }
}
