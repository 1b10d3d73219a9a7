//! loom's atomics, for models in which a thread may sleep before each access.
//!
//! loom tries another order where two accesses conflict, and considers only the last access of each
//! thread: it does not try to suspend a thread before a load that has been repeated since. With
//! `SENTINEL_LOOM_PAUSES` set, loads and stores are read-modify-writes, which always conflict. That
//! hides errors of orderings that are too weak, so it is a second way to run the models, not a
//! better one.

use std::env;
use std::ops::Deref;
use std::sync::OnceLock;

use super::Ordering;

/// Returns whether `SENTINEL_LOOM_PAUSES` is set.
fn pauses() -> bool {
    static PAUSES: OnceLock<bool> = OnceLock::new();
    *PAUSES.get_or_init(|| env::var_os("SENTINEL_LOOM_PAUSES").is_some())
}

macro_rules! atomic {
    ($name:ident of $value:ty) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                if pauses() {
                    self.0.fetch_add(0, Ordering::AcqRel)
                } else {
                    self.0.load(order)
                }
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                if pauses() {
                    self.0.swap(value, Ordering::AcqRel);
                } else {
                    self.0.store(value, order);
                }
            }
        }

        impl Deref for $name {
            type Target = loom::sync::atomic::$name;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}

atomic!(AtomicU32 of u32);
atomic!(AtomicU64 of u64);
