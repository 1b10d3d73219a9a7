//! Taking tokens: a call is judged against a snapshot of the head, and one compare-and-swap of the
//! head takes its tokens. The swap fails if another call has taken tokens in between.

use super::leap_array::{Denied, LeapArray, Reloaded, Taken};
use super::packed::{HeadWord, fits, holds, stamp};
use super::quota::Quota;
use crate::base::sync::{Bug, Ordering, planted};
use crate::clock::Tick;

// === impl LeapArray ===

impl LeapArray {
    /// Takes `weight` tokens in the bucket of `now` or, if this bucket is past, in the newest
    /// bucket.
    #[inline(always)]
    pub(crate) fn acquire(
        &self,
        now: Tick,
        weight: u32,
        quotas: &[Quota],
    ) -> Result<Taken, Denied> {
        // The common case: the head is at the bucket of `now`. `newest` is at most one move behind
        // the head, so equal stamps mean equal numbers.
        let head = self.load_head();
        let newest = self.words.newest.load(Ordering::Relaxed);
        if holds(newest, self.bucket_ns, now) && head.is_open_at(stamp(newest)) {
            if let Some(answer) = self.attempt(head, newest, weight, quotas) {
                return answer;
            }
        }
        let taken = self.acquire_at(self.bucket_number(now), weight, quotas)?;
        Ok(taken)
    }

    /// Tries to [`acquire`](Self::acquire) in one attempt. Returns `None` if the head is not at the
    /// bucket of `now`, a checkpoint is missing, or another thread changed the head first. It calls
    /// no other function, so the caller can keep its values in registers.
    #[inline(always)]
    pub(crate) fn acquire_at_once(
        &self,
        now: Tick,
        weight: u32,
        quotas: &[Quota],
    ) -> Option<Result<Taken, Denied>> {
        let head = self.load_head();
        let bucket = self.words.newest.load(Ordering::Relaxed);
        if !(holds(bucket, self.bucket_ns, now) && head.is_open_at(stamp(bucket))) {
            return None;
        }
        if let Err(denied) = self.judge(head, bucket, weight, quotas)? {
            return Some(Err(denied));
        }
        let next = head.plus(weight);
        let granted = next.granted();
        let is_ours = self.swap_head(head, next);
        is_ours.then_some(Ok(Taken { bucket, granted }))
    }

    /// The general form of [`acquire`](Self::acquire), where `now` is a bucket number. Opens that
    /// bucket if necessary, and retries if another thread was faster. If the bucket is past, takes
    /// the tokens in the newest bucket.
    #[cold]
    pub(crate) fn acquire_at(
        &self,
        now: u64,
        weight: u32,
        quotas: &[Quota],
    ) -> Result<Taken, Denied> {
        loop {
            let (head, bucket) = self.present(now)?;
            if let Some(answer) = self.attempt(head, bucket, weight, quotas) {
                return answer;
            }
        }
    }

    /// Makes one attempt to take `weight` tokens, with `head` at `bucket`. Returns `None` if the
    /// attempt must be repeated: the head has changed, or a checkpoint was missing.
    #[inline(always)]
    fn attempt(
        &self,
        head: HeadWord,
        bucket: u64,
        weight: u32,
        quotas: &[Quota],
    ) -> Option<Result<Taken, Denied>> {
        let Some(judged) = self.judge(head, bucket, weight, quotas) else {
            self.find_cut(head, bucket, quotas);
            return None;
        };
        if let Err(denied) = judged {
            return Some(Err(denied));
        }
        let next = head.plus(weight);
        let granted = next.granted();
        let is_ours = self.swap_head(head, next);
        is_ours.then_some(Ok(Taken { bucket, granted }))
    }

    /// Returns whether every quota has room for `weight` tokens as of `head`; `None` if a
    /// checkpoint is missing, because the head is in the middle of a jump.
    #[inline(always)]
    pub(super) fn judge(
        &self,
        head: HeadWord,
        bucket: u64,
        weight: u32,
        quotas: &[Quota],
    ) -> Option<Result<(), Denied>> {
        for (index, quota) in quotas.iter().enumerate() {
            let cut = self.cut(quota.start(bucket))?;
            if !fits(head.granted(), cut, weight, quota.limit()) {
                return Some(Err(Denied::Full(index as u32)));
            }
        }
        Some(Ok(()))
    }

    /// Adds `weight` in bucket `now` or a later one. If it is uncertain which bucket counted the
    /// tokens, the returned bucket is closed or being closed, so that a refund fails.
    #[inline]
    pub(crate) fn add_at(&self, now: u64, weight: u32) -> Result<Taken, Reloaded> {
        let now = if planted(Bug::AddWithoutRoll) { 0 } else { now };
        let (head, bucket) = self.present(now)?;
        self.add_at_head(head, bucket, weight)
    }

    /// Adds `weight` after `head` was seen open at `bucket`.
    #[inline]
    pub(super) fn add_at_head(
        &self,
        head: HeadWord,
        bucket: u64,
        weight: u32,
    ) -> Result<Taken, Reloaded> {
        let before = HeadWord(
            self.words
                .head
                .fetch_add(HeadWord::tokens(weight), Ordering::AcqRel),
        );
        let granted = before.plus(weight).granted();
        if before.is_open_at(head.stamp()) {
            return Ok(Taken { bucket, granted });
        }
        let bucket = self.added_late(before)?;
        Ok(Taken { bucket, granted })
    }

    /// Returns the bucket of an addition, if the head had been sealed or moved before it.
    #[cold]
    fn added_late(&self, before: HeadWord) -> Result<u64, Reloaded> {
        if before.is_frozen() {
            // The new array was made from the word as it was before this addition.
            return Err(Reloaded);
        }
        // On a sealed word the tokens belong to the bucket being closed or to the next bucket,
        // depending on which value of the checkpoint was published. They cannot be refunded: the
        // returned bucket is the one being closed, and a refund fails unless its bucket is open.
        Ok(self.number(before))
    }

    /// If `bucket` is still open, refunds `weight` tokens that were taken in it and returns true.
    pub(crate) fn refund_at(&self, bucket: u64, weight: u32) -> bool {
        loop {
            let head = self.load_head();
            let is_open = head.is_open() && self.number(head) == bucket;
            if !is_open && !planted(Bug::BlindRefund) {
                return false;
            }
            if self.swap_head(head, head.minus(weight)) {
                return true;
            }
        }
    }
}
