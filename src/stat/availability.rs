//! How many tokens a quota has left, and when it will have enough: the retry advice for refused
//! calls.
//!
//! These functions take no tokens, so no compare-and-swap confirms the values that they read. A
//! checkpoint does not change while it is in its slot. A missing checkpoint means that the head has
//! moved on or is jumping. The reader then retries, and never takes the gap for an empty window.

use std::slice::from_ref;

use super::leap_array::{Denied, LeapArray, Reloaded};
use super::packed::HeadWord;
use super::quota::Quota;
use super::refusal::Refusal;
use crate::base::sync::{Bug, planted};
use crate::clock::Tick;

// === impl LeapArray ===

impl LeapArray {
    /// Returns how many tokens `quota` has room for now.
    pub(crate) fn room(&self, now: Tick, quota: &Quota) -> u32 {
        self.left(now, quota).unwrap_or(0)
    }

    /// Returns whether `quota` has room for `weight` tokens now. A quota that is used beyond its
    /// limit, as can happen after a reload, has no room even for 0 tokens.
    pub(crate) fn has_room(&self, now: Tick, weight: u32, quota: &Quota) -> bool {
        self.left(now, quota).is_some_and(|left| weight <= left)
    }

    /// Checks whether every quota has room for `weight` tokens now. The verdict is the verdict that
    /// an attempt to take these tokens would get.
    pub(crate) fn check_room(
        &self,
        now: Tick,
        weight: u32,
        quotas: &[Quota],
    ) -> Result<(), Denied> {
        if quotas.is_empty() {
            return Ok(());
        }
        loop {
            let (head, bucket) = self.present(self.bucket_number(now))?;
            match self.judge(head, bucket, weight, quotas) {
                Some(judged) => return judged,
                None => self.find_cut(head, bucket, quotas),
            }
        }
    }

    /// The tokens left of `quota` now; `None` if more than its limit are used, or if a reload has
    /// replaced the array.
    fn left(&self, now: Tick, quota: &Quota) -> Option<u32> {
        let used = self.used_now(now, quota).ok()?;
        quota.limit().checked_sub(used)
    }

    /// The tokens that the window of `quota` holds now.
    pub(crate) fn used_now(&self, now: Tick, quota: &Quota) -> Result<u32, Reloaded> {
        loop {
            let (head, bucket) = self.present(self.bucket_number(now))?;
            if let Some(used) = self.used(head, quota.start(bucket)) {
                return Ok(used);
            }
            self.find_cut(head, bucket, from_ref(quota));
        }
    }

    /// Adds `weight`, as [`add_at`](Self::add_at) does, unless the window of `quota` holds `most`
    /// tokens or more. Returns what the window held before, or `None` if nothing was added.
    #[inline]
    pub(crate) fn add_below(
        &self,
        now: Tick,
        weight: u32,
        quota: &Quota,
        most: u32,
    ) -> Result<Option<u32>, Reloaded> {
        loop {
            let (head, bucket) = self.present(self.bucket_number(now))?;
            let Some(used) = self.used(head, quota.start(bucket)) else {
                self.find_cut(head, bucket, from_ref(quota));
                continue;
            };
            if used >= most {
                return Ok(None);
            }
            self.add_at_head(head, bucket, weight)?;
            return Ok(Some(used));
        }
    }

    /// The earliest time from `now` on at which `quota` has room for `weight` tokens if no other
    /// call takes any; `None` if never.
    pub(crate) fn available_from(&self, now: Tick, weight: u32, quota: &Quota) -> Option<Tick> {
        let most = quota.limit().checked_sub(weight)?;
        let (head, bucket) = self.present(self.bucket_number(now)).ok()?;
        match self.used(head, quota.start(bucket)) {
            Some(used) if used <= most => Some(now),
            Some(_) => self.available_at(now, weight, quota),
            None if self.has_room(now, weight, quota) => Some(now),
            None => self.available_at(now, weight, quota),
        }
    }

    /// The start of the next bucket at which `quota` has room for `weight` tokens if no other call
    /// takes any; `None` if never.
    pub(crate) fn available_at(&self, now: Tick, weight: u32, quota: &Quota) -> Option<Tick> {
        let most = quota.limit().checked_sub(weight)?;
        loop {
            let (head, bucket) = self.present(self.bucket_number(now)).ok()?;
            let Some(target) = self.target_of(head, bucket, most, quota) else {
                self.find_cut(head, bucket, from_ref(quota));
                continue;
            };
            // If the head has left this bucket meanwhile, the held tokens that were read may belong
            // to a later bucket.
            if self.is_still_at(head) {
                return Some(self.start_of(target));
            }
        }
    }

    /// The refusal of `weight` tokens by the quota with this index.
    #[cold]
    pub(super) fn refusal(&self, now: Tick, weight: u32, quotas: &[Quota], index: u32) -> Refusal {
        // A window that has room keeps it until a call takes tokens. So once the last of the
        // windows has room, all of them have room.
        let mut all = quotas.iter();
        let available_at = all.try_fold(now, |latest, quota| {
            Some(latest.max(self.available_from(now, weight, quota)?))
        });
        Refusal::new(index, now, available_at)
    }

    /// The first bucket after `bucket` whose window holds at most `most` tokens; `None` if a
    /// checkpoint is missing.
    ///
    /// The later a window begins, the fewer of the tokens granted so far it contains. So the
    /// windows that have begun are searched by bisection. A window that has not begun contains only
    /// held tokens, which are summed up from the farthest bucket backwards.
    pub(super) fn target_of(
        &self,
        head: HeadWord,
        bucket: u64,
        most: u32,
        quota: &Quota,
    ) -> Option<u64> {
        let stride = u64::from(quota.stride());
        let next = quota.next_start(bucket);
        // A quota bucket spans `stride` array buckets. A window has already begun if it ends with
        // one of the next `buckets − 1` quota buckets.
        let begun = u64::from(quota.buckets()) - 1;
        let (mut low, mut high) = (0, begun);
        while low < high {
            let middle = (low + high) / 2;
            if self.used(head, quota.start(next + middle * stride))? <= most {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        if low < begun {
            return Some(next + low * stride);
        }
        let start = self.free_from(bucket, most).next_multiple_of(stride);
        Some(start + begun * stride)
    }

    /// The first bucket after `bucket` such that at most `most` tokens are held for it and all
    /// later buckets together.
    fn free_from(&self, bucket: u64, most: u32) -> u64 {
        let mut held = 0_u32;
        for (target, count) in self.held_ahead(bucket).rev() {
            held = held.saturating_add(count);
            if held > most {
                return target.wrapping_add(1);
            }
        }
        bucket.wrapping_add(1)
    }

    /// The tokens granted from bucket `start` on, as of `head`; `None` if the checkpoint of `start`
    /// is missing.
    pub(super) fn used(&self, head: HeadWord, start: u64) -> Option<u32> {
        self.cut(start).map(|cut| head.granted().wrapping_sub(cut))
    }

    /// Returns whether the head is still at the bucket of `head`.
    pub(super) fn is_still_at(&self, head: HeadWord) -> bool {
        self.load_head().stamp() == head.stamp() || planted(Bug::ReadAcrossBuckets)
    }
}
