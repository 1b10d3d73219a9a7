//! The store's clock, as a process reconstructs it from answers.
//!
//! An answer says how long the present bucket lasts. From then on, the process counts buckets by
//! its own clock. The store read its clock at some time between request and answer. So permits
//! expire at the end of the bucket as counted from the request, which is never too late. The next
//! bucket begins at this end as counted from the answer, which is never too early.

use std::time::Duration;

use super::cell::BucketEnd;
use super::ticket::Validity;
use crate::clock::{Tick, nanos};

/// The maximum drift between the clocks of the process and the store is assumed to be `1 / DRIFT`
/// of the elapsed time, which is 100 ppm.
const DRIFT: u32 = 10_000;

/// A reading of the store's clock, from an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The number of the bucket.
    pub(crate) bucket: u64,
    /// The earliest time at which the bucket can be over.
    pub(crate) end: Tick,
    /// The latest time at which the bucket is over.
    pub(crate) next: Tick,
}

/// A bucket by the clock of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    /// The number of the bucket.
    pub(crate) number: u64,
    /// The time until which permits of the bucket are valid.
    pub(crate) end: Tick,
    /// The time at which the next bucket has certainly begun.
    pub(crate) next: Tick,
}

/// Returns the shortest time that the clock of this process can measure while the store's clock
/// measures `time`.
pub(super) fn without_drift(time: Duration) -> Duration {
    time - time / DRIFT
}

impl Seen {
    /// Creates the reading of an answer that arrived at `received`, to a request that was sent at
    /// `sent`. `rest` is the remaining time of the bucket, in which the clocks may drift.
    pub(crate) fn new(bucket: u64, rest: Duration, sent: Tick, received: Tick) -> Self {
        Self {
            bucket,
            end: sent + without_drift(rest),
            next: received + rest,
        }
    }

    /// Returns the validity of permits of the bucket after this one, which has this `length`.
    pub(super) fn next_bucket(self, length: Duration) -> Validity {
        let Self {
            bucket: number,
            end,
            next,
        } = self;
        Here { number, end, next }.next_bucket(length)
    }

    /// Returns the bucket at `now`.
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
            end: self.end + without_drift(later),
            next: self.next + later,
        }
    }
}

impl Here {
    /// Returns the validity of permits of the bucket after this one, which has this `length`.
    pub(super) fn next_bucket(self, length: Duration) -> Validity {
        Validity {
            from: self.next + length / DRIFT,
            end: BucketEnd::at(self.end + without_drift(length)),
        }
    }
}

#[cfg(all(test, not(sentinel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn permits_lose_the_drift_of_the_time_that_is_left() {
        let (day, rest) = (Duration::from_secs(86_400), Duration::from_secs(10));
        let sent = Tick::from_millis(5_000);
        let seen = Seen::new(7, rest, sent, sent);
        // A ten-thousandth of ten seconds, whatever the length of the bucket.
        let end = sent + Duration::from_millis(9_999);
        assert_eq!((seen.end, seen.next), (end, sent + rest));
        // Without another answer, each later bucket adds the drift of its length.
        let here = seen.at(sent + rest, day);
        assert_eq!((here.number, here.next), (8, sent + rest + day));
        assert_eq!(here.end, end + (day - Duration::from_millis(8_640)));
    }
}
