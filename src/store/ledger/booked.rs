//! Books the permits of this process in a ledger, and reports them to the store.

use std::time::Duration;

use super::super::cell::BucketEnd;
use super::super::demand::Demand;
use super::super::draw::{Booking, Epoch};
use super::super::seen::{Here, Seen};
use super::super::terms::{Nodes, Terms, Window};
use super::super::ticket::Validity;
use super::{Ledger, Own, Report, Uncounted};
use crate::base::sync::Arc;
use crate::clock::{Tick, nanos};

impl Ledger {
    pub(crate) fn new(terms: Arc<Terms>, window: Arc<Window>) -> Self {
        Self {
            terms,
            window,
            own: Box::default(),
            last: Seen::default(),
            has_seen: false,
            report: Report::Nothing,
            heard: Tick::ZERO,
            is_hot: false,
            free: u32::MAX,
            had: 0,
            epoch: Epoch::default(),
            demand: Demand::default(),
            uncounted: Uncounted::default(),
            has_none: false,
            paid: 0,
            last_held: 0,
            pending: None,
        }
    }

    /// Returns the last answer of the store, if there was one.
    fn seen(&self) -> Option<Seen> {
        self.has_seen.then_some(self.last)
    }

    /// Returns whether the store has ever answered.
    pub(crate) fn has_seen(&self) -> bool {
        self.has_seen
    }

    /// Returns the bucket at `now`: by the last answer of the store, or by the process's clock if
    /// there was none.
    pub(crate) fn here(&self, now: Tick) -> Here {
        self.window.here(self.seen(), now)
    }

    /// Returns the number of the bucket that ends at `end`.
    pub(crate) fn bucket_of(&self, end: BucketEnd) -> u64 {
        // Half a bucket before its end, the bucket was the present one by any reading of the
        // store's clock.
        let half = self.window.bucket / 2;
        let ns = end.tick().as_nanos().saturating_sub(nanos(half));
        match self.seen() {
            Some(seen) if Tick::from_nanos(ns) + self.window.bucket <= seen.next => {
                let before = seen.next.nanos_since(Tick::from_nanos(ns));
                let gone = before / nanos(self.window.bucket).max(1);
                seen.bucket.saturating_sub(gone)
            }
            _ => self.here(Tick::from_nanos(ns)).number,
        }
    }

    /// Returns whether the last answer and all permits of this process are out of the window at
    /// `now`.
    pub(in crate::store) fn is_all_expired(&self, now: Tick) -> bool {
        let memory = self.window.memory_in_buckets();
        let here = self.here(now).number;
        let is_past = |bucket: u64| bucket.saturating_add(memory) <= here;
        let has_seen = self.seen().is_some_and(|seen| !is_past(seen.bucket));
        !has_seen && self.own.iter().all(|own| is_past(own.bucket))
    }

    /// Returns whether nothing is pending or uncounted in this ledger. If it also [is
    /// expired](Self::is_all_expired), it can be dropped: a new one would act the same.
    pub(in crate::store) fn is_at_rest(&self) -> bool {
        !self.is_hot && self.pending.is_none() && self.uncounted.permits == 0
    }

    /// Stores the store's time and the number of free permits of an answer.
    pub(crate) fn see(&mut self, seen: Seen, free: u32) {
        if self.seen().is_none() {
            self.renumber(seen);
        } else {
            self.gather(seen.bucket);
        }
        self.forget_back_after(seen.bucket + 1);
        (self.last, self.has_seen) = (seen, true);
        self.free = free;
        self.had = self.held(seen.bucket);
    }

    /// Converts the bucket numbers of permits that were taken before the first answer, from the
    /// process's clock to the store's clock. The buckets of the two clocks do not begin together,
    /// so a permit near a border can end up in a neighbouring bucket.
    fn renumber(&mut self, seen: Seen) {
        let half = nanos(self.window.bucket / 2);
        let middle = Tick::from_nanos(seen.next.as_nanos().saturating_sub(half));
        let here = self.here(middle).number;
        for own in &mut self.own {
            let (ahead, behind) = (
                own.bucket.checked_sub(here),
                here.saturating_sub(own.bucket),
            );
            own.bucket = match ahead {
                Some(ahead) => seen.bucket.saturating_add(ahead),
                None => seen.bucket.saturating_sub(behind),
            };
        }
        if !self.own.is_empty() {
            self.report = self.report.max(Report::Local);
        }
    }

