//! Limits the lines that a journal writes in a minute, and sums up the lines that are left out.
//!
//! There are separate budgets for the first refusals of episodes, later refusals, changes of
//! breakers, shedding and the store. So no kind of line crowds out another kind. A summary of the
//! previous minute counts as a line of the minute in which it is written.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Changed;
use super::counts::EpisodeKey;
use super::episodes::{Episodes, Refusals, Stage, sum};
use super::lines::LogLine;
use crate::clock::Tick;

/// The maximum lines per minute on first refusals of episodes, including the summary of refusals.
const MOST_BEGAN: u32 = 20;
/// The maximum lines per minute on refusals that continue or have ended.
const MOST_LATER: u32 = 10;
/// The maximum lines per minute on changes of breakers, including their summary.
const MOST_BREAKERS: u32 = 20;
/// The maximum lines per minute on the store, including their summary.
const MOST_STORE: u32 = 10;
/// The maximum lines per minute on shedding. They have no summary, because the lines on refusals
/// count the refused calls as well.
const MOST_SHEDDING: u32 = 10;
/// The period of the budgets.
const MINUTE: Duration = Duration::from_secs(60);
/// The maximum number of names in a summary.
const MOST_NAMES: usize = 10;

/// The number of lines of each kind in this minute, and what was left out in it.
#[derive(Debug, Default)]
pub(super) struct LineBudget {
    /// When the present minute began; `None` before the first poll.
    minute: Option<Tick>,
    /// The lines on first refusals of episodes.
    began: u32,
    /// The lines on refusals that continue or have ended.
    later: u32,
    /// The lines on changes of breakers.
    breakers: u32,
    /// The lines on the store.
    store: u32,
    /// The lines on shedding.
    shedding: u32,
    /// The episodes whose lines were left out, each with its number of refusals if it has ended,
    /// and with 0 if it continues.
    refusals_left_out: BTreeMap<EpisodeKey, u64>,
    /// The resources with changes of breakers that were left out, and the number of these changes.
    breakers_left_out: BTreeMap<String, u64>,
    /// The number of changes of breakers whose resources are unknown, as the hook's queue was full.
    unknown: u64,
    /// The number of lines on the store that were left out.
    store_left_out: u64,
}

impl LineBudget {
    /// Begins a poll. If the minute is over, adds the summaries of the lines that were left out in
    /// it.
    pub(super) fn begin(&mut self, now: Tick, episodes: &mut Episodes, lines: &mut Vec<LogLine>) {
        if self.minute.is_some_and(|began| now - began < MINUTE) {
            return;
        }
        let before = std::mem::take(self);
        self.minute = Some(now);
        if !before.refusals_left_out.is_empty() {
            let mut by_name = Vec::new();
            for (key, gone) in before.refusals_left_out {
                let refused = gone.saturating_add(episodes.sum_up(&key));
                by_name.push((key.name(), refused));
            }
            self.began += 1;
            lines.push(LogLine::MoreRefusals {
                resources: by_name.len() as u64,
                refused: by_name.iter().fold(0, |sum, it| sum.saturating_add(it.1)),
                names: names(by_name),
            });
        }
        let changes = before.breakers_left_out.values().sum::<u64>() + before.unknown;
        if changes > 0 {
            self.breakers += 1;
            let names = names(before.breakers_left_out.into_iter().collect());
            lines.push(LogLine::MoreBreakers { changes, names });
        }
        if before.store_left_out > 0 {
            self.store += 1;
            lines.push(LogLine::MoreStore(before.store_left_out));
        }
    }

    /// Adds a line on refusals if the budget allows. Otherwise notes the episode for the summary.
    pub(super) fn refusals(&mut self, refusals: Refusals, lines: &mut Vec<LogLine>) {
        let (spent, most) = match refusals.stage {
            Stage::Began => (&mut self.began, MOST_BEGAN),
            Stage::Ongoing | Stage::Ended => (&mut self.later, MOST_LATER),
        };
        if count_line(spent, most) {
            return lines.push(LogLine::Refusals(refusals));
        }
        // The refusals of an episode that continues are counted when the summary is written.
        let gone = if refusals.stage == Stage::Ended {
            sum(&refusals.by_kind)
        } else {
            0
        };
        let known = self.refusals_left_out.entry(refusals.key).or_default();
        *known = known.saturating_add(gone);
    }

    /// Adds a line on a breaker, which stands for `changes` changes, if the budget allows.
    /// Otherwise counts the changes for the summary.
    pub(super) fn breaker(&mut self, change: Changed, changes: u64, lines: &mut Vec<LogLine>) {
        if count_line(&mut self.breakers, MOST_BREAKERS) {
            return lines.push(match changes {
                0 | 1 => LogLine::Breaker(change),
                _ => LogLine::Flapped(change, changes),
            });
        }
        *self.breakers_left_out.entry(change.resource).or_default() += changes;
    }

    /// Adds changes of breakers of which only the number is known.
    pub(super) fn unknown_breakers(&mut self, more: u64) {
        self.unknown = self.unknown.saturating_add(more);
    }

    /// Adds the lines on shedding that the budget allows, and drops the rest.
    pub(super) fn shedding(&mut self, due: Vec<LogLine>, lines: &mut Vec<LogLine>) {
        for line in due {
            if count_line(&mut self.shedding, MOST_SHEDDING) {
                lines.push(line);
            }
        }
    }

    /// Adds the lines on the store that the budget allows, and counts the rest for the summary.
    pub(super) fn store(&mut self, due: Vec<LogLine>, lines: &mut Vec<LogLine>) {
        for line in due {
            if count_line(&mut self.store, MOST_STORE) {
                lines.push(line);
            } else {
                self.store_left_out += 1;
            }
        }
    }
}

/// Returns whether the budget has room for one more line, and counts the line if it has.
fn count_line(spent: &mut u32, most: u32) -> bool {
    let has_room = *spent < most;
    *spent += u32::from(has_room);
    has_room
}

/// Lists the names with the largest counts, the largest first.
fn names(mut by_name: Vec<(String, u64)>) -> String {
    by_name.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
    let more = by_name.len().saturating_sub(MOST_NAMES);
    by_name.truncate(MOST_NAMES);
    let mut names: Vec<_> = by_name.into_iter().map(|(name, _)| name).collect();
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
