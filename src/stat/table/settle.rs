//! How an entry that has left the map is let go of.
//!
//! Whoever finds no entry in the map may still have a weak reference, and use it and let go at any
//! moment. As long as that happens before the evictor has the only reference, or while it is about
//! to take it, the entry stays as it is:
//!
//! ```text
//! evictor   alone? ─▶ idle? ─▶ unwrapped ─▶ idle? ─▶ retired
//!              │        │          │          │
//! it stays ◀───┴────────┴──────────┘          └─▶ it stays as another one
//! ```
//!
//! From the unwrapping on no weak reference leads to the entry. A thread that has used one between
//! the first look and that has let go since, so unwrapping synchronizes with it, and the second
//! look sees all that it has done. Then nobody has a reference, and the entry comes back in another
//! place: the weak references are gone, and whoever has them asks for the key again.

use std::ops::Deref;

use crate::base::sync::{Arc, Bug, Ordering, fence, planted};

/// A reference to an entry that others may have as well. A model has one of its own, as loom has no
/// weak references.
pub(super) trait Holding<V>: Deref<Target = V> + Sized {
    /// Returns whether there are others, in no order with what they do.
    fn is_held_by_others(&self) -> bool;

    /// The entry, if there are none. Synchronizes with all that have let go.
    fn unwrap(self) -> Result<V, Self>;

    fn wrap(entry: V) -> Self;
}

impl<V> Holding<V> for Arc<V> {
    fn is_held_by_others(&self) -> bool {
        Self::strong_count(self) > 1
    }

    fn unwrap(self) -> Result<V, Self> {
        Self::try_unwrap(self)
    }

    fn wrap(entry: V) -> Self {
        Self::new(entry)
    }
}

/// Hands the entry to `read` if no thread holds it any more, with everything that was done to it
/// done, and that is no reason for it to stay: a call may have found it, used it and let it go
/// since it was chosen.
pub(super) fn settle<V, H: Holding<V>>(
    entry: H,
    may_go: impl Fn(&V) -> bool,
    read: impl FnOnce(&V),
) -> Result<(), H> {
    if planted(Bug::ReadBeforeLast) {
        read(&entry);
        return entry.unwrap().map(drop);
    }
    if entry.is_held_by_others() {
        return Err(entry);
    }
    // As unwrapping does: this synchronizes with every holder that let go before.
    fence(Ordering::Acquire);
    if !may_go(&entry) {
        return Err(entry);
    }
    let entry = entry.unwrap()?;
    if !may_go(&entry) && !planted(Bug::LetGoAtFirstLook) {
        return Err(H::wrap(entry));
    }
    read(&entry);
    Ok(())
}

#[cfg(all(test, sentinel_loom))]
pub(in crate::stat) mod models {
    //! An entry that is let go while it is evicted.

    use std::sync::{Arc as StdArc, Weak as StdWeak};

    use super::*;
    use crate::base::sync::AtomicU64;

    /// A call counts on an entry and lets go of it, while an evictor waits for the last holder:
    /// every count is in the sum.
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

    /// A call uses an entry by a weak reference, while an evictor finds it idle: either it comes
    /// too late, or the entry stays, with what it has done.
    pub(in crate::stat) fn weak_use_beside_evict() {
        let entry = Counted::wrap(AtomicU64::new(0));
        let weak = entry.downgrade();
        let caller = loom::thread::spawn(move || {
            let held = weak.upgrade();
            held.map_or(0, |entry| entry.fetch_add(1, Ordering::Relaxed) + 1)
        });
        let is_idle = |entry: &AtomicU64| entry.load(Ordering::Relaxed) == 0;
        let mut retired = None;
        let read = |entry: &AtomicU64| retired = Some(entry.load(Ordering::Relaxed));
        let left = settle(entry, is_idle, read);
        let used = caller.join().unwrap();
        match left {
            Ok(()) => assert_eq!((used, retired), (0, Some(0)), "it was used, and is gone"),
            Err(entry) => {
                assert_eq!((used, retired), (1, None));
                assert_eq!(entry.load(Ordering::Relaxed), 1);
            }
        }
    }

