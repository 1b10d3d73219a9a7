//! The wall clock, which may be set at any time.

use std::time::SystemTime;

/// The time of the system: to be shown, or to be agreed on with other processes. Nothing waits for
/// it.
#[expect(clippy::disallowed_methods, reason = "no time is measured by it")]
pub(crate) fn wall_time() -> SystemTime {
    SystemTime::now()
}
