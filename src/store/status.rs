//! A snapshot of the state of a store, for users.

use std::time::Duration;

#[cfg(feature = "shared")]
use super::hub::{Hub, HubMode};
use super::{StoreError, StoreErrorKind};

/// The state of the connection between an engine and its store.
///
/// # Examples
///
/// ```
/// use tower_sentinel::Sentinel;
/// use tower_sentinel::store::{MemoryStore, StoreState};
///
/// let sentinel = Sentinel::builder().store(MemoryStore::new()).build();
/// assert_eq!(sentinel.store().unwrap().state(), StoreState::Idle);
/// assert!(Sentinel::builder().build().store().is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreState {
    /// The store was not [started](crate::Sentinel::start_store), or was stopped.
    Idle,
    /// The store was [started](crate::Sentinel::start_store) and has not answered yet. Calls wait
    /// for it.
    Starting,
    /// The store answers.
    Live,
    /// The store does not answer. Calls are decided without it, and beats probe it.
    Down,
    /// The store answers again, and processes report the permits that they took without it. This
    /// takes half a second.
    Recovering,
}

/// A copy of the state of a store, and of the statistics of one engine's requests to it. Returned
/// by [`Sentinel::store`](crate::Sentinel::store).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_sentinel::store::{MemoryStore, StoreErrorKind};
/// use tower_sentinel::{Call, FlowRule, Sentinel};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let rule = FlowRule::per_second("/search", 9).shared();
/// let sentinel = Sentinel::builder().rules(rule).store(MemoryStore::new()).build();
/// let handle = sentinel.start_store().unwrap();
/// tokio::time::sleep(Duration::from_millis(20)).await;
/// assert!(sentinel.enter(Call::new("/search")).await.is_ok());
/// let status = sentinel.store().unwrap();
/// assert_eq!((status.nodes(), status.counters()), (1, 1));
/// assert_eq!(status.errors(StoreErrorKind::Late), 0);
/// assert!(status.last_error().is_none());
/// # drop(handle);
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct StoreStatus {
    state: StoreState,
    since: Duration,
    nodes: u32,
    trip: Duration,
    trips: u64,
    draws: u64,
    counters: usize,
    errors: [u64; 6],
    last_error: Option<StoreError>,
}

impl StoreState {
    /// Returns the name of the state: `idle`, `starting`, `live`, `down` or `recovering`.
    ///
    /// ```
    /// assert_eq!(tower_sentinel::store::StoreState::Down.as_str(), "down");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Live => "live",
            Self::Down => "down",
            Self::Recovering => "recovering",
        }
    }
}

impl StoreStatus {
    #[cfg(feature = "shared")]
    pub(crate) fn of(hub: &Hub) -> Self {
        let figures = hub.figures();
        Self {
            state: match hub.mode() {
                HubMode::Idle => StoreState::Idle,
                HubMode::Starting => StoreState::Starting,
                HubMode::Live => StoreState::Live,
                HubMode::Down => StoreState::Down,
                HubMode::Recovering => StoreState::Recovering,
            },
            since: hub.now() - hub.since(),
            nodes: hub.nodes().count,
            trip: hub.trip(),
            trips: figures.trips.get(),
            draws: figures.draws.get(),
            counters: hub.counters(),
            errors: figures.errors.each_ref().map(super::figures::Count::get),
            last_error: hub.last_error(),
        }
    }

    /// Returns the state.
    #[must_use]
    pub const fn state(&self) -> StoreState {
        self.state
    }

    /// Returns for how long the store has been in this state.
    #[must_use]
    pub const fn since(&self) -> Duration {
        self.since
    }

    /// Returns the number of processes by which a limit is divided without the store: the number
    /// that was [set](super::StoreSettings::nodes), or the number of live processes at the last
    /// beat if that is larger.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the moving average of the duration of requests.
    #[must_use]
    pub const fn trip(&self) -> Duration {
        self.trip
    }

    /// Returns how many requests with draws were made.
    #[must_use]
    pub const fn trips(&self) -> u64 {
        self.trips
    }

    /// Returns the total number of draws in these requests.
    #[must_use]
    pub const fn draws(&self) -> u64 {
        self.draws
    }

    /// Returns the current number of counters: one for each shared rule and resource, and for a
    /// rule by key, one for each key.
    #[must_use]
    pub const fn counters(&self) -> usize {
        self.counters
    }

    /// Returns how many requests and draws failed with this kind of error.
    #[must_use]
    pub const fn errors(&self, kind: StoreErrorKind) -> u64 {
        self.errors[kind.index()]
    }

    /// Returns the last error, if there was one.
    #[must_use]
    pub const fn last_error(&self) -> Option<&StoreError> {
        self.last_error.as_ref()
    }
}
