//! The seconds of the last minute, as lines.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::calendar::{Calendar, second_of};
use super::wire::{CommandRefused, FormParams};
use crate::clock::Tick;
use crate::report::read_resources;
use crate::sentinel::Sentinel;
use crate::stat::NodeBucket;

/// Most lines of one answer, if nothing is said, and at all.
const LINES: usize = 6_000;
const MOST_LINES: usize = 12_000;
/// The text that the dashboard takes for an answer without lines.
const NONE: &str = "No metrics";

/// The counts of one second.
#[derive(Clone, Copy, Debug, Default)]
struct MetricSecond {
    counts: NodeBucket,
    concurrency: u32,
}

/// The lines for the seconds that `params` ask for, by time and name.
pub(super) fn lines(
    sentinel: &Sentinel,
    calendar: &Calendar,
    now: Tick,
    params: &FormParams,
) -> Result<String, CommandRefused> {
    let number = |name: &str| match params.get(name).map(str::parse::<i64>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => {
            let text = format!("{name} must be a whole number");
            Err(CommandRefused::bad(text))
        }
    };
    let Some(start) = number("startTime")? else {
        let text = "startTime is missing, must be a number of milliseconds since 1970";
        return Err(CommandRefused::bad(text));
    };
    let end = number("endTime")?.unwrap_or(i64::MAX);
    let most = number("maxLines")?.map_or(LINES, |most| {
        usize::try_from(most).unwrap_or(0).min(MOST_LINES)
    });
    let identity = params.get("identity");
    let mut seconds: BTreeMap<(i64, String), MetricSecond> = BTreeMap::new();
    read_resources(sentinel.registry(), |reading| {
        let name = plain(reading.name());
        let is_asked_for = identity.is_none_or(|it| it == &**reading.name());
        if !reading.is_listed() || name.trim().is_empty() || !is_asked_for {
            return;
        }
        let view = reading.view();
        let concurrency = view.concurrency();
        for counts in view.seconds().unwrap_or_default() {
            let second = second_of(counts.start());
            let millis = calendar.unix(second).saturating_mul(1_000);
            // The present one has not ended.
            if second < second_of(now) && (start..=end).contains(&millis) && is_worth(&counts) {
                let both = seconds.entry((millis, name.clone())).or_default();
                both.counts.merge(&counts);
                both.concurrency = both.concurrency.saturating_add(concurrency);
            }
        }
    });
    if seconds.is_empty() {
        return Ok(NONE.to_owned());
    }
    let mut lines = String::new();
    for ((millis, name), second) in seconds.iter().take(most) {
        let counts = &second.counts;
        let rt = counts.average_rt().map_or(0, |rt| rt.as_millis());
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            "{millis}|{name}|{}|{}|{}|{}|{rt}|{}|{}|0",
            counts.pass(),
            counts.block(),
            counts.complete(),
            counts.error(),
            counts.occupied(),
            second.concurrency,
        );
    }
    Ok(lines)
}

fn is_worth(counts: &NodeBucket) -> bool {
    counts.pass() + counts.block() + counts.complete() + counts.occupied() > 0
}

/// `name` without what ends a field or a line.
fn plain(name: &str) -> String {
    name.replace(['|', '\r', '\n'], "_")
}
