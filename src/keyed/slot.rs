//! A slot of a table of keys: the tag of its owner, and the word of this owner.
//!
//! The slot can change its owner while calls of the previous owner are still in progress.
//! [`table`](super::table) explains why that is safe.

use super::{CLAIMED, Judge};
use crate::base::sync::{AtomicU64, Bug, Ordering, planted};

/// The tag of a slot without an owner.
pub(super) const NOBODY: u64 = 0;

/// A slot: see the [module](self).
#[derive(Debug)]
pub(super) struct KeySlot {
    /// The keyed hash of the owner, or [`NOBODY`].
    pub(super) tag: AtomicU64,
    /// What the owner has spent.
    pub(super) word: AtomicU64,
}

// === impl KeySlot ===

impl KeySlot {
    pub(super) fn new() -> Self {
        Self {
            tag: AtomicU64::new(NOBODY),
            word: AtomicU64::new(0),
        }
    }

    /// Changes the word of the key `tag` with `change`. Returns the word before and after, or the
    /// error of `change`; `None` if the slot belongs to another key.
    #[inline(always)]
    pub(super) fn update<E>(
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
                Err(error) => {
                    // No swap confirms that word and tag belong together. If the word is unchanged
                    // after the tag was read (acquire), it is that of this owner.
                    let now = self.word.load(Ordering::Acquire);
                    if now == word || planted(Bug::RefusalWithoutThirdLook) {
                        return Some(Err(error));
                    }
                    word = now;
                    continue;
                }
            };
            // Acquire: `change` may read the clock, which must happen after the word is read.
            // Release: a call that finds this value reads the clock later than this call.
            let (won, lost) = (Ordering::Release, Ordering::Acquire);
            match self.word.compare_exchange_weak(word, next, won, lost) {
                Ok(_) => return Some(Ok((word, next))),
                Err(now) => word = now,
            }
        }
    }

    /// Returns the word, if it is that of the key `tag`.
    pub(super) fn word_of(&self, tag: u64) -> Option<u64> {
        if self.tag.load(Ordering::Acquire) != tag {
            return None;
        }
        let word = self.word.load(Ordering::Acquire);
        if word == CLAIMED && !planted(Bug::ReadClaimed) {
            return None;
        }
        let is_own = planted(Bug::HitWithoutSecondLook) || self.tag.load(Ordering::Acquire) == tag;
        is_own.then_some(word)
    }

    /// Returns how long the slot has been free or at rest, and its word; `None` if its owner is not
    /// at rest.
    pub(super) fn spare(&self, judge: &dyn Judge) -> Option<(u64, u64)> {
        let tag = self.tag.load(Ordering::Acquire);
        let word = self.word.load(Ordering::Acquire);
        match (tag, word) {
            (_, CLAIMED) if !planted(Bug::SpareClaimed) => None,
            // With any other word, a new owner has come since the tag was read.
            (NOBODY, 0) => Some((u64::MAX, word)),
            (NOBODY, _) if planted(Bug::SpareByTag) => Some((u64::MAX, word)),
            _ => Some((judge.rest(word)?, word)),
        }
    }

    /// Gives the slot to the key `tag` with the word `next`, and returns true, if the slot's word
    /// is still `last`.
    pub(super) fn pass_on(&self, last: u64, tag: u64, next: u64) -> bool {
        if planted(Bug::TagBeforeClaim) {
            self.tag.store(tag, Ordering::Release);
        }
        // Acquire: orders this claim after all calls of the last owner, so that tags are stored in
        // the order of the owners. `spare` has read `last` with acquire already, but a later call
        // can have restored that value.
        let (won, lost) = (Ordering::Acquire, Ordering::Relaxed);
        let is_claimed = self.word.compare_exchange(last, CLAIMED, won, lost).is_ok();
        if is_claimed {
            if planted(Bug::WordBeforeTag) {
                self.word.store(next, Ordering::Release);
                self.tag.store(tag, Ordering::Release);
                return true;
            }
            self.tag.store(tag, Ordering::Release);
            self.word.store(next, Ordering::Release);
        }
        is_claimed
    }
}
