//! Writes durations for people.

use std::time::Duration;

/// Writes `time` in the largest unit in which it is a whole number.
pub(super) fn time(time: Duration) -> String {
    let ns = time.as_nanos();
    let units = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "µs"),
    ];
    let unit = units.iter().find(|(unit, _)| ns > 0 && ns % unit == 0);
    unit.map_or_else(
        || format!("{ns} ns"),
        |(unit, word)| format!("{} {word}", ns / unit),
    )
}
