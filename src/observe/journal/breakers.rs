//! Episodes of breakers: repeated changes of one breaker are logged as one episode.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Changed;
use super::budget::LineBudget;
use super::lines::LogLine;
use crate::breaker::BreakerState;
use crate::clock::Tick;

/// A breaker that flaps is logged once it has not changed for this long.
const SETTLED: Duration = Duration::from_secs(10);
/// A breaker that flaps without pause is logged at this interval. A breaker that has not changed
/// for this long is forgotten.
const MINUTE: Duration = Duration::from_secs(60);

/// The breakers that have changed within the last minute, by resource, direction and rule.
#[derive(Debug, Default)]
pub(super) struct BreakerEpisodes(BTreeMap<(String, &'static str, String), BreakerEpisode>);

#[derive(Debug)]
struct BreakerEpisode {
    /// The last change.
    last: Changed,
    /// When a poll saw the last change.
    at: Tick,
    /// When the episode began, or when its last summary was logged.
    logged: Tick,
    /// How often the breaker has opened.
    opened: u64,
    /// The number of changes that were not logged yet.
    unlogged: u64,
}

impl BreakerEpisodes {
    /// Records a change. The first opening of an episode and the changes that follow it are logged
    /// at once. From the second opening on, the breaker flaps, and [`poll`](Self::poll) logs it.
    pub(super) fn changed(
        &mut self,
        change: Changed,
        now: Tick,
        budget: &mut LineBudget,
        lines: &mut Vec<LogLine>,
    ) {
        let key = (
            change.resource.clone(),
            change.direction,
            change.rule.clone(),
        );
        let episode = self.0.entry(key).or_insert_with(|| BreakerEpisode {
            last: change.clone(),
            at: now,
            logged: now,
            opened: 0,
            unlogged: 0,
        });
        // A record can stand for several changes, and how many of these are openings is unknown.
        // All but one are counted as openings.
        let opened = u64::from(change.to == BreakerState::Open).max(change.times - 1);
        episode.opened += opened;
        (episode.last, episode.at) = (change.clone(), now);
        if episode.opened > 1 {
            episode.unlogged += change.times;
        } else {
            let times = change.times;
            budget.breaker(change, times, lines);
        }
    }

    /// Logs the breakers that flap, and forgets breakers that have not changed for a minute.
    pub(super) fn poll(&mut self, now: Tick, budget: &mut LineBudget, lines: &mut Vec<LogLine>) {
        self.0.retain(|_, episode| {
            let is_due = now - episode.at >= SETTLED || now - episode.logged >= MINUTE;
            if episode.unlogged > 0 && is_due {
                budget.breaker(episode.last.clone(), episode.unlogged, lines);
                (episode.unlogged, episode.logged) = (0, now);
            }
            now - episode.at < MINUTE
        });
    }
}
