//! A counter as an entry in the table of its rule, which has one for each key.

use super::SharedQuota;
use crate::base::sync::Ordering;
use crate::clock::{Tick, nanos};
use crate::stat::{Resident, TablePlace};
use crate::store::digest::CounterDigest;

impl SharedQuota {
    /// A call has asked for it at `now`: it keeps its place as long as its window does.
    #[inline]
    pub(in crate::store) fn touch(&self, now: Tick) {
        // Not with each call: all of a key write there.
        if now.nanos_since(self.used()) > 1_000_000 {
            self.used.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    fn used(&self) -> Tick {
        Tick::from_nanos(self.used.load(Ordering::Relaxed))
    }
}

impl Resident for SharedQuota {
    type Key = CounterDigest;
    type Sum = ();

    fn key(&self) -> &CounterDigest {
        &self.digest
    }

    fn place(&self) -> &TablePlace {
        &self.place
    }

    fn is_idle(&self, now: Tick) -> bool {
        now.nanos_since(self.used()) > nanos(self.rule.window.memory())
    }

    fn retire(&self, (): &mut ()) {}
}
