//! Unused permits that are returned to the store.

use super::Ledger;
use crate::clock::Tick;
use crate::store::draw::Booking;

impl Ledger {
    /// Schedules the return of `n` permits of `bucket` to the store. Returns the number of permits
    /// that are lost.
    ///
    /// Permits of two buckets can be scheduled at a time, such as the present bucket and the next.
    /// A counter of costs can schedule permits of every bucket of the window and of the next, as a
    /// call can end long after the bucket in which it reserved. If there are too many buckets, the
    /// permits of the oldest bucket are lost.
    pub(crate) fn return_later(&mut self, bucket: u64, n: u32) -> u32 {
        let permits = self.unbook(bucket, n);
        if permits == 0 {
            return 0;
        }
        if !self.last_bucket_is_before(bucket + u64::from(self.window.buckets)) {
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

    /// Returns the permits that are scheduled for return, by bucket, oldest first.
    pub(super) fn back(&self) -> &[Booking] {
        let pending = self.pending.as_ref();
        pending.map_or(&[], |pending| &pending.back)
    }

    /// Returns whether any permits are scheduled for return.
    pub(crate) fn returns(&self) -> bool {
        !self.back().is_empty()
    }

    /// Returns whether permits of a bucket after `present` are scheduled for return. They are
    /// returned at once, without waiting for another draw, as other processes can still borrow
    /// them.
    pub(crate) fn returns_ahead(&self, present: u64) -> bool {
        self.back().iter().any(|back| back.bucket > present)
    }

    /// Removes and returns the permits that the next draw gives back: the permits of the oldest
    /// bucket, which expire first.
    pub(crate) fn take_back(&mut self) -> Option<Booking> {
        let back = &mut self.pending.as_mut()?.back;
        (!back.is_empty()).then(|| back.remove(0))
    }

    /// Drops all permits scheduled for return, when the store cannot take them.
    pub(crate) fn forget_back(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.back = Vec::new();
        }
    }

    /// Drops the permits of buckets after `last` that are scheduled for return. The store's clock
    /// was set back, so the store has moved them to another bucket, where they count until they
    /// expire, or has lost them.
    pub(super) fn forget_back_after(&mut self, last: u64) {
        if let Some(pending) = &mut self.pending {
            pending.back.retain(|back| back.bucket <= last);
        }
    }

    /// Drops permits whose bucket is out of the window at `now`, and returns their number. The
    /// store cannot detect such permits: if its clock was set back, a bucket with the same number
    /// exists again, with permits of other processes.
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
