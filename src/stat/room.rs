//! How much room a quota has, and when it will have some: what refused calls are told.
//!
//! Nothing is taken here, so no compare-and-swap confirms what was read. A cut does
//! not change while it is there; where it is missing the head has moved on, or stands
//! in a jump, and it is looked for again: it is never taken for an empty window.

use std::slice::from_ref;

use super::leap_array::{Denied, LeapArray, Refusal};
use super::quota::Quota;
use super::word::Head;
use crate::clock::Tick;
use crate::sync::{Bug, planted};

// === impl LeapArray ===

impl LeapArray {
    /// How many tokens `quota` has room for now.
    pub(crate) fn room(&self, now: Tick, quota: &Quota) -> u32 {
        self.left(now, quota).unwrap_or(0)
    }

    /// Whether `quota` has room for `n` tokens now. Where more is used than it lets, as
    /// after a reload, it has none for 0 tokens either.
    pub(crate) fn has_room(&self, now: Tick, n: u32, quota: &Quota) -> bool {
        self.left(now, quota).is_some_and(|left| n <= left)
    }

    /// Whether every quota has room for `n` tokens now: what an attempt to take them would
    /// find.
    pub(crate) fn check_room(&self, now: Tick, n: u32, quotas: &[Quota]) -> Result<(), Denied> {
        if quotas.is_empty() {
            return Ok(());
        }
        loop {
            let (head, bucket) = self.present(self.bucket_number(now))?;
            match self.judge(head, bucket, n, quotas) {
                Ok(()) => return Ok(()),
                Err(Refusal::Full(index)) => return Err(Denied::Full(index)),
                Err(Refusal::Gap) if planted(Bug::GapIsFull) => return Err(Denied::Full(0)),
                Err(Refusal::Gap) => self.find_cut(head, bucket, quotas),
            }
        }
    }

    /// What is left of `quota` now; `None` if more is used than it lets, or if the array
    /// has moved.
    fn left(&self, now: Tick, quota: &Quota) -> Option<u32> {
        loop {
            let (head, bucket) = self.present(self.bucket_number(now)).ok()?;
            if let Some(used) = self.used(head, quota.start(bucket)) {
                return quota.limit().checked_sub(used);
            }
            self.find_cut(head, bucket, from_ref(quota));
        }
    }

    /// When `quota` will have room for `n` tokens if nobody else takes any;
    /// `None` if never.
    pub(crate) fn room_at(&self, now: Tick, n: u32, quota: &Quota) -> Option<Tick> {
        let most = quota.limit().checked_sub(n)?;
        loop {
            let (head, bucket) = self.present(self.bucket_number(now)).ok()?;
            let Some(target) = self.target_of(head, bucket, most, quota) else {
                self.find_cut(head, bucket, from_ref(quota));
                continue;
            };
            // What the cells say is true only as of this bucket.
            if self.is_still_at(head) || planted(Bug::GapIsFree) {
                return Some(self.start_of(target));
            }
        }
    }

    /// The first bucket after `bucket` whose window holds at most `most` tokens;
    /// `None` if a cut is missing.
    fn target_of(&self, head: Head, bucket: u64, most: u32, quota: &Quota) -> Option<u64> {
        let mut target = bucket;
        loop {
            target = quota.next_start(target);
            let start = quota.start(target);
            let is_future = start.wrapping_sub(bucket) as i64 > 0;
            // Of what is granted now, a window in the future holds only what is
            // held for its buckets and, moving along, for later ones. Beyond
            // the last loan that is nothing, so this ends.
            let used = if is_future {
                self.held_between(bucket, start, u64::MAX)
            } else {
                self.used(head, start)?
            };
            if used <= most {
                return Some(target);
            }
        }
    }

    /// Tokens granted from bucket `start` on, when the head was `head`; `None` if
    /// the cut is missing.
    pub(super) fn used(&self, head: Head, start: u64) -> Option<u32> {
        let used = self.cut(start).map(|cut| head.granted().wrapping_sub(cut));
        if planted(Bug::GapIsFree) {
            return used.or(Some(0));
        }
        used
    }

    /// Whether the head stands at the bucket of `head`.
    pub(super) fn is_still_at(&self, head: Head) -> bool {
        self.load_head().stamp() == head.stamp() || planted(Bug::ReadAcrossBuckets)
    }
}
