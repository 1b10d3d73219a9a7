//! The last minute of a resource, second by second, without the present one: it has not ended.

use std::time::Duration;

use crate::call::Direction;
use crate::clock::Tick;
use crate::engine::registry::Registry;
use crate::sentinel::Sentinel;
use crate::stat::NodeBucket;

/// Seconds that are told.
const SECONDS: usize = 60;
pub(super) const NANOS: u64 = 1_000_000_000;

/// The counts of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Second {
    pub(super) pass: u64,
    pub(super) block: u64,
    pub(super) error: u64,
    pub(super) calls: u64,
    pub(super) rt: Duration,
}

/// Those of the last minute, oldest first.
pub(super) type LastMinute = [Second; SECONDS];

/// The minute of one resource; `None` if it keeps none.
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

/// That of all resources that keep one.
pub(super) fn minute_of_all(registry: &Registry, now: Tick) -> LastMinute {
    let time = &registry.shared().time;
    let mut minute = [Second::default(); SECONDS];
    let _ = registry.resources().read_all(|resource| {
        let node = resource.node().latest();
        let present = time.check(time.read(), node.seen());
        add(&mut minute, &node.seconds(present).unwrap_or_default(), now);
    });
    minute
}

/// Adds what was counted in `buckets`, which are seconds, where they belong at `now`.
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
