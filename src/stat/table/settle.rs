//! Retires an entry that has left the map, once nobody holds it.
//!
//! The entry is no longer in the map, but a thread can still have a weak reference to it, and can
//! upgrade it, use the entry and drop it at any moment. If this happens before the evictor has
//! unwrapped the entry, the entry stays:
//!
//! ```text
//! evictor   alone? ─▶ idle? ─▶ unwrapped ─▶ idle? ─▶ retired
//!              │        │          │          │
//! it stays ◀───┴────────┴──────────┘          └─▶ it stays, in a new `Arc`
//! ```
//!
//! Once the entry is unwrapped, no weak reference leads to it. A thread that used the entry between
//! the first check and the unwrapping has dropped its reference by then. So unwrapping synchronizes
//! with that thread, and the second check sees everything that it wrote. If the entry must stay
//! now, it comes back in a new `Arc`: the old weak references are dead, and their owners must find
//! the entry by its key again.

use std::ops::Deref;

use crate::base::sync::{Arc, Bug, Ordering, fence, planted};

/// A counted reference to an entry. Models implement it themselves, because loom has no weak
/// references.
pub(super) trait Holding<V>: Deref<Target = V> + Sized {
    /// Returns whether there are other references. Does not synchronize with their owners.
    fn is_held_by_others(&self) -> bool;

    /// Returns the entry if there are no other references. Synchronizes with all owners that have
    /// dropped their references.
    fn unwrap(self) -> Result<V, Self>;

    /// Returns a new reference to `entry`, to which no weak reference leads.
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

/// If no thread holds the entry any more and `may_go` still allows it, passes the entry to `read`
/// and drops it. Otherwise returns the entry. A call can have used and dropped the entry since it
/// was chosen for eviction; `may_go` sees the effects of all these calls.
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
    // Synchronizes with every holder that has dropped its reference, as unwrapping does.
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
    //! Models of an entry that is dropped or used while it is evicted.

    use std::sync::{Arc as StdArc, Weak as StdWeak};

    use super::*;
    use crate::base::sync::AtomicU64;

    /// A call adds to the count of an entry and drops it, while an evictor waits for the last
    /// holder. Every count must be in the sum.
    pub(in crate::stat) fn drop_during_evict() {
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

    /// A call uses an entry through a weak reference, while an evictor finds the entry idle. Either
    /// the call comes too late, or the entry stays with the call's count.
    pub(in crate::stat) fn weak_use_during_evict() {
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

    /// A counted reference that works like the standard library's `Arc`, with the same memory
    /// orderings.
    struct Counted<V> {
        /// The number of counted references.
        holders: StdArc<AtomicU64>,
        /// `None` once it is unwrapped.
        entry: Option<StdArc<V>>,
    }

    /// A weak reference to a [`Counted`] entry.
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

    /// How a use through a weak reference ends.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Ending {
        /// The use comes too late, and the entry is gone.
        Late,
        /// The entry stays, and the weak reference still leads to it.
        Found,
        /// The entry stays, in a new `Arc`.
        Moved,
    }

    #[test]
    fn a_use_through_a_weak_reference_is_never_lost() {
        for (at_look, lets_go, ending) in [
            (0, true, Ending::Found),
            (0, false, Ending::Found),
            // A use during a check comes after the check has read the count.
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
