//! The store of shared rules, as it was at the last look.

use std::time::Duration;

use super::lines::LogLine;
use crate::clock::Tick;
use crate::sentinel::Sentinel;
use crate::store::{StoreErrorKind, StoreState, StoreStatus};

/// A store that still refuses is logged again after this long.
const AGAIN: Duration = Duration::from_secs(60);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct StoreWatch {
    /// Since when the store has been down, if it was at the last look.
    down_since: Option<Tick>,
    refused: u64,
    told_at: Option<Tick>,
}

impl StoreWatch {
    /// Refusals of earlier are not told; that the store is down is.
    pub(super) fn of(sentinel: &Sentinel) -> Self {
        let refused = sentinel.store().map_or(0, |store| refused(&store));
        Self {
            refused,
            ..Self::default()
        }
    }

    /// Lines about what has become of the store since the last look.
    pub(super) fn look(&mut self, sentinel: &Sentinel, now: Tick, lines: &mut Vec<LogLine>) {
        let Some(store) = sentinel.store() else {
            return;
        };
        match (store.state(), self.down_since) {
            (StoreState::Down, None) => {
                self.down_since = Some(now);
                let kind = store.last_error().map(|error| error.kind().as_str());
                lines.push(LogLine::StoreDown(kind.unwrap_or_default()));
            }
            (StoreState::Live | StoreState::Recovering, Some(since)) => {
                self.down_since = None;
                lines.push(LogLine::StoreBack(now - since));
            }
            // One that was stopped is not told to be back.
            (StoreState::Idle, _) => self.down_since = None,
            _ => {}
        }
        let refused = refused(&store);
        let is_due = self.told_at.is_none_or(|told| now - told >= AGAIN);
        if refused > self.refused && is_due {
            lines.push(LogLine::StoreRefuses(refused - self.refused));
            (self.refused, self.told_at) = (refused, Some(now));
        }
    }
}

fn refused(store: &StoreStatus) -> u64 {
    store.errors(StoreErrorKind::Refused)
}