    /// As the standard library's `Arc`, with its orders.
    struct Counted<V> {
        holders: StdArc<AtomicU64>,
        /// `None` once it is unwrapped.
        entry: Option<StdArc<V>>,
    }

    struct WeakCounted<V> {
        holders: StdArc<AtomicU64>,
        entry: StdWeak<V>,
    }

    impl<V> Counted<V> {
        fn downgrade(&self) -> WeakCounted<V> {
            WeakCounted {
                holders: self.holders.clone(),
                entry: StdArc::downgrade(self.entry.as_ref().unwrap()),
            }
        }
    }

    impl<V> Deref for Counted<V> {
        type Target = V;

        fn deref(&self) -> &V {
            self.entry.as_ref().unwrap()
        }
    }

    impl<V> Holding<V> for Counted<V> {
        fn is_held_by_others(&self) -> bool {
            self.holders.load(Ordering::Relaxed) > 1
        }

        fn unwrap(mut self) -> Result<V, Self> {
            let none = Ordering::Relaxed;
            if self.holders.compare_exchange(1, 0, none, none).is_err() {
                return Err(self);
            }
            fence(Ordering::Acquire);
            let entry = self.entry.take().unwrap();
            Ok(StdArc::into_inner(entry).expect("nobody else holds it"))
        }

        fn wrap(entry: V) -> Self {
            Self {
                holders: StdArc::new(AtomicU64::new(1)),
                entry: Some(StdArc::new(entry)),
            }
        }
    }

    impl<V> Drop for Counted<V> {
        fn drop(&mut self) {
            if let Some(entry) = self.entry.take() {
                self.holders.fetch_sub(1, Ordering::Release);
                drop(entry);
            }
        }
    }

    impl<V> WeakCounted<V> {
        fn upgrade(&self) -> Option<Counted<V>> {
            let one_more = |holders| (holders > 0).then_some(holders + 1);
            let (found, lost) = (Ordering::Acquire, Ordering::Relaxed);
            self.holders.fetch_update(found, lost, one_more).ok()?;
            Some(Counted {
                holders: self.holders.clone(),
                entry: Some(self.entry.upgrade().expect("one more holds it")),
            })
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::base::sync::{AtomicU64, downgrade};

    /// How a use by a weak reference ends.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Ending {
        /// It comes too late, and the entry is gone.
        Late,
        /// The entry stays, and the reference leads to it.
        Found,
        /// The entry stays in another place.
        Moved,
    }

    #[test]
    fn what_a_weak_reference_has_used_stays_wherever_the_evictor_is() {
        for (at_look, lets_go, ending) in [
            (0, true, Ending::Found),
            (0, false, Ending::Found),
            // Each use in a look comes after what the look has seen.
            (1, true, Ending::Moved),
            (1, false, Ending::Found),
            (2, true, Ending::Late),
            (2, false, Ending::Late),
        ] {
            let entry = Arc::new(AtomicU64::new(0));
            let weak = downgrade(&entry);
            let (look, held) = (Cell::new(0), RefCell::new(None));
            let use_in = |this: u32| {
                if let Some(entry) = weak.upgrade().filter(|_| this == at_look) {
                    entry.fetch_add(1, Ordering::Relaxed);
                    *held.borrow_mut() = Some(entry).filter(|_| !lets_go);
                }
            };
            let is_idle = |entry: &AtomicU64| {
                let is_idle = entry.load(Ordering::Relaxed) == 0;
                look.set(look.get() + 1);
                use_in(look.get());
                is_idle
            };
            let mut retired = None;
            use_in(0);
            let left = settle(entry, is_idle, |entry| {
                retired = Some(entry.load(Ordering::Relaxed));
            });
            let ended = match &left {
                Ok(()) => Ending::Late,
                Err(_) if weak.upgrade().is_some() => Ending::Found,
                Err(_) => Ending::Moved,
            };
            let kept = left.err().map(|entry| entry.load(Ordering::Relaxed));
            let expected = match ending {
                Ending::Late => (None, Some(0)),
                Ending::Found | Ending::Moved => (Some(1), None),
            };
            assert_eq!(ended, ending, "used at look {at_look}, let go: {lets_go}");
            assert_eq!((kept, retired), expected);
        }
    }
}
