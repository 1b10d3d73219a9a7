//! Predicts the outcome for a call that comes later, if no other call comes before it.
//!
//! A later call finds the tokens that are granted and held now, seen from a later bucket. So its
//! answer can be computed now. A quota *agrees* to a bucket if it lets the call run there. For each
//! quota, and each bucket that the call can wait for:
//!
//! * Once the quota has room, it agrees to the bucket.
//! * Before that, it agrees if the window that ends with the bucket will have room. If that window
//!   lies wholly in the future, each future window that contains the bucket must have room.
//!
//! So a quota that does not agree now will agree when it has room, and not sooner. A second reason
//! for a refusal is that the call comes too early for a bucket: its patience is too short, or the
//! ring holds no tokens that far ahead.

use std::time::Duration;

use super::leap_array::LeapArray;
use super::occupy::Wish;
use super::packed::{HeadWord, fits};
use super::quota::{Lending, Quota};
use crate::clock::{Tick, nanos};

/// A call that is assumed to come at some later time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    /// The time at which the call comes.
    pub(crate) at: Tick,
    /// The start time that a queue assigns to the call.
    pub(crate) turn: Tick,
    /// The earliest time at which the call may run: its turn or later.
    pub(crate) from: Tick,
    /// The exclusive upper bound of the wait for a loan; a wait for a turn is not limited by it.
    pub(crate) for_loan: Duration,
    pub(crate) weight: u32,
}

/// The answer for a call that can get no tokens. If no other call comes, no tokens are available
/// before `until`; `None` means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nothing {
    pub(crate) until: Option<Tick>,
}

/// The buckets at which the quotas that are full at the time of a visit have room again.
#[derive(Clone, Copy, Debug, Default)]
struct Rooms {
    /// The earliest bucket at which a full quota that lends has room again.
    first: Option<u64>,
    /// The first bucket at which all full quotas that lend have room again.
    last: u64,
    /// The first bucket at which all full quotas that do not lend have room again.
    strict: u64,
}

// === impl LeapArray ===

impl LeapArray {
    /// Returns the earliest time at which the call of `visit` may run, with tokens that it takes on
    /// arrival or holds for a later bucket.
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

    /// Returns the next time after `at` at which a quota that is full now has room again.
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

    /// Returns the answer of [`foresee`](Self::foresee) as of the head and its bucket in `state`;
    /// `None` if a checkpoint is missing.
    fn find_later(
        &self,
        state: (HeadWord, u64),
        visit: Visit,
        quotas: &[Quota],
    ) -> Option<Result<Tick, Nothing>> {
        let seen = self.bucket_number(visit.at).max(state.1);
        let Some(rooms) = self.rooms(state, seen, visit.weight, quotas)? else {
            return Some(Err(Nothing { until: None }));
        };
        let from = self.bucket_number(visit.from);
        // All quotas have room when the call comes, and it may run in that bucket.
        if from <= seen && rooms.last.max(rooms.strict) <= seen {
            return Some(Ok(visit.from));
        }
        // A quota that does not lend is full until the bucket `strict`.
        if rooms.strict > seen {
            let until = Some(self.start_of(rooms.strict));
            return Some(Err(Nothing { until }));
        }
        // The wait until the turn is not limited; a longer wait must be within `for_loan`.
        let until_turn = (visit.turn - visit.at).saturating_add(Duration::from_nanos(1));
        let patience = visit.for_loan.max(until_turn);
        // The search ignores patience, which is checked below.
        let wish = Wish {
            now: visit.at,
            from: visit.from,
            patience: Duration::MAX,
            weight: visit.weight,
        };
        let target = match self.earliest(state, seen, wish, quotas)? {
            Ok(offer) if self.start_of(offer.bucket) < visit.at + patience => {
                return Some(Ok(visit.from.max(self.start_of(offer.bucket))));
            }
            Ok(offer) => offer.bucket,
            // The ring holds no tokens for buckets further ahead.
            Err(_) => from.max(rooms.last).max(seen + self.ahead() + 1),
        };
        // A later call can get tokens once `target` is within reach of the ring and of the
        // call's patience, or once the first quota has room.
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

    /// Returns when the quotas that are full in bucket `seen` have room again. The inner `None`
    /// means that one of these quotas never has room; the outer `None` means that a checkpoint is
    /// missing.
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
