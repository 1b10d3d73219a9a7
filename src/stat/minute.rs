//! The first second for which a node has checkpoints. Readers of the last minute start there.
//!
//! Most nodes keep the checkpoints of seconds from their creation on, or never. A node can also
//! begin later, for example when a reload brings a rule for a resource that has been called before:
//!
//! ```text
//! second      7          8          9          10
//! buckets     |----------|----------|----------|--
//!               begins   no cut?    cut        cut
//!               9 is the first second that is known
//! ```
//!
//! The thread that opens a second checks, by an atomic read-modify-write, whether it must take the
//! checkpoint. A thread that begins to keep seconds after this check sees the head at least where
//! the first thread read it. So at most one more second is opened without a checkpoint, and the
//! next second has the first checkpoint.

use crate::base::sync::{AtomicU64, Bug, Ordering, planted};

/// Set in the word of a node that began to keep seconds after it was created.
const LATE: u64 = 1 << 63;
/// No seconds are kept.
const OFF: u64 = u64::MAX;
/// A thread is in `begin`: seconds are kept, but the first second is not known yet.
const BEGINNING: u64 = OFF - 1;

/// The second in which the node was created; or, with `LATE`, the first second with a checkpoint;
/// or `OFF` or `BEGINNING`.
#[derive(Debug)]
pub(super) struct Minute(AtomicU64);

impl Minute {
    /// Creates the word of a node that is created in second `born`.
    pub(super) fn new(is_kept: bool, born: u64) -> Self {
        Self(AtomicU64::new(if is_kept { born } else { OFF }))
    }

    /// Begins to keep seconds, unless the node keeps them already. `second` returns the newest
    /// second.
    pub(super) fn begin(&self, second: impl FnOnce() -> u64) {
        // Acquire: pairs with the read-modify-write in `needs_cut` of a thread whose check came
        // earlier.
        let begun = self
            .0
            .compare_exchange(OFF, BEGINNING, Ordering::AcqRel, Ordering::Relaxed);
        if begun.is_ok() {
            let first = second() + 2;
            // Release: pairs with the load of a reader.
            self.0.store(LATE | first, Ordering::Release);
        }
    }

    /// Returns whether a thread that opens a second must take its checkpoint. To be called after
    /// the head is read and before it is moved.
    pub(super) fn needs_cut(&self) -> bool {
        if self.0.load(Ordering::Relaxed) != OFF {
            return true;
        }
        // Release: pairs with the acquire in `begin`.
        !planted(Bug::MinuteByLoad) && self.0.fetch_add(0, Ordering::AcqRel) != OFF
    }

    /// Returns whether seconds are kept.
    pub(super) fn is_kept(&self) -> bool {
        self.0.load(Ordering::Relaxed) != OFF
    }

    /// The first second with a checkpoint. It is 0 if seconds have been kept from the start,
    /// `u64::MAX` if it is not known yet, and `None` if no seconds are kept.
    pub(super) fn first(&self) -> Option<u64> {
        match self.0.load(Ordering::Acquire) {
            OFF => None,
            BEGINNING => Some(u64::MAX),
            late if late & LATE != 0 => Some(late & !LATE),
            _ => Some(0),
        }
    }

    /// The second in which the node was created, if it has kept seconds since then.
    pub(super) fn born(&self) -> Option<u64> {
        let found = self.0.load(Ordering::Relaxed);
        (found & LATE == 0).then_some(found)
    }
}

/// A counter of one second, the newest in which anything was counted: `[ second:35 | count:29 ]`.
/// The count saturates.
#[derive(Debug, Default)]
pub(super) struct ThisSecond(AtomicU64);

impl ThisSecond {
    const COUNT_BITS: u32 = 29;
    /// The largest count, at which it saturates.
    const MOST: u64 = (1 << Self::COUNT_BITS) - 1;

    /// Adds `weight` in `second`, or in the newest second, if that is later.
    pub(super) fn add(&self, second: u64, weight: u32) {
        let add = |found: u64| {
            let newest = found >> Self::COUNT_BITS;
            let count = if newest < second {
                0
            } else {
                found & Self::MOST
            };
            let count = (count + u64::from(weight)).min(Self::MOST);
            Some(newest.max(second) << Self::COUNT_BITS | count)
        };
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// The count of `second`, or 0 if another second is the newest.
    pub(super) fn of(&self, second: u64) -> u64 {
        let found = self.0.load(Ordering::Relaxed);
        if found >> Self::COUNT_BITS == second {
            found & Self::MOST
        } else {
            0
        }
    }
}

#[cfg(all(test, sentinel_loom))]
pub(super) mod models {
    //! A model of a node that begins to keep seconds while they are opened.

    use super::super::checkpoints::{Checkpoints, StepHead};
    use super::*;
    use crate::base::sync::Arc;

    /// A counter with the checkpoints of its seconds, like those of a node.
    struct Kept {
        head: StepHead,
        counter: AtomicU64,
        minute: Minute,
        cuts: Checkpoints<1>,
    }

    impl Kept {
        /// Counts an event in `second`, after opening that second if necessary.
        fn event(&self, second: u64) {
            while self.head.step() < second {
                self.head.advance(self.head.step(), |next, stands| {
                    let cut = || self.counter.load(Ordering::Relaxed);
                    !self.minute.needs_cut() || self.cuts.publish(next, 0, cut(), stands)
                });
            }
            self.counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One event in each second: every second from `first` on has its checkpoint.
    pub(in crate::stat) fn a_late_beginning() {
        let kept = Arc::new(Kept {
            head: StepHead::new(0),
            counter: AtomicU64::new(0),
            minute: Minute::new(false, 0),
            cuts: Checkpoints::new(4, 0),
        });
        let caller = kept.clone();
        let caller = loom::thread::spawn(move || (1..=3).for_each(|second| caller.event(second)));
        kept.minute.begin(|| kept.head.step());
        caller.join().unwrap();
        let first = kept.minute.first().expect("it has begun");
        for second in first..=3 {
            let before = kept.cuts.get(second, 0);
            assert_eq!(before, Some(second - 1), "the cut of second {second}");
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn late_counts_go_to_the_newest_second() {
        let lent = ThisSecond::default();
        lent.add(7, 2);
        lent.add(7, 3);
        assert_eq!([lent.of(6), lent.of(7), lent.of(8)], [0, 5, 0]);
        lent.add(8, 1);
        lent.add(7, 1);
        assert_eq!([lent.of(7), lent.of(8)], [0, 2]);
        let last = u64::MAX / 1_000_000_000;
        lent.add(last, u32::MAX);
        lent.add(last, u32::MAX);
        assert_eq!(lent.of(last), ThisSecond::MOST);
    }
}
