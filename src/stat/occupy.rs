//! Loans: tokens of a future bucket that are held for a call until the bucket opens.
//!
//! A prioritized call that finds its window full can borrow from a coming bucket `f`, by which
//! enough tokens will have left the window:
//!
//! ```text
//! limit 10, two buckets of 500 ms, ten tokens taken at 700 ms, now 1200 ms
//!
//!    0        500       1000      1500      2000
//!    |        |   10    |    0    |   f     |
//!             └──── window ───────┘                full: 0 + 10 + 1 > 10
//!                       └──── window of f ──┘      room: 0 + 1 ≤ 10   → wait 300 ms
//! ```
//!
//! # The rule
//!
//! `weight` tokens may be held for bucket `f` if every quota meets the first of these conditions,
//! or the second and the third:
//!
//! * The quota has room for them now.
//! * `granted + weight ≤ cut(start(f)) + limit`: the used tokens, all held ones, and this loan fit
//!   into the window that ends with `f`. The buckets that leave the window by then are closed, so
//!   their counts cannot change any more.
//! * If the window of `f` lies wholly in the future, the tokens held in it fit as well.
//!
//! The compare-and-swap on the head confirms the first two conditions. It cannot confirm the third,
//! because another loan may be charged already and not yet placed. So every borrower, once its loan
//! is placed, checks all coming windows that contain its bucket, and cancels the loan if one of
//! them holds too much. Of the borrowers in a window, the last one to check sees all loans.
//!
//! From the loan on, held tokens count as used, so no ordinary call can take them. A rule that has
//! room is charged at once, so it never prevents a loan that another rule needs. Until `f` opens,
//! held tokens count in the newest bucket; then they are taken in `f`, and the borrower starts
//! without touching the ring.
//!
//! # Source
//!
//! `StatisticNode.tryOccupyNext` of Alibaba Sentinel, which has the same condition. It reads and
//! writes in two steps, and so can lend more tokens than there are. Here the compare-and-swap on
//! the head confirms the values that were read.

use std::time::Duration;

use super::held::{HeldSums, Targets};
use super::leap_array::{Denied, LeapArray};
use super::packed::{HeadWord, LoanCell, fits, stamp, swap};
use super::quota::{Lending, Quota};
use crate::base::sync::{Bug, Ordering, fence, planted};
use crate::clock::{Tick, nanos};

/// Tokens held for a future bucket.
///
/// Dropping a loan changes nothing: the tokens are taken when the bucket opens.
/// [`LeapArray::cancel`] refunds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the tokens are spent unless the loan is cancelled"]
pub(crate) struct Loan {
    /// The bucket for which the tokens are held.
    bucket: u64,
    /// The start of this bucket.
    start: Tick,
    /// The number of tokens held.
    weight: u32,
}

impl Loan {
    /// The bucket for which the tokens are held.
    pub(crate) const fn bucket(self) -> u64 {
        self.bucket
    }

    /// The start of the bucket, at which the call that borrowed may start.
    pub(crate) const fn start(self) -> Tick {
        self.start
    }

    /// The number of tokens held.
    pub(crate) const fn tokens(self) -> u32 {
        self.weight
    }
}

/// The terms on which a call asks for a loan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// The time of the call.
    pub(crate) now: Tick,
    /// The earliest time at which the call may start; earlier buckets do not suit.
    pub(crate) from: Tick,
    /// The exclusive upper bound of the wait.
    pub(crate) patience: Duration,
    pub(crate) weight: u32,
}

// === impl LeapArray ===

impl LeapArray {
    /// Cancels a loan and returns true. Returns false, and the tokens stay spent, if the
    /// cancellation is too late: the bucket of the loan has opened and closed again, or the newest
    /// bucket is closing at the same time. Also returns false if the bucket of the loan holds fewer
    /// tokens than the loan.
    ///
    /// Cancel only a loan of this array, and only once: the loans of a bucket cannot be told apart.
    pub(crate) fn cancel(&self, now: Tick, loan: Loan) -> bool {
        self.cancel_at(self.bucket_number(now), loan)
    }

