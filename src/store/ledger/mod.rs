//! The ledger of one counter in one process: its own permits per bucket, the last answer of the
//! store, and which calls wait for the next one.
//!
//! Buckets are those of the [store's clock](super::seen). Between two of them lies one trip, in
//! which no permit is valid.

mod back;
mod out;
mod paid;
mod pending;

use self::pending::Pending;
use super::cell::BucketEnd;
use super::demand::Demand;
use super::draw::{Booking, Epoch};
use super::seen::{Here, Seen};
use super::terms::{Nodes, Terms, Window};
use super::ticket::Validity;
use crate::base::sync::Arc;
use crate::clock::{Tick, nanos};

/// Own permits of one bucket.
#[derive(Clone, Copy, Debug)]
struct Own {
    bucket: u64,
    /// Permits that the store has counted.
    drawn: u32,
    /// Permits that the store does not know of.
    local: u32,
}

/// Which own permits the store must be told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Report {
    #[default]
    Nothing,
    /// Permits that were taken without the store.
    Local,
    /// All: it has lost its data.
    All,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) terms: Arc<Terms>,
    window: Arc<Window>,
    /// A vector would have room for more, and need eight bytes for how much.
    own: Box<[Own]>,
    /// The last answer, if there is one.
    last: Seen,
    has_seen: bool,
    pub(super) report: Report,
    /// When the request was sent whose answer was the last one to say what the store has.
    heard: Tick,
    pub(super) is_hot: bool,
    /// The permits that were free at the last answer, and how much the process had of the window.
    free: u32,
    had: u32,
    epoch: Epoch,
    pub(super) demand: Demand,
    pub(super) uncounted: Uncounted,
    /// The permits in the cell at the last look.
    pub(super) last_held: u32,
    /// Whether the store has said that there is none before the time when there is room again.
    pub(super) has_none: bool,
    /// The calls that have come, as far as they are known, less the draws.
    paid: i32,
    /// `None` if there is nothing of it.
    pub(super) pending: Option<Box<Pending>>,
}

