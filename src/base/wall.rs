//! The wall clock, which may be set at any time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time of the system, to be shown, or to be agreed on with other processes. No wait
/// depends on it.
#[expect(clippy::disallowed_methods, reason = "no time is measured by it")]
pub(crate) fn wall_time() -> SystemTime {
    SystemTime::now()
}

/// Returns the time since 1970; zero for a clock that is set to an earlier time.
pub(crate) fn since_1970() -> Duration {
    wall_time().duration_since(UNIX_EPOCH).unwrap_or_default()
}
