//! The clock of the store, as the answers to a process tell it.
//!
//! An answer says how long the present bucket lasts. From then on the process counts buckets by its
//! own clock. Permits are used until the end as seen by the request, which is never late; the next
//! bucket begins as seen by the answer, which is never early.

use std::time::Duration;

use super::cell::BucketEnd;
use super::ticket::Validity;
use crate::clock::{Tick, nanos};

/// A clock may drift from the store's by a bucket in this many: 100 ppm.
const DRIFT: u32 = 10_000;

/// The clock of the store as the last answer told it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The number of the bucket.
    pub(crate) bucket: u64,
    /// The earliest time at which the bucket may be over.
    pub(crate) end: Tick,
    /// The latest time at which the bucket is over.
    pub(crate) next: Tick,
}

/// A bucket by the clock of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    pub(crate) number: u64,
    /// The time until which permits of the bucket are valid.
    pub(crate) end: Tick,
    /// The time at which the next bucket has begun for sure.
    pub(crate) next: Tick,
}

impl Seen {
    /// The reading of an answer that was asked for at `sent` and came at `received`.
    pub(crate) fn new(
        bucket: u64,
        rest: Duration,
        sent: Tick,
        received: Tick,
        length: Duration,
    ) -> Self {
        let end = sent + rest.saturating_sub(length / DRIFT);
        Self {
            bucket,
            end,
            next: received + rest,
        }
    }

    /// When a call may use permits of the bucket after it.
    pub(super) fn next_bucket(self, length: Duration) -> Validity {
        let Self {
            bucket: number,
            end,
            next,
        } = self;
        Here { number, end, next }.next_bucket(length)
    }

    pub(super) fn at(self, now: Tick, length: Duration) -> Here {
        let length_ns = nanos(length).max(1);
        let gone = if now < self.next {
            0
        } else {
            now.nanos_since(self.next) / length_ns + 1
        };
        let later = Duration::from_nanos(length_ns.saturating_mul(gone));
        Here {
            number: self.bucket.saturating_add(gone),
            end: self.end + later,
            next: self.next + later,
        }
    }
}

impl Here {
    /// When a call may use permits of the bucket after it.
    pub(super) fn next_bucket(self, length: Duration) -> Validity {
        let drift = length / DRIFT;
        Validity {
            from: self.next + drift,
            end: BucketEnd::at(self.end + length.saturating_sub(drift)),
        }
    }
}
