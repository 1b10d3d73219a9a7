//! Changes of breakers: one that changes again and again is one episode.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Changed;
use super::budget::LineBudget;
use super::lines::LogLine;
use crate::breaker::BreakerState;
use crate::clock::Tick;

/// A breaker that flaps is logged when it has not changed for this long, or after a minute.
const SETTLED: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

/// The breakers that have changed of late, by resource, direction and rule.
#[derive(Debug, Default)]
pub(super) struct BreakerEpisodes(BTreeMap<(String, &'static str, String), BreakerEpisode>);

#[derive(Debug)]
struct BreakerEpisode {
    last: Changed,
    at: Tick,
    told: Tick,
    /// How often it has opened.
    opened: u64,
    /// Changes without a line.
    untold: u64,
}

impl BreakerEpisodes {
    /// The first opening and what follows it are logged at once; from the second one on it flaps.
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
            told: now,
            opened: 0,
            untold: 0,
        });
        // One that stands for several has opened more than once.
        let opened = u64::from(change.to == BreakerState::Open).max(change.times - 1);
        episode.opened += opened;
        (episode.last, episode.at) = (change.clone(), now);
        if episode.opened > 1 {
            episode.untold += change.times;
        } else {
            let times = change.times;
            budget.breaker(change, times, lines);
        }
    }

    /// Tells those that have flapped, and forgets those that have been calm.
    pub(super) fn look(&mut self, now: Tick, budget: &mut LineBudget, lines: &mut Vec<LogLine>) {
        self.0.retain(|_, episode| {
            let is_due = now - episode.at >= SETTLED || now - episode.told >= MINUTE;
            if episode.untold > 0 && is_due {
                budget.breaker(episode.last.clone(), episode.untold, lines);
                (episode.untold, episode.told) = (0, now);
            }
            now - episode.at < MINUTE
        });
    }
}