/// The permits that were put into the cell, and of which it is not counted yet that calls took
/// them.
#[derive(Debug, Default)]
pub(super) struct Uncounted {
    /// The end of their bucket.
    pub(super) end: BucketEnd,
    pub(super) permits: u32,
    /// Whether they are of the share, and not of the store.
    pub(super) are_local: bool,
}

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

    /// The last answer of the store, if there is one.
    fn seen(&self) -> Option<Seen> {
        self.has_seen.then_some(self.last)
    }

    /// The bucket at `now`: by the last answer of the store, or else by the process's clock.
    pub(crate) fn here(&self, now: Tick) -> Here {
        let length = self.window.bucket;
        match self.seen() {
            Some(seen) => seen.at(now, length),
            None => {
                let length_ns = nanos(length).max(1);
                let number = now.as_nanos() / length_ns;
                let end = Tick::from_nanos((number + 1).saturating_mul(length_ns));
                Here {
                    number,
                    end,
                    next: end,
                }
            }
        }
    }

    /// The number of the bucket that ends at `end`.
    pub(crate) fn bucket_of(&self, end: BucketEnd) -> u64 {
        // Half a bucket before its end it was the present one, however it was seen.
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

    /// Returns whether the window of the last answer and of all own permits is over at `now`.
    pub(super) fn is_of_the_past(&self, now: Tick) -> bool {
        let memory = u64::from(self.window.buckets) + 2;
        let here = self.here(now).number;
        let is_past = |bucket: u64| bucket.saturating_add(memory) <= here;
        let has_seen = self.seen().is_some_and(|seen| !is_past(seen.bucket));
        !has_seen && self.own.iter().all(|own| is_past(own.bucket))
    }

    /// Returns whether nothing else keeps such a ledger: then a new one is as good.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.is_hot && self.pending.is_none() && self.uncounted.permits == 0
    }

    /// Takes over what an answer has said of the time and of what is free.
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

    /// Permits that were taken before the first answer have the numbers of another clock. The
    /// buckets of both do not begin together, so one near a border may go to the bucket beside it.
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

    /// If the store's clock is far back, permits of the buckets to come are in the present one now,
    /// as in the store. Otherwise they would be told of again when these buckets come again.
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

    /// Takes over the time of an answer that has not said what is free in the present bucket: in a
    /// bucket of which nothing else is known, that counts as nothing.
    pub(crate) fn see_ahead(&mut self, seen: Seen) {
        let is_known = self.seen().is_some_and(|known| known.bucket == seen.bucket);
        let free = if is_known { self.free } else { 0 };
        self.see(seen, free);
    }

    /// The number of the bucket at `now`, and when a call may use permits of the one after it;
    /// `None` if the store has never answered.
    pub(crate) fn next_bucket(&self, now: Tick) -> Option<(u64, Validity)> {
        let length = self.window.bucket;
        let here = self.seen()?.at(now, length);
        Some((here.number, here.next_bucket(length)))
    }

    /// Takes over the time of the store, if nothing is known of it.
    pub(crate) fn see_time(&mut self, seen: Seen) {
        if self.seen().is_none() {
            self.see(seen, u32::MAX);
        }
    }

    // --- own permits ---

    /// Own permits in the window that ends with the bucket `number`.
    pub(crate) fn held(&self, number: u64) -> u32 {
        let first = (number + 1).saturating_sub(self.window.buckets.into());
        let own = self.own.iter().filter(|own| own.bucket >= first);
        own.fold(0, |sum: u32, own| {
            sum.saturating_add(own.drawn).saturating_add(own.local)
        })
    }

    fn own_mut(&mut self, bucket: u64) -> &mut Own {
        let at = self.own.iter().position(|own| own.bucket == bucket);
        let at = at.unwrap_or_else(|| {
            let keep = u64::from(self.window.buckets) + 2;
            let mut all = std::mem::take(&mut self.own).into_vec();
            all.retain(|own| own.bucket + keep > bucket);
            // There are as many ledgers as keys, and most need only one or two.
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

    /// Takes `n` permits off the books that nobody has used. Returns how many of them the
    /// store has counted.
    pub(crate) fn unbook(&mut self, bucket: u64, n: u32) -> u32 {
        let Some(own) = self.own.iter_mut().find(|own| own.bucket == bucket) else {
            return 0;
        };
        let local = own.local.min(n);
        own.local -= local;
        let drawn = own.drawn.min(n - local);
        own.drawn -= drawn;
        drawn
    }

    /// Has `n` permits that the store has counted stand for such as were taken without it in that
    /// bucket, unless it is being told of these. Returns how many do.
    pub(crate) fn pay_local(&mut self, bucket: u64, n: u32) -> u32 {
        if self.tells() || n == 0 {
            return 0;
        }
        let own = self.own.iter_mut().find(|own| own.bucket == bucket);
        own.map_or(0, |own| {
            let paid = own.local.min(n);
            own.local -= paid;
            paid
        })
    }

    /// How many permits of `bucket` the store has granted to the process.
    pub(crate) fn drawn(&self, bucket: u64) -> u32 {
        let own = self.own.iter().find(|own| own.bucket == bucket);
        own.map_or(0, |own| own.drawn)
    }

    fn here_is_before(&self, bucket: u64) -> bool {
        self.seen().is_none_or(|seen| seen.bucket < bucket)
    }

    /// How many permits of `limit` the store may still have in the bucket `number`: as many as it
    /// has said, and in a later bucket all but the own ones.
    pub(crate) fn free_at(&self, number: u64, limit: u32) -> u32 {
        match self.seen() {
            Some(seen) if seen.bucket == number => self.free,
            _ => limit.saturating_sub(self.held(number)),
        }
    }

    /// A refill asks for the free permits divided by this: as much as this process has of all that
    /// was drawn of the window, and no less than an equal part.
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

    // --- without the store ---

    /// How many permits the process may take by itself in the bucket `number`.
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

    /// When there is room for one more without the store, after the bucket at `now`.
    pub(crate) fn local_room_at(&self, now: Tick, nodes: Nodes) -> Tick {
        let here = self.here(now);
        let later = (1..=self.window.buckets)
            .find(|&later| self.share_left(here.number + u64::from(later), nodes) > 0);
        let later = later.unwrap_or(self.window.buckets).saturating_sub(1);
        here.next + self.window.bucket * later
    }

    // --- the store's data ---

    /// The epoch that the store must still have: that of own permits of the window, also of those
    /// that go back. Where it has another one, they are not in its count.
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

    pub(crate) fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// Has the own permits of the window told, if there are any to be told.
    pub(crate) fn must_report(&mut self, report: Report, now: Tick) -> bool {
        if report == Report::All {
            self.report_all();
        }
        self.report = self.report.max(report);
        let has_any = self.has_untold_past() || !self.to_report(now).is_empty();
        if !has_any {
            self.report = Report::Nothing;
        }
        has_any
    }

    /// Reports all own permits that count, to a store that has lost its data.
    pub(crate) fn report_all(&mut self) {
        self.report = Report::All;
        self.forget_back();
    }

    /// The own permits that the store must be told of.
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

    /// Returns whether there are own permits from before the first answer: of these the store
    /// cannot be told yet, as they have no numbers of its buckets.
    pub(crate) fn has_untold_past(&self) -> bool {
        self.seen().is_none() && !self.own.is_empty()
    }

    /// Of these, the ones that were taken without it.
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

    /// The store has been told of what was `unknown` to it, for this `report`. Permits taken
    /// meanwhile are still to be told.
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

#[cfg(all(test, not(sentinel_loom)))]
mod tests;