    /// If the store's clock was set far back, moves the permits of buckets in the clock's future to
    /// the present bucket, as the store does. Otherwise they would be reported again when these
    /// buckets begin.
    fn gather(&mut self, bucket: u64) {
        let mut buckets = self.own.iter().map(|own| own.bucket);
        if !buckets.any(|own| own > bucket.saturating_add(1)) {
            return;
        }
        let (mut drawn, mut local) = (0_u32, 0_u32);
        let mut all = std::mem::take(&mut self.own).into_vec();
        all.retain(|own| {
            let is_to_come = own.bucket > bucket;
            if is_to_come {
                drawn = drawn.saturating_add(own.drawn);
                local = local.saturating_add(own.local);
            }
            !is_to_come
        });
        self.own = all.into_boxed_slice();
        let own = self.own_mut(bucket);
        own.drawn = own.drawn.saturating_add(drawn);
        own.local = own.local.saturating_add(local);
    }

    /// Stores the store's time of an answer that does not report the free permits of the present
    /// bucket. Assumes that no permits are free, unless another answer in this bucket has reported
    /// their number.
    pub(crate) fn see_ahead(&mut self, seen: Seen) {
        let is_known = self.seen().is_some_and(|known| known.bucket == seen.bucket);
        let free = if is_known { self.free } else { 0 };
        self.see(seen, free);
    }

    /// Returns the number of the bucket at `now`, and the validity of permits of the next bucket;
    /// `None` if the store has never answered.
    pub(crate) fn next_bucket(&self, now: Tick) -> Option<(u64, Validity)> {
        let here = self.window.here(Some(self.seen()?), now);
        Some((here.number, here.next_bucket(self.window.bucket)))
    }

    /// Stores the store's time if this is the first answer.
    pub(crate) fn see_time(&mut self, seen: Seen) {
        if self.seen().is_none() {
            self.see(seen, u32::MAX);
        }
    }

    // --- this process's permits ---

    /// Returns the number of this process's permits in the window that ends with the bucket
    /// `number`.
    pub(crate) fn held(&self, number: u64) -> u32 {
        let first = (number + 1).saturating_sub(self.window.buckets.into());
        let own = self.own.iter().filter(|own| own.bucket >= first);
        own.fold(0, |sum: u32, own| {
            sum.saturating_add(own.drawn).saturating_add(own.local)
        })
    }

    /// Returns the entry of `bucket`. Creates the entry if there is none.
    fn own_mut(&mut self, bucket: u64) -> &mut Own {
        let at = self.own.iter().position(|own| own.bucket == bucket);
        let at = at.unwrap_or_else(|| {
            let keep = u64::from(self.window.buckets) + 2;
            let mut all = std::mem::take(&mut self.own).into_vec();
            all.retain(|own| own.bucket + keep > bucket);
            // Each key has a ledger, and most ledgers need only one or two buckets.
            all.reserve_exact(1);
            all.push(Own {
                bucket,
                drawn: 0,
                local: 0,
            });
            self.own = all.into_boxed_slice();
            self.own.len() - 1
        });
        &mut self.own[at]
    }

    /// Books `n` permits that the store has granted.
    pub(crate) fn book_drawn(&mut self, bucket: u64, n: u32) {
        if n > 0 {
            let own = self.own_mut(bucket);
            own.drawn = own.drawn.saturating_add(n);
        }
    }

    /// Books `n` permits that were taken without the store; the next draw reports them.
    pub(crate) fn book_local(&mut self, bucket: u64, n: u32) {
        if n > 0 {
            self.report = self.report.max(Report::Local);
            let own = self.own_mut(bucket);
            own.local = own.local.saturating_add(n);
        }
    }

    /// Removes `n` unused permits from the bucket. Returns how many of them the store has counted
    /// and must get back.
    pub(crate) fn unbook(&mut self, bucket: u64, n: u32) -> u32 {
        // A counter of costs reports all the time. Permits in a report that is in flight stay
        // booked, as the store is about to count them.
        let keeps_local = self.terms.by_cost && self.is_reporting();
        let Some(own) = self.own.iter_mut().find(|own| own.bucket == bucket) else {
            return 0;
        };
        let local = if keeps_local { 0 } else { own.local.min(n) };
        own.local -= local;
        let drawn = own.drawn.min(n - local);
        own.drawn -= drawn;
        drawn
    }

