//! Logs when adaptive rules shut classes of calls and open them again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::counts::EpisodeKey;
use super::lines::LogLine;
use crate::call::Criticality;
use crate::clock::Tick;
use crate::read::{Shedding, read_resources};
use crate::sentinel::Sentinel;

/// The minimum time between two lines `shedding began` for one resource.
const AGAIN: Duration = Duration::from_secs(60);

/// The resources of which a class is shut, or was shut recently.
#[derive(Debug, Default)]
pub(super) struct SheddingEpisodes(BTreeMap<EpisodeKey, ShutEpisode>);

#[derive(Debug)]
struct ShutEpisode {
    /// When a class was first shut, and the refusals of each class until then. `None` while all
    /// classes are open.
    shut: Option<(Tick, [u64; 4])>,
    /// When `shedding began` was last logged for the resource, in the present or an earlier
    /// shedding.
    logged: Tick,
    /// Whether `shedding began` was logged for the present shedding.
    is_logged: bool,
    /// Whether it was logged that critical calls are refused.
    has_logged_critical: bool,
}

/// A line on the shedding of a resource.
#[derive(Clone, Debug)]
pub(super) struct SheddingLine {
    pub(super) key: EpisodeKey,
    pub(super) stage: SheddingStage,
}

#[derive(Clone, Debug)]
pub(super) enum SheddingStage {
    /// The classes that are shut, and the number of calls in flight up to which critical calls are
    /// admitted.
    Began { classes: String, bound: u32 },
    /// Critical calls are refused as well.
    Critical,
    /// How long the shedding lasted, and the refusals of each class.
    Ended { lasted: Duration, refused: String },
}

impl SheddingEpisodes {
    /// Returns lines about what has changed since the last poll.
    pub(super) fn poll(&mut self, sentinel: &Sentinel, now: Tick) -> Vec<LogLine> {
        let mut lines = Vec::new();
        let mut seen = BTreeMap::new();
        read_resources(sentinel.registry(), &mut |reading| {
            if let Some(shedding) = reading.shedding().filter(|_| reading.is_listed()) {
                let name = (reading.name().clone(), reading.direction().as_str());
                seen.insert(EpisodeKey(Some(name)), shedding);
            }
        });
        for (key, shedding) in &seen {
            if !shedding.shut().is_empty() || self.0.contains_key(key) {
                self.poll_resource(key, shedding, now, &mut lines);
            }
        }
        self.0.retain(|key, episode| {
            let is_recent = episode.shut.is_some() || now - episode.logged < AGAIN;
            is_recent && seen.contains_key(key)
        });
        lines
    }

    /// Adds the lines about one resource of which a class is shut, or was shut recently.
    fn poll_resource(
        &mut self,
        key: &EpisodeKey,
        shedding: &Shedding,
        now: Tick,
        lines: &mut Vec<LogLine>,
    ) {
        let refused = Criticality::ALL.map(|class| shedding.refused(class));
        let mut log = |stage| {
            let key = key.clone();
            lines.push(LogLine::Shedding(SheddingLine { key, stage }));
        };
        let is_shut = !shedding.shut().is_empty();
        let began = || SheddingStage::Began {
            classes: names(shedding.shut()),
            bound: shedding.bound(Criticality::Critical),
        };
        let Some(episode) = self.0.get_mut(key) else {
            let episode = ShutEpisode {
                shut: Some((now, refused)),
                logged: now,
                is_logged: true,
                has_logged_critical: false,
            };
            log(began());
            self.0.insert(key.clone(), episode);
            return;
        };
        match (episode.shut, is_shut) {
            (None, true) => {
                episode.shut = Some((now, refused));
                episode.has_logged_critical = false;
                episode.is_logged = now - episode.logged >= AGAIN;
                if episode.is_logged {
                    episode.logged = now;
                    log(began());
                }
            }
            (Some((since, before)), false) => {
                episode.shut = None;
                if episode.is_logged {
                    let lasted = now - since;
                    let refused = refusals(&refused, &before);
                    log(SheddingStage::Ended { lasted, refused });
                }
            }
            (Some(_), true) if !episode.is_logged && now - episode.logged >= AGAIN => {
                // The shedding began too soon after the last line to be logged at once, and it
                // still lasts.
                (episode.is_logged, episode.logged) = (true, now);
                log(began());
            }
            (Some((_, before)), true) => {
                let critical = Criticality::Critical.index();
                let is_critical = refused[critical] > before[critical];
                if is_critical && !episode.has_logged_critical {
                    episode.has_logged_critical = true;
                    log(SheddingStage::Critical);
                }
            }
            (None, false) => {}
        }
    }
}

/// Lists the names of `classes`.
fn names(classes: &[Criticality]) -> String {
    let names: Vec<_> = classes.iter().map(|class| class.as_str()).collect();
    names.join(" ")
}

/// Writes the refusals of each class since `before`, such as `critical=2 sheddable=71`. Classes
/// without refusals are left out.
fn refusals(now: &[u64; 4], before: &[u64; 4]) -> String {
    let mut texts = Vec::new();
    for class in Criticality::ALL {
        let index = class.index();
        let more = now[index].saturating_sub(before[index]);
        if more > 0 {
            texts.push(format!("{class}={more}"));
        }
    }
    texts.join(" ")
}
