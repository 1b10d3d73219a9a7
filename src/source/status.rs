//! The outcomes of the polls of a watch, for metrics and pages.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::error::SourceError;
use crate::base::sync::Lock;

/// The outcomes of the polls of a [`Watch`](super::Watch), for metrics and pages. Clones share the
/// outcomes. They keep neither the watch nor its engine alive.
#[derive(Clone, Default)]
pub(crate) struct WatchStatus(Arc<Lock<Outcomes>>);

/// The outcomes of the polls.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    pub(super) last_error: Option<SourceError>,
    pub(super) reloads: u64,
    pub(super) warnings: Vec<String>,
    pub(super) last_poll: Option<SystemTime>,
}

impl WatchStatus {
    /// Runs `f` on the outcomes, to read or change them.
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Outcomes) -> T) -> T {
        f(&mut self.0.lock())
    }

    /// Returns false while the source fails.
    pub(crate) fn is_up(&self) -> bool {
        self.with(|it| it.last_error.is_none())
    }

    /// Returns the present error of the source.
    pub(crate) fn last_error(&self) -> Option<SourceError> {
        self.with(|it| it.last_error.clone())
    }

    /// Returns how many times the watch has put new rules in force.
    pub(crate) fn reloads(&self) -> u64 {
        self.with(|it| it.reloads)
    }

    /// Returns the warnings about the rules that the source returned last.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.with(|it| it.warnings.clone())
    }

    /// Returns when the source was polled last, with any outcome.
    pub(crate) fn last_poll(&self) -> Option<SystemTime> {
        self.with(|it| it.last_poll)
    }
}

impl fmt::Debug for WatchStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchStatus")
            .field("is_up", &self.is_up())
            .field("reloads", &self.reloads())
            .finish_non_exhaustive()
    }
}
