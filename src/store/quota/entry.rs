//! A counter as an entry in the table of its rule, which has one counter for each key.

use super::SharedQuota;
use crate::base::sync::Ordering;
use crate::clock::Tick;
use crate::stat::{Resident, TablePlace};
use crate::store::digest::CounterDigest;

impl SharedQuota {
    /// Notes that a call uses the counter at `now`. The counter then keeps its place in the table
    /// for at least the length of its window.
    #[inline]
    pub(in crate::store) fn touch(&self, now: Tick) {
        let now = units(now);
        // Written only if it changes, as all calls of a key share the field.
        if self.used.load(Ordering::Relaxed) != now as u32 {
            self.used.store(now as u32, Ordering::Relaxed);
        }
    }

    /// Drops state that has expired at `now`.
    pub(in crate::store) fn rest(&self, now: Tick) {
        let mut books = self.books.lock();
        let Some(ledger) = books.ledger() else {
            return;
        };
        if !ledger.is_all_expired(now) {
            return;
        }
        self.close(ledger, now);
        let lost = ledger.forget_stale_back(now);
        ledger.tidy(now);
        if ledger.is_at_rest() && self.in_hand(now) == 0 {
            books.close();
        }
        drop(books);
        self.rule.figures.counts().lost.add(lost.into());
    }
}

/// Converts `time` to the unit of `SharedQuota::used`, which is 16.8 ms. 32 bits hold more than two
/// years of it.
const fn units(time: Tick) -> u64 {
    time.as_nanos() >> 24
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

    /// Only calls keep an entry in use, and they hold a reference from the table. The store's task,
    /// which finds counters through the [hub](crate::store::hub::Hub), does not. So no call can use
    /// an entry while the table drops it.
    fn is_idle(&self, now: Tick) -> bool {
        let unused = (units(now) as u32).wrapping_sub(self.used.load(Ordering::Relaxed));
        // One unit more, as both times are rounded down.
        u64::from(unused) > units(Tick::ZERO + self.rule.window.memory()) + 1
    }

    fn retire(&self, (): &mut ()) {}
}
