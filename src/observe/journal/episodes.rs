//! Episodes of refusals: successive refusals of one resource are logged as one episode.

use std::collections::BTreeMap;
use std::time::Duration;

use super::counts::{EpisodeKey, Growth};
use crate::blocked::BlockKind;
use crate::clock::Tick;

/// An episode is over after this time without a refusal.
const QUIET: Duration = Duration::from_secs(10);
/// While an episode lasts, it is logged again at this interval.
const REPEATED_AFTER: Duration = Duration::from_secs(60);

/// The number of refusals of each kind, in the order of [`BlockKind::ALL`].
pub(super) type ByKind = [u64; BlockKind::ALL.len()];

/// The episodes that are not over.
#[derive(Debug, Default)]
pub(super) struct Episodes(BTreeMap<EpisodeKey, Episode>);

#[derive(Debug)]
struct Episode {
    /// When the first refusal was seen.
    began: Tick,
    /// When the last refusal was seen.
    last: Tick,
    /// When a line was last due.
    logged: Tick,
    /// The refusals of the episode that no summary has counted.
    by_kind: ByKind,
}

/// A line on the refusals of an episode.
#[derive(Clone, Debug)]
pub(super) struct Refusals {
    pub(super) key: EpisodeKey,
    pub(super) stage: Stage,
    /// The rule whose refusals have grown most since the last poll, if it is known.
    pub(super) rule: Option<String>,
    /// The time from the first refusal of the episode to the last.
    pub(super) lasted: Duration,
    pub(super) by_kind: ByKind,
}

/// The stage of an episode that a line reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Began,
    Ongoing,
    Ended,
}

impl Episodes {
    /// Returns the lines that are due at `now`, given the refusals since the last poll.
    pub(super) fn poll(&mut self, now: Tick, growth: Vec<Growth>) -> Vec<Refusals> {
        let mut due = Vec::new();
        for Growth { key, by_kind, rule } in growth {
            match self.0.get_mut(&key) {
                Some(episode) => {
                    episode.last = now;
                    for (sum, more) in episode.by_kind.iter_mut().zip(by_kind) {
                        *sum = sum.saturating_add(more);
                    }
                }
                None => {
                    let episode = Episode {
                        began: now,
                        last: now,
                        logged: now,
                        by_kind,
                    };
                    due.push(episode.line(&key, Stage::Began, rule));
                    self.0.insert(key, episode);
                }
            }
        }
        self.0.retain(|key, episode| {
            if now - episode.last >= QUIET {
                due.push(episode.line(key, Stage::Ended, None));
                return false;
            }
            if now - episode.logged >= REPEATED_AFTER {
                episode.logged = now;
                due.push(episode.line(key, Stage::Ongoing, None));
            }
            true
        });
        due
    }

    /// Removes the refusals so far from an episode and returns their number, for a summary of
    /// several episodes. The last line of the episode then counts only the later refusals.
    pub(super) fn sum_up(&mut self, key: &EpisodeKey) -> u64 {
        let episode = self.0.get_mut(key);
        episode.map_or(0, |episode| sum(&std::mem::take(&mut episode.by_kind)))
    }
}

/// Returns the number of refusals of all kinds together.
pub(super) fn sum(by_kind: &ByKind) -> u64 {
    by_kind
        .iter()
        .fold(0, |sum, more| sum.saturating_add(*more))
}

impl Episode {
    /// Returns a line with the refusals that no summary has counted.
    fn line(&self, key: &EpisodeKey, stage: Stage, rule: Option<String>) -> Refusals {
        Refusals {
            key: key.clone(),
            stage,
            rule,
            lasted: self.last - self.began,
            by_kind: self.by_kind,
        }
    }
}
