//! Logs when the store of shared rules fails, recovers, or refuses requests.

use std::time::Duration;

use super::lines::LogLine;
use crate::clock::Tick;
use crate::sentinel::Sentinel;
use crate::store::{StoreErrorKind, StoreState, StoreStatus};

/// The minimum time between two lines that say that the store refuses requests.
const AGAIN: Duration = Duration::from_secs(60);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct StoreWatch {
    /// When a poll first found the store down; `None` if it was not down at the last poll.
    down_since: Option<Tick>,
    /// The number of refused requests when refusals were last logged.
    refused: u64,
    /// When refused requests were last logged; `None` if they never were.
    logged_at: Option<Tick>,
}

impl StoreWatch {
    /// Begins to watch the store of `sentinel`. Earlier refusals are not logged. If the store is
    /// down already, the first poll logs that.
    pub(super) fn of(sentinel: &Sentinel) -> Self {
        let refused = sentinel.store().map_or(0, |store| refused(&store));
        Self {
            refused,
            ..Self::default()
        }
    }

    /// Adds lines about what has happened to the store since the last poll.
    pub(super) fn poll(&mut self, sentinel: &Sentinel, now: Tick, lines: &mut Vec<LogLine>) {
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
            // A store that was stopped has not recovered, so nothing is logged.
            (StoreState::Idle, _) => self.down_since = None,
            _ => {}
        }
        let refused = refused(&store);
        let is_due = self.logged_at.is_none_or(|at| now - at >= AGAIN);
        if refused > self.refused && is_due {
            lines.push(LogLine::StoreRefuses(refused - self.refused));
            (self.refused, self.logged_at) = (refused, Some(now));
        }
    }
}

fn refused(store: &StoreStatus) -> u64 {
    store.errors(StoreErrorKind::Refused)
}
