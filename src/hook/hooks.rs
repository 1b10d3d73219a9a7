//! `Hooks`: the hooks of an engine, and the events that they want.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::Hook;
use super::interest::Interest;
use crate::base::panics::catch_panic;
use crate::base::sync::{AtomicU32, AtomicU64, Lock, Ordering};

/// The hooks of an engine, by name.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use tower_sentinel::{Hook, Rules, Sentinel};
///
/// #[derive(Debug)]
/// struct Audit;
///
/// impl Hook for Audit {}
///
/// let sentinel = Sentinel::new(Rules::new());
/// sentinel.hooks().register("audit", Arc::new(Audit));
/// assert_eq!(&*sentinel.hooks().names()[0], "audit");
/// assert!(sentinel.hooks().remove("audit"));
/// assert!(!sentinel.hooks().remove("audit"));
/// ```
#[derive(Debug, Default)]
pub struct Hooks {
    /// The union of the events that the hooks want. Read first, as most engines have no hooks.
    pub(super) wanted: AtomicU32,
    pub(super) list: ArcSwap<Vec<NamedHook>>,
    /// Held while the list is changed.
    pub(super) writer: Lock<()>,
    pub(super) panics: AtomicU64,
}

/// A hook, its name and the events that it wants.
#[derive(Clone, Debug)]
pub(super) struct NamedHook {
    name: Arc<str>,
    hook: Arc<dyn Hook>,
    interest: Interest,
}

impl Hooks {
    /// Registers `hook` under `name`, after all others. If there is a hook of this name, the new
    /// hook replaces it, at its place in the order.
    pub fn register(&self, name: impl Into<Arc<str>>, hook: Arc<dyn Hook>) {
        let new = NamedHook {
            interest: hook.interest(),
            name: name.into(),
            hook,
        };
        self.change(
            |hooks| match hooks.iter_mut().find(|known| known.name == new.name) {
                Some(known) => *known = new,
                None => hooks.push(new),
            },
        );
    }

    /// Removes the hook of this name. Returns whether a hook was removed. A notification that is
    /// under way may still reach it.
    pub fn remove(&self, name: &str) -> bool {
        self.change(|hooks| {
            let before = hooks.len();
            hooks.retain(|known| &*known.name != name);
            hooks.len() < before
        })
    }

    /// Returns the names of the hooks, in the order in which they are called.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        self.list
            .load()
            .iter()
            .map(|hook| hook.name.clone())
            .collect()
    }

    /// Returns how many notifications of hooks have ended in a panic.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Replaces the list by a copy that `change` has changed. Returns the result of `change`.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<NamedHook>) -> T) -> T {
        let writer = self.writer.lock();
        let mut hooks = Vec::clone(&self.list.load());
        let result = change(&mut hooks);
        let wanted = hooks
            .iter()
            .fold(Interest::NONE, |all, hook| all | hook.interest);
        let before = self.list.swap(Arc::new(hooks));
        self.wanted.store(wanted.bits(), Ordering::Release);
        drop(writer);
        // Dropped after the lock: this can be the last reference to a hook, whose destructor may
        // change the hooks as well.
        drop(before);
        result
    }

    /// Returns whether any hook wants `event`. Acquire: pairs with the release in `change`.
    #[inline]
    pub(crate) fn want(&self, event: Interest) -> bool {
        self.wanted.load(Ordering::Acquire) & event.bits() != 0
    }

    /// Calls every hook that wants `event`, in order.
    #[cold]
    pub(crate) fn notify(&self, event: Interest, call: &dyn Fn(&dyn Hook)) {
        // A guard would keep a slot of this thread busy while hooks run.
        let hooks = self.list.load_full();
        for known in hooks.iter().filter(|it| it.interest.contains(event)) {
            if catch_panic(|| call(&*known.hook)).is_none() {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
        // A hook that was removed meanwhile is dropped here, if nobody else holds it.
        if catch_panic(|| drop(hooks)).is_none() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }
}