    /// The number of tokens held for buckets that have not opened yet.
    pub(crate) fn waiting(&self, now: Tick) -> u32 {
        loop {
            let Ok((head, bucket)) = self.present(self.bucket_number(now)) else {
                return 0;
            };
            let held = self.held(bucket);
            if self.is_still_at(head) {
                return held;
            }
        }
    }

    /// Makes the loan for the earliest bucket that suits `wish`. Tokens that were charged in a
    /// failed attempt and could not be refunded are added to `spent`.
    pub(crate) fn borrow_for(
        &self,
        wish: Wish,
        quotas: &[Quota],
        spent: &mut u32,
    ) -> Result<Loan, Denied> {
        loop {
            let (head, bucket) = self.present(self.bucket_number(wish.now))?;
            let offer = match self.earliest((head, bucket), bucket, wish, quotas) {
                Some(offer) => offer?,
                None => {
                    self.leave_gap(head, bucket);
                    continue;
                }
            };
            // The head is changed before the cell. Its swap confirms the verdict and charges the
            // tokens.
            if !self.swap_head(head, head.plus(wish.weight)) {
                continue;
            }
            if !self.hold(bucket, offer, wish.weight) {
                // The bucket has closed, or other loans filled the cell, so the tokens were charged
                // in vain. Tokens that cannot be refunded count as spent.
                if !self.refund_at(bucket, wish.weight) {
                    *spent = spent.saturating_add(wish.weight);
                }
                continue;
            }
            let loan = Loan {
                bucket: offer.bucket,
                start: self.start_of(offer.bucket),
                weight: wish.weight,
            };
            if self.still_fits(bucket, offer.bucket, quotas) {
                return Ok(loan);
            }
            if !self.cancel_at(bucket, loan) {
                *spent = spent.saturating_add(wish.weight);
            }
            return Err(Denied::Full(offer.quota));
        }
    }

    /// Returns the earliest bucket to which every quota agrees as of `head`, for a call that comes
    /// in bucket `seen`. This is the newest bucket, `bucket`, or a later bucket before which no
    /// other call is assumed to come. Returns `None` if a checkpoint is missing, because the head
    /// is in the middle of a jump.
    pub(super) fn earliest(
        &self,
        (head, bucket): (HeadWord, u64),
        seen: u64,
        wish: Wish,
        quotas: &[Quota],
    ) -> Option<Result<Offer, Denied>> {
        let from = self.bucket_number(wish.from);
        let last = wish.now.as_nanos().saturating_add(nanos(wish.patience));
        // The first bucket that begins too late for the call's patience.
        let to = last.div_ceil(self.grid().bucket_ns);
        let mut search = LoanSearch {
            array: self,
            head,
            bucket,
            seen,
            weight: wish.weight,
            held: None,
        };
        let mut targets = Targets::new(seen, from, to.min(seen + 1 + self.ahead()));
        for (index, quota) in quotas.iter().enumerate() {
            if targets.next(0).is_none() {
                break;
            }
            search.keep_lent(&mut targets, quota)?;
            if targets.next(0).is_none() {
                return Some(Err(Denied::Full(index as u32)));
            }
        }
        let mut full = 0;
        let mut next = targets.next(0);
        while let Some(target) = next {
            let offer = search.offer(target, quotas)?;
            let held = search.held_for(target);
            if u64::from(held) + u64::from(wish.weight) <= u64::from(offer.most) {
                return Some(Ok(offer));
            }
            full = offer.quota;
            next = targets.next(target + 1);
        }
        Some(Err(Denied::Full(full)))
    }

    /// Adds `weight` to the cell of `offer.bucket` and returns true. Returns false if `bucket`, the
    /// newest one, has closed, or if the cell would hold too much.
    fn hold(&self, bucket: u64, offer: Offer, weight: u32) -> bool {
        let cell = self.loan_cell(offer.bucket);
        loop {
            let found = LoanCell(cell.load(Ordering::Acquire));
            let count = self.open_count(found, bucket, offer.bucket);
            let sum = count.and_then(|count| count.checked_add(weight));
            let Some(sum) = sum.filter(|&sum| sum <= offer.most) else {
                return false;
            };
            if swap(cell, found.0, LoanCell::open(sum, bucket).0) {
                return true;
            }
        }
    }