    /// Uses up to `n` granted permits of `bucket` to cover permits that were taken without the
    /// store, which then need no report. Does nothing while a report is in flight. Returns the
    /// number of covered permits.
    pub(crate) fn pay_local(&mut self, bucket: u64, n: u32) -> u32 {
        if self.is_reporting() || n == 0 {
            return 0;
        }
        let own = self.own.iter_mut().find(|own| own.bucket == bucket);
        own.map_or(0, |own| {
            let paid = own.local.min(n);
            own.local -= paid;
            paid
        })
    }

    /// Returns how many permits of `bucket` the store has granted to this process.
    pub(crate) fn drawn(&self, bucket: u64) -> u32 {
        let own = self.own.iter().find(|own| own.bucket == bucket);
        own.map_or(0, |own| own.drawn)
    }

    /// Returns whether the bucket of the last answer is before `bucket`; true without an answer.
    pub(super) fn last_bucket_is_before(&self, bucket: u64) -> bool {
        self.seen().is_none_or(|seen| seen.bucket < bucket)
    }

    /// Returns how many permits of `limit` may be free in the bucket `number`: the number in the
    /// last answer, or, if that answer was about another bucket, `limit` less the permits of this
    /// process.
    pub(crate) fn free_at(&self, number: u64, limit: u32) -> u32 {
        match self.seen() {
            Some(seen) if seen.bucket == number => self.free,
            _ => limit.saturating_sub(self.held(number)),
        }
    }

    /// Raises the number of free permits by `n` until the store's next answer.
    pub(in crate::store) const fn add_free(&mut self, n: u32) {
        self.free = self.free.saturating_add(n);
    }

    /// Lowers the number of free permits by `n` until the store's next answer.
    pub(in crate::store) const fn lessen_free(&mut self, n: u32) {
        self.free = self.free.saturating_sub(n);
    }

    /// Returns the store's free permits if its last answer is less than `fresh` old and about the
    /// present bucket.
    pub(in crate::store) fn fresh_free(&self, now: Tick, fresh: Duration) -> Option<u32> {
        let seen = self.seen()?;
        let is_fresh = now < self.heard + fresh && self.here(now).number == seen.bucket;
        is_fresh.then_some(self.free)
    }

    /// Returns the number by which the free permits are divided for a refill. A process gets the
    /// same fraction of the free permits as it has of all permits drawn in the window, and at least
    /// an equal part.
    pub(crate) fn divisor(&self, now: Tick, nodes: Nodes) -> u32 {
        let number = self.here(now).number;
        let is_of_here = self.seen().is_some_and(|seen| seen.bucket == number);
        let drawn = self.terms.limit_of(nodes).saturating_sub(self.free);
        if is_of_here && self.had > 0 && drawn >= self.had {
            drawn.div_ceil(self.had).min(nodes.count)
        } else {
            nodes.count
        }
    }

    // --- reset of a key ---

    /// Forgets that the store had no free permits.
    pub(crate) fn forget_refusal(&mut self) {
        self.has_none = false;
        if let Some(ahead) = self.pending.as_mut().and_then(|it| it.ahead.as_mut()) {
            ahead.short_in = None;
        }
    }

    /// Forgets all permits of this process, and pending reports and returns of them. Called after a
    /// reset, when the store no longer counts any of them. Returns whether there were any.
    pub(crate) fn forget_own(&mut self) -> bool {
        let had_any = self.own.iter().any(|own| own.drawn > 0 || own.local > 0);
        self.own = Box::default();
        self.report = Report::Nothing;
        self.forget_back();
        (self.free, self.had) = (u32::MAX, 0);
        had_any
    }

    // --- without the store ---

    /// Returns how many permits the process can take without the store in the bucket `number`.
    pub(crate) fn share_left(&self, number: u64, nodes: Nodes) -> u32 {
        let share = match self.terms.local_limit {
            Some(limit) => limit,
            None if self.terms.per_node => self.terms.limit,
            None => nodes.share(self.terms.limit),
        };
        let last = self
            .seen()
            .map(|seen| seen.bucket + u64::from(self.window.buckets));
        let share = match last {
            Some(last) if number < last => {
                let free = nodes.share(self.free);
                share.min(self.had.saturating_add(free))
            }
            _ => share,
        };
        share.saturating_sub(self.held(number))
    }

