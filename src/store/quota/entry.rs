//! A counter as an entry in the table of its rule, which has one for each key.

use super::SharedQuota;
use crate::base::sync::Ordering;
use crate::clock::Tick;
use crate::stat::{Resident, TablePlace};
use crate::store::digest::CounterDigest;

impl SharedQuota {
    /// A call has asked for it at `now`: it keeps its place as long as its window does.
    #[inline]
    pub(in crate::store) fn touch(&self, now: Tick) {
        let now = units(now);
        // Not with each call: all of a key write there.
        if self.used.load(Ordering::Relaxed) != now as u32 {
            self.used.store(now as u32, Ordering::Relaxed);
        }
    }

    /// Forgets what matters no more at `now`.
    pub(in crate::store) fn rest(&self, now: Tick) {
        let mut books = self.books.lock();
        let Some(ledger) = books.ledger() else {
            return;
        };
        if !ledger.is_of_the_past(now) {
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

/// The unit in which the last use is noted, which 32 bits of hold more than two years.
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

    /// Only calls change that, with a reference from the table: what the task of the store does with a
    /// counter that the [hub](crate::store::hub::Hub) knows does not. So none is used while the table
    /// lets it go, and lives on as one of which the hub does not know.
    fn is_idle(&self, now: Tick) -> bool {
        let unused = (units(now) as u32).wrapping_sub(self.used.load(Ordering::Relaxed));
        // Both ends are rounded down.
        u64::from(unused) > units(Tick::ZERO + self.rule.window.memory()) + 1
    }

    fn retire(&self, (): &mut ()) {}
}
