//! The last minute of a resource, second by second, without the present second, which has not
//! ended.

use std::time::Duration;

use crate::call::Direction;
use crate::clock::Tick;
use crate::sentinel::Sentinel;
use crate::stat::NodeBucket;

/// The number of seconds that are shown.
const SECONDS: usize = 60;
pub(super) const NANOS: u64 = 1_000_000_000;

/// The counts of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Second {
    pub(super) pass: u64,
    pub(super) block: u64,
    pub(super) error: u64,
    /// The number of calls that ended.
    pub(super) calls: u64,
    /// The sum of the response times of these calls.
    pub(super) rt: Duration,
}

/// The seconds of the last minute, oldest first.
pub(super) type LastMinute = [Second; SECONDS];

/// Returns the last minute of one resource; `None` if the resource keeps no seconds.
pub(super) fn minute_of(
    sentinel: &Sentinel,
    direction: Direction,
    name: &str,
    now: Tick,
) -> Option<LastMinute> {
    let view = match direction {
        Direction::Inbound => sentinel.node(name),
        Direction::Outbound => sentinel.outbound_node(name),
    };
    let mut minute = LastMinute::from([Second::default(); SECONDS]);
    add(&mut minute, &view?.seconds()?, now);
    Some(minute)
}

/// The last minute of all resources together. Each reading adds the seconds that have ended since
/// the last reading.
#[derive(Clone, Debug)]
pub(super) struct CommonMinute {
    seconds: LastMinute,
    /// The first second that was not added yet, counted from the start of the clock.
    next: u64,
}

impl CommonMinute {
    pub(super) const fn new() -> Self {
        Self {
            seconds: [Second {
                pass: 0,
                block: 0,
                error: 0,
                calls: 0,
                rt: Duration::ZERO,
            }; SECONDS],
            next: 0,
        }
    }

    /// Advances the minute to `now`. Returns the start of the first second whose counts are to be
    /// added.
    pub(super) fn begin(&mut self, now: Tick) -> Tick {
        let present = now.as_nanos() / NANOS;
        let first = self.next.max(present.saturating_sub(SECONDS as u64));
        // Shifts the seconds that are more than a minute old out at the front, and clears the same
        // number of places at the end for the seconds since `next`.
        let gone = usize::try_from(present.saturating_sub(self.next)).unwrap_or(SECONDS);
        self.seconds.rotate_left(gone.min(SECONDS) % SECONDS);
        for second in &mut self.seconds[SECONDS - gone.min(SECONDS)..] {
            *second = Second::default();
        }
        self.next = present.max(self.next);
        Tick::from_nanos(first.saturating_mul(NANOS))
    }

    /// Adds the counts of the `buckets` that began at `from` or later.
    pub(super) fn add(&mut self, buckets: &[NodeBucket], from: Tick) {
        let now = Tick::from_nanos(self.next.saturating_mul(NANOS));
        let new = buckets.iter().position(|bucket| bucket.start() >= from);
        add(
            &mut self.seconds,
            &buckets[new.unwrap_or(buckets.len())..],
            now,
        );
    }

    pub(super) const fn seconds(&self) -> LastMinute {
        self.seconds
    }
}

/// Adds the counts of `buckets`, each of one second, to the seconds of the minute before `now`.
fn add(minute: &mut LastMinute, buckets: &[NodeBucket], now: Tick) {
    let present = now.as_nanos() / NANOS;
    for bucket in buckets {
        let age = present.checked_sub(bucket.start().as_nanos() / NANOS);
        let place = age.and_then(|age| SECONDS.checked_sub(usize::try_from(age).ok()?));
        if let Some(second) = place.and_then(|place| minute.get_mut(place)) {
            second.pass += bucket.pass();
            second.block += bucket.block();
            second.error += bucket.error();
            second.calls += bucket.calls();
            second.rt += bucket.rt();
        }
    }
}