    /// Returns when, after the bucket at `now`, one more permit can be taken without the store.
    pub(crate) fn local_room_at(&self, now: Tick, nodes: Nodes) -> Tick {
        let here = self.here(now);
        let later = (1..=self.window.buckets)
            .find(|&later| self.share_left(here.number + u64::from(later), nodes) > 0);
        let later = later.unwrap_or(self.window.buckets).saturating_sub(1);
        here.next + self.window.bucket * later
    }

    // --- the store's data ---

    /// Returns the epoch in which the store counted this process's permits, including those to be
    /// given back; none if there are no such permits, or all are reported anew. A store in another
    /// epoch has lost them.
    pub(crate) fn known_epoch(&self, now: Tick) -> Epoch {
        let number = self.here(now).number;
        let first = (number + 1).saturating_sub(self.window.buckets.into());
        let has_own = self
            .own
            .iter()
            .any(|own| own.bucket >= first && own.drawn > 0);
        let has_any = has_own || self.returns();
        if has_any && self.report != Report::All {
            self.epoch
        } else {
            Epoch::default()
        }
    }

    /// Stores the epoch in which the store has counted permits of this process.
    pub(crate) fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// Schedules a report of this process's permits in the window. Returns whether there are any to
    /// report.
    pub(crate) fn must_report(&mut self, report: Report, now: Tick) -> bool {
        if report == Report::All {
            self.report_all();
        }
        self.report = self.report.max(report);
        let has_any = self.has_unreported_past() || !self.to_report(now).is_empty();
        if !has_any {
            self.report = Report::Nothing;
        }
        has_any
    }

    /// Schedules a report of all permits of this process that count, to a store that has lost its
    /// data.
    pub(crate) fn report_all(&mut self) {
        self.report = Report::All;
        self.forget_back();
    }

    /// Returns the permits to report to the store.
    pub(crate) fn to_report(&self, now: Tick) -> Vec<Booking> {
        if self.report == Report::Nothing || self.seen().is_none() {
            return Vec::new();
        }
        let number = self.here(now).number;
        let first = (number + 1).saturating_sub(self.window.buckets.into());
        let of_window = self.own.iter().filter(|own| own.bucket >= first);
        of_window
            .filter_map(|own| {
                let drawn = if self.report == Report::All {
                    own.drawn
                } else {
                    0
                };
                let permits = drawn.saturating_add(own.local);
                (permits > 0).then_some(Booking {
                    bucket: own.bucket,
                    permits,
                })
            })
            .collect()
    }

    /// Returns whether this process has taken permits before the first answer. They cannot be
    /// reported yet, as the store's bucket numbers are unknown.
    pub(crate) fn has_unreported_past(&self) -> bool {
        self.seen().is_none() && !self.own.is_empty()
    }

    /// Returns the permits in the window that were taken without the store, if a report is due.
    pub(crate) fn unknown(&self, now: Tick) -> Vec<Booking> {
        if self.report == Report::Nothing || self.seen().is_none() {
            return Vec::new();
        }
        let number = self.here(now).number;
        let first = (number + 1).saturating_sub(self.window.buckets.into());
        let of_window = self.own.iter().filter(|own| own.bucket >= first);
        let local = of_window.filter(|own| own.local > 0);
        local
            .map(|own| Booking {
                bucket: own.bucket,
                permits: own.local,
            })
            .collect()
    }

    /// Notes that the store has counted the `unknown` permits of this `report`. Permits taken since
    /// then still have to be reported.
    pub(crate) fn reported(&mut self, unknown: &[Booking], report: Report, now: Tick) {
        for told in unknown {
            let mut left = told.permits;
            let same = self.own.iter_mut().filter(|own| own.bucket == told.bucket);
            for own in same {
                let known = own.local.min(left);
                left -= known;
                own.local -= known;
                own.drawn = own.drawn.saturating_add(known);
            }
        }
        if report >= self.report && report > Report::Nothing {
            self.report = Report::Local;
            if self.unknown(now).is_empty() {
                self.report = Report::Nothing;
            }
        }
    }
}
