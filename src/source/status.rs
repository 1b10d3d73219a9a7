//! The outcomes of the polls of a watch, for metrics and pages.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::error::SourceError;
use crate::base::sync::Lock;

/// The outcomes of the polls of a [`Watch`](super::Watch): a handle that stays when the watch has
/// gone to its thread, for metrics and pages. A clone is of the same watch. It keeps neither the
/// watch nor its engine alive.
///
/// # Examples
///
/// ```
/// use tower_sentinel::source::{SourceError, Watch, from_fn};
/// use tower_sentinel::{FlowRule, Rules, Sentinel};
///
/// let rules = || Ok(Some(Rules::from(FlowRule::per_second("job", 1))));
/// let broken = || Err(SourceError::new("the server does not answer"));
/// let mut answers = [rules(), broken(), rules()].into_iter();
/// let source = from_fn(move || answers.next().unwrap_or(Ok(None)));
///
/// let watch = Watch::new(Sentinel::new(Rules::new()), source);
/// let status = watch.status();
/// assert!(status.is_up() && status.last_poll().is_none());
/// let seen: Vec<_> = (0..4).map(|_| { watch.poll_once(); status.is_up() }).collect();
/// assert_eq!(seen, [true, false, true, true]);
/// assert_eq!((status.reloads(), status.last_error().is_none()), (1, true));
/// assert!(status.last_poll().is_some());
/// ```
#[derive(Clone, Default)]
pub struct WatchStatus(Arc<Lock<Outcomes>>);

/// The outcomes of the polls.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    pub(super) last_error: Option<SourceError>,
    pub(super) reloads: u64,
    pub(super) warnings: Vec<String>,
    pub(super) last_poll: Option<SystemTime>,
}

impl WatchStatus {
    /// Looks at it, or changes it.
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Outcomes) -> T) -> T {
        f(&mut self.0.lock())
    }

    /// Returns false while the source fails, and so the rules in force may be old.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.with(|it| it.last_error.is_none())
    }

    /// Returns the present error of the source; see [`Watch::last_error`](super::Watch::last_error).
    #[must_use]
    pub fn last_error(&self) -> Option<SourceError> {
        self.with(|it| it.last_error.clone())
    }

    /// Returns how many times the watch has put new rules in force.
    #[must_use]
    pub fn reloads(&self) -> u64 {
        self.with(|it| it.reloads)
    }

    /// Returns the warnings about the rules that the source returned last; see
    /// [`Watch::warnings`](super::Watch::warnings).
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.with(|it| it.warnings.clone())
    }

    /// Returns when the source was polled last, with any outcome, by the clock of the operating
    /// system; `None` if it has not been polled yet.
    #[must_use]
    pub fn last_poll(&self) -> Option<SystemTime> {
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