    /// Returns whether a loan for `target` that has been placed keeps the limits of all windows
    /// that contain `target` and lay in the future at bucket `judged`, when the loan was judged.
    fn still_fits(&self, judged: u64, target: u64, quotas: &[Quota]) -> bool {
        if quotas.is_empty() {
            return true;
        }
        // Pairs with this fence in other borrowers: of two borrowers that have placed their loans,
        // at least one sees both loans.
        fence(Ordering::SeqCst);
        loop {
            let Ok((head, bucket)) = self.present(judged) else {
                return false;
            };
            let held = HeldSums::of(self, bucket);
            let fits = planted(Bug::LoanLooksOnce)
                || quotas.iter().all(|quota| {
                    quota.starts_ahead(judged, target).all(|start| {
                        let used = if start.wrapping_sub(bucket) as i64 > 0 {
                            Some(held.between(start, start + u64::from(quota.span())))
                        } else {
                            // The window has begun meanwhile, so taken tokens count as well.
                            self.used(head, start)
                        };
                        used.is_some_and(|used| used <= quota.limit())
                    })
                });
            // The cells that were read are valid only if the head is still at this bucket.
            if self.load_head().is_open_at(head.stamp()) {
                return fits;
            }
        }
    }

    /// Like [`cancel`](Self::cancel), where `now` is a bucket number.
    pub(crate) fn cancel_at(&self, now: u64, loan: Loan) -> bool {
        loop {
            let Ok((_, bucket)) = self.present(now) else {
                return false;
            };
            if bucket >= loan.bucket {
                // The bucket of the loan has opened and its tokens are taken. They can be refunded
                // while this bucket is the newest.
                return self.refund_at(loan.bucket, loan.weight);
            }
            if planted(Bug::CancelBackwards) {
                self.refund_at(bucket, loan.weight);
            }
            let cell = self.loan_cell(loan.bucket);
            let found = LoanCell(cell.load(Ordering::Acquire));
            let Some(count) = self.open_count(found, bucket, loan.bucket) else {
                // A newer bucket is being opened. `present` helps with that in the next round.
                continue;
            };
            let Some(rest) = count.checked_sub(loan.weight) else {
                // The loan has been cancelled already, or belongs to another array.
                return false;
            };
            // The cell is changed before the head. In between, the tokens count as taken, which
            // errs on the side of refusing.
            if swap(cell, found.0, LoanCell::open(rest, bucket).0) {
                return planted(Bug::CancelBackwards) || self.refund_at(bucket, loan.weight);
            }
        }
    }

    /// Returns the first bucket after the newest one for which tokens are held.
    pub(super) fn next_loan(&self) -> Option<u64> {
        // The common case: no tokens are held at all. For this check the order of the cells does
        // not matter.
        let mut cells = (0..self.ahead()).map(|place| self.loan_cell(place));
        if cells.all(|cell| LoanCell(cell.load(Ordering::Acquire)).count() == 0) {
            return None;
        }
        self.look(|reading| {
            let newest = reading.newest;
            let mut targets = newest.saturating_add(1)..=newest.saturating_add(self.ahead());
            targets.find(|&target| self.held_for(newest, target) > 0)
        })
    }

    /// The tokens held for all buckets after `bucket`, while that is the newest one.
    pub(super) fn held(&self, bucket: u64) -> u32 {
        let all = self.held_ahead(bucket);
        all.fold(0, |held: u32, (_, count)| held.wrapping_add(count))
    }

    /// Iterates over the buckets ahead of `bucket`, nearest first, with the tokens held for each.
    /// Each cell is read once.
    pub(super) fn held_ahead(&self, bucket: u64) -> impl DoubleEndedIterator<Item = (u64, u32)> {
        self.loan_cells(bucket).map(move |(target, cell)| {
            let cell = LoanCell(cell.load(Ordering::Acquire));
            (target, self.count_in(cell, bucket, target))
        })
    }

    /// The tokens held for `target` while `bucket` is the newest one.
    pub(super) fn held_for(&self, bucket: u64, target: u64) -> u32 {
        let cell = self.loan_cell(target).load(Ordering::Acquire);
        self.count_in(LoanCell(cell), bucket, target)
    }

