//! Writes the counts of each second of the last minute, as lines.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use super::calendar::{Calendar, second_of};
use super::wire::{CommandRefused, FormParams};
use crate::base::pace::StepPace;
use crate::clock::Tick;
use crate::engine::registry::Registry;
use crate::read::{ResourceReading, read_resources_paced};
use crate::stat::NodeBucket;

/// The maximum number of lines in an answer if the request has no `maxLines`, as in Sentinel.
const LINES: usize = 6_000;
/// The maximum number of lines in any answer, as in Sentinel.
const MOST_LINES: usize = 12_000;
/// The work of reading the seconds of one resource; writing one line is 1.
const WORK: usize = 2;
/// The answer that means "no lines" to the dashboard.
const NONE: &str = "No metrics";

/// The counts of one second.
#[derive(Clone, Copy, Debug, Default)]
struct MetricSecond {
    counts: NodeBucket,
    concurrency: u32,
}

/// The first `most` of all seconds that were added, in the order of time and name.
struct FirstSeconds {
    /// The seconds by their start in unix time, in milliseconds, and the name of the resource.
    seconds: BTreeMap<(i64, Arc<str>), MetricSecond>,
    /// The maximum number of seconds kept.
    most: usize,
}

/// Returns the lines for the seconds that `params` ask for, by time and name.
pub(super) async fn lines(
    registry: &Registry,
    calendar: &Calendar,
    now: Tick,
    params: &FormParams,
    pace: &mut StepPace,
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
    let mut seconds = FirstSeconds {
        seconds: BTreeMap::new(),
        most,
    };
    let mut is_empty = true;
    let mut add = |reading: &ResourceReading<'_>| {
        let name = without_separators(reading.name());
        let is_asked_for = identity.is_none_or(|it| it == &**reading.name());
        if !reading.is_listed() || name.trim().is_empty() || !is_asked_for {
            return;
        }
        let view = reading.view();
        let concurrency = view.concurrency();
        for counts in view.seconds().unwrap_or_default() {
            let second = second_of(counts.start());
            let millis = calendar.unix(second).saturating_mul(1_000);
            // The present second is left out: it has not ended.
            if second < second_of(now) && (start..=end).contains(&millis) && has_counts(&counts) {
                is_empty = false;
                seconds.add(millis, &name, &counts, concurrency);
            }
        }
    };
    read_resources_paced(registry, pace, WORK, &mut add).await;
    if is_empty {
        return Ok(NONE.to_owned());
    }
    let mut lines = String::new();
    for ((millis, name), second) in seconds.seconds {
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
        pace.spend(1).await;
    }
    Ok(lines)
}

// === impl FirstSeconds ===

impl FirstSeconds {
    /// Adds the counts of the resource `name` in the second that begins at `millis`, in unix time.
    fn add(&mut self, millis: i64, name: &Arc<str>, counts: &NodeBucket, concurrency: u32) {
        if self.seconds.len() >= self.most {
            // A second after `most` others is not needed: additions only move it further back.
            let last = self.seconds.keys().next_back();
            if last.is_none_or(|(last, of)| (*last, of) < (millis, name)) {
                return;
            }
        }
        let both = self.seconds.entry((millis, name.clone())).or_default();
        both.counts.merge(counts);
        both.concurrency = both.concurrency.saturating_add(concurrency);
        if self.seconds.len() > self.most {
            self.seconds.pop_last();
        }
    }
}

/// Returns whether anything was counted in a second.
fn has_counts(counts: &NodeBucket) -> bool {
    counts.pass() + counts.block() + counts.complete() + counts.occupied() > 0
}

/// Replaces the characters of `name` that would end a field or a line.
fn without_separators(name: &Arc<str>) -> Arc<str> {
    const ENDS: [char; 3] = ['|', '\r', '\n'];
    if name.contains(ENDS) {
        return name.replace(ENDS, "_").into();
    }
    name.clone()
}
