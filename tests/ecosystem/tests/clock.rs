//! The clock for the model of a service, which is a part of the crate's own tests.

use std::time::Duration;

pub(crate) use tower_sentinel::clock::Tick;

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}
