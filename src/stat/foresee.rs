//! The outcome for a call that comes later, if no other call comes until then.
//!
//! A call that comes later finds the tokens that are granted and held now, seen from a later
//! bucket. So the time from which it may wait can be computed now. Of each quota, and for each
//! bucket that the call may wait for:
//!
//! * From the time on at which the quota has room, it agrees.
//! * Before that it agrees if the window that ends with that bucket will have room, from now
//!   on; or, while that window is still to come, if each window to come does that contains the
//!   bucket.
//!
//! So a quota that does not agree now will do so when it has room, and not sooner. The one case
//! left: the call may come too early for a bucket: by its patience, or because the ring holds
//! nothing so far ahead.

use std::time::Duration;

use super::leap_array::LeapArray;
use super::occupy::Wish;
use super::packed::{HeadWord, fits};
use super::quota::{Lending, Quota};
use crate::clock::{Tick, nanos};

/// A call that may come at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    /// The time at which the call comes.
    pub(crate) at: Tick,
    /// The start that its queue gives it.
    pub(crate) turn: Tick,
    /// From when on it may run: its turn or later.
    pub(crate) from: Tick,
    /// The exclusive upper bound of the wait for a loan; a wait for a turn is not limited by it.
    pub(crate) for_loan: Duration,
    pub(crate) weight: u32,
}

/// A call finds no tokens. If no other call comes, there are none before `until`; `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nothing {
    pub(crate) until: Option<Tick>,
}

/// The buckets in which quotas that are full at some time have room again.
#[derive(Clone, Copy, Debug, Default)]
struct Rooms {
    /// The earliest bucket among quotas that lend.
    first: Option<u64>,
    /// The latest bucket among quotas that lend; `strict`: among quotas that do not.
    last: u64,
    strict: u64,
}

// === impl LeapArray ===

impl LeapArray {
    /// From when on the call of `visit` may run if it comes then, and takes tokens or holds
    /// some for a coming bucket.
    pub(crate) fn foresee(
        &self,
        now: Tick,
        visit: Visit,
        quotas: &[Quota],
    ) -> Result<Tick, Nothing> {
        loop {
            let Ok((head, bucket)) = self.present(self.bucket_number(now)) else {
                // A reload changed the ring meanwhile.
                return Err(Nothing { until: None });
            };
            match self.find_later((head, bucket), visit, quotas) {
                Some(found) if self.is_still_at(head) => return found,
                Some(_) => {}
                None => self.find_cut(head, bucket, quotas),
            }
        }
    }

    /// The next time after `at` at which one of `quotas` has room that has none then.
    pub(crate) fn next_room(
        &self,
        now: Tick,
        at: Tick,
        weight: u32,
        quotas: &[Quota],
    ) -> Option<Tick> {
        let mut next: Option<Tick> = None;
        for quota in quotas {
            if self.has_room(now, weight, quota) {
                continue;
            }
            match self.available_at(now, weight, quota) {
                Some(room) if room > at && next.is_none_or(|next| room < next) => next = Some(room),
                _ => {}
            }
        }
        next
    }

    /// Finds the bucket while the head stands still; `None` if a checkpoint is missing.
    fn find_later(
        &self,
        stand: (HeadWord, u64),
        visit: Visit,
        quotas: &[Quota],
    ) -> Option<Result<Tick, Nothing>> {
        let seen = self.bucket_number(visit.at).max(stand.1);
        let Some(rooms) = self.rooms(stand, seen, visit.weight, quotas)? else {
            return Some(Err(Nothing { until: None }));
        };
        let from = self.bucket_number(visit.from);
        if from <= seen && rooms.last.max(rooms.strict) <= seen {
            return Some(Ok(visit.from));
        }
        if rooms.strict > seen {
            let until = Some(self.start_of(rooms.strict));
            return Some(Err(Nothing { until }));
        }
        let until_turn = (visit.turn - visit.at).saturating_add(Duration::from_nanos(1));
        let patience = visit.for_loan.max(until_turn);
        // However late it begins.
        let wish = Wish {
            now: visit.at,
            from: visit.from,
            patience: Duration::MAX,
            weight: visit.weight,
        };
        let target = match self.earliest(stand, seen, wish, quotas)? {
            Ok(offer) if self.start_of(offer.bucket) < visit.at + patience => {
                return Some(Ok(visit.from.max(self.start_of(offer.bucket))));
            }
            Ok(offer) => offer.bucket,
            // The ring holds no tokens for buckets further ahead.
            Err(_) => from.max(rooms.last).max(seen + self.ahead() + 1),
        };
        let start = self.start_of(target);
        let mut until = self.start_of(target.saturating_sub(self.ahead()));
        if start > visit.turn {
            let soon = start.as_nanos().saturating_sub(nanos(visit.for_loan));
            until = until.max(Tick::from_nanos(soon.saturating_add(1)));
        }
        if let Some(first) = rooms.first {
            until = until.min(self.start_of(first));
        }
        Some(Err(Nothing { until: Some(until) }))
    }

    /// When those of `quotas` have room that have none in bucket `seen`; an inner `None` if one
    /// never has, an outer one if a checkpoint is missing.
    fn rooms(
        &self,
        (head, bucket): (HeadWord, u64),
        seen: u64,
        weight: u32,
        quotas: &[Quota],
    ) -> Option<Option<Rooms>> {
        let mut rooms = Rooms::default();
        for quota in quotas {
            if fits(
                head.granted(),
                self.cut(quota.start(bucket))?,
                weight,
                quota.limit(),
            ) {
                continue;
            }
            let Some(most) = quota.limit().checked_sub(weight) else {
                return Some(None);
            };
            let room = self.target_of(head, bucket, most, quota)?;
            if room <= seen {
                continue;
            }
            if quota.lending() == Lending::Nothing {
                rooms.strict = rooms.strict.max(room);
            } else {
                rooms.first = Some(rooms.first.map_or(room, |first| first.min(room)));
                rooms.last = rooms.last.max(room);
            }
        }
        Some(Some(rooms))
    }
}