    /// The tokens that `cell` holds for `target` while `bucket` is the newest one.
    pub(super) fn count_in(&self, cell: LoanCell, bucket: u64, target: u64) -> u32 {
        // A count that was sealed as of the previous bucket is still valid, unless it was held for
        // `bucket` itself.
        let is_previous = || cell.is_sealed() && cell.stamp() == stamp(bucket.wrapping_sub(1));
        let is_due = (target ^ bucket) & u64::from(self.loan_mask) == 0;
        if cell.stamp() == stamp(bucket) || (!is_due && is_previous()) {
            cell.count()
        } else {
            0
        }
    }

    /// Returns the count of a cell that this thread is about to change while `bucket` is the newest
    /// one; `None` if that bucket is closing or has closed.
    fn open_count(&self, cell: LoanCell, bucket: u64, target: u64) -> Option<u32> {
        let is_open = if cell.stamp() == stamp(bucket) {
            !cell.is_sealed()
        } else {
            // The word is left from an earlier bucket, unless the head has moved on.
            self.load_head().is_open_at(stamp(bucket))
        };
        is_open.then(|| self.count_in(cell, bucket, target))
    }
}

/// A bucket to which every quota agreed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// The bucket in which the call would run.
    pub(super) bucket: u64,
    /// The maximum number of tokens that the bucket may hold, including this loan.
    most: u32,
    /// The index of the quota that sets `most`.
    quota: u32,
}

/// A search for a loan, as of `head` at `bucket`, for a call of `weight` that comes in bucket
/// `seen`. Its functions return `None` if a checkpoint is missing.
struct LoanSearch<'a> {
    array: &'a LeapArray,
    head: HeadWord,
    /// The newest bucket, that of `head`.
    bucket: u64,
    /// The bucket in which the call comes.
    seen: u64,
    weight: u32,
    /// The held tokens, read at most once, on first use.
    held: Option<HeldSums>,
}

// === impl LoanSearch ===

