//! Permits that go back to the store, as calls have not used them.

use super::Ledger;
use crate::clock::Tick;
use crate::store::draw::Booking;

impl Ledger {
    /// Notes that `n` permits of `bucket` go back to the store. Only those of two buckets can, such
    /// as the present one and the next: those of the oldest are lost. Of what calls cost those of
    /// all buckets can, as calls end long after the bucket in which they have reserved. Returns how
    /// many are lost.
    pub(crate) fn return_later(&mut self, bucket: u64, n: u32) -> u32 {
        let permits = self.unbook(bucket, n);
        if permits == 0 {
            return 0;
        }
        if !self.here_is_before(bucket + u64::from(self.window.buckets)) {
            return permits;
        }
        let most = match self.terms.by_cost {
            true => self.window.buckets as usize + 1,
            false => 2,
        };
        let back = &mut self.pending_mut().back;
        if let Some(back) = back.iter_mut().find(|back| back.bucket == bucket) {
            back.permits = back.permits.saturating_add(permits);
            return 0;
        }
        let at = back.partition_point(|back| back.bucket < bucket);
        back.reserve_exact(1);
        back.insert(at, Booking { bucket, permits });
        if back.len() > most {
            back.remove(0).permits
        } else {
            0
        }
    }

    pub(super) fn back(&self) -> &[Booking] {
        let pending = self.pending.as_ref();
        pending.map_or(&[], |pending| &pending.back)
    }

    /// Returns whether permits are to go back.
    pub(crate) fn returns(&self) -> bool {
        !self.back().is_empty()
    }

    /// Returns whether permits of a bucket after `present` are to go back: others may still borrow
    /// them, so they wait for no other draw.
    pub(crate) fn returns_ahead(&self, present: u64) -> bool {
        self.back().iter().any(|back| back.bucket > present)
    }

    /// The permits that go back with the next draw: the oldest, which are the first to be of no
    /// use.
    pub(crate) fn take_back(&mut self) -> Option<Booking> {
        let back = &mut self.pending.as_mut()?.back;
        (!back.is_empty()).then(|| back.remove(0))
    }

    /// Forgets the permits that are to go back: they cannot.
    pub(crate) fn forget_back(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.back = Vec::new();
        }
    }

    /// Forgets those of buckets after `last`: the store has them in another bucket now, or not at
    /// all, and they count until its end.
    pub(super) fn forget_back_after(&mut self, last: u64) {
        if let Some(pending) = &mut self.pending {
            pending.back.retain(|back| back.bucket <= last);
        }
    }

    /// Forgets permits that go back if their bucket counts no more at `now`, and returns how many.
    /// The store cannot tell: if its clock was set back, it has that bucket again, with the
    /// permits of others.
    pub(crate) fn forget_stale_back(&mut self, now: Tick) -> u32 {
        let number = self.here(now).number;
        let first = (number + 1).saturating_sub(self.window.buckets.into());
        let mut lost = 0;
        if let Some(pending) = &mut self.pending {
            pending.back.retain(|back| {
                let counts = first <= back.bucket && back.bucket <= number + 1;
                lost += if counts { 0 } else { back.permits };
                counts
            });
        }
        lost
    }
}
