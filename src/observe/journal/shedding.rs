//! Which classes of calls adaptive rules have shut, as it was at the last look.

use std::collections::BTreeMap;
use std::time::Duration;

use super::counts::EpisodeKey;
use super::lines::LogLine;
use crate::call::Criticality;
use crate::clock::Tick;
use crate::read::{Shedding, read_resources};
use crate::sentinel::Sentinel;

/// A resource whose shedding begins again within this time has no new lines.
const AGAIN: Duration = Duration::from_secs(60);

/// The resources of which a class is shut, or was not long ago.
#[derive(Debug, Default)]
pub(super) struct SheddingEpisodes(BTreeMap<EpisodeKey, ShutEpisode>);

#[derive(Debug)]
struct ShutEpisode {
    /// Since when a class is shut, and what was refused of each class before.
    shut: Option<(Tick, [u64; 4])>,
    /// When its last line was written.
    told: Tick,
    /// Whether the beginning was told, and that critical calls are refused.
    is_told: bool,
    tells_critical: bool,
}

/// A line on the shedding of a resource.
#[derive(Clone, Debug)]
pub(super) struct SheddingLine {
    pub(super) who: EpisodeKey,
    pub(super) stage: SheddingStage,
}

#[derive(Clone, Debug)]
pub(super) enum SheddingStage {
    /// The classes that are shut, and up to how many calls in flight critical ones are admitted.
    Began { classes: String, bound: u32 },
    /// Critical calls are refused.
    Critical,
    /// How long it was, and what was refused of each class.
    Ended { lasted: Duration, refused: String },
}

impl SheddingEpisodes {
    /// Lines about what has changed since the last look.
    pub(super) fn look(&mut self, sentinel: &Sentinel, now: Tick) -> Vec<LogLine> {
        let mut told = Vec::new();
        let mut seen = BTreeMap::new();
        read_resources(sentinel.registry(), &mut |reading| {
            if let Some(shedding) = reading.shedding().filter(|_| reading.is_listed()) {
                let name = (reading.name().clone(), reading.direction().as_str());
                seen.insert(EpisodeKey(Some(name)), shedding);
            }
        });
        for (who, shedding) in &seen {
            if !shedding.shut().is_empty() || self.0.contains_key(who) {
                self.look_at(who, shedding, now, &mut told);
            }
        }
        self.0.retain(|who, episode| {
            let is_recent = episode.shut.is_some() || now - episode.told < AGAIN;
            is_recent && seen.contains_key(who)
        });
        told
    }

    fn look_at(
        &mut self,
        who: &EpisodeKey,
        shedding: &Shedding,
        now: Tick,
        told: &mut Vec<LogLine>,
    ) {
        let refused = Criticality::ALL.map(|class| shedding.refused(class));
        let mut tell = |stage| {
            let who = who.clone();
            told.push(LogLine::Shedding(SheddingLine { who, stage }));
        };
        let is_shut = !shedding.shut().is_empty();
        let began = || SheddingStage::Began {
            classes: names(shedding.shut()),
            bound: shedding.bound(Criticality::Critical),
        };
        let Some(episode) = self.0.get_mut(who) else {
            let episode = ShutEpisode {
                shut: Some((now, refused)),
                told: now,
                is_told: true,
                tells_critical: false,
            };
            tell(began());
            self.0.insert(who.clone(), episode);
            return;
        };
        match (episode.shut, is_shut) {
            (None, true) => {
                episode.shut = Some((now, refused));
                episode.tells_critical = false;
                episode.is_told = now - episode.told >= AGAIN;
                if episode.is_told {
                    episode.told = now;
                    tell(began());
                }
            }
            (Some((since, before)), false) => {
                episode.shut = None;
                if episode.is_told {
                    let lasted = now - since;
                    let refused = refusals(&refused, &before);
                    tell(SheddingStage::Ended { lasted, refused });
                }
            }
            (Some(_), true) if !episode.is_told && now - episode.told >= AGAIN => {
                // It began too soon after the last one, and lasts.
                (episode.is_told, episode.told) = (true, now);
                tell(began());
            }
            (Some((_, before)), true) => {
                let critical = Criticality::Critical.index();
                let is_critical = refused[critical] > before[critical];
                if is_critical && !episode.tells_critical {
                    episode.tells_critical = true;
                    tell(SheddingStage::Critical);
                }
            }
            (None, false) => {}
        }
    }
}

fn names(classes: &[Criticality]) -> String {
    let names: Vec<_> = classes.iter().map(|class| class.as_str()).collect();
    names.join(" ")
}

/// What was refused of each class since `before`, such as `critical=0 sheddable=71`.
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