impl LoanSearch<'_> {
    /// Removes from `targets` all buckets for which `quota` lends no tokens.
    fn keep_lent(&mut self, targets: &mut Targets, quota: &Quota) -> Option<()> {
        let (head, bucket, seen) = (self.head, self.bucket, self.seen);
        let cut = self.cut(quota.start(bucket))?;
        if fits(head.granted(), cut, self.weight, quota.limit()) {
            // The quota has room: the tokens are charged now and stay charged.
            return Some(());
        }
        let Some(most) = quota.limit().checked_sub(self.weight) else {
            targets.remove(0..u64::MAX);
            return Some(());
        };
        let room = self.array.target_of(head, bucket, most, quota)?;
        if room <= seen {
            return Some(());
        }
        // A sum that wraps cannot be told from a smaller one, so nothing is lent then.
        let used = head.granted().wrapping_sub(cut);
        if quota.lending() == Lending::Nothing || used.checked_add(self.weight).is_none() {
            targets.remove(0..u64::MAX);
            return Some(());
        }
        // Windows that have begun when the call comes also contain granted tokens. They have room
        // from bucket `room` on.
        let to_come = quota.next_start(seen) + u64::from(quota.span() - quota.stride());
        targets.remove(0..room.min(to_come));
        // In later windows only held tokens count. A target is in each window that begins up to a
        // window's length before it.
        let (Some(first), Some(last)) = (targets.next(to_come), targets.last()) else {
            return Some(());
        };
        let held = self.held();
        let span = u64::from(quota.span());
        // Overlapping full windows are merged into one range.
        let mut full = first..first;
        for start in (quota.start(first)..=last).step_by(quota.stride() as usize) {
            if held.between(start, start + span) > most {
                if start > full.end {
                    targets.remove(full);
                    full = start..start;
                }
                full.end = start + span;
            }
        }
        targets.remove(full);
        Some(())
    }

    /// Returns the offer for bucket `target`, for which every quota lends tokens. The quota that
    /// lends the fewest sets its maximum.
    fn offer(&mut self, target: u64, quotas: &[Quota]) -> Option<Offer> {
        let mut offer = Offer {
            bucket: target,
            most: u32::MAX,
            quota: 0,
        };
        for (index, quota) in quotas.iter().enumerate() {
            let most = self.lends(target, quota)?;
            if most < offer.most {
                (offer.most, offer.quota) = (most, index as u32);
            }
        }
        Some(offer)
    }

    /// Returns the maximum number of tokens that `quota` lets bucket `target` hold, given that it
    /// lends there.
    fn lends(&mut self, target: u64, quota: &Quota) -> Option<u32> {
        // Only a quota that lends a part limits what a bucket holds. It does not limit a call of
        // weight 0, nor a call for which it has room.
        let Lending::Part(part) = quota.lending() else {
            return Some(u32::MAX);
        };
        let has_room =
            self.used(quota.start(self.seen))? <= quota.limit().saturating_sub(self.weight);
        if self.weight == 0 || has_room {
            return Some(u32::MAX);
        }
        let (start, before) = (quota.start(target), quota.start(target - 1));
        let leaving = if start.wrapping_sub(self.seen) as i64 <= 0 {
            self.used(before)?.wrapping_sub(self.used(start)?)
        } else if before == start {
            // Tokens leave the window only where a bucket of the quota begins, which may span
            // several array buckets. So a part is lent once for each quota bucket.
            0
        } else {
            quota.limit()
        };
        // Rounding can make the product smaller than the whole number that it stands for, so it is
        // raised by a few units in the last place.
        Some((f64::from(leaving) * part * (1.0 + 4.0 * f64::EPSILON)) as u32)
    }

    /// The tokens used in a window that begins at bucket `start`: granted ones if it has begun,
    /// else held ones.
    fn used(&mut self, start: u64) -> Option<u32> {
        if start.wrapping_sub(self.bucket) as i64 > 0 {
            return Some(self.held().between(start, u64::MAX));
        }
        Some(self.head.granted().wrapping_sub(self.cut(start)?))
    }

    /// The tokens granted before `bucket` opened.
    fn cut(&self, bucket: u64) -> Option<u32> {
        self.array.cut(bucket)
    }

    /// The tokens held for `target`.
    fn held_for(&self, target: u64) -> u32 {
        if target - self.bucket > self.array.ahead() {
            return 0;
        }
        self.array.held_for(self.bucket, target)
    }

    /// The held tokens, which are read on the first call.
    fn held(&mut self) -> &HeldSums {
        self.held
            .get_or_insert_with(|| HeldSums::of(self.array, self.bucket))
    }
}

#[cfg(all(test, sentinel_loom))]
pub(super) mod models {
    //! A model of a loan that is checked again while its window begins.

    use super::*;
    use crate::base::sync::Arc;

    /// The window is full at 9, and its token leaves it at 11. One borrower has charged the head
    /// for 11 when a second borrower is judged. So the second one gets 12, in the same window. The
    /// first borrower places its loan and finds that it fits; then the second does so. Now 11
    /// opens concurrently with the check by the second borrower, which must fail.
    pub(in crate::stat) fn look_during_a_roll(array: Arc<LeapArray>, quotas: [Quota; 1]) {
        let at = Tick::from_nanos;
        assert!(array.acquire_at(9, 1, &quotas).is_ok());
        assert_eq!(array.bring_to(at(10)), Ok(10));
        let wish = Wish {
            now: at(10),
            from: at(10),
            patience: Duration::from_secs(1),
            weight: 1,
        };
        let offers = [11, 12].map(|bucket| {
            let head = array.load_head();
            let offer = array
                .earliest((head, 10), 10, wish, &quotas)
                .expect("no checkpoint is missing")
                .expect("one is lent");
            assert_eq!(offer.bucket, bucket);
            assert!(array.swap_head(head, head.plus(1)));
            offer
        });
        assert!(array.hold(10, offers[0], 1) && array.still_fits(10, 11, &quotas));
        assert!(array.hold(10, offers[1], 1));
        let other = array.clone();
        let roller = loom::thread::spawn(move || other.bring_to(at(11)));
        let fits = array.still_fits(10, 12, &quotas);
        assert_eq!(roller.join().unwrap(), Ok(11));
        assert!(!fits, "two in a window of one");
    }
}

#[cfg(all(test, not(sentinel_loom)))]
#[path = "tests/occupy.rs"]
mod tests;
