//! Stripes of a count: words in separate cache lines, which threads divide among themselves.
//!
//! Threads on several cores that add to one word wait for its cache line in turns, so together they
//! get less done than one alone. While a count is crowded it continues in stripes: each thread adds
//! to its own stripe. What was added to the word or to a stripe stays there, also when the crowd
//! has gone, and the count is the sum of the word and all stripes. Nothing is ever moved, so a
//! reader misses nothing, counts nothing twice, and never sees the count fall.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::thread;

use crate::base::sync::{AtomicU64, Bug, Ordering, planted, thread_local};

/// The number of stripes, a power of two. If there are more threads, they share stripes.
pub(crate) const STRIPES: usize = if cfg!(all(test, sentinel_loom)) {
    2
} else {
    16
};

thread_local! {
    /// The number of the thread, once it is known.
    static OWN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A count in one word, and also in stripes once a crowd has added to it.
#[derive(Debug, Default)]
pub(crate) struct SpreadCount {
    /// The weight that was added without a crowd.
    word: AtomicU64,
    /// The weight that was added in a crowd; unset until there is a crowd.
    crowd: OnceLock<Stripes>,
}

/// The stripes of a [crowd](self): 2 KiB.
#[derive(Debug, Default)]
pub(crate) struct Stripes(Box<[Stripe; STRIPES]>);

/// Aligned to two cache lines, as cores read them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// A hasher that extracts the number from the id of a thread.
#[derive(Default)]
struct ThreadNumber(u64);

// === impl SpreadCount ===

impl SpreadCount {
    /// Adds to the word.
    pub(crate) fn add(&self, weight: u64) {
        self.word.fetch_add(weight, Ordering::Relaxed);
    }

    /// Adds to the stripe of this thread.
    pub(crate) fn add_in_crowd(&self, weight: u64) {
        let crowd = self.crowd.get_or_init(Stripes::default);
        if planted(Bug::SpreadMovesWord) {
            crowd.add(self.word.swap(0, Ordering::Relaxed));
        }
        crowd.add(weight);
    }

    /// Returns the count: the sum of the word and the stripes.
    pub(crate) fn sum(&self) -> u64 {
        let crowd = self.crowd.get().map_or(0, Stripes::sum);
        self.word.load(Ordering::Relaxed).wrapping_add(crowd)
    }
}

// === impl Stripes ===

impl Stripes {
    /// Adds to the stripe of this thread, and returns what it was before.
    pub(crate) fn add(&self, weight: u64) -> u64 {
        self.0[own_stripe()].0.fetch_add(weight, Ordering::Relaxed)
    }

    /// Returns the sum of all stripes.
    pub(crate) fn sum(&self) -> u64 {
        let of = |stripe: &Stripe| stripe.0.load(Ordering::Relaxed);
        self.0.iter().map(of).fold(0, u64::wrapping_add)
    }

    /// Returns the bytes on the heap.
    pub(crate) fn footprint(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Returns the stripe of this thread. Threads that are started one after the other get different
/// stripes.
pub(crate) fn own_stripe() -> usize {
    let number = |own: &Cell<Option<usize>>| {
        own.get().unwrap_or_else(|| {
            let mut number = ThreadNumber::default();
            thread::current().id().hash(&mut number);
            let number = number.0 as usize % STRIPES;
            own.set(Some(number));
            number
        })
    };
    // A thread that is ending has lost its number.
    OWN.try_with(number).unwrap_or(0)
}

impl Hasher for ThreadNumber {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 ^= number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(all(test, sentinel_loom))]
mod models {
    //! A count that begins to use stripes while other threads add to it and read it.

    use loom::thread;

    use super::*;
    use crate::base::sync::Arc;
    use crate::base::sync::fault::model;

    model! {
        a_count_that_spreads_beside_a_reader at 3 fails with
            a_count_that_moves: SpreadMovesWord;
        || {
            let count = Arc::new(SpreadCount::default());
            // The stripes are created first, as loom does not know that this orders threads.
            count.add_in_crowd(0);
            count.add(1);
            let others = [1, 2].map(|weight| {
                let count = count.clone();
                thread::spawn(move || if weight == 1 {
                    count.add(1);
                } else {
                    count.add_in_crowd(1);
                    // The count is no longer treated as crowded.
                    count.add(1);
                })
            });
            let seen = [count.sum(), count.sum()];
            assert!(1 <= seen[0] && seen[0] <= seen[1] && seen[1] <= 4);
            for thread in others {
                thread.join().unwrap();
            }
            assert_eq!(count.sum(), 4, "lost or counted twice");
        }
    }
}
